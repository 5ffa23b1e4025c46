# SPDX-License-Identifier: MIT
#
# Every header compiles alone, with warnings as errors, and with no more dependencies than its target gives:
#   cmake --build <dir> --target all_verify_interface_header_sets
# Needs CMake 3.24; older ones go without this check.

file(GLOB_RECURSE core_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/sureleap/*.hpp)
file(GLOB_RECURSE ext_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/sureleap/ext/*.hpp)
list(REMOVE_ITEM core_headers ${ext_headers})
list(FILTER core_headers EXCLUDE REGEX "/sureleap/cuda/")

function(sureleap_verify_headers name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;LINK")
    add_library(sureleap_headers_${name} INTERFACE)
    target_sources(sureleap_headers_${name} INTERFACE FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/include
                                                      FILES ${arg_HEADERS})
    target_link_libraries(sureleap_headers_${name} INTERFACE sureleap_dev ${arg_LINK})
    set_target_properties(sureleap_headers_${name} PROPERTIES VERIFY_INTERFACE_HEADER_SETS ON)
endfunction()

if(CMAKE_VERSION VERSION_GREATER_EQUAL 3.24)
    # The core sees the standard library only: an include of a third-party header that is not on the default path fails.
    sureleap_verify_headers(core HEADERS ${core_headers} LINK sureleap::sureleap)
    foreach(header IN LISTS ext_headers)
        sureleap_missing_components(missing ${header})
        if(missing)
            message(STATUS "${header} is not checked: no ${missing}")
        else()
            # A header named like a component, or in a folder of that name, gets that component alone.
            string(REGEX REPLACE "^.*/sureleap/ext/(.*)[.]hpp$" "\\1" stem ${header})
            string(REGEX REPLACE "/.*$" "" component ${stem})
            string(REPLACE "/" "_" stem ${stem})
            if(TARGET sureleap::${component})
                sureleap_verify_headers(${stem} HEADERS ${header} LINK sureleap::${component})
            else()
                sureleap_verify_headers(${stem} HEADERS ${header} LINK ${SURELEAP_TARGETS})
            endif()
        endif()
    endforeach()
endif()
