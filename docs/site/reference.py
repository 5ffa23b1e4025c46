# SPDX-License-Identifier: MIT
"""The reference: every public name with its declaration and its comment, as the headers have them. A page a folder.

Public are the names of docs/parts.md, the concepts of concepts.hpp, and testing/enumerator.hpp. libclang finds the declarations;
their text is taken from the headers as it stands there. Beside a name stands a program of docs/examples that uses it.
"""
import pathlib
import re
import subprocess

import clang.cindex as clang
from clang.cindex import AccessSpecifier, CursorKind

DOORS = ("sureleap.hpp", "serving.hpp", "training.hpp", "testing/enumerator.hpp")
CLASSES = {CursorKind.CLASS_DECL, CursorKind.STRUCT_DECL, CursorKind.CLASS_TEMPLATE}
FUNCTIONS = {CursorKind.FUNCTION_DECL, CursorKind.FUNCTION_TEMPLATE, CursorKind.CXX_METHOD, CursorKind.CONSTRUCTOR,
             CursorKind.CONVERSION_FUNCTION}
MEMBERS = FUNCTIONS | {CursorKind.FIELD_DECL, CursorKind.VAR_DECL, CursorKind.TYPE_ALIAS_DECL, CursorKind.ENUM_DECL}


def public_names(checkout):
    """What docs/parts.md names, by the rule of tests/public_names.cmake."""
    return set(re.findall(r"`([a-z][a-z0-9_]*)`", (checkout / "docs" / "parts.md").read_text()))


def system_includes():
    """Where the compiler of this machine has its standard library."""
    said = subprocess.run(["c++", "-E", "-x", "c++", "-", "-v"], input="", capture_output=True, text=True, check=True).stderr
    folders = re.search(r"<\.\.\.> search starts here:\n(.*?)End of search", said, re.DOTALL)[1]
    return [word for folder in folders.split("\n") if folder.strip() for word in ("-isystem", folder.strip())]


def parse(checkout):
    unit = "".join(f"#include <sureleap/{door}>\n" for door in DOORS)
    # Kernels are declared alone: libclang brings no intrinsics of its own.
    arguments = ["-std=c++20", "-DSURELEAP_COMPILED=1", "-I", str(checkout / "include"), *system_includes()]
    return clang.Index.create().parse("reference.cpp", arguments, [("reference.cpp", unit)],
                                      clang.TranslationUnit.PARSE_SKIP_FUNCTION_BODIES)


def declarations(cursor):
    """Everything at namespace scope of sureleap, but for `detail` and other named namespaces inside of it."""
    for child in cursor.get_children():
        if child.kind == CursorKind.NAMESPACE:
            if child.spelling == "sureleap" or re.fullmatch(r"v\d+_.*", child.spelling):
                yield from declarations(child)
        elif child.location.file and "/sureleap/" in child.location.file.name:
            yield child


def matching(text, at):
    """Behind the brace that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return i + 1
    return len(text)


def head(text):
    """A declaration without its body: up to the first brace, or the colon of a constructor, that no requires-expression opens."""
    depth = i = 0
    while i < len(text):
        c = text[i]
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(c, 0)
        if depth == 0 and c == "{":
            if not re.search(r"requires\s*(\([^{}]*\))?\s*$", text[:i]):
                break
            i = matching(text, i)
            continue
        if depth == 0 and re.match(r"\s:\s", text[i:]) and ")" in text[:i]:
            break
        if depth == 0 and c == ";":
            break
        i += 1
    return text[:i].strip()


def cleaned(comment):
    """A comment's Markdown, without slashes."""
    lines = [re.sub(r"^\s*//[/!]?<? ?", "", line) for line in (comment or "").splitlines()]
    return "\n".join(lines).strip()


def first_comment(header):
    """The manual at the head of a header."""
    lines = []
    for line in header.read_text().splitlines():
        if not line.startswith("//"):
            break
        lines.append(re.sub(r"^// ?", "", line))
    return "\n".join(lines).removeprefix("SPDX-License-Identifier: MIT").strip()


def dedent(text):
    first, *rest = text.split("\n")
    indent = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    return "\n".join([first, *(line[indent:] for line in rest)])


class Source:
    """Headers by name: the text between two places."""

    def __init__(self):
        self.texts = {}

    def text(self, extent):
        name = extent.start.file.name
        if name not in self.texts:
            self.texts[name] = pathlib.Path(name).read_bytes()
        return self.texts[name][extent.start.offset:extent.end.offset].decode()

    def whole(self, cursor):
        """With the template head, which libclang leaves out of a concept's extent, and the end of the statement."""
        return dedent(self.text(cursor.extent))


def members(cursor, source):
    """(declaration, comment) of the public members in their order, those of a base in `detail` first."""
    for child in cursor.get_children():
        if child.kind == CursorKind.CXX_BASE_SPECIFIER:
            for base in child.get_children():
                shared = base.referenced
                if base.kind == CursorKind.TEMPLATE_REF and shared.semantic_parent.spelling == "detail":
                    yield from members(shared, source)
        name = child.spelling
        if child.access_specifier != AccessSpecifier.PUBLIC or name.endswith("_"):
            continue
        if child.kind in MEMBERS or child.kind == CursorKind.FUNCTION_TEMPLATE:
            text = source.whole(child)
            yield (head(text) if child.kind in FUNCTIONS else text), cleaned(child.raw_comment)


def declaration(cursor, source):
    """The text that a reader calls by: a function's signature, a class with its public members."""
    text = source.whole(cursor)
    if cursor.kind in FUNCTIONS:
        return head(text) + ";"
    if cursor.kind not in CLASSES:
        return text + ";"
    lines = []
    for member, comment in members(cursor, source):
        lines += [f"    // {line}".rstrip() for line in comment.splitlines()]
        first, *rest = (member + ";").split("\n")
        lines += [f"    {first}", *(f"        {line}" for line in rest)]
    return head(text) + (" {\n" + "\n".join(lines) + "\n};" if lines else ";")


def entries(checkout):
    """{folder: {header: [(name, [declaration], comment)]}} of the public names, and those of them without a comment."""
    source = Source()
    root = checkout / "include" / "sureleap"
    names = public_names(checkout)
    found = {}
    for cursor in declarations(parse(checkout).cursor):
        header = pathlib.Path(cursor.location.file.name).resolve()
        name = cursor.spelling
        concept = cursor.kind == CursorKind.CONCEPT_DECL and header.name == "concepts.hpp"
        enumerator = header.name == "enumerator.hpp" and name == "enumerator"
        if not (name in names or concept or enumerator):
            continue
        if header.suffix == ".inl" or (cursor.kind in CLASSES and not cursor.is_definition()):
            continue  # instantiations and forward declarations
        place = found.setdefault(header.relative_to(root), {}).setdefault(name, ([], []))
        place[0].append(declaration(cursor, source))
        if comment := cleaned(cursor.raw_comment):
            place[1].append(comment)
    pages, silent = {}, []
    for header, by_name in sorted(found.items()):
        manual = first_comment(root / header)
        for name, (texts, comments) in by_name.items():
            # A header of one name is that name's manual.
            if not comments and not (len(by_name) == 1 and manual):
                silent.append(f"{header}: {name}")
            folder = header.parts[0] if len(header.parts) > 1 else header.stem
            pages.setdefault(folder, {}).setdefault(header, []).append((name, texts, "\n\n".join(dict.fromkeys(comments))))
    missing = names - {name for by_name in found.values() for name in by_name}
    return pages, silent, sorted(missing)


class Example:
    """A program of docs/examples, and what it prints (docs/examples/compare.cmake holds it to that)."""

    def __init__(self, path):
        self.name = path.name
        text = path.read_text().removeprefix("// SPDX-License-Identifier: MIT\n//\n")
        program, _, printed = text.partition("\n// Prints:\n")
        lines = program.split("\n")
        comment = next(i for i, line in enumerate(lines) if not line.startswith("//"))
        self.shows = " ".join(re.sub("^// ?", "", line) for line in lines[:comment])
        self.code = "\n".join(lines[comment:]).strip()
        self.prints = re.sub("^// ?", "", printed, flags=re.MULTILINE).strip("\n")
        # Names that stand for themselves: no members, and nothing in a comment, in a string or of an #include.
        self.used = re.sub(r'//[^\n]*|"(\\.|[^"\\])*"|#include[^\n]*', "", self.code).replace("->", ".")

    def uses(self, name, texts):
        """A concept is used where it is asked for: a variable may have its name."""
        concept = any(f"concept {name}" in text for text in texts)
        where = rf"(\b{name}<|<{name} )" if concept else rf"(?<![.\w]){name}\b(?!\.)"
        return re.search(where, self.used) is not None

    def block(self):
        """Collapsed, as Markdown."""
        text = f"{self.shows}\n\n```cpp\n{self.code}\n```\n\nIt prints\n\n```text\n{self.prints}\n```"
        return f'??? example "Example: {self.name}"\n\n' + "\n".join(f"    {line}".rstrip() for line in text.split("\n"))


# A name of two functions, the other of which more programs call.
OTHER_EXAMPLES = {("verify/bounded.hpp", "draw"): "sampling.cpp"}


def examples_of(headers, examples):
    """{(header, name): Example}: the program that uses most names of the header, of several the one that uses most of the page,
    and of these the shortest. Without names that none uses."""
    used = {e: [name for names in headers.values() for name, texts, _ in names if e.uses(name, texts)] for e in examples}
    chosen = {}
    for header, names in headers.items():
        worth = {e: (-sum(name in used[e] for name, _, _ in names), -len(used[e]), len(e.code)) for e in examples}
        for name, _, _ in names:
            wanted = OTHER_EXAMPLES.get((header.as_posix(), name))
            if users := [e for e in examples if name in used[e] and wanted in (None, e.name)]:
                chosen[header, name] = min(users, key=worth.get)
    return chosen


def without_example(pages, examples):
    return [f"{header}: {name}" for headers in pages.values() for header, entries in headers.items()
            for name, texts, _ in entries if not any(e.uses(name, texts) for e in examples)]


def render(folder, headers, root, used_in, examples):
    lines = [f"# {folder}", ""]
    chosen = examples_of(headers, examples)
    for header, names in headers.items():
        lines += [f"## {header}", "", f"`#include <sureleap/{header}>`", "", first_comment(root / header), ""]
        shown = {}  # once a header
        for name, texts, comment in names:
            lines += [f"### {name}", "", "```cpp", "\n\n".join(texts), "```", "", comment, ""]
            example = chosen.get((header, name))
            if example in shown:
                lines += [f"Example: [{example.name}](#{shown[example]}), above.", ""]
            elif example:
                shown[example] = name
                lines += [example.block(), ""]
            if programs := used_in(name):
                lines += ["Used in " + ", ".join(f"[{p}](../source/{p}.md)" for p in programs) + ".", ""]
    return "\n".join(lines)
