// SPDX-License-Identifier: MIT
//
// A query of attention: of kernels.hpp as well as of the kernels themselves, which share no other header with it.
#pragma once

#include <cstddef>

namespace engine {

/// One query head, x and out of the head's size, that sees the first `keys` keys of its sequence; at least one.
template <class Real>
struct attention_query {
    Real const* x;
    Real* out;
    std::size_t keys;
};

}  // namespace engine
