# SPDX-License-Identifier: MIT
#
# layers.cmake accepts a small good tree, and reports each kind of violation put into it:
#   cmake -D SCRATCH=<dir> -P layers_self_test.cmake
cmake_minimum_required(VERSION 3.22)

# The files of a tree: "<header>: <include> <include> ...". Later entries of the same header replace earlier ones.
set(good
    "core/config.hpp: <cstdio>"
    "core/types.hpp: <sureleap/core/config.hpp>"
    "sampling/random.hpp: <sureleap/core/types.hpp>"
    "concepts.hpp: <sureleap/sampling/random.hpp>"
    "schedule/frontier.hpp: <sureleap/concepts.hpp>"
    "schedule/greedy.hpp: <sureleap/schedule/frontier.hpp>"
    "head/markov.hpp: <sureleap/core/types.hpp>"
    "drafter/draft_block.hpp: <sureleap/core/types.hpp>"
    "training/losses.hpp: <sureleap/head/markov.hpp>"
    "training.hpp: <sureleap/training/losses.hpp>"
    "cuda/core/runtime.cuh: <cuda_runtime.h> <sureleap/core/config.hpp>"
    "cuda/head/kernels.cuh: <cub/cub.cuh> <sureleap/cuda/core/runtime.cuh> <sureleap/head/markov.hpp>"
    "cuda.cuh: <sureleap/cuda/core/runtime.cuh> <sureleap/cuda/head/kernels.cuh>"
    "drafter/grow.hpp: <sureleap/sampling/random.hpp>"
    "serving/metrics.hpp: <sureleap/core/types.hpp>"
    "serving.hpp: <sureleap/serving/metrics.hpp>"
    "c/round.h: <stddef.h> <stdint.h>"
    "c/round.hpp: <sureleap/c/round.h> <sureleap/serving/metrics.hpp>"
    "c/functions.inl: <sureleap/c/round.hpp>"
    "sureleap.h: <sureleap/c/round.h> <sureleap/c/functions.inl>"
    "testing/enumerator.hpp: <sureleap/drafter/draft_block.hpp>"
    "ext/eigen.hpp: <Eigen/Core> <sureleap/head/markov.hpp>"
    "ext/llama/target.hpp: <llama.h> <sureleap/head/markov.hpp>"
    "ext/llama.hpp: <sureleap/ext/llama/target.hpp>"
    "ext/llama/c/decoder.h: <sureleap/c/round.h>"
    "ext/llama/c/functions.inl: <sureleap/c/round.hpp> <sureleap/ext/llama/c/decoder.h> <sureleap/ext/llama/target.hpp>"
    "sureleap_llama.h: <sureleap/sureleap.h> <sureleap/ext/llama/c/decoder.h> <sureleap/ext/llama/c/functions.inl>")
set(all
    "<sureleap/core/config.hpp> <sureleap/core/types.hpp> <sureleap/sampling/random.hpp> <sureleap/concepts.hpp> <sureleap/schedule/frontier.hpp> <sureleap/schedule/greedy.hpp> <sureleap/head/markov.hpp> <sureleap/drafter/grow.hpp> <sureleap/drafter/draft_block.hpp>"
)

# expect(<name> <expected report, "" for none> <changed file>...)
function(expect name expected)
    set(tree ${SCRATCH}/${name})
    file(REMOVE_RECURSE ${tree})
    foreach(entry IN LISTS good ITEMS "sureleap.hpp: ${all}" ${ARGN})
        string(FIND "${entry}" ":" colon)
        string(SUBSTRING "${entry}" 0 ${colon} header)
        math(EXPR colon "${colon} + 1")
        string(SUBSTRING "${entry}" ${colon} -1 includes)
        string(REPLACE " " "\n#include " includes "${includes}")
        file(WRITE ${tree}/sureleap/${header} "#pragma once${includes}\n")
    endforeach()
    execute_process(COMMAND ${CMAKE_COMMAND} -D INCLUDE_DIR=${tree} -P ${CMAKE_CURRENT_LIST_DIR}/layers.cmake
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

expect(good "")
expect(upwards "sampling/random.hpp includes drafter/draft_block.hpp: drafter/ comes after sampling/"
       "sampling/random.hpp: <sureleap/drafter/draft_block.hpp>")
expect(door_too_early "core/types.hpp includes concepts.hpp: concepts.hpp comes after core/"
       "core/types.hpp: <sureleap/concepts.hpp>" "sampling/random.hpp: <sureleap/core/config.hpp>")
expect(circle "circle are among: .*schedule/frontier.hpp schedule/greedy.hpp"
       "schedule/frontier.hpp: <sureleap/schedule/greedy.hpp>")
expect(core_uses_ext "drafter/draft_block.hpp includes ext/eigen.hpp: nothing includes ext/"
       "drafter/draft_block.hpp: <sureleap/ext/eigen.hpp>")
expect(core_uses_training "drafter/draft_block.hpp includes training/losses.hpp: nothing includes training/"
       "drafter/draft_block.hpp: <sureleap/training/losses.hpp>")
expect(core_uses_the_umbrella "drafter/draft_block.hpp includes sureleap.hpp: doors are for users"
       "drafter/draft_block.hpp: <sureleap/sureleap.hpp>")
expect(umbrella_uses_ext "sureleap.hpp includes ext/eigen.hpp" "sureleap.hpp: ${all} <sureleap/ext/eigen.hpp>")
expect(umbrella_uses_cuda "sureleap.hpp includes cuda/head/kernels.cuh" "sureleap.hpp: ${all} <sureleap/cuda/head/kernels.cuh>")
expect(ext_uses_cuda "ext/eigen.hpp includes cuda/core/runtime.cuh: nothing includes cuda/"
       "ext/eigen.hpp: <sureleap/cuda/core/runtime.cuh>")
expect(core_uses_cuda_runtime "sampling/random.hpp includes <cuda_runtime.h>: the core depends on the standard library only"
       "sampling/random.hpp: <cuda_runtime.h>")
expect(cuda_too_high "cuda/head/kernels.cuh includes serving/metrics.hpp: serving/ comes after cuda/head/"
       "cuda/head/kernels.cuh: <sureleap/serving/metrics.hpp>")
expect(cuda_upwards "cuda/core/runtime.cuh includes cuda/head/kernels.cuh: cuda/head/ comes after cuda/core/"
       "cuda/core/runtime.cuh: <sureleap/cuda/head/kernels.cuh>" "cuda/head/kernels.cuh: <sureleap/head/markov.hpp>")
expect(cuda_third_party "cuda/head/kernels.cuh includes <cutlass/cutlass.h>" "cuda/head/kernels.cuh: <cutlass/cutlass.h>")
expect(cuda_on_host "cuda/head/kernels.hpp: device code, and nothing else, lies in cuda/"
       "cuda/head/kernels.hpp: <sureleap/core/config.hpp>")
expect(device_code_elsewhere "head/markov.cuh: device code, and nothing else, lies in cuda/"
       "head/markov.cuh: <sureleap/core/config.hpp>")
expect(umbrella_uses_testing "sureleap.hpp includes testing/enumerator.hpp"
       "sureleap.hpp: ${all} <sureleap/testing/enumerator.hpp>")
expect(core_uses_testing "sampling/random.hpp includes testing/enumerator.hpp: nothing includes testing/"
       "sampling/random.hpp: <sureleap/testing/enumerator.hpp>")
expect(umbrella_forgets "sureleap.hpp does not include sampling/random.hpp" "sureleap.hpp: <sureleap/core/types.hpp>")
expect(serving_door_forgets "serving.hpp does not include serving/metrics.hpp" "serving.hpp: <sureleap/core/types.hpp>")
expect(cuda_door_forgets "cuda.cuh does not include cuda/head/kernels.cuh" "cuda.cuh: <sureleap/cuda/core/runtime.cuh>")
expect(glue_brings_c "ext/llama/target.hpp includes c/round.h: nothing includes c/" "ext/llama/target.hpp: <sureleap/c/round.h>")
expect(llama_forgets "sureleap_llama.h does not include ext/llama/c/decoder.h"
       "sureleap_llama.h: <sureleap/sureleap.h> <sureleap/ext/llama/c/functions.inl>")
expect(c_forgets "sureleap.h does not include c/functions.inl" "sureleap.h: <sureleap/c/round.h>")
expect(c_of_the_system "c/round.h includes <unistd.h>: the core depends on the standard library only" "c/round.h: <unistd.h>")
expect(core_uses_c "sampling/random.hpp includes c/round.h: nothing includes c/" "sampling/random.hpp: <sureleap/c/round.h>")
expect(third_party "sampling/random.hpp includes <Eigen/Core>: the core depends on the standard library only"
       "sampling/random.hpp: <Eigen/Core>")
expect(quoted "write <sureleap/...>" "sampling/random.hpp: \"types.hpp\"")
expect(loose "surprise.hpp: no folder of tests/layers.cmake" "surprise.hpp: <sureleap/core/config.hpp>")
expect(new_folder "extra/surprise.hpp: no folder of tests/layers.cmake" "extra/surprise.hpp: <sureleap/core/config.hpp>")
expect(dangling "sampling/random.hpp includes nowhere.hpp, which does not exist" "sampling/random.hpp: <sureleap/nowhere.hpp>")
