#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws what serve wrote with --json.

    plot.py sweep.json figure8.json ... --out figures

    serving_sweep.svg    share of the best static length by concurrency, a panel for each world
    serving_figure8.svg  throughput and budget by concurrency, published points beside them
    serving_figure7.svg  throughput by a user's speed, the same
    serving_burst.svg    throughput as a share of the oracle's
    serving_trace.svg    requests at a time and budget over the time of a trace
    serving_drift.svg    ECE by rounds

Needs matplotlib.
"""

import argparse
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "docs/figures"))
from drawing import plt, save  # noqa: E402  (found there)


def distinct(values):
    return list(dict.fromkeys(values))


def policies_of(runs):
    """Those that are judged: no static lengths."""
    return [p for p in distinct(r["policy"] for run in runs for r in run["runs"])
            if p != "none" and not p.startswith("fixed:")]


def sweep(numbers):
    worlds = distinct(n["world"] for n in numbers)
    figure, axes = plt.subplots(1, len(worlds), figsize=(3 * len(worlds), 3), sharey=True, squeeze=False)
    for axis, world in zip(axes[0], worlds):
        here = [n for n in numbers if n["world"] == world]
        concurrency = distinct(n["concurrency"] for n in here)
        for policy in policies_of(here):
            # The worst of the mixes.
            shares = []
            for c in concurrency:
                shares.append(min(r["tokens_per_second"] / n["best_static_tokens_per_second"]
                                  for n in here if n["concurrency"] == c for r in n["runs"] if r["policy"] == policy))
            axis.plot(concurrency, shares, marker="o", markersize=3, label=policy)
        axis.axhline(1, color="grey", linewidth=0.8)
        axis.set_xscale("log", base=2)
        axis.set_title(world)
        axis.set_xlabel("requests")
    axes[0][0].set_ylabel("share of the best static length")
    axes[0][-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return {"serving_sweep": figure}



def stars(axis, world):
    """Figure 7's printed gains at a user's speed, over the simulated rival there."""
    mtp1 = next(line["runs"] for line in world["lines"] if line["policy"] == "mtp-1")
    points = [(r["tokens_per_second"] / r["concurrency"], r["tokens_per_second"]) for r in mtp1]
    label = "Figure 7's gain over mtp-1"
    for key, gain in world["published"]["frontier"].items():
        if not key.startswith("throughput_gain_at_"):
            continue
        user = float(key.removeprefix("throughput_gain_at_"))
        axis.axvline(user, color="black", linewidth=0.5, linestyle=":")
        for (s0, t0), (s1, t1) in zip(points, points[1:]):
            if s1 <= user <= s0:
                rival = t0 + (s0 - user) / (s0 - s1) * (t1 - t0)
                axis.plot([user], [rival * (1 + gain)], "*", color="black", markersize=9, label=label)
                label = None


def figure8(numbers):
    eight, axes = plt.subplots(2, len(numbers), figsize=(4 * len(numbers), 5), squeeze=False)
    seven, frontiers = plt.subplots(1, len(numbers), figsize=(4 * len(numbers), 3), squeeze=False)
    for i, world in enumerate(numbers):
        published = world["published"]
        x = published["concurrency"]
        within = [c for c in world["concurrency"] if x[0] <= c <= x[-1]]
        for line in world["lines"]:
            runs = {r["concurrency"]: r for r in line["runs"]}
            plotted, = axes[0][i].plot(within, [runs[c]["tokens_per_second"] for c in within], label=line["policy"])
            if line["policy"] != "mtp-1":
                axes[1][i].plot(within, [runs[c]["budget"] for c in within], color=plotted.get_color())
            rate = [r["tokens_per_second"] for r in line["runs"]]
            speed = [r["tokens_per_second"] / r["concurrency"] for r in line["runs"]]
            frontiers[0][i].plot(speed, rate, color=plotted.get_color(), label=line["policy"])
        for name, key in (("published, MTP-1", "mtp1"), ("published, DSpark", "dspark")):
            marker = "s" if key == "mtp1" else "o"
            axes[0][i].plot(x, published[key], marker, color="black", markersize=4, label=name)
            frontiers[0][i].plot([t / c for t, c in zip(published[key], x)], published[key], marker, color="black",
                                 markersize=4, label=name)
        axes[1][i].plot(x, published["budget"], "o", color="black", markersize=4)
        stars(frontiers[0][i], world)
        axes[0][i].set_title(world["world"])
        axes[1][i].set_xlabel("requests")
        frontiers[0][i].set_title(world["world"])
        frontiers[0][i].set_xlabel("tokens/s of a user")
    axes[0][0].set_ylabel("tokens/s")
    axes[1][0].set_ylabel("batch tokens a request")
    frontiers[0][0].set_ylabel("tokens/s")
    axes[0][-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    frontiers[0][-1].legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return {"serving_figure8": eight, "serving_figure7": seven}


def burst(numbers):
    figure, axis = plt.subplots(figsize=(5, 3))
    names = [f"{n['world']}, {n['mix']}" for n in numbers]
    policies = [p for p in distinct(r["policy"] for n in numbers for r in n["runs"]) if p != "oracle"]
    width = 0.8 / len(policies)
    for i, policy in enumerate(policies):
        shares = []
        for n in numbers:
            rates = {r["policy"]: r["tokens_per_second"] for r in n["runs"]}
            shares.append(rates[policy] / rates["oracle"])
        axis.bar([x + i * width for x in range(len(numbers))], shares, width, label=policy)
    axis.set_xticks([x + 0.4 - width / 2 for x in range(len(numbers))], names)
    axis.axhline(1, color="grey", linewidth=0.8)
    axis.set_ylabel("share of the oracle")
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return {"serving_burst": figure}


def over_time(windows):
    """Ends of windows, and the windows: [texts, seconds, tokens, budget, ECE, requests]."""
    ends, now = [], 0
    for w in windows:
        now += w[1]
        ends.append(now)
    return ends


def trace(numbers):
    figure, (top, bottom) = plt.subplots(2, 1, figsize=(7, 4), sharex=True)
    for run in numbers[0]["runs"]:
        windows = run.get("windows") or []
        if run["policy"] == "none":
            continue
        ends = over_time(windows)
        top.plot(ends, [w[5] for w in windows], linewidth=0.9, label=run["policy"])
        bottom.plot(ends, [w[3] for w in windows], linewidth=0.9)
    top.set_ylabel("requests at a time")
    bottom.set_ylabel("batch tokens a request")
    bottom.set_xlabel("busy seconds")
    top.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return {"serving_trace": figure}


def drift(numbers):
    figure, axis = plt.subplots(figsize=(5, 3))
    for run in numbers[0]["runs"]:
        windows = run["drifted"]["windows"]
        first = next(i for i, w in enumerate(windows) if w[0] >= numbers[0]["first_text"])
        x = [(i - first) * numbers[0]["window"] for i in range(len(windows))]
        axis.plot(x, [None if w[4] is None else 100 * w[4] for w in windows], label=run["drifted"]["policy"])
    right = numbers[0]["runs"][-1]["right"]["windows"]
    axis.plot(x[:len(right)], [None if w[4] is None else 100 * w[4] for w in right[:len(x)]], color="grey",
              linewidth=0.8, label="confidences right")
    axis.axvline(0, color="grey", linewidth=0.8)
    axis.set_xlim(-300, 1000)
    axis.set_xlabel("rounds after the drift began")
    axis.set_ylabel("ECE, %")
    axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return {"serving_drift": figure}


DRAW = {"sweep": sweep, "figure8": figure8, "burst": burst, "trace": trace, "drift": drift}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="+", metavar="FILE", help="what serve --json wrote")
    parser.add_argument("--out", default=".", metavar="DIR", help="where the figures go; made if missing")
    chosen = parser.parse_args()
    folder = pathlib.Path(chosen.out)
    folder.mkdir(parents=True, exist_ok=True)
    together = {}
    for path in chosen.files:
        try:
            report = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as problem:
            sys.exit(f"plot.py: {path}: {problem}")
        if not isinstance(report, dict) or report.get("program") != "serve":
            sys.exit(f"plot.py: {path}: not written by serve --json")
        together.setdefault(report["experiment"], []).extend(report["numbers"])
    drawn = 0
    for experiment, numbers in together.items():
        for name, figure in DRAW.get(experiment, lambda _: {})(numbers).items():
            figure.tight_layout()
            save(figure, folder / f"{name}.svg")
            drawn += 1
    if drawn == 0:
        sys.exit("plot.py: no experiment in the files that there is a figure for")


if __name__ == "__main__":
    main()
