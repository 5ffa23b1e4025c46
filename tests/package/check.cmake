# SPDX-License-Identifier: MIT
#
# Somebody else's project gets sureleap in one of the ways of docs/install.md, is built and run:
#   cmake -D HOW=<way> -D COMPONENTS=<a,b> -D SOURCE_DIR=<checkout> -D BUILD_DIR=<its build> -D VERSION=<version>
#         -D SCRATCH=<dir> -D GENERATOR=<generator> -D COMPILER=<c++> [-D NVCC=<nvcc>] [-D LLAMA_DIR=<dir>]
#         [-D "MPIEXEC=<mpiexec -n 2>"] -P check.cmake
# The project is copied out of the checkout, and so is what it is given: nothing finds anything by lying beside it.
cmake_minimum_required(VERSION 3.22)

string(REPLACE "," ";" components "${COMPONENTS}")
set(consumer ${SCRATCH}/consumer)
set(given ${SCRATCH}/given)
set(warnings -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror)

file(REMOVE_RECURSE ${SCRATCH})
file(COPY ${CMAKE_CURRENT_LIST_DIR}/consumer ${SOURCE_DIR}/examples/first.cpp DESTINATION ${SCRATCH})
file(RENAME ${SCRATCH}/first.cpp ${consumer}/first.cpp)

function(run)
    execute_process(COMMAND ${ARGN} WORKING_DIRECTORY ${consumer} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# What a release holds of the checkout for those who build from sources.
function(copy_sources to)
    file(COPY ${SOURCE_DIR}/CMakeLists.txt ${SOURCE_DIR}/LICENSE ${SOURCE_DIR}/cmake ${SOURCE_DIR}/include DESTINATION ${to})
endfunction()

# check_files(<places that the tree must not remember>...)
function(check_files)
    list(JOIN ARGN "|" forgotten)
    run(${CMAKE_COMMAND} -D TREE=${given} -D SOURCE_DIR=${SOURCE_DIR} -D FORGOTTEN=${forgotten} -P
        ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/files.cmake)
endfunction()

function(install_and_move)
    run(${CMAKE_COMMAND} -E env --unset=DESTDIR ${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${SCRATCH}/elsewhere)
    file(RENAME ${SCRATCH}/elsewhere ${given})
    check_files(${BUILD_DIR} ${SCRATCH}/elsewhere)
endfunction()

function(configure result output)
    execute_process(
        COMMAND ${CMAKE_COMMAND} -S ${consumer} -B ${SCRATCH}/build -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER} -D
                CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF -D HOW=${HOW} ${ARGN}
        RESULT_VARIABLE status OUTPUT_VARIABLE text ERROR_VARIABLE text)
    set(${result} ${status} PARENT_SCOPE)
    set(${output} "${text}" PARENT_SCOPE)
endfunction()

# What the package must refuse, with a reason.
if(HOW STREQUAL "refusals")
    function(refuses pattern version)
        file(REMOVE_RECURSE ${SCRATCH}/build)
        configure(status text -D CMAKE_PREFIX_PATH=${given} -D SURELEAP_VERSION=${version} ${ARGN})
        string(REGEX REPLACE "[ \n]+" " " text "${text}")
        if(status EQUAL 0 OR NOT text MATCHES "${pattern}")
            message(FATAL_ERROR "${ARGN}: expected a refusal that matches \"${pattern}\", got:\n${text}")
        endif()
    endfunction()
    install_and_move()
    string(REGEX REPLACE "^([0-9]+)[.]([0-9]+)[.].*$" "\\1;\\2" parts ${VERSION})
    list(POP_FRONT parts major minor)
    math(EXPR next "${minor} + 1")
    math(EXPR last "${minor} - 1")
    refuses("version: ${VERSION}" ${major}.${next})
    refuses("version: ${VERSION}" ${major}.${last})
    refuses("no component \"telepathy\"" ${VERSION} -D COMPONENTS=telepathy)
    refuses("component eigen: Eigen3 >= 3.4 was not found" ${VERSION} -D COMPONENTS=eigen
            -D CMAKE_DISABLE_FIND_PACKAGE_Eigen3=ON)
    refuses("component llama: llama >= 0.5 was not found" ${VERSION} -D COMPONENTS=llama
            -D CMAKE_DISABLE_FIND_PACKAGE_llama=ON)
    refuses("component cuda: CUDAToolkit >= 12.0 was not found" ${VERSION} -D COMPONENTS=cuda
            -D CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
    refuses("component mpi: MPI >= 3.0 was not found" ${VERSION} -D COMPONENTS=mpi
            -D CMAKE_DISABLE_FIND_PACKAGE_MPI=ON)
    refuses("component nccl: CUDAToolkit was not found" ${VERSION} -D COMPONENTS=nccl
            -D CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
    return()
endif()

# Without CMake, in a line: headers are not system headers here.
if(HOW STREQUAL "pkg_config" OR HOW STREQUAL "include_path" OR HOW STREQUAL "single_header")
    function(compile_and_run program)
        run(${COMPILER} -std=c++20 -O0 ${warnings} ${program}.cpp -o ${program} ${ARGN})
        run(${consumer}/${program} ${components})
    endfunction()
    set(definitions ${components})
    list(TRANSFORM definitions PREPEND -DWITH_)
    string(REPLACE "|" ";" dependencies "${DEPENDENCY_DIRS}")  # theirs are: Eigen is not silent under these warnings
    list(TRANSFORM dependencies PREPEND -isystem)
endif()

if(HOW STREQUAL "pkg_config")
    install_and_move()
    set(ENV{PKG_CONFIG_PATH} ${given}/share/pkgconfig)
    execute_process(COMMAND ${PKG_CONFIG} --cflags "sureleap = ${VERSION}" OUTPUT_VARIABLE flags COMMAND_ERROR_IS_FATAL ANY)
    separate_arguments(flags UNIX_COMMAND "${flags}")
    compile_and_run(first ${flags})
    compile_and_run(version ${flags} -DEXPECTED_VERSION=\"${VERSION}\")
    if(components)
        compile_and_run(components ${flags} ${definitions} ${dependencies})
    endif()
    return()
elseif(HOW STREQUAL "include_path")
    file(COPY ${SOURCE_DIR}/include DESTINATION ${given})
    set(flags -I${given}/include)
    # As C++17 each door gives one error; as C++20 none.
    set(ENV{LC_ALL} C)
    set(doors "")
    foreach(door IN ITEMS sureleap serving training)
        set(line "#include <sureleap/${door}.hpp>\n")
        string(APPEND doors ${line})
        file(WRITE ${consumer}/door.cpp ${line})
        execute_process(COMMAND ${COMPILER} -std=c++17 ${flags} -fsyntax-only door.cpp WORKING_DIRECTORY ${consumer}
                        RESULT_VARIABLE status ERROR_VARIABLE text)
        string(REGEX MATCHALL "error:[^\n]*" errors "${text}")
        if(status EQUAL 0 OR NOT errors MATCHES "^[^;]*sureleap needs C[+][+]20: compile with -std=c[+][+]20[^;]*$")
            message(FATAL_ERROR "${door}.hpp as C++17: expected the one error \"sureleap needs C++20...\", got:\n${text}")
        endif()
    endforeach()
    file(WRITE ${consumer}/doors.cpp ${doors})
    run(${COMPILER} -std=c++20 ${warnings} ${flags} -fsyntax-only doors.cpp)
    compile_and_run(first ${flags})
    compile_and_run(first ${flags} -DSURELEAP_COMPILED=1 ${given}/include/sureleap/compiled/all.cpp)
    if(components)
        compile_and_run(components ${flags} ${definitions} ${dependencies})
    endif()
    return()
endif()

# One header, made in the place of the folder that it stands for: the same program, the same tokens.
if(HOW STREQUAL "single_header")
    function(tokens_of result)
        compile_and_run(first ${ARGN})
        execute_process(COMMAND ${consumer}/first OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
        set(${result} "${text}" PARENT_SCOPE)
    endfunction()
    run(${PYTHON} ${SOURCE_DIR}/cmake/single_header.py ${given}/sureleap/sureleap.hpp)
    tokens_of(single -I${given})
    tokens_of(many -I${SOURCE_DIR}/include)
    if(NOT single STREQUAL many)
        message(FATAL_ERROR "the single header gives\n${single}\nthe headers give\n${many}")
    endif()
    # Every door stands in it.
    file(WRITE ${consumer}/doors.cpp "#include <sureleap/sureleap.hpp>\n"
         "auto const serving = sizeof(sureleap::serving_metrics);\nauto const training = sizeof(sureleap::loss_settings);\n")
    run(${COMPILER} -std=c++20 ${warnings} -I${given} -fsyntax-only doors.cpp)
    return()
endif()

set(settings -D SURELEAP_VERSION=${VERSION} -D COMPONENTS=${COMPONENTS})
if(HOW STREQUAL "find_package")
    install_and_move()
    list(APPEND settings -D CMAKE_PREFIX_PATH=${given})
elseif(HOW STREQUAL "debian")
    copy_sources(${SCRATCH}/sources)
    run(${CMAKE_COMMAND} -S ${SCRATCH}/sources -B ${SCRATCH}/sources/build -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER}
        -D SURELEAP_BUILD_TESTS=OFF -D SURELEAP_BUILD_EXAMPLES=OFF -D SURELEAP_BUILD_BENCH=OFF)
    run(${CPACK} -G DEB --config ${SCRATCH}/sources/build/CPackConfig.cmake -B ${SCRATCH}/made)
    run(${DPKG_DEB} --extract ${SCRATCH}/made/libsureleap-dev_${VERSION}_all.deb ${SCRATCH}/root)
    file(GLOB prefix ${SCRATCH}/root/*)  # where the package installs
    file(RENAME ${prefix} ${given})
    check_files(${SCRATCH}/sources ${SCRATCH}/made)
    list(APPEND settings -D CMAKE_PREFIX_PATH=${given})
elseif(HOW STREQUAL "vcpkg")
    foreach(features IN ITEMS "" "${COMPONENTS}")  # a dependency can be switched on, and off
        file(REMOVE_RECURSE ${given} ${SCRATCH}/buildtrees)
        run(${CMAKE_COMMAND} -D PORT_DIR=${SOURCE_DIR}/cmake/vcpkg/sureleap -D PACKAGES=${given} -D
            BUILDTREES=${SCRATCH}/buildtrees -D FEATURES=${features} -D GENERATOR=${GENERATOR} -D COMPILER=${COMPILER} -P
            ${CMAKE_CURRENT_LIST_DIR}/vcpkg.cmake)
        check_files(${SCRATCH}/buildtrees)
    endforeach()
    list(APPEND settings -D CMAKE_PREFIX_PATH=${given})
elseif(HOW STREQUAL "add_subdirectory")
    copy_sources(${consumer}/third_party/sureleap)
elseif(HOW STREQUAL "fetch_content")
    copy_sources(${SCRATCH}/sureleap-${VERSION})
    execute_process(COMMAND ${CMAKE_COMMAND} -E tar czf ${consumer}/sureleap-${VERSION}.tar.gz sureleap-${VERSION}
                    WORKING_DIRECTORY ${SCRATCH} COMMAND_ERROR_IS_FATAL ANY)
elseif(HOW STREQUAL "cpm")
    # Both variables that name sources are tried, and one build made.
    copy_sources(${given})
    configure(status text ${settings} -D FETCHCONTENT_SOURCE_DIR_SURELEAP=${given})
    if(NOT status EQUAL 0)
        message(FATAL_ERROR "does not configure with FETCHCONTENT_SOURCE_DIR_SURELEAP:\n${text}")
    endif()
    file(REMOVE_RECURSE ${SCRATCH}/build)
    list(APPEND settings -D CPM_sureleap_SOURCE=${given})
else()
    message(FATAL_ERROR "HOW is \"${HOW}\"")
endif()
if("cuda" IN_LIST components)
    # Which sureleap does not look for unless asked to.
    list(APPEND settings -D SURELEAP_WITH_CUDA=ON -D CMAKE_CUDA_COMPILER=${NVCC} -D CMAKE_CUDA_ARCHITECTURES=90)
endif()

foreach(component IN ITEMS mpi nccl)  # the same
    if(component IN_LIST components)
        string(TOUPPER ${component} option)
        list(APPEND settings -D SURELEAP_WITH_${option}=ON)
    endif()
endforeach()
if("llama" IN_LIST components)
    list(APPEND settings -D llama_DIR=${LLAMA_DIR})
endif()

configure(status text ${settings})
if(NOT status EQUAL 0)
    message(FATAL_ERROR "does not configure:\n${text}")
endif()
run(${CMAKE_COMMAND} --build ${SCRATCH}/build)
set(programs first version)
if(HOW STREQUAL "find_package")
    list(APPEND programs first_compiled)
endif()
if(components AND NOT "cuda" IN_LIST components)
    list(APPEND programs components)
endif()
set(start)
if("mpi" IN_LIST components)  # more processes than there may be cores, and in containers as root
    separate_arguments(start UNIX_COMMAND "${MPIEXEC}")
    set(ENV{OMPI_MCA_rmaps_base_oversubscribe} 1)
    set(ENV{OMPI_ALLOW_RUN_AS_ROOT} 1)
    set(ENV{OMPI_ALLOW_RUN_AS_ROOT_CONFIRM} 1)
endif()
foreach(program IN LISTS programs)
    run(${start} ${SCRATCH}/build/${program} ${components})
endforeach()
