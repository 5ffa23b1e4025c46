// SPDX-License-Identifier: MIT
//
// The layer that targets and drafters share: Qwen3's attention (grouped queries, RMSNorm on queries and keys of every
// head, rotary positions) and SwiGLU. It takes a flat batch of rows that belong to many sequences.
//
// A row says where it stands (batch_row) and nothing else tells sequences apart: no padding, no masks. Causal
// attention, a block that sees itself whole, keys made of another model's features: all of it is a choice of `keys`
// and of who writes the cache, so one layer serves target, DSpark and Eagle3.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "checkpoint.hpp"
#include "config.hpp"
#include "divided_products.hpp"
#include "kernels.hpp"
#include "kv_cache.hpp"
#include "thread_pool.hpp"

namespace engine {

/// What all layers of one model need to run: threads, rotary angles, scratch for `max_rows` rows. One forward pass at a
/// time. The pool must outlive it.
template <class Real>
class layer_context {
public:
    /// ranks: that divide the model's products among them; null: none.
    layer_context(transformer_config const& config, thread_pool& pool, std::size_t max_rows, std::size_t capacity,
                  any_ranks* ranks = nullptr);

    transformer_config config;
    thread_pool& pool;
    divided_products<Real> multiply;
    std::size_t max_rows;
    std::size_t capacity;  ///< positions 0 .. capacity-1 have angles

    [[nodiscard]] Real const* cosines(std::size_t position) const noexcept {
        return angles_.data() + position * config.head_dim;
    }
    [[nodiscard]] Real const* sines(std::size_t position) const noexcept {
        return cosines(position) + config.head_dim / 2;
    }
    /// f(i) for i < n: on the pool if a call costs enough (in touched numbers) to be worth it.
    template <class F>
    void each(std::size_t n, std::size_t cost, F const& f) const {
        if (n > 1 && n * cost > 32768) {
            pool.run(n, f);
        } else {
            for (std::size_t i = 0; i < n; ++i) f(i);
        }
    }

    std::vector<Real> normed;                        ///< [max_rows, hidden]
    std::vector<Real> queries;                       ///< [max_rows, heads * head_dim]
    std::vector<Real> keys;                          ///< [max_rows, kv_heads * head_dim]
    std::vector<Real> values;                        ///< the same
    std::vector<Real> attention;                     ///< [max_rows, heads * head_dim]
    std::vector<Real> gate;                          ///< [max_rows, intermediate]
    std::vector<std::span<batch_row const>> blocks;  ///< rows that attend together
    std::vector<Real> attended;                      ///< what chunks of keys leave of them
    std::vector<tree_branch> branches;               ///< of the pass, for rows of trees
    std::vector<Real> tree_keys;  ///< [layers, rows of the pass, keys | values of all heads], if there are branches

    /// Key of row i of the pass, head by head, and its value width numbers behind it. width = kv_heads * head_dim
    [[nodiscard]] Real* tree_key(std::size_t layer, std::size_t rows, std::size_t i) noexcept {
        return tree_keys.data() + (layer * rows + i) * 2 * config.kv_heads * config.head_dim;
    }

private:
    std::vector<Real> angles_;  // [capacity, cosines | sines]
};

/// RMSNorm with its scale.
template <class Real>
class norm {
public:
    norm() = default;
    norm(checkpoint const& from, std::string const& name, std::size_t size, double epsilon)
        : scale_(from.vector<Real>(name, size)), epsilon_(epsilon) {}

    /// n rows; out may be x.
    void operator()(layer_context<Real> const& context, Real const* x, std::size_t n, Real* out) const {
        std::size_t const size = scale_.size();
        context.each(n, size,
                     [&](std::size_t i) { rms_norm(x + i * size, scale_.data(), size, epsilon_, out + i * size); });
    }

private:
    std::vector<Real> scale_;
    double epsilon_ = 0;
};

/// One decoder layer in the parts its callers combine:
///
///     target:  y = input_norm(x);  self_attend(y, x);  mlp(x)
///     DSpark:  write_keys(context features);  then a block as above
///
/// Weights are read where the checkpoint maps them, so the checkpoint must outlive the layer.
template <class Real>
class decoder_layer {
public:
    /// Tensors are named prefix + "self_attn.q_proj.weight" and so on. `input_width` is what the attention reads:
    /// hidden_size, but twice that in Eagle3.
    decoder_layer(checkpoint const& from, std::string const& prefix, transformer_config const& config,
                  std::size_t input_width);

    norm<Real> input_norm;  ///< hidden_size wide

    /// Keys and values of y [rows, input_width] into the cache, each at its row's slot and position.
    void write_keys(layer_context<Real>& context, std::span<batch_row const> rows, Real const* y, kv_cache<Real>& cache,
                    std::size_t layer) const;
    /// x += o_proj(attention of y's queries over the first row.keys cached keys). Keys of all rows must be written
    /// before: a row may see keys of later rows of its own batch.
    void attend(layer_context<Real>& context, std::span<batch_row const> rows, Real const* y, kv_cache<Real>& cache,
                std::size_t layer, Real* x) const;
    /// Both, where the same y makes keys and queries.
    void self_attend(layer_context<Real>& context, std::span<batch_row const> rows, Real const* y,
                     kv_cache<Real>& cache, std::size_t layer, Real* x) const;
    /// x += down(silu(gate(z)) * up(z)) with z = post_norm(x). x [n, hidden_size].
    void mlp(layer_context<Real>& context, std::size_t n, Real* x) const;

    /// Bytes of the matrices, all of which a pass reads.
    [[nodiscard]] std::size_t weight_bytes() const noexcept {
        return query_.bytes() + key_.bytes() + value_.bytes() + output_.bytes() + gate_.bytes() + up_.bytes() +
               down_.bytes();
    }

private:
    void store_keys(layer_context<Real>& context, std::span<batch_row const> rows, kv_cache<Real>& cache,
                    std::size_t layer) const;
    void mix_values(layer_context<Real>& context, std::span<batch_row const> rows, kv_cache<Real>& cache,
                    std::size_t layer, Real* x) const;
    [[nodiscard]] static Real const* keys_of_branch(layer_context<Real>& context, tree_branch const& branch,
                                                    std::size_t rows, Real const* cached, std::size_t layer,
                                                    std::size_t head, std::size_t chunk, std::vector<Real>& scratch);

    [[nodiscard]] static std::vector<Real> bias(checkpoint const& from, std::string const& name,
                                                transformer_config const& config, std::size_t heads);

    norm<Real> post_norm_;
    std::vector<Real> query_norm_;
    std::vector<Real> key_norm_;
    std::vector<Real> query_bias_, key_bias_, value_bias_;  // empty: none
    weight query_, key_, value_, output_;
    weight gate_, up_, down_;
};

extern template class layer_context<float>;
extern template class layer_context<double>;
extern template class decoder_layer<float>;
extern template class decoder_layer<double>;

}  // namespace engine
