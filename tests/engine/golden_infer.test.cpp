// SPDX-License-Identifier: MIT
//
// Two rounds of the DSpark backbone with its cache against stored reference values: what is injected, what is cached,
// every layer's output, base logits, confidences, and the tokens that the sequential head drafts from them.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <engine/dspark.hpp>
#include <engine/parts.hpp>

#include "support/drafted.hpp"
#include "support/golden_engine.hpp"

namespace {

using sureleap::token_id;

// Where the reference is float64, ours in double must agree to rounding; in float to what float can give.
template <class Real>
constexpr double tolerance = std::is_same_v<Real, double> ? 1e-10 : 2e-5;

// Draws by inverse CDF from given uniforms, in call order, as the file was made.
struct scripted {
    std::span<double const> uniforms;
    std::size_t* used;

    bool bernoulli(sureleap::draw_key const&, double, double) const { return false; }
    template <class W>
    token_id categorical(sureleap::draw_key const&, W const& w) const {
        double const u = uniforms[(*used)++] * w.total();
        double sum = 0;
        for (std::size_t v = 0; v < w.size(); ++v) {
            sum += w[static_cast<token_id>(v)];
            if (sum > u) return static_cast<token_id>(v);
        }
        return static_cast<token_id>(w.size() - 1);
    }
    template <class W>
    token_id gumbel_max(sureleap::draw_key const& key, W const& w) const {
        return categorical(key, w);
    }
};

}  // namespace

TEMPLATE_TEST_CASE("golden: two rounds of the DSpark backbone", "[golden][engine]", double, float) {
    using Real = TestType;
    golden::file const f("tiny_infer");
    engine::thread_pool pool(2);
    engine::checkpoint draft{golden::tiny_drafter()};
    auto const config = draft.config();
    auto const& t = config.transformer;
    std::size_t const gamma = config.draft->block_size;
    std::size_t const d = t.hidden_size;

    // The backbone needs a target for its shapes and layer numbers alone: the features come from the file.
    golden::weight_store store;
    engine::checkpoint const same{golden::tiny_drafter()};
    auto const embeddings = same.matrix("embed_tokens.weight", t.vocabulary, d);
    engine::serving_limits const limits{.slots = 3, .context_length = 256, .max_rows = 256};
    engine::stand_in<Real> served({.embeddings = embeddings,
                                   .layers = store.matrices(golden::file("loop_t1"), "A"),
                                   .positions = embeddings,
                                   .output = embeddings},
                                  config.draft->target_layer_ids, pool, limits);
    engine::dspark<Real> model(std::move(draft), served, pool, limits);
    auto drafter = std::get<engine::dspark_drafter<Real>>(engine::make_drafter(model));
    auto const confidence = engine::load_confidence<Real>(model.source());

    std::uint32_t const slot = 1;  // not the first, so that slots are seen to be told apart
    std::uint32_t start = 0;
    for (std::string const round : {"1", "2"}) {
        std::string const r = "r" + round + ".";
        auto const features = f.f64("ctx" + round);
        std::size_t const n = features.dim(1);
        std::vector<Real> const values(features.values.begin(), features.values.end());
        std::vector<engine::batch_row> rows;
        for (std::uint32_t i = 0; i < n; ++i) rows.push_back({slot, start + i, 0});
        model.observe(rows, values.data());
        if (f.contains("hctx" + round)) {
            CHECK(golden::difference(model.context_features(), f.f64("hctx" + round).values) < tolerance<Real>);
        }
        start += static_cast<std::uint32_t>(n);

        auto const draft_ids = f.i32(r + "draft_ids");
        REQUIRE(draft_ids.size() == gamma);
        for (std::size_t k = 1; k < gamma; ++k) REQUIRE(draft_ids[k] == config.draft->mask_token);
        sureleap::request_settings settings{.temperature = 0.0, .max_new_tokens = 100};
        sureleap::request_view const request{.id = 1,
                                             .slot = slot,
                                             .anchor = draft_ids[0],
                                             .position = start,
                                             .context = {},
                                             .seed = 1,
                                             .remaining = 100,
                                             .settings = &settings};
        std::span<sureleap::request_view const> const requests(&request, 1);

        auto const forward = drafter.forward(requests);
        CHECK(golden::difference(std::span(forward.hidden.data, gamma * d), f.f64(r + "block_hidden").values) <
              tolerance<Real>);
        CHECK(golden::difference(std::span(forward.base_logits.values.data, gamma * t.vocabulary),
                                 f.f64(r + "base_logits").values) < tolerance<Real>);
        for (std::size_t l = 0; l < t.layers; ++l) {
            auto const keys = f.f64(r + "cacheK" + std::to_string(l));
            auto const cached = f.f64(r + "cacheV" + std::to_string(l));
            REQUIRE(keys.dim(2) == start);
            for (std::size_t h = 0; h < t.kv_heads; ++h) {
                std::vector<Real> k, v;
                for (std::size_t p = 0; p < start; ++p) {
                    Real const* const chunk = model.cache().chunk(slot, l, h, p / engine::chunk_keys);
                    std::size_t const at = p % engine::chunk_keys;
                    for (std::size_t c = 0; c < t.head_dim; ++c) {
                        k.push_back(chunk[c * engine::chunk_keys + at]);
                        v.push_back(chunk[(engine::chunk_keys + at) * t.head_dim + c]);
                    }
                }
                CHECK(golden::difference(k, keys.row(std::size_t{0}, h)) < tolerance<Real>);
                CHECK(golden::difference(v, cached.row(std::size_t{0}, h)) < tolerance<Real>);
            }
        }

        // Greedy and at temperature 1: tokens, the corrected law of every position, confidences.
        for (std::string const mode : {"greedy", "t1"}) {
            INFO(r << mode);
            settings.temperature = mode == "t1" ? 1.0 : 0.0;
            auto const ids = f.i32(r + mode + ".verify_ids");
            std::vector<double> uniforms(gamma, 0.5);
            if (mode == "t1") uniforms = f.f64(r + "t1.u_sample").values;
            std::size_t used = 0;
            scripted rng{uniforms, &used};
            support::drafted<Real> memory{drafter, sureleap::token_rejection<>{}, requests};
            memory.draw(drafter, forward, sureleap::categorical_draft{}, rng);
            auto const tokens = memory.block.tokens(0);
            REQUIRE(ids[0] == request.anchor);
            CHECK(std::vector<token_id>(tokens.begin(), tokens.end()) ==
                  std::vector<token_id>(ids.values.begin() + 1, ids.values.end()));
            auto const conf = f.f64(r + mode + ".conf");
            for (std::size_t k = 0; k < gamma; ++k) {
                double const c = static_cast<double>(confidence.logit(forward.hidden.row(k), ids[k]));
                CHECK(std::abs(c - conf[k]) < tolerance<Real> * 5);
            }
            if (mode != "t1") continue;
            auto const probabilities = f.f64(r + "t1.probs");
            for (std::size_t k = 0; k < gamma; ++k) {
                auto const& q = memory.block.laws(0)[k];
                std::vector<double> law;
                for (std::size_t v = 0; v < t.vocabulary; ++v) law.push_back(q.probability(static_cast<token_id>(v)));
                CHECK(golden::difference(law, probabilities.row(std::size_t{0}, k)) < tolerance<Real>);
            }
        }
    }
}

TEMPLATE_TEST_CASE("golden: outputs of the backbone's layers", "[golden][engine]", double, float) {
    using Real = TestType;
    golden::file const f("tiny_infer");
    engine::thread_pool pool(1);
    engine::checkpoint const from{golden::tiny_drafter()};
    auto const& t = from.config().transformer;
    std::size_t const gamma = from.config().draft->block_size;
    engine::layer_context<Real> context(t, pool, 256, 256);
    engine::kv_cache<Real> cache(1, t.layers, t.kv_heads, t.head_dim, 256);
    auto const injected = f.f64("hctx1");
    std::vector<Real> const c(injected.values.begin(), injected.values.end());
    auto const start = static_cast<std::uint32_t>(injected.dim(1));
    std::vector<engine::batch_row> past, block;
    for (std::uint32_t i = 0; i < start; ++i) past.push_back({0, i, 0});
    for (std::uint32_t k = 0; k < gamma; ++k) {
        block.push_back({0, start + k, start + static_cast<std::uint32_t>(gamma)});
    }
    auto const ids = f.i32("r1.draft_ids");
    auto const embeddings = from.matrix("embed_tokens.weight", t.vocabulary, t.hidden_size);
    std::vector<Real> x(gamma * t.hidden_size);
    for (std::size_t k = 0; k < gamma; ++k) {
        engine::load_row(embeddings, static_cast<std::size_t>(ids[k]), x.data() + k * t.hidden_size);
    }
    std::vector<Real> y(x.size());
    for (std::size_t l = 0; l < t.layers; ++l) {
        engine::decoder_layer<Real> const layer(from, "layers." + std::to_string(l) + ".", t, t.hidden_size);
        layer.write_keys(context, past, c.data(), cache, l);
        layer.input_norm(context, x.data(), gamma, y.data());
        layer.write_keys(context, block, y.data(), cache, l);
        layer.attend(context, block, y.data(), cache, l, x.data());
        layer.mlp(context, gamma, x.data());
        CHECK(golden::difference(x, f.f64("r1.layer" + std::to_string(l)).values) < tolerance<Real>);
    }
}

TEMPLATE_TEST_CASE("a row that sees several chunks of keys has the same bits alone and in a batch", "[engine]", double,
                   float) {
    using Real = TestType;
    engine::checkpoint const from{golden::tiny_drafter()};
    auto const& t = from.config().transformer;
    engine::decoder_layer<Real> const layer(from, "layers.0.", t, t.hidden_size);
    constexpr std::uint32_t slots = 20;  // more tasks than are divided by chunks
    constexpr std::uint32_t seen = 150;
    auto const rows_of = [&](std::uint32_t slot, std::size_t rows) {
        std::vector<Real> y(rows * t.hidden_size);
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = static_cast<Real>(std::sin(0.37 * double(i) + slot));
        return y;
    };
    auto const attended = [&](std::size_t threads, std::uint32_t first, std::uint32_t count) {
        engine::thread_pool pool(threads);
        engine::layer_context<Real> context(t, pool, 256, 256);
        engine::kv_cache<Real> cache(slots, 1, t.kv_heads, t.head_dim, 256);
        std::vector<engine::batch_row> last;
        std::vector<Real> y;
        for (std::uint32_t s = first; s < first + count; ++s) {
            std::vector<engine::batch_row> past;
            for (std::uint32_t p = 0; p < seen; ++p) past.push_back({s, p, 0});
            layer.write_keys(context, past, rows_of(s, seen).data(), cache, 0);
            last.push_back({s, seen - 1, seen});
            auto const row = rows_of(s + 100, 1);
            y.insert(y.end(), row.begin(), row.end());
        }
        std::vector<Real> x(y.size());
        layer.attend(context, last, y.data(), cache, 0, x.data());
        return x;
    };
    auto const together = attended(1, 0, slots);
    for (std::uint32_t s = 0; s < slots; ++s) {
        auto const own = together.begin() + static_cast<std::ptrdiff_t>(s * t.hidden_size);
        for (std::size_t const threads : {std::size_t{1}, std::size_t{3}}) {
            auto const alone = attended(threads, s, 1);
            INFO("slot " << s << ", " << threads << " threads");
            CHECK(std::equal(alone.begin(), alone.end(), own));
        }
    }
}
