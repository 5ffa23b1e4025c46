// SPDX-License-Identifier: MIT
//
// Ends a text at strings ("\nUser:", "```"), which need not begin or end where a token does. A request lends it to its
// rounds:
//
//     stop_texts const ends{[&](token_id x) noexcept { return tokenizer.piece(x); }, {"\nUser:"}};
//     decoder.submit(prompt, {.text_end = ends});
//
// The text ends with the token that completes a string. That token's piece may go on behind it: an engine that shows
// texts cuts there (end_of).
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Pieces: (token_id) const noexcept -> std::string_view, the bytes of a token, which stay valid. What a request may
/// end at begins behind its prompt. Needs request_view::context where a string spans rounds, and remaining to be what
/// is left of max_new_tokens.
///
/// Error: a string that is empty.
template <class Pieces>
class stop_texts {
    static_assert(
        std::is_nothrow_invocable_r_v<std::string_view, Pieces const&, token_id>,
        "stop_texts: pieces(token_id) has to be const noexcept and give the token's bytes as a std::string_view");

public:
    stop_texts(Pieces pieces, std::vector<std::string> strings)
        : pieces_(std::move(pieces)), strings_(std::move(strings)) {
        for (std::size_t i = 0; i < strings_.size(); ++i) {
            if (strings_[i].empty()) fail_with("stop_texts: string ", i, " is empty, expected at least one byte");
        }
    }

    /// A text_end_ref. O(bytes of the last token x bytes of all strings).
    [[nodiscard]] bool operator()(request_view const& request, std::span<token_id const> emitted) const noexcept {
        return end_of(request, emitted).has_value();
    }
    /// Bytes of the last token's piece up to the end of the first string that ends in it; none if no string does.
    [[nodiscard]] std::optional<std::size_t> end_of(request_view const& request,
                                                    std::span<token_id const> emitted) const noexcept {
        if (emitted.empty()) return std::nullopt;
        std::size_t const last = pieces_(emitted.back()).size();
        for (std::size_t end = 1; end <= last; ++end) {
            for (std::string const& s : strings_) {
                if (ends_with(request, emitted, end, s)) return end;
            }
        }
        return std::nullopt;
    }

private:
    /// The text up to byte `end` of the last token's piece ends with s.
    [[nodiscard]] bool ends_with(request_view const& request, std::span<token_id const> emitted, std::size_t end,
                                 std::string_view s) const noexcept {
        auto const before = request.context.last(std::min(request.emitted(), request.context.size()));
        std::size_t token = before.size() + emitted.size() - 1;
        std::string_view piece = pieces_(emitted.back()).substr(0, end);
        for (;;) {
            std::size_t const shared = std::min(piece.size(), s.size());
            if (!s.ends_with(piece.substr(piece.size() - shared))) return false;
            s.remove_suffix(shared);
            if (s.empty()) return true;
            if (token == 0) return false;
            --token;
            piece = pieces_(token < before.size() ? before[token] : emitted[token - before.size()]);
        }
    }

    Pieces pieces_;
    std::vector<std::string> strings_;
};

SURELEAP_END_NAMESPACE
