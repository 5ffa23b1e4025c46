// SPDX-License-Identifier: MIT
//
// CUDA on the CPU, to run real kernels in tests where there is no GPU. Compile plain C++20 with this folder first on
// the include path and SURELEAP_CUDA_EMULATED defined; kernels are launched by cudaLaunchKernelEx.
//
//   machine/fiber.hpp         stacks that one host thread switches between
//   machine/machine.hpp       blocks, warps, threads; who runs next; what is caught, and what cannot be
//   machine/collectives.hpp   barriers, shuffles, votes, matches, reductions
//   machine/atomics.hpp       atomics, fences
//   machine/arithmetic.hpp    bits, rounding, conversions, loads with cache hints
//   machine/tensor.hpp        emulator::mma_m16n8k16_*, emulator::ldmatrix_*
//   machine/runtime.hpp       memory, streams, graphs, launches, errors: the host's side
//   machine/api.hpp           the same under the names of CUDA
//   cuda_pipeline.h           asynchronous copies
//   nccl.h                    all-gathers among host threads
//
// For tests: emulator::seed(n) starts the random order of threads anew; emulator::caught() is what went wrong in a
// kernel. For kernels: emulator::shared_memory(). There is no __shared__, no __constant__, no __activemask and no <<<
// >>>: what is not here does not compile, rather than meaning something else.
#pragma once

#if defined(__CUDACC__)
#error "the emulator's cuda_runtime.h came before CUDA's: leave tests/cuda/emulator off the include path of nvcc"
#endif

#include "machine/api.hpp"
#include "machine/arithmetic.hpp"
#include "machine/atomics.hpp"
#include "machine/collectives.hpp"
#include "machine/machine.hpp"
#include "machine/tensor.hpp"
#include "machine/vector_types.hpp"

namespace emulator::detail {
inline int warp_size() {
    return 32;
}
}  // namespace emulator::detail
inline int const warpSize = emulator::detail::warp_size();  // no constant expression, as on the device

// After the headers above: a header of libstdc++ says __attribute__((__noinline__)).
#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
