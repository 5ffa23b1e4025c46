// SPDX-License-Identifier: MIT
//
// What an acceptance rule for trees sees of one request: the tree, the laws that children were drawn from, and the target's
// laws, made on demand. Rows of nodes that no decision came to are never touched.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/tree/draft_tree.hpp>
#include <sureleap/tree/remaining.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What a rule decided: the last node that is accepted, and the token behind it. The path to it is accepted as well.
struct tree_decision {
    bool valid = false;          ///< false: a target row that was needed holds no law
    node_id node = anchor_node;  ///< the anchor: no draft was accepted
    token_id next = no_token;    ///< correction or bonus
};

/// Scratch of one verification. T is the target's storage format.
template <class T>
struct tree_verification_memory {
    std::span<distribution<T>> laws{};     ///< [nodes + 1]
    std::span<bool> made{};                ///< [nodes + 1]
    std::span<token_id> order{};           ///< [V], for truncation
    std::span<double> sums{};              ///< [(nodes + 1) row_blocks(V)]
    std::span<rejected_child> rejected{};  ///< [nodes]
    row_kernels const* kernels = nullptr;

    /// `most` drafted tokens of a tree.
    [[nodiscard]] static tree_verification_memory carve(
        workspace& ws, std::size_t most, std::size_t vocabulary,
        row_kernels const& kernels = native_kernels<row_kernels>()) noexcept {
        return {ws.take<distribution<T>>(most + 1), ws.take<bool>(most + 1),
                ws.take<token_id>(vocabulary),      ws.take<double>((most + 1) * row_blocks(vocabulary)),
                ws.take<rejected_child>(most),      &kernels};
    }
};

/// One request's side of the acceptance of trees. Q: the draft's compute type.
template <class T, class Q>
class tree_verification {
public:
    using law = distribution<T>;
    using draft_law = distribution<Q>;

    /// Row first_row + n is the target's law behind node n. `recorded` [tree.size()]: what the children of a node were drawn
    /// from; of nodes without children anything.
    tree_verification(request_view const& request, draft_tree const& tree, std::span<draft_law const> recorded,
                      logits_rows<T> const& rows, std::size_t first_row,
                      tree_verification_memory<T> const& memory) noexcept
        : request_(request), tree_(tree), recorded_(recorded), rows_(rows), first_row_(first_row), memory_(memory) {
        SURELEAP_EXPECTS(tree.size() <= memory.laws.size());
        std::fill(memory_.made.begin(), memory_.made.end(), false);
    }

    [[nodiscard]] draft_tree const& tree() const noexcept { return tree_; }
    [[nodiscard]] request_view const& request() const noexcept { return request_; }
    /// q of a node's first child. Of its younger ones see remaining.hpp.
    [[nodiscard]] draft_law const& draft(node_id n) const noexcept { return recorded_[at(n)]; }
    /// p, the target's transformed law behind node n.
    [[nodiscard]] law const& target(node_id n) noexcept {
        law& p = memory_.laws[at(n)];
        if (!memory_.made[at(n)]) {
            std::size_t const blocks = row_blocks(rows_.values.cols);
            p = {rows_.row(first_row_ + at(n)),
                 request_.settings->target_transform(),
                 memory_.order,
                 nullptr,
                 *memory_.kernels,
                 memory_.sums.subspan(at(n) * blocks, blocks),
                 totals::exact};
            memory_.made[at(n)] = true;
        }
        return p;
    }
    /// Name of a draw that belongs to a node: each node has its own, whatever its depth.
    [[nodiscard]] draw_key key(node_id n, purpose use) const noexcept { return block_key(request_, at(n), use); }
    /// Name of the noise of the token behind a node, which all nodes of a depth share: for rules whose output is a function of
    /// the row and that noise.
    [[nodiscard]] draw_key noise(node_id n) const noexcept { return noise_key(request_, tree_.depth(n)); }
    /// [tree.size() - 1] scratch: a rule keeps there what it learned of the children that it rejected.
    [[nodiscard]] std::span<rejected_child> rejected() const noexcept { return memory_.rejected; }

private:
    [[nodiscard]] static std::size_t at(node_id n) noexcept { return static_cast<std::size_t>(n); }

    request_view const& request_;
    draft_tree const& tree_;
    std::span<draft_law const> recorded_;
    logits_rows<T> rows_;
    std::size_t first_row_;
    tree_verification_memory<T> memory_;
};

SURELEAP_END_NAMESPACE
