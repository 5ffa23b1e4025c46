// SPDX-License-Identifier: MIT
//
// The target's rows as an engine keeps them (engine_arrays): where its requests have them, and edited as they are read
// if the call has edits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/sampling/edited_row.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What kernels read in place of logits_rows.
template <class T, bool edited>
struct engine_rows {
    static_assert(is_device_storage_v<T>,
                  "engine_rows: logits on the device are float, sureleap::half or sureleap::bf16");
    using value_type = T;
    using row_type = std::conditional_t<edited, edited_row<T>, T const*>;

    T const* data = nullptr;
    std::uint32_t rows = 0;  ///< of a round: R (gamma + 1)
    std::size_t stride = 0;
    std::size_t const* first_rows = nullptr;  ///< [R]
    request_edits const* edits = nullptr;     ///< [R]
    std::uint32_t const* bitmask = nullptr;   ///< [rows of the target, bitmask_stride], or null
    std::size_t bitmask_stride = 0;
    float const* log_normalisers = nullptr;  ///< none
    float const* block_sums = nullptr;       ///< none

    /// The row behind draft k of request r, as it is stored.
    [[nodiscard]] __device__ T const* stored(std::uint32_t r, std::uint32_t k) const {
        return data + (first_rows[r] + k) * stride;
    }
    [[nodiscard]] __device__ row_type row(std::uint32_t, device_round const& round, std::uint32_t r,
                                          std::uint32_t k) const {
        std::size_t const i = first_rows[r] + k;
        T const* const logits = data + i * stride;
        if constexpr (edited) {
            std::uint32_t const* const allowed = bitmask == nullptr ? nullptr : bitmask + i * bitmask_stride;
            return {logits, edits + r, allowed, round.batch.tokens + round.batch.offsets[r] + 1, k};
        } else {
            return logits;
        }
    }
    [[nodiscard]] __device__ bool are_normalised(transform const&, std::uint32_t, std::uint32_t) const { return false; }
};

}  // namespace cuda
SURELEAP_END_NAMESPACE
