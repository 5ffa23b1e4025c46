#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes a corpus of short documents in four domains from files of text: math, code, chat, prose.

    corpus.py --out corpus --gsm8k gsm8k_train.jsonl --taskmaster taskmaster4_dialogs.jsonl \\
        --shakespeare tiny_shakespeare.txt --python-source /usr/lib/python3.11 --documentation docs/

writes train.jsonl and test.jsonl. A line is {"domain": ..., "prompt": ..., "completion": ...}; the document is prompt +
completion, and the prompt is how it naturally begins: the question of an exercise, the head and docstring of a
function, the first turn of a dialogue, the first paragraph.

Train and test never share a source unit: a question, a dialogue, a whole file, a long stretch of a play. The hash of a
unit's text decides where all of its documents go. To draw single documents instead would put one half of a file into
train and the other into test, and a model would be asked what it has read. For the same reason a unit's name does not
count: the same text under two names is on one side.

Documents are 500 to 1,400 characters where their source allows, a context of some hundred tokens, and end at natural
borders. Exercises and dialogues are shorter and stay whole. They are written in the order of their hashes, so that any
beginning of a file is a fair sample of it.

The text is left as it is, but for this:

  - GSM8K's calculator annotations (<<48/2=24>>) are removed; the last line, "#### 72", stays;
  - Taskmaster's "Assistant:" is written "Agent:", the template's word;
  - of Python files only functions and classes are taken, so licence headers, tables and data are out; methods without
    their class are moved to the left margin;
  - HTML is reduced to its paragraphs, without listings, tables, navigation and lists of names;
  - what is not UTF-8, or mostly not ASCII, is dropped, and a document that comes again is written once.
"""

import argparse
import ast
import fnmatch
import hashlib
import html.parser
import json
import re
import textwrap
import warnings
from pathlib import Path
from typing import Iterable, Iterator, NamedTuple

SHORTEST = 500  # a document ends at the first border behind this many characters,
LONGEST = 1400  # and before it would have more than this
FRAGMENT = 150  # what is left between them and shorter than this is no document


class Document(NamedTuple):
    domain: str
    prompt: str
    completion: str

    @property
    def text(self) -> str:
        return self.prompt + self.completion


class Unit(NamedTuple):
    """What is in train as a whole or in test as a whole."""

    text: str  # decides which; a unit's documents may leave parts of it out
    documents: list[Document]


# ---- cutting texts into documents ------------------------------------------------------------------------------------


def packed(pieces: Iterable[str]) -> Iterator[str]:
    """Joins neighbours until they are long enough. A piece is a paragraph, a speech, a function, with its line ends.

    What is too long is cut and makes documents of its own: the end of a long function is no beginning for the next.
    """
    document = ""

    def finished() -> Iterator[str]:
        nonlocal document
        if len(document.strip()) >= FRAGMENT:
            yield document
        document = ""

    for piece in pieces:
        if len(document) + len(piece) > LONGEST:
            yield from finished()
        parts = cut(piece) if len(piece) > LONGEST else [piece]
        if len(parts) > 1:
            yield from packed(parts)
            continue
        document += piece
        if len(document) >= SHORTEST:
            yield from finished()
    yield from finished()


def cut(piece: str) -> list[str]:
    """At blank lines; if there are none at lines; if there are none at sentences."""
    for border in (r"(?<=\n\n)", r"(?<=\n)", r"(?<=[.;:!?] )"):
        parts = [part for part in re.split(border, piece) if part]
        if len(parts) > 1:
            return parts
    return [piece]


def divided(text: str, border: int) -> tuple[str, str]:
    """Prompt and completion: cut at the border, or near a third of the text if that leaves too little on a side."""
    if not 0.05 * len(text) <= border <= 0.6 * len(text):
        third = len(text) // 3
        line = text.rfind("\n", third // 2, third) + 1 or text.find("\n", third, 2 * third) + 1
        border = line or max(text.rfind(" ", 0, third), 1)
    return text[:border], text[border:]


# ---- math and chat: a record is a document --------------------------------------------------------------------------


def json_lines(path: Path) -> Iterator[dict]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def gsm8k(path: Path) -> Iterator[Unit]:
    for record in json_lines(path):
        answer = re.sub(r"<<[^>]*>>", "", record["answer"])
        document = Document("math", f"Question: {record['question']}\nAnswer:", f" {answer}\n")
        yield Unit(record["question"], [document])


def taskmaster(path: Path) -> Iterator[Unit]:
    for record in json_lines(path):
        turns = [re.sub(r"^Assistant:", "Agent:", turn) for turn in record["dialog"]]
        text = "\n".join(turns) + "\n"
        reply = text.find("\nAgent:")
        if reply < 0:
            continue
        border = reply + len("\nAgent:")
        yield Unit(text, [Document("chat", text[:border], text[border:])])


# ---- prose ----------------------------------------------------------------------------------------------------------


def is_prose(text: str) -> bool:
    """Sentences make up most of it: no list of names, no heap of headings."""
    sentences = (part for part in text.split("\n\n") if part.rstrip("\n\"')]\u201d").endswith(tuple(".:;!?,-")))
    return sum(map(len, sentences)) > 0.6 * len(text)


def prose_documents(paragraphs: Iterable[str]) -> list[Document]:
    documents = []
    for text in filter(is_prose, packed(paragraphs)):
        # A heading or a call such as "All:\nSpeak, speak." says too little to go on from.
        border = text.find("\n\n", 80) + 2
        documents.append(Document("prose", *divided(text.rstrip("\n") + "\n", border)))
    return documents


def shakespeare(path: Path, speeches_per_unit: int = 60) -> Iterator[Unit]:
    """Plays without headings: speeches with a blank line between them. A unit is about as long as a scene."""
    speeches = [speech + "\n\n" for speech in path.read_text(encoding="utf-8").split("\n\n")]
    for begin in range(0, len(speeches), speeches_per_unit):
        scene = speeches[begin : begin + speeches_per_unit]
        yield Unit("".join(scene), prose_documents(scene))


class Paragraphs(html.parser.HTMLParser):
    """The paragraphs of a page, with white space as a browser shows it."""

    BREAKS = {"p", "div", "li", "dd", "dt", "dl", "ul", "ol", "br", "h1", "h2", "h3", "h4", "h5", "h6", "blockquote"}
    SILENT = {"head", "script", "style", "pre", "table", "svg", "nav", "button", "form"}
    # Sphinx and SQLite: navigation, paragraph signs, listings, tables of contents; and signatures, which are code.
    SILENT_CLASSES = {"related", "sphinxsidebar", "footer", "headerlink", "highlight", "contents", "sig", "nosearch"}
    SILENT_CLASSES |= {"toctree-wrapper", "menu", "searchmenu", "menudropdown", "fancy_toc", "codeblock"}
    EMPTY = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self._text = ""
        self._silent: list[str] = []  # the tags open inside of the outermost silent one, itself included

    def handle_starttag(self, tag, attributes):
        if tag in self.BREAKS | self.SILENT:
            self._end_paragraph()
        classes = set((dict(attributes).get("class") or "").split())
        if tag not in self.EMPTY and (self._silent or tag in self.SILENT or classes & self.SILENT_CLASSES):
            self._silent.append(tag)

    def handle_endtag(self, tag):
        if tag in self.BREAKS | self.SILENT:
            self._end_paragraph()
        if tag in self._silent:  # what was left open inside ends with it
            while self._silent.pop() != tag:
                pass

    def handle_data(self, data):
        if not self._silent:
            self._text += data

    def close(self):
        super().close()
        self._end_paragraph()

    def _end_paragraph(self):
        text = " ".join(self._text.split())
        self._text = ""
        if len(text) > 1 and not text.startswith("This page last modified on"):  # SQLite's, on every page
            self.found.append(text + "\n\n")


def documentation(path: Path) -> Iterator[Unit]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".html":
        page = Paragraphs()
        page.feed(text)
        page.close()
        yield Unit("".join(page.found), prose_documents(page.found))
    else:
        yield Unit(text, prose_documents(part.strip("\n") + "\n\n" for part in re.split(r"\n\s*\n", text)))


# ---- code -----------------------------------------------------------------------------------------------------------


def first_line(node: ast.stmt, lines: list[str]) -> int:
    """Where a definition begins, from 0: with its decorators and the comment right above it."""
    begin = min([node.lineno] + [d.lineno for d in getattr(node, "decorator_list", [])]) - 1
    while begin > 0 and lines[begin - 1].lstrip().startswith("#"):
        begin -= 1
    return begin


def definitions(module: ast.Module, lines: list[str]) -> Iterator[str]:
    """The functions and classes of a file; a long class in parts that begin with its methods."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    for node in module.body:
        if not isinstance(node, (*functions, ast.ClassDef)):
            continue
        begin, end = first_line(node, lines), node.end_lineno or node.lineno
        borders = [begin, end]
        if isinstance(node, ast.ClassDef) and sum(map(len, lines[begin:end])) > LONGEST:
            methods = (first_line(inner, lines) for inner in node.body if isinstance(inner, functions))
            borders[1:1] = [line for line in methods if line > begin]
        for begin, end in zip(borders, borders[1:]):
            yield "".join(lines[begin:end]).rstrip() + "\n\n"


def end_of_docstring(text: str) -> int:
    """How many characters a document has up to the end of its first docstring; 0 if it does not begin with one."""
    try:
        first = ast.parse(text).body[0]
        if not ast.get_docstring(first):
            return 0
        return sum(map(len, text.splitlines(keepends=True)[: first.body[0].end_lineno]))
    except (SyntaxError, TypeError, IndexError):
        return 0  # part of a long function, or no definition


def python_source(path: Path) -> Iterator[Unit]:
    text = path.read_text(encoding="utf-8")
    try:
        module = ast.parse(text)
    except SyntaxError:
        return
    documents = []
    for document in packed(definitions(module, text.splitlines(keepends=True))):
        moved = textwrap.dedent(document).strip("\n") + "\n"
        if len(moved) >= FRAGMENT:
            documents.append(Document("code", *divided(moved, end_of_docstring(moved))))
    yield Unit(text, documents)


# ---- the corpus -----------------------------------------------------------------------------------------------------


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
