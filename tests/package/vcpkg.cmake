# SPDX-License-Identifier: MIT
#
# Runs cmake/vcpkg/sureleap/portfile.cmake as vcpkg would, with stand-ins for the functions of vcpkg that it calls. They do
# what vcpkg documents of them, for a release build, and refuse arguments that the real ones do not have. So the port is
# tested where vcpkg cannot be had; what they cannot show is vcpkg's own lint of the package.
#   cmake -D PORT_DIR=<folder of the port> -D PACKAGES=<dir> -D BUILDTREES=<dir> -D FEATURES=<a,b> -D GENERATOR=<generator>
#         -D COMPILER=<c++> -P vcpkg.cmake
cmake_minimum_required(VERSION 3.22)

string(REPLACE "," ";" FEATURES "core,${FEATURES}")
set(CURRENT_PACKAGES_DIR ${PACKAGES})
file(READ ${PORT_DIR}/vcpkg.json manifest)
string(JSON PORT GET "${manifest}" name)

# The port asks for no feature that its manifest lacks, and a feature for each dependency that can be switched.
function(vcpkg_check_features)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "OUT_FEATURE_OPTIONS" "FEATURES")
    sureleap_refuse_more(vcpkg_check_features)
    set(options)
    set(names)
    while(arg_FEATURES)
        list(POP_FRONT arg_FEATURES feature option)
        string(JSON known GET "${manifest}" features ${feature})
        list(APPEND names ${feature})
        if(feature IN_LIST FEATURES)
            list(APPEND options -D${option}=ON)
        else()
            list(APPEND options -D${option}=OFF)
        endif()
    endwhile()
    string(JSON count LENGTH "${manifest}" features)
    list(LENGTH names asked)
    if(NOT asked EQUAL count)
        message(FATAL_ERROR "the manifest has ${count} features, the portfile asks for ${asked}: ${names}")
    endif()
    set(${arg_OUT_FEATURE_OPTIONS} ${options} PARENT_SCOPE)
endfunction()

macro(sureleap_refuse_more function)
    if(DEFINED arg_UNPARSED_ARGUMENTS)
        message(FATAL_ERROR "${function} has no argument ${arg_UNPARSED_ARGUMENTS}")
    endif()
endmacro()

function(sureleap_require_host_port name)
    if(NOT manifest MATCHES "\"name\": \"${name}\", \"host\": true")
        message(FATAL_ERROR "vcpkg.json does not depend on the host port ${name}, whose function is called")
    endif()
endfunction()

function(vcpkg_cmake_configure)
    sureleap_require_host_port(vcpkg-cmake)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "SOURCE_PATH" "OPTIONS")
    sureleap_refuse_more(vcpkg_cmake_configure)
    if(NOT VCPKG_BUILD_TYPE STREQUAL "release")
        message(FATAL_ERROR "headers are built once: VCPKG_BUILD_TYPE is \"${VCPKG_BUILD_TYPE}\", expected release")
    endif()
    execute_process(
        COMMAND ${CMAKE_COMMAND} -S ${arg_SOURCE_PATH} -B ${BUILDTREES} -G ${GENERATOR} -D CMAKE_CXX_COMPILER=${COMPILER}
                -D CMAKE_BUILD_TYPE=Release -D CMAKE_INSTALL_PREFIX=${CURRENT_PACKAGES_DIR} ${arg_OPTIONS}
        OUTPUT_VARIABLE text ERROR_VARIABLE text RESULT_VARIABLE result)
    if(NOT result EQUAL 0)
        message(FATAL_ERROR "does not configure:\n${text}")
    endif()
    if(text MATCHES "Manually-specified variables were not used[^\n]*\n([^-]*)")
        message(FATAL_ERROR "the port sets what the project does not know:\n${CMAKE_MATCH_1}")
    endif()
endfunction()

function(vcpkg_cmake_install)
    execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILDTREES} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# Moves the scripts to share/<port>, where they stand one folder less deep, and says so in them.
function(vcpkg_cmake_config_fixup)
    sureleap_require_host_port(vcpkg-cmake-config)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "CONFIG_PATH" "")
    sureleap_refuse_more(vcpkg_cmake_config_fixup)
    if(NOT arg_CONFIG_PATH MATCHES "^share/cmake/[^/]+$")
        message(FATAL_ERROR "this stand-in moves from share/cmake/<name>, not from ${arg_CONFIG_PATH}")
    endif()
    file(RENAME ${CURRENT_PACKAGES_DIR}/${arg_CONFIG_PATH} ${CURRENT_PACKAGES_DIR}/share/${PORT})
    file(REMOVE_RECURSE ${CURRENT_PACKAGES_DIR}/share/cmake)
    file(GLOB scripts ${CURRENT_PACKAGES_DIR}/share/${PORT}/*.cmake)
    set(up "get_filename_component(_IMPORT_PREFIX \"\${_IMPORT_PREFIX}\" PATH)\n")
    foreach(script IN LISTS scripts)
        file(READ ${script} text)
        string(REPLACE "${up}${up}${up}" "${up}${up}" text "${text}")
        string(REPLACE "{CMAKE_CURRENT_LIST_DIR}/../../../\"" "{CMAKE_CURRENT_LIST_DIR}/../../\"" text "${text}")
        file(WRITE ${script} "${text}")
    endforeach()
endfunction()

function(vcpkg_fixup_pkgconfig)
    file(GLOB_RECURSE found RELATIVE ${CURRENT_PACKAGES_DIR} ${CURRENT_PACKAGES_DIR}/*.pc)
    if(NOT found STREQUAL "share/pkgconfig/${PORT}.pc")  # where vcpkg lets those of headers lie
        message(FATAL_ERROR "files for pkg-config: \"${found}\", expected share/pkgconfig/${PORT}.pc")
    endif()
endfunction()

function(vcpkg_install_copyright)
    cmake_parse_arguments(PARSE_ARGV 0 arg "" "" "FILE_LIST")
    sureleap_refuse_more(vcpkg_install_copyright)
    file(COPY_FILE ${arg_FILE_LIST} ${CURRENT_PACKAGES_DIR}/share/${PORT}/copyright)
endfunction()

include(${PORT_DIR}/portfile.cmake)

# Without a file "usage" vcpkg tells users to link the targets whose names it reads in the scripts.
file(GLOB scripts ${CURRENT_PACKAGES_DIR}/share/${PORT}/*.cmake)
set(targets)
foreach(script IN LISTS scripts)
    file(READ ${script} text)
    string(REGEX MATCHALL "add_library\\([^ $)]+ " calls "${text}")
    list(APPEND targets ${calls})
endforeach()
if(NOT targets STREQUAL "add_library(sureleap::sureleap ")
    message(FATAL_ERROR "vcpkg would tell users to link what stands in \"${targets}\", expected sureleap::sureleap alone")
endif()
