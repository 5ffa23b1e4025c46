# SPDX-License-Identifier: MIT
#
# Configures, builds and runs the project in consumer/ with sureleap from this checkout:
#   cmake -D HOW=<way> -D COMPONENTS=<a,b> -D SOURCE_DIR=<checkout> -D BUILD_DIR=<its build> -D VERSION=<version>
#         -D SCRATCH=<dir> -D GENERATOR=<generator> -D COMPILER=<c++> [-D NVCC=<nvcc>] -P check.cmake
cmake_minimum_required(VERSION 3.22)

file(REMOVE_RECURSE ${SCRATCH})
set(prefix ${SCRATCH}/prefix)

if(HOW STREQUAL "find_package" OR HOW STREQUAL "refusals")
    execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${SCRATCH}/elsewhere OUTPUT_QUIET
                    COMMAND_ERROR_IS_FATAL ANY)
    # Packages are moved: nothing in it may remember where it was installed.
    file(RENAME ${SCRATCH}/elsewhere ${prefix})
    foreach(file IN ITEMS include/sureleap/core/config.hpp include/sureleap/ext/eigen.hpp share/doc/sureleap/LICENSE)
        if(NOT EXISTS ${prefix}/${file})
            message(FATAL_ERROR "not installed: ${file}")
        endif()
    endforeach()
    file(GLOB_RECURSE scripts ${prefix}/*.cmake)
    foreach(script IN LISTS scripts)
        file(READ ${script} text)
        foreach(place IN ITEMS ${SCRATCH} ${SOURCE_DIR} ${BUILD_DIR})
            string(FIND "${text}" "${place}" where)
            if(NOT where EQUAL -1)
                message(FATAL_ERROR "${script} remembers ${place}")
            endif()
        endforeach()
    endforeach()
endif()

string(REPLACE "," ";" components "${COMPONENTS}")
function(configure name result output)
    execute_process(
        COMMAND ${CMAKE_COMMAND} -S ${CMAKE_CURRENT_LIST_DIR}/consumer -B ${SCRATCH}/${name} -G ${GENERATOR}
                -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_BUILD_TYPE=Debug -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -D
                CMAKE_PREFIX_PATH=${prefix} -D SURELEAP_SOURCE=${SOURCE_DIR} ${ARGN}
        RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
    set(${result} ${status} PARENT_SCOPE)
    set(${output} "${text}" PARENT_SCOPE)
endfunction()

# What the package must refuse, with a reason.
if(HOW STREQUAL "refusals")
    function(refuses name pattern)
        configure(${name} status text -D HOW=find_package ${ARGN})
        string(REGEX REPLACE "[ \n]+" " " text "${text}")
        if(status EQUAL 0 OR NOT text MATCHES "${pattern}")
            message(FATAL_ERROR "${name}: expected a refusal that matches \"${pattern}\", got:\n${text}")
        endif()
    endfunction()
    string(REGEX REPLACE "^([0-9]+)[.]([0-9]+)[.].*$" "\\1;\\2" parts ${VERSION})
    list(POP_FRONT parts major minor)
    math(EXPR next "${minor} + 1")
    refuses(next_minor "version: ${VERSION}" -D EXPECTED_VERSION=${major}.${next})
    refuses(unknown_component "no component \"telepathy\"" -D EXPECTED_VERSION=${VERSION} -D COMPONENTS=telepathy)
    refuses(no_eigen "component eigen: Eigen3 >= 3.4 was not found" -D EXPECTED_VERSION=${VERSION} -D COMPONENTS=eigen
            -D CMAKE_DISABLE_FIND_PACKAGE_Eigen3=ON)
    refuses(no_cuda "component cuda: CUDAToolkit >= 12.0 was not found" -D EXPECTED_VERSION=${VERSION} -D COMPONENTS=cuda
            -D CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
    return()
endif()

set(for_cuda)
if("cuda" IN_LIST components)
    # Which sureleap does not look for unless asked to.
    set(for_cuda -D SURELEAP_WITH_CUDA=ON -D CMAKE_CUDA_COMPILER=${NVCC} -D CMAKE_CUDA_ARCHITECTURES=90)
endif()
configure(build status text -D HOW=${HOW} -D EXPECTED_VERSION=${VERSION} "-DCOMPONENTS=${components}" ${for_cuda})
if(NOT status EQUAL 0)
    message(FATAL_ERROR "does not configure:\n${text}")
endif()
execute_process(COMMAND ${CMAKE_COMMAND} --build ${SCRATCH}/build COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${SCRATCH}/build/consumer COMMAND_ERROR_IS_FATAL ANY)
