// SPDX-License-Identifier: MIT
//
// Draft logits for acceptance, computed again, since the chain wrote no rows. An entry is base + W2[v] . z. `base` is
// the backbone's base logit; z is the code that the chain kept of every position (1 KiB instead of a row of 300 or 600
// KiB). A judged token reads one row of W2; a residual reads those of the blocks that it visits.
//
// Logits that are drawn from or judged token by token all come from dot() here, in one order of summation. So a weight
// is the same number whenever and wherever it is computed. Sums over whole rows come from the product (product.cuh),
// which adds in another order: the two agree up to rounding, like the totals and weights of two tables on the host.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/head/markov.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Numbers of weight_type that a component of a code is the sum of (head/markov.cuh).
template <class Head>
inline constexpr std::uint32_t code_terms =
    Head::code_is_stored || std::is_same_v<typename Head::weight_type, float> ? 1 : 2;

/// Codes of all positions, in device memory: [R, gamma, terms, r], so that a code is terms rows one after the other.
template <class W>
struct code_rows {
    W* data = nullptr;
    std::uint32_t block_size = 0;
    std::uint32_t rank = 0;
    std::uint32_t terms = 0;

    [[nodiscard]] __device__ W* row(std::uint32_t r, std::uint32_t k) const {
        return data + (static_cast<std::size_t>(r) * block_size + k) * (terms * rank);
    }
};

namespace detail {

/// One component z of a code, as it is used: into `at`, and what that leaves into at[rank].
template <class W>
__device__ __forceinline__ void store_code(float z, W* at, std::uint32_t rank, std::uint32_t terms) {
    if constexpr (std::is_same_v<W, float>) {
        *at = z;
    } else {
        W const nearest{z};
        *at = nearest;
        if (terms == 2) at[rank] = W{z - widen(nearest)};
    }
}

/// The part of a code that a lane multiplies: components (32 j + lane) n .. + n - 1 for vectors of n numbers.
template <class W>
struct lane_code {
    static constexpr std::uint32_t per_vector = vector_size<W>;
    static constexpr std::uint32_t per_warp = warp_size * per_vector;
    static constexpr std::uint32_t vectors = (most_rank + per_warp - 1) / per_warp;

    float z[vectors][per_vector];
    std::uint32_t rank;

    __device__ lane_code(code_rows<W> const& codes, std::uint32_t r, std::uint32_t k) : rank(codes.rank) {
        W const* const code = codes.row(r, k);
#pragma unroll
        for (std::uint32_t j = 0; j < vectors; ++j) {
            std::uint32_t const at = j * per_warp + lane_index() * per_vector;
            if (at >= rank) break;
            unpack<W>(*reinterpret_cast<uint4 const*>(code + at), z[j]);
            if (codes.terms == 1) continue;
            float rest[per_vector];
            unpack<W>(*reinterpret_cast<uint4 const*>(code + rank + at), rest);
#pragma unroll
            for (std::uint32_t i = 0; i < per_vector; ++i) z[j][i] += rest[i];
        }
    }

    /// WARP collective: the products of a row of W2 with the code, in every lane. Row addresses are the warp's own;
    /// `count` rows are loaded before the first is used, since one at a time would wait for memory each.
    template <std::uint32_t count>
    __device__ __forceinline__ void dot(W const* const (&rows)[count], float (&out)[count]) const {
#pragma unroll
        for (std::uint32_t t = 0; t < count; ++t) out[t] = 0.0f;
#pragma unroll
        for (std::uint32_t j = 0; j < vectors; ++j) {
            std::uint32_t const at = j * per_warp + lane_index() * per_vector;
            if (at >= rank) break;
            uint4 bytes[count];
#pragma unroll
            for (std::uint32_t t = 0; t < count; ++t) bytes[t] = __ldg(reinterpret_cast<uint4 const*>(rows[t] + at));
#pragma unroll
            for (std::uint32_t t = 0; t < count; ++t) {
                float w[per_vector];
                unpack<W>(bytes[t], w);
#pragma unroll
                for (std::uint32_t i = 0; i < per_vector; ++i) out[t] = fmaf(w[i], z[j][i], out[t]);
            }
        }
#pragma unroll
        for (std::uint32_t t = 0; t < count; ++t) out[t] = sum_over_lanes(out[t]);
    }
};

}  // namespace detail

/// The draft rows of a chain (DraftRows of draft_rows.cuh), without rows. U: storage of the base logits.
template <class Head, class U>
struct recomputed_draft_rows {
    using weight_type = typename Head::weight_type;
    using code_type = detail::lane_code<weight_type>;

    matrix_view<weight_type> w2{};       ///< [V_draft, r]
    code_rows<weight_type> codes{};      ///< of the chain's memory
    matrix_view<U> base{};               ///< [R gamma, V_draft]
    token_id const* to_draft = nullptr;  ///< [vocabulary] of target tokens, no_token where the draft has none; or null
    std::uint32_t vocabulary = 0;        ///< of the target

    /// WARP collective: the logits of `count` draft tokens, in every lane.
    template <std::uint32_t count>
    __device__ __forceinline__ void logits(code_type const& z, std::uint32_t r, std::uint32_t k,
                                           std::uint32_t const (&tokens)[count], float (&out)[count]) const {
        weight_type const* rows[count];
        float from[count];
        U const* const row = base.data + (static_cast<std::size_t>(r) * codes.block_size + k) * base.stride;
#pragma unroll
        for (std::uint32_t t = 0; t < count; ++t) {
            rows[t] = w2.data + static_cast<std::size_t>(tokens[t]) * w2.stride;
            from[t] = detail::widen(row[tokens[t]]);
        }
        z.dot(rows, out);
#pragma unroll
        for (std::uint32_t t = 0; t < count; ++t) out[t] += from[t];
    }

    /// WARP collective: the logit of draft token i at position k of request r.
    __device__ float logit(std::uint32_t r, std::uint32_t k, token_id i) const {
        std::uint32_t const token[1] = {static_cast<std::uint32_t>(i)};
        float result[1];
        logits(code_type{codes, r, k}, r, k, token, result);
        return result[0];
    }
    /// WARP collective: the weight of target token v under q, distribution of position k of request r.
    __device__ float weight(std::uint32_t r, std::uint32_t k, distribution const& q, token_id v) const {
        token_id const i = to_draft == nullptr ? v : to_draft[v];
        return i == no_token ? 0.0f : q.weight(logit(r, k, i), i);
    }

    /// BLOCK collective: the weights of target tokens 1,024 block .. + 1,023 into shared out [1,024], 0 for those that
    /// there are not. No barrier at its end. Reads 1,024 rows of W2, half a megabyte of bf16 for r = 256.
    __device__ void weights(std::uint32_t r, std::uint32_t k, distribution const& q, std::uint32_t block,
                            float* out) const {
        constexpr std::uint32_t together = 4;
        constexpr std::uint32_t size = 1024;
        code_type const z{codes, r, k};
        for (std::uint32_t at = warp_index() * together; at < size; at += blockDim.x / warp_size * together) {
            std::uint32_t tokens[together];
            bool there[together];
#pragma unroll
            for (std::uint32_t t = 0; t < together; ++t) {
                std::uint32_t const v = block * size + at + t;
                there[t] = v < vocabulary;
                token_id i = there[t] ? static_cast<token_id>(v) : 0;
                if (to_draft != nullptr && there[t]) {
                    i = to_draft[v];
                    there[t] = i != no_token;
                }
                tokens[t] = there[t] ? static_cast<std::uint32_t>(i) : 0;
            }
            float found[together];
            logits(z, r, k, tokens, found);
#pragma unroll
            for (std::uint32_t t = 0; t < together; ++t) {
                if (lane_index() == t) {
                    out[at + t] = there[t] ? q.weight(found[t], static_cast<token_id>(tokens[t])) : 0.0f;
                }
            }
        }
    }
};

}  // namespace cuda
SURELEAP_END_NAMESPACE
