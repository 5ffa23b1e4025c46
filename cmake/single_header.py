#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the library as one file, for a page that compiles in a browser, a bug report, or a project that copies one header.

    cmake/single_header.py [OUT]        single_include/sureleap.hpp, if OUT is not given

The file holds what sureleap.hpp, serving.hpp and training.hpp bring, and needs the standard library alone. It stands in the
place of include/: one unit must not include both.
"""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = ROOT / "include"
DOORS = ("sureleap.hpp", "serving.hpp", "training.hpp")

OWN = re.compile(r"#\s*include\s*<(sureleap/[^>]+)>")
OTHER = re.compile(r"#\s*include\s*<")


class Writer:
    def __init__(self):
        self.lines = []
        self.everywhere = set()  # headers that stand outside of every #if by now: the standard library's too

    def header(self, name, conditional):
        """Appends a header with all that it includes, unless it has been appended where no #if can leave it out."""
        if name in self.everywhere:
            return
        lines = (INCLUDE / name).read_text().splitlines()
        once = "#pragma once" in lines
        if once and not conditional:
            self.everywhere.add(name)
        # A header that stands behind an #if may stand in a second place, so each has a guard of its own.
        guard = "SURELEAP_SINGLE_" + re.sub(r"\W", "_", name.removeprefix("sureleap/")).upper()
        self.lines.append(f"// ---- {name}")
        if once:
            self.lines += [f"#ifndef {guard}", f"#define {guard}"]
        depth = 0
        for line in lines:
            if line in ("#pragma once", "// SPDX-License-Identifier: MIT"):
                continue
            if re.match(r"#\s*if", line):
                depth += 1
            elif re.match(r"#\s*endif", line):
                depth -= 1
            if own := OWN.match(line):
                self.header(own[1], conditional or depth > 0)
            elif OTHER.match(line):
                if line not in self.everywhere:
                    self.lines.append(line)
                if not conditional and depth == 0:
                    self.everywhere.add(line)
            else:
                self.lines.append(line)
        if once:
            self.lines.append("#endif")


def version():
    text = (INCLUDE / "sureleap/core/config.hpp").read_text()
    return ".".join(re.search(rf"#define SURELEAP_VERSION_{part} (\d+)", text)[1] for part in ("MAJOR", "MINOR", "PATCH"))


def single_header():
    writer = Writer()
    for door in DOORS:
        writer.header(f"sureleap/{door}", conditional=False)
    licence = "".join(f"// {line}".rstrip() + "\n" for line in (ROOT / "LICENSE").read_text().splitlines())
    text = "\n".join(writer.lines) + "\n"
    return (f"// SPDX-License-Identifier: MIT\n//\n// sureleap {version()} in one header, made by cmake/single_header.py: change the headers, not "
            f"this file.\n//\n{licence}#pragma once\n\n") + re.sub(r"\n{3,}", "\n\n", text)


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "single_include/sureleap.hpp"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(single_header())
