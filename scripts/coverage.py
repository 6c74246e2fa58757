"""Line coverage by crate from an lcov file; tests in the files of the code are left out."""

import collections
import itertools
import re
import sys


def tests_begin(path):
    """The line at which the tests of a source file begin: their module. Other code that is compiled for tests only is between the rest."""
    with open(path, encoding="utf-8") as source:
        lines = [line.strip() for line in source]
    for number, (line, following) in enumerate(itertools.pairwise(lines), 1):
        if line == "#[cfg(test)]" and following.startswith("mod ") and following.endswith("{"):
            return number
    return sys.maxsize


def read(path):
    """File -> line -> whether it was reached."""
    files = collections.defaultdict(dict)
    current, end = None, 0
    with open(path, encoding="utf-8") as report:
        for line in report:
            kind, _, rest = line.strip().partition(":")
            if kind == "SF":
                current = None if is_test(rest) else rest
                end = tests_begin(rest) if current else 0
            elif kind == "DA" and current:
                number, hits = map(int, rest.split(",")[:2])
                if number < end:
                    files[current][number] = files[current].get(number, False) or hits > 0
    return files


def uncalled(path):
    """File -> first line -> name of the functions that are never called, over all compilations."""
    calls = collections.defaultdict(lambda: collections.defaultdict(int))
    with open(path, encoding="utf-8") as report:
        for line in report:
            kind, _, rest = line.strip().partition(":")
            if kind == "SF":
                current, begins = rest, {}
            elif kind == "FN":
                begins[rest.split(",")[-1]] = int(rest.split(",")[0])
            elif kind == "FNDA":
                count, name = rest.split(",", 1)
                calls[current][begins[name]] += int(count)
    found = collections.defaultdict(dict)
    for source, begins in calls.items():
        for number, count in begins.items():
            named = re.search(r"\bfn (\w+)", line_of(source, number))
            if named and not count and not is_test(source) and number < tests_begin(source):
                found[source][number] = named[1]
    return found


def line_of(path, number):
    with open(path, encoding="utf-8") as source:
        return next(itertools.islice(source, number - 1, None))


def is_test(path):
    return "/tests/" in path or path.endswith(("/tests.rs", "_tests.rs", "/testing.rs"))


def main():
    least, report, *options = sys.argv[1:]
    never = uncalled(report) if "--files" in options else {}
    crates = collections.defaultdict(lambda: [0, 0])
    for path, lines in sorted(read(report).items()):
        reached = sum(lines.values())
        crate = path.split("/crates/")[1].split("/")[0]
        crates[crate][0] += reached
        crates[crate][1] += len(lines)
        if "--files" in options:
            missing = [str(number) for number, hit in sorted(lines.items()) if not hit]
            share = 100 * reached / max(len(lines), 1)
            print(f"{share:5.1f} % {path.split('/crates/')[1]}: {' '.join(missing)}")
            for number, name in sorted(never.get(path, {}).items()):
                print(f"        nothing calls {name}, line {number}")
    low = False
    for crate, (reached, lines) in sorted(crates.items()):
        share = 100 * reached / lines
        low |= share < float(least)
        print(f"{crate}: {share:.1f} % of {lines} lines")
    sys.exit(low)


if __name__ == "__main__":
    main()
