// SPDX-License-Identifier: MIT
//
// Drafts of one request as a tree: several tokens may compete for one position, and each of them may have successors. A
// chain is the tree whose nodes have one child each.
//
//     draft_tree tree{memory, 8};
//     tree.begin(anchor);
//     node_id const a = tree.append(anchor_node, 17);    // the first guess of the next token
//     node_id const b = tree.append(anchor_node, 4);     // the second
//     tree.append(a, 9);                                 // what may follow 17
//
// Node 0 is the anchor, and every node is a row of the target's batch: row n asks for the law of the token behind node
// n. A parent comes before its children. Siblings are in the order in which they were drawn, which is the order in
// which they are judged.
//
// Attention wants to know which rows a row sees: itself and its ancestors. Engines take that in different forms, and
// all are here: parents, first children and next siblings, bit masks of ancestors, and the path to a leaf.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A node of a tree in the order in which it grew: 0 is the anchor, n the n-th token.
using node_id = std::int32_t;
inline constexpr node_id no_node = -1;
inline constexpr node_id anchor_node = 0;

/// A view of workspace memory. Appending is O(1), and so is every question but the last four, which say what they take.
class draft_tree {
public:
    draft_tree() = default;
    /// Room for the anchor and `most` drafted tokens.
    draft_tree(workspace& ws, std::size_t most) noexcept
        : parents_(ws.take<node_id>(most + 1)),
          tokens_(ws.take<token_id>(most + 1)),
          depths_(ws.take<std::uint32_t>(most + 1)),
          first_children_(ws.take<node_id>(most + 1)),
          last_children_(ws.take<node_id>(most + 1)),
          next_siblings_(ws.take<node_id>(most + 1)) {}

    /// Empties the tree: the anchor alone is left.
    void begin(token_id anchor) noexcept {
        size_ = 0;
        add(no_node, anchor, 0);
    }
    /// Adds a token behind `parent`, as its youngest child. Precondition: there is room.
    node_id append(node_id parent, token_id token) noexcept {
        SURELEAP_EXPECTS(parent >= 0 && static_cast<std::size_t>(parent) < size_ && !full());
        auto const node = static_cast<node_id>(size_);
        node_id& last = last_children_[at(parent)];
        (last == no_node ? first_children_[at(parent)] : next_siblings_[at(last)]) = node;
        last = node;
        add(parent, token, depths_[at(parent)] + 1);
        return node;
    }

    /// Nodes, the anchor's included: rows of the target's batch.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] bool full() const noexcept { return size_ == parents_.size(); }
    [[nodiscard]] token_id token(node_id n) const noexcept { return tokens_[at(n)]; }
    [[nodiscard]] node_id parent(node_id n) const noexcept { return parents_[at(n)]; }
    /// Tokens between the anchor and behind the node: 0 of the anchor.
    [[nodiscard]] std::size_t depth(node_id n) const noexcept { return depths_[at(n)]; }
    [[nodiscard]] node_id first_child(node_id n) const noexcept { return first_children_[at(n)]; }
    [[nodiscard]] node_id next_sibling(node_id n) const noexcept { return next_siblings_[at(n)]; }

    /// [size()] the same as arrays; no_node where there is none.
    [[nodiscard]] std::span<node_id const> parents() const noexcept { return parents_.first(size_); }
    [[nodiscard]] std::span<token_id const> tokens() const noexcept { return tokens_.first(size_); }
    [[nodiscard]] std::span<std::uint32_t const> depths() const noexcept { return depths_.first(size_); }
    [[nodiscard]] std::span<node_id const> first_children() const noexcept { return first_children_.first(size_); }
    [[nodiscard]] std::span<node_id const> next_siblings() const noexcept { return next_siblings_.first(size_); }

    /// The child with this token, or no_node. O(children).
    [[nodiscard]] node_id child(node_id n, token_id token) const noexcept {
        node_id c = first_child(n);
        while (c != no_node && tokens_[at(c)] != token) c = next_sibling(c);
        return c;
    }
    /// The nodes from the anchor's child to `n`, in `out`, which has room for depth(n). Empty for the anchor. O(depth).
    std::span<node_id> path(node_id n, std::span<node_id> out) const noexcept {
        std::size_t const count = depth(n);
        SURELEAP_EXPECTS(out.size() >= count);
        for (std::size_t k = count; k > 0; --k, n = parent(n)) out[k - 1] = n;
        return out.first(count);
    }
    /// The tokens of that path.
    std::span<token_id> prefix(node_id n, std::span<token_id> out) const noexcept {
        std::size_t const count = depth(n);
        SURELEAP_EXPECTS(out.size() >= count);
        for (std::size_t k = count; k > 0; --k, n = parent(n)) out[k - 1] = token(n);
        return out.first(count);
    }
    /// Words of a row of ancestors().
    [[nodiscard]] std::size_t mask_words() const noexcept { return (size_ + 63) / 64; }
    /// [size(), mask_words()] which nodes a row attends to: bit m % 64 of word m / 64 is set if m is n or an ancestor
    /// of it. O(size()^2 / 64).
    void ancestors(std::span<std::uint64_t> masks) const noexcept {
        std::size_t const words = mask_words();
        SURELEAP_EXPECTS(masks.size() >= size_ * words);
        for (std::size_t n = 0; n < size_; ++n) {
            auto const row = masks.subspan(n * words, words);
            if (parents_[n] == no_node) {
                std::fill(row.begin(), row.end(), 0);
            } else {
                std::copy_n(masks.begin() + static_cast<std::ptrdiff_t>(at(parents_[n]) * words), words, row.begin());
            }
            row[n / 64] |= std::uint64_t{1} << n % 64;
        }
    }

private:
    [[nodiscard]] static std::size_t at(node_id n) noexcept { return static_cast<std::size_t>(n); }
    void add(node_id parent, token_id token, std::uint32_t depth) noexcept {
        parents_[size_] = parent;
        tokens_[size_] = token;
        depths_[size_] = depth;
        first_children_[size_] = last_children_[size_] = next_siblings_[size_] = no_node;
        ++size_;
    }

    std::size_t size_ = 0;
    std::span<node_id> parents_{};
    std::span<token_id> tokens_{};
    std::span<std::uint32_t> depths_{};
    std::span<node_id> first_children_{};
    std::span<node_id> last_children_{};
    std::span<node_id> next_siblings_{};
};

/// A child that was rejected.
struct rejected_child {
    token_id token = no_token;
    double left = 0.0;     ///< p_j(token), which follows a rule of its own from then on
    double undrawn = 1.0;  ///< the part of q that its elder siblings had left
};
[[nodiscard]] constexpr token_id token_of(rejected_child const& child) noexcept {
    return child.token;
}

SURELEAP_END_NAMESPACE
