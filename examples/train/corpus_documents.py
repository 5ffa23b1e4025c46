# SPDX-License-Identifier: MIT
"""What a corpus consists of, and how texts are cut into it.

Documents are 500 to 1,400 characters where their source allows, a context of some hundred tokens, and end at natural
borders. Exercises and dialogues are shorter and stay whole.
"""

import re
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
