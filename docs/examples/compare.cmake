# SPDX-License-Identifier: MIT
#
# A program prints what the comment at its end says, word for word.
#   cmake -D PROGRAM=<executable> -D SOURCE=<its source> -P compare.cmake
cmake_minimum_required(VERSION 3.22)

file(READ ${SOURCE} text)
string(FIND "${text}" "\n// Prints:\n" begin)
if(begin EQUAL -1)
    message(FATAL_ERROR "${SOURCE} does not end with a comment \"// Prints:\"")
endif()
string(SUBSTRING "${text}" ${begin} -1 expected)
string(REGEX REPLACE "^\n// Prints:\n" "" expected "${expected}")

execute_process(COMMAND ${PROGRAM} RESULT_VARIABLE failed OUTPUT_VARIABLE printed ERROR_VARIABLE errors)
if(failed)
    message(FATAL_ERROR "${PROGRAM} failed (${failed}):\n${errors}")
endif()
string(REGEX REPLACE "([^\n]*)\n" "// \\1\n" printed "${printed}")
if(NOT printed STREQUAL expected)
    message(FATAL_ERROR "${SOURCE} ends with\n${expected}but it prints\n${printed}")
endif()
