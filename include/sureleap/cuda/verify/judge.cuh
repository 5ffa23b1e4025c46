// SPDX-License-Identifier: MIT
//
// The judgement of requests by blocks of threads. In: the weights of their rows (weigh.cuh), or normalisers that came
// with them. Out: verdicts, by the rules of rules.cuh.
//
// Distributions of rows are made by a warp each, all at once; those that are truncated by a block of threads each, and
// the rows of a position before those of the next. One warp then finds the position at which the request ends, and the
// block makes the correction or the further token. What to do next, and who makes passes over q: queue.cuh.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/queue.cuh>
#include <sureleap/cuda/verify/residual.cuh>
#include <sureleap/cuda/verify/rules.cuh>
#include <sureleap/cuda/verify/target_draws.cuh>
#include <sureleap/cuda/verify/target_rows.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/cuda/verify/work.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// Blocks of threads on a multiprocessor that judge: proposals for a correction are made by all warps at once, so there
/// are many of them.
inline constexpr unsigned verification_residency = 2;

template <class Rule>
struct judging_shared {
    verify_shared rows;
    typename Rule::shared_type own;
    judging_task next;
    std::uint32_t flag;
};

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

/// WARP collective: drafted tokens before the first that the vocabulary does not have, or that its q excludes: it is no
/// draft.
template <class Rule, class Rows, class DraftRows>
[[nodiscard]] __device__ std::uint32_t sound_length(verification<Rows, DraftRows> const& c) {
    std::uint32_t const k = lane_index();
    bool known = k >= c.length || c.knows(c.token(k));
    if constexpr (Rule::corrects && weighed_draft_rows<DraftRows>) {
        known = known && (k >= c.length || c.drafted_with(k) > 0.0);
    }
    int const unknown = first_lane(!known);
    return unknown < 0 ? c.length : static_cast<std::uint32_t>(unknown);
}

/// BLOCK collective: judges a request. What truncated distributions are is known by now (cut_row).
template <class Rule, class Rows, class DraftRows>
__device__ void judge_request(verify_task<Rows, DraftRows> const& task, judging_shared<Rule>& s, std::uint32_t r) {
    request_work const work = request_work::of<Rule>(task, r);
    verification<Rows, DraftRows> c{task, r, &s.rows.verification};
    if (work.what == work_kind::nothing) return refuse_undrafted(c);
    if constexpr (Rule::walks) {
        Rule::walk(c, s.own, work);
    } else {
        if constexpr (Rule::corrects && weighed_draft_rows<DraftRows>) {
            for (std::uint32_t k = warp_index(); !work.cut && k < c.length; k += verification_warps) make_draft(c, k);
            __syncthreads();
        }
        if constexpr (!c.is_tree) c.length = sound_length<Rule>(c);
        if (work.what == work_kind::taken) {
            if constexpr (Rule::takes) take_targets<Rule>(c);
        } else if (!work.cut) {
            for (std::uint32_t k = warp_index(); k <= c.length; k += verification_warps) {
                make_target<Rule, Rows, DraftRows>(c, k, work);
            }
        }
        __syncthreads();
        if (warp_index() == 0) {
            request_standing const standing = Rule::judge(c);
            if (lane_index() == 0) s.rows.standing = standing;
        }
        __syncthreads();
        request_standing const standing = s.rows.standing;
        if (standing.fate == request_fate::decided) {
            Rule::settle(c, standing.position);
        } else {
            refuse(c);
        }
    }
}

/// BLOCK collective: finds what the truncated distribution of row k is, if a row before it has not settled the request.
/// True, in all threads, if this was the last row of the request.
template <class Rule, class Rows, class DraftRows>
[[nodiscard]] __device__ bool cut_row(verify_task<Rows, DraftRows> const& task, judging_shared<Rule>& s,
                                      std::uint32_t r, std::uint32_t k) {
    verify_memory const& memory = task.memory;
    request_work const work = request_work::of<Rule>(task, r);
    verification<Rows, DraftRows> const c{task, r, &s.rows.verification};
    if constexpr (Rule::corrects && weighed_draft_rows<DraftRows>) {
        if (warp_index() == 0 && k < c.length) make_draft(c, k);
    }
    if (threadIdx.x == 0) s.flag = k <= work.length && k <= peek(memory.settled_at + r) ? 1 : 0;
    __syncthreads();
    bool const matters = s.flag != 0;
    __syncthreads();
    if (matters) make_cut_target<Rule>(c, s.rows, k, work);
    if (threadIdx.x == 0) {
        if (!matters && k <= work.length) c.target(k) = target_row{};  // which may be read, and decides nothing
        if (matters && Rule::fate_at(c, k) != request_fate::open) atomicMin(memory.settled_at + r, k);
        s.flag = ends_last(memory.cut_rows + r, memory.limits.block_size + 1) ? 1 : 0;
    }
    __syncthreads();
    return s.flag != 0;
}

/// BLOCK collective: makes a part of a pass. True, in all threads, if it was the last one.
template <class Rule, class Rows, class DraftRows>
[[nodiscard]] __device__ bool make_part(verification<Rows, DraftRows> const& c, judging_shared<Rule>& s,
                                        residual_pass const& how, std::uint32_t b) {
    pass_block(c, how, b);
    verify_memory const& memory = c.task.memory;
    if (threadIdx.x == 0) s.flag = ends_last(memory.pass_blocks + c.r, memory.blocks()) ? 1 : 0;
    __syncthreads();
    return s.flag != 0;
}

/// Blocks of threads do what there is to do.
template <class Rule, class Rows, class DraftRows>
__global__ void __launch_bounds__(verification_threads, verification_residency)
    judge_requests(verify_task<Rows, DraftRows> const __grid_constant__ task) {
    auto& s = shared_memory<judging_shared<Rule>>();
    wait_for_kernel_before();
    std::uint32_t const requests = task.requests();
    judging_task next{};
    for (;;) {
        if (warp_index() == 0) {
            next = next_task<Rule>(task.memory, requests, next.what);
            if (lane_index() == 0) s.next = next;
        }
        __syncthreads();
        next = s.next;
        std::uint32_t const r = next.request;
        if (next.what == judging_step::none) return;
        if (next.what == judging_step::pass) {
            if constexpr (Rule::corrects) {
                verification<Rows, DraftRows> const c{task, r, &s.rows.verification};
                residual_pass const how = task.memory.passes[r];
                if (make_part<Rule>(c, s, how, next.part)) Rule::resume(c, how, total_left(c));
            }
        } else {
            bool judges = true;
            if constexpr (!Rule::greedy) {
                judges = next.what == judging_step::cut_row ? cut_row<Rule>(task, s, r, next.part)
                                                            : !request_work::of<Rule>(task, r).waits_for_cuts();
            }
            if (judges) judge_request<Rule>(task, s, r);
        }
        __syncthreads();
    }
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
