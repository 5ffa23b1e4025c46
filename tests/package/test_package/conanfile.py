# SPDX-License-Identifier: MIT
#
# A consumer by Conan, built and run by `conan create .`: the README's first example, or the components that the options
# of the package ask for.
import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain, cmake_layout


class SureleapConsumer(ConanFile):
    settings = "os", "arch", "compiler", "build_type"

    def requirements(self):
        self.requires(self.tested_reference_str)

    def layout(self):
        cmake_layout(self, build_folder=os.path.join("..", "..", "..", "build", "conan"))

    def generate(self):
        dependencies = CMakeDeps(self)
        if self.conf.get("user.sureleap:installed_config", check_type=bool):
            dependencies.set_property("sureleap", "cmake_find_mode", "none")
        dependencies.generate()
        toolchain = CMakeToolchain(self)
        toolchain.cache_variables["COMPONENTS"] = ";".join(self._components())
        toolchain.user_presets_path = False
        toolchain.generate()

    def _components(self):
        options = self.dependencies["sureleap"].options
        return [name for name in ("eigen", "xsimd", "json") if options.get_safe(f"with_{name}")]

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if can_run(self):
            self.run(" ".join([os.path.join(self.cpp.build.bindir, "consumer"), *self._components()]), env="conanrun")
