// omniORB's client of demo.idl: calls the object of its first argument; with a second one, calls `echo_octet` so
// often and prints how long each call took, in ns.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include "demo.hh"

static int checks = 0;
#define CHECK(condition)                                                \
  do {                                                                  \
    ++checks;                                                           \
    if (!(condition)) {                                                 \
      std::fprintf(stderr, "line %d: %s\n", __LINE__, #condition);      \
      std::exit(1);                                                     \
    }                                                                   \
  } while (0)

static Demo::Ten ten(CORBA::Long a) {
  Demo::Ten value = {a, -2, -3, 4, 5, true, 7.5, 8.25, -9000000000LL, 10};
  return value;
}

static void values(Demo::Echo_ptr echo) {
  CHECK(echo->echo_octet(200) == 200);
  CORBA::String_var text = echo->echo_string("gr\xfc\xdf");
  CHECK(!std::strcmp(text, "gr\xfc\xdf"));
  // GIOP 1.0 has no wide characters, and ORBs differ about those of 1.1.
  if (!std::getenv("NO_WIDE")) {
    const CORBA::WChar wide[] = {L'w', 0x20ac, 0};
    CORBA::WString_var wback = echo->echo_wstring(wide);
    CHECK(wback[0] == L'w' && wback[1] == 0x20ac && wback[2] == 0);
  }
  Demo::Octets octets;
  octets.length(300000);
  for (CORBA::ULong i = 0; i < octets.length(); ++i) octets[i] = CORBA::Octet(i * 7);
  Demo::Octets_var oback = echo->echo_octets(octets);
  CHECK(oback->length() == octets.length());
  CHECK(!std::memcmp(oback->get_buffer(), octets.get_buffer(), octets.length()));
  Demo::Longs longs;
  longs.length(3);
  longs[0] = -1; longs[1] = 2; longs[2] = 1 << 30;
  Demo::Longs_var lback = echo->echo_longs(longs);
  CHECK(lback->length() == 3 && lback[0] == -1 && lback[2] == 1 << 30);
  Demo::Points points;
  points.length(2);
  points[1].x = 3; points[1].y = 4.5;
  Demo::Points_var pback = echo->echo_points(points);
  CHECK(pback->length() == 2 && pback[1].x == 3 && pback[1].y == 4.5);
  Demo::Ten tback = echo->echo_ten(ten(1));
  CHECK(tback.a == 1 && tback.c == -3 && tback.f && tback.g == 7.5 && tback.i == -9000000000LL && tback.j == 10);
  Demo::Tens tens;
  tens.length(1000);
  for (CORBA::ULong i = 0; i < 1000; ++i) tens[i] = ten(i);
  Demo::Tens_var tsback = echo->echo_tens(tens);
  CHECK(tsback->length() == 1000 && tsback[999].a == 999 && tsback[999].h == 8.25f);
  Demo::Shape shape;
  shape.name("square");
  Demo::Shape_var sback = echo->echo_shape(shape);
  CHECK(sback->_d() == Demo::green && !std::strcmp(sback->name(), "square"));
  CORBA::Any any;
  any <<= ten(6);
  CORBA::Any_var aback = echo->echo_any(any);
  const Demo::Ten *inner;
  CHECK(aback >>= inner);
  CHECK(inner->a == 6 && inner->i == -9000000000LL);
  CORBA::Object_var object = echo->echo_object(echo);
  CHECK(object->_is_equivalent(echo));
  CHECK(CORBA::is_nil(CORBA::Object_var(echo->echo_object(CORBA::Object::_nil()))));
}

static void calls(Demo::Echo_ptr echo) {
  CORBA::Long rest = 0;
  CHECK(echo->divide(17, 5, rest) == 3 && rest == 2);
  try {
    echo->divide(7, 0, rest);
    CHECK(false);
  } catch (const Demo::Refused &refused) {
    CHECK(refused.code == 7 && !std::strcmp(refused.why, "division by zero"));
  }
  try {
    echo->divide(0, 1, rest);
    CHECK(false);
  } catch (const Demo::Echo::Empty &) {
    ++checks;
  }
  try {
    echo->fail(1);
    CHECK(false);
  } catch (const CORBA::NO_PERMISSION &exception) {
    CHECK(exception.minor() == 7 && exception.completed() == CORBA::COMPLETED_YES);
  }
  Demo::Point point = {3, 4.0};
  CORBA::String_var text = CORBA::string_dup("abc");
  echo->turn(point, text.inout());
  CHECK(point.x == 4 && point.y == 3.0 && !std::strcmp(text, "cba"));
  echo->note(5);
  CHECK(echo->noted() == 5);
  CORBA::Long before = echo->count();
  CHECK(echo->count() == before + 1);
  echo->label("new");
  CHECK(!std::strcmp(CORBA::String_var(echo->label()), "new"));
  CHECK(!echo->_non_existent());
  CHECK(echo->_is_a("IDL:punctual/Demo/Counter:1.0"));
  CHECK(!echo->_is_a("IDL:punctual/Demo/Callback:1.0"));
}

static void times(Demo::Echo_ptr echo, long count) {
  for (long i = 0; i < count; ++i) {
    timespec begin, end;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    echo->echo_octet(1);
    clock_gettime(CLOCK_MONOTONIC, &end);
    std::printf("%ld\n", (end.tv_sec - begin.tv_sec) * 1000000000L + end.tv_nsec - begin.tv_nsec);
  }
}

int main(int argc, char **argv) {
  CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
  try {
    CORBA::Object_var object = orb->string_to_object(argv[1]);
    Demo::Echo_var echo = Demo::Echo::_narrow(object);
    CHECK(!CORBA::is_nil(echo));
    if (argc > 2) {
      times(echo, std::atol(argv[2]));
    } else {
      values(echo);
      calls(echo);
      std::printf("%d checks\n", checks);
    }
  } catch (const CORBA::SystemException &exception) {
    std::fprintf(stderr, "%s, minor code %lu, after %d checks\n", exception._name(),
                 (unsigned long)exception.minor(), checks);
    return 1;
  }
  orb->destroy();
  return 0;
}
