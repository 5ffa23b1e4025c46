#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a corpus of short documents in four domains from files of text: math, code, chat, prose.

    corpus.py --out corpus --gsm8k gsm8k_train.jsonl --taskmaster taskmaster4_dialogs.jsonl \\
        --shakespeare tiny_shakespeare.txt --python-source /usr/lib/python3.11 --documentation docs/

writes train.jsonl and test.jsonl. A line is {"domain": ..., "prompt": ..., "completion": ...}; the document is prompt +
completion, and the prompt is how it naturally begins: the question of an exercise, the head and docstring of a
function, the first turn of a dialogue, the first paragraph. corpus_sources.py has what is taken from every source,
corpus_documents.py how long documents are.

Train and test never share a source unit: a question, a dialogue, a whole file, a long stretch of a play. The hash of a
unit's text decides where all of its documents go. To draw single documents instead would put one half of a file into
train and the other into test, and a model would be asked what it has read. For the same reason a unit's name does not
count: the same text under two names is on one side.

Documents are written in the order of their hashes, so that any beginning of a file is a fair sample of it. What is not
UTF-8, or mostly not ASCII, is dropped, and a document that comes again is written once.
"""

import argparse
import fnmatch
import hashlib
import json
import warnings
from pathlib import Path
from typing import Iterable, Iterator

from corpus_documents import Document, Unit
from corpus_sources import documentation, gsm8k, python_source, shakespeare, taskmaster


def files(roots: Iterable[Path], suffixes: set[str], left_out: list[str]) -> Iterator[Path]:
    """Files below the roots, in the order of their names, but for patterns such as */test/*."""
    for root in roots:
        if not root.exists():
            raise SystemExit(f"corpus.py: {root}: no such file or folder")
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            left = any(fnmatch.fnmatch(str(path), pattern) for pattern in left_out)
            if path.suffix in suffixes and path.is_file() and not path.is_symlink() and not left:
                yield path


def all_units(options: argparse.Namespace) -> Iterator[Unit]:
    for reader, paths in (
        (gsm8k, options.gsm8k),
        (taskmaster, options.taskmaster),
        (shakespeare, options.shakespeare),
        (python_source, files(options.python_source, {".py"}, options.leave_out)),
        (documentation, files(options.documentation, {".html", ".txt", ".rst"}, options.leave_out)),
    ):
        for path in paths:
            try:
                yield from reader(path)
            except UnicodeDecodeError:
                print(f"left out, not UTF-8: {path}")


def hash_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def mostly_ascii(text: str) -> bool:
    return sum(map(str.isascii, text)) >= 0.9 * len(text)


def split(units: Iterable[Unit], test_share: float) -> dict[str, list[Document]]:
    sides: dict[str, list[Document]] = {"train": [], "test": []}
    written: set[str] = set()
    for unit in units:
        side = "test" if hash_of(unit.text) < test_share * 2**64 else "train"
        for document in unit.documents:
            if document.text not in written and mostly_ascii(document.text):
                written.add(document.text)
                sides[side].append(document)
    for documents in sides.values():
        documents.sort(key=lambda document: hash_of(document.text))
    return sides


def write(path: Path, documents: list[Document]) -> None:
    with path.open("w", encoding="utf-8") as out:
        for document in documents:
            out.write(json.dumps(document._asdict(), ensure_ascii=False) + "\n")


def report(sides: dict[str, list[Document]]) -> None:
    print(f"{'':6}{'domain':>8}{'documents':>11}{'bytes':>11}{'mean':>7}{'longest':>9}{'prompt':>8}")
    for side, documents in sides.items():
        for domain in sorted({document.domain for document in documents}):
            here = [document for document in documents if document.domain == domain]
            sizes = [len(document.text.encode()) for document in here]
            prompts = sum(len(document.prompt.encode()) for document in here)
            print(f"{side:6}{domain:>8}{len(here):>11,}{sum(sizes):>11,}{sum(sizes) // len(here):>7,}"
                  f"{max(sizes):>9,}{prompts / sum(sizes):>8.0%}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Makes train.jsonl and test.jsonl from files of text.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--gsm8k", type=Path, nargs="+", default=[], help="JSON lines with question and answer")
    parser.add_argument("--taskmaster", type=Path, nargs="+", default=[], help="JSON lines with a list 'dialog'")
    parser.add_argument("--shakespeare", type=Path, nargs="+", default=[], help="speeches with blank lines between")
    parser.add_argument("--python-source", type=Path, nargs="+", default=[], help="files or folders of .py")
    parser.add_argument("--documentation", type=Path, nargs="+", default=[], help="files or folders: .html, .txt, .rst")
    parser.add_argument("--leave-out", nargs="+", default=[], metavar="PATTERN", help="paths not to read: '*/test/*'")
    parser.add_argument("--test-share", type=float, default=0.08, help="of the source units (default %(default)s)")
    return parser.parse_args()


def main() -> None:
    options = parse_arguments()
    warnings.simplefilter("ignore", SyntaxWarning)  # about escapes in other people's files
    sides = split(all_units(options), options.test_share)
    options.out.mkdir(parents=True, exist_ok=True)
    for side, documents in sides.items():
        write(options.out / f"{side}.jsonl", documents)
    report(sides)


if __name__ == "__main__":
    main()
