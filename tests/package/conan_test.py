# SPDX-License-Identifier: MIT
"""The package by Conan: created with every option, consumed by CMakeDeps' files and by the installed config.

Conan comes from PyPI into a virtual environment in the build folder. Exit status 77 (skipped) where that cannot be had.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
CHECKOUT = HERE.parent.parent
sys.path.insert(0, str(CHECKOUT / "tests" / "support"))
from environment import programs_of  # noqa: E402  (found there)

CONAN = "conan~=2.34"

# What Conan calls the dependency of a component.
DEPENDENCIES = {"eigen": "eigen", "xsimd": "xsimd", "json": "nlohmann_json"}


def fail(text):
    sys.exit(f"package.conan: {text}")


class Conan:
    def __init__(self, program, home, settings, conf):
        self.program = program
        self.environment = {**os.environ, "CONAN_HOME": str(home)}
        home.mkdir(parents=True)
        (home / "profiles").mkdir()
        profile = ["[settings]", *settings, "[conf]", *conf]
        (home / "profiles" / "default").write_text("\n".join(profile) + "\n")

    def run(self, *arguments, refused=False):
        """Text of both streams. Fails if the command does, or, with `refused`, if it does not."""
        command = [str(self.program), *map(str, arguments)]
        done = subprocess.run(command, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if (done.returncode != 0) != refused:
            fail(f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}")
        return done.stdout

    def json(self, *arguments):
        command = [str(self.program), *arguments, "--format=json"]
        return json.loads(subprocess.run(command, env=self.environment, check=True, capture_output=True).stdout)


def check_recipe(conan):
    """What reviewers of recipes look at."""
    recipe = conan.json("inspect", str(CHECKOUT))
    if recipe["license"] != "MIT":
        fail(f"license is {recipe['license']}, expected the SPDX name MIT")
    if recipe["package_type"] != "header-library":
        fail(f"package_type is {recipe['package_type']}, expected header-library")
    for option in recipe["options"]:
        if not option.startswith("with_"):
            fail(f"option {option} does not say what it adds: expected a name that begins with with_")
        if recipe["default_options"][option]:
            fail(f"option {option} is on by default, expected off: the library depends on nothing")
    if recipe["requires"]:
        fail(f"without options it requires {recipe['requires']}, expected nothing")


def expect(text, what, where):
    if what not in text:
        fail(f"{where}: expected \"{what}\" in\n{text}")


def expect_found_in(folder, text, where):
    """Which of the two descriptions of the package CMake read."""
    found = re.search("sureleap was found in (.*)", text)
    if found is None or not found.group(1).endswith(folder):
        fail(f"{where}: expected \"sureleap was found in ...{folder}\" in\n{text}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--environment", type=pathlib.Path, required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True)
    parser.add_argument("--compiler", required=True, help="name in Conan's settings, version, path")
    parser.add_argument("--generator", required=True)
    parser.add_argument("--cmake", required=True)
    parser.add_argument("--dependency", action="append", default=[], help="component,version,include directory")
    arguments = parser.parse_args()

    conan = programs_of("package.conan", arguments.environment, CONAN) / "conan"
    shutil.rmtree(arguments.scratch, ignore_errors=True)
    name, version, path = arguments.compiler.split(",")
    conan = Conan(
        conan,
        arguments.scratch / "home",
        ["os=Linux", f"arch={'armv8' if os.uname().machine == 'aarch64' else 'x86_64'}", "build_type=Debug",
         f"compiler={name}", f"compiler.version={version}", "compiler.cppstd=20", "compiler.libcxx=libstdc++11"],
        [f"tools.cmake.cmaketoolchain:generator={arguments.generator}",
         f"tools.cmake.cmake_layout:test_folder={arguments.scratch / 'consumers'}",
         f"tools.build:compiler_executables={json.dumps({'cpp': path})}",
         'tools.build:cxxflags=["-g0", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]'])
    package = f"sureleap/{arguments.version}"
    check_recipe(conan)

    for dependency in arguments.dependency:
        component, version, include_dir = dependency.split(",")
        conan.run("create", HERE / "stand_in", f"--name={DEPENDENCIES[component]}", f"--version={version}", "-nr",
                  "-c", f"user.stand_in:include_dir={include_dir}")

    # Created and consumed without options, and with each.
    expect(conan.run("create", CHECKOUT, "-nr"), "letters per call of the target", "the README's first example")
    components = [dependency.split(",")[0] for dependency in arguments.dependency]
    every_option = []
    for component in components:
        option = ["-o", f"sureleap/*:with_{component}=True"]
        every_option += option
        expect_found_in("/generators", conan.run("create", CHECKOUT, "-nr", *option), f"a consumer of {component}")

    # Consumed once more, with all options, through the config that the package brings.
    text = conan.run("test", HERE / "test_package", package, "-nr", *every_option, "-c",
                     "user.sureleap:installed_config=True")
    expect_found_in("/share/cmake/sureleap", text, "the installed config")

    # One package, whatever the options; its files are those of every other way.
    packages = conan.json("list", f"{package}#latest:*")["Local Cache"][package]["revisions"]
    identities = [identity for revision in packages.values() for identity in revision["packages"]]
    if len(identities) != 1:
        fail(f"options change no file, but made {len(identities)} packages: {identities}")
    folder = conan.run("cache", "path", f"{package}:{identities[0]}").strip()
    subprocess.run([arguments.cmake, "-D", f"TREE={folder}", "-D", f"SOURCE_DIR={CHECKOUT}", "-P", HERE / "files.cmake"],
                   check=True)

    expect(conan.run("install", f"--requires={package}", "-nr", "-s", "compiler.cppstd=17", refused=True),
           "Current cppstd (17) is lower than the required C++ standard (20)", "a profile for C++17")


main()
