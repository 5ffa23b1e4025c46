// SPDX-License-Identifier: MIT
//
// The decoder: requests join, end and leave; bad data and failures change nothing; output that can be predicted token
// by token (greedy, keyed coupling) equals plain decoding; and an engine that calls the stages itself gets the same
// tokens bit for bit.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/confidence/head.hpp>
#include <sureleap/cost/capacity.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/drafter/lookup.hpp>
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/error_text.hpp"
#include "support/hash_models.hpp"

using namespace sureleap;
using support::error_text;
using support::hash_language;
using support::hash_model;
using support::says;

namespace {

using tokens = std::vector<token_id>;

constexpr std::size_t vocabulary = 12;
constexpr std::size_t block = 4;
hash_language const target_language{};
hash_language const draft_language{.own = 5, .disagreement = 0.5};

auto target_model_of() {
    return hash_model<float>(vocabulary, target_language);
}
auto draft_model_of() {
    return autoregressive{hash_model<float>(vocabulary, draft_language),
                          top1_confidence{},
                          {.block_size = block, .vocabulary = vocabulary}};
}
analytic_capacity const capacity{100.0, 6.0};

/// A backbone without tokens: U depends on the context, h too; R * block rows.
struct hash_backbone {
    std::size_t hidden_size = 3;
    std::vector<float> hidden{}, logits{};

    block_forward<float> forward(std::span<request_view const> requests) {
        hidden.resize(requests.size() * block * hidden_size);
        logits.resize(requests.size() * block * vocabulary);
        for (std::size_t i = 0; i < requests.size() * block; ++i) {
            auto const& request = requests[i / block];
            auto const k = static_cast<std::uint32_t>(i % block);
            auto const anchor = static_cast<std::uint32_t>(request.anchor);
            auto const position = static_cast<std::uint32_t>(request.position % 7);
            for (std::size_t d = 0; d < hidden_size; ++d) {
                hidden[i * hidden_size + d] =
                    static_cast<float>(support::hashed(3, anchor, position, k, static_cast<std::uint32_t>(d)));
            }
            for (std::size_t v = 0; v < vocabulary; ++v) {
                logits[i * vocabulary + v] =
                    static_cast<float>(2.0 * support::hashed(4, anchor, position, k, static_cast<std::uint32_t>(v)));
            }
        }
        return {{hidden.data(), requests.size() * block, hidden_size},
                {{logits.data(), requests.size() * block, vocabulary}, {}}};
    }
};

/// Weights of a Markov head of rank 2 and of a confidence head over it.
struct head_weights {
    std::vector<float> w1 = random(vocabulary * 2, 11), w2 = random(vocabulary * 2, 12), confidence = random(3 + 2, 13);

    static std::vector<float> random(std::size_t count, std::uint64_t seed) {
        std::vector<float> out;
        for (std::size_t i = 0; i < count; ++i) {
            out.push_back(static_cast<float>(1.5 * support::hashed(seed, static_cast<std::uint32_t>(i), 0, 0, 0)));
        }
        return out;
    }
    [[nodiscard]] auto drafter() const {
        return semi_autoregressive{
            hash_backbone{},
            markov_head{matrix_view<float>{w1.data(), vocabulary, 2}, matrix_view<float>{w2.data(), vocabulary, 2}},
            confidence_head<float>{{confidence.data(), 1, 5}, 1.0f, {w1.data(), vocabulary, 2}},
            drafter_options{.block_size = block, .vocabulary = vocabulary, .hidden_size = 3}};
    }
};

struct job {
    tokens prompt;
    request_settings settings;
};

/// Jobs queue for `places` places: the same policy in decoder and engine, so that both see the same batches.
template <class Decoder>
std::vector<tokens> run(Decoder& dec, std::vector<job> const& jobs, std::size_t places) {
    std::vector<tokens> out(jobs.size());
    std::vector<std::pair<request_id, std::size_t>> active;
    std::size_t next = 0;
    for (;;) {
        while (next < jobs.size() && active.size() < places) {
            active.emplace_back(dec.join(jobs[next].prompt, jobs[next].settings), next);
            ++next;
        }
        if (!dec.step()) return out;
        for (request_event const& e : dec.events()) {
            auto const found =
                std::find_if(active.begin(), active.end(), [&](auto const& a) { return a.first == e.request; });
            REQUIRE(found != active.end());
            REQUIRE(e.outcome == status::ok);
            tokens& text = out[found->second];
            text.insert(text.end(), e.tokens.begin(), e.tokens.end());
            if (e.finished == finish_reason::none) continue;
            auto const all = dec.generated(e.request);
            REQUIRE(text == tokens(all.begin(), all.end()));
            active.erase(found);
        }
    }
}

/// One request in a decoder of its own.
template <class Target, class Drafter, class Schedule, class Rule>
tokens run_alone(Target&& target, Drafter&& drafter, Schedule schedule, Rule rule, job const& j) {
    decoder dec{target, drafter, schedule, rule};
    return run(dec, {j}, 1)[0];
}

bool contains(std::span<token_id const> set, token_id x) {
    return std::find(set.begin(), set.end(), x) != set.end();
}

/// Plain decoding, one token per target row; choose(p, absolute position) gives the token.
template <class Choose>
tokens plain(job const& j, Choose choose) {
    tokens text = j.prompt;
    std::vector<float> logits(vocabulary);
    std::vector<token_id> order(vocabulary);
    while (text.size() < j.prompt.size() + j.settings.max_new_tokens) {
        target_language(std::span<token_id const>(text), std::span<float>(logits));
        distribution<float> const p{{logits, {}}, j.settings.target_transform(), order};
        REQUIRE(p.valid());
        text.push_back(choose(p, text.size()));
        if (contains(j.settings.stop_tokens, text.back())) break;
    }
    return {text.begin() + static_cast<std::ptrdiff_t>(j.prompt.size()), text.end()};
}
tokens plain_greedy(job const& j) {
    return plain(j, [](auto const& p, std::size_t) { return p.mode(); });
}
tokens plain_race(job const& j) {
    return plain(j, [&](auto const& p, std::size_t position) {
        return philox_randomness{}.race({*j.settings.seed, position, 0, purpose::noise}, p);
    });
}
tokens plain_categorical(job const& j) {
    return plain(j, [&](auto const& p, std::size_t position) {
        return philox_randomness{}.categorical({*j.settings.seed, position, 0, purpose::noise}, p);
    });
}

std::vector<job> several_jobs(double temperature) {
    std::vector<job> jobs;
    for (std::uint64_t i = 0; i < 7; ++i) {
        job j;
        for (std::uint64_t t = 0; t <= i % 4; ++t)
            j.prompt.push_back(static_cast<token_id>((3 * i + 5 * t) % vocabulary));
        j.settings = {.temperature = temperature, .seed = 1000 + i, .max_new_tokens = 5 + 7 * (i % 3)};
        if (i % 3 == 1) j.settings.top_p = 0.8;
        if (i % 3 == 2) j.settings.top_k = 3;
        if (i == 4) j.settings.max_draft_tokens = 1;
        jobs.push_back(j);
    }
    return jobs;
}

}  // namespace

// ---- output that is known in advance ---------------------------------------------------------------------------

TEST_CASE("decoder: greedy output equals plain greedy decoding under every rule, schedule and drafter") {
    head_weights const weights;
    for (job j : several_jobs(0.0)) {
        j.settings.max_new_tokens = 30;
        tokens const expected = plain_greedy(j);
        auto const same = [&](auto&& drafter, auto schedule, auto rule) {
            return run_alone(target_model_of(), drafter, schedule, rule, j) == expected;
        };
        CHECK(same(draft_model_of(), greedy_schedule{capacity}, token_rejection<>{}));
        CHECK(same(draft_model_of(), top_k_schedule{capacity}, block_verification<>{}));
        CHECK(same(draft_model_of(), fixed_schedule{}, greedy_match{}));
        CHECK(same(draft_model_of(), threshold_schedule{0.2}, target_match<>{}));
        CHECK(same(draft_model_of(), retrospective_schedule{capacity}, keyed_coupling{}));
        CHECK(same(weights.drafter(), planned_schedule{capacity}, token_rejection<argmax_draft>{}));
        CHECK(same(weights.drafter(), survival_threshold_schedule{0.1}, block_verification<argmax_draft>{}));
        CHECK(same(lookup{{.block_size = block, .target_vocabulary = vocabulary}}, fixed_schedule{},
                   token_rejection<>{}));
    }
}

TEST_CASE("decoder: pathwise rules give plain decoding with the same noise, for any schedule, drafter and batch") {
    head_weights const weights;
    auto const jobs = several_jobs(1.0);
    std::vector<tokens> raced, drawn;
    for (job const& j : jobs) {
        raced.push_back(plain_race(j));
        drawn.push_back(plain_categorical(j));
    }
    auto const streams = [&](auto&& drafter, auto schedule, auto rule, std::size_t places) {
        auto target = target_model_of();
        decoder dec{target, drafter, schedule, rule, {.max_requests = places}};
        return run(dec, jobs, places);
    };
    for (std::size_t const places : {std::size_t{1}, std::size_t{3}, std::size_t{7}}) {
        INFO(places << " places");
        CHECK(streams(draft_model_of(), greedy_schedule{capacity}, keyed_coupling{}, places) == raced);
        CHECK(streams(draft_model_of(), fixed_schedule{2}, keyed_coupling{}, places) == raced);
        CHECK(streams(weights.drafter(), retrospective_schedule{capacity}, keyed_coupling{}, places) == raced);
        CHECK(streams(weights.drafter(), top_k_schedule{capacity}, keyed_coupling{}, places) == raced);
        CHECK(streams(draft_model_of(), greedy_schedule{capacity}, target_match<>{}, places) == drawn);
        CHECK(streams(weights.drafter(), planned_schedule{capacity}, target_match<categorical_draft>{}, places) ==
              drawn);
        CHECK(streams(lookup{{.block_size = block, .target_vocabulary = vocabulary}}, fixed_schedule{},
                      target_match<>{}, places) == drawn);
    }
}

// ---- joining, ending, leaving ----------------------------------------------------------------------------------

TEST_CASE("decoder: requests join, end, leave, and their places are used again") {
    auto target = target_model_of();
    decoder dec{target, draft_model_of(), fixed_schedule{}, keyed_coupling{}, {.max_requests = 2}};
    CHECK_FALSE(dec.step());
    CHECK(dec.events().empty());

    tokens const prompt{1, 2};
    auto const a = dec.join(prompt, {.seed = 1, .max_new_tokens = 3});
    auto const b = dec.join(prompt, {.seed = 2, .max_new_tokens = 200});
    CHECK(a != b);
    CHECK(says(error_text([&] { dec.join(prompt); }), {"decoder", "all 2 places", "max_requests"}));

    tokens text_a;
    bool finished = false;
    while (!finished) {
        REQUIRE(dec.step());
        for (request_event const& e : dec.events()) {
            if (e.request != a) continue;
            text_a.insert(text_a.end(), e.tokens.begin(), e.tokens.end());
            finished = e.finished == finish_reason::max_new_tokens;
        }
    }
    CHECK(text_a.size() == 3);
    // A finished request takes no further part, and stays readable until its place is taken.
    REQUIRE(dec.step());
    REQUIRE(dec.events().size() == 1);
    CHECK(dec.events()[0].request == b);
    auto const kept = dec.generated(a);
    CHECK(tokens(kept.begin(), kept.end()) == text_a);

    auto const c = dec.join(prompt, {.seed = 1, .max_new_tokens = 3});
    CHECK(c != a);
    CHECK(c != b);
    CHECK(says(error_text([&] { static_cast<void>(dec.generated(a)); }), {"no request with id 1"}));
    CHECK(dec.generated(c).empty());

    dec.leave(b);
    CHECK(says(error_text([&] { static_cast<void>(dec.generated(b)); }), {"no request with id 2"}));
    CHECK(says(error_text([&] { dec.leave(b); }), {"no request with id 2"}));
    while (dec.step()) {
        for (request_event const& e : dec.events()) CHECK(e.request == c);
    }
    auto const again = dec.generated(c);
    CHECK(tokens(again.begin(), again.end()) == text_a);  // same seed and prompt
    CHECK_FALSE(dec.step());
    CHECK(dec.events().empty());
}

TEST_CASE("decoder: exactly max_new_tokens come out, whatever the block size") {
    for (std::size_t most = 1; most <= 12; ++most) {
        auto target = target_model_of();
        decoder dec{target, draft_model_of(), fixed_schedule{}, token_rejection<>{}};
        auto const id = dec.join(tokens{3}, {.temperature = 0.3, .seed = most, .max_new_tokens = most});
        finish_reason last = finish_reason::none;
        while (dec.step()) {
            REQUIRE(last == finish_reason::none);
            last = dec.events()[0].finished;
        }
        CHECK(dec.generated(id).size() == most);
        CHECK(last == finish_reason::max_new_tokens);
    }
}

TEST_CASE("decoder: a stop token ends the request, also inside the accepted prefix") {
    // A certain cycle 0 1 2 3 ..: everything drafted is accepted.
    auto const cycle = [](auto context, auto logits) {
        for (auto& l : logits) l = -50.0f;
        logits[(static_cast<std::size_t>(context.back()) + 1) % vocabulary] = 50.0f;
    };
    for (token_id stop = 1; stop <= 6; ++stop) {
        std::vector<token_id> stops{stop, 11};
        auto target = model_of<float>(vocabulary, cycle);
        // A parallel draft runs past the stop token; an autoregressive one would end its block there.
        std::vector<float> drafted(block * vocabulary, -50.0f);
        parallel drafter{[&](std::span<request_view const> requests) {
                             std::fill(drafted.begin(), drafted.end(), -50.0f);
                             for (std::size_t k = 0; k < block; ++k) {
                                 auto const next = (static_cast<std::size_t>(requests[0].anchor) + 1 + k) % vocabulary;
                                 drafted[k * vocabulary + next] = 50.0f;
                             }
                             return block_forward<float>{{}, {{drafted.data(), block, vocabulary}, {}}};
                         },
                         {.block_size = block, .vocabulary = vocabulary}};
        decoder dec{target, drafter, fixed_schedule{}, block_verification<>{}};
        request_settings settings{.seed = 1, .max_new_tokens = 50, .log_probabilities = true};
        settings.stop_tokens = stops;
        auto const id = dec.join(tokens{0}, settings);
        stops.assign(2, 0);  // the decoder has its own copy
        tokens text;
        request_event last;
        std::size_t log_probabilities = 0;
        while (dec.step()) {
            last = dec.events()[0];
            text.insert(text.end(), last.tokens.begin(), last.tokens.end());
            log_probabilities += last.log_probabilities.size();
        }
        tokens expected;
        for (token_id x = 1; x <= stop; ++x) expected.push_back(x);
        INFO("stop token " << stop);
        CHECK(text == expected);
        CHECK(log_probabilities == text.size());
        CHECK(last.finished == finish_reason::stop_token);
        CHECK(dec.generated(id).size() == static_cast<std::size_t>(stop));
        // Accepted is not emitted: the rule kept whole blocks.
        std::size_t const rounds = (static_cast<std::size_t>(stop) + block) / (block + 1);
        CHECK(dec.report().accepted() == rounds * block);
        CHECK(dec.report().emitted() == static_cast<std::size_t>(stop));
    }
}

TEST_CASE("decoder: an autoregressive draft ends its block at a stop token") {
    auto const cycle = [](auto context, auto logits) {
        for (auto& l : logits) l = -50.0f;
        logits[(static_cast<std::size_t>(context.back()) + 1) % vocabulary] = 50.0f;
    };
    for (token_id stop = 1; stop <= static_cast<token_id>(block); ++stop) {
        std::vector<token_id> const stops{stop};
        auto target = model_of<float>(vocabulary, cycle);
        autoregressive drafter{model_of<float>(vocabulary, cycle), {.block_size = block, .vocabulary = vocabulary}};
        decoder dec{target, drafter, fixed_schedule{}, block_verification<>{}};
        dec.join(tokens{0}, {.seed = 1, .max_new_tokens = 50, .stop_tokens = stops});
        while (dec.step()) {
        }
        INFO("stop token " << stop);
        CHECK(dec.report().drafted() == static_cast<std::size_t>(stop));
        CHECK(dec.report().accepted() == static_cast<std::size_t>(stop));
        CHECK(dec.report().emitted() == static_cast<std::size_t>(stop));
        CHECK(dec.report().rounds() == 1);
    }
}

TEST_CASE("decoder: max_draft_tokens caps blocks, and 0 is plain decoding") {
    for (std::size_t const cap : {0u, 1u, 2u, 3u, 100u}) {
        std::size_t longest = 0, calls = 0;
        auto inner = target_model_of();
        auto target = [&](verify_batch const& batch) {
            longest = std::max(longest, batch.length(0));
            ++calls;
            return inner.score(batch);
        };
        decoder dec{target, draft_model_of(), fixed_schedule{}, keyed_coupling{}};
        request_settings settings{.seed = 4, .max_new_tokens = 40};
        settings.max_draft_tokens = cap;
        job const j{{5}, settings};
        INFO("cap " << cap);
        CHECK(run(dec, {j}, 1)[0] == plain_race(j));
        CHECK(longest == std::min(cap, block));
        CHECK(dec.report().target_calls() == calls);
        if (cap == 0) {
            CHECK(calls == 40);
            CHECK(dec.report().drafted() == 0);
        } else {
            CHECK(calls < 40);
        }
    }
}

TEST_CASE("decoder: log-probabilities are those of the transformed target") {
    std::vector<double> logits(vocabulary);
    auto const compare = [&](auto zero, double tolerance) {
        using real = decltype(zero);
        for (request_settings settings :
             {request_settings{.temperature = 1.0}, request_settings{.temperature = 0.6, .top_k = 4},
              request_settings{.temperature = 1.3, .top_p = 0.7}, request_settings{.temperature = 0.0},
              request_settings{.min_p = 0.2}}) {
            settings.seed = 8;
            settings.max_new_tokens = 40;
            settings.log_probabilities = true;
            auto target = hash_model<real>(vocabulary, target_language);
            autoregressive drafter{hash_model<real>(vocabulary, draft_language),
                                   {.block_size = block, .vocabulary = vocabulary}};
            decoder dec{target, drafter, fixed_schedule{}, block_verification<>{}};
            tokens text{7, 2};
            dec.join(text, settings);
            while (dec.step()) {
                auto const event = dec.events()[0];
                REQUIRE(event.log_probabilities.size() == event.tokens.size());
                for (std::size_t i = 0; i < event.tokens.size(); ++i) {
                    target_language(std::span<token_id const>(text), std::span<double>(logits));
                    distribution<double> const whole{{logits, {}}, {.temperature = settings.temperature}, {}};
                    // The tokens that are left, by sorting; renormalised.
                    std::vector<token_id> order(vocabulary);
                    for (std::size_t v = 0; v < vocabulary; ++v) order[v] = static_cast<token_id>(v);
                    std::stable_sort(order.begin(), order.end(), [&](token_id a, token_id b) {
                        return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
                    });
                    std::size_t keep = settings.top_k > 0 ? static_cast<std::size_t>(settings.top_k) : vocabulary;
                    if (settings.top_p < 1.0) {
                        double mass = 0.0;
                        for (keep = 0; mass < settings.top_p; ++keep) mass += whole.probability(order[keep]);
                    }
                    if (settings.min_p > 0.0) {
                        keep = 0;
                        while (keep < vocabulary &&
                               whole.probability(order[keep]) >= settings.min_p * whole.probability(order[0])) {
                            ++keep;
                        }
                    }
                    double mass = 0.0;
                    for (std::size_t k = 0; k < keep; ++k) mass += whole.probability(order[k]);
                    double const expected = std::log(whole.probability(event.tokens[i]) / mass);
                    REQUIRE(std::find(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(keep),
                                      event.tokens[i]) != order.begin() + static_cast<std::ptrdiff_t>(keep));
                    REQUIRE(std::abs(event.log_probabilities[i] - expected) < tolerance);
                    text.push_back(event.tokens[i]);
                }
            }
        }
    };
    compare(0.0, 1e-12);
    compare(0.0f, 1e-5);
    // Not asked for, not given.
    auto target = target_model_of();
    decoder dec{target, draft_model_of(), fixed_schedule{}, token_rejection<>{}};
    dec.join(tokens{1}, {.seed = 1});
    REQUIRE(dec.step());
    CHECK(dec.events()[0].log_probabilities.empty());
}

// ---- set-up errors ---------------------------------------------------------------------------------------------

TEST_CASE("decoder: unusable settings are refused with value and expectation") {
    auto target = target_model_of();
    decoder dec{target, draft_model_of(), fixed_schedule{}, token_rejection<>{}, {.max_requests = 2}};
    auto const refused = [&](request_settings const& settings) {
        return error_text([&] { dec.join(tokens{1}, settings); });
    };
    double const nan = std::numeric_limits<double>::quiet_NaN();
    double const inf = std::numeric_limits<double>::infinity();
    CHECK(says(refused({.temperature = -0.5}), {"request_settings", "temperature is -0.5", ">= 0"}));
    CHECK(says(refused({.temperature = nan}), {"temperature is", "nan", "finite"}));
    CHECK(says(refused({.temperature = inf}), {"temperature is inf", "finite"}));
    CHECK(says(refused({.top_k = -3}), {"top_k is -3", ">= 0"}));
    CHECK(says(refused({.top_p = 0.0}), {"top_p is 0, ", "(0, 1]"}));
    CHECK(says(refused({.top_p = 1.25}), {"top_p is 1.25", "(0, 1]"}));
    CHECK(says(refused({.top_p = nan}), {"top_p is", "nan", "(0, 1]"}));
    CHECK(says(refused({.min_p = -0.25}), {"min_p is -0.25", "[0, 1]"}));
    CHECK(says(refused({.min_p = 1.5}), {"min_p is 1.5", "[0, 1]"}));
    CHECK(says(refused({.draft = transform{.temperature = -2.0}}), {"draft temperature is -2, ", ">= 0"}));
    CHECK(says(refused({.draft = transform{.top_p = 2.0}}), {"draft top_p is 2, ", "(0, 1]"}));
    CHECK(says(refused({.max_new_tokens = 0}), {"max_new_tokens is 0", "expected 1"}));
    CHECK(says(refused({.max_new_tokens = static_cast<std::size_t>(-1)}), {"max_new_tokens is 18446744073709551615"}));
    CHECK(says(error_text([&] { dec.join(tokens{}); }), {"prompt is empty", "at least one token"}));
    CHECK(says(error_text([&] { dec.join(tokens{1, 12, 3}); }), {"prompt token 1 is 12", "0 .. 11"}));
    CHECK(says(error_text([&] { dec.join(tokens{-1}); }), {"prompt token 0 is -1", "0 .. 11"}));
    CHECK(says(error_text([&] { dec.resume(99); }), {"no request with id 99"}));
    // Nothing of this took a place.
    CHECK_FALSE(dec.step());
    dec.join(tokens{1});
    dec.join(tokens{2});
}

TEST_CASE("decoder: parts that do not fit are refused at set-up") {
    auto wide = hash_model<float>(vocabulary + 1, target_language);
    CHECK(says(error_text([&] { decoder{wide, draft_model_of(), fixed_schedule{}, token_rejection<>{}}; }),
               {"the target has 13 tokens", "drafter speaks of 12", "vocabulary_map"}));
    auto target = target_model_of();
    CHECK(says(error_text([&] {
                   decoder{target, draft_model_of(), fixed_schedule{}, token_rejection<>{}, {.max_requests = 0}};
               }),
               {"max_requests is 0", "at least 1"}));
    CHECK(
        says(error_text([&] { decoder{target, draft_model_of(), top_k_schedule{capacity, 1.5}, token_rejection<>{}}; }),
             {"prior confidence is 1.5", "[0, 1]"}));
    decoder greedy{target, draft_model_of(), fixed_schedule{}, greedy_match{}};
    CHECK(says(error_text([&] { greedy.join(tokens{1}, {.temperature = 0.7}); }),
               {"temperature is 0.7", "expected 0", "decodes greedily"}));
    greedy.join(tokens{1}, {.temperature = 0.0});
    CHECK(says(error_text([] { static_cast<void>(hash_model<float>(0, target_language)); }),
               {"context_model", "vocabulary is 0"}));
}

// ---- bad data in a round ---------------------------------------------------------------------------------------

namespace {

enum class fault { none, nan_row, inf_row, masked_row, few_rows, few_columns, failure };

/// A target that goes wrong once: at call `when`, for the request in `slot` where a row is concerned.
struct faulty_target {
    fault kind = fault::none;
    std::size_t when = 0, slot = 0, calls = 0;
    decltype(target_model_of()) inner = target_model_of();
    std::vector<float> copy{};
    std::vector<std::vector<status>> committed{};

    [[nodiscard]] std::size_t vocabulary_size() const { return vocabulary; }
    logits_rows<float> score(verify_batch const& batch) {
        auto rows = inner.score(batch);
        if (calls++ != when || kind == fault::none) return rows;
        copy.assign(rows.values.data, rows.values.data + rows.values.rows * vocabulary);
        float const inf = std::numeric_limits<float>::infinity();
        for (std::size_t r = 0; r < batch.requests().size(); ++r) {
            if (batch.requests()[r].slot != slot) continue;
            auto const row = std::span(copy).subspan(batch.first_row(r) * vocabulary, vocabulary);
            if (kind == fault::nan_row) row[vocabulary / 2] = std::numeric_limits<float>::quiet_NaN();
            if (kind == fault::inf_row) row[vocabulary / 2] = inf;
            if (kind == fault::masked_row) std::fill(row.begin(), row.end(), -inf);
        }
        rows.values.data = copy.data();
        if (kind == fault::few_rows) --rows.values.rows;
        if (kind == fault::few_columns) --rows.values.cols;
        if (kind == fault::failure) throw std::runtime_error("out of memory on the device");
        return rows;
    }
    void commit(std::span<verdict const> verdicts) {
        auto& round = committed.emplace_back();
        for (verdict const& v : verdicts) round.push_back(v.outcome);
    }
};

/// A draft model that returns a NaN for the request in `slot` while it is switched on.
struct faulty_draft {
    std::shared_ptr<bool> on;
    std::size_t slot = 0, position = 0;
    decltype(hash_model<float>(0, {})) inner = hash_model<float>(vocabulary, draft_language);
    std::vector<float> copy{};

    logits_rows<float> forward(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        auto rows = inner.forward(requests, prefixes);
        copy.assign(rows.values.data, rows.values.data + rows.values.rows * vocabulary);
        for (std::size_t r = 0; r < requests.size(); ++r) {
            if (*on && requests[r].slot == slot && prefixes.size == position) {
                copy[r * vocabulary] = std::numeric_limits<float>::quiet_NaN();
            }
        }
        rows.values.data = copy.data();
        return rows;
    }
};

struct faulty_confidence {
    std::shared_ptr<bool> on;
    double bad;

    double operator()(distribution<float> const& q, std::size_t k) const {
        return *on && k == 1 ? bad : q.probability(q.mode());
    }
};

job const job_0{{1, 2, 3}, {.temperature = 0.9, .seed = 21, .max_new_tokens = 30}};
job const job_1{{4, 5}, {.temperature = 1.1, .seed = 22, .max_new_tokens = 30}};

/// Steps through a fault that starts before round `when`: `broken` requests report `expected`, emit nothing and keep
/// their text; after resume() all end with the texts of an undisturbed run. A chain that broke while it was drafted is
/// drafted only so far again; under a rule that samples, such a request goes on by other draws (`same_lengths` is false).
template <class Decoder, class Before, class After>
void survive(Decoder& dec, std::vector<tokens> const& undisturbed, std::size_t when,
             std::vector<std::size_t> const& broken, status expected, bool same_lengths, Before before, After after) {
    bool const same_text = same_lengths || Decoder::rule_type::guarantee == fidelity::pathwise;
    request_id const ids[] = {dec.join(job_0.prompt, job_0.settings), dec.join(job_1.prompt, job_1.settings)};
    for (std::size_t round = 0; round < when; ++round) REQUIRE(dec.step());
    std::vector<tokens> kept;
    for (auto const id : ids) kept.emplace_back(dec.generated(id).begin(), dec.generated(id).end());
    auto const failures = dec.report().failures();

    before();
    REQUIRE(dec.step());
    REQUIRE(dec.events().size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
        request_event const& e = dec.events()[i];
        bool const is_broken = std::find(broken.begin(), broken.end(), i) != broken.end();
        CHECK(e.request == ids[i]);
        CHECK(e.outcome == (is_broken ? expected : status::ok));
        CHECK(e.tokens.empty() == is_broken);
        CHECK(e.finished == finish_reason::none);
        auto const text = dec.generated(ids[i]);
        if (is_broken) CHECK(tokens(text.begin(), text.end()) == kept[i]);
    }
    CHECK(dec.report().failures() == failures + broken.size());
    after();
    // Suspended requests sit out.
    CHECK(dec.step() == (broken.size() < 2));
    for (request_event const& e : dec.events()) CHECK(e.outcome == status::ok);
    for (std::size_t const i : broken) {
        auto const text = dec.generated(ids[i]);
        CHECK(tokens(text.begin(), text.end()) == kept[i]);
        dec.resume(ids[i]);
    }
    while (dec.step()) {
        for (request_event const& e : dec.events()) REQUIRE(e.outcome == status::ok);
    }
    for (std::size_t i = 0; i < 2; ++i) {
        auto const text = dec.generated(ids[i]);
        bool const is_broken = std::find(broken.begin(), broken.end(), i) != broken.end();
        if (same_text || !is_broken) CHECK(tokens(text.begin(), text.end()) == undisturbed[i]);
        CHECK(text.size() == undisturbed[i].size());
    }
}

}  // namespace

TEST_CASE("decoder: bad target rows suspend the request and change nothing") {
    auto const each_rule = [](auto rule) {
        auto clean = target_model_of();
        decoder reference{clean, draft_model_of(), fixed_schedule{3}, rule, {.max_requests = 2}};
        auto const undisturbed = run(reference, {job_0, job_1}, 2);
        for (std::size_t const when : {0u, 2u}) {
            for (auto const kind :
                 {fault::nan_row, fault::inf_row, fault::masked_row, fault::few_rows, fault::few_columns}) {
                bool const all = kind == fault::few_rows || kind == fault::few_columns;
                for (std::size_t const slot : {0u, 1u}) {
                    INFO("round " << when << ", fault " << static_cast<int>(kind) << ", slot " << slot);
                    faulty_target target{kind, when, slot};
                    decoder dec{target, draft_model_of(), fixed_schedule{3}, rule, {.max_requests = 2}};
                    survive(
                        dec, undisturbed, when, all ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{slot},
                        status::invalid_target, true, [] {}, [] {});
                    REQUIRE(target.committed.size() > when);
                    CHECK(target.committed[when][slot] == status::invalid_target);  // so that it rolls back
                }
            }
        }
    };
    each_rule(token_rejection<>{});
    each_rule(block_verification<>{});
    each_rule(keyed_coupling{});
    each_rule(target_match<>{});
}

TEST_CASE("decoder: a target row nobody needs may hold anything") {
    // Row 0 gives the drafted token probability 0, so the block ends there; NaN behind it is never looked at.
    std::vector<float> rows;
    auto target = [&](verify_batch const& batch) {
        rows.assign(batch.rows() * vocabulary, std::numeric_limits<float>::quiet_NaN());
        for (std::size_t v = 0; v < vocabulary; ++v) rows[v] = v == 3 ? 0.0f : -std::numeric_limits<float>::infinity();
        return logits_rows<float>{{rows.data(), batch.rows(), vocabulary}, {}};
    };
    auto draft = [logits = std::vector<float>(vocabulary)](std::span<request_view const>,
                                                           draft_prefixes const&) mutable {
        std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
        logits[5] = 0.0f;
        return logits_rows<float>{{logits.data(), 1, vocabulary}, {}};
    };
    auto const first = [&](auto rule) {
        decoder dec{target, autoregressive{draft, {.block_size = block, .vocabulary = vocabulary}}, fixed_schedule{},
                    rule};
        dec.join(tokens{0}, {.seed = 1});
        REQUIRE(dec.step());
        CHECK(dec.report().verified() == block);
        auto const event = dec.events()[0];
        CHECK(event.outcome == status::ok);
        return tokens(event.tokens.begin(), event.tokens.end());
    };
    CHECK(first(token_rejection<>{}) == tokens{3});
    CHECK(first(block_verification<>{}) == tokens{3});
    CHECK(first(keyed_coupling{}) == tokens{3});
    CHECK(first(target_match<>{}) == tokens{3});
}

TEST_CASE("decoder: bad draft rows suspend the request and change nothing") {
    auto const each_rule = [](auto rule) {
        auto target = target_model_of();
        auto const make = [&](std::shared_ptr<bool> on, std::size_t slot, std::size_t position) {
            return autoregressive{faulty_draft{std::move(on), slot, position},
                                  {.block_size = block, .vocabulary = vocabulary}};
        };
        decoder reference{
            target, make(std::make_shared<bool>(false), 0, 0), fixed_schedule{}, rule, {.max_requests = 2}};
        auto const undisturbed = run(reference, {job_0, job_1}, 2);
        for (std::size_t const position : {0u, 2u}) {
            for (std::size_t const slot : {0u, 1u}) {
                INFO("slot " << slot << ", position " << position);
                auto const on = std::make_shared<bool>(false);
                decoder dec{target, make(on, slot, position), fixed_schedule{}, rule, {.max_requests = 2}};
                survive(
                    dec, undisturbed, 1, {slot}, status::invalid_draft, false, [&] { *on = true; },
                    [&] { *on = false; });
            }
        }
    };
    each_rule(token_rejection<>{});
    each_rule(token_rejection<argmax_draft>{});
    each_rule(keyed_coupling{});
}

TEST_CASE("decoder: bad confidences suspend the request and change nothing") {
    double const nan = std::numeric_limits<double>::quiet_NaN();
    for (double const bad : {nan, 1.5, -0.25, std::numeric_limits<double>::infinity()}) {
        INFO("confidence " << bad);
        auto target = target_model_of();
        auto const make = [&](std::shared_ptr<bool> on) {
            return autoregressive{hash_model<float>(vocabulary, draft_language),
                                  faulty_confidence{std::move(on), bad},
                                  {.block_size = block, .vocabulary = vocabulary}};
        };
        auto const each_rule = [&](auto rule) {
            threshold_schedule const schedule{0.1};
            decoder reference{target, make(std::make_shared<bool>(false)), schedule, rule, {.max_requests = 2}};
            auto const undisturbed = run(reference, {job_0, job_1}, 2);
            auto const on = std::make_shared<bool>(false);
            decoder dec{target, make(on), schedule, rule, {.max_requests = 2}};
            survive(
                dec, undisturbed, 1, {0, 1}, status::invalid_confidence, false, [&] { *on = true; },
                [&] { *on = false; });
        };
        each_rule(token_rejection<>{});
        each_rule(keyed_coupling{});
    }
}

TEST_CASE("decoder: a target that throws leaves everything as it was") {
    auto const compare = [](auto schedule, auto rule) {
        auto clean = target_model_of();
        decoder reference{clean, draft_model_of(), schedule, rule, {.max_requests = 2}};
        auto const undisturbed = run(reference, {job_0, job_1}, 2);
        faulty_target target{fault::failure, 2};
        decoder dec{target, draft_model_of(), schedule, rule, {.max_requests = 2}};
        request_id const ids[] = {dec.join(job_0.prompt, job_0.settings), dec.join(job_1.prompt, job_1.settings)};
        REQUIRE(dec.step());
        REQUIRE(dec.step());
        std::vector<tokens> kept;
        for (auto const id : ids) kept.emplace_back(dec.generated(id).begin(), dec.generated(id).end());
        auto const rounds = dec.report().rounds();
        CHECK_THROWS_AS(dec.step(), std::runtime_error);
        CHECK(dec.events().empty());
        CHECK(dec.report().rounds() == rounds);
        CHECK(target.committed.size() == 2);
        for (std::size_t i = 0; i < 2; ++i) {
            CHECK(tokens(dec.generated(ids[i]).begin(), dec.generated(ids[i]).end()) == kept[i]);
        }
        while (dec.step()) {
        }
        for (std::size_t i = 0; i < 2; ++i) {
            CHECK(tokens(dec.generated(ids[i]).begin(), dec.generated(ids[i]).end()) == undisturbed[i]);
        }
    };
    compare(fixed_schedule{}, keyed_coupling{});
    compare(greedy_schedule{capacity}, token_rejection<>{});
    compare(top_k_schedule{capacity}, block_verification<>{});  // the failed round is no round of the history
}

// ---- randomness ------------------------------------------------------------------------------------------------

TEST_CASE("decoder: unseeded requests have streams of their own, seeded ones share by seed") {
    constexpr std::size_t wide = 64;
    auto flat = [rows = std::vector<float>()](verify_batch const& batch) mutable {
        rows.assign(batch.rows() * wide, 0.0f);
        return logits_rows<float>{{rows.data(), batch.rows(), wide}, {}};
    };
    auto const make = [&] {
        return autoregressive{
            model_of<float>(wide, [](auto, auto logits) { std::fill(logits.begin(), logits.end(), 0.0f); }),
            {.block_size = 3, .vocabulary = wide}};
    };
    auto const streams = [&](auto rule, decoder_options const& options, std::optional<std::uint64_t> seed) {
        auto target = flat;
        decoder dec{target, make(), fixed_schedule{}, rule, options};
        std::vector<request_id> ids;
        for (std::size_t i = 0; i < options.max_requests; ++i) {
            ids.push_back(dec.join(tokens{9}, {.seed = seed, .max_new_tokens = 24}));
        }
        while (dec.step()) {
        }
        std::vector<tokens> out;
        for (auto const id : ids) out.emplace_back(dec.generated(id).begin(), dec.generated(id).end());
        return out;
    };
    auto const distinct = [](std::vector<tokens> all) {
        std::sort(all.begin(), all.end());
        return std::adjacent_find(all.begin(), all.end()) == all.end();
    };
    auto const each_rule = [&](auto rule) {
        auto const first = streams(rule, {.max_requests = 5, .seed = 77}, {});
        CHECK(distinct(first));
        CHECK(streams(rule, {.max_requests = 5, .seed = 77}, {}) == first);  // reproducible when asked for
        CHECK(streams(rule, {.max_requests = 5, .seed = 78}, {}) != first);
        CHECK(distinct(streams(rule, {.max_requests = 5}, {})));
        CHECK(streams(rule, {.max_requests = 2}, {}) != streams(rule, {.max_requests = 2}, {}));
        // The request's id and place are no part of a key.
        auto const seeded = streams(rule, {.max_requests = 5}, 123);
        for (tokens const& text : seeded) CHECK(text == seeded[0]);
        CHECK(streams(rule, {.max_requests = 1}, 123)[0] == seeded[0]);
        CHECK(streams(rule, {.max_requests = 1}, 124)[0] != seeded[0]);
    };
    each_rule(keyed_coupling{});
    each_rule(target_match<>{});
    each_rule(token_rejection<>{});
    each_rule(block_verification<>{});
}

// ---- the logits hook -------------------------------------------------------------------------------------------

namespace {

/// A grammar: parities alternate with the position of the token.
bool allowed(std::size_t position, token_id x) {
    return static_cast<std::size_t>(x) % 2 == position % 2;
}

struct parity_grammar {
    void operator()(hook_context const& at, std::span<float> logits) const {
        // x_1..x_j stand behind the anchor, so the row is for the token after them.
        std::size_t const position = static_cast<std::size_t>(at.request.position) + 1 + at.drafted.size();
        for (std::size_t v = 0; v < logits.size(); ++v) {
            if (!allowed(position, static_cast<token_id>(v))) logits[v] = -std::numeric_limits<float>::infinity();
        }
    }
};

/// Forbids what was said before: needs the drafted prefix, not only its length.
struct no_repeats {
    void operator()(hook_context const& at, std::span<float> logits) const {
        for (token_id const x : at.request.context) logits[static_cast<std::size_t>(x)] -= 8.0f;
        for (token_id const x : at.drafted) logits[static_cast<std::size_t>(x)] -= 8.0f;
    }
};

template <class Edit>
auto edited_target(Edit edit) {
    return model_of<float>(vocabulary, [edit](std::span<token_id const> context, std::span<float> logits) {
        target_language(context, logits);
        edit(context, logits);
    });
}

}  // namespace

TEST_CASE("decoder: the logits hook is part of the target, row by row") {
    job const j{{1, 4, 2},
                {.temperature = 1.2, .top_p = 0.9, .seed = 31, .max_new_tokens = 60, .log_probabilities = true}};
    auto const compare = [&](auto hook, auto edited, auto rule) {
        auto target = target_model_of();
        decoder hooked{target, draft_model_of(), fixed_schedule{}, rule, decoder_options{}, hook};
        decoder reference{edited, draft_model_of(), fixed_schedule{}, rule};
        auto const a = hooked.join(j.prompt, j.settings);
        auto const b = reference.join(j.prompt, j.settings);
        while (hooked.step()) {
            REQUIRE(reference.step());
            auto const& x = hooked.events()[0];
            auto const& y = reference.events()[0];
            REQUIRE(tokens(x.tokens.begin(), x.tokens.end()) == tokens(y.tokens.begin(), y.tokens.end()));
            REQUIRE(std::equal(x.log_probabilities.begin(), x.log_probabilities.end(), y.log_probabilities.begin(),
                               y.log_probabilities.end()));
        }
        CHECK(hooked.generated(a).size() == 60);
        CHECK(hooked.report().accepted() > 0);
        return tokens(reference.generated(b).begin(), reference.generated(b).end());
    };
    auto const masked = edited_target([](auto context, std::span<float> logits) {
        for (std::size_t v = 0; v < logits.size(); ++v) {
            if (!allowed(context.size(), static_cast<token_id>(v))) logits[v] = -std::numeric_limits<float>::infinity();
        }
    });
    auto const penalised = edited_target([](auto context, std::span<float> logits) {
        for (token_id const x : context) logits[static_cast<std::size_t>(x)] -= 8.0f;
    });
    auto const each_rule = [&](auto rule) {
        tokens const text = compare(parity_grammar{}, masked, rule);
        for (std::size_t i = 0; i < text.size(); ++i) REQUIRE(allowed(j.prompt.size() + i, text[i]));
        compare(no_repeats{}, penalised, rule);
    };
    each_rule(token_rejection<>{});
    each_rule(block_verification<>{});
    each_rule(keyed_coupling{});
    each_rule(target_match<>{});
}

// ---- models that keep their own state --------------------------------------------------------------------------

TEST_CASE("decoder: commit tells a stateful target what became of its rows") {
    // This target never reads request_view::context: it keeps the committed tokens itself, as an engine with a cache.
    struct stateful_target {
        tokens text;
        std::vector<float> rows{};
        std::size_t vocabulary_size = vocabulary;

        logits_rows<float> score(verify_batch const& batch) {
            rows.resize(batch.rows() * vocabulary);
            tokens context = text;
            for (std::size_t i = 0; i < batch.rows(); ++i) {
                if (i > 0) context.push_back(batch.tokens()[i]);
                REQUIRE(batch.positions()[i] == context.size() - 1);
                REQUIRE(batch.tokens()[i] == context.back());
                target_language(std::span<token_id const>(context),
                                std::span(rows).subspan(i * vocabulary, vocabulary));
            }
            return {{rows.data(), batch.rows(), vocabulary}, {}};
        }
        void commit(std::span<verdict const> verdicts) {
            text.insert(text.end(), verdicts[0].emitted.begin(), verdicts[0].emitted.end());
            REQUIRE(verdicts[0].next_anchor() == text.back());
        }
    };
    job const j{{2, 8, 1}, {.seed = 3, .max_new_tokens = 40}};
    stateful_target target{j.prompt};
    decoder dec{target, draft_model_of(), fixed_schedule{}, keyed_coupling{}};
    CHECK(run(dec, {j}, 1)[0] == plain_race(j));
}

// ---- the engine owns the loop ----------------------------------------------------------------------------------

namespace {

/// The stages in an engine's own loop, with the engine's own bookkeeping.
template <class Target, class Drafter, class Schedule, class Rule>
std::vector<tokens> engine_run(Target& target, Drafter drafter, Schedule schedule, Rule rule,
                               std::vector<job> const& jobs, std::size_t places) {
    struct sequence {
        bool running = false;
        std::size_t job = 0;
        tokens text{};
    };
    std::vector<sequence> sequences(places);
    std::vector<tokens> out(jobs.size());
    round_memory<target_value_t<Target>, typename Drafter::value_type> memory{drafter, schedule, rule, {places}};
    philox_randomness rng;
    no_logits_hook const hook;

    std::vector<request_view> views;
    for (std::size_t next = 0;;) {
        for (std::size_t i = 0; i < places && next < jobs.size(); ++i) {
            if (sequences[i].running) continue;
            sequences[i] = {true, next, jobs[next].prompt};
            memory.join(i);
            ++next;
        }
        views.clear();
        for (std::size_t i = 0; i < places; ++i) {
            sequence const& s = sequences[i];
            if (!s.running) continue;
            job const& j = jobs[s.job];
            views.push_back({.id = 100 + s.job,  // ids are the engine's own
                             .slot = i,
                             .anchor = s.text.back(),
                             .position = s.text.size() - 1,
                             .context = s.text,
                             .seed = *j.settings.seed,
                             .remaining = j.settings.max_new_tokens - (s.text.size() - j.prompt.size()),
                             .settings = &j.settings});
        }
        if (views.empty()) return out;

        if (begin_round(schedule, std::span<request_view const>(views), memory)) {
            auto const forward = drafter.forward(memory.requests());
            plan(schedule, drafter, forward, memory);
            draw(drafter, forward, rule, rng, memory);
        }
        auto const rows = score(target, admit(schedule, memory));
        accept(rule, rows, hook, rng, memory);

        for (verdict const& v : end_round(schedule, memory).verdicts) {
            REQUIRE(v.outcome == status::ok);
            sequence& s = sequences[v.slot];
            REQUIRE(v.id == 100 + s.job);
            s.text.insert(s.text.end(), v.emitted.begin(), v.emitted.end());
            out[s.job].insert(out[s.job].end(), v.emitted.begin(), v.emitted.end());
            s.running = !v.stopped && out[s.job].size() < jobs[s.job].settings.max_new_tokens;
        }
    }
}

template <class MakeDrafter, class Schedule, class Rule>
void compare_with_engine(MakeDrafter make, Schedule schedule, Rule rule) {
    static constexpr token_id stops[] = {0};
    auto jobs = several_jobs(0.8);
    jobs[3].settings.stop_tokens = stops;
    jobs[5].settings.stop_tokens = stops;
    jobs[2].settings.draft = transform{.temperature = 0.5, .top_k = 5};
    for (std::size_t const places : {1u, 2u, 4u}) {
        INFO(places << " places");
        auto target = target_model_of();
        decoder dec{target, make(), schedule, rule, {.max_requests = places}};
        auto const expected = run(dec, jobs, places);
        CHECK(dec.report().accepted() > 0);
        CHECK(dec.report().accepted() < dec.report().verified());
        CHECK(engine_run(target, make(), schedule, rule, jobs, places) == expected);
    }
}

}  // namespace

TEST_CASE("stages: an engine that owns its loop gets the decoder's tokens") {
    head_weights const weights;
    auto const semi = [&] { return weights.drafter(); };
    auto const found = [] { return lookup{{.block_size = block, .target_vocabulary = vocabulary}}; };
    compare_with_engine(draft_model_of, greedy_schedule{capacity}, token_rejection<>{});
    compare_with_engine(draft_model_of, top_k_schedule{capacity}, token_rejection<>{});
    compare_with_engine(draft_model_of, lagged_top_k<1>(capacity, 0.5), block_verification<>{});
    compare_with_engine(semi, lagged_top_k<3>(capacity), block_verification<>{});
    compare_with_engine(semi, planned_schedule{capacity}, block_verification<>{});
    compare_with_engine(semi, greedy_schedule{capacity}, token_rejection<argmax_draft>{});
    compare_with_engine(semi, retrospective_schedule{capacity}, target_match<>{});
    compare_with_engine(draft_model_of, threshold_schedule{0.15}, keyed_coupling{});
    compare_with_engine(found, fixed_schedule{3}, token_rejection<>{});
}
