// SPDX-License-Identifier: MIT
//
// Trees grown on the device against the host's tree_drafter: the same nodes from the same head, lists and confidences. And whole
// rounds of trees, captured once, against the host's rounds.
#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/cuda/round/advance.cuh>
#include <sureleap/cuda/tree/flatten.cuh>
#include <sureleap/cuda/tree/grow.cuh>
#include <sureleap/cuda/tree/match.cuh>
#include <sureleap/cuda/tree/rejection.cuh>
#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/tree/match.hpp>
#include <sureleap/tree/rejection.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>

#include "cuda/support/captured.hpp"
#include "cuda/support/growth_scene.hpp"
#include "cuda/support/seeds.hpp"
#include "cuda/support/tree_scene.hpp"
#include "support/dice.hpp"

using namespace growth_scene;

namespace {

enum class rows_are { smooth, rough, broken, truncated };

/// What a round is grown from, on both sides.
template <class W, class U>
struct world {
    setting how;
    gpu::round_limits limits;
    weights<W> w;
    matrix<U> hidden;
    matrix<U> base;
    std::vector<token_id> table;
    device_array<token_id> table_there;
    requests asked;

    world(support::dice& roll, setting const& s, rows_are what)
        : how(s),
          limits{static_cast<std::uint32_t>(s.count + 1), s.gamma, static_cast<std::uint32_t>(s.of.vocabulary)},
          w(roll, s.of),
          hidden(roll, limits.requests * s.gamma, s.of.hidden, 1.0, s.of.gap),
          base(roll, limits.requests * s.gamma, s.of.vocabulary, 3.0, s.of.gap),
          table(random_successors(roll, s.of.vocabulary, s.successors)),
          table_there(table),
          asked(roll, s.count, s.of.vocabulary, what == rows_are::truncated) {
        constexpr float inf = std::numeric_limits<float>::infinity();
        if (what == rows_are::rough) {  // ties, and few finite logits
            for (U& l : base.values) l = U(roll.chance(0.7) ? -inf : std::round(load(l)));
        }
        if (what == rows_are::broken) {
            for (U& l : base.values) l = roll.chance(0.02) ? U(inf) : l;
        }
        base.there.upload(base.values);
        double const temperatures[] = {0.0, 0.2, 1.0};
        for (std::size_t r = 0; r < s.count; ++r) {
            request_settings& own = asked.settings[r];
            own.draft->temperature = temperatures[roll.below(3)];
            request_view& view = asked.views[r];
            view.draft_limit = roll.chance(0.5) ? 1000 : roll.below(s.nodes + 2);
            view.remaining = roll.chance(0.5) ? 1000 : 1 + roll.below(s.nodes + 2);
            if (roll.chance(0.1)) view.anchor = static_cast<token_id>(s.of.vocabulary);  // nothing is drafted behind it
            asked.there[r].draft = *own.draft;
            asked.there[r].draft_limit = static_cast<std::uint32_t>(view.draft_limit);
            asked.there[r].remaining = static_cast<std::uint32_t>(view.remaining);
            asked.there[r].anchor = view.anchor;
        }
    }
    [[nodiscard]] gpu::forward_view<U> forward() const { return {base.device(), hidden.device()}; }
};

/// Which heads a test is compiled for.
enum class heads { markov, all };

/// Grows the trees of a round on both sides.
template <class DraftRule, heads compiled, class W, class U, class OnHost, class OnDevice>
void grow_twice(support::dice& roll, world<W, U>& world, std::string const& kind, OnHost const& confidence,
                OnDevice const& confidence_there, calibration_ref const& calibration, bool exact, growth_tally& seen) {
    setting const& how = world.how;
    auto const vocabulary = world.limits.vocabulary;
    fixed_probability const floor = roll.chance(0.5) ? 0 : static_cast<fixed_probability>(roll.below(certain / 20));
    device_array<fixed_probability> const floor_there(std::vector<fixed_probability>{floor});
    round_on_device round(world.limits);
    round.write(world.asked.there);
    auto const use = [&](auto const& head, auto const& head_there) {
        bool const none = how.successors == 0;
        shortlist_head const listed{head, how.best,
                                    matrix_view<token_id>{world.table.data(), none ? 0 : vocabulary, how.successors}};
        auto const forward = [&](std::span<request_view const>) {
            return block_forward<U>{world.hidden.host(), {world.base.host(), {}, {}}};
        };
        tree_drafter drafter{
            semi_autoregressive{
                forward, listed, confidence,
                drafter_options{.block_size = how.gamma, .vocabulary = vocabulary, .hidden_size = how.of.hidden}},
            tree_options{.nodes = how.nodes, .children = how.children, .straight = how.straight}};
        for (std::size_t i = roll.below(3); i > 0; --i) {
            teach(roll, drafter, host_drafts{DraftRule{}, drafter, world.asked.views, 0, calibration}.block);
        }
        host_drafts const host{DraftRule{}, drafter, world.asked.views, floor, calibration};

        gpu::shortlist list{head_there, how.best,
                            none ? matrix_view<token_id>{}
                                 : matrix_view<token_id>{world.table_there.data(), vocabulary, how.successors}};
        support::carved<gpu::growth_memory> const memory([&](gpu::workspace& ws) {
            return gpu::carve_growth(ws, world.limits, how.nodes, gpu::growth_shape_of(list));
        });
        support::carved<gpu::tree_columns> const trees(
            [&](gpu::workspace& ws) { return gpu::carve_trees(ws, world.limits, how.nodes); });
        REQUIRE(memory.columns.ready());
        device_array<gpu::sibling_ratios> const ratios(std::vector{gpu::sibling_ratios{drafter.siblings()}});
        gpu::growth_options const options{how.children, how.straight, ratios.data(),
                                          floor == 0 ? nullptr : floor_there.data()};
        support::in_graph([&](cudaStream_t stream) {
            return gpu::grow_trees<DraftRule>(list, confidence_there, world.forward(), memory.columns, trees.columns,
                                              round.get(), stream, options);
        });
        compare<DraftRule>(host.block, device_trees(trees.columns, memory.columns, how.count), world.asked.views,
                           exact, seen);
    };
    if constexpr (compiled == heads::all) {
        world.w.with_head(kind, world.limits, use);
    } else {
        use(markov_head{world.w.w1.host(), world.w.w2.host(), scalar_backend{}},
            gpu::markov<W>{world.w.w1.device(), world.w.w2.device()});
    }
}

template <class DraftRule, class W, class U, heads compiled>
void check(support::dice& roll, setting const& how, std::string const& kind, rows_are what, growth_tally& seen) {
    INFO(kind << ", V " << how.of.vocabulary << ", rank " << how.of.rank << ", best " << how.best << ", successors "
              << how.successors << ", gamma " << how.gamma << ", N " << how.nodes << ", children " << how.children
              << ", straight " << how.straight << ", rows " << static_cast<int>(what));
    world<W, U> world(roll, how, what);
    told_confidence const told{static_cast<std::uint32_t>(roll.bits()), what == rows_are::broken};
    grow_twice<DraftRule, compiled>(roll, world, kind, told, told, {}, true, seen);
}

/// The same with a confidence head, calibrated or not.
template <class DraftRule, class W, class U>
void check_head(support::dice& roll, setting const& how, bool calibrates, growth_tally& seen) {
    INFO("confidence head" << (calibrates ? ", calibrated" : ""));
    world<W, U> world(roll, how, rows_are::smooth);
    confidence_head const c{world.w.confidence.host(), 0.25f, world.w.w1.host()};
    gpu::confidence_head<W> c_there{world.w.confidence.there.data(), static_cast<std::uint32_t>(how.of.hidden), 0.25f,
                                    world.w.w1.device()};
    gpu::workspace counted;
    c_there.take(counted, world.limits);
    device_array<unsigned char> memory(counted.used());
    gpu::workspace space{memory.data(), memory.size()};
    c_there.take(space, world.limits);
    std::vector<logit_scaling> maps;
    for (std::uint32_t k = 0; k < how.gamma; ++k) maps.push_back({roll.between(0.5, 2.0), roll.between(-1.0, 1.0)});
    sequential_platt_scaling const calibration(maps);
    device_array<logit_scaling> const maps_there(maps);
    if (calibrates) {
        gpu::calibrated const there{c_there, maps_there.data()};
        grow_twice<DraftRule, heads::markov>(roll, world, "markov", c, there, calibration, false, seen);
    } else {
        grow_twice<DraftRule, heads::markov>(roll, world, "markov", c, c_there, {}, false, seen);
    }
}

}  // namespace

TEMPLATE_TEST_CASE("Trees: the device grows the host's", "[emulated]", categorical_draft, argmax_draft, coupled_draft) {
    support::dice roll(7301);
    INFO("seed " << roll.seed());
    growth_tally seen;
    auto const one = [&](setting const& how, std::string const& kind, rows_are what) {
        check<TestType, float, float, heads::all>(roll, how, kind, what, seen);
    };
    for (std::string const kind : {"markov", "gated", "rnn"}) {
        one({{60, 16, 8}, 9, 4, 4, 12, 3}, kind, rows_are::smooth);
        one({{90, 32, 11, 3}, 5, 0, 6, 20, 4, 2}, kind, rows_are::smooth);
        one({{50, 16, 8}, 50, 0, 3, 30, 9}, kind, rows_are::rough);
        one({{80, 16, 8}, 3, 2, 5, 9, 4}, kind, rows_are::broken);
        one({{70, 16, 8}, 20, 8, 4, 14, 5, 1}, kind, rows_are::truncated);
    }
    one({{1500, 16, 8}, 4, 0, 3, 24, 4}, "markov", rows_are::smooth);  // proposals
    one({{1100, 16, 8}, 2, 1, 7, 12, 3}, "gated", rows_are::truncated);
    one({{700, 16, 8}, 300, 30, 31, 255, 40, 0, 2}, "markov", rows_are::smooth);
    for (int i = 0; i < 20; ++i) {
        setting how{{12 + roll.below(60), 16, 8}};
        how.best = static_cast<std::uint32_t>(1 + roll.below(how.of.vocabulary));
        how.successors = static_cast<std::uint32_t>(roll.chance(0.5) ? 0 : 1 + roll.below(6));
        how.gamma = static_cast<std::uint32_t>(1 + roll.below(6));
        how.nodes = static_cast<std::uint32_t>(1 + roll.below(40));
        how.children = static_cast<std::uint32_t>(1 + roll.below(6));
        how.straight = static_cast<std::uint32_t>(roll.below(3));
        how.count = roll.below(7);
        one(how, "markov", static_cast<rows_are>(roll.below(4)));
    }
    for_each_order(4, [&] { one({{60, 16, 8}, 9, 4, 4, 12, 3}, "rnn", rows_are::rough); });
    INFO("nodes " << seen.nodes << ", differ " << seen.differ << ", younger " << seen.younger << ", deep " << seen.deep
                  << ", early " << seen.early << ", no draft " << seen.no_draft << ", no confidence "
                  << seen.no_confidence << ", probability " << seen.probability);
    CHECK(seen.differ <= 1 + seen.nodes / 1000);
    CHECK(seen.nodes > 500);
    CHECK(seen.younger > seen.nodes / 10);
    CHECK(seen.deep > seen.nodes / 10);
    CHECK(seen.early > 10);
    CHECK(seen.no_draft > 0);
    CHECK(seen.no_confidence > 0);
}

TEST_CASE("Trees: a confidence head says where they grow, calibrated or not", "[emulated]") {
    support::dice roll(7302);
    INFO("seed " << roll.seed());
    growth_tally seen;
    for (bool const calibrates : {false, true}) {
        for (int i = 0; i < 4; ++i) {
            check_head<categorical_draft, bf16, half>(roll, {{60, 16, 24}, 9, 4, 4, 16, 3}, calibrates, seen);
        }
    }
    INFO("nodes " << seen.nodes << ", differ " << seen.differ);
    CHECK(seen.differ <= 1 + seen.nodes / 1000);
    CHECK(seen.nodes > 100);
}
