// SPDX-License-Identifier: MIT
//
// Products with packed weights, compiled with -march=x86-64-v3 and -mavxvnni.
#define ENGINE_KERNELS avx_vnni
#define ENGINE_VECTOR_BYTES 32
#include "kernels_quantised.hpp"

namespace engine {

quantised_set const avx_vnni_quantised = {"avx_vnni", avx_vnni::packed_table<float>, avx_vnni::packed_table<double>};

}  // namespace engine
