// SPDX-License-Identifier: MIT
//
// A distribution as the device keeps it: how weights are made of a row of logits, and what they add up to. The device's
// sureleap::distribution, without the row. Distributions are recorded when a token is drawn and read when it is judged.
// In between the row may be gone, if the head can compute it again.
//
//     weight(v) = exp((logit(v) - shift) scale)  for kept tokens, 0 for others        p(v) = weight(v) / total
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/runtime.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

enum class distribution_kind : std::uint32_t { invalid, dense, one_hot };

/// Trivially copyable, 32 bytes. Everything zero is no distribution.
struct distribution {
    float shift = 0.0f;
    float scale = 0.0f;              ///< 1 / temperature
    double total = 0.0;              ///< the sum of all weights
    float least_logit = -infinity;   ///< truncation: the last token kept, in the order (logit descending, id
    token_id least_id = 0x7fffffff;  ///< ascending) of the row
    token_id mode = no_token;        ///< the token of a one-hot distribution, as the target names it
    distribution_kind kind = distribution_kind::invalid;

    [[nodiscard]] SURELEAP_HOST_DEVICE bool valid() const noexcept { return kind != distribution_kind::invalid; }
    [[nodiscard]] SURELEAP_HOST_DEVICE bool is_one_hot() const noexcept { return kind == distribution_kind::one_hot; }
    [[nodiscard]] SURELEAP_HOST_DEVICE bool keeps_all() const noexcept { return !(least_logit > -infinity); }
    /// Of a dense distribution: `id` is the place in the row, `logit` what stands there.
    [[nodiscard]] SURELEAP_HOST_DEVICE bool keeps(float logit, token_id id) const noexcept {
        return logit > least_logit || (logit == least_logit && id <= least_id);
    }
    [[nodiscard]] SURELEAP_HOST_DEVICE float weight(float logit, token_id id) const noexcept {
        return keeps(logit, id) ? expf((logit - shift) * scale) : 0.0f;
    }

    [[nodiscard]] static SURELEAP_HOST_DEVICE distribution one_hot(token_id token) noexcept {
        distribution result{};
        result.total = 1.0;
        result.mode = token;
        result.kind = distribution_kind::one_hot;
        return result;
    }
};

}  // namespace cuda
SURELEAP_END_NAMESPACE
