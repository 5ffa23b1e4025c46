#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws how times grow, from what suite.py merged.

    plot.py build/bench/results/all.json --out docs/figures

    performance_requests.svg    R, requests of a scheduler
    performance_gamma.svg       gamma, the length of a block
    performance_vocabulary.svg  V
    performance_batch.svg       batch, requests of a round or of a head

A line is a benchmark at one choice of its other arguments: the one with most points, the first among equals. The number
behind a name is its slope, the exponent of a power law through the points. A figure without lines is not drawn. Needs
matplotlib.
"""

import argparse
import json
import math
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "docs/figures"))
from drawing import plt, save  # noqa: E402  (found there)

FIGURES = {
    "requests": ("R", "requests"),
    "gamma": ("gamma", "length of a block"),
    "vocabulary": ("V", "vocabulary"),
    "batch": ("batch", "requests in a batch"),
}


# The vocabularies of library_share are those of two models that differ in all the rest. Schedules have lines over one cost
# model; over six the lines could not be told apart.
NO_LINES = ("round/library_share", "cost/")


def lines_over(cases, key):
    """{benchmark: (other arguments, [(x, microseconds)])}, the line with most points of every benchmark."""
    groups = {}
    for case in cases:
        if key in case["args"] and not case["family"].startswith(NO_LINES):
            others = tuple((k, v) for k, v in case["args"].items() if k != key)
            groups.setdefault((case["family"], others), {})[case["args"][key]] = case["us"]
    best = {}
    for (family, others), points in groups.items():
        if len(points) > 1 and (family not in best or len(points) > len(best[family][1])):
            best[family] = (others, sorted(points.items()))
    return best


def slope(points):
    """Least squares in logarithms."""
    xs = [math.log(x) for x, _ in points]
    ys = [math.log(y) for _, y in points]
    x, y = sum(xs) / len(xs), sum(ys) / len(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys)) / sum((a - x) ** 2 for a in xs)


def draw(cases, key, label):
    lines = lines_over(cases, key)
    if not lines:
        return None
    figure, axis = plt.subplots(figsize=(5, 3.5))
    for family, (others, points) in lines.items():
        fixed = "".join(f", {k} = {v:,}" for k, v in others)
        axis.plot(*zip(*points), marker="o", markersize=3, label=f"{family}{fixed}: {slope(points):.2f}")
    axis.set_xscale("log")
    axis.set_yscale("log")
    ticks = sorted({x for _, points in lines.values() for x, _ in points})
    if len(ticks) <= 8:
        # Names that would run into each other are left out.
        axis.set_xticks(ticks, [f"{x:,}" if i == 0 or x > 1.3 * ticks[i - 1] else "" for i, x in enumerate(ticks)])
        axis.minorticks_off()
    axis.set_xlabel(label)
    axis.set_ylabel("microseconds")
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def main():
    parser = argparse.ArgumentParser(description="Draws how times grow with the sizes of a round.")
    parser.add_argument("merged", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    chosen = parser.parse_args()
    cases = json.loads(chosen.merged.read_text())["cases"]
    chosen.out.mkdir(parents=True, exist_ok=True)
    for name, (key, label) in FIGURES.items():
        figure = draw(cases, key, label)
        if figure is None:
            continue
        save(figure, chosen.out / f"performance_{name}.svg", bbox_inches="tight")


if __name__ == "__main__":
    main()
