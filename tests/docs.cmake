# SPDX-License-Identifier: MIT
#
# Code in the documentation is code that was compiled: in README.md and docs/*.md, a block after the line
#   <!-- from examples/first.cpp -->
# must stand in that file word for word.
#   cmake -D SOURCE_DIR=<checkout> -P docs.cmake
cmake_minimum_required(VERSION 3.22)

file(GLOB documents ${SOURCE_DIR}/README.md ${SOURCE_DIR}/docs/*.md)
set(count 0)
foreach(document IN LISTS documents)
    file(READ ${document} rest)
    while(TRUE)
        string(FIND "${rest}" "<!-- from " begin)
        if(begin EQUAL -1)
            break()
        endif()
        string(SUBSTRING "${rest}" ${begin} -1 rest)
        if(NOT rest MATCHES "^<!-- from ([^ \n]+) -->\n+```[a-z]*\n")
            message(FATAL_ERROR "${document}: no code block follows a line \"<!-- from <file> -->\"")
        endif()
        set(file ${CMAKE_MATCH_1})
        string(LENGTH "${CMAKE_MATCH_0}" length)
        string(SUBSTRING "${rest}" ${length} -1 rest)
        string(FIND "${rest}" "\n```" end)
        string(SUBSTRING "${rest}" 0 ${end} block)

        if(NOT EXISTS ${SOURCE_DIR}/${file})
            message(FATAL_ERROR "${document} quotes ${file}, which does not exist")
        endif()
        file(READ ${SOURCE_DIR}/${file} text)
        string(FIND "${text}" "${block}" where)
        if(where EQUAL -1)
            message(SEND_ERROR "${document}: this block does not stand in ${file} word for word:\n${block}")
        endif()
        math(EXPR count "${count} + 1")
    endwhile()
endforeach()
message(STATUS "${count} quoted blocks")
