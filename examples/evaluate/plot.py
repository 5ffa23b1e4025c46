#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws the figures of the DSpark paper from what evaluate wrote with --json.

    plot.py evaluation.json [more.json ...] --out figures

A file may hold any of the experiments; a figure is drawn for what is there. Several files are taken together, so that
drafters measured in several runs share a figure:

    figure2.svg   acceptance by position, a panel for each domain
    figure3.svg   tau by the drafter's depth, if drafters differ in it
    figure4.svg   tau and the sequential head's share of a round by block length, if drafters differ in it
    figure5.svg   tau, verified drafts and their acceptance by confidence threshold
    figure6.svg   reliability before and after temperature scaling
    shortlist.svg tau by length of the shortlist
    trees.svg     tau of trees and chains by rows of the target, a panel for each file
    passes.svg    the time of a pass by its rows, a line for each file

Needs matplotlib. The numbers are computed from the counts as evaluate does it: ratios of sums, domains weighted alike.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs/figures"))
from drawing import plt, save  # noqa: E402  (found there)


def mean(values):
    values = list(values)
    return sum(values) / len(values)


def ratio(domain, columns, over, under):
    """A ratio of sums over the texts of a domain."""
    i, j = columns.index(over), columns.index(under)
    return sum(t[i] for t in domain["texts"]) / sum(t[j] for t in domain["texts"])


def macro(run, columns, over="emitted", under="rounds"):
    return mean(ratio(d, columns, over, under) for d in run["domains"])


def conditional(domain):
    """Acceptance by position, given all before; NaN where hardly a round got, and a rate would be noise."""
    accepted = [sum(column) for column in zip(*domain["accepted"])]
    reached = [sum(column) for column in zip(*domain["reached"])]
    return [a / r if r >= 30 else float("nan") for a, r in zip(accepted, reached)]


def number(value, form):
    """JSON has no NaN: what is undefined comes as null."""
    return "-" if value is None else format(value, form)


def tau_runs(reports):
    """(drafter, run, columns) of all files; a name that comes again stands for the same measurement and is left out."""
    seen = {}
    for report in reports:
        if "tau" in report:
            for run in report["tau"]["drafters"]:
                seen.setdefault(run["drafter"]["name"], (run["drafter"], run, report["tau"]["columns"]))
    return list(seen.values())


def only(reports, experiment):
    """The first file's: these experiments are about one drafter each."""
    return next((r[experiment] for r in reports if experiment in r), None)


def figure2(reports):
    runs = tau_runs(reports)
    if not runs:
        return None
    names = [d["domain"] for d in runs[0][1]["domains"]]
    figure, axes = plt.subplots(1, len(names), figsize=(3 * len(names), 3), sharey=True, squeeze=False)
    for axis, name in zip(axes[0], names):
        for drafter, run, _ in runs:
            domain = next((d for d in run["domains"] if d["domain"] == name), None)
            if domain:
                rates = conditional(domain)
                axis.plot(range(1, len(rates) + 1), rates, marker="o", markersize=3, label=drafter["name"])
        axis.set_title(name)
        axis.set_xlabel("position in the block")
    axes[0][0].set_ylabel("accepted, given all before")
    axes[0][-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return figure


def by_property(reports, key, others):
    """{head or kind: [(property, tau, head's share)]}; what others(drafter) says is equal along a line, None: left out."""
    lines = {}
    for drafter, run, columns in tau_runs(reports):
        if key not in drafter or others(drafter) is None:
            continue
        kind = drafter["description"].split(",")[0]
        if drafter.get("head", "none") != "none":
            kind += ", " + drafter["head"]
        seconds = run["seconds"]
        total = sum(seconds[p] for p in ("draft", "head", "verify", "accept"))
        kind += others(drafter)
        lines.setdefault(kind, []).append((drafter[key], macro(run, columns), seconds["head"] / total))
    return {kind: sorted(points) for kind, points in lines.items()}


def varies(lines):
    return any(len({x for x, *_ in points}) > 1 for points in lines.values())


def trained_block(drafter):
    """"blocks of 7": how it was trained, however much of a block is drafted."""
    return next(part.strip() for part in drafter["description"].split(",") if "block" in part)


def figure3(reports):
    lines = by_property(reports, "layers", lambda d: None if "max_draft" in d else ", " + trained_block(d))
    lines = {kind: points for kind, points in lines.items() if len(points) > 1}
    if not varies(lines):
        return None
    figure, axis = plt.subplots(figsize=(4, 3))
    for kind, points in lines.items():
        axis.plot([p[0] for p in points], [p[1] for p in points], marker="o", label=kind)
    axis.xaxis.get_major_locator().set_params(integer=True)
    axis.set_xlabel("layers of the drafter")
    axis.set_ylabel("tau, mean of the domains")
    axis.legend()
    return figure


def figure4(reports):
    def others(drafter):
        if drafter["layers"] > 1:
            return None
        return ", part of " + trained_block(drafter) if "max_draft" in drafter else ""

    lines = by_property(reports, "block_size", others)
    if not varies(lines):
        return None
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
    for kind, points in lines.items():
        lengths = [p[0] + 1 for p in points]  # the paper counts the anchor
        left.plot(lengths, [p[1] for p in points], marker="o", label=kind)
        if any(p[2] > 0 for p in points):
            right.plot(lengths, [100 * p[2] for p in points], marker="o", label=kind)
    left.set_ylabel("tau, mean of the domains")
    right.set_ylabel("sequential loop, % of a round")
    drafted = sorted({p[0] + 1 for points in lines.values() for p in points})
    for axis in (left, right):
        axis.set_xticks(drafted)
        axis.set_xlabel("draft length, the anchor included")
    left.legend(loc="lower left", bbox_to_anchor=(0, 1), ncol=2)
    return figure


def figure5(reports):
    threshold = only(reports, "threshold")
    if not threshold:
        return None
    columns = threshold["columns"]
    runs = [r for r in threshold["runs"] if r["of"] == "confidence"]
    x = [r["threshold"] for r in runs]
    figure, (left, right) = plt.subplots(1, 2, figsize=(8, 3))
    left.plot(x, [macro(r, columns) for r in runs], marker="o", label="tau")
    left.plot(x, [macro(r, columns, "verified") for r in runs], marker="s", label="verified drafts a round")
    left.set_xlabel("confidence threshold")
    left.set_ylim(bottom=0)
    left.legend()
    for name in [d["domain"] for d in runs[0]["domains"]]:
        domains = [next(d for d in r["domains"] if d["domain"] == name) for r in runs]
        verified = columns.index("verified")
        points = [(t, ratio(d, columns, "accepted", "verified")) for t, d in zip(x, domains)
                  if any(text[verified] for text in d["texts"])]
        right.plot([p[0] for p in points], [p[1] for p in points], marker="o", markersize=3, label=name)
    right.set_xlabel("confidence threshold")
    right.set_ylabel("accepted of the verified drafts")
    right.legend()
    figure.suptitle(threshold["drafter"]["name"])
    return figure


def figure6(reports):
    calibration = only(reports, "calibration")
    if not calibration:
        return None
    scenarios = calibration["scenarios"][:3]
    gamma = len(scenarios[0]["before"]["positions"])
    shown = [k for k in (0, 2, 4, 6) if k < gamma]
    figure, axes = plt.subplots(len(scenarios), len(shown), figsize=(2.6 * len(shown), 2.7 * len(scenarios)),
                                sharex=True, sharey=True, squeeze=False)
    for row, scenario in zip(axes, scenarios):
        for axis, k in zip(row, shown):
            axis.plot([0, 1], [0, 1], color="grey", linewidth=0.8)
            studies = {"as it comes": scenario["before"]} | {fit["by"]: fit["after"] for fit in scenario["fits"]}
            for name in ("as it comes", "STS", "Platt"):
                position = studies[name]["positions"][k]
                ece = None if position["ece"] is None else 100 * position["ece"]
                bins = [b for b in position["bins"] if b[0] > 0]
                axis.plot([b[1] / b[0] for b in bins], [b[2] / b[0] for b in bins], marker="o", markersize=3,
                          label=f"{name}: ECE {number(ece, '.1f')} %")
            axis.set_title(f"{scenario['name']}, position {k + 1}", fontsize=8)
            before = studies["as it comes"]["positions"][k]
            floor = None if before["floor"] is None else 100 * before["floor"]
            axis.text(0.97, 0.03, f"floor {number(floor, '.1f')} %, AUC {number(before['auc'], '.3f')}", ha="right",
                      fontsize=7, transform=axis.transAxes)
            axis.legend(fontsize=7, loc="upper left")
        row[0].set_ylabel("survived")
    for axis in axes[-1]:
        axis.set_xlabel("predicted")
    return figure


def shortlist_figure(reports):
    shortlist = only(reports, "shortlist")
    if not shortlist or len(shortlist["runs"]) < 2:
        return None
    columns = shortlist["columns"]
    whole = macro(shortlist["runs"][0], columns)
    figure, axis = plt.subplots(figsize=(4, 3))
    for label, part in (("base logits", 0), ("a quarter successors", 4), ("half successors", 2)):
        points = [(r["base"] + r["successors"], macro(r, columns) / whole) for r in shortlist["runs"][1:]
                  if r["successors"] == ((r["base"] + r["successors"]) // part if part else 0)]
        if points:
            axis.plot([p[0] for p in points], [100 * p[1] for p in points], marker="o", label=label)
    axis.axhline(100, color="grey", linewidth=0.8)
    axis.set_xscale("log", base=2)
    axis.set_xlabel("tokens on the shortlist")
    axis.set_ylabel("tau, % of that of all tokens")
    axis.legend()
    return figure


def trees_figure(reports):
    """Runs of one file whose rows are spread over two files, at one temperature, share a panel."""
    panels = {}
    for report in reports:
        for run in report.get("trees", {}).get("measured", []):
            at = f"temperature {report['settings']['temperature']:g}"
            points = panels.setdefault(at, {}).setdefault(run["drafts"], {})
            points.setdefault(run["rows"], mean(d["tau"] for d in run["domains"]))
    if not panels:
        return None
    figure, axes = plt.subplots(1, len(panels), figsize=(4 * len(panels), 3.2), sharey=True, squeeze=False)
    for axis, (at, lines) in zip(axes[0], panels.items()):
        for label, points in lines.items():
            rows = sorted(points)
            axis.plot(rows, [points[r] for r in rows], marker="o", label=label.removeprefix("tree, "),
                      linestyle="--" if label.startswith("chain") else "-")
        axis.set_xscale("log", base=2)
        axis.set_xlabel("rows of the target in a round")
        axis.set_title(at)
        axis.legend(fontsize="small")
    axes[0][0].set_ylabel("tau")
    return figure


def passes_figure(reports):
    """A pass of as many rows at the price of so many plain ones: what drafts have to bring."""
    reports = [report for report in reports if "passes" in report]
    if not reports:
        return None
    figure, axis = plt.subplots(figsize=(4, 3))
    most = max(point["rows"] for report in reports for point in report["passes"]["passes"])
    axis.plot([1, most], [1, most], color="grey", linewidth=0.8, label="as long as rows alone")
    for report in reports:
        points = report["passes"]["passes"]
        about = report["machine"]
        axis.plot([p["rows"] for p in points], [p["seconds"] / points[0]["seconds"] for p in points], marker="o",
                  markersize=3, label=f"{about['packed_kernels']}, {about['threads']} thread{'s' if about['threads'] > 1 else ''}")
    axis.set_xticks([1, *range(4, most + 1, 4)])
    axis.set_xlabel("rows of the target in a pass")
    axis.set_ylabel("time, x one row")
    axis.set_ylim(bottom=0, top=most / 2)
    axis.legend()
    return figure


FIGURES = {
    "figure2": figure2,
    "figure3": figure3,
    "figure4": figure4,
    "figure5": figure5,
    "figure6": figure6,
    "shortlist": shortlist_figure,
    "trees": trees_figure,
    "passes": passes_figure,
}


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
    except (OSError, ValueError) as problem:
        sys.exit(f"plot.py: {path}: {problem}")
    if not isinstance(report, dict) or report.get("program") != "evaluate":
        sys.exit(f"plot.py: {path}: not written by evaluate --json")
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE", help="what evaluate --json wrote")
    parser.add_argument("--out", default=".", metavar="DIR", help="where the figures go; made if missing")
    chosen = parser.parse_args()
    reports = [read(path) for path in chosen.files]
    folder = pathlib.Path(chosen.out)
    folder.mkdir(parents=True, exist_ok=True)
    drawn = 0
    for name, draw in FIGURES.items():
        figure = draw(reports)
        if figure is None:
            continue
        figure.tight_layout()
        save(figure, folder / f"{name}.svg")
        drawn += 1
    if drawn == 0:
        sys.exit("plot.py: no experiment in the files that there is a figure for")


if __name__ == "__main__":
    main()
