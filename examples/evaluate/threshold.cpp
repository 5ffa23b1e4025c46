// SPDX-License-Identifier: MIT
//
// Blocks verified up to the first confidence below a threshold: how many tokens a round loses by it, and how many
// verified tokens it saves (Figure 5 of the paper).
#include <utility>

#include <terminal.hpp>

#include "session.hpp"

namespace evaluate {

section run_threshold(session const& s) {
    contestant who = s.load(s.chosen.closely(), s.chosen.batch);
    section out{.name = "threshold", .counts = {{"columns", domain_counts::columns()}}};
    out.counts["drafter"] = to_json(who);
    table means{.title = "Confidence threshold of " + who.name + ", mean of the domains",
                .header = {"threshold", "tau", "verified drafts a round", "of these accepted"}};
    table taus{.title = "tau by confidence threshold and domain", .header = s.with_domains({"threshold"})};
    table kept{.title = "Accepted of the verified drafts, by confidence threshold and domain",
               .header = s.with_domains({"threshold"})};
    progress shown_so_far(s.status, "threshold", s.chosen.thresholds.size());
    for (double const threshold : s.chosen.thresholds) {
        std::string const name = terminal::plain(threshold);
        shown_so_far.begin_part(name);
        auto how = s.settings();
        how.schedule = sureleap::threshold_schedule{threshold};
        auto const domains = s.measure(who, how, shown_so_far);
        out.counts["runs"].push_back({{"threshold", threshold}, {"domains", to_json(domains)}});

        auto const tau = with_mean(domains, [](auto const& d) { return d.tau(); });
        auto const verified = with_mean(domains, [](auto const& d) { return d.verified_a_round(); });
        auto const share = with_mean(domains, [](auto const& d) { return d.kept(); });
        means.add({name, shown(tau.back(), 2), shown(verified.back(), 2), shown(share.back(), 3)});
        std::vector<std::string> tau_row{name}, kept_row{name};
        for (auto const& x : tau) tau_row.push_back(shown(x, 2));
        for (auto const& x : share) kept_row.push_back(shown(x, 3));
        taus.add(std::move(tau_row));
        kept.add(std::move(kept_row));
    }
    out.tables = {std::move(means), std::move(taus), std::move(kept)};
    return out;
}

}  // namespace evaluate
