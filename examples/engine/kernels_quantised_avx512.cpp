// SPDX-License-Identifier: MIT
//
// Products with packed weights, compiled with -march=x86-64-v4.
#define ENGINE_KERNELS avx512
#define ENGINE_VECTOR_BYTES 64
#include "kernels_quantised.hpp"

namespace engine {

quantised_set const avx512_quantised = {"avx512", avx512::packed_table<float>, avx512::packed_table<double>};

}  // namespace engine
