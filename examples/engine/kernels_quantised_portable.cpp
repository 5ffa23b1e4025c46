// SPDX-License-Identifier: MIT
//
// Products with packed weights, for any machine.
#define ENGINE_KERNELS portable
#define ENGINE_VECTOR_BYTES 16
#include "kernels_quantised.hpp"

namespace engine {

quantised_set const portable_quantised = {"portable", portable::packed_table<float>, portable::packed_table<double>};

}  // namespace engine
