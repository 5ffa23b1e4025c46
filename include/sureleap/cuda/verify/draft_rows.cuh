// SPDX-License-Identifier: MIT
//
// The interface by which acceptance reads weights of the draft distribution q. It asks for those of tokens that it
// proposes as a correction, and for a whole row where proposals do not settle it. An implementation may read rows that
// were written, look into a shortlist, or compute logits again from the code of a head.
//
// DraftRows is a trivially copyable struct that is passed to kernels by value, with
//
//     __device__ float weight(std::uint32_t r, std::uint32_t k, distribution const& q, token_id v) const;
//         A WARP collective: same arguments in all lanes, same result in all. The weight of target token v under q, the dense
//         distribution of position k (0-based) of request r; 0 if the draft cannot say v.
//     __device__ void weights(std::uint32_t r, std::uint32_t k, distribution const& q, std::uint32_t block, float* out)
//     const;
//         A BLOCK collective of any number of warps: the weights of target tokens 1,024 block .. + 1,023 into out [1,024] in
//         shared memory, 0 beyond the vocabulary. No barrier at its end.
//
// Promise: the weights add up to q.total, up to rounding, in both. One-hot distributions are never asked about.
//
// Rows of logits whose distributions nobody recorded are weighed in the pass over the target's rows. Then there are
// also
//
//     bool weighs() const;
//         Of host and device: whether this is such a case at all.
//     __device__ bool weighs(std::uint32_t r) const;
//         Of request r: or what its drafts were drawn from is recorded.
//     __device__ T const* row(std::uint32_t r, std::uint32_t k) const;
//     block_weight* draft_weights; double* draft_upto;
//         [R gamma, blocks]: memory for the pass, and for the sums of the distributions.
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/warp.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/verify/engine_arrays.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// Rows of draft logits that are still in memory: row r * block_size + k.
template <class T>
struct dense_draft_rows {
    T const* data = nullptr;  ///< [R gamma, draft vocabulary]
    std::size_t stride = 0;   ///< elements from row to row
    std::uint32_t block_size = 0;
    std::uint32_t vocabulary = 0;  ///< of the target
    token_id const* to_draft =
        nullptr;  ///< [vocabulary] of target tokens, no_token where the draft has none; null: equal

    [[nodiscard]] __device__ float weight(std::uint32_t r, std::uint32_t k, distribution const& q, token_id v) const {
        token_id const i = to_draft == nullptr ? v : to_draft[v];
        return i == no_token ? 0.0f : q.weight(load(row(r, k)[i]), i);
    }
    __device__ void weights(std::uint32_t r, std::uint32_t k, distribution const& q, std::uint32_t block,
                            float* out) const {
#pragma unroll 1
        for (std::uint32_t i = threadIdx.x; i < block_tokens; i += blockDim.x) {
            std::uint32_t const v = block * block_tokens + i;
            token_id const at = v >= vocabulary       ? no_token
                                : to_draft == nullptr ? static_cast<token_id>(v)
                                                      : to_draft[v];
            out[i] = at == no_token ? 0.0f : q.weight(load(row(r, k)[at]), at);
        }
    }

private:
    [[nodiscard]] __device__ T const* row(std::uint32_t r, std::uint32_t k) const {
        return data + (static_cast<std::size_t>(r) * block_size + k) * stride;
    }
};

/// Rows of an engine (q_arrays): logits or probabilities, of all tokens or of some that are listed.
template <class T>
struct engine_draft_rows {
    T const* data = nullptr;
    std::size_t const* first = nullptr;  ///< [R] where the row of position 0 of a request begins
    std::size_t stride = 0;              ///< elements from position to position
    integer_array listed{};              ///< which tokens the numbers are of, in the same places; null: all in order
    std::uint32_t size = 0;              ///< numbers of a row
    bool probabilities = false;
    std::uint8_t const* found = nullptr;    ///< [R] no q is read
    block_weight* draft_weights = nullptr;  ///< [R gamma, blocks]; null: distributions are recorded
    double* draft_upto = nullptr;           ///< the same

    [[nodiscard]] SURELEAP_HOST_DEVICE bool weighs() const { return draft_weights != nullptr; }
    [[nodiscard]] __device__ bool weighs(std::uint32_t r) const { return weighs() && found[r] == 0; }
    [[nodiscard]] __device__ T const* row(std::uint32_t r, std::uint32_t k) const { return data + begin(r, k); }

    /// Any thread: the weight of the number in place i of a row, under q.
    [[nodiscard]] __device__ float weight_at(std::size_t place, distribution const& q, token_id i) const {
        float const x = load(data[place]);
        return probabilities ? x : q.weight(x, i);
    }
    [[nodiscard]] __device__ std::size_t begin(std::uint32_t r, std::uint32_t k) const { return first[r] + k * stride; }

    [[nodiscard]] __device__ float weight(std::uint32_t r, std::uint32_t k, distribution const& q, token_id v) const {
        std::size_t const row = begin(r, k);
        if (!listed) return weight_at(row + static_cast<std::size_t>(v), q, v);
        float mine = 0.0f;
        for (std::uint32_t i = lane_index(); i < size; i += warp_size) {
            if (listed[row + i] == v) mine += weight_at(row + i, q, static_cast<token_id>(i));
        }
        return sum_over_lanes(mine);
    }
    __device__ void weights(std::uint32_t r, std::uint32_t k, distribution const& q, std::uint32_t block,
                            float* out) const {
        std::size_t const row = begin(r, k);
        std::uint32_t const base = block * block_tokens;
        if (!listed) {
            for (std::uint32_t i = threadIdx.x; i < block_tokens; i += blockDim.x) {
                std::uint32_t const v = base + i;
                out[i] = v < size ? weight_at(row + v, q, static_cast<token_id>(v)) : 0.0f;
            }
            return;
        }
        for (std::uint32_t i = threadIdx.x; i < block_tokens; i += blockDim.x) out[i] = 0.0f;
        __syncthreads();
        for (std::uint32_t i = threadIdx.x; i < size; i += blockDim.x) {
            std::int64_t const v = listed[row + i];
            if (v < base || v >= static_cast<std::int64_t>(base) + block_tokens) continue;
            out[static_cast<std::uint32_t>(v) - base] = weight_at(row + i, q, static_cast<token_id>(i));
        }
    }
};

/// Rows of q may be weighed with the target's.
template <class DraftRows>
concept weighed_draft_rows = requires(DraftRows const& drafts) { drafts.draft_weights; };

/// For drafts whose distributions are all one-hot (argmax_draft, prompt lookup), and for rules that read nothing of q.
struct one_hot_draft_rows {
    [[nodiscard]] __device__ float weight(std::uint32_t, std::uint32_t, distribution const&, token_id) const {
        return 0.0f;
    }
    __device__ void weights(std::uint32_t, std::uint32_t, distribution const&, std::uint32_t, float* out) const {
        for (std::uint32_t i = threadIdx.x; i < block_tokens; i += blockDim.x) out[i] = 0.0f;
    }
};

}  // namespace cuda
SURELEAP_END_NAMESPACE
