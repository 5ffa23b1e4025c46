# SPDX-License-Identifier: MIT
#
# Pages have a size, since few readers finish a long one: README.md and docs/*.md have at most so many words. A word is what `wc -w`
# counts, the text between two spaces or line ends; code counts, and so do the bars of tables.
#   cmake -D SOURCE_DIR=<checkout> -P words.cmake
cmake_minimum_required(VERSION 3.22)

if(NOT DEFINED MOST_README)  # the self test has smaller pages
    set(MOST_README 900)
    set(MOST_DOCS 28000)
endif()

function(count_words file result)
    file(READ ${file} text)
    string(REGEX REPLACE "[];[\\]" "x" text "${text}")  # what CMake's lists stumble over
    string(REGEX MATCHALL "[^ \t\r\n]+" words "${text}")
    list(LENGTH words count)
    set(${result} ${count} PARENT_SCOPE)
endfunction()

count_words(${SOURCE_DIR}/README.md readme)
if(readme GREATER MOST_README)
    message(SEND_ERROR "README.md has ${readme} words, expected at most ${MOST_README}: what is not needed there has a page in docs/")
endif()

set(all 0)
set(pages)
file(GLOB documents ${SOURCE_DIR}/docs/*.md)
foreach(document IN LISTS documents)
    count_words(${document} count)
    math(EXPR all "${all} + ${count}")
    cmake_path(GET document FILENAME name)
    list(APPEND pages "${count} ${name}")
endforeach()
if(all GREATER MOST_DOCS)
    list(SORT pages COMPARE NATURAL ORDER DESCENDING)
    list(JOIN pages ", " pages)
    message(SEND_ERROR "docs/*.md have ${all} words, expected at most ${MOST_DOCS}: shorten what no reader acts on (${pages})")
endif()
message(STATUS "README.md has ${readme} words of at most ${MOST_README}, docs/*.md ${all} of at most ${MOST_DOCS}")
