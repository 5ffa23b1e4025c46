// SPDX-License-Identifier: MIT
//
// The judgement of a request by a block of threads. In: the weights of its rows (weigh.cuh), or normalisers that came
// with them. Out: its verdict, by the rules of rules.cuh, or a pass over q that it waits for.
//
// Distributions of rows are made by a warp each, all at once. One warp then finds the position at which the request
// ends, and the block makes the correction or the further token.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/rules.cuh>
#include <sureleap/cuda/verify/target_draws.cuh>
#include <sureleap/cuda/verify/target_rows.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/cuda/verify/work.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// BLOCK collective: what rows are that come with their normalisers. A row is two loads, unless it is drawn from.
template <class Rule, class Rows, class DraftRows>
__device__ void take_targets(verification<Rows, DraftRows> const& c) {
    for (std::uint32_t k = 0; k <= c.length; ++k) {
        distribution p = take_distribution(c, k);
        if (p.valid() && (Rule::chooses || is_rounded_far(p.shift))) p = sum_taken(c, k, p);
        if (warp_index() != k % verification_warps) continue;
        token_id choice = no_token;
        if constexpr (Rule::chooses) {
            if (p.valid()) choice = draw_by_warp(c, k, p, c.noise(k));
        }
        if (lane_index() == 0) store_target(c, k, p, choice, drafted_logit(c, k));
    }
}

/// BLOCK collective: judges a request. What truncated distributions are is known by now (make_cut_target).
template <class Rule, class Rows, class DraftRows>
__device__ void judge_request(verify_task<Rows, DraftRows> const& task, verify_shared& s, std::uint32_t r) {
    request_work const work = request_work::of<Rule>(task, r);
    verification<Rows, DraftRows> const c{task, r, &s.verification};
    if (work.what == work_kind::nothing) return refuse_undrafted(c);
    if (work.what == work_kind::taken) {
        take_targets<Rule>(c);
    } else if (!work.cut) {
        for (std::uint32_t k = warp_index(); k <= work.length; k += verification_warps) {
            make_target<Rule, Rows, DraftRows>(c, k, work);
        }
    }
    __syncthreads();
    if (warp_index() == 0) {
        request_standing const standing = Rule::judge(c);
        if (lane_index() == 0) s.standing = standing;
    }
    __syncthreads();
    request_standing const standing = s.standing;
    if (standing.fate == request_fate::decided) {
        Rule::settle(c, standing.position);
    } else {
        refuse(c);
    }
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
