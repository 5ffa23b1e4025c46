// SPDX-License-Identifier: MIT
//
// The simplest kind of model: a function from a context to logits, used as a target or as an autoregressive draft.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/pass.hpp>
#include <sureleap/verify/verify_batch.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Wraps `f(std::span<token_id const> context, std::span<Real> logits)`, which fills the logits of the token after
/// `context`. Models target_model and autoregressive_model. Needs request_view::context.
///
/// For small models, examples and tests: every row is computed from its whole context, one after another. The rows of a
/// pass stay until the next one. Buffers grow on demand; reserve() keeps rounds free of allocation (of the object it is
/// called on: a copy has buffers of its own).
template <class Real, class Function>
class context_model {
public:
    context_model(std::size_t vocabulary, Function f) : vocabulary_(vocabulary), f_(std::move(f)) {
        if (vocabulary == 0) fail_with("context_model: vocabulary is 0, expected the number of tokens V");
    }

    [[nodiscard]] std::size_t vocabulary() const noexcept { return vocabulary_; }

    /// Room for `rows` rows in a call and contexts of up to `context` tokens.
    void reserve(std::size_t rows, std::size_t context) {
        logits_.reserve(rows * vocabulary_);
        context_.reserve(context);
    }

    static constexpr bool scores_trees = true;

    /// As a target.
    [[nodiscard]] logits_rows<Real> score(verify_batch const& batch) {
        pass_stamp const pass = passes_.begin(fingerprint_of(batch.requests()));
        logits_.resize(batch.rows() * vocabulary_);
        for (std::size_t row = 0; row < batch.rows(); ++row) {
            request_view const& request = batch.requests()[batch.markers()[row]];
            auto const depth = static_cast<std::size_t>(batch.positions()[row] - request.position);
            begin(request);
            context_.resize(context_.size() + depth);
            auto at = static_cast<std::uint32_t>(row);
            for (std::size_t k = 1; k <= depth; ++k, at = batch.parents()[at]) {
                context_[context_.size() - k] = batch.tokens()[at];
            }
            evaluate(row);
        }
        return {.values = {logits_.data(), batch.rows(), vocabulary_}, .pass = pass};
    }
    /// As an autoregressive draft.
    [[nodiscard]] logits_rows<Real> forward(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        pass_stamp const pass = passes_.begin(fingerprint_of(requests));
        logits_.resize(requests.size() * vocabulary_);
        for (std::size_t r = 0; r < requests.size(); ++r) {
            auto const prefix = prefixes.of(r);
            begin(requests[r]);
            context_.insert(context_.end(), prefix.begin(), prefix.end());
            evaluate(r);
        }
        return {.values = {logits_.data(), requests.size(), vocabulary_}, .pass = pass};
    }

private:
    void begin(request_view const& request) { context_.assign(request.context.begin(), request.context.end()); }
    void evaluate(std::size_t row) {
        f_(std::span<token_id const>(context_), std::span<Real>(logits_).subspan(row * vocabulary_, vocabulary_));
    }

    std::size_t vocabulary_;
    Function f_;
    pass_counter passes_;
    std::vector<Real> logits_;
    std::vector<token_id> context_;
};

/// `auto target = model_of<float>(V, [](auto context, auto logits) { ... });`
template <class Real, class Function>
[[nodiscard]] context_model<Real, Function> model_of(std::size_t vocabulary, Function f) {
    return {vocabulary, std::move(f)};
}

SURELEAP_END_NAMESPACE
