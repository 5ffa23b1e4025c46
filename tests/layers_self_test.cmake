# SPDX-License-Identifier: MIT
#
# layers.cmake accepts a small good tree, and reports each kind of violation put into it:
#   cmake -D SCRATCH=<dir> -P layers_self_test.cmake
cmake_minimum_required(VERSION 3.22)

# The files of a tree: "<header>: <include> <include> ...". Later entries of the same header replace earlier ones.
set(good
    "config.hpp: <cstdio>"
    "types.hpp: <sureleap/config.hpp>"
    "random.hpp: <sureleap/types.hpp>"
    "concepts.hpp: <sureleap/random.hpp>"
    "schedule/frontier.hpp: <sureleap/concepts.hpp>"
    "schedule/greedy.hpp: <sureleap/schedule/frontier.hpp>"
    "head/markov.hpp: <sureleap/types.hpp>"
    "draft_block.hpp: <sureleap/types.hpp>"
    "drafter/parallel.hpp: <sureleap/draft_block.hpp>"
    "cuda/device.cuh: <cuda_runtime.h> <sureleap/config.hpp>"
    "cuda/kernels.cuh: <cub/cub.cuh> <sureleap/cuda/device.cuh> <sureleap/head/markov.hpp>"
    "testing/enumerator.hpp: <sureleap/drafter/parallel.hpp>"
    "ext/eigen.hpp: <Eigen/Core> <sureleap/head/markov.hpp>")
set(all
    "<sureleap/config.hpp> <sureleap/types.hpp> <sureleap/random.hpp> <sureleap/concepts.hpp> <sureleap/schedule/frontier.hpp> <sureleap/schedule/greedy.hpp> <sureleap/head/markov.hpp> <sureleap/draft_block.hpp> <sureleap/drafter/parallel.hpp>"
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
expect(upwards "random.hpp of layer 1 includes draft_block.hpp of layer 4"
       "random.hpp: <sureleap/draft_block.hpp>")
expect(same_layer "types.hpp includes error.hpp of the same layer" "error.hpp: <sureleap/config.hpp>"
       "types.hpp: <sureleap/error.hpp>")
expect(sibling_folder "schedule/greedy.hpp includes head/markov.hpp of the same layer"
       "schedule/greedy.hpp: <sureleap/head/markov.hpp>")
expect(out_of_list "draft_block.hpp includes drafter/parallel.hpp of the same layer"
       "draft_block.hpp: <sureleap/drafter/parallel.hpp>")
expect(circle "circle are among: .*schedule/frontier.hpp schedule/greedy.hpp"
       "schedule/frontier.hpp: <sureleap/schedule/greedy.hpp>")
expect(core_uses_ext "draft_block.hpp includes ext/eigen.hpp: nothing includes ext/"
       "draft_block.hpp: <sureleap/ext/eigen.hpp>")
expect(umbrella_uses_ext "sureleap.hpp includes ext/eigen.hpp" "sureleap.hpp: ${all} <sureleap/ext/eigen.hpp>")
expect(umbrella_uses_cuda "sureleap.hpp includes cuda/kernels.cuh" "sureleap.hpp: ${all} <sureleap/cuda/kernels.cuh>")
expect(ext_uses_cuda "ext/eigen.hpp includes cuda/device.cuh: nothing on the host includes cuda/"
       "ext/eigen.hpp: <sureleap/cuda/device.cuh>")
expect(core_uses_cuda_runtime "random.hpp includes <cuda_runtime.h>: the core depends on the standard library only"
       "random.hpp: <cuda_runtime.h>")
expect(cuda_too_high "cuda/kernels.cuh includes draft_block.hpp of layer 4: cuda/ stays below layer 4"
       "cuda/kernels.cuh: <sureleap/draft_block.hpp>")
expect(cuda_circle "circle are among: .*cuda/device.cuh cuda/kernels.cuh" "cuda/device.cuh: <sureleap/cuda/kernels.cuh>"
       "cuda/kernels.cuh: <sureleap/cuda/device.cuh>")
expect(cuda_third_party "cuda/kernels.cuh includes <cutlass/cutlass.h>" "cuda/kernels.cuh: <cutlass/cutlass.h>")
expect(cuda_on_host "cuda/kernels.hpp: device code, and nothing else, lies in cuda/" "cuda/kernels.hpp: <sureleap/config.hpp>")
expect(device_code_elsewhere "head/markov.cuh: device code, and nothing else, lies in cuda/"
       "head/markov.cuh: <sureleap/config.hpp>")
expect(umbrella_uses_testing "sureleap.hpp includes testing/enumerator.hpp"
       "sureleap.hpp: ${all} <sureleap/testing/enumerator.hpp>")
expect(core_uses_testing "random.hpp includes testing/enumerator.hpp: nothing includes testing/"
       "random.hpp: <sureleap/testing/enumerator.hpp>")
expect(umbrella_forgets "sureleap.hpp does not include random.hpp" "sureleap.hpp: <sureleap/types.hpp>")
expect(ext_too_high "ext/eigen.hpp includes draft_block.hpp of layer 4" "ext/eigen.hpp: <sureleap/draft_block.hpp>")
expect(third_party "random.hpp includes <Eigen/Core>: the core depends on the standard library only"
       "random.hpp: <Eigen/Core>")
expect(quoted "write <sureleap/...>" "random.hpp: \"types.hpp\"")
expect(unknown "surprise.hpp belongs to no layer" "surprise.hpp: <sureleap/config.hpp>")
expect(dangling "random.hpp includes nowhere.hpp, which does not exist" "random.hpp: <sureleap/nowhere.hpp>")
