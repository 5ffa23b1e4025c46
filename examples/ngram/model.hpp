// SPDX-License-Identifier: MIT
//
// The models of the n-gram example: small enough to be built from any text in a moment, real enough that everything
// one wants to see of speculative decoding is there. A token is a byte, the vocabulary has 256 of them.
//
// One class makes all of them. `model` is an interpolated n-gram: the probability of the byte `distance` places
// ahead, given the last `order` bytes. From it come
//   the target                  order 6, distance 1
//   the autoregressive draft    order 4, distance 1: runs once per drafted token and sees the drafted tokens
//   the parallel draft          order 4, distances 1 .. gamma: one pass for the whole block, and no position sees
//                               what was drafted before it, so its acceptance decays along the block
//   parallel + Markov head      the same plus a transition_bias: every position sees one byte back
// The three drafts know equally much of the text. They differ only in what they see of their own block.
//
// The library itself has no models: all of this is what a user brings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/types.hpp>

namespace ngram {

using sureleap::token_id;

inline constexpr std::size_t vocabulary = 256;

/// The tokens of a text, and back.
[[nodiscard]] std::vector<token_id> to_tokens(std::string_view text);
[[nodiscard]] std::string to_text(std::span<token_id const> tokens);

/// A text with its positions sorted by the bytes before them, the nearest byte first. In that order the occurrences
/// of a context of any length are neighbours, so a single sort serves every model that is counted from the text.
class corpus {
public:
    static constexpr std::size_t max_order = 7;     ///< longest context a model may look at, in bytes
    static constexpr std::size_t min_bytes = 1024;  ///< less text than this has no statistics worth the name

    /// O(max_order * bytes). Throws sureleap::error if the text is shorter than min_bytes.
    explicit corpus(std::string text);

    [[nodiscard]] std::string const& text() const noexcept { return text_; }
    [[nodiscard]] std::uint8_t operator[](std::size_t i) const noexcept {
        return static_cast<std::uint8_t>(text_[i]);
    }
    [[nodiscard]] std::span<std::uint32_t const> positions() const noexcept { return positions_; }

private:
    std::string text_;
    std::vector<std::uint32_t> positions_;  // max_order .. bytes-1
};

/// The first `limit` bytes of a file; line ends become "\n". Throws sureleap::error if it cannot be read.
[[nodiscard]] std::string read_text(std::filesystem::path const& file, std::size_t limit);

/// Interpolated n-gram. With C(h) occurrences of a context h, of which c(h, v) are followed by v, and D(h)
/// different followers, the estimate leans on the next shorter context h' in proportion to D(h) (Witten and Bell):
///     P(v | h) = (c(h, v) + s D(h) P(v | h')) / (C(h) + s D(h)),     P(v | nothing) = 1 / 256 at the bottom.
/// s = 1 is the classical rule; a smaller s trusts long contexts more and writes better prose. Every byte has P >
/// 0.
class model {
public:
    struct settings {
        std::size_t order = 6;     ///< bytes of context, at most corpus::max_order
        std::size_t distance = 1;  ///< predicts the byte this many places after the context, >= 1
        double strength = 0.3;     ///< s, > 0
    };

    model(corpus const& from, settings const& chosen);

    /// out[v] = log P(v | last bytes of `context`), 256 values. A context shorter than the order is used as it is.
    /// No allocation; O(256) for each order it reaches.
    void logits(std::span<token_id const> context, std::span<float> out) const;

    [[nodiscard]] std::size_t order() const noexcept { return levels_.size() - 1; }
    [[nodiscard]] std::size_t contexts() const noexcept { return contexts_; }

private:
    struct follower {
        float count;
        std::uint8_t byte;
    };
    struct slot {
        std::uint64_t key = 0;    // the context's bytes, the nearest in the lowest place
        std::uint32_t first = 0;  // into followers_
        std::uint32_t size = 0;   // 0: empty slot
        float total = 0;
    };
    struct level {  // all contexts of one length: open addressing, at most half full
        std::vector<slot> slots;
        int shift = 0;

        [[nodiscard]] std::size_t probe(std::uint64_t key) const noexcept;
    };

    std::vector<level> levels_;  // [length of the context]
    std::vector<follower> followers_;
    std::size_t contexts_ = 0;
    float strength_ = 1;
};

/// The bias of the Markov head, B(prev, next) = w2[next] . w1[prev], in the layout sureleap::markov_head takes:
/// both matrices [256, rank], row-major, w1 by the previous token and w2 by the next one.
struct transition_bias {
    std::size_t rank = 0;
    std::vector<float> w1;
    std::vector<float> w2;

    /// logits[v] -= B(prev, v). A head has one bias for all positions, but the base logits of the first position
    /// know the anchor already: what the head is going to add is taken away there, lest the anchor be counted
    /// twice.
    void remove(token_id prev, std::span<float> logits) const noexcept;
};

/// B(prev, next) = 0.8 (log P(next | prev) - log P(next)), cut down to `rank` by a singular value decomposition
/// (Eigen). The base logits tell which bytes are likely so far ahead, the log ratio which of them can follow the
/// byte before. rank in 1 .. 256; throws sureleap::error otherwise.
[[nodiscard]] transition_bias fit_transition_bias(corpus const& from, std::size_t rank);

}  // namespace ngram
