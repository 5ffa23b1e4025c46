# SPDX-License-Identifier: MIT
#
# All places that state the version agree:
#   cmake -D SOURCE_DIR=<checkout> -D VERSION=<CMake's PROJECT_VERSION> -P version.cmake
cmake_minimum_required(VERSION 3.22)

file(READ ${SOURCE_DIR}/include/sureleap/core/config.hpp config)
set(parts)
foreach(part IN ITEMS MAJOR MINOR PATCH)
    if(NOT config MATCHES "#define SURELEAP_VERSION_${part} ([0-9]+)\n")
        message(FATAL_ERROR "config.hpp does not define SURELEAP_VERSION_${part} as a number")
    endif()
    list(APPEND parts ${CMAKE_MATCH_1})
endforeach()
list(JOIN parts . expected)

if(NOT VERSION STREQUAL expected)
    message(SEND_ERROR "CMake's PROJECT_VERSION is ${VERSION}, config.hpp says ${expected}")
endif()

foreach(manifest IN ITEMS vcpkg.json cmake/vcpkg/sureleap/vcpkg.json)
    file(READ ${SOURCE_DIR}/${manifest} vcpkg)
    string(JSON vcpkg_version GET "${vcpkg}" version)
    if(NOT vcpkg_version STREQUAL expected)
        message(SEND_ERROR "${manifest} has version ${vcpkg_version}, config.hpp says ${expected}")
    endif()
endforeach()

file(READ ${SOURCE_DIR}/cmake/sureleap.pc.in pc)
if(NOT pc MATCHES "\nVersion: @PROJECT_VERSION@\n")
    message(SEND_ERROR "cmake/sureleap.pc.in does not take its version from CMake")
endif()

# What users read: the newest entry of the changelog, and every version that they are told to ask for.
file(READ ${SOURCE_DIR}/docs/changelog.md changelog)
if(NOT changelog MATCHES "\n## ([0-9.]+)" OR NOT CMAKE_MATCH_1 STREQUAL expected)
    message(SEND_ERROR "docs/changelog.md begins with version ${CMAKE_MATCH_1}, config.hpp says ${expected}")
endif()
list(GET parts 0 1 minor_version)
list(JOIN minor_version "." minor_version)
foreach(document IN ITEMS README.md docs/install.md docs/integration.md)
    file(READ ${SOURCE_DIR}/${document} text)
    string(REGEX MATCHALL "(find_package.sureleap|Version|VERSION|sureleap/|archive of) ?[0-9]+[.][0-9.]*[0-9]" named "${text}")
    if(NOT named)
        message(SEND_ERROR "${document} names no version of sureleap: this test looks for it in the wrong way")
    endif()
    foreach(name IN LISTS named)
        string(REGEX REPLACE "^.*[^0-9.]([0-9.]+)$" "\\1" version "${name}")
        if(NOT version STREQUAL expected AND NOT version STREQUAL minor_version)
            message(SEND_ERROR "${document} says \"${name}\", config.hpp says ${expected}")
        endif()
    endforeach()
endforeach()

file(READ ${SOURCE_DIR}/CITATION.cff citation)
if(NOT citation MATCHES "\nversion: ([0-9.]+)\n" OR NOT CMAKE_MATCH_1 STREQUAL expected)
    message(SEND_ERROR "CITATION.cff has version ${CMAKE_MATCH_1}, config.hpp says ${expected}")
endif()

# Built from an archive of its own, so it cannot read config.hpp.
file(READ ${SOURCE_DIR}/python/verify/pyproject.toml verify)
if(NOT verify MATCHES "\nversion = \"([0-9.]+)\"\n" OR NOT CMAKE_MATCH_1 STREQUAL expected)
    message(SEND_ERROR "python/verify/pyproject.toml has version ${CMAKE_MATCH_1}, config.hpp says ${expected}")
endif()

# The recipe reads config.hpp. The test is that it does, and that no version is written beside it.
file(READ ${SOURCE_DIR}/conanfile.py conan)
if(NOT conan MATCHES "\"include\", \"sureleap\", \"core\", \"config.hpp\"" OR NOT conan MATCHES "#define SURELEAP_VERSION_")
    message(SEND_ERROR "conanfile.py does not read its version from include/sureleap/core/config.hpp")
endif()
if(conan MATCHES "\n *version = \"")
    message(SEND_ERROR "conanfile.py states a version of its own")
endif()
