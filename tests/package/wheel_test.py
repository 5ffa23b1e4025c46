# SPDX-License-Identifier: MIT
"""The wheel: built from an archive of sources, installed, moved, and consumed through what the module says of itself.

The build backend comes from PyPI into a virtual environment in the build folder. Exit status 77 (skipped) where it cannot be had.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
sys.path.insert(0, str(CHECKOUT / "tests" / "support"))
from environment import programs_of  # noqa: E402  (found there)

TOOLS = ["build~=1.2", "scikit-build-core~=0.11"]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
# What an archive of sources holds besides these has no business in it.
IN_ARCHIVE = {"CMakeLists.txt", "LICENSE", "PKG-INFO", "README.md", "cmake", "include", "pyproject.toml", "python"}


def fail(text):
    sys.exit(f"package.wheel: {text}")


def only(folder, pattern):
    found = list(folder.glob(pattern))
    if len(found) != 1:
        fail(f"{folder} holds {[path.name for path in found]}, expected one {pattern}")
    return found[0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--environment", type=pathlib.Path, required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--generator", required=True)
    parser.add_argument("--cmake", required=True)
    arguments = parser.parse_args()
    scratch = arguments.scratch
    python = programs_of("package.wheel", arguments.environment, *TOOLS) / "python"
    shutil.rmtree(scratch, ignore_errors=True)

    def run(*command, **more):
        done = subprocess.run([*map(str, command)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
        if done.returncode != 0:
            fail(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    # The archive first, the wheel from the archive: what is missing in the one is missing in the other.
    run(python, "-m", "build", "--no-isolation", "--outdir", scratch / "dist", CHECKOUT)
    with tarfile.open(only(scratch / "dist", f"sureleap-{arguments.version}.tar.gz")) as archive:
        there = {name.split("/")[1] for name in archive.getnames()}
    if there != IN_ARCHIVE:
        fail(f"the archive of sources holds {sorted(there)}, expected {sorted(IN_ARCHIVE)}")

    # One wheel for every machine. It is unpacked in one place and used from another.
    with zipfile.ZipFile(only(scratch / "dist", f"sureleap-{arguments.version}-py3-none-any.whl")) as wheel:
        wheel.extractall(scratch / "unpacked")
    moved = (scratch / "unpacked").rename(scratch / "moved")
    environment = {**os.environ, "PYTHONPATH": str(moved)}

    def says(flag):
        return run(python, "-m", "sureleap", flag, env=environment).strip()

    if says("--version") != arguments.version:
        fail(f"--version says {says('--version')}, expected {arguments.version}")
    if run(python, "-c", "import sureleap; print(sureleap.get_include())", env=environment).strip() != says("--include"):
        fail("get_include() and --include differ")
    run(arguments.cmake, "-D", f"TREE={moved / 'sureleap' / 'prefix'}", "-D", f"SOURCE_DIR={CHECKOUT}", "-P", HERE / "files.cmake")

    # The compiler alone, and CMake, which is told nothing but the folder of the package.
    shutil.copytree(HERE / "consumer", scratch / "consumer")
    shutil.copy(CHECKOUT / "examples" / "first.cpp", scratch / "consumer")
    run(arguments.compiler, "-std=c++20", "-O0", *WARNINGS, "-I", says("--include"), "first.cpp", "-o", "first",
        cwd=scratch / "consumer")
    run(arguments.cmake, "-S", scratch / "consumer", "-B", scratch / "build", "-G", arguments.generator, "-D",
        f"CMAKE_CXX_COMPILER={arguments.compiler}", "-D", f"sureleap_DIR={says('--cmake')}", "-D", "HOW=wheel", "-D",
        f"SURELEAP_VERSION={arguments.version}", "-D", "CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF")
    run(arguments.cmake, "--build", scratch / "build")
    if run(scratch / "consumer" / "first") != run(scratch / "build" / "first"):
        fail("the first example prints one thing with the include folder and another with the CMake package")
    run(scratch / "build" / "version")


main()
