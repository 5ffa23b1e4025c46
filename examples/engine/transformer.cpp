// SPDX-License-Identifier: MIT
#include "transformer.hpp"

#include <algorithm>
#include <cmath>

namespace engine {

template <class Real>
layer_context<Real>::layer_context(transformer_config const& c, thread_pool& threads, std::size_t rows,
                                   std::size_t positions, any_ranks* ranks)
    : config(c),
      pool(threads),
      multiply(threads, ranks),
      max_rows(rows),
      capacity(positions),
      normed(rows * c.hidden_size),
      queries(rows * c.heads * c.head_dim),
      keys(rows * c.kv_heads * c.head_dim),
      values(keys.size()),
      attention(queries.size()),
      gate(rows * c.intermediate_size),
      angles_(positions * c.head_dim) {
    blocks.reserve(rows);
    // In double whatever Real is: at position 40,000 a float product of position and frequency is off by 1e-3.
    std::size_t const half = c.head_dim / 2;
    for (std::size_t i = 0; i < half; ++i) {
        double const divisor = c.rope_divisors.empty() ? 1.0 : c.rope_divisors[i];
        double const frequency =
            std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / static_cast<double>(c.head_dim)) / divisor;
        for (std::size_t t = 0; t < positions; ++t) {
            double const angle = static_cast<double>(t) * frequency;
            angles_[t * c.head_dim + i] = static_cast<Real>(std::cos(angle));
            angles_[t * c.head_dim + half + i] = static_cast<Real>(std::sin(angle));
        }
    }
}

namespace {
/// Of a head, if there is one.
template <class Real>
void add_bias(std::vector<Real> const& bias, std::size_t head, std::size_t head_dim, Real* x) {
    if (bias.empty()) return;
    Real const* const of_head = bias.data() + head * head_dim;
    for (std::size_t i = 0; i < head_dim; ++i) x[i] += of_head[i];
}
}  // namespace

template <class Real>
std::vector<Real> decoder_layer<Real>::bias(checkpoint const& from, std::string const& name,
                                            transformer_config const& c, std::size_t heads) {
    return c.attention_biases ? from.vector<Real>(name, heads * c.head_dim) : std::vector<Real>{};
}

template <class Real>
decoder_layer<Real>::decoder_layer(checkpoint const& from, std::string const& prefix, transformer_config const& c,
                                   std::size_t input_width)
    : input_norm(from, prefix + "input_layernorm.weight", c.hidden_size, c.rms_norm_eps),
      post_norm_(from, prefix + "post_attention_layernorm.weight", c.hidden_size, c.rms_norm_eps),
      query_norm_(c.query_key_norms ? from.vector<Real>(prefix + "self_attn.q_norm.weight", c.head_dim)
                                    : std::vector<Real>{}),
      key_norm_(c.query_key_norms ? from.vector<Real>(prefix + "self_attn.k_norm.weight", c.head_dim)
                                  : std::vector<Real>{}),
      query_bias_(bias(from, prefix + "self_attn.q_proj.bias", c, c.heads)),
      key_bias_(bias(from, prefix + "self_attn.k_proj.bias", c, c.kv_heads)),
      value_bias_(bias(from, prefix + "self_attn.v_proj.bias", c, c.kv_heads)),
      query_(from.matrix(prefix + "self_attn.q_proj.weight", c.heads * c.head_dim, input_width)),
      key_(from.matrix(prefix + "self_attn.k_proj.weight", c.kv_heads * c.head_dim, input_width)),
      value_(from.matrix(prefix + "self_attn.v_proj.weight", c.kv_heads * c.head_dim, input_width)),
      output_(from.matrix(prefix + "self_attn.o_proj.weight", c.hidden_size, c.heads * c.head_dim)),
      gate_(from.matrix(prefix + "mlp.gate_proj.weight", c.intermediate_size, c.hidden_size)),
      up_(from.matrix(prefix + "mlp.up_proj.weight", c.intermediate_size, c.hidden_size)),
      down_(from.matrix(prefix + "mlp.down_proj.weight", c.hidden_size, c.intermediate_size)) {}

template <class Real>
void decoder_layer<Real>::write_keys(layer_context<Real>& context, std::span<batch_row const> rows, Real const* y,
                                     kv_cache<Real>& cache, std::size_t layer) const {
    context.multiply(y, rows.size(), {{key_, context.keys.data()}, {value_, context.values.data()}});
    store_keys(context, rows, cache, layer);
}

template <class Real>
void decoder_layer<Real>::attend(layer_context<Real>& context, std::span<batch_row const> rows, Real const* y,
                                 kv_cache<Real>& cache, std::size_t layer, Real* x) const {
    context.multiply(y, rows.size(), {{query_, context.queries.data()}});
    mix_values(context, rows, cache, layer, x);
}

template <class Real>
void decoder_layer<Real>::self_attend(layer_context<Real>& context, std::span<batch_row const> rows, Real const* y,
                                      kv_cache<Real>& cache, std::size_t layer, Real* x) const {
    context.multiply(y, rows.size(),
                     {{query_, context.queries.data()}, {key_, context.keys.data()}, {value_, context.values.data()}});
    store_keys(context, rows, cache, layer);
    mix_values(context, rows, cache, layer, x);
}

template <class Real>
void decoder_layer<Real>::store_keys(layer_context<Real>& context, std::span<batch_row const> rows,
                                     kv_cache<Real>& cache, std::size_t layer) const {
    auto const& c = context.config;
    std::size_t const width = c.kv_heads * c.head_dim;
    context.each(rows.size(), width, [&](std::size_t i) {
        batch_row const& row = rows[i];
        for (std::size_t head = 0; head < c.kv_heads; ++head) {
            Real* const key = context.keys.data() + i * width + head * c.head_dim;
            Real* const value = context.values.data() + i * width + head * c.head_dim;
            add_bias(key_bias_, head, c.head_dim, key);
            add_bias(value_bias_, head, c.head_dim, value);
            if (c.query_key_norms) rms_norm(key, key_norm_.data(), c.head_dim, c.rms_norm_eps, key);
            rotate(key, context.cosines(row.position), context.sines(row.position), c.head_dim);
            if (row.branch == 0) cache.store(row.slot, layer, head, row.position, key, value);
            if (!context.branches.empty()) {
                Real* const kept = context.tree_key(layer, rows.size(), i) + head * c.head_dim;
                std::copy_n(key, c.head_dim, kept);
                std::copy_n(value, c.head_dim, kept + width);
            }
        }
    });
}

/// A chunk of keys as a branch sees it: the cache's up to the root, and its own. It lies as a chunk of the cache does,
/// so sums are made in the same order. A row has the bits that it would have behind the same tokens in a chain.
///
/// `scratch` is empty, or holds the same chunk as another branch of the tree sees it. What that branch left behind the
/// path is seen by nobody.
template <class Real>
Real const* decoder_layer<Real>::keys_of_branch(layer_context<Real>& context, tree_branch const& branch,
                                                std::size_t rows, Real const* cached, std::size_t layer,
                                                std::size_t head, std::size_t chunk, std::vector<Real>& scratch) {
    std::size_t const begin = chunk * chunk_keys;
    std::size_t const dim = context.config.head_dim;
    std::size_t const width = context.config.kv_heads * dim;
    if (scratch.empty()) scratch.assign(cached, cached + 2 * chunk_keys * dim);
    std::size_t const first = std::max<std::size_t>(branch.first, begin);
    std::size_t const end = std::min(branch.first + branch.path.size(), begin + chunk_keys);
    for (std::size_t position = first; position < end; ++position) {
        Real const* const key = context.tree_key(layer, rows, branch.path[position - branch.first]) + head * dim;
        std::size_t const k = position - begin;
        for (std::size_t c = 0; c < dim; ++c) scratch[c * chunk_keys + k] = key[c];
        std::copy_n(key + width, dim, scratch.data() + (chunk_keys + k) * dim);
    }
    return scratch.data();
}

template <class Real>
void decoder_layer<Real>::mix_values(layer_context<Real>& context, std::span<batch_row const> rows,
                                     kv_cache<Real>& cache, std::size_t layer, Real* x) const {
    if (rows.empty()) return;  // a block of which nothing is drafted
    auto const& c = context.config;
    std::size_t const width = c.heads * c.head_dim;
    std::size_t const group = c.heads / c.kv_heads;
    std::size_t const attended = attended_size(c.head_dim);
    Real const scale = static_cast<Real>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
    context.each(rows.size(), width, [&](std::size_t i) {
        for (std::size_t head = 0; head < c.heads; ++head) {
            Real* const query = context.queries.data() + i * width + head * c.head_dim;
            add_bias(query_bias_, head, c.head_dim, query);
            if (c.query_key_norms) rms_norm(query, query_norm_.data(), c.head_dim, c.rms_norm_eps, query);
            rotate(query, context.cosines(rows[i].position), context.sines(rows[i].position), c.head_dim);
        }
    });

    // Rows of one sequence share keys. Few enough that what chunks leave of them stays in the second cache level.
    std::size_t longest = 1;
    for (batch_row const& row : rows) longest = std::max<std::size_t>(longest, row.keys);
    std::size_t const chunks = (longest + chunk_keys - 1) / chunk_keys;
    std::size_t const most = std::clamp<std::size_t>(65536 / (chunks * group * attended), 1, 8);
    context.blocks.clear();
    for (std::size_t i = 0; i < rows.size(); ++i) {
        bool const joins = !context.blocks.empty() && context.blocks.back().size() < most &&
                           context.blocks.back().front().slot == rows[i].slot;
        if (joins) {
            context.blocks.back() = {context.blocks.back().data(), context.blocks.back().size() + 1};
        } else {
            context.blocks.push_back(rows.subspan(i, 1));
        }
    }

    // A task is a block and a head of its keys. What chunks leave of it: [rows of the block, group, chunks, attended].
    std::size_t const tasks = context.blocks.size() * c.kv_heads;
    std::size_t const left = most * group * chunks * attended;
    auto const attend_chunk = [&](std::size_t task, std::size_t chunk, Real* to) {
        auto const block = context.blocks[task / c.kv_heads];
        std::size_t const shared = task % c.kv_heads;
        std::size_t const begin = chunk * chunk_keys;
        Real const* const cached = cache.chunk(block.front().slot, layer, shared, chunk);
        thread_local std::vector<attention_query<Real>> queries;
        thread_local std::vector<Real> scratch;
        queries.clear();
        scratch.clear();
        Real const* keys = cached;
        std::uint32_t branch = 0;  // whose keys these are
        for (batch_row const& row : block) {
            auto const i = static_cast<std::size_t>(&row - rows.data());
            Real const* query = context.queries.data() + i * width + shared * group * c.head_dim;
            Real* left_of_row = to + static_cast<std::size_t>(&row - block.data()) * group * chunks * attended;
            if (row.keys <= begin) continue;
            bool const own = row.branch > 0 && begin + chunk_keys > context.branches[row.branch - 1].first;
            if (std::uint32_t const now = own ? row.branch : 0; now != branch) {
                ::engine::attend<Real>(queries, keys, c.head_dim, scale);
                queries.clear();
                branch = now;
                keys = own ? keys_of_branch(context, context.branches[now - 1], rows.size(), cached, layer, shared,
                                            chunk, scratch)
                           : cached;
            }
            std::size_t const seen = std::min(row.keys - begin, chunk_keys);
            for (std::size_t head = 0; head < group; ++head, query += c.head_dim, left_of_row += chunks * attended) {
                queries.push_back({query, left_of_row + chunk * attended, seen});
            }
        }
        ::engine::attend<Real>(queries, keys, c.head_dim, scale);
    };
    auto const join_chunks = [&](std::size_t task, Real const* from) {
        std::size_t const shared = task % c.kv_heads;
        for (batch_row const& row : context.blocks[task / c.kv_heads]) {
            auto const i = static_cast<std::size_t>(&row - rows.data());
            Real* out = context.attention.data() + i * width + shared * group * c.head_dim;
            for (std::size_t head = 0; head < group; ++head, out += c.head_dim, from += chunks * attended) {
                join_attended(from, (row.keys + chunk_keys - 1) / chunk_keys, c.head_dim, out);
            }
        }
    };
    // Scores and values of all rows are the tasks' work. Few tasks are divided, so that threads have equal shares.
    std::size_t const products = 2 * rows.size() * group * longest * c.head_dim / context.blocks.size();
    if (chunks > 1 && tasks < 4 * context.pool.threads()) {
        if (context.attended.size() < tasks * left) context.attended.resize(tasks * left);
        context.each(chunks * tasks, products / chunks, [&](std::size_t i) {
            attend_chunk(i % tasks, i / tasks, context.attended.data() + i % tasks * left);
        });
        context.each(tasks, left, [&](std::size_t task) { join_chunks(task, context.attended.data() + task * left); });
    } else {
        context.each(tasks, products, [&](std::size_t task) {
            thread_local std::vector<Real> own;
            if (own.size() < left) own.resize(left);
            for (std::size_t chunk = 0; chunk < chunks; ++chunk) attend_chunk(task, chunk, own.data());
            join_chunks(task, own.data());
        });
    }
    context.multiply.add(context.attention.data(), rows.size(), output_, x);
}

template <class Real>
void decoder_layer<Real>::mlp(layer_context<Real>& context, std::size_t n, Real* x) const {
    post_norm_(context, x, n, context.normed.data());
    context.multiply.gated(context.normed.data(), n, gate_, up_, context.gate.data());
    context.multiply.add(context.gate.data(), n, down_, x);
}

template class layer_context<float>;
template class layer_context<double>;
template class decoder_layer<float>;
template class decoder_layer<double>;

}  // namespace engine
