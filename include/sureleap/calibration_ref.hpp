// SPDX-License-Identifier: MIT
//
// A calibration that changes while serving, lent to the rounds like threads are (executor.hpp): it is applied to every
// confidence of any drafter, live and at the anchor, and sees whose confidence it is. A calibration that was fitted once is a
// policy of the confidence itself and needs none of this.
#pragma once

#include <cstddef>
#include <type_traits>

#include <sureleap/config.hpp>
#include <sureleap/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A view of a calibration, which must outlive it: called as c(request, k, confidence) or, as a calibrator, as
/// c(k, confidence). By default none: confidences stay what they are.
///
/// Promise: increasing in the confidence, constant during a round, noexcept, and concurrently callable where threads are
/// lent. One that learned from a token of the round in which it is asked would look ahead.
class calibration_ref {
public:
    calibration_ref() = default;
    template <class C>
        requires(!std::is_same_v<std::remove_const_t<C>, calibration_ref>)
    calibration_ref(C const& lent) noexcept  // NOLINT: a calibration is lent where one is asked for
        : lent_(&lent),
          call_([](void const* c, request_view const& request, std::size_t k, double confidence) noexcept {
              C const& calibration = *static_cast<C const*>(c);
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

    [[nodiscard]] explicit operator bool() const noexcept { return call_ != nullptr; }
    [[nodiscard]] double operator()(request_view const& request, std::size_t k, double confidence) const noexcept {
        return call_ == nullptr ? confidence : call_(lent_, request, k, confidence);
    }

private:
    template <class C>
    static constexpr bool with_request =
        std::is_nothrow_invocable_r_v<double, C const&, request_view const&, std::size_t, double>;

    void const* lent_ = nullptr;
    double (*call_)(void const*, request_view const&, std::size_t, double) noexcept = nullptr;
};

SURELEAP_END_NAMESPACE
