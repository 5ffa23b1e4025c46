// SPDX-License-Identifier: MIT
//
// What a chain keeps in device memory: codes, statistics of rows, and who drafts which position. Carved like a round's
// columns (workspace.cuh).
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/cuda/head/markov.cuh>
#include <sureleap/cuda/head/product.cuh>
#include <sureleap/cuda/head/recomputed_rows.cuh>
#include <sureleap/cuda/sampling/truncate.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What the chain's memory is made for.
struct chain_shape {
    std::uint32_t vocabulary = 0;  ///< V_draft
    std::uint32_t rank = 0;
    std::uint32_t code_bytes = 0;  ///< of a component, all terms
    bool keeps_rows =
        false;  ///< there is a row of logits for every request: truncated draft distributions and races need one

    [[nodiscard]] bool operator==(chain_shape const&) const = default;
};

template <device_head Head>
[[nodiscard]] chain_shape shape_of(Head const& head, bool keeps_rows = false) noexcept {
    return {static_cast<std::uint32_t>(head.w2.rows), static_cast<std::uint32_t>(head.w2.cols),
            code_terms<Head> * static_cast<std::uint32_t>(sizeof(typename Head::weight_type)), keeps_rows};
}

/// Codes live until the drafts are judged; everything else is done with when the chain is.
struct chain_memory {
    chain_shape shape{};
    device_limits limits{};
    unsigned char* codes = nullptr;          ///< [R, gamma, r] components
    group_statistics* statistics = nullptr;  ///< [R, groups]
    std::uint32_t* lists = nullptr;          ///< [gamma, R] requests that draft a position
    std::uint32_t* counts = nullptr;         ///< [gamma] how many
    cutoff* cutoffs = nullptr;               ///< [R] of truncated distributions; null if the shape keeps no rows
    logit_rows rows{};                       ///< of the position at hand; null if the shape keeps none

    [[nodiscard]] bool ready() const noexcept { return counts != nullptr; }

    template <class W>
    [[nodiscard]] code_rows<W> code_rows_of(std::uint32_t terms) const noexcept {
        return {reinterpret_cast<W*>(codes), limits.block_size, shape.rank, terms};
    }
    [[nodiscard]] request_list list(std::uint32_t k) const noexcept {
        return {lists + static_cast<std::size_t>(k) * limits.requests, counts + k};
    }
};

/// Out of `ws`: R gamma r code_bytes + 8 R V / 128 and little else: 1.6 MiB for 128 requests of V = 151,936, gamma = 7,
/// r = 256; and with rows 4 R V, 74 MiB. If that only counts or is too small, the result is not ready().
[[nodiscard]] inline chain_memory carve_chain(workspace& ws, device_limits const& limits,
                                              chain_shape const& shape) noexcept {
    chain_memory memory{};
    if (!limits.valid() || shape.vocabulary == 0 || shape.rank == 0) return memory;
    std::size_t const requests = limits.requests;
    memory.shape = shape;
    memory.limits = limits;
    memory.codes = ws.take<unsigned char>(requests * limits.block_size * shape.rank * shape.code_bytes);
    memory.statistics = ws.take<group_statistics>(requests * groups_of(shape.vocabulary));
    memory.lists = ws.take<std::uint32_t>(requests * limits.block_size);
    memory.counts = ws.take<std::uint32_t>(limits.block_size);
    if (shape.keeps_rows) {
        memory.rows.stride = (std::size_t{shape.vocabulary} + 3) / 4 * 4;
        memory.cutoffs = ws.take<cutoff>(requests);
        memory.rows.data = ws.take<float>(requests * memory.rows.stride);
    }
    if (!ws.fits()) memory = {};
    return memory;
}

/// What an engine may add.
struct chain_options {
    token_id const* to_target = nullptr;       ///< [V_draft] the target's ids of draft tokens; null: the same
    fixed_probability const* floor = nullptr;  ///< [1] blocks end before a survival below it; null: 0
};

/// The rows of a chain that has been drawn, for acceptance. `to_draft` [limits.vocabulary] is the inverse of to_target.
template <device_head Head, class U>
[[nodiscard]] recomputed_draft_rows<Head, U> draft_rows_of(Head const& head, forward_view<U> const& forward,
                                                           chain_memory const& memory,
                                                           token_id const* to_draft = nullptr) noexcept {
    return {head.w2, memory.code_rows_of<typename Head::weight_type>(code_terms<Head>), forward.base_logits, to_draft,
            memory.limits.vocabulary};
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
