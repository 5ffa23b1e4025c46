#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes docs/figures/replay.json of a page that `generate --trace` wrote, and of the seconds of a pass by its rows.

    replay_from_trace.py TRACE.html ROWS:SECONDS [ROWS:SECONDS ...]
"""
import html.parser
import json
import pathlib
import re
import sys

OUT = pathlib.Path(__file__).resolve().parent.parent / "figures" / "replay.json"


class Trace(html.parser.HTMLParser):
    """Rows of the table; in each, the boxes of tokens with their remarks."""

    def __init__(self):
        super().__init__()
        self.rounds = []
        self.facts = {}
        self.box = None  # (kind, remark, text) of the token that is read
        self.inside = []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        if tag == "tr" and attributes.get("id", "").startswith("r"):
            self.rounds.append([])
        if tag == "span" and attributes.get("class", "").startswith("t ") and self.rounds:
            self.box = [attributes["class"][2:], attributes.get("title", ""), ""]
        if tag in ("dt", "dd", "i"):
            self.inside.append(tag)
            if tag == "dt":
                self.name = ""

    def handle_endtag(self, tag):
        if tag == "i":
            self.inside.pop()
        if tag == "span" and self.box:
            self.rounds[-1].append(tuple(self.box))
            self.box = None

    def handle_data(self, data):
        if self.box and not (self.inside and self.inside[-1] == "i"):
            self.box[2] += data
        elif self.inside and self.inside[-1] == "dt":
            self.name = data.strip()
        elif self.inside and self.inside[-1] == "dd":
            self.facts[self.name] = data.strip()
            self.inside.clear()


def round_of(boxes):
    drafts = [box for box in boxes if box[0] != "own"]
    own = [box[2] for box in boxes if box[0] == "own"]
    confidences = [float(re.search(r"confidence ([\d.]+)", remark)[1]) for _, remark, _ in drafts]
    if any(kind == "unverified" for kind, _, _ in drafts):
        sys.exit("replay_from_trace.py: a draft was not verified, expected a run that verifies all (--schedule fixed)")
    return {"drafted": [text for _, _, text in drafts], "confidence": confidences,
            "accepted": sum(kind == "accepted" for kind, _, _ in drafts), "own": own[0] if own else ""}


def main():
    trace = Trace()
    trace.feed(pathlib.Path(sys.argv[1]).read_text())
    seconds = {int(rows): float(s) for rows, s in (pair.split(":") for pair in sys.argv[2:])}
    rounds = [round_of(boxes) for boxes in trace.rounds]
    OUT.write_text(json.dumps({"about": trace.facts, "seconds": seconds, "rounds": rounds}, ensure_ascii=False, indent=None,
                              separators=(",", ":")) + "\n")
    print(f"{OUT.name}: {len(rounds)} rounds, {sum(r['accepted'] for r in rounds)} accepted of {sum(len(r['drafted']) for r in rounds)}")


main()
