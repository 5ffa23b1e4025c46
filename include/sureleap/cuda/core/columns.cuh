// SPDX-License-Identifier: MIT
//
// The data of a round in device memory: columns, one array per property, so that threads of a warp read neighbouring
// numbers. Stages are functions of their own headers that take a device_round and fill the columns of the next stage:
//
//     engine writes         requests
//     draw_chain            drafts      (chain.cuh)         admit           drafts -> lengths    (schedules.cuh)
//     flatten               batch       (flatten.cuh)       accept<Rule>    verdicts             (accept.cuh)
//     advance               requests, for the next round    (advance.cuh)
//
// Rows r of a column belong to the r-th request of this round. Positions are 0-based as everywhere: [r * gamma + k].
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/workspace.cuh>
#include <sureleap/sampling/draw_key.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What launches and memory are made for; fixed at set-up.
struct device_limits {
    std::uint32_t requests = 0;      ///< most requests of a round, at most 8,192
    std::uint32_t block_size = 0;    ///< gamma, at most 31
    std::uint32_t vocabulary = 0;    ///< of the target
    std::uint32_t stop_tokens = 0;   ///< most stop tokens of a request
    bool log_probabilities = false;  ///< verdicts hold log p of every emitted token

    static constexpr std::uint32_t most_requests = 8192;
    static constexpr std::uint32_t longest_block = 31;
    static constexpr std::uint32_t most_candidates = 8192;  // that one block of threads sorts at once (block_sort.cuh)

    [[nodiscard]] bool valid() const noexcept {
        return requests > 0 && requests <= most_requests && block_size > 0 && block_size <= longest_block &&
               vocabulary > 0 && vocabulary <= 0x7fffffffu;
    }
    /// For what takes candidates in the order of admission: greedy, top-K and the search for a budget. They return
    /// cudaErrorInvalidValue if requests x block_size is above most_candidates, whatever a round has of them.
    [[nodiscard]] bool sortable() const noexcept { return std::size_t{requests} * block_size <= most_candidates; }
};

/// The requests of a round. The engine writes them when requests come and go; `advance` moves them on from round to
/// round.
struct request_columns {
    std::uint32_t* count = nullptr;          ///< [1] R of this round, at most limits.requests
    token_id* anchors = nullptr;             ///< [R] x_0
    std::uint64_t* positions = nullptr;      ///< [R] of the anchor in its sequence
    std::uint64_t* seeds = nullptr;          ///< [R]
    transform* targets = nullptr;            ///< [R] how target logits become p
    transform* drafts = nullptr;             ///< [R] how draft logits become q
    std::uint32_t* remaining = nullptr;      ///< [R] tokens it may still emit; 0: it is finished, and emits nothing
    std::uint32_t* draft_limits = nullptr;   ///< [R] request_view's draft_limit or model_limit, the lower one
    fixed_probability* weights = nullptr;    ///< [R] worth of a token, 1 .. certain
    std::uint32_t* slots = nullptr;          ///< [R] stable index below limits.requests, for what outlives a round
    token_id* stop_tokens = nullptr;         ///< [R, limits.stop_tokens], no_token where there are fewer
    std::uint32_t* min_remaining = nullptr;  ///< [R] tokens it emits before a stop token may be one (row_mask.cuh)

    /// Useful draft tokens of request r: one emitted token is always the target's own (request_view::draft_cap).
    [[nodiscard]] __device__ std::uint32_t draft_cap(std::uint32_t r, std::uint32_t block_size) const {
        std::uint32_t const left = remaining[r] > 0 ? remaining[r] - 1 : 0;
        std::uint32_t const asked = draft_limits[r] < left ? draft_limits[r] : left;
        return asked < block_size ? asked : block_size;
    }
};

/// Names of draws, as on the host (block_key, noise_key).
[[nodiscard]] __device__ __forceinline__ draw_key block_key(request_columns const& requests, std::uint32_t r,
                                                            std::uint32_t k, purpose use) {
    return {requests.seeds[r], requests.positions[r], k, use};
}
[[nodiscard]] __device__ __forceinline__ draw_key noise_key(request_columns const& requests, std::uint32_t r,
                                                            std::uint32_t k) {
    return {requests.seeds[r], requests.positions[r] + 1 + k, 0, purpose::noise};
}

/// What was drafted.
struct draft_columns {
    token_id* tokens = nullptr;               ///< [R, gamma] x_1 .. x_size
    distribution* distributions = nullptr;    ///< [R, gamma] q they were drawn from
    double* token_probabilities = nullptr;    ///< [R, gamma] q_k(x_k)
    fixed_probability* confidence = nullptr;  ///< [R, gamma]
    fixed_probability* survival = nullptr;    ///< [R, gamma] weight x c_1 .. c_k
    std::uint32_t* sizes = nullptr;           ///< [R] tokens in the block
    status* statuses = nullptr;               ///< [R]
};

/// What the target scores: sum over r of (1 + l_r) rows, those of request r from offsets[r] on (CSR).
struct batch_columns {
    std::uint32_t* lengths = nullptr;  ///< [R] l_r
    std::int32_t* offsets = nullptr;   ///< [limits.requests + 1] first row of a request; from R on, the number of rows
    token_id* tokens = nullptr;        ///< [limits.requests (gamma + 1)] x_0 .. x_l
    std::uint64_t* positions = nullptr;  ///< the same: absolute
    std::uint32_t* markers = nullptr;    ///< the same: index of the request
};

/// What came of it.
struct verdict_columns {
    status* statuses = nullptr;           ///< [R] anything but ok: nothing emitted
    std::uint32_t* accepted = nullptr;    ///< [R] draft tokens that were kept, 0 .. l and at most emitted
    std::uint32_t* emitted = nullptr;     ///< [R] new tokens: accepted + 1, or accepted where the text ends before
    token_id* tokens = nullptr;           ///< [R, gamma + 1] these tokens; the last one is the next anchor
    std::uint8_t* stopped = nullptr;      ///< [R] 1 if the last one is a stop token
    double* log_probabilities = nullptr;  ///< [R, gamma + 1] log p of each, or null
};

/// All of it: pointers, to be passed to kernels by value.
struct device_round {
    device_limits limits{};
    request_columns requests{};
    draft_columns drafts{};
    batch_columns batch{};
    verdict_columns verdicts{};

    /// Carved, from a workspace that was large enough.
    [[nodiscard]] bool ready() const noexcept { return limits.valid() && requests.count != nullptr; }

    /// Positions that a chain may draft for request r: draft_cap, and none behind an anchor outside 0 .. V-1 (a
    /// placeholder, an added token), for which the tables of heads and confidences have no row.
    [[nodiscard]] __device__ std::uint32_t chain_cap(std::uint32_t r) const {
        token_id const anchor = requests.anchors[r];
        bool const known = anchor >= 0 && static_cast<std::uint32_t>(anchor) < limits.vocabulary;
        return known ? requests.draft_cap(r, limits.block_size) : 0;
    }
    /// Nothing comes behind x in a text of request r.
    [[nodiscard]] __device__ bool stops_at(std::uint32_t r, token_id x) const {
        token_id const* const stops = requests.stop_tokens + static_cast<std::size_t>(r) * limits.stop_tokens;
        bool stops_here = false;
#pragma unroll 1
        for (std::uint32_t i = 0; i < limits.stop_tokens; ++i) stops_here |= x != no_token && x == stops[i];
        return stops_here;
    }
};

/// Columns out of `ws`. If that only counts or is too small, the result is not ready(), and every stage refuses it.
[[nodiscard]] inline device_round carve(workspace& ws, device_limits const& limits) noexcept {
    device_round round{};
    if (!limits.valid()) return round;
    std::size_t const requests = limits.requests;
    std::size_t const drafts = requests * limits.block_size;
    std::size_t const rows = requests * (limits.block_size + 1);
    round.limits = limits;
    round.requests = {ws.take<std::uint32_t>(1),
                      ws.take<token_id>(requests),
                      ws.take<std::uint64_t>(requests),
                      ws.take<std::uint64_t>(requests),
                      ws.take<transform>(requests),
                      ws.take<transform>(requests),
                      ws.take<std::uint32_t>(requests),
                      ws.take<std::uint32_t>(requests),
                      ws.take<fixed_probability>(requests),
                      ws.take<std::uint32_t>(requests),
                      ws.take<token_id>(requests * limits.stop_tokens),
                      ws.take<std::uint32_t>(requests)};
    round.drafts = {
        ws.take<token_id>(drafts),          ws.take<distribution>(drafts),      ws.take<double>(drafts),
        ws.take<fixed_probability>(drafts), ws.take<fixed_probability>(drafts), ws.take<std::uint32_t>(requests),
        ws.take<status>(requests)};
    round.batch = {ws.take<std::uint32_t>(requests), ws.take<std::int32_t>(requests + 1), ws.take<token_id>(rows),
                   ws.take<std::uint64_t>(rows), ws.take<std::uint32_t>(rows)};
    round.verdicts = {ws.take<status>(requests),        ws.take<std::uint32_t>(requests),
                      ws.take<std::uint32_t>(requests), ws.take<token_id>(rows),
                      ws.take<std::uint8_t>(requests),  limits.log_probabilities ? ws.take<double>(rows) : nullptr};
    if (!ws.fits()) round = {};
    return round;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
