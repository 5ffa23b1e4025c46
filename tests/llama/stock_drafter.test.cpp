// SPDX-License-Identifier: MIT
//
// Drafters in GGUF files that llama.cpp runs as well: what it drafts for a block is what the example engine drafts,
// given the same features, up to rounding. Tiny ones in floats, and the shipped one with a real target
// (SURELEAP_SMOLLM2_GGUF names it; without, that part is skipped). What llama.cpp needs beside a drafter's tensors is
// added as to_gguf.py --target does. Three seconds, most of them to load the real models.
#if __has_include(<engine/dspark.hpp>)
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <engine/causal_lm.hpp>
#include <engine/dspark.hpp>
#include <engine/gguf/file.hpp>
#include <engine/heads.hpp>
#include <engine/model_files.hpp>
#include <engine/synthetic.hpp>
#include <engine/thread_pool.hpp>
#include <sureleap/core/types.hpp>

#include <llama.h>

#include "llama/support/log.hpp"
#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/gguf_drafter.hpp"
#include "support/gguf_model.hpp"
#include "support/scratch_folder.hpp"

namespace {

using sureleap::token_id;

template <class T, class Free>
std::unique_ptr<T, Free> owned(T* object, Free free) {
    return {object, free};
}

auto loaded(std::filesystem::path const& file) {
    static bool const started = (llama_backend_init(), true);
    static_cast<void>(started);
    return owned(llama_model_load_from_file(file.c_str(), llama_model_default_params()), llama_model_free);
}

auto context_of(llama_model* model, llama_context* target = nullptr) {
    auto params = llama_context_default_params();
    params.n_threads = params.n_threads_batch = 2;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;  // which rounds to 16 bits
    params.ctx_other = target;
    return owned(llama_init_from_model(model, params), llama_free);
}

/// Features of so many positions, then a block behind them.
struct block {
    std::size_t positions;
    std::vector<float> features;  ///< [positions, ..]
    token_id anchor;
    token_id mask;
    std::size_t size;
};

/// U + B of a block by llama.cpp, whose chain is the greedy one: [size, vocabulary of the target].
std::vector<std::vector<float>> by_llama(llama_context* context, block of) {
    auto const decode = [&](std::vector<llama_token> tokens, std::vector<float> features, llama_pos first) {
        auto const count = tokens.empty() ? static_cast<std::size_t>(of.positions) : tokens.size();
        std::vector<llama_pos> positions;
        std::vector<std::int32_t> counts(count, 1);
        llama_seq_id sequence = 0;
        std::vector<llama_seq_id*> sequences(count, &sequence);
        std::vector<std::int8_t> outputs(count, tokens.empty() ? 0 : 1);
        for (std::size_t i = 0; i < count; ++i) positions.push_back(first + static_cast<llama_pos>(i));
        return llama_decode(context, {.n_tokens = static_cast<std::int32_t>(count),
                                      .token = tokens.empty() ? nullptr : tokens.data(),
                                      .embd = tokens.empty() ? features.data() : nullptr,
                                      .pos = positions.data(),
                                      .n_seq_id = counts.data(),
                                      .seq_id = sequences.data(),
                                      .logits = outputs.data()});
    };
    llama_set_causal_attn(context, false);  // masks see each other
    REQUIRE(decode({}, of.features, 0) == 0);
    std::vector<llama_token> tokens(of.size, of.mask);
    tokens[0] = of.anchor;
    REQUIRE(decode(tokens, {}, static_cast<llama_pos>(of.positions)) == 0);
    std::vector<std::vector<float>> rows;
    auto const vocabulary = llama_vocab_n_tokens(llama_model_get_vocab(llama_get_model(context)));
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(of.size); ++k) {
        float const* const row = llama_get_logits_ith(context, k);
        REQUIRE(row != nullptr);
        rows.emplace_back(row, row + vocabulary);
    }
    return rows;
}

/// The same by the example engine, along the chain that `greedy` took: [size, tokens that are drafted].
std::vector<std::vector<float>> by_engine(engine::dspark<float>& model, block const& of,
                                          std::vector<std::vector<float>> const& greedy) {
    std::vector<engine::batch_row> rows;
    for (std::uint32_t i = 0; i < of.positions; ++i) rows.push_back({0, i, 0});
    model.observe(rows, of.features.data());
    std::vector<sureleap::request_view> const requests = {
        {.id = 1, .slot = 0, .anchor = of.anchor, .position = of.positions}};
    auto const drafted = model.forward(requests);
    auto const head = engine::load_head<float>(model.source());
    std::vector<float> state(head.state_size());
    head.reset(state);
    std::vector<std::vector<float>> out;
    token_id previous = of.anchor;
    for (std::size_t k = 0; k < of.size; ++k) {
        auto const base = drafted.base_logits.values.row(k);
        auto& row = out.emplace_back(base.begin(), base.end());
        head.add_bias(state, drafted.hidden.row(k), previous, row);
        previous = static_cast<token_id>(std::ranges::max_element(greedy[k]) - greedy[k].begin());
    }
    return out;
}

/// Every row is another's, with the target's tokens that are not drafted left out.
void check_same(std::vector<std::vector<float>> const& theirs, std::vector<std::vector<float>> const& ours,
                std::vector<std::int64_t> const& tokens, double tolerance) {
    REQUIRE(theirs.size() == ours.size());
    for (std::size_t k = 0; k < ours.size(); ++k) {
        std::vector<float> drafted;
        for (std::int64_t const token : tokens) drafted.push_back(theirs[k][static_cast<std::size_t>(token)]);
        CHECK(std::ranges::count_if(theirs[k], [](float x) { return x > -INFINITY; }) ==
              static_cast<std::ptrdiff_t>(tokens.size()));
        CHECK(support::distance(ours[k], drafted) < tolerance);
    }
}

std::vector<float> random_features(std::size_t count, std::uint64_t seed) {
    support::dice roll(seed);
    return support::random_values<float>(roll, count);
}

TEST_CASE("llama.cpp drafts what the example engine drafts", "[llama]") {
    support::scratch_folder const folder("stock_drafter");
    engine::thread_pool pool(1);
    constexpr engine::serving_limits limits{.slots = 1, .context_length = 32, .max_rows = 16};
    auto const config = support::drafter_config();
    std::size_t const vocabulary = config.transformer.vocabulary;
    for (bool const some_tokens : {false, true}) {
        std::vector<std::int64_t> tokens;
        for (std::size_t i = 0; i < vocabulary; i += some_tokens ? 3 : 1)
            tokens.push_back(static_cast<std::int64_t>(i));
        auto const checkpoint = make_in_memory(config, engine::storage::f32, 8);
        auto writer = support::file_of(checkpoint, false);
        if (some_tokens) support::keep_tokens(writer, tokens);
        std::vector<std::string> texts;
        for (std::size_t i = 0; i < vocabulary; ++i) texts.push_back("t" + std::to_string(i));
        writer.set("tokenizer.ggml.model", "llama").set("tokenizer.ggml.tokens", texts);
        writer.set("tokenizer.ggml.scores", std::vector<float>(vocabulary, 0.0F));
        writer.set("tokenizer.ggml.token_type", std::vector<std::int32_t>(vocabulary, LLAMA_TOKEN_TYPE_NORMAL));
        writer.save(folder / "drafter.gguf");

        auto const file = engine::checkpoint_of(folder / "drafter.gguf");
        auto const& draft = file.config().draft.value();
        block const of{
            .positions = 5,
            .features = random_features(5 * draft.target_layer_ids.size() * config.transformer.hidden_size, 3),
            .anchor = 31,
            .mask = draft.mask_token,
            .size = draft.block_size};
        auto const model = loaded(folder / "drafter.gguf");
        REQUIRE(model != nullptr);
        CHECK(llama_vocab_mask(llama_model_get_vocab(model.get())) == of.mask);
        auto const context = context_of(model.get());  // alone, as it has an embedding and an LM head of its own
        REQUIRE(context != nullptr);
        auto const theirs = by_llama(context.get(), of);

        engine::causal_lm<float> target(make_in_memory(support::target_config(), engine::storage::f32, 7),
                                        draft.target_layer_ids, pool, limits);
        engine::dspark<float> ours(engine::checkpoint_of(folder / "drafter.gguf"), target, pool, limits);
        check_same(theirs, by_engine(ours, of, theirs), tokens, 1e-5);
    }
}

// ---- the shipped drafter
// -------------------------------------------------------------------------------------------------

std::string const shipped = SURELEAP_TESTS_DIR "/../examples/models/smollm2-dspark.gguf";

TEST_CASE("llama.cpp: the shipped drafter lacks the target's tokenizer", "[llama]") {
    CHECK(loaded(shipped) == nullptr);
    CHECK(support::llama_log().find("tokenizer.ggml.model") != std::string::npos);
}

/// to_gguf.py <drafter> --target <target> --out <out>, but for rows of the LM head, which keep the target's type.
void complete(std::filesystem::path const& drafter, std::filesystem::path const& target,
              std::filesystem::path const& out) {
    auto const open = [](std::filesystem::path const& path, ggml_context*& tensors) {
        return owned(gguf_init_from_file(path.c_str(), {.no_alloc = false, .ctx = &tensors}), gguf_free);
    };
    ggml_context* raw_own = nullptr;
    ggml_context* raw_served = nullptr;
    auto const own = open(drafter, raw_own);
    auto const served = open(target, raw_served);
    auto const own_tensors = owned(raw_own, ggml_free);
    auto const served_tensors = owned(raw_served, ggml_free);
    REQUIRE((own != nullptr && served != nullptr));

    auto const to = owned(gguf_init_empty(), gguf_free);
    gguf_set_kv(to.get(), served.get());
    for (std::int64_t i = gguf_get_n_kv(to.get()); i-- > 0;) {
        std::string const key = gguf_get_key(to.get(), i);
        if (!key.starts_with("tokenizer.ggml.")) gguf_remove_key(to.get(), key.c_str());
    }
    gguf_set_kv(to.get(), own.get());
    for (auto* t = ggml_get_first_tensor(raw_own); t != nullptr; t = ggml_get_next_tensor(raw_own, t)) {
        if (std::string_view(t->name) != "GGUF tensor data binary blob") gguf_add_tensor(to.get(), t);
    }
    auto const* const tokens = ggml_get_tensor(raw_own, "d2t");
    auto const* const embedding = ggml_get_tensor(raw_served, "token_embd.weight");
    auto const rows =
        owned(ggml_init({.mem_size = std::size_t{64} << 20, .mem_buffer = nullptr, .no_alloc = false}), ggml_free);
    auto* const head = ggml_new_tensor_2d(rows.get(), embedding->type, embedding->ne[0], tokens->ne[0]);
    ggml_set_name(head, "output.weight");
    for (std::int64_t i = 0; i < tokens->ne[0]; ++i) {
        auto const token = static_cast<std::size_t>(static_cast<std::int64_t const*>(tokens->data)[i]);
        std::memcpy(static_cast<char*>(head->data) + static_cast<std::size_t>(i) * head->nb[1],
                    static_cast<char const*>(embedding->data) + token * embedding->nb[1], head->nb[1]);
    }
    gguf_add_tensor(to.get(), head);
    REQUIRE(gguf_write_to_file(to.get(), out.c_str(), false));
}

TEST_CASE("llama.cpp drafts with the shipped drafter, completed", "[llama]") {
    char const* const target_file = std::getenv("SURELEAP_SMOLLM2_GGUF");
    if (target_file == nullptr || *target_file == '\0') {
        std::puts("skipped: SURELEAP_SMOLLM2_GGUF names no model");
        return;
    }
    support::scratch_folder const folder("stock_shipped");
    complete(shipped, target_file, folder / "both.gguf");
    auto const model = loaded(folder / "both.gguf");
    REQUIRE(model != nullptr);
    CHECK(context_of(model.get()) == nullptr);  // the embedding is the target's
    CHECK(support::llama_log().find("requires ctx_other") != std::string::npos);
    auto const target_model = loaded(target_file);
    auto const target_context = context_of(target_model.get());
    REQUIRE(target_context != nullptr);
    auto const context = context_of(model.get(), target_context.get());
    REQUIRE(context != nullptr);

    engine::thread_pool pool(2);
    constexpr engine::serving_limits limits{.slots = 1, .context_length = 64, .max_rows = 32};
    auto file = engine::checkpoint_of(folder / "both.gguf");
    auto const draft = file.config().draft.value();
    auto const tokens = file.integers("d2t", draft.vocabulary);
    engine::causal_lm<float> target(engine::checkpoint_of(target_file), draft.target_layer_ids, pool, limits);
    std::vector<token_id> const text = {504, 3575, 282, 4649, 314, 7042, 30, 504, 3575, 282};  // of SmolLM2
    target.prefill(0, 0, text);
    auto const features = target.features();
    block const of{.positions = text.size(),
                   .features = {features.data, features.data + text.size() * features.cols},
                   .anchor = 4649,
                   .mask = draft.mask_token,
                   .size = draft.block_size};
    auto const theirs = by_llama(context.get(), of);
    engine::dspark<float> ours(std::move(file), target, pool, limits);
    // Both round activations to 8 bits, each in its own way.
    check_same(theirs, by_engine(ours, of, theirs), {tokens.begin(), tokens.end()}, 0.05);
}

}  // namespace
#endif
