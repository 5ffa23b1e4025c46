// SPDX-License-Identifier: MIT
//
// Every drafter of the library, and every head, in a tiny world: alone, and inside the others that take one. The test
// exactness_list looks for a part of the library here.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/drafter/given.hpp>
#include <sureleap/drafter/lookup.hpp>
#include <sureleap/drafter/no_drafter.hpp>
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/drafter/retokenised_drafts.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/drafter/with_forced.hpp>
#include <sureleap/drafter/with_lookup.hpp>
#include <sureleap/head/none.hpp>

#include "support/small_heads.hpp"
#include "support/small_world.hpp"
#include "support/toy_tokenizers.hpp"

namespace every_drafter {

using namespace small_world;

/// An engine that drafts by itself, and hands the tokens over: it draws from rows of its own, masked as the
/// request says, without what elder siblings took; or takes the likeliest. A tree has two children of the anchor, and
/// one of the first.
class drawn_outside {
    using given = given_drafts<double>;

public:
    using value_type = double;
    struct forward_type {};
    static constexpr bool is_deterministic = false;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = false;

    drawn_outside(world const& w, bool keeps_q, bool trees)
        : w_(&w),
          given_({.block_size = w.block_size + (trees ? 1 : 0),
                  .vocabulary = w.vocabulary,
                  .keeps_q = keeps_q,
                  .trees = trees}),
          trees_(trees) {}

    [[nodiscard]] std::size_t block_size() const { return given_.block_size(); }
    [[nodiscard]] std::size_t vocabulary() const { return given_.vocabulary(); }
    [[nodiscard]] std::size_t target_vocabulary() const { return given_.target_vocabulary(); }
    [[nodiscard]] drafter_traits traits() const { return given_.traits(); }
    [[nodiscard]] forward_type forward(std::span<request_view const>) const { return {}; }

    struct memory_type : given::memory_type {
        memory_type() = default;
        memory_type(workspace& ws, draft_shape const& shape, drawn_outside const& drafter) noexcept
            : given::memory_type(ws, shape, drafter.given_) {}
    };
    template <class DraftRule, class Rng>
    void draw(forward_type, DraftRule rule, draft_block<double>& block, memory_type const& memory, Rng& rng) {
        auto const requests = block.requests();
        // Rounds overlap: what is handed over stays until its own round has ended.
        std::vector<outside>& drafted = drafted_[&memory];
        drafted.assign(requests.size(), {});
        std::vector<given_draft<double>> handed;
        for (std::size_t r = 0; r < requests.size(); ++r) {
            auto& [tokens, parents, rows] = drafted[r];
            for (std::size_t i = 0; i < requests[r].draft_cap(block_size()); ++i) {
                node_id const parent = !trees_ ? static_cast<node_id>(i) : i == 2 ? 1 : 0;
                std::vector<double> row(w_->vocabulary);
                for (std::size_t v = 0; v < row.size(); ++v) {
                    row[v] = w_->base(requests[r].anchor, requests[r].position, static_cast<std::size_t>(parent), v);
                }
                token_id const x = draw_one<DraftRule>(requests[r], i, parent, row, drafted[r], rng);
                if (x == no_token) break;
                tokens.push_back(x);
                parents.push_back(parent);
                rows.insert(rows.end(), row.begin(), row.end());
            }
            handed.push_back({.tokens = tokens, .q = {rows.data(), tokens.size(), target_vocabulary()}});
            if (trees_) handed.back().parents = parents;
        }
        given_.hand(handed);
        given_.draw({}, rule, block, memory, rng);
    }

private:
    struct outside {
        std::vector<token_id> tokens;
        std::vector<node_id> parents;
        std::vector<double> rows;
    };
    struct weights {
        std::vector<double> of;
        [[nodiscard]] std::size_t size() const { return of.size(); }
        [[nodiscard]] double operator[](token_id v) const { return of[static_cast<std::size_t>(v)]; }
        [[nodiscard]] double total() const { return std::accumulate(of.begin(), of.end(), 0.0); }
    };
    template <class DraftRule, class Rng>
    [[nodiscard]] token_id draw_one(request_view const& request, std::size_t i, node_id parent,
                                    std::span<double const> row, outside const& before, Rng& rng) const {
        std::vector<token_id> path;
        for (node_id n = parent; n != 0; n = before.parents[static_cast<std::size_t>(n) - 1]) {
            path.insert(path.begin(), before.tokens[static_cast<std::size_t>(n) - 1]);
        }
        weights q;
        for (double const x : row) q.of.push_back(std::exp(x));
        if (request.settings->constraint) {
            token_mask const mask = request.settings->constraint(request, path);
            for (std::size_t v = 0; v < q.size(); ++v) {
                if (!mask.allows(static_cast<token_id>(v))) q.of[v] = 0.0;
            }
        }
        for (std::size_t e = 0; e < before.tokens.size(); ++e) {
            if (trees_ && before.parents[e] == parent) q.of[static_cast<std::size_t>(before.tokens[e])] = 0.0;
        }
        if (q.total() <= 0.0) return no_token;
        if constexpr (DraftRule::is_deterministic) {
            return static_cast<token_id>(std::max_element(q.of.begin(), q.of.end()) - q.of.begin());
        } else {
            return rng.categorical(block_key(request, i, purpose::draft), q);
        }
    }

    world const* w_;
    given given_;
    bool trees_;
    std::map<memory_type const*, std::vector<outside>> drafted_;
};

/// A model of three tokens, one of which is the text of the target's two.
[[nodiscard]] inline auto retokenised_of(world const& w) {
    static support::toy_tokenizer const draft{{"a", "b", "ab"}}, target{{"a", "b"}};
    auto model = model_of<double>(3, [&w](std::span<token_id const> context, std::span<double> logits) {
        for (std::size_t v = 0; v < 3; ++v) logits[v] = 4.0 * hash01(w.seed, 6, context.back(), v) - 2.0;
    });
    return retokenised_drafts{
        std::move(model), draft, target, {.block_size = w.block_size, .draft_vocabulary = 3, .target_vocabulary = 2}};
}

/// What a forward pass leaves with the model, which the next one overwrites.
enum class lends {
    nothing,       ///< or nothing that a later pass changes
    until_draw,    ///< rows that tokens are drawn from
    until_judged,  ///< these rows are what acceptance reads as well
};

/// visit(name, lends, finds, make) for each drafter: what its passes lend, whether it looks up, and a function that
/// makes one.
template <class Visit>
void for_each_drafter(world const& w, Visit&& visit) {
    head_weights const weights(w.seed, w.vocabulary);
    drafter_options const shape{.block_size = w.block_size, .vocabulary = w.vocabulary};
    auto const headless = [&] { return parallel{table_backbone{&w}, table_confidence{&w}, shape}; };
    auto const product = [&] {
        return semi_autoregressive{table_backbone{&w}, weights.markov(), table_confidence{&w}, shape};
    };
    auto const listed = [&] {
        return semi_autoregressive{table_backbone{&w}, shortlist_head{weights.markov(), 1}, table_confidence{&w},
                                   shape};
    };
    auto const model = [&] { return autoregressive_of(w); };
    visit("semi_autoregressive", lends::until_draw, false, [&] { return semi_of(w); });
    visit("semi_autoregressive, markov_head", lends::until_draw, false, product);
    visit("semi_autoregressive, shortlist_head", lends::until_draw, false, listed);
    visit("parallel", lends::until_judged, false, headless);
    visit("autoregressive", lends::nothing, false, model);
    visit("lookup", lends::nothing, true,
          [&] { return lookup{{.block_size = w.block_size, .target_vocabulary = w.vocabulary, .shortest = 2}}; });
    visit("with_lookup, semi_autoregressive", lends::until_draw, true, [&] { return with_lookup{semi_of(w)}; });
    visit("with_lookup, parallel", lends::until_judged, true, [&] { return with_lookup{headless()}; });
    visit("with_lookup, autoregressive", lends::nothing, true, [&] { return with_lookup{model()}; });
    visit("with_lookup, no_drafter", lends::nothing, true,
          [&] { return with_lookup{no_drafter<double>{w.vocabulary}, {.block_size = w.block_size, .longest = 3}}; });
    visit("with_forced, semi_autoregressive", lends::until_draw, false, [&] { return with_forced{semi_of(w)}; });
    visit("given_drafts", lends::nothing, false, [&] { return drawn_outside{w, true, false}; });
    visit("given_drafts without q", lends::nothing, false, [&] { return drawn_outside{w, false, false}; });
    visit("retokenised_drafts", lends::nothing, false, [&] { return retokenised_of(w); });
    visit("with_lookup twice", lends::until_draw, true,
          [&] { return with_lookup{with_lookup{semi_of(w)}, {.longest = 2}}; });
}
/// The heads that these leave out.
template <class Visit>
void for_each_other_head(world const& w, Visit&& visit) {
    head_weights const weights(w.seed, w.vocabulary);
    visit("no_head", lends::until_judged, false, [&] { return semi_with(w, no_head<double>{}); });
    visit("gated_head", lends::until_draw, false, [&] { return semi_with(w, weights.gated()); });
    visit("rnn_head", lends::until_draw, false, [&] { return semi_with(w, weights.rnn()); });
    visit("domino_head", lends::until_draw, false, [&] { return semi_with(w, weights.domino()); });
    visit("shortlist_head with successors", lends::until_draw, false,
          [&] { return semi_with(w, shortlist_head{weights.rnn(), 1, weights.successors_view()}); });
}
/// visit as in for_each_drafter, for those that draft trees.
template <class Visit>
void for_each_tree_drafter(world const& w, Visit&& visit) {
    head_weights const weights(w.seed, w.vocabulary);
    drafter_options const shape{.block_size = w.block_size, .vocabulary = w.vocabulary};
    tree_options const options{.nodes = w.block_size + 1, .children = 2};
    auto const tree = [&](auto drafter) { return tree_drafter<decltype(drafter)>{std::move(drafter), options}; };
    auto const grown = [&] { return tree(semi_of(w)); };
    visit("tree_drafter", lends::until_draw, false, grown);
    visit("tree_drafter, markov_head", lends::until_draw, false,
          [&] { return tree(semi_autoregressive{table_backbone{&w}, weights.markov(), table_confidence{&w}, shape}); });
    visit("tree_drafter, shortlist_head", lends::until_draw, false, [&] {
        return tree(
            semi_autoregressive{table_backbone{&w}, shortlist_head{weights.markov(), 1}, table_confidence{&w}, shape});
    });
    visit("tree_drafter, parallel", lends::until_judged, false,
          [&] { return tree(parallel{table_backbone{&w}, table_confidence{&w}, shape}); });
    visit("given_drafts of trees", lends::nothing, false, [&] { return drawn_outside{w, true, true}; });
    visit("with_lookup, tree_drafter", lends::until_draw, true, [&] { return with_lookup{grown()}; });
    visit("with_forced, tree_drafter", lends::until_draw, false, [&] { return with_forced{grown()}; });
}

}  // namespace every_drafter
