# SPDX-License-Identifier: MIT
#
# What only developers of sureleap need: the target sureleap_dev, which our tests, examples and benchmarks link and
# users never see, and helpers that look at sources.

if(PROJECT_IS_TOP_LEVEL)
    if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
        set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
    endif()
    find_program(SURELEAP_CCACHE ccache)
    mark_as_advanced(SURELEAP_CCACHE)
    if(SURELEAP_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
        # Without these two it would not keep what was compiled with precompiled headers.
        set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${SURELEAP_CCACHE})
    endif()
endif()
set(CMAKE_CXX_EXTENSIONS OFF)

add_library(sureleap_dev INTERFACE)
target_compile_options(
    sureleap_dev INTERFACE $<$<CXX_COMPILER_ID:GNU,Clang,AppleClang>:-Wall;-Wextra;-Wpedantic;-Wconversion;-Wsign-conversion;-Wshadow;-Werror>)
# GCC 12 at -O3 takes `text += "," + indent` for a copy that overlaps itself (GCC bug 105329).
target_compile_options(
    sureleap_dev INTERFACE $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
# Some lend threads to the library, which makes none.
find_package(Threads QUIET)
if(TARGET Threads::Threads)
    target_link_libraries(sureleap_dev INTERFACE Threads::Threads)
endif()

set(SURELEAP_TEST_PREFIX "" CACHE STRING "Put before every test name, to tell builds apart in one summary")
mark_as_advanced(SURELEAP_TEST_PREFIX)

# The targets a test or example may use, whatever was found. Not among them: cuda, which is for files of another
# language, and llama, mpi and nccl, whose libraries only those programs should load that need them.
set(SURELEAP_TARGETS sureleap::sureleap)
foreach(component IN LISTS SURELEAP_COMPONENTS)
    if(NOT component MATCHES "^(cuda|llama|mpi|nccl)$")
        list(APPEND SURELEAP_TARGETS sureleap::${component})
    endif()
endforeach()

# Most programs here have what all of them share compiled once.
set(SURELEAP_COMPILED_TARGETS ${SURELEAP_TARGETS} sureleap::compiled)

# sureleap_closure(<result> <file>)
#
# The file and what it includes of tests/support/ and sureleap/ext/, found by reading the text.
function(sureleap_closure result file)
    set(queue ${file})
    set(seen)
    while(queue)
        list(POP_FRONT queue current)
        if(current IN_LIST seen OR NOT EXISTS ${current})
            continue()
        endif()
        list(APPEND seen ${current})
        file(READ ${current} text)
        string(REGEX MATCHALL "# *include *(\"support/[a-z0-9_/]+[.]hpp\"|<sureleap/ext/[a-z0-9_/]+[.]hpp>)" includes
                              "${text}")
        foreach(include IN LISTS includes)
            string(REGEX REPLACE "^.*[\"<](.*)[\">]$" "\\1" include "${include}")
            list(APPEND queue ${PROJECT_SOURCE_DIR}/tests/${include} ${PROJECT_SOURCE_DIR}/include/${include})
        endforeach()
    endwhile()
    set(${result} "${seen}" PARENT_SCOPE)
endfunction()

# sureleap_missing_components(<result> <file>)
#
# The components that the file needs and this build does not have. A test that asks __has_include(<the dependency>)
# can do without it.
function(sureleap_missing_components result file)
    file(READ ${file} own_text)
    sureleap_closure(files ${file})
    set(missing)
    foreach(pair IN ITEMS "eigen Eigen/" "xsimd xsimd/" "json nlohmann/" "llama llama[.]h>" "mpi mpi[.]h>"
            "nccl nccl[.]h>" "llama-ext.h llama-ext[.]h>")
        string(REPLACE " " ";" pair ${pair})
        list(POP_FRONT pair component prefix)
        if(component IN_LIST SURELEAP_COMPONENTS OR own_text MATCHES "#if __has_include\\(<${prefix}")
            continue()
        endif()
        foreach(current IN LISTS files)
            file(READ ${current} text)
            if(text MATCHES "# *include *<${prefix}")
                list(APPEND missing ${component})
                break()
            endif()
        endforeach()
    endforeach()
    set(${result} "${missing}" PARENT_SCOPE)
endfunction()
