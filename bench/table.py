#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints merged measurements (suite.py), then what is asked of them (bars.json), for a terminal of 120 columns.

    table.py build/bench/results/all.json
    table.py build/cuda/bench/cases.jsonl --rules bench/cuda/bars.json

The second file is what the program of bench/cuda prints, a line a case.

A rule asks a figure of the cases of a benchmark (`of`, or any name below it) that have the arguments in `where`. The figure
is a counter, or the time: "us", "ms", or "time" with `over`, this case's over that of another benchmark's case of equal
arguments, or `under`, the other way round. `per` divides both by a counter, `requests` this one by a number. Less is
better unless `more`. Cases whose rule has `quick` false are not part of a quick run. A rule with `gpu` is for devices
with that in their name. `predicted` stands beside what is measured.
"""

import argparse
import json
import math
import pathlib
import textwrap

import machine

COLUMNS = 120
# Counters with a column of their own; others are listed.
HEADINGS = {"vs_read": "x read", "vs_scalar": "scalar", "vs_eigen": "Eigen", "of_read": "of read"}
NOTES = {"vs_read": "x read: time over a pure read of the same bytes.", "vs_scalar": "scalar, Eigen: a user's time over this.",
         "of_read": "of read: time of a kernel that only reads the same bytes, each once, over this."}


# ---- rules -----------------------------------------------------------------------------------------------------------

def load_rules(path):
    return json.loads(pathlib.Path(path).read_text())["rules"]


def cases_of(lines):
    """Of lines of JSON (bench/cuda/cases.hpp), the cases that were measured."""
    keys = ("name", "family", "args", "us", "spread", "repetitions", "figures")
    return [{"program": line["family"].split("/")[0], **{key: line[key] for key in keys}}
            for line in lines if "us" in line and line["status"] != "failed"]


def belongs(family, to):
    return family == to or family.startswith(to + "/")


def applies(rule, case):
    where = rule.get("where", {})
    return belongs(case["family"], rule["of"]) and all(case["args"].get(k) == v for k, v in where.items())


def takes_part(rule, case):
    """Asked for itself, or as what another is compared with."""
    other = rule.get("over") or rule.get("under")
    return applies(rule, case) or (other is not None and applies({**rule, "of": other}, case))


def called(rule):
    return rule.get("called", rule["figure"])


def partner(case, family, cases):
    """A case of that benchmark which differs in no argument that both have."""
    for other in cases:
        shared = case["args"].keys() & other["args"].keys()
        if belongs(other["family"], family) and all(case["args"][k] == other["args"][k] for k in shared):
            return other
    return None


def value(rule, case, cases):
    """The figure that the rule is about; None if it is about others, or was not measured."""
    if not applies(rule, case):
        return None
    time = case["us"] / rule.get("requests", 1)
    if rule["figure"] == "us":
        return time
    if rule["figure"] == "ms":
        return time / 1e3
    if rule["figure"] != "time":
        return case["figures"].get(rule["figure"])
    other = partner(case, rule.get("over") or rule["under"], cases)
    if other is None:
        return None
    reference = other["us"]
    if "per" in rule:
        time /= case["figures"][rule["per"]]
        reference /= other["figures"][rule["per"]]
    return time / reference if "over" in rule else reference / time


def judge(rule, measured):
    """short, met, or goal: as far as it comes."""
    def reaches(bound):
        return measured >= bound if rule.get("more") else measured <= bound
    if reaches(rule["goal"]):
        return "goal"
    return "met" if reaches(rule["bar"]) else "short"


# ---- text ------------------------------------------------------------------------------------------------------------

def number(x):
    """Three digits that count, and no exponent."""
    if x is None or not math.isfinite(x):
        return "-"
    if x == 0:
        return "0"
    digits = max(0, 2 - math.floor(math.log10(abs(x))))
    text = f"{x:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if abs(x) < 0.1 else text


def in_time(us):
    for unit, factor in (("s", 1e6), ("ms", 1e3), ("us", 1.0)):
        if us >= factor:
            return f"{number(us / factor)} {unit}"
    return f"{number(us * 1e3)} ns"


def listed(key, x):
    """A counter in words: heap 3.1 x, 48.0 GB/s, 4.40 rows, head 440 ms."""
    if key.startswith("vs_"):
        return f"{key[3:]} {number(x)}x"
    if key.endswith(("_us", "_ms")):
        return f"{key[:-3]} {in_time(x * (1e3 if key.endswith('_ms') else 1.0))}"
    if key.startswith("us_"):
        return f"{in_time(x)} a {key[3:]}"
    return f"{number(x)} {key}" if key in ("rows", "GB/s", "GFLOP/s") else f"{key} {number(x)}"


def arguments(case):
    return " ".join(f"{k}={v}" for k, v in case["args"].items())


def fill(items, width):
    """Lines of items that stay whole."""
    lines = [""]
    for item in items:
        if lines[-1] and len(lines[-1]) + 2 + len(item) <= width:
            lines[-1] += ", " + item
        elif lines[-1]:
            lines.append(item)
        else:
            lines[-1] = item
    return lines


def aligned(rows, to_the_left):
    """A line a row, the first being the heading; columns stand to the right but those numbered `to_the_left`."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(cell.ljust(w) if i in to_the_left else cell.rjust(w) for i, (cell, w) in enumerate(zip(row, widths)))
            for row in rows]


def measured(cases):
    """A line a case, or more if there is much to say; a benchmark's name stands over its cases."""
    keys = [key for key in HEADINGS if any(key in case["figures"] for case in cases)]
    repeated = any(case["repetitions"] > 1 for case in cases)
    rows = [["benchmark", "time", *["spread"][:repeated], *(HEADINGS[key] for key in keys)]]
    for case in cases:
        rows.append(["  " + arguments(case), in_time(case["us"]), *[f"{100 * case['spread']:.0f} %"][:repeated],
                     *(number(case["figures"][key]) if key in case["figures"] else "" for key in keys)])
    heading, *left = aligned(rows, {0})
    width = len(heading) + 3
    lines = [heading, "-" * COLUMNS]
    family = None
    for case, line in zip(cases, left):
        if case["family"] != family:
            family = case["family"]
            lines.append(family)
        further = fill([listed(k, x) for k, x in case["figures"].items() if k not in HEADINGS], COLUMNS - width)
        lines.append(f"{line}   {further[0]}".rstrip())
        lines += [" " * width + more for more in further[1:]]
    return lines


def asked(cases, rules):
    """([(verdict, line)] with a heading before, what was not measured)."""
    verdicts = []
    predicted = any("predicted" in rule for rule in rules)
    rows = [["asked", "", "is", *["predicted"][:predicted], "bar", "goal", ""]]
    missing = []
    for rule in rules:
        found = [(case, x) for case in cases if (x := value(rule, case, cases)) is not None]
        if not found and rule["of"] not in missing:
            missing.append(rule["of"])
        for case, x in found:
            verdicts.append(judge(rule, x))
            sign = ">=" if rule.get("more") else "<="
            figure = HEADINGS.get(called(rule), called(rule).removeprefix("vs_"))
            rows.append([f"{case['family']} {arguments(case)}", figure, number(x),
                         *[f"{rule['predicted']:g}" if "predicted" in rule else ""][:predicted], f"{sign} {rule['bar']:g}",
                         f"{sign} {rule['goal']:g}", verdicts[-1]])
    return verdicts, aligned(rows, {0, 1, len(rows[0]) - 1}), missing


def render(whole, rules):
    about = whole["machine"]
    families = list(dict.fromkeys(case["family"] for case in whole["cases"]))
    cases = sorted(whole["cases"], key=lambda case: families.index(case["family"]))
    repetitions = max(case["repetitions"] for case in cases)
    note = " ".join(text for key, text in NOTES.items() if any(key in case["figures"] for case in cases))
    if repetitions > 1:
        note = f"Medians of {repetitions}; spread: (max - min) / median. " + note
    lines = [f"machine   {about['cpu']}", f"          {about['cores']} cores, {about['caches']}, {about['system']}",
             *([f"          {about['gpu']}"] if about.get("gpu") else []),
             f"compiler  {about['compiler']}, {about['flags']}; users' versions {about['users_flags']}",
             f"commit    {about['commit'] or 'unknown'}, {about['date']}",
             "", *measured(cases), "-" * COLUMNS, *textwrap.wrap(note, COLUMNS)]
    verdicts, held, missing = asked(cases, [rule for rule in rules if rule.get("gpu", "") in (about.get("gpu") or "")])
    if verdicts:
        lines += ["", held[0].rstrip(), "-" * COLUMNS, *(line.rstrip() for line in held[1:]), "-" * COLUMNS,
                  f"asked {len(verdicts)}: {verdicts.count('goal')} reach the goal, {verdicts.count('met')} the bar, "
                  f"{verdicts.count('short')} fall short"]
    if missing and whole["complete"]:
        lines += textwrap.wrap("not measured: " + ", ".join(missing), COLUMNS)
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description="Prints measurements beside what is asked of them.")
    parser.add_argument("merged", type=pathlib.Path)
    parser.add_argument("--rules", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent / "bars.json")
    chosen = parser.parse_args()
    if chosen.merged.suffix == ".jsonl":
        lines = [json.loads(line) for line in chosen.merged.read_text().splitlines()]
        about = machine.describe(chosen.merged.parent, pathlib.Path(__file__).resolve().parent)
        whole = {"machine": about, "complete": False, "cases": cases_of(lines)}
    else:
        whole = json.loads(chosen.merged.read_text())
    print(render(whole, load_rules(chosen.rules)) if whole["cases"] else f"{chosen.merged} has no case that was measured")


if __name__ == "__main__":
    main()
