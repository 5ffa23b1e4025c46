// SPDX-License-Identifier: MIT
//
// Small random models of every kind the engine loads, verification batches written by hand, and plain decoding, which
// everything faster is compared with.
//
// Weights come from engine::make_in_memory. As they are, a drafter knows nothing of its target and next to no draft is
// accepted, which would leave half of a decoding loop untested. `agreeing_models` therefore changes a few tensors: the
// target listens to its last token above all, though not alone, and the drafters are given what it makes of that token.
// Some drafts are then right and some are wrong, at every position of a block, and nothing in it is arranged by hand.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <engine/checkpoint.hpp>
#include <engine/config.hpp>
#include <engine/dspark.hpp>
#include <engine/eagle3.hpp>
#include <engine/parts.hpp>
#include <engine/qwen3.hpp>
#include <engine/synthetic.hpp>
#include <engine/target.hpp>
#include <sureleap/sureleap.hpp>

#include "support/dice.hpp"

namespace tiny {

using sureleap::token_id;

// ---- models --------------------------------------------------------------------------------------------------------

/// What varies from target to target.
struct shape {
    std::size_t layers = 2;
    std::size_t hidden = 32;
    std::size_t intermediate = 48;
    std::size_t heads = 4;
    std::size_t kv_heads = 2;
    std::size_t head_dim = 8;
    std::size_t vocabulary = 61;
    bool tied = false;
    double theta = 1e4;
    double epsilon = 1e-6;
};

inline std::ostream& operator<<(std::ostream& out, shape const& s) {
    return out << s.layers << " layers, hidden " << s.hidden << ", intermediate " << s.intermediate << ", " << s.heads
               << "/" << s.kv_heads << " heads of " << s.head_dim << ", V = " << s.vocabulary
               << (s.tied ? ", tied" : ", untied") << ", theta " << s.theta << ", epsilon " << s.epsilon;
}

[[nodiscard]] inline engine::model_config target_config(shape const& s) {
    engine::model_config config;
    config.transformer = {.vocabulary = s.vocabulary,
                          .hidden_size = s.hidden,
                          .intermediate_size = s.intermediate,
                          .layers = s.layers,
                          .heads = s.heads,
                          .kv_heads = s.kv_heads,
                          .head_dim = s.head_dim,
                          .max_positions = 4096,
                          .rope_theta = s.theta,
                          .rms_norm_eps = s.epsilon,
                          .tied_embeddings = s.tied};
    return config;
}

/// Layers of a target whose outputs a drafter reads: the embedding, and up to two more.
[[nodiscard]] inline std::vector<int> feature_layers(shape const& s) {
    std::vector<int> layers{-1};
    int const last = static_cast<int>(s.layers) - 2;
    if (last >= 0) layers.push_back(0);
    if (last >= 1) layers.push_back(last);
    return layers;
}

/// Where a drafter's LM head comes from: its file, its own embedding, or the target's, as a file may leave it out.
enum class lm_head { own, tied, shared };

struct drafter_shape {
    std::size_t block_size = 4;
    std::size_t layers = 2;  ///< 1 for Eagle3
    std::size_t rank = 6;    ///< of the Markov head
    lm_head output = lm_head::own;
    engine::head_kind head = engine::head_kind::vanilla;
    bool confidence = true;
};

/// A drafter for a target of that shape, with attention of its own shape.
[[nodiscard]] inline engine::model_config dspark_config(shape const& s, drafter_shape const& d) {
    engine::model_config config = target_config(s);
    config.kind = engine::architecture::dspark;
    config.transformer.layers = d.layers;
    config.transformer.intermediate_size = s.intermediate / 2 + 3;
    config.transformer.tied_embeddings = d.output == lm_head::tied;
    bool const markov = d.head != engine::head_kind::none;
    config.draft = engine::draft_config{.block_size = d.block_size,
                                        .target_layer_ids = feature_layers(s),
                                        .num_target_layers = s.layers,
                                        .mask_token = static_cast<token_id>(s.vocabulary - 1),
                                        .markov_rank = markov ? d.rank : 0,
                                        .head = d.head,
                                        .confidence = d.confidence,
                                        .confidence_with_markov = d.confidence && markov};
    return config;
}
[[nodiscard]] inline engine::model_config eagle3_config(shape const& s, drafter_shape const& d) {
    engine::model_config config = target_config(s);
    config.kind = engine::architecture::eagle3;
    config.transformer.layers = 1;
    config.transformer.tied_embeddings = d.output == lm_head::tied;
    config.draft = engine::draft_config{
        .block_size = d.block_size, .target_layer_ids = feature_layers(s), .num_target_layers = s.layers};
    return config;
}

[[nodiscard]] inline std::vector<token_id> random_tokens(support::dice& roll, std::size_t n, std::size_t vocabulary) {
    std::vector<token_id> out(n);
    for (token_id& x : out) x = static_cast<token_id>(roll.below(vocabulary));
    return out;
}

// ---- models that agree ---------------------------------------------------------------------------------------------

/// The tensors of a random model as numbers, to be changed and put together again.
class edited_model {
public:
    edited_model(engine::model_config config, std::uint64_t seed) : config_(std::move(config)) {
        engine::checkpoint const from = engine::make_in_memory(config_, engine::storage::f64, seed);
        for (auto const& spec : engine::layout(config_, engine::storage::f64)) {
            engine::weight const w = spec.shape.size() == 1 ? from.row(spec.name, spec.shape[0])
                                                            : from.matrix(spec.name, spec.shape[0], spec.shape[1]);
            auto const* const values = static_cast<double const*>(w.data);
            tensors_[spec.name].assign(values, values + w.rows * w.cols);
        }
    }

    [[nodiscard]] std::vector<double>& operator[](std::string const& name) { return tensors_.at(name); }
    [[nodiscard]] std::vector<double> const& operator[](std::string const& name) const { return tensors_.at(name); }

    void remove(std::string const& name) { tensors_.erase(name); }

    [[nodiscard]] engine::checkpoint build(engine::storage type) const {
        auto specs = engine::layout(config_, type);
        std::erase_if(specs, [&](auto const& spec) { return !tensors_.contains(spec.name); });
        std::string header;
        std::size_t end = 0;
        for (auto const& spec : specs) {
            std::size_t const begin = std::exchange(end, end + tensors_.at(spec.name).size() * bytes_of(type));
            std::string shape;
            for (std::size_t const n : spec.shape) shape += (shape.empty() ? "" : ",") + std::to_string(n);
            header += (header.empty() ? "{\"" : ",\"") + spec.name + "\":{\"dtype\":\"" + name_of(spec.type) +
                      "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(begin) + "," +
                      std::to_string(end) + "]}";
        }
        header += "}";
        header.resize((header.size() + 7) / 8 * 8, ' ');
        auto const bytes = std::make_shared<std::vector<std::byte>>();
        std::uint64_t const length = header.size();
        append(*bytes, std::span<std::uint64_t const>(&length, 1));
        append(*bytes, std::span<char const>(header));
        for (auto const& spec : specs) {
            auto const& values = tensors_.at(spec.name);
            switch (type) {
                case engine::storage::f64: append(*bytes, std::span<double const>(values)); break;
                case engine::storage::f32: append_as<float>(*bytes, values); break;
                case engine::storage::f16: append_as<sureleap::half>(*bytes, values); break;
                case engine::storage::bf16: append_as<sureleap::bf16>(*bytes, values); break;
            }
        }
        std::vector<sureleap::safetensors::file> files;
        files.push_back(sureleap::safetensors::file::view(*bytes, "edited model"));
        return engine::checkpoint::from_files(config_, std::move(files), bytes);
    }

private:
    template <class T>
    static void append(std::vector<std::byte>& to, std::span<T const> values) {
        auto const bytes = std::as_bytes(values);
        to.insert(to.end(), bytes.begin(), bytes.end());
    }
    template <class Stored>
    static void append_as(std::vector<std::byte>& to, std::vector<double> const& values) {
        std::vector<Stored> stored;
        for (double const x : values) stored.push_back(Stored(static_cast<float>(x)));
        append(to, std::span<Stored const>(stored));
    }

    engine::model_config config_;
    std::map<std::string, std::vector<double>> tensors_;
};

/// A target and drafters for it that are right at times and wrong at times.
class agreeing_models {
public:
    agreeing_models(shape const& s, std::uint64_t seed) : shape_(s), seed_(seed), target_(target_config(s), seed) {
        support::dice roll(seed);
        scale(target_["model.embed_tokens.weight"], loudness);
        // Signs at random: with tied embeddings the likeliest next token would else always be the last one again.
        for (double& g : target_["model.norm.weight"]) {
            g = (roll.chance(0.5) ? sharpness : -sharpness) / (s.tied ? loudness : 1.0);
        }
    }

    [[nodiscard]] shape const& dimensions() const noexcept { return shape_; }
    [[nodiscard]] engine::checkpoint target(engine::storage type) const { return target_.build(type); }

    /// The Markov head's tables are the target's embedding and output head: its bias is what the target would say if
    /// it saw the last token alone.
    [[nodiscard]] engine::checkpoint dspark(drafter_shape d, engine::storage type) const {
        d.rank = shape_.hidden;
        edited_model draft(dspark_config(shape_, d), seed_ + 1);
        share(draft, d);
        auto& embeddings = draft["embed_tokens.weight"];  // the mask says nothing
        scale(std::span(embeddings).last(shape_.hidden), 0.0);
        if (d.output == lm_head::own) scale(draft["lm_head.weight"], 0.5);
        if (d.head != engine::head_kind::none) {
            auto& in = draft["markov_head.markov_w1.weight"];
            in = target_["model.embed_tokens.weight"];
            auto const& g = target_["model.norm.weight"];
            for (std::size_t i = 0; i < in.size(); ++i) {
                in[i] *= g[i % shape_.hidden] * std::sqrt(static_cast<double>(shape_.hidden)) / loudness;
            }
            draft["markov_head.markov_w2.weight"] = output_head();
        }
        if (d.head == engine::head_kind::rnn) {  // the output gate hands the embedding on
            auto& joint = draft["markov_head.joint_proj.weight"];
            std::size_t const r = d.rank;
            std::size_t const width = 2 * r + shape_.hidden;
            for (std::size_t i = 0; i < r; ++i) joint[(2 * r + i) * width + r + i] += 1.0;
        }
        return draft.build(type);
    }

    /// Eagle3 sees its last token through attention alone. Keys equal to queries and long make every position look at
    /// itself; what it finds there is the token's embedding, as heads are as wide as the stream.
    [[nodiscard]] engine::checkpoint eagle3(drafter_shape const& d, engine::storage type) const {
        std::size_t const hidden = shape_.hidden;
        engine::model_config config = eagle3_config(shape_, d);
        std::size_t const head_dim = config.transformer.head_dim = (hidden + 1) / 2 * 2;
        edited_model draft(config, seed_ + 2);
        share(draft, d);
        scale(draft["fc.weight"], 0.05);
        auto& query = draft["layers.0.self_attn.q_proj.weight"];
        auto& key = draft["layers.0.self_attn.k_proj.weight"];
        auto& value = draft["layers.0.self_attn.v_proj.weight"];
        auto& output = draft["layers.0.self_attn.o_proj.weight"];
        scale(draft["layers.0.self_attn.q_norm.weight"], 3.0);
        scale(draft["layers.0.self_attn.k_norm.weight"], 3.0);
        scale(value, 0.0);
        scale(output, 0.0);
        for (std::size_t head = 0; head < shape_.heads; ++head) {
            std::size_t const group = head / (shape_.heads / shape_.kv_heads);
            std::size_t const block = head_dim * 2 * hidden;  // of weights for one head
            std::copy_n(key.data() + group * block, block, query.data() + head * block);
            for (std::size_t i = 0; i < hidden; ++i) {
                value[(group * head_dim + i) * 2 * hidden + i] = 1.0;
                output[(i * shape_.heads + head) * head_dim + i] = 3.0 / static_cast<double>(shape_.heads);
            }
        }
        return draft.build(type);
    }

private:
    static constexpr double loudness = 10.0;  // of the embedding in the residual stream
    static constexpr double sharpness = 2.0;  // spread of the target's logits

    static void scale(std::span<double> values, double factor) {
        for (double& x : values) x *= factor;
    }
    [[nodiscard]] std::vector<double> const& output_head() const {
        return target_[shape_.tied ? "model.embed_tokens.weight" : "lm_head.weight"];
    }
    void share(edited_model& draft, drafter_shape const& d) const {
        draft["embed_tokens.weight"] = target_["model.embed_tokens.weight"];
        draft["norm.weight"] = target_["model.norm.weight"];
        if (d.output == lm_head::own) draft["lm_head.weight"] = output_head();
        if (d.output == lm_head::shared) draft.remove("lm_head.weight");
    }

    shape shape_;
    std::uint64_t seed_;
    edited_model target_;
};

// ---- batches -------------------------------------------------------------------------------------------------------

/// Rows of one sequence: tokens at positions first, first + 1, ...; the first one stands where the anchor does.
struct segment {
    std::size_t slot = 0;
    std::uint64_t first = 0;
    std::vector<token_id> tokens;
};

/// A verification batch over such segments, in their order.
class flat_batch {
public:
    explicit flat_batch(std::vector<segment> segments) : segments_(std::move(segments)) {
        std::size_t longest = 1;
        for (segment const& s : segments_) {
            longest = std::max(longest, s.tokens.size());
            requests_.push_back({.id = s.slot + 1,
                                 .slot = s.slot,
                                 .anchor = s.tokens[0],
                                 .position = s.first,
                                 .remaining = 1 << 20,
                                 .settings = &settings_});
        }
        sureleap::workspace sizer;
        static_cast<void>(sureleap::verify_batch(sizer, segments_.size(), longest));
        memory_.resize(sizer.used());
        sureleap::workspace carver{memory_};
        batch_ = sureleap::verify_batch(carver, segments_.size(), longest);
        batch_.begin(requests_);
        for (segment const& s : segments_) batch_.append(std::span(s.tokens).subspan(1));
    }
    // Its parts point at each other.
    flat_batch(flat_batch const&) = delete;
    flat_batch& operator=(flat_batch const&) = delete;

    [[nodiscard]] sureleap::verify_batch const& batch() const noexcept { return batch_; }
    [[nodiscard]] std::span<sureleap::request_view const> requests() const noexcept { return requests_; }

private:
    std::vector<segment> segments_;
    sureleap::request_settings settings_;
    std::vector<sureleap::request_view> requests_;
    std::vector<std::byte> memory_;
    sureleap::verify_batch batch_;
};

/// Logits of the token after `token`, which stands at `position` of a slot: one row, one step of plain decoding.
template <class Real>
[[nodiscard]] std::span<Real const> score_one(engine::target<Real>& served, std::size_t slot, std::uint64_t position,
                                              token_id token) {
    flat_batch const one({{slot, position, {token}}});
    return served.score(one.batch()).values.row(0);
}

// ---- plain decoding ------------------------------------------------------------------------------------------------

/// The token at `position` by its definition: the first largest logit, or the outcome of the noise that `position`
/// owns in the request's law.
[[nodiscard]] inline token_id choose(std::span<float const> logits, sureleap::request_settings const& settings,
                                     std::uint64_t position, std::string const& rule) {
    if (settings.temperature == 0.0) {
        return static_cast<token_id>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
    std::vector<token_id> scratch(logits.size());
    sureleap::distribution<float> const p({logits, {}}, settings.target_transform(), scratch);
    sureleap::draw_key const noise{*settings.seed, position, 0, sureleap::purpose::noise};
    sureleap::philox_randomness const random;
    return rule == "coupled" ? random.race(noise, p) : random.categorical(noise, p);
}

[[nodiscard]] inline std::vector<token_id> decode_plainly(engine::target<float>& served,
                                                          std::vector<token_id> const& prompt,
                                                          sureleap::request_settings const& settings,
                                                          std::string const& rule) {
    for (std::size_t t = 0; t + 1 < prompt.size(); ++t) (void)score_one(served, 0, t, prompt[t]);
    std::vector<token_id> out;
    token_id last = prompt.back();
    while (out.size() < settings.max_new_tokens) {
        std::uint64_t const position = prompt.size() - 1 + out.size();
        last = choose(score_one(served, 0, position, last), settings, position + 1, rule);
        out.push_back(last);
        if (settings.stops_at(last)) break;
    }
    return out;
}

// ---- served --------------------------------------------------------------------------------------------------------

/// Every kind of drafter; dflash is DSpark without heads.
enum class kind { none, lookup, vanilla, gated, rnn, dflash, eagle3 };
inline constexpr kind kinds[] = {kind::none, kind::lookup, kind::vanilla, kind::gated,
                                 kind::rnn,  kind::dflash, kind::eagle3};

[[nodiscard]] inline char const* name_of(kind k) {
    constexpr char const* names[] = {"none", "lookup", "vanilla", "gated", "rnn", "dflash", "eagle3"};
    return names[static_cast<std::size_t>(k)];
}

/// A target with a drafter of that kind, for engine::server: server(s.target, s.drafter, s.observer, ..., s.pool).
struct served {
    engine::thread_pool pool;
    engine::qwen3<float> target;
    std::unique_ptr<engine::dspark<float>> dspark;
    std::unique_ptr<engine::eagle3<float>> eagle3;
    engine::draft_model<float>* observer = nullptr;
    engine::any_drafter<float> drafter;

    served(agreeing_models const& models, kind k, drafter_shape const& d, engine::storage type,
           engine::serving_limits const& limits, std::size_t threads = 1)
        : pool(threads),
          target(models.target(type), feature_layers(models.dimensions()), pool, limits),
          drafter(make(models, k, d, type, limits)) {}

private:
    engine::any_drafter<float> make(agreeing_models const& models, kind k, drafter_shape d, engine::storage type,
                                    engine::serving_limits const& limits) {
        std::size_t const V = target.vocabulary();
        if (k == kind::none) return engine::no_drafter<float>(V);
        if (k == kind::lookup) return sureleap::lookup({.block_size = d.block_size, .target_vocabulary = V});
        if (k == kind::eagle3) {
            eagle3 = std::make_unique<engine::eagle3<float>>(models.eagle3(d, type), target, pool, limits);
            observer = eagle3.get();
            return engine::make_drafter(*eagle3);
        }
        d.head = k == kind::dflash  ? engine::head_kind::none
                 : k == kind::gated ? engine::head_kind::gated
                 : k == kind::rnn   ? engine::head_kind::rnn
                                    : engine::head_kind::vanilla;
        d.confidence = k != kind::dflash;
        dspark = std::make_unique<engine::dspark<float>>(models.dspark(d, type), target, pool, limits);
        observer = dspark.get();
        return engine::make_drafter(*dspark);
    }
};

}  // namespace tiny
