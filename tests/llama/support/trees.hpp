// SPDX-License-Identifier: MIT
//
// Contexts for draft trees, trees by dice in batches of their own, a drafter of trees that knows many of the tokens to
// come, and what a cache holds: of each slot its tokens, and not a cell besides.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/ext/llama.hpp>
#include <sureleap/sureleap.hpp>

#include "batches.hpp"
#include "support/dice.hpp"
#include "tiny_models.hpp"

namespace support {

/// Of 256 cells and 128 sequences. The last sequence is left to are_left. llama.cpp aborts where a batch is smaller
/// than the number of sequences.
[[nodiscard]] inline llama_context_params tree_context_params() {
    llama_context_params params = tiny_context_params();
    params.n_ctx = 256;
    params.n_seq_max = 128;
    params.n_batch = params.n_ubatch = 128;
    return params;
}
/// Keys and values are not rounded, and attention adds up in one way: rows differ by the order of their sums alone.
[[nodiscard]] inline llama_context_params exact(llama_context_params params) {
    params.type_k = GGML_TYPE_F32;
    params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    return params;
}

/// So many cells are free, and no more: fills them, and removes that again.
[[nodiscard]] inline bool are_left(tiny_context const& context, std::size_t cells) {
    auto const last = static_cast<llama_seq_id>(llama_n_seq_max(context.get())) - 1;
    auto const size = static_cast<llama_pos>(cells);
    bool fits = true;
    for (llama_pos first = 0; first < size && fits; first += 64) {
        std::vector<llama_token> const tokens(static_cast<std::size_t>(std::min(size - first, 64)), 5);
        fits = token_batch().add(tokens, first, last, false).decode(context) == 0;
    }
    bool const is_full = fits && token_batch().add(5, size, last).decode(context) == 1;
    llama_memory_seq_rm(llama_get_memory(context.get()), last, -1, -1);
    return is_full;
}
/// Sequences hold what their slots hold, from position 0 on; those of paths a beginning of it.
[[nodiscard]] inline bool sequences_fit(sureleap::llama_target const& target, tiny_context const& context,
                                        std::size_t slots, std::size_t paths, llama_seq_id first = 0) {
    llama_memory_t const memory = llama_get_memory(context.get());
    for (std::size_t s = 0; s < slots; ++s) {
        auto const size = static_cast<llama_pos>(target.held(s).size());
        auto const own = first + static_cast<llama_seq_id>(s);
        if (llama_memory_seq_pos_max(memory, own) != size - 1) return false;
        if (llama_memory_seq_pos_min(memory, own) != (size == 0 ? -1 : 0)) return false;
        for (std::size_t j = 0; j + 1 < paths; ++j) {
            auto const branch = first + static_cast<llama_seq_id>(slots + s * (paths - 1) + j);
            if (llama_memory_seq_pos_max(memory, branch) >= size) return false;
            if (llama_memory_seq_pos_min(memory, branch) > 0) return false;
        }
    }
    return true;
}
/// And no cell is in use besides. Of a context that the target alone uses.
[[nodiscard]] inline bool no_cell_is_lost(sureleap::llama_target const& target, tiny_context const& context,
                                          std::size_t slots) {
    std::size_t held = 0;
    for (std::size_t s = 0; s < slots; ++s) held += target.held(s).size();
    return are_left(context, llama_n_ctx(context.get()) - held);
}

// ---- trees by hand
// ---------------------------------------------------------------------------------------------------

/// Drafts behind an anchor, and their parents as a verify_batch takes them.
struct drafted_tree {
    sureleap::token_id anchor = 0;
    std::vector<sureleap::token_id> tokens{};
    std::vector<std::int32_t> parents{};

    /// Nodes from the anchor, which is node 0, to n.
    [[nodiscard]] std::vector<std::int32_t> path_to(std::size_t n) const {
        std::vector<std::int32_t> path;
        for (; n != 0; n = static_cast<std::size_t>(parents[n - 1])) path.push_back(static_cast<std::int32_t>(n));
        std::reverse(path.begin(), path.end());
        return path;
    }
    /// `before`, the anchor, and the tokens of a path.
    [[nodiscard]] std::vector<sureleap::token_id> behind(std::vector<sureleap::token_id> before,
                                                         std::vector<std::int32_t> const& path) const {
        before.push_back(anchor);
        for (std::int32_t const n : path) before.push_back(tokens[static_cast<std::size_t>(n) - 1]);
        return before;
    }
};

enum class tree_shape { any, star, chain, anchor_alone };

[[nodiscard]] inline drafted_tree random_tree(dice& roll, tree_shape shape, std::size_t most, std::size_t vocabulary) {
    drafted_tree tree{.anchor = static_cast<sureleap::token_id>(roll.below(vocabulary))};
    std::size_t const nodes = shape == tree_shape::anchor_alone ? 0 : 1 + roll.below(most);
    for (std::size_t k = 0; k < nodes; ++k) {
        std::size_t const parent = shape == tree_shape::star ? 0 : shape == tree_shape::chain ? k : roll.below(k + 1);
        tree.parents.push_back(static_cast<std::int32_t>(parent));
        tree.tokens.push_back(static_cast<sureleap::token_id>(roll.below(vocabulary)));
    }
    return tree;
}

/// A verify batch of trees, each in a slot behind its context.
class tree_batch {
public:
    explicit tree_batch(std::size_t most) : most_(most), bytes_(1 << 16) {}
    tree_batch(tree_batch const&) = delete;
    tree_batch& operator=(tree_batch const&) = delete;

    /// `before`: the tokens before the anchor.
    void add(std::size_t slot, sureleap::request_id id, std::vector<sureleap::token_id> before,
             drafted_tree const& tree) {
        contexts_.push_back(tree.behind(std::move(before), {}));
        slots_.push_back({id, slot});
        trees_.push_back(&tree);
    }
    [[nodiscard]] sureleap::verify_batch const& flat() {
        requests_.clear();
        for (std::size_t r = 0; r < trees_.size(); ++r) {
            requests_.push_back({.id = slots_[r].first,
                                 .slot = slots_[r].second,
                                 .anchor = trees_[r]->anchor,
                                 .position = contexts_[r].size() - 1,
                                 .context = contexts_[r]});
        }
        sureleap::workspace ws{bytes_};
        batch_ = sureleap::verify_batch(ws, requests_.size(), most_);
        batch_.begin(requests_);
        for (drafted_tree const* tree : trees_) batch_.append(tree->tokens, tree->parents);
        return batch_;
    }

private:
    std::size_t most_;
    std::vector<std::byte> bytes_;
    std::vector<std::vector<sureleap::token_id>> contexts_;
    std::vector<std::pair<sureleap::request_id, std::size_t>> slots_;
    std::vector<sureleap::request_view> requests_;
    std::vector<drafted_tree const*> trees_;
    sureleap::verify_batch batch_;
};

/// What a target asks of its drafter.
struct drafts_trees_of {
    std::size_t most;
    std::size_t size;
    [[nodiscard]] std::size_t block_size() const noexcept { return most; }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return size; }
    [[nodiscard]] sureleap::drafter_traits traits() const noexcept { return {.drafts_trees = true}; }
};

// ---- trees by a drafter
// ------------------------------------------------------------------------------------------------

/// Base logits by a hash of the context. In known texts the token to come is raised, often by enough to be among the
/// first.
struct knowing_backbone {
    std::size_t block;
    std::size_t vocabulary;
    std::vector<std::vector<sureleap::token_id>> texts;  // prompts and what follows
    std::vector<float> rows{};

    [[nodiscard]] sureleap::block_forward<float> forward(std::span<sureleap::request_view const> requests) {
        rows.resize(requests.size() * block * vocabulary);
        for (std::size_t r = 0; r < requests.size(); ++r) {
            auto const context = requests[r].context;
            auto const text = std::find_if(texts.begin(), texts.end(), [&](auto const& t) {
                return t.size() > context.size() && std::equal(context.begin(), context.end(), t.begin());
            });
            dice roll(context.size() + 1000003 * static_cast<std::uint64_t>(context.back()));
            for (std::size_t k = 0; k < block; ++k) {
                auto const row = std::span(rows).subspan((r * block + k) * vocabulary, vocabulary);
                for (float& l : row) l = static_cast<float>(-std::log(1.0 - roll.real()));
                bool const is_known = text != texts.end() && context.size() + k < text->size();
                float const by = static_cast<float>(roll.between(1.0, 7.0));
                if (is_known) row[static_cast<std::size_t>((*text)[context.size() + k])] += by;
            }
        }
        return {{}, {{rows.data(), requests.size() * block, vocabulary}, {}}};
    }
};

struct steady_confidence {
    [[nodiscard]] double operator()(std::span<float const>, sureleap::token_id, std::size_t k) const {
        return 0.8 - 0.05 * static_cast<double>(k);
    }
    [[nodiscard]] double at_anchor(std::span<float const>, sureleap::token_id, std::size_t k) const {
        return 0.8 - 0.05 * static_cast<double>(k);
    }
};

/// Trees of up to `nodes` tokens.
[[nodiscard]] inline auto knowing_trees(std::size_t nodes, std::size_t vocabulary,
                                        std::vector<std::vector<sureleap::token_id>> texts) {
    static std::vector<float> const none(1 << 12, 0.0F);  // a head that adds nothing
    return sureleap::tree_drafter{
        sureleap::semi_autoregressive{
            knowing_backbone{4, vocabulary, std::move(texts)},
            sureleap::markov_head<float>{{none.data(), vocabulary, 1}, {none.data(), vocabulary, 1}},
            steady_confidence{},
            {.block_size = 4, .vocabulary = vocabulary}},
        {.nodes = nodes, .children = 3}};
}

}  // namespace support
