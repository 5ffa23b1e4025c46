#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the worlds of DSpark's Figure 8: v4_flash.json and v4_pro.json.

    fit_published.py FIGURES [--worlds DIR] [--at N] [--markdown]

FIGURES holds the numbers read off the paper (fig2_conditional_acceptance, fig6_calibration, fig8_budget). Prints how
far the fit is from every published point, in the mean over infinitely many requests; `serve figure8` runs the
schedules.

Fitted to the published MTP-1 line:
  step time           T(B) = t0 + t1 B with B = 2 N tokens for N requests, so that the largest relative error is least.
Fitted to the published DSpark line, two parameters at ONE concurrency, where throughput and budget then agree: 110
requests, about the middle of both published ranges, on the line between two points (any choice from 110 to 140 keeps
both models within 10 % and half a token everywhere):
  shift               a logit added to every centre: how well V4's drafter does on V4's traffic;
  draft               seconds of drafting for each request of a round. A V4 drafter has experts, so that a larger batch
                      reads more weights: its time grows with the batch.
From elsewhere:
  gamma = 5           the block of the released V4 drafters;
  shape of acceptance Figure 2, DSpark; chat, code and math in equal parts;
  spread              request_sd and token_sd by Figure 6: the ROC-AUC that a calibrated head reaches for "the first k
                      are accepted", k = 1, 3, 5, 7. The first alone gives the spread of c; its rise with k is what
                      positions of a round have in common. With the chat curve: both figures are of chat prompts;
  what MTP-1 accepts  an MTP layer drafts from the target's hidden state like Eagle-3. So its first draft is to
                      DSpark's first what Eagle-3's is in Figure 2, in logits;
  schedule            the best prefix set of each round (Theta: tokens per second).

A request keeps its ease z for life, so that hard ones take more rounds: rounds are weighted by 1 / tokens per round
throughout, as they are where the figures were measured and in the simulator.
"""

import argparse
import json
import pathlib
import re
import sys

import numpy as np
from scipy.optimize import brentq, linprog
from scipy.stats import norm, qmc

GAMMA = 5                                       # of the released V4 drafters
DOMAINS = ("chat", "code", "math")
Z = norm.ppf((np.arange(48) + 0.5) / 48)        # requests
E = norm.ppf(qmc.Sobol(7, seed=11).random(1024))  # positions of a round


def sigma(x):
    return 1 / (1 + np.exp(-x))


# ---- acceptance -----------------------------------------------------------------------------------------------------


def centres(rates, request_sd, token_sd):
    """Logits such that blocks verified in full show these rates, each given that all before it were accepted."""
    centre = np.log(np.array(rates) / (1 - np.array(rates)))
    for _ in range(12):
        c = sigma(centre + request_sd * Z[:, None, None] + token_sd * E[None, :, :len(rates)])
        rounds = 1 / (1 + np.cumprod(c, axis=2).sum(axis=2).mean(axis=1))
        weight = np.repeat(rounds[:, None], len(E), axis=1)
        for k, rate in enumerate(rates):
            def off(x):
                return np.average(sigma(x + request_sd * Z[:, None] + token_sd * E[None, :, k]), weights=weight) - rate
            centre[k] = brentq(off, -12, 16)
            weight = weight * sigma(centre[k] + request_sd * Z[:, None] + token_sd * E[None, :, k])
    return centre


def auc(survival, weight):
    """Of labels that are true with probability `survival`, ranked by it."""
    order = np.argsort(survival)
    a, w = survival[order], weight[order]
    below = np.cumsum(w * (1 - a)) - 0.5 * w * (1 - a)
    return (below * w * a).sum() / ((w * a).sum() * (w * (1 - a)).sum())


def aucs(rates, request_sd, token_sd, positions):
    centre = centres(rates, request_sd, token_sd)
    c = sigma(centre + request_sd * Z[:, None, None] + token_sd * E[None])
    a = np.cumprod(c, axis=2)
    weight = np.repeat(1 / (1 + a.sum(axis=2).mean(axis=1))[:, None], len(E), axis=1).ravel()
    return np.array([auc(a[:, :, k - 1].ravel(), weight) for k in positions])


def spread(figures):
    """(request_sd, token_sd) by least squares of the printed AUCs, on a grid of 0.1."""
    rates = figures["fig2_conditional_acceptance"]["chat"]["DSpark"]
    printed = np.array(figures["fig6_calibration"]["auc"])
    positions = figures["fig6_calibration"]["positions"]
    best = None
    for request_sd in np.arange(8, 16) / 10:
        for token_sd in np.arange(5, 14) / 10:
            got = aucs(rates, request_sd, token_sd, positions)
            error = ((got - printed) ** 2).sum()
            if best is None or error < best[0]:
                best = (error, float(request_sd), float(token_sd), got)
    return best[1:]


class Traffic:
    """Requests of all domains, their blocks cut where survival falls below a level: tokens and batch per round."""

    BINS = 800

    def __init__(self, shift, centre, rival_first, request_sd, token_sd):
        self.tau = []      # [node, level], levels falling
        self.verified = []
        rival = []
        for d in range(len(centre)):
            c = sigma(shift + centre[d][:GAMMA] + request_sd * Z[:, None, None] + token_sd * E[None, :, :GAMMA])
            a = np.cumprod(c, axis=2).reshape(len(Z), -1)
            level = np.minimum((-np.log(a) * 80).astype(int), self.BINS - 1)
            index = (np.arange(len(Z))[:, None] * self.BINS + level).ravel()
            size = len(Z) * self.BINS
            self.tau.append(np.bincount(index, a.ravel(), size).reshape(len(Z), -1).cumsum(axis=1) / len(E))
            self.verified.append(np.bincount(index, minlength=size).reshape(len(Z), -1).cumsum(axis=1) / len(E))
            first = shift + rival_first[d] + request_sd * Z[:, None] + token_sd * E[None, :, 0]
            rival.append(sigma(first).mean(axis=1))
        self.tau = 1 + np.concatenate(self.tau)
        self.verified = 1 + np.concatenate(self.verified)
        self.rival = 1 / np.mean(1 / (1 + np.concatenate(rival)))  # tokens per round with one draft

    def best(self, seconds):
        """(budget, tokens per round) where each round is cut where its tokens per second are most; seconds(batch)."""
        level = self.BINS // 3
        for _ in range(60):
            rounds = 1 / self.tau[:, level]
            tau = rounds @ self.tau / rounds.sum()
            batch = rounds @ self.verified / rounds.sum()
            next_level = int(np.argmax(tau / seconds(batch)))
            if next_level == level:
                break
            level = next_level
        return batch[level], tau[level]


# ---- Figure 8 -------------------------------------------------------------------------------------------------------


def straight_line(x, y):
    """(a, b) with the least largest |a + b x - y| / y."""
    ones = np.ones_like(x)
    above = np.stack([ones, x, -y], axis=1)
    below = np.stack([-ones, -x, -y], axis=1)
    solved = linprog([0, 0, 1], np.concatenate([above, below]), np.concatenate([y, -y]),
                     bounds=[(0, None), (0, None), (0, None)])
    return solved.x[0], solved.x[1]


class Figure8:
    def __init__(self, published, traffic_of):
        self.n = np.array(published["concurrency"], float)
        self.budget = np.array(published["budget"], float)
        self.dspark = np.array(published["tokens_per_s_dspark"], float)
        self.mtp1 = np.array(published["tokens_per_s_mtp1"], float)
        self.traffic_of = traffic_of
        self.known = {}

    def traffic(self, shift):
        if shift not in self.known:
            t = self.traffic_of(shift)
            self.known[shift] = (t, straight_line(2 * self.n, self.n * t.rival / self.mtp1))
        return self.known[shift]

    def predict(self, shift, draft, n):
        """(budget, tokens per second)"""
        t, (t0, t1) = self.traffic(shift)

        def seconds(batch):
            return t0 + t1 * n * batch + draft * n

        batch, tau = t.best(seconds)
        return batch, n * tau / seconds(batch)

    def fit(self, n):
        """(shift, draft) that give the published throughput and budget at n requests."""
        tokens = np.interp(n, self.n, self.dspark)
        budget = np.interp(n, self.n, self.budget)

        def draft(shift):
            def fast(seconds):
                return self.predict(shift, seconds, n)[1] - tokens
            return brentq(fast, 0, 2e-3, xtol=1e-8) if fast(0) > 0 else 0.0

        def off(shift):
            return self.predict(shift, draft(shift), n)[0] - budget

        shift = round(brentq(off, -2.5, 1.0, xtol=1e-3), 3)
        return shift, draft(shift)


# ---- worlds ---------------------------------------------------------------------------------------------------------


def table(fitted, shift, draft):
    """Rows of text, and the largest deviations of throughput (a share) and budget (tokens)."""
    beside = ("published", "off by")
    rows = [("requests", "MTP-1", *beside, "DSpark", *beside, "budget", *beside)]
    traffic, (t0, t1) = fitted.traffic(shift)
    worst = [0.0, 0.0]
    for n, there_mtp1, there, there_budget in zip(fitted.n, fitted.mtp1, fitted.dspark, fitted.budget):
        mtp1 = n * traffic.rival / (t0 + t1 * 2 * n)
        budget, tokens = fitted.predict(shift, draft, n)
        off = tokens / there - 1, budget - there_budget
        worst = [max(w, abs(x)) for w, x in zip(worst, off)]
        rows.append((f"{n:.0f}", f"{mtp1:.0f}", f"{there_mtp1:.0f}",
                     f"{mtp1 / there_mtp1 - 1:+.1%}", f"{tokens:.0f}", f"{there:.0f}", f"{off[0]:+.1%}",
                     f"{budget:.2f}", f"{there_budget:.2f}", f"{off[1]:+.2f}"))
    return rows, worst


def world(model, fitted, shift, draft, at, centre, request_sd, token_sd):
    traffic, (t0, t1) = fitted.traffic(shift)
    last = 2 * int(fitted.n[-1])
    return {
        "format": "sureleap-world-1",
        "name": model,
        "source": f"DSpark paper, Figures 2, 6 and 8, by fit_published.py: step time fitted to the MTP-1 line, shift "
                  f"{shift:+.3f} and draft cost to the DSpark line at {at} requests",
        "block": GAMMA,
        "step": {
            "requests": {"at": [1], "seconds": [0.0]},
            "batch_tokens": {"at": [0, last], "seconds": [round(t0, 8), round(t0 + t1 * last, 8)]},
            "pad_batch_to": 1,
        },
        "draft": {"seconds": 0.0, "per_request": round(draft, 9), "per_token": 0.0},
        "mtp1": {"accepts": round(traffic.rival - 1, 4), "draft_seconds": 0.0},
        "acceptance": {
            "request_sd": request_sd,
            "token_sd": token_sd,
            "domains": [{"name": d, "weight": 1.0, "centre": [round(float(x) + shift, 3) for x in c[:GAMMA]]}
                        for d, c in zip(DOMAINS, centre)],
        },
    }


def show(rows, markdown):
    width = [max(len(r[i]) for r in rows) for i in range(len(rows[0]))]
    for i, row in enumerate(rows):
        cells = [cell.rjust(w) for cell, w in zip(row, width)]
        print("| " + " | ".join(cells) + " |" if markdown else "  ".join(cells))
        if markdown and i == 0:
            print("| " + " | ".join("-" * (w - 1) + ":" for w in width) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("figures", type=pathlib.Path)
    parser.add_argument("--worlds", type=pathlib.Path, help="write the worlds into this folder")
    parser.add_argument("--at", type=int, default=110, help="concurrency at which the two parameters are fitted [110]")
    parser.add_argument("--markdown", action="store_true")
    chosen = parser.parse_args()
    figures = json.loads(chosen.figures.read_text())

    request_sd, token_sd, got = spread(figures)
    printed = figures["fig6_calibration"]["auc"]
    print(f"request_sd {request_sd}, token_sd {token_sd}: AUC " + ", ".join(f"{x:.3f}" for x in got) + " (printed " +
          ", ".join(f"{x:.3f}" for x in printed) + ")")
    curves = figures["fig2_conditional_acceptance"]
    centre = [centres(curves[d]["DSpark"], request_sd, token_sd) for d in DOMAINS]
    rival_first = [centres(curves[d]["Eagle3"], request_sd, token_sd)[0] for d in DOMAINS]
    for model, file in (("V4-Flash", "v4_flash.json"), ("V4-Pro", "v4_pro.json")):
        published = figures["fig8_budget"][model]
        if not published["concurrency"][0] <= chosen.at <= published["concurrency"][-1]:
            sys.exit(f"--at {chosen.at}: {model} was published from {published['concurrency'][0]} to "
                     f"{published['concurrency'][-1]} requests")
        fitted = Figure8(published, lambda shift: Traffic(shift, centre, rival_first, request_sd, token_sd))
        shift, draft = fitted.fit(chosen.at)
        traffic, (t0, t1) = fitted.traffic(shift)
        rows, worst = table(fitted, shift, draft)
        print(f"\n{model}: shift {shift:+.3f}, drafting {1e6 * draft:.1f} us a request; T(B) = {1e3 * t0:.2f} ms + "
              f"{1e6 * t1:.1f} us B; MTP-1 makes {traffic.rival:.2f} tokens a round")
        show(rows, chosen.markdown)
        print(f"at most {worst[0]:.1%} of throughput and {worst[1]:.2f} tokens of budget off; fitted at {chosen.at} "
              "requests")
        if chosen.worlds:
            text = json.dumps(world(model, fitted, shift, draft, chosen.at, centre, request_sd, token_sd), indent=2)
            text = re.sub(r"\[[^][{}]*\]", lambda numbers: re.sub(r"\s+", " ", numbers[0]), text)  # lists on one line
            (chosen.worlds / file).write_text(text.replace("[ ", "[").replace(" ]", "]") + "\n")
            print(chosen.worlds / file)


if __name__ == "__main__":
    main()
