// SPDX-License-Identifier: MIT
//
// Where the last tokens of a context occurred before, in texts that are added one after the other. The memory is taken
// when the index is made: it keeps the newest tokens, and the oldest make room.
//
// There is a table for each length n in `orders`. By the hash of an n-gram it has the newest place behind one. Every
// place has the one before it with the same hash. Lempel-Ziv compressors chain what they have seen like that (RFC 1951,
// section 4). A search takes the longest n-gram that is known, and compares the context token by token at its newest
// places. So the length of a match is exact, and its frequency is counted over these places.
//
// Rejected: a suffix automaton. It finds the longest match of all texts, not that of the newest places, but takes more
// than 60 bytes a token where this takes 36, and cannot forget.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Where a context's end occurred: its last `length` tokens stand before place `next`.
struct ngram_match {
    std::uint64_t next = 0;
    std::size_t length = 0;
};

/// How an index is searched.
struct ngram_search {
    std::size_t longest = 32;    ///< matches are compared so far, at least ngram_view::orders.back()
    std::size_t candidates = 8;  ///< places that are looked at, the newest first; 1 .. ngram_matches::most
};

/// What was found, the newest first: a range. Of the places of one n-gram, so that none is much longer than another.
class ngram_matches {
public:
    static constexpr std::size_t most = 32;

    [[nodiscard]] ngram_match const* begin() const noexcept { return all_.data(); }
    [[nodiscard]] ngram_match const* end() const noexcept { return all_.data() + count_; }
    [[nodiscard]] std::size_t size() const noexcept { return count_; }
    [[nodiscard]] bool empty() const noexcept { return count_ == 0; }
    [[nodiscard]] ngram_match const& operator[](std::size_t i) const noexcept { return all_[i]; }
    void push(ngram_match const& match) noexcept {
        SURELEAP_EXPECTS(count_ < most);
        all_[count_++] = match;
    }

private:
    std::array<ngram_match, most> all_{};
    std::size_t count_ = 0;
};

/// An index that somebody else keeps, perhaps a mapped file. Whatever its tables say, a search stays inside of them.
class ngram_view {
public:
    static constexpr std::array<std::size_t, 4> orders{2, 4, 8, 16};
    /// For each token of its capacity: it, and two numbers for each order.
    static constexpr std::size_t bytes_per_token = (1 + 2 * orders.size()) * sizeof(std::uint32_t);

    ngram_view() = default;
    /// words [capacity * bytes_per_token / 4]; capacity is a power of 2. count: tokens that were ever added.
    ngram_view(std::span<std::uint32_t const> words, std::size_t capacity, std::uint64_t count) noexcept
        : words_(words), capacity_(capacity), count_(count) {
        SURELEAP_EXPECTS(std::has_single_bit(capacity) &&
                         words.size() * sizeof(std::uint32_t) == capacity * bytes_per_token);
    }

    [[nodiscard]] std::size_t capacity() const noexcept { return capacity_; }
    /// The tables, for whoever saves them.
    [[nodiscard]] std::span<std::uint32_t const> words() const noexcept { return words_; }
    /// Tokens that were added, the ends of texts among them: the place behind the last one.
    [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
    /// The oldest place that is kept.
    [[nodiscard]] std::uint64_t oldest() const noexcept { return count_ - std::min<std::uint64_t>(count_, capacity_); }

    /// The token at a place; no_token behind a text's end, behind the last token and before the oldest.
    [[nodiscard]] token_id operator[](std::uint64_t place) const noexcept {
        if (place >= count_ || place < oldest()) return no_token;
        return std::bit_cast<token_id>(words_[slot(place)]);
    }

    /// Where the context's last tokens, at least two, occurred and were followed by another one. O(candidates *
    /// longest).
    [[nodiscard]] ngram_matches find(std::span<token_id const> context, ngram_search const& how) const noexcept {
        ngram_matches found;
        if (capacity_ == 0) return found;
        std::array<std::uint32_t, orders.size()> const hashes =
            hashes_of([&](std::size_t i) { return i < context.size() ? context[context.size() - 1 - i] : no_token; });
        for (std::size_t o = orders.size(); o-- > 0 && found.empty();) {
            if (hashes[o] == none) continue;
            std::uint64_t place = place_of(words_[heads(o) + (hashes[o] & (capacity_ - 1))]);
            for (std::size_t i = 0; i < how.candidates && place != no_place; ++i) {
                bool const is_followed = (*this)[place] != no_token;
                std::size_t const length = is_followed ? length_at(place, context, how.longest) : 0;
                if (length >= orders[o]) found.push({place, length});
                std::uint64_t const before = place_of(words_[chain(o) + slot(place)]);
                place = before < place ? before : no_place;  // else it was overwritten, or is no chain
            }
        }
        return found;
    }

private:
    friend class ngram_index;
    static constexpr std::uint32_t none = 0;
    static constexpr std::uint64_t no_place = static_cast<std::uint64_t>(-1);

    [[nodiscard]] std::size_t slot(std::uint64_t place) const noexcept {
        return static_cast<std::size_t>(place) & (capacity_ - 1);
    }
    // Of order o: the newest place by hash, and the place before each.
    [[nodiscard]] std::size_t heads(std::size_t o) const noexcept { return (1 + 2 * o) * capacity_; }
    [[nodiscard]] std::size_t chain(std::size_t o) const noexcept { return (2 + 2 * o) * capacity_; }

    /// Of the last n tokens for each order n, before(i) being the i-th from the end; none if they begin before a text.
    template <class Before>
    [[nodiscard]] static std::array<std::uint32_t, orders.size()> hashes_of(Before const& before) noexcept {
        std::array<std::uint32_t, orders.size()> hashes{};
        std::uint64_t state = 0;
        for (std::size_t o = 0, i = 0; o < orders.size(); ++o) {
            for (; i < orders[o]; ++i) {
                token_id const x = before(i);
                if (x == no_token) return hashes;
                state = (state ^ static_cast<std::uint32_t>(x)) * 0x9e3779b97f4a7c15u;
                state ^= state >> 29;
            }
            hashes[o] = static_cast<std::uint32_t>(state >> 32) | 1u << 31;
        }
        return hashes;
    }

    /// The place whose last 32 bits an entry has; no_place if it is none, or is kept no more.
    [[nodiscard]] std::uint64_t place_of(std::uint32_t entry) const noexcept {
        std::uint32_t const back = static_cast<std::uint32_t>(count_) - entry;
        return entry != none && back < capacity_ && back < count_ ? count_ - back : no_place;
    }
    [[nodiscard]] std::size_t length_at(std::uint64_t place, std::span<token_id const> context,
                                        std::size_t longest) const noexcept {
        std::size_t const most = std::min(longest, context.size());
        std::size_t length = 0;
        while (length < most && place > length) {
            token_id const x = (*this)[place - length - 1];
            if (x == no_token || x != context[context.size() - length - 1]) break;
            ++length;
        }
        return length;
    }

    std::span<std::uint32_t const> words_{};
    std::size_t capacity_ = 0;
    std::uint64_t count_ = 0;
};

/// An index that grows. Its memory, capacity * ngram_view::bytes_per_token, is taken when it is made. Not thread-safe.
class ngram_index {
public:
    /// Keeps as many tokens as this, rounded up to a power of 2.
    explicit ngram_index(std::size_t capacity)
        : capacity_(checked(capacity)), words_(capacity_ * ngram_view::bytes_per_token / sizeof(std::uint32_t)) {}

    /// The capacity of an index that keeps so many tokens. Throws if there is none.
    [[nodiscard]] static std::size_t checked(std::size_t tokens) {
        if (tokens == 0 || tokens > most_tokens) {
            fail_with("ngram_index: capacity is ", tokens, ", expected 1 .. ", most_tokens, " tokens");
        }
        return std::bit_ceil(std::max<std::size_t>(tokens, 2));
    }

    [[nodiscard]] ngram_view view() const noexcept { return {words_, capacity_, count_}; }
    /// The next token of a text. no_token ends it: no match begins before it and goes on behind. O(1).
    void append(token_id x) noexcept {
        words_[static_cast<std::size_t>(count_) & (capacity_ - 1)] = std::bit_cast<std::uint32_t>(x);
        ++count_;
        auto const all = view();
        auto const hashes =
            ngram_view::hashes_of([&](std::size_t i) { return i < count_ ? all[count_ - 1 - i] : no_token; });
        for (std::size_t o = 0; o < hashes.size(); ++o) {
            std::uint32_t& before = words_[all.chain(o) + all.slot(count_)];
            before = ngram_view::none;
            if (hashes[o] == ngram_view::none) continue;
            std::uint32_t& newest = words_[all.heads(o) + (hashes[o] & (capacity_ - 1))];
            before = newest;
            newest = static_cast<std::uint32_t>(count_);
        }
    }
    void append(std::span<token_id const> text) noexcept {
        for (token_id const x : text) append(x);
    }
    void end_text() noexcept {
        if (view()[count_ - 1] != no_token) append(no_token);  // of nothing as well
    }

private:
    static constexpr std::size_t most_tokens = std::size_t{1} << 31;  // places are told apart by 32 bits

    std::size_t capacity_ = 0;
    std::uint64_t count_ = 0;
    std::vector<std::uint32_t> words_{};  // tokens, and for each order heads and chain, [capacity] each
};

SURELEAP_END_NAMESPACE
