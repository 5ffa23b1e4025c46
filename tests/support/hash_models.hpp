// SPDX-License-Identifier: MIT
//
// Language models made of a hash. Every logit is a fixed function of a seed, the last two tokens, the length of the
// context and the token. So logits depend on the context without having to be stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/core/types.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/sampling/random.hpp>

namespace support {

/// A number in [-1, 1) that looks random and is a function of its arguments.
[[nodiscard]] inline double hashed(std::uint64_t seed, std::uint32_t a, std::uint32_t b, std::uint32_t c,
                                   std::uint32_t d) {
    auto const bits = sureleap::philox4x32({a, b, c, d}, seed);
    return static_cast<double>(static_cast<std::int32_t>(bits[0])) * 0x1p-31;
}

/// logit(v) = sharpness * (common + disagreement * own): models that differ in `own` only are alike, but not equal.
struct hash_language {
    std::uint64_t own = 1;
    double disagreement = 0.0;
    double sharpness = 3.0;

    template <class Real>
    void operator()(std::span<sureleap::token_id const> context, std::span<Real> logits) const {
        auto const size = static_cast<std::uint32_t>(context.size());
        auto const last = static_cast<std::uint32_t>(context.back());
        auto const before = size > 1 ? static_cast<std::uint32_t>(context[size - 2]) : 0u;
        for (std::size_t v = 0; v < logits.size(); ++v) {
            auto const token = static_cast<std::uint32_t>(v);
            double const common = hashed(99, last, before, token, size % 3);
            double const noise = disagreement == 0.0 ? 0.0 : hashed(own, last, before, token, size % 5);
            logits[v] =
                static_cast<Real>(static_cast<sureleap::compute_t<Real>>(sharpness * (common + disagreement * noise)));
        }
    }
};

template <class Real>
[[nodiscard]] auto hash_model(std::size_t vocabulary, hash_language const& language) {
    return sureleap::model_of<Real>(vocabulary, language);
}

}  // namespace support
