# SPDX-License-Identifier: MIT
#
# Stands for the recipe of a dependency, which the test cannot fetch: a package of the headers that are installed on this
# machine, with the target names of the real one.
#   conan create . --name=eigen --version=3.4.0 -c user.stand_in:include_dir=/usr/include/eigen3
import os

from conan import ConanFile
from conan.tools.files import copy

# The dependency: its folder of headers, the name for find_package, the target.
STANDS_FOR = {
    "eigen": ("Eigen", "Eigen3", "Eigen3::Eigen"),
    "xsimd": ("xsimd", "xsimd", "xsimd"),
    "nlohmann_json": ("nlohmann", "nlohmann_json", "nlohmann_json::nlohmann_json"),
}


class StandIn(ConanFile):
    package_type = "header-library"
    no_copy_source = True

    def package_id(self):
        self.info.clear()

    def package(self):
        headers = self.conf.get("user.stand_in:include_dir", check_type=str)
        folder, _, _ = STANDS_FOR[self.name]
        copy(self, f"{folder}/*", src=headers, dst=os.path.join(self.package_folder, "include"))

    def package_info(self):
        _, file_name, target = STANDS_FOR[self.name]
        self.cpp_info.set_property("cmake_file_name", file_name)
        self.cpp_info.set_property("cmake_target_name", target)
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
