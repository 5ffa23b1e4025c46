// SPDX-License-Identifier: MIT
//
// Trees grown on the device against the host's tree_drafter: the same nodes from the same head, lists and confidences.
// And whole rounds of trees, captured once, against the host's rounds.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/cuda/round/accept.cuh>
#include <sureleap/cuda/round/advance.cuh>
#include <sureleap/cuda/tree/flatten.cuh>
#include <sureleap/cuda/tree/grow.cuh>
#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/recursive.hpp>

#include "cuda/support/captured.hpp"
#include "cuda/support/growth_scene.hpp"
#include "cuda/support/seeds.hpp"
#include "cuda/support/tree_scene.hpp"
#include "support/dice.hpp"

using namespace growth_scene;

namespace {

static_assert(gpu::is_known_before_draw<gpu::confidence_head<float>>);
static_assert(gpu::is_known_before_draw<gpu::calibrated<told_confidence>>);
static_assert(!gpu::is_known_before_draw<gpu::no_confidence>);
static_assert(!gpu::is_known_before_draw<gpu::calibrated<gpu::planned_top1_confidence>>);
static_assert(gpu::recurrent_head<gpu::rnn_head<bf16>> && !gpu::recurrent_head<gpu::gated_head<bf16>>);

enum class rows_are { smooth, rough, broken, truncated, peaked };

/// What a round is grown from, on both sides.
template <class W, class U>
struct world {
    setting how;
    gpu::device_limits limits;
    weights<W> w;
    matrix<U> hidden;
    matrix<U> base;
    std::vector<token_id> table;
    device_array<token_id> table_there;
    requests asked;

    world(support::dice& roll, setting const& s, rows_are what)
        : how(s),
          limits{static_cast<std::uint32_t>(s.count + 1), s.gamma, static_cast<std::uint32_t>(s.of.vocabulary), 1},
          w(roll, s.of),
          hidden(roll, limits.requests * s.gamma, s.of.hidden, 1.0, s.of.gap),
          base(roll, limits.requests * s.gamma, s.of.vocabulary, 3.0, s.of.gap),
          table(random_successors(roll, s.of.vocabulary, s.successors)),
          table_there(table),
          asked(roll, s.count, s.of.vocabulary, what == rows_are::truncated) {
        constexpr float inf = std::numeric_limits<float>::infinity();
        if (what == rows_are::rough) {  // few finite logits, and neighbours with the same
            for (U& l : base.values) l = U(roll.chance(0.6) ? -inf : std::round(load(l)));
            for (std::size_t i = 0; i < base.values.size(); ++i) {
                if (i % base.stride % 2 == 1) base.values[i] = base.values[i - 1];
            }
            for (std::size_t v = 1; v < w.w2.rows; v += 2) {
                std::copy_n(w.w2.values.begin() + static_cast<std::ptrdiff_t>((v - 1) * w.w2.stride), w.w2.stride,
                            w.w2.values.begin() + static_cast<std::ptrdiff_t>(v * w.w2.stride));
            }
            w.w2.there.upload(w.w2.values);
        }
        if (what == rows_are::broken) {
            for (U& l : base.values) l = roll.chance(0.02) ? U(inf) : l;
        }
        if (what == rows_are::peaked) {  // a token of most rows leaves one in 10^13 to the others
            for (std::size_t row = 0; row < base.values.size(); row += base.stride) {
                U& l = base.values[row + roll.below(s.of.vocabulary)];
                l = U(load(l) + 30.0f);
            }
        }
        base.there.upload(base.values);
        double const temperatures[] = {0.0, 0.2, 1.0};
        for (std::size_t r = 0; r < s.count; ++r) {
            request_settings& own = asked.settings[r];
            own.draft->temperature = temperatures[roll.below(3)];
            request_view& view = asked.views[r];
            view.draft_limit = roll.chance(0.5) ? 1000 : roll.below(s.nodes + 2);
            view.remaining = roll.chance(0.5) ? 1000 : 1 + roll.below(s.nodes + 2);
            if (roll.chance(0.4)) view.weight = static_cast<fixed_probability>(1 + roll.below(60));  // it rounds
            if (roll.chance(0.1)) view.anchor = static_cast<token_id>(s.of.vocabulary);  // nothing is drafted behind it
            asked.there[r].draft = *own.draft;
            asked.there[r].draft_limit = static_cast<std::uint32_t>(view.draft_limit);
            asked.there[r].remaining = static_cast<std::uint32_t>(view.remaining);
            asked.there[r].anchor = view.anchor;
            asked.there[r].weight = view.weight;
            if (!roll.chance(0.3)) continue;
            std::size_t const row = r * s.gamma + roll.below(s.gamma);
            asked.end_at_mode<U>(r, std::span(base.values).subspan(row * base.stride, s.of.vocabulary));
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
    fixed_probability const floors[] = {certain / 2, certain / 20, 12, 1};
    auto const floor = static_cast<fixed_probability>(roll.below(floors[roll.below(4)]));
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
            teach(roll, drafter, host_drafts{DraftRule{}, drafter, world.asked.views, 0, calibration});
        }
        host_drafts const host{DraftRule{}, drafter, world.asked.views, floor, calibration};

        gpu::shortlist_head list{head_there, how.best,
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
        compare<DraftRule>(host.block, device_trees(trees.columns, memory.columns, how.count), world.asked.views, exact,
                           seen);
    };
    if constexpr (compiled == heads::all) {
        world.w.with_head(kind, world.limits, use);
    } else {
        use(markov_head{world.w.w1.host(), world.w.w2.host(), scalar_backend{}},
            gpu::markov_head<W>{world.w.w1.device(), world.w.w2.device()});
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
    auto const calibration = sequential_platt_scaling(maps);
    device_array<logit_scaling> const maps_there(maps);
    if (calibrates) {
        gpu::calibrated const there{c_there, maps_there.data()};
        grow_twice<DraftRule, heads::markov>(roll, world, "markov", c, there, calibration, false, seen);
    } else {
        grow_twice<DraftRule, heads::markov>(roll, world, "markov", c, c_there, {}, false, seen);
    }
}

// ---- whole rounds ----------------------------------------------------------------------------------------------

/// A target that both sides know to the last bit: a number for every pair of tokens, and a little noise of the
/// position.
struct toy_target {
    float const* table = nullptr;  ///< [V, V]
    std::uint32_t vocabulary = 0;

    [[nodiscard]] SURELEAP_HOST_DEVICE float logit(token_id token, std::uint64_t position, std::uint32_t v) const {
        std::uint32_t h = static_cast<std::uint32_t>(position) * 2654435761u + v * 40503u;
        h = (h ^ h >> 15) * 2246822519u;
        return table[static_cast<std::uint32_t>(token) * vocabulary + v] + static_cast<float>(h >> 24) * 0x1p-8f;
    }
};

template <class = void>
__global__ void score(toy_target target, gpu::device_round round, gpu::tree_columns trees, float* rows) {
    std::uint32_t const row = blockIdx.x;
    if (static_cast<std::int32_t>(row) >= trees.batch.offsets[round.limits.requests]) return;
    for (std::uint32_t v = threadIdx.x; v < target.vocabulary; v += blockDim.x) {
        rows[row * target.vocabulary + v] = target.logit(trees.batch.tokens[row], trees.batch.positions[row], v);
    }
}

struct rounds_tally {
    std::size_t rounds = 0, accepted = 0, younger = 0, emitted = 0, ended_in_draft = 0;
};

/// Rounds until every request has its tokens: one captured round of the device's, replayed, and the host's beside it.
/// judge(rows, memory, trees, verification, round, stream) is the device's rule.
template <class Rule, class Judge>
void play_rounds(support::dice& roll, Judge const& judge, rounds_tally& sum) {
    using draft_rule = typename Rule::draft_rule;
    constexpr std::uint32_t vocabulary = 24;
    setting how{{vocabulary, 16, 8}, 14, 4, 4, 10, 3};
    world<float, float> world(roll, how, rows_are::smooth);
    std::vector<request_view> views = world.asked.views;
    for (std::size_t r = 0; r < how.count; ++r) {
        double const temperatures[] = {0.0, 0.2, 1.0};
        request_settings& own = world.asked.settings[r];
        own = {.temperature = temperatures[r % 3]};
        if (r == 4) own.draft = transform{.temperature = 1.3, .top_k = 5};
        if (world.asked.stops[r] != no_token) own.stop_tokens = {&world.asked.stops[r], 1};
        views[r].settings = &own;
        views[r].anchor = static_cast<token_id>(roll.below(vocabulary));
        views[r].remaining = 8 + roll.below(12);
        views[r].weight = certain;
        world.asked.there[r].anchor = views[r].anchor;
        world.asked.there[r].remaining = static_cast<std::uint32_t>(views[r].remaining);
        world.asked.there[r].weight = certain;
        world.asked.there[r].draft = own.draft_transform();
        world.asked.there[r].target = own.target_transform();
    }
    std::vector<float> table;  // what the head says of the token before
    for (std::size_t x = 0; x < vocabulary; ++x) {
        for (std::size_t v = 0; v < vocabulary; ++v) {
            double sum_of = 0.0;
            for (std::size_t i = 0; i < how.of.rank; ++i) {
                sum_of += static_cast<double>(world.w.w1.values[x * how.of.rank + i]) *
                          static_cast<double>(world.w.w2.values[v * how.of.rank + i]);
            }
            table.push_back(static_cast<float>(sum_of));
        }
    }
    device_array<float> const table_there(table);
    toy_target const target{table.data(), vocabulary};

    told_confidence const told{static_cast<std::uint32_t>(roll.bits()), false};
    markov_head const head{world.w.w1.host(), world.w.w2.host(), scalar_backend{}};
    shortlist_head const listed{head, how.best, matrix_view<token_id>{world.table.data(), vocabulary, how.successors}};
    auto const forward = [&](std::span<request_view const>) {
        return block_forward<float>{world.hidden.host(), {world.base.host(), {}, {}}};
    };
    tree_drafter drafter{
        semi_autoregressive{
            forward, listed, told,
            drafter_options{.block_size = how.gamma, .vocabulary = vocabulary, .hidden_size = how.of.hidden}},
        tree_options{.nodes = how.nodes, .children = how.children}};

    gpu::shortlist_head const list{gpu::markov_head<float>{world.w.w1.device(), world.w.w2.device()}, how.best,
                                   matrix_view<token_id>{world.table_there.data(), vocabulary, how.successors}};
    round_on_device round(world.limits);
    round.write(world.asked.there);
    support::carved<gpu::growth_memory> const memory(
        [&](gpu::workspace& ws) { return gpu::carve_growth(ws, world.limits, how.nodes, gpu::growth_shape_of(list)); });
    support::carved<gpu::tree_columns> const trees(
        [&](gpu::workspace& ws) { return gpu::carve_trees(ws, world.limits, how.nodes); });
    support::carved<gpu::verify_memory> const verification(
        [&](gpu::workspace& ws) { return gpu::carve_tree_verification(ws, world.limits, how.nodes); });
    std::uint32_t const most_rows = world.limits.requests * (how.nodes + 1);
    device_array<float> rows(most_rows * vocabulary);
    device_array<gpu::sibling_ratios> ratios(std::vector{gpu::sibling_ratios{}});
    support::captured const work([&](cudaStream_t stream) {
        gpu::growth_options const options{how.children, 0, ratios.data(), nullptr};
        cudaError_t error = gpu::grow_trees<draft_rule>(list, told, world.forward(), memory.columns, trees.columns,
                                                        round.get(), stream, options);
        if (error == cudaSuccess) error = gpu::flatten_trees(round.get(), trees.columns, stream);
        if (error == cudaSuccess) {
            error = gpu::launch(score<>, dim3(most_rows), dim3(32), 0, stream,
                                toy_target{table_there.data(), vocabulary}, round.get(), trees.columns, rows.data());
        }
        gpu::logits_rows<float> const scored{rows.data(), most_rows, vocabulary, nullptr, nullptr};
        if (error == cudaSuccess) {
            error = judge(scored, memory.columns, trees.columns, verification.columns, round.get(), stream);
        }
        return error == cudaSuccess ? gpu::advance(round.get(), stream) : error;
    });

    std::size_t open = how.count;
    for (std::size_t turn = 0; open > 0 && turn < 40; ++turn) {
        INFO("round " << turn);
        ratios.upload({gpu::sibling_ratios{drafter.siblings()}});
        work.replay();
        auto const statuses = support::download(round.get().verdicts.statuses, how.count);
        auto const accepted = support::download(round.get().verdicts.accepted, how.count);
        auto const emitted = support::download(round.get().verdicts.emitted, how.count);
        auto const tokens = support::download(round.get().verdicts.tokens, how.count * (how.gamma + 1));
        auto const paths = support::download(trees.columns.paths, how.count * how.gamma);

        std::vector<request_view> asked = views;
        for (request_view& view : asked) view.remaining = std::max<std::size_t>(view.remaining, 1);
        host_drafts const host{draft_rule{}, drafter, asked};
        std::vector<verdict> verdicts(how.count);
        std::vector<std::vector<node_id>> kept(how.count);
        open = 0;
        for (std::size_t r = 0; r < how.count; ++r) {
            INFO("request " << r << ", T " << views[r].settings->temperature);
            REQUIRE(statuses[r] == status::ok);
            verdicts[r].outcome = status::invalid_draft;  // nothing is learned of finished requests
            if (views[r].remaining == 0) {
                REQUIRE(emitted[r] == 0);
                continue;
            }
            tree_scene::host_tree made(how.nodes);
            made.tree.begin(views[r].anchor);
            std::vector<distribution<float>> laws(host.block.size(r) + 1);
            for (std::size_t n = 0; n < host.block.size(r); ++n) {
                made.tree.append(host.block.parents(r)[n], host.block.tokens(r)[n]);
                laws[static_cast<std::size_t>(host.block.parents(r)[n])] = host.block.laws(r)[n];
            }
            std::vector<float> scored;
            for (std::size_t n = 0; n < made.tree.size(); ++n) {
                auto const node = static_cast<node_id>(n);
                for (std::uint32_t v = 0; v < vocabulary; ++v) {
                    scored.push_back(target.logit(made.tree.token(node), views[r].position + made.tree.depth(node), v));
                }
            }
            philox_randomness rng;
            decision const decision =
                tree_scene::decide_on_host<float, float>(Rule{}, rng, views[r], made.tree, scored, vocabulary, laws);
            REQUIRE(decision.valid);
            kept[r] = made.path_to(static_cast<node_id>(decision.row));
            std::vector<token_id> text;
            node_id parent = anchor_node;
            for (node_id const n : kept[r]) {
                text.push_back(made.tree.token(n));
                sum.younger += made.tree.first_child(parent) != n ? 1u : 0u;
                parent = n;
            }
            text.push_back(decision.next);
            auto const ends = [&](token_id x) { return views[r].settings->stops_at(x); };
            auto const end = std::find_if(text.begin(), text.end(), ends);
            bool const ended = end != text.end();
            if (ended) text.erase(end + 1, text.end());
            kept[r].resize(std::min(kept[r].size(), text.size()));
            auto const path = paths.begin() + static_cast<std::ptrdiff_t>(r * how.gamma);
            auto const said = tokens.begin() + static_cast<std::ptrdiff_t>(r * (how.gamma + 1));
            REQUIRE(std::vector<node_id>(path, path + accepted[r]) == kept[r]);
            REQUIRE(std::vector<token_id>(said, said + emitted[r]) == text);
            views[r].anchor = text.back();
            views[r].position += text.size();
            views[r].remaining = ended ? 0 : views[r].remaining - text.size();
            open += views[r].remaining > 0 ? 1u : 0u;
            ++sum.rounds;
            sum.accepted += kept[r].size();
            sum.emitted += text.size();
            sum.ended_in_draft += ended && kept[r].size() == text.size() ? 1u : 0u;
            verdicts[r] = {.id = views[r].id,
                           .drafted = host.block.size(r),
                           .verified = host.block.size(r),
                           .accepted = kept[r].size(),
                           .parents = host.block.parents(r),
                           .path = kept[r]};
        }
        host.memory->commit(drafter, verdicts);
    }
    CHECK(open == 0);
}

}  // namespace

TEMPLATE_TEST_CASE("Trees: the device grows the host's", "[emulated]", categorical_draft, argmax_draft, coupled_draft) {
    support::dice roll(7301);
    INFO("seed " << roll.seed());
    growth_tally seen;
    constexpr heads compiled = std::is_same_v<TestType, categorical_draft> ? heads::all : heads::markov;
    auto const one = [&](setting const& how, std::string const& kind, rows_are what) {
        check<TestType, float, float, compiled>(roll, how, compiled == heads::all ? kind : "markov", what, seen);
    };
    for (std::string const kind : {"markov", "gated", "rnn"}) {
        one({{60, 16, 8}, 9, 4, 4, 12, 3}, kind, rows_are::smooth);
        one({{90, 32, 11, 3}, 5, 0, 6, 20, 4, 2}, kind, rows_are::smooth);
        one({{50, 16, 8}, 50, 0, 3, 30, 9}, kind, rows_are::rough);
        one({{80, 16, 8}, 3, 2, 5, 9, 4}, kind, rows_are::broken);
        one({{70, 16, 8}, 20, 8, 4, 14, 5, 1}, kind, rows_are::truncated);
    }
    for (int i = 0; i < 10; ++i) one({{40, 16, 8}, 3, 2, 5, 9, 4, 0, 8}, "markov", rows_are::broken);
    for (int i = 0; i < 2; ++i) one({{60, 16, 8}, 9, 4, 4, 16, 5, 0, 7}, "markov", rows_are::peaked);
    for (int i = 0; i < 2; ++i) one({{1500, 16, 8}, 12, 3, 3, 16, 5, 0, 7}, "markov", rows_are::peaked);
    for (int i = 0; i < 3; ++i) one({{600, 16, 8}, 500, 0, 2, 24, 24, 0, 5}, "markov", rows_are::rough);
    for (int i = 0; i < 3; ++i) one({{1500, 16, 8}, 12, 3, 3, 24, 8, 0, 7}, "markov", rows_are::smooth);  // proposals
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

TEST_CASE("Trees: captured rounds of the device are the host's, from the backbone to the next anchors", "[emulated]") {
    support::dice roll(7303);
    INFO("seed " << roll.seed());
    rounds_tally sum;
    auto const rejects = []<class DraftRule>(DraftRule) {
        return [](gpu::logits_rows<float> const& rows, gpu::growth_memory const& memory, gpu::tree_columns const& trees,
                  gpu::verify_memory const& verification, gpu::device_round const& round, cudaStream_t stream) {
            return gpu::accept<recursive_rejection<DraftRule>>(rows, gpu::draft_rows_of(memory), trees, verification,
                                                               round, stream);
        };
    };
    auto const matches = []<class Rule>(Rule) {
        return [](gpu::logits_rows<float> const& rows, gpu::growth_memory const&, gpu::tree_columns const& trees,
                  gpu::verify_memory const& verification, gpu::device_round const& round, cudaStream_t stream) {
            return gpu::accept<Rule>(rows, gpu::one_hot_draft_rows{}, trees, verification, round, stream);
        };
    };
    for (int i = 0; i < 2; ++i) {
        play_rounds<recursive_rejection<categorical_draft>>(roll, rejects(categorical_draft{}), sum);
        play_rounds<recursive_rejection<argmax_draft>>(roll, rejects(argmax_draft{}), sum);
        play_rounds<target_match<>>(roll, matches(target_match<>{}), sum);
        play_rounds<keyed_coupling>(roll, matches(keyed_coupling{}), sum);
    }
    INFO(sum.rounds << " rounds, " << sum.emitted << " tokens, " << sum.accepted << " accepted, " << sum.younger
                    << " not first children");
    CHECK(2 * sum.accepted > sum.rounds);
    CHECK(10 * sum.younger > sum.accepted);
    CHECK(sum.ended_in_draft > 0);
}

TEST_CASE("Trees: what cannot be grown is refused", "[emulated]") {
    support::dice roll(7304);
    setting const how{{40, 16, 8}, 8, 0, 3, 6, 2, 0, 2};
    world<float, float> const world(roll, how, rows_are::smooth);
    round_on_device round(world.limits);
    round.write(world.asked.there);
    gpu::shortlist_head const good{gpu::markov_head<float>{world.w.w1.device(), world.w.w2.device()}, how.best};
    gpu::growth_shape const shape = gpu::growth_shape_of(good);
    support::carved<gpu::growth_memory> const memory(
        [&](gpu::workspace& ws) { return gpu::carve_growth(ws, world.limits, how.nodes, shape); });
    support::carved<gpu::tree_columns> const trees(
        [&](gpu::workspace& ws) { return gpu::carve_trees(ws, world.limits, how.nodes); });
    told_confidence const told{};
    auto const refused = [&](auto const& list, gpu::forward_view<float> const& f, gpu::growth_memory const& m,
                             gpu::tree_columns const& t, gpu::device_round const& in,
                             gpu::growth_options const& options = {}) {
        return gpu::grow_trees<categorical_draft>(list, told, f, m, t, in, nullptr, options) == cudaErrorInvalidValue;
    };
    gpu::growth_memory const& m = memory.columns;
    gpu::tree_columns const& t = trees.columns;
    gpu::forward_view<float> const f = world.forward();
    CHECK_FALSE(refused(good, f, m, t, round.get()));
    CHECK_FALSE(refused(good, f, m, t, round.get(), {.children = 1, .straight = 9}));
    CHECK(refused(good, f, m, t, round.get(), {.children = 0}));
    CHECK(refused(good, f, m, t, {}));
    CHECK(refused(good, f, {}, t, round.get()));
    CHECK(refused(good, f, m, {}, round.get()));
    CHECK(refused(good, {{world.base.there.data(), 8, 40}, {}}, m, t, round.get()));
    CHECK(refused(good, {{world.base.there.data(), 9, 39, 40}, {}}, m, t, round.get()));
    CHECK(refused(good, {{nullptr, 9, 40}, {}}, m, t, round.get()));
    auto bad = good;
    bad.best = 9;  // not what the memory was made for
    CHECK(refused(bad, f, m, t, round.get()));
    bad.best = 0;
    CHECK(refused(bad, f, m, t, round.get()));
    // One node more or less, and other limits.
    support::carved<gpu::tree_columns> const more(
        [&](gpu::workspace& ws) { return gpu::carve_trees(ws, world.limits, how.nodes + 1); });
    CHECK(refused(good, f, m, more.columns, round.get()));
    gpu::device_limits other = world.limits;
    ++other.block_size;
    support::carved<gpu::growth_memory> const deeper(
        [&](gpu::workspace& ws) { return gpu::carve_growth(ws, other, how.nodes, shape); });
    CHECK(refused(good, f, deeper.columns, t, round.get()));
    // Memory: counted, too small, and of shapes that are none.
    gpu::workspace sizer;
    CHECK_FALSE(gpu::carve_growth(sizer, world.limits, how.nodes, shape).ready());
    device_array<unsigned char> bytes(sizer.used());
    gpu::workspace enough{bytes.data(), bytes.size()};
    CHECK(gpu::carve_growth(enough, world.limits, how.nodes, shape).ready());
    gpu::workspace small{bytes.data(), bytes.size() - 1};
    CHECK_FALSE(gpu::carve_growth(small, world.limits, how.nodes, shape).ready());
    for (std::uint32_t const nodes : {0u, 256u}) {
        gpu::workspace unused{bytes.data(), bytes.size()};
        CHECK_FALSE(gpu::carve_growth(unused, world.limits, nodes, shape).ready());
    }
    gpu::workspace unused{bytes.data(), bytes.size()};
    CHECK_FALSE(gpu::carve_growth(unused, world.limits, how.nodes, {{40, 41, 0}, 0}).ready());
}
