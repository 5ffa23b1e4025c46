# SPDX-License-Identifier: MIT
#
# docs.cmake and words.cmake accept a small good checkout, and report each mistake put into a page:
#   cmake -D SCRATCH=<dir> -P docs_self_test.cmake
cmake_minimum_required(VERSION 3.22)

set(good "# Page
A file is `examples/first.cpp`, a header `core/types.hpp`, a heading [below](#two-words), another page [README](../README.md#read-me).
build/results/all.json comes later, and tests/*.cpp are several.
<!-- from examples/first.cpp -->
```cpp
int main() {
```
## Two words
")

# expect(<name> <script> <expected report, "" for none> <what is replaced in the page> <by what>)
function(expect name script expected old new)
    set(tree ${SCRATCH}/${name})
    file(REMOVE_RECURSE ${tree})
    string(REPLACE "${old}" "${new}" page "${good}")
    file(WRITE ${tree}/docs/page.md "${page}")
    file(WRITE ${tree}/README.md "# Read me\nFour words are here.\n")
    file(WRITE ${tree}/examples/train/README.md "")
    file(WRITE ${tree}/examples/first.cpp "int main() {\n}\n")
    file(WRITE ${tree}/include/sureleap/core/types.hpp "")
    execute_process(COMMAND ${CMAKE_COMMAND} -D SOURCE_DIR=${tree} -D MOST_README=7 -D MOST_DOCS=34 -P
                            ${CMAKE_CURRENT_LIST_DIR}/${script}.cmake
                    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    string(REGEX REPLACE "[ \n]+" " " output "${output}")  # messages are wrapped
    if(expected STREQUAL "")
        if(NOT result EQUAL 0)
            message(SEND_ERROR "${name}: reported, though nothing is wrong:\n${output}")
        endif()
    elseif(result EQUAL 0 OR NOT output MATCHES "${expected}")
        message(SEND_ERROR "${name}: expected a report that matches \"${expected}\", got:\n${output}")
    endif()
endfunction()

expect(good docs "" "" "")
expect(not_quoted docs "the code block that begins with .int main.*is not quoted from a file" "<!-- from examples/first.cpp -->\n" "")
expect(other_code docs "does not stand in examples/first.cpp word for word" "int main() {" "int main(void) {")
expect(no_source docs "quotes examples/second.cpp, which does not exist" "from examples/first.cpp" "from examples/second.cpp")
expect(no_path docs "names examples/second.cpp, which is not in the repository" "`examples/first.cpp`" "`examples/second.cpp`")
expect(no_bare_path docs "names tests/second.cpp, which is not in the repository" "tests/*.cpp" "tests/second.cpp")
expect(no_header docs "names core/kinds.hpp, which" "core/types.hpp" "core/kinds.hpp")
expect(no_link docs "links to ../NOTES.md, which does not exist" "../README.md#read-me" "../NOTES.md")
expect(no_heading docs "page.md has no such heading" "(#two-words)" "(#three-words)")
expect(no_heading_there docs "README.md has no such heading" "#read-me" "#read-it")
expect(few_words words "" "" "")
expect(many_words words "docs/.*.md have 35 words, expected at most 34" "several" "several more")
