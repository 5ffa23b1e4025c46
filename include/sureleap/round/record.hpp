// SPDX-License-Identifier: MIT
//
// What there is to know of a round once it is over: the one thing that counters, calibrations, cost models and
// controllers read. A part that learns takes records and nothing else. So it works the same behind a decoder and in an
// engine's own loop. What it learns can only act in later rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/function_ref.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A view of a round's memory, valid until the next one begins. Requests, verdicts and rows of the table are in one
/// order.
struct round_record {
    std::span<request_view const> requests{};  ///< as the round began: contexts, limits and weights before it
    std::span<verdict const> verdicts{};       ///< drafted, verified, accepted, emitted
    survival_table survivals{};                ///< of the drawn block, calibrated; load and weight too
    /// [R, gamma] before a lent calibration, NaN where it was not asked; empty if none was lent.
    std::span<double const> raw_confidences{};
    step_load load{};  ///< with the batch that was verified, and without those whose tokens were found as drafting
    double seconds = std::numeric_limits<double>::quiet_NaN();  ///< NaN: nobody measured
    /// [R] the request's tokens were found beside the drafter's model (with_lookup), so they tell nothing of it; empty:
    /// none were.
    std::span<bool const> found{};

    [[nodiscard]] std::size_t size() const noexcept { return requests.size(); }
    /// Request r was judged, and its tokens, if there are any, are those of the drafter's model.
    [[nodiscard]] bool tells_of_model(std::size_t r) const noexcept {
        return verdicts[r].outcome == status::ok && (found.empty() || !found[r]);
    }
    /// Conditional confidence of position k of request r before a lent calibration. Precondition: k <
    /// verdicts[r].drafted.
    [[nodiscard]] double raw_confidence(std::size_t r, std::size_t k) const noexcept {
        std::size_t const i = r * survivals.block_size + k;
        return raw_confidences.empty() ? static_cast<double>(survivals.confidence[i]) * 0x1p-24 : raw_confidences[i];
    }
};

/// Seconds since some moment; virtual time will do. By default rounds are not timed, since not every machine tells the
/// time without a system call.
using clock_ref = function_ref<double()>;

SURELEAP_END_NAMESPACE
