# SPDX-License-Identifier: MIT
#
# The rule of layers, on what the headers really include:
#   cmake -D INCLUDE_DIR=<dir that holds sureleap/> -P layers.cmake
#
#   1. A header includes only strictly lower layers. Headers of one folder may include each other, but not in a circle.
#      Anything else inside a layer has to stand in the list `inside` below; siblings in different folders never do.
#   2. ext/ and cuda/ may use every layer below draft_block (4); nothing includes ext/, cuda/ or testing/. Device code, and only
#      that, includes CUDA's own headers.
#   3. The core includes nothing but itself and the standard library; sureleap.hpp includes all of it, and only it.
#   4. A header that no layer names is an error: whoever adds one says where it belongs.
cmake_minimum_required(VERSION 3.22)

set(layer_0 march.hpp config.hpp error.hpp types.hpp workspace.hpp executor.hpp)
set(layer_1 guarantee.hpp draw_key.hpp quantile.hpp race.hpp random.hpp truncation.hpp verdict.hpp vocabulary.hpp concepts.hpp
            calibration_ref.hpp kernel/)
set(layer_2 distribution.hpp linear.hpp int8.hpp)
set(layer_3 head/ confidence/ schedule/ acceptance/ training/)
set(layer_4 draft_block.hpp verify_batch.hpp context_model.hpp drafter/)
set(layer_5 round_check.hpp round_record.hpp round/ round.hpp round_runner.hpp report.hpp request_place.hpp decoder.hpp)
set(layer_6 serving/)
set(layer_7 testing/)  # tools for tests: may use everything, nothing uses them
set(lowest_layer_closed_to_ext 4)  # and to cuda/

# "<who> -> <whom>" inside a layer; <who> may be a folder.
set(inside
    # Everything starts with the version and the macros.
    "config.hpp -> march.hpp"
    "error.hpp -> config.hpp"
    "types.hpp -> config.hpp"
    "workspace.hpp -> config.hpp"
    "executor.hpp -> config.hpp"
    # The concepts are stated in terms of guarantees and of randomness.
    "concepts.hpp -> guarantee.hpp"
    "concepts.hpp -> random.hpp"
    # Draws are named by keys, which are Philox's; races go by groups of the blocks that passes over rows sum.
    "draw_key.hpp -> kernel/philox.hpp"
    "draw_key.hpp -> kernel/philox_native.hpp"
    "race.hpp -> draw_key.hpp"
    "race.hpp -> kernel/row.hpp"
    "random.hpp -> draw_key.hpp"
    "random.hpp -> race.hpp"
    "quantile.hpp -> kernel/row.hpp"
    # Drafters fill a draft block; a context model is scored on a verify batch.
    "drafter/ -> draft_block.hpp"
    "context_model.hpp -> verify_batch.hpp"
    # A round checks its parts where they meet, and leaves a record.
    "round/ -> round_check.hpp"
    "round/ -> round_record.hpp"
    "round.hpp -> round/memory.hpp"
    "round.hpp -> round_check.hpp"
    "round.hpp -> round_record.hpp"
    "round_runner.hpp -> round_check.hpp"
    "round_runner.hpp -> round_record.hpp"
    "round_runner.hpp -> round.hpp"
    # The decoder is rounds in a loop with places for requests, and reports on them.
    "decoder.hpp -> round_check.hpp"
    "decoder.hpp -> round_record.hpp"
    "decoder.hpp -> round_runner.hpp"
    "decoder.hpp -> request_place.hpp"
    "decoder.hpp -> report.hpp")

set(errors 0)
macro(complain)
    string(CONCAT text ${ARGN})
    message(SEND_ERROR "${text}")
    math(EXPR errors "${errors} + 1")
endmacro()

# The folder of a header ("" at the top), its layer ("" if none names it).
function(folder_of header result)
    if(header MATCHES "^([^/]+/)")
        set(${result} ${CMAKE_MATCH_1} PARENT_SCOPE)
    else()
        set(${result} "" PARENT_SCOPE)
    endif()
endfunction()

function(layer_of header result)
    folder_of(${header} folder)
    set(${result} "" PARENT_SCOPE)
    foreach(layer RANGE 7)
        if(header IN_LIST layer_${layer} OR (folder AND folder IN_LIST layer_${layer}))
            set(${result} ${layer} PARENT_SCOPE)
        endif()
    endforeach()
endfunction()

function(allowed_inside header included result)
    folder_of(${header} folder)
    if("${header} -> ${included}" IN_LIST inside OR (folder AND "${folder} -> ${included}" IN_LIST inside))
        set(${result} TRUE PARENT_SCOPE)
    else()
        set(${result} FALSE PARENT_SCOPE)
    endif()
endfunction()

file(GLOB_RECURSE headers RELATIVE ${INCLUDE_DIR}/sureleap ${INCLUDE_DIR}/sureleap/*.hpp ${INCLUDE_DIR}/sureleap/*.cuh)
list(LENGTH headers count)
if(count EQUAL 0)
    message(FATAL_ERROR "no header under ${INCLUDE_DIR}/sureleap")
endif()

set(core)  # everything but ext/, cuda/, testing/ and the umbrella
foreach(header IN LISTS headers)
    folder_of(${header} folder)
    layer_of(${header} layer)
    if(folder STREQUAL "cuda/" AND NOT header MATCHES "[.]cuh$" OR NOT folder STREQUAL "cuda/" AND header MATCHES "[.]cuh$")
        complain("${header}: device code, and nothing else, lies in cuda/ and is named .cuh")
    endif()
    if(NOT header STREQUAL "sureleap.hpp" AND NOT folder MATCHES "^(ext|cuda)/$")
        if(NOT folder STREQUAL "testing/")
            list(APPEND core ${header})
        endif()
        if(layer STREQUAL "")
            complain("${header} belongs to no layer: name it in tests/layers.cmake")
            continue()
        endif()
    endif()

    set(includes_${header})
    file(STRINGS ${INCLUDE_DIR}/sureleap/${header} lines REGEX "^[ \t]*#[ \t]*include")
    foreach(line IN LISTS lines)
        if(NOT line MATCHES "^[ \t]*#[ \t]*include[ \t]*<([^>]+)>")
            complain("${header}: ${line}\n  write <sureleap/...>, so that the place of the file does not matter")
            continue()
        endif()
        set(included ${CMAKE_MATCH_1})

        if(NOT included MATCHES "^sureleap/(.*)$")
            # Headers of the standard library have neither a folder nor an ending. A compiler's own instructions come
            # with the compiler, and are for the kernels.
            if(folder STREQUAL "kernel/" AND included MATCHES "^(immintrin|arm_neon)[.]h$")
                continue()
            endif()
            if(folder STREQUAL "cuda/" AND included MATCHES "^cuda_(runtime|pipeline)[.]h$|^cub/")
                continue()
            endif()
            if(NOT folder STREQUAL "ext/" AND included MATCHES "[/.]")
                complain("${header} includes <${included}>: the core depends on the standard library only; use ext/")
            endif()
            continue()
        endif()
        set(included ${CMAKE_MATCH_1})
        list(APPEND includes_${header} ${included})

        folder_of(${included} included_folder)
        layer_of(${included} included_layer)
        if(NOT EXISTS ${INCLUDE_DIR}/sureleap/${included})
            complain("${header} includes ${included}, which does not exist")
        elseif(included_folder STREQUAL "cuda/" AND NOT folder STREQUAL "cuda/")
            complain("${header} includes ${included}: nothing on the host includes cuda/")
        elseif(included_folder STREQUAL "ext/" AND NOT folder STREQUAL "ext/")
            complain("${header} includes ${included}: nothing includes ext/, the user chooses what to bring")
        elseif(included_folder STREQUAL "testing/" AND NOT folder STREQUAL "testing/")
            complain("${header} includes ${included}: nothing includes testing/")
        elseif(header STREQUAL "sureleap.hpp" OR (folder AND folder STREQUAL included_folder))
            # The umbrella may include all; headers of a folder are one family.
        elseif(included_layer STREQUAL "")
            complain("${header} includes ${included}, which belongs to no layer")
        elseif(folder MATCHES "^(ext|cuda)/$")
            if(included_layer GREATER_EQUAL lowest_layer_closed_to_ext)
                complain("${header} includes ${included} of layer ${included_layer}: ${folder} stays below layer "
                         "${lowest_layer_closed_to_ext}")
            endif()
        elseif(included_layer GREATER layer)
            complain("${header} of layer ${layer} includes ${included} of layer ${included_layer}, which is higher")
        elseif(included_layer EQUAL layer)
            allowed_inside(${header} ${included} allowed)
            if(NOT allowed)
                complain("${header} includes ${included} of the same layer ${layer}: siblings do not know each other")
            endif()
        endif()
    endforeach()
endforeach()

# Circles: take away headers that include nothing that is left; what cannot be taken away is in or above a circle.
set(left ${headers})
while(TRUE)
    set(stuck)
    foreach(header IN LISTS left)
        foreach(included IN LISTS includes_${header})
            if(included IN_LIST left)
                list(APPEND stuck ${header})
                break()
            endif()
        endforeach()
    endforeach()
    if("${stuck}" STREQUAL "${left}")
        break()
    endif()
    set(left ${stuck})
endwhile()
if(left)
    list(JOIN left " " left)
    complain("headers that include each other in a circle are among: ${left}")
endif()

if("sureleap.hpp" IN_LIST headers)
    foreach(header IN LISTS core)
        if(NOT header IN_LIST includes_sureleap.hpp)
            complain("sureleap.hpp does not include ${header}")
        endif()
    endforeach()
else()
    complain("there is no umbrella header sureleap.hpp")
endif()

list(LENGTH core count)
message(STATUS "${count} headers in layers, ${errors} errors")
