# SPDX-License-Identifier: MIT
#
# The checks of .clang-tidy over every header of the host, and that they find something where there is something:
#   cmake -D SOURCE_DIR=<checkout> -D CLANG_TIDY=clang-tidy-19 -D SCRATCH=<dir> -P tidy.cmake
cmake_minimum_required(VERSION 3.22)

# tidy(<result> <output> <text>): 0 if the text is without findings
function(tidy result output text)
    file(WRITE ${SCRATCH}/tidy.cpp "${text}")
    execute_process(COMMAND ${CLANG_TIDY} --quiet --config-file=${SOURCE_DIR}/.clang-tidy ${SCRATCH}/tidy.cpp -- -std=c++20
                            -I ${SOURCE_DIR}/include
                    RESULT_VARIABLE code OUTPUT_VARIABLE found ERROR_VARIABLE found)
    set(${result} ${code} PARENT_SCOPE)
    set(${output} "${found}" PARENT_SCOPE)
endfunction()

tidy(code found "#include <sureleap/sureleap.hpp>\n#include <sureleap/serving.hpp>\n#include <sureleap/training.hpp>\n#include <sureleap/testing/enumerator.hpp>\n#define SURELEAP_C_IMPLEMENTATION\n#include <sureleap/sureleap.h>\n")
if(NOT code EQUAL 0)
    message(FATAL_ERROR "${found}")
endif()
tidy(code found "double rate(int accepted, int verified) { return accepted / verified; }\n")
if(code EQUAL 0 OR NOT found MATCHES "bugprone-integer-division")
    message(FATAL_ERROR "clang-tidy does not find an integer division:\n${found}")
endif()
