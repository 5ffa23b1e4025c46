#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Leaves out the barriers, fences and waits of the kernels one at a time: some test in the emulator must notice.

    tests/cuda/mutants.py                        all of them, which takes the better part of an hour
    tests/cuda/mutants.py --only sampling/truncate.cuh    those of one header; sampling/truncate.cuh:210 is that one
    tests/cuda/mutants.py --divergent            barriers that thread 0 passes by, rather than none

A test notices by failing or, if none does, under ThreadSanitizer, which sees what came out right by chance. Prints a line
for every mutant, and ends with 1 if one survived. Lines that say "no mutant" in a comment are left as they are; the comment
argues why what they order does not go wrong in a test.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
KERNELS = ROOT / "include/sureleap/cuda"

# Which tests run a header's kernels, the likeliest to notice first.
TESTS = {
    "confidence/head.cuh": ["confidence", "heads"],
    "confidence/top1.cuh": ["confidence"],
    "core/barrier.cuh": ["chain_product"],
    "core/block_scan.cuh": ["flatten", "advance", "schedule"],
    "core/block_sort.cuh": ["schedule"],
    "core/linear.cuh": ["heads"],
    "drafter/chain.cuh": ["chain"],
    "drafter/list_distribution.cuh": ["shortlist", "tree_growth"],
    "drafter/shortlist.cuh": ["shortlist"],
    "head/gated.cuh": ["heads"],
    "head/hidden_terms.cuh": ["heads"],
    "head/markov.cuh": ["chain", "heads"],
    "head/product.cuh": ["chain_product", "chain"],
    "head/product_step.cuh": ["chain_product", "chain"],
    "head/product_tile.cuh": ["chain_product", "chain"],
    "head/recomputed_rows.cuh": ["chain"],
    "head/rnn.cuh": ["heads"],
    "head/row_draw.cuh": ["chain", "draw"],
    "head/top_tokens.cuh": ["best_tokens"],
    "round/accept.cuh": ["verify_rows", "verify_long_rows", "verify_rejection", "verify_block", "verify_match",
                         "tree_rejection"],
    "round/advance.cuh": ["advance"],
    "round/verifier.cuh": ["verifier"],
    "sampling/draw.cuh": ["verify_rejection", "verify_match"],
    "sampling/gumbel_max.cuh": ["gumbel_max"],
    "sampling/gumbel_max_row.cuh": ["gumbel_max", "shortlist", "verify_match"],
    "sampling/listed_tokens.cuh": ["truncate", "verify_rejection"],
    "sampling/ordered_row.cuh": ["truncate", "verify_rejection"],
    "sampling/slice_records.cuh": ["slice_records"],
    "sampling/truncate.cuh": ["truncate", "verify_rejection"],
    "schedule/admission.cuh": ["schedule"],
    "schedule/history.cuh": ["history"],
    "schedule/lengths.cuh": ["schedule"],
    "schedule/schedules.cuh": ["schedule", "flatten"],
    "tree/flatten.cuh": ["tree"],
    "tree/growing_tree.cuh": ["tree_growth"],
    "tree/rules.cuh": ["tree_rejection"],
    "verify/draft_rows.cuh": ["verify_rejection", "verifier"],
    "verify/flatten.cuh": ["flatten"],
    "verify/judge.cuh": ["verify_rows", "verify_long_rows", "verify_rejection", "verify_block", "verify_match"],
    "verify/queue.cuh": ["verify_long_rows", "verify_rows"],
    "verify/residual.cuh": ["verify_rows", "verify_rejection", "verify_block", "verify_match", "tree_rejection"],
    "verify/target_draws.cuh": ["verify_rows", "verify_rejection", "verify_block", "verify_match"],
    "verify/target_rows.cuh": ["verify_rows", "verify_long_rows", "verify_rejection", "verify_block", "verify_match"],
    "verify/token_report.cuh": ["verifier"],
    "verify/weigh.cuh": ["verify_rows", "verify_long_rows", "verify_rejection", "verify_match", "coupling"],
    "verify/weigh_drafts.cuh": ["verifier"],
}

# What is enough of a test that takes too long under ThreadSanitizer.
SHORTER = {
    "schedule": "Schedules: some*",
    "verify_long_rows": "cuda verify: rows of many tiles*",
    "verify_rows": "cuda verify: corrections by passes*,cuda verify: a block that is taken back*",
}

ORDERS = re.compile(r"__syncthreads\(\);|__syncwarp\([^;]*\);|__threadfence\(\);|publish\(\);|__pipeline_wait_prior\([^;]*\);|"
                    r"[\w.\[\]]+\.wait\([^;]*\);")
FENCES = ("__threadfence", "publish")
EXEMPT = "no mutant"


class Mutant:
    def __init__(self, header, line, text):
        self.header, self.line, self.text = header, line, text

    def __str__(self):
        return f"{self.header}:{self.line}"

    def write(self, folder, divergent):
        """An include folder that differs from the library's in this line alone."""
        sureleap = folder / "sureleap"
        (sureleap / "cuda").mkdir(parents=True)
        for entry in (ROOT / "include/sureleap").iterdir():
            if entry.name != "cuda":
                (sureleap / entry.name).symlink_to(entry)
        for entry in KERNELS.rglob("*.cuh"):
            here = entry.relative_to(KERNELS)
            (sureleap / "cuda" / here).parent.mkdir(exist_ok=True)
            if str(here) != self.header:
                (sureleap / "cuda" / here).symlink_to(entry)
        lines = (KERNELS / self.header).read_text().split("\n")
        here = lines[self.line - 1]
        instead = "{ if (threadIdx.x != 0) " + self.text + " }" if divergent else "{}"
        lines[self.line - 1] = here.replace(self.text, instead, 1)
        (sureleap / "cuda" / self.header).write_text("\n".join(lines))


def mutants_of(header, divergent):
    for number, line in enumerate((KERNELS / header).read_text().split("\n"), 1):
        found = ORDERS.search(line.split("//")[0])
        if found and EXEMPT not in line and (found[0].startswith("__syncthreads") or not divergent):
            yield Mutant(header, number, found[0])


def catch_main(options, folder):
    """What to link with: the library's main, or that of the single header compiled here."""
    def has(header):
        return subprocess.run([options.compiler, "-std=c++20", "-fsyntax-only", "-x", "c++", "-"], text=True,
                              input=f"#include <{header}>", stderr=subprocess.DEVNULL).returncode == 0
    if has("catch2/catch_test_macros.hpp"):
        return ["-lCatch2Main", "-lCatch2"]
    source = folder / "catch_main.cpp"
    source.write_text("#define CATCH_CONFIG_MAIN\n#include <catch2/catch.hpp>\n")
    subprocess.run([options.compiler, "-std=c++20", "-O1", "-c", source, "-o", folder / "catch_main.o"], check=True)
    return [str(folder / "catch_main.o")]


class Tests:
    """Builds and runs tests against headers that may be mutants."""

    def __init__(self, options, link):
        self.options, self.link = options, link
        self.lock = threading.Lock()
        self.as_they_are = {}

    def complaint(self, test, include, sanitized):
        """What the test says of these headers: None if it passes or, under ThreadSanitizer, takes too long to tell."""
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / test
            flags = ["-std=c++20", "-O1", "-w", "-DNDEBUG", "-DSURELEAP_CUDA_EMULATED", "-DSURELEAP_TEST_QUICK=0",
                     f'-DSURELEAP_GOLDEN_DEFAULT_DIR="{ROOT}/tests/golden"', f"-I{ROOT}/tests/cuda/emulator",
                     f"-I{include}", f"-I{ROOT}/tests", *(["-fsanitize=thread", "-g1"] if sanitized else [])]
            subprocess.run([self.options.compiler, *flags, ROOT / f"tests/cuda/{test}.test.cpp", "-o", program,
                            *self.link, "-rdynamic", "-ldl"], check=True)
            try:
                cases = SHORTER.get(test, "*") if sanitized else "*"
                run = subprocess.run([program, "--abort", cases], capture_output=True, text=True, errors="replace",
                                     timeout=self.options.timeout,
                                     env={**os.environ, "TSAN_OPTIONS": "halt_on_error=1 exitcode=66"})
            except subprocess.TimeoutExpired:
                return None if sanitized else "it did not end"
            if run.returncode == 0:
                return None
            said = re.search(r".*(divergent|data race|FAILED|CUDA: ).*", run.stdout + run.stderr)
            return said[0].strip()[:120] if said else f"status {run.returncode}"

    def is_sound(self, test):
        """ThreadSanitizer has nothing to say of the headers as they are."""
        with self.lock:
            if test not in self.as_they_are:
                self.as_they_are[test] = self.complaint(test, ROOT / "include", True)
            return self.as_they_are[test] is None

    def outcome(self, mutant):
        """("caught by <test>" or "SURVIVED", the line that tells)."""
        with tempfile.TemporaryDirectory() as folder:
            include = pathlib.Path(folder)
            mutant.write(include, self.options.divergent)
            # Without a fence nothing comes out otherwise: to the emulator every write is visible at once.
            for sanitized in [True] if mutant.text.startswith(FENCES) else [False, True]:
                for test in TESTS[mutant.header]:
                    told = self.complaint(test, include, sanitized)
                    if told and (not sanitized or self.is_sound(test)):
                        return f"caught by {test}" + (" under ThreadSanitizer" if sanitized else ""), told
        return "SURVIVED", ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", default=[], metavar="HEADER[:LINE]")
    parser.add_argument("--divergent", action="store_true", help="thread 0 passes the barrier by")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds a test may run")
    options = parser.parse_args()

    mutants = [m for header in sorted(str(p.relative_to(KERNELS)) for p in KERNELS.rglob("*.cuh")) for m in mutants_of(header, options.divergent)]
    if options.only:
        mutants = [m for m in mutants if m.header in options.only or str(m) in options.only]
    if not mutants:
        sys.exit("mutants.py: there is no such mutant")
    unknown = {m.header for m in mutants} - TESTS.keys()
    if unknown:
        sys.exit(f"mutants.py: say in TESTS which tests run the kernels of {', '.join(sorted(unknown))}")

    survived = []
    with tempfile.TemporaryDirectory() as name, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        tests = Tests(options, catch_main(options, pathlib.Path(name)))
        for mutant, (result, told) in zip(mutants, pool.map(tests.outcome, mutants)):
            print(f"{str(mutant):28} {mutant.text:28} {result}{': ' + told if told else ''}", flush=True)
            if result == "SURVIVED":
                survived.append(mutant)
    print(f"{len(mutants) - len(survived)} of {len(mutants)} mutants were caught")
    sys.exit(1 if survived else 0)


if __name__ == "__main__":
    main()
