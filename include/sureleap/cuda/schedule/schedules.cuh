// SPDX-License-Identifier: MIT
//
// The schedules on the device, by the host's names. In: round.drafts. Out: round.batch.lengths, from which flatten.cuh
// makes the batch. They always equal the host's for the same table. Survivals are integers, sums are exact, and the one
// double product is the host's (capacity.cuh).
//
//     admit(greedy_schedule{capacity}, round, stream)        Algorithm 1 with early stop, live
//     admit(top_k_schedule{budget}, round, stream)           also the host's planned_schedule; a budget from budget.cuh
//     admit(fixed_schedule{length}, round, stream)
//     admit(threshold_schedule{c}, round, stream)
//     admit(survival_threshold_schedule{a}, round, stream)
//
// All of them keep every rule exact, for the same reasons as on the host (frontier.hpp). Confidences are pre-token.
// Candidates are taken in the order of admission, and whether (r, k) is taken depends on candidates before it. Callers
// can break that in two ways only. One is a confidence or a calibration that has seen x_k. The other is a budget, a
// threshold or a capacity array that was chosen by looking at this round's blocks. budget.cuh says which tables may be
// looked at. There is no retrospective schedule on the device.
//
// One launch each and no memory but the block's own. Greedy and top-K take one block of threads
// (schedule/admission.cuh), because they decide in one order over all requests: they are for limits with at most 8,192
// candidates. With a flat_batch as an argument all flatten too; greedy and top-K do so in the same launch, up to 1,024
// requests.
#pragma once

#include <concepts>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/cost/capacity.cuh>
#include <sureleap/cuda/schedule/admission.cuh>
#include <sureleap/cuda/schedule/budget.cuh>
#include <sureleap/cuda/schedule/candidates.cuh>
#include <sureleap/cuda/schedule/lengths.cuh>
#include <sureleap/cuda/verify/flatten.cuh>
#include <sureleap/schedule/survival.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Algorithm 1: admits the likeliest survivor while that raises Theta.
struct greedy_schedule {
    capacity_table capacity{};
};

/// A number of a schedule: one that the host knows, or one in device memory, which is read when the schedule runs. So a
/// graph that was captured follows what is written there.
class schedule_number {
public:
    template <std::integral Number>
    schedule_number(Number number) noexcept : fixed_(static_cast<std::uint32_t>(number)) {}
    schedule_number(std::uint32_t const* number) noexcept : number_(number), valid_(number != nullptr) {}

    /// The host knows that it is at most `most`, or does not know it.
    [[nodiscard]] bool valid(std::uint32_t most = 0xffffffffu) const noexcept {
        return valid_ && (number_ != nullptr || fixed_ <= most);
    }
    [[nodiscard]] __device__ std::uint32_t value() const { return number_ != nullptr ? *number_ : fixed_; }

private:
    std::uint32_t const* number_ = nullptr;
    std::uint32_t fixed_ = 0;
    bool valid_ = true;
};

/// The first candidates in the order of admission, as many as the budget says or all there are.
struct top_k_schedule {
    schedule_number budget;
};

/// The first `length` positions of each block.
struct fixed_schedule {
    schedule_number length = 0;
};

/// The prefix before the first confidence below the threshold (quantise makes it of a probability).
struct threshold_schedule {
    schedule_number threshold = 0;
};

/// The prefix whose survival, the product of its confidences, is at least the threshold; weights change nothing.
struct survival_threshold_schedule {
    schedule_number threshold = 0;
};

namespace detail {

/// BLOCK collective: the candidates that Algorithm 1 admits (the host's while_theta_rises).
__device__ inline std::uint32_t count_while_rising(sorted_candidates const& sorted, std::uint32_t candidates,
                                                   double const* steps_per_second, block_shared& s) {
    std::uint32_t stop = candidates;
    double last = -1.0;
    sorted.for_own_prefixes(steps_per_second, [&](std::uint32_t n, double theta) {
        if (!(theta > last) && n - 1 < stop) stop = n - 1;
        last = theta;
    });
    return least_of_block(stop, s);
}

/// Shared memory of a schedule: what it does, one after the other.
struct schedule_shared {
    union {
        admission_shared walk;
        flatten_shared flatten;
    };
};

/// What a schedule does with the lengths besides writing them.
struct after_lengths {
    flat_batch flat{};
    bool flattens = false;
};

/// BLOCK collective: writes the lengths of a walk, and the batch if that was asked for.
__device__ inline void finish(device_round const& round, candidate_table const& table, admission_end const& end,
                              after_lengths const& after, schedule_shared& s) {
    write_lengths(table, end, round.limits.requests, round.batch.lengths, s.walk);
    if (!after.flattens) return;
    __syncthreads();  // no mutant: today a thread looks first at lengths that it wrote itself
    flatten_requests(round, after.flat, 0, blockDim.x, true, s.flatten);
}

template <class = void>
__global__ void __launch_bounds__(most_sorters, 1)
    greedy_kernel(device_round round, after_lengths after, double const* steps_per_second) {
    auto& s = shared_memory<schedule_shared>();
    candidate_table const table(round, live_table(round), s.walk.block);
    sorted_candidates const sorted(table, s.walk);
    std::uint32_t const count = count_while_rising(sorted, table.candidates(), steps_per_second, s.walk.block);
    finish(round, table, sorted.end_behind(count), after, s);
}

template <class = void>
__global__ void __launch_bounds__(most_sorters, 1)
    top_k_kernel(device_round round, after_lengths after, top_k_schedule schedule) {
    auto& s = shared_memory<schedule_shared>();
    candidate_table const table(round, live_table(round), s.walk.block);
    std::uint32_t const wanted = schedule.budget.value();
    admission_end end{table.candidates(), certain};
    if (wanted < table.candidates()) end = sorted_candidates(table, s.walk).end_behind(wanted);
    finish(round, table, end, after, s);
}

/// One block; a thread a request if it flattens.
template <class Parameter>
[[nodiscard]] cudaError_t launch_admission(void (*kernel)(device_round, after_lengths, Parameter),
                                           device_round const& round, flat_batch const* flat, cudaStream_t stream,
                                           Parameter argument) noexcept {
    if (!round.limits.sortable() || !live_table(round).ready()) return cudaErrorInvalidValue;
    after_lengths after{};
    unsigned threads = admission_threads(round.limits);
    if (flat != nullptr && round.limits.requests <= most_sorters) {
        after = {*flat, true};
        while (threads < round.limits.requests) threads *= 2;
    }
    cudaError_t const error = launch(kernel, 1, threads, sizeof(schedule_shared), stream, round, after, argument);
    if (error != cudaSuccess || flat == nullptr || after.flattens) return error;
    return flatten(round, *flat, stream);
}

inline constexpr unsigned threads_of_prefixes = 128;

/// What a prefix is held to, position by position.
enum class prefix_of : std::uint8_t { everything, confidences, survivals };

/// Lengths up to `longest`, or up to the first position below `threshold`. Survivals are made from confidences and not
/// read, because those of the table begin with the request's weight. A thread a request.
template <class = void>
__global__ void __launch_bounds__(threads_of_prefixes)
    prefix_kernel(device_round round, schedule_number longest, prefix_of what, schedule_number threshold) {
    std::uint32_t const r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= round.limits.requests) return;
    std::uint32_t length = 0;
    if (r < *round.requests.count) {
        std::uint32_t const gamma = round.limits.block_size;
        std::uint32_t const most = longest.value();
        fixed_probability const least = threshold.value();
        std::uint32_t const size = round.drafts.sizes[r] < most ? round.drafts.sizes[r] : most;
        fixed_probability const* const confidence = round.drafts.confidence + static_cast<std::size_t>(r) * gamma;
        fixed_probability survival = certain;
        for (; length < size && what != prefix_of::everything; ++length) {
            survival = extend_survival(survival, confidence[length]);
            if ((what == prefix_of::survivals ? survival : confidence[length]) < least) break;
        }
        if (what == prefix_of::everything) length = size;
    }
    round.batch.lengths[r] = length;
}

[[nodiscard]] inline cudaError_t launch_prefixes(device_round const& round, schedule_number longest, prefix_of what,
                                                 schedule_number threshold, flat_batch const* flat,
                                                 cudaStream_t stream) noexcept {
    if (!longest.valid() || !threshold.valid(certain)) return cudaErrorInvalidValue;
    unsigned const blocks = (round.limits.requests + threads_of_prefixes - 1) / threads_of_prefixes;
    cudaError_t const error =
        launch(prefix_kernel<>, blocks, threads_of_prefixes, 0, stream, round, longest, what, threshold);
    return error != cudaSuccess || flat == nullptr ? error : flatten(round, *flat, stream);
}

[[nodiscard]] inline cudaError_t schedule_round(greedy_schedule const& schedule, device_round const& round,
                                                flat_batch const* flat, cudaStream_t stream) noexcept {
    if (!schedule.capacity.fits(round.limits)) return cudaErrorInvalidValue;
    return launch_admission(greedy_kernel<>, round, flat, stream,
                            static_cast<double const*>(schedule.capacity.steps_per_second));
}
[[nodiscard]] inline cudaError_t schedule_round(top_k_schedule const& schedule, device_round const& round,
                                                flat_batch const* flat, cudaStream_t stream) noexcept {
    if (!schedule.budget.valid()) return cudaErrorInvalidValue;
    return launch_admission(top_k_kernel<>, round, flat, stream, schedule);
}
[[nodiscard]] inline cudaError_t schedule_round(fixed_schedule const& schedule, device_round const& round,
                                                flat_batch const* flat, cudaStream_t stream) noexcept {
    return launch_prefixes(round, schedule.length, prefix_of::everything, 0, flat, stream);
}
[[nodiscard]] inline cudaError_t schedule_round(threshold_schedule const& schedule, device_round const& round,
                                                flat_batch const* flat, cudaStream_t stream) noexcept {
    return launch_prefixes(round, round.limits.block_size, prefix_of::confidences, schedule.threshold, flat, stream);
}
[[nodiscard]] inline cudaError_t schedule_round(survival_threshold_schedule const& schedule, device_round const& round,
                                                flat_batch const* flat, cudaStream_t stream) noexcept {
    return launch_prefixes(round, round.limits.block_size, prefix_of::survivals, schedule.threshold, flat, stream);
}

}  // namespace detail

/// The lengths of a round by one of the schedules above.
template <class Schedule>
[[nodiscard]] cudaError_t admit(Schedule const& schedule, device_round const& round, cudaStream_t stream) noexcept {
    return round.ready() ? detail::schedule_round(schedule, round, nullptr, stream) : cudaErrorInvalidValue;
}
/// And the batch.
template <class Schedule>
[[nodiscard]] cudaError_t admit(Schedule const& schedule, device_round const& round, flat_batch const& flat,
                                cudaStream_t stream) noexcept {
    bool const fits = round.ready() && flat.valid();
    return fits ? detail::schedule_round(schedule, round, &flat, stream) : cudaErrorInvalidValue;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
