// SPDX-License-Identifier: MIT
//
// Blocks verified up to the first confidence below a threshold: how many tokens a round loses by it, and how many
// verified tokens it saves (Figure 5 of the paper). Beside it the same for the product of confidences, joint survival:
// which of the two verifies fewer drafts at equal tau.
#include <utility>

#include <terminal.hpp>

#include "session.hpp"

namespace evaluate {

section run_threshold(session const& s) {
    contestant who = s.load(s.chosen.closely(), s.chosen.batch);
    section out{.name = "threshold", .counts = {{"columns", domain_counts::columns()}}};
    out.counts["drafter"] = to_json(who);
    table means{.title = "Thresholds of " + who.name + ", mean of the domains",
                .header = {"of", "threshold", "tau", "verified drafts a round", "of these accepted"}};
    table taus{.title = "tau by confidence threshold and domain", .header = s.with_domains({"threshold"})};
    table kept{.title = "Accepted of the verified drafts, by confidence threshold and domain",
               .header = s.with_domains({"threshold"})};
    progress shown_so_far(s.status, "threshold", 2 * s.chosen.thresholds.size());
    auto const measure = [&](char const* of, double threshold, sureleap::any_schedule schedule) {
        std::string const name = terminal::plain(threshold);
        shown_so_far.begin_part(std::string(of) + " " + name);
        auto how = s.settings();
        how.schedule = std::move(schedule);
        auto const domains = s.measure(who, how, shown_so_far);
        out.counts["runs"].push_back({{"of", of}, {"threshold", threshold}, {"domains", to_json(domains)}});

        auto const tau = with_mean(domains, [](auto const& d) { return d.tau(); });
        auto const verified = with_mean(domains, [](auto const& d) { return d.verified_a_round(); });
        auto const share = with_mean(domains, [](auto const& d) { return d.kept(); });
        means.add({of, name, shown(tau.back(), 2), shown(verified.back(), 2), shown(share.back(), 3)});
        return std::pair(tau, share);
    };
    for (double const threshold : s.chosen.thresholds) {
        auto const [tau, share] = measure("confidence", threshold, sureleap::threshold_schedule{threshold});
        std::vector<std::string> tau_row{terminal::plain(threshold)}, kept_row = tau_row;
        for (auto const& x : tau) tau_row.push_back(shown(x, 2));
        for (auto const& x : share) kept_row.push_back(shown(x, 3));
        taus.add(std::move(tau_row));
        kept.add(std::move(kept_row));
    }
    for (double const threshold : s.chosen.thresholds) {
        measure("survival", threshold, sureleap::survival_threshold_schedule{threshold});
    }
    out.tables = {std::move(means), std::move(taus), std::move(kept)};
    return out;
}

}  // namespace evaluate
