# SPDX-License-Identifier: MIT
#
# A package is the same however it was made: all headers of the checkout, as they are, its licence, and what CMake and
# pkg-config look for. Where the licence and the scripts lie is the package manager's own.
#   cmake -D TREE=<installed tree> -D SOURCE_DIR=<checkout> [-D "FORGOTTEN=<place>|<place>"] -P files.cmake
cmake_minimum_required(VERSION 3.22)

# What lies in include/ and its contents.
function(sureleap_headers_of folder result)
    file(GLOB_RECURSE headers RELATIVE ${folder} ${folder}/*)
    set(lines)
    foreach(header IN LISTS headers)
        file(SHA256 ${folder}/${header} hash)
        list(APPEND lines "${header} ${hash}")
    endforeach()
    set(${result} "${lines}" PARENT_SCOPE)
endfunction()

# Everything else, by name: vcpkg calls the licence "copyright", and Conan adds two lists of its own.
function(sureleap_others_of folder result)
    file(GLOB_RECURSE files RELATIVE ${folder} ${folder}/*)
    list(FILTER files EXCLUDE REGEX "^include/|^conan(info|manifest)[.]txt$")
    list(TRANSFORM files REPLACE "^.*/" "")
    list(TRANSFORM files REPLACE "^copyright$" "LICENSE")
    list(SORT files)
    set(${result} "${files}" PARENT_SCOPE)
endfunction()

function(sureleap_compare what found expected)
    set(missing ${expected})
    list(REMOVE_ITEM missing ${found})
    set(beside ${found})
    list(REMOVE_ITEM beside ${expected})
    list(LENGTH found count)
    list(LENGTH expected expected_count)
    if(missing OR beside OR NOT count EQUAL expected_count)
        list(JOIN missing "\n  " missing)
        list(JOIN beside "\n  " beside)
        message(FATAL_ERROR "${TREE}: ${count} ${what}, expected ${expected_count}\n"
                            "missing:\n  ${missing}\ntoo many:\n  ${beside}")
    endif()
endfunction()

sureleap_headers_of(${SOURCE_DIR}/include expected)
sureleap_headers_of(${TREE}/include found)
sureleap_compare(headers "${found}" "${expected}")

sureleap_others_of(${TREE} found)
set(expected LICENSE sureleap.pc sureleapComponents.cmake sureleapConfig.cmake sureleapConfigVersion.cmake
             sureleapTargets.cmake)
sureleap_compare("files beside the headers" "${found}" "${expected}")

# Packages are moved: nothing in them may remember where it was made.
string(REPLACE "|" ";" places "${SOURCE_DIR}|${TREE}|${FORGOTTEN}")
file(GLOB_RECURSE scripts ${TREE}/*.cmake ${TREE}/*.pc)
foreach(script IN LISTS scripts)
    file(READ ${script} text)
    foreach(place IN LISTS places)
        if(place STREQUAL "")
            continue()
        endif()
        string(FIND "${text}" "${place}" where)
        if(NOT where EQUAL -1)
            message(FATAL_ERROR "${script} remembers ${place}")
        endif()
    endforeach()
endforeach()
