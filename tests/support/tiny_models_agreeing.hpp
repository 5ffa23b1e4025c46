// SPDX-License-Identifier: MIT
//
// Small random models that agree at times.
//
// With random weights a drafter knows nothing of its target, and next to no draft is accepted. That would leave half of
// a decoding loop untested. `agreeing_models` therefore changes a few tensors: the target listens to its last token
// above all, though not alone, and the drafters are given what it makes of that token. Some drafts are then right and
// some are wrong, at every position of a block, and nothing in it is arranged by hand.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <engine/checkpoint.hpp>
#include <engine/config.hpp>
#include <engine/synthetic.hpp>
#include <sureleap/core/types.hpp>

#include "support/dice.hpp"
#include "support/tiny_models_shapes.hpp"

namespace tiny {

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
        return engine::make_in_memory(config_, specs, "edited model",
                                      [&](auto const& spec, engine::byte_sink const& sink) {
                                          auto const& values = tensors_.at(spec.name);
                                          switch (type) {
                                              case engine::storage::f64: return store<double>(values, sink);
                                              case engine::storage::f32: return store<float>(values, sink);
                                              case engine::storage::f16: return store<sureleap::half>(values, sink);
                                              default: return store<sureleap::bf16>(values, sink);
                                          }
                                      });
    }

private:
    template <class Stored>
    static void store(std::vector<double> const& values, engine::byte_sink const& sink) {
        std::vector<Stored> stored;
        for (double const x : values) stored.push_back(Stored(static_cast<sureleap::compute_t<Stored>>(x)));
        sink(std::as_bytes(std::span<Stored const>(stored)));
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

}  // namespace tiny
