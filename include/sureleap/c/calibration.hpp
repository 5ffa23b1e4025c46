// SPDX-License-Identifier: MIT
//
// The object behind sureleap_calibration: maps that were fitted before, or that learn from rounds.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <variant>
#include <vector>

#include <sureleap/c/calibration.h>
#include <sureleap/c/handle.hpp>
#include <sureleap/confidence/calibration.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/serving/online_calibration.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace c {

/// To be lent as a calibration_ref: says for how many positions and slots it answers.
class any_calibration {
public:
    explicit any_calibration(std::variant<sequential_scaling, online_calibration> maps) : maps_(std::move(maps)) {}

    [[nodiscard]] double operator()(request_view const& request, std::size_t k, double confidence) const noexcept {
        auto const* const fixed = std::get_if<sequential_scaling>(&maps_);
        if (fixed != nullptr) return (*fixed)(k, confidence);
        return (*std::get_if<online_calibration>(&maps_))(request, k, confidence);
    }
    [[nodiscard]] std::size_t block_size() const noexcept {
        return std::visit([](auto const& maps) { return maps.block_size(); }, maps_);
    }
    [[nodiscard]] std::size_t max_requests() const noexcept {
        auto const* const online = std::get_if<online_calibration>(&maps_);
        return online != nullptr ? online->max_requests() : std::numeric_limits<std::size_t>::max();
    }

    void observe(round_record const& round) {
        auto* const online = std::get_if<online_calibration>(&maps_);
        if (online == nullptr) {
            fail_with(
                "sureleap_calibration_observe: this calibration is fixed; create one of "
                "SURELEAP_CALIBRATION_ONLINE to learn while serving");
        }
        online->observe(round);
    }
    [[nodiscard]] logit_scaling map(std::size_t k) const noexcept {
        if (auto const* const fixed = std::get_if<sequential_scaling>(&maps_)) return fixed->positions()[k];
        online_map const& learned = std::get_if<online_calibration>(&maps_)->shared().map(k);
        return {1.0 / learned.slope, learned.offset};
    }

private:
    std::variant<sequential_scaling, online_calibration> maps_;
};

[[nodiscard]] inline any_calibration calibration_of(sureleap_calibration_options const& o) {
    char const* const who = "sureleap_calibration";
    expect_choice(who, "kind", o.kind, SURELEAP_CALIBRATION_ONLINE);
    expect_size(who, "block_size", o.block_size, 1, 1024);
    if (o.kind == SURELEAP_CALIBRATION_FIXED) expect_given(who, "temperatures", o.temperatures);
    if (o.temperatures == nullptr && o.offsets != nullptr) {
        fail_with(who, ": offsets are given and temperatures are null, expected both, or neither");
    }
    std::vector<logit_scaling> positions;
    for (std::size_t k = 0; o.temperatures != nullptr && k < o.block_size; ++k) {
        positions.push_back({o.temperatures[k], o.offsets != nullptr ? o.offsets[k] : 0.0});
    }
    if (o.kind == SURELEAP_CALIBRATION_FIXED) return any_calibration(sequential_platt_scaling(std::move(positions)));

    if (o.fit < SURELEAP_FIT_TEMPERATURE || o.fit > SURELEAP_FIT_HISTORY) {
        fail_with(who, ": fit is ", o.fit, ", expected 1 .. 3 (SURELEAP_FIT_TEMPERATURE, _PLATT or _HISTORY)");
    }
    expect_size(who, "max_requests", o.max_requests, 0, 65536);
    expect_size(who, "tenants", o.tenants, 0, 65536);
    online_calibration_settings settings;
    settings.maps.terms = static_cast<online_terms>(o.fit);
    settings.maps.prior = std::move(positions);
    settings.maps.prior_weight = o.prior_weight;
    settings.maps.memory = o.memory;
    settings.maps.trusted_observations = o.trusted_observations;
    settings.maps.assumed_acceptance = o.assumed_acceptance;
    settings.max_requests = o.max_requests;
    settings.tenants = o.tenants;
    settings.shared_weight = o.shared_weight;
    return any_calibration(online_calibration(o.block_size, settings));
}

}  // namespace c
SURELEAP_END_NAMESPACE

struct sureleap_calibration {
    static constexpr std::uint64_t kind = 0x5355'5245'4361'6c69u;

    explicit sureleap_calibration(sureleap_calibration_options const& o) : maps(sureleap::c::calibration_of(o)) {}

    sureleap::c::handle<sureleap_calibration> head{};
    sureleap::c::any_calibration maps;
};
