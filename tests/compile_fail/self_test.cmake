# SPDX-License-Identifier: MIT
#
# check.cmake must accept a good case and report each way in which a case can be bad:
#   cmake -D COMPILER=<c++> -D SCRATCH=<dir> -P self_test.cmake
cmake_minimum_required(VERSION 3.22)

function(expect name text expected)
    file(WRITE ${SCRATCH}/${name}.cpp "${text}")
    execute_process(COMMAND ${CMAKE_COMMAND} -D COMPILER=${COMPILER} -D SOURCE=${SCRATCH}/${name}.cpp -D
                            INCLUDE_DIR=${SCRATCH} -P ${CMAKE_CURRENT_LIST_DIR}/check.cmake
                    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(expected STREQUAL "")
        if(NOT result EQUAL 0)
            message(FATAL_ERROR "${name}: a good case was reported:\n${output}")
        endif()
    elseif(result EQUAL 0 OR NOT output MATCHES "${expected}")
        message(FATAL_ERROR "${name}: expected a report that matches \"${expected}\", got:\n${output}")
    endif()
endfunction()

set(failing "#ifdef SURELEAP_EXPECT_FAILURE\nstatic_assert(sizeof(char) == 2, \"a char [one; byte] is small\");\n#endif\n")
expect(good "// expect-error: a char \\[one; byte\\] is small\n${failing}" "")
expect(silent "// expect-error: never said\n${failing}" "does not say")
# The text of the static_assert is there, but only in a comment of the quoted line.
expect(quoted "// expect-error: just a comment\n#ifdef SURELEAP_EXPECT_FAILURE\nint x = nothing;  // just a comment\n#endif\n"
       "does not say")
expect(compiles "// expect-error: anything\nint x = 1;\n" "compiles, but must not")
expect(broken_twin "// expect-error: anything\nint x = nothing;\n" "positive twin does not compile")
expect(no_regex "${failing}" "no line")
