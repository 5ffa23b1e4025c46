# SPDX-License-Identifier: MIT
#
# The walks of docs/architecture.md, from what goes in to what comes out: every file is there, none stands above the one before it
# (layers.cmake has the order; a stage that begins again begins in round/), and a walk is as short as was promised.
#   cmake -D SOURCE_DIR=<checkout> -P walks.cmake
cmake_minimum_required(VERSION 3.22)

# Most files of a walk, in the order of the page; 0: not promised.
set(most 14 6 0 0)

file(READ ${SOURCE_DIR}/tests/layers.cmake layers)
string(REGEX MATCH "set\\(order\n([^)]*)\\)" found "${layers}")
string(REGEX MATCHALL "[^ \n]+" order "${CMAKE_MATCH_1}")

file(READ ${SOURCE_DIR}/docs/architecture.md text)
string(REGEX REPLACE "^.*\nWalks, (.*)\n## Decisions.*$" "\\1" text "${text}")
string(REPLACE ";" ", " text "${text}")
string(REPLACE "\n- " ";" walks "${text}")
list(POP_FRONT walks)  # what stands in front of the list
list(LENGTH walks count)
list(LENGTH most expected)
if(NOT count EQUAL expected)
    message(FATAL_ERROR "docs/architecture.md has ${count} walks, expected ${expected}: this test looks for them in the wrong way")
endif()

foreach(walk limit IN ZIP_LISTS walks most)
    string(REGEX MATCH "[*][^*]+[*]" name "${walk}")
    string(REGEX REPLACE "[.][ \n].*$" "" walk "${walk}.\n")  # what is said behind the list
    string(REGEX MATCHALL "[a-z_/]+[.]hpp" files "${walk}")
    list(LENGTH files length)
    if(length EQUAL 0 OR (limit GREATER 0 AND length GREATER limit))
        message(SEND_ERROR "the walk ${name} has ${length} files, expected 1 .. ${limit} (0: any number)")
    endif()
    set(last 1000)
    foreach(file IN LISTS files)
        if(NOT EXISTS ${SOURCE_DIR}/include/sureleap/${file})
            message(SEND_ERROR "the walk ${name} names ${file}, which is not in include/sureleap")
        endif()
        string(REGEX REPLACE "[^/]+$" "" folder ${file})
        if(folder STREQUAL "")
            set(folder ${file})
        endif()
        list(FIND order ${folder} at)
        if(at GREATER last AND NOT folder STREQUAL "round/")
            message(SEND_ERROR "the walk ${name} goes back up to ${file}")
        endif()
        set(last ${at})
    endforeach()
    message(STATUS "${name}: ${length} files")
endforeach()
