# SPDX-License-Identifier: MIT
#
# Checks one source that must not compile, and that the compiler says why:
#   cmake -D COMPILER=<c++> -D SOURCE=<file> -D INCLUDE_DIR=<dir> -P check.cmake
#
# The source holds one or more lines
#   // expect-error: <regex>
# (CMake's regular expressions: no \d, \b, {n}; escape ( ) [ ] . with one backslash). It is compiled twice:
#   with -DSURELEAP_EXPECT_FAILURE   must fail, and every regex must match the compiler's output
#   without                          must compile: the positive twin, which proves that the case tests what it says
# -D MESSAGE_ONLY=ON leaves the twin out: one compiler proves it, every compiler has to say why.
# -D PARTS=<file> is parts.hpp, precompiled as <file>.gch, for sources that include it.
cmake_minimum_required(VERSION 3.22)
set(ENV{LC_ALL} C)  # messages in English, quotes in ASCII

set(command ${COMPILER} -std=c++20 -Wall -Wextra -fsyntax-only -I${INCLUDE_DIR} ${SOURCE})
file(READ ${SOURCE} rest)
if(PARTS AND rest MATCHES "#include \"parts[.]hpp\"")
    list(APPEND command -include ${PARTS})
endif()

if(NOT MESSAGE_ONLY)
    execute_process(COMMAND ${command} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "the positive twin does not compile:\n${output}")
    endif()
endif()

execute_process(COMMAND ${command} -DSURELEAP_EXPECT_FAILURE RESULT_VARIABLE result OUTPUT_VARIABLE output
                ERROR_VARIABLE output)
if(result EQUAL 0)
    message(FATAL_ERROR "compiles, but must not")
endif()

# Only what the compiler says counts: it also quotes source lines, and those hold the expected message already.
# g++ and clang quote as "  12 | code". A quoted line that still matched would make the test pass for the wrong reason.
string(REGEX REPLACE "\n *[0-9]* *[|][^\n]*" "" spoken "\n${output}")

# Cut by hand: lists of lines would break at ';' and '[' inside a regex.
set(marker "// expect-error: ")
set(count 0)
while(TRUE)
    string(FIND "${rest}" "${marker}" begin)
    if(begin EQUAL -1)
        break()
    endif()
    string(LENGTH "${marker}" length)
    math(EXPR begin "${begin} + ${length}")
    string(SUBSTRING "${rest}" ${begin} -1 rest)
    string(FIND "${rest}" "\n" end)
    string(SUBSTRING "${rest}" 0 ${end} regex)
    math(EXPR count "${count} + 1")
    if(NOT spoken MATCHES "${regex}")
        message(FATAL_ERROR "fails as it must, but the compiler does not say\n  ${regex}\nIt says:\n${output}")
    endif()
endwhile()
if(count EQUAL 0)
    message(FATAL_ERROR "no line \"${marker}<regex>\": failing to compile alone proves nothing")
endif()
