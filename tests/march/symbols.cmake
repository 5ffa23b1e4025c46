# SPDX-License-Identifier: MIT
#
# Two objects, one source, compiled for different machines, may share no inline function of the library:
#   cmake -D NM=<nm> "-D OBJECTS=<object>|<object>" -P symbols.cmake
# Weak symbols are what the linker keeps one copy of. Those with the library's namespace in their (mangled) name must be many
# in each object, and none of them in both.
cmake_minimum_required(VERSION 3.22)

function(weak_symbols object result)
    execute_process(COMMAND ${NM} --defined-only ${object} OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
    string(REGEX MATCHALL "[ ][VWu] [^\n]*8sureleap[^\n]*" lines "${listing}")
    list(TRANSFORM lines REPLACE "^ [VWu] " "")
    list(LENGTH lines count)
    message(STATUS "${object}: ${count} weak symbols of the library")
    if(count LESS 100)
        message(FATAL_ERROR "too few weak symbols to mean anything: is this the right object?")
    endif()
    set(${result} ${lines} PARENT_SCOPE)
endfunction()

string(REPLACE "|" ";" objects "${OBJECTS}")
list(GET objects 0 first)
list(GET objects 1 second)
weak_symbols(${first} one)
weak_symbols(${second} other)
set(shared)
foreach(symbol IN LISTS one)
    if(symbol IN_LIST other)
        list(APPEND shared ${symbol})
    endif()
endforeach()
list(LENGTH shared count)
if(count GREATER 0)
    list(JOIN shared "\n  " shared)
    message(FATAL_ERROR "${count} inline functions of the library have one name in both objects:\n  ${shared}")
endif()
