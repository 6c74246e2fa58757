// omniORB's client of demo.idl for the benchmark: reads lines "CASE COUNT", calls so often, and writes how long each call took
// (ns, 32 bits). Ends with its standard input.
#include <ctime>
#include <iostream>
#include <sstream>
#include <vector>
#include "demo.hh"

static uint64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
}

template <typename Call> static void timed(std::vector<uint32_t> &spans, Call call) {
  uint64_t before = now_ns();
  for (uint32_t &span : spans) {
    call();
    uint64_t after = now_ns();
    span = uint32_t(after - before);
    before = after;
  }
}

static void require(bool holds) {
  if (!holds) std::abort();
}

int main(int argc, char **argv) {
  CORBA::ORB_var orb = CORBA::ORB_init(argc, argv);
  CORBA::Object_var object = orb->string_to_object(argv[1]);
  Demo::Echo_var echo = Demo::Echo::_narrow(object);
  Demo::Ten ten = {1, -2, -3, 4, 5, true, 7.5, 8.25f, -9000000000LL, 10};
  Demo::Tens tens;
  tens.length(1000);
  for (CORBA::ULong n = 0; n < 1000; n++) {
    tens[n] = ten;
    tens[n].a = n;
  }
  std::string text(64, 'x');
  std::string line, name;
  while (std::getline(std::cin, line)) {
    size_t count = 0;
    std::istringstream(line) >> name >> count;
    std::vector<uint32_t> spans(count);
    if (name == "octet") timed(spans, [&] { require(echo->echo_octet(7) == 7); });
    if (name == "struct") timed(spans, [&] { require(echo->echo_ten(ten).j == 10); });
    if (name == "string") timed(spans, [&] {
      CORBA::String_var back = echo->echo_string(text.c_str());
      require(back[(CORBA::ULong)63] == 'x');
    });
    if (name == "structs") timed(spans, [&] {
      Demo::Tens_var back = echo->echo_tens(tens);
      require(back->length() == 1000 && back[(CORBA::ULong)999].a == 999);
    });
    std::cout.write((const char *)spans.data(), count * sizeof(uint32_t));
    std::cout.flush();
  }
  return 0;
}
