// SPDX-License-Identifier: MIT
//
// Models of an engine that fails. They are hash languages over a handful of tokens that throw and write NaN into rows.
// A state by slot shows whether the decoder keeps its promises. Nothing is asked behind a stop token.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/verify/verdict.hpp>
#include <sureleap/verify/verify_batch.hpp>

#include "support/dice.hpp"
#include "support/hash_models.hpp"

namespace soak {

using namespace sureleap;

inline constexpr std::size_t vocabulary = 8;
inline constexpr std::size_t block_size = 4;
inline constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();

// Sharp enough that drafts are often accepted.
inline constexpr support::hash_language target_language{.sharpness = 6.0};
inline constexpr support::hash_language draft_language{.own = 5, .disagreement = 0.3, .sharpness = 6.0};

/// What the models throw.
struct injected_failure {};

/// Decides when a model fails. One for an engine; models are called from the thread that calls step(), hooks from any.
struct faults {
    support::dice roll;
    double often = 0.01;
    std::atomic<std::size_t> thrown{0};
    std::size_t poisoned = 0;
    std::atomic<std::uint32_t> hooks{0};

    [[nodiscard]] bool strikes() { return roll.chance(often); }
    void may_throw() {
        if (strikes()) fail();
    }
    void hook_may_throw() {
        std::uint32_t const call = hooks.fetch_add(1);
        if (std::abs(support::hashed(7, call, 0, 0, 0)) < 0.1 * often) fail();
    }
    [[noreturn]] void fail() {
        ++thrown;
        throw injected_failure{};
    }
    /// A number of the row becomes NaN.
    void may_poison(std::span<float> row) {
        if (row.empty() || !strikes()) return;
        ++poisoned;
        row[roll.below(row.size())] = not_a_number;
    }
};

inline void demand(bool holds, char const* what) {
    if (holds) return;
    std::fprintf(stderr, "soak: %s\n", what);
    std::abort();
}

/// The target. Keeps the length of what it has committed for every slot, as a cache of keys and values would: each
/// round has to begin where the last one that was committed ended, whatever failed in between.
class cached_target {
public:
    static constexpr bool scores_trees = true;

    explicit cached_target(faults* faulty = nullptr) : faults_(faulty) {}

    [[nodiscard]] static std::size_t vocabulary() { return soak::vocabulary; }

    [[nodiscard]] logits_rows<float> score(verify_batch const& batch) {
        if (faults_ != nullptr) faults_->may_throw();
        logits_.resize(batch.rows() * soak::vocabulary);
        std::size_t row = 0;
        for (std::size_t r = 0; r < batch.requests().size(); ++r) {
            request_view const& request = batch.requests()[r];
            check(request);
            for (std::size_t k = 0; k <= batch.length(r); ++k, ++row) {
                context_.assign(request.context.begin(), request.context.end());
                add_path(batch, row);
                auto const logits = std::span(logits_).subspan(row * soak::vocabulary, soak::vocabulary);
                target_language(context_, logits);
                bool const ended = k > 0 && request.settings->stops_at(context_.back());
                if (ended) std::fill(logits.begin(), logits.end(), not_a_number);
                if (faults_ != nullptr) faults_->may_poison(logits);
            }
            if (faults_ != nullptr && r == batch.requests().size() / 2) faults_->may_throw();
        }
        return {{logits_.data(), batch.rows(), soak::vocabulary}, {}};
    }
    void commit(std::span<verdict const> verdicts) noexcept {
        for (verdict const& v : verdicts) {
            demand(v.outcome == status::ok || v.emitted.empty(), "a request that failed has emitted");
            cache_[v.slot].length += v.emitted.size();
        }
    }

private:
    struct entry {
        request_id id = 0;
        std::size_t length = 0;
    };
    // The drafted tokens up to `row`.
    void add_path(verify_batch const& batch, std::size_t row) {
        auto const first = context_.end() - context_.begin();
        for (std::size_t at = row; batch.parents()[at] != verify_batch::no_row; at = batch.parents()[at]) {
            context_.push_back(batch.tokens()[at]);
        }
        std::reverse(context_.begin() + first, context_.end());
    }
    void check(request_view const& request) {
        if (request.slot >= cache_.size()) cache_.resize(request.slot + 1);
        entry& known = cache_[request.slot];
        if (known.id != request.id) {
            demand(request.remaining == request.settings->max_new_tokens, "a new request is not at its beginning");
            known = {request.id, request.context.size()};
        }
        demand(known.length == request.context.size(), "a context is not what was committed");
        demand(request.position + 1 == request.context.size() && request.anchor == request.context.back(),
               "an anchor is not the last token");
    }

    faults* faults_;
    std::vector<float> logits_;
    std::vector<token_id> context_;
    std::vector<entry> cache_;
};

/// Changes rows a little, and throws.
struct faulty_hook {
    faults* faulty = nullptr;

    void operator()(hook_context const& at, std::span<float> row) const {
        bool const ended = !at.drafted.empty() && at.request.settings->stops_at(at.drafted.back());
        demand(!ended, "a hook is asked behind the end of a text");
        if (faulty != nullptr) faulty->hook_may_throw();
        row[(at.request.context.size() + at.drafted.size()) % row.size()] -= 0.5F;
    }
};

/// A text ends where token 3 follows token 2.
inline bool ends_text(request_view const& request, std::span<token_id const> emitted) noexcept {
    token_id const before = emitted.size() > 1 ? emitted[emitted.size() - 2] : request.context.back();
    return emitted.back() == 3 && before == 2;
}

/// Some tokens may not follow others, and token 4 has to follow token 6. Tokens 0 and 4 are no stop tokens.
inline token_mask allowed_tokens(request_view const& request, std::span<token_id const> drafted) noexcept {
    static constexpr std::uint32_t words[] = {0xfd, 0x7f, 0xef, 0xb7, 0xff, 0x3d, 0x10, 0xfb};
    token_id const last = drafted.empty() ? request.context.back() : drafted.back();
    demand(drafted.empty() || !request.settings->stops_at(last), "a constraint is asked behind the end of a text");
    return token_mask{std::span(words).subspan(static_cast<std::size_t>(last), 1)};
}

/// An ordinary model as a draft, which resembles the target.
class faulty_draft {
public:
    explicit faulty_draft(faults* faulty = nullptr) : faults_(faulty) {}

    [[nodiscard]] logits_rows<float> forward(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        if (faults_ != nullptr) faults_->may_throw();
        logits_.resize(requests.size() * soak::vocabulary);
        for (std::size_t r = 0; r < requests.size(); ++r) {
            context_.assign(requests[r].context.begin(), requests[r].context.end());
            auto const prefix = prefixes.of(r);
            context_.insert(context_.end(), prefix.begin(), prefix.end());
            auto const logits = std::span(logits_).subspan(r * soak::vocabulary, soak::vocabulary);
            draft_language(context_, logits);
            if (faults_ != nullptr) faults_->may_poison(logits);
        }
        return {{logits_.data(), requests.size(), soak::vocabulary}, {}};
    }

private:
    faults* faults_;
    std::vector<float> logits_;
    std::vector<token_id> context_;
};

/// A backbone with hidden states of two numbers, NaN of which become a confidence of NaN.
class faulty_backbone {
public:
    explicit faulty_backbone(faults* faulty = nullptr) : faults_(faulty) {}

    [[nodiscard]] block_forward<float> forward(std::span<request_view const> requests) {
        if (faults_ != nullptr) faults_->may_throw();
        std::size_t const rows = requests.size() * block_size;
        logits_.resize(rows * soak::vocabulary);
        hidden_.resize(rows * 2);
        for (std::size_t r = 0, row = 0; r < requests.size(); ++r) {
            context_.assign(requests[r].context.begin(), requests[r].context.end());
            for (std::size_t k = 0; k < block_size; ++k, ++row) {
                auto const logits = std::span(logits_).subspan(row * soak::vocabulary, soak::vocabulary);
                target_language(context_, logits);
                token_id best = 0;
                for (std::size_t v = 1; v < soak::vocabulary; ++v) {
                    if (logits[v] > logits[static_cast<std::size_t>(best)]) best = static_cast<token_id>(v);
                }
                context_.push_back(best);  // what it believes will come
                auto const hidden = std::span(hidden_).subspan(row * 2, 2);
                auto const size = static_cast<std::uint32_t>(context_.size());
                hidden[0] = static_cast<float>(support::hashed(3, size, static_cast<std::uint32_t>(best), 0, 0));
                hidden[1] = static_cast<float>(support::hashed(4, size, static_cast<std::uint32_t>(best), 0, 0));
                if (faults_ != nullptr) faults_->may_poison(logits);
                if (faults_ != nullptr) faults_->may_poison(hidden);
            }
        }
        return {{hidden_.data(), rows, 2}, {{logits_.data(), rows, soak::vocabulary}, {}}};
    }

private:
    faults* faults_;
    std::vector<float> logits_;
    std::vector<float> hidden_;
    std::vector<token_id> context_;
};

}  // namespace soak
