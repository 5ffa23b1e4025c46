// SPDX-License-Identifier: MIT
//
// Tiny models of llama.cpp, made in memory in some milliseconds: two layers, 64 features, a vocabulary of bytes and
// letters.
//
//   tiny_model const model = make_tiny(tiny_arch::llama, 7);           weights by the seed 7
//   tiny_context const context = make_context(model);                  16 sequences in one KV cache, one thread
//   tiny_model const drafter = make_tiny(tiny_arch::llama, 7, {.disturbance = 0.3F});      often right
//
// llama_model_init_from_user asks for the metadata of a GGUF file and for every tensor by its name (tiny_weights.hpp).
// What llama.cpp promises for each architecture stands in tests/llama/tiny_models.test.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <llama.h>

#include "log.hpp"
#include "tiny_weights.hpp"

namespace support {

enum class tiny_arch {
    llama,  ///< attention
    qwen3,  ///< attention with norms of queries and keys
    lfm2,   ///< hybrid: a short convolution, then attention; its memory can be rolled back (n_rs_seq)
    jamba,  ///< hybrid: Mamba, then attention; its memory cannot
    mamba,  ///< recurrent alone; its memory cannot be rolled back
    olmo2,  ///< attention, with a sliding window of 8 tokens; not among every_tiny_arch
};

inline constexpr tiny_arch every_tiny_arch[] = {tiny_arch::llama, tiny_arch::qwen3, tiny_arch::lfm2, tiny_arch::jamba,
                                                tiny_arch::mamba};

/// general.architecture
[[nodiscard]] constexpr char const* name_of(tiny_arch arch) noexcept {
    switch (arch) {
        case tiny_arch::llama: return "llama";
        case tiny_arch::qwen3: return "qwen3";
        case tiny_arch::lfm2: return "lfm2";
        case tiny_arch::jamba: return "jamba";
        case tiny_arch::olmo2: return "olmo2";
        default: return "mamba";
    }
}

struct tiny_options {
    std::uint32_t layers = 2;
    std::uint32_t tokens = 288;  ///< below 259 there are no tokens of bytes, and texts cannot be tokenised
    float sharpness = 2.0F;      ///< standard deviation of a row of logits
    float disturbance = 0.0F;    ///< added to every weight, in its own standard deviations
};

using tiny_model = std::shared_ptr<llama_model>;

/// Keeps its model, as a context must not outlive it.
struct free_context {
    tiny_model model;
    void operator()(llama_context* context) const noexcept { llama_free(context); }
};
using tiny_context = std::unique_ptr<llama_context, free_context>;

namespace detail {

class metadata_writer {
public:
    metadata_writer(std::string prefix, gguf_context* to) : prefix_(std::move(prefix)), to_(to) {}

    void set(char const* key, std::uint32_t value) { gguf_set_val_u32(to_, of_arch(key).c_str(), value); }
    void set(char const* key, float value) { gguf_set_val_f32(to_, of_arch(key).c_str(), value); }
    void set(char const* key, std::vector<std::uint32_t> const& values) {
        gguf_set_arr_data(to_, of_arch(key).c_str(), GGUF_TYPE_UINT32, values.data(), values.size());
    }

private:
    [[nodiscard]] std::string of_arch(char const* key) const { return prefix_ + "." + key; }

    std::string prefix_;
    gguf_context* to_;
};

/// A sentence piece vocabulary: <unk>, <s>, </s>, the bytes, then letters and whatever fills it up.
inline void write_vocabulary(gguf_context* to, std::uint32_t tokens) {
    static constexpr char digits[] = "0123456789ABCDEF";
    std::vector<std::string> texts = {"<unk>", "<s>", "</s>"};
    std::vector<std::int32_t> types = {LLAMA_TOKEN_TYPE_UNKNOWN, LLAMA_TOKEN_TYPE_CONTROL, LLAMA_TOKEN_TYPE_CONTROL};
    for (unsigned byte = 0; byte < 256 && tokens >= 259; ++byte) {
        texts.push_back(std::string("<0x") + digits[byte / 16] + digits[byte % 16] + ">");
        types.push_back(LLAMA_TOKEN_TYPE_BYTE);
    }
    texts.emplace_back("\xE2\x96\x81");  // a space
    for (char letter = 'a'; letter <= 'z'; ++letter) texts.emplace_back(1, letter);
    while (texts.size() < tokens) texts.push_back("w" + std::to_string(texts.size()));
    texts.resize(tokens);
    types.resize(tokens, LLAMA_TOKEN_TYPE_NORMAL);
    types.resize(tokens);
    std::vector<float> const scores(tokens, 0.0F);
    std::vector<char const*> pointers;
    for (std::string const& text : texts) pointers.push_back(text.c_str());
    gguf_set_val_str(to, "tokenizer.ggml.model", "llama");
    gguf_set_arr_str(to, "tokenizer.ggml.tokens", pointers.data(), pointers.size());
    gguf_set_arr_data(to, "tokenizer.ggml.scores", GGUF_TYPE_FLOAT32, scores.data(), scores.size());
    gguf_set_arr_data(to, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());
}

inline void write_shape(metadata_writer& w, tiny_arch arch, tiny_options const& options) {
    static constexpr std::uint32_t width = 64;
    bool const attends = arch != tiny_arch::mamba;
    bool const is_hybrid = arch == tiny_arch::lfm2 || arch == tiny_arch::jamba;
    w.set("vocab_size", options.tokens);
    w.set("context_length", 1024U);
    w.set("embedding_length", width);
    w.set("block_count", options.layers);
    w.set("attention.layer_norm_rms_epsilon", 1e-5F);
    if (attends) {
        w.set("feed_forward_length", 2 * width);
        w.set("attention.head_count", 4U);
        w.set("attention.head_count_kv", 2U);
    }
    if (is_hybrid) {  // a layer without heads of keys is the recurrent one
        std::vector<std::uint32_t> heads(options.layers);
        for (std::uint32_t layer = 0; layer < options.layers; ++layer) heads[layer] = layer % 2 == 0 ? 0 : 2;
        w.set("attention.head_count_kv", heads);
    }
    if (arch == tiny_arch::olmo2) w.set("attention.sliding_window", 8U);
    if (arch == tiny_arch::lfm2) w.set("shortconv.l_cache", 3U);
    if (arch == tiny_arch::jamba || arch == tiny_arch::mamba) {
        w.set("ssm.conv_kernel", 4U);
        w.set("ssm.inner_size", 2 * width);
        w.set("ssm.state_size", 16U);
        w.set("ssm.time_step_rank", 4U);
    }
}

}  // namespace detail

/// Weights are those of the seed on every platform. Throws std::runtime_error with llama.cpp's log if it refuses.
[[nodiscard]] inline tiny_model make_tiny(tiny_arch arch, std::uint64_t seed, tiny_options options = {}) {
    static bool const started = (llama_backend_init(), true);
    static_cast<void>(started);
    std::unique_ptr<gguf_context, void (*)(gguf_context*)> const metadata{gguf_init_empty(), gguf_free};
    gguf_set_val_str(metadata.get(), "general.architecture", name_of(arch));
    detail::metadata_writer shape(name_of(arch), metadata.get());
    detail::write_shape(shape, arch, options);
    detail::write_vocabulary(metadata.get(), options.tokens);
    tiny_weights weights{.seed = seed, .sharpness = options.sharpness, .disturbance = options.disturbance};
    llama_model* const model =
        llama_model_init_from_user(metadata.get(), &tiny_weights::fill, &weights, llama_model_default_params());
    if (model == nullptr) {
        throw std::runtime_error(std::string("make_tiny: no ") + name_of(arch) + " was made: " + llama_log());
    }
    return {model, llama_model_free};
}

/// 16 sequences in one unified cache of 1024 cells, 64 tokens a batch, one thread.
[[nodiscard]] inline llama_context_params tiny_context_params() {
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 1024;
    params.n_batch = 64;
    params.n_ubatch = 64;
    params.n_seq_max = 16;
    params.kv_unified = true;
    params.n_threads = 1;
    params.n_threads_batch = 1;
    return params;
}

/// Throws std::runtime_error with llama.cpp's log if it refuses.
[[nodiscard]] inline tiny_context make_context(tiny_model const& model,
                                               llama_context_params params = tiny_context_params()) {
    tiny_context context(llama_init_from_model(model.get(), params), {model});
    if (!context) throw std::runtime_error("make_context: no context was made: " + llama_log());
    return context;
}

}  // namespace support
