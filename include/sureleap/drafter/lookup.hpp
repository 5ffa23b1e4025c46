// SPDX-License-Identifier: MIT
//
// Prompt lookup: no model at all. Where the last tokens of the context occurred before, what followed them then is
// drafted now (Saxena 2023). Good on text that repeats its input: summaries, edits, code.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/drafter/draft_block.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Where the end of a context occurred before.
struct lookup_match {
    std::size_t length = 0;                ///< tokens that agree, at most lookup_options::longest; 0: none was found
    std::span<token_id const> followed{};  ///< what came then, a part of the context

    [[nodiscard]] std::span<token_id const> tokens() const noexcept { return followed; }
};

/// How lookup searches, fixed at set-up.
struct lookup_options {
    std::size_t block_size = 7;         ///< gamma, 1 .. most_keyed_drafts
    std::size_t target_vocabulary = 0;  ///< V
    std::size_t longest = 4;            ///< match the last `longest` tokens, then fewer,
    std::size_t shortest = 1;           ///< down to this many; at least 1
};

/// Drafts the continuation of the longest earlier match of the context's end, the latest one among equals. Models
/// drafter; deterministic, so q is one-hot and any schedule is exact. Drafts nothing where nothing matches.
/// Needs request_view::context. O(context * longest) a request.
///
/// A context may hold ids outside 0 .. V-1, such as placeholders of images and added tokens. They are matched like any
/// other, and never drafted: a draft ends before the first of them.
class lookup {
public:
    using value_type = float;
    struct forward_type {};

    static constexpr bool is_deterministic = true;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = false;
    static constexpr bool plans_at_anchor = false;

    explicit lookup(lookup_options const& options) : options_(options) {
        detail::check_block_size("lookup", "block_size (gamma)", options_.block_size);
        if (options_.target_vocabulary == 0) fail_with("lookup: target_vocabulary is 0, expected V");
        if (options_.shortest == 0 || options_.shortest > options_.longest) {
            fail_with("lookup: shortest is ", options_.shortest, ", expected 1 .. longest = ", options_.longest);
        }
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return options_.block_size; }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return 0; }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return options_.target_vocabulary; }

    [[nodiscard]] forward_type forward(std::span<request_view const>) const noexcept { return {}; }

    /// No logits, so a block of any compute type will do.
    template <class DraftRule, class Real, class Rng>
    void draw(forward_type, DraftRule, draft_block<Real>& block, Rng&) const noexcept {
        auto const requests = block.requests();
        for (std::size_t r = 0; r < requests.size(); ++r) {
            auto const found = match(requests[r].context).followed;
            std::size_t const count = std::min(found.size(), requests[r].draft_cap(block_size()));
            for (token_id const x : found.first(count)) block.append_found(r, x, target_vocabulary());
        }
    }

    /// The latest longest match, and what followed it up to the first id outside 0 .. V-1. A place that is followed by
    /// such an id at once is no match, because it says nothing of the next token.
    [[nodiscard]] lookup_match match(std::span<token_id const> context) const noexcept {
        for (std::size_t n = std::min(options_.longest, context.size()); n >= options_.shortest && n > 0; --n) {
            auto const ending = context.last(n);
            for (std::size_t start = context.size() - n; start-- > 0;) {
                if (!is_token(context[start + n])) continue;
                if (std::equal(ending.begin(), ending.end(), context.begin() + static_cast<std::ptrdiff_t>(start))) {
                    auto const followed = context.subspan(start + n);
                    auto const end =
                        std::find_if_not(followed.begin(), followed.end(), [&](token_id x) { return is_token(x); });
                    return {n, followed.first(static_cast<std::size_t>(end - followed.begin()))};
                }
            }
        }
        return {};
    }

private:
    /// The target has a logit for it.
    [[nodiscard]] bool is_token(token_id x) const noexcept {
        return x >= 0 && static_cast<std::size_t>(x) < options_.target_vocabulary;
    }

    lookup_options options_;
};

SURELEAP_END_NAMESPACE
