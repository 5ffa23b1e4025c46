// SPDX-License-Identifier: MIT
//
// A calibration, lent to the rounds as threads are (function_ref.hpp). It is applied to every confidence of any
// drafter, live and at the anchor, and sees whose confidence it is. It may be fitted once (confidence/calibration.hpp)
// or go on learning while serving (serving/online_calibration.hpp). Both are lent in the same way:
//
//     auto const temperatures = sequential_temperature_scaling({1.3, 1.2, 1.1});
//     decoder dec{target, drafter, schedule, rule, {.calibration = temperatures}};
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/function_ref.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A view of a calibration, which must outlive it: called as c(request, k, confidence) or, as a calibrator, as
/// c(k, confidence). By default none: confidences stay what they are.
///
/// A calibration that answers for so many positions only says so by block_size(), and one that knows so many slots only
/// by max_requests(). Rounds that have more are refused at set-up.
///
/// Promise: increasing in the confidence, constant during a round, noexcept, and concurrently callable where threads
/// are lent. One that learned from a token of the round in which it is asked would look ahead.
class calibration_ref {
public:
    calibration_ref() = default;
    template <class C>
        requires(!std::is_same_v<std::remove_const_t<C>, calibration_ref>)
    calibration_ref(C const& lent) noexcept  // NOLINT: a calibration is lent where one is asked for
        : sizes_(sizes_of(lent)),
          call_(lent, [](C const& calibration, request_view const& request, std::size_t k, double confidence) noexcept {
              if constexpr (with_request<C>) {
                  return static_cast<double>(calibration(request, k, confidence));
              } else {
                  return static_cast<double>(calibration(k, confidence));
              }
          }) {
        static_assert(with_request<C> || std::is_nothrow_invocable_r_v<double, C const&, std::size_t, double>,
                      "calibration_ref: a calibration is called as c(request_view const&, std::size_t k, double) or as "
                      "c(std::size_t k, double), gives a number, must not throw and says so: const noexcept");
    }

    template <class C>
        requires(!std::is_same_v<std::remove_const_t<C>, calibration_ref>)
    calibration_ref(C const&&) = delete;  // would dangle

    [[nodiscard]] explicit operator bool() const noexcept { return static_cast<bool>(call_); }
    [[nodiscard]] double operator()(request_view const& request, std::size_t k, double confidence) const noexcept {
        return call_ ? call_(request, k, confidence) : confidence;
    }

    /// Positions that it answers for, and slots; the largest std::size_t where there is no end.
    [[nodiscard]] std::size_t positions() const noexcept { return sizes_.block_size; }
    [[nodiscard]] std::size_t slots() const noexcept { return sizes_.max_requests; }

    /// Error if rounds of these sizes would ask beyond what it answers for.
    void expect_serves(round_sizes const& sizes) const {
        if (sizes.block_size > positions()) {
            fail_with("calibration: the one that was lent has ", positions(), " positions, expected at least the ",
                      "drafter's block_size = ", sizes.block_size, "; lend one that was made for this drafter");
        }
        if (sizes.max_requests > slots()) {
            fail_with("calibration: the one that was lent has ", slots(),
                      " slots, expected at least max_requests = ", sizes.max_requests,
                      " of the rounds; raise max_requests in its settings");
        }
    }

private:
    template <class C>
    static constexpr bool with_request =
        std::is_nothrow_invocable_r_v<double, C const&, request_view const&, std::size_t, double>;

    static constexpr round_sizes endless{static_cast<std::size_t>(-1), static_cast<std::size_t>(-1)};
    template <class C>
    [[nodiscard]] static round_sizes sizes_of(C const& lent) noexcept {
        round_sizes sizes = endless;
        if constexpr (requires {
                          { lent.block_size() } -> std::convertible_to<std::size_t>;
                      }) {
            sizes.block_size = lent.block_size();
        }
        if constexpr (requires {
                          { lent.max_requests() } -> std::convertible_to<std::size_t>;
                      }) {
            sizes.max_requests = lent.max_requests();
        }
        return sizes;
    }

    round_sizes sizes_ = endless;
    function_ref<double(request_view const&, std::size_t, double)> call_{};
};

SURELEAP_END_NAMESPACE
