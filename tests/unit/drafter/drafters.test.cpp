// SPDX-License-Identifier: MIT
//
// Drafters of all kinds: every recorded q is the softmax it should be, row by row; confidences are taken before the
// draw; caps are kept; and parts that do not fit are refused at set-up.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/confidence/estimate.hpp>
#include <sureleap/confidence/head.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/drafter/lookup.hpp>
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/head/gated.hpp>
#include <sureleap/head/int8.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/rnn.hpp>
#include <sureleap/head/shortlist.hpp>
#include <sureleap/round/memory.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/dice.hpp"
#include "support/drafted.hpp"
#include "support/drafter_scene.hpp"
#include "support/error_text.hpp"

using namespace sureleap;
using namespace drafter_scene;
using support::error_text;
using support::random_values;
using support::says;

TEST_CASE("drafters: a greedy request is never surer than 1, however sure its rows are") {
    support::dice roll(195);
    INFO("seed " << roll.seed());
    constexpr std::size_t gamma = 4;
    for (int trial = 0; trial < 300; ++trial) {
        std::size_t const size = 1 + roll.below(40);
        double const scale = roll.chance(0.5) ? 2.0 : 20.0;
        auto const logits = random_values<float>(roll, gamma * size, scale);
        auto const backbone = [&](std::span<request_view const>) {
            return block_forward<float>{{}, {{logits.data(), gamma, size}, {}}};
        };
        parallel drafter{backbone, top1_confidence{}, {.block_size = gamma, .vocabulary = size}};
        scene<float> s(roll, 1, gamma, size);
        s.settings[0] = {.temperature = 0.0};
        s.views[0].remaining = gamma + 1;
        auto const memory = s.draw(drafter);
        REQUIRE(memory.block.draft_outcome(0) == status::ok);
        REQUIRE(memory.block.size(0) == gamma);
        for (std::size_t k = 0; k < gamma; ++k) {
            auto const p = softmax(part(widened(logits), k * size, size), 1.0);
            double const c = static_cast<double>(memory.block.table().survivals.at(0, k).confidence) * 0x1p-24;
            REQUIRE(std::abs(c - *std::max_element(p.begin(), p.end())) < 1e-5);
        }
    }
}

TEST_CASE("parallel: a row that q is the softmax of stays where the backbone left it") {
    support::dice roll(96);
    INFO("seed " << roll.seed());
    constexpr std::size_t gamma = 3;
    constexpr std::size_t size = 1000;
    auto const logits = random_values<float>(roll, gamma * size, 2.0);
    std::vector<half> stored;
    for (float const x : logits) stored.push_back(half(x));
    auto const backbone = [&](std::span<request_view const>) {
        return block_forward<float>{{}, {{logits.data(), gamma, size}, {}}};
    };
    auto const half_backbone = [&](std::span<request_view const>) {
        return block_forward<half>{{}, {{stored.data(), gamma, size}, {}}};
    };
    parallel lends{backbone, {.block_size = gamma, .vocabulary = size}};
    parallel converts{half_backbone, {.block_size = gamma, .vocabulary = size}};
    scene<float> s(roll, 1, gamma, size);
    s.settings[0] = {};
    s.views[0].remaining = gamma + 1;
    auto const lent = s.draw(lends);
    auto const kept = s.draw(converts);
    REQUIRE(lent.block.size(0) == gamma);
    REQUIRE(kept.block.size(0) == gamma);
    for (std::size_t k = 0; k < gamma; ++k) {
        CHECK(lent.block.laws(0)[k].plain_row().data() == logits.data() + k * size);
        CHECK(kept.block.laws(0)[k].plain_row().size() == size);
    }
    fixed_schedule schedule{gamma};
    round_memory<float, float> const small(lends, schedule, token_rejection<>{}, {.max_requests = 1});
    round_memory<float, float> const large(converts, schedule, token_rejection<>{}, {.max_requests = 1});
    CHECK(large.bytes() - small.bytes() >= gamma * size * sizeof(float));  // and where it begins on a cache line
}

TEST_CASE("parallel: every position has its own base logits and nothing else") {
    support::dice roll(96);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 200; ++trial) {
        std::size_t const target = 2 + roll.below(8);
        bool const mapped = roll.chance(0.5);
        std::size_t const draft = mapped ? 1 + roll.below(target) : target;
        auto const map = random_map(roll, draft, target);
        std::size_t const gamma = 1 + roll.below(4), requests = 1 + roll.below(3);
        auto const logits = random_values<double>(roll, requests * gamma * draft, 2.0);
        auto const backbone = [&](std::span<request_view const>) {
            return block_forward<double>{{}, {{logits.data(), requests * gamma, draft}, {}}};
        };
        parallel drafter{
            backbone, top1_confidence{}, {.block_size = gamma, .vocabulary = draft, .map = mapped ? &map : nullptr}};
        static_assert(sureleap::drafter<decltype(drafter)> && decltype(drafter)::plans_at_anchor);
        scene<double> s(roll, requests, gamma, target);
        auto const memory = s.draw(drafter);
        for (std::size_t r = 0; r < requests; ++r) {
            REQUIRE(memory.block.size(r) == s.views[r].draft_cap(gamma));
            for (std::size_t k = 0; k < memory.block.size(r); ++k) {
                auto const q =
                    scattered(softmax(part(logits, (r * gamma + k) * draft, draft), s.settings[r].temperature),
                              mapped ? &map : nullptr);
                INFO("trial " << trial << ", request " << r << ", position " << k);
                REQUIRE(has_law(memory.block.laws(r)[k], q, 1e-12));
                double const c = static_cast<double>(memory.block.table().survivals.at(r, k).confidence) * 0x1p-24;
                REQUIRE(std::abs(c - *std::max_element(q.begin(), q.end())) < 0x1p-23);
            }
        }
    }
}

TEST_CASE("autoregressive: q_k is the model's row after the context and x_1..x_{k-1}") {
    support::dice roll(97);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 200; ++trial) {
        std::size_t const target = 2 + roll.below(8);
        bool const mapped = roll.chance(0.5);
        std::size_t const draft = mapped ? 1 + roll.below(target) : target;
        auto const map = random_map(roll, draft, target);
        std::size_t const gamma = 1 + roll.below(4), requests = 1 + roll.below(3);
        std::size_t calls = 0, longest = 0;
        auto const logits_of = [&](std::span<token_id const> context, std::span<double> logits) {
            double sum = 0.0;
            for (std::size_t i = 0; i < context.size(); ++i) sum = 1.7 * sum + static_cast<double>(context[i] + 1);
            for (std::size_t v = 0; v < logits.size(); ++v)
                logits[v] = 2.0 * std::sin(sum * static_cast<double>(v + 1));
        };
        auto model = model_of<double>(draft, logits_of);
        auto counted = [&](std::span<request_view const> views, draft_prefixes const& prefixes) {
            ++calls;
            return model.forward(views, prefixes);
        };
        auto const falling = [](distribution<double> const& q, std::size_t k) {
            return q.peak() / static_cast<double>(k + 1);
        };
        autoregressive drafter{
            counted, falling, {.block_size = gamma, .vocabulary = draft, .map = mapped ? &map : nullptr}};
        static_assert(!decltype(drafter)::is_parallel && !decltype(drafter)::plans_at_anchor);
        scene<double> s(roll, requests, gamma, target);
        tokens const stop{static_cast<token_id>(roll.below(target))};
        for (auto& settings : s.settings) {
            if (roll.chance(0.4)) settings.stop_tokens = stop;
        }
        auto const memory = s.draw(drafter);
        for (std::size_t r = 0; r < requests; ++r) {
            // Up to the cap, or to the first stop token.
            auto const drafted = memory.block.tokens(r);
            std::size_t wanted = s.views[r].draft_cap(gamma);
            for (std::size_t k = 0; k < drafted.size(); ++k) {
                if (s.settings[r].stops_at(drafted[k])) wanted = std::min(wanted, k + 1);
            }
            longest = std::max(longest, wanted);
            REQUIRE(memory.block.size(r) == wanted);
            tokens context = s.contexts[r];
            for (std::size_t k = 0; k < memory.block.size(r); ++k) {
                reals row(draft);
                logits_of(context, row);
                auto const q = scattered(softmax(row, s.settings[r].temperature), mapped ? &map : nullptr);
                INFO("trial " << trial << ", request " << r << ", position " << k);
                REQUIRE(has_law(memory.block.laws(r)[k], q, 1e-12));
                double const c = static_cast<double>(memory.block.table().survivals.at(r, k).confidence) * 0x1p-24;
                REQUIRE(std::abs(c - *std::max_element(q.begin(), q.end()) / static_cast<double>(k + 1)) < 0x1p-23);
                context.push_back(memory.block.tokens(r)[k]);
            }
        }
        REQUIRE(calls == longest);  // no pass that nobody needs
    }
}

TEST_CASE("drafters: argmax drafts are recorded as one-hot laws") {
    support::dice roll(98);
    std::size_t const gamma = 4, size = 6;
    auto const logits = random_values<float>(roll, gamma * size, 2.0);
    auto const backbone = [&](std::span<request_view const>) {
        return block_forward<float>{{}, {{logits.data(), gamma, size}, {}}};
    };
    parallel drafter{backbone, {.block_size = gamma, .vocabulary = size}};
    static_assert(!decltype(drafter)::has_confidence);
    scene<float> s(roll, 1, gamma, size);
    s.settings[0].max_draft_tokens = gamma;
    s.views[0].remaining = gamma + 1;
    auto const memory = s.draw(drafter, argmax_draft{});
    REQUIRE(memory.block.size(0) == gamma);
    for (std::size_t k = 0; k < gamma; ++k) {
        auto const row = std::span(logits).subspan(k * size, size);
        auto const mode = static_cast<token_id>(std::max_element(row.begin(), row.end()) - row.begin());
        CHECK(memory.block.tokens(0)[k] == mode);
        CHECK(memory.block.laws(0)[k].is_one_hot());
        CHECK(memory.block.laws(0)[k].mode() == mode);
        CHECK(memory.block.table().survivals.at(0, k).survival == certain);  // no confidence: certainty
    }
}

TEST_CASE("drafters: a bad row stops one request's block and no other") {
    std::size_t const gamma = 3, size = 4;
    std::vector<double> logits(2 * gamma * size, 0.5);
    logits[(1 * gamma + 1) * size + 2] = std::numeric_limits<double>::quiet_NaN();  // request 1, position 1
    auto const backbone = [&](std::span<request_view const>) {
        return block_forward<double>{{}, {{logits.data(), 2 * gamma, size}, {}}};
    };
    parallel drafter{backbone, {.block_size = gamma, .vocabulary = size}};
    support::dice roll(99);
    scene<double> s(roll, 2, gamma, size);
    for (auto& settings : s.settings) settings.max_draft_tokens = gamma;
    for (auto& view : s.views) view.remaining = gamma + 1;
    auto const memory = s.draw(drafter);
    CHECK(memory.block.draft_outcome(0) == status::ok);
    CHECK(memory.block.size(0) == gamma);
    CHECK(memory.block.draft_outcome(1) == status::invalid_draft);
    CHECK(memory.block.size(1) == 1);
}

TEST_CASE("drafters: a model whose shapes are not the promised ones costs the round, not the process") {
    std::size_t const gamma = 3, size = 4, d = 2;
    std::vector<double> const numbers(100, 0.5);
    support::dice roll(98);
    scene<double> s(roll, 2, gamma, size);
    for (auto& settings : s.settings) settings.max_draft_tokens = gamma;
    for (auto& view : s.views) view.remaining = gamma + 1;
    auto const outcomes = [&](auto&& drafter) {
        auto const memory = s.draw(drafter);
        return std::vector<status>{memory.block.draft_outcome(0), memory.block.draft_outcome(1)};
    };
    std::vector<status> const fine(2, status::ok);
    std::vector<status> const refused(2, status::invalid_draft);
    auto const backbone = [&](std::size_t rows, std::size_t cols, std::size_t hidden_rows, std::size_t hidden_cols) {
        return [=, &numbers](std::span<request_view const>) {
            return block_forward<double>{{numbers.data(), hidden_rows, hidden_cols},
                                         {{numbers.data(), rows, cols}, {}}};
        };
    };
    auto const semi = [&](auto model) {
        return semi_autoregressive{std::move(model), no_head<double>{},
                                   drafter_options{.block_size = gamma, .vocabulary = size, .hidden_size = d}};
    };
    CHECK(outcomes(semi(backbone(6, 4, 6, 2))) == fine);
    CHECK(outcomes(semi(backbone(5, 4, 6, 2))) == refused);
    CHECK(outcomes(semi(backbone(6, 3, 6, 2))) == refused);
    CHECK(outcomes(semi(backbone(6, 4, 5, 2))) == refused);
    CHECK(outcomes(semi(backbone(6, 4, 6, 3))) == refused);
    auto const model = [&](std::size_t rows, std::size_t cols) {
        auto f = [=, &numbers](std::span<request_view const>, draft_prefixes const&) {
            return logits_rows<double>{{numbers.data(), rows, cols}, {}};
        };
        return autoregressive{std::move(f), {.block_size = gamma, .vocabulary = size}};
    };
    CHECK(outcomes(model(2, 4)) == fine);
    CHECK(outcomes(model(1, 4)) == std::vector<status>{status::ok, status::invalid_draft});
    CHECK(outcomes(model(2, 5)) == refused);
}

TEST_CASE("drafters: a request whose anchor is no token drafts nothing, and others what they would alone") {
    std::size_t const gamma = 3, size = 5, rank = 2, d = 2, requests = 4;
    support::dice roll(97);
    auto const w1 = random_values<float>(roll, size * rank, 1.0), w2 = random_values<float>(roll, size * rank, 1.0);
    auto const gate = random_values<float>(roll, rank * (d + rank), 1.0);
    auto const gate_bias = random_values<float>(roll, rank, 1.0);
    auto const joint = random_values<float>(roll, 3 * rank * (2 * rank + d), 1.0);
    auto const joint_bias = random_values<float>(roll, 3 * rank, 1.0);
    auto const confidence_weights = random_values<float>(roll, d + rank, 1.0);
    auto const hidden = random_values<float>(roll, requests * gamma * d, 1.0);
    auto const logits = random_values<float>(roll, requests * gamma * size, 1.0);
    matrix_view<float> const w1_view{w1.data(), size, rank}, w2_view{w2.data(), size, rank};
    auto const backbone = [&](std::span<request_view const> views) {
        return block_forward<float>{{hidden.data(), views.size() * gamma, d},
                                    {{logits.data(), views.size() * gamma, size}, {}}};
    };
    confidence_head<float> const embeds{{confidence_weights.data(), 1, d + rank}, 0.25f, w1_view};
    confidence_head<float> const reads_hidden{{confidence_weights.data(), 1, d}, 0.25f};
    drafter_options const options{gamma, size, d};
    scene<float> s(roll, requests, gamma, size);
    for (auto& settings : s.settings) settings = {};
    for (auto& view : s.views) view.remaining = gamma + 1;

    auto const drafted = [&](auto& drafter) {
        auto const memory = s.draw(drafter);
        std::vector<tokens> all;
        for (std::size_t r = 0; r < requests; ++r) {
            CHECK(memory.block.draft_outcome(r) == status::ok);
            all.emplace_back(memory.block.tokens(r).begin(), memory.block.tokens(r).end());
        }
        return all;
    };
    auto const planned = [&](auto& drafter) {
        support::drafted<float> memory{drafter, token_rejection<>{}, s.views};
        memory.planning.start(s.views);
        memory.plan(drafter, drafter.forward(s.views));
        return std::vector<std::uint32_t>(memory.planning.sizes.begin(), memory.planning.sizes.end());
    };
    auto const check = [&](char const* name, auto drafter, bool reads_anchor) {
        INFO(name);
        for (auto& view : s.views) view.anchor = 1;
        auto const expected = drafted(drafter);
        auto const plan = planned(drafter);
        for (token_id const foreign : {-200, no_token, static_cast<token_id>(size),
                                       std::numeric_limits<token_id>::max(), std::numeric_limits<token_id>::min()}) {
            INFO("anchor " << foreign);
            s.views[1].anchor = s.views[3].anchor = foreign;
            auto const found = drafted(drafter);
            auto const counts = planned(drafter);
            for (std::size_t r = 0; r < requests; ++r) {
                bool const follows = r % 2 == 0 || !reads_anchor;
                CHECK(found[r] == (follows ? expected[r] : tokens{}));
                CHECK(counts[r] == (follows ? plan[r] : 0u));
            }
        }
        s.views[1].anchor = 0;
        s.views[3].anchor = static_cast<token_id>(size - 1);
        auto const known = drafted(drafter);
        CHECK(known[1].size() == gamma);
        CHECK(known[3].size() == gamma);
    };
    markov_head<float> const markov{w1_view, w2_view};
    check("markov", semi_autoregressive{backbone, markov, embeds, options}, true);
    check("gated",
          semi_autoregressive{backbone, gated_head<float>{w1_view, w2_view, {gate.data(), rank, d + rank}, gate_bias},
                              reads_hidden, options},
          true);
    check("rnn",
          semi_autoregressive{backbone,
                              rnn_head<float>{w1_view, w2_view, {joint.data(), 3 * rank, 2 * rank + d}, joint_bias},
                              reads_hidden, options},
          true);
    std::vector<token_id> const successors{0, 1, 1, 2, 2, 3, 3, 4, 0, 4};
    shortlist_head const list{markov, 2, {successors.data(), size, 2}};
    check("shortlist", semi_autoregressive{backbone, list, reads_hidden, options}, true);
    check("a confidence that embeds", parallel{backbone, embeds, options}, true);
    check("nothing that embeds", parallel{backbone, reads_hidden, options}, false);
}

TEST_CASE("drafters: commit reaches the model") {
    struct backbone_with_cache {
        std::size_t* commits;
        block_forward<float> forward(std::span<request_view const>) { return {}; }
        void commit(std::span<verdict const> verdicts) noexcept { *commits += verdicts.size(); }
    };
    struct model_with_cache {
        std::size_t* commits;
        logits_rows<float> forward(std::span<request_view const>, draft_prefixes const&) { return {}; }
        void commit(std::span<verdict const> verdicts) noexcept { *commits += verdicts.size(); }
    };
    std::size_t commits = 0;
    std::vector<verdict> const verdicts(3);
    parallel first{backbone_with_cache{&commits}, {.block_size = 2, .vocabulary = 3}};
    first.commit(verdicts);
    CHECK(commits == 3);
    autoregressive second{model_with_cache{&commits}, {.block_size = 2, .vocabulary = 3}};
    second.commit(verdicts);
    CHECK(commits == 6);
}

// The index of a key is the position in 16 bits and the attempt in those above (draw_key.hpp).
TEST_CASE("drafters: blocks whose draws would share keys are refused") {
    auto const backbone = [](std::span<request_view const>) { return block_forward<float>{}; };
    auto const model = [](std::span<request_view const>, draft_prefixes const&) { return logits_rows<float>{}; };
    request_view const view{.position = 5, .seed = 1};
    draw_key attempt = block_key(view, 3, purpose::draft);
    attempt.index |= 1u << 16;  // the second of position 3 has the index of
    CHECK(attempt.index == most_keyed_drafts + 1 + 3);

    auto const refuses = [](auto const& make, char const* who) {
        CHECK(error_text([&] { make(most_keyed_drafts); }).empty());
        CHECK(
            says(error_text([&] { make(most_keyed_drafts + 1); }), {who, "is 65536, expected 1 .. 65535", "16 bits"}));
    };
    refuses([&](std::size_t n) { parallel{backbone, {.block_size = n, .vocabulary = 8}}; }, "semi_autoregressive");
    refuses([&](std::size_t n) { autoregressive{model, {.block_size = n, .vocabulary = 8}}; }, "autoregressive");
    refuses([&](std::size_t n) { semi_autoregressive{backbone, no_head<float>{}, {.block_size = n, .vocabulary = 8}}; },
            "semi_autoregressive");
    refuses([&](std::size_t n) { lookup{{.block_size = n, .target_vocabulary = 8}}; }, "lookup");

    // And whatever another drafter says of itself, by the memory of its rounds.
    struct longer : lookup {
        std::size_t size;
        explicit longer(std::size_t n) : lookup{{.block_size = 1, .target_vocabulary = 8}}, size(n) {}
        [[nodiscard]] std::size_t block_size() const noexcept { return size; }
    };
    fixed_schedule schedule;
    token_rejection<> const rule;
    refuses([&](std::size_t n) { round_memory<float, float>{longer{n}, schedule, rule, {.max_requests = 1}}; },
            "round_memory: the drafter's block_size()");
}

TEST_CASE("drafters: parts that do not fit are refused at set-up") {
    auto const backbone = [](std::span<request_view const>) { return block_forward<float>{}; };
    auto const model = [](std::span<request_view const>, draft_prefixes const&) { return logits_rows<float>{}; };
    std::vector<float> const weights(200, 0.5f);
    auto const view = [&](std::size_t rows, std::size_t cols) {
        return matrix_view<float>{weights.data(), rows, cols};
    };
    markov_head<float> const head{view(8, 2), view(8, 2)};
    vocabulary_map const map{tokens{0, 3, 5}, 8};

    CHECK(says(error_text([&] { parallel{backbone, {.block_size = 0, .vocabulary = 8}}; }),
               {"gamma", "is 0", "1 .. 65535"}));
    CHECK(says(error_text([&] { parallel{backbone, drafter_options{}}; }), {"vocabulary is 0"}));
    CHECK(says(error_text([&] { autoregressive{model, {.block_size = 0, .vocabulary = 8}}; }),
               {"autoregressive", "gamma", "is 0", "1 .. 65535"}));
    CHECK(says(error_text([&] { autoregressive{model, drafter_options{}}; }), {"autoregressive", "vocabulary is 0"}));
    CHECK(says(error_text([&] { autoregressive{model, {.vocabulary = 4, .map = &map}}; }),
               {"vocabulary map has 3 draft tokens", "expected 4"}));
    CHECK(says(error_text([&] { semi_autoregressive{backbone, head, {.block_size = 0, .vocabulary = 8}}; }),
               {"semi_autoregressive", "gamma", "is 0"}));
    CHECK(says(error_text([&] { semi_autoregressive{backbone, head, {.vocabulary = 9}}; }),
               {"semi_autoregressive", "8 output tokens", "draft vocabulary of 9"}));
    CHECK(says(error_text([&] {
                   semi_autoregressive{backbone, markov_head<float>{view(7, 2), view(8, 2)}, {.vocabulary = 8}};
               }),
               {"embeds 7 previous tokens", "target vocabulary of 8"}));
    // With a map, outputs are draft tokens and previous tokens are target tokens.
    CHECK(says(error_text([&] {
                   semi_autoregressive{
                       backbone, markov_head<float>{view(3, 2), view(3, 2)}, {.vocabulary = 3, .map = &map}};
               }),
               {"embeds 3 previous tokens", "target vocabulary of 8"}));
    semi_autoregressive const fits{
        backbone, markov_head<float>{view(8, 2), view(3, 2)}, {.vocabulary = 3, .map = &map}};
    CHECK(fits.target_vocabulary() == 8);
    CHECK(fits.vocabulary() == 3);
    rnn_head<float> const rnn{view(8, 2), view(8, 2), view(6, 4 + 5), std::span(weights).first(6)};
    CHECK(says(error_text([&] { semi_autoregressive{backbone, rnn, {.vocabulary = 8, .hidden_size = 4}}; }),
               {"hidden states of size 5", "hidden_size = 4"}));
    CHECK(error_text([&] { semi_autoregressive{backbone, rnn, {.vocabulary = 8, .hidden_size = 5}}; }).empty());
    confidence_head<float> const small{view(1, 4), 0.0f};
    CHECK(says(error_text([&] { parallel{backbone, small, {.vocabulary = 8, .hidden_size = 5}}; }),
               {"confidence reads hidden states of size 4", "hidden_size = 5"}));
    confidence_head<float> const foreign{view(1, 4 + 2), 0.0f, view(9, 2)};
    CHECK(says(error_text([&] { parallel{backbone, foreign, {.vocabulary = 8, .hidden_size = 4}}; }),
               {"confidence embeds 9 previous tokens", "target vocabulary of 8"}));
    CHECK(says(error_text([&] { lookup{{.block_size = 0, .target_vocabulary = 5}}; }), {"lookup", "gamma", "is 0"}));
    CHECK(says(error_text([&] { lookup{{.block_size = 3}}; }), {"lookup", "target_vocabulary is 0"}));
    CHECK(says(error_text([&] { lookup{{.target_vocabulary = 5, .shortest = 0}}; }), {"lookup", "shortest is 0"}));
    CHECK(says(error_text([&] { lookup{{.target_vocabulary = 5, .longest = 2, .shortest = 3}}; }),
               {"lookup", "shortest is 3", "longest = 2"}));
}
