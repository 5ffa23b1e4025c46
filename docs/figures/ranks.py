#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""How long verification over slices takes on more ranks than a machine has, beside gathering whole rows.

    docs/figures/ranks.py        prints the table of docs/ranks.md

An exchange of m bytes on P ranks takes alpha log2(P) + beta m (P - 1) / P: recursive doubling. Compute is measured with
bench.ranks on one rank, and divided by slices of whole parts. On a device it is the reading of the rows.
"""
import math

V, R, GAMMA, PART = 151936, 32, 7, 4096
P_ROWS, Q_ROWS = R * (GAMMA + 1), R * GAMMA
PARTS = math.ceil(V / PART)
EXCHANGES = 3

# Seconds of token rejection: over slices on one rank, and of whole rows, which stops at rejections.
HOST = (33.5e-3, 19.2e-3)
ROW_BYTES = P_ROWS * V * 2 + Q_ROWS * V * 4
DEVICE = (ROW_BYTES / 4.3e12, ROW_BYTES / 4.3e12)

# alpha in seconds, bandwidth in bytes a second. What vendors say of NVLink 4, NDR InfiniBand and Ethernet; alpha with the
# software above them.
LINKS = {
    "NVLink, device": (8e-6, 450e9, DEVICE),
    "InfiniBand, host": (3e-6, 50e9, HOST),
    "Ethernet 25 Gb/s, host": (30e-6, 3.1e9, HOST),
}


def exchange(ranks, received, alpha, bandwidth):
    return 0.0 if ranks == 1 else alpha * math.log2(ranks) + received * (ranks - 1) / ranks / bandwidth


def sharded(ranks, alpha, bandwidth, compute):
    most = math.ceil(PARTS / ranks)
    of_rows = (P_ROWS + Q_ROWS) * most * ranks * 8 + Q_ROWS * 16 * ranks
    others = R * most * ranks * 8 + R * 4 * ranks
    seconds = compute[0] * most / PARTS + (EXCHANGES - 2) * exchange(ranks, of_rows, alpha, bandwidth)
    return seconds + 2 * exchange(ranks, others / 2, alpha, bandwidth)


def gathered(ranks, alpha, bandwidth, compute):
    return exchange(ranks, ROW_BYTES, alpha, bandwidth) + compute[1]


def main():
    counts = [1, 2, 4, 8, 16, 32, 64]
    print("| ms: slices; gathered | " + " | ".join(f"P = {p}" for p in counts) + " |")
    print("|---" * (len(counts) + 1) + "|")
    for name, (alpha, bandwidth, compute) in LINKS.items():
        cells = []
        for p in counts:
            a, b = (1e3 * f(p, alpha, bandwidth, compute) for f in (sharded, gathered))
            cells.append(f"{a:.3g}; {b:.3g}")
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
