// SPDX-License-Identifier: MIT
//
// The law of every drafter, with every head, through rules that read q, that choose their drafts and that reuse noise. A class of the library that drafts, or that adds a bias, and is not named
// here fails the test exactness_list. About a minute to compile and some seconds to run.
#include <string>
#include <type_traits>

#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/drafter/with_lookup.hpp>
#include <sureleap/head/none.hpp>
#include <sureleap/tree/match.hpp>
#include <sureleap/tree/rejection.hpp>
#include <sureleap/tree/traversal.hpp>

#include "support/exactness.hpp"
#include "support/small_heads.hpp"

using namespace exactness;

namespace {

/// The world of all drafters; prompts repeat themselves, so that lookup finds something.
struct drafted_world {
    world where{12, 2, 2};
    head_weights heads{12, 2};
    scene what{{{{0, 1, 0}}, {{1, 1}, {}, 1}}, 2, 1};
};

/// visit(name, make) for each chain drafter and head: make() is a new drafter.
template <class Visit>
void for_each_chain_drafter(drafted_world const& d, Visit&& visit) {
    world const& w = d.where;
    visit("autoregressive", [&] { return autoregressive_of(w); });
    visit("semi_autoregressive, no_head", [&] { return semi_with(w, no_head<double>{}); });
    visit("semi_autoregressive, markov_head", [&] { return semi_with(w, d.heads.markov()); });
    visit("semi_autoregressive, gated_head", [&] { return semi_with(w, d.heads.gated()); });
    visit("semi_autoregressive, rnn_head", [&] { return semi_with(w, d.heads.rnn()); });
    visit("semi_autoregressive, shortlist_head",
          [&] { return semi_with(w, shortlist_head{d.heads.rnn(), 1, d.heads.successors_view()}); });
    visit("parallel", [&] {
        return parallel{table_backbone{&w}, table_confidence{&w},
                        drafter_options{.block_size = w.block_size, .vocabulary = w.vocabulary}};
    });
    visit("lookup", [&] { return lookup{{.block_size = w.block_size, .target_vocabulary = w.vocabulary}}; });
    visit("with_lookup, autoregressive", [&] { return with_lookup{autoregressive_of(w), {.shortest = 1}}; });
    visit("with_lookup, semi_autoregressive", [&] { return with_lookup{semi_of(w), {.shortest = 1}}; });
}

/// visit(name, make) for each drafter of trees.
template <class Visit>
void for_each_tree_drafter(drafted_world const& d, Visit&& visit) {
    world const& w = d.where;
    tree_options const shape{.nodes = 3, .children = 2, .siblings = {.assumed_weight = 0.3, .memory = 1.5}};
    visit("tree_drafter, parallel", [&, shape] {
        return tree_drafter{parallel{table_backbone{&w}, table_confidence{&w},
                                     drafter_options{.block_size = w.block_size, .vocabulary = w.vocabulary}},
                            shape};
    });
    visit("tree_drafter, markov_head", [&, shape] { return tree_drafter{semi_with(w, d.heads.markov()), shape}; });
    visit("tree_drafter, rnn_head", [&, shape] { return tree_drafter{semi_with(w, d.heads.rnn()), shape}; });
    visit("tree_drafter, shortlist_head", [&, shape] {
        return tree_drafter{semi_with(w, shortlist_head{d.heads.markov(), 1, d.heads.successors_view()}), shape};
    });
    visit("with_lookup, tree_drafter",
          [&, shape] { return with_lookup{tree_drafter{semi_of(w), shape}, {.shortest = 1}}; });
}

struct by_confidence : threshold_schedule {
    by_confidence() : threshold_schedule(0.6) {}
};

/// The law under a schedule that stops by confidences and, where the drafter answers at the anchor, under one that plans.
template <class Make, class Rule>
void check_drafter(std::string const& name, drafted_world const& d, Make const& make, Rule const& rule) {
    using drafter_type = std::invoke_result_t<Make const&>;
    auto const check = [&](auto const& schedule) {
        check_exact(name, enumerator::noise::keyed, d.where, d.what, make, schedule, rule);
    };
    check(std::conditional_t<drafter_type::has_confidence, by_confidence, fixed_schedule>{});
    bool constexpr samples = Rule::guarantee == fidelity::distribution;
    if constexpr (samples && plans_at_anchor_v<drafter_type> && !drafts_deterministically_v<drafter_type, Rule>) {
        check(planned_schedule{cliff_capacity{}});
    }
}

}  // namespace

TEST_CASE("every drafter of chains, and every head: exact", "[exact][long]") {
    drafted_world const d;
    for_each_chain_drafter(d, [&](std::string const& name, auto const& make) {
        check_drafter(name + ", token_rejection", d, make, token_rejection<>{});
        check_drafter(name + ", token_rejection<argmax_draft>", d, make, token_rejection<argmax_draft>{});
        check_drafter(name + ", keyed_coupling", d, make, keyed_coupling{});
    });
}

TEST_CASE("every drafter of trees, and every head: exact", "[exact][long]") {
    drafted_world const d;
    for_each_tree_drafter(d, [&](std::string const& name, auto const& make) {
        check_drafter(name + ", recursive_rejection", d, make, recursive_rejection<>{});
        check_drafter(name + ", traversal_verification<argmax_draft>", d, make, traversal_verification<argmax_draft>{});
        check_drafter(name + ", along_tree<keyed_coupling>", d, make, along_tree<keyed_coupling>{});
    });
}
