// SPDX-License-Identifier: MIT
//
// The kernels for any machine: vectors of 16 bytes, which every 64-bit processor has.
#define ENGINE_KERNELS portable
#define ENGINE_VECTOR_BYTES 16
#include "kernels_functions.hpp"

namespace engine {

kernel_set const portable_kernels = {"portable", portable::table<float>, portable::table<double>, portable::read_all};

}  // namespace engine
