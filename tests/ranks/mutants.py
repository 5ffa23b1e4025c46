#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Mistakes that verification over slices could have: some test must notice each.

    tests/ranks/mutants.py                 all of them, a quarter of an hour of one core
    tests/ranks/mutants.py --only ties     those whose name has that word

Every mistake is a line of a header, replaced in a copy of include/. A test notices by failing, or by running too long.
Prints a line for every mistake, and ends with 1 if one survived.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The likeliest to notice last: enumeration compiles faster.
TESTS = ["property/exact_ranks.test.cpp", "unit/ranks/sharded_rows.test.cpp"]
DRAFTS = ["property/exact_every_slice.test.cpp", "unit/ranks/sharded_drafter.test.cpp",
          "unit/ranks/sharded_drafter_rounds.test.cpp"]
TESTS_OF = {"sharded_drafter.hpp": DRAFTS, "drafted_parts.hpp": DRAFTS}

# What is wrong, the header in ranks/, what stands there, what stands there instead.
MISTAKES = [
    ("a slice's residual is forgotten", "answers.hpp", "q.number += here;", "if (rank != 1) q.number += here;"),
    ("noise is keyed by the rank", "answers.hpp", "auto const here = row.race(part, of.noise[n],",
     "auto const here = row.race(part, draw_key{rank_, of.noise[n].position, 0, purpose::noise},"),
    ("ties go to the last rank", "answers.hpp", "if (top > best.top) best", "if (top >= best.top) best"),
    ("sums of parts are added up as they come", "part_sums.hpp",
     "here.sum > 0.0 ? here.sum * weight_beside(here.top, row.top, scale) : 0.0", "here.sum + 0.0 * scale"),
    ("rank 0 is asked for everybody's logits", "answers.hpp",
     "byte_reader in{first + slices_.owner(x) * size + at};", "byte_reader in{first + at};"),
    ("drafts go on behind a token that q has not got", "answers.hpp", "of.length = k;", "of.length = of.length;"),
    ("the place in a part is forgotten", "answers.hpp", "find_in_part<target_real>(part, q.within, mass,",
     "find_in_part<target_real>(part, 0.5, mass,"),
    ("a rank is not held to the others' checksum", "sharded_rows.hpp",
     "if (theirs.questions != mine.questions) how = status::ranks_differ;", ""),
    ("rejected children are drawn again", "slice_row.hpp",
     "if (place(child.token) < out.size()) out[place(child.token)] = 0.0;", "static_cast<void>(child);"),
    ("parts keep what a table rounds", "slice_row.hpp",
     "functions_beside(top).sum(here.data(), here.size(), top, scale(), nullptr) * unit_beside(top);",
     "functions_beside(top).sum(here.data(), here.size(), top, scale(), nullptr);"),
    ("rows race before they are cut", "sharded_source.hpp", "if (!all_can_race()) return no_token;",
     "if (!p.can_race()) return no_token;"),
    ("siblings are drawn with replacement", "sharded_draws.hpp",
     "undrawn_ = drafted == nullptr ? 0.0 : drafted->number;", "undrawn_ = 1.0;"),
    ("equal logits are kept in the order of lists", "cuts.hpp",
     "return a.top > b.top || (a.top == b.top && a.token < b.token);",
     "return a.top > b.top || (a.top == b.top && a.token > b.token);"),
    ("every rank keeps all equal logits", "cuts.hpp", "left -= row.own_equals;", ""),
    ("a list is taken for the whole row", "cuts.hpp", "if (i + 1 == most) end = std::max(end, top);", ""),
    ("a draft's noise is keyed by its place in the slice", "drafted_parts.hpp",
     "arrival_of(here.token, here.logit, draw.scale, draw.key)",
     "arrival_of(here.token % 8, here.logit, draw.scale, draw.key)"),
    ("a rank normalises q by its own slice", "sharded_drafter.hpp",
     "return part(i).sum;",
     "return slices_.parts()[i].rank == ranks_->rank() ? part(i).sum : detail::part_sum<value_type>{};"),
    ("a part's token is drawn by the number that draws the part", "drafted_parts.hpp",
     "rng.categorical(key_in_part(key, index),", "rng.categorical(key,"),
    ("a probability is that of the part", "sharded_drafter.hpp",
     "detail::weight_beside(drawn.logit, row.top, draw.scale) / row.sum", "drawn.sum.sum / row.sum"),
    ("equal drafts go to the last part", "drafted_parts.hpp", "if (here.logit > best.logit) best = here;",
     "if (here.logit >= best.logit) best = here;"),
    ("drafts of other ranks are not compared", "sharded_drafter.hpp",
     "if (theirs.checksum != mine.checksum) return status::ranks_differ;", ""),
    ("a backbone's shape is its own rank's affair", "sharded_drafter.hpp",
     "if (theirs.failed != 0) how = status::invalid_draft;", ""),
    ("the head's state is not begun", "sharded_drafter.hpp", "parts_.begin(memory.parts, r, memory.parts.states[r]);",
     ""),
]


def run(command, timeout):
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return None


def noticed(mistake, options, folder):
    name, header, right, wrong = mistake
    include = folder / name.replace(" ", "_") / "include"
    shutil.copytree(ROOT / "include", include)
    path = include / "sureleap/ranks" / header
    text = path.read_text()
    # The formatter breaks lines.
    pattern = r"\s+".join(re.escape(word) for word in right.split())
    text, count = re.subn(pattern, lambda _: wrong, text)
    if count != 1:
        return f"{name}: ranks/{header} has {count} places with {right!r}, expected one"
    path.write_text(text)
    for test in TESTS_OF.get(header, TESTS):
        program = include.parent / "test"
        built = run([options.compiler, "-std=c++20", "-O1", "-w", "-I", include, "-I", ROOT / "tests",
                     "-DSURELEAP_TEST_QUICK=1", ROOT / "tests" / test, options.main, "-o", program, "-pthread"], 600)
        if built is None or built.returncode != 0:
            return f"{name}: does not compile\n{built.stderr[:2000] if built else ''}"
        result = run([program], options.timeout)
        if result is None or result.returncode != 0:
            shutil.rmtree(include.parent)
            print(f"noticed by {test}: {name}", flush=True)
            return None
    return f"SURVIVED: {name}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="WORD")
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--main", default="/usr/lib/libCatch2WithMain.a", help="Catch2's main, or what stands for it")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds a test may run")
    options = parser.parse_args()
    chosen = [m for m in MISTAKES if options.only in m[0]]
    with tempfile.TemporaryDirectory() as folder:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            left = [r for r in pool.map(lambda m: noticed(m, options, pathlib.Path(folder)), chosen) if r]
    for text in left:
        print(text)
    print(f"{len(chosen) - len(left)} of {len(chosen)} mistakes were noticed")
    return 1 if left or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
