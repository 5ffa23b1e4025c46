# SPDX-License-Identifier: MIT
#
# What docs/parts.md lists stands behind the doors: a unit that includes sureleap.hpp, serving.hpp and training.hpp and uses
# every name of the page.
#   cmake -D SOURCE_DIR=<checkout> -D COMPILER=<c++> -D SCRATCH=<folder> -P public_names.cmake
cmake_minimum_required(VERSION 3.22)

file(READ ${SOURCE_DIR}/docs/parts.md text)
string(REGEX REPLACE "[];[]" " " text "${text}")
string(REGEX MATCHALL "`[a-z][a-z0-9_]*`" names "${text}")
list(REMOVE_DUPLICATES names)
list(LENGTH names count)
if(count LESS 100)
    message(FATAL_ERROR "docs/parts.md lists ${count} names: this test looks for them in the wrong way")
endif()

set(unit "#include <sureleap/serving.hpp>\n#include <sureleap/sureleap.hpp>\n#include <sureleap/training.hpp>\nnamespace listed {\n")
foreach(name IN LISTS names)
    string(REPLACE "`" "" name "${name}")
    string(APPEND unit "using sureleap::${name};\n")
endforeach()
file(WRITE ${SCRATCH}/public_names.cpp "${unit}}\n")
execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I${SOURCE_DIR}/include ${SCRATCH}/public_names.cpp
                RESULT_VARIABLE failed ERROR_VARIABLE errors)
if(failed)
    message(FATAL_ERROR "docs/parts.md lists a name that no door has:\n${errors}")
endif()
message(STATUS "${count} public names")
