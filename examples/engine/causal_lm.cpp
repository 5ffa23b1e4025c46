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
                           serving_limits const& limits, any_ranks* ranks)
    : checkpoint_(std::move(from)),
      feature_layers_(std::move(feature_layers)),
      limits_(limits),
      context_(checked(checkpoint_, feature_layers_, limits), pool, limits.max_rows, limits.context_length, ranks),
      final_norm_(checkpoint_, "model.norm.weight", config().hidden_size, config().rms_norm_eps),
      embeddings_(checkpoint_.matrix("model.embed_tokens.weight", config().vocabulary, config().hidden_size)),
      output_head_(config().tied_embeddings
                       ? embeddings_
                       : checkpoint_.matrix("lm_head.weight", config().vocabulary, config().hidden_size)),
      own_head_(output_head_),
      cache_(limits.slots, config().layers, config().kv_heads, config().head_dim, limits.context_length),
      rows_(limits.max_rows),
      stream_(limits.max_rows * config().hidden_size),
      features_(limits.max_rows * feature_layers_.size() * config().hidden_size) {
    if (ranks != nullptr) {
        auto const slices = this->slices();
        own_head_ = output_head_.part(slices.first(ranks->rank()), slices.size(ranks->rank()));
    }
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
    pass_ = passes_.begin();
    rows_.clear();
    outputs_.clear();
    context_.branches.clear();
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
    if (lost_ != 0) {
        sureleap::fail_with("causal_lm: a tree of pass ", lost_,
                            " was committed after a later pass, which had overwritten its "
                            "keys; expected each round to end before the next pass");
    }
    pass_ = passes_.begin(sureleap::fingerprint_of(batch.requests()));
    rows_.clear();
    outputs_.clear();
    context_.branches.clear();
    if (!batch.has_trees()) {
        for (std::size_t i = 0; i < batch.rows(); ++i) rows_.push_back(row_at(batch, i, 0));
        forward(batch.tokens(), true);
        return {.values = {logits_.data(), rows_.size(), own_head_.rows}, .pass = pass_};
    }
    inputs_.resize(batch.rows());
    requests_.clear();
    std::vector<sureleap::token_id> tokens;
    for (std::size_t r = 0; r < batch.requests().size(); ++r) place_branches(batch, r, tokens);
    context_.tree_keys.resize(config().layers * batch.rows() * 2 * config().kv_heads * config().head_dim);
    forward(tokens, true);
    return {.values = {logits_.data(), rows_.size(), own_head_.rows}, .pass = pass_};
}

template <class Real>
batch_row causal_lm<Real>::row_at(sureleap::verify_batch const& batch, std::size_t i, std::uint32_t branch) const {
    std::uint64_t const position = batch.positions()[i];
    if (position >= limits_.context_length) {
        sureleap::fail_with("causal_lm: row ", i, " of a verify batch is at position ", position,
                            ", expected less than the context length ", limits_.context_length);
    }
    std::size_t const slot = batch.requests()[batch.markers()[i]].slot;
    check_slot(slot);
    return {static_cast<std::uint32_t>(slot), static_cast<std::uint32_t>(position),
            static_cast<std::uint32_t>(position + 1), branch};
}

/// Rows of a tree, branch by branch: a node's first child belongs to its branch, and each other child begins one. The
/// first begins at the anchor. Its keys are where a chain's would be, in the cache.
template <class Real>
void causal_lm<Real>::place_branches(sureleap::verify_batch const& batch, std::size_t r,
                                     std::vector<sureleap::token_id>& tokens) {
    auto const parents = batch.parents();
    std::size_t const first = batch.first_row(r);
    std::size_t const end = first + batch.length(r) + 1;
    sureleap::request_view const& request = batch.requests()[r];
    requests_.push_back({request.slot, request.position, first});
    std::vector<std::size_t> roots{first};
    while (!roots.empty()) {
        std::size_t const root = roots.back();
        roots.pop_back();
        tree_branch& branch = context_.branches.emplace_back();
        branch.first = static_cast<std::uint32_t>(request.position);
        branch.path.resize(batch.positions()[root] - request.position);
        std::size_t above = root;
        for (std::size_t i = branch.path.size(); i-- > 0;) {
            above = parents[above];
            branch.path[i] = inputs_[above];
        }
        std::size_t const number = root == first ? 0 : context_.branches.size();
        for (std::size_t n = root; n != end;) {
            auto const row = static_cast<std::uint32_t>(rows_.size());
            inputs_[n] = row;
            outputs_.push_back(static_cast<std::uint32_t>(n));
            branch.path.push_back(row);
            tokens.push_back(batch.tokens()[n]);
            rows_.push_back(row_at(batch, n, static_cast<std::uint32_t>(number)));
            std::size_t eldest = end;
            for (std::size_t c = n + 1; c < end; ++c) {
                if (parents[c] != n) continue;
                if (eldest == end) {
                    eldest = c;
                } else {
                    roots.push_back(c);
                }
            }
            n = eldest;
        }
    }
}

template <class Real>
void causal_lm<Real>::commit(std::span<sureleap::verdict const> verdicts) noexcept {
    for (sureleap::verdict const& v : verdicts) {
        bool const is_late = v.pass != 0 && v.pass != pass_.number() && !v.path.empty();
        if (is_late) lost_ = v.pass;  // a commit may not fail: the next pass does
    }
    if (lost_ != 0) return;
    if (outputs_.empty()) return;  // keys of chains are in the cache
    for (std::size_t r = 0; r < verdicts.size(); ++r) {
        sureleap::verdict const& v = verdicts[r];
        if (v.outcome != sureleap::status::ok) continue;
        anchored const& at = requests_[r];
        for (std::size_t k = 0; k <= v.accepted; ++k) {
            std::size_t const row = inputs_[at.first_row + v.row(k)];
            if (rows_[row].branch > 0) keep(at.slot, at.position + k, row);
        }
    }
}

/// Keys of a branch's row into the cache.
template <class Real>
void causal_lm<Real>::keep(std::size_t slot, std::size_t position, std::size_t row) {
    std::size_t const width = config().kv_heads * config().head_dim;
    for (std::size_t l = 0; l < layers_.size(); ++l) {
        Real const* const key = context_.tree_key(l, rows_.size(), row);
        for (std::size_t head = 0; head < config().kv_heads; ++head) {
            Real const* const mine = key + head * config().head_dim;
            cache_.store(slot, l, head, position, mine, mine + width);
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
    if (logits_.size() < n * own_head_.rows) logits_.resize(n * own_head_.rows);
    matmul(context_.pool, x, n, own_head_, logits_.data());
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
