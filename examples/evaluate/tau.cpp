// SPDX-License-Identifier: MIT
//
// Tokens a round by domain and drafter, and acceptance by position: Table 1 and Figure 2 of the paper. Depth, block
// length and kind of head (Figures 3 and 4) are properties of the drafters that were given, so they take no more than
// other folders.
#include <algorithm>
#include <utility>

#include "session.hpp"

namespace evaluate {
namespace {

struct measured {
    nlohmann::ordered_json facts;
    std::string block;
    std::size_t layers = 0;
    std::string head;
    std::vector<domain_counts> domains;
    run_totals totals;

    [[nodiscard]] std::vector<statistic> tau() const {
        return with_mean(domains, [](domain_counts const& d) { return d.tau(); });
    }
    [[nodiscard]] std::size_t block_size() const { return domains.front().block_size(); }
    [[nodiscard]] std::string name() const { return facts["name"]; }
};

table by_domain(session const& s, std::vector<measured> const& all) {
    table t{.title = "Tokens a round (tau), the target's own included",
            .header = s.with_domains({"drafter"}),
            .notes = {"±: half of a 95 % interval over texts."}};
    for (measured const& m : all) {
        std::vector<std::string> row{m.name()};
        for (statistic const& tau : m.tau()) row.push_back(shown(tau, 2));
        t.add(std::move(row));
    }
    return t;
}

table compared(session const& s, std::vector<measured> const& all, measured const& first) {
    table t{.title = "tau of " + first.name() + " over that of others, on the same texts",
            .header = s.with_domains({"over"})};
    auto const over = first.tau();
    for (measured const& m : all) {
        if (&m == &first) continue;
        auto const under = m.tau();
        std::vector<std::string> row{m.name()};
        for (std::size_t i = 0; i < over.size(); ++i) row.push_back(shown(quotient(over[i], under[i]), 3));
        t.add(std::move(row));
    }
    return t;
}

table by_drafter(std::vector<measured> const& all) {
    table t{.title = "What drafts",
            .header = {"drafter", "layers", "block", "sequential head", "tau, mean", "its loop, of a round"}};
    for (measured const& m : all) {
        t.add({m.name(), m.layers > 0 ? grouped(m.layers) : "-", m.block, m.head, shown(m.tau().back(), 2),
               m.head == "-" || m.head == "none" ? "-" : percent(m.totals.times.head / m.totals.times.decode(), 2)});
    }
    return t;
}

std::size_t longest_block(std::vector<measured> const& all) {
    std::size_t longest = 0;
    for (measured const& m : all) longest = std::max(longest, m.block_size());
    return longest;
}

/// A row for every drafter and a column for every position from `first` on.
template <class F>
table by_position(std::string title, std::vector<measured> const& all, std::size_t first, int decimals,
                  F const& figure) {
    std::size_t const longest = longest_block(all);
    table t{.title = std::move(title), .header = {"drafter"}};
    for (std::size_t k = first; k < longest; ++k) t.header.push_back(std::to_string(k + 1));
    for (measured const& m : all) {
        std::vector<std::string> row{m.name()};
        for (std::size_t k = first; k < longest; ++k) {
            row.push_back(k < m.block_size() ? shown(figure(m, k), decimals) : "");
        }
        t.add(std::move(row));
    }
    return t;
}

statistic mean_acceptance(measured const& m, std::size_t k) {
    return with_mean(m.domains, [k](domain_counts const& d) { return d.conditional_acceptance(k); }).back();
}

}  // namespace

section run_tau(session const& s) {
    auto const how = s.settings();
    std::vector<measured> all;
    std::size_t of = 0;
    progress shown_so_far(s.status, "tau", s.chosen.drafts.size());
    for (draft_source const& source : s.chosen.drafts) {
        contestant who = s.load(source, s.chosen.batch);
        shown_so_far.begin_part(who.name);
        if (who.name == s.chosen.of) of = all.size();
        run_totals totals;
        auto domains = s.measure(who, how, shown_so_far, &totals);
        all.push_back({to_json(who), who.block_in_words(), who.layers,
                       who.config ? engine::name_of(who.config->head) : "-", std::move(domains), totals});
    }

    section out{.name = "tau", .counts = {{"columns", domain_counts::columns()}}};
    out.counts["of"] = s.chosen.of;
    for (measured const& m : all) {
        out.counts["drafters"].push_back({{"drafter", m.facts},
                                          {"domains", to_json(m.domains)},
                                          {"target_calls", m.totals.target_calls},
                                          {"seconds", to_json(m.totals.times)}});
    }
    out.tables.push_back(by_domain(s, all));
    if (all.size() > 1) out.tables.push_back(compared(s, all, all[of]));
    out.tables.push_back(by_drafter(all));
    out.tables.back().notes.push_back("Its loop: biases, confidences and draws, here in a batch of " +
                                      counted(s.chosen.batch, "text") + ".");
    std::string const by_place = "Acceptance by position, given that all before it were accepted: ";
    out.tables.push_back(by_position(by_place + "mean of the domains", all, 0, 3, mean_acceptance));
    out.tables.push_back(by_position(
        "The same, above that of position 1", all, 1, 3,
        [](measured const& m, std::size_t k) { return difference(mean_acceptance(m, k), mean_acceptance(m, 0)); }));
    for (std::size_t d = 0; d < s.prompts.domains.size(); ++d) {
        out.tables.push_back(by_position(
            by_place + s.prompts.domains[d].name, all, 0, 3,
            [&](measured const& m, std::size_t k) { return m.domains[d].conditional_acceptance(k).value(); }));
    }
    return out;
}

}  // namespace evaluate
