// SPDX-License-Identifier: MIT
//
// The engine's models against their definitions: Qwen3, the DSpark backbone with its heads, and Eagle3, over shapes
// that released models do not have.
//
// The reference below is written from the formulas and shares nothing with the engine: plain loops over vectors of
// doubles, no cache, no batch. Whatever it is asked about a position, it computes the whole sequence up to there again.
// The golden files hold the same models to somebody else's code, but for one shape each.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <engine/causal_lm.hpp>
#include <engine/dspark.hpp>
#include <engine/eagle3.hpp>
#include <engine/heads.hpp>

#include "support/dice.hpp"
#include "support/tiny_models.hpp"

namespace {

using sureleap::token_id;
using tiny::segment;

// ---- the reference -------------------------------------------------------------------------------------------------

using numbers = std::vector<double>;
using rows = std::vector<numbers>;

double decode(engine::weight const& w, std::size_t i) {
    switch (w.type) {
        case engine::storage::f64: return static_cast<double const*>(w.data)[i];
        case engine::storage::f32: return static_cast<double>(static_cast<float const*>(w.data)[i]);
        case engine::storage::f16:
            return static_cast<double>(sureleap::load(static_cast<sureleap::half const*>(w.data)[i]));
        default: break;
    }
    return static_cast<double>(sureleap::load(static_cast<sureleap::bf16 const*>(w.data)[i]));
}

struct matrix {
    rows values;

    matrix(engine::checkpoint const& from, std::string const& name, std::size_t n, std::size_t m) {
        engine::weight const w = from.matrix(name, n, m);
        for (std::size_t i = 0; i < n; ++i) {
            numbers& row = values.emplace_back();
            for (std::size_t j = 0; j < m; ++j) row.push_back(decode(w, i * m + j));
        }
    }
    numbers operator*(numbers const& x) const {
        numbers y;
        for (numbers const& row : values) {
            double sum = 0;
            for (std::size_t j = 0; j < row.size(); ++j) sum += row[j] * x[j];
            y.push_back(sum);
        }
        return y;
    }
};

numbers vector(engine::checkpoint const& from, std::string const& name, std::size_t n) {
    engine::weight const w = from.row(name, n);
    numbers out;
    for (std::size_t i = 0; i < n; ++i) out.push_back(decode(w, i));
    return out;
}

numbers operator+(numbers a, numbers const& b) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
    return a;
}
numbers joined(numbers a, numbers const& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}
double sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

numbers rms_norm(numbers const& x, numbers const& scale, double epsilon) {
    double squares = 0;
    for (double const v : x) squares += v * v;
    numbers y;
    for (std::size_t i = 0; i < x.size(); ++i) {
        y.push_back(x[i] / std::sqrt(squares / static_cast<double>(x.size()) + epsilon) * scale[i]);
    }
    return y;
}

// Element i turns with element i + size/2, by the angle position * theta^(-2i/size), over a divisor if there are some.
numbers rotated(numbers const& x, std::size_t position, double theta, numbers const& divisors = {}) {
    std::size_t const half = x.size() / 2;
    numbers y = x;
    for (std::size_t i = 0; i < half; ++i) {
        double const angle = static_cast<double>(position) *
                             std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(x.size())) /
                             (divisors.empty() ? 1.0 : divisors[i]);
        y[i] = x[i] * std::cos(angle) - x[i + half] * std::sin(angle);
        y[i + half] = x[i + half] * std::cos(angle) + x[i] * std::sin(angle);
    }
    return y;
}

// A row that a layer's attention reads, and where it stands.
struct placed {
    numbers y;
    std::size_t position;
};

struct layer {
    engine::transformer_config c;
    matrix q, k, v, o, gate, up, down;
    numbers input_norm, post_norm, q_norm, k_norm;  // norms of an architecture that has them
    numbers q_bias, k_bias, v_bias;                 // likewise

    layer(engine::checkpoint const& from, std::string const& prefix, std::size_t input_width)
        : c(from.config().transformer),
          q(from, prefix + "self_attn.q_proj.weight", c.heads * c.head_dim, input_width),
          k(from, prefix + "self_attn.k_proj.weight", c.kv_heads * c.head_dim, input_width),
          v(from, prefix + "self_attn.v_proj.weight", c.kv_heads * c.head_dim, input_width),
          o(from, prefix + "self_attn.o_proj.weight", c.hidden_size, c.heads * c.head_dim),
          gate(from, prefix + "mlp.gate_proj.weight", c.intermediate_size, c.hidden_size),
          up(from, prefix + "mlp.up_proj.weight", c.intermediate_size, c.hidden_size),
          down(from, prefix + "mlp.down_proj.weight", c.hidden_size, c.intermediate_size),
          input_norm(vector(from, prefix + "input_layernorm.weight", c.hidden_size)),
          post_norm(vector(from, prefix + "post_attention_layernorm.weight", c.hidden_size)),
          q_norm(c.query_key_norms ? vector(from, prefix + "self_attn.q_norm.weight", c.head_dim) : numbers{}),
          k_norm(c.query_key_norms ? vector(from, prefix + "self_attn.k_norm.weight", c.head_dim) : numbers{}) {
        if (!c.attention_biases) return;
        q_bias = vector(from, prefix + "self_attn.q_proj.bias", c.heads * c.head_dim);
        k_bias = vector(from, prefix + "self_attn.k_proj.bias", c.kv_heads * c.head_dim);
        v_bias = vector(from, prefix + "self_attn.v_proj.bias", c.kv_heads * c.head_dim);
    }
    static numbers plus(numbers x, numbers const& bias) {
        for (std::size_t i = 0; i < bias.size(); ++i) x[i] += bias[i];
        return x;
    }

    // Head `head` of a projected row: normed and turned.
    numbers head_of(numbers const& projected, std::size_t head, numbers const& scale, std::size_t position) const {
        auto const first = projected.begin() + static_cast<std::ptrdiff_t>(head * c.head_dim);
        numbers const part(first, first + static_cast<std::ptrdiff_t>(c.head_dim));
        return rotated(scale.empty() ? part : rms_norm(part, scale, c.rms_norm_eps), position, c.rope_theta,
                       c.rope_divisors);
    }
    // What attention adds to the stream at `row`, when it sees `keys`.
    numbers attention(placed const& row, std::vector<placed> const& keys) const {
        numbers const query = plus(q * row.y, q_bias);
        rows key_rows, value_rows;
        for (placed const& key : keys) {
            key_rows.push_back(plus(k * key.y, k_bias));
            value_rows.push_back(plus(v * key.y, v_bias));
        }
        numbers out;
        for (std::size_t head = 0; head < c.heads; ++head) {
            std::size_t const group = head / (c.heads / c.kv_heads);
            numbers const a = head_of(query, head, q_norm, row.position);
            numbers weights;
            double total = 0;
            for (std::size_t j = 0; j < keys.size(); ++j) {
                numbers const b = head_of(key_rows[j], group, k_norm, keys[j].position);
                double dot = 0;
                for (std::size_t i = 0; i < c.head_dim; ++i) dot += a[i] * b[i];
                weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(c.head_dim))));
                total += weights.back();
            }
            numbers sum(c.head_dim);
            for (std::size_t j = 0; j < keys.size(); ++j) {
                for (std::size_t i = 0; i < c.head_dim; ++i) {
                    sum[i] += weights[j] / total * value_rows[j][group * c.head_dim + i];
                }
            }
            out = joined(out, sum);
        }
        return o * out;
    }
    numbers mlp(numbers const& x) const {
        numbers const z = rms_norm(x, post_norm, c.rms_norm_eps);
        numbers g = gate * z;
        numbers const u = up * z;
        for (std::size_t i = 0; i < g.size(); ++i) g[i] = g[i] * sigmoid(g[i]) * u[i];
        return down * g;
    }
};

struct last_position {
    numbers logits;
    numbers features;
};

struct reference_causal_lm {
    engine::transformer_config c;
    matrix embeddings;
    matrix output_head;
    numbers final_norm;
    std::vector<layer> layers;
    std::vector<int> feature_layers;

    reference_causal_lm(engine::checkpoint const& from, std::vector<int> ids)
        : c(from.config().transformer),
          embeddings(from, "model.embed_tokens.weight", c.vocabulary, c.hidden_size),
          output_head(from, c.tied_embeddings ? "model.embed_tokens.weight" : "lm_head.weight", c.vocabulary,
                      c.hidden_size),
          final_norm(vector(from, "model.norm.weight", c.hidden_size)),
          feature_layers(std::move(ids)) {
        for (std::size_t l = 0; l < c.layers; ++l) {
            layers.emplace_back(from, "model.layers." + std::to_string(l) + ".", c.hidden_size);
        }
    }

    // Logits of the token after this sequence; features of its last token.
    last_position operator()(std::span<token_id const> tokens) const {
        last_position out;
        rows x;
        for (token_id const token : tokens) x.push_back(embeddings.values[static_cast<std::size_t>(token)]);
        auto const keep = [&](int id) {
            if (std::count(feature_layers.begin(), feature_layers.end(), id) > 0) {
                out.features = joined(out.features, x.back());
            }
        };
        keep(-1);
        for (std::size_t l = 0; l < layers.size(); ++l) {
            std::vector<placed> y;
            for (std::size_t t = 0; t < x.size(); ++t) {
                y.push_back({rms_norm(x[t], layers[l].input_norm, c.rms_norm_eps), t});
                x[t] = x[t] + layers[l].attention(y[t], y);  // y ends at t: causal
                x[t] = x[t] + layers[l].mlp(x[t]);
            }
            keep(static_cast<int>(l));
        }
        out.logits = output_head * rms_norm(x.back(), final_norm, c.rms_norm_eps);
        return out;
    }
};

// ---- comparing -----------------------------------------------------------------------------------------------------

// Largest difference, over the larger of 1 and the largest number. NaN counts as infinite.
template <class Got>
double difference(Got const& got, numbers const& expected) {
    if (static_cast<std::size_t>(got.size()) != expected.size()) return INFINITY;
    double worst = 0, scale = 1;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        double const d = std::abs(static_cast<double>(got[i]) - expected[i]);
        worst = std::isnan(d) ? INFINITY : std::max(worst, d);
        scale = std::max(scale, std::abs(expected[i]));
    }
    return worst / scale;
}

// In double to rounding; in float to what its 24 bits leave after a few layers.
template <class Real>
constexpr double tolerance = std::is_same_v<Real, double> ? 1e-10 : 5e-6;

std::vector<tiny::shape> const& shapes() {
    // layers, hidden, intermediate, heads, kv_heads, head_dim, V, tied, theta, epsilon
    static std::vector<tiny::shape> const all{
        {1, 16, 24, 2, 2, 8, 50, false, 1e4, 1e-6},    // one key head per query head, head_dim = hidden / heads
        {2, 24, 40, 4, 2, 10, 53, true, 1e6, 1e-6},    // head_dim of its own
        {3, 32, 48, 4, 1, 8, 97, false, 1e6, 1e-5},    // all queries share one key head
        {4, 32, 56, 8, 1, 6, 64, true, 1e4, 1e-6},     // eight of them
        {5, 48, 31, 6, 3, 16, 300, false, 5e5, 1e-6},  // 3 is no power of two, 31 no multiple of anything
        {6, 40, 72, 8, 2, 8, 61, true, 100.0, 1e-6},   // deep
        {2, 17, 29, 3, 3, 2, 51, false, 1e4, 0.25},    // odd widths, the smallest head, an epsilon that counts
        {1, 64, 33, 8, 4, 32, 128, true, 1.0, 1e-6},   // heads four times as wide as the stream, all angles alike
    };
    return all;
}

// Runs sequences of a few lengths through a target in random pieces, each position by prefill or by score. Compares
// logits and features with the reference's. Returns the largest difference.
template <class Real>
double compare(engine::causal_lm<Real>& served, reference_causal_lm const& expected, support::dice& roll) {
    std::size_t const V = served.vocabulary();
    std::vector<std::vector<token_id>> sequences;
    for (std::size_t const n : {11u, 1u, 6u}) sequences.push_back(tiny::random_tokens(roll, n, V));
    std::vector<std::size_t> done(sequences.size());
    double worst = 0;
    std::size_t scored = 0;
    auto const prefix = [&](std::size_t s, std::size_t t) { return std::span(sequences[s]).first(t + 1); };
    for (;;) {
        std::vector<std::size_t> open;
        for (std::size_t s = 0; s < done.size(); ++s) {
            if (done[s] < sequences[s].size()) open.push_back(s);
        }
        if (open.empty()) break;
        if (roll.chance(0.4)) {  // a chunk of a prompt
            std::size_t const s = open[roll.below(open.size())];
            std::size_t const count = 1 + roll.below(sequences[s].size() - done[s]);
            served.prefill(s, done[s], std::span(sequences[s]).subspan(done[s], count));
            for (std::size_t i = 0; i < count; ++i) {
                worst =
                    std::max(worst, difference(served.features().row(i), expected(prefix(s, done[s] + i)).features));
            }
            done[s] += count;
            continue;
        }
        std::vector<segment> segments;
        for (std::size_t const s : open) {
            auto const first = sequences[s].begin() + static_cast<std::ptrdiff_t>(done[s]);
            std::size_t const count = 1 + roll.below(sequences[s].size() - done[s]);
            segments.insert(segments.begin(),
                            {s, done[s], std::vector<token_id>(first, first + static_cast<std::ptrdiff_t>(count))});
        }
        tiny::flat_batch const flat(segments);
        auto const logits = served.score(flat.batch());
        std::size_t row = 0;
        for (segment const& part : segments) {
            for (std::size_t i = 0; i < part.tokens.size(); ++i, ++row, ++scored) {
                auto const e = expected(prefix(part.slot, part.first + i));
                worst = std::max(worst, difference(logits.values.row(row), e.logits));
                worst = std::max(worst, difference(served.features().row(row), e.features));
            }
            done[part.slot] += part.tokens.size();
        }
    }
    return scored == 0 ? INFINITY : worst;  // a comparison of nothing is none
}

engine::serving_limits const small_limits{.slots = 3, .context_length = 40, .max_rows = 24};

}  // namespace

// ---- Qwen3 ---------------------------------------------------------------------------------------------------------

TEST_CASE("causal_lm: logits and features in double are those of the definition", "[engine]") {
    engine::thread_pool pool(2);
    for (std::uint64_t seed = 1; tiny::shape const& s : shapes()) {
        support::dice roll(++seed);
        INFO(s << ", seed " << roll.seed());
        engine::causal_lm<double> served(engine::make_in_memory(tiny::target_config(s), engine::storage::f64, seed),
                                         tiny::feature_layers(s), pool, small_limits);
        reference_causal_lm const expected(engine::make_in_memory(tiny::target_config(s), engine::storage::f64, seed),
                                           tiny::feature_layers(s));
        for (int repeat = 0; repeat < 2; ++repeat) CHECK(compare(served, expected, roll) < 1e-10);
    }
}

TEST_CASE("causal_lm: Qwen2 and Llama have other attention, and the same definition else", "[engine]") {
    engine::thread_pool pool(2);
    for (auto const kind : {engine::architecture::qwen2, engine::architecture::llama}) {
        for (std::size_t const i : {0u, 4u}) {
            tiny::shape const& s = shapes()[i];
            support::dice roll(80 + i);
            INFO(name_of(kind) << ", " << s << ", seed " << roll.seed());
            auto config = tiny::target_config(s);
            config.kind = kind;
            set_attention(config.transformer, kind);
            auto const made = [&] { return engine::make_in_memory(config, engine::storage::f64, 5); };
            engine::causal_lm<double> served(made(), tiny::feature_layers(s), pool, small_limits);
            CHECK(compare(served, reference_causal_lm(made(), tiny::feature_layers(s)), roll) < 1e-10);
        }
    }
}

TEST_CASE("causal_lm: rotary positions may be scaled", "[engine]") {
    engine::thread_pool pool(1);
    tiny::shape const& s = shapes()[4];
    support::dice roll(71);
    INFO("seed " << roll.seed());
    auto config = tiny::target_config(s);
    for (std::size_t i = 0; i < config.transformer.head_dim / 2; ++i) {
        config.transformer.rope_divisors.push_back(roll.between(0.5, 8.0));
    }
    auto const made = [&] { return engine::make_in_memory(config, engine::storage::f64, 3); };
    engine::causal_lm<double> served(made(), tiny::feature_layers(s), pool, small_limits);
    CHECK(compare(served, reference_causal_lm(made(), tiny::feature_layers(s)), roll) < 1e-10);
    config.transformer.rope_divisors.clear();
    CHECK(compare(served, reference_causal_lm(made(), tiny::feature_layers(s)), roll) > 1e-3);
}

TEMPLATE_TEST_CASE("causal_lm: weights are used as they are stored", "[engine]", double, float) {
    using Real = TestType;
    engine::thread_pool pool(1);
    for (auto const type : {engine::storage::f64, engine::storage::f32, engine::storage::f16, engine::storage::bf16}) {
        for (std::size_t const i : {1u, 6u}) {
            tiny::shape const& s = shapes()[i];
            support::dice roll(100 + i);
            INFO(s << ", " << bytes_of(type) << " bytes a weight, seed " << roll.seed());
            engine::causal_lm<Real> served(engine::make_in_memory(tiny::target_config(s), type, 3),
                                           tiny::feature_layers(s), pool, small_limits);
            // The reference decodes the very numbers that the file holds.
            reference_causal_lm const expected(engine::make_in_memory(tiny::target_config(s), type, 3),
                                               tiny::feature_layers(s));
            CHECK(compare(served, expected, roll) < tolerance<Real>);
        }
    }
}

TEST_CASE("causal_lm: a model stored in fewer bits is the same model", "[engine]") {
    // Random models of one seed have the same weights in every storage but for its rounding. So float over bf16 differs
    // from double over doubles by the format alone: some roundings of a weight, and errors of layers that add up like
    // independent ones. Logits have a spread of about one.
    engine::thread_pool pool(1);
    struct format {
        engine::storage type;
        double rounding;  // of a weight, relative
        double bound;     // of the logits, for one layer
    };
    for (format const f : {format{engine::storage::bf16, 0x1p-8, 1.4e-2}, format{engine::storage::f16, 0x1p-11, 2e-3},
                           format{engine::storage::f32, 0x1p-23, 2e-6}}) {
        for (tiny::shape const& s : shapes()) {
            support::dice roll(7);
            INFO(s << ", " << bytes_of(f.type) << " bytes a weight, seed " << roll.seed());
            auto const stored = engine::make_in_memory(tiny::target_config(s), f.type, 5);
            auto const exact = engine::make_in_memory(tiny::target_config(s), engine::storage::f64, 5);
            auto const rounded = stored.matrix("model.embed_tokens.weight", s.vocabulary, s.hidden);
            auto const whole = exact.matrix("model.embed_tokens.weight", s.vocabulary, s.hidden);
            bool differs = false;
            for (std::size_t i = 0; i < whole.rows * whole.cols; ++i) {
                double const d = std::abs(decode(rounded, i) - decode(whole, i));
                REQUIRE(d <= f.rounding * std::abs(decode(whole, i)) + 0x1p-25);  // f16 has subnormals
                differs = differs || d > 0;
            }
            REQUIRE(differs);
            engine::causal_lm<float> served(engine::make_in_memory(tiny::target_config(s), f.type, 5),
                                            tiny::feature_layers(s), pool, small_limits);
            CHECK(compare(served, reference_causal_lm(exact, tiny::feature_layers(s)), roll) <
                  f.bound * std::sqrt(static_cast<double>(s.layers)));
        }
    }
}

// ---- drafters ------------------------------------------------------------------------------------------------------

namespace {

std::vector<tiny::drafter_shape> const& drafter_shapes() {
    static std::vector<tiny::drafter_shape> const all{
        {.block_size = 1, .layers = 1, .rank = 3, .output = tiny::lm_head::own, .head = engine::head_kind::vanilla},
        {.block_size = 5, .layers = 3, .rank = 7, .output = tiny::lm_head::shared, .head = engine::head_kind::gated},
        {.block_size = 4, .layers = 2, .rank = 6, .output = tiny::lm_head::tied, .head = engine::head_kind::rnn},
    };
    return all;
}

// Every shape of a target with one of these drafters, and with a Domino drafter, which has no confidence.
std::vector<std::pair<tiny::shape, tiny::drafter_shape>> drafted_shapes() {
    std::vector<std::pair<tiny::shape, tiny::drafter_shape>> all;
    for (std::size_t i = 0; tiny::shape const& s : shapes()) {
        all.emplace_back(s, drafter_shapes()[i++ % drafter_shapes().size()]);
    }
    for (std::size_t i = 0; tiny::shape const& s : shapes()) {
        auto const from = i++ % 2 == 0 ? tiny::lm_head::shared : tiny::lm_head::own;
        all.emplace_back(s, tiny::drafter_shape{.block_size = 4,
                                                .layers = 1,
                                                .rank = 5,
                                                .output = from,
                                                .head = engine::head_kind::domino,
                                                .confidence = false});
    }
    return all;
}

// A drafter without what it takes from the target.
engine::checkpoint weights_of(engine::model_config const& config, tiny::lm_head output) {
    tiny::edited_model model(config, 2);
    if (output == tiny::lm_head::shared) {
        model.remove("embed_tokens.weight");
        model.remove("lm_head.weight");
    }
    return model.build(engine::storage::f64);
}

// Embedding and LM head, from where the drafter should have them.
struct tables {
    matrix embeddings;
    matrix output_head;

    tables(engine::checkpoint const& draft, engine::checkpoint const& target, tiny::lm_head output)
        : embeddings(output == tiny::lm_head::shared ? table(target, "model.embed_tokens.weight")
                                                     : table(draft, "embed_tokens.weight")),
          output_head(output == tiny::lm_head::own                  ? table(draft, "lm_head.weight")
                      : output == tiny::lm_head::tied               ? embeddings
                      : target.config().transformer.tied_embeddings ? embeddings
                                                                    : table(target, "lm_head.weight")) {}

    static matrix table(engine::checkpoint const& from, std::string const& name) {
        return {from, name, from.config().transformer.vocabulary, from.config().transformer.hidden_size};
    }
};

// Features as a target might give them, for drafters that are looked at alone.
rows random_features(support::dice& roll, std::size_t n, std::size_t width) {
    rows out(n, numbers(width));
    for (numbers& row : out) {
        for (double& x : row) x = 2.0 * roll.bell();
    }
    return out;
}
template <class Real>
std::vector<Real> flat(rows const& values, std::size_t first, std::size_t count) {
    std::vector<Real> out;
    for (std::size_t i = first; i < first + count; ++i) {
        for (double const x : values[i]) out.push_back(static_cast<Real>(x));
    }
    return out;
}
std::vector<engine::batch_row> rows_at(std::size_t slot, std::size_t first, std::size_t count) {
    std::vector<engine::batch_row> out;
    for (std::size_t i = 0; i < count; ++i) {
        out.push_back({static_cast<std::uint32_t>(slot), static_cast<std::uint32_t>(first + i), 0});
    }
    return out;
}

// h of a block after these features, and its base logits: everything from scratch.
struct block {
    rows hidden;
    rows logits;
};
block reference_block(engine::checkpoint const& from, tables const& shared, rows const& features, token_id anchor) {
    auto const& c = from.config().transformer;
    auto const& draft = *from.config().draft;
    std::size_t const d = c.hidden_size;
    matrix const fc(from, "fc.weight", d, draft.target_layer_ids.size() * d);
    numbers const hidden_norm = vector(from, "hidden_norm.weight", d);
    std::vector<placed> context;
    for (numbers const& f : features)
        context.push_back({rms_norm(fc * f, hidden_norm, c.rms_norm_eps), context.size()});
    rows x;
    for (std::size_t k = 0; k < draft.block_size; ++k) {
        x.push_back(shared.embeddings.values[static_cast<std::size_t>(k == 0 ? anchor : draft.mask_token)]);
    }
    for (std::size_t l = 0; l < c.layers; ++l) {
        layer const now(from, "layers." + std::to_string(l) + ".", d);
        std::vector<placed> seen = context;
        for (std::size_t k = 0; k < x.size(); ++k) {
            seen.push_back({rms_norm(x[k], now.input_norm, c.rms_norm_eps), context.size() + k});
        }
        for (std::size_t k = 0; k < x.size(); ++k) {
            x[k] = x[k] + now.attention(seen[context.size() + k], seen);  // not causal
            x[k] = x[k] + now.mlp(x[k]);
        }
    }
    block out;
    for (numbers const& row : x) {
        out.hidden.push_back(rms_norm(row, vector(from, "norm.weight", d), c.rms_norm_eps));
        out.logits.push_back(shared.output_head * out.hidden.back());
    }
    return out;
}

// U_k + B_k along these tokens, x_0 first, and the confidence logit of every position.
struct corrected {
    rows logits;
    numbers confidences;
};
corrected reference_domino(engine::checkpoint const& from, matrix const& embeddings, block const& b,
                           std::vector<token_id> const& tokens) {
    auto const& draft = *from.config().draft;
    std::size_t const g = draft.gru_units;
    std::size_t const d = from.config().transformer.hidden_size;
    matrix const input(from, "prefix_gru.weight_ih_l0", 3 * g, d);
    matrix const recurrent(from, "prefix_gru.weight_hh_l0", 3 * g, g);
    matrix const down(from, "embed_proj.0.weight", draft.markov_rank, d + g);
    matrix const up(from, "embed_proj.2.weight", from.config().transformer.vocabulary, draft.markov_rank);
    numbers s(g);
    corrected out;
    for (std::size_t k = 0; k < b.hidden.size(); ++k) {
        numbers const x = input * embeddings.values[static_cast<std::size_t>(tokens[k])];
        numbers const y = recurrent * s;
        for (std::size_t i = 0; i < g; ++i) {
            double const n = std::tanh(x[2 * g + i] + sigmoid(x[i] + y[i]) * y[2 * g + i]);
            double const z = sigmoid(x[g + i] + y[g + i]);
            s[i] = (1.0 - z) * n + z * s[i];
        }
        numbers code = down * joined(b.hidden[k], s);
        for (double& c : code) c = k == 0 ? 0.0 : c * sigmoid(c);  // the first position is not corrected
        out.logits.push_back(b.logits[k] + up * code);
    }
    return out;
}
corrected reference_heads(engine::checkpoint const& from, matrix const& embeddings, block const& b,
                          std::vector<token_id> const& tokens) {
    auto const& draft = *from.config().draft;
    if (draft.head == engine::head_kind::domino) return reference_domino(from, embeddings, b, tokens);
    std::size_t const V = from.config().transformer.vocabulary;
    std::size_t const d = from.config().transformer.hidden_size;
    std::size_t const r = draft.markov_rank;
    matrix const w1(from, "markov_head.markov_w1.weight", V, r);
    matrix const w2(from, "markov_head.markov_w2.weight", V, r);
    matrix const confidence(from, "confidence_head.proj.weight", 1, d + r);
    double const bias = vector(from, "confidence_head.proj.bias", 1)[0];
    numbers state(r);
    corrected out;
    for (std::size_t k = 0; k < b.hidden.size(); ++k) {
        numbers const& h = b.hidden[k];
        numbers const e = w1.values[static_cast<std::size_t>(tokens[k])];
        numbers reads = e;
        if (draft.head == engine::head_kind::gated) {
            numbers const g = matrix(from, "markov_head.gate_proj.weight", r, d + r) * joined(h, e) +
                              vector(from, "markov_head.gate_proj.bias", r);
            for (std::size_t i = 0; i < r; ++i) reads[i] = sigmoid(g[i]) * e[i];
        } else if (draft.head == engine::head_kind::rnn) {
            numbers const z = joined(joined(state, e), h);
            numbers const gco = matrix(from, "markov_head.joint_proj.weight", 3 * r, 2 * r + d) * z +
                                vector(from, "markov_head.joint_proj.bias", 3 * r);
            for (std::size_t i = 0; i < r; ++i) {
                state[i] = sigmoid(gco[i]) * state[i] + (1.0 - sigmoid(gco[i])) * std::tanh(gco[r + i]);
                reads[i] = std::tanh(gco[2 * r + i]);
            }
        }
        out.logits.push_back(b.logits[k] + w2 * reads);
        out.confidences.push_back((confidence * joined(h, e))[0] + bias);
    }
    return out;
}

}  // namespace

TEMPLATE_TEST_CASE("dspark: backbone and heads are those of the definition", "[engine]", double, float) {
    using Real = TestType;
    engine::thread_pool pool(2);
    for (std::size_t i = 0; auto const& [s, d] : drafted_shapes()) {
        support::dice roll(41 + i++);
        INFO(s << ", block size " << d.block_size << ", " << name_of(d.head) << " head, seed " << roll.seed());
        auto const target_weights = engine::make_in_memory(tiny::target_config(s), engine::storage::f64, 1);
        auto const draft_weights = weights_of(tiny::dspark_config(s, d), d.output);
        tables const shared(draft_weights, target_weights, d.output);
        engine::causal_lm<Real> served(engine::make_in_memory(tiny::target_config(s), engine::storage::f64, 1),
                                       tiny::feature_layers(s), pool, small_limits);
        engine::dspark<Real> model(weights_of(tiny::dspark_config(s, d), d.output), served, pool, small_limits);
        auto const head = engine::load_head<Real>(model.source(), model.embeddings());
        std::optional<engine::any_confidence<Real>> confidence;
        if (d.confidence) confidence = engine::load_confidence<Real>(model.source());

        // Two sequences side by side, each observed in pieces, with a block drafted after every piece. What a block
        // leaves in the cache must not be seen by the next.
        std::size_t const width = tiny::feature_layers(s).size() * s.hidden;
        std::vector<rows> const features{random_features(roll, 9, width), random_features(roll, 9, width)};
        std::vector<std::size_t> seen{0, 0};
        std::vector<std::size_t> const slots{2, 0};
        for (int round = 0; round < 3; ++round) {
            std::vector<segment> anchors;
            for (std::size_t a = 0; a < 2; ++a) {
                std::size_t const count = 1 + roll.below(3);
                model.observe(rows_at(slots[a], seen[a], count), flat<Real>(features[a], seen[a], count).data());
                seen[a] += count;
                anchors.push_back({slots[a], seen[a], tiny::random_tokens(roll, 1, s.vocabulary)});
            }
            tiny::flat_batch const batch(anchors);
            auto const got = model.forward(batch.requests());
            for (std::size_t a = 0; a < 2; ++a) {
                rows const past(features[a].begin(), features[a].begin() + static_cast<std::ptrdiff_t>(seen[a]));
                block const expected = reference_block(draft_weights, shared, past, anchors[a].tokens[0]);
                auto drafted = tiny::random_tokens(roll, d.block_size, s.vocabulary);
                drafted.insert(drafted.begin(), anchors[a].tokens[0]);
                corrected const with_heads = reference_heads(draft_weights, shared.embeddings, expected, drafted);
                std::vector<Real> state(head.state_size());
                head.reset(state);
                for (std::size_t k = 0; k < d.block_size; ++k) {
                    std::size_t const row = a * d.block_size + k;
                    CHECK(difference(got.hidden.row(row), expected.hidden[k]) < tolerance<Real>);
                    CHECK(difference(got.base_logits.values.row(row), expected.logits[k]) < tolerance<Real>);
                    auto const base = got.base_logits.values.row(row);
                    std::vector<Real> logits(base.begin(), base.end());
                    head.add_bias(state, got.hidden.row(row), drafted[k], logits);
                    CHECK(difference(logits, with_heads.logits[k]) < tolerance<Real>);
                    if (!confidence) continue;
                    std::vector<Real> const c{confidence->logit(got.hidden.row(row), drafted[k])};
                    CHECK(difference(c, {with_heads.confidences[k]}) < tolerance<Real>);
                }
            }
        }
    }
}

TEMPLATE_TEST_CASE("eagle3: logits along a draft are those of the definition", "[engine]", double, float) {
    using Real = TestType;
    engine::thread_pool pool(2);
    for (std::size_t i = 0; tiny::shape const& s : shapes()) {
        tiny::drafter_shape const d{.block_size = 3, .output = drafter_shapes()[i++ % 3].output};
        support::dice roll(60 + i);
        INFO(s << ", seed " << roll.seed());
        auto const target_weights = engine::make_in_memory(tiny::target_config(s), engine::storage::f64, 1);
        auto const from = weights_of(tiny::eagle3_config(s, d), d.output);
        auto const& c = from.config().transformer;
        tables const shared(from, target_weights, d.output);
        matrix const fc(from, "fc.weight", s.hidden, tiny::feature_layers(s).size() * s.hidden);
        numbers const hidden_norm = vector(from, "layers.0.hidden_norm.weight", s.hidden);
        numbers const final_norm = vector(from, "norm.weight", s.hidden);
        layer const only(from, "layers.0.", 2 * s.hidden);

        engine::causal_lm<Real> served(engine::make_in_memory(tiny::target_config(s), engine::storage::f64, 1),
                                       tiny::feature_layers(s), pool, small_limits);
        engine::eagle3<Real> model(weights_of(tiny::eagle3_config(s, d), d.output), served, pool, small_limits);
        std::size_t const n = 4 + roll.below(4);
        rows const features = random_features(roll, n, tiny::feature_layers(s).size() * s.hidden);
        auto const tokens = tiny::random_tokens(roll, n + 1, s.vocabulary);  // the last one is the anchor
        auto const drafted = tiny::random_tokens(roll, 2, s.vocabulary);
        std::size_t const slot = 1;
        for (std::size_t first = 0; first < n;) {
            std::size_t const count = std::min(n - first, 1 + roll.below(3));
            model.observe(rows_at(slot, first, count), flat<Real>(features, first, count).data(),
                          std::span(tokens).subspan(first + 1, count));
            first += count;
        }

        // Every pair as the attention reads it; drafts go with the output of the pair before.
        std::vector<placed> pairs;
        numbers last;
        auto const add = [&](numbers const& x, token_id token) {
            pairs.push_back({joined(rms_norm(shared.embeddings.values[static_cast<std::size_t>(token)], only.input_norm,
                                             c.rms_norm_eps),
                                    rms_norm(x, hidden_norm, c.rms_norm_eps)),
                             pairs.size()});
            last = x + only.attention(pairs.back(), pairs);
            last = last + only.mlp(last);
        };
        for (std::size_t t = 0; t < n; ++t) add(fc * features[t], tokens[t + 1]);
        tiny::flat_batch const batch({{slot, n, {tokens[n]}}});
        for (std::size_t k = 0; k <= drafted.size(); ++k) {
            if (k > 0) add(last, drafted[k - 1]);
            auto const got = model.forward(batch.requests(), {drafted.data(), drafted.size(), k});
            CHECK(difference(got.values.row(0), shared.output_head * rms_norm(last, final_norm, c.rms_norm_eps)) <
                  tolerance<Real>);
        }
    }
}
