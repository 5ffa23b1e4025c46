// SPDX-License-Identifier: MIT
//
// What a target row is to its rule. In: the weights of its blocks (weigh.cuh). Out, in memory.targets:
// its distribution, the probability of the drafted token, and the token that the target itself chooses, if the rule
// wants it first.
//
// A distribution takes a warp O(V / 1024) and no look at the row. If it is truncated, it takes a block of threads: for
// the search for the last token kept (sampling/truncate.cuh), and a sum over the blocks that keep tokens.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/cold.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/gumbel_max_row.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/sampling/truncate.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/target_draws.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/cuda/verify/work.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// What a block keeps in shared memory while it judges.
struct verify_shared {
    verification_shared verification;
    union {
        truncate_shared truncation;
        gumbel_shared gumbel;
    };
    distribution p;
    request_standing standing;
};

/// A float rounds this normaliser by more than 4e-6, which the probability of a judged draft would be off by.
[[nodiscard]] __device__ __forceinline__ bool is_rounded_far(float log_normaliser) {
    return fabsf(log_normaliser) > 64.0f;
}

/// What the drafted token has in row k; anything behind the block.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ float drafted_logit(verification<Rows, DraftRows> const& c, std::uint32_t k) {
    token_id const x = c.token_or_none(k);
    return x != no_token ? load(c.row(k)[x]) : 0.0f;
}

/// The distribution of row k that `made` is, unless the text has ended before: then there is none to read, and a rule
/// that draws there gets the stop token once more, which nobody emits.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ __noinline__ distribution unless_ended(verification<Rows, DraftRows> const& c, std::uint32_t k,
                                                                distribution const& made) {
    return k > 0 && c.task.round.stops_at(c.r, c.token(k - 1)) ? distribution::one_hot(c.token(k - 1)) : made;
}

/// One thread, once the row is complete: what rules will ask of it. `drafted`: drafted_logit(c, k).
template <class Rows, class DraftRows>
__device__ __noinline__ void store_target(verification<Rows, DraftRows> const& c, std::uint32_t k,
                                          distribution const& made, token_id choice, float drafted) {
    distribution const p = unless_ended(c, k, made);
    double kept = 0.0;
    token_id const x = c.token_or_none(k);
    if (p.valid() && x != no_token) {
        double const weight = static_cast<double>(p.weight(drafted, x));
        kept = p.is_one_hot() ? (x == p.mode ? 1.0 : 0.0) : quotient(weight, p.total);
    }
    c.target(k) = {p, p.is_one_hot() ? p.mode : choice, kept};
}

/// sum 2^exponent, which is at most 0; 0 below 2^-126, since all weights of such a block may be 0 as floats. The whole
/// part of the exponent is exact, so that a float is enough for the rest.
[[nodiscard]] __device__ __forceinline__ double shifted(float sum, double exponent) {
    if (!(sum > 0.0f) || !(exponent > -126.0)) return 0.0;
    double const whole = floor(exponent);
    float const part = sum * quick_exp2(static_cast<float>(exponent - whole));
    auto const bits = static_cast<std::uint64_t>(static_cast<std::int64_t>(whole) + 1023) << 52;
    return static_cast<double>(part) * sureleap::detail::bits_as<double>(bits);
}

/// WARP collective: the distribution of a row from the weights of its blocks, without truncation, and its cumulative
/// sums. `scale` is what the weights were made with.
template <class Row>
[[nodiscard]] __device__ __noinline__ distribution distribution_of(Row row, std::uint32_t size,
                                                                   block_weight const* weights, double* upto,
                                                                   bool greedy, float scale) {
    std::uint32_t const blocks = count_blocks(size);
    float largest = -infinity;
    bool bad = false;
#pragma unroll 1
    for (std::uint32_t b = lane_index(); b < blocks; b += warp_size) {
        block_weight const weight = weights[b];
        bad |= !(weight.sum < infinity);  // NaN as well
        largest = fmaxf(largest, weight.largest);
    }
    largest = largest_of_lanes(largest);
    distribution p{};
    if (__any_sync(all_lanes, bad) || !(largest > -infinity)) return p;
    if (greedy) {
        std::uint32_t first = no_place;
#pragma unroll 1
        for (std::uint32_t b = lane_index(); b < blocks && first == no_place; b += warp_size) {
            if (weights[b].largest == largest) first = b;
        }
        first = __reduce_min_sync(all_lanes, first);
        return distribution::one_hot(find_largest(row, size, first, largest));
    }
    p.shift = largest;
    p.scale = scale;
    p.kind = distribution_kind::dense;
    float const rate = rate_of(scale);
    double const top = static_cast<double>(largest) * static_cast<double>(rate);  // exactly that of the shift
    std::uint32_t const share = sum_share(blocks);
#pragma unroll 1
    for (std::uint32_t b = lane_index() * share; b < (lane_index() + 1) * share && b < blocks; ++b) {
        block_weight const weight = weights[b];
        upto[b] = shifted(weight.sum, reference_of(weight.largest, rate) - top);
    }
    p.total = sum_in_order(blocks, upto);
    return p;
}

template <class Rows, class DraftRows>
[[nodiscard]] __device__ distribution distribution_of(verification<Rows, DraftRows> const& c, std::uint32_t k,
                                                      request_work const& how) {
    return distribution_of(c.row(k), c.vocabulary(), c.weights(k), c.upto(k), how.greedy, how.scale);
}

/// WARP collective: what a row that was weighed is to its rule, if its distribution is not truncated.
template <class Rule, class Rows, class DraftRows>
__device__ void make_target(verification<Rows, DraftRows> const& c, std::uint32_t k, request_work const& how) {
    float const drafted = drafted_logit(c, k);
    distribution p{};
    if (how.weighed) p = distribution_of(c, k, how);
    token_id choice = no_token;
    if constexpr (Rule::by_gumbel_max) {
        if (how.by_gumbel_max) {
            gumbel_winner const won = first_of(c.winners(k), c.blocks());
            choice = won.invalid != 0 ? no_token : won.token;
        } else if (p.is_one_hot()) {
            choice = p.mode;
        }
    } else if constexpr (Rule::greedy) {
        choice = p.valid() ? p.mode : no_token;
    } else if constexpr (Rule::chooses) {
        if (p.valid()) choice = draw_by_warp(c, k, p, c.noise(k));
    }
    if (!Rule::greedy && c.is_taken() && !take_distribution(c, k).valid()) {
        p = distribution{};
        choice = no_token;
    }
    if (lane_index() == 0) store_target(c, k, p, choice, drafted);
}

/// 1 / temperature of request r's drafts, which are not greedy.
[[nodiscard]] __device__ inline float draft_scale(device_round const& round, std::uint32_t r) {
    return static_cast<float>(quotient(1.0, round.requests.drafts[r].temperature));
}

/// WARP collective: what draft k was drawn from, if its row was weighed. A draft that its q excludes has probability 0.
template <class Rows, class DraftRows>
__device__ __noinline__ void make_draft(verification<Rows, DraftRows> const& c, std::uint32_t k) {
    DraftRows const& drafts = c.task.drafts;
    if (!drafts.weighs(c.r)) return;
    std::size_t const i = static_cast<std::size_t>(c.r) * c.task.memory.limits.block_size + k;
    std::size_t const at = i * c.blocks();
    distribution const q = distribution_of(drafts.row(c.r, k), c.vocabulary(), drafts.draft_weights + at,
                                           drafts.draft_upto + at, false, draft_scale(c.task.round, c.r));
    auto const weight = static_cast<double>(drafts.weight(c.r, k, q, c.token(k)));
    if (lane_index() != 0) return;
    c.task.round.drafts.distributions[i] = q;
    c.task.round.drafts.token_probabilities[i] = q.valid() ? quotient(weight, q.total) : 0.0;
}

/// BLOCK collective: the same of a row whose distribution is truncated.
template <class Rule, class Rows, class DraftRows>
__device__ void make_cut_target(verification<Rows, DraftRows> const& c, verify_shared& s, std::uint32_t k,
                                request_work const& how) {
    float const drafted = drafted_logit(c, k);
    if (warp_index() == 0) {
        distribution const whole = distribution_of(c, k, how);
        if (lane_index() == 0) s.p = whole;
    }
    __syncthreads();
    distribution p = s.p;
    gumbel_winner won{};
    if (p.valid()) {
        row_statistics const statistics{p.shift, p.total, c.weights(k)};
        cutoff const least = truncate(c.row(k), c.vocabulary(), c.target_transform(), statistics, s.truncation);
        p.least_logit = least.logit;
        p.least_id = least.id;
        p.total = sum_blocks(c, k, p, c.weights(k));
        if constexpr (Rule::by_gumbel_max) {
            won = gumbel_max_row(c.row(k), c.vocabulary(), p, c.noise(k), c.token_or_none(k), s.gumbel);
        }
    }
    if (warp_index() != 0) return;
    token_id choice = no_token;
    if constexpr (Rule::by_gumbel_max) {
        choice = won.invalid != 0 ? no_token : won.token;
    } else if constexpr (Rule::chooses) {
        if (p.valid()) choice = draw_by_warp(c, k, p, c.noise(k));
    }
    if (lane_index() == 0) store_target(c, k, p, choice, drafted);
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
