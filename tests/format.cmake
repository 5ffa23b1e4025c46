# SPDX-License-Identifier: MIT
#
# Every source is formatted as .clang-format says:
#   cmake -D SOURCE_DIR=<checkout> -D CLANG_FORMAT=clang-format-19 -P format.cmake
# To mend it: git ls-files '*.hpp' '*.cpp' '*.cuh' '*.cu' '*.inl' '*.h' '*.c' | xargs clang-format-19 -i
cmake_minimum_required(VERSION 3.22)

set(sources)
foreach(folder IN ITEMS include tests examples bench docs python)
    foreach(ending IN ITEMS hpp cpp cuh cu inl h c)
        file(GLOB_RECURSE more ${SOURCE_DIR}/${folder}/*.${ending})
        list(APPEND sources ${more})
    endforeach()
endforeach()
list(LENGTH sources count)
if(count EQUAL 0)
    message(FATAL_ERROR "no source under ${SOURCE_DIR}")
endif()
execute_process(COMMAND ${CLANG_FORMAT} --dry-run --Werror --ferror-limit=1 ${sources} RESULT_VARIABLE result
                ERROR_VARIABLE complaints)
if(NOT result EQUAL 0)
    message(FATAL_ERROR "${complaints}\nformat with: git ls-files '*.hpp' '*.cpp' '*.cuh' '*.cu' '*.inl' '*.h' '*.c' | xargs ${CLANG_FORMAT} -i")
endif()
message(STATUS "${count} sources")
