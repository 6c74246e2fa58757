// One end of the tests of interoperability, with omniORB.
//
//   peer server [-ORB...]         prints a reference, serves until its standard input ends
//   peer forward REF [-ORB...]    the same, and forwards each call to REF
//   peer client REF [-ORB...]     calls each operation, prints what differs, ends with 1 if something does

#include <iostream>
#include <string>
#include <unistd.h>

#include "interop.hh"

using namespace Interop;

static CORBA::ORB_var orb;
static int mistakes = 0;

static void check(bool is_right, const char *what) {
    if (!is_right) {
        std::cout << "wrong: " << what << std::endl;
        mistakes++;
    }
}

class PeerServant : public POA_Interop::Peer, public PortableServer::RefCountServantBase {
    CORBA::Long number = 0;
    omni_mutex lock;
    std::string last;

public:
    CORBA::Long level() { return number; }
    void level(CORBA::Long value) { number = value; }
    char *orb() { return CORBA::string_dup("omniORB"); }
    char *echo(const char *text) { return CORBA::string_dup(text); }
    CORBA::WChar *echo_wide(const CORBA::WChar *text) { return CORBA::wstring_dup(text); }
    CORBA::WChar echo_wide_character(CORBA::WChar value) { return value; }
    CORBA::Char echo_character(CORBA::Char value) { return value; }
    Colour echo_colour(Colour value) { return value; }
    Point echo_point(const Point &value) { return value; }
    Points *echo_points(const Points &value) { return new Points(value); }
    Tens *echo_tens(const Tens &value) { return new Tens(value); }
    Choice *echo_choice(const Choice &value) { return new Choice(value); }
    Maybe *echo_maybe(const Maybe &value) { return new Maybe(value); }
    Tree *echo_tree(const Tree &value) { return new Tree(value); }
    Grid_slice *echo_grid(const Grid value) { return Grid_dup(value); }
    Price echo_price(const Price &value) { return value; }
    Octets *echo_octets(const Octets &value) { return new Octets(value); }
    Doubles *echo_doubles(const Doubles &value) { return new Doubles(value); }
    Texts *echo_texts(const Texts &value) { return new Texts(value); }
    Labels *echo_labels(const Labels &value) { return new Labels(value); }
    CORBA::Any *echo_any(const CORBA::Any &value) { return new CORBA::Any(value); }
    CORBA::TypeCode_ptr echo_type(CORBA::TypeCode_ptr value) { return CORBA::TypeCode::_duplicate(value); }
    Peer_ptr echo_reference(Peer_ptr value) { return Interop::Peer::_duplicate(value); }
    CORBA::Object_ptr echo_object(CORBA::Object_ptr value) { return CORBA::Object::_duplicate(value); }

    CORBA::Long all_ways(CORBA::Long given, CORBA::Long &both, CORBA::Long &back) {
        CORBA::Long before = both;
        both = back = given;
        return before;
    }

    void refuse(CORBA::Boolean empty) {
        if (empty)
            throw Empty();
        throw Refused("because", 7);
    }

    void fail() { throw CORBA::NO_PERMISSION(3, CORBA::COMPLETED_YES); }

    void tell(const char *text) {
        omni_mutex_lock locked(lock);
        last = text;
    }

    char *told() {
        omni_mutex_lock locked(lock);
        return CORBA::string_dup(last.c_str());
    }

    CORBA::Long call_back(Listener_ptr to, CORBA::Long times) {
        CORBA::Long sum = 0;
        for (CORBA::Long number = 0; number < times; number++)
            sum += to->hear("called back");
        return sum;
    }
};

class ListenerServant : public POA_Interop::Listener, public PortableServer::RefCountServantBase {
public:
    CORBA::Long hear(const char *text) { return (CORBA::Long)std::string(text).size(); }
};

class Forwarder : public POA_PortableServer::ServantLocator, public PortableServer::RefCountServantBase {
    CORBA::Object_var to;

public:
    Forwarder(CORBA::Object_ptr to) : to(CORBA::Object::_duplicate(to)) {}
    PortableServer::Servant preinvoke(const PortableServer::ObjectId &, PortableServer::POA_ptr, const char *,
                                      void *&) {
        throw PortableServer::ForwardRequest(to);
    }
    void postinvoke(const PortableServer::ObjectId &, PortableServer::POA_ptr, const char *, void *,
                    PortableServer::Servant) {}
};

static PortableServer::POA_ptr root() {
    CORBA::Object_var object = orb->resolve_initial_references("RootPOA");
    PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
    PortableServer::POAManager_var manager = poa->the_POAManager();
    manager->activate();
    return poa._retn();
}

// A POA that lets servers call back over the connection of the client.
static PortableServer::POA_ptr bidirectional(PortableServer::POA_ptr parent) {
    CORBA::PolicyList policies(1);
    policies.length(1);
    CORBA::Any value;
    value <<= BiDirPolicy::BOTH;
    policies[0] = orb->create_policy(BiDirPolicy::BIDIRECTIONAL_POLICY_TYPE, value);
    PortableServer::POAManager_var manager = parent->the_POAManager();
    return parent->create_POA("bidirectional", manager, policies);
}

static void publish(CORBA::Object_ptr object) {
    CORBA::String_var text = orb->object_to_string(object);
    std::cout << (char *)text << std::endl;
    char byte;
    while (read(0, &byte, 1) > 0) {
    }
}

// An object whose key is the same in each life of the server.
static void named() {
    CORBA::Object_var object = orb->resolve_initial_references("omniINSPOA");
    PortableServer::POA_var poa = PortableServer::POA::_narrow(object);
    PortableServer::POAManager_var manager = poa->the_POAManager();
    manager->activate();
    PortableServer::ObjectId_var id = PortableServer::string_to_ObjectId("peer");
    poa->activate_object_with_id(id, new PeerServant);
}

static int server() {
    PortableServer::POA_var parent = root();
    named();
    PortableServer::POA_var poa = bidirectional(parent);
    PortableServer::ObjectId_var id = poa->activate_object(new PeerServant);
    CORBA::Object_var object = poa->id_to_reference(id);
    publish(object);
    return 0;
}

static int forward(const char *to) {
    PortableServer::POA_var parent = root();
    CORBA::PolicyList policies(3);
    policies.length(3);
    policies[0] = parent->create_request_processing_policy(PortableServer::USE_SERVANT_MANAGER);
    policies[1] = parent->create_servant_retention_policy(PortableServer::NON_RETAIN);
    policies[2] = parent->create_id_assignment_policy(PortableServer::USER_ID);
    PortableServer::POAManager_var manager = parent->the_POAManager();
    PortableServer::POA_var poa = parent->create_POA("forward", manager, policies);
    CORBA::Object_var target = orb->string_to_object(to);
    PortableServer::ServantManager_var locator = (new Forwarder(target))->_this();
    poa->set_servant_manager(locator);
    PortableServer::ObjectId_var id = PortableServer::string_to_ObjectId("forwarded");
    CORBA::Object_var object = poa->create_reference_with_id(id, "IDL:Interop/Peer:1.0");
    publish(object);
    return 0;
}

static void values(Peer_ptr peer, bool has_wide, CORBA::ULong count) {
    CORBA::String_var text = peer->echo("hello");
    check(std::string(text) == "hello", "string");
    text = peer->echo("");
    check(std::string(text) == "", "empty string");
    if (has_wide) {
        CORBA::WString_var wide = peer->echo_wide(L"h\u20acllo");
        check(std::wstring(wide) == L"h\u20acllo", "wide string");
        check(peer->echo_wide_character(L'\u20ac') == L'\u20ac', "wide character");
    }
    check(peer->echo_character('x') == 'x', "character");
    check(peer->echo_colour(blue) == blue, "enumeration");
    Point point = {7, 1.5, -2.5};
    Point other = peer->echo_point(point);
    check(other.level == 7 && other.x == 1.5 && other.y == -2.5, "structure");

    Tens tens;
    tens.length(count);
    for (CORBA::ULong i = 0; i < count; i++) {
        Ten &one = tens[i];
        one.a = i % 2;
        one.b = 'b';
        one.c = i % 256;
        one.d = -(CORBA::Short)i;
        one.e = i;
        one.f = -(CORBA::Long)i * 1000;
        one.g = i * 1000;
        one.h = -(CORBA::LongLong)i * 1000000007LL;
        one.i = i * 0.5f;
        one.j = CORBA::string_dup(std::string(i % 10, 'j').c_str());
    }
    Tens_var back = peer->echo_tens(tens);
    bool same = back->length() == count;
    for (CORBA::ULong i = 0; same && i < count; i++) {
        const Ten &a = tens[i], &b = back[i];
        same = a.a == b.a && a.b == b.b && a.c == b.c && a.d == b.d && a.e == b.e && a.f == b.f && a.g == b.g &&
               a.h == b.h && a.i == b.i && std::string(a.j) == std::string(b.j);
    }
    check(same, "sequence of structures");

    Choice choice;
    choice.number(5);
    Choice_var chosen = peer->echo_choice(choice);
    check(chosen->_d() == red && chosen->number() == 5, "union, a number");
    choice.text("t");
    chosen = peer->echo_choice(choice);
    check(chosen->_d() == green && std::string(chosen->text()) == "t", "union, a string");
    choice.place(point);
    chosen = peer->echo_choice(choice);
    check(chosen->_d() == blue && chosen->place().x == 1.5, "union, the default");
    Maybe maybe;
    maybe._default();
    Maybe_var perhaps = peer->echo_maybe(maybe);
    check(!perhaps->_d(), "union, without an arm");

    Tree tree;
    tree.value = 1;
    tree.children.length(2);
    tree.children[0].value = 2;
    tree.children[1].value = 3;
    tree.children[1].children.length(1);
    tree.children[1].children[0].value = 4;
    Tree_var grown = peer->echo_tree(tree);
    check(grown->children.length() == 2 && grown->children[1].children[0].value == 4, "recursive structure");

    Grid grid = {{1, 2, 3}, {4, 5, 6}};
    Grid_var same_grid = peer->echo_grid(grid);
    check(same_grid[1][2] == 6 && same_grid[0][0] == 1, "array");
    Price price("-1234567.89");
    check(peer->echo_price(price) == price, "fixed");
    Texts texts;
    texts.length(2);
    texts[1] = CORBA::string_dup("two");
    Texts_var same_texts = peer->echo_texts(texts);
    check(same_texts->length() == 2 && std::string(same_texts[1]) == "two", "sequence of strings");
    Labels labels;
    labels.length(1);
    labels[0] = CORBA::string_dup("12345678");
    Labels_var same_labels = peer->echo_labels(labels);
    check(same_labels->length() == 1 && std::string(same_labels[0]) == "12345678", "bounded");

    CORBA::Any any;
    any <<= tens;
    CORBA::Any_var same_any = peer->echo_any(any);
    const Tens *inside;
    check((same_any >>= inside) && inside->length() == count && (*inside)[count - 1].e == count - 1, "any of a sequence");
    any <<= choice;
    same_any = peer->echo_any(any);
    const Choice *within;
    check((same_any >>= within) && within->place().x == 1.5, "any of a union");
    any <<= tree;
    same_any = peer->echo_any(any);
    const Tree *grown_again;
    check((same_any >>= grown_again) && grown_again->children[1].children[0].value == 4, "any of a recursive one");
    CORBA::TypeCode_var type = peer->echo_type(_tc_Tree);
    check(type->equal(_tc_Tree), "TypeCode of a recursive one");
    type = peer->echo_type(_tc_Choice);
    check(type->equal(_tc_Choice), "TypeCode of a union");
    type = peer->echo_type(_tc_Price);
    check(type->equal(_tc_Price), "TypeCode of a fixed");
}

static void large(Peer_ptr peer) {
    Octets octets;
    octets.length(1 << 20);
    for (CORBA::ULong i = 0; i < octets.length(); i++)
        octets[i] = i * 7;
    Octets_var same = peer->echo_octets(octets);
    check(same->length() == octets.length() && same[999999] == octets[999999], "a MiB of octets");
    Doubles doubles;
    doubles.length(100000);
    for (CORBA::ULong i = 0; i < doubles.length(); i++)
        doubles[i] = i * 0.5;
    Doubles_var same_doubles = peer->echo_doubles(doubles);
    check(same_doubles->length() == 100000 && same_doubles[99999] == 99999 * 0.5, "many doubles");
    Points points;
    points.length(20000);
    for (CORBA::ULong i = 0; i < points.length(); i++) {
        points[i].level = i;
        points[i].x = points[i].y = i;
    }
    Points_var same_points = peer->echo_points(points);
    check(same_points->length() == 20000 && same_points[19999].y == 19999, "many structures");
}

static void exceptions(Peer_ptr peer) {
    try {
        peer->refuse(false);
        check(false, "an exception of the interface");
    } catch (Refused &refused) {
        check(std::string(refused.why) == "because" && refused.code == 7, "its members");
    }
    try {
        peer->refuse(true);
        check(false, "an exception without members");
    } catch (Empty &) {
    }
    try {
        peer->fail();
        check(false, "a system exception");
    } catch (CORBA::NO_PERMISSION &exception) {
        check(exception.minor() == 3 && exception.completed() == CORBA::COMPLETED_YES, "its details");
    }
}

static void calls(Peer_ptr peer) {
    peer->level(42);
    check(peer->level() == 42, "attribute");
    CORBA::String_var name = peer->orb();
    check(std::string(name) == "punctual", "readonly attribute");
    CORBA::Long both = 2, back = 0;
    check(peer->all_ways(1, both, back) == 2 && both == 1 && back == 1, "in, inout and out");
    peer->tell("something");
    CORBA::String_var told;
    for (int attempt = 0; attempt < 1000; attempt++) {
        told = peer->told();
        if (std::string(told) == "something")
            break;
    }
    check(std::string(told) == "something", "oneway");
    check(peer->_is_a("IDL:Interop/Base:1.0"), "is_a of a base");
    check(!peer->_is_a("IDL:Other:1.0"), "is_a of another one");
    check(!peer->_non_existent(), "non_existent");
}

static void references(Peer_ptr peer, PortableServer::POA_ptr poa) {
    Peer_var same = peer->echo_reference(peer);
    check(!CORBA::is_nil(same), "reference");
    CORBA::String_var text = same->echo("through it");
    check(std::string(text) == "through it", "a call through a reference that came back");
    CORBA::Object_var nil = peer->echo_object(CORBA::Object::_nil());
    check(CORBA::is_nil(nil), "nil");
    PortableServer::ObjectId_var id = poa->activate_object(new ListenerServant);
    CORBA::Object_var object = poa->id_to_reference(id);
    Listener_var listener = Listener::_narrow(object);
    check(peer->call_back(listener, 5) == 5 * 11, "callbacks");
}

static int client(const char *reference, bool has_wide) {
    PortableServer::POA_var parent = root();
    PortableServer::POA_var poa = bidirectional(parent);
    CORBA::Object_var object = orb->string_to_object(reference);
    Peer_var peer = Peer::_narrow(object);
    if (CORBA::is_nil(peer)) {
        std::cout << "wrong: it is no Interop::Peer" << std::endl;
        return 1;
    }
    values(peer, has_wide, 1000);
    large(peer);
    exceptions(peer);
    calls(peer);
    references(peer, poa);
    if (mistakes == 0)
        std::cout << "all right" << std::endl;
    return mistakes == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    std::string what = argc > 1 ? argv[1] : "";
    // GIOP 1.0 has no wide characters. omniORB publishes no code sets with 1.1, so that it has none either.
    bool has_wide = true;
    for (int i = 1; i + 1 < argc; i++)
        if (std::string(argv[i]) == "-ORBmaxGIOPVersion")
            has_wide = std::string(argv[i + 1]) == "1.2";
    int status = 2;
    try {
        orb = CORBA::ORB_init(argc, argv, "omniORB4");
        if (what == "server")
            status = server();
        else if (what == "forward" && argc > 2)
            status = forward(argv[2]);
        else if (what == "client" && argc > 2)
            status = client(argv[2], has_wide);
        orb->destroy();
    } catch (CORBA::SystemException &exception) {
        std::cout << "exception: " << exception._name() << " " << std::hex << exception.minor() << std::endl;
        return 1;
    } catch (CORBA::Exception &exception) {
        std::cout << "exception: " << exception._name() << std::endl;
        return 1;
    }
    return status;
}
