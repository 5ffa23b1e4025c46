// SPDX-License-Identifier: MIT
//
// What an acceptance rule sees of one request on the device: the request and its draws (judged_request.cuh,
// target_draws.cuh), and corrections. In: distributions p of target rows and q of drafts. Out: a token of the
// distribution max(p - q, 0) / its mass. For block verification a test of the prefix comes with it. All as in the
// host's verification.hpp and residual.hpp, with the same keys and the same order of decisions.
//
// A whole block of threads shares the work of a correction. Proposals are independent keyed draws, so every warp makes
// one. The first in order that is taken or rejects decides, as on the host. Proposals behind that one are ignored.
// Where none settles it, there is a pass over p and q, O(V). Of long rows, many blocks of threads make it in the next
// kernel.
//
// All functions are BLOCK collectives, results are the same in all threads, and shared scratch is free again when they
// return, unless they say otherwise.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/verify/judged_request.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/target_draws.cuh>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/residual.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// A rejected draft token, where no_token says that nothing is settled yet.
inline constexpr token_id rejected_token = -2;

/// A block may make a pass over so many blocks of a row by itself as soon as it would wait for others.
inline constexpr std::uint32_t short_row_blocks = 4;

/// A request with its draws and corrections.
template <class T, class DraftRows>
class verification : public target_draws<T, DraftRows> {
    using base = target_draws<T, DraftRows>;

public:
    using base::blocks;
    using base::drafted_from;
    using base::drafts;
    using base::draw;
    using base::draw_by_warp;
    using base::emit;
    using base::key;
    using base::memory;
    using base::request;
    using base::row;
    using base::target;
    using base::total_mass;
    using base::vocabulary;

    /// `stage`: the next kernel that makes passes; pass_stages if there is none.
    __device__ verification(verify_task<T, DraftRows> const& task, verification_shared& s, std::uint32_t r,
                            std::uint32_t stage)
        : base(task, s, r), stage_(stage) {}

    /// The correction at position k, or its pass is on the way: a token with probability max(p - q, 0) / its mass
    /// (draw_residual). Ends the request, now or then.
    __device__ void correct(std::uint32_t k) {
        prepare_draw(k);
        distribution const p = target(k).p;
        draw_key const name = key(k, purpose::residual);
        // All of a one-hot distribution that is left once anything is taken out of it is its token.
        token_id y = p.is_one_hot() ? p.mode : no_token;
        if (y == no_token && blocks() > 1) {
            y = first_settled(residual_proposals, [&](std::uint32_t i) { return propose(k, p, 1.0, name, i << 16); });
        }
        double mass = 0.0;
        if (y == no_token) {
            if (!pass({k, 0, 1.0}, mass)) return;
            y = draw_left({k, 0, 1.0}, mass);
        }
        emit(k, y);
    }
    /// Block verification's test of a prefix of k tokens that survives with probability `scale` < 1, and the correction
    /// behind it (correct_or_reject): a token, rejected_token, or no_token if its pass is on the way.
    [[nodiscard]] __device__ token_id correct_or_reject(std::uint32_t k, double scale) {
        prepare_draw(k);
        distribution const p = target(k).p;
        if (blocks() > 1) {
            draw_key const test = key(k - 1, purpose::accept);
            draw_key const name = key(k, purpose::residual);
            token_id const y = first_settled(judging_proposals, [&](std::uint32_t i) {
                std::uint32_t const turn = 8 * i << 16;
                draw_key named = test;
                named.index |= turn;
                return accepts(uniform(named), scale, 1.0) ? propose(k, p, scale, name, turn) : rejected_token;
            });
            if (y != no_token) return y;
        }
        double mass = 0.0;
        residual_pass const how{k, 1, scale};
        return pass(how, mass) ? judge_by_mass(how, mass) : no_token;
    }
    /// What correct_or_reject was open about, once the mass of max(scale p - q, 0) is known: a token or rejected_token.
    [[nodiscard]] __device__ token_id judge_by_mass(residual_pass const& how, double mass) {
        draw_key last = key(how.position - 1, purpose::accept);
        if (blocks() > 1) last.index |= 1u << 16;
        bool const corrects = accepts(uniform(last), mass, mass + (1.0 - how.scale));
        token_id const y = corrects ? draw_left(how, mass) : rejected_token;
        return y == no_token ? rejected_token : y;
    }
    /// A token of the distribution max(scale p - q, 0), whose blocks' masses are known. No mass left means p = q up to
    /// rounding, where rejection can round into existence: then p itself is the distribution.
    [[nodiscard]] __device__ token_id draw_left(residual_pass const& how, double mass) {
        std::uint32_t const k = how.position;
        draw_key const name = key(k, purpose::residual);
        if (mass > 0.0) {
            double const threshold = uniform(name) * mass;
            double const* const masses = left();
            std::uint32_t const b = find_block(masses, blocks(), threshold);
            remainder const of = remainder_of(how);
            weigh_draft(k, b);
            token_id const y = chosen_by_first_warp([&] {
                std::uint32_t const place = find_place<4>(
                    0, b == 0 ? 0.0 : masses[b - 1], threshold,
                    [&](unsigned i, unsigned e) { return left_of(of, b, (i * warp_size + lane_index()) * 4 + e); });
                return place == no_place ? no_token : static_cast<token_id>(b * block_tokens + place);
            });
            if (y != no_token) return y;
        }
        return draw(k, name);
    }
    /// One block of a pass: its mass, stored.
    __device__ void pass_block(residual_pass const& how, std::uint32_t b) {
        remainder const of = remainder_of(how);
        weigh_draft(how.position, b);
        base::weigh_left(b, [&](std::uint32_t i) { return left_of(of, b, i); });
    }

private:
    using base::chosen_by_first_warp;
    using base::left;
    using base::prepare_draw;
    using base::scratch;

    /// try_to(0), try_to(1) ..., a warp each: the first that is not no_token, which is what they return if none is.
    template <class Try>
    [[nodiscard]] __device__ token_id first_settled(std::uint32_t count, Try const& try_to) {
        static_assert(residual_proposals % verification_warps == 0 && judging_proposals % verification_warps == 0);
        token_id settled = no_token;
        for (std::uint32_t first = 0; first < count && settled == no_token; first += verification_warps) {
            token_id const y = try_to(first + warp_index());
            if (lane_index() == 0) scratch().outcomes[warp_index()] = y;
            __syncthreads();
            for (unsigned w = verification_warps; w-- > 0;) {
                if (scratch().outcomes[w] != no_token) settled = scratch().outcomes[w];
            }
            __syncthreads();
        }
        return settled;
    }
    /// WARP collective: y ~ p, if it is the correction, which it is with probability max(1 - q(y) / (scale p(y)), 0).
    [[nodiscard]] __device__ token_id propose(std::uint32_t k, distribution const& p, double scale, draw_key name,
                                              std::uint32_t attempt) const {
        name.index |= attempt;
        name.use = purpose::proposal;
        token_id const y = draw_by_warp(k, p, name);
        if (y == no_token) return no_token;
        distribution const& q = drafted_from(k);
        double const drafted = q.is_one_hot() ? (y == q.mode ? 1.0 : 0.0)
                                              : static_cast<double>(drafts().weight(request(), k, q, y)) / q.total;
        double const survives = scale * probability_of(p, row(k), y);
        name.use = purpose::proposal_accept;
        return accepts(uniform(name), fmax(survives - drafted, 0.0), survives) ? y : no_token;
    }
    /// Weights of q of a block, for all to read.
    __device__ void weigh_draft(std::uint32_t k, std::uint32_t b) {
        distribution const& q = drafted_from(k);
        if (q.is_one_hot()) {
            for (std::uint32_t i = threadIdx.x; i < block_tokens; i += verification_threads) {
                scratch().drafted[i] = b * block_tokens + i == static_cast<std::uint32_t>(q.mode) ? 1.0f : 0.0f;
            }
        } else {
            drafts().weights(request(), k, q, b, scratch().drafted);
        }
        __syncthreads();
    }
    /// max(scale p - q, 0), in units of p's weights, of which q's are a fixed multiple: exactly 0 where both are the same.
    struct remainder {
        distribution p;
        T const* row;
        double ratio;
        double factor;
    };
    [[nodiscard]] __device__ remainder remainder_of(residual_pass const& how) const {
        distribution const p = target(how.position).p;
        return {p, row(how.position), p.total / (drafted_from(how.position).total * how.scale), how.scale / p.total};
    }
    /// Of token i of the block whose drafted weights are there.
    [[nodiscard]] __device__ double left_of(remainder const& of, std::uint32_t b, std::uint32_t i) const {
        std::uint32_t const v = b * block_tokens + i;
        if (v >= vocabulary()) return 0.0;
        double const difference = static_cast<double>(weight_of(of.p, of.row, static_cast<token_id>(v))) -
                                  static_cast<double>(scratch().drafted[i]) * of.ratio;
        return difference > 0.0 ? difference * of.factor : 0.0;
    }
    /// Makes the pass, or lets many blocks make it and returns false: the request is resumed when they have.
    [[nodiscard]] __device__ bool pass(residual_pass const& how, double& mass) {
        if (blocks() <= short_row_blocks || stage_ == pass_stages) {
            for (std::uint32_t b = 0; b < blocks(); ++b) pass_block(how, b);
            mass = total_mass();
            return true;
        }
        if (threadIdx.x == 0) {
            memory().passes[request()] = how;
            memory().pass_blocks[request()] = 0;
            std::uint32_t const place = atomicAdd(&memory().counters->waiting[stage_], 1u);
            memory().queues[stage_ * memory().limits.requests + place] = request();
        }
        return false;
    }

    std::uint32_t stage_;
};

}  // namespace cuda
SURELEAP_END_NAMESPACE
