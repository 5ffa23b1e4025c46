// SPDX-License-Identifier: MIT
//
// Two contexts in two threads share a model and nothing else: each writes the texts that it writes alone. Meant for the
// thread sanitizer too. A second.
#include "support/catch.hpp"

#include <array>
#include <cstddef>
#include <thread>
#include <vector>

#include <sureleap/ext/llama.hpp>
#include <sureleap/sureleap.hpp>

#include "llama/support/plain_text.hpp"
#include "llama/support/tiny_models.hpp"

using namespace sureleap;
using namespace support;

TEST_CASE("two threads decode in two contexts of one model") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    tiny_model const near = make_tiny(tiny_arch::llama, 7, {.disturbance = 0.3F});
    std::array<std::vector<std::vector<token_id>>, 2> texts;
    auto const work = [&](std::size_t t) {
        tiny_context const context = make_context(model);
        tiny_context const draft_context = make_context(near);
        llama_draft draft{draft_context.get(), llama_model_get_vocab(model.get()), {.max_requests = 2}};
        autoregressive drafter{draft, top1_confidence{}, draft.options()};
        llama_target target{context.get(), drafter, {.max_requests = 2}};
        decoder dec{target, drafter, fixed_schedule{}, keyed_coupling{}, {.max_requests = 2}};
        for (std::size_t i = 0; i < 8; ++i) {
            auto const id = dec.submit(repeating_prompt(i, 10 + i, 4),
                                       {.temperature = 0.6, .seed = i + 10 * t, .max_new_tokens = 30});
            while (dec.step()) {
            }
            auto const text = dec.generated(id);
            texts[t].emplace_back(text.begin(), text.end());
        }
    };
    {
        std::thread first(work, 0);
        std::thread second(work, 1);
        first.join();
        second.join();
    }
    for (std::size_t t = 0; t < 2; ++t) {
        for (std::size_t i = 0; i < 8; ++i) {
            CHECK(texts[t][i] == plain_text(model, repeating_prompt(i, 10 + i, 4),
                                            {.temperature = 0.6, .seed = i + 10 * t, .max_new_tokens = 30}));
        }
    }
}
