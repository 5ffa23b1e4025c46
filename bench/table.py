#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints merged measurements (suite.py) beside what is asked of them (bars.json), for a terminal of 120 columns.

    table.py build/bench/all.json

A rule asks a figure of the cases of a benchmark (`of`, or any name below it) that have the arguments in `where`. The figure
is a counter, or the time: "us", "ms", or "time" with `over`, this case's over that of another benchmark's case of equal
arguments, or `under`, the other way round. `per` divides both by a counter, `requests` this one by a number. Less is
better unless `more`. Cases whose rule has `quick` false are not part of a quick run.
"""

import argparse
import json
import math
import pathlib
import textwrap

COLUMNS = 120
# Counters with a column of their own; others are listed.
HEADINGS = {"vs_read": "x read", "vs_scalar": "scalar", "vs_eigen": "Eigen"}


# ---- rules -----------------------------------------------------------------------------------------------------------

def load_rules(path):
    return json.loads(pathlib.Path(path).read_text())["rules"]


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


def rows(whole, rules):
    """(columns for a case, further figures, [(asked, is, bar, goal, verdict)]), families as headings between them."""
    cases = whole["cases"]
    verdicts = []
    out = []
    family = None
    for case in cases:
        if case["family"] != family:
            family = case["family"]
            out.append(family)
        asked = []
        for rule in rules:
            measured = value(rule, case, cases)
            if measured is None:
                continue
            verdict = judge(rule, measured)
            verdicts.append(verdict)
            sign = ">=" if rule.get("more") else "<="
            asked.append((called(rule).removeprefix("vs_"), number(measured), f"{sign} {rule['bar']:g}",
                          f"{sign} {rule['goal']:g}", verdict))
        figures = case["figures"]
        own = [number(figures[key]) if key in figures else "" for key in HEADINGS]
        shown = [*HEADINGS, *(rule["figure"] for rule in rules if applies(rule, case))]
        further = [listed(k, x) for k, x in figures.items() if k not in shown]
        spread = f"{100 * case['spread']:.0f} %" if case["repetitions"] > 1 else ""
        out.append((["  " + arguments(case), in_time(case["us"]), spread, *own], further, asked))
    missing = sorted({rule["of"] for rule in rules if all(value(rule, case, cases) is None for case in cases)})
    return out, verdicts, missing


def fill(items, width):
    """Lines of items that stay whole."""
    lines = []
    for item in items:
        if lines and len(lines[-1]) + 2 + len(item) <= width:
            lines[-1] += ", " + item
        else:
            lines.append(item)
    return lines


def lay_out(whole, rules):
    content, verdicts, missing = rows(whole, rules)
    heading = ["benchmark", "time", "spread", *HEADINGS.values()]
    asked_heading = ("asked", "is", "bar", "goal", "")
    measured = [row for row in content if not isinstance(row, str)]
    # The longest names decide the first column; a column that nobody fills is left out.
    kept = [i for i in range(len(heading)) if i < 2 or any(row[0][i] for row in measured)]
    widths = [max(len(heading[i]), *(len(row[0][i]) for row in measured)) for i in kept]
    asked = [cell for row in measured for cell in row[2]] + [asked_heading]
    asked_widths = [max(len(cell[i]) for cell in asked) for i in range(5)]
    room = max(12, COLUMNS - sum(widths) - 2 * len(widths) - sum(asked_widths) - 2 * 5)

    def line(left, further, right):
        text = left[0].ljust(widths[0]) + "".join("  " + cell.rjust(w) for cell, w in zip(left[1:], widths[1:]))
        text += "  " + further.ljust(room)
        text += "".join("  " + (cell.ljust(w) if i in (0, 4) else cell.rjust(w))
                        for i, (cell, w) in enumerate(zip(right, asked_widths)))
        return text.rstrip()

    nothing = [""] * len(kept)
    lines = [line([heading[i] for i in kept], "", asked_heading), "-" * COLUMNS]
    for row in content:
        if isinstance(row, str):
            lines.append(row)
            continue
        left, further, right = row
        further = fill(further, room)
        for i in range(max(len(further), len(right), 1)):
            lines.append(line([left[k] for k in kept] if i == 0 else nothing, further[i] if i < len(further) else "",
                              right[i] if i < len(right) else ("",) * 5))
    return lines, verdicts, missing


def render(whole, rules):
    about = whole["machine"]
    head = [f"machine   {about['cpu']}", f"          {about['cores']} cores, {about['caches']}, {about['system']}",
            f"compiler  {about['compiler']}, {about['flags']}; users' versions {about['users_flags']}",
            f"commit    {about['commit'] or 'unknown'}, {about['date']}"]
    lines, verdicts, missing = lay_out(whole, rules)
    end = ["-" * COLUMNS]
    repetitions = max(case["repetitions"] for case in whole["cases"])
    note = "x read: time over a pure read of the same bytes. scalar, Eigen: a user's time over this."
    if repetitions > 1:
        note = f"Medians of {repetitions}; spread: (max - min) / median. " + note
    end += textwrap.wrap(note, COLUMNS)
    short = verdicts.count("short")
    end.append(f"asked {len(verdicts)}: {verdicts.count('goal')} reach the goal, {verdicts.count('met')} the bar, "
               f"{short} fall short")
    if missing and whole["complete"]:
        end += textwrap.wrap("not measured: " + ", ".join(missing), COLUMNS)
    return "\n".join([*head, "", *lines, *end])


def main():
    parser = argparse.ArgumentParser(description="Prints measurements beside what is asked of them.")
    parser.add_argument("merged", type=pathlib.Path)
    parser.add_argument("--rules", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent / "bars.json")
    chosen = parser.parse_args()
    print(render(json.loads(chosen.merged.read_text()), load_rules(chosen.rules)))


if __name__ == "__main__":
    main()
