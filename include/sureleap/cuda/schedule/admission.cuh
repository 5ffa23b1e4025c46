// SPDX-License-Identifier: MIT
//
// The walk over candidates in the order of admission (schedule/survival.hpp: survival descending, position ascending,
// request ascending), by one block of threads.
//
// What a walk decides depends on survivals alone: candidates that tie have the same one. So it sorts survivals without
// the places they come from. It ends at the candidate of rank n with a survival of a. Lengths follow from (n, a) in one
// pass (lengths.cuh).
//
// A table of up to 8 candidates a thread is sorted as a whole, and all prefixes are looked at together: each thread
// sums its own 8, a scan tells it what comes before. A larger table would need many sorts. There the block first counts
// survivals in 2,048 classes, which gives the exact prefix at every boundary between classes. A rule passes a class if
// it can prove from the boundaries that it admits all of it (the host's argument, schedule/throughput.hpp). Otherwise
// the candidates of the class are collected and sorted, mostly in the one class where the rule stops. A class with more
// candidates than can be sorted is divided into classes of its own, down to single values, which need no sort. Whatever
// a rule can or cannot prove, the answer is the same.
//
// Rejected: dividing a large table among blocks. They would have to meet after every segment, that is in launches, of
// which the number is not known before; and one multiprocessor reads the largest table, 1 MB, in some 10 microseconds.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/block_scan.cuh>
#include <sureleap/cuda/core/block_sort.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/survivals.cuh>
#include <sureleap/cuda/cost/capacity.cuh>
#include <sureleap/cuda/schedule/candidates.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Where a walk ended: it took `count` candidates, all that survive better than `least` and as many of those that
/// survive as well as are missing to `count`.
struct admission_end {
    std::uint32_t count = 0;
    fixed_probability least = certain + 1;
};

/// Threads of a walk: those that sort the largest table at once, if there can be so many.
[[nodiscard]] inline unsigned admission_threads(device_limits const& limits) noexcept {
    std::size_t const candidates = std::size_t{limits.requests} * limits.block_size;
    unsigned threads = 4 * warp_size;
    while (threads < most_sorters && threads * keys_each < candidates) threads *= 2;
    return threads;
}

/// Neighbours in the order of which their number, their sum and bounds are known (admission_segment).
struct device_segment {
    device_step from;
    device_step to;
    fixed_probability least;
    fixed_probability most;

    /// The sum at `batch_tokens` is at most this.
    [[nodiscard]] __device__ std::uint64_t accepts_at_most(std::uint32_t batch_tokens) const {
        std::uint64_t const ahead = from.accepts + (batch_tokens - from.batch_tokens) * std::uint64_t{most};
        std::uint64_t const behind = to.accepts - (to.batch_tokens - batch_tokens) * std::uint64_t{least};
        return ahead < behind ? ahead : behind;
    }
};

/// Relative room for the rounding of doubles in proofs; detail::proof_slack of the host.
inline constexpr double device_proof_slack = 0x1p-48;

/// BLOCK collective: visit(taken, theta) for the prefix before this thread's keys, if there are any, and for those with
/// each of them, in order. `taken` counts from `before` on. Of sorted keys, `size` of which are candidates.
template <class Visit>
__device__ void for_own_prefixes(std::uint32_t const (&key)[keys_each], std::uint32_t size, device_step const& before,
                                 double const* steps_per_second, admission_shared& s, Visit const& visit) {
    std::uint32_t const first = keys_each * threadIdx.x;
    std::uint64_t mine = 0;
#pragma unroll
    for (unsigned e = 0; e < keys_each; ++e) mine += first + e < size ? certain - key[e] : 0;
    device_step step{before.accepts + sum_over_block(mine, s.block).before, before.batch_tokens + first};
    if (first >= size) return;
    visit(first, step.throughput(steps_per_second));
#pragma unroll
    for (unsigned e = 0; e < keys_each; ++e) {
        if (first + e >= size) return;
        step = {step.accepts + (certain - key[e]), step.batch_tokens + 1};
        visit(first + e + 1, step.throughput(steps_per_second));
    }
}

// A rule is what a walk asks (the host's admission_rule), and may keep uniform state:
//
//   bool passes(device_segment const&) const
//       WARP collective in parts: true in all lanes proves that the walk goes through the segment.
//   void visit(device_step const&, admission_shared&)
//       BLOCK collective: every thread names a prefix that exists, ahead of the walk.
//   std::uint32_t take(std::uint32_t const (&key)[keys_each], std::uint32_t size, device_step const&, admission_shared&)
//       BLOCK collective: how many of the next `size` candidates it takes, from sorted keys; `size` if it goes on.

namespace detail {

/// BLOCK collective. The next `size` candidates, sorted, are shown to the rule; false if it stopped among them.
template <class Rule>
__device__ bool admit_sorted(std::uint32_t const (&key)[keys_each], std::uint32_t size, device_step const& before,
                             Rule& rule, admission_end& end, admission_shared& s) {
    std::uint32_t const taken = rule.take(key, size, before, s);
    end.count += taken;
    if (taken > 0) {
        std::uint32_t const first = keys_each * threadIdx.x;
#pragma unroll
        for (unsigned e = 0; e < keys_each; ++e) {
            if (first + e + 1 == taken) s.found = certain - key[e];
        }
        __syncthreads();
        end.least = s.found;
        __syncthreads();
    }
    return taken == size;
}

/// Classes of keys: those from `first` on, 2^shift keys each.
struct key_classes {
    std::uint32_t first;
    unsigned shift;

    [[nodiscard]] __device__ std::uint32_t begin(std::uint32_t c) const {
        std::uint32_t const key = first + (c << shift);
        return key < certain + 1 ? key : certain + 1;
    }
};

/// BLOCK collective: the tally of all candidates before each class; `before` of those before the first.
__device__ inline void tally_classes(candidate_table const& table, key_classes const& classes, tally const& before,
                                     admission_shared& s) {
    for (std::uint32_t c = threadIdx.x; c < admission_shared::classes; c += blockDim.x) {
        s.classed.counts[c] = 0;
        s.classed.rests[c] = 0;
    }
    __syncthreads();
    table.for_each_place([&](bool used, std::uint32_t, fixed_probability survival) {
        std::uint32_t const offset = candidate_table::key_of(survival) - classes.first;  // wraps before the first
        std::uint32_t const c = offset >> classes.shift;
        if (!used || c >= admission_shared::classes) return;
        std::uint32_t const rest = offset - (c << classes.shift);
        atomicAdd(&s.classed.counts[c], 1u);
        if (rest > 0) atomicAdd(&s.classed.rests[c], rest);  // sums below 2^18 x 2^13
    });
    __syncthreads();
    std::uint32_t const each = admission_shared::classes / blockDim.x;
    std::uint32_t const first = each * threadIdx.x;
    auto const tally_of = [&](std::uint32_t c) {
        std::uint64_t const count = s.classed.counts[c];
        std::uint64_t const best = certain - classes.begin(c);  // survival
        return tally::of(s.classed.counts[c], count > 0 ? count * best - s.classed.rests[c] : 0).word;
    };
    std::uint64_t mine = 0;
    for (std::uint32_t c = first; c < first + each; ++c) mine += tally_of(c);
    std::uint64_t prefix = before.word + sum_over_block(mine, s.block).before;
    for (std::uint32_t c = first; c < first + each; ++c) {
        s.prefixes[c] = prefix;
        prefix += tally_of(c);
    }
    if (threadIdx.x == blockDim.x - 1) s.prefixes[admission_shared::classes] = prefix;
    __syncthreads();
}

/// BLOCK collective: the first class from `from` on that the rule cannot pass; admission_shared::classes if it passes
/// all.
template <class Rule>
[[nodiscard]] __device__ std::uint32_t first_open_class(candidate_table const& table, key_classes const& classes,
                                                        std::uint32_t from, Rule const& rule, admission_shared& s) {
    if (threadIdx.x == 0) s.found = admission_shared::classes;
    __syncthreads();
    for (std::uint32_t c = from + warp_index(); c < admission_shared::classes; c += blockDim.x / warp_size) {
        // Another warp may have found one before: later classes need no look. One lane reads, so that all agree.
        std::uint32_t const found = *static_cast<std::uint32_t const volatile*>(&s.found);
        if (c > __shfl_sync(all_lanes, found, 0)) break;
        tally const before{s.prefixes[c]};
        tally const after{s.prefixes[c + 1]};
        if (before.count() == after.count()) continue;
        device_segment const segment{table.after(before), table.after(after), certain - (classes.begin(c + 1) - 1),
                                     certain - classes.begin(c)};
        if (!__all_sync(all_lanes, rule.passes(segment)) && lane_index() == 0) atomicMin(&s.found, c);
    }
    __syncthreads();
    std::uint32_t const found = s.found;
    __syncthreads();
    return found;
}

/// BLOCK collective: this thread's share of the candidates with keys begin .. end - 1, unsorted.
__device__ inline void collect_keys(candidate_table const& table, std::uint32_t begin, std::uint32_t end,
                                    std::uint32_t (&key)[keys_each], admission_shared& s) {
    if (threadIdx.x == 0) s.collected = 0;
    __syncthreads();
    table.for_each_place([&](bool used, std::uint32_t, fixed_probability survival) {
        std::uint32_t const own = candidate_table::key_of(survival);
        bool const wanted = used && own >= begin && own < end;
        unsigned const lanes = __ballot_sync(all_lanes, wanted);
        if (lanes == 0) return;
        std::uint32_t place = 0;
        if (lane_index() == 0) place = atomicAdd(&s.collected, static_cast<std::uint32_t>(__popc(lanes)));
        place =
            __shfl_sync(all_lanes, place, 0) + static_cast<std::uint32_t>(__popc(lanes & ((1u << lane_index()) - 1)));
        if (wanted && place < most_keys) s.keys[place] = own;
    });
    __syncthreads();
    std::uint32_t const first = keys_each * threadIdx.x;
#pragma unroll
    for (unsigned e = 0; e < keys_each; ++e) key[e] = first + e < s.collected ? s.keys[first + e] : no_key;
    __syncthreads();
}

/// BLOCK collective, of most_sorters threads: a table of any size.
template <class Rule>
__device__ admission_end walk_by_classes(candidate_table const& table, Rule& rule, admission_shared& s) {
    constexpr unsigned coarsest = 13;  // 2,048 classes of 2^13 keys: all but the last key, a survival of 0
    constexpr unsigned finer = 11;
    constexpr std::uint32_t together = 2048;  // candidates that are worth sorting with those of an open class
    admission_end end{};
    key_classes classes{0, coarsest};
    tally before{};
    while (end.count < table.candidates() && classes.first <= certain) {
        tally_classes(table, classes, before, s);
        for (std::uint32_t c = threadIdx.x; c < admission_shared::classes; c += blockDim.x) {
            rule.visit(table.after({s.prefixes[c + 1]}), s);
        }
        std::uint32_t c = 0;
        for (;;) {
            c = first_open_class(table, classes, c, rule, s);
            before = {s.prefixes[c]};
            end = {before.count(), certain + 1 - classes.begin(c)};
            if (c == admission_shared::classes) {
                classes = {classes.begin(c), coarsest};
                break;
            }
            std::uint32_t size = tally{s.prefixes[c + 1]}.count() - end.count;
            std::uint32_t key[keys_each];
            if (size <= most_keys) {
                std::uint32_t last = c + 1;
                // The furthest class whose candidates may be sorted along; prefixes only grow.
                for (std::uint32_t step = admission_shared::classes / 2; step > 0; step /= 2) {
                    if (last + step <= admission_shared::classes &&
                        tally{s.prefixes[last + step]}.count() - end.count <= together) {
                        last += step;
                    }
                }
                size = tally{s.prefixes[last]}.count() - end.count;
                collect_keys(table, classes.begin(c), classes.begin(last), key, s);
                sort_over_block(key, size, s.sort);
                if (!admit_sorted(key, size, table.after(before), rule, end, s)) return end;
                c = last;
            } else if (classes.shift > 0) {
                classes = {classes.begin(c), classes.shift > finer ? classes.shift - finer : 0};
                break;
            } else {
                std::uint32_t const value = classes.begin(c);
                for (unsigned e = 0; e < keys_each; ++e) key[e] = value;
                for (std::uint32_t left = size; left > 0;) {
                    std::uint32_t const part = left < most_keys ? left : most_keys;
                    tally const so_far = tally::of(size - left, std::uint64_t{size - left} * (certain - value));
                    if (!admit_sorted(key, part, table.after({before.word + so_far.word}), rule, end, s)) return end;
                    left -= part;
                }
                ++c;
            }
        }
    }
    return end;
}

}  // namespace detail

/// BLOCK collective, of admission_threads(limits) threads: asks the rule from the first candidate on until it stops.
template <class Rule>
__device__ admission_end walk(candidate_table const& table, Rule& rule, admission_shared& s) {
    if (table.places() > keys_each * blockDim.x) return detail::walk_by_classes(table, rule, s);
    admission_end end{};
    std::uint32_t key[keys_each];
    table.load_keys(key);
    sort_over_block(key, table.places(), s.sort);
    detail::admit_sorted(key, table.candidates(), table.without_drafts(), rule, end, s);
    return end;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
