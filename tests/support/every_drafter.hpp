// SPDX-License-Identifier: MIT
//
// Every drafter of the library in one list, in a tiny world, alone and inside the others that take one.
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
#include <sureleap/drafter/with_lookup.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/shortlist.hpp>

#include "support/small_world.hpp"

namespace every_drafter {

using namespace small_world;

/// What a forward pass leaves with the model, which the next one overwrites.
enum class lends {
    nothing,       ///< or nothing that a later pass changes
    until_draw,    ///< rows that tokens are drawn from
    until_judged,  ///< these rows are what acceptance reads as well
};

/// Weights of a head that is a product, of the size of a world.
struct product_weights {
    static constexpr std::size_t rank = 2;
    std::vector<double> w1, w2;
    std::size_t vocabulary;

    explicit product_weights(world const& w) : vocabulary(w.vocabulary) {
        for (std::size_t i = 0; i < vocabulary * rank; ++i) {
            w1.push_back(2.0 * hash01(w.seed, 7, i) - 1.0);
            w2.push_back(2.0 * hash01(w.seed, 8, i) - 1.0);
        }
    }
    [[nodiscard]] auto head() const {
        return markov_head{matrix_view<double>{w1.data(), vocabulary, rank},
                           matrix_view<double>{w2.data(), vocabulary, rank}};
    }
};

/// visit(name, lends, finds, make) for each drafter: what its passes lend, whether it looks up, and a function that
/// makes one.
template <class Visit>
void for_each_drafter(world const& w, Visit&& visit) {
    product_weights const weights(w);
    drafter_options const shape{.block_size = w.block_size, .vocabulary = w.vocabulary};
    auto const headless = [&] { return parallel{table_backbone{&w}, table_confidence{&w}, shape}; };
    auto const product = [&] {
        return semi_autoregressive{table_backbone{&w}, weights.head(), table_confidence{&w}, shape};
    };
    auto const listed = [&] {
        return semi_autoregressive{table_backbone{&w}, shortlist_head{weights.head(), 1}, table_confidence{&w}, shape};
    };
    auto const model = [&] { return autoregressive_of(w); };
    visit("semi_autoregressive", lends::until_draw, false, [&] { return semi_of(w); });
    visit("semi_autoregressive, a product", lends::until_draw, false, product);
    visit("semi_autoregressive, a shortlist", lends::until_draw, false, listed);
    visit("parallel", lends::until_judged, false, headless);
    visit("autoregressive", lends::nothing, false, model);
    visit("lookup", lends::nothing, true,
          [&] { return lookup{{.block_size = w.block_size, .target_vocabulary = w.vocabulary, .shortest = 2}}; });
    visit("with_lookup, semi_autoregressive", lends::until_draw, true, [&] { return with_lookup{semi_of(w)}; });
    visit("with_lookup, parallel", lends::until_judged, true, [&] { return with_lookup{headless()}; });
    visit("with_lookup, autoregressive", lends::nothing, true, [&] { return with_lookup{model()}; });
    visit("with_lookup twice", lends::until_draw, true,
          [&] { return with_lookup{with_lookup{semi_of(w)}, {.longest = 2}}; });
}
/// The same of those that draft trees.
template <class Visit>
void for_each_tree_drafter(world const& w, Visit&& visit) {
    product_weights const weights(w);
    drafter_options const shape{.block_size = w.block_size, .vocabulary = w.vocabulary};
    tree_options const options{.nodes = w.block_size + 1, .children = 2};
    auto const tree = [&](auto drafter) { return tree_drafter<decltype(drafter)>{std::move(drafter), options}; };
    auto const grown = [&] { return tree(semi_of(w)); };
    visit("tree_drafter", lends::until_draw, false, grown);
    visit("tree_drafter, a product", lends::until_draw, false,
          [&] { return tree(semi_autoregressive{table_backbone{&w}, weights.head(), table_confidence{&w}, shape}); });
    visit("tree_drafter, a shortlist", lends::until_draw, false, [&] {
        return tree(
            semi_autoregressive{table_backbone{&w}, shortlist_head{weights.head(), 1}, table_confidence{&w}, shape});
    });
    visit("tree_drafter, parallel", lends::until_judged, false,
          [&] { return tree(parallel{table_backbone{&w}, table_confidence{&w}, shape}); });
    visit("with_lookup, tree_drafter", lends::until_draw, true, [&] { return with_lookup{grown()}; });
}

}  // namespace every_drafter
