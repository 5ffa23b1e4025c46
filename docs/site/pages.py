#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The pages of the site: docs/*.md and the README as they are, the reference, and the files that they link to.

    pages.py OUT        writes Markdown for mkdocs into OUT

Fails if a public name has no comment or no example, or a link leads nowhere.
"""
import pathlib
import posixpath
import re
import shutil
import sys

import reference

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
DOCS = CHECKOUT / "docs"
# Where a file at the root becomes a page.
AT_ROOT = {"README.md": "index.md", "SECURITY.md": "security.md", "CONTRIBUTING.md": "contributing.md"}
LANGUAGES = {".hpp": "cpp", ".cuh": "cpp", ".cu": "cpp", ".cpp": "cpp", ".h": "c", ".c": "c", ".inl": "cpp", ".py": "python",
             ".sh": "bash", ".cmake": "cmake", ".json": "json", ".yml": "yaml"}
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")


class Site:
    def __init__(self, out):
        self.out = out
        self.sources = set()  # files of the checkout that a page shows as text
        self.faults = []

    def write(self, page, text):
        path = self.out / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")

    def target(self, page, origin, link):
        """Where a link of `origin` (a file of the checkout) leads from `page`."""
        if re.match(r"[a-z]+:", link) or link.startswith("#"):
            return link
        path, _, anchor = link.partition("#")
        file = (origin.parent / path).resolve()
        anchor = f"#{anchor}" if anchor else ""
        if not file.exists() or CHECKOUT not in (file, *file.parents):
            self.faults.append(f"{origin.relative_to(CHECKOUT)} links to {link}, which is not in the tree")
            return link
        inside = file.relative_to(CHECKOUT).as_posix()
        if inside in AT_ROOT:
            to = AT_ROOT[inside]
        elif file.parent == DOCS and file.suffix == ".md":
            to = file.name
        elif file.parent == DOCS / "figures":
            to = f"figures/{file.name}"
        else:
            self.sources.add(file)
            to, anchor = f"source/{inside}.md", ""
        return posixpath.relpath(to, posixpath.dirname(page) or ".") + anchor

    def convert(self, page, origin):
        """A Markdown file as a page. Links inside of code stay as they are."""
        parts = re.split(r"(^```.*?^```$|`[^`\n]*`(?!\]))", origin.read_text(), flags=re.DOTALL | re.MULTILINE)
        for i, part in enumerate(parts):
            if i % 2 == 0:
                part = IMAGE.sub(lambda m: f"![{m[1]}]({self.target(page, origin, m[2])})", part)
                part = LINK.sub(lambda m: f"[{m[1]}]({self.target(page, origin, m[2])})", part)
                parts[i] = re.sub(r"\n*<!-- from [^>]* -->\n", "\n\n", part)
        self.write(page, "".join(parts))

    def source(self, file):
        """A file of the checkout as a page, so that the site works without the repository."""
        inside = file.relative_to(CHECKOUT).as_posix()
        page = f"source/{inside}.md"
        if file.is_dir():
            listed = "\n".join(f"- `{path.name}{'/' if path.is_dir() else ''}`" for path in sorted(file.iterdir()))
            self.write(page, f"---\nsearch:\n  exclude: true\n---\n\n# {inside}\n\n{listed}")
        elif file.suffix == ".md":
            self.convert(page, file)
        else:
            fence = "````"
            self.write(page, f"---\nsearch:\n  exclude: true\n---\n\n# {inside}\n\n{fence}{LANGUAGES.get(file.suffix, 'text')}\n"
                             f"{file.read_text()}{fence}")


def programs_of(examples):
    """name -> the small programs that use it."""
    texts = {path: path.read_text() for path in sorted(examples.glob("*.cpp"))}

    def used_in(name):
        return [path for path, text in texts.items() if re.search(rf"\b{name}\b", text)][:3]
    return used_in


def write_reference(site):
    pages, silent, missing = reference.entries(CHECKOUT)
    site.faults += [f"{name} is public and has no comment" for name in silent]
    site.faults += [f"docs/parts.md lists {name}, which no header declares" for name in missing]
    examples = [reference.Example(path) for path in sorted((DOCS / "examples").glob("*.cpp"))]
    site.faults += [f"{name} is public and no program of docs/examples uses it" for name in reference.without_example(pages, examples)]
    used_in = programs_of(CHECKOUT / "examples")

    def sources_of(name):
        files = used_in(name)
        site.sources.update(files)
        return [file.relative_to(CHECKOUT).as_posix() for file in files]

    names = {}
    for folder, headers in pages.items():
        site.write(f"reference/{folder}.md", reference.render(folder, headers, CHECKOUT / "include/sureleap", sources_of, examples))
        names.update({name: folder for entries in headers.values() for name, _, _ in entries})
    letters = {}
    for name in sorted(names):
        letters.setdefault(name[0], []).append(f"[`{name}`]({names[name]}.md#{name})")
    site.write("reference/index.md", "# Every public name\n\nBy letter; the pages beside this one go by folder.\n\n" +
               "\n\n".join(f"**{letter}** " + " · ".join(links) for letter, links in letters.items()))
    return names


def main():
    out = pathlib.Path(sys.argv[1])
    shutil.rmtree(out, ignore_errors=True)
    site = Site(out)
    for file in sorted(DOCS.glob("*.md")):
        site.convert(file.name, file)
    site.convert("index.md", CHECKOUT / "README.md")
    site.convert("security.md", CHECKOUT / "SECURITY.md")
    names = write_reference(site)
    # Where docs/parts.md names a part, the reference is a click away.
    parts = out / "parts.md"
    parts.write_text(re.sub(r"(?<!\[)`([a-z][a-z0-9_]*)`",
                            lambda m: f"[`{m[1]}`](reference/{names[m[1]]}.md#{m[1]})" if m[1] in names else m[0], parts.read_text()))
    shutil.copytree(DOCS / "figures", out / "figures", ignore=shutil.ignore_patterns("*.py"))
    # The recorded run as a script: a page that is opened as a file may not fetch.
    run = (DOCS / "figures" / "replay.json").read_text().strip()
    (out / "replay.json.js").write_text(f"window.sureleapReplay = {run};\n")
    for asset in ("site.css", "replay.js", "iframe-worker.js"):
        shutil.copy(DOCS / "site" / asset, out)
    shown = set()
    while site.sources - shown:  # a page may link to more
        file = min(site.sources - shown)
        shown.add(file)
        site.source(file)
    print(f"{len(list(out.rglob('*.md')))} pages, {len(names)} names, {len(site.sources)} files shown")
    for fault in site.faults:
        print(fault, file=sys.stderr)
    sys.exit(1 if site.faults else 0)


if __name__ == "__main__":
    main()
