// SPDX-License-Identifier: MIT
//
// The engine's loop: what it refuses, who runs when, what it counts, and the edges of a context.
//
// That its tokens are the right ones is lossless.test.cpp's affair. Here they are compared only where a request went
// through something unusual.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <engine/parts.hpp>
#include <engine/server.hpp>

#include "support/dice.hpp"
#include "support/drafted.hpp"
#include "support/error_text.hpp"
#include "support/tiny_models.hpp"

namespace {

using engine::storage;
using support::error_text;
using sureleap::request_id;
using sureleap::request_settings;
using sureleap::token_id;
using tiny::kind;

tiny::shape const shape{.layers = 3, .hidden = 24, .intermediate = 32, .heads = 4, .kv_heads = 2, .vocabulary = 67};
tiny::drafter_shape const drafter{.block_size = 4};
tiny::agreeing_models const& models() {
    static tiny::agreeing_models const all(shape, 17);
    return all;
}

// What comes out of a server, request by request.
struct outputs {
    std::map<request_id, std::vector<token_id>> tokens;
    std::map<request_id, sureleap::status> outcome;  // of those that finished
    std::size_t events = 0;

    // One step; false if there was nothing to do. Every event has tokens, or ends its request.
    template <class Server>
    bool step(Server& server) {
        bool const worked = server.step();
        for (auto const& event : server.events()) {
            REQUIRE_FALSE(outcome.contains(event.id));
            REQUIRE(event.tokens.empty() == (event.outcome != sureleap::status::ok));
            tokens[event.id].insert(tokens[event.id].end(), event.tokens.begin(), event.tokens.end());
            if (event.finished) outcome[event.id] = event.outcome;
            ++events;
        }
        return worked;
    }
    template <class Server>
    void run(Server& server) {
        for (std::size_t steps = 0; step(server); ++steps) REQUIRE(steps < 10'000);
    }
};

engine::server<float> make_server(tiny::served& parts, sureleap::any_schedule schedule = sureleap::fixed_schedule{},
                                  std::string const& rule = "token") {
    return {parts.target, parts.drafter, parts.observer, std::move(schedule), engine::make_rule(rule), parts.pool};
}

std::vector<token_id> plainly(std::vector<token_id> const& prompt, request_settings const& settings) {
    static tiny::served plain(models(), kind::none, drafter, storage::bf16, {1, 256, 1});
    return tiny::decode_plainly(plain.target, prompt, settings, "token");
}

request_settings greedy(std::size_t n) {
    return {.temperature = 0.0, .max_new_tokens = n};
}

}  // namespace

// ---- what is refused -----------------------------------------------------------------------------------------------

TEST_CASE("server: a request that cannot be served is refused, and nothing else happens", "[engine]") {
    tiny::served parts(models(), kind::vanilla, drafter, storage::bf16,
                       {.slots = 2, .context_length = 20, .max_rows = 10});
    auto server = make_server(parts);
    auto const refused = [&](std::vector<token_id> prompt, request_settings const& settings) {
        return error_text([&] { server.submit(std::move(prompt), settings); });
    };
    CHECK(refused({}, greedy(1)) == "server: the prompt is empty, expected at least one token");
    CHECK(refused({1, -1}, greedy(1)) == "server: prompt token 1 is -1, expected 0 .. 66");
    CHECK(refused({67, 1}, greedy(1)) == "server: prompt token 0 is 67, expected 0 .. 66");
    std::string const too_long =
        "server: a prompt of 5 tokens and max_new_tokens = 16 do not fit a context of 20 positions; shorten one of "
        "them "
        "or serve with a longer context";
    CHECK(refused({1, 2, 3, 4, 5}, greedy(16)) == too_long);
    CHECK(support::says(refused(std::vector<token_id>(20, 1), greedy(1)), "do not fit a context of 20 positions"));
    CHECK(support::says(refused(std::vector<token_id>(21, 1), greedy(1)), "do not fit a context of 20 positions"));
    CHECK(support::says(refused({1}, greedy(0)), {"max_new_tokens is 0", "expected 1 .."}));
    CHECK(support::says(refused({1}, {.temperature = -1.0, .max_new_tokens = 1}), {"temperature is -1", ">= 0"}));
    CHECK(support::says(refused({1}, {.temperature = std::nan(""), .max_new_tokens = 1}), "temperature is"));
    CHECK(support::says(refused({1}, {.top_k = -3, .max_new_tokens = 1}), "top_k is -3"));
    CHECK(support::says(refused({1}, {.top_p = 0.0, .max_new_tokens = 1}), "top_p is 0"));
    CHECK(support::says(refused({1}, {.min_p = 1.5, .max_new_tokens = 1}), "min_p is 1.5"));
    CHECK(support::says(refused({1}, {.draft = sureleap::transform{.top_p = 2.0}, .max_new_tokens = 1}),
                        "draft top_p is 2"));
    CHECK_FALSE(server.step());
    CHECK(server.events().empty());
    CHECK(server.submit({1, 2, 3, 4, 5}, greedy(15)) == 1);  // refused ones took no number
    outputs out;
    out.run(server);
    CHECK(out.tokens[1] == plainly({1, 2, 3, 4, 5}, greedy(15)));
}

TEST_CASE("server: rounds correct what a schedule believes of costs, and not what comes out", "[engine]") {
    // No step of these models takes seconds, let alone a hundred for a second row.
    engine::learned_cost const wrong = sureleap::of_batch(sureleap::capacity_table<>({{1, 4.0}, {8, 800.0}}));
    sureleap::step_load const plain{.requests = 1, .batch_tokens = 1};
    tiny::served parts(models(), kind::vanilla, drafter, storage::bf16,
                       {.slots = 1, .context_length = 80, .max_rows = 10});
    auto const decode = [&](bool corrected) {
        auto server = make_server(parts, sureleap::never_lose{sureleap::planned_schedule{wrong}});
        if (corrected) server.correct(wrong);
        server.submit({5, 6, 7}, greedy(60));
        outputs out;
        out.run(server);
        CHECK(out.tokens[1] == plainly({5, 6, 7}, greedy(60)));
        CHECK(server.last_round().seconds > 0.0);
    };
    decode(false);
    CHECK(wrong.step_seconds(plain) == 4.0);
    decode(true);
    // Factors stay above a half.
    CHECK(wrong.step_seconds(plain) < 2.5);
    CHECK(wrong.step_seconds(plain) >= 2.0);
    wrong.forget();
    CHECK(wrong.step_seconds(plain) == 4.0);
}

TEST_CASE("server: parts that do not go together are refused", "[engine]") {
    engine::learned_cost const cost = sureleap::of_batch(sureleap::capacity_table<>({{1, 1.0}, {8, 2.0}}));
    engine::serving_limits const limits{.slots = 2, .context_length = 20, .max_rows = 10};
    auto const refused = [&](kind k, sureleap::any_schedule schedule) {
        tiny::served parts(models(), k, drafter, storage::bf16, limits);
        return error_text([&] { (void)make_server(parts, std::move(schedule)); });
    };
    std::string const no_confidence = to_string(sureleap::misfit::no_confidence);
    for (kind const k : {kind::none, kind::lookup}) {
        std::string const answer = k == kind::lookup ? no_confidence : "";  // no draft lacks one
        CHECK(refused(k, sureleap::threshold_schedule{0.5}) == answer);
        CHECK(refused(k, sureleap::greedy_schedule{cost}) == answer);
        CHECK(refused(k, sureleap::planned_schedule{cost}) == answer);
        CHECK(refused(k, sureleap::top_k_schedule{cost, 0.5}) == answer);
        CHECK(refused(k, sureleap::fixed_schedule{}).empty());
    }
    CHECK(refused(kind::eagle3, sureleap::planned_schedule{cost}) == to_string(sureleap::misfit::no_anchor));
    CHECK(refused(kind::eagle3, sureleap::top_k_schedule{cost, 0.5}).empty());
    for (kind const k : {kind::vanilla, kind::dflash}) {
        CHECK(refused(k, sureleap::planned_schedule{cost}).empty());
        CHECK(refused(k, sureleap::threshold_schedule{0.5}).empty());
    }
    CHECK(error_text([] { (void)engine::make_rule("greedy"); }) ==
          "acceptance rule 'greedy' is unknown, expected one of token, token-argmax, block, match, coupled");

    tiny::served parts(models(), kind::lookup, drafter, storage::bf16,
                       {.slots = 2, .context_length = 20, .max_rows = 9});
    CHECK(
        error_text([&] { (void)make_server(parts); }) ==
        "server: a verify batch may have 10 rows (2 slots x (gamma + 1)), expected at most the target's max_rows = 9");
}

TEST_CASE("server: models that do not fit are refused where they meet", "[engine]") {
    engine::thread_pool pool(1);
    engine::serving_limits const limits{.slots = 3, .context_length = 32, .max_rows = 16};
    auto const target = [&](tiny::shape const& s, std::vector<int> layers, engine::serving_limits const& l) {
        return error_text([&] {
            engine::causal_lm<float> const made(engine::make_in_memory(tiny::target_config(s), storage::bf16, 1),
                                                std::move(layers), pool, l);
        });
    };
    CHECK(target(shape, {-1, 0, 1}, limits).empty());
    CHECK(support::says(target(shape, {0, 2}, limits), {"feature layer 1 is 2", "-1 .. 1 of the target's 3"}));
    CHECK(support::says(target(shape, {0, 0}, limits), "feature layer 1 is 0, expected increasing layers"));
    CHECK(support::says(target(shape, {-2}, limits), "feature layer 0 is -2"));
    CHECK(support::says(target(shape, {}, {1, 5000, 1}), {"5000", "max_position_embeddings = 4096"}));
    CHECK(support::says(target(shape, {}, {0, 32, 1}), "0 slots"));
    CHECK(support::says(target(shape, {}, {1, 32, 0}), "0 rows"));
    CHECK(support::says(error_text([&] {
                            engine::causal_lm<float> const made(
                                engine::make_in_memory(tiny::eagle3_config(shape, drafter), storage::bf16, 1), {}, pool,
                                limits);
                        }),
                        "expected the architecture Qwen3ForCausalLM or LlamaForCausalLM"));

    engine::causal_lm<float> served(models().target(storage::bf16), tiny::feature_layers(shape), pool, limits);
    auto const draft = [&](engine::model_config const& config, engine::serving_limits const& l) {
        return error_text([&] {
            auto from = engine::make_in_memory(config, storage::bf16, 1);
            if (config.kind == engine::architecture::eagle3) {
                engine::eagle3<float> const made(std::move(from), served, pool, l);
            } else {
                engine::dspark<float> const made(std::move(from), served, pool, l);
            }
        });
    };
    CHECK(draft(tiny::dspark_config(shape, drafter), limits).empty());
    CHECK(draft(tiny::eagle3_config(shape, drafter), limits).empty());
    tiny::shape other = shape;
    other.vocabulary = 66;
    CHECK(support::says(draft(tiny::dspark_config(other, drafter), limits), "66 tokens, expected the target's 67"));
    other = shape;
    other.hidden = 26;
    CHECK(support::says(draft(tiny::eagle3_config(other, drafter), limits),
                        "hidden size is 26, expected the target's 24"));
    other = shape;
    other.layers = 5;
    CHECK(support::says(draft(tiny::dspark_config(other, drafter), limits), "pass the drafter's"));
    CHECK(support::says(draft(tiny::target_config(shape), limits), "expected Qwen3DSparkModel"));
    CHECK(support::says(draft(tiny::dspark_config(shape, drafter), {3, 32, 11}),
                        "max_rows is 11, expected at least slots x rows of a block = 12"));
    CHECK(support::says(draft(tiny::eagle3_config(shape, drafter), {3, 32, 2}), "max_rows is 2, expected at least 3"));

    // And at run time, where a loop of somebody else's could get it wrong.
    std::vector<token_id> const many(17, 1);
    CHECK(support::says(error_text([&] { served.prefill(0, 0, many); }), "prefill of 17 tokens at position 0"));
    CHECK(support::says(error_text([&] { served.prefill(0, 30, std::span(many).first(3)); }), "at position 30"));
    CHECK(support::says(error_text([&] { (void)served.score(tiny::flat_batch({{0, 0, many}}).batch()); }), "17 rows"));
    CHECK(support::says(error_text([&] { (void)served.score(tiny::flat_batch({{0, 31, {1, 2}}}).batch()); }),
                        "row 1 of a verify batch is at position 32, expected less than the context length 32"));
    CHECK(support::says(error_text([&] { served.prefill(3, 0, std::span(many).first(1)); }),
                        "in slot 3, expected less than 3"));
    CHECK(support::says(error_text([&] { (void)served.score(tiny::flat_batch({{4, 0, {1}}}).batch()); }), "in slot 4"));
    CHECK(support::says(error_text([&] { (void)served.score(tiny::flat_batch({{0, 0, {1, 67}}}).batch()); }),
                        "token 1 of a batch is 67, expected 0 .. 66"));
    CHECK(
        support::says(error_text([&] { served.prefill(0, 0, std::vector<token_id>{-1}); }), "is -1, expected 0 .. 66"));
}

// ---- who runs when -------------------------------------------------------------------------------------------------

TEST_CASE("server: requests beyond the slots wait their turn", "[engine]") {
    tiny::served parts(models(), kind::vanilla, drafter, storage::bf16,
                       {.slots = 2, .context_length = 64, .max_rows = 10});
    auto server = make_server(parts);
    std::vector<std::vector<token_id>> prompts;
    support::dice roll(5);
    for (std::size_t i = 0; i < 6; ++i) {
        prompts.push_back(tiny::random_tokens(roll, 1 + roll.below(9), shape.vocabulary));
        CHECK(server.submit(prompts.back(), greedy(12)) == i + 1);
    }
    outputs out;
    request_id newest = 0;
    while (out.step(server)) {
        auto const events = server.events();
        REQUIRE(events.size() <= 2);
        for (auto const& event : events) {
            // In order of arrival: one that starts is the next, and whoever came before it is running or done.
            if (event.id <= newest) continue;
            CHECK(event.id == newest + 1);
            newest = event.id;
        }
    }
    CHECK(out.outcome.size() == 6);
    for (request_id id = 1; id <= 6; ++id) CHECK(out.tokens[id] == plainly(prompts[id - 1], greedy(12)));
    CHECK_FALSE(server.step());
}

TEST_CASE("server: a long prompt is prefilled in chunks while others decode", "[engine]") {
    for (kind const k : {kind::lookup, kind::vanilla, kind::eagle3}) {
        INFO(name_of(k));
        tiny::served parts(models(), k, drafter, storage::bf16, {.slots = 3, .context_length = 128, .max_rows = 15});
        auto server = make_server(parts);
        support::dice roll(6);
        auto const long_prompt = tiny::random_tokens(roll, 62, shape.vocabulary);
        auto const second = tiny::random_tokens(roll, 31, shape.vocabulary);
        request_id const quick = server.submit({5}, greedy(60));
        outputs out;
        REQUIRE(out.step(server));
        request_id const slow = server.submit(long_prompt, greedy(10));
        request_id const last = server.submit(second, greedy(10));
        CHECK(server.prefilled(slow) == 0);
        // 61 tokens before the anchor: 15 a step, in the step of the last chunk the first round. Then the other one.
        for (std::size_t step = 1; step <= 7; ++step) {
            INFO("step " << step);
            std::size_t const before = out.tokens[quick].size();
            REQUIRE_FALSE(out.outcome.contains(quick));
            REQUIRE(out.step(server));
            CHECK(out.tokens[quick].size() > before);
            CHECK(server.prefilled(slow) == std::min<std::size_t>(61, 15 * step));
            CHECK(server.prefilled(last) == (step <= 5 ? 0 : 15 * (step - 5)));
            CHECK(out.tokens.contains(slow) == (step >= 5));
            CHECK(out.tokens.contains(last) == (step >= 7));
        }
        out.run(server);
        CHECK(server.prefilled(slow) == 0);  // it is gone
        CHECK(out.tokens[quick] == plainly({5}, greedy(60)));
        CHECK(out.tokens[slow] == plainly(long_prompt, greedy(10)));
        CHECK(out.tokens[last] == plainly(second, greedy(10)));
    }
}

TEST_CASE("server: leaving is possible at any time", "[engine]") {
    for (kind const k : {kind::none, kind::lookup, kind::rnn, kind::eagle3}) {
        INFO(name_of(k));
        tiny::served parts(models(), k, drafter, storage::bf16, {.slots = 2, .context_length = 96, .max_rows = 10});
        auto server = make_server(parts);
        support::dice roll(8);
        auto const prompt = tiny::random_tokens(roll, 45, shape.vocabulary);
        request_id const stays = server.submit({9, 8, 7}, greedy(40));
        request_id const prefilling = server.submit(prompt, greedy(20));
        request_id const waiting = server.submit({1, 2}, greedy(20));
        request_id const follows = server.submit({3, 4}, greedy(20));
        outputs out;
        REQUIRE(out.step(server));
        REQUIRE(out.step(server));
        REQUIRE(server.prefilled(prefilling) > 0);
        REQUIRE_FALSE(out.tokens.contains(prefilling));
        server.leave(waiting);
        server.leave(prefilling);
        CHECK(server.prefilled(prefilling) == 0);
        while (!out.tokens.contains(follows)) REQUIRE(out.step(server));  // in the slot that became free
        std::size_t const had = out.tokens[follows].size();
        server.leave(follows);
        server.leave(follows);  // gone already
        server.leave(12345);    // never was
        request_id const late = server.submit({6}, greedy(15));
        out.run(server);
        server.leave(stays);  // finished
        CHECK(out.outcome.size() == 2);
        CHECK_FALSE(out.tokens.contains(prefilling));
        CHECK_FALSE(out.tokens.contains(waiting));
        CHECK(out.tokens[follows].size() == had);
        CHECK(out.tokens[stays] == plainly({9, 8, 7}, greedy(40)));
        CHECK(out.tokens[late] == plainly({6}, greedy(15)));
        CHECK_FALSE(server.step());
    }
}

TEST_CASE("server: a request that is told to draft less does, and its text is the same", "[engine]") {
    tiny::served parts(models(), kind::vanilla, drafter, storage::bf16,
                       {.slots = 2, .context_length = 96, .max_rows = 10});
    auto server = make_server(parts);
    request_id const first = server.submit({9, 8, 7}, greedy(40));
    request_id const second = server.submit({1, 2}, greedy(40));
    server.limit_drafts(second, 1);  // it waits
    server.limit_drafts(12345, 0);   // never was
    outputs out;
    std::map<request_id, std::size_t> most;
    for (std::size_t steps = 0; out.step(server); ++steps) {
        for (auto const& v : server.last_round().verdicts) most[v.id] = std::max(most[v.id], v.drafted);
        if (steps != 4) continue;
        CHECK(most[first] == drafter.block_size);
        server.limit_drafts(first, 0);
        most.clear();
    }
    CHECK(most[first] == 0);
    CHECK(most[second] == 1);
    CHECK(out.tokens[first] == plainly({9, 8, 7}, greedy(40)));
    CHECK(out.tokens[second] == plainly({1, 2}, greedy(40)));
}

// ---- where a request ends ------------------------------------------------------------------------------------------

TEST_CASE("server: max_new_tokens is exact", "[engine]") {
    for (kind const k : tiny::kinds) {
        tiny::served parts(models(), k, drafter, storage::bf16, {.slots = 3, .context_length = 64, .max_rows = 15});
        auto server = make_server(parts);
        auto const whole = plainly({11, 12}, greedy(14));
        outputs out;
        for (std::size_t n = 1; n <= 14; ++n) server.submit({11, 12}, greedy(n));
        out.run(server);
        for (std::size_t n = 1; n <= 14; ++n) {
            INFO(name_of(k) << ", max_new_tokens = " << n);
            CHECK(out.tokens[n] ==
                  std::vector<token_id>(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)));
        }
    }
}

TEST_CASE("server: a stop token is the last one", "[engine]") {
    for (kind const k : tiny::kinds) {
        tiny::served parts(models(), k, drafter, storage::bf16, {.slots = 1, .context_length = 64, .max_rows = 5});
        auto server = make_server(parts);
        auto const whole = plainly({21, 22, 23}, greedy(30));
        for (std::size_t i = 0; i < whole.size(); ++i) {
            INFO(name_of(k) << ", stop at token " << i);
            std::size_t const first =
                static_cast<std::size_t>(std::find(whole.begin(), whole.end(), whole[i]) - whole.begin());
            request_settings settings = greedy(30);
            request_id id = 0;
            {
                std::vector<token_id> const stops{whole[i], 66};  // need not outlive the call
                settings.stop_tokens = stops;
                id = server.submit({21, 22, 23}, settings);
            }
            outputs out;
            out.run(server);
            CHECK(out.tokens[id].size() == first + 1);
            CHECK(out.tokens[id].back() == whole[i]);
            CHECK(out.outcome.at(id) == sureleap::status::ok);
        }
    }
}

TEST_CASE("server: the end of the context can be reached", "[engine]") {
    // Blocks of drafters reach beyond the last position; none of that may matter.
    std::size_t const context = 18;
    for (kind const k : tiny::kinds) {
        tiny::served parts(models(), k, {.block_size = 6}, storage::bf16,
                           {.slots = 2, .context_length = context, .max_rows = 14});
        auto server = make_server(parts);
        support::dice roll(9);
        auto const tokens = tiny::random_tokens(roll, context, shape.vocabulary);
        outputs out;
        for (std::size_t n = 1; n < context; ++n) {  // one token of prompt at the least, one of output
            REQUIRE(server.submit({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)},
                                  greedy(context - n)) == n);
        }
        out.run(server);
        for (std::size_t n = 1; n < context; ++n) {
            INFO(name_of(k) << ", prompt of " << n);
            CHECK(out.tokens[n] ==
                  plainly({tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(n)}, greedy(context - n)));
        }
    }
}

namespace {

// A model of seed 3 whose embedding of one token is NaN.
engine::checkpoint with_broken_token(engine::model_config const& config, std::string const& name, token_id broken) {
    tiny::edited_model model(config, 3);
    std::fill_n(model[name].begin() + broken * static_cast<std::ptrdiff_t>(shape.hidden), shape.hidden,
                std::numeric_limits<double>::quiet_NaN());
    return model.build(storage::f32);
}

}  // namespace

TEST_CASE("server: a request whose target's numbers are none ends, and no other", "[engine]") {
    engine::thread_pool pool(1);
    engine::serving_limits const limits{.slots = 2, .context_length = 48, .max_rows = 10};
    std::vector<token_id> const bad_prompt{4, 40}, good_prompt{1, 2, 3};
    engine::causal_lm<float> plain(engine::make_in_memory(tiny::target_config(shape), storage::f32, 3), {}, pool,
                                   limits);
    auto const expected = tiny::decode_plainly(plain, good_prompt, greedy(12), "token");
    auto const without_drafts = tiny::decode_plainly(plain, bad_prompt, greedy(12), "token");
    token_id const emitted = without_drafts[0];
    REQUIRE(std::count(expected.begin(), expected.end(), emitted) == 0);
    REQUIRE(std::count(expected.begin(), expected.end(), 40) == 0);

    // The target's embedding of the prompt's last token; or the drafter's of the first token that the prompt gives,
    // which it meets as an anchor, in the second round, and drafts nothing there.
    for (bool const in_target : {true, false}) {
        INFO(in_target);
        engine::causal_lm<float> target(
            in_target ? with_broken_token(tiny::target_config(shape), "model.embed_tokens.weight", 40)
                      : engine::make_in_memory(tiny::target_config(shape), storage::f32, 3),
            tiny::feature_layers(shape), pool, limits);
        engine::dspark<float> model(
            in_target ? engine::make_in_memory(tiny::dspark_config(shape, drafter), storage::f32, 3)
                      : with_broken_token(tiny::dspark_config(shape, drafter), "embed_tokens.weight", emitted),
            target, pool, limits);
        auto parts = engine::make_drafter(model);
        engine::server<float> server(target, parts, &model, sureleap::fixed_schedule{}, engine::make_rule("token"),
                                     pool);
        request_id const bad = server.submit(bad_prompt, greedy(12));
        request_id const good = server.submit(good_prompt, greedy(12));
        outputs out;
        out.run(server);
        request_id const after = server.submit(good_prompt, greedy(12));  // in the slot of the bad one
        out.run(server);
        CHECK(out.outcome.at(bad) == (in_target ? sureleap::status::invalid_target : sureleap::status::ok));
        CHECK(out.tokens[bad] == (in_target ? std::vector<token_id>{} : without_drafts));
        CHECK(server.report().failures() == (in_target ? 1 : 0));
        for (request_id const id : {good, after}) {
            CHECK(out.outcome.at(id) == sureleap::status::ok);
            CHECK(out.tokens[id] == expected);
        }
    }
}

// ---- rounds --------------------------------------------------------------------------------------------------------

TEST_CASE("server: the first round is plain where the drafter feeds on features", "[engine]") {
    // The anchor of the first round is the prompt's last token, which the target did not choose; such drafters never
    // saw that in training. A lookup may begin at once.
    for (kind const k : tiny::kinds) {
        bool const reads_features = k != kind::none && k != kind::lookup;
        for (std::vector<token_id> const& prompt :
             {std::vector<token_id>{7}, std::vector<token_id>{1, 2, 3, 1, 2, 3}}) {
            INFO(name_of(k) << ", prompt of " << prompt.size());
            tiny::served parts(models(), k, drafter, storage::bf16, {.slots = 1, .context_length = 48, .max_rows = 5});
            auto server = make_server(parts);
            server.submit(prompt, greedy(20));
            while (server.events().empty()) REQUIRE(server.step());
            std::size_t const first = server.last_round().verdicts[0].drafted;
            CHECK(first == (k == kind::lookup && prompt.size() > 1 ? 3u : 0u));  // 1, 2, 3 once more
            REQUIRE(server.step());
            if (reads_features) CHECK(server.last_round().verdicts[0].drafted == drafter.block_size);
        }
    }
}

TEST_CASE("server: confidences are scaled by the temperatures that the drafter has", "[engine]") {
    // Joined with lookup a block is longer than the model's, and found tokens are none of the calibration's affair.
    for (bool const joined : {false, true}) {
        INFO((joined ? "joined" : "alone"));
        tiny::served parts(models(), kind::vanilla, drafter, storage::bf16, {1, 96, 11});
        if (joined) engine::join_lookup(parts.drafter, parts.texts, {.block_size = 10});
        std::vector<double> const temperatures = {0.5, 2.0, 1.0, 4.0};
        parts.observer->set_confidence_temperatures(temperatures);
        auto const scaling = sureleap::sequential_temperature_scaling(temperatures);
        auto server = make_server(parts);
        server.submit({5, 3, 9, 1}, {.seed = 4, .max_new_tokens = 60});
        std::size_t scaled = 0;
        while (server.step()) {
            auto const& round = server.last_round();
            if (round.size() == 0 || !round.tells_of_model(0)) continue;
            for (std::size_t k = 0; k < round.verdicts[0].drafted; ++k) {
                double const raw = round.raw_confidence(0, k);
                auto const used = static_cast<double>(round.survivals.at(0, k).confidence) / sureleap::certain;
                CHECK(used == Approx(scaling(k, raw)).margin(1e-6));
                scaled += static_cast<std::size_t>(std::abs(used - raw) > 1e-3);
            }
        }
        CHECK(scaled > 10);
    }
}

namespace {

// What the drafter drafts for a request alone at this anchor, greedily.
std::vector<token_id> draft_alone(tiny::served& alone, std::size_t position, token_id anchor) {
    request_settings const settings = greedy(100);
    sureleap::request_view const request{.id = 1,
                                         .slot = 0,
                                         .anchor = anchor,
                                         .position = position,
                                         .context = {},
                                         .seed = 1,
                                         .remaining = 100,
                                         .settings = &settings};
    std::span<sureleap::request_view const> const requests(&request, 1);
    return std::visit(
        [&](auto& d) {
            auto const drafted = support::draft<float>(d, sureleap::token_rejection<>{}, requests);
            auto const tokens = drafted.block.tokens(0);
            return std::vector<token_id>(tokens.begin(), tokens.end());
        },
        alone.drafter);
}

}  // namespace

TEST_CASE("server: a block is drafted from the features of its own past", "[engine]") {
    // Features of the wrong rows would change no token, only cost acceptance, and nobody would ever notice. So the
    // blocks of a busy server are compared with those that a drafter drafts which is told one position at a time.
    for (kind const k : {kind::vanilla, kind::rnn, kind::dflash, kind::eagle3}) {
        tiny::served parts(models(), k, drafter, storage::bf16, {.slots = 3, .context_length = 96, .max_rows = 15});
        auto server = make_server(parts);
        support::dice roll(31);
        std::vector<std::vector<token_id>> sequences;
        for (std::size_t i = 0; i < 6; ++i) {
            sequences.push_back(tiny::random_tokens(roll, 1 + roll.below(50), shape.vocabulary));
            server.submit(sequences.back(), greedy(20 + i));
        }
        std::map<std::pair<request_id, std::size_t>, std::vector<token_id>> drafted;  // at an anchor's position
        outputs out;
        while (out.step(server)) {
            auto const& block = server.last_block();
            for (std::size_t r = 0; r < server.events().size(); ++r) {
                auto const& request = block.requests()[r];
                auto const tokens = block.tokens(r);
                drafted[{request.id, request.position}].assign(tokens.begin(), tokens.end());
            }
        }
        std::size_t compared = 0;
        for (request_id id = 1; id <= sequences.size(); ++id) {
            auto& sequence = sequences[id - 1];
            std::size_t const prompt = sequence.size();
            sequence.insert(sequence.end(), out.tokens[id].begin(), out.tokens[id].end());
            tiny::served alone(models(), k, drafter, storage::bf16, {.slots = 1, .context_length = 96, .max_rows = 5});
            for (std::size_t t = 0; t + 1 < sequence.size(); ++t) {
                (void)tiny::score_one(alone.target, 0, t, sequence[t]);
                std::vector<engine::batch_row> const row{{0, static_cast<std::uint32_t>(t), 0}};
                alone.observer->observe(row, alone.target.features().row(0).data(),
                                        std::span(sequence).subspan(t + 1, 1));
                auto const found = drafted.find({id, t + 1});
                if (found == drafted.end() || t + 1 < prompt) continue;  // no round began here, or the first did
                auto expected = draft_alone(alone, t + 1, sequence[t + 1]);
                expected.resize(
                    std::min(expected.size(), sequence.size() - 1 - (t + 1) - 1));  // what may still be emitted
                INFO(name_of(k) << ", request " << id << ", anchor at " << t + 1);
                CHECK(found->second == expected);
                compared += expected.size();
            }
        }
        CHECK(compared > 100);
    }
}

TEST_CASE("server: a prompt of one token needs no prefill", "[engine]") {
    for (kind const k : tiny::kinds) {
        INFO(name_of(k));
        tiny::served parts(models(), k, drafter, storage::bf16, {.slots = 2, .context_length = 64, .max_rows = 10});
        auto server = make_server(parts);
        outputs out;
        for (token_id x = 0; x < 6; ++x) server.submit({x}, greedy(15));
        REQUIRE(out.step(server));
        CHECK(out.tokens.size() == 2);  // a token each in the first step
        out.run(server);
        CHECK(server.times().prefill == 0.0);
        for (token_id x = 0; x < 6; ++x) {
            CHECK(out.tokens[static_cast<request_id>(x) + 1] == plainly({x}, greedy(15)));
        }
    }
}

// Under token rejection a token depends on what was drafted, so other features of the past would show as well.
TEST_CASE("server: a conversation is prefilled where it goes on, and no token changes", "[engine]") {
    engine::serving_limits const limits{.slots = 1, .context_length = 200, .max_rows = 8};
    for (kind const k : {kind::none, kind::lookup, kind::vanilla, kind::eagle3}) {
        tiny::served kept(models(), k, drafter, storage::bf16, limits);
        tiny::served fresh(models(), k, drafter, storage::bf16, limits);
        auto server = make_server(kept);
        server.keep_prompts();
        std::vector<token_id> prompt{3, 1, 4, 1, 5, 9, 2, 6};
        for (token_id turn = 0; turn < 5; ++turn) {
            INFO("kind " << static_cast<int>(k) << ", turn " << turn);
            request_settings const settings{.seed = 5 + static_cast<std::uint64_t>(turn), .max_new_tokens = 20};
            auto const id = server.submit(prompt, settings);
            outputs said, expected;
            said.step(server);
            // Three tokens fit one chunk; a prompt that differs early takes many.
            CHECK(said.tokens.empty() == (turn == 3));
            said.run(server);
            auto another = make_server(fresh);
            auto const same = another.submit(prompt, settings);
            expected.run(another);
            CHECK(said.tokens[id] == expected.tokens[same]);

            prompt.insert(prompt.end(), said.tokens[id].begin(), said.tokens[id].end());
            prompt.insert(prompt.end(), {60, 61, turn});
            if (turn == 2) prompt[4] = 62;
            if (turn == 3) prompt.resize(prompt.size() - 23);  // what was said last is taken back
        }
    }
}

TEST_CASE("server: seeds make sampled requests repeatable, and distinct without one", "[engine]") {
    tiny::served parts(models(), kind::vanilla, drafter, storage::bf16,
                       {.slots = 3, .context_length = 64, .max_rows = 15});
    auto server = make_server(parts);
    outputs out;
    for (int i = 0; i < 2; ++i) server.submit({1, 2}, {.seed = 77, .max_new_tokens = 30});
    for (int i = 0; i < 2; ++i) server.submit({1, 2}, {.max_new_tokens = 30});
    out.run(server);
    CHECK(out.tokens[1] == out.tokens[2]);
    CHECK(out.tokens[3] != out.tokens[4]);
}

TEST_CASE("server: the report counts what happened, times are times", "[engine]") {
    for (kind const k : tiny::kinds) {
        INFO(name_of(k));
        tiny::served parts(models(), k, drafter, storage::bf16, {.slots = 3, .context_length = 64, .max_rows = 15});
        auto server = make_server(parts);
        support::dice roll(4);
        for (std::size_t i = 0; i < 5; ++i) {
            auto prompt = tiny::random_tokens(roll, 2 + roll.below(20), shape.vocabulary);
            server.submit(std::move(prompt), greedy(20));
        }
        std::size_t rounds = 0, drafted = 0, verified = 0, accepted = 0;
        engine::phase_times before;
        outputs out;
        while (out.step(server)) {
            if (!server.events().empty()) ++rounds;
            for (std::size_t r = 0; r < server.events().size(); ++r) {
                auto const& verdict = server.last_round().verdicts[r];
                CHECK(verdict.id == server.events()[r].id);
                CHECK(verdict.accepted <= verdict.verified);
                CHECK(verdict.verified <= verdict.drafted);
                CHECK(verdict.emitted.size() <= verdict.accepted + 1);
                drafted += verdict.drafted;
                verified += verdict.verified;
                accepted += verdict.accepted;
            }
            auto const& now = server.times();
            CHECK(now.prefill >= before.prefill);
            CHECK(now.draft >= before.draft);
            CHECK(now.head >= before.head);
            CHECK(now.verify >= before.verify);
            CHECK(now.accept >= before.accept);
            before = now;
        }
        auto const& report = server.report();
        CHECK(report.target_calls() == rounds);
        CHECK(report.rounds() == out.events);
        CHECK(report.emitted() == 5 * 20);
        CHECK(report.drafted() == drafted);
        CHECK(report.verified() == verified);
        CHECK(report.accepted() == accepted);
        CHECK(report.failures() == 0);
        CHECK(report.block_size() == server.block_size());
        CHECK(std::abs(report.tau() - 100.0 / static_cast<double>(report.rounds())) < 1e-12);
        CHECK(before.prefill > 0.0);
        CHECK(before.verify > 0.0);
        CHECK(before.accept > 0.0);
        CHECK(before.decode() == before.draft + before.head + before.verify + before.accept);
        if (k != kind::none) CHECK(drafted > 0);
    }
}
