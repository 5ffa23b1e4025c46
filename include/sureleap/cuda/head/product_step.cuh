// SPDX-License-Identifier: MIT
//
// One position of the chain for all requests at once: logits = U_k + W2 z_k. In: codes z_k [requests, r] and base
// logits U_k [requests, V_draft]. Out: statistics per request and group of 128 tokens, the largest logit and the sum of
// exp((logit - largest) / T). The logits themselves are not written: a row would be 0.3 to 0.6 MB each way. For V =
// 151,936 the statistics are 1,187 pairs of numbers, enough to find the group of a draw. The draw computes that group's
// logits again.
//
// Truncated distributions and Gumbel-max draws look at logits one by one. For their requests the rows are written, too,
// into `rows`.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/head/recomputed_rows.cuh>
#include <sureleap/detail/kernel/rows.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Of a group of tokens of one row.
struct group_statistics {
    float largest = 0.0f;  ///< -inf if no logit is larger; anything if one is NaN
    float sum = 0.0f;      ///< of exp((logit - largest) scale); 0 if there is none, NaN if a logit is NaN or +inf
};

inline constexpr std::uint32_t group_size = static_cast<std::uint32_t>(row_group);

[[nodiscard]] SURELEAP_HOST_DEVICE constexpr std::uint32_t groups_of(std::uint32_t vocabulary) noexcept {
    return (vocabulary + group_size - 1) / group_size;
}

/// The requests that draft a position, in any order.
struct request_list {
    std::uint32_t* ids = nullptr;    ///< [limits.requests]
    std::uint32_t* count = nullptr;  ///< [1]
};

/// Rows of logits [R, stride] in float, for requests that ask for theirs; stride is a multiple of 4.
struct logit_rows {
    float* data = nullptr;  ///< null: nobody has one
    std::size_t stride = 0;
    bool all = false;  ///< everybody has one; else those whose draft distribution is truncated

    [[nodiscard]] __device__ float* row(std::uint32_t r, transform const& how) const {
        bool const asked = all || (how.truncates() && !how.greedy());
        return data != nullptr && asked ? data + r * stride : nullptr;
    }
};

/// A step: U_k[r] + W2 z_k[r] for the requests of `list`.
template <class W, class U>
struct product_step {
    matrix_view<W> w2{};
    matrix_view<U> base{};
    code_rows<W> codes{};
    request_list list{};
    transform const* transforms = nullptr;   ///< [R] of the draft
    group_statistics* statistics = nullptr;  ///< [R, groups]
    logit_rows rows{};
    std::uint32_t k = 0;

    [[nodiscard]] __device__ float* row(std::uint32_t r) const { return rows.row(r, transforms[r]); }
    [[nodiscard]] __device__ std::uint32_t vocabulary() const { return static_cast<std::uint32_t>(w2.rows); }
    [[nodiscard]] __device__ U const* base_row(std::uint32_t r) const {
        return base.data + (static_cast<std::size_t>(r) * codes.block_size + k) * base.stride;
    }
    /// Greedy rows have no scale of their own; 1 makes the sum that of their softmax.
    [[nodiscard]] __device__ float scale(std::uint32_t r) const {
        return transforms[r].greedy() ? 1.0f : static_cast<float>(1.0 / transforms[r].temperature);
    }
};

namespace detail {

inline constexpr float log2_e = 1.44269504f;

/// The statistics of two parts of a group as those of both. `factor` is scale * log2_e.
[[nodiscard]] __device__ __forceinline__ group_statistics merge(group_statistics const& a, group_statistics const& b,
                                                                float factor) {
    float const largest = fmaxf(a.largest, b.largest);
    if (!(largest > -infinity)) return {largest, a.sum + b.sum};  // nothing but -inf: 0, or NaN
    return {largest,
            a.sum * quick_exp2((a.largest - largest) * factor) + b.sum * quick_exp2((b.largest - largest) * factor)};
}

}  // namespace detail

}  // namespace cuda
SURELEAP_END_NAMESPACE
