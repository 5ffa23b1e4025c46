# SPDX-License-Identifier: MIT
"""python -m sureleap --include, --cmake or --version: one line, for scripts that build."""
import argparse

import sureleap

parser = argparse.ArgumentParser(prog="python -m sureleap", description="Where the headers of sureleap lie.")
choice = parser.add_mutually_exclusive_group(required=True)
choice.add_argument("--include", action="store_true", help="folder for the compiler's -I")
choice.add_argument("--cmake", action="store_true", help="folder for CMake's sureleap_DIR")
choice.add_argument("--version", action="version", version=sureleap.__version__)
arguments = parser.parse_args()
print(sureleap.get_include() if arguments.include else sureleap.get_cmake_dir())
