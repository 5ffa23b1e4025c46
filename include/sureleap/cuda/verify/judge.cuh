// SPDX-License-Identifier: MIT
//
// Who judges a request, and when. In: rows of the target as they are completed, in any order. Out: verdicts, by the
// rules of rules.cuh.
//
// One block at a time judges a request, without locks. A completion is an atomic addition to the request's count of
// rows that nobody has judged. The block that finds the count at zero judges, until it can leave the count at zero
// again. A request whose rows come with normalisers needs none of this: one block judges it from its first row to its
// last.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/rules.cuh>
#include <sureleap/cuda/verify/target_rows.cuh>
#include <sureleap/cuda/verify/verification.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// BLOCK collective: row k of request r is complete. Judges what is complete of the request, unless another block does.
template <class Rule, class T, class DraftRows>
__device__ __noinline__ void complete_row(verify_task<T, DraftRows> const& task, verify_shared& s, std::uint32_t r,
                                          std::uint32_t k) {
    verify_memory const& memory = task.memory;
    make_target<Rule>(task, s, r, k);
    if (threadIdx.x == 0) {
        request_state const addition = one_completion | request_state{1} << k;
        __threadfence();
        request_state const before = atomicAdd(memory.states + r, addition);
        __threadfence();
        s.state = completions(before) == 0 ? before + addition : closed;
    }
    __syncthreads();
    request_state state = s.state;
    if ((state & closed) != 0) return;
    verification<T, DraftRows> c{task, s.verification, r, 0};
    std::uint32_t next = memory.next[r];
    do {
        bool const over = Rule::advance(c, next, complete_rows(state));
        __syncthreads();
        if (threadIdx.x == 0) {
            s.state = closed;
            if (over) {
                atomicOr(memory.states + r, closed);
            } else {
                memory.next[r] = next;
                __threadfence();
                request_state const seen = completions(state) * one_completion;
                request_state const left = atomicAdd(memory.states + r, 0 - seen) - seen;
                __threadfence();
                if (completions(left) != 0) s.state = left;
            }
        }
        __syncthreads();
        state = s.state;
    } while ((state & closed) == 0);
}

/// BLOCK collective: judges a request whose rows come with their normalisers, one row after the other.
template <class Rule, class T, class DraftRows>
__device__ __noinline__ void judge_taken(verify_task<T, DraftRows> const& task, verify_shared& s, std::uint32_t r) {
    verification<T, DraftRows> c{task, s.verification, r, 0};
    std::uint32_t next = 0;
    for (std::uint32_t k = 0; k <= c.length(); ++k) {
        law p = c.take_law(k);
        if (p.valid() && (Rule::chooses || is_rounded_far(p.shift))) p = c.sum_taken(k, p);
        if (warp_index() == 0) {
            token_id choice = no_token;
            if constexpr (Rule::chooses) {
                if (p.valid()) choice = c.draw_by_warp(k, p, c.noise(k));
            }
            if (lane_index() == 0) c.store(k, p, choice);
        }
        __syncthreads();
        if (Rule::advance(c, next, (2u << k) - 1)) return;
    }
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
