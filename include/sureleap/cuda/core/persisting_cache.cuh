// SPDX-License-Identifier: MIT
//
// Weights in the second-level cache. The product of every position reads all of W2, which is larger than the cache: 78
// MB for V = 151,936 and r = 256 in bf16, of 50 MB on an H200. So nothing of it is there when it is read again. A part
// that is held would be, 30 MB that six products of seven need not read from memory. This has not been measured.
#pragma once

#include <algorithm>
#include <cstddef>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/runtime.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// For kernels that are launched on the stream from now on, or captured from it. They hold as much of these bytes as
/// the device sets aside in its second-level cache. No bytes: they hold nothing any more. The share is a setting of the
/// whole device (cudaLimitPersistingL2CacheSize), which this raises to its most, and which other kernels do without.
[[nodiscard]] inline cudaError_t hold_in_cache([[maybe_unused]] void const* data, [[maybe_unused]] std::size_t bytes,
                                               [[maybe_unused]] cudaStream_t stream) {
#if defined(SURELEAP_CUDA_EMULATED)
    return cudaSuccess;  // it has no cache
#else
    cudaStreamAttrValue attribute{};  // of no bytes
    if (bytes > 0) {
        int device = 0;
        int share = 0;
        int widest = 0;
        cudaError_t error = cudaGetDevice(&device);
        if (error == cudaSuccess) error = cudaDeviceGetAttribute(&share, cudaDevAttrMaxPersistingL2CacheSize, device);
        if (error == cudaSuccess) error = cudaDeviceGetAttribute(&widest, cudaDevAttrMaxAccessPolicyWindowSize, device);
        auto const most = static_cast<std::size_t>(share);
        if (error == cudaSuccess && widest == 0) return cudaSuccess;  // a part of a device, say, can hold nothing
        if (error == cudaSuccess) error = cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, most);
        if (error != cudaSuccess) return error;
        cudaAccessPolicyWindow& window = attribute.accessPolicyWindow;
        window.base_ptr = const_cast<void*>(data);
        window.num_bytes = std::min(bytes, static_cast<std::size_t>(widest));
        window.hitRatio = static_cast<float>(std::min(most, window.num_bytes)) / static_cast<float>(window.num_bytes);
        window.hitProp = cudaAccessPropertyPersisting;
        window.missProp = cudaAccessPropertyStreaming;
    }
    return cudaStreamSetAttribute(stream, cudaStreamAttributeAccessPolicyWindow, &attribute);
#endif
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
