// SPDX-License-Identifier: MIT
//
// What a request's settings forbid at one place of its text: tokens that its constraint does not allow there, and stop
// tokens before min_new_tokens. The same is asked for a drafted token and for the target's row that verifies it. So p
// and q are masked alike, and a draft is one that the constraint allows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/token_mask.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A view, valid until the constraint is asked again for this request.
struct row_mask {
    token_mask allowed{};
    std::span<token_id const> barred{};  ///< not allowed besides

    /// Something is forbidden.
    [[nodiscard]] explicit operator bool() const noexcept { return allowed || !barred.empty(); }
    [[nodiscard]] bool allows(token_id x) const noexcept { return allowed.allows(x) && !bars(x); }
    /// The one token of `vocabulary` that is allowed by the constraint, or no_token. Nobody need know a row then.
    [[nodiscard]] token_id only(std::size_t vocabulary) const noexcept {
        token_id const x = allowed.only();
        bool const is_token = x != no_token && static_cast<std::size_t>(x) < vocabulary;
        return is_token && !bars(x) ? x : no_token;
    }
    /// Sets the logits of all other tokens to -inf. `map`: what the row runs over. O(row).
    template <class T>
    void apply(std::span<T> row, vocabulary_view map = {}) const noexcept {
        T const none{-std::numeric_limits<compute_t<T>>::infinity()};
        if (map) {
            for (std::size_t i = 0; i < row.size(); ++i) {
                if (!allows(map.to_target(static_cast<token_id>(i)))) row[i] = none;
            }
            return;
        }
        if (allowed) {
            for (std::size_t first = 0, w = 0; first < row.size(); first += token_mask::word_bits, ++w) {
                std::uint32_t const word = w < allowed.words.size() ? allowed.words[w] : 0u;
                if (word == ~std::uint32_t{0}) continue;
                std::size_t const end = std::min(token_mask::word_bits, row.size() - first);
                for (std::size_t i = 0; i < end; ++i) {
                    if ((word >> i & 1u) == 0) row[first + i] = none;
                }
            }
        }
        for (token_id const x : barred) {
            if (x >= 0 && static_cast<std::size_t>(x) < row.size()) row[static_cast<std::size_t>(x)] = none;
        }
    }

private:
    [[nodiscard]] bool bars(token_id x) const noexcept {
        return std::find(barred.begin(), barred.end(), x) != barred.end();
    }
};

/// What `request` may not emit behind the `drafted` tokens of its round. Not asked behind the end of a text.
[[nodiscard]] inline row_mask mask_behind(request_view const& request, std::span<token_id const> drafted) noexcept {
    request_settings const& settings = *request.settings;
    row_mask mask;
    if (settings.constraint) mask.allowed = settings.constraint(request, drafted);
    if (request.emitted() + drafted.size() < settings.min_new_tokens) mask.barred = settings.stop_tokens;
    return mask;
}

SURELEAP_END_NAMESPACE
