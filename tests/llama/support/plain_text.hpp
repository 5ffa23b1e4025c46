// SPDX-License-Identifier: MIT
//
// What llama.cpp says without speculation, one token a pass in a context of its own: rows, and whole texts under a rule
// whose text depends on the request alone.
#pragma once

#include <cstddef>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <sureleap/ext/llama.hpp>
#include <sureleap/sureleap.hpp>

#include "batches.hpp"
#include "tiny_models.hpp"

namespace support {

/// Rows by passes of one token. What a context has in common with the last one is not decoded again, unless the memory
/// cannot go back.
class one_by_one {
public:
    explicit one_by_one(tiny_model const& model, llama_context_params const& params = tiny_context_params())
        : context_(make_context(model, params)) {}

    void operator()(std::span<sureleap::token_id const> tokens, std::span<float> row) {
        std::size_t same = 0;
        while (same < held_.size() && same + 1 < tokens.size() && held_[same] == tokens[same]) ++same;
        if (same < held_.size()) {
            llama_memory_clear(llama_get_memory(context_.get()), true);
            held_.clear();
            same = 0;
        }
        for (; same < tokens.size(); ++same) {
            if (token_batch().add(tokens[same], static_cast<llama_pos>(same)).decode(context_) != 0) {
                throw std::runtime_error("one_by_one: a pass failed");
            }
            held_.push_back(tokens[same]);
        }
        auto const logits = logits_of(context_, 0);
        std::copy(logits.begin(), logits.end(), row.begin());
    }

private:
    tiny_context context_;
    std::vector<sureleap::token_id> held_;
};

[[nodiscard]] inline std::size_t tokens_of(tiny_model const& model) {
    return static_cast<std::size_t>(llama_vocab_n_tokens(llama_model_get_vocab(model.get())));
}

/// Logits that are raised: whether a token was nearly drawn.
struct favour {
    sureleap::token_id token = 0;
    float by = 0.0F;
};

/// Of keyed_coupling: the same text under every schedule and drafter.
[[nodiscard]] inline std::vector<sureleap::token_id> plain_text(
    tiny_model const& model, std::span<sureleap::token_id const> prompt, sureleap::request_settings const& settings,
    favour const& raised = {}, llama_context_params const& params = tiny_context_params()) {
    auto target = sureleap::model_of<float>(tokens_of(model),
                                            [&, rows = one_by_one(model, params)](auto context, auto row) mutable {
                                                rows(context, row);
                                                row[static_cast<std::size_t>(raised.token)] += raised.by;
                                            });
    sureleap::lookup drafter({.target_vocabulary = tokens_of(model)});
    sureleap::decoder dec{target, drafter, sureleap::fixed_schedule{0}, sureleap::keyed_coupling{}};
    auto const id = dec.submit(prompt, settings);
    while (dec.step()) {
    }
    auto const text = dec.generated(id);
    return {text.begin(), text.end()};
}

/// What a request writes without speculation, token by token. Rows depend a little on the batch, so that another token
/// may be drawn where two are nearly level. Then the text goes on from there.
class expected_text {
public:
    /// `text` is plain_text of the others.
    expected_text(tiny_model model, llama_context_params const& params, std::vector<sureleap::token_id> prompt,
                  sureleap::request_settings const& settings, std::vector<sureleap::token_id> text)
        : model_(std::move(model)),
          params_(params),
          prompt_(std::move(prompt)),
          settings_(settings),
          text_(std::move(text)) {}

    /// The next token may be this one.
    [[nodiscard]] bool takes(sureleap::token_id x) {
        if (has_ended()) return false;
        if (x != text_[taken_] && !goes_on_with(x)) return false;
        ++taken_;
        return true;
    }
    [[nodiscard]] bool has_ended() const noexcept { return taken_ == text_.size(); }
    /// Tokens so far that were nearly level with the ones expected.
    [[nodiscard]] std::size_t level() const noexcept { return level_; }

private:
    [[nodiscard]] bool goes_on_with(sureleap::token_id x) {
        std::vector<sureleap::token_id> before = prompt_;
        before.insert(before.end(), text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(taken_));
        sureleap::request_settings rest = settings_;
        rest.max_new_tokens -= taken_;
        if (plain_text(model_, before, rest, {x, 1e-3F}, params_)[0] != x) return false;
        ++level_;
        text_.resize(taken_);
        text_.push_back(x);
        before.push_back(x);
        if (--rest.max_new_tokens > 0) {
            auto const other = plain_text(model_, before, rest, {}, params_);
            text_.insert(text_.end(), other.begin(), other.end());
        }
        return true;
    }

    tiny_model model_;
    llama_context_params params_;
    std::vector<sureleap::token_id> prompt_;
    sureleap::request_settings settings_;
    std::vector<sureleap::token_id> text_;
    std::size_t taken_ = 0;
    std::size_t level_ = 0;
};

/// A prompt that repeats itself, so that lookup finds something: `period` random tokens, over and over.
[[nodiscard]] inline std::vector<sureleap::token_id> repeating_prompt(std::size_t seed, std::size_t size,
                                                                      std::size_t period) {
    std::vector<sureleap::token_id> tokens;
    for (std::size_t i = 0; i < size; ++i) {
        tokens.push_back(static_cast<sureleap::token_id>(3 + (seed * 7919 + (i % period) * 104729) % 250));
    }
    return tokens;
}

}  // namespace support
