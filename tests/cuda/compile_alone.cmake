# SPDX-License-Identifier: MIT
#
# Every header of cuda/ compiles alone, and included twice:
#   cmake -D COMPILER=... -D INCLUDE_DIR=<dir that holds sureleap/> -D EMULATOR=<tests/cuda/emulator> -D SCRATCH=<dir>
#         -P compile_alone.cmake
cmake_minimum_required(VERSION 3.22)

file(GLOB_RECURSE headers RELATIVE ${INCLUDE_DIR} ${INCLUDE_DIR}/sureleap/cuda/*.cuh)
list(LENGTH headers count)
if(count EQUAL 0)
    message(FATAL_ERROR "no header under ${INCLUDE_DIR}/sureleap/cuda")
endif()
foreach(header IN LISTS headers)
    file(WRITE ${SCRATCH}/alone.cpp "#include <${header}>\n#include <${header}>\n")
    execute_process(COMMAND ${COMPILER} -std=c++20 -fsyntax-only -Wall -Wextra -Wno-unknown-pragmas -Werror
                            -DSURELEAP_CUDA_EMULATED -I ${EMULATOR} -I ${INCLUDE_DIR} ${SCRATCH}/alone.cpp
                    RESULT_VARIABLE result ERROR_VARIABLE errors)
    if(NOT result EQUAL 0)
        message(SEND_ERROR "${header} does not compile alone:\n${errors}")
    endif()
endforeach()
message(STATUS "${count} headers")
