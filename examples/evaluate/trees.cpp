// SPDX-License-Identifier: MIT
//
// Trees of drafts beside chains, at equal rows of the target: tokens a round, and time. One text at a time, by a DSpark
// drafter with a confidence head.
//
// Rules that match must write plain decoding's text, token by token, or the experiment fails.
#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <engine/parts.hpp>

#include "acceptance.hpp"
#include "dspark_drafts.hpp"
#include "outputs.hpp"
#include "session.hpp"

namespace evaluate {
namespace {

/// A way to draft and to judge, in as many rows as there may be.
struct method {
    char const* name;
    sureleap::any_rule rule;
    bool tree = true;
    bool repeats_plain = false;  ///< the text is plain decoding's
};

struct measured {
    std::vector<domain_counts> domains;
    run_totals totals{};
    double rows = 0;
    double rounds = 0;

    [[nodiscard]] double tokens_a_second() const {
        return static_cast<double>(totals.all.emitted) / totals.all.seconds;
    }
};

class experiment {
public:
    explicit experiment(session const& s)
        : s_(s), drafts_(s, 1, *std::ranges::max_element(s.chosen.rows)), list_(s.texts()) {}

    [[nodiscard]] std::size_t longest_chain() const { return drafts_.longest_chain(); }

    /// With at most so many rows of the target in a round; 1: plain decoding.
    [[nodiscard]] measured operator()(method const& how, std::size_t rows, progress& shown) {
        shown.begin_part(std::string(how.name) + ", " + counted(rows, "row"));
        if (how.tree)
            drafts_.draft_trees(rows - 1);
        else
            drafts_.draft_chains();
        decoding_settings settings = s_.settings();
        settings.rule = how.rule;
        settings.max_draft = rows - 1;
        measured m;
        for (domain const& d : s_.prompts.domains) m.domains.emplace_back(d.name, d.prompts.size(), rows);
        m.totals = run_texts(
            drafts_.who(), settings, list_.texts, s_.pool,
            [&](round_outcome const& round) {
                auto const [d, i] = list_.places[round.text];
                m.domains[d].add(i, round);
                m.rows += static_cast<double>(1 + round.verified);
                m.rounds += 1.0;
            },
            [&](std::size_t done) {
                shown.update(static_cast<double>(done) / static_cast<double>(list_.texts.size()));
            });
        return m;
    }
    void expect_plain(method const& how, std::size_t rows, measured const& m, measured const& plain) const {
        expect_same(how.name, m.totals.outputs, plain.totals.outputs, s_.chosen.tokens, [&](std::size_t i) {
            return "trees, " + counted(rows, "row") + ": text " + s_.name_of(list_.places[i]);
        });
    }

private:
    session const& s_;
    dspark_drafts drafts_;
    text_list list_;
};

[[nodiscard]] std::vector<method> methods_at(bool greedy) {
    using namespace sureleap;
    if (greedy) {
        return {{"chain", target_match<>{}, false, true}, {"tree, likeliest children", target_match<>{}, true, true}};
    }
    return {{"chain, block verification", block_verification<>{}, false},
            {"tree, likeliest children, target match", target_match<>{}, true, true},
            {"tree, keyed coupling", keyed_coupling{}, true, true},
            {"tree, recursive rejection", recursive_rejection<>{}},
            {"tree, traversal verification", traversal_verification<>{}}};
}

}  // namespace

section run_trees(session const& s) {
    experiment measure(s);
    auto const methods = methods_at(s.chosen.sampling.greedy());
    std::size_t const matching =
        static_cast<std::size_t>(std::ranges::count_if(methods, [](method const& m) { return m.repeats_plain; }));
    std::size_t const plain_runs = s.chosen.sampling.greedy() ? 1 : matching;
    progress shown_so_far(s.status, "trees", plain_runs + methods.size() * s.chosen.rows.size());

    section out{.name = "trees"};
    table tau{
        .title = "Tokens a round (tau), the target's own included, by rows of the target; " + s.sampling_in_words(),
        .header = {"drafts"},
        .notes = {"Mean of the domains. A block has " + counted(measure.longest_chain(), "token") +
                      ": longer chains there are none.",
                  "±: half of a 95 % interval over texts."}};
    table speed{.title = "Tokens a second over those of plain decoding, and rows a round", .header = {"drafts"}};
    for (std::size_t const rows : s.chosen.rows) {
        tau.header.push_back(counted(rows, "row"));
        speed.header.push_back(counted(rows, "row"));
    }
    // Plain decoding with the noise of each rule that repeats it. Any of them will do for its speed.
    std::optional<measured> plain;
    std::vector<std::vector<measured>> all;
    for (method const& how : methods) {
        if (how.repeats_plain && (!plain || !s.chosen.sampling.greedy()))
            plain = measure({"plain", how.rule}, 1, shown_so_far);
        std::vector<std::string> taus{how.name};
        all.emplace_back();
        for (std::size_t const rows : s.chosen.rows) {
            measured const m = measure(how, rows, shown_so_far);
            if (how.repeats_plain) measure.expect_plain(how, rows, m, *plain);
            taus.push_back(shown(with_mean(m.domains, [](domain_counts const& d) { return d.tau(); }).back(), 2));
            out.counts["measured"].push_back({{"drafts", how.name},
                                              {"rows", rows},
                                              {"domains", to_json(m.domains)},
                                              {"seconds", m.totals.all.seconds},
                                              {"tokens", m.totals.all.emitted}});
            all.back().push_back(m);
        }
        tau.add(std::move(taus));
    }
    for (std::size_t i = 0; i < methods.size(); ++i) {
        std::vector<std::string> speeds{methods[i].name};
        for (measured const& m : all[i]) {
            speeds.push_back(fixed(m.tokens_a_second() / plain->tokens_a_second(), 2) + " (" +
                             fixed(m.rows / m.rounds, 1) + ")");
        }
        speed.add(std::move(speeds));
    }
    out.tables.push_back(std::move(tau));
    out.tables.push_back(std::move(speed));
    return out;
}

}  // namespace evaluate
