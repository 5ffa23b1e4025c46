#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the benchmark programs of a build one after another, merges what they measured, prints the table.

    suite.py --build build/bench --out build/bench/results [--quick | --smoke] [--filter REGEX] [program ...]

Every program is one of Google Benchmark. Repetitions come in random order, so that a machine that slows down for a
while does so for all; what counts is the median, figure by figure. Programs run one at a time.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

import machine
import table

# What Google Benchmark appends to a name.
DECORATION = re.compile(r"^(manual_time|real_time|process_time|(iterations|repeats|min_time|min_warmup_time|threads):.*)$")
# Fields of a run that are no counters.
OWN_FIELDS = {"name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions",
              "repetition_index", "threads", "iterations", "real_time", "cpu_time", "time_unit", "label"}
IN_MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


def parse_name(name):
    """verify/rejection/V:32000/noise:45/manual_time: ("verify/rejection", {"V": 32000, "noise": 45})"""
    words, args = [], {}
    for part in name.split("/"):
        key, colon, value = part.partition(":")
        if DECORATION.match(part):
            continue
        if colon and re.fullmatch(r"-?\d+", value):
            args[key] = int(value)
        else:
            words.append(part)
    return "/".join(words), args


def size(name):
    """What tells small cases of a benchmark from large ones: the product of all numbers in its name."""
    family, args = parse_name(name)
    product = 1
    for number in [*args.values(), *map(int, re.findall(r"/(\d+)", family))]:
        product *= max(number, 1)
    return product


def smallest(names):
    """The smallest case of every benchmark; cases that differ in numbers alone are one benchmark's."""
    best = {}
    for name in names:
        family, args = parse_name(name)
        benchmark = (re.sub(r"/\d+(?=/|$)", "", family), *args)
        if benchmark not in best or size(name) < size(best[benchmark]):
            best[benchmark] = name
    return list(best.values())


def asked_for(names, rules):
    """The cases that a rule is about, but for those that take long, and the smallest of benchmarks without one."""
    rules = [rule for rule in rules if rule.get("quick", True)]
    cases = {name: dict(zip(("family", "args"), parse_name(name))) for name in names}
    chosen = {name for name, case in cases.items() if any(table.takes_part(rule, case) for rule in rules)}
    families = {cases[name]["family"] for name in chosen}
    return [name for name in names if name in chosen] + smallest(n for n in names if cases[n]["family"] not in families)


class StatusLine:
    """One line on a terminal; elsewhere a line for every program."""

    def __init__(self, out=sys.stderr):
        self.out = out
        self.live = out.isatty()

    def update(self, text, begins=False):
        if self.live:
            self.out.write("\r\033[K" + text[:118])
        elif begins:
            self.out.write(text + "\n")
        self.out.flush()

    def clear(self):
        if self.live:
            self.out.write("\r\033[K")
            self.out.flush()


def in_order(programs, rules):
    """As the rules come, which is the order of a round; those without a rule last."""
    stages = list(dict.fromkeys(rule["of"].split("/")[0] for rule in rules))
    return sorted(programs, key=lambda name: (stages.index(name) if name in stages else len(stages), name))


def list_cases(program, pattern):
    listed = subprocess.run([program, "--benchmark_list_tests"], check=True, capture_output=True, text=True).stdout
    return [name for name in listed.splitlines() if re.search(pattern, name)]


def run_program(program, names, how, out, status, place):
    """Runs these cases, writes the program's JSON; returns what it holds."""
    begin = f"{place} {program.name}: {len(names)} cases"
    status.update(begin, begins=True)
    exact = "^(" + "|".join(map(re.escape, names)) + ")$"
    # re.escape also escapes what POSIX expressions take for themselves, '-' and '/' among them.
    exact = re.sub(r"\\([^.*+?()\[\]{}|^$\\])", r"\1", exact)
    command = [program, f"--benchmark_filter={exact}", f"--benchmark_out={out}", "--benchmark_out_format=json",
               "--benchmark_format=console", f"--benchmark_repetitions={how.repetitions}",
               f"--benchmark_min_time={how.min_time}"]
    if how.repetitions > 1:
        command.append("--benchmark_enable_random_interleaving=true")
    done = set()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        for line in running.stdout:
            name = line.split(" ", 1)[0]
            if "/" in name and name not in done:
                done.add(name)
                status.update(f"{begin}, {min(len(done), len(names))} done, last {name}")
        problems = running.stderr.read()
    status.clear()
    if running.returncode != 0:
        raise RuntimeError(f"{program.name} ended with status {running.returncode}:\n{problems[-2000:]}")
    report = json.loads(out.read_text())
    missing = set(names) - {r["run_name"] for r in report["benchmarks"]}
    if missing:
        raise RuntimeError(f"{program.name} did not run {', '.join(sorted(missing))}")
    return report


def merge(program, names, report):
    """The cases in this order: medians over repetitions, and the spread of the time, (max - min) / median."""
    runs = {name: [] for name in names}
    for run in report["benchmarks"]:
        if run.get("error_occurred"):
            raise RuntimeError(f"{run['run_name']}: {run.get('error_message', 'failed')}")
        if run["run_type"] == "iteration":
            runs[run["run_name"]].append(run)
    cases = []
    for name, all_runs in runs.items():
        family, args = parse_name(name)
        counters = [key for key in all_runs[0] if key not in OWN_FIELDS]
        figures = {key: statistics.median(run[key] for run in all_runs) for key in counters}

        def time_of(run):
            # A counter is a median of its own, where real_time is a mean.
            if "us" in run or "ms" in run:
                return run.get("us", 1e3 * run.get("ms", 0.0))
            return run["real_time"] * IN_MICROSECONDS[run["time_unit"]]

        times = [time_of(run) for run in all_runs]
        middle = statistics.median(times)
        cases.append({"program": program, "name": name, "family": family, "args": args, "us": middle,
                      "spread": (max(times) - min(times)) / middle if middle > 0 else 0.0,
                      "repetitions": len(times),
                      "figures": {k: v for k, v in figures.items() if k not in ("us", "ms")}})
    return cases


def parse_arguments():
    parser = argparse.ArgumentParser(description="Runs the benchmarks, prints one table.")
    parser.add_argument("programs", nargs="*", help="bench/<program>.cpp; all if none is named")
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build folder, with bench/ in it")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="where the JSON files go")
    parser.add_argument("--bars", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent / "bars.json",
                        help="what is asked of whom")
    parser.add_argument("--filter", default="", help="cases whose name matches this expression")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--min-time", type=float, default=0.05, help="seconds of a repetition")
    parser.add_argument("--quick", action="store_true", help="the shapes that have a bar, once and briefly")
    parser.add_argument("--smoke", action="store_true", help="the smallest shape of every benchmark, once: does it run?")
    how = parser.parse_args()
    if how.quick:
        how.repetitions, how.min_time = 1, 0.05
    if how.smoke:
        how.repetitions, how.min_time = 1, 0.0001
    return how


def main():
    how = parse_arguments()
    here = pathlib.Path(__file__).resolve().parent
    rules = table.load_rules(how.bars)
    there = {p.name.removeprefix("bench."): p for p in sorted((how.build / "bench").glob("bench.*")) if p.is_file()}
    unknown = [name for name in how.programs if name not in there]
    if unknown or not there:
        sys.exit(f"suite.py: no program {', '.join(unknown) or 'at all'} in {how.build}/bench, which has "
                 f"{', '.join(there) or 'none'}")

    how.out.mkdir(parents=True, exist_ok=True)
    status = StatusLine()
    cases = []
    chosen = in_order(how.programs or there, rules)
    for i, name in enumerate(chosen):
        names = list_cases(there[name], how.filter)
        if how.smoke:
            names = smallest(names)
        elif how.quick:
            names = asked_for(names, rules)
        if not names:
            continue
        try:
            report = run_program(there[name], names, how, how.out / f"{name}.json", status, f"[{i + 1}/{len(chosen)}]")
            cases += merge(name, names, report)
        except (RuntimeError, OSError, ValueError) as problem:
            status.clear()
            sys.exit(f"suite.py: {problem}")
    if not cases:
        sys.exit(f"suite.py: no case matches '{how.filter}'")
    whole = {"machine": machine.describe(how.build, here), "min_time": how.min_time,
             "complete": not (how.programs or how.filter or how.quick or how.smoke), "cases": cases}
    (how.out / "all.json").write_text(json.dumps(whole, indent=1) + "\n")
    print(table.render(whole, rules))


if __name__ == "__main__":
    main()
