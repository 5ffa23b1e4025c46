// SPDX-License-Identifier: MIT
//
// Rounds of draft trees: texts of rules whose text is plain decoding's, what verdicts and batches say of trees, limits,
// floors and plans, hooks, and confidences that are none. Some seconds.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/decoder.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/drafter/with_lookup.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/shortlist.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/serving/online_calibration.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/recursive.hpp>
#include <sureleap/verify/traversal.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"

using namespace sureleap;

namespace {

constexpr std::size_t V = 1500;  // rows of two blocks
constexpr std::size_t block = 5;
constexpr std::size_t head_rank = 8;

/// Rows that depend on the last two tokens, and base logits that know the target's row behind the anchor.
void fill_row(std::span<token_id const> context, std::span<float> row) {
    std::uint64_t state = 1 + context.size() % 2;
    for (token_id const x : context.last(std::min<std::size_t>(context.size(), 2))) {
        state = (state ^ static_cast<std::uint64_t>(x + 1)) * 0x9E3779B97F4A7C15u;
    }
    for (float& l : row) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        l = -3.0F * std::log1p(-static_cast<float>(state >> 40) * 0x1p-24F);  // a few are far above the others
    }
}
[[nodiscard]] auto make_target() {
    return model_of<float>(V, fill_row);
}

struct backbone_model {
    std::vector<float> rows{};
    std::vector<token_id> context{};
    [[nodiscard]] block_forward<float> forward(std::span<request_view const> requests) {
        rows.resize(requests.size() * block * V);
        for (std::size_t r = 0; r < requests.size(); ++r) {
            context.reserve(400);
            context.assign(requests[r].context.begin(), requests[r].context.end());
            for (std::size_t k = 0; k < block; ++k) {
                auto const row = std::span(rows).subspan((r * block + k) * V, V);
                fill_row(context, row);
                context.push_back(static_cast<token_id>(std::max_element(row.begin(), row.end()) - row.begin()));
            }
        }
        return {{}, {{rows.data(), requests.size() * block, V}, {}}};
    }
};

struct falling_confidence {
    bool broken_behind_odd = false;
    [[nodiscard]] double operator()(std::span<float const>, token_id previous, std::size_t k) const {
        if (broken_behind_odd && k > 0 && previous % 2 == 1) return std::numeric_limits<double>::quiet_NaN();
        return 0.8 - 0.05 * static_cast<double>(k) - 0.1 * static_cast<double>(previous % 3);
    }
    [[nodiscard]] double at_anchor(std::span<float const>, token_id, std::size_t k) const {
        return 0.7 - 0.05 * static_cast<double>(k);
    }
};

struct head_weights {
    std::vector<float> w1;
    std::vector<float> w2;
    head_weights() {
        support::dice roll{5};
        w1 = support::random_values<float>(roll, V * head_rank, 0.05);
        w2 = support::random_values<float>(roll, V * head_rank, 0.05);
    }
    [[nodiscard]] markov_head<float> head() const { return {{w1.data(), V, head_rank}, {w2.data(), V, head_rank}}; }
};
head_weights const weights;

[[nodiscard]] auto make_chain(falling_confidence c = {}) {
    return semi_autoregressive{backbone_model{}, weights.head(), std::move(c), {.block_size = block, .vocabulary = V}};
}
[[nodiscard]] auto make_trees(std::size_t nodes = 9, falling_confidence c = {}) {
    return tree_drafter{make_chain(c), {.nodes = nodes, .children = 3}};
}

struct dear_rows {
    [[nodiscard]] double steps_per_second(std::size_t b) const { return 1.0 / (10.0 + static_cast<double>(b)); }
};

/// Live confidences are those at the anchor.
struct same_everywhere {
    [[nodiscard]] double operator()(std::span<float const>, token_id, std::size_t k) const {
        return 0.8 - 0.1 * static_cast<double>(k);
    }
    [[nodiscard]] double at_anchor(std::span<float const>, token_id, std::size_t k) const { return (*this)({}, 0, k); }
};
/// Remembers the plan, and verifies all there is.
struct planned_and_kept {
    using origin = from_anchor;
    std::vector<fixed_probability>* seen;
    [[nodiscard]] std::size_t budget(planning_table<from_anchor> const& table) const {
        seen->clear();
        for (std::size_t k = 0; k < table.survivals().sizes[0]; ++k) {
            seen->push_back(table.survivals().at(0, k).survival);
        }
        return 100;
    }
};

/// Texts of some requests.
template <class Decoder>
[[nodiscard]] std::vector<std::vector<token_id>> texts_of(Decoder& dec, double temperature, std::size_t requests = 3) {
    std::vector<request_id> ids;
    for (std::size_t r = 0; r < requests; ++r) {
        std::vector<token_id> const prompt{static_cast<token_id>(3 * r), 7};
        ids.push_back(dec.submit(prompt, {.temperature = temperature, .seed = r, .max_new_tokens = 40 + 7 * r}));
    }
    while (dec.step()) {
    }
    std::vector<std::vector<token_id>> texts;
    for (request_id const id : ids) {
        auto const text = dec.generated(id);
        texts.emplace_back(text.begin(), text.end());
    }
    return texts;
}
template <class Drafter, class Schedule, class Rule>
[[nodiscard]] std::vector<std::vector<token_id>> texts(Drafter drafter, Schedule schedule, Rule rule,
                                                       double temperature, double* tau = nullptr) {
    decoder dec{make_target(), std::move(drafter), std::move(schedule), rule, {.max_requests = 3}};
    auto all = texts_of(dec, temperature);
    if (tau != nullptr) *tau = dec.report().tau();
    return all;
}

}  // namespace

TEST_CASE("tree rounds: matching rules write plain decoding's text, under any schedule") {
    for (double const temperature : {0.0, 0.7}) {
        auto const check = [&](auto const& rule, auto const& rule_of_chains) {
            auto const plain = texts(make_chain(), fixed_schedule{0}, rule_of_chains, temperature);
            double tau = 0.0;
            CHECK(texts(make_trees(), fixed_schedule{}, rule, temperature, &tau) == plain);
            CHECK(tau > 1.2);
            CHECK(texts(make_trees(), fixed_schedule{4}, rule, temperature) == plain);
            CHECK(texts(make_trees(3), greedy_schedule{dear_rows{}}, rule, temperature) == plain);
            CHECK(texts(make_trees(), never_lose{planned_schedule{dear_rows{}}}, rule, temperature) == plain);
            // Lists instead of whole rows, lookup in front, and a chain as a tree.
            shortlist_head lists{weights.head(), 50};
            semi_autoregressive listing{
                backbone_model{}, std::move(lists), falling_confidence{}, {.block_size = block, .vocabulary = V}};
            CHECK(texts(tree_drafter{std::move(listing)}, fixed_schedule{}, rule, temperature) == plain);
            CHECK(texts(with_lookup{make_trees(), {.block_size = 12}}, fixed_schedule{}, rule, temperature) == plain);
            CHECK(texts(make_chain(), fixed_schedule{}, rule, temperature) == plain);
        };
        check(target_match<>{}, target_match<>{});
        check(keyed_coupling{}, keyed_coupling{});
        if (temperature == 0.0) check(greedy_match{}, greedy_match{});
    }
}

TEST_CASE("tree rounds: at temperature 0 every rule writes the same text") {
    auto const plain = texts(make_chain(), fixed_schedule{0}, target_match<>{}, 0.0);
    CHECK(texts(make_trees(), fixed_schedule{}, recursive_rejection<>{}, 0.0) == plain);
    CHECK(texts(make_trees(), fixed_schedule{}, recursive_rejection<argmax_draft>{}, 0.0) == plain);
    CHECK(texts(make_trees(), fixed_schedule{}, traversal_verification<>{}, 0.0) == plain);
    CHECK(texts(make_trees(), fixed_schedule{}, traversal_verification<argmax_draft>{}, 0.0) == plain);
}

TEST_CASE("tree rounds: a batch's rows are behind their paths, and a verdict names the path that was kept") {
    auto target = make_target();
    decoder dec{target, make_trees(), fixed_schedule{}, recursive_rejection<>{}, {.max_requests = 2, .seed = 1}};
    std::vector<token_id> text{1, 2};
    auto const id = dec.submit(text, {.max_new_tokens = 200});
    std::size_t branches = 0, kept = 0;
    while (dec.step()) {
        verdict const& v = dec.round().verdicts[0];
        std::size_t const end = text.size();
        for (token_id const x : v.emitted) text.push_back(x);
        if (v.verified == 0) continue;
        REQUIRE(v.parents.size() == v.drafted);
        REQUIRE(v.path.size() == v.accepted);
        std::size_t depth = 0;
        for (std::size_t k = 0; k < v.verified; ++k) {
            REQUIRE(v.parents[k] >= 0);
            REQUIRE(v.parents[k] <= static_cast<std::int32_t>(k));
            REQUIRE((v.parents[k] == 0 ? 0 : v.depth(static_cast<std::size_t>(v.parents[k]) - 1) + 1) == v.depth(k));
            branches += v.parents[k] != static_cast<std::int32_t>(k);
            if (v.kept(k)) {
                CHECK(v.reached(k));
                CHECK(v.depth(k) == depth);
                CHECK(v.row(++depth) == k + 1);
                ++kept;
            }
        }
        CHECK(depth == v.accepted);
        CHECK(v.row(0) == 0);
        for (std::size_t k = 1; k < v.verified; ++k) {
            CHECK(dec.round().survivals.at(0, k).survival <= dec.round().survivals.at(0, k - 1).survival);
        }
        static_cast<void>(end);
    }
    CHECK(branches > 20);
    CHECK(kept > 20);
    CHECK(std::ranges::equal(dec.generated(id), std::span(text).subspan(2)));
    CHECK(dec.report().accepted() == kept);
}

TEST_CASE("tree rounds: of a verdict by hand, what was reached and kept") {
    //        anchor
    //       a      b          a = 0, b = 1
    //      c d      e         c = 2, d = 3, e = 4
    std::vector<std::int32_t> const parents{0, 0, 1, 1, 2};
    auto const flags = [&](std::vector<std::int32_t> const& path, auto const& ask) {
        verdict const v{.verified = 5, .accepted = path.size(), .parents = parents, .path = path};
        std::string text;
        for (std::size_t k = 0; k < 5; ++k) text += ask(v, k) ? '1' : '0';
        return text;
    };
    auto const kept = [](verdict const& v, std::size_t k) { return v.kept(k); };
    auto const reached = [](verdict const& v, std::size_t k) { return v.reached(k); };
    CHECK(flags({}, kept) == "00000");
    CHECK(flags({}, reached) == "11000");
    CHECK(flags({1, 4}, kept) == "10010");
    CHECK(flags({1, 4}, reached) == "10110");
    CHECK(flags({2, 5}, kept) == "01001");
    CHECK(flags({2, 5}, reached) == "11001");
    verdict const chain{.verified = 3, .accepted = 1};
    CHECK(chain.kept(0));
    CHECK_FALSE(chain.kept(1));
    CHECK(chain.reached(1));
    CHECK_FALSE(chain.reached(2));
    CHECK(chain.row(1) == 1);
    CHECK(chain.depth(2) == 2);
}

TEST_CASE("tree rounds: hooks see the path, stop tokens end it, log probabilities are the target's") {
    struct mask_after_pairs {  // what was written two tokens before must not come again
        void operator()(hook_context const& at, std::span<float> row) const {
            std::vector<token_id> text(at.request.context.begin(), at.request.context.end());
            text.insert(text.end(), at.drafted.begin(), at.drafted.end());
            if (text.size() > 1) {
                row[static_cast<std::size_t>(text[text.size() - 2])] = -std::numeric_limits<float>::infinity();
            }
        }
    };
    token_id const stop = 700;
    auto const run = [&](auto drafter, auto schedule, auto rule) {
        decoder dec{make_target(), std::move(drafter), schedule, rule, {.max_requests = 1}, mask_after_pairs{}};
        auto const id = dec.submit(
            std::vector<token_id>{5},
            {.seed = 3, .max_new_tokens = 150, .stop_tokens = std::span(&stop, 1), .log_probabilities = true});
        std::vector<double> log_probabilities;
        while (dec.step()) {
            auto const more = dec.events()[0].log_probabilities;
            log_probabilities.insert(log_probabilities.end(), more.begin(), more.end());
        }
        auto const text = dec.generated(id);
        return std::pair(std::vector<token_id>(text.begin(), text.end()), log_probabilities);
    };
    auto const plain = run(make_chain(), fixed_schedule{0}, keyed_coupling{});
    auto const trees = run(make_trees(), fixed_schedule{}, keyed_coupling{});
    CHECK(trees.first == plain.first);
    REQUIRE(trees.second.size() == plain.second.size());
    for (std::size_t i = 0; i < plain.second.size(); ++i) CHECK(trees.second[i] == Approx(plain.second[i]));
    for (std::size_t i = 2; i < plain.first.size(); ++i) CHECK(plain.first[i] != plain.first[i - 2]);
}

TEST_CASE("tree rounds: limits limit nodes, a floor ends growth, remaining tokens end paths") {
    auto const sizes = [](auto schedule, std::size_t most_drafts, std::size_t tokens) {
        decoder dec{make_target(), make_trees(), schedule, recursive_rejection<>{}, {.max_requests = 1, .seed = 1}};
        dec.submit(std::vector<token_id>{1}, {.max_new_tokens = tokens, .max_draft_tokens = most_drafts});
        dec.step();
        return dec.round().verdicts[0].verified;
    };
    CHECK(sizes(fixed_schedule{}, 100, 100) == 9);
    CHECK(sizes(fixed_schedule{}, 4, 100) == 4);
    CHECK(sizes(fixed_schedule{}, 100, 3) == 2);
    CHECK(sizes(fixed_schedule{3}, 100, 100) == 3);
    struct with_floor : fixed_schedule {
        with_floor() : fixed_schedule(100) {}
        [[nodiscard]] fixed_probability draft_floor() const { return certain / 2; }
    };
    CHECK(sizes(with_floor{}, 100, 100) < 4);
    CHECK(sizes(with_floor{}, 100, 100) > 0);
}

TEST_CASE("tree rounds: a plan at the anchor is the tree that grows, if confidences at the anchor are the live ones") {
    auto const check = [](auto rule, transform const& how, std::size_t size) {
        std::vector<fixed_probability> planned;
        semi_autoregressive chain{
            backbone_model{}, weights.head(), same_everywhere{}, {.block_size = block, .vocabulary = V}};
        decoder dec{make_target(),
                    tree_drafter{std::move(chain), {.nodes = 12}},
                    planned_and_kept{&planned},
                    rule,
                    {.max_requests = 1, .seed = 1}};
        dec.submit(std::vector<token_id>{1}, {.temperature = how.temperature, .draft = how, .max_new_tokens = 60});
        for (int round = 0; round < 8; ++round) {
            REQUIRE(dec.step());
            auto const& table = dec.round().survivals;
            REQUIRE(table.sizes[0] == size);
            REQUIRE(planned.size() == size);
            for (std::size_t k = 0; k < size; ++k) CHECK(table.at(0, k).survival == planned[k]);
        }
    };
    transform const greedy{.temperature = 0.0};
    check(recursive_rejection<>{}, {}, 12);
    check(recursive_rejection<argmax_draft>{}, greedy, 12);
    check(keyed_coupling{}, greedy, 12);
    // A law of few tokens: two children of a node at most, or none beside the first.
    check(recursive_rejection<>{}, {.top_k = 2}, 12);
    check(keyed_coupling{}, {.top_k = 1}, block);
    check(recursive_rejection<>{}, greedy, block);
    check(traversal_verification<>{}, greedy, block);
}

TEST_CASE("tree rounds: a confidence that is none, and options that are none") {
    decoder dec{make_target(),
                make_trees(9, {.broken_behind_odd = true}),
                fixed_schedule{},
                recursive_rejection<>{},
                {.max_requests = 1, .seed = 4}};
    auto const id = dec.submit(std::vector<token_id>{1}, {.max_new_tokens = 400});
    std::size_t broken = 0;
    std::size_t verified = 0;  // of these
    while (dec.step()) {
        verdict const& v = dec.round().verdicts[0];
        REQUIRE(v.outcome == status::ok);
        if (v.draft_outcome == status::ok) continue;
        REQUIRE(v.draft_outcome == status::invalid_confidence);
        ++broken;
        verified += v.verified;
    }
    CHECK(broken > 10);
    CHECK(verified > broken);  // what was grown before
    CHECK(dec.generated(id).size() == 400);
    CHECK(support::says(support::error_text([] { static_cast<void>(tree_drafter{make_chain(), {.nodes = 0}}); }),
                        "nodes is 0, expected 1 .. 65535"));
    CHECK(support::says(support::error_text([] { static_cast<void>(tree_drafter{make_chain(), {.nodes = 65536}}); }),
                        "nodes is 65536, expected 1 .. 65535"));
    CHECK(support::says(support::error_text([] { static_cast<void>(tree_drafter{make_chain(), {.children = 0}}); }),
                        "children is 0, expected at least 1"));
    CHECK(support::says(support::error_text([] { static_cast<void>(sibling_worth{{.assumed_weight = 0.0}}); }),
                        "assumed_weight 0"));
}

TEST_CASE("tree rounds: a calibration learns from eldest children at their depths") {
    online_calibration calibration{9};
    decoder dec{make_target(),
                make_trees(),
                fixed_schedule{},
                recursive_rejection<>{},
                {.max_requests = 1, .seed = 2, .calibration = calibration}};
    dec.submit(std::vector<token_id>{1}, {.max_new_tokens = 3000});
    std::vector<double> reached(9), kept(9);
    while (dec.step()) {
        verdict const& v = dec.round().verdicts[0];
        for (std::size_t k = 0; k < v.verified; ++k) {
            double const raw = dec.round().raw_confidence(0, k);
            bool const eldest = std::find(v.parents.begin(), v.parents.begin() + static_cast<std::ptrdiff_t>(k),
                                          v.parents[k]) == v.parents.begin() + static_cast<std::ptrdiff_t>(k);
            CHECK(std::isnan(raw) != eldest);
            if (!eldest || !v.reached(k)) continue;
            reached[v.depth(k)] += 1.0;
            kept[v.depth(k)] += v.kept(k) ? 1.0 : 0.0;
        }
        calibration.observe(dec.round());
    }
    for (std::size_t k = 0; k < 2; ++k) {
        INFO("depth " << k << ", reached " << reached[k]);
        REQUIRE(reached[k] > 100);
        CHECK(calibration.shared().mean_acceptance() > 0.0);
    }
    CHECK(kept[0] / reached[0] > 0.3);
}

TEST_CASE("tree rounds: nothing is allocated in a round") {
    auto const check = [](auto rule) {
        auto target = make_target();
        target.reserve(40, 400);
        decoder dec{target, make_trees(), planned_schedule{dear_rows{}}, rule, {.max_requests = 2, .seed = 1}};
        for (token_id x = 0; x < 2; ++x) dec.submit(std::vector<token_id>{x}, {.max_new_tokens = 300});
        dec.step();
        std::size_t const before = allocations;
        for (int i = 0; i < 20; ++i) dec.step();
        CHECK(allocations == before);
    };
    check(recursive_rejection<>{});
    check(traversal_verification<>{});
    check(keyed_coupling{});
}
