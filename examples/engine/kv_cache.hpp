// SPDX-License-Identifier: MIT
//
// Keys and values of every sequence that is served.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <sureleap/core/error.hpp>

#include "attention_query.hpp"
#include "huge_pages.hpp"

namespace engine {

/// Where a row of a batch stands in its sequence.
struct batch_row {
    std::uint32_t slot = 0;      ///< which sequence
    std::uint32_t position = 0;  ///< of its token: the angle of its key and query, and where key and value go
    std::uint32_t keys = 0;      ///< it attends to keys 0 .. keys-1 of its slot
    std::uint32_t branch = 0;    ///< of a tree of drafts, from 1 (tree_branch); 0: the cache has all of its keys
};

/// A way through a tree of drafts, of rows that one pass computes. Several rows stand at the same position then, and
/// the cache has room for the keys of one. A row of a branch sees the cache up to `first`, and from there on those of
/// its own way.
struct tree_branch {
    std::uint32_t first = 0;          ///< position of the root
    std::vector<std::uint32_t> path;  ///< rows of the pass, at positions first, first + 1, ...
};

/// Keys and values of `capacity` positions of every slot, layer and head, in chunks (attention_query.hpp). Heads and
/// layers of a chunk lie together: a pass reads them in that order, and positions nobody reached cost no memory.
///
/// The cache has no length. Each row of a batch says how many keys it sees. What a rejected draft left behind lies
/// beyond those and is overwritten when the sequence gets there. So rolling back takes no work. A length kept here
/// would repeat the positions of the batch and might disagree with them.
template <class Real>
class kv_cache {
public:
    kv_cache(std::size_t slots, std::size_t layers, std::size_t heads, std::size_t head_dim, std::size_t capacity)
        : layers_(layers),
          heads_(heads),
          head_dim_(head_dim),
          chunks_((capacity + chunk_keys - 1) / chunk_keys),
          data_(nullptr, {0}) {
        std::size_t const position = layers * heads * head_dim;
        constexpr std::size_t most = static_cast<std::size_t>(-1) / sizeof(Real) / (2 * chunk_keys);
        if (position * chunks_ * slots == 0 || chunks_ > most / slots / position) {
            sureleap::fail_with("kv_cache: ", slots, " slots x ", layers, " layers x ", heads, " heads x ", capacity,
                                " positions x ", head_dim, ", expected sizes >= 1 that fit memory");
        }
        std::size_t const bytes = slots * chunks_ * position * 2 * chunk_keys * sizeof(Real);
        data_ = {static_cast<Real*>(huge_pages().allocate(bytes)), release{bytes}};
    }

    /// [2, chunk_keys * head_dim] of positions c * chunk_keys and on.
    [[nodiscard]] Real* chunk(std::size_t slot, std::size_t layer, std::size_t head, std::size_t c) const noexcept {
        return data_.get() + (((slot * chunks_ + c) * layers_ + layer) * heads_ + head) * 2 * chunk_keys * head_dim_;
    }
    /// key and value [head_dim]
    void store(std::size_t slot, std::size_t layer, std::size_t head, std::size_t position, Real const* key,
               Real const* value) const noexcept {
        Real* const to = chunk(slot, layer, head, position / chunk_keys);
        std::size_t const k = position % chunk_keys;
        for (std::size_t c = 0; c < head_dim_; ++c) to[c * chunk_keys + k] = key[c];
        std::copy_n(value, head_dim_, to + (chunk_keys + k) * head_dim_);
    }

private:
    struct release {
        std::size_t bytes;
        void operator()(Real* data) const noexcept { huge_pages().deallocate(data, bytes); }
    };

    std::size_t layers_;
    std::size_t heads_;
    std::size_t head_dim_;
    std::size_t chunks_;
    std::unique_ptr<Real[], release> data_;
};

}  // namespace engine
