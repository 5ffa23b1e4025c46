// SPDX-License-Identifier: MIT
//
// What is left of p once a draft was rejected, and the correction that is drawn from it (the host's
// verify/residual.hpp). In: distributions p of target rows and q of drafts. Out: a token of the distribution max(p - q,
// 0) / its mass. For block verification a test of the prefix comes with it. All with the host's keys and in the host's
// order of decisions.
//
// A whole block of threads shares the work of a correction. Proposals are independent keyed draws, so every warp makes
// one. The first in order that is taken or rejects decides, as on the host. Proposals behind that one are ignored.
// Where none settles it, there is a pass over p and q, O(V). Of long rows, many blocks of threads make it (queue.cuh).
//
// All functions are BLOCK collectives, results are the same in all threads, and c.shared is free again when they
// return, unless they say otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/cold.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/queue.cuh>
#include <sureleap/cuda/verify/target_draws.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/residual.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// A rejected draft token, where no_token says that nothing is settled yet.
inline constexpr token_id rejected_token = -2;

/// A pass over so few blocks of a row is made at once, by the block of threads that needs it.
inline constexpr std::uint32_t short_row_blocks = 4;

namespace detail {

// ---- q, and masses of what is left: of chains and trees ------------------------------------------------------------

/// Any WARP: q(x) of position k.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ double drafted_probability(verification<Rows, DraftRows> const& c, std::uint32_t k,
                                                    token_id x) {
    distribution const& q = c.q(k);
    if (q.is_one_hot()) return x == q.mode ? 1.0 : 0.0;
    return quotient(static_cast<double>(c.task.drafts.weight(c.r, k, q, x)), q.total);
}

/// q's weights of block b of position k into c.shared->drafted, for all to read.
template <class Rows, class DraftRows>
__device__ __noinline__ void weigh_draft(verification<Rows, DraftRows> const& c, std::uint32_t k, std::uint32_t b) {
    distribution const& q = c.q(k);
    float* const drafted = c.shared->drafted;
    if (q.is_one_hot()) {
#pragma unroll 1
        for (std::uint32_t i = threadIdx.x; i < block_tokens; i += verification_threads) {
            drafted[i] = b * block_tokens + i == static_cast<std::uint32_t>(q.mode) ? 1.0f : 0.0f;
        }
    } else {
        c.task.drafts.weights(c.r, k, q, b, drafted);
    }
    __syncthreads();
}

/// The sum of the threads' numbers.
[[nodiscard]] __device__ inline double sum_of_threads(verification_shared& s, double own) {
    own = total_of_lanes(own);
    if (lane_index() == 0) s.sums[warp_index()] = own;
    __syncthreads();
    double sum = 0.0;
    for (double const part : s.sums) sum += part;
    __syncthreads();
    return sum;
}

/// The mass of block b of what a rule left of p, stored: the sum of left_of(i) over its tokens i, one thread each.
template <class Rows, class DraftRows, class Left>
__device__ void weigh_left(verification<Rows, DraftRows> const& c, std::uint32_t b, Left const& left_of) {
    double sum = 0.0;
#pragma unroll 1
    for (std::uint32_t i = threadIdx.x; i < block_tokens; i += verification_threads) sum += left_of(i);
    sum = total_of_lanes(sum);
    if (lane_index() == 0) c.shared->sums[warp_index()] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        double mass = 0.0;
#pragma unroll 1
        for (double const part : c.shared->sums) mass += part;
        c.left()[b] = mass;
    }
    __syncthreads();
}

/// The mass of all blocks, when they are stored; makes them cumulative.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ double total_left(verification<Rows, DraftRows> const& c) {
    return add_up(*c.shared, c.left(), c.blocks());
}

/// The token of what a rule left of p at `threshold`, by cumulative masses. left_of(b, i): what is left of token i of
/// block b, by one thread, when q's weights of the block are there if `reads_q`. No mass left means that rejection
/// rounded into existence: then it is a token of p itself, by `name`.
template <bool reads_q, class Rows, class DraftRows, class Left>
[[nodiscard]] __device__ token_id draw_left(verification<Rows, DraftRows> const& c, std::uint32_t k, double threshold,
                                            draw_key const& name, Left const& left_of) {
    double const* const masses = c.left();
    std::uint32_t const b = find_block(masses, c.blocks(), threshold);
    if (b != no_place) {
        double const before = b == 0 ? 0.0 : masses[b - 1];
        if constexpr (reads_q) weigh_draft(c, k, b);
        token_id const y = chosen_by_first_warp(*c.shared, [&] {
            place_search s{threshold, before};
            search_parts<4>(s,
                            [&](unsigned i, unsigned e) { return left_of(b, (i * warp_size + lane_index()) * 4 + e); });
            return s.found == no_place ? no_token : static_cast<token_id>(b * block_tokens + s.found);
        });
        if (y != no_token) return y;
    }
    return draw_target(c, k, name);
}

// ---- of chains: max(scale p - q, 0) --------------------------------------------------------------------------------

/// max(scale p - q, 0), in units of p's weights, of which q's are a fixed multiple: exactly 0 where both are the same.
template <class Row>
struct remainder {
    distribution p;
    Row row;
    std::uint32_t vocabulary;
    double ratio;
    double factor;

    template <class Rows, class DraftRows>
    __device__ remainder(verification<Rows, DraftRows> const& c, residual_pass const& how)
        : p(c.target(how.position).p),
          row(c.row(how.position)),
          vocabulary(c.vocabulary()),
          ratio(quotient(p.total, c.q(how.position).total * how.scale)),
          factor(quotient(how.scale, p.total)) {}

    /// Of token i of block b, to which q gives the weight `drafted`.
    [[nodiscard]] __device__ __noinline__ double of(std::uint32_t b, std::uint32_t i, float drafted) const {
        std::uint32_t const v = b * block_tokens + i;
        if (v >= vocabulary) return 0.0;
        double const difference =
            static_cast<double>(weight_of(p, row, static_cast<token_id>(v))) - static_cast<double>(drafted) * ratio;
        return difference > 0.0 ? difference * factor : 0.0;
    }
};

/// WARP collective: y ~ p, if it is the correction, which it is with probability max(1 - q(y) / (scale p(y)), 0).
template <class Rows, class DraftRows>
[[nodiscard]] __device__ __noinline__ token_id propose(verification<Rows, DraftRows> const& c, std::uint32_t k,
                                                       distribution const& p, double scale, draw_key name,
                                                       std::uint32_t attempt) {
    name.index |= attempt;
    name.use = purpose::proposal;
    token_id const y = draw_by_warp(c, k, p, name);
    if (y == no_token) return no_token;
    double const drafted = drafted_probability(c, k, y);
    double const survives = scale * probability_of(p, c.row(k), y);
    name.use = purpose::proposal_accept;
    return accepts(draw_number(name), fmax(survives - drafted, 0.0), survives) ? y : no_token;
}

/// try_to(0), try_to(1) ..., a warp each: the first that is not no_token, which is what they return if none is.
template <class Try>
[[nodiscard]] __device__ token_id first_settled(verification_shared& s, std::uint32_t count, Try const& try_to) {
    static_assert(residual_proposals % verification_warps == 0 && judging_proposals % verification_warps == 0);
    token_id settled = no_token;
    for (std::uint32_t first = 0; first < count && settled == no_token; first += verification_warps) {
        token_id const y = try_to(first + warp_index());
        if (lane_index() == 0) s.outcomes[warp_index()] = y;
        __syncthreads();
#pragma unroll 1
        for (unsigned w = verification_warps; w-- > 0;) {
            if (s.outcomes[w] != no_token) settled = s.outcomes[w];
        }
        __syncthreads();
    }
    return settled;
}

/// One block of a pass: its mass, stored.
template <class Rows, class DraftRows>
__device__ __noinline__ void pass_block(verification<Rows, DraftRows> const& c, residual_pass const& how,
                                        std::uint32_t b) {
    remainder<typename Rows::row_type> const left(c, how);
    weigh_draft(c, how.position, b);
    weigh_left(c, b, [&](std::uint32_t i) { return left.of(b, i, c.shared->drafted[i]); });
}

/// Makes the pass, or lets many blocks make it and returns false: whoever makes the last one of it resumes the request.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ __noinline__ bool pass(verification<Rows, DraftRows> const& c, residual_pass const& how,
                                                double& mass) {
    if (c.blocks() <= short_row_blocks) {
        for (std::uint32_t b = 0; b < c.blocks(); ++b) pass_block(c, how, b);
        mass = total_left(c);
        return true;
    }
    if (threadIdx.x == 0) open_pass(c.task.memory, c.r, how);
    return false;
}

}  // namespace detail

/// A token of the distribution max(scale p - q, 0), whose blocks' masses are known. No mass left means p = q up to
/// rounding: then p itself is the distribution.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ __noinline__ token_id draw_residual(verification<Rows, DraftRows> const& c,
                                                             residual_pass const& how, double mass) {
    draw_key const name = c.key(how.position, purpose::residual);
    detail::remainder<typename Rows::row_type> const left(c, how);
    return detail::draw_left<true>(
        c, how.position, draw_number(name) * mass, name,
        [&](std::uint32_t b, std::uint32_t i) { return left.of(b, i, c.shared->drafted[i]); });
}

/// The correction at position k, or its pass is on the way: a token with probability max(p - q, 0) / its mass
/// (draw_residual). Ends the request, now or then.
template <class Rows, class DraftRows>
__device__ __noinline__ void correct(verification<Rows, DraftRows> const& c, std::uint32_t k) {
    detail::prepare_draw(c, k);
    distribution const p = c.target(k).p;
    draw_key const name = c.key(k, purpose::residual);
    // All of a one-hot distribution that is left once anything is taken out of it is its token.
    token_id y = p.is_one_hot() ? p.mode : no_token;
    if (y == no_token && c.blocks() > 1) {
        y = detail::first_settled(*c.shared, residual_proposals,
                                  [&](std::uint32_t i) { return detail::propose(c, k, p, 1.0, name, i << 16); });
    }
    double mass = 0.0;
    if (y == no_token) {
        if (!detail::pass(c, {k, 0, 1.0}, mass)) return;
        y = draw_residual(c, {k, 0, 1.0}, mass);
    }
    emit(c, k, y);
}

/// What correct_or_reject was open about, once the mass of max(scale p - q, 0) is known: a token or rejected_token.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ token_id judge_by_mass(verification<Rows, DraftRows> const& c, residual_pass const& how,
                                                double mass) {
    draw_key last = c.key(how.position - 1, purpose::accept);
    if (c.blocks() > 1) last.index |= 1u << 16;
    bool const corrects = accepts(draw_number(last), mass, mass + (1.0 - how.scale));
    token_id const y = corrects ? draw_residual(c, how, mass) : rejected_token;
    return y == no_token ? rejected_token : y;
}

/// Block verification's test of a prefix of k tokens that survives with probability `scale` < 1, and the correction
/// behind it: a token, rejected_token, or no_token if its pass is on the way.
template <class Rows, class DraftRows>
[[nodiscard]] __device__ __noinline__ token_id correct_or_reject(verification<Rows, DraftRows> const& c,
                                                                 std::uint32_t k, double scale) {
    detail::prepare_draw(c, k);
    distribution const p = c.target(k).p;
    if (c.blocks() > 1) {
        draw_key const test = c.key(k - 1, purpose::accept);
        draw_key const name = c.key(k, purpose::residual);
        token_id const y = detail::first_settled(*c.shared, judging_proposals, [&](std::uint32_t i) {
            std::uint32_t const turn = 8 * i << 16;
            draw_key named = test;
            named.index |= turn;
            return accepts(draw_number(named), scale, 1.0) ? detail::propose(c, k, p, scale, name, turn)
                                                           : rejected_token;
        });
        if (y != no_token) return y;
    }
    double mass = 0.0;
    residual_pass const how{k, 1, scale};
    return detail::pass(c, how, mass) ? judge_by_mass(c, how, mass) : no_token;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
