// SPDX-License-Identifier: MIT
//
// A real language model, SmolLM2-135M-Instruct as a GGUF file (examples/models/fetch.sh). SURELEAP_SMOLLM2_GGUF names it;
// without, the tests are skipped. Speculative decoding must give the tokens of plain decoding, greedy and keyed, alone and
// in batches, with 4-bit weights whose activations are rounded row by row.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <engine/causal_lm.hpp>
#include <engine/chat.hpp>
#include <engine/model_files.hpp>
#include <engine/parts.hpp>
#include <engine/server.hpp>
#include <engine/thread_pool.hpp>

#include "support/catch.hpp"

namespace {

using engine::token_id;
using texts = std::vector<std::vector<token_id>>;

char const* const prompts[] = {
    "Write a Python function that checks whether a number is prime.",
    "What is the capital of France? Repeat the question first.",
    "List five fruits, then list them again in reverse order.",
    "A train has 3 wagons with 24 seats each. 15 seats are taken. How many are free?",
    "Write a short poem about rain.",
    "Translate to French: good morning, good evening, good night.",
    "Explain in two sentences what a hash table is.",
    "Count from 1 to 20, separated by commas.",
};

struct real_model {
    engine::thread_pool pool{2};
    engine::tokenizer tokens;
    std::string system;
    std::vector<token_id> ends;
    engine::causal_lm<float> target;

    explicit real_model(std::string const& file)
        : tokens(*engine::tokenizer_of(file)),
          system(engine::chat_template_of(file).default_system),
          ends(engine::config_of(file).stop_tokens),
          target(engine::checkpoint_of(file), {}, pool, {.slots = 8, .context_length = 192, .max_rows = 64}) {}

    /// What all prompts are answered with, so many at once.
    texts answers(engine::any_drafter<float> drafter, char const* rule, double temperature, std::size_t at_once) {
        texts all(std::size(prompts));
        for (std::size_t first = 0; first < all.size(); first += at_once) {
            engine::server<float> server(target, drafter, nullptr, sureleap::fixed_schedule{}, engine::make_rule(rule),
                                         pool);
            std::map<sureleap::request_id, std::size_t> of;
            for (std::size_t i = first; i < first + at_once; ++i) {
                sureleap::request_settings settings{.max_new_tokens = 32};
                settings.temperature = temperature;
                settings.top_p = temperature > 0 ? 0.9 : 1.0;
                settings.seed = 100 + i;
                settings.stop_tokens = ends;
                of[server.submit(engine::chat_prompt(tokens, prompts[i], system), settings)] = i;
            }
            while (server.step()) {
                for (auto const& event : server.events()) {
                    REQUIRE(event.outcome == sureleap::status::ok);
                    auto& text = all[of.at(event.id)];
                    text.insert(text.end(), event.tokens.begin(), event.tokens.end());
                }
            }
            accepted += server.report().accepted();
        }
        return all;
    }
    std::size_t accepted = 0;
};

}  // namespace

TEST_CASE("real model: speculative decoding gives the tokens of plain decoding", "[engine]") {
    char const* const file = std::getenv("SURELEAP_SMOLLM2_GGUF");
    if (file == nullptr || *file == '\0') {
        std::puts("skipped: SURELEAP_SMOLLM2_GGUF names no model");
        return;
    }
    real_model model(file);
    engine::any_drafter<float> const plain = engine::no_drafter<float>(model.target.vocabulary());
    engine::any_drafter<float> const lookup =
        sureleap::lookup({.block_size = 6, .target_vocabulary = model.target.vocabulary()});
    struct choice {
        char const* rule;
        double temperature;
    };
    for (choice const& c : {choice{"match", 0.0}, choice{"coupled", 0.2}, choice{"match", 1.0}}) {
        CAPTURE(c.rule, c.temperature);
        texts const expected = model.answers(plain, c.rule, c.temperature, 1);
        model.accepted = 0;
        CHECK(model.answers(lookup, c.rule, c.temperature, 1) == expected);
        CHECK(model.answers(lookup, c.rule, c.temperature, 8) == expected);
        CHECK(model.accepted > 0);
        if (c.temperature == 0.0) CHECK(model.tokens.decode(expected[1]).find("Paris") != std::string::npos);
    }
}
