// SPDX-License-Identifier: MIT
//
// A head that is confined to shortlists, the memory of its lists, and the lists as draft rows. In: the head, how many
// tokens a list has, the limits of rounds. Out: what draw_chain (shortlist.cuh) fills, and what accept reads q from.
//
// Lists and their logits are all that acceptance needs. The weight of a token is found by a search in its list, O(log
// M) for lists of M tokens.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/cuda/head/markov.cuh>
#include <sureleap/cuda/head/top_tokens.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// A head confined to lists of at most `best + successors` tokens. The draft speaks the target's vocabulary.
template <device_head Head>
struct shortlist_head {
    Head head{};
    std::uint32_t best = 0;              ///< tokens by base logits, at least 1
    matrix_view<token_id> successors{};  ///< [V_target, any] rows ascending (sureleap::successor_table), or empty

    [[nodiscard]] bool valid() const noexcept {
        bool const none = successors.data == nullptr;
        return head.valid() && best > 0 && (none || (successors.cols > 0 && successors.stride >= successors.cols));
    }
};

/// What the memory of lists is made for.
struct shortlist_shape {
    std::uint32_t vocabulary = 0;
    std::uint32_t best = 0;        ///< at most the vocabulary
    std::uint32_t successors = 0;  ///< of a token

    /// The most tokens of a list.
    [[nodiscard]] std::uint32_t capacity() const noexcept {
        return successors < vocabulary - best ? best + successors : vocabulary;
    }
    [[nodiscard]] bool operator==(shortlist_shape const&) const = default;
};

template <device_head Head>
[[nodiscard]] shortlist_shape shape_of(shortlist_head<Head> const& list) noexcept {
    auto const vocabulary = static_cast<std::uint32_t>(list.head.w2.rows);
    return {vocabulary, list.best < vocabulary ? list.best : vocabulary,
            static_cast<std::uint32_t>(list.successors.data == nullptr ? 0 : list.successors.cols)};
}

/// Lists with their logits live until the drafts are judged; the rest is done with when the chain is.
struct shortlist_memory {
    shortlist_shape shape{};
    device_limits limits{};
    token_lists best{};         ///< of every position by base logits
    token_lists lists{};        ///< what positions were drawn from, ascending
    float* logits = nullptr;    ///< [R, gamma, lists.capacity]
    token_id* fresh = nullptr;  ///< [R, shape.successors] those that are not among the best

    [[nodiscard]] bool ready() const noexcept { return logits != nullptr; }
};

/// Out of `ws`: R gamma (12 best + 8 successors) bytes and little else. If that only counts or is too small, the result
/// is not ready().
[[nodiscard]] inline shortlist_memory carve_shortlist(workspace& ws, device_limits const& limits,
                                                      shortlist_shape const& shape) noexcept {
    shortlist_memory memory{};
    if (!limits.valid() || shape.best == 0 || shape.best > shape.vocabulary) return memory;
    std::size_t const rows = std::size_t{limits.requests} * limits.block_size;
    memory.shape = shape;
    memory.limits = limits;
    memory.best = token_lists::take(ws, limits, shape.best);
    memory.lists = token_lists::take(ws, limits, shape.capacity());
    memory.logits = ws.take<float>(rows * shape.capacity());
    memory.fresh = ws.take<token_id>(std::size_t{limits.requests} * shape.successors);
    if (!ws.fits()) memory = {};
    return memory;
}

namespace detail {

/// How many of `count` ascending ids are less than `id`.
[[nodiscard]] __device__ __forceinline__ std::uint32_t ids_below(token_id const* ids, std::uint32_t count,
                                                                 token_id id) {
    std::uint32_t low = 0;
    while (count > 0) {
        std::uint32_t const half = count / 2;
        bool const less = ids[low + half] < id;
        low = less ? low + half + 1 : low;
        count = less ? count - half - 1 : half;
    }
    return low;
}

}  // namespace detail

/// The draft rows of lists (DraftRows of draft_rows.cuh). In their distributions a place is one in the list.
struct listed_draft_rows {
    token_lists lists{};
    float const* logits = nullptr;
    std::uint32_t block_size = 0;

    /// WARP collective: the weight of token v under q, distribution of position k of request r; 0 if it is not in the
    /// list.
    __device__ float weight(std::uint32_t r, std::uint32_t k, distribution const& q, token_id v) const {
        std::size_t const row = std::size_t{r} * block_size + k;
        token_id const* const ids = lists.tokens + row * lists.capacity;
        std::uint32_t const place = detail::ids_below(ids, lists.counts[row], v);
        if (place == lists.counts[row] || ids[place] != v) return 0.0f;
        return q.weight(logits[row * lists.capacity + place], static_cast<token_id>(place));
    }
    /// BLOCK collective: the weights of tokens 1,024 block .. + 1,023 into shared out [1,024]. No barrier.
    __device__ void weights(std::uint32_t r, std::uint32_t k, distribution const& q, std::uint32_t block,
                            float* out) const {
        constexpr std::uint32_t size = 1024;
        std::size_t const row = std::size_t{r} * block_size + k;
        token_id const* const ids = lists.tokens + row * lists.capacity;
        auto const begin = static_cast<token_id>(block * size);
        std::uint32_t const first = detail::ids_below(ids, lists.counts[row], begin);
        std::uint32_t const count =
            detail::ids_below(ids + first, lists.counts[row] - first, begin + static_cast<token_id>(size));
        for (std::uint32_t i = threadIdx.x; i < size; i += blockDim.x) {  // each looks for itself: nobody has to wait
            token_id const v = begin + static_cast<token_id>(i);
            std::uint32_t const at = detail::ids_below(ids + first, count, v);
            bool const listed = at < count && ids[first + at] == v;
            std::uint32_t const place = first + at;
            out[i] = listed ? q.weight(logits[row * lists.capacity + place], static_cast<token_id>(place)) : 0.0f;
        }
    }
};

[[nodiscard]] inline listed_draft_rows draft_rows_of(shortlist_memory const& memory) noexcept {
    return {memory.lists, memory.logits, memory.limits.block_size};
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
