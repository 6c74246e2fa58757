"""Judges reports of the thread sanitizer: a race counts where one of its two accesses is made by our code.

The precompiled standard library is not instrumented, so that its own locks and channels look like races: those of the
test harness, of scoped threads, of mpsc channels. Such a report has both accesses in std itself.
"""

import re
import sys

ACCESS = re.compile(r"^  (Previous )?(atomic )?(read|write) of size", re.IGNORECASE)
FRAME = re.compile(r"^    #\d+ (?P<function>.*?)(?= \S*\(|$)")
# What an access passes through on its way down: interceptors and generic helpers.
PASSED = re.compile(r"^(__tsan_)?(memcpy|memmove|memset|memcmp|free|malloc|calloc|realloc|read|write)\b|^<?(core|alloc)::")


def accesses(report):
    """The function that makes each access of a report."""
    found, within = [], False
    for line in report.splitlines():
        if ACCESS.match(line):
            within = True
        elif frame := within and FRAME.match(line):
            if not PASSED.match(frame["function"]):
                found.append(frame["function"])
                within = False
        elif not line.strip():
            within = False
    return found


def main():
    ours = 0
    reports = sys.stdin.read().split("WARNING: ThreadSanitizer:")[1:]
    for report in reports:
        if not report.startswith(" data race") or any(re.match(r"<?punctual_", name) for name in accesses(report)):
            ours += 1
            print("WARNING: ThreadSanitizer:" + report)
    print(f"sanitize: {ours} reports concern our code, {len(reports) - ours} the standard library's only")
    sys.exit(ours > 0)


main()
