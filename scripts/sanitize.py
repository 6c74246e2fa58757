"""Judges reports of the thread sanitizer: a race is excused where both of its accesses are made by the parts of the
standard library below, and counts in every other case.

The precompiled standard library is not instrumented, so that its own locks and channels look like races: those of the
test harness, of scoped threads, of mpsc channels. A frame that cannot be read, or that names no function, excuses
nothing.
"""

import re
import sys

ACCESS = re.compile(r"^  (Previous )?(atomic )?(read|write) of size", re.IGNORECASE)
FRAME = re.compile(r"^    #\d+ (?P<function>\S.*)$")
# What an access passes through on its way down: interceptors and generic helpers.
PASSED = re.compile(r"^(__tsan_)?(memcpy|memmove|memset|memcmp|free|malloc|calloc|realloc)\b|^<?(core|alloc)::")
# Channels, threads and their ends, the test harness.
EXCUSED = re.compile(
    r"^<*(std::sync::(mpmc|mpsc)::|std::thread::|std::sys::thread(_local)?::"
    r"|(std::sys::backtrace::__rust_begin_short_backtrace::<)?test::)"
)


def accesses(report):
    """The function that makes each access of a report; "" where its frames do not say."""
    found, within = [], False
    for line in report.splitlines():
        frame = FRAME.match(line)
        if ACCESS.match(line):
            found.append("")
            within = True
        elif not line.strip() or (within and not frame):
            within = False
        elif within and not PASSED.match(frame["function"]):
            found[-1] = frame["function"]
            within = False
    return found


def is_excused(report):
    """Whether a report is about the standard library alone."""
    makers = accesses(report)
    return report.startswith(" data race") and len(makers) == 2 and all(map(EXCUSED.match, makers))


def main():
    reports = sys.stdin.read().split("WARNING: ThreadSanitizer:")[1:]
    ours = [report for report in reports if not is_excused(report)]
    for report in ours:
        print("WARNING: ThreadSanitizer:" + report)
    print(f"sanitize: {len(ours)} reports concern our code, {len(reports) - len(ours)} the standard library's only")
    sys.exit(bool(ours))


if __name__ == "__main__":
    main()
