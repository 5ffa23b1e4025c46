// SPDX-License-Identifier: MIT
//
// The acceptance rules of verify/*.hpp on the device, named by the host's types. The host computes rows as a rule asks
// for them. Here all rows of a request are there when it is judged.
//
//     static request_fate fate_at(C const& c, std::uint32_t k);
//         One thread: what row k says of the request if all before it were accepted; open if it cannot say by itself.
//     static request_standing judge(C const& c);
//         WARP collective: the position at which the request ends, or that a row which the rule comes to holds no
//         distribution.
//     static void settle(C const& c, std::uint32_t position);
//         BLOCK collective: the verdict of the request, or a pass for it that many blocks make (queue.cuh).
//     static void resume(C const& c, residual_pass how, double mass);
//         BLOCK collective, if the rule corrects: after a pass that was left to many blocks (correct,
//         correct_or_reject).
//
// Verdicts are written by emit. A request that waits for a pass has none yet.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/cold.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/residual.cuh>
#include <sureleap/cuda/verify/target_draws.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What a rule wants to know of a row when it is complete.
struct judging_rule {
    static constexpr bool chooses = false;        ///< its token, before anything is judged
    static constexpr bool greedy = false;         ///< by the largest logit, whatever the transform
    static constexpr bool by_gumbel_max = false;  ///< by a race
    static constexpr bool takes = true;           ///< given normalisers are enough: a row with one need not be read
    static constexpr bool corrects = false;       ///< by a token of what is left of p, which may take a pass
    static constexpr bool walks = false;          ///< by itself along a tree, row by row (tree/rules.cuh)
    struct shared_type {};                        ///< what it keeps in shared memory for that

    template <class C>
    [[nodiscard]] static __device__ request_fate fate_at(C const&, std::uint32_t) {
        return request_fate::open;
    }
};

template <class Rule>
struct device_rule {
    static_assert(sizeof(Rule) == 0,
                  "cuda::accept: no device code for this rule; use token_rejection, block_verification, greedy_match, "
                  "target_match or keyed_coupling, or specialise cuda::device_rule");
};

/// WARP collective: judges rows 0 .. length, a lane each. The first that says something decides; the last one does.
template <class Rule, class C>
[[nodiscard]] __device__ request_standing judge_by_lanes(C const& c) {
    static_assert(device_limits::longest_block < warp_size);
    request_fate const mine = lane_index() <= c.length ? Rule::fate_at(c, lane_index()) : request_fate::open;
    int const first = first_lane(mine != request_fate::open);
    return {static_cast<request_fate>(__shfl_sync(all_lanes, static_cast<std::uint32_t>(mine), first)),
            static_cast<std::uint32_t>(first)};
}

/// Rules whose row says which token it is (detail::accept_matching).
struct matching_rule : judging_rule {
    static constexpr bool chooses = true;

    template <class C>
    [[nodiscard]] static __device__ request_fate fate_at(C const& c, std::uint32_t k) {
        token_id const y = c.target(k).choice;
        if (y == no_token) return request_fate::refused;
        return k == c.length || y != c.token(k) ? request_fate::decided : request_fate::open;
    }
    template <class C>
    [[nodiscard]] static __device__ request_standing judge(C const& c) {
        return judge_by_lanes<matching_rule>(c);
    }
    template <class C>
    static __device__ void settle(C const& c, std::uint32_t position) {
        emit(c, position, c.target(position).choice);
    }
};

template <class DraftRule>
struct device_rule<target_match<DraftRule>> : matching_rule {};

template <>
struct device_rule<greedy_match> : matching_rule {
    static constexpr bool greedy = true;
    static constexpr bool takes = false;  // which logit is the largest takes a pass
};

template <>
struct device_rule<keyed_coupling> : matching_rule {
    static constexpr bool by_gumbel_max = true;
    static constexpr bool takes = false;  // a race is a pass
};

template <class DraftRule>
struct device_rule<token_rejection<DraftRule>> : judging_rule {
    static constexpr bool corrects = true;

    template <class C>
    [[nodiscard]] static __device__ request_fate fate_at(C const& c, std::uint32_t k) {
        target_row const& p = c.target(k);
        if (!p.p.valid()) return request_fate::refused;
        if (k == c.length) return request_fate::decided;
        bool const accepted = accepts(draw_number(c.key(k, purpose::accept)), p.kept, c.drafted_with(k));
        return accepted ? request_fate::open : request_fate::decided;
    }
    template <class C>
    [[nodiscard]] static __device__ request_standing judge(C const& c) {
        return judge_by_lanes<device_rule>(c);
    }
    template <class C>
    static __device__ void settle(C const& c, std::uint32_t position) {
        if (position == c.length) {
            emit(c, position, draw_target(c, position, c.key(position, purpose::bonus)));
        } else {
            correct(c, position);
        }
    }
    template <class C>
    static __device__ void resume(C const& c, residual_pass const& how, double mass) {
        emit(c, how.position, draw_residual(c, how, mass));
    }
};

template <class DraftRule>
struct device_rule<block_verification<DraftRule>> : judging_rule {
    static constexpr bool corrects = true;

    /// Behind a token that p excludes, or a row without a distribution, nothing survives.
    template <class C>
    [[nodiscard]] static __device__ request_fate fate_at(C const& c, std::uint32_t k) {
        target_row const& p = c.target(k);
        if (!p.p.valid()) return request_fate::refused;
        return k == c.length || !(p.kept > 0.0) ? request_fate::decided : request_fate::open;
    }
    /// At l: the block is accepted whole. Before that: no longer prefix can be.
    template <class C>
    [[nodiscard]] static __device__ request_standing judge(C const& c) {
        std::uint32_t const length = c.length;
        double* const joint = c.joint();
        double survives = 1.0;
        for (std::uint32_t k = 0; k < length; ++k) {
            target_row const& p = c.target(k);
            if (!p.p.valid()) return {request_fate::refused, k};
            double const q = c.drafted_with(k);
            double const ratio = survives * p.kept;
            survives = ratio < q ? quotient(ratio, q) : 1.0;
            if (!(survives > 0.0)) return {request_fate::decided, k};
            if (lane_index() == 0) joint[k] = survives;
        }
        // The whole block survives with probability p_l; only then is the row behind it looked at.
        if (length > 0 && !accepts(draw_number(c.key(length - 1, purpose::accept)), survives, 1.0)) {
            return {request_fate::decided, length - 1};
        }
        return {c.target(length).p.valid() ? request_fate::decided : request_fate::refused, length};
    }
    template <class C>
    static __device__ void settle(C const& c, std::uint32_t position) {
        if (position == c.length) {
            emit(c, position, draw_target(c, position, c.key(position, purpose::bonus)));
        } else {
            take_back(c, position);
        }
    }
    template <class C>
    static __device__ void resume(C const& c, residual_pass const& how, double mass) {
        if (how.judges == 0) {
            emit(c, how.position, draw_residual(c, how, mass));
            return;
        }
        token_id const y = judge_by_mass(c, how, mass);
        if (y == rejected_token) {
            take_back(c, how.position - 1);
        } else {
            emit(c, how.position, y);
        }
    }

private:
    /// The longest prefix of at most `accepted` tokens whose test succeeds, and the correction behind it.
    template <class C>
    static __device__ void take_back(C const& c, std::uint32_t accepted) {
        for (; accepted > 0; --accepted) {
            double const survives = c.joint()[accepted - 1];
            if (survives >= 1.0) break;  // whatever is left
            token_id const y = correct_or_reject(c, accepted, survives);
            if (y == no_token) return;  // until its pass is done
            if (y == rejected_token) continue;
            emit(c, accepted, y);
            return;
        }
        correct(c, accepted);
    }
};

}  // namespace cuda
SURELEAP_END_NAMESPACE
