# SPDX-License-Identifier: MIT
#
# Every row of the first table in docs/install.md names a test that tests/package/CMakeLists.txt makes, and every way that
# is tested has a row:
#   cmake -D SOURCE_DIR=<checkout> -P table.cmake
cmake_minimum_required(VERSION 3.22)

file(READ ${SOURCE_DIR}/docs/install.md text)
string(REGEX REPLACE "[][;]" " " text "${text}")  # what CMake's lists stumble over
string(REGEX MATCHALL "\n[|][^\n]*[|] `package[.][a-z_]+` [|]" rows "${text}")
set(documented)
foreach(row IN LISTS rows)
    string(REGEX REPLACE "^.*`package[.]([a-z_]+)` [|]$" "\\1" way "${row}")
    list(APPEND documented ${way})
endforeach()

file(READ ${SOURCE_DIR}/tests/package/CMakeLists.txt text)
string(REGEX MATCHALL "(sureleap_package_test[(]|sureleap_test[(]package[.])[a-z_]+" calls "${text}")
set(tested)
foreach(call IN LISTS calls)
    string(REGEX REPLACE "^.*[(.]" "" way "${call}")
    list(APPEND tested ${way})
endforeach()
list(REMOVE_ITEM tested refusals table)  # which are no ways
list(REMOVE_DUPLICATES tested)

list(SORT documented)
list(SORT tested)
if(NOT documented STREQUAL tested)
    message(FATAL_ERROR "docs/install.md has rows for ${documented}; tests/package tests ${tested}")
endif()
