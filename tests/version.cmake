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

file(READ ${SOURCE_DIR}/vcpkg.json vcpkg)
string(JSON vcpkg_version GET "${vcpkg}" version)
if(NOT vcpkg_version STREQUAL expected)
    message(SEND_ERROR "vcpkg.json has version ${vcpkg_version}, config.hpp says ${expected}")
endif()

# The recipe reads config.hpp. The test is that it does, and that no version is written beside it.
file(READ ${SOURCE_DIR}/conanfile.py conan)
if(NOT conan MATCHES "\"include\", \"sureleap\", \"core\", \"config.hpp\"" OR NOT conan MATCHES "#define SURELEAP_VERSION_")
    message(SEND_ERROR "conanfile.py does not read its version from include/sureleap/core/config.hpp")
endif()
if(conan MATCHES "\n *version = \"")
    message(SEND_ERROR "conanfile.py states a version of its own")
endif()
