// SPDX-License-Identifier: MIT
//
// The arithmetic of examples/evaluate: intervals, counts, the study of confidences. What it measures goes into
// tables that people draw conclusions from, and a wrong denominator gives a number that looks like any other.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <engine/causal_lm.hpp>
#include <engine/dspark.hpp>
#include <engine/read_floor.hpp>
#include <engine/synthetic.hpp>
#include <engine/thread_pool.hpp>
#include <evaluate/confidence_study.hpp>
#include <evaluate/counts.hpp>
#include <evaluate/json_text.hpp>
#include <evaluate/one_text.hpp>
#include <evaluate/outputs.hpp>
#include <evaluate/prompt_line.hpp>
#include <evaluate/ratios.hpp>
#include <evaluate/rounds.hpp>
#include <evaluate/sources.hpp>
#include <evaluate/table.hpp>
#include <evaluate/timing.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/tiny_models.hpp"

namespace {

using evaluate::confidence_rounds;
using evaluate::contribution;
using evaluate::statistic;
using support::error_text;
using support::says;
using sureleap::token_id;

bool near(double a, double b, double tolerance) {
    return std::abs(a - b) <= tolerance;
}

// ---- intervals -----------------------------------------------------------------------------------------------------

double value_of(std::vector<contribution> const& texts) {
    return evaluate::ratio_of_sums(texts).value();
}

// Two drafters on the same texts: what is hard for one is hard for the other.
struct pair_of_samples {
    std::vector<contribution> a, b;
};
pair_of_samples make_pair_of_samples(support::dice& roll, std::size_t n) {
    pair_of_samples out;
    for (std::size_t i = 0; i < n; ++i) {
        double const ease = roll.between(0.5, 1.5);
        double const rounds = roll.between(20.0, 60.0);
        out.a.push_back({rounds * (1.0 + 1.5 * ease + roll.between(-0.1, 0.1)), rounds});
        out.b.push_back({rounds * (1.0 + 1.0 * ease + roll.between(-0.1, 0.1)), rounds});
    }
    return out;
}

}  // namespace

TEST_CASE("ratios of sums weigh texts by their rounds, means weigh domains alike") {
    std::vector<contribution> const math{{6, 2}, {10, 8}};
    std::vector<contribution> const code{{3, 3}, {9, 3}};
    CHECK(value_of(math) == 1.6);
    CHECK(value_of(code) == 2.0);
    std::vector<statistic> const domains{evaluate::ratio_of_sums(math), evaluate::ratio_of_sums(code)};
    CHECK(evaluate::mean_over_domains(domains).value() == 1.8);

    // By hand: influences (6 - 1.6 * 2) / 10 and (10 - 1.6 * 8) / 10, their squares summed and times n / (n - 1).
    CHECK(near(domains[0].standard_error(), std::sqrt((0.28 * 0.28 + 0.28 * 0.28) * 2), 1e-12));
    CHECK(near(evaluate::mean_over_domains(domains).standard_error(),
               0.5 * std::hypot(domains[0].standard_error(), domains[1].standard_error()), 1e-12));
}

TEST_CASE("a drafter over itself is 1, without an error") {
    support::dice roll(5);
    auto const sample = make_pair_of_samples(roll, 20);
    auto const tau = evaluate::ratio_of_sums(sample.a);
    CHECK(tau.margin() > 0);
    CHECK(evaluate::quotient(tau, tau).value() == 1.0);
    CHECK(near(evaluate::quotient(tau, tau).margin(), 0.0, 1e-15));
    CHECK(evaluate::difference(tau, tau).value() == 0.0);
    CHECK(evaluate::difference(tau, tau).margin() == 0.0);
}

TEST_CASE("one text has no interval, and other texts have no quotient") {
    auto const one = evaluate::ratio_of_sums(std::vector<contribution>{{3, 2}});
    auto const two = evaluate::ratio_of_sums(std::vector<contribution>{{3, 2}, {5, 2}});
    CHECK(std::isnan(one.margin()));
    std::vector<statistic> const both{two, two};
    auto const mean = evaluate::mean_over_domains(both);
    CHECK(says(error_text([&] { static_cast<void>(evaluate::quotient(one, two)); }), "different texts"));
    CHECK(says(error_text([&] { static_cast<void>(evaluate::difference(two, mean)); }), "different texts"));
}

TEST_CASE("intervals agree with a bootstrap over texts") {
    std::uint64_t const seed = GENERATE(1u, 2u);
    CAPTURE(seed);
    support::dice roll(seed);
    std::vector<pair_of_samples> const domains{make_pair_of_samples(roll, 80), make_pair_of_samples(roll, 120)};

    auto const statistics_of = [](std::vector<pair_of_samples> const& of) {
        std::vector<statistic> a, b;
        for (auto const& d : of) {
            a.push_back(evaluate::ratio_of_sums(d.a));
            b.push_back(evaluate::ratio_of_sums(d.b));
        }
        return std::vector<statistic>{
            a[0], evaluate::mean_over_domains(a),
            evaluate::quotient(evaluate::mean_over_domains(a), evaluate::mean_over_domains(b))};
    };
    auto const found = statistics_of(domains);

    constexpr std::size_t repeats = 1000;
    std::vector<double> sum(found.size()), squares(found.size());
    for (std::size_t i = 0; i < repeats; ++i) {
        std::vector<pair_of_samples> resampled(domains.size());
        for (std::size_t d = 0; d < domains.size(); ++d) {
            for (std::size_t t = 0; t < domains[d].a.size(); ++t) {
                std::size_t const chosen = roll.below(domains[d].a.size());
                resampled[d].a.push_back(domains[d].a[chosen]);
                resampled[d].b.push_back(domains[d].b[chosen]);
            }
        }
        auto const again = statistics_of(resampled);
        for (std::size_t s = 0; s < found.size(); ++s) {
            sum[s] += again[s].value();
            squares[s] += again[s].value() * again[s].value();
        }
    }
    for (std::size_t s = 0; s < found.size(); ++s) {
        CAPTURE(s);
        double const mean = sum[s] / repeats;
        double const deviation = std::sqrt(squares[s] / repeats - mean * mean);
        CHECK(near(found[s].standard_error() / deviation, 1.0, 0.1));
    }
    // In pairs: far narrower than if the samples had nothing to do with each other.
    double const unpaired = found[2].value() * std::sqrt(2.0) * found[1].standard_error() / found[1].value();
    CHECK(found[2].standard_error() < 0.5 * unpaired);
}

// ---- rounds --------------------------------------------------------------------------------------------------------

TEST_CASE("a drafted stop token ends what is observed, accepted or not") {
    std::vector<token_id> const drafts{11, 12, 7, 13};
    std::vector<token_id> const stops{7, 8};
    std::vector<token_id> const emitted{11, 12, 7};
    sureleap::verdict v{.drafted = 4,
                        .verified = 4,
                        .accepted = 4,
                        .emitted = emitted,
                        .finished = sureleap::finish_reason::stop_token};
    auto const ended = evaluate::outcome_of(3, v, drafts, stops);
    CHECK(ended.text == 3);
    CHECK(ended.observed == 3);
    CHECK(ended.accepted == 3);
    CHECK(ended.emitted == 3);

    v.accepted = 1;
    auto const rejected = evaluate::outcome_of(3, v, drafts, stops);
    CHECK(rejected.observed == 3);
    CHECK(rejected.accepted == 1);

    CHECK(evaluate::outcome_of(3, v, drafts, {}).observed == 4);
    CHECK(evaluate::outcome_of(3, v, std::span(drafts).first(2), stops).observed == 2);
}

TEST_CASE("counts by position are of rounds that got there") {
    evaluate::domain_counts counts("math", 2, 3);
    counts.add(0, {.drafted = 3, .verified = 3, .accepted = 3, .emitted = 4, .observed = 3});
    counts.add(0, {.drafted = 3, .verified = 3, .accepted = 1, .emitted = 2, .observed = 3});
    counts.add(1, {.drafted = 3, .verified = 3, .accepted = 0, .emitted = 1, .observed = 3});
    counts.add(1, {.drafted = 3, .verified = 2, .accepted = 2, .emitted = 3, .observed = 2});
    CHECK(counts.texts()[0].reached == std::vector<std::uint64_t>{2, 2, 1});
    CHECK(counts.texts()[1].reached ==
          std::vector<std::uint64_t>{2, 1, 0});  // the last round was cut before position 3
    CHECK(counts.conditional_acceptance(0).value() == 0.75);
    CHECK(near(counts.conditional_acceptance(1).value(), 2.0 / 3.0, 1e-15));
    CHECK(counts.conditional_acceptance(2).value() == 1.0);
    CHECK(counts.tau().value() == 2.5);
    CHECK(counts.verified_a_round().value() == 2.75);
    CHECK(near(counts.kept().value(), 6.0 / 11.0, 1e-15));
    CHECK(counts.to_json()["texts"][0].dump() == "[2,6,6,6,4]");
}

TEST_CASE("seeds of texts are distinct") {
    std::vector<std::uint64_t> seeds;
    for (std::size_t domain = 0; domain < 5; ++domain) {
        for (std::size_t prompt = 0; prompt < 50; ++prompt) {
            for (std::size_t pass = 0; pass < 4; ++pass) seeds.push_back(evaluate::text_seed(1, domain, prompt, pass));
        }
    }
    std::sort(seeds.begin(), seeds.end());
    CHECK(std::adjacent_find(seeds.begin(), seeds.end()) == seeds.end());
    CHECK(evaluate::text_seed(1, 2, 3) == evaluate::text_seed(1, 2, 3, 0));
    CHECK(evaluate::text_seed(1, 2, 3) != evaluate::text_seed(2, 2, 3));
}

// ---- confidences ---------------------------------------------------------------------------------------------------

namespace {

// Rounds of a drafter whose logits at position k are `sharper[k]` times those of its true conditional acceptance.
confidence_rounds make_rounds(support::dice& roll, std::size_t n, std::vector<double> const& sharper) {
    confidence_rounds rounds(sharper.size());
    std::vector<double> said(sharper.size());
    for (std::size_t i = 0; i < n; ++i) {
        std::size_t accepted = 0;
        bool alive = true;
        for (std::size_t k = 0; k < sharper.size(); ++k) {
            double const logit = roll.between(-1.5, 3.5);
            alive = alive && roll.between(0.0, 1.0) < 1 / (1 + std::exp(-logit));
            accepted += alive ? 1u : 0u;
            said[k] = 1 / (1 + std::exp(-logit * sharper[k]));
        }
        rounds.add(said, accepted, sharper.size());
    }
    return rounds;
}

}  // namespace

TEST_CASE("a study of confidences, by hand") {
    confidence_rounds rounds(2);
    rounds.add(std::vector{0.75, 0.5}, 2, 2);
    rounds.add(std::vector{0.75, 0.5}, 1, 2);
    rounds.add(std::vector{0.25, 0.5}, 0, 2);
    rounds.add(std::vector{0.25, 0.5}, 1, 1);  // ended by a stop token: nothing is known of position 2
    auto const s = evaluate::study(rounds, evaluate::untouched(2), 1);
    CHECK(s.rounds == 4);
    REQUIRE(s.positions.size() == 2);
    CHECK(s.positions[0].count == 4);
    CHECK(s.positions[1].count == 3);
    CHECK(s.positions[0].survival == 0.75);
    CHECK(near(s.positions[1].survival, 1.0 / 3.0, 1e-15));
    // Position 1: |2 * 0.75 - 2| + |2 * 0.25 - 1| of 4. Position 2: survivals 0.375 twice and 0.125, labels 1, 0 and 0.
    CHECK(near(s.positions[0].ece, (0.5 + 0.5) / 4, 1e-12));
    CHECK(near(s.positions[1].ece, (0.25 + 0.125) / 3, 1e-12));
    CHECK(near(s.ece, (4 * s.positions[0].ece + 3 * s.positions[1].ece) / 7, 1e-12));
    // Pairs (accepted, rejected): 0.75 over 0.25 twice, 0.25 beside 0.25 once.
    CHECK(near(s.positions[0].auc, 2.5 / 3, 1e-12));
    // Survival: 0.375 beside 0.375, and over 0.125. Conditional: c is 0.5 in both rounds that got there.
    CHECK(near(s.positions[1].auc, 0.75, 1e-12));
    CHECK(near(s.positions[1].conditional_auc, 0.5, 1e-12));
}

TEST_CASE("a perfect estimator is at the floor, an overconfident one far above it, and scaling brings it back") {
    std::uint64_t const seed = GENERATE(11u, 12u);
    CAPTURE(seed);
    support::dice roll(seed);
    std::vector<double> const honest(3, 1.0), sharper{2.0, 1.5, 3.0};
    auto const good = evaluate::study(make_rounds(roll, 10'000, honest), evaluate::untouched(3), seed);
    CHECK(good.floor > 0.001);
    CHECK(near(good.ece, good.floor, 0.003));

    auto const report = make_rounds(roll, 10'000, sharper);
    auto const before = evaluate::study(report, evaluate::untouched(3), seed);
    CHECK(before.ece > 0.05);
    auto const fitting = make_rounds(roll, 10'000, sharper);
    for (evaluate::mending const how : evaluate::all_mendings) {
        CAPTURE(evaluate::name_of(how));
        auto const fitted = evaluate::fit(how, fitting);
        auto const after = evaluate::study(report, fitted, seed);
        CHECK(after.excess() < 0.005);
        // Only roughly the known ones: ECE is nearly flat around its smallest value.
        for (std::size_t k = 0; k < 3; ++k) CHECK(fitted.positions()[k].temperature > 1.2);
        CHECK(near(after.positions[0].auc, before.positions[0].auc, 0.002));  // the order within a position stays
    }
}

TEST_CASE("temperatures put on top of scores are found again, position by position") {
    support::dice roll(3);
    auto const rounds = make_rounds(roll, 5'000, {1.0, 1.0, 1.0});
    std::vector<double> const known{1.5, 2.0, 3.0};
    for (evaluate::mending const how : evaluate::all_mendings) {
        CAPTURE(evaluate::name_of(how));
        auto const plain = evaluate::fit(how, rounds);
        auto const scaled = evaluate::fit(how, rounds.scaled(known));
        for (std::size_t k = 0; k < known.size(); ++k) {
            CAPTURE(k);
            double const found = scaled.positions()[k].temperature / plain.positions()[k].temperature;
            CHECK(near(found / known[k], 1.0, 0.05));
        }
    }
}

TEST_CASE("a study of nothing is refused") {
    CHECK(says(error_text([] { static_cast<void>(evaluate::study(confidence_rounds(2), evaluate::untouched(2), 1)); }),
               "no rounds"));
}

// ---- times and outputs ---------------------------------------------------------------------------------------------

TEST_CASE("of several runs the one in the middle counts, by seconds a token") {
    using evaluate::timing;
    // Text 2 was disturbed in the first run, and emitted a token more in the last.
    std::vector<evaluate::text_timings> const runs{{{timing{1.0, 100, 50}, timing{9.0, 100, 50}}},
                                                   {{timing{1.2, 100, 50}, timing{2.0, 100, 50}}},
                                                   {{timing{1.1, 100, 50}, timing{2.5, 101, 50}}}};
    auto const middle = evaluate::median_runs(runs);
    CHECK(middle[0][0].seconds == 1.1);
    CHECK(middle[0][1].seconds == 2.5);
    CHECK(evaluate::median({3.0, 1.0, 2.0}) == 2.0);
    CHECK(says(error_text([] { static_cast<void>(evaluate::median({})); }), "no values"));
}

TEST_CASE("the worst text is the one that lost most time, short ones left out") {
    using evaluate::timing;
    evaluate::text_timings const plain{{timing{1.0, 100, 0}, timing{1.0, 100, 0}}, {timing{0.1, 10, 0}}};
    evaluate::text_timings const fast{{timing{0.5, 100, 0}, timing{1.04, 104, 0}}, {timing{1.0, 10, 0}}};
    auto const worst = evaluate::worst(evaluate::text_ratios(fast, plain, 100));
    REQUIRE(worst);
    CHECK(worst->domain == 0);
    CHECK(worst->text == 1);
    CHECK(near(worst->ratio, 1.0, 1e-12));
    CHECK(near(evaluate::worst(evaluate::text_ratios(fast, plain, 10))->ratio, 0.1, 1e-12));
    CHECK_FALSE(evaluate::worst(evaluate::text_ratios(fast, plain, 101)));
}

TEST_CASE("the first token that is not plain decoding's is named") {
    std::vector<std::vector<token_id>> const expected{{1, 2, 3}, {4, 5, 6, 7}};
    auto const difference = [&](std::vector<std::vector<token_id>> const& outputs, std::size_t tokens) {
        return error_text([&] {
            evaluate::expect_same("joined", outputs, expected, tokens,
                                  [](std::size_t i) { return "text " + std::to_string(i + 1); });
        });
    };
    CHECK(difference({{1, 2, 3}, {4, 5, 6, 7}}, 4).empty());
    CHECK(difference({{1, 2, 3}, {4, 5, 6, 7, 8}}, 4).empty());  // what comes behind was not asked for
    CHECK(difference({{1, 2, 3}, {4, 5, 6, 9}}, 3).empty());
    CHECK(says(difference({{1, 2, 3}, {4, 9, 6, 7}}, 4),
               "text 2: joined has token 9 at index 1, expected plain decoding's, token 5"));
    CHECK(says(difference({{1, 2}, {4, 5, 6, 7}}, 4), "text 1: joined has the end at index 2, expected"));
    CHECK(says(difference({{1, 2, 3, 4}, {4, 5, 6, 7}}, 4),
               "has token 4 at index 3, expected plain decoding's, the end"));
}

TEST_CASE("outputs can be compared under a rule that keeps the tokens, or greedily") {
    CHECK(evaluate::is_reproducible({.temperature = 1.0}, engine::make_rule("coupled")));
    CHECK(evaluate::is_reproducible({.temperature = 0.0}, engine::make_rule("token")));
    CHECK_FALSE(evaluate::is_reproducible({.temperature = 0.2}, engine::make_rule("token")));
    CHECK_FALSE(evaluate::is_reproducible({.temperature = 0.2}, engine::make_rule("block")));
}

TEST_CASE("drafters by name, alone, joined and zeroed") {
    using evaluate::parse_draft;
    auto const both = parse_draft("both=lookup+zeroed:a/b=c.gguf");
    CHECK(both.name == "both");
    CHECK(both.path == "a/b=c.gguf");
    CHECK(both.joined);
    CHECK(both.zeroed);
    CHECK(both.is_model());
    auto const lookup = parse_draft("l=lookup");
    CHECK(lookup.path == "lookup");
    CHECK_FALSE(lookup.joined);
    CHECK_FALSE(lookup.is_model());
    auto const stored = parse_draft("s=store+none");
    CHECK((stored.stored && stored.joined && !stored.is_model()));
    for (char const* const text : {"x=lookup+", "x=store+", "x=zeroed:", "x=lookup+lookup", "x=zeroed:none"}) {
        CAPTURE(text);
        CHECK(says(error_text([&] { static_cast<void>(parse_draft(text)); }), "expected the path of a model"));
    }
    CHECK(
        says(error_text([] { static_cast<void>(parse_draft("lookup")); }), "--draft is 'lookup', expected NAME=PATH"));
}

// ---- the floor -----------------------------------------------------------------------------------------------------

TEST_CASE("the floor of plain decoding is measured over as many bytes as the weights have") {
    engine::thread_pool pool(2);
    for (std::size_t const bytes : {std::size_t{1}, std::size_t{3'000'001}}) {
        CAPTURE(bytes);
        auto const floor = engine::measure_read_floor(pool, bytes);
        CHECK(floor.bytes == bytes);
        CHECK(floor.bytes_per_second > 0);
    }
}

// ---- prompts and tables --------------------------------------------------------------------------------------------

TEST_CASE("lines of prompt files, by whoever wrote them") {
    using evaluate::parse_prompt_line;
    auto const ours = parse_prompt_line(R"({"domain": "math", "prompt": "1 + 1", "completion": " = 2"})", "f");
    CHECK(ours.domain == "math");
    CHECK(ours.text == "1 + 1");
    CHECK_FALSE(ours.bare);
    auto const question = parse_prompt_line(R"({"question": "Why?", "answer": "Because."})", "f");
    CHECK(question.text == "Why?");
    CHECK(question.bare);
    CHECK_FALSE(question.domain);
    CHECK(parse_prompt_line(R"({"question_id": 3, "turns": ["Hello", "Again"]})", "f").text == "Hello");
    CHECK(parse_prompt_line(R"({"tokens": [3, 0, 7]})", "f").tokens == std::vector<token_id>{3, 0, 7});

    auto const chat = parse_prompt_line(
        R"({"messages": [{"role": "system", "content": "Short."}, {"role": "user", "content": "Why?"}]})", "f");
    REQUIRE(chat.turns.size() == 2);
    CHECK(chat.turns[0].role == engine::chat_role::system);
    CHECK(chat.turns[1].text == "Why?");

    auto const refusal = [](char const* line) {
        return error_text([&] { static_cast<void>(parse_prompt_line(line, "a.jsonl, line 3")); });
    };
    CHECK(says(refusal("{"), {"a.jsonl, line 3: no valid JSON in 1 bytes"}));
    CHECK(says(refusal("[1]"), "a.jsonl, line 3: expected a JSON object, found array"));
    CHECK(says(refusal(R"({"text": "x"})"), {"none of the fields", "'prompt'"}));
    CHECK(says(refusal(R"({"messages": []})"),
               "'messages' is a list of 0, expected turns of which the user has the last"));
    CHECK(says(refusal(R"({"messages": [{"role": "assistant", "content": "x"}]})"), "expected turns of which"));
    CHECK(says(refusal(R"({"messages": [{"role": "tool", "content": "x"}]})"),
               "'messages[0].role' is \"tool\", expected system, user or assistant"));
    CHECK(says(refusal(R"({"prompt": ""})"), {"'prompt' is \"\", expected some text"}));
    CHECK(says(refusal(R"({"question": 4})"), "'question' is 4, expected a string"));
    CHECK(says(refusal(R"({"turns": []})"), "'turns' is a list of 0, expected at least one text"));
    CHECK(says(refusal(R"({"turns": [""]})"), "'turns[0]' is \"\", expected some text"));
    CHECK(says(refusal(R"({"tokens": []})"), "'tokens' is a list of 0, expected at least one id"));
    CHECK(says(refusal(R"({"tokens": [1, -2]})"), "'tokens[1]' is -2, expected an integer in 0 .. 2147483647"));
    CHECK(says(refusal(R"({"prompt": "x", "domain": null})"), "'domain' is null"));

    // A long text is cut, but not within a character.
    std::string many, some;
    for (int i = 0; i < 30; ++i) (i < 18 ? some : many) += "\u65e5";
    CHECK(says(refusal((R"({"tokens": [")" + some + many + R"("]})").c_str()),
               "'tokens[0]' is \"" + some + "..., expected"));
}

TEST_CASE("templates take the question where the braces are") {
    CHECK(evaluate::fill_template("Question: {}\nAnswer:", "{} = ?") == "Question: {} = ?\nAnswer:");
    CHECK(evaluate::fill_template("{}{}", "a") == "aa");
    CHECK(evaluate::fill_template("{ }", "a") == "{ }");
}

TEST_CASE("the nats of a text are those of plain steps, whatever a pass holds") {
    tiny::shape const shape;
    engine::thread_pool pool(2);
    std::vector<token_id> tokens;
    support::dice roll(3);
    while (tokens.size() < 11) tokens.push_back(static_cast<token_id>(roll.below(shape.vocabulary)));
    auto const target = [&](std::size_t max_rows) {
        engine::serving_limits const limits{.slots = 1, .context_length = 16, .max_rows = max_rows};
        return std::make_unique<engine::causal_lm<float>>(
            engine::make_in_memory(tiny::target_config(shape), engine::storage::f32, 5), std::vector<int>{}, pool,
            limits);
    };
    double expected = 0;
    auto const stepped = target(1);
    for (std::size_t t = 0; t + 1 < tokens.size(); ++t) {
        auto const logits = tiny::score_one(*stepped, 0, t, tokens[t]);
        double mass = 0;
        for (float const x : logits) mass += std::exp(static_cast<double>(x));
        expected += std::log(mass) - static_cast<double>(logits[static_cast<std::size_t>(tokens[t + 1])]);
    }
    for (std::size_t const max_rows : {1u, 3u, 5u, 10u, 16u}) {
        CAPTURE(max_rows);
        auto const served = target(max_rows);
        evaluate::one_text text(*served);
        CHECK(near(evaluate::nats_of(text, tokens), expected, 1e-9 * expected));
    }
}

TEST_CASE("tables line up, whatever bytes a character takes") {
    evaluate::table const t{.title = "T", .header = {"name", "tau"}, .rows = {{"a", "2.35 ±0.04"}, {"bcdef", "10"}}};
    CHECK(evaluate::in_plain_text(t) ==
          "\nT\n\n"
          "    name           tau\n"
          "    a       2.35 ±0.04\n"
          "    bcdef           10\n");
    CHECK(evaluate::in_markdown(t) == "\nT\n\n| name | tau |\n|---|--:|\n| a | 2.35 ±0.04 |\n| bcdef | 10 |\n");
    CHECK(evaluate::shown(std::numeric_limits<double>::quiet_NaN(), 2) == "-");
}

TEST_CASE("JSON with lists of numbers on one line reads back the same") {
    auto const value = nlohmann::ordered_json::parse(
        R"({"a": [1, 2.5, null], "b": {"c": [[1, 2], []], "d": {}}, "e": "\"x\"", "f": []})");
    auto const text = evaluate::json_text(value);
    CHECK(nlohmann::ordered_json::parse(text) == value);
    CHECK(says(text, "\n \"a\": [1,2.5,null],\n"));
    CHECK(says(text, "\n  \"c\": [\n   [1,2],\n   []\n  ],\n"));
}
