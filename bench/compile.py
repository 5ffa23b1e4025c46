#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What a user's compiler pays for sureleap: processor time and size of the object, beside the standard headers alone.

    compile.py [--compiler g++] [--flags=-O2] [--repeats 3] [--against OTHER/include] [--check]

Cases take turns, and the least time of each counts. --against measures headers of another version in the same run. --check
ends with status 1 if a case is above its bar.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FIRST = (ROOT / "examples/first.cpp").read_text()
DOOR = "#include <sureleap/sureleap.hpp>\n"
COMPILED = "-DSURELEAP_COMPILED=1"

# Name, text, flags; then the most that it may take: times the standard headers, and kB of object. The bars are a third above
# what was measured on Zen 3, since one compiler's share of a machine is never the same twice.
CASES = [
    ("sureleap.hpp", DOOR, [], 4.0, None),
    ("sureleap.hpp, compiled once", DOOR, [COMPILED], 2.8, None),
    ("examples/first.cpp", FIRST, [], 14.0, 310),
    ("examples/first.cpp, compiled once", FIRST, [COMPILED], 6.5, 120),
]


def standard_headers(compiler, include):
    """All standard headers that sureleap.hpp includes, as a program; a compiler's own instructions are none."""
    listed = subprocess.run([compiler, "-std=c++20", f"-I{include}", "-M", "-x", "c++", "-"], input=DOOR, text=True,
                            check=True, capture_output=True).stdout
    own = [f for f in listed.split() if "/sureleap/" in f]
    names = set()
    for file in own:
        names.update(re.findall(r"^ *# *include <([a-z_]+)>", pathlib.Path(file).read_text(), re.MULTILINE))
    return "".join(f"#include <{name}>\n" for name in sorted(names))


def compile_once(compiler, flags, text, scratch):
    """Seconds of processor time and kB of object."""
    source, out = scratch / "source.cpp", scratch / "source.o"
    source.write_text(text)
    began = os.times()
    done = subprocess.run([compiler, "-std=c++20", *flags, "-c", source, "-o", out], capture_output=True, text=True)
    ended = os.times()
    if done.returncode != 0:
        sys.exit(f"compile.py: {' '.join(map(str, done.args))}\n{done.stderr[-2000:]}")
    seconds = ended.children_user + ended.children_system - began.children_user - began.children_system
    return seconds, out.stat().st_size / 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiler", default="g++")
    parser.add_argument("--flags", default="-O2", help="what all cases are compiled with")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--against", help="the include directory of another version")
    parser.add_argument("--check", action="store_true")
    how = parser.parse_args()

    include = ROOT / "include"
    standard = "standard headers"
    runs = [(standard, standard_headers(how.compiler, include), [])]
    for name, text, flags, _, _ in CASES:
        runs.append((name, text, [f"-I{include}", *flags]))
        if how.against and not flags:
            runs.append((name + ", the other version", text, [f"-I{how.against}"]))

    seconds, size = {}, {}
    with tempfile.TemporaryDirectory() as scratch:
        for _ in range(how.repeats):
            for name, text, flags in runs:
                took, size[name] = compile_once(how.compiler, [*how.flags.split(), *flags], text, pathlib.Path(scratch))
                seconds[name] = min(took, seconds.get(name, took))

    version = subprocess.run([how.compiler, "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    print(f"{version}, {how.flags}; the least of {how.repeats}, user and system time\n")
    print(f"{'':44}{'s':>7}{'x standard':>12}{'kB':>7}")
    for name, _, _ in runs:
        print(f"{name:44}{seconds[name]:7.2f}{seconds[name] / seconds[standard]:12.2f}{size[name]:7.0f}")

    above = []
    for name, _, _, most, kilobytes in CASES:
        if seconds[name] > most * seconds[standard]:
            above.append(f"{name} takes {seconds[name] / seconds[standard]:.2f} times as long as the standard headers, "
                         f"expected at most {most}")
        if kilobytes and size[name] > kilobytes:
            above.append(f"the object of {name} has {size[name]:.0f} kB, expected at most {kilobytes}")
    print("\n" + ("\n".join(above) or "every case is below its bar"))
    return 1 if above and how.check else 0


if __name__ == "__main__":
    sys.exit(main())
