# SPDX-License-Identifier: MIT
"""Where the headers and the CMake package of sureleap lie. The library itself is C++20; its manual is the README."""
import importlib.metadata
import pathlib

__all__ = ["get_cmake_dir", "get_include"]
__version__ = importlib.metadata.version("sureleap")

_PREFIX = pathlib.Path(__file__).resolve().parent / "prefix"


def get_include():
    """The folder for the compiler's -I: it holds sureleap/sureleap.hpp."""
    return str(_PREFIX / "include")


def get_cmake_dir():
    """The folder for CMake's sureleap_DIR: it holds sureleapConfig.cmake."""
    return str(_PREFIX / "share" / "cmake" / "sureleap")
