// SPDX-License-Identifier: MIT
//
// Launches the product of a step (product_step.cuh): on tensor cores where the weights and the device allow it
// (product_tensor.cuh), else without (product_plain.cuh).
#pragma once

#include <cstddef>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/head/product_plain.cuh>
#include <sureleap/cuda/head/product_step.cuh>
#include <sureleap/cuda/head/product_tensor.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// The statistics of a step into step.statistics, for the requests of its list. `terms` is the codes' number of terms, and
/// `most` the length that the list may have. O(V r R), reads W2 and the base logits once.
template <std::uint32_t terms, class W, class U>
[[nodiscard]] cudaError_t multiply(product_step<W, U> const& step, std::uint32_t most, cudaStream_t stream) {
    if constexpr (std::is_same_v<W, float>) {
        return detail::launch_plain(step, stream);
    } else {
        int device = 0;
        int available = 0;
        unsigned multiprocessors = 0;
        cudaError_t error = cudaGetDevice(&device);
        if (error == cudaSuccess) {
            error = cudaDeviceGetAttribute(&available, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
        }
        if (error == cudaSuccess) error = count_multiprocessors(multiprocessors);
        if (error != cudaSuccess) return error;
        auto const room = static_cast<std::size_t>(available);
        auto const suits = [&](std::uint32_t requests, std::size_t bytes) {
            return most > requests / 2 && bytes <= room;
        };
        std::uint32_t const rank = step.codes.rank;
        if (suits(128, detail::product_tile<128>::shared_bytes(rank, terms))) {
            return detail::launch_tile<128, terms>(step, multiprocessors, stream);
        }
        if (suits(64, detail::product_tile<64>::shared_bytes(rank, terms))) {
            return detail::launch_tile<64, terms>(step, multiprocessors, stream);
        }
        if (suits(32, detail::product_tile<32>::shared_bytes(rank, terms))) {
            return detail::launch_tile<32, terms>(step, multiprocessors, stream);
        }
        return detail::launch_tile<16, terms>(step, multiprocessors, stream);
    }
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
