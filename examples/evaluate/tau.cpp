// SPDX-License-Identifier: MIT
//
// Tokens a round by domain and drafter, and acceptance by position: Table 1 and Figure 2 of the paper. Depth, block
// length and kind of head (Figures 3 and 4) are properties of the drafters that were given, so they take no more than
// other folders.
#include <utility>

#include "acceptance.hpp"
#include "session.hpp"

namespace evaluate {
namespace {

struct measured {
    nlohmann::ordered_json facts;
    std::string block;
    std::size_t layers = 0;
    std::string head;
    run_totals totals;
};

table compared(session const& s, std::vector<drafter_counts> const& all, drafter_counts const& first) {
    table t{.title = "tau of " + first.name + " over that of others, on the same texts",
            .header = s.with_domains({"over"})};
    auto const over = first.tau();
    for (drafter_counts const& m : all) {
        if (&m == &first) continue;
        auto const under = m.tau();
        std::vector<std::string> row{m.name};
        for (std::size_t i = 0; i < over.size(); ++i) row.push_back(shown(quotient(over[i], under[i]), 3));
        t.add(std::move(row));
    }
    return t;
}

table by_drafter(std::vector<measured> const& all, std::vector<drafter_counts> const& counts) {
    table t{.title = "What drafts",
            .header = {"drafter", "layers", "block", "sequential head", "tau, mean", "its loop, of a round"}};
    for (std::size_t i = 0; i < all.size(); ++i) {
        measured const& m = all[i];
        t.add({counts[i].name, m.layers > 0 ? grouped(m.layers) : "-", m.block, m.head,
               shown(counts[i].tau().back(), 2),
               m.head == "-" || m.head == "none" ? "-" : percent(m.totals.times.head / m.totals.times.decode(), 2)});
    }
    return t;
}

}  // namespace

section run_tau(session const& s) {
    auto const how = s.settings();
    std::vector<measured> all;
    std::vector<drafter_counts> counts;
    std::size_t of = 0;
    progress shown_so_far(s.status, "tau", s.chosen.drafts.size());
    for (draft_source const& source : s.chosen.drafts) {
        contestant who = s.load(source, s.chosen.batch);
        shown_so_far.begin_part(who.name);
        if (who.name == s.chosen.of) of = all.size();
        run_totals totals;
        counts.push_back({who.name, s.measure(who, how, shown_so_far, &totals)});
        all.push_back({to_json(who), who.block_in_words(), who.layers,
                       who.config ? engine::name_of(who.config->head) : "-", std::move(totals)});
    }

    section out{.name = "tau", .counts = {{"columns", domain_counts::columns()}}};
    out.counts["of"] = s.chosen.of;
    for (std::size_t i = 0; i < all.size(); ++i) {
        out.counts["drafters"].push_back({{"drafter", all[i].facts},
                                          {"domains", to_json(counts[i].domains)},
                                          {"target_calls", all[i].totals.target_calls},
                                          {"seconds", to_json(all[i].totals.times)}});
    }
    out.tables.push_back(tau_by_domain(s, counts));
    if (all.size() > 1) out.tables.push_back(compared(s, counts, counts[of]));
    out.tables.push_back(by_drafter(all, counts));
    out.tables.back().notes.push_back("Its loop: biases, confidences and draws, here in a batch of " +
                                      counted(s.chosen.batch, "text") + ".");
    out.tables.push_back(mean_acceptance_by_position(counts));
    out.tables.push_back(acceptance_by_position(
        "The same, above that of position 1", counts, 1,
        [](drafter_counts const& m, std::size_t k) { return difference(m.mean_acceptance(k), m.mean_acceptance(0)); }));
    for (std::size_t d = 0; d < s.prompts.domains.size(); ++d) {
        out.tables.push_back(acceptance_by_position(
            by_place + s.prompts.domains[d].name, counts, 0,
            [d](drafter_counts const& m, std::size_t k) { return m.domains[d].conditional_acceptance(k).value(); }));
    }
    return out;
}

}  // namespace evaluate
