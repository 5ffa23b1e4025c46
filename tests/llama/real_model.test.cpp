// SPDX-License-Identifier: MIT
//
// A real language model in llama.cpp, SmolLM2-135M-Instruct (examples/models/fetch.sh; SURELEAP_SMOLLM2_GGUF names it,
// or one made of it in another format; without, the test is skipped). Greedy speculation must write what llama.cpp's
// own loop writes. Where rows depend on how many are computed together, as with F16, texts may part, but only at logits
// that are level as far as such rows differ. Ten seconds with the libllama that is built for tests, whose kernels are
// slow.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <sureleap/ext/llama.hpp>
#include <sureleap/sureleap.hpp>

#include "llama/support/batches.hpp"
#include "llama/support/plain_text.hpp"
#include "llama/support/tiny_models.hpp"

using namespace sureleap;
using namespace support;

namespace {

char const* const questions[] = {
    "Count from 1 to 20, separated by commas.",
    "What is the capital of France? Repeat the question first.",
    "List five fruits, then list them again in reverse order.",
    "Write a Python function that checks whether a number is prime.",
    "A train has 3 wagons with 24 seats each. 15 seats are taken. How many are free?",
    "Explain in two sentences what a hash table is.",
};
constexpr std::size_t most_tokens = SURELEAP_TEST_QUICK ? 10 : 40;
constexpr std::size_t drafts = 5;

struct greedy_text {
    std::vector<token_id> tokens;
    std::vector<double> leads;  // how far the largest logit is above the second
};

[[nodiscard]] double lead_of(std::span<float const> row) {
    std::vector<float> logits(row.begin(), row.end());
    std::nth_element(logits.begin(), logits.begin() + 1, logits.end(), std::greater<>());
    return static_cast<double>(logits[0]) - static_cast<double>(logits[1]);
}

/// llama.cpp's own loop, with its greedy sampler.
[[nodiscard]] greedy_text written_by_llama(tiny_context const& context, std::span<token_id const> prompt) {
    llama_memory_clear(llama_get_memory(context.get()), true);
    std::unique_ptr<llama_sampler, decltype(&llama_sampler_free)> const sampler{llama_sampler_init_greedy(),
                                                                                llama_sampler_free};
    llama_vocab const* const vocab = llama_model_get_vocab(context.get_deleter().model.get());
    std::vector<token_id> sequence(prompt.begin(), prompt.end());
    greedy_text text;
    token_batch before;
    for (std::size_t i = 0; i + 1 < prompt.size(); ++i) before.add(prompt[i], static_cast<llama_pos>(i), 0, false);
    REQUIRE(before.decode(context) == 0);
    while (text.tokens.size() < most_tokens) {
        REQUIRE(token_batch().add(sequence.back(), static_cast<llama_pos>(sequence.size() - 1)).decode(context) == 0);
        text.leads.push_back(lead_of(logits_of(context, 0)));
        sequence.push_back(llama_sampler_sample(sampler.get(), context.get(), -1));
        text.tokens.push_back(sequence.back());
        if (llama_vocab_is_eog(vocab, sequence.back())) break;
    }
    return text;
}

/// The largest difference of a logit between rows of one pass and of passes of one token, behind the same tokens.
[[nodiscard]] double dependence_on_batch(tiny_context const& context, std::span<token_id const> tokens) {
    auto const first = static_cast<llama_pos>(tokens.size() - drafts - 1);
    auto const rows = tokens.last(drafts + 1);
    llama_memory_t const memory = llama_get_memory(context.get());
    llama_memory_clear(memory, true);
    REQUIRE(token_batch().add(tokens.first(tokens.size() - drafts - 1), 0).decode(context) == 0);
    std::vector<std::vector<float>> alone;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        REQUIRE(token_batch().add(rows[i], first + static_cast<llama_pos>(i)).decode(context) == 0);
        alone.push_back(logits_of(context, 0));
    }
    double worst = 0.0;
    for (std::size_t count = 2; count <= rows.size(); ++count) {
        REQUIRE(llama_memory_seq_rm(memory, 0, first, -1));
        REQUIRE(token_batch().add(rows.first(count), first).decode(context) == 0);
        for (std::size_t i = 0; i < count; ++i) {
            auto const row = logits_of(context, static_cast<std::int32_t>(i));
            for (std::size_t v = 0; v < row.size(); ++v) {
                worst = std::max(worst, std::abs(static_cast<double>(row[v]) - static_cast<double>(alone[i][v])));
            }
        }
    }
    return worst;
}

}  // namespace

TEST_CASE("a real model: greedy speculation writes what llama.cpp's own loop writes") {
    char const* const file = std::getenv("SURELEAP_SMOLLM2_GGUF");
    if (file == nullptr || *file == '\0') {
        std::puts("skipped: SURELEAP_SMOLLM2_GGUF names no model");
        return;
    }
    tiny_model const model(llama_model_load_from_file(file, llama_model_default_params()), llama_model_free);
    REQUIRE(model != nullptr);
    llama_vocab const* const vocab = llama_model_get_vocab(model.get());
    llama_context_params params = llama_context_default_params();
    params.n_threads = 1;  // several wait for each other without rest, and tests run beside others
    params.n_threads_batch = 1;
    tiny_context const theirs = make_context(model, params);
    tiny_context const ours = make_context(model, params);

    lookup drafter({.block_size = drafts, .target_vocabulary = tokens_of(model)});
    llama_target target{ours.get(), drafter};
    auto const ends = llama_end_tokens(vocab);
    std::size_t parted = 0, accepted = 0, tokens = 0;
    double apart = -1.0;
    for (char const* const question : questions) {
        CAPTURE(question);
        auto const prompt =
            llama_tokens(vocab, "<|im_start|>user\n" + std::string(question) + "<|im_end|>\n<|im_start|>assistant\n");
        greedy_text const expected = written_by_llama(theirs, prompt);
        if (apart < 0.0) {
            apart = dependence_on_batch(theirs, prompt);
            std::printf("rows of several tokens differ from those of one by at most %.3g\n", apart);
        }
        decoder dec{target, drafter, fixed_schedule{}, target_match{}, {.max_tokens = target.max_tokens()}};
        request_id const id =
            dec.submit(prompt, {.temperature = 0.0, .max_new_tokens = most_tokens, .stop_tokens = ends});
        while (dec.step()) {
        }
        accepted += dec.report().accepted();
        auto const text = dec.generated(id);
        tokens += text.size();
        auto const [mine, other] =
            std::mismatch(text.begin(), text.end(), expected.tokens.begin(), expected.tokens.end());
        if (mine == text.end() && other == expected.tokens.end()) continue;
        ++parted;
        auto const at = static_cast<std::size_t>(mine - text.begin());
        CAPTURE(at);
        REQUIRE(at < expected.leads.size());
        // Equal, if rows do not depend on the batch. Otherwise both of the largest may have moved, and by other prompts
        // more.
        CHECK(expected.leads[at] <= 4.0 * apart);
    }
    std::printf("%zu of %zu texts part from llama.cpp's; %zu tokens, %zu of them accepted drafts\n", parted,
                std::size(questions), tokens, accepted);
    CHECK(accepted > 10);  // drafts took part
}
