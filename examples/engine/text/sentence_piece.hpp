// SPDX-License-Identifier: MIT
//
// SentencePiece's byte pair encoding (Llama 2, Mistral, Gemma, TinyLlama): start from the characters of a text; as long
// as two neighbours are together a piece of the vocabulary, join those whose piece has the highest score, the leftmost
// of equals. A character that is no piece becomes its bytes. Spaces are part of pieces, written as U+2581.
//
// Unlike bpe.hpp, there is no list of merges and no cutting into words: any two neighbours may make a piece.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <queue>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <sureleap/core/types.hpp>

namespace engine::text {

using sureleap::token_id;

/// U+2581, which stands for a space in the names of pieces.
inline constexpr std::string_view piece_space = "\xe2\x96\x81";

[[nodiscard]] inline std::string replaced_all(std::string_view text, std::string_view from, std::string_view to) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        if (text.substr(at).starts_with(from)) {
            out += to;
            at += from.size();
        } else {
            out += text[at++];
        }
    }
    return out;
}

class sentence_piece {
public:
    std::array<token_id, 256> bytes{};  ///< the token of every byte
    bool prefix_space = true;           ///< of a text, and of what follows a token that was cut out of it

    /// A piece of the vocabulary. False: there is one of this text already.
    bool add(std::string text, token_id id, float score) {
        return pieces_.try_emplace(std::move(text), id, score).second;
    }
    void reserve(std::size_t pieces) { pieces_.reserve(pieces); }

    /// Appends the tokens of a piece of text, valid UTF-8. O(n log n).
    void encode(std::string_view text, std::vector<token_id>& out) const {
        std::string const spelled =
            (prefix_space ? std::string(piece_space) : "") + replaced_all(text, " ", piece_space);
        list parts = characters_of(spelled);
        heap candidates;
        for (std::size_t i = 0; i + 1 < parts.size(); ++i) consider(spelled, parts, i, candidates);
        while (!candidates.empty()) {
            candidate const best = candidates.top();
            candidates.pop();
            part& left = parts[best.left];
            // One of the two has been joined with another since.
            if (left.size == 0 || left.next == parts.size() || left.size + parts[left.next].size != best.size) continue;
            join(parts, best.left);
            if (left.previous != none) consider(spelled, parts, left.previous, candidates);
            consider(spelled, parts, best.left, candidates);
        }
        for (std::size_t i = 0; i < parts.size(); i = parts[i].next) {
            std::string const text_of(spelled, parts[i].begin, parts[i].size);
            if (auto const found = pieces_.find(text_of); found != pieces_.end()) {
                out.push_back(found->second.id);
            } else {
                for (char const byte : text_of) out.push_back(bytes[static_cast<unsigned char>(byte)]);
            }
        }
    }

private:
    struct piece {
        token_id id;
        float score;
        piece(token_id i, float s) : id(i), score(s) {}
    };
    /// A part of the text; of no size once it belongs to its left neighbour.
    struct part {
        std::size_t begin;
        std::size_t size;
        std::size_t previous;
        std::size_t next;
    };
    using list = std::vector<part>;
    struct candidate {
        float score;
        std::size_t left;
        std::size_t size;

        [[nodiscard]] bool operator<(candidate const& other) const noexcept {
            return score != other.score ? score < other.score : left > other.left;
        }
    };
    using heap = std::priority_queue<candidate>;
    static constexpr auto none = static_cast<std::size_t>(-1);

    [[nodiscard]] static list characters_of(std::string_view text) {
        list parts;
        for (std::size_t at = 0; at < text.size();) {
            std::size_t size = 1;
            while (at + size < text.size() && (static_cast<unsigned char>(text[at + size]) & 0xC0U) == 0x80U) ++size;
            parts.push_back({at, size, parts.empty() ? none : parts.size() - 1, parts.size() + 1});
            at += size;
        }
        return parts;
    }
    void consider(std::string const& text, list const& parts, std::size_t i, heap& candidates) const {
        if (parts[i].next == parts.size()) return;
        std::size_t const size = parts[i].size + parts[parts[i].next].size;
        auto const found = pieces_.find(std::string(text, parts[i].begin, size));
        if (found != pieces_.end()) candidates.push({found->second.score, i, size});
    }
    static void join(list& parts, std::size_t i) {
        part& right = parts[parts[i].next];
        parts[i].size += right.size;
        parts[i].next = right.next;
        right.size = 0;
        if (right.next < parts.size()) parts[right.next].previous = i;
    }

    std::unordered_map<std::string, piece> pieces_;  // by text, spaces as U+2581
};

}  // namespace engine::text
