// SPDX-License-Identifier: MIT
//
// Hidden states of chosen layers, which drafters like DSpark, DFlash and Eagle3 feed on, read through the eval callback
// of llama_context_params: public, and the same in every version of llama.cpp for years.
//
//     llama_features features{{8, 17, 26}};
//     llama_context_params params = llama_context_default_params();
//     features.attach(params);                                          // before the context is made
//     llama_target target{context, drafter, {.features = &features}};   // rows are kept from here on
//
// A layer's row is the residual stream behind it, named "l_out-<layer>" in llama.cpp's graphs, counted from 0. Most of
// its architectures name it; one that does not is refused when the target is made. The graph is computed in pieces that
// end with these layers. On a CPU that costs little; on a device it costs a synchronisation each, and graph capture.
// layer_inputs.hpp has another way, for programs that have llama.cpp's sources.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <llama.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ext/llama/outcome.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {
class llama_sequences;
}

/// Keeps a row for every token that its target decodes, until take(): the layers' hidden states one after another,
/// layers * hidden size numbers. It must not move while a context has it, and must outlive it.
class llama_features {
public:
    /// Layers in the order in which the drafter reads them.
    explicit llama_features(std::vector<int> layers) : layers_(std::move(layers)), filled_(layers_.size()) {
        if (layers_.empty()) fail_with("llama_features: there are no layers, expected at least one");
        for (int const layer : layers_) names_.push_back("l_out-" + std::to_string(layer));
    }
    llama_features(llama_features const&) = delete;
    llama_features& operator=(llama_features const&) = delete;

    /// Of the context that will be made from these. Error if they have another callback.
    void attach(llama_context_params& params) {
        if (params.cb_eval != nullptr) {
            fail_with(
                "llama_features: the context has an eval callback already, expected none; llama.cpp calls one alone");
        }
        params.cb_eval = [](ggml_tensor* tensor, bool ask, void* self) {
            return static_cast<llama_features*>(self)->see(*tensor, ask);
        };
        params.cb_eval_user_data = this;
    }

    /// Rows of a layer after a pass, [tokens, hidden size], in the order of the batch.
    using layer_rows = float const* (*)(llama_context* context, int layer);
    /// Instead of attach: rows are asked for after each pass, by a function that lasts as long as the context does.
    void read_after_pass(layer_rows of_layer) noexcept { layer_rows_ = of_layer; }
    [[nodiscard]] std::vector<int> const& layers() const noexcept { return layers_; }

    /// Rows of all tokens of the last pass, in the order of its batch.
    [[nodiscard]] matrix_view<float> last_pass() const noexcept {
        return {pass_.data(), width() == 0 ? 0 : pass_.size() / width(), width()};
    }
    /// Numbers of a row.
    [[nodiscard]] std::size_t width() const noexcept { return layers_.size() * hidden_size_; }
    /// Position of the first row that is kept of a slot.
    [[nodiscard]] std::size_t first(std::size_t slot) const noexcept { return kept_[slot].first; }
    /// Rows of the tokens at first(), first() + 1, ..: all that were decoded, committed and not taken. [n, width()]
    [[nodiscard]] matrix_view<float> rows(std::size_t slot) const noexcept {
        return {kept_[slot].rows.data(), kept_[slot].rows.size() / std::max(width(), std::size_t{1}), width()};
    }
    /// The first `count` rows of a slot were used. If the sequence has to be decoded again, they do not come again.
    /// Another text in the slot makes first() the position where it differs: from there on everything comes.
    void take(std::size_t slot, std::size_t count) {
        kept& k = kept_[slot];
        k.rows.erase(k.rows.begin(), k.rows.begin() + static_cast<std::ptrdiff_t>(count * width()));
        k.first += count;
    }

private:
    friend class detail::llama_sequences;

    struct kept {
        std::size_t first = 0;
        std::vector<float> rows;
    };

    void bind(char const* owner, llama_context* context, std::size_t slots) {
        llama_model const* const model = llama_get_model(context);
        hidden_size_ = static_cast<std::size_t>(llama_model_n_embd(model));
        last_layer_ = llama_model_n_layer(model) - 1;
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            if (layers_[i] < 0 || layers_[i] > last_layer_) {
                fail_with(owner, ": feature layer ", i, " is ", layers_[i], ", expected 0 .. ", last_layer_);
            }
        }
        kept_.assign(slots, {});
    }
    /// After a pass over one token: what is expected came.
    void check(char const* owner, llama_outcome outcome) const {
        if (outcome != llama_outcome::ok) {
            fail_with(owner, ": a pass over one token failed: ", to_string(outcome),
                      "; expected the context to be usable");
        }
        for (std::size_t i = 0; i < layers_.size(); ++i) {
            if (filled_[i] == 1) continue;
            fail_with(
                owner, ": no hidden state of layer ", layers_[i], " came from the context, expected \"", names_[i],
                "\" in its graph; either it was made without llama_features::attach, or the architecture does not "
                "name its layers so");
        }
    }
    [[nodiscard]] bool reads_last_layer() const noexcept {
        return std::find(layers_.begin(), layers_.end(), last_layer_) != layers_.end();
    }
    /// Before a pass over `tokens` tokens.
    void begin(std::size_t tokens) {
        pass_.resize(tokens * width());
        std::fill(filled_.begin(), filled_.end(), 0);
    }
    /// llama.cpp's callback. Rows come in order of the batch, one part of it after another.
    [[nodiscard]] bool see(ggml_tensor const& tensor, bool ask) {
        auto const at = std::find(names_.begin(), names_.end(), std::string_view(ggml_get_name(&tensor)));
        if (at == names_.end()) return !ask;
        if (ask) return true;
        auto const layer = static_cast<std::size_t>(at - names_.begin());
        auto const rows = static_cast<std::size_t>(ggml_nrows(&tensor));
        bool const fits = tensor.type == GGML_TYPE_F32 && static_cast<std::size_t>(tensor.ne[0]) == hidden_size_ &&
                          (filled_[layer] + rows) * width() <= pass_.size();
        if (!fits) return true;  // another user's pass; check() and keep() notice missing rows
        copied_.resize(rows * hidden_size_);
        ggml_backend_tensor_get(&tensor, copied_.data(), 0, copied_.size() * sizeof(float));
        fill(layer, copied_.data(), rows);
        return true;
    }
    /// After a pass that went well.
    void end(llama_context* context) {
        if (layer_rows_ == nullptr) return;
        for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
            filled_[layer] = 0;  // whatever an eval callback brought
            fill(layer, layer_rows_(context, layers_[layer]), pass_.size() / width());
        }
    }
    void fill(std::size_t layer, float const* rows, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            std::copy_n(
                rows + i * hidden_size_, hidden_size_,
                pass_.begin() + static_cast<std::ptrdiff_t>((filled_[layer] + i) * width() + layer * hidden_size_));
        }
        filled_[layer] += count;
    }
    /// Token i of the pass is at `position` of a slot.
    void keep(std::size_t slot, std::size_t position, std::size_t i) {
        kept& k = kept_[slot];
        if (position != k.first + k.rows.size() / width()) return;  // it was taken before
        auto const row = pass_.begin() + static_cast<std::ptrdiff_t>(i * width());
        k.rows.insert(k.rows.end(), row, row + static_cast<std::ptrdiff_t>(width()));
    }
    /// Tokens from `position` on were others than the request's, or another request's.
    void go_back(std::size_t slot, std::size_t position) {
        truncate(slot, position);
        kept_[slot].first = std::min(kept_[slot].first, position);
    }
    /// Tokens from `position` on are no longer held.
    void truncate(std::size_t slot, std::size_t position) {
        if (slot >= kept_.size()) return;
        kept& k = kept_[slot];
        std::size_t const count = position > k.first ? position - k.first : 0;
        if (count * width() < k.rows.size()) k.rows.resize(count * width());
    }

    std::vector<int> layers_;
    std::vector<std::string> names_;
    std::size_t hidden_size_ = 0;
    int last_layer_ = -1;
    layer_rows layer_rows_ = nullptr;
    std::vector<kept> kept_;
    std::vector<float> pass_;          // [tokens, width()] of the last pass
    std::vector<std::size_t> filled_;  // rows of it that came, by layer
    std::vector<float> copied_;
};

SURELEAP_END_NAMESPACE
