// SPDX-License-Identifier: MIT
//
// Byte pair encoding of one word: start from its bytes; as long as there are neighbours that some merge joins, join
// the pair of the lowest rank, the leftmost of equals.
//
// Searching the word for that pair again after every merge is quadratic. A word can be long: a line of base64, a row of
// a hundred thousand dashes. So candidates are kept in a heap and the word is a linked list. A merge does not remove
// the candidates it makes impossible. They are checked when they are taken from the heap, by their rank, since a rank
// belongs to one pair only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <sureleap/core/types.hpp>

namespace engine::text {

using sureleap::no_token;
using sureleap::token_id;

class bpe {
public:
    /// The token of every byte. A byte without one is lost, and its neighbours meet: so does the tokenizers library.
    std::array<token_id, 256> symbols{};

    /// The next merge by rank. A pair that comes again takes the later rank, as in the tokenizers library.
    void add_merge(token_id left, token_id right, token_id result) {
        merges_[key(left, right)] = {next_rank_++, result};
    }
    void reserve(std::size_t merges) { merges_.reserve(merges); }
    [[nodiscard]] std::size_t merges() const noexcept { return merges_.size(); }

    /// Appends the tokens of a word. O(n log n).
    void encode(std::string_view word, std::vector<token_id>& out) const {
        list nodes;
        nodes.reserve(word.size());
        heap candidates;
        for (char const byte : word) {
            token_id const token = symbols[static_cast<unsigned char>(byte)];
            if (token != no_token) nodes.push_back({token, nodes.size() - 1, nodes.size() + 1});
        }
        for (std::size_t i = 0; i + 1 < nodes.size(); ++i) consider(nodes, i, candidates);
        while (!candidates.empty()) {
            auto const [rank, left] = candidates.top();
            candidates.pop();
            merge const* const found = at(nodes, left);
            if (found == nullptr || found->rank != rank) continue;
            join(nodes, left, found->result);
            if (left > 0) consider(nodes, nodes[left].previous, candidates);
            consider(nodes, left, candidates);
        }
        for (std::size_t i = 0; i < nodes.size(); i = nodes[i].next) out.push_back(nodes[i].token);
    }

private:
    struct merge {
        std::uint32_t rank;
        token_id result;
    };
    /// A part of the word, at the place of its first byte; no_token once it belongs to its left neighbour. The first
    /// node never does, so the list begins at 0; it ends at the number of nodes.
    struct node {
        token_id token;
        std::size_t previous;
        std::size_t next;
    };
    using list = std::vector<node>;
    using candidate = std::pair<std::uint32_t, std::size_t>;  // rank, left node
    using heap = std::priority_queue<candidate, std::vector<candidate>, std::greater<>>;

    [[nodiscard]] static std::uint64_t key(token_id left, token_id right) noexcept {
        return std::uint64_t{static_cast<std::uint32_t>(left)} << 32U | static_cast<std::uint32_t>(right);
    }

    /// The merge that joins node i and the next one, if there are such.
    [[nodiscard]] merge const* at(list const& nodes, std::size_t i) const {
        if (nodes[i].token == no_token || nodes[i].next == nodes.size()) return nullptr;
        auto const found = merges_.find(key(nodes[i].token, nodes[nodes[i].next].token));
        return found == merges_.end() ? nullptr : &found->second;
    }
    void consider(list const& nodes, std::size_t i, heap& candidates) const {
        if (merge const* const found = at(nodes, i)) candidates.emplace(found->rank, i);
    }
    static void join(list& nodes, std::size_t i, token_id result) {
        node& right = nodes[nodes[i].next];
        right.token = no_token;
        nodes[i].token = result;
        nodes[i].next = right.next;
        if (right.next < nodes.size()) nodes[right.next].previous = i;
    }

    std::unordered_map<std::uint64_t, merge> merges_;
    std::uint32_t next_rank_ = 0;
};

}  // namespace engine::text
