// SPDX-License-Identifier: MIT
//
// The paths of a draft tree as sequences of llama.cpp. There a token may belong to several sequences. It attends to
// what is before it in one of them, which llama.cpp chooses. So every path from the anchor to a leaf has a sequence. A
// node belongs to those of all paths that lead through it. In all of them the same is before it:
//
//          anchor 0,4,5        the slot's own sequence is 0, and its branches are 4 and 5
//          a 4,5     b 0
//         c 4  d 5
//
// The path to the first leaf is the slot's own sequence. The others are branches, which need what is before the anchor
// as well. In a unified cache these are the same cells, with an id more. A branch keeps them from round to round, so
// that a round gives it only what was committed since.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <llama.h>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/verify/verify_batch.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// Throws if draft trees of up to `paths` paths cannot be scored in a context that serves chains, in the name of
/// `owner`. Every slot has so many sequences.
inline void check_paths(char const* owner, llama_context* context, std::size_t slots, llama_seq_id first_sequence,
                        std::size_t paths) {
    if (paths <= 1) return;
    llama_model const* const model = llama_get_model(context);
    if (llama_model_is_recurrent(model) || llama_model_is_hybrid(model)) {
        fail_with(owner, ": the drafter drafts trees, and the model is ",
                  llama_model_is_recurrent(model) ? "recurrent" : "hybrid",
                  ", so that its states do not branch; expected a cache of keys and values alone; draft chains");
    }
    if (llama_model_n_swa(model) > 0) {
        fail_with(owner, ": the drafter drafts trees, and the model has a sliding window of ", llama_model_n_swa(model),
                  " tokens, whose cache is not shared by paths; expected a model without one; draft chains");
    }
    std::size_t const needed = static_cast<std::size_t>(first_sequence) + slots * paths;
    if (needed > llama_n_seq_max(context)) {
        fail_with(owner, ": trees of up to ", paths, " paths need the sequences ", first_sequence, " .. ", needed - 1,
                  ", expected ids below n_seq_max = ", llama_n_seq_max(context),
                  "; raise llama_context_params::n_seq_max, which llama.cpp limits to ", llama_max_parallel_sequences(),
                  ", or lower max_requests, tree_paths or the tokens of a tree");
    }
    if (llama_n_ctx_seq(context) < llama_n_ctx(context)) {
        fail_with(owner,
                  ": the drafter drafts trees, and the context keeps a cache for each sequence, which paths cannot "
                  "share; set llama_context_params::kv_unified");
    }
}

/// Parents of a request's rows (verify_batch::parents), or none where its drafts are a chain.
[[nodiscard]] inline std::span<std::uint32_t const> tree_of(verify_batch const& batch, std::size_t r) noexcept {
    std::size_t const first = batch.first_row(r);
    for (std::size_t row = first + 1; batch.has_trees() && row <= first + batch.length(r); ++row) {
        if (batch.parents()[row] + 1 != row) return batch.parents().subspan(first, 1 + batch.length(r));
    }
    return {};
}

/// The tree of a slot, and what its branches hold: plan, plant, add each token, end_pass, accept. Takes memory for the
/// largest tree so far.
class llama_paths {
public:
    llama_paths() = default;
    /// Branches are the sequences first, first + 1, .., and are emptied.
    llama_paths(llama_memory_t memory, llama_seq_id first, std::size_t count) : memory_(memory), branches_(count) {
        for (std::size_t j = 0; j < count; ++j) {
            branches_[j].id = first + static_cast<llama_seq_id>(j);
            llama_memory_seq_rm(memory_, branches_[j].id, -1, -1);
        }
    }

    /// Numbers the paths of a tree: node 0 is the anchor, and `parents` are rows of a batch, of which the anchor's is
    /// `root`. False if there are too few branches. Precondition: a parent comes before its children.
    [[nodiscard]] bool plan(llama_seq_id own, std::span<std::uint32_t const> parents, std::uint32_t root) {
        nodes_.assign(parents.size(), {});
        for (std::size_t n = 1; n < nodes_.size(); ++n) {
            nodes_[n].parent = parents[n] - root;
            nodes_[n].depth = nodes_[nodes_[n].parent].depth + 1;
        }
        for (std::size_t n = nodes_.size(); n-- > 0;) {  // children are counted before their parent
            nodes_[n].is_leaf = nodes_[n].paths == 0;
            if (nodes_[n].is_leaf) nodes_[n].paths = 1;
            if (n > 0) nodes_[nodes_[n].parent].paths += nodes_[n].paths;
        }
        if (nodes_[0].paths > branches_.size() + 1) return false;
        std::size_t total = 0;
        for (node& n : nodes_) {
            n.first = total;
            total += n.paths;
            n.paths = 0;  // counted again
        }
        ids_.resize(total);
        std::size_t path = 0;
        for (std::size_t leaf = 0; leaf < nodes_.size(); ++leaf) {
            if (!nodes_[leaf].is_leaf) continue;
            llama_seq_id const id = path == 0 ? own : branches_[path - 1].id;
            for (std::size_t n = leaf;; n = nodes_[n].parent) {
                ids_[nodes_[n].first + nodes_[n].paths++] = id;
                if (n == 0) break;
            }
            ++path;
        }
        return true;
    }
    /// The slot's next pass is the tree that was planned, behind `held` tokens of its own sequence and `missing` tokens
    /// of the pass. Branches of the tree are given what is held.
    void plant(llama_seq_id own, std::size_t held, std::size_t missing) {
        is_planted_ = true;
        first_ = held;
        missing_ = missing;
        used_ = nodes_[0].paths - 1;
        for (branch& b : std::span(branches_).first(used_)) {
            // Somebody else may have cleared, shifted or moved what was there.
            if (llama_memory_seq_pos_max(memory_, b.id) + 1 != static_cast<llama_pos>(b.size)) {
                llama_memory_seq_rm(memory_, b.id, -1, -1);
                b.size = 0;
            }
            if (b.size < held) {
                llama_memory_seq_cp(memory_, own, b.id, static_cast<llama_pos>(b.size), static_cast<llama_pos>(held));
            }
            b.size = held;
        }
    }
    [[nodiscard]] bool is_planted() const noexcept { return is_planted_; }
    /// The `added`-th token of the slot in that pass, at `row` of it. What is missing is seen by all paths, as the
    /// anchor is.
    struct place {
        std::size_t position;
        std::span<llama_seq_id> ids;
    };
    [[nodiscard]] place add(std::size_t added, token_id token, std::size_t row) {
        node& n = nodes_[added < missing_ ? 0 : added - missing_];
        n.token = token;
        n.row = row;
        return {first_ + std::min(added, missing_) + n.depth, std::span(ids_).subspan(n.first, n.paths)};
    }
    /// Tokens of the slot that are held whatever is accepted: up to the anchor, and with it.
    [[nodiscard]] std::size_t trunk() const noexcept { return first_ + missing_ + 1; }

    /// The pass was made: the tree waits for its verdict. Or it failed, and nothing of the tree is there.
    void end_pass(bool decoded) {
        if (!is_planted_) return;
        is_planted_ = false;
        is_decoded_ = decoded;
        if (!decoded) keep(first_);
    }
    /// Nodes of it are in the memory.
    [[nodiscard]] bool is_decoded() const noexcept { return is_decoded_; }
    /// The slot's own sequence has the nodes of `path` behind the anchor, and all others are removed.
    void accept(llama_seq_id own, std::span<std::int32_t const> path) {
        auto const first = static_cast<llama_pos>(trunk());
        auto const end = first + static_cast<llama_pos>(path.size());
        llama_seq_id const from = path.empty() ? own : ids_[at(path.back()).first];
        llama_memory_seq_rm(memory_, own, from == own ? end : first, -1);
        if (from != own) llama_memory_seq_cp(memory_, from, own, first, end);
        keep(trunk());
    }
    [[nodiscard]] token_id token(std::int32_t n) const noexcept { return at(n).token; }
    [[nodiscard]] std::size_t row(std::int32_t n) const noexcept { return at(n).row; }

    /// Branches hold no more than the first `size` tokens of the slot, and nothing of a tree behind them.
    void keep(std::size_t size) {
        for (std::size_t j = 0; j < branches_.size(); ++j) {
            branch& b = branches_[j];
            bool const in_tree = j < used_;
            if (!in_tree && b.size <= size) continue;
            llama_memory_seq_rm(memory_, b.id, static_cast<llama_pos>(size), -1);
            b.size = size;
        }
        used_ = 0;
        is_decoded_ = false;
    }

private:
    struct branch {
        llama_seq_id id = 0;
        std::size_t size = 0;  // tokens, which are the slot's; more while a tree has it
    };
    struct node {
        std::size_t parent = 0;
        std::size_t depth = 0;
        std::size_t paths = 0;  // through it
        std::size_t first = 0;  // of its ids
        bool is_leaf = false;
        token_id token = 0;
        std::size_t row = 0;
    };
    [[nodiscard]] node const& at(std::int32_t n) const noexcept { return nodes_[static_cast<std::size_t>(n)]; }

    llama_memory_t memory_ = nullptr;
    std::vector<branch> branches_;
    std::size_t used_ = 0;  // the first of them have nodes
    std::vector<node> nodes_;
    std::vector<llama_seq_id> ids_;
    bool is_planted_ = false;
    bool is_decoded_ = false;
    std::size_t first_ = 0;    // tokens before the pass
    std::size_t missing_ = 0;  // of the pass before the anchor
};

}  // namespace detail

SURELEAP_END_NAMESPACE
