// SPDX-License-Identifier: MIT
//
// Tables of what was accepted, for the experiments that compare drafters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "counts.hpp"
#include "ratios.hpp"
#include "session.hpp"
#include "table.hpp"

namespace evaluate {

/// A drafter on all domains.
struct drafter_counts {
    std::string name;
    std::vector<domain_counts> domains;

    [[nodiscard]] std::vector<statistic> tau() const {
        return with_mean(domains, [](domain_counts const& d) { return d.tau(); });
    }
    [[nodiscard]] std::size_t block_size() const { return domains.front().block_size(); }
    [[nodiscard]] statistic mean_acceptance(std::size_t k) const {
        return with_mean(domains, [k](domain_counts const& d) { return d.conditional_acceptance(k); }).back();
    }
};

[[nodiscard]] inline table tau_by_domain(session const& s, std::span<drafter_counts const> all) {
    table t{.title = "Tokens a round (tau), the target's own included",
            .header = s.with_domains({"drafter"}),
            .notes = {"±: half of a 95 % interval over texts."}};
    for (drafter_counts const& m : all) {
        std::vector<std::string> row{m.name};
        for (statistic const& tau : m.tau()) row.push_back(shown(tau, 2));
        t.add(std::move(row));
    }
    return t;
}

/// A row for every drafter and a column for every position from `first` on.
template <class F>
[[nodiscard]] table acceptance_by_position(std::string title, std::span<drafter_counts const> all, std::size_t first,
                                           F const& figure) {
    std::size_t longest = 0;
    for (drafter_counts const& m : all) longest = std::max(longest, m.block_size());
    table t{.title = std::move(title), .header = {"drafter"}};
    for (std::size_t k = first; k < longest; ++k) t.header.push_back(std::to_string(k + 1));
    for (drafter_counts const& m : all) {
        std::vector<std::string> row{m.name};
        for (std::size_t k = first; k < longest; ++k) row.push_back(k < m.block_size() ? shown(figure(m, k), 3) : "");
        t.add(std::move(row));
    }
    return t;
}

/// What comes before the domain in the titles of such tables.
inline constexpr char const* by_place = "Acceptance by position, given that all before it were accepted: ";

[[nodiscard]] inline table mean_acceptance_by_position(std::span<drafter_counts const> all) {
    return acceptance_by_position(std::string(by_place) + "mean of the domains", all, 0,
                                  [](drafter_counts const& m, std::size_t k) { return m.mean_acceptance(k); });
}

}  // namespace evaluate
