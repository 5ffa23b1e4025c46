// SPDX-License-Identifier: MIT
#include "causal_lm.hpp"

#include <algorithm>
#include <utility>

#include <sureleap/core/error.hpp>

namespace engine {
namespace {

std::string layer_prefix(std::size_t layer) {
    return "model.layers." + std::to_string(layer) + ".";
}

transformer_config checked(checkpoint const& from, std::vector<int> const& feature_layers,
                           serving_limits const& limits) {
    using sureleap::fail_with;
    std::string const where = from.folder().string();
    model_config const& config = from.config();
    if (!is_target(config.kind)) {
        fail_with(where, ": a drafter stands where a target is needed, expected the architecture Qwen3ForCausalLM ",
                  "or LlamaForCausalLM");
    }
    int const layers = static_cast<int>(config.transformer.layers);
    for (std::size_t i = 0; i < feature_layers.size(); ++i) {
        int const layer = feature_layers[i];
        if (layer < -1 || layer > layers - 2 || (i > 0 && layer <= feature_layers[i - 1])) {
            fail_with(where, ": feature layer ", i, " is ", layer, ", expected increasing layers in -1 .. ", layers - 2,
                      " of the target's ", layers);
        }
    }
    if (limits.context_length > config.transformer.max_positions) {
        fail_with(where, ": a context length of ", limits.context_length, " was asked for, expected at most ",
                  "max_position_embeddings = ", config.transformer.max_positions);
    }
    if (limits.slots == 0 || limits.max_rows == 0) {
        fail_with(where, ": ", limits.slots, " slots and ", limits.max_rows, " rows, expected at least 1 of each");
    }
    return config.transformer;
}

}  // namespace

template <class Real>
causal_lm<Real>::causal_lm(checkpoint from, std::vector<int> feature_layers, thread_pool& pool,
                           serving_limits const& limits)
    : checkpoint_(std::move(from)),
      feature_layers_(std::move(feature_layers)),
      limits_(limits),
      context_(checked(checkpoint_, feature_layers_, limits), pool, limits.max_rows, limits.context_length),
      final_norm_(checkpoint_, "model.norm.weight", config().hidden_size, config().rms_norm_eps),
      embeddings_(checkpoint_.matrix("model.embed_tokens.weight", config().vocabulary, config().hidden_size)),
      output_head_(config().tied_embeddings
                       ? embeddings_
                       : checkpoint_.matrix("lm_head.weight", config().vocabulary, config().hidden_size)),
      cache_(limits.slots, config().layers, config().kv_heads, config().head_dim, limits.context_length),
      rows_(limits.max_rows),
      stream_(limits.max_rows * config().hidden_size),
      features_(limits.max_rows * feature_layers_.size() * config().hidden_size) {
    layers_.reserve(config().layers);
    for (std::size_t i = 0; i < config().layers; ++i) {
        layers_.emplace_back(checkpoint_, layer_prefix(i), config(), config().hidden_size);
    }
}

template <class Real>
void causal_lm<Real>::prefill(std::size_t slot, std::size_t first, std::span<sureleap::token_id const> tokens) {
    if (first + tokens.size() > limits_.context_length || tokens.size() > limits_.max_rows) {
        sureleap::fail_with("causal_lm: prefill of ", tokens.size(), " tokens at position ", first,
                            ", expected at most ", limits_.max_rows, " tokens within a context of ",
                            limits_.context_length);
    }
    check_slot(slot);
    rows_.clear();
    outputs_.clear();
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        auto const position = static_cast<std::uint32_t>(first + i);
        rows_.push_back({static_cast<std::uint32_t>(slot), position, position + 1});
    }
    forward(tokens, false);
}

template <class Real>
sureleap::logits_rows<Real> causal_lm<Real>::score(sureleap::verify_batch const& batch) {
    if (batch.rows() > limits_.max_rows) {
        sureleap::fail_with("causal_lm: a verify batch of ", batch.rows(),
                            " rows, expected at most max_rows = ", limits_.max_rows);
    }
    rows_.clear();
    outputs_.clear();
    for (std::size_t i = 0; i < batch.rows(); ++i) {
        std::uint64_t const position = batch.positions()[i];
        if (position >= limits_.context_length) {
            sureleap::fail_with("causal_lm: row ", i, " of a verify batch is at position ", position,
                                ", expected less than the context length ", limits_.context_length);
        }
        std::size_t const slot = batch.requests()[batch.markers()[i]].slot;
        check_slot(slot);
        rows_.push_back({static_cast<std::uint32_t>(slot), static_cast<std::uint32_t>(position),
                         static_cast<std::uint32_t>(position + 1)});
    }
    forward(batch.tokens(), true);
    return {{logits_.data(), rows_.size(), config().vocabulary}, {}};
}

template <class Real>
sureleap::logits_rows<Real> causal_lm<Real>::score(std::span<placed_tree const> trees) {
    rows_.clear();
    outputs_.clear();
    nodes_.clear();
    trees_.assign(trees.begin(), trees.end());
    context_.branches.clear();
    std::size_t rows = 0;
    for (placed_tree const& at : trees) rows += at.tree->size();
    if (rows > limits_.max_rows) {
        sureleap::fail_with("causal_lm: trees of ", rows, " nodes, expected at most max_rows = ", limits_.max_rows);
    }
    std::vector<sureleap::token_id> tokens;
    for (placed_tree const& at : trees) {
        check_slot(at.slot);
        place_branches(at, tokens);
    }
    context_.tree_keys.resize(config().layers * rows * 2 * config().kv_heads * config().head_dim);
    forward(tokens, true);
    return {{logits_.data(), rows_.size(), config().vocabulary}, {}};
}

/// Rows of a tree, branch by branch: a node's first child belongs to its branch, and each other child begins one.
template <class Real>
void causal_lm<Real>::place_branches(placed_tree const& at, std::vector<sureleap::token_id>& tokens) {
    sureleap::draft_tree const& tree = *at.tree;
    auto const first_node = static_cast<std::uint32_t>(nodes_.size());
    nodes_.resize(nodes_.size() + tree.size());
    std::vector<sureleap::node_id> roots{sureleap::anchor_node};
    while (!roots.empty()) {
        sureleap::node_id const root = roots.back();
        roots.pop_back();
        tree_branch& branch = context_.branches.emplace_back();
        branch.first = static_cast<std::uint32_t>(at.position);
        branch.path.resize(tree.depth(root));
        sureleap::node_id above = root;
        for (std::size_t i = branch.path.size(); i-- > 0;) {
            above = tree.parent(above);
            branch.path[i] = nodes_[first_node + static_cast<std::size_t>(above)];
        }
        for (sureleap::node_id n = root; n != sureleap::no_node; n = tree.first_child(n)) {
            std::size_t const position = at.position + tree.depth(n);
            if (position >= limits_.context_length) {
                sureleap::fail_with("causal_lm: node ", n, " of a tree is at position ", position,
                                    ", expected less than the context length ", limits_.context_length);
            }
            auto const row = static_cast<std::uint32_t>(rows_.size());
            auto const node = first_node + static_cast<std::uint32_t>(n);
            nodes_[node] = row;
            outputs_.push_back(node);
            branch.path.push_back(row);
            tokens.push_back(tree.token(n));
            rows_.push_back({static_cast<std::uint32_t>(at.slot), static_cast<std::uint32_t>(position),
                             static_cast<std::uint32_t>(position + 1),
                             static_cast<std::uint32_t>(context_.branches.size())});
            sureleap::node_id const first = tree.first_child(n);
            for (sureleap::node_id c = first == sureleap::no_node ? first : tree.next_sibling(first);
                 c != sureleap::no_node; c = tree.next_sibling(c)) {
                roots.push_back(c);
            }
        }
    }
}

template <class Real>
void causal_lm<Real>::keep(std::size_t tree, std::span<sureleap::node_id const> path) {
    std::size_t first_node = 0;
    for (std::size_t i = 0; i < tree; ++i) first_node += trees_[i].tree->size();
    placed_tree const& at = trees_[tree];
    std::size_t const width = config().kv_heads * config().head_dim;
    for (std::size_t i = 0; i < path.size(); ++i) {
        std::size_t const row = nodes_[first_node + static_cast<std::size_t>(path[i])];
        for (std::size_t l = 0; l < layers_.size(); ++l) {
            Real const* const key = context_.tree_key(l, rows_.size(), row);
            for (std::size_t head = 0; head < config().kv_heads; ++head) {
                Real const* const mine = key + head * config().head_dim;
                cache_.store(at.slot, l, head, at.position + i, mine, mine + width);
            }
        }
    }
}

template <class Real>
void causal_lm<Real>::check_slot(std::size_t slot) const {
    if (slot >= limits_.slots) {
        sureleap::fail_with("causal_lm: a sequence is in slot ", slot, ", expected less than ", limits_.slots);
    }
}

template <class Real>
void causal_lm<Real>::forward(std::span<sureleap::token_id const> tokens, bool logits) {
    std::size_t const n = rows_.size();
    std::size_t const d = config().hidden_size;
    Real* const x = stream_.data();
    Real* const y = context_.normed.data();
    for (std::size_t i = 0; i < n; ++i) {
        auto const token = static_cast<std::size_t>(tokens[i]);  // a negative one becomes a large one
        if (token >= config().vocabulary) {
            sureleap::fail_with("causal_lm: token ", i, " of a batch is ", tokens[i], ", expected 0 .. ",
                                config().vocabulary - 1);
        }
        load_row(embeddings_, token, x + i * d);
    }
    keep_features(-1);
    for (std::size_t l = 0; l < layers_.size(); ++l) {
        layers_[l].input_norm(context_, x, n, y);
        if (!logits && l + 1 == layers_.size()) {  // nobody reads what comes after its keys
            layers_[l].write_keys(context_, rows_, y, cache_, l);
            return;
        }
        layers_[l].self_attend(context_, rows_, y, cache_, l, x);
        layers_[l].mlp(context_, n, x);
        keep_features(static_cast<int>(l));
    }
    final_norm_(context_, x, n, outputs_.empty() ? x : y);
    for (std::size_t i = 0; i < outputs_.size(); ++i) std::copy_n(y + i * d, d, x + outputs_[i] * d);
    if (logits_.size() < n * config().vocabulary) logits_.resize(n * config().vocabulary);
    matmul(context_.pool, x, n, output_head_, logits_.data());
}

template <class Real>
void causal_lm<Real>::keep_features(int layer) {
    auto const found = std::find(feature_layers_.begin(), feature_layers_.end(), layer);
    if (found == feature_layers_.end()) return;
    std::size_t const d = config().hidden_size;
    std::size_t const width = feature_layers_.size() * d;
    std::size_t const offset = static_cast<std::size_t>(found - feature_layers_.begin()) * d;
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        std::size_t const to = outputs_.empty() ? i : outputs_[i];
        std::copy_n(stream_.data() + i * d, d, features_.data() + to * width + offset);
    }
}

template <class Real>
sureleap::matrix_view<Real> causal_lm<Real>::features() const noexcept {
    return {features_.data(), rows_.size(), feature_layers_.size() * config().hidden_size};
}

template <class Real>
std::size_t causal_lm<Real>::weight_bytes() const noexcept {
    std::size_t bytes = output_head_.bytes();
    for (auto const& layer : layers_) bytes += layer.weight_bytes();
    return bytes;
}

template class causal_lm<float>;
template class causal_lm<double>;

}  // namespace engine
