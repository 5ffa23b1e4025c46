// SPDX-License-Identifier: MIT
//
// Hidden states from the buffers that llama.cpp fills for its own drafters: no eval callback, so that the graph stays
// whole. On a device that saves a synchronisation a layer, and graphs can be captured.
//
//     llama_features features{{8, 17, 26}};
//     read_layer_inputs(features, context);                             // after the context was made
//     llama_target target{context, drafter, {.features = &features}};
//
// Not a part of ext/llama.hpp. It needs llama-ext.h, which lies in src/ of llama.cpp's sources, is not installed, and
// may change in any version. libllama exports what it declares. Written against release 0.5.0.
#pragma once

#if !__has_include(<llama-ext.h>)
#error \
    "sureleap: llama-ext.h was not found; add src/ of llama.cpp's sources to the include path, or use llama_features::attach, which needs llama.h alone"
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <llama-ext.h>
#include <llama.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/ext/llama/features.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// Architectures that keep the inputs of their layers, in release 0.5.0. Any other would abort in the next pass.
inline constexpr std::array<std::string_view, 21> architectures_with_layer_inputs{
    "bailingmoe3",    "deepseek4", "gemma4",     "gpt-oss",    "hunyuan_vl",   "lfm2",      "lfm2moe",
    "llama",          "mimo2",     "minimax-01", "minimax-m2", "muse-glimmer", "nanbeige",  "nemotron_h",
    "nemotron_h_moe", "qwen3",     "qwen35",     "qwen35moe",  "qwen3moe",     "qwen3next", "qwen4exp"};

[[nodiscard]] inline std::string architecture_of(llama_model const* model) {
    std::array<char, 64> name{};
    llama_model_meta_val_str(model, "general.architecture", name.data(), name.size());
    return name.data();
}

}  // namespace detail

/// Instead of llama_features::attach. What is behind a layer is the input of the next one, so that the last layer has
/// none. Costs n_batch * hidden size floats a layer in the context. Throws sureleap::error if a layer or the model's
/// architecture has no such buffer.
inline void read_layer_inputs(llama_features& features, llama_context* context) {
    llama_model const* const model = llama_get_model(context);
    std::string const architecture = detail::architecture_of(model);
    auto const& known = detail::architectures_with_layer_inputs;
    if (std::find(known.begin(), known.end(), architecture) == known.end()) {
        fail_with("read_layer_inputs: the architecture \"", architecture,
                  "\" keeps no inputs of its layers as far as is known, expected one that does, like \"llama\"; "
                  "llama_features::attach may read it");
    }
    int const layers = llama_model_n_layer(model);
    for (std::size_t i = 0; i < features.layers().size(); ++i) {
        int const layer = features.layers()[i];
        if (layer >= 0 && layer + 1 < layers) continue;
        fail_with("read_layer_inputs: feature layer ", i, " is ", layer, ", expected 0 .. ", layers - 2,
                  "; what is behind the last layer is no other layer's input, llama_features::attach reads it");
    }
    for (int const layer : features.layers()) {
        llama_set_embeddings_layer_inp(context, static_cast<std::uint32_t>(layer + 1), true);
    }
    features.read_after_pass([](llama_context* of, int layer) -> float const* {
        return llama_get_embeddings_layer_inp(of, static_cast<std::uint32_t>(layer + 1));
    });
}

SURELEAP_END_NAMESPACE
