// SPDX-License-Identifier: MIT
//
// A language model of its own vocabulary as a draft, for a target of any: sureleap::retokenised_drafts and
// sureleap::shared_token_model ask it in its own tokens.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/verify/verify_batch.hpp>

#include "causal_lm.hpp"
#include "checkpoint.hpp"
#include "target.hpp"
#include "thread_pool.hpp"
#include "tokenizer.hpp"

namespace engine {

/// A tokenizer, which must outlive it, as sureleap::text_tokenizer.
struct token_texts {
    tokenizer const* of;

    [[nodiscard]] std::string_view text_of(token_id x) const { return of->bytes_of(x); }
    [[nodiscard]] std::vector<token_id> encode(std::string_view text) const {
        return of->encode(text, {.add_special = false});
    }
};

/// Models sureleap::autoregressive_model. It knows by slot whose keys are in its cache, and reads what is missing when
/// a block begins: a prompt, a correction, or tokens that were made anew of a text. A request that its context has no
/// room for has no law.
template <class Real>
class draft_lm {
public:
    /// As causal_lm, with a row for each slot in limits.max_rows.
    draft_lm(checkpoint from, thread_pool& pool, serving_limits const& limits)
        : model_(std::move(from), {}, pool, limits), known_(limits.slots), memory_(batch_bytes(limits.slots)) {
        sureleap::workspace space{std::span<std::byte>(memory_)};
        batch_ = {space, limits.slots, 0};
    }
    draft_lm(draft_lm const&) = delete;
    draft_lm& operator=(draft_lm const&) = delete;

    [[nodiscard]] causal_lm<Real> const& model() const noexcept { return model_; }

    [[nodiscard]] sureleap::logits_rows<Real> forward(std::span<sureleap::request_view const> requests,
                                                      sureleap::draft_prefixes const& prefixes) {
        asked_.clear();
        places_.clear();
        for (std::size_t r = 0; r < requests.size(); ++r) {
            sureleap::request_view request = requests[r];
            auto const prefix = prefixes.of(r);
            constexpr std::size_t any = std::numeric_limits<std::size_t>::max();
            if (request.draft_cap(any) <= prefix.size()) continue;
            if (request.position + prefix.size() >= model_.limits().context_length) continue;
            if (prefix.empty()) read(request.slot, request.context.first(request.context.size() - 1));
            request.position += prefix.size();
            if (!prefix.empty()) request.anchor = prefix.back();
            asked_.push_back(request);
            places_.push_back(r);
        }
        sureleap::logits_rows<Real> scored{};
        if (!asked_.empty()) {
            batch_.begin(asked_);
            for (std::size_t i = 0; i < asked_.size(); ++i) batch_.append({});
            scored = model_.score(batch_);
        }
        for (sureleap::request_view const& request : asked_) {
            known_[request.slot].resize(request.position);
            known_[request.slot].push_back(request.anchor);
        }
        if (asked_.size() == requests.size()) return scored;
        rows_.assign(requests.size() * model_.vocabulary(), std::numeric_limits<Real>::quiet_NaN());
        for (std::size_t i = 0; i < asked_.size(); ++i) {
            auto const row = scored.values.row(i);
            std::copy(row.begin(), row.end(), rows_.begin() + static_cast<std::ptrdiff_t>(places_[i] * row.size()));
        }
        return {.values = {rows_.data(), requests.size(), model_.vocabulary()}};
    }

private:
    [[nodiscard]] static std::size_t batch_bytes(std::size_t slots) {
        sureleap::workspace sizer;
        sureleap::verify_batch const batch(sizer, slots, 0);
        return sizer.used();
    }
    void read(std::size_t slot, std::span<token_id const> context) {
        std::vector<token_id>& known = known_[slot];
        auto const same = std::mismatch(known.begin(), known.end(), context.begin(), context.end()).first;
        known.erase(same, known.end());
        while (known.size() < context.size()) {
            auto const next = context.subspan(known.size());
            auto const chunk = next.first(std::min(model_.limits().max_rows, next.size()));
            model_.prefill(slot, known.size(), chunk);
            known.insert(known.end(), chunk.begin(), chunk.end());
        }
    }

    causal_lm<Real> model_;
    std::vector<std::vector<token_id>> known_;  // by slot: whose keys are in the cache
    std::vector<std::byte> memory_;
    sureleap::verify_batch batch_;
    std::vector<sureleap::request_view> asked_;
    std::vector<std::size_t> places_;  // of these in the round
    std::vector<Real> rows_;
};

/// The same with the tokenizers between which its texts go.
template <class Real>
struct language_draft {
    language_draft(tokenizer its_own, tokenizer of_target, checkpoint from, thread_pool& pool,
                   serving_limits const& limits)
        : own(std::move(its_own)), served(std::move(of_target)), model(std::move(from), pool, limits) {}

    tokenizer own;
    tokenizer served;  ///< the target's
    draft_lm<Real> model;
};

}  // namespace engine
