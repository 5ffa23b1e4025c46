# SPDX-License-Identifier: MIT
#
# The order of folders, on what the headers really include:
#   cmake -D INCLUDE_DIR=<dir that holds sureleap/> -P layers.cmake
#
#   1. A header includes headers of its own folder, but not in a circle, and of folders above it in the list below.
#   2. What stands in `private` is included by its own folders and by `doors` that name it: the user chooses what to bring.
#   3. The core includes nothing but itself and the standard library. CUDA's own headers are for cuda/, what others ship for
#      ext/.
#   4. A door includes every header of the folders that it opens.
cmake_minimum_required(VERSION 3.22)

# Folders, and the doors that stand in the open. A folder's name ends with "/".
set(order
    core/ detail/kernel/ sampling/ concepts.hpp traits.hpp head/ confidence/ cost/ schedule/ verify/
    drafter/
    cuda/core/ cuda/sampling/ cuda/head/ cuda/confidence/ cuda/cost/ cuda/verify/ cuda/schedule/ cuda/drafter/ cuda/tree/
    cuda/round/ cuda.cuh
    fit/ training/ training.hpp round/ decoder.hpp verifier.hpp sureleap.hpp ranks/ serving/ serving.hpp c/ sureleap.h
    ext/llama/ ext/llama/c/ sureleap_llama.h ext/ testing/)
set(private cuda/ training/ ranks/ c/ ext/ testing/)
set(doors sureleap.hpp serving.hpp training.hpp cuda.cuh sureleap.h sureleap_llama.h)
set(opened_by_training.hpp "^(fit|training)/")
set(opened_by_serving.hpp "^serving/")
set(opened_by_cuda.cuh "^cuda/")
# Declarations, and the functions that bring the rest.
set(opened_by_sureleap.h "^c/([a-z_]+[.]h|functions[.]inl)$")
set(opened_by_sureleap_llama.h "^ext/llama/c/([a-z_]+[.]h|functions[.]inl)$|^sureleap[.]h$")
set(opened_by_sureleap.hpp
    "^(core|sampling|head|confidence|cost|schedule|verify|drafter|round)/|^(concepts|traits|decoder|verifier)[.]hpp$")

set(errors 0)
macro(complain)
    string(CONCAT text ${ARGN})
    message(SEND_ERROR "${text}")
    math(EXPR errors "${errors} + 1")
endmacro()

# The folder of a header with all folders above it, or the header itself at the top.
function(place_of header result)
    string(REGEX REPLACE "[^/]+$" "" folder ${header})
    if(folder STREQUAL "")
        set(folder ${header})
    endif()
    set(${result} ${folder} PARENT_SCOPE)
endfunction()

# The entry of `private` that a header lies in, or nothing.
function(private_of header result)
    set(${result} "" PARENT_SCOPE)
    foreach(folder IN LISTS private)
        string(FIND ${header} ${folder} at)
        if(at EQUAL 0)
            set(${result} ${folder} PARENT_SCOPE)
        endif()
    endforeach()
endfunction()

file(GLOB_RECURSE headers RELATIVE ${INCLUDE_DIR}/sureleap ${INCLUDE_DIR}/sureleap/*.hpp ${INCLUDE_DIR}/sureleap/*.cuh
     ${INCLUDE_DIR}/sureleap/*.h ${INCLUDE_DIR}/sureleap/c/*.inl ${INCLUDE_DIR}/sureleap/ext/*.inl)
list(LENGTH headers count)
if(count EQUAL 0)
    message(FATAL_ERROR "no header under ${INCLUDE_DIR}/sureleap")
endif()

foreach(header IN LISTS headers)
    place_of(${header} place)
    private_of(${header} privacy)
    list(FIND order ${place} rank)
    if(rank EQUAL -1)
        complain("${header}: no folder of tests/layers.cmake; put it into the stage that it belongs to")
        continue()
    endif()
    if(header MATCHES "^cuda[/.]" AND NOT header MATCHES "[.]cuh$" OR NOT header MATCHES "^cuda[/.]" AND header MATCHES "[.]cuh$")
        complain("${header}: device code, and nothing else, lies in cuda/ and is named .cuh")
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
            if(place STREQUAL "detail/kernel/" AND included MATCHES "^(immintrin|arm_neon)[.]h$")
                continue()
            endif()
            if(place STREQUAL "c/" AND header MATCHES "[.]h$" AND included MATCHES "^std(def|int)[.]h$")
                continue()  # C99
            endif()
            if(place MATCHES "^cuda/" AND included MATCHES "^cuda_(runtime|pipeline)[.]h$|^cub/")
                continue()
            endif()
            if(NOT place MATCHES "^ext/" AND included MATCHES "[/.]")
                complain("${header} includes <${included}>: the core depends on the standard library only; use ext/")
            endif()
            continue()
        endif()
        set(included ${CMAKE_MATCH_1})
        list(APPEND includes_${header} ${included})
        if(NOT EXISTS ${INCLUDE_DIR}/sureleap/${included})
            complain("${header} includes ${included}, which does not exist")
            continue()
        endif()

        place_of(${included} included_place)
        private_of(${included} included_privacy)
        list(FIND order ${included_place} included_rank)
        set(opened FALSE)
        if(header IN_LIST doors AND included MATCHES "${opened_by_${header}}")
            set(opened TRUE)
        elseif(place STREQUAL "ext/llama/c/" AND included_place STREQUAL "c/")
            set(opened TRUE)  # whoever brings the one brings the other
        endif()
        if(included_rank EQUAL -1)
            complain("${header} includes ${included}, which belongs to no folder")
        elseif(included_privacy AND NOT included_privacy STREQUAL privacy AND NOT opened)
            complain("${header} includes ${included}: nothing includes ${included_privacy}, the user chooses what to bring")
        elseif(included IN_LIST doors AND NOT opened)
            complain("${header} includes ${included}: doors are for users")
        elseif(included_rank GREATER rank)
            complain("${header} includes ${included}: ${included_place} comes after ${place}")
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

foreach(door IN LISTS doors)
    if(NOT door IN_LIST headers)
        complain("there is no ${door}")
        continue()
    endif()
    foreach(header IN LISTS headers)
        if(header MATCHES "${opened_by_${door}}" AND NOT header IN_LIST includes_${door})
            complain("${door} does not include ${header}")
        endif()
    endforeach()
endforeach()

# What a sketch of the house would show: rooms, floors, arrows between rooms.
set(rooms)
set(arrows)
foreach(header IN LISTS headers)
    place_of(${header} place)
    list(APPEND rooms ${place})
    foreach(included IN LISTS includes_${header})
        place_of(${included} included_place)
        if(NOT included_place STREQUAL place AND NOT header IN_LIST doors)
            list(APPEND arrows "${place} ${included_place}")
        endif()
    endforeach()
endforeach()
list(REMOVE_DUPLICATES rooms)
list(REMOVE_DUPLICATES arrows)
list(LENGTH rooms rooms)
list(LENGTH arrows arrows)
message(STATUS "${count} headers in ${rooms} rooms with ${arrows} arrows between them, ${errors} errors")
