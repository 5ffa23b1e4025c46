// SPDX-License-Identifier: MIT
//
// What there is to do for a request in a verification. In: the columns of a round. Out: whether its rows are to be
// read, and for what.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/cold.cuh>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/verification.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// What is to be done with a request.
enum class work_kind : std::uint32_t {
    nothing,  ///< its verdict is known: there is no draft, or no batch that it fits
    taken,    ///< its rows come with normalisers, and need not be read
    rows      ///< its rows are read
};

/// The same in all lanes of a warp, or threads of a block, that ask for the same request.
struct request_work {
    work_kind what;
    std::uint32_t length;
    std::uint32_t first_row;
    bool greedy;         ///< the largest logit of a row decides
    bool cut;            ///< distributions are truncated
    bool by_gumbel_max;  ///< the winner of a row decides
    bool weighed;        ///< sums of rows are needed, or their largest logits
    float scale;         ///< 1 / temperature

    /// Whoever cuts the last of its rows judges it.
    [[nodiscard]] __device__ bool waits_for_cuts() const { return what == work_kind::rows && cut; }

    template <class Rule, class Rows, class DraftRows>
    [[nodiscard]] static __device__ __noinline__ request_work of(verify_task<Rows, DraftRows> const& task,
                                                                 std::uint32_t r) {
        device_round const& round = task.round;
        // All are asked for before the first is looked at.
        status const drafted = round.drafts.statuses[r];
        std::uint32_t const remaining = round.requests.remaining[r];
        std::int32_t const first = round.batch.offsets[r];
        std::uint32_t const length = round.batch.lengths[r];
        transform const& how = round.requests.targets[r];
        double const temperature = how.temperature;
        bool const truncates = how.truncates();

        request_work work{};
        bool const fits = (drafted == status::ok || is_draft_failure(drafted)) && remaining != 0 && first >= 0 &&
                          length <= task.memory.limits.block_size &&
                          static_cast<std::uint32_t>(first) + length < task.rows.rows;
        if (!fits) return work;
        // A choice is a draw, which takes sums.
        bool const takes = Rule::takes && (!Rule::chooses || task.rows.block_sums != nullptr);
        work.length = length;
        work.first_row = static_cast<std::uint32_t>(first);
        bool const taken = takes && task.rows.are_normalised(how, work.first_row, work.first_row + length);
        work.what = taken ? work_kind::taken : work_kind::rows;
        work.greedy = Rule::greedy || how.greedy();
        work.cut = !work.greedy && truncates;
        work.by_gumbel_max = Rule::by_gumbel_max && !work.greedy && !work.cut;
        work.weighed = !work.by_gumbel_max || round.verdicts.log_probabilities != nullptr;
        work.scale = work.greedy ? 1.0f : static_cast<float>(quotient(1.0, temperature));
        return work;
    }
};

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
