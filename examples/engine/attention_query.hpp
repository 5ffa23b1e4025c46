// SPDX-License-Identifier: MIT
//
// A query of attention: of kernels.hpp as well as of the kernels themselves, which share no other header with it.
#pragma once

#include <cstddef>

namespace engine {

/// Keys that are attended to together and lie together in the cache.
///
/// A chunk of heads of `size` numbers is 2 * chunk_keys * size numbers: the keys, component by component, then the
/// values, key by key. Component c of key k is number c * chunk_keys + k. So scores and outputs are the same product: a
/// few rows of coefficients times a matrix, of which each row is read once for all of them.
inline constexpr std::size_t chunk_keys = 64;

/// What attention to one chunk leaves of a head, so that chunks can be attended to on different threads: the sum of
/// weighted values, the largest scaled score, and the sum of weights, each weight relative to that score.
[[nodiscard]] constexpr std::size_t attended_size(std::size_t size) noexcept {
    return size + 2;
}

/// One query head, x of the head's size, that sees the first `keys` keys of a chunk, 1 .. chunk_keys.
template <class Real>
struct attention_query {
    Real const* x;
    Real* attended;  ///< [attended_size]
    std::size_t keys;
};

}  // namespace engine
