// SPDX-License-Identifier: MIT
//
// Random weights that behave like trained ones where a test needs it. Activations neither vanish nor grow with depth,
// and attention prefers some positions. Logits have a spread of about one, and the Markov bias moves them by as much.
//
// They are a function of the seed, the tensor's name and the element's index alone. So the model does not depend on how
// its files are divided, and on the storage format only by rounding.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include <sureleap/ext/safetensors_writer.hpp>

namespace engine {

/// Takes the data of a tensor piece by piece, so that none has to be in memory as a whole.
using byte_sink = std::function<void(std::span<std::byte const>)>;

/// The weights of one tensor, which must be of floats.
void make_tensor(sureleap::safetensors::tensor_spec const& spec, std::uint64_t seed, byte_sink const& sink);

}  // namespace engine
