# SPDX-License-Identifier: MIT
#
# Every acceptance rule, schedule, adapter, drafter and head that a header of the library declares is in the lists of combinations
# whose law is enumerated (tests/support/every_*.hpp and tests/property/exact_every_*):
#   cmake -D INCLUDE_DIR=<dir that holds sureleap/> -D TESTS_DIR=<tests/> -P exactness_list.cmake
cmake_minimum_required(VERSION 3.22)

file(GLOB tests ${TESTS_DIR}/support/every_*.hpp ${TESTS_DIR}/property/exact_every_*.test.cpp)
foreach(test IN LISTS tests)
    file(READ ${test} text)
    string(APPEND list "${text}")
endforeach()

# What a class is by its members. Those of `detail` are no parts, and those of c/ choose among parts; parts inherit
# schedule_adapter and beside_model.
set(marks "fidelity guarantee =" "void admit\\(causal_frontier" "void admit\\(draft_table" " budget\\(planning_table<"
          "public schedule_adapter<" "public beside_model<" "void draw\\(forward_type" "public semi_autoregressive<"
          "void add_bias\\(")
set(bases schedule_adapter beside_model causal_frontier rule_traits)

set(found)
set(missing)
file(GLOB_RECURSE headers ${INCLUDE_DIR}/sureleap/*.hpp)
list(FILTER headers EXCLUDE REGEX "/(concepts|sureleap)[.]hpp$|/testing/|/sureleap/c/")
foreach(header IN LISTS headers)
    file(READ ${header} text)
    string(REGEX REPLACE "[][;]" " " text "${text}")  # what CMake's lists stumble over
    string(REGEX REPLACE "\n(class|struct) " "\n;class " classes "${text}")
    foreach(class IN LISTS classes)
        if(NOT class MATCHES "^class ([a-z_0-9]+)[^(]*{")
            continue()
        endif()
        set(name ${CMAKE_MATCH_1})
        foreach(mark IN LISTS marks)
            if(class MATCHES "${mark}" AND NOT name IN_LIST bases AND NOT name IN_LIST found)
                list(APPEND found ${name})
                if(NOT list MATCHES "[^a-z_]${name}[^a-z_]")
                    list(APPEND missing "${name} (${header})")
                endif()
            endif()
        endforeach()
    endforeach()
endforeach()

list(LENGTH found count)
list(JOIN found ", " found)
message(STATUS "${count} parts: ${found}")
if(count LESS 28)
    message(SEND_ERROR "expected to find at least 28 parts; has their spelling changed?")
endif()
if(missing)
    list(JOIN missing "\n  " missing)
    message(SEND_ERROR "not in tests/support/every_*.hpp or tests/property/exact_every_*:\n  ${missing}")
endif()
