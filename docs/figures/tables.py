#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the tables of docs/performance.md from docs/figures/bench.json, a run of the benchmarks that is kept.

    tables.py                                writes them
    tables.py build/bench/results/all.json   keeps that run in the place of the last one before
    tables.py --check                        fails if a table says something else; for the tests

A table stands between `<!-- measured: NAME -->` and the next empty line. Of a run is kept what the tables show.
"""

import argparse
import json
import pathlib
import re
import sys

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "bench"))
import table  # noqa: E402  (found there)

RUN = CHECKOUT / "docs/figures/bench.json"
PAGE = CHECKOUT / "docs/performance.md"
RULES = table.load_rules(CHECKOUT / "bench/bars.json")
BLOCK = re.compile(r"(<!-- measured: (\w+) -->\n).*?\n(?=\n)", re.DOTALL)

LARGE = 151936  # the vocabulary of most tables, which they do not repeat
FIGURES = {"us": "µs", "vs_read": "x read", "vs_scalar": "plain loops over it", "vs_eigen": "Eigen over it",
           "share": "share of the round", "vs_cpp": "x C++", "vs_token": "x a chain's token rejection",
           "vs_block": "x a chain's block verification", "path_vs_match": "x a chain's match, a row of the path",
           "path_vs_coupled": "x a chain's coupling, a row of the path"}


def markdown(heading, rows):
    lines = [heading, ["---"] * len(heading), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def in_time(us):
    return table.in_time(us).replace(" us", " µs")


def percent(share):
    return f"{table.number(100 * share)} %"


class Run:
    def __init__(self, whole):
        self.about = whole["machine"]
        self.cases = whole["cases"]
        self.shown = set()  # names of the cases that the tables asked for

    def find(self, family, **args):
        for case in self.cases:
            if case["family"] == family and all(case["args"].get(key) == value for key, value in args.items()):
                self.shown.add(case["name"])
                return case
        sys.exit(f"tables.py: the run has no case of {family} with {args}")


def sizes(cases):
    """What the cases' arguments are: ", R = 256, noise = 45; 200". One that is of most tables is not said."""
    said = ""
    for key in cases[0]["args"]:
        values = list(dict.fromkeys(case["args"][key] for case in cases))
        if values != [LARGE] and key != "gamma":
            said += f", {key} = " + "; ".join(f"{v:,}" for v in values)
    return said


def asked(run):
    """A row for each rule of bars.json, with every case that it is about."""
    rows = []
    for rule in RULES:
        found = [(case, x) for case in run.cases if (x := table.value(rule, case, run.cases)) is not None]
        if not found:
            sys.exit(f"tables.py: the run has no case of {rule['of']} with {rule.get('where', {})}")
        scale, unit = (100, " %") if rule["figure"] == "share" else (1, "")
        about = sizes([case for case, _ in found])
        verdicts = dict.fromkeys(table.judge(rule, x) for _, x in found)
        rows.append([f"`{rule['of']}`{about}: {FIGURES.get(table.called(rule), table.called(rule))}",
                     "; ".join(table.number(scale * x) for _, x in found) + unit,
                     *(f"{scale * rule[bound]:,g}{unit}" for bound in ("bar", "goal")),
                     "; ".join(f"**{v}**" if v == "short" else v for v in verdicts)])
    return markdown(["", "is", "bar", "goal", ""], rows)


def heads(run):
    rows = []
    for family in ("markov/fp32", "markov/bf16", "markov/int8", "gated/fp32", "rnn/fp32", "shortlist/512",
                   "shortlist_int8/512", "markov/batch32"):
        case = run.find(f"head/{family}", V=LARGE)
        users = [table.number(case["figures"][key]) for key in ("vs_scalar", "vs_eigen") if key in case["figures"]]
        rows.append([f"`head/{family}`", in_time(case["us"]),
                     table.number(case["figures"]["vs_read"]) if "vs_read" in case["figures"] else "", "; ".join(users)])
    return markdown(["", "a step", "x read", "plain loops; Eigen over it"], rows)


def rounds(run):
    rows = []
    for vocabulary, family, what in ((2048, "library_share", ""), (LARGE, "library_share", ""),
                                     (LARGE, "library_share_shortlist", ", shortlist")):
        for batch in (1, 32):
            case = run.find(f"round/{family}", V=vocabulary, batch=batch)
            parts = [in_time(case["figures"][f"{part}_us"]) for part in ("model", "head", "accept")]
            rows.append([f"V = {vocabulary:,}, batch {batch}{what}", *parts, percent(case["figures"]["share"])])
    return markdown(["", "model", "sequential head", "schedule, flatten, accept", "library's share"], rows)


def decoders(run):
    rows = []
    for vocabulary in (32000, 129280, LARGE):
        cases = [run.find("round/decoder", V=vocabulary, batch=batch, gamma=7) for batch in (1, 8, 32)]
        rows.append([f"V = {vocabulary:,}", *(in_time(case["figures"]["us_request"]) for case in cases),
                     "; ".join(table.number(case["figures"]["vs_scalar"]) for case in cases)])
    return markdown(["", "batch 1", "8, a request", "32, a request", "plain loops over it"], rows)


def machine(run):
    about = run.about
    cpu = re.split(r" [(]family|,", about["cpu"])[0]
    compiler = f"{about['compiler'].split()[0]} {about['compiler'].split()[-1]} {about['flags']}"
    return f"Measured on {about['cores']} cores of an {cpu}, {compiler}, {about['date'].split()[0]}, commit {about['commit']}."


TABLES = {"machine": machine, "asked": asked, "heads": heads, "rounds": rounds,
          "decoders": decoders}


def keep(results):
    run = Run(json.loads(results.read_text()))
    for render in TABLES.values():
        render(run)
    kept = [case for case in run.cases
            if case["name"] in run.shown or any(table.takes_part(rule, case) for rule in RULES)]
    lines = ",\n".join("  " + json.dumps(case) for case in kept)
    RUN.write_text(f'{{\n "machine": {json.dumps(run.about)},\n "cases": [\n{lines}\n ]\n}}\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="?", type=pathlib.Path, help="what bench/run.sh merged")
    parser.add_argument("--check", action="store_true")
    chosen = parser.parse_args()
    if chosen.results:
        keep(chosen.results)
    run = Run(json.loads(RUN.read_text()))
    page = PAGE.read_text()
    unknown = {name for _, name in BLOCK.findall(page)} ^ TABLES.keys()
    if unknown:
        sys.exit(f"tables.py: {PAGE.name} and this script do not have the same tables: {', '.join(sorted(unknown))}")
    written = BLOCK.sub(lambda m: m[1] + TABLES[m[2]](run) + "\n", page)
    if chosen.check and written != page:
        sys.exit(f"tables.py: a table of docs/{PAGE.name} is not what docs/figures/{RUN.name} says: run docs/figures/tables.py")
    if not chosen.check:
        PAGE.write_text(written)


if __name__ == "__main__":
    main()
