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

/// BLOCK collective: the candidates of the first of the best prefixes (the host's best_theta).
__device__ inline std::uint32_t count_of_best(sorted_candidates const& sorted, double const* steps_per_second,
                                              block_shared& s) {
    double best = -1.0;
    std::uint32_t count = 0;
    sorted.for_own_prefixes(steps_per_second, [&](std::uint32_t n, double theta) {
        if (!(theta > best)) return;
        best = theta;
        count = n;
    });
    double const best_of_all = largest_of_block(best, s);
    return least_of_block(best == best_of_all ? count : no_key, s);
}

template <class = void>
__global__ void __launch_bounds__(most_sorters, 1)
    best_budget_kernel(device_round round, survival_columns columns, double const* steps_per_second,
                       std::uint32_t* budget) {
    auto& s = shared_memory<admission_shared>();
    candidate_table const table(round, columns, s.block);
    std::uint32_t const count = count_of_best(sorted_candidates(table, s), steps_per_second, s.block);
    if (threadIdx.x == 0) *budget = count;
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
    if (!round.ready() || !round.limits.sortable() || !table.ready() || !capacity.fits(round.limits) ||
        budget == nullptr || detail::reads_live_table(round, table)) {
        return cudaErrorInvalidValue;
    }
    return launch(detail::best_budget_kernel<>, 1, admission_threads(round.limits), sizeof(admission_shared), stream,
                  round, table, static_cast<double const*>(capacity.steps_per_second), budget);
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
