// SPDX-License-Identifier: MIT
//
// The kernels for AVX-512; compiled with -march=x86-64-v4 -mprefer-vector-width=512, without which Clang splits every
// vector in two.
#define ENGINE_KERNELS avx512
#define ENGINE_VECTOR_BYTES 64
#include "kernels_functions.hpp"

namespace engine {

kernel_set const avx512_kernels = {"avx512", avx512::table<float>, avx512::table<double>, avx512::read_all};

}  // namespace engine
