#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Counts the machine code of verification (tests/cuda/compile/verification.cu), and fails where it exceeds its limits.

    tests/cuda/code_size.py --nvcc nvcc --nvdisasm nvdisasm [--arch sm_90]

Needs no device. Of weigh_rows, and of the kernel that weighs q's rows apart: the instructions that a lane spends on a
logit of a whole block, and no spilled register. The loop over blocks is found by its exponentials, 32 a block. What is
not in that loop is counted as if a warp came to all of it once in 48 blocks, its share of 128 requests of 8 rows with
V = 151,936 on 132 multiprocessors. Of judge_requests: its size, all functions that it calls included. Of each rule: two
kernels.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = 1024 // 32  # logits of a lane
SHARE = 48  # blocks of a warp
MOST_A_LOGIT = 8.0
# KiB of judge. 48 are asked for; docs/performance.md says how far they are. What is given here keeps it from growing.
MOST_OF_JUDGE = {"greedy": 48, "match": 90, "rejection": 116, "block": 120, "coupling": 118, "tree": 124,
                 "engine rejection": 124, "edited rejection": 164}
RULES = {"token_rejection": "rejection", "block_verification": "block", "target_match": "match",
         "greedy_match": "greedy", "keyed_coupling": "coupling", "recursive": "tree"}
TYPES = {"4bf16": "bf16", "IfE": "float", "4half": "half"}


def compile_kernels(nvcc, arch, folder):
    """The object, and for each kernel the registers and the bytes that it spills."""
    number = arch.removeprefix("sm_")
    cubin = pathlib.Path(folder) / "verification.cubin"
    command = [nvcc, "-x", "cu", "-std=c++20", "-O3", "-cubin", "-Xptxas", "-v",
               "-gencode", f"arch=compute_{number},code={arch}", "-I", ROOT / "include",
               ROOT / "tests/cuda/compile/verification.cu", "-o", cubin]
    log = subprocess.run(command, check=True, text=True, stderr=subprocess.PIPE).stderr
    kernels = {}
    for part in log.split("Compiling entry function '")[1:]:
        spilled = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part)
        kernels[part.split("'")[0]] = (int(re.search(r"Used (\d+) registers", part)[1]), int(spilled[1]) + int(spilled[2]))
    return cubin, kernels


def instructions(nvdisasm, cubin):
    """Of each kernel, its functions included: addresses and texts."""
    text = subprocess.run([nvdisasm, "-c", "-plr", cubin], check=True, text=True, stdout=subprocess.PIPE).stdout
    found = collections.defaultdict(list)
    labels = {}
    kernel = None
    for line in text.splitlines():
        if section := re.match(r"\s*\.section\s+\.text\.([^,]+)", line):
            kernel = section[1]
        elif kernel and (label := re.match(r"(\.L_x_\d+):", line)):
            labels[label[1]] = len(found[kernel])
        elif kernel and (code := re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(.*?);", line)):
            found[kernel].append(code[1])
    return found, labels


def loops(code, labels):
    """The loops that weigh two blocks, a register buffer each, as numbers of instructions."""
    for i, text in enumerate(code):
        target = re.search(r"BRA.*`\((\.L_x_\d+)\)", text)
        if not target or labels.get(target[1], i) >= i:
            continue
        body = code[labels[target[1]]:i + 1]
        exponentials = sum("MUFU.EX2" in line for line in body)
        if exponentials == 2 * BLOCK:
            yield len(body)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    parser.add_argument("--arch", default="sm_90")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cubin, kernels = compile_kernels(given.nvcc, given.arch, folder)
        code, labels = instructions(given.nvdisasm, cubin)
    wrong = []
    count = collections.Counter()
    print(f"{given.arch}: registers, spilled bytes, KiB of code, instructions a logit")
    for kernel, (registers, spilled) in sorted(kernels.items()):
        rule = next(name for key, name in RULES.items() if key in kernel)
        kind = next(name for key, name in TYPES.items() if key in kernel)
        rows = "edited " if "Lb1E" in kernel else "engine " if "Lb0E" in kernel else ""
        what = "weigh" if "weigh_rows" in kernel else "judge" if "judge_requests" in kernel else "q"
        name = f"{what:5} {rows}{rule} {kind}"
        if what != "q":  # whose rows are weighed apart where they are not stored as the target's
            count[f"{rows}{rule} {kind}"] += 1
        size = 16 * len(code[kernel])
        line = f"{name:30} {registers:4} {spilled:5} {size / 1024:6.1f}"
        if what == "q" or (what == "weigh" and rows != "edited "):
            body = min(loops(code[kernel], labels), default=0)
            a_logit = body / (2 * BLOCK) + (len(code[kernel]) - body) / (SHARE * BLOCK)
            line += f" {a_logit:5.2f}"
            if body == 0:
                wrong.append(f"{name}: no loop with {2 * BLOCK} exponentials was found")
            if a_logit > MOST_A_LOGIT and rule != "coupling":  # which has the race besides
                wrong.append(f"{name}: {a_logit:.2f} instructions a logit; at most {MOST_A_LOGIT} are wanted")
            if spilled > 0:
                wrong.append(f"{name}: {spilled} bytes of registers are spilled; none should be")
        if what == "judge" and size > 1024 * MOST_OF_JUDGE[rows + rule]:
            wrong.append(f"{name}: {size / 1024:.0f} KiB of code; at most {MOST_OF_JUDGE[rows + rule]} are wanted")
        print(line)
    wrong += [f"{rule}: {number} kernels; two are wanted" for rule, number in count.items() if number != 2]
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
