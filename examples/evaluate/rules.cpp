// SPDX-License-Identifier: MIT
//
// tau of one drafter under every acceptance rule. All of them keep the target's law; they differ in how many drafts
// they can keep, and in what else they promise.
#include <array>
#include <utility>

#include <terminal.hpp>

#include "session.hpp"

namespace evaluate {

section run_rules(session const& s) {
    constexpr std::array rules{"token", "token-argmax", "block", "match", "coupled"};
    contestant who = s.load(s.chosen.closely(), s.chosen.batch);
    section out{.name = "rules", .counts = {{"columns", domain_counts::columns()}}};
    out.counts["drafter"] = to_json(who);
    progress shown_so_far(s.status, "rules", rules.size() * s.chosen.temperatures.size());
    for (double const temperature : s.chosen.temperatures) {
        std::string const at = terminal::plain(temperature);
        table t{.title = "tau of " + who.name + " by acceptance rule, temperature " + at,
                .header = s.with_domains({"rule"})};
        for (char const* const rule : rules) {
            shown_so_far.begin_part(std::string(rule) + " at temperature " + at);
            auto how = s.settings();
            how.sampling.temperature = temperature;
            how.rule = engine::make_rule(rule);
            auto const domains = s.measure(who, how, shown_so_far);
            std::vector<std::string> row{rule};
            for (auto const& tau : with_mean(domains, [](auto const& d) { return d.tau(); })) {
                row.push_back(shown(tau, 2));
            }
            t.add(std::move(row));
            out.counts["runs"].push_back({{"rule", rule}, {"temperature", temperature}, {"domains", to_json(domains)}});
        }
        out.tables.push_back(std::move(t));
    }
    return out;
}

}  // namespace evaluate
