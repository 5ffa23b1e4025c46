// SPDX-License-Identifier: MIT
//
// Lossless verification on the device: the host's accept (round/stages.hpp), with the same tokens up to rounding. In:
// the drafts and the batch of a round, and the target's logits. Out: the verdicts of the round. Three kernels:
//
//     list_rows     1 block      which rows there are, position by position; verdicts that need no row
//     judge_rows    all blocks   weighs rows (row.cuh), makes their laws, judges requests (verify/rules.cuh, verify/verification.cuh)
//     make_passes   all blocks   residuals that proposals left open; returns at once if there are none
//
// judge_rows reads each logit that it needs once. Its work items are tiles, parts of rows: first those of all requests'
// rows of position 0, then those of position 1, and so on. Blocks of threads take them one after the other. The block
// that completes a row makes its distribution, and judges the rows of that request that are complete. Once a request is
// decided, its other rows are skipped. So no block waits for a decision, and few rows are read in vain. Rejected:
//   - a launch for each position reads no row in vain, and the device idles at the end of each launch;
//   - a block for each request reads no row in vain, and needs more requests than there are multiprocessors;
//   - all rows at once reads 1 + gamma rows where mostly 2 are needed.
//
// One block at a time judges a request, without locks. A completion is an atomic addition to the request's count of rows that
// nobody has judged. The block that finds the count at zero judges, until it can leave the count at zero again.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/draw.cuh>
#include <sureleap/cuda/sampling/gumbel_max_row.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/sampling/truncate.cuh>
#include <sureleap/cuda/verify/draft_rows.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/rules.cuh>
#include <sureleap/cuda/verify/verification.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

namespace detail {

/// Blocks of threads on a multiprocessor: 24 warps with 2 to 4 KiB in flight each are 48 to 96 KiB; some 36 would do.
inline constexpr unsigned verification_residency = 3;

/// Blocks of tokens that are a warp's part of a tile: 4 KiB of a row. Small tiles, since at small batches there are hardly more
/// of a position than multiprocessors. A race needs some preparation, as much as looking at four blocks.
template <class Rule, class T>
inline constexpr std::uint32_t warp_blocks = Rule::by_gumbel_max ? 4 : 4 / sizeof(T);
template <class Rule, class T>
[[nodiscard]] SURELEAP_HOST_DEVICE constexpr std::uint32_t count_tiles(std::uint32_t blocks) noexcept {
    return (blocks + verification_warps * warp_blocks<Rule, T> - 1) / (verification_warps * warp_blocks<Rule, T>);
}

struct work_item {
    work_kind what;
    std::uint32_t request;
    std::uint32_t position;
    std::uint32_t tile;
};

struct verify_shared {
    verification_shared verification;
    union {
        truncate_shared truncation;
        gumbel_shared gumbel;
    };
    law p;
    request_state state;
    work_item item;
    std::uint32_t completes;
};

// ---- work ------------------------------------------------------------------------------------------------------

/// WARP collective: the next piece of work that is still wanted. Rows of requests that are decided are passed over 32 at a
/// time, for everybody.
template <class Rule, class T>
__device__ void take_item(verify_memory const& memory, work_item& out) {
    verify_counters& counters = *memory.counters;
    std::uint32_t const finished = counters.finished;
    std::uint32_t const rows = counters.rows;
    std::uint32_t const tiles = count_tiles<Rule, T>(memory.blocks());
    work_item item{};
    for (bool found = false; !found;) {
        std::uint32_t i = lane_index() == 0 ? atomicAdd(&counters.next, 1u) : 0;
        i = __shfl_sync(all_lanes, i, 0);
        if (i < finished) {
            item = {work_kind::request, memory.order[i], 0, 0};
            break;
        }
        std::uint32_t const n = (i - finished) / tiles;
        if (n >= rows) break;
        std::uint32_t const at = n + lane_index();
        std::uint32_t const entry = memory.order[finished + (at < rows ? at : n)];
        bool const wanted =
            at < rows && (*static_cast<request_state const volatile*>(memory.states + (entry & 0xffffu)) & closed) == 0;
        unsigned const all_wanted = __ballot_sync(all_lanes, wanted);
        found = (all_wanted & 1u) != 0;
        item = {work_kind::rows, entry & 0xffffu, entry >> 16, (i - finished) % tiles};
        if (!found && lane_index() == 0) {
            std::uint32_t const skipped =
                all_wanted != 0 ? static_cast<std::uint32_t>(__ffs(static_cast<int>(all_wanted))) - 1 : warp_size;
            std::uint32_t const to = n + skipped < rows ? n + skipped : rows;
            atomicMax(&counters.next, finished + to * tiles);
        }
        if (!found) item = {};
    }
    if (lane_index() == 0) out = item;
}

[[nodiscard]] __device__ __forceinline__ float scale_of(transform const& how, bool greedy) {
    return greedy ? 1.0f : static_cast<float>(1.0 / how.temperature);
}

/// What a row is read for.
struct row_reading {
    bool greedy;         // its largest logit decides
    bool cut;            // it is truncated
    bool by_gumbel_max;  // its winner decides
    bool weighed;        // sums are needed, or the largest logit
    float scale;

    template <class Rule, class T, class DraftRows>
    [[nodiscard]] static __device__ row_reading of(verify_task<T, DraftRows> const& task, std::uint32_t r) {
        transform const& how = task.round.requests.targets[r];
        row_reading result{};
        result.greedy = Rule::greedy || how.greedy();
        result.cut = !result.greedy && how.truncates();
        result.by_gumbel_max = Rule::by_gumbel_max && !result.greedy && !result.cut;
        bool const needs_law = !result.by_gumbel_max || task.round.verdicts.log_probabilities != nullptr;
        result.weighed = needs_law && !(result.by_gumbel_max && task.rows.are_normalised(how));
        result.scale = scale_of(how, result.greedy);
        return result;
    }
};

/// A warp's part of a tile.
template <class Rule, class T, class DraftRows>
__device__ __noinline__ void weigh_tile(verify_task<T, DraftRows> const& task, verification_shared& s,
                                        work_item const& item) {
    verification<T, DraftRows> const c{task, s, item.request, 0};
    std::uint32_t const k = item.position;
    row_reading const how = row_reading::of<Rule>(task, item.request);
    T const* const row = c.row(k);
    std::uint32_t const size = c.vocabulary();
    std::uint32_t const part = item.tile * verification_warps + warp_index();
    std::uint32_t const begin = part * warp_blocks<Rule, T>;
    std::uint32_t const end = begin + warp_blocks<Rule, T> < c.blocks() ? begin + warp_blocks<Rule, T> : c.blocks();
    float const rate = rate_of(how.scale);
    if (how.weighed && begin < end) {
        // The next block is on its way while this one is weighed, as it is stored: widened, two would not fit the registers.
        row_lanes<T> logits;
        row_lanes<T> next;
        read_block(row, size, begin, next);
#pragma unroll 1
        for (std::uint32_t b = begin; b < end; ++b) {
            logits = next;
            if (warp_blocks<Rule, T> > 1 && b + 1 < end) read_block(row, size, b + 1, next);
            block_weight const weight = weigh_block(logits, rate);
            if (lane_index() == 0) c.weights(k)[b] = weight;
        }
    }
    if constexpr (Rule::by_gumbel_max) {
        if (!how.by_gumbel_max) return;
        law all{};
        all.scale = how.scale;
        warp_gumbel_max mine{c.noise(k), all};
        token_id const likely = c.token_or_none(k);  // so that there is a time to beat
        if (likely != no_token) mine.expect(likely, load(row[likely]));
        for (std::uint32_t b = begin; b < end; ++b) {
            mine.approach(row, size, b);
            row_lanes<T> logits;
            read_block(row, size, b, logits);
            mine.visit_block(row, b, logits);
        }
        gumbel_winner const result = mine.winner();
        if (lane_index() == 0) c.winners(k)[part] = result;
    }
}

/// One thread, after a barrier: a tile of the row is done. True if it was the last one, and of use to anybody.
[[nodiscard]] __device__ inline bool finish_tile(verify_memory const& memory, work_item const& item,
                                                 std::uint32_t tiles) {
    // What blocks wrote of the row is there for the last of them.
    __threadfence();
    bool const last = atomicAdd(memory.tiles + memory.row(item.request, item.position), 1u) + 1 == tiles;
    __threadfence();
    return last && (*static_cast<request_state const volatile*>(memory.states + item.request) & closed) == 0;
}

// ---- laws ------------------------------------------------------------------------------------------------------

/// A float rounds this normaliser by more than 4e-6, which the probability of a judged draft would be off by.
[[nodiscard]] __device__ __forceinline__ bool is_rounded_far(float log_normaliser) {
    return fabsf(log_normaliser) > 64.0f;
}

/// WARP collective: the law of a row from the weights of its blocks, without truncation, and its cumulative sums.
template <class T, class DraftRows>
[[nodiscard]] __device__ law law_of(verification<T, DraftRows> const& c, std::uint32_t k, row_reading const& how) {
    block_weight const* const weights = c.weights(k);
    std::uint32_t const blocks = c.blocks();
    float largest = -infinity;
    bool bad = false;
    for (std::uint32_t b = lane_index(); b < blocks; b += warp_size) {
        block_weight const weight = weights[b];
        bad |= !(weight.sum < infinity);  // NaN as well
        largest = fmaxf(largest, weight.largest);
    }
    largest = warp_max(largest);
    law p{};
    if (__any_sync(all_lanes, bad) || !(largest > -infinity)) return p;
    if (how.greedy) {
        std::uint32_t first = no_place;
        for (std::uint32_t b = lane_index(); b < blocks && first == no_place; b += warp_size) {
            if (weights[b].largest == largest) first = b;
        }
        first = __reduce_min_sync(all_lanes, first);
        return law::one_hot(find_largest(c.row(k), c.vocabulary(), first, largest));
    }
    p.shift = largest;
    p.scale = how.scale;
    p.kind = law_kind::dense;
    float const rate = rate_of(how.scale);
    double const top = static_cast<double>(largest) * static_cast<double>(rate);  // exactly that of the shift
    p.total = sum_in_order(blocks, c.upto(k), [&](std::uint32_t b) {
        block_weight const weight = weights[b];
        // Blocks whose largest weight is 0 as a float have none that could be drawn.
        if (!(weight.sum > 0.0f) || !(p.weight(weight.largest, 0) > 0.0f)) return 0.0;
        return static_cast<double>(weight.sum) * exp2(reference_of(weight.largest, rate) - top);
    });
    return p;
}

/// BLOCK collective: the law of a complete row, and what its rule wants to know, into the targets.
template <class Rule, class T, class DraftRows>
__device__ void make_target(verify_task<T, DraftRows> const& task, verify_shared& s, std::uint32_t r, std::uint32_t k) {
    verification<T, DraftRows> c{task, s.verification, r, 0};
    row_reading const how = row_reading::of<Rule>(task, r);
    law p{};
    if (how.weighed) {
        if (warp_index() == 0) {
            law const whole = law_of(c, k, how);
            if (lane_index() == 0) s.p = whole;
        }
        __syncthreads();
        p = s.p;
    } else if (c.is_taken()) {
        p = c.take_law(k);
        if (p.valid() && is_rounded_far(p.shift)) p = c.sum_taken(k, p);
    }
    if (how.cut && p.valid()) {
        row_statistics const statistics{p.shift, p.total, c.weights(k)};
        cutoff const least = truncate(c.row(k), c.vocabulary(), c.target_transform(), statistics, s.truncation);
        p.least_logit = least.logit;
        p.least_id = least.id;
        block_weight const* const weights = c.weights(k);
        p.total = c.sum_blocks(k, p, [&](std::uint32_t b) { return weights[b].largest >= least.logit; });
    }
    gumbel_winner won{};
    if constexpr (Rule::by_gumbel_max) {
        if (how.cut && p.valid()) {
            won = gumbel_max_row(c.row(k), c.vocabulary(), p, c.noise(k), c.token_or_none(k), s.gumbel);
        }
    }
    if (warp_index() != 0) return;
    token_id choice = no_token;
    if constexpr (Rule::by_gumbel_max) {
        if (how.by_gumbel_max) won = first_of(c.winners(k), count_tiles<Rule, T>(c.blocks()) * verification_warps);
        choice = p.is_one_hot() ? p.mode : won.invalid != 0 ? no_token : won.token;
        if (c.is_taken() && !p.valid()) choice = no_token;
    } else if constexpr (Rule::greedy) {
        choice = p.valid() ? p.mode : no_token;
    } else if constexpr (Rule::chooses) {
        if (p.valid()) choice = c.draw_by_warp(k, p, c.noise(k));
    }
    if (lane_index() == 0) c.store(k, p, choice);
}

// ---- judging ---------------------------------------------------------------------------------------------------

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

template <class Rule, class T, class DraftRows>
__global__ void __launch_bounds__(verification_threads, verification_residency)
    judge_rows(verify_task<T, DraftRows> const __grid_constant__ task) {
    auto& s = shared_memory<verify_shared>();
    std::uint32_t const tiles = count_tiles<Rule, T>(task.memory.blocks());
    if (warp_index() == 0) take_item<Rule, T>(task.memory, s.item);
    for (;;) {
        __syncthreads();
        work_item const item = s.item;
        if (item.what == work_kind::nothing) return;
        if (item.what == work_kind::rows) {
            weigh_tile<Rule>(task, s.verification, item);
        } else if constexpr (Rule::takes) {
            judge_taken<Rule>(task, s, item.request);
        }
        __syncthreads();
        // The next piece of work is found while the tile is counted.
        if (warp_index() == 1) take_item<Rule, T>(task.memory, s.item);
        if (threadIdx.x == 0)
            s.completes = item.what == work_kind::rows && finish_tile(task.memory, item, tiles) ? 1 : 0;
        __syncthreads();
        if (s.completes != 0) complete_row<Rule>(task, s, item.request, item.position);
    }
}

/// Passes of the requests that waited when the kernel began, a block of tokens each. Who makes the last one of a request
/// judges it; if that takes a further pass, it waits for the next kernel, or after the last one makes it alone.
template <class Rule, class T, class DraftRows>
__global__ void __launch_bounds__(verification_threads, verification_residency)
    make_passes(verify_task<T, DraftRows> const __grid_constant__ task, std::uint32_t stage) {
    auto& s = shared_memory<verify_shared>();
    verify_memory const& memory = task.memory;
    std::uint32_t const blocks = memory.blocks();
    std::uint32_t const waiting = memory.counters->waiting[stage];
    for (;;) {
        if (threadIdx.x == 0) s.item.tile = atomicAdd(&memory.counters->next_pass[stage], 1u);
        __syncthreads();
        std::uint32_t const i = s.item.tile;
        if (i / blocks >= waiting) return;
        std::uint32_t const r = memory.queues[stage * memory.limits.requests + i / blocks];
        residual_pass const how = memory.passes[r];
        verification<T, DraftRows> c{task, s.verification, r, stage + 1};
        c.pass_block(how, i % blocks);
        if (threadIdx.x == 0) {
            __threadfence();
            s.completes = atomicAdd(memory.pass_blocks + r, 1u) + 1 == blocks ? 1 : 0;
            __threadfence();
        }
        __syncthreads();
        if (s.completes != 0) Rule::resume(c, how, c.total_mass());
        __syncthreads();  // no mutant: the pass had barriers since everyone read which it was
    }
}

}  // namespace detail

/// Judges the drafts of a round: makes the verdicts of `round` from its batch and the target's rows. Rule is the
/// host's: token_rejection, block_verification, greedy_match, target_match or keyed_coupling. Every request whose draft
/// is sound gets a verdict; rows without a law give the status invalid_target. `memory` is carved for the limits of
/// `round`.
///
/// Reads about the rows that the rule needs, at the speed of memory; three or four launches. Passes over q are made where
/// proposals do not settle a correction, and where the vocabulary is a few blocks.
template <class Rule, class T, class DraftRows>
[[nodiscard]] cudaError_t accept(logits_rows<T> const& rows, DraftRows const& drafts, verify_memory const& memory,
                                 device_round const& round, cudaStream_t stream) noexcept {
    using rule = device_rule<Rule>;
    round_limits const& limits = memory.limits;
    bool const fits = memory.ready() && round.ready() && limits.requests >= round.limits.requests &&
                      limits.block_size == round.limits.block_size && limits.vocabulary == round.limits.vocabulary &&
                      limits.stop_tokens == round.limits.stop_tokens && rows.data != nullptr &&
                      rows.stride >= limits.vocabulary;
    if (!fits) return cudaErrorInvalidValue;
    std::uint64_t const tiles = detail::count_tiles<rule, T>(memory.blocks());
    if (tiles * limits.requests * (limits.block_size + 1) > 0x7fffffffu) return cudaErrorInvalidValue;

    unsigned processors = 0;
    cudaError_t error = count_multiprocessors(processors);
    if (error != cudaSuccess) return error;
    error = launch(detail::list_rows<T>, 1, detail::list_threads, sizeof(detail::list_shared), stream, memory, round,
                   rows, rule::takes);
    if (error != cudaSuccess) return error;
    verify_task<T, DraftRows> const task{rows, drafts, memory, round};
    unsigned const blocks = processors * detail::verification_residency;
    error = launch(detail::judge_rows<rule, T, DraftRows>, blocks, verification_threads, sizeof(detail::verify_shared),
                   stream, task);
    for (std::uint32_t stage = 0; stage != rule::passes && error == cudaSuccess; ++stage) {
        error = launch(detail::make_passes<rule, T, DraftRows>, blocks, verification_threads,
                       sizeof(detail::verify_shared), stream, task, stage);
    }
    return error;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
