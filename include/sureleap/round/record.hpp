// SPDX-License-Identifier: MIT
//
// What there is to know of a round once it is over: the one thing that counters, calibrations, cost models and controllers
// read. A part that learns takes records and nothing else, so it works the same behind a decoder and in an engine's own
// loop, and what it learns can only act in later rounds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A view of a round's memory, valid until the next one begins. Requests, verdicts and rows of the table are in one order.
struct round_record {
    std::span<request_view const> requests{};   ///< as the round began: contexts, limits and weights before it
    std::span<verdict const> verdicts{};        ///< drafted, verified, accepted, emitted
    survival_table survivals{};                 ///< of the drawn block, calibrated; load and weight too
    std::span<double const> raw_confidences{};  ///< [R, gamma] before a lent calibration; empty if none was lent
    step_load load{};                           ///< with the batch that was verified
    double seconds = std::numeric_limits<double>::quiet_NaN();  ///< NaN: nobody measured

    [[nodiscard]] std::size_t size() const noexcept { return requests.size(); }
    /// Conditional confidence of position k of request r before a lent calibration. Precondition: k < verdicts[r].drafted.
    [[nodiscard]] double raw_confidence(std::size_t r, std::size_t k) const noexcept {
        std::size_t const i = r * survivals.block_size + k;
        return raw_confidences.empty() ? static_cast<double>(survivals.confidence[i]) * 0x1p-24 : raw_confidences[i];
    }
};

/// A view of a clock, a callable double() noexcept that gives seconds since some moment; must outlive it. Virtual time will
/// do. By default none: rounds are not timed, since not every machine tells the time without a system call.
class clock_ref {
public:
    clock_ref() = default;
    template <class Clock>
        requires(!std::is_same_v<std::remove_const_t<Clock>, clock_ref>)
    clock_ref(Clock const& lent) noexcept  // NOLINT: a clock is lent where one is asked for
        : lent_(&lent),
          call_([](void const* c) noexcept { return static_cast<double>((*static_cast<Clock const*>(c))()); }) {
        static_assert(std::is_nothrow_invocable_r_v<double, Clock const&>,
                      "clock_ref: a clock is called as clock(), gives seconds as double, must not throw and says so: "
                      "const noexcept");
    }

    template <class Clock>
        requires(!std::is_same_v<std::remove_const_t<Clock>, clock_ref>)
    clock_ref(Clock const&&) = delete;  // would dangle

    /// NaN without a clock.
    [[nodiscard]] double operator()() const noexcept {
        return call_ == nullptr ? std::numeric_limits<double>::quiet_NaN() : call_(lent_);
    }

private:
    void const* lent_ = nullptr;
    double (*call_)(void const*) noexcept = nullptr;
};

SURELEAP_END_NAMESPACE
