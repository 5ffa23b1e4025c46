// SPDX-License-Identifier: MIT
//
// Products with packed weights, compiled with -march=x86-64-v3.
#define ENGINE_KERNELS avx2
#define ENGINE_VECTOR_BYTES 32
#include "kernels_quantised.hpp"

namespace engine {

quantised_set const avx2_quantised = {"avx2", avx2::packed_table<float>, avx2::packed_table<double>};

}  // namespace engine
