// SPDX-License-Identifier: MIT
//
// Products with packed weights, compiled with -march=x86-64-v4 and -mavx512vnni.
#define ENGINE_KERNELS avx512_vnni
#define ENGINE_VECTOR_BYTES 64
#include "kernels_quantised.hpp"

namespace engine {

quantised_set const avx512_vnni_quantised = {"avx512_vnni", avx512_vnni::packed_table<float>,
                                             avx512_vnni::packed_table<double>};

}  // namespace engine
