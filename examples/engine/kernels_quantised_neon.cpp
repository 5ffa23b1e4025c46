// SPDX-License-Identifier: MIT
//
// Products with packed weights, compiled with -march=armv8.2-a+dotprod.
#define ENGINE_KERNELS neon_dot
#define ENGINE_VECTOR_BYTES 16
#include "kernels_quantised.hpp"

namespace engine {

quantised_set const neon_dot_quantised = {"neon_dot", neon_dot::packed_table<float>, neon_dot::packed_table<double>};

}  // namespace engine
