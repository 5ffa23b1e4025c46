// SPDX-License-Identifier: MIT
//
// The kernels for AVX-512 with dot products of bf16; compiled as kernels_avx512.cpp, and with -mavx512bf16. What does
// not round activations gives the same bits as there.
#define ENGINE_KERNELS avx512_bf16
#define ENGINE_VECTOR_BYTES 64
#include "kernels_functions.hpp"

namespace engine {

kernel_set const avx512_bf16_kernels = {"avx512_bf16", avx512_bf16::table<float>, avx512_bf16::table<double>,
                                        avx512_bf16::read_all};

}  // namespace engine
