"""Which branches tests decide both ways, by crate, from llvm-cov's JSON; tests in the files of the code are left out.

    undecided.py LEAST EXPORT.json UNDECIDED.toml [--files]

A branch is a condition that was seen to be true or not; the same place in all instances of a generic function is one. What
only the deliberate faults decide, and what assertions say, does not count. UNDECIDED.toml has the reason for each that no test
decides both ways; those without one are listed (all of them with --files). Fails below LEAST percent, and where a reason is for
what is decided or there no more; where it has `elsewhere`, only for what is there no more: tests of other packages may decide it.
"""

import collections
import json
import re
import sys
import tomllib

from coverage import is_test, tests_begin

# Conditions that no test may decide both ways: switches of faults and of defences that are not in any release, and
# assertions.
SWITCH = "holds(Defence::"
NO_BRANCH = ("active(Mutation::", "assert!(", "assert_eq!(", "assert_ne!(", "unreachable!(")


def branches(export):
    """Place -> how often it was true and false, over all instances."""
    found = collections.defaultdict(lambda: [0, 0])
    for unit in export["data"]:
        for source in unit["files"]:
            path = source["filename"]
            if is_test(path) or "/crates/" not in path:
                continue
            end = tests_begin(path)
            for line, column, line_end, column_end, true, false, *_ in source["branches"]:
                if line < end:
                    sums = found[path, line, column, line_end, column_end]
                    sums[0] += true
                    sums[1] += false
    return found


class Texts:
    """The source text at a place."""

    def __init__(self):
        self.lines = {}

    def line(self, path, number):
        if path not in self.lines:
            with open(path, encoding="utf-8") as source:
                self.lines[path] = source.read().splitlines()
        return self.lines[path][number - 1]

    def of(self, place):
        path, line, column, line_end, column_end = place
        if line == line_end:
            return self.line(path, line)[column - 1 : column_end - 1]
        middle = [self.line(path, number) for number in range(line + 1, line_end)]
        parts = [self.line(path, line)[column - 1 :], *middle, self.line(path, line_end)[: column_end - 1]]
        return " ".join(part.strip() for part in parts)


def of_faults(text):
    """Names that a source gives to what only a deliberate fault makes true."""
    return set(re.findall(r"let (\w+) =\s[^;]*?active\(Mutation::", text))


def key_of(entry):
    """How an entry is found: file, text, side."""
    return entry["file"], entry["condition"], entry["never"]


def reasons(path):
    """(file, text, side) -> reason; and those that tests of other packages may decide."""
    with open(path, "rb") as listed:
        entries = tomllib.load(listed).get("undecided", [])
    elsewhere = {key_of(entry) for entry in entries if entry.get("elsewhere")}
    return {key_of(entry): entry["reason"] for entry in entries}, elsewhere


def main():
    least, export, listed, *options = sys.argv[1:]
    texts, (known, elsewhere), there = Texts(), reasons(listed), set()
    with open(export, encoding="utf-8") as source:
        found = branches(json.load(source))
    crates, undecided, faults = collections.defaultdict(lambda: [0, 0]), [], {}
    for place, (true, false) in sorted(found.items()):
        path, line = place[:2]
        condition = texts.of(place)
        if path not in faults:
            with open(path, encoding="utf-8") as source_text:
                faults[path] = of_faults(source_text.read())
        if condition.lstrip("!") in faults[path]:
            continue
        if SWITCH in condition or any(word in texts.line(path, line) or word in condition for word in NO_BRANCH):
            continue
        name = "crates/" + path.split("/crates/")[1]
        sides = crates[name.split("/")[1]]
        for never, times in ((True, true), (False, false)):
            sides[0] += times > 0
            sides[1] += 1
            there.add((name, condition, never))
            if not times:
                undecided.append((name, line, condition, never))
    for name, line, condition, never in undecided:
        reason = known.get((name, condition, never))
        if reason is None or "--files" in options:
            print(f"{name}:{line}: never {str(never).lower()}: {condition}" + (f" ({reason})" if reason else ""))
    gone = known.keys() - {(name, condition, never) for name, _, condition, never in undecided} - (elsewhere & there)
    for name, condition, never in sorted(gone):
        print(f"{listed}: {name}: {condition}: never {str(never).lower()}: is decided, or there no more")
    low = bool(gone)
    for crate, (decided, sides) in sorted(crates.items()):
        share = 100 * decided / sides
        low |= share < float(least)
        print(f"{crate}: {share:.1f} % of {sides} sides of {sides // 2} branches")
    sys.exit(low)


main()
