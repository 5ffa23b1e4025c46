// SPDX-License-Identifier: MIT
//
// Drafter folders of strangers: what this engine does not read is refused by name, and tokens are the ones that the
// file means.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <engine/draft_model.hpp>
#include <engine/dspark.hpp>
#include <engine/eagle3.hpp>
#include <engine/layout.hpp>
#include <engine/synthetic.hpp>

#include "support/error_text.hpp"
#include "support/tiny_models.hpp"

namespace {

using engine::checkpoint;
using engine::model_config;
using support::error_text;
using support::says;
using sureleap::token_id;
using sureleap::safetensors::dtype;
using sureleap::safetensors::tensor_spec;

tiny::shape const shape{};

[[nodiscard]] model_config dspark_config() {
    model_config config = tiny::dspark_config(shape, {});
    config.draft->vocabulary = 5;
    return config;
}

/// Such a folder with its tensors changed by `edit`, all zeros but for d2t.
template <class Id>
[[nodiscard]] checkpoint folder(model_config const& config, std::vector<Id> const& d2t,
                                std::function<void(std::vector<tensor_spec>&)> const& edit = {}) {
    auto specs = engine::tensors_of(config, engine::storage::f32);
    for (tensor_spec& s : specs) {
        if (s.name == "d2t") s.type = sizeof(Id) == 8 ? dtype::i64 : dtype::i32;
    }
    if (edit) edit(specs);
    std::ranges::stable_sort(specs, std::ranges::greater{}, [](tensor_spec const& s) { return s.type == dtype::i64; });
    return engine::make_in_memory(config, specs, "a stranger's folder",
                                  [&](tensor_spec const& spec, engine::byte_sink const& sink) {
                                      if (spec.name == "d2t") return sink(std::as_bytes(std::span(d2t)));
                                      std::size_t count = 4;
                                      for (std::size_t const n : spec.shape) count *= n;
                                      sink(std::vector<std::byte>(count));
                                  });
}

}  // namespace

TEST_CASE("drafter files: tokens by offsets, as published folders have them, and by their ids", "[engine]") {
    model_config const config = dspark_config();
    std::vector<token_id> const tokens{2, 3, 7, 40, 60};
    CHECK(engine::drafted_tokens(folder<std::int64_t>(config, {2, 2, 5, 37, 56})) == tokens);
    CHECK(engine::drafted_tokens(folder<std::int32_t>(config, {2, 3, 7, 40, 60})) == tokens);
    CHECK(engine::drafted_tokens(folder<std::int64_t>(config, {0, 0, 0, 0, 0})) ==
          std::vector<token_id>{0, 1, 2, 3, 4});
    auto const refused = [&](std::vector<std::int64_t> const& offsets) {
        return error_text([&] { static_cast<void>(engine::drafted_tokens(folder<std::int64_t>(config, offsets))); });
    };
    CHECK(
        says(refused({2, 0, 5, 37, 56}), "'d2t' has the offset of token 1 at 1, expected rising tokens, here 3 .. 60"));
    CHECK(says(refused({2, 2, 5, 37, 57}), "the offset of token 61 at 4"));
    CHECK(says(refused({-1, 2, 5, 37, 57}), "the offset of token -1 at 0"));
}

TEST_CASE("drafter files: a tensor that is not read is refused by name", "[engine]") {
    engine::thread_pool pool(1);
    engine::serving_limits const limits{.slots = 1, .context_length = 32, .max_rows = 8};
    tiny::agreeing_models const models(shape, 3);
    engine::causal_lm<float> const target(models.target(engine::storage::f32), tiny::feature_layers(shape), pool,
                                          limits);
    std::vector<std::int64_t> const offsets{2, 2, 5, 37, 56};
    auto const loaded_with = [&](std::string const& name, std::vector<std::size_t> const& size) {
        return error_text([&] {
            auto from = folder<std::int64_t>(dspark_config(), offsets, [&](auto& specs) {
                if (!name.empty()) specs.push_back({name, dtype::f32, size});
            });
            engine::dspark<float> const drafter(std::move(from), target, pool, limits);
        });
    };
    CHECK(loaded_with("", {}).empty());
    CHECK(loaded_with("t2d", {61}).empty());
    CHECK(loaded_with("layers.0.self_attn.rotary_emb.inv_freq", {4}).empty());
    CHECK(says(loaded_with("layers.0.self_attn.sinks", {4}),
               {"tensor 'layers.0.self_attn.sinks' is none that Qwen3DSparkModel of this configuration has",
                "expected one of"}));
    CHECK(says(loaded_with("selector.weight", {1, 32}), "'selector.weight'"));
    CHECK(says(loaded_with("layers.0.self_attn.q_proj.bias", {32}), "'layers.0.self_attn.q_proj.bias'"));

    auto const eagle3_with = [&](std::string const& name) {
        return error_text([&] {
            auto from = folder<std::int64_t>(tiny::eagle3_config(shape, {}), offsets,
                                             [&](auto& specs) { specs.push_back({name, dtype::f32, {32}}); });
            engine::eagle3<float> const drafter(std::move(from), target, pool, limits);
        });
    };
    CHECK(
        says(eagle3_with("layers.0.self_attn.k_proj.bias"), {"'layers.0.self_attn.k_proj.bias'", "Qwen3Eagle3Model"}));
    CHECK(eagle3_with("layers.0.self_attn.rotary_emb.inv_freq").empty());
}

TEST_CASE("drafter files: blocks whose first row predicts nothing are refused", "[engine]") {
    std::string text = engine::config_json(tiny::dspark_config(shape, {}));
    auto const with = [&](char const* value) {
        std::string changed = text;
        changed.insert(changed.find('{') + 1, std::string("\"sample_from_anchor\": ") + value + ", ");
        return error_text([&] { static_cast<void>(engine::parse_config(changed, "config.json")); });
    };
    CHECK(with("true").empty());
    CHECK(says(with("false"), {"'sample_from_anchor'", "expected true: blocks whose first row predicts nothing"}));
}
