# SPDX-License-Identifier: MIT
#
# Conan 2 recipe. A package of headers: the same for every compiler, build type and architecture.
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import load


class Sureleap(ConanFile):
    name = "sureleap"
    description = "Lossless speculative decoding for people who write inference engines"
    license = "MIT"
    topics = ("speculative-decoding", "inference", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {"with_eigen": [True, False], "with_xsimd": [True, False], "with_json": [True, False]}
    default_options = {"with_eigen": False, "with_xsimd": False, "with_json": False}
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "include/*"
    no_copy_source = True

    def set_version(self):
        config = load(self, os.path.join(self.recipe_folder, "include", "sureleap", "core", "config.hpp"))
        parts = [re.search(rf"#define SURELEAP_VERSION_{part} (\d+)", config) for part in ("MAJOR", "MINOR", "PATCH")]
        self.version = ".".join(part.group(1) for part in parts)

    def requirements(self):
        if self.options.with_eigen:
            self.requires("eigen/[>=3.4]", transitive_headers=True)
        if self.options.with_xsimd:
            self.requires("xsimd/[>=8.1]", transitive_headers=True)
        if self.options.with_json:
            self.requires("nlohmann_json/[>=3.10]", transitive_headers=True)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        for name in ("TESTS", "EXAMPLES", "BENCH"):
            toolchain.cache_variables[f"SURELEAP_BUILD_{name}"] = False
        for name in ("EIGEN", "XSIMD", "JSON"):
            toolchain.cache_variables[f"SURELEAP_WITH_{name}"] = "OFF"
        toolchain.generate()

    def package(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.install()

    def package_info(self):
        # The installed sureleapConfig.cmake is the one description of the targets; Conan points CMake at it.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "cmake", "sureleap")]
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
