// SPDX-License-Identifier: MIT
//
// What an engine's drafts were drawn from. In: rows of q, probabilities, or logits of some tokens that are listed. Out:
// their distributions, and the probability of each drafted token. Logits of all tokens are weighed with the target's
// rows (weigh.cuh).
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/verify/draft_rows.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/residual.cuh>
#include <sureleap/cuda/verify/target_rows.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/cuda/verify/verifier_memory.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

struct weigh_drafts_shared {
    verification_shared verification;
    float largest[verification_warps];
    std::uint32_t bad;
};

/// BLOCK collective: q of a row whose numbers are read one by one: of probabilities, or of a list.
template <class Q>
[[nodiscard]] __device__ distribution weigh_numbers(engine_draft_rows<Q> const& rows, std::size_t row, float scale,
                                                    std::uint32_t vocabulary, weigh_drafts_shared& s) {
    distribution q{};
    q.scale = scale;
    if (threadIdx.x == 0) s.bad = 0;
    __syncthreads();
    auto const counts = [&](std::uint32_t i) { return !rows.listed || rows.listed[row + i] != no_token; };
    float largest = -infinity;
    bool bad = false;
    for (std::uint32_t i = threadIdx.x; i < rows.size; i += blockDim.x) {
        if (!counts(i)) continue;
        float const x = load(rows.data[row + i]);
        largest = fmaxf(largest, x);
        bad |= !(x < infinity) || (rows.probabilities && !(x >= 0.0f));
        if (!rows.listed) continue;
        std::int64_t const v = rows.listed[row + i];
        bad |= v < 0 || v >= static_cast<std::int64_t>(vocabulary);
        for (std::uint32_t j = 0; j < i; ++j) bad |= rows.listed[row + j] == v;  // twice
    }
    largest = largest_of_lanes(largest);
    if (lane_index() == 0) s.largest[warp_index()] = largest;
    if (bad) s.bad = 1;
    __syncthreads();
    for (float const part : s.largest) largest = fmaxf(largest, part);
    q.shift = largest;
    double sum = 0.0;
    for (std::uint32_t i = threadIdx.x; i < rows.size; i += blockDim.x) {
        if (counts(i)) sum += static_cast<double>(rows.weight_at(row + i, q, static_cast<token_id>(i)));
    }
    q.total = sum_of_threads(s.verification, sum);
    bool const good = s.bad == 0 && q.total > 0.0 && q.total < static_cast<double>(infinity);
    q.kind = good ? distribution_kind::dense : distribution_kind::invalid;
    return q;
}

/// What each draft was drawn from, a block of threads a draft. One that its q excludes has probability 0.
template <class Q>
__global__ void __launch_bounds__(verification_threads)
    weigh_drafts(engine_draft_rows<Q> const __grid_constant__ rows, verifier_memory const __grid_constant__ memory) {
    auto& s = shared_memory<weigh_drafts_shared>();
    device_round const& round = memory.round;
    device_limits const& limits = memory.limits.round;
    std::uint32_t const drafts = *round.requests.count * limits.block_size;
    for (std::uint32_t i = blockIdx.x; i < drafts; i += gridDim.x) {
        std::uint32_t const r = i / limits.block_size;
        std::uint32_t const k = i % limits.block_size;
        if (memory.found[r] != 0 || k >= round.drafts.sizes[r]) continue;
        float const scale = rows.probabilities ? 1.0f : draft_scale(round, r);
        distribution const q = weigh_numbers(rows, rows.begin(r, k), scale, limits.vocabulary, s);
        if (warp_index() == 0) {
            token_id const x = round.drafts.tokens[i];
            double const kept = q.valid() ? static_cast<double>(rows.weight(r, k, q, x)) / q.total : 0.0;
            if (lane_index() == 0) {
                round.drafts.distributions[i] = q;
                round.drafts.token_probabilities[i] = kept;
            }
        }
        __syncthreads();  // s is free again
    }
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
