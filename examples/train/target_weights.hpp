// SPDX-License-Identifier: MIT
//
// What a drafter takes over: from its target the frozen tables, as numbers, and layers to start from; from an earlier
// drafter everything.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <engine/checkpoint.hpp>
#include <engine/draft_model.hpp>
#include <engine/kernels.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

#include "gemm.hpp"
#include "parameters.hpp"

namespace train {

/// Rows of a stored matrix, quantised or not; all of them if none are named.
[[nodiscard]] inline matrix<float> as_numbers(engine::weight const& stored,
                                              std::span<sureleap::token_id const> rows = {}) {
    matrix<float> out(rows.empty() ? stored.rows : rows.size(), stored.cols);
    for (std::size_t i = 0; i < out.rows(); ++i) {
        engine::load_row(stored, rows.empty() ? i : static_cast<std::size_t>(rows[i]), out.span().row(i).data());
    }
    return out;
}

/// Embeddings, and the rows of the LM head that are drafted.
struct frozen_tables {
    matrix<float> embeddings;
    matrix<float> lm_head;

    frozen_tables(engine::checkpoint const& target, std::span<sureleap::token_id const> drafted)
        : embeddings(as_numbers(embeddings_of(target))),
          lm_head(as_numbers(
              target.config().transformer.tied_embeddings ? embeddings_of(target) : table(target, "lm_head.weight"),
              drafted)) {}

private:
    [[nodiscard]] static engine::weight table(engine::checkpoint const& target, char const* name) {
        auto const& t = target.config().transformer;
        return target.matrix(name, t.vocabulary, t.hidden_size);
    }
    [[nodiscard]] static engine::weight embeddings_of(engine::checkpoint const& target) {
        return table(target, "model.embed_tokens.weight");
    }
};

/// values of the entry = tensor `name` of `from`. Throws sureleap::error if the shape differs or there is none.
template <class Real>
void copy_tensor(engine::checkpoint const& from, std::string const& name, parameter_layout::entry const& to,
                 std::span<Real> values) {
    auto const stored = to.vector ? from.row(name, to.place.cols) : from.matrix(name, to.place.rows, to.place.cols);
    for (std::size_t i = 0; i < to.place.rows; ++i) engine::load_row(stored, i, to.place.of(values).row(i).data());
}

/// The drafter's layers begin as the target's layers first, first + 1, ... and its final norm as the target's. Norms of
/// queries and keys keep their values where the target has none.
///
/// The context that the drafter's layers read begins as what the target's layer `first` reads of that past: fc takes
/// the feature nearest below that layer, and its norm is that layer's. So the first step already attends as the target
/// does. Of what Eagle3's attention reads, the embedding beside the feature is no business of the target's layer: it
/// begins at 0. feature_layers: those of the drafter. Throws sureleap::error if a shape differs or there are not so
/// many layers.
template <class Real>
void start_from_layers(engine::checkpoint const& target, std::size_t first, std::span<int const> feature_layers,
                       parameter_layout const& layout, std::span<Real> values) {
    std::size_t const layers = target.config().transformer.layers;
    std::size_t const hidden = target.config().transformer.hidden_size;
    auto const copy = [&](parameter_layout::entry const& e, std::string const& from) {
        copy_tensor(target, from, e, values);
    };
    auto const copy_beside_embedding = [&](parameter_layout::entry const& e, std::string const& from) {
        auto const stored = target.matrix(from, e.place.rows, hidden);
        for (std::size_t i = 0; i < e.place.rows; ++i) {
            auto const row = e.place.of(values).row(i);
            std::ranges::fill(row.first(hidden), Real(0));
            engine::load_row(stored, i, row.data() + hidden);
        }
    };
    for (auto const& e : layout.entries()) {
        if (e.name == "norm.weight") copy(e, "model.norm.weight");
        if (e.name == "hidden_norm.weight")
            copy(e, "model.layers." + std::to_string(first) + ".input_layernorm.weight");
        if (e.name == "fc.weight") {
            auto const below = std::ranges::lower_bound(feature_layers, static_cast<int>(first));
            auto const nearest = below == feature_layers.begin() ? below : below - 1;
            auto const column = static_cast<std::size_t>(nearest - feature_layers.begin()) * e.place.rows;
            for (std::size_t i = 0; i < e.place.rows; ++i) e.place.of(values).row(i)[column + i] += Real(1);
        }
        if (!e.name.starts_with("layers.")) continue;
        std::size_t const dot = e.name.find('.', 7);
        std::size_t const layer = first + std::stoul(e.name.substr(7, dot - 7));
        if (layer >= layers) {
            sureleap::fail_with("start from layer ", first, ": the drafter's layer ", layer - first, " would be layer ",
                                layer, " of a target of ", layers, " layers, expected one below that");
        }
        std::string const from = "model.layers." + std::to_string(layer);
        if (std::string const name = from + e.name.substr(dot); target.contains(name)) {
            bool const reads_input = e.name.ends_with("q_proj.weight") || e.name.ends_with("k_proj.weight") ||
                                     e.name.ends_with("v_proj.weight");
            bool const beside_embedding = reads_input && e.place.cols == 2 * hidden;
            beside_embedding ? copy_beside_embedding(e, name) : copy(e, name);
        } else if (e.name.ends_with(".hidden_norm.weight")) {
            copy(e, from + ".input_layernorm.weight");
        }
    }
}

/// The drafter begins as an earlier one, which may have fewer layers. A layer that the earlier one lacks keeps its
/// values, but for the two matrices that it adds to the residual stream with: they are zero, so that the drafter
/// computes what the earlier one did. Throws sureleap::error if a shape differs or other tokens are drafted.
template <class Real>
void start_from_drafter(engine::checkpoint const& earlier, std::span<sureleap::token_id const> drafted,
                        parameter_layout const& layout, std::span<Real> values) {
    std::size_t const vocabulary = earlier.config().transformer.vocabulary;
    auto const tokens = engine::drafted_tokens(earlier);
    if (!std::ranges::equal(tokens, drafted)) {
        sureleap::fail_with(earlier.folder().string(), ": drafts ", tokens.empty() ? vocabulary : tokens.size(),
                            " tokens that are not those of --vocabulary (",
                            drafted.empty() ? vocabulary : drafted.size(), "), expected the same");
    }
    auto const is_new = [&](std::string const& name) {
        return name.starts_with("layers.") && std::stoul(name.substr(7)) >= earlier.config().transformer.layers;
    };
    for (auto const& e : layout.entries()) {
        if (!is_new(e.name)) {
            copy_tensor(earlier, e.name, e, values);
        } else if (e.name.ends_with("o_proj.weight") || e.name.ends_with("down_proj.weight")) {
            std::ranges::fill(e.place.values(values), Real(0));
        }
    }
}

}  // namespace train
