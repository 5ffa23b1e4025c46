// SPDX-License-Identifier: MIT
//
// The regular expressions of a tokenizer.json, for PCRE2.
//
// They were written for Oniguruma (in its Ruby syntax), which the tokenizers library uses. The two engines agree on
// what these patterns are made of, but not on everything. \h is a hexadecimal digit there and a blank here. [a[b]] is a
// union there, a class and a literal here. \s differs in U+180E. A word cut elsewhere causes no visible error; the
// model just reads tokens it was not trained on. So a pattern is copied construct by construct. What means the same in
// both is kept, \s is replaced, and everything else is refused by name.
//
// What remains is the version of Unicode: a character that is new in either engine's tables may be a letter in one of
// them and unassigned in the other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace engine::text {

/// Rewrites an Oniguruma expression for PCRE2.
class pattern_translator {
public:
    explicit pattern_translator(std::string_view pattern) : rest_(pattern) {}

    /// The translation, or what stands in its way: see refused().
    [[nodiscard]] std::string translate() {
        while (!rest_.empty() && refused_.empty()) {
            switch (rest_.front()) {
                case '\\': escape(false); break;
                case '(': group(); break;
                case '[': character_class(); break;
                case '{': repetition(); break;
                case '^':
                case '$': refuse(1); break;  // of lines in Ruby, of the text in Perl
                default: take(1);
            }
        }
        return std::move(out_);
    }

    /// The construct that is not supported; empty if all are.
    [[nodiscard]] std::string_view refused() const noexcept { return refused_; }

private:
    void take(std::size_t n) {
        out_.append(rest_.substr(0, n));
        rest_.remove_prefix(std::min(n, rest_.size()));
    }
    void replace(std::size_t n, std::string_view by) {
        out_.append(by);
        rest_.remove_prefix(n);
    }
    void refuse(std::size_t n) { refused_ = rest_.substr(0, n); }

    void escape(bool in_class) {
        // White_Space is category Z and six control characters. PCRE2's \s adds U+180E, which once was a space; its
        // \p{White_Space} would be right, but older versions do not have it.
        static constexpr std::string_view spaces = "\\t-\\r\\x{85}\\p{Z}";
        char const next = rest_.size() < 2 ? '\0' : rest_[1];
        if (next == 's') {
            replace(2, in_class ? std::string(spaces) : "[" + std::string(spaces) + "]");
        } else if (next == 'S' && !in_class) {
            replace(2, "[^" + std::string(spaces) + "]");
        } else if (next == 'p' || next == 'P') {
            std::size_t const end = rest_.substr(0, 64).find('}');
            if (rest_.substr(2, 1) != "{" || end == rest_.npos) return refuse(2);
            take(end + 1);
        } else if (next == 'x') {
            take_code_point();
        } else if (std::string_view("dDrntfe").find(next) != std::string_view::npos || is_punctuation(next)) {
            take(2);
        } else {
            refuse(2);
        }
    }

    // \xHH or \x{H...}; Oniguruma reads other lengths differently.
    void take_code_point() {
        auto const hexadecimal = [&](std::size_t from) {
            std::size_t const end = rest_.find_first_not_of("0123456789abcdefABCDEF", from);
            return (end == rest_.npos ? rest_.size() : end) - from;
        };
        if (rest_.substr(2, 1) == "{") {
            std::size_t const digits = hexadecimal(3);
            bool const closed = rest_.substr(3 + digits, 1) == "}";
            if (digits < 1 || digits > 6 || !closed) return refuse(3);
            take(4 + digits);
        } else {
            // From 80 on it is a byte there and a character here.
            if (hexadecimal(2) < 2 || rest_[2] > '7') return refuse(2);
            take(4);
        }
    }

    void group() {
        if (rest_.starts_with("(?i:")) return caseless_group();
        for (std::string_view const opening : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
            if (rest_.starts_with(opening)) return take(opening.size());
        }
        std::string_view const second = rest_.substr(1, 1);
        if (second == "?" || second == "*") return refuse(3);
        take(1);
    }

    // Contractions, (?i:'s|'t|'re) or '(?i:[sdmt]|ll). Without case the engines differ about properties and negated
    // classes, and "ss" is "ß" to Oniguruma, so there is room for little more.
    void caseless_group() {
        std::size_t const end = std::min(rest_.find(')'), rest_.size());
        for (std::size_t i = 4; i < end; ++i) {
            char const c = rest_[i];
            char const before = lower(rest_[i - 1]);
            bool const plain = (lower(c) >= 'a' && lower(c) <= 'z') || std::string_view("'|[] ").find(c) != rest_.npos;
            bool const one_character = (before == 's' && std::string_view("st").find(lower(c)) != rest_.npos) ||
                                       (before == 'f' && std::string_view("fil").find(lower(c)) != rest_.npos);
            if (!plain || one_character) return refuse(i + 1);
        }
        take(end + 1);
    }

    void character_class() {
        take(rest_.starts_with("[^") ? 2 : 1);
        if (rest_.starts_with("]")) return refuse(1);
        while (!rest_.empty() && refused_.empty()) {
            if (rest_.starts_with("]")) return take(1);
            if (rest_.starts_with("\\")) {
                escape(true);
            } else if (rest_.starts_with("[") || rest_.starts_with("&&")) {
                refuse(2);
            } else {
                take(1);
            }
        }
    }

    // {n}, {n,} and {n,m} of one character or class. A sign after it means something else in Ruby, and a group that can
    // be empty is counted in another way.
    void repetition() {
        std::size_t const end = rest_.find('}');
        std::string_view const inside = rest_.substr(1, end == rest_.npos ? 0 : end - 1);
        bool const numbers = !inside.empty() && inside.front() != ',' &&
                             inside.find_first_not_of("0123456789,") == inside.npos &&
                             inside.find(',') == inside.rfind(',');
        bool const of_group = out_.ends_with(')');
        if (!numbers || of_group) return refuse(end == rest_.npos ? 2 : end + 1);
        if (std::string_view const sign = rest_.substr(end + 1, 1); sign == "?" || sign == "+") return refuse(end + 2);
        take(end + 1);
    }

    [[nodiscard]] static char lower(char c) noexcept { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; }
    [[nodiscard]] static bool is_punctuation(char c) noexcept {
        return (c >= ' ' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
    }

    std::string_view rest_;
    std::string out_;
    std::string_view refused_;
};

}  // namespace engine::text
