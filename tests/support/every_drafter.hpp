// SPDX-License-Identifier: MIT
//
// Every drafter of the library, and every head, in a tiny world: alone, and inside the others that take one. The test
// exactness_list looks for a part of the library here.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/drafter/lookup.hpp>
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/drafter/with_forced.hpp>
#include <sureleap/drafter/with_lookup.hpp>
#include <sureleap/head/none.hpp>

#include "support/small_heads.hpp"
#include "support/small_world.hpp"

namespace every_drafter {

using namespace small_world;

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
    visit("with_forced, semi_autoregressive", lends::until_draw, false, [&] { return with_forced{semi_of(w)}; });
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
    visit("with_lookup, tree_drafter", lends::until_draw, true, [&] { return with_lookup{grown()}; });
    visit("with_forced, tree_drafter", lends::until_draw, false, [&] { return with_forced{grown()}; });
}

}  // namespace every_drafter
