// SPDX-License-Identifier: MIT
//
// Weights by a tensor's name and a seed, such that what a tiny model says depends on its context, and its laws are
// neither flat nor one-hot: features have a variance near 1 in every layer, logits the one that is asked for.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <llama.h>

#include "support/dice.hpp"

namespace support {

struct tiny_weights {
    std::uint64_t seed;
    float sharpness;    ///< standard deviation of logits
    float disturbance;  ///< of every weight, in its own standard deviations

    /// Every weight is center + spread * (something of variance 1).
    struct law {
        float center;
        float spread;
    };

    /// Of a tensor whose rows have `inputs` numbers.
    [[nodiscard]] law law_of(std::string_view name, float inputs) const {
        if (name.ends_with(".scale") || name.starts_with("rope_freqs")) return {1.0F, 0.0F};
        if (name.find("norm") != name.npos || name.ends_with(".ssm_d")) return {1.0F, 0.1F};
        if (name.ends_with(".ssm_a")) return {-1.5F, 0.5F};        // a state decays
        if (name.ends_with(".ssm_dt.bias")) return {-1.0F, 0.5F};  // by steps of softplus of this
        if (name.ends_with(".bias")) return {0.0F, 0.1F};
        if (name == "token_embd.weight") return {0.0F, 1.0F};
        float const gain = name == "output.weight" ? sharpness : 1.0F;
        return {0.0F, gain / std::sqrt(inputs)};
    }

    [[nodiscard]] std::vector<float> values_of(ggml_tensor const& tensor) const {
        auto const [center, spread] = law_of(tensor.name, static_cast<float>(tensor.ne[0]));
        dice roll(seed ^ hash_of(tensor.name));
        dice other(~seed ^ hash_of(tensor.name));
        std::vector<float> values(static_cast<std::size_t>(ggml_nelements(&tensor)));
        for (float& value : values) {
            auto const own = static_cast<float>(roll.bell());
            auto const added = disturbance > 0 ? disturbance * static_cast<float>(other.bell()) : 0.0F;
            value = center + spread * bell_scale * (own + added);
        }
        return values;
    }

    /// As llama_model_init_from_user calls it, with tensors of F32.
    static void fill(ggml_tensor* tensor, void* weights) {
        auto const values = static_cast<tiny_weights const*>(weights)->values_of(*tensor);
        ggml_backend_tensor_set(tensor, values.data(), 0, values.size() * sizeof(float));
    }

private:
    static constexpr float bell_scale = 1.7320508F;  // a sum of four uniform numbers has a variance of a third

    /// FNV-1a
    [[nodiscard]] static std::uint64_t hash_of(std::string_view name) noexcept {
        std::uint64_t hash = 0xCBF29CE484222325U;
        for (char const c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
        return hash;
    }
};

}  // namespace support
