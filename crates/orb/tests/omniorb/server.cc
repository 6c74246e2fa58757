// omniORB's server of demo.idl: prints its reference, and serves until its standard input ends.
#include <cstdio>
#include <iostream>
#include "demo.hh"

class Echo : public POA_Demo::Echo {
  CORBA::Long noted_ = 0, count_ = 0;
  std::string label_ = "omni";

public:
  CORBA::Long count() { return ++count_; }
  char *label() { return CORBA::string_dup(label_.c_str()); }
  void label(const char *value) { label_ = value; }
  CORBA::Octet echo_octet(CORBA::Octet value) { return value; }
  char *echo_string(const char *value) { return CORBA::string_dup(value); }
  CORBA::WChar *echo_wstring(const CORBA::WChar *value) { return CORBA::wstring_dup(value); }
  Demo::Octets *echo_octets(const Demo::Octets &value) { return new Demo::Octets(value); }
  Demo::Longs *echo_longs(const Demo::Longs &value) { return new Demo::Longs(value); }
  Demo::Points *echo_points(const Demo::Points &value) { return new Demo::Points(value); }
  Demo::Ten echo_ten(const Demo::Ten &value) { return value; }
  Demo::Tens *echo_tens(const Demo::Tens &value) { return new Demo::Tens(value); }
  Demo::Shape *echo_shape(const Demo::Shape &value) { return new Demo::Shape(value); }
  CORBA::Any *echo_any(const CORBA::Any &value) { return new CORBA::Any(value); }
  CORBA::Object_ptr echo_object(CORBA::Object_ptr value) { return CORBA::Object::_duplicate(value); }
  CORBA::ULong length_of(const Demo::Octets &value) { return value.length(); }
  CORBA::Long divide(CORBA::Long dividend, CORBA::Long divisor, CORBA::Long &rest) {
    if (divisor == 0) throw Demo::Refused("division by zero", dividend);
    if (dividend == 0) throw Demo::Echo::Empty();
    rest = dividend % divisor;
    return dividend / divisor;
  }
  void turn(Demo::Point &value, char *&text) {
    Demo::Point turned = {CORBA::Long(value.y), CORBA::Double(value.x)};
    value = turned;
    std::string back(text);
    CORBA::string_free(text);
    text = CORBA::string_dup(std::string(back.rbegin(), back.rend()).c_str());
  }
  void note(CORBA::Long number) { noted_ = number; }
  CORBA::Long noted() { return noted_; }
  void call_back(Demo::Callback_ptr whom, CORBA::Long number) { whom->called(number); }
  void fail(CORBA::Long kind) {
    if (kind == 1) throw CORBA::NO_PERMISSION(7, CORBA::COMPLETED_YES);
    throw CORBA::TRANSIENT(9, CORBA::COMPLETED_NO);
  }
};

int main(int argc, char **argv) {
  CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
  CORBA::Object_var root = orb->resolve_initial_references("RootPOA");
  PortableServer::POA_var poa = PortableServer::POA::_narrow(root);
  PortableServer::Servant_var<Echo> echo = new Echo();
  PortableServer::ObjectId_var id = poa->activate_object(echo);
  CORBA::Object_var object = poa->id_to_reference(id);
  CORBA::String_var text = orb->object_to_string(object);
  poa->the_POAManager()->activate();
  std::printf("%s\n", (const char *)text);
  std::fflush(stdout);
  std::string line;
  while (std::getline(std::cin, line)) {
  }
  orb->destroy();
  return 0;
}
