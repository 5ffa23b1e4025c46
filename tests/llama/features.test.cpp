// SPDX-License-Identifier: MIT
//
// Hidden states through the eval callback, or from where llama.cpp keeps inputs of layers: one row for every committed
// token, the same as without speculation, of any layer, in any order, whatever was rejected, cut or decoded again. A
// second.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <sureleap/ext/llama.hpp>
#include <sureleap/sureleap.hpp>
#if __has_include(<llama-ext.h>)  // of llama.cpp's sources, which are not always there
#include <sureleap/ext/llama/layer_inputs.hpp>
#endif

#include "llama/support/plain_text.hpp"
#include "llama/support/tiny_models.hpp"

using namespace sureleap;
using namespace support;

namespace {

struct rows_of_run {
    std::size_t width = 0;
    std::vector<std::vector<float>> rows;          // of each request
    std::vector<std::vector<token_id>> sequences;  // prompt and text, without the token emitted last
};

enum class source { eval_callback, layer_inputs, both };

[[nodiscard]] rows_of_run run(tiny_model const& model, std::vector<int> layers, std::size_t drafts,
                              std::size_t requests, bool take_early, source from = source::eval_callback) {
    llama_features features{std::move(layers)};
    llama_context_params params = tiny_context_params();
    params.type_k = GGML_TYPE_F32;  // rounding to F16 would make small differences large
    params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    if (from != source::layer_inputs) features.attach(params);
    tiny_context const context = make_context(model, params);
#if __has_include(<llama-ext.h>)
    if (from != source::eval_callback) read_layer_inputs(features, context.get());
#endif
    lookup drafter({.block_size = 5, .target_vocabulary = tokens_of(model)});
    llama_target target{context.get(), drafter, {.max_requests = requests, .features = &features}};
    decoder dec{target, drafter, fixed_schedule{drafts}, keyed_coupling{}, {.max_requests = requests}};
    std::vector<request_id> ids;
    rows_of_run result{.width = features.width(), .rows = std::vector<std::vector<float>>(requests), .sequences = {}};
    std::vector<std::vector<token_id>> prompts;
    for (std::size_t i = 0; i < requests; ++i) {
        prompts.push_back(repeating_prompt(i, 70 + 9 * i, 4));
        ids.push_back(dec.submit(prompts[i], {.temperature = 0.6, .seed = i, .max_new_tokens = 25}));
    }
    auto const take = [&] {
        for (std::size_t slot = 0; slot < requests; ++slot) {
            auto const rows = features.rows(slot);
            if (rows.rows == 0) continue;
            REQUIRE(features.first(slot) * features.width() == result.rows[slot].size());
            result.rows[slot].insert(result.rows[slot].end(), rows.data, rows.data + rows.rows * rows.cols);
            features.take(slot, rows.rows);
        }
    };
    while (dec.step()) {
        if (take_early) take();
    }
    take();
    for (std::size_t i = 0; i < requests; ++i) {
        auto sequence = prompts[i];
        auto const text = dec.generated(ids[i]);
        sequence.insert(sequence.end(), text.begin(), text.end() - 1);
        result.sequences.push_back(std::move(sequence));
    }
    return result;
}

}  // namespace

TEST_CASE("rows of committed tokens are those of plain decoding, one a token") {
    for (tiny_arch const arch : every_tiny_arch) {
        tiny_model const model = make_tiny(arch, 7);
        std::size_t const requests =
            llama_model_is_recurrent(model.get()) || llama_model_is_hybrid(model.get()) ? 1 : 3;
        for (auto const& layers : {std::vector<int>{0}, std::vector<int>{1}, std::vector<int>{1, 0}}) {
            INFO(name_of(arch) << ", " << layers.size() << " layers, first " << layers[0]);
            auto const plain = run(model, layers, 0, requests, false);
            auto const speculated = run(model, layers, 5, requests, false);
            auto const taken = run(model, layers, 5, requests, true);
            CHECK(plain.width == layers.size() * static_cast<std::size_t>(llama_model_n_embd(model.get())));
            for (std::size_t i = 0; i < requests; ++i) {
                REQUIRE(plain.rows[i].size() == plain.sequences[i].size() * plain.width);
                CHECK(speculated.sequences[i] == plain.sequences[i]);
                REQUIRE(speculated.rows[i].size() == plain.rows[i].size());
                REQUIRE(taken.rows[i].size() == plain.rows[i].size());
                double worst = 0.0, largest = 0.0;
                for (std::size_t j = 0; j < plain.rows[i].size(); ++j) {
                    double const expected = static_cast<double>(plain.rows[i][j]);
                    worst = std::max({worst, std::abs(static_cast<double>(speculated.rows[i][j]) - expected),
                                      std::abs(static_cast<double>(taken.rows[i][j]) - expected)});
                    largest = std::max(largest, std::abs(expected));
                }
                CHECK(worst < 1e-4 * largest);
            }
        }
    }
}

#if __has_include(<llama-ext.h>)

TEST_CASE("inputs of layers are the rows of the eval callback") {
    for (tiny_arch const arch : {tiny_arch::llama, tiny_arch::qwen3, tiny_arch::lfm2}) {
        tiny_model const model = make_tiny(arch, 7, {.layers = 3});
        std::size_t const requests = arch == tiny_arch::lfm2 ? 1 : 3;
        for (auto const& layers : {std::vector<int>{1}, std::vector<int>{1, 0}}) {
            INFO(name_of(arch) << ", " << layers.size() << " layers");
            auto const called = run(model, layers, 5, requests, true, source::eval_callback);
            auto const read = run(model, layers, 5, requests, true, source::layer_inputs);
            CHECK(read.sequences == called.sequences);
            CHECK(read.rows == called.rows);
            CHECK(run(model, layers, 5, requests, true, source::both).rows == called.rows);
        }
    }
}

TEST_CASE("layers whose inputs are not kept are refused before a pass would abort") {
    auto const refusal = [](tiny_arch arch, int layer) -> std::string {
        llama_features features{{layer}};
        tiny_context const context = make_context(make_tiny(arch, 7));
        try {
            read_layer_inputs(features, context.get());
        } catch (error const& e) {
            return e.what();
        }
        return "none";
    };
    CHECK(refusal(tiny_arch::llama, 0) == "none");
    CHECK(refusal(tiny_arch::llama, 1).starts_with("read_layer_inputs: feature layer 0 is 1, expected 0 .. 0;"));
    CHECK(refusal(tiny_arch::llama, -1).starts_with("read_layer_inputs: feature layer 0 is -1, expected 0 .. 0;"));
    CHECK(refusal(tiny_arch::mamba, 0).starts_with("read_layer_inputs: the architecture \"mamba\" keeps no inputs"));
    CHECK(refusal(tiny_arch::jamba, 0).starts_with("read_layer_inputs: the architecture \"jamba\" keeps no inputs"));
}

#endif

TEST_CASE("another text in a slot brings its rows from where it differs, also where the slot gave its cells up") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    for (bool const given_up : {false, true}) {
        llama_features features{{1}};
        llama_context_params params = tiny_context_params();
        features.attach(params);
        tiny_context const context = make_context(model, params);
        lookup drafter({.block_size = 5, .target_vocabulary = tokens_of(model)});
        llama_target target{context.get(), drafter, {.features = &features}};
        request_settings const settings{.max_new_tokens = 4};
        auto const request = [&](request_id id, std::span<token_id const> tokens) {
            return request_view{.id = id,
                                .anchor = tokens.back(),
                                .position = tokens.size() - 1,
                                .context = tokens,
                                .remaining = 4,
                                .settings = &settings};
        };
        auto const first = repeating_prompt(1, 30, 7);
        auto second = first;
        second[12] = 5;
        target.prefill(request(1, first));
        CHECK(features.rows(0).rows == 29);
        features.take(0, 20);
        CHECK(features.first(0) == 20);
        if (given_up) target.forget(0);
        target.prefill(request(1, first));  // the same again: what was taken does not come again
        CHECK(features.first(0) == 20);
        CHECK(features.rows(0).rows == 9);
        if (given_up) target.forget(0);
        target.prefill(request(2, second));
        CHECK(features.first(0) == (given_up ? 0 : 12));
        CHECK(features.first(0) + features.rows(0).rows == 29);
    }
}

TEST_CASE("layers that the context cannot give are refused") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    lookup const drafter({.target_vocabulary = tokens_of(model)});
    auto const refusal = [&](llama_features& features, llama_context_params const& params, std::size_t requests = 1,
                             tiny_model const* of = nullptr) -> std::string {
        tiny_context const context = make_context(of == nullptr ? model : *of, params);
        try {
            llama_target(context.get(), drafter, {.max_requests = requests, .features = &features});
        } catch (error const& e) {
            return e.what();
        }
        return "none";
    };
    {
        llama_features features{{2}};
        llama_context_params params = tiny_context_params();
        features.attach(params);
        CHECK(refusal(features, params) == "llama_target: feature layer 0 is 2, expected 0 .. 1");
        CHECK_THROWS_AS(features.attach(params), error);
    }
    {
        llama_features features{{0}};  // not attached
        CHECK(refusal(features, tiny_context_params()).find("made without llama_features::attach") !=
              std::string::npos);
    }
    {
        tiny_model const recurrent = make_tiny(tiny_arch::mamba, 7);
        llama_features features{{0}};
        llama_context_params params = tiny_context_params();
        features.attach(params);
        CHECK(refusal(features, params, 2, &recurrent).find("make a context for each request") != std::string::npos);
    }
    CHECK_THROWS_AS(llama_features({}), error);
}
