#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Is this build slower than that one? Two builds of the benchmarks, run in turns on one machine.

    compare.py BEFORE AFTER [--filter REGEX] [--pairs 7] [--limit 1.05] [program ...]

BEFORE and AFTER are build folders (cmake --preset bench -B BEFORE in a checkout of the older commit). A pair is one short run of
each, one right after the other, so that both see the same machine. Every second pair begins with AFTER. A case is slower if the
median of its ratios is above the limit, and all of its ratios but one in seven are above 1. Then the status is 1.
Cases are those with a bar (bars.json) that take no long time, unless --filter names others.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile

import suite
import table


def slower(ratios, limit):
    above = sum(ratio > 1.0 for ratio in ratios)
    return statistics.median(ratios) > limit and len(ratios) - above <= len(ratios) // 7


def judge(ratios, limit):
    if slower(ratios, limit):
        return "slower"
    return "faster" if slower([1.0 / ratio for ratio in ratios], limit) else ""


def render(pairs_of, limit):
    """(lines, names of the slower cases) of {name: [(before, after) in us]}."""
    rows = [["case", "before", "after", "after / before", ""]]
    found = []
    for name, pairs in pairs_of.items():
        ratios = sorted(after / before for before, after in pairs)
        verdict = judge(ratios, limit)
        if verdict == "slower":
            found.append(name)
        family, args = suite.parse_name(name)
        middles = (table.in_time(statistics.median(side)) for side in zip(*pairs))
        rows.append([f"{family} {table.arguments({'args': args})}".strip(), *middles,
                     f"{statistics.median(ratios):.3f}  ({ratios[0]:.3f} .. {ratios[-1]:.3f})", verdict])
    return [line.rstrip() for line in table.aligned(rows, {0, 4})], found


def time_once(program, names, how, folder, status, place):
    report = suite.run_program(program, names, how, folder / "run.json", status, place)
    return {case["name"]: case["us"] for case in suite.merge(program.name, names, report)}


def parse_arguments():
    parser = argparse.ArgumentParser(description="Is this build slower than that one?")
    parser.add_argument("before", type=pathlib.Path)
    parser.add_argument("after", type=pathlib.Path)
    parser.add_argument("programs", nargs="*", help="bench/<program>.cpp; all that both have if none is named")
    parser.add_argument("--filter", default="", help="cases whose name matches this expression")
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--limit", type=float, default=1.05)
    parser.add_argument("--min-time", type=float, default=0.05, help="seconds of a run of a case")
    how = parser.parse_intermixed_args()
    how.repetitions = 1
    return how


def main():
    how = parse_arguments()
    rules = table.load_rules(pathlib.Path(__file__).resolve().parent / "bars.json")
    programs = [{p.name.removeprefix("bench."): p for p in sorted((build / "bench").glob("bench.*")) if p.is_file()}
                for build in (how.before, how.after)]
    both = [name for name in suite.in_order(programs[1], rules)
            if name in programs[0] and (not how.programs or name in how.programs)]
    if not both:
        sys.exit(f"compare.py: no program is in both of {how.before}/bench and {how.after}/bench")
    status = suite.StatusLine()
    pairs_of = {}
    with tempfile.TemporaryDirectory() as folder:
        for program in both:
            names = [name for name in suite.list_cases(programs[0][program], how.filter)
                     if name in set(suite.list_cases(programs[1][program], how.filter))]
            if not how.filter:
                names = [name for name in names if any(
                    rule.get("quick", True) and table.takes_part(rule, dict(zip(("family", "args"), suite.parse_name(name))))
                    for rule in rules)]
            for pair in range(how.pairs if names else 0):
                times = [{}, {}]
                for side in (0, 1) if pair % 2 == 0 else (1, 0):
                    times[side] = time_once(programs[side][program], names, how, pathlib.Path(folder), status,
                                            f"[pair {pair + 1}/{how.pairs}]")
                for name in names:
                    pairs_of.setdefault(name, []).append((times[0][name], times[1][name]))
    if not pairs_of:
        sys.exit(f"compare.py: no case of both builds matches '{how.filter}'")
    lines, found = render(pairs_of, how.limit)
    print("\n".join(lines))
    print(f"{len(pairs_of)} cases, {how.pairs} pairs each: {len(found)} slower by more than {100 * (how.limit - 1):.0f} %")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
