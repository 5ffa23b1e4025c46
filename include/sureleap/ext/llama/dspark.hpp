// SPDX-License-Identifier: MIT
//
// A DSpark drafter in a GGUF file, its layers run by llama.cpp: a backbone with the heads of the file, whose q is
// exact. llama.cpp's own chain behind these layers is the greedy one; here its graph ends before the head.
//
//     llama_dspark dspark{"drafter.gguf"};
//     dspark.attach(params);                                      // before the target's context is made
//     llama_context* const context = llama_init_from_model(model, params);
//     dspark.serve(context, {.max_requests = 4});
//     semi_autoregressive drafter{dspark, dspark.head(), dspark.confidence(), dspark.options()};
//     llama_target target{context, drafter, {.max_requests = 4, .features = &dspark.features()}};
//
// The past of a request is injected as keys and values, from what the target computed for it. So a request drafts as
// soon as the target has decoded its prompt, which is from its second round on.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <llama.h>

#include <sureleap/confidence/head.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/ext/llama/dspark_file.hpp>
#include <sureleap/ext/llama/features.hpp>
#include <sureleap/ext/llama/outcome.hpp>
#include <sureleap/head/int8.hpp>
#include <sureleap/head/linear.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

SURELEAP_BEGIN_NAMESPACE

struct llama_dspark_options {
    std::size_t max_requests = 1;  ///< of a round; slots are below it
    std::size_t block_size = 7;    ///< gamma; at most what the file drafts
};

/// Models backbone. Must not move, must outlive the target's context, and must not be served by two targets at a time.
/// Not thread-safe.
///
/// A request whose past is not known drafts nothing. A pass that fails costs its round the drafts, and outcome() says
/// why.
class llama_dspark {
public:
    using value_type = float;
    using head_type = markov_head<half, float, native_backend, int8_view>;
    using confidence_type = confidence_head<half>;

    /// Loads the file. Throws if it is no DSpark drafter with a Markov head and a confidence head, or if llama.cpp
    /// refuses it.
    explicit llama_dspark(std::string const& path) : llama_dspark(detail::gguf_numbers{path}) {}
    llama_dspark(llama_dspark const&) = delete;
    llama_dspark& operator=(llama_dspark const&) = delete;

    /// Of the target's context that will be made from these.
    void attach(llama_context_params& params) { features_.attach(params); }
    [[nodiscard]] llama_features& features() noexcept { return features_; }
    /// Tokens of a block at most.
    [[nodiscard]] std::size_t most_drafts() const noexcept { return rows_ - first_; }

    /// Makes the drafter's own context. Throws if drafter and target are not of one vocabulary and hidden size.
    void serve(llama_context* target, llama_dspark_options const& options) {
        llama_model const* const served = llama_get_model(target);
        auto const vocabulary = static_cast<std::size_t>(llama_vocab_n_tokens(llama_model_get_vocab(served)));
        if (vocabulary != target_size_ || llama_model_n_embd(served) != llama_model_n_embd(model_.get())) {
            fail_with("llama_dspark: the target has ", vocabulary, " tokens and hidden states of ",
                      llama_model_n_embd(served), " numbers, expected ", target_size_, " and ",
                      llama_model_n_embd(model_.get()), ": the file was made for another target");
        }
        detail::check_block_size("llama_dspark", "block_size (gamma)", options.block_size);
        if (options.block_size > most_drafts()) {
            fail_with("llama_dspark: block_size is ", options.block_size, ", expected at most the file's ",
                      most_drafts());
        }
        auto params = llama_context_default_params();
        std::size_t const batch = std::max<std::size_t>(options.max_requests * rows_, 256);
        params.n_batch = params.n_ubatch = static_cast<std::uint32_t>(batch);
        params.n_seq_max = static_cast<std::uint32_t>(options.max_requests);
        params.n_ctx = static_cast<std::uint32_t>(llama_n_ctx(target) + options.max_requests * rows_);
        params.kv_unified = true;
        params.n_threads = llama_n_threads(target);
        params.n_threads_batch = llama_n_threads_batch(target);
        params.ctx_other = target;  // whose embedding and LM head it reads where it has none
        params.cb_eval = [](ggml_tensor* tensor, bool ask, void* self) {
            return static_cast<llama_dspark*>(self)->see(*tensor, ask);
        };
        params.cb_eval_user_data = this;
        context_.reset(llama_init_from_model(model_.get(), params));
        if (!context_) fail_with("llama_dspark: llama.cpp makes no context for the drafter; its log says why");
        llama_set_causal_attn(context_.get(), false);  // positions of a block see each other
        served_ = options;
        injected_.assign(options.max_requests, 0);
    }

    // What a drafter is made of. Precondition: serves a target.
    [[nodiscard]] head_type const& head() const noexcept { return *head_; }
    [[nodiscard]] confidence_type const& confidence() const noexcept { return *confidence_; }
    [[nodiscard]] drafter_options options() const noexcept {
        return {.block_size = served_.block_size,
                .vocabulary = draft_size(),
                .hidden_size = hidden_size(),
                .map = map_ ? &*map_ : nullptr};
    }
    /// What became of the last forward.
    [[nodiscard]] llama_outcome outcome() const noexcept { return outcome_; }

    /// All of a block, or nothing while the target has not computed the request's past.
    [[nodiscard]] std::size_t room(request_view const& request) const noexcept {
        std::uint64_t const known = features_.first(request.slot) + features_.rows(request.slot).rows;
        bool const fits = request.position + rows_ <= llama_n_ctx_seq(context_.get());
        return request.position > 0 && request.position == known && fits ? served_.block_size : 0;
    }

    /// One pass for all requests that draft.
    [[nodiscard]] block_forward<float> forward(std::span<request_view const> requests) {
        std::size_t const gamma = served_.block_size;
        hidden_.assign(requests.size() * gamma * hidden_size(), 0.0F);
        logits_.assign(requests.size() * gamma * draft_size(), 0.0F);
        outcome_ = decode(requests);
        if (outcome_ != llama_outcome::ok) return {};
        return {{hidden_.data(), requests.size() * gamma, hidden_size()},
                {{logits_.data(), requests.size() * gamma, draft_size()}, {}, {}}};
    }

    /// A pass over blocks of so many requests, of which nothing stays.
    void dry_run(std::size_t requests) {
        std::vector<request_view> views;
        for (std::size_t r = 0; r < requests; ++r) views.push_back({.slot = r, .anchor = 0});
        outcome_ = pass(views);
        if (outcome_ != llama_outcome::ok) {
            fail_with("llama_dspark: a dry run of ", requests, " requests failed: ", to_string(outcome_),
                      "; expected room for them in the context");
        }
    }

private:
    struct release {
        void operator()(llama_model* model) const noexcept { llama_model_free(model); }
        void operator()(llama_context* context) const noexcept { llama_free(context); }
    };

    explicit llama_dspark(detail::gguf_numbers const& file)
        : rows_(file.number("dflash.block_size")),
          first_(file.flag("dflash.sample_from_anchor", true) ? 0 : 1),
          mask_(static_cast<token_id>(file.number("tokenizer.ggml.mask_token_id"))),
          features_(layers_of(file)) {
        if (std::string_view const kind = file.text("general.architecture"); kind != "dflash") {
            fail_with(file.path(), ": general.architecture is \"", std::string(kind), "\", expected \"dflash\"");
        }
        if (rows_ <= first_ || rows_ > 1024) {
            fail_with(file.path(), ": dflash.block_size is ", rows_, ", expected ", first_ + 1, " .. 1024");
        }
        target_size_ = file.rows("markov_w1.weight");
        std::size_t const rank = file.columns("markov_w1.weight");
        std::size_t const drafted = file.rows("markov_w2.weight");
        w1_ = file.matrix<half>("markov_w1.weight", target_size_, rank);
        auto const w2 = file.matrix<float>("markov_w2.weight", drafted, rank);
        w2_.emplace(matrix_view<float>{w2.data(), drafted, rank});
        std::size_t const inputs = file.columns("conf_proj.weight");
        weights_ = file.matrix<half>("conf_proj.weight", 1, inputs);
        float const bias = file.has("conf_proj.bias") ? file.matrix<float>("conf_proj.bias", 1, 1)[0] : 0.0F;
        matrix_view<half> const w1{w1_.data(), target_size_, rank};
        head_.emplace(w1, w2_->view());
        confidence_.emplace(matrix_view<half>{weights_.data(), 1, inputs}, bias, w1);
        if (file.has("d2t")) {
            drawn_ = file.tokens("d2t");
            map_.emplace(drawn_, target_size_);
        }
        model_.reset(llama_model_load_from_file(file.path().c_str(), llama_model_default_params()));
        if (!model_) {
            fail_with(file.path(),
                      ": llama.cpp cannot load it and says why in its log; a drafter without the target's tokenizer is "
                      "completed by examples/train/to_gguf.py --target");
        }
        if (hidden_size() != confidence_->hidden_size() || draft_size() != drafted) {
            fail_with(file.path(), ": the heads are made for hidden states of ", confidence_->hidden_size(),
                      " numbers and ", drafted, " drafted tokens, expected ", hidden_size(), " and ", draft_size());
        }
    }
    /// A file counts the inputs of layers, features what is behind a layer.
    [[nodiscard]] static std::vector<int> layers_of(detail::gguf_numbers const& file) {
        std::vector<int> layers;
        for (std::int32_t const input : file.numbers("dflash.target_layers")) {
            if (input < 1) {
                fail_with(file.path(), ": dflash.target_layers has ", input,
                          ", expected inputs of layers from 1 on: what is before the first is no hidden state");
            }
            layers.push_back(input - 1);
        }
        return layers;
    }

    [[nodiscard]] std::size_t hidden_size() const noexcept {
        return static_cast<std::size_t>(llama_model_n_embd(model_.get()));
    }
    [[nodiscard]] std::size_t draft_size() const noexcept { return map_ ? drawn_.size() : target_size_; }
    [[nodiscard]] llama_outcome decode(std::span<request_view const> requests) {
        drafting_.clear();
        for (std::size_t r = 0; r < requests.size(); ++r) {
            if (requests[r].draft_cap(served_.block_size) == 0 || room(requests[r]) == 0) continue;
            if (auto const outcome = inject(requests[r].slot); outcome != llama_outcome::ok) return outcome;
            drafting_.push_back(r);
        }
        if (drafting_.empty()) return llama_outcome::ok;
        std::vector<request_view> views;
        for (std::size_t const r : drafting_) views.push_back(requests[r]);
        if (auto const outcome = pass(views); outcome != llama_outcome::ok) return outcome;
        std::size_t const gamma = served_.block_size;
        for (std::size_t i = 0; i < drafting_.size(); ++i) {
            for (std::size_t k = 0; k < gamma; ++k) {
                std::size_t const from = i * rows_ + first_ + k;
                std::size_t const to = drafting_[i] * gamma + k;
                std::copy_n(seen_hidden_.data() + from * hidden_size(), hidden_size(),
                            hidden_.data() + to * hidden_size());
                float const* const row = seen_logits_.data() + from * target_size_;
                for (std::size_t v = 0; v < draft_size(); ++v) {
                    logits_[to * draft_size() + v] = row[map_ ? static_cast<std::size_t>(drawn_[v]) : v];
                }
            }
        }
        return llama_outcome::ok;
    }

    /// What the target has computed of a slot since becomes keys and values.
    [[nodiscard]] llama_outcome inject(std::size_t slot) {
        auto const sequence = static_cast<llama_seq_id>(slot);
        std::uint64_t const first = features_.first(slot);
        if (injected_[slot] != first) remove(slot, first);
        auto const rows = features_.rows(slot);
        std::size_t const most = llama_n_batch(context_.get());
        for (std::size_t done = 0; done < rows.rows;) {
            std::size_t const count = std::min(most, rows.rows - done);
            batch_of(count, sequence, first + done, false);
            // llama.cpp reads it.
            auto const outcome = decode_batch(nullptr, const_cast<float*>(rows.row(done).data()));
            if (outcome != llama_outcome::ok) {
                remove(slot, first);
                return outcome;
            }
            done += count;
        }
        injected_[slot] = first + rows.rows;
        features_.take(slot, rows.rows);
        return llama_outcome::ok;
    }
    /// Of a slot, positions from `first` on.
    void remove(std::size_t slot, std::uint64_t first) {
        llama_memory_seq_rm(llama_get_memory(context_.get()), static_cast<llama_seq_id>(slot),
                            static_cast<llama_pos>(first), -1);
        injected_[slot] = first;
    }
    /// h and U of the blocks of these requests.
    [[nodiscard]] llama_outcome pass(std::span<request_view const> requests) {
        positions_.clear();
        sequences_.clear();
        tokens_.clear();
        for (request_view const& request : requests) {
            batch_of(rows_, static_cast<llama_seq_id>(request.slot), request.position, true, tokens_.size());
            tokens_.push_back(request.anchor);
            tokens_.resize(positions_.size(), mask_);
        }
        seen_hidden_.clear();
        seen_logits_.clear();
        auto const outcome = decode_batch(tokens_.data(), nullptr);
        for (request_view const& request : requests) {
            llama_memory_seq_rm(llama_get_memory(context_.get()), static_cast<llama_seq_id>(request.slot),
                                static_cast<llama_pos>(request.position), -1);
        }
        bool const seen = seen_hidden_.size() == tokens_.size() * hidden_size() &&
                          seen_logits_.size() == tokens_.size() * target_size_;
        return outcome == llama_outcome::ok && !seen ? llama_outcome::failed : outcome;
    }
    /// `count` tokens of a sequence behind the first `before` of the batch.
    void batch_of(std::size_t count, llama_seq_id sequence, std::uint64_t first, bool output, std::size_t before = 0) {
        positions_.resize(before);
        sequences_.resize(before);
        for (std::size_t i = 0; i < count; ++i) {
            positions_.push_back(static_cast<llama_pos>(first + i));
            sequences_.push_back(sequence);
        }
        outputs_.assign(positions_.size(), output ? 1 : 0);
        counts_.assign(positions_.size(), 1);
    }
    [[nodiscard]] llama_outcome decode_batch(llama_token* tokens, float* features) {
        ids_.clear();
        for (llama_seq_id& s : sequences_) ids_.push_back(&s);
        return outcome_of_code(llama_decode(context_.get(), {.n_tokens = static_cast<std::int32_t>(positions_.size()),
                                                             .token = tokens,
                                                             .embd = features,
                                                             .pos = positions_.data(),
                                                             .n_seq_id = counts_.data(),
                                                             .seq_id = ids_.data(),
                                                             .logits = outputs_.data()}));
    }
    /// llama.cpp's callback. Behind U comes the greedy chain, which nobody needs: the graph ends there.
    [[nodiscard]] bool see(ggml_tensor const& tensor, bool ask) {
        std::string_view const name = ggml_get_name(&tensor);
        bool const is_logits = name == "result_output";
        if (!is_logits && name != "result_norm") return !ask;
        if (ask) return true;
        auto& to = is_logits ? seen_logits_ : seen_hidden_;
        to.resize(static_cast<std::size_t>(ggml_nelements(&tensor)));
        ggml_backend_tensor_get(&tensor, to.data(), 0, to.size() * sizeof(float));
        return !is_logits;
    }

    std::size_t rows_;   // of a block, the anchor's the first
    std::size_t first_;  // of them, that drafts
    token_id mask_;
    llama_features features_;
    std::size_t target_size_ = 0;
    std::vector<half> w1_;
    std::optional<int8_matrix> w2_;
    std::vector<half> weights_;  // of the confidence
    std::optional<head_type> head_;
    std::optional<confidence_type> confidence_;
    std::vector<token_id> drawn_;  // the target's tokens that are drafted, if these are not all
    std::optional<vocabulary_map> map_;
    std::unique_ptr<llama_model, release> model_;
    std::unique_ptr<llama_context, release> context_;
    llama_dspark_options served_{};
    std::vector<std::uint64_t> injected_;  // positions of each slot that have keys and values
    llama_outcome outcome_ = llama_outcome::ok;
    std::vector<std::size_t> drafting_;
    std::vector<float> hidden_;  // what was returned last
    std::vector<float> logits_;
    std::vector<float> seen_hidden_;  // of the last pass
    std::vector<float> seen_logits_;
    // The batch.
    std::vector<llama_token> tokens_;
    std::vector<llama_pos> positions_;
    std::vector<llama_seq_id> sequences_;
    std::vector<llama_seq_id*> ids_;
    std::vector<std::int32_t> counts_;
    std::vector<std::int8_t> outputs_;
};

SURELEAP_END_NAMESPACE
