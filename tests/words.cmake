# SPDX-License-Identifier: MIT
#
# Few readers finish a long page, so the pages have a size: README.md and docs/*.md have at most so many words. A word is what
# stands between spaces, tabs or line ends, as `wc -w` counts it; code, tables and their bars count too. Who adds a paragraph takes
# one away.
#   cmake -D SOURCE_DIR=<checkout> [-D MOST_README=<words>] [-D MOST_DOCS=<words>] -P words.cmake
cmake_minimum_required(VERSION 3.22)

set(most_readme 900)
set(most_docs 28000)
if(DEFINED MOST_README)
    set(most_readme ${MOST_README})
endif()
if(DEFINED MOST_DOCS)
    set(most_docs ${MOST_DOCS})
endif()

function(count_words file result)
    file(READ ${file} text)
    string(REGEX REPLACE "[];[\\]" "x" text "${text}")  # what CMake's lists stumble over
    string(REGEX MATCHALL "[^ \t\r\n]+" words "${text}")
    list(LENGTH words count)
    set(${result} ${count} PARENT_SCOPE)
endfunction()

count_words(${SOURCE_DIR}/README.md readme)
if(readme GREATER most_readme)
    message(SEND_ERROR "README.md has ${readme} words, expected at most ${most_readme}: what is not needed there has a page in docs/")
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
if(all GREATER most_docs)
    list(SORT pages COMPARE NATURAL ORDER DESCENDING)
    list(JOIN pages "\n  " pages)
    message(SEND_ERROR "docs/*.md have ${all} words, expected at most ${most_docs}. What a reader does not act on goes:\n  ${pages}")
endif()
message(STATUS "README.md has ${readme} words of at most ${most_readme}, docs/*.md ${all} of at most ${most_docs}")
