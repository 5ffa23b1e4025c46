// SPDX-License-Identifier: MIT
//
// The training loop: the optimizer against its definition, and runs that are interrupted against those that are not.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <engine/checkpoint.hpp>
#include <engine/config.hpp>
#include <engine/thread_pool.hpp>
#include <train/causal_lm.hpp>
#include <train/documents.hpp>
#include <train/draft_model.hpp>
#include <train/draft_task.hpp>
#include <train/folder.hpp>
#include <train/initial.hpp>
#include <train/optimizer.hpp>
#include <train/run.hpp>
#include <train/target_task.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"
#include "support/tiny_models.hpp"

namespace {

namespace fs = std::filesystem;
using support::dice;
using support::error_text;
using support::says;
using sureleap::token_id;

// Texts that repeat themselves, so that there is something to learn.
train::documents make_documents(std::uint64_t seed, std::size_t vocabulary) {
    dice roll(seed);
    train::documents all;
    for (std::size_t i = 0; i < 23; ++i) {
        auto tokens = tiny::random_tokens(roll, 8 + roll.below(30), vocabulary);
        for (std::size_t t = 3; t < tokens.size(); ++t) tokens[t] = tokens[t - 3];
        all.add(tokens, roll.below(4), i % 3 == 0 ? "one" : "other");
    }
    return all;
}

tiny::shape const shape{.hidden = 16, .intermediate = 24, .heads = 2, .kv_heads = 1};

train::run_settings settings_for(fs::path const& state, std::size_t steps) {
    return {.steps = steps,
            .optimizer = {.learning_rate = 5e-3, .warm_up = 4},
            .state_file = state,
            .fingerprint = "the run of a test",
            .save_seconds = 0};
}

// Everything a run of the target needs; its weights after `run`.
struct target_run {
    explicit target_run(std::size_t threads)
        : all(make_documents(5, shape.vocabulary)),
          pool(threads),
          model(tiny::target_config(shape)),
          gradients(3, model.layout().size(), pool),
          plan(all, 150, 9),
          task(model, all, plan, gradients),
          state(model.layout().size()) {
        train::initialise(model.layout(), shape.layers, 1, std::span(state.values));
    }
    bool run(fs::path const& file, std::size_t steps, std::function<void(std::size_t)> const& before = {}) {
        return train::run(
            settings_for(file, steps), model.layout(),
            [&](std::size_t step, std::span<float const> values) {
                if (before) before(step);
                return task(step, values);
            },
            state);
    }

    train::documents all;
    engine::thread_pool pool;
    train::causal_lm<float> model;
    train::sharded_gradients gradients;
    train::batch_plan plan;
    train::target_task task;
    train::training_state state;
};

}  // namespace

TEST_CASE("AdamW is its definition", "[train]") {
    train::parameter_layout layout;
    auto const matrix = layout.matrix("w", 3, 5);
    auto const norm = layout.vector("norm", 4);
    train::optimizer_settings const settings{.learning_rate = 0.01, .warm_up = 2, .weight_decay = 0.3, .clip = 1.5};
    dice roll(3);
    INFO("seed " << roll.seed());
    train::training_state state(layout.size());
    std::vector<double> x(layout.size()), m(layout.size()), v(layout.size());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = state.values[i] = static_cast<float>(roll.bell());
    std::size_t const steps = 12;
    for (std::size_t step = 0; step < steps; ++step) {
        std::vector<float> g(layout.size());
        double const size = step % 3 == 0 ? 0.1 : 2.0;  // within the clip, and beyond
        for (float& value : g) value = static_cast<float>(size * roll.bell());
        double square = 0;
        for (float const value : g) square += static_cast<double>(value) * static_cast<double>(value);
        double const clip = std::min(1.0, settings.clip / std::sqrt(square));
        double const rate = train::learning_rate(settings, step, steps);
        for (std::size_t i = 0; i < x.size(); ++i) {
            double const gradient = clip * static_cast<double>(g[i]);
            m[i] = 0.9 * m[i] + 0.1 * gradient;
            v[i] = 0.95 * v[i] + 0.05 * gradient * gradient;
            double const t = static_cast<double>(step + 1);
            double const mean = m[i] / (1 - std::pow(0.9, t));
            double const variance = v[i] / (1 - std::pow(0.95, t));
            if (i < norm.offset) x[i] -= rate * settings.weight_decay * x[i];  // matrices only
            x[i] -= rate * mean / (std::sqrt(variance) + settings.epsilon);
        }
        double const reported = train::update(settings, steps, layout, g, state);
        CHECK(std::abs(reported - std::sqrt(square)) < 1e-5);
    }
    CHECK(state.step == steps);
    CHECK(matrix.size() + norm.size() == x.size());
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::abs(static_cast<double>(state.values[i]) - x[i]) < 1e-5);

    std::vector<float> broken(layout.size(), std::nanf(""));
    auto const before = state.values;
    CHECK(says(error_text([&] { train::update(settings, steps, layout, broken, state); }),
               {"gradients of step 12", "nan", "finite"}));
    CHECK((state.values == before));
}

TEST_CASE("the learning rate warms up linearly and falls along a cosine", "[train]") {
    train::optimizer_settings const settings{.learning_rate = 2.0, .final_share = 0.1, .warm_up = 4};
    auto const at = [&](std::size_t step) { return train::learning_rate(settings, step, 14); };
    CHECK(at(0) == 0.5);
    CHECK(at(3) == 2.0);
    CHECK(std::abs(at(8) - 1.1) < 1e-12);  // half of the way
    CHECK(std::abs(at(13) - 0.2) < 1e-12);
    for (std::size_t step = 4; step < 13; ++step) CHECK(at(step + 1) < at(step));
}

TEST_CASE("every epoch has every document once, in an order of its own", "[train]") {
    auto const all = make_documents(2, 50);
    train::batch_plan plan(all, 100, 7);
    std::vector<std::vector<std::size_t>> epochs;
    std::vector<std::vector<std::size_t>> batches;
    for (std::size_t step = 0; epochs.size() < 4; ++step) {
        auto const batch = plan.at(step);
        std::size_t tokens = 0;
        for (std::size_t const i : batch.members) tokens += all[i].tokens.size();
        CHECK(tokens <= 100);
        REQUIRE_FALSE(batch.members.empty());
        epochs.resize(std::max<std::size_t>(epochs.size(), batch.epoch + 1));
        epochs[batch.epoch].insert(epochs[batch.epoch].end(), batch.members.begin(), batch.members.end());
        batches.emplace_back(batch.members.begin(), batch.members.end());
    }
    for (std::size_t e = 0; e < 3; ++e) {
        CHECK(epochs[e].size() == all.size());
        CHECK(std::set(epochs[e].begin(), epochs[e].end()).size() == all.size());
        CHECK(epochs[e] != epochs[e + 1]);
    }
    // A plan that starts in the middle, or goes back, has the same batches.
    train::batch_plan late(all, 100, 7);
    for (std::size_t const step : {batches.size() - 1, std::size_t{2}, batches.size() / 2}) {
        auto const members = late.at(step).members;
        CHECK(std::vector(members.begin(), members.end()) == batches[step]);
    }
    CHECK(says(error_text([&] { train::batch_plan const none(train::documents{}, 100, 7); }), "no document"));
    CHECK(says(error_text([&] { train::batch_plan const small(all, 12, 7); }), {"tokens", "12", "batch"}));
}

TEST_CASE("documents survive being saved", "[train]") {
    support::scratch_folder const folder("documents");
    auto const all = make_documents(4, 50);
    all.save(folder / "own.safetensors");
    auto const again = train::documents::load(folder / "own.safetensors", 40, 50);
    REQUIRE(again.size() == all.size());
    CHECK(again.domains() == all.domains());
    for (std::size_t i = 0; i < all.size(); ++i) {
        CHECK(std::ranges::equal(again[i].tokens, all[i].tokens));
        CHECK(again[i].prompt == all[i].prompt);
        CHECK(again[i].domain == all[i].domain);
    }
    CHECK(says(error_text([&] { (void)train::documents::load(folder / "own.safetensors", 40, 9); }),
               {"own.safetensors", "tokens[", "below 9"}));
    CHECK(says(error_text([&] { (void)train::documents::load(folder / "own.safetensors", 8, 50); }),
               {"document", "expected 2 .. 8"}));
}

TEST_CASE("a run that was interrupted ends with the same weights, to the bit", "[train]") {
    support::scratch_folder const folder("run");
    std::size_t const steps = 14;
    train::catch_interrupts();
    target_run straight(1);
    auto const start = straight.state.values;
    REQUIRE(straight.run(folder / "straight", steps));
    CHECK((straight.state.values != start));

    SECTION("by a signal, and again by a crash, with other threads") {
        for (std::size_t threads = 1; threads <= 3; ++threads) {
            fs::remove(folder / "broken");
            target_run first(threads);
            CHECK_FALSE(first.run(folder / "broken", steps, [](std::size_t step) {
                if (step == 4) std::raise(SIGTERM);
            }));
            CHECK(first.state.step == 5);  // the step at hand was finished, and saved
            train::catch_interrupts();
            target_run second(threads);
            CHECK_THROWS_AS(second.run(folder / "broken", steps,
                                       [](std::size_t step) {
                                           CHECK(step >= 5);
                                           if (step == 9) throw std::runtime_error("power cut");
                                       }),
                            std::runtime_error);
            target_run third(threads);
            REQUIRE(third.run(folder / "broken", steps, [](std::size_t step) { CHECK(step >= 9); }));
            CHECK((third.state.values == straight.state.values));
            CHECK((third.state.first == straight.state.first));
            CHECK((third.state.second == straight.state.second));
        }
    }
    SECTION("the state of another run is refused") {
        target_run other(1);
        auto settings = settings_for(folder / "straight", steps);
        settings.fingerprint = "another one";
        CHECK(says(
            error_text([&] { (void)train::run(settings, other.model.layout(), std::ref(other.task), other.state); }),
            {"straight", "another run", "the run of a test", "another one"}));
    }
}

TEST_CASE("training lowers the loss of a target, and then of its drafters", "[train]") {
    support::scratch_folder const folder("losses");
    train::catch_interrupts();
    target_run target(2);
    std::vector<std::size_t> everything(target.all.size());
    for (std::size_t i = 0; i < everything.size(); ++i) everything[i] = i;
    double const before = target.task.loss_of(target.state.values, everything);
    CHECK(std::abs(before - std::log(61.0)) < 0.1);  // it starts knowing nothing
    REQUIRE(target.run(folder / "target", 60));
    double const after = target.task.loss_of(target.state.values, everything);
    INFO("loss " << before << " before, " << after << " after");
    CHECK(after < 0.8 * before);

    // What is written is what is read again, rounded to BF16.
    auto const config = tiny::target_config(shape);
    train::write_model(folder / "model", config, target.model.layout(), target.state.values);
    CHECK(engine::load_config(folder / "model") == config);
    auto const written = train::read_parameters(folder / "model", target.model.layout());
    for (std::size_t i = 0; i < written.size(); ++i) {
        REQUIRE(written[i] == static_cast<float>(sureleap::bf16(target.state.values[i])));
    }

    for (auto const head : {engine::head_kind::none, engine::head_kind::vanilla, engine::head_kind::rnn}) {
        tiny::drafter_shape drafter{.layers = 1, .head = head, .confidence = head != engine::head_kind::none};
        auto const draft_config = tiny::dspark_config(shape, drafter);
        std::span<float const> const values = written;
        train::draft_model<float> const model(draft_config, target.model.embeddings().of(values),
                                              target.model.lm_head().of(values), 64);
        std::array<train::aligned_vector<float>, 2> results;
        for (std::size_t threads = 1; threads <= 2; ++threads) {
            engine::thread_pool pool(threads);
            train::sharded_gradients gradients(2, model.layout().size(), pool);
            train::batch_plan plan(target.all, 150, 9);
            train::draft_task<train::draft_model<float>, train::draft_tape<float>> task(
                model, target.model, values, draft_config.draft->target_layer_ids, target.all, plan, gradients,
                {.losses = {.confidence = drafter.confidence ? 1.0 : 0.0}, .anchors_per_token = 0.3});
            train::training_state state(model.layout().size());
            train::initialise(model.layout(), 1, 1, std::span(state.values));
            std::vector<double> losses;
            std::string const file = "draft" + std::to_string(static_cast<int>(head)) + std::to_string(threads);
            REQUIRE(train::run(
                settings_for(folder / file.c_str(), 60), model.layout(),
                [&](std::size_t step, std::span<float const> parameters) {
                    auto result = task(step, parameters);
                    REQUIRE(says(result.losses, "loss "));
                    losses.push_back(std::stod(result.losses.substr(5)));
                    return result;
                },
                state));
            INFO("loss " << losses.front() << " before, " << losses.back() << " after");
            CHECK(losses.back() < 0.9 * losses.front());
            results[threads - 1] = state.values;
        }
        CHECK((results[0] == results[1]));  // threads change nothing
    }
}
