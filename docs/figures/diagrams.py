#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Draws round.svg and block.svg: what a round consists of, and what happens to one block of drafts.

    diagrams.py [FOLDER]        docs/figures, if no folder is given
"""
import pathlib
import sys
from html import escape

YOURS, OURS, LINE, DIM = "#fff3d6", "#dfe9ff", "#2b3a55", "#8a94a6"
GOOD, BAD = "#d9f2df", "#fbdcdc"


class Drawing:
    def __init__(self, width, height, title):
        self.size = width, height
        self.title = title
        self.parts = []

    def box(self, x, y, w, h, fill, *lines, size=13, dashed=False):
        dash = ' stroke-dasharray="4 3"' if dashed else ""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{w}" height="{h}" rx="5" fill="{fill}" stroke="{LINE}"{dash}/>')
        for i, line in enumerate(lines):
            self.text(x + w / 2, y + h / 2 + (i - (len(lines) - 1) / 2) * (size + 4) + size * 0.35, line,
                      size=size - (2 if i else 0), bold=i == 0 and len(lines) > 1, anchor="middle")

    def text(self, x, y, text, size=13, bold=False, anchor="start", fill=LINE):
        weight = ' font-weight="bold"' if bold else ""
        self.parts.append(f'<text x="{x:g}" y="{y:g}" font-size="{size}"{weight} text-anchor="{anchor}" fill="{fill}">{escape(text)}</text>')

    def arrow(self, x1, y1, x2, y2):
        self.parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" stroke="{LINE}" marker-end="url(#tip)"/>')

    def svg(self):
        w, h = self.size
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {w} {h}" width="{w}" height="{h}" role="img" '
                f'font-family="DejaVu Sans, Verdana, sans-serif"><title>{escape(self.title)}</title><defs><marker id="tip" '
                f'viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0L8 4L0 8z" '
                f'fill="{LINE}"/></marker></defs><rect width="{w}" height="{h}" fill="#ffffff"/>\n' + "\n".join(self.parts) + "\n</svg>\n")


def draw_round():
    d = Drawing(900, 300, "A round: the stages of the library, and the calls of your models between them")
    d.text(20, 26, "A round", size=16, bold=True)
    d.box(640, 12, 110, 22, OURS, "the library", size=12)
    d.box(765, 12, 115, 22, YOURS, "your models", size=12)
    top = [("begin_round", "settings, limits", OURS), ("forward", "hidden states, logits", YOURS), ("plan", "most drafts, if asked", OURS),
           ("draw", "tokens, q, confidence", OURS)]
    bottom = [("admit", "verify lengths", OURS), ("score", "target logits of all rows", YOURS), ("accept", "prefix + next token", OURS),
              ("end_round", "verdicts, commit", OURS)]
    for row, y in ((top, 60), (bottom, 180)):
        for i, (name, what, fill) in enumerate(row):
            d.box(20 + 222 * i, y, 192, 62, fill, name, what)
            if i:
                d.arrow(20 + 222 * i - 30, y + 31, 20 + 222 * i, y + 31)
    d.parts.append(f'<path d="M782 122V150H116V180" fill="none" stroke="{LINE}" marker-end="url(#tip)"/>')
    d.text(449, 144, "the drafts of all requests", size=11, anchor="middle", fill=DIM)
    d.text(20, 270, "The target is called once a round, with one batch: each request's anchor and the drafts that were admitted.", size=12)
    d.text(20, 288, "Every request gains a token or more.", size=12)
    return d.svg()


def draw_block():
    words = ["the", "cat", "sat", "on", "my"]
    confidence = [0.95, 0.90, 0.80, 0.60, 0.50]
    tests = [("0.52", "0.50", "1"), ("0.61", "0.66", "0.92"), ("0.30", "0.55", "0.55")]
    d = Drawing(900, 470, "One block: drafted, scheduled, verified")
    d.text(20, 26, "One block", size=16, bold=True)
    left, step, w = 250, 126, 112

    def label(y, head, *more):
        d.text(20, y, head, bold=True)
        for i, line in enumerate(more):
            d.text(20, y + 18 + 16 * i, line, size=11, fill=DIM)

    label(66, "1  drafted", "each token with the q it was", "drawn from")
    label(156, "2  confidence", "survival: the product so far")
    label(236, "3  scheduled", "the prefix that is worth its", "rows at this load")
    label(326, "4  verified", "one target pass; x stays if", "u < p(x) / q(x)")
    label(416, "5  emitted", "the first refused place gets a", "draw of max(p - q, 0)")
    survival = 1.0
    for k, (word, c) in enumerate(zip(words, confidence)):
        x = left + step * k
        survival *= c
        admitted = k < 3
        d.box(x, 48, w, 36, OURS, word)
        d.text(x + w / 2, 152, f"c = {c:.2f}", size=12, anchor="middle")
        d.text(x + w / 2, 170, f"a = {survival:.2f}", size=12, anchor="middle")
        d.box(x, 218, w, 36, OURS if admitted else "#f2f2f2", word if admitted else "not verified", size=13 if admitted else 11, dashed=not admitted)
        if admitted:
            p, q, ratio = tests[k]
            kept = k < 2
            d.box(x, 306, w, 44, GOOD if kept else BAD, "kept" if kept else "refused", f"p {p}  q {q}")
            d.box(x, 398, w, 36, GOOD, word if kept else "lay")
    d.text(left + step * 3, 328, "its rows were not paid for", size=11, fill=DIM)
    d.text(left + step * 3, 414, "3 tokens from one call of the target;", size=12)
    d.text(left + step * 3, 431, "their law is the target's own", size=12)
    d.parts.append(f'<line x1="{left + step * 3 - 7}" y1="200" x2="{left + step * 3 - 7}" y2="270" stroke="#b03030" stroke-width="2"/>')
    return d.svg()


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parent
    (folder / "round.svg").write_text(draw_round())
    (folder / "block.svg").write_text(draw_block())


main()
