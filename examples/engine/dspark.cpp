// SPDX-License-Identifier: MIT
#include "dspark.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <sureleap/core/error.hpp>

namespace engine {

template <class Real>
dspark<Real>::dspark(checkpoint from, target<Real> const& served, thread_pool& pool, serving_limits const& limits)
    : checkpoint_(std::move(from)),
      draft_(checked_draft(checkpoint_, architecture::dspark, served)),
      limits_(limits),
      // A block reaches beyond its anchor, also at the end of the context.
      context_(checkpoint_.config().transformer, pool, limits.max_rows, limits.context_length + draft_.block_rows(),
               served.ranks()),
      project_(checkpoint_.matrix("fc.weight", config().hidden_size, served.features().cols)),
      context_norm_(checkpoint_, "hidden_norm.weight", config().hidden_size, config().rms_norm_eps),
      final_norm_(checkpoint_, "norm.weight", config().hidden_size, config().rms_norm_eps),
      embeddings_(own_or_shared(checkpoint_, "embed_tokens.weight", served.embeddings())),
      output_head_(checkpoint_, embeddings_, served.output_head()),
      cache_(limits.slots, config().layers, config().kv_heads, config().head_dim, context_.capacity),
      hidden_(limits.slots * draft_.block_rows() * config().hidden_size),
      logits_(limits.slots * draft_.block_size * vocabulary()) {
    this->set_confidence_temperatures(draft_.confidence_temperatures);
    if (limits.max_rows < limits.slots * draft_.block_rows()) {
        sureleap::fail_with("dspark: max_rows is ", limits.max_rows,
                            ", expected at least slots x rows of a block = ", limits.slots * draft_.block_rows());
    }
    layers_.reserve(config().layers);
    for (std::size_t i = 0; i < config().layers; ++i) {
        layers_.emplace_back(checkpoint_, "layers." + std::to_string(i) + ".", config(), config().hidden_size);
    }
    injected_.reserve(limits.max_rows * config().hidden_size);
    rows_.reserve(limits.max_rows);
}

template <class Real>
void dspark<Real>::observe(std::span<batch_row const> rows, Real const* features, std::span<sureleap::token_id const>) {
    if (rows.size() > limits_.max_rows) {
        sureleap::fail_with("dspark: ", rows.size(), " rows to observe, expected at most ", limits_.max_rows);
    }
    injected_.resize(rows.size() * config().hidden_size);
    context_.multiply(features, rows.size(), {{project_, injected_.data()}});
    context_norm_(context_, injected_.data(), rows.size(), injected_.data());
    // The same C for every layer, and not through its input norm: only keys are normed, by k_norm, inside.
    for (std::size_t l = 0; l < layers_.size(); ++l) {
        layers_[l].write_keys(context_, rows, injected_.data(), cache_, l);
    }
}

template <class Real>
sureleap::block_forward<Real> dspark<Real>::forward(std::span<sureleap::request_view const> requests) {
    std::size_t const gamma = draft_.block_size;
    std::size_t const block = draft_.block_rows();
    std::size_t const d = config().hidden_size;
    if (requests.size() > limits_.slots) {
        sureleap::fail_with("dspark: ", requests.size(), " requests, expected at most ", limits_.slots);
    }
    sureleap::pass_stamp const pass = passes_.begin(sureleap::fingerprint_of(requests));
    rows_.clear();
    wanted_.clear();
    for (std::size_t r = 0; r < requests.size(); ++r) {
        auto const& request = requests[r];
        auto const first = static_cast<std::uint32_t>(request.position);
        std::size_t const cap = request.settings != nullptr ? request.draft_cap(gamma) : gamma;
        for (std::uint32_t k = 0; k < block; ++k) {
            std::size_t const drafted =
                k + gamma - block;  // the token that the row predicts, from 0; of some anchors none
            if (drafted < cap) wanted_.push_back({rows_.size(), r * gamma + drafted});
            // Not causal: every row of the block sees the whole block. Its keys lie where the next positions will be
            // observed, which overwrites them.
            load_row(embeddings_, static_cast<std::size_t>(k == 0 ? request.anchor : draft_.mask_token),
                     hidden_.data() + rows_.size() * d);
            rows_.push_back(
                {static_cast<std::uint32_t>(request.slot), first + k, first + static_cast<std::uint32_t>(block)});
        }
    }
    Real* const x = hidden_.data();
    Real* const y = context_.normed.data();
    std::size_t const all = rows_.size();
    std::size_t const last = layers_.size() - 1;
    for (std::size_t l = 0; l < last; ++l) {
        layers_[l].input_norm(context_, x, all, y);
        layers_[l].self_attend(context_, rows_, y, cache_, l, x);
        layers_[l].mlp(context_, all, x);
    }
    // A row that is not drafted from is still seen by the others: of such rows the last layer makes keys and no more.
    layers_[last].input_norm(context_, x, all, y);
    layers_[last].write_keys(context_, rows_, y, cache_, last);
    std::size_t const n = wanted_.size();
    for (std::size_t i = 0; i < n; ++i) {
        std::size_t const row = wanted_[i].row;
        if (row == i) continue;
        std::copy_n(x + row * d, d, x + i * d);
        std::copy_n(y + row * d, d, y + i * d);
        rows_[i] = rows_[row];
    }
    layers_[last].attend(context_, std::span(rows_).first(n), y, cache_, last, x);
    layers_[last].mlp(context_, n, x);
    final_norm_(context_, x, n, x);
    context_.multiply(x, n, {{output_head_.weights(), logits_.data()}});
    std::size_t const V = vocabulary();
    for (std::size_t i = n; i-- > 0 && wanted_[i].place != i;) {  // to where the library expects them
        std::copy_n(x + i * d, d, x + wanted_[i].place * d);
        std::copy_n(logits_.data() + i * V, V, logits_.data() + wanted_[i].place * V);
    }
    std::size_t const places = requests.size() * gamma;
    last_forward_ = {.hidden = {hidden_.data(), places, d},
                     .base_logits = {.values = {logits_.data(), places, V}, .pass = pass}};
    return last_forward_;
}

template <class Real>
std::size_t dspark<Real>::weight_bytes() const noexcept {
    std::size_t bytes = project_.bytes() + output_head_.weights().bytes();
    for (auto const& layer : layers_) bytes += layer.weight_bytes();
    return bytes;
}

template class dspark<float>;
template class dspark<double>;

}  // namespace engine
