// SPDX-License-Identifier: MIT
#include "eagle3.hpp"

#include <algorithm>
#include <utility>

#include <sureleap/core/error.hpp>

namespace engine {

template <class Real>
eagle3<Real>::eagle3(checkpoint from, target<Real> const& served, thread_pool& pool, serving_limits const& limits)
    : checkpoint_(std::move(from)),
      draft_(checked_draft(checkpoint_, architecture::eagle3, served)),
      limits_(limits),
      context_(checkpoint_.config().transformer, pool, limits.max_rows, limits.context_length + draft_.block_size,
               served.ranks()),
      layer_(checkpoint_, "layers.0.", config(), 2 * config().hidden_size),
      project_(checkpoint_.matrix("fc.weight", config().hidden_size, served.features().cols)),
      hidden_norm_(checkpoint_, "layers.0.hidden_norm.weight", config().hidden_size, config().rms_norm_eps),
      final_norm_(checkpoint_, "norm.weight", config().hidden_size, config().rms_norm_eps),
      embeddings_(own_or_shared(checkpoint_, "embed_tokens.weight", served.embeddings())),
      output_head_(checkpoint_, embeddings_, served.output_head()),
      cache_(limits.slots, 1, config().kv_heads, config().head_dim, context_.capacity),
      stream_(limits.max_rows * config().hidden_size),
      input_(limits.max_rows * 2 * config().hidden_size),
      committed_(limits.slots * config().hidden_size),
      drafted_(committed_.size()),
      logits_(limits.slots * vocabulary()) {
    if (limits.max_rows < limits.slots) {
        sureleap::fail_with("eagle3: max_rows is ", limits.max_rows, ", expected at least ", limits.slots, " slots");
    }
    rows_.reserve(limits.slots);
}

template <class Real>
void eagle3<Real>::pair(std::size_t i, Real const* x, sureleap::token_id token) {
    std::size_t const d = config().hidden_size;
    Real* const embedded = input_.data() + 2 * i * d;
    load_row(embeddings_, static_cast<std::size_t>(token), embedded);
    layer_.input_norm(context_, embedded, 1, embedded);
    hidden_norm_(context_, x, 1, embedded + d);
    if (draft_.norm_before_residual) std::copy_n(embedded + d, d, stream_.data() + i * d);
}

template <class Real>
void eagle3<Real>::finish(std::span<batch_row const> rows) {
    layer_.attend(context_, rows, input_.data(), cache_, 0, stream_.data());
    layer_.mlp(context_, rows.size(), stream_.data());
}

template <class Real>
void eagle3<Real>::observe(std::span<batch_row const> rows, Real const* features,
                           std::span<sureleap::token_id const> next_tokens) {
    std::size_t const d = config().hidden_size;
    if (rows.size() > limits_.max_rows) {
        sureleap::fail_with("eagle3: ", rows.size(), " rows to observe, expected at most ", limits_.max_rows);
    }
    context_.multiply(features, rows.size(), {{project_, stream_.data()}});
    for (std::size_t i = 0; i < rows.size(); ++i) pair(i, stream_.data() + i * d, next_tokens[i]);
    layer_.write_keys(context_, rows, input_.data(), cache_, 0);
    // One layer: of all rows but the last of a slot only the keys are ever read.
    rows_.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        if (i + 1 < rows.size() && rows[i + 1].slot == rows[i].slot) continue;
        std::copy_n(stream_.data() + i * d, d, stream_.data() + rows_.size() * d);
        std::copy_n(input_.data() + 2 * i * d, 2 * d, input_.data() + 2 * rows_.size() * d);
        rows_.push_back({rows[i].slot, rows[i].position, rows[i].position + 1});
    }
    finish(rows_);
    for (std::size_t i = 0; i < rows_.size(); ++i) {
        std::copy_n(stream_.data() + i * d, d, committed_.data() + rows_[i].slot * d);
    }
}

template <class Real>
sureleap::logits_rows<Real> eagle3<Real>::forward(std::span<sureleap::request_view const> requests,
                                                  sureleap::draft_prefixes const& prefixes) {
    std::size_t const d = config().hidden_size;
    std::size_t const n = requests.size();
    if (n > limits_.slots) {
        sureleap::fail_with("eagle3: ", n, " requests, expected at most ", limits_.slots);
    }
    rows_.clear();
    for (std::size_t r = 0; r < n; ++r) {
        std::size_t const slot = requests[r].slot;
        Real const* const last = (prefixes.size <= 1 ? committed_ : drafted_).data() + slot * d;
        std::copy_n(last, d, stream_.data() + r * d);
        if (prefixes.size == 0) continue;
        // A request that has stopped drafting is in the batch all the same; nobody reads its row, so any token does.
        sureleap::token_id const token = prefixes.of(r).back();
        pair(r, last, token == sureleap::no_token ? 0 : token);
        auto const position = static_cast<std::uint32_t>(requests[r].position + prefixes.size - 1);
        rows_.push_back({static_cast<std::uint32_t>(slot), position, position + 1});
    }
    if (prefixes.size > 0) {
        layer_.write_keys(context_, rows_, input_.data(), cache_, 0);
        finish(rows_);
        for (std::size_t r = 0; r < n; ++r) {
            std::copy_n(stream_.data() + r * d, d, drafted_.data() + requests[r].slot * d);
        }
    }
    final_norm_(context_, stream_.data(), n, stream_.data());
    context_.multiply(stream_.data(), n, {{output_head_.weights(), logits_.data()}});
    return {{logits_.data(), n, vocabulary()}, {}};
}

template class eagle3<float>;
template class eagle3<double>;

}  // namespace engine
