"""Tables of branches decided both ways, one way or never, by generator; from what `llvm-cov export` writes for each."""

import collections
import itertools
import json
import pathlib
import re
import sys

PARTS = [
    "analysis/src/policies/edf",
    "analysis/src/policies/ranked",
    "analysis/src/policies/statistical",
    "analysis/src/policies",
    "analysis/src/rta",
    "analysis/src",
    "proto/src/fragment",
    "proto/src/linksched",
    "proto/src/sched",
    "proto/src/signalling",
    "proto/src/node/stages",
    "proto/src/node/rate",
    "proto/src/node",
    "proto/src/wire",
    "proto/src",
]


def source_of(path):
    return pathlib.Path(path).read_text(encoding="utf-8").splitlines()


def tests_begin(lines):
    """The line at which the tests of a source file begin: their module. Other code that is compiled for tests only is between the rest."""
    pairs = enumerate(itertools.pairwise(line.strip() for line in lines), 1)
    found = (number for number, (line, following) in pairs
             if line == "#[cfg(test)]" and following.startswith("mod ") and following.endswith("{"))
    return next(found, sys.maxsize)


def is_test(path):
    return "/tests/" in path or path.endswith(("/tests.rs", "/testing.rs"))


def read(report):
    """(file, begin and end of a condition) -> how often it was true and false, over all compilations."""
    branches = collections.defaultdict(lambda: [0, 0])
    data = json.loads(pathlib.Path(report).read_text(encoding="utf-8"))["data"]
    for file in data[0]["files"]:
        path = file["filename"]
        if is_test(path) or not re.search(r"/crates/(analysis|proto)/src/", path):
            continue
        end = tests_begin(source_of(path))
        for line, column, last, stop, true, false, *_ in file["branches"]:
            if line < end:
                counts = branches[path, (line, column, last, stop)]
                counts[0] += true
                counts[1] += false
    return branches


def decided(counts):
    """2: both ways, 1: one way, 0: never."""
    return sum(count > 0 for count in counts)


def part_of(path):
    name = path.split("/crates/")[1]
    return next(part for part in PARTS if name.startswith(part + "/"))


def text_of(sources, path, region):
    line, column, last, stop = region
    lines = sources.setdefault(path, source_of(path))
    if line == last:
        return lines[line - 1][column - 1:stop - 1]
    return " ".join([lines[line - 1][column - 1:], *lines[line:last - 1], lines[last - 1][:stop - 1]])


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    print()


def summary(branches):
    counts = collections.Counter(map(decided, branches.values()))
    return [counts[2], counts[1], counts[0]]


def by_generator(reports):
    """Generator x part: both ways / one way / never."""
    parts = sorted({part_of(path) for report in reports.values() for path, _ in report}, key=PARTS.index)
    print("## Generators\n\nBranches decided both ways / one way / never, by each generator alone.\n")
    rows = []
    for part in parts:
        cells = []
        for report in reports.values():
            own = {key: counts for key, counts in report.items() if part_of(key[0]) == part}
            cells.append(" / ".join(map(str, summary(own))) if own else "-")
        rows.append([part, *cells])
    # Twenty columns are too many for a table: one line a generator and part.
    for index, name in enumerate(reports):
        print(f"### {name}\n")
        table(["part", "both", "one", "never"], [[row[0], *row[index + 1].split(" / ")] for row in rows
                                                if row[index + 1] != "-"])


def by_file(union, reports):
    """File: how many branches, by how many generators each is decided both ways."""
    print("## Files\n\nBranches that some generator decides both ways, that each decides one way at most, that none reaches.\n")
    files = collections.defaultdict(dict)
    for (path, region), counts in union.items():
        best = max(decided(report[path, region]) for report in reports.values() if (path, region) in report)
        files[path][region] = best
    rows = []
    for path, regions in sorted(files.items()):
        count = collections.Counter(regions.values())
        rows.append([path.split("/crates/")[1], count[2], count[1], count[0]])
    total = [sum(row[column] for row in rows) for column in (1, 2, 3)]
    table(["file", "both", "one", "never"], [*rows, ["**all**", *total]])
    return files


def limits(union, reports, sources):
    """Constants of proto::limits in conditions, and the generators that decide one of those conditions both ways."""
    path = next((path for path, _ in union if path.endswith("/proto/src/node/mod.rs")), None)
    root = pathlib.Path(path).parents[1]
    names = re.findall(r"^pub const ([A-Z_]+):", (root / "limits.rs").read_text(encoding="utf-8"), re.M)
    print("## Limits\n\nConditions in which a constant of `proto::limits` stands, and who decides one of them both ways.\n")
    rows = []
    for name in names:
        conditions = []
        for (path, region) in union:
            if "/proto/src/" not in path:
                continue
            lines = sources.setdefault(path, source_of(path))
            alias = re.search(rf"\b{name} as ([A-Z_]+)", "\n".join(lines))
            words = "|".join([name] + ([alias[1]] if alias else []))
            if re.search(rf"\b({words})\b", text_of(sources, path, region)):
                conditions.append((path, region))
        both = [generator for generator, report in reports.items()
                if any(decided(report.get(key, (0, 0))) == 2 for key in conditions)]
        if conditions:
            rows.append([f"`{name}`", len(conditions), ", ".join(both) or "**nobody**"])
    table(["constant", "conditions", "both ways by"], rows)


def write_corners(out, name, report, sources):
    """A generator's branches that it reaches and decides one way only."""
    with open(out / f"{name}.txt", "w", encoding="utf-8") as file:
        for (path, region), counts in sorted(report.items()):
            if decided(counts) == 1:
                way = "true" if counts[0] else "false"
                where = f"{path.split('/crates/')[1]}:{region[0]}:{region[1]}"
                file.write(f"{where}: always {way} ({max(counts)}): {text_of(sources, path, region)}\n")


def main():
    out, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    reports = {name: read(out / f"{name}.json") for name in names}
    union = collections.defaultdict(lambda: [0, 0])
    for report in reports.values():
        for key, (true, false) in report.items():
            union[key][0] += true
            union[key][1] += false
    sources = {}
    for name, report in reports.items():
        write_corners(out, name, report, sources)
    write_corners(out, "all", union, sources)
    with open(out / "report.md", "w", encoding="utf-8") as file:
        stdout, sys.stdout = sys.stdout, file
        print("# Branches of analysis and proto, by generator\n")
        rows = [[name, *summary(report)] for name, report in reports.items()]
        table(["generator", "both", "one", "never"], [*rows, ["**together**", *summary(union)]])
        by_file(union, reports)
        if any("/proto/" in path for path, _ in union):
            limits(union, reports, sources)
        by_generator(reports)
        sys.stdout = stdout
    for name, *counts in [*rows, ["together", *summary(union)]]:
        print("{:22} both {:5}  one {:5}  never {:5}".format(name, *counts))
    print(f"{out}/report.md")


main()
