# SPDX-License-Identifier: MIT
"""Readers of the sources of a corpus: each takes a file and yields its units.

The text is left as it is, but for this:

  - GSM8K's calculator annotations (<<48/2=24>>) are removed; the last line, "#### 72", stays;
  - Taskmaster's "Assistant:" is written "Agent:", the template's word;
  - of Python files only functions and classes are taken, so licence headers, tables and data are out; methods without
    their class are moved to the left margin;
  - HTML is reduced to its paragraphs, without listings, tables, navigation and lists of names.
"""

import ast
import html.parser
import json
import re
import textwrap
from pathlib import Path
from typing import Iterable, Iterator

from corpus_documents import FRAGMENT, LONGEST, Document, Unit, divided, packed

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
