# SPDX-License-Identifier: MIT
#
# generate on ranks of mpirun writes the texts that it writes alone.
#
#   cmake -D GENERATE=<program> -D MPIEXEC=<mpirun> -D NUMPROC=-n -D MODELS=<examples/models> -D SCRATCH=<folder> -P generate.cmake
#
# Schedules that go by measured costs are among the cases: ranks that took other lengths would not come to an end.

cmake_minimum_required(VERSION 3.20)
set(ENV{OMPI_MCA_rmaps_base_oversubscribe} 1)
set(ENV{OMPI_ALLOW_RUN_AS_ROOT} 1)
set(ENV{OMPI_ALLOW_RUN_AS_ROOT_CONFIRM} 1)
file(MAKE_DIRECTORY ${SCRATCH})

# texts(<result> <ranks> <flag>...): what generate puts down as its outputs, with and without a drafter.
function(texts result ranks)
    set(launcher)
    if(ranks)
        set(launcher ${MPIEXEC} ${NUMPROC} ${ranks})
    endif()
    set(report ${SCRATCH}/report.json)
    file(REMOVE ${report})
    execute_process(
        COMMAND ${launcher} ${GENERATE} --target ${MODELS}/target --prompt "def add(" --copies 2 --threads 1
                --max-new-tokens 40 --json ${report} ${ARGN}
        RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said TIMEOUT 100)
    if(failed OR NOT EXISTS ${report})
        message(FATAL_ERROR "${ranks} ranks with ${ARGN}: ${failed}\n${said}")
    endif()
    file(READ ${report} json)
    string(JSON speculative GET "${json}" speculative outputs)
    string(JSON plain GET "${json}" plain outputs)
    set(${result} "${speculative} ${plain}" PARENT_SCOPE)
endfunction()

function(expect_same a b what)
    if(NOT a STREQUAL b)
        message(FATAL_ERROR "${what}: ${a}\nexpected ${b}")
    endif()
endfunction()

set(dspark --draft ${MODELS}/dspark)
texts(alone 0 ${dspark} --rule coupled)
foreach(ranks IN ITEMS 1 2 3)
    texts(divided ${ranks} ${dspark} --rule coupled)
    expect_same("${divided}" "${alone}" "coupled, ${ranks} ranks")
endforeach()
texts(two 2 ${dspark} --rule block --temperature 0.8 --schedule fixed)
texts(three 3 ${dspark} --rule block --temperature 0.8 --schedule fixed)
expect_same("${three}" "${two}" "block, 3 ranks")
texts(alone 0 --draft lookup --rule coupled --schedule auto)
texts(divided 2 --draft lookup --rule coupled --schedule auto)
expect_same("${divided}" "${alone}" "lookup, 2 ranks")

# Ranks that were started to do other things end, and say why.
execute_process(
    COMMAND ${MPIEXEC} ${NUMPROC} 1 ${GENERATE} --target ${MODELS}/target --draft lookup --prompt "def add(" : ${NUMPROC} 1
            ${GENERATE} --target ${MODELS}/target --draft lookup --prompt "def sub("
    RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said TIMEOUT 100)
if(NOT failed OR NOT said MATCHES "ranks of generate have the same models, prompt, flags and instruction set")
    message(FATAL_ERROR "other prompts: ${failed}\n${said}")
endif()
