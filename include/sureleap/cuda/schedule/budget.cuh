// SPDX-License-Identifier: MIT
//
// How many positions to verify, on the device: the unconstrained maximum of Theta over the prefixes of a table from
// before the block (schedule/budget.hpp). top_k_schedule reads the number where it was written, so no host waits for
// it. The search may run on another stream while the block is drawn.
//
// On the host the type of a table says where it comes from, and this round's own is refused by the compiler. Here
// tables are pointers, so the promise is the caller's:
//
//   - A budget may come from tables of past rounds (history.cuh). It may also come from confidences computed at the
//     anchor, before any token of the block was drawn. With those every acceptance rule stays exact.
//   - It must not come from this round's live table or a copy of it, nor from anything else that depends on the tokens
//     just drafted: the size of the block, its statuses, the verdicts to come. The budget would decide about x_k by
//     confidences that depend on x_k, and the output be biased (the paper's Appendix A). best_budget refuses the live
//     table by its addresses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/cost/capacity.cuh>
#include <sureleap/cuda/schedule/admission.cuh>
#include <sureleap/cuda/schedule/candidates.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// Goes through all prefixes and keeps the first of the best (the host's best_theta).
class best_prefix {
public:
    __device__ best_prefix(double const* steps_per_second, device_step const& without_drafts)
        : steps_per_second_(steps_per_second),
          best_(without_drafts.batch_tokens),
          theta_(without_drafts.throughput(steps_per_second)),
          bar_(theta_) {}

    /// Nothing in the segment is as good as a prefix that exists.
    [[nodiscard]] __device__ bool passes(device_segment const& segment) const {
        double const low = bar_ * 0x1p24 * (1.0 - device_proof_slack);
        bool below = true;
        for (std::uint32_t b = segment.from.batch_tokens + 1 + lane_index(); b <= segment.to.batch_tokens;
             b += warp_size) {
            double const most = static_cast<double>(segment.accepts_at_most(b)) * __ldg(steps_per_second_ + b);
            below = below && most < low;
        }
        return below;
    }

    __device__ void visit(device_step const& some, admission_shared& s) {
        double const theta = largest_of_block(some.throughput(steps_per_second_), s.block);
        if (theta > bar_) bar_ = theta;
    }

    __device__ std::uint32_t take(std::uint32_t const (&key)[keys_each], std::uint32_t size, device_step const& before,
                                  admission_shared& s) {
        double best = theta_;
        std::uint32_t at = no_key;
        for_own_prefixes(key, size, before, steps_per_second_, s, [&](std::uint32_t taken, double theta) {
            if (!(theta > best)) return;
            best = theta;
            at = before.batch_tokens + taken;
        });
        double const best_of_all = largest_of_block(best, s.block);
        std::uint32_t const first_of_all = least_of_block(best == best_of_all ? at : no_key, s.block);
        if (first_of_all != no_key) {
            theta_ = best_of_all;
            best_ = first_of_all;
            if (theta_ > bar_) bar_ = theta_;
        }
        return size;
    }

    /// Batch tokens of the best prefix.
    [[nodiscard]] __device__ std::uint32_t answer() const { return best_; }

private:
    double const* steps_per_second_;
    std::uint32_t best_;
    double theta_;
    double bar_;
};

template <class = void>
__global__ void __launch_bounds__(most_sorters, 1)
    best_budget_kernel(device_round round, survival_columns columns, double const* steps_per_second,
                       std::uint32_t* budget) {
    auto& s = shared_memory<admission_shared>();
    candidate_table const table(round, columns, s);
    best_prefix rule(steps_per_second, table.without_drafts());
    walk(table, rule, s);
    if (threadIdx.x == 0) *budget = rule.answer() - table.requests();
}

/// Some of it is this round's live table, whichever rows the columns begin with.
[[nodiscard]] inline bool reads_live_table(device_round const& round, survival_columns const& table) noexcept {
    std::size_t const requests = round.limits.requests;
    auto const overlap = [](auto const* a, auto const* b, std::size_t count) {
        std::less<> const before{};  // of pointers into different arrays as well
        return before(a, b + count) && before(b, a + count);
    };
    return overlap(table.sizes, round.drafts.sizes, requests) ||
           overlap(table.survival, round.drafts.survival, requests * round.limits.block_size);
}

}  // namespace detail

/// Writes *budget, in device memory: the number of candidates, taken in the order of admission, that maximises Theta
/// over all prefixes of `table`; the smallest such number. `table` is for this round's requests, in their order, with
/// chains that begin with their weights; not the live one (see above). One launch of one block; equal to the host's
/// best_budget with the curve that was tabulated.
[[nodiscard]] inline cudaError_t best_budget(device_round const& round, survival_columns const& table,
                                             capacity_table const& capacity, std::uint32_t* budget,
                                             cudaStream_t stream) noexcept {
    if (!round.ready() || !table.ready() || !capacity.fits(round.limits) || budget == nullptr ||
        detail::reads_live_table(round, table)) {
        return cudaErrorInvalidValue;
    }
    return launch(detail::best_budget_kernel<>, 1, admission_threads(round.limits), sizeof(admission_shared), stream,
                  round, table, static_cast<double const*>(capacity.steps_per_second), budget);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
