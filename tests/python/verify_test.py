# SPDX-License-Identifier: MIT
"""python/verify: built as docs/install.md says, and its cases; and that it finds the headers of the wheel outside of a checkout.

The build's tools and NumPy come from PyPI into a virtual environment in the build folder. Exit status 77 (skipped) where they
cannot be had. A minute, of which the compiler takes most.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
sys.path.insert(0, str(CHECKOUT / "tests" / "support"))
from environment import programs_of, skip  # noqa: E402  (found there)

TOOLS = ["scikit-build-core~=0.11", "nanobind~=2.9", "numpy", "ml_dtypes"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--environment", type=pathlib.Path, required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--generator", required=True)
    parser.add_argument("--cmake", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    if not (pathlib.Path(sysconfig.get_path("include")) / "Python.h").exists():
        skip("python.verify", "no Python.h beside this Python (python3-dev)")
    scratch = arguments.scratch.resolve()
    python = programs_of("python.verify", arguments.environment, *TOOLS) / "python"
    shutil.rmtree(scratch, ignore_errors=True)
    environment = {**os.environ, "CXX": arguments.compiler, "CMAKE_GENERATOR": arguments.generator,
                   "PATH": f"{arguments.cmake.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}

    def run(*command):
        done = subprocess.run([*map(str, command)], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        if done.returncode != 0:
            sys.exit(f"python.verify: {' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def install(project):
        run(python, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--no-index", "--force-reinstall",
            project)

    install(CHECKOUT / "python" / "verify")
    run(python, HERE / "verify_cases.py")

    # Outside of a checkout: the headers of the wheel, or none.
    shutil.copytree(CHECKOUT / "python" / "verify", scratch / "verify")
    version = run(python, "-c", "import sureleap_verify; print(sureleap_verify.__version__)").strip()
    nanobind = run(python, "-m", "nanobind", "--cmake_dir").strip()
    configure = [arguments.cmake, "-S", scratch / "verify", "-B", scratch / "build", "-G", arguments.generator, "-D",
                 f"Python_EXECUTABLE={python}", "-D", f"nanobind_DIR={nanobind}", "-D", f"SKBUILD_PROJECT_VERSION={version}", "-D",
                 "CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF", "-D", "CMAKE_EXPORT_COMPILE_COMMANDS=ON"]
    install(CHECKOUT)
    run(*configure)
    if "/sureleap/prefix/include" not in (scratch / "build" / "compile_commands.json").read_text():
        sys.exit("python.verify: outside of a checkout CMake found other headers than those of the wheel")


main()
