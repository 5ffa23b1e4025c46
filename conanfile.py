# SPDX-License-Identifier: MIT
#
# Conan 2 recipe: `conan create . -s compiler.cppstd=20`. A package of headers: the same for every compiler, build type,
# architecture and option. Options say which dependencies a consumer wants beside it, and which targets.
import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeToolchain
from conan.tools.files import load
from conan.tools.layout import basic_layout

required_conan_version = ">=2.0"

# The component: what Conan calls its dependency, from which version on.
DEPENDENCIES = {"eigen": ("eigen", ">=3.4"), "xsimd": ("xsimd", ">=8.1"), "json": ("nlohmann_json", ">=3.10")}


class Sureleap(ConanFile):
    name = "sureleap"
    description = "Lossless speculative decoding for people who write inference engines"
    license = "MIT"
    topics = ("speculative-decoding", "inference", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {f"with_{component}": [True, False] for component in DEPENDENCIES}
    default_options = {f"with_{component}": False for component in DEPENDENCIES}
    exports_sources = "CMakeLists.txt", "LICENSE", "cmake/*", "include/*"
    no_copy_source = True
    test_package_folder = os.path.join("tests", "package", "test_package")

    def set_version(self):
        config = load(self, os.path.join(self.recipe_folder, "include", "sureleap", "core", "config.hpp"))
        parts = [re.search(rf"#define SURELEAP_VERSION_{part} (\d+)", config) for part in ("MAJOR", "MINOR", "PATCH")]
        self.version = ".".join(part.group(1) for part in parts)

    def layout(self):
        basic_layout(self)

    def _components(self):
        return [component for component in DEPENDENCIES if self.options.get_safe(f"with_{component}")]

    def requirements(self):
        for component in self._components():
            dependency, versions = DEPENDENCIES[component]
            self.requires(f"{dependency}/[{versions}]", transitive_headers=True)

    def validate(self):
        check_min_cppstd(self, 20)

    def package_id(self):
        self.info.clear()

    def generate(self):
        toolchain = CMakeToolchain(self)
        for name in ("TESTS", "EXAMPLES", "BENCH"):
            toolchain.cache_variables[f"SURELEAP_BUILD_{name}"] = False
        for component in (*DEPENDENCIES, "llama"):  # every header is installed either way
            toolchain.cache_variables[f"SURELEAP_WITH_{component.upper()}"] = "OFF"
        toolchain.cache_variables["CMAKE_INSTALL_DOCDIR"] = "licenses"
        toolchain.user_presets_path = False
        toolchain.generate()

    def package(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.install()

    def package_info(self):
        # CMakeDeps writes these targets, and sureleap::all for all of them. The installed sureleapConfig.cmake, which lies in
        # builddirs, has the same.
        self.cpp_info.set_property("cmake_file_name", "sureleap")
        self.cpp_info.set_property("cmake_target_name", "sureleap::all")
        self._describe("sureleap", [])
        self.cpp_info.components["sureleap"].builddirs = [os.path.join("share", "cmake", "sureleap")]
        for component in self._components():
            dependency, _ = DEPENDENCIES[component]
            self._describe(component, ["sureleap", f"{dependency}::{dependency}"])

    def _describe(self, component, requires):
        info = self.cpp_info.components[component]
        info.set_property("cmake_target_name", f"sureleap::{component}")
        info.requires = requires
        info.bindirs = []
        info.libdirs = []
