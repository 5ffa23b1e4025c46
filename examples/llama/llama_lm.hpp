// SPDX-License-Identifier: MIT
//
// A model that llama.cpp computes, as a target of the example engine: server, drafters, programs and measurements are
// the same whoever computes the target.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <llama.h>

#include <engine/checkpoint.hpp>
#include <engine/target.hpp>
#include <engine/thread_pool.hpp>
#include <sureleap/ext/llama.hpp>

namespace llama_example {

struct release {
    void operator()(llama_model* model) const noexcept { llama_model_free(model); }
    void operator()(llama_context* context) const noexcept { llama_free(context); }
};

/// Sequences of one context with a unified cache, limits.slots of them, or that times the paths of a draft tree.
/// Threads: as many as the pool has, which sleep while llama.cpp's work.
///
/// Drafters that share the target's embedding and LM head get them from the engine's own reader of the file, which
/// reads the types that the engine computes with. Without features nothing of it is read.
class llama_lm final : public engine::target<float> {
public:
    /// Draft trees have up to tree_paths paths. Throws sureleap::error if llama.cpp cannot load the file or the limits
    /// do not fit it.
    llama_lm(std::filesystem::path const& file, std::vector<int> feature_layers, engine::thread_pool const& pool,
             engine::serving_limits const& limits, std::size_t tree_paths = 1);

    [[nodiscard]] std::size_t vocabulary() const noexcept override { return target_->vocabulary(); }
    [[nodiscard]] std::size_t hidden_size() const noexcept override;
    [[nodiscard]] engine::serving_limits const& limits() const noexcept override { return limits_; }
    [[nodiscard]] engine::weight embeddings() const noexcept override { return embeddings_; }
    [[nodiscard]] engine::weight output_head() const noexcept override { return output_head_; }

    void prefill(std::size_t slot, std::size_t first, std::span<sureleap::token_id const> tokens) override;
    [[nodiscard]] sureleap::logits_rows<float> score(sureleap::verify_batch const& batch) override;
    void commit(std::span<sureleap::verdict const> verdicts) noexcept override;
    [[nodiscard]] sureleap::matrix_view<float> features() const noexcept override;
    [[nodiscard]] bool rows_depend_on_batch() const noexcept override { return true; }
    [[nodiscard]] std::span<int const> feature_layers() const noexcept override { return feature_layers_; }

    [[nodiscard]] llama_model const* model() const noexcept { return model_.get(); }

private:
    /// Throws if the last pass, over `what`, failed; its last `rows` rows are features().
    void end_pass(char const* what, std::size_t rows);
    void drop_kept(std::size_t slot);

    std::vector<int> feature_layers_;
    engine::serving_limits limits_;
    std::unique_ptr<llama_model, release> model_;
    std::optional<sureleap::llama_features> features_;
    std::unique_ptr<llama_context, release> context_;
    std::optional<sureleap::llama_target> target_;
    std::optional<engine::checkpoint> file_;
    engine::weight embeddings_{};
    engine::weight output_head_{};
    std::size_t rows_ = 0;  // of the last pass, its last ones
};

}  // namespace llama_example
