// SPDX-License-Identifier: MIT
//
// Random weights that behave like trained ones where a test needs it: activations neither die nor grow with depth,
// attention prefers some positions, logits have a spread of about one and the Markov bias moves them by as much.
//
// They are a function of the seed, the tensor's name and the element's index alone, so the same model comes out however
// its files are cut, and in every storage format the same up to rounding.
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
