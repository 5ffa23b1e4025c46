// SPDX-License-Identifier: MIT
//
// Trees of drafts beside chains, at equal rows of the target: tokens a round, and time. One text at a time, by a loop that
// calls the library's parts for trees itself (docs/trees.md). A DSpark drafter with a confidence head.
//
// Chains are trees whose nodes have one child. So a chain under traversal verification is block verification, and matching
// along a chain is what it is in rounds. Rules that match must write plain decoding's text, token by token, or the experiment
// fails.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <engine/causal_lm.hpp>
#include <engine/tree_source.hpp>
#include <sureleap/sureleap.hpp>
#include <sureleap/tree.hpp>

#include "acceptance.hpp"
#include "outputs.hpp"
#include "session.hpp"

namespace evaluate {
namespace {

using namespace sureleap;
using clock = std::chrono::steady_clock;

struct measured {
    std::vector<domain_counts> domains;
    double seconds = 0;  // of rounds, the first ones included
    double tokens = 0;
    double rows = 0;
    double rounds = 0;
    std::vector<std::vector<token_id>> outputs{};  // [text]
};

/// Memory for trees of at most so many drafted tokens.
class tree_memory {
public:
    tree_memory(std::size_t most, std::size_t vocabulary) {
        workspace sizer;
        carve(sizer, most, vocabulary);
        bytes_.resize(sizer.used());
        workspace ws{bytes_};
        carve(ws, most, vocabulary);
    }
    tree_memory(tree_memory const&) = delete;
    tree_memory& operator=(tree_memory const&) = delete;

    draft_tree tree;
    tree_growth<float> growth;
    tree_verification_memory<float> verification;

private:
    void carve(workspace& ws, std::size_t most, std::size_t vocabulary) {
        tree = draft_tree(ws, most);
        growth = tree_growth<float>(ws, most);
        verification = tree_verification_memory<float>::carve(ws, most, vocabulary);
    }
    std::vector<std::byte> bytes_;
};

/// Decodes texts by rounds of trees.
template <class Rule>
class tree_decoding {
public:
    tree_decoding(session const& s, contestant& who, engine::causal_lm<float>& target, engine::dspark<float>& draft,
                  tree_limits const& limits)
        : session_(s),
          who_(who),
          target_(target),
          draft_(draft),
          limits_(limits),
          memory_(limits.nodes, target.vocabulary()),
          source_(draft, limits.nodes) {}

    /// Adds what its rounds gave to `to`.
    void operator()(text_list::place const& at, text const& of, measured& to) {
        prefill(of.prompt);
        std::vector<token_id> tokens(of.prompt.begin(), of.prompt.end());
        auto const& how = session_.chosen;
        request_settings settings;
        settings.temperature = how.sampling.temperature;
        settings.top_k = how.sampling.top_k;
        settings.top_p = how.sampling.top_p;
        settings.min_p = how.sampling.min_p;
        settings.max_new_tokens = positions_for(how.tokens, limits_.depth);
        bool stopped = false;
        std::size_t rounds = 0;
        while (!stopped && tokens.size() - of.prompt.size() < how.tokens) {
            auto const begin = clock::now();
            request_view const request{.id = 1,
                                       .slot = 0,
                                       .anchor = tokens.back(),
                                       .position = tokens.size() - 1,
                                       .context = tokens,
                                       .seed = of.seed,
                                       .remaining = settings.max_new_tokens - (tokens.size() - of.prompt.size()),
                                       .settings = &settings};
            std::vector<token_id> const emitted = round(request, rounds == 0);
            std::chrono::duration<double> const took = clock::now() - begin;
            to.seconds += took.count();
            std::size_t kept = 0;
            while (kept < emitted.size() && !stopped) {
                tokens.push_back(emitted[kept++]);
                auto const& stops = who_.models.stop_tokens;
                stopped = !how.ignore_eos && std::ranges::find(stops, tokens.back()) != stops.end();
            }
            to.tokens += static_cast<double>(kept);
            if (rounds++ == 0) continue;  // a plain step
            to.rows += static_cast<double>(memory_.tree.size());
            to.rounds += 1.0;
            to.domains[at.domain].add(at.prompt, {.drafted = memory_.tree.size() - 1,
                                                  .verified = memory_.tree.size() - 1,
                                                  .accepted = emitted.size() - 1,
                                                  .emitted = kept});
        }
        to.outputs.emplace_back(tokens.begin() + static_cast<std::ptrdiff_t>(of.prompt.size()), tokens.end());
    }

private:
    using draft_rule = typename Rule::draft_rule;

    void prefill(std::span<token_id const> prompt) {
        std::size_t const count = prompt.size() - 1;  // the last token is the first anchor
        for (std::size_t first = 0; first < count; first += target_.limits().max_rows) {
            std::size_t const n = std::min(count - first, target_.limits().max_rows);
            target_.prefill(0, first, prompt.subspan(first, n));
            observe(first, n, target_.features().data, prompt.subspan(first + 1, n));
        }
    }
    void observe(std::size_t first, std::size_t count, float const* features, std::span<token_id const> next) {
        rows_.clear();
        for (std::size_t i = 0; i < count; ++i) rows_.push_back({0, static_cast<std::uint32_t>(first + i)});
        draft_.observe(rows_, features, next);
    }
    std::vector<token_id> round(request_view const& request, bool plain) {
        draft_tree& tree = memory_.tree;
        tree.begin(request.anchor);
        if (!plain) {
            // What is chosen is ranked by q as the model has it: at temperature 0 its law has one token.
            transform const how = draft_rule::is_deterministic ? transform{} : request.settings->draft_transform();
            source_.begin(request, how);
            memory_.growth(tree, request, limits_, source_, rng_, draft_rule{});
        }
        engine::placed_tree const placed{0, request.position, &tree};
        auto const scored = target_.score(std::span(&placed, 1));
        tree_verification<float, float> v(request, tree, memory_.growth.laws(), scored, 0, memory_.verification);
        tree_decision const d = Rule{}(v, rng_);
        if (!d.valid) fail_with("trees: a row of the target holds no law");
        if (!plain) source_.learn(tree, d.node);

        std::vector<node_id> path(tree.depth(d.node));
        static_cast<void>(tree.path(d.node, path));
        std::vector<token_id> emitted;
        for (node_id const n : path) emitted.push_back(tree.token(n));
        emitted.push_back(d.next);
        path.insert(path.begin(), anchor_node);
        target_.keep(0, path);
        auto const features = target_.features();
        kept_.clear();
        for (node_id const n : path) {
            auto const row = features.row(static_cast<std::size_t>(n));
            kept_.insert(kept_.end(), row.begin(), row.end());
        }
        observe(request.position, path.size(), kept_.data(), emitted);
        return emitted;
    }

    session const& session_;
    contestant& who_;
    engine::causal_lm<float>& target_;
    engine::dspark<float>& draft_;
    tree_limits limits_;
    tree_memory memory_;
    engine::tree_source<float> source_;
    philox_randomness rng_;
    std::vector<engine::batch_row> rows_;
    std::vector<float> kept_;
};

}  // namespace

section run_trees(session const& s) {
    contestant who = s.load(s.chosen.closely(), 1);
    auto* const target = dynamic_cast<engine::causal_lm<float>*>(who.models.target.get());
    auto* const draft = dynamic_cast<engine::dspark<float>*>(who.models.draft.get());
    if (target == nullptr || draft == nullptr || !who.config->confidence) {
        fail_with("trees: ", who.name, " is no DSpark drafter with a confidence head, expected one, alone");
    }
    text_list const list = s.texts();
    bool const greedy = s.chosen.sampling.greedy();
    progress shown_so_far(s.status, "trees", greedy ? 1 + 2 * s.chosen.rows.size() : 2 + 5 * s.chosen.rows.size());

    section out{.name = "trees"};
    table tau{
        .title = "Tokens a round (tau), the target's own included, by rows of the target; " + s.sampling_in_words(),
        .header = {"drafts"},
        .notes = {"Mean of the domains. A block has " + counted(who.block_size(), "token") +
                      ": longer chains there are none.",
                  "±: half of a 95 % interval over texts."}};
    table speed{.title = "Tokens a second over those of plain decoding, and rows a round", .header = {"drafts"}};
    for (std::size_t const rows : s.chosen.rows) {
        tau.header.push_back(counted(rows, "row"));
        speed.header.push_back(counted(rows, "row"));
    }
    std::optional<double> plain;
    auto const decode = [&]<class Rule>(Rule, char const* name, tree_limits limits) {
        shown_so_far.begin_part(std::string(name) + ", " + counted(limits.nodes + 1, "row"));
        measured m;
        for (domain const& d : s.prompts.domains) m.domains.emplace_back(d.name, d.prompts.size(), who.block_size());
        limits.depth = std::min(limits.depth, draft->block_size());
        tree_decoding<Rule> decoding(s, who, *target, *draft, limits);
        for (std::size_t i = 0; i < list.texts.size(); ++i) {
            decoding(list.places[i], list.texts[i], m);
            shown_so_far.update(static_cast<double>(i + 1) / static_cast<double>(list.texts.size()));
        }
        out.counts["measured"].push_back({{"drafts", name},
                                          {"rows", limits.nodes + 1},
                                          {"domains", to_json(m.domains)},
                                          {"seconds", m.seconds},
                                          {"tokens", m.tokens}});
        return m;
    };
    // Decodes plainly with the same noise first.
    auto const expected_of = [&]<class Rule>(Rule rule) {
        return decode(rule, "plain decoding", {.nodes = 0, .depth = 0, .children = 1});
    };
    auto const compare = [&]<class Rule>(Rule rule, char const* name, std::size_t children,
                                         measured const* expected = nullptr) {
        std::vector<std::string> taus{name};
        std::vector<std::string> speeds{name};
        for (std::size_t const rows : s.chosen.rows) {
            tree_limits limits{.nodes = rows - 1, .depth = rows - 1, .children = children};
            measured const m = decode(rule, name, limits);
            if (expected != nullptr) {
                expect_same(name, m.outputs, expected->outputs, s.chosen.tokens, [&](std::size_t i) {
                    return "trees, " + counted(rows, "row") + ": text " + s.name_of(list.places[i]);
                });
            }
            taus.push_back(shown(with_mean(m.domains, [](domain_counts const& d) { return d.tau(); }).back(), 2));
            speeds.push_back(fixed(m.tokens / m.seconds / *plain, 2) + " (" + fixed(m.rows / m.rounds, 1) + ")");
        }
        tau.add(std::move(taus));
        speed.add(std::move(speeds));
    };
    measured const matched = expected_of(along_tree<target_match<>>{});
    plain = matched.tokens / matched.seconds;
    constexpr std::size_t any = 16;
    if (greedy) {
        compare(along_tree<target_match<>>{}, "chain", 1, &matched);
        compare(along_tree<target_match<>>{}, "tree, likeliest children", any, &matched);
    } else {
        measured const coupled = expected_of(along_tree<keyed_coupling>{});
        compare(traversal_verification<>{}, "chain, block verification", 1);
        compare(along_tree<target_match<>>{}, "tree, likeliest children, target match", any, &matched);
        compare(along_tree<keyed_coupling>{}, "tree, keyed coupling", any, &coupled);
        compare(recursive_rejection<>{}, "tree, recursive rejection", any);
        compare(traversal_verification<>{}, "tree, traversal verification", any);
    }
    out.tables.push_back(std::move(tau));
    out.tables.push_back(std::move(speed));
    return out;
}

}  // namespace evaluate
