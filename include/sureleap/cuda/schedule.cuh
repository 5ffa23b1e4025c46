// SPDX-License-Identifier: MIT
//
// Verify lengths on the device, equal to the host's for the same table, always: survivals are integers, sums are exact, and
// the one double product is the host's (capacity.cuh). From round.drafts to round.batch.lengths; flatten.cuh goes on.
//
//     schedule_greedy(round, capacity, stream)      greedy_schedule              Algorithm 1 with early stop, live
//     schedule_top_k(round, budget, stream)         top_k_schedule, planned_schedule, with a budget from budget.cuh
//     schedule_fixed(round, length, stream)         fixed_schedule
//     schedule_threshold(round, c, stream)          threshold_schedule
//     schedule_survival_threshold(round, a, stream) survival_threshold_schedule
//
// All of them keep every rule exact, and why is the same as on the host (frontier.hpp): confidences are pre-token, candidates
// are taken in the order of admission, and what decides whether (r, k) is taken depends on candidates before it. Callers can
// break that in two ways only. A confidence that has seen x_k, or a calibration that has, makes any of them biased; and so
// does a budget, a threshold or a capacity array that was chosen by looking at this round's blocks (budget.cuh says which
// tables may be looked at). There is no retrospective schedule on the device.
//
// One launch each and no memory but the block's own. Greedy and top-K are one block of threads (walk.cuh): what they decide
// is one order over all requests.
#pragma once

#include <cstdint>

#include <sureleap/config.hpp>
#include <sureleap/cuda/budget.cuh>
#include <sureleap/cuda/capacity.cuh>
#include <sureleap/cuda/device.cuh>
#include <sureleap/cuda/lengths.cuh>
#include <sureleap/cuda/round.cuh>
#include <sureleap/cuda/walk.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// The rule of Algorithm 1 (the host's while_theta_rises).
class while_rising {
public:
    __device__ explicit while_rising(double const* steps_per_second) : steps_per_second_(steps_per_second) {}

    /// Every candidate of the stretch raises Theta: SPS falls by less than the sum grows by the least of them.
    [[nodiscard]] __device__ bool passes(device_stretch const& stretch) const {
        auto const least = static_cast<double>(stretch.least);
        double const most_before = static_cast<double>(stretch.to.accepts) - least;
        double const growth = (1.0 + least / most_before) * (1.0 - device_proof_slack);
        bool rises = true;
        for (std::uint32_t b = stretch.from.batch_tokens + 1 + lane_index(); b <= stretch.to.batch_tokens;
             b += warp_size) {
            rises = rises && __ldg(steps_per_second_ + b) * growth > __ldg(steps_per_second_ + b - 1);
        }
        return rises;
    }
    __device__ void meet(device_step const&, walk_scratch&) const {}

    [[nodiscard]] __device__ std::uint32_t take(std::uint32_t const (&key)[keys_each], std::uint32_t size,
                                                device_step const& before, walk_scratch& s) const {
        std::uint32_t const first = keys_each * threadIdx.x;
        std::uint64_t mine = 0;
#pragma unroll
        for (unsigned e = 0; e < keys_each; ++e) mine += first + e < size ? certain - key[e] : 0;
        device_step step{before.accepts + sum_over_block(mine, s.block).before, before.batch_tokens + first};
        std::uint32_t stop = size;
        if (first < size) {
            double theta = step.throughput(steps_per_second_);
#pragma unroll
            for (unsigned e = 0; e < keys_each; ++e) {
                if (first + e >= size) break;
                step = {step.accepts + (certain - key[e]), step.batch_tokens + 1};
                double const longer = step.throughput(steps_per_second_);
                if (!(longer > theta) && first + e < stop) stop = first + e;
                theta = longer;
            }
        }
        return least_of_block(stop, s.block);
    }

private:
    double const* steps_per_second_;
};

/// Goes to a given number of candidates (the host's up_to).
class up_to_budget {
public:
    __device__ up_to_budget(std::uint32_t budget, std::uint32_t requests) : batch_tokens_(requests + budget) {}

    [[nodiscard]] __device__ bool passes(device_stretch const& stretch) const {
        return stretch.to.batch_tokens <= batch_tokens_;
    }
    __device__ void meet(device_step const&, walk_scratch&) const {}
    [[nodiscard]] __device__ std::uint32_t take(std::uint32_t const (&)[keys_each], std::uint32_t size,
                                                device_step const& before, walk_scratch&) const {
        std::uint32_t const left = batch_tokens_ - before.batch_tokens;
        return left < size ? left : size;
    }

private:
    std::uint32_t batch_tokens_;
};

__global__ void __launch_bounds__(most_sorters, 1)
    greedy_kernel(device_round round, survival_columns columns, double const* steps_per_second) {
    auto& s = shared_memory<walk_scratch>();
    candidate_table const table(round, columns, s);
    while_rising rule(steps_per_second);
    walk_end const end = walk(table, rule, s);
    write_lengths(table, end, round.limits.requests, round.batch.lengths, s);
}

/// budget: in device memory, or null for `fixed_budget`.
__global__ void __launch_bounds__(most_sorters, 1)
    top_k_kernel(device_round round, survival_columns columns, std::uint32_t const* budget,
                 std::uint32_t fixed_budget) {
    auto& s = shared_memory<walk_scratch>();
    candidate_table const table(round, columns, s);
    std::uint32_t const wanted = budget != nullptr ? *budget : fixed_budget;
    walk_end end{table.candidates(), 0};
    if (wanted < table.candidates()) {
        up_to_budget rule(wanted, table.requests());
        end = walk(table, rule, s);
    }
    write_lengths(table, end, round.limits.requests, round.batch.lengths, s);
}

inline constexpr unsigned threads_of_prefixes = 128;

/// Lengths up to `most`, or up to the first value below `threshold`. A thread a request.
__global__ void __launch_bounds__(threads_of_prefixes)
    prefix_kernel(device_round round, std::uint32_t most, fixed_probability const* values,
                  fixed_probability threshold) {
    std::uint32_t const r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= round.limits.requests) return;
    std::uint32_t length = 0;
    if (r < *round.requests.count) {
        std::uint32_t const gamma = round.limits.block_size;
        std::uint32_t const size = round.drafts.sizes[r] < most ? round.drafts.sizes[r] : most;
        while (length < size && (values == nullptr || values[r * gamma + length] >= threshold)) ++length;
    }
    round.batch.lengths[r] = length;
}

[[nodiscard]] inline cudaError_t launch_prefixes(device_round const& round, std::uint32_t most,
                                                 fixed_probability const* values, fixed_probability threshold,
                                                 cudaStream_t stream) noexcept {
    unsigned const blocks = (round.limits.requests + threads_of_prefixes - 1) / threads_of_prefixes;
    return launch(prefix_kernel, blocks, threads_of_prefixes, 0, stream, round, most, values, threshold);
}

[[nodiscard]] inline cudaError_t launch_top_k(device_round const& round, std::uint32_t const* budget,
                                              std::uint32_t fixed_budget, cudaStream_t stream) noexcept {
    survival_columns const table = live_table(round);
    if (!round.ready() || !table.ready()) return cudaErrorInvalidValue;
    return launch(top_k_kernel, 1, walk_threads(round.limits), sizeof(walk_scratch), stream, round, table, budget,
                  fixed_budget);
}

}  // namespace detail

/// Algorithm 1: admits the likeliest survivor while that raises Theta.
[[nodiscard]] inline cudaError_t schedule_greedy(device_round const& round, capacity_columns const& capacity,
                                                 cudaStream_t stream) noexcept {
    survival_columns const table = live_table(round);
    if (!round.ready() || !table.ready() || !capacity.fits(round.limits)) return cudaErrorInvalidValue;
    return launch(detail::greedy_kernel, 1, walk_threads(round.limits), sizeof(walk_scratch), stream, round, table,
                  static_cast<double const*>(capacity.steps_per_second));
}

/// The first *budget candidates in the order of admission, or all there are. `budget`: one number in device memory.
[[nodiscard]] inline cudaError_t schedule_top_k(device_round const& round, std::uint32_t const* budget,
                                                cudaStream_t stream) noexcept {
    return budget != nullptr ? detail::launch_top_k(round, budget, 0, stream) : cudaErrorInvalidValue;
}
/// The same with a budget that the host knows.
[[nodiscard]] inline cudaError_t schedule_top_k(device_round const& round, std::uint32_t budget,
                                                cudaStream_t stream) noexcept {
    return detail::launch_top_k(round, nullptr, budget, stream);
}

/// The first `length` positions of each block.
[[nodiscard]] inline cudaError_t schedule_fixed(device_round const& round, std::uint32_t length,
                                                cudaStream_t stream) noexcept {
    if (!round.ready()) return cudaErrorInvalidValue;
    return detail::launch_prefixes(round, length, nullptr, 0, stream);
}

/// The prefix before the first confidence below the threshold (quantise makes it of a probability).
[[nodiscard]] inline cudaError_t schedule_threshold(device_round const& round, fixed_probability threshold,
                                                    cudaStream_t stream) noexcept {
    if (!round.ready() || threshold > certain) return cudaErrorInvalidValue;
    return detail::launch_prefixes(round, round.limits.block_size, round.drafts.confidence, threshold, stream);
}

/// The prefix whose survival is at least the threshold.
[[nodiscard]] inline cudaError_t schedule_survival_threshold(device_round const& round, fixed_probability threshold,
                                                             cudaStream_t stream) noexcept {
    if (!round.ready() || threshold > certain) return cudaErrorInvalidValue;
    return detail::launch_prefixes(round, round.limits.block_size, round.drafts.survival, threshold, stream);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
