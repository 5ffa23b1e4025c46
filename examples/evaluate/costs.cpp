// SPDX-License-Identifier: MIT
//
// What trees and chains are worth on machines whose step times are known, and whether the schedule finds it. Texts are
// decoded here, and every round is priced as it would have been there. Tokens do not depend on time, so prices are all
// there is to a machine.
//
// Static choices are drafted and verified in full: plain decoding, chains and trees of one length each. The schedule
// has the same prices and decides by itself. The best static choice is chosen after the fact, so chance favours it a
// little.
#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <serve/step_costs.hpp>

#include "dspark_drafts.hpp"
#include "session.hpp"

namespace evaluate {
namespace {

using serve::read_step_costs;
using serve::step_costs;

/// Tokens a second on a machine, over those of plain decoding there. Rounds in which all places decode.
[[nodiscard]] double worth(step_costs const& machine, std::vector<priced_round> const& rounds) {
    double seconds = 0;
    double tokens = 0;
    for (priced_round const& round : rounds) {
        seconds += machine.seconds(round.load);
        tokens += static_cast<double>(round.emitted);
    }
    double const plain = static_cast<double>(machine.requests) / machine.plain_seconds();
    return tokens / seconds / plain;
}

[[nodiscard]] double rows_of(std::vector<priced_round> const& rounds) {
    double rows = 0;
    double requests = 0;
    for (priced_round const& round : rounds) {
        rows += static_cast<double>(round.load.batch_tokens);
        requests += static_cast<double>(round.load.requests);
    }
    return rows / requests;
}

struct choice {
    bool tree;
    std::size_t rows;  ///< of a request at most

    [[nodiscard]] std::string name() const {
        return rows == 1 ? "plain" : (tree ? "tree of " : "chain of ") + std::to_string(rows - 1);
    }
};

/// All machines of so many requests.
class load {
public:
    load(session const& s, std::size_t requests, std::size_t most_rows)
        : s_(s), drafts_(s, requests, most_rows), list_(s.texts_of_passes(3 * requests)) {}

    [[nodiscard]] std::size_t longest_chain() const { return drafts_.longest_chain(); }
    [[nodiscard]] std::vector<choice> choices() const {
        std::vector<choice> all;
        for (std::size_t rows = 2; rows <= longest_chain() + 1; ++rows) all.push_back({false, rows});
        for (std::size_t const rows : s_.chosen.rows) all.push_back({true, rows});
        return all;
    }
    [[nodiscard]] std::vector<priced_round> operator()(choice const& what, sureleap::any_schedule schedule,
                                                       progress& shown) {
        if (what.tree)
            drafts_.draft_trees(what.rows - 1);
        else
            drafts_.draft_chains();
        decoding_settings how = s_.settings();
        how.schedule = std::move(schedule);
        how.max_draft = what.rows - 1;
        auto rounds = run_texts(drafts_.who(), how, list_.texts, s_.pool, ignore_round, [&](std::size_t done) {
                          shown.update(static_cast<double>(done) / static_cast<double>(list_.texts.size()));
                      }).full_rounds;
        if (rounds.empty()) sureleap::fail_with("costs: no round had all requests, expected longer texts");
        return rounds;
    }

private:
    session const& s_;
    dspark_drafts drafts_;
    text_list list_;
};

}  // namespace

section run_costs(session const& s) {
    std::map<std::size_t, std::vector<step_costs>> machines;  // by requests
    for (std::string const& text : s.chosen.costs) {
        step_costs found = read_step_costs(text, s.chosen.figures, s.chosen.draft_share);
        machines[found.requests].push_back(std::move(found));
    }
    std::size_t const most_rows = *std::ranges::max_element(s.chosen.rows);
    section out{.name = "costs"};
    table t{.title = "Tokens a second over those of plain decoding, on other machines; " + s.sampling_in_words() +
                     ", rule " + s.chosen.rule,
            .header = {"step times", "requests", "best chain", "", "best tree", "", "auto, chains", "auto, trees",
                       "rows", "auto, trees over the best static"}};
    t.notes = {"Rounds in which all requests decode. Rows: of a request in a round of 'auto, trees'.",
               "Drafting takes what the machine's file says, or " + fixed(s.chosen.draft_share, 2) +
                   " of a step without drafts."};
    progress shown_so_far(s.status, "costs", [&] {
        std::size_t parts = 0;
        for (auto const& [requests, all] : machines) {
            parts += s.chosen.rows.size() + block_size_of(s.chosen.closely()) + 2 * all.size();
        }
        return parts;
    }());
    for (auto const& [requests, all] : machines) {
        load measure(s, requests, most_rows);
        std::vector<std::pair<choice, std::vector<priced_round>>> statics;
        for (choice const& what : measure.choices()) {
            shown_so_far.begin_part(grouped(requests) + " at once, " + what.name());
            statics.emplace_back(what, measure(what, sureleap::fixed_schedule{}, shown_so_far));
        }
        for (step_costs const& machine : all) {
            auto const best_of = [&](bool tree) {
                std::pair best{choice{tree, 1}, 1.0};
                for (auto const& [what, rounds] : statics) {
                    if (what.tree != tree || what.rows > machine.most_rows) continue;
                    if (double const w = worth(machine, rounds); w > best.second) best = {what, w};
                }
                return best;
            };
            auto const scheduled = [&](bool tree) {
                std::size_t const rows = std::min(tree ? most_rows : measure.longest_chain() + 1, machine.most_rows);
                shown_so_far.begin_part(machine.name + ", auto, " + (tree ? "trees" : "chains"));
                return measure({tree, rows},
                               sureleap::never_lose{sureleap::planned_schedule{engine::learned_cost{machine.cost}}},
                               shown_so_far);
            };
            auto const [chain, chain_worth] = best_of(false);
            auto const [tree, tree_worth] = best_of(true);
            double const auto_chains = worth(machine, scheduled(false));
            auto const trees = scheduled(true);
            double const auto_trees = worth(machine, trees);
            double const share = auto_trees / std::max(chain_worth, tree_worth);
            t.add({machine.name, grouped(requests), chain.name(), fixed(chain_worth, 2), tree.name(),
                   fixed(tree_worth, 2), fixed(auto_chains, 2), fixed(auto_trees, 2), fixed(rows_of(trees), 1),
                   fixed(share, 3)});
            nlohmann::ordered_json counts{{"step_times", machine.name},
                                          {"requests", requests},
                                          {"auto_chains", auto_chains},
                                          {"auto_trees", auto_trees}};
            for (auto const& [what, rounds] : statics) {
                if (what.rows <= machine.most_rows) counts["static"][what.name()] = worth(machine, rounds);
            }
            out.counts["machines"].push_back(std::move(counts));
        }
    }
    out.tables.push_back(std::move(t));
    return out;
}

}  // namespace evaluate
