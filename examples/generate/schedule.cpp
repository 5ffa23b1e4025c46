// SPDX-License-Identifier: MIT
#include "schedule.hpp"

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

#include <sureleap/sureleap.hpp>

namespace generate {
namespace {

/// All of the text as a number.
template <class Number>
std::optional<Number> number(std::string_view text) {
    Number value{};
    auto const [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc{} || end != text.data() + text.size()) return std::nullopt;
    return value;
}

}  // namespace

sureleap::any_schedule make_schedule(std::string const& name, engine::any_drafter<float> const& drafter,
                                     std::function<engine::learned_cost()> const& measure) {
    std::string_view const text = name;
    std::string_view const kind = text.substr(0, text.find(':'));
    bool const has_value = kind.size() < text.size();
    std::string_view const value = has_value ? text.substr(kind.size() + 1) : std::string_view{};
    if (kind == "fixed") {
        if (!has_value) return sureleap::fixed_schedule{};
        if (auto const length = number<std::size_t>(value)) return sureleap::fixed_schedule{*length};
    } else if (kind == "threshold") {
        if (auto const least = number<double>(value)) return sureleap::threshold_schedule{*least};
    } else if (kind == "survival") {
        if (auto const least = number<double>(value)) return sureleap::survival_threshold_schedule{*least};
    } else if (!has_value) {
        using sureleap::never_lose;
        auto const can = engine::traits_of(drafter);
        if (kind == "auto" && can.plans_at_anchor) {
            return never_lose{sureleap::planned_schedule{measure()}};
        }
        if (kind == "auto" && can.has_confidence) {
            return never_lose{sureleap::greedy_schedule{measure()}};
        }
        if (kind == "auto") return never_lose{sureleap::fixed_schedule{}, measure()};
        if (kind == "greedy") return sureleap::greedy_schedule{measure()};
        if (kind == "top-k") return sureleap::top_k_schedule<engine::learned_cost>{measure()};
        if (kind == "planned") return sureleap::planned_schedule{measure()};
    }
    sureleap::fail_with("--schedule is '", name,
                        "', expected auto, fixed, fixed:N, threshold:C or survival:C (with C in [0, 1]), "
                        "greedy, top-k or planned");
}

void check_schedule_name(std::string const& name) {
    static_cast<void>(make_schedule(name, sureleap::lookup({.target_vocabulary = 1}), unmeasured));
}

engine::learned_cost unmeasured() {
    return sureleap::of_batch(sureleap::capacity_table<>({{1, 1.0}}));
}

}  // namespace generate
