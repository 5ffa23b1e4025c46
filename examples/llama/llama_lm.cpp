// SPDX-License-Identifier: MIT
#include "llama_lm.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <engine/model_files.hpp>
#include <sureleap/core/error.hpp>

namespace llama_example {
namespace {

using sureleap::fail_with;

[[nodiscard]] llama_context_params parameters(engine::thread_pool const& pool, engine::serving_limits const& limits,
                                              std::size_t tree_paths) {
    llama_context_params params = llama_context_default_params();
    std::size_t const sequences = limits.slots * tree_paths;
    // A context is never smaller than a batch, nor a batch than the number of sequences.
    std::size_t const rows = std::max(limits.max_rows, sequences);
    params.n_ctx = static_cast<std::uint32_t>(std::max(limits.slots * limits.context_length, rows));
    params.n_seq_max = static_cast<std::uint32_t>(sequences);
    params.n_batch = static_cast<std::uint32_t>(rows);
    params.n_ubatch = params.n_batch;
    params.kv_unified = true;
    // Verification is a batch, plain decoding is not: the same threads, or they could not be compared.
    params.n_threads = static_cast<std::int32_t>(pool.threads());
    params.n_threads_batch = params.n_threads;
    return params;
}

}  // namespace

llama_lm::llama_lm(std::filesystem::path const& file, std::vector<int> feature_layers, engine::thread_pool const& pool,
                   engine::serving_limits const& limits, std::size_t tree_paths)
    : feature_layers_(std::move(feature_layers)), limits_(limits) {
    llama_log_set([](ggml_log_level, char const*, void*) {}, nullptr);
    model_.reset(llama_model_load_from_file(file.c_str(), llama_model_default_params()));
    if (!model_) fail_with(file.string(), ": llama.cpp cannot load it, expected a GGUF file of a model");
    llama_context_params params = parameters(pool, limits, tree_paths);
    if (!feature_layers_.empty()) features_.emplace(feature_layers_).attach(params);
    context_.reset(llama_init_from_model(model_.get(), params));
    if (!context_) {
        fail_with(file.string(), ": llama.cpp makes no context of ", params.n_seq_max, " sequences, ", limits.slots,
                  " of them of ", limits.context_length, " tokens, expected enough memory for it and at most ",
                  llama_max_parallel_sequences(), " sequences");
    }
    target_.emplace(context_.get(), sureleap::llama_target_options{.max_requests = limits.slots,
                                                                   .features = features_ ? &*features_ : nullptr,
                                                                   .tree_paths = tree_paths,
                                                                   .trusts_positions = true});
    if (feature_layers_.empty()) return;
    file_.emplace(engine::checkpoint_of(file));
    auto const& config = file_->config().transformer;
    embeddings_ = file_->matrix("model.embed_tokens.weight", config.vocabulary, config.hidden_size);
    output_head_ =
        config.tied_embeddings ? embeddings_ : file_->matrix("lm_head.weight", config.vocabulary, config.hidden_size);
}

std::size_t llama_lm::hidden_size() const noexcept {
    return static_cast<std::size_t>(llama_model_n_embd(model_.get()));
}

/// The engine reads the rows of a pass after it, and none later.
void llama_lm::drop_kept(std::size_t slot) {
    if (features_) features_->take(slot, features_->rows(slot).rows);
}

void llama_lm::end_pass(char const* what, std::size_t rows) {
    if (target_->outcome() != sureleap::llama_outcome::ok) {
        fail_with("llama_lm: a ", what, " of ", rows, " tokens failed: ", sureleap::to_string(target_->outcome()));
    }
    rows_ = rows;
}

void llama_lm::prefill(std::size_t slot, std::size_t first, std::span<sureleap::token_id const> tokens) {
    target_->prefill(slot, first, tokens);
    end_pass("prompt", tokens.size());
    drop_kept(slot);
}

sureleap::logits_rows<float> llama_lm::score(sureleap::verify_batch const& batch) {
    auto const rows = target_->score(batch);
    end_pass("batch", batch.rows());
    for (auto const& request : batch.requests()) drop_kept(request.slot);
    return rows;
}

void llama_lm::commit(std::span<sureleap::verdict const> verdicts) noexcept {
    target_->commit(verdicts);
    for (sureleap::verdict const& v : verdicts) drop_kept(v.slot);
}

sureleap::matrix_view<float> llama_lm::features() const noexcept {
    if (!features_) return {};
    auto const all = features_->last_pass();
    return {all.row(all.rows - rows_).data(), rows_, all.cols};
}

}  // namespace llama_example
