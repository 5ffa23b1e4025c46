// SPDX-License-Identifier: MIT
//
// Recorded texts: what is read back is what the target computes, interrupted recordings and trainings end as others do,
// and a drafter that was trained on them works in the engine.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <Eigen/Core>  // of train/gemm.hpp; said here, so that builds without Eigen leave this test out

#include <engine/causal_lm.hpp>
#include <engine/checkpoint.hpp>
#include <engine/config.hpp>
#include <engine/draft_model.hpp>
#include <engine/layout.hpp>
#include <engine/server.hpp>
#include <engine/synthetic.hpp>
#include <sureleap/ext/safetensors_writer.hpp>
#include <train/bpe.hpp>
#include <train/draft_vocabulary.hpp>
#include <train/folder.hpp>
#include <train/initial.hpp>
#include <train/own_texts.hpp>
#include <train/recorded_task.hpp>
#include <train/recorded_texts.hpp>
#include <train/run.hpp>
#include <train/target_weights.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/tiny_models.hpp"

namespace {

namespace fs = std::filesystem;
using support::error_text;
using support::says;
using sureleap::token_id;

tiny::shape const shape{.layers = 3, .hidden = 24, .intermediate = 32, .heads = 4, .kv_heads = 2, .vocabulary = 67};
std::vector<int> const layers = tiny::feature_layers(shape);
std::size_t const width = layers.size() * shape.hidden;

// Opinionated, so that drafters have something to foresee.
tiny::agreeing_models const& models() {
    static tiny::agreeing_models const all(shape, 29);
    return all;
}

struct target_of {
    explicit target_of(std::size_t slots, std::size_t threads = 1)
        : pool(threads), model(models().target(engine::storage::f32), layers, pool, {slots, 64, 16}) {}
    engine::thread_pool pool;
    engine::causal_lm<float> model;
};

train::documents make_prompts() {
    support::dice roll(7);
    train::documents all;
    for (std::size_t i = 0; i < 20; ++i) {
        auto const tokens = tiny::random_tokens(roll, 1 + roll.below(30), shape.vocabulary);
        all.add(tokens, tokens.size(), i % 3 == 0 ? "one" : "other");
    }
    return all;
}

train::own_texts_settings settings_for(sureleap::transform const& sampling) {
    return {.texts = 26, .longest = 48, .max_new_tokens = 24, .seed = 5, .sampling = sampling, .stop_tokens = {3, 40}};
}

train::recorder recorder_for(fs::path const& folder) {
    return {folder, {.feature_layers = layers, .width = width, .written_by = "a test", .shard_tokens = 200}};
}

// Records until `last` texts have been finished, or all; false if it was interrupted.
bool record(fs::path const& folder, train::own_texts_settings const& settings, std::size_t slots, std::size_t threads,
            std::size_t last = 1000) {
    target_of target(slots, threads);
    auto out = recorder_for(folder);
    train::catch_interrupts();
    std::size_t finished = 0;
    bool const complete = train::write_own_texts(
        target.model, make_prompts(), settings, target.pool,
        [&](std::size_t number) { return out.written().contains(number); },
        [&](train::recorded_text text) {
            out.add(std::move(text));
            if (++finished == last) std::raise(SIGTERM);
        });
    out.flush();
    train::catch_interrupts();
    return complete;
}

std::vector<float> numbers(sureleap::matrix_view<sureleap::half> features) {
    std::vector<float> out;
    for (std::size_t i = 0; i < features.rows; ++i) {
        for (auto const x : features.row(i)) out.push_back(static_cast<float>(x));
    }
    return out;
}

void check_equal(train::recorded_texts const& a, train::recorded_texts const& b) {
    REQUIRE(a.texts().size() == b.texts().size());
    for (std::size_t i = 0; i < a.texts().size(); ++i) {
        auto const x = a.texts()[i];
        auto const y = b.texts()[i];
        REQUIRE(std::ranges::equal(x.tokens, y.tokens));
        CHECK(x.prompt == y.prompt);
        CHECK(x.domain == y.domain);
        CHECK(numbers(a.features(i)) == numbers(b.features(i)));
        for (std::size_t t = x.prompt; t < x.tokens.size(); ++t) {
            CHECK(std::ranges::equal(a.law_of(i, t).tokens, b.law_of(i, t).tokens));
            CHECK(std::ranges::equal(a.law_of(i, t).shares, b.law_of(i, t).shares));
        }
    }
}

}  // namespace

TEST_CASE("a recording has what the target computes", "[train]") {
    support::scratch_folder const folder("recording");
    sureleap::transform const sampling = GENERATE(sureleap::transform{}, sureleap::transform{.temperature = 0.0},
                                                  sureleap::transform{.temperature = 0.7, .top_k = 20, .top_p = 0.8},
                                                  sureleap::transform{.temperature = 1.3, .top_p = 0.95});
    INFO("temperature " << sampling.temperature << " top-p " << sampling.top_p << " top-k " << sampling.top_k);
    auto const settings = settings_for(sampling);
    REQUIRE(record(folder / "texts", settings, 3, 2));
    train::recorded_texts const read(folder / "texts", shape.vocabulary);
    CHECK(read.feature_layers() == layers);
    CHECK(read.texts().size() == settings.texts);

    auto const prompts = make_prompts();
    auto const order = train::shuffled_prompts(prompts.size(), settings.seed);
    target_of target(1);
    std::size_t ended_by_token = 0;
    for (std::size_t i = 0; i < read.texts().size(); ++i) {
        auto const text = read.texts()[i];
        CAPTURE(i, text.tokens.size(), text.prompt);
        auto const prompt = prompts[order[i % prompts.size()]];
        CHECK(std::ranges::equal(text.tokens.first(text.prompt), prompt.tokens));
        CHECK(text.domain == prompt.domain);
        auto const features = read.features(i);
        REQUIRE(features.rows + 1 == text.tokens.size());
        for (std::size_t t = 0; t < features.rows; ++t) {
            auto const logits = tiny::score_one(target.model, 0, t, text.tokens[t]);
            std::vector<float> expected;
            for (float const x : target.model.features().row(0)) {
                expected.push_back(static_cast<float>(sureleap::half(x)));
            }
            CHECK(numbers(sureleap::row_range(features, t, 1)) == expected);
            if (t + 1 < text.prompt) continue;

            std::vector<token_id> scratch_ids(logits.size());
            sureleap::distribution<float> const p({logits, {}, {}}, sampling, scratch_ids);
            sureleap::draw_key const key{settings.seed + i, t, 0, sureleap::purpose::bonus};
            CHECK(sureleap::philox_randomness{}.categorical(key, p) == text.tokens[t + 1]);
            auto const law = read.law_of(i, t + 1);
            std::set<token_id> seen;
            double sum = 0;
            double smallest = 1;
            for (std::size_t j = 0; j < law.tokens.size() && law.shares[j] > 0.0f; ++j) {
                double const share = static_cast<double>(law.shares[j]);
                CHECK(seen.insert(law.tokens[j]).second);
                CHECK(std::abs(share - p.probability(law.tokens[j])) < 1e-6);
                CHECK(share <= smallest);
                smallest = share;
                sum += share;
            }
            CHECK(sum < 1 + 1e-6);
            double largest_left = 0;
            for (token_id v = 0; v < static_cast<token_id>(shape.vocabulary); ++v) {
                if (!seen.contains(v)) largest_left = std::max(largest_left, p.probability(v));
            }
            CHECK(largest_left <= (seen.size() == train::best_of_law ? smallest + 1e-6 : 1e-6));
        }
        bool const stopped = text.tokens.back() == 3 || text.tokens.back() == 40;
        ended_by_token += stopped ? 1 : 0;
        CHECK((stopped || text.tokens.size() == std::min<std::size_t>(48, text.prompt + 24)));
    }
    CHECK(ended_by_token < read.texts().size());
}

TEST_CASE("a recording that was interrupted has the same texts in the end", "[train]") {
    support::scratch_folder const folder("interrupted_recording");
    auto const settings = settings_for({.temperature = 0.8});
    REQUIRE(record(folder / "straight", settings, 4, 1));
    CHECK_FALSE(record(folder / "broken", settings, 1, 1, 9));
    std::size_t const before = train::recorded_texts(folder / "broken", shape.vocabulary).texts().size();
    CHECK(before == 9);
    CHECK_FALSE(record(folder / "broken", settings, 3, 2, 5));
    REQUIRE(record(folder / "broken", settings, 5, 2));
    check_equal(train::recorded_texts(folder / "straight", shape.vocabulary),
                train::recorded_texts(folder / "broken", shape.vocabulary));
    // Nothing is left to do.
    REQUIRE(record(folder / "broken", settings, 2, 1, 1));

    CHECK(says(error_text([&] {
                   train::recorder const other(folder / "broken",
                                               {.feature_layers = {0}, .width = width, .written_by = "a test"});
               }),
               {"00000.safetensors", "another recording", "recorded: -1,0,1", "expected: 0"}));
    CHECK(says(error_text([&] {
                   train::recorder const other(folder / "broken",
                                               {.feature_layers = layers, .width = width, .written_by = "others"});
               }),
               {"another recording", "recorded: a test", "expected: others"}));
    // Several are one, folder by folder.
    std::vector<fs::path> const twice(2, folder / "broken");
    train::recorded_texts const one(folder / "broken", shape.vocabulary);
    train::recorded_texts const two(twice, shape.vocabulary);
    REQUIRE(two.texts().size() == 2 * one.texts().size());
    for (std::size_t i = 0; i < two.texts().size(); ++i) {
        std::size_t const same = i % one.texts().size();
        CHECK(std::ranges::equal(two.texts()[i].tokens, one.texts()[same].tokens));
        CHECK(numbers(two.features(i)) == numbers(one.features(same)));
    }
    CHECK(says(error_text([&] { train::recorded_texts const none(folder / "nowhere", 67); }), "no 00000.safetensors"));
    CHECK(says(error_text([&] { train::recorded_texts const few(folder / "broken", 5); }), {"tokens[", "below 5"}));
}

TEST_CASE("prompts are read as plain text or as turns of a conversation", "[train]") {
    support::scratch_folder const folder("prompts");
    std::vector<std::string> const texts{"ab", "ab"};
    std::string const json =
        train::train_bpe(texts, {.vocabulary = 259, .special = {"<|im_start|>", "<|im_end|>"}}).json;
    auto const tokens = engine::tokenizer::parse(json, "a test");
    std::ofstream(folder / "lines") << R"({"domain": "plain", "prompt": "abba", "completion": "a"})" << "\n\n"
                                    << R"({"domain": "chat", "messages": [{"role": "user", "content": "ab"}]})" << "\n";
    auto const all = train::read_prompts(folder / "lines", tokens, {}, {{"plain", 2}});
    REQUIRE(all.size() == 3);
    for (std::size_t i = 0; i < 2; ++i) {
        CHECK(std::ranges::equal(all[i].tokens, tokens.encode("abba")));
        CHECK(all[i].prompt == 3);
        CHECK(all[i].domain == "plain");
    }
    CHECK(all[2].domain == "chat");
    auto const expected = engine::chat_prompt(tokens, "ab");
    CHECK(expected.size() > 4);
    CHECK(std::ranges::equal(all[2].tokens, expected));

    auto const error_of = [&](char const* line) {
        std::ofstream(folder / "bad") << "{\"domain\": \"x\", \"prompt\": \"a\"}\n" << line << "\n";
        return error_text([&] { (void)train::read_prompts(folder / "bad", tokens, {}); });
    };
    CHECK(says(error_of(R"({"domain": "x"})"), {"bad:2", "'prompt'", "missing"}));
    CHECK(says(error_of(R"({"prompt": "a"})"), {"bad:2", "'domain'", "missing"}));
    CHECK(says(error_of(R"({"domain": "x", "messages": [{"role": "judge", "content": "a"}]})"),
               {"bad:2", "'messages[0].role'", "judge", "system, user or assistant"}));
    CHECK(says(error_of(R"({"domain": "x", "messages": [{"role": "assistant", "content": "a"}]})"),
               {"'messages'", "of which the user has the last"}));
    CHECK(says(error_of("7"), {"bad:2", "JSON object"}));
}

TEST_CASE("the draft vocabulary is what the target writes most", "[train]") {
    support::scratch_folder const folder("vocabulary");
    auto out = recorder_for(folder / "texts");
    // Text 0 is held back. Token 5 is likelier than 9 by the laws, though 9 was drawn.
    for (std::size_t n = 0; n < 2; ++n) {
        train::recorded_text text{.number = n, .domain = "d", .prompt = 1, .tokens = {1, 9, 7, 5}};
        text.features.resize(3 * width);
        text.best_tokens.resize(3 * train::best_of_law);
        text.best_shares.resize(3 * train::best_of_law);
        for (std::size_t t = 0; t < 3; ++t) {
            std::size_t const at = t * train::best_of_law;
            text.best_tokens[at] = 5;
            text.best_shares[at] = 0.6f;
            text.best_tokens[at + 1] = 9;
            text.best_shares[at + 1] = 0.3f;
        }
        out.add(std::move(text));
    }
    out.flush();
    train::recorded_texts const read(folder / "texts", 20);
    // Counts: 5 has 1.8, 7 (outside of its law) 1, and 9 0.9.
    CHECK(train::choose_vocabulary(read, 20, 2).tokens == std::vector<token_id>{5, 7});
    auto const one = train::choose_vocabulary(read, 20, 1);
    CHECK(one.tokens == std::vector<token_id>{5});
    CHECK(one.held_back == 3);
    CHECK(std::abs(one.coverage - 1.0 / 3) < 1e-12);
    CHECK(says(error_text([&] { (void)train::choose_vocabulary(read, 20, 4); }), {"4 tokens", "expected 1 .. 3"}));
    CHECK(says(error_text([&] { (void)train::choose_vocabulary(read, 20, 0); }), "0 tokens"));

    std::vector<token_id> const some{2, 5, 11};
    train::write_vocabulary(folder / "some", some);
    CHECK(train::read_vocabulary(folder / "some", 12) == some);
    CHECK(
        says(error_text([&] { (void)train::read_vocabulary(folder / "some", 11); }), {"'d2t'", "11 at 2", "6 .. 10"}));
    train::write_vocabulary(folder / "equal", std::vector<token_id>{2, 2});
    CHECK(says(error_text([&] { (void)train::read_vocabulary(folder / "equal", 12); }), {"2 at 1", "here 3 .. 11"}));
}

TEST_CASE("the tokens that a drafter drafts are read from its file", "[train]") {
    support::scratch_folder const folder("d2t");
    auto config = tiny::dspark_config(shape, {});
    config.draft->vocabulary = 3;
    auto const read = [&](char const* name, auto const& ids) {
        using sureleap::safetensors::dtype_of;
        using stored = typename std::remove_cvref_t<decltype(ids)>::value_type;
        sureleap::safetensors::writer out(folder / "file", {{name, dtype_of<stored>, {ids.size()}}});
        out.append(std::as_bytes(std::span(ids)));
        out.finish();
        std::vector<sureleap::safetensors::file> files;
        files.push_back(sureleap::safetensors::file::read(folder / "file"));
        return engine::drafted_tokens(engine::checkpoint::from_files(config, std::move(files)));
    };
    std::vector<token_id> const expected{0, 7, 66};
    CHECK(read("d2t", std::vector<std::int32_t>{0, 7, 66}) == expected);
    CHECK(read("d2t", std::vector<std::int64_t>{0, 6, 64}) == expected);  // offsets, as others write them
    auto const error_of = [&](char const* name, auto const& ids) { return error_text([&] { (void)read(name, ids); }); };
    CHECK(says(error_of("t2d", std::vector<std::int32_t>{0, 7, 66}), {"no tensor 'd2t'"}));
    CHECK(says(error_of("d2t", std::vector<std::int32_t>{0, 7}), {"'d2t' is [2]", "expected [3]"}));
    CHECK(says(error_of("d2t", std::vector<float>{0, 7, 66}), {"'d2t' is F32", "expected I32 or I64"}));
    CHECK(says(error_of("d2t", std::vector<std::int32_t>{0, 7, 67}), {"has 67 at 2", "here 8 .. 66"}));
    CHECK(says(error_of("d2t", std::vector<std::int32_t>{0, 7, 7}), {"has 7 at 2", "here 8 .. 66"}));
    CHECK(says(error_of("d2t", std::vector<std::int32_t>{-1, 7, 8}), {"has -1 at 0", "here 0 .. 66"}));

    // Without the field nothing is looked for.
    config.draft->vocabulary = 0;
    CHECK(read("d2t", std::vector<std::int32_t>{9, 7, 5}).empty());
    config.draft->vocabulary = 3;
    std::string const json = engine::config_json(config);
    CHECK(engine::parse_config(json, "a test") == config);
    std::string wrong = json;
    wrong.replace(wrong.find("\"draft_vocab_size\": 3"), 21, "\"draft_vocab_size\": 68");
    CHECK(says(error_text([&] { (void)engine::parse_config(wrong, "a test"); }),
               {"'draft_vocab_size' is 68", "1 .. 67"}));
}

TEST_CASE("training on recorded texts: resumed as uninterrupted, and the drafter decodes", "[train]") {
    support::scratch_folder const folder("recorded_training");
    auto settings = settings_for({.temperature = 0.3});
    settings.texts = 60;
    REQUIRE(record(folder / "texts", settings, 8, 2));
    train::recorded_texts const recorded(folder / "texts", shape.vocabulary);
    auto const drafted = train::choose_vocabulary(recorded, shape.vocabulary, 20).tokens;
    sureleap::vocabulary_map const map(drafted, shape.vocabulary);

    tiny::drafter_shape const drafter{.block_size = 4, .layers = 1, .output = tiny::lm_head::shared};
    auto config = tiny::dspark_config(shape, drafter);
    config.draft->vocabulary = drafted.size();
    config.transformer.intermediate_size = shape.intermediate;  // as the layer that it starts from
    engine::checkpoint const target = models().target(engine::storage::f32);
    train::frozen_tables const tables(target, drafted);
    train::draft_model<float> const model(config, tables.embeddings.view(), tables.lm_head.view(), 64);

    struct outcome {
        train::training_state state;
        std::vector<double> losses;
        std::vector<std::string> visits;
    };
    std::size_t const steps = 24;
    auto const train_it = [&](char const* file, std::size_t threads, std::size_t stop_after) {
        engine::thread_pool pool(threads);
        train::sharded_gradients gradients(2, model.layout().size(), pool);
        train::batch_plan plan(recorded.texts(), 400, 9);
        train::recorded_task task(model, recorded, &map, plan, gradients, {.anchors_per_token = 0.5});
        outcome out{train::training_state(model.layout().size()), {}, {}};
        train::initialise(model.layout(), 1, 1, std::span(out.state.values));
        train::start_from_layers(target, 1, config.draft->target_layer_ids, model.layout(),
                                 std::span(out.state.values));
        train::run_settings const run{
            .steps = steps,
            .optimizer = {.learning_rate = 5e-3, .warm_up = 4},
            .state_file = folder / file,
            .fingerprint = "a test",
            .unit = "anchors",
            .pool = threads > 1 ? &pool : nullptr,
            .visit_steps = 10,
            .visit = [&](train::training_state const& now) {
                out.visits.push_back(std::to_string(now.step) + " " + task.validate(recorded, now.values));
            }};
        train::catch_interrupts();
        bool const done = train::run(
            run, model.layout(),
            [&](std::size_t step, std::span<float const> values) {
                auto result = task(step, values);
                REQUIRE(says(result.losses, "loss "));
                out.losses.push_back(std::stod(result.losses.substr(5)));
                if (step + 1 == stop_after) std::raise(SIGTERM);
                return result;
            },
            out.state);
        CHECK(done == (stop_after == 0));
        train::catch_interrupts();
        return out;
    };

    auto const straight = train_it("straight", 1, 0);
    INFO("loss " << straight.losses.front() << " before, " << straight.losses.back() << " after");
    CHECK(straight.losses.back() < 0.9 * straight.losses.front());
    REQUIRE(straight.visits.size() == 3);
    CHECK(straight.visits[0].starts_with("10 "));
    CHECK(straight.visits[2].starts_with("24 "));
    CHECK(says(straight.visits[2], {"one ", "other "}));
    (void)train_it("broken", 2, 7);
    (void)train_it("broken", 1, 15);
    auto const resumed = train_it("broken", 2, 0);
    CHECK((resumed.state.values == straight.state.values));
    CHECK((resumed.state.second == straight.state.second));
    CHECK(resumed.visits.back() == straight.visits.back());

    // Another drafter goes on from it: as it is in BF16, or with a second layer that changes nothing at first.
    train::write_model(folder / "earlier", config, model.layout(), straight.state.values, drafted);
    engine::checkpoint const earlier(folder / "earlier");
    engine::thread_pool one_thread(1);
    auto const tau_from_earlier = [&](std::size_t depth) {
        auto deeper = config;
        deeper.transformer.layers = depth;
        train::draft_model<float> const next(deeper, tables.embeddings.view(), tables.lm_head.view(), 64);
        std::vector<float> values(next.layout().size());
        train::initialise(next.layout(), depth, 2, std::span(values));
        train::start_from_drafter<float>(earlier, drafted, next.layout(), values);
        train::sharded_gradients gradients(1, next.layout().size(), one_thread);
        train::batch_plan plan(recorded.texts(), 400, 9);
        train::recorded_task task(next, recorded, &map, plan, gradients, {.anchors_per_token = 0.5});
        return task.validate(recorded, values);
    };
    CHECK(tau_from_earlier(2) == tau_from_earlier(1));
    std::vector<float> values(model.layout().size());
    auto const others = train::choose_vocabulary(recorded, shape.vocabulary, 19).tokens;
    CHECK(says(error_text([&] { train::start_from_drafter<float>(earlier, others, model.layout(), values); }),
               {"earlier: drafts 20 tokens", "--vocabulary (19)"}));

    // In the engine: the same law of a block as in training, and greedy decoding writes what it writes without a
    // drafter.
    train::write_model(folder / "drafter", config, model.layout(), straight.state.values, drafted);
    engine::thread_pool pool(1);
    engine::causal_lm<float> served(models().target(engine::storage::f32), layers, pool, {2, 64, 16});
    engine::dspark<float> dspark(engine::checkpoint(folder / "drafter"), served, pool, served.limits());
    CHECK(dspark.vocabulary() == drafted.size());
    REQUIRE(dspark.map() != nullptr);
    CHECK(dspark.map()->to_target(3) == drafted[3]);
    auto made = engine::make_drafter(dspark);
    engine::server<float> server(served, made, &dspark, sureleap::fixed_schedule{}, engine::make_rule("token"), pool);
    std::vector<token_id> const prompt{8, 1, 30};
    sureleap::request_settings const greedy{.temperature = 0.0, .max_new_tokens = 40};
    server.submit(prompt, greedy);
    std::vector<token_id> written;
    std::size_t rounds = 0;
    while (server.step()) {
        for (auto const& event : server.events())
            written.insert(written.end(), event.tokens.begin(), event.tokens.end());
        ++rounds;
    }
    engine::causal_lm<float> plain(models().target(engine::storage::f32), {}, pool, {1, 64, 16});
    CHECK(written == tiny::decode_plainly(plain, prompt, greedy, "token"));
    CHECK(rounds < 38);  // some drafts were right
}

TEST_CASE("training Eagle3 on recorded texts: the loss falls, and the drafter of some tokens decodes", "[train]") {
    support::scratch_folder const folder("recorded_eagle3");
    auto settings = settings_for({.temperature = 0.3});
    settings.texts = 60;
    REQUIRE(record(folder / "texts", settings, 8, 2));
    train::recorded_texts const recorded(folder / "texts", shape.vocabulary);
    auto const drafted = train::choose_vocabulary(recorded, shape.vocabulary, 20).tokens;
    sureleap::vocabulary_map const map(drafted, shape.vocabulary);
    auto config = tiny::eagle3_config(shape, {.block_size = 4, .layers = 1, .output = tiny::lm_head::shared});
    config.draft->vocabulary = drafted.size();
    engine::checkpoint const target = models().target(engine::storage::f32);
    train::frozen_tables const tables(target, drafted);
    train::eagle3_model<float> const model(config, tables.embeddings.view(), tables.lm_head.view(), 64);

    engine::thread_pool pool(2);
    train::sharded_gradients gradients(2, model.layout().size(), pool);
    train::batch_plan plan(recorded.texts(), 400, 9);
    train::recorded_task task(model, recorded, &map, plan, gradients,
                              {.losses = train::eagle3_losses(), .anchors_per_token = 0.5});
    train::training_state state(model.layout().size());
    train::initialise(model.layout(), 1, 1, std::span(state.values));
    train::start_from_layers(target, 1, config.draft->target_layer_ids, model.layout(), std::span(state.values));
    std::vector<double> losses;
    REQUIRE(train::run(
        {.steps = 80,
         .optimizer = {.learning_rate = 5e-3, .warm_up = 4},
         .state_file = folder / "state",
         .fingerprint = "a test"},
        model.layout(),
        [&](std::size_t step, std::span<float const> values) {
            auto result = task(step, values);
            losses.push_back(std::stod(result.losses.substr(5)));
            return result;
        },
        state));
    INFO("loss " << losses.front() << " before, " << losses.back() << " after");
    CHECK(losses.back() < 0.9 * losses.front());
    CHECK(says(task.validate(recorded, state.values), {"one ", "other "}));

    train::write_model(folder / "drafter", config, model.layout(), state.values, drafted);
    engine::causal_lm<float> served(models().target(engine::storage::f32), layers, pool, {2, 64, 16});
    engine::eagle3<float> eagle3(engine::checkpoint(folder / "drafter"), served, pool, served.limits());
    CHECK(eagle3.vocabulary() == drafted.size());
    REQUIRE(eagle3.map() != nullptr);

    // The first draft behind each of some tokens of a text is what training made of it.
    auto const text = recorded.texts()[0].tokens;
    std::vector<train::draft_block> blocks;
    for (std::size_t anchor = 1; anchor + 5 < text.size(); ++anchor) blocks.push_back({{0, anchor}, 4});
    REQUIRE(blocks.size() > 10);
    train::matrix<float> features(text.size() - 1, width);
    for (std::size_t i = 0; i < features.rows(); ++i) {
        auto const from = recorded.features(0).row(i);
        std::ranges::transform(from, features.span().row(i).begin(), [](auto x) { return sureleap::load(x); });
    }
    std::vector<std::size_t> const no_laws(4 * blocks.size() + 1);
    std::vector<token_id> const no_labels(4 * blocks.size(), sureleap::no_token);
    train::eagle3_tape<float> tape;
    std::vector<float> stored(state.values.size());
    model.layout().load(engine::checkpoint(folder / "drafter"), std::span(stored));
    model.forward(stored, {features.view(), {}, blocks, text.subspan(1), {no_laws, {}, {}}, no_labels}, tape);
    train::matrix<float> logits(tape.hidden.rows(), drafted.size());
    model.logits(tape, logits.span());
    for (std::size_t anchor = 1; anchor <= blocks.size(); ++anchor) {
        engine::batch_row const row{0, static_cast<std::uint32_t>(anchor - 1), 0};
        eagle3.observe({&row, 1}, features.view().row(anchor - 1).data(), text.subspan(anchor, 1));
        sureleap::request_view const request{.id = 1, .slot = 0, .anchor = text[anchor], .position = anchor};
        auto const got = eagle3.forward({&request, 1}, {}).values.row(0);
        auto const expected = logits.view().row(4 * (anchor - 1));
        INFO("anchor " << anchor);
        REQUIRE(got.size() == expected.size());
        for (std::size_t v = 0; v < got.size(); ++v) REQUIRE(got[v] == Approx(expected[v]).margin(2e-3));
    }

    auto made = engine::make_drafter(eagle3);
    engine::server<float> server(served, made, &eagle3, sureleap::fixed_schedule{}, engine::make_rule("token"), pool);
    sureleap::request_settings const greedy{.temperature = 0.0, .max_new_tokens = 40};
    std::vector<std::vector<token_id>> const prompts{{8, 1, 30}, {5}, {3, 9}, {12, 4, 40, 2}};
    for (auto const& prompt : prompts) server.submit(prompt, greedy);
    std::map<sureleap::request_id, std::vector<token_id>> written;
    while (server.step()) {
        for (auto const& event : server.events()) {
            auto& text_of = written[event.id];
            text_of.insert(text_of.end(), event.tokens.begin(), event.tokens.end());
        }
    }
    engine::causal_lm<float> plain(models().target(engine::storage::f32), {}, pool, {1, 64, 16});
    for (std::size_t i = 0; i < prompts.size(); ++i) {
        CHECK(written[i + 1] == tiny::decode_plainly(plain, prompts[i], greedy, "token"));
    }
    CHECK(server.report().accepted() > 4);
}
