// SPDX-License-Identifier: MIT
//
// The kernels for AVX2, FMA and F16C; compiled with -march=x86-64-v3.
#define ENGINE_KERNELS avx2
#define ENGINE_VECTOR_BYTES 32
#include "kernels_functions.hpp"

namespace engine {

kernel_set const avx2_kernels = {"avx2", avx2::table<float>, avx2::table<double>, avx2::read_all};

}  // namespace engine
