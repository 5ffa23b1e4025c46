// SPDX-License-Identifier: MIT
//
// The part of the runtime API that the library and its tests use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <tuple>
#include <type_traits>
#include <utility>

#include "runtime.hpp"

// ---- errors
// ------------------------------------------------------------------------------------------------------------

inline cudaError_t cudaGetLastError() {
    return emulator::detail::runtime::the().last(true);
}
inline cudaError_t cudaPeekAtLastError() {
    return emulator::detail::runtime::the().last(false);
}
/// Of a launch failure, the whole story.
inline char const* cudaGetErrorString(cudaError_t error) {
    auto const& report = emulator::detail::runtime::the().report();
    switch (error) {
        case cudaSuccess: return "no error";
        case cudaErrorInvalidValue: return "invalid argument";
        case cudaErrorMemoryAllocation: return "out of memory";
        case cudaErrorInvalidConfiguration: return "invalid configuration argument";
        case cudaErrorInvalidDeviceFunction: return "invalid device function";
        case cudaErrorInvalidResourceHandle: return "invalid resource handle";
        case cudaErrorIllegalState: return "the operation cannot be performed in the present state";
        case cudaErrorStreamCaptureUnsupported: return "operation not permitted when stream is capturing";
        case cudaErrorStreamCaptureInvalidated: return "operation failed due to a previous error during capture";
        case cudaErrorStreamCaptureImplicit:
            return "operation would make the legacy stream depend on a capturing blocking stream";
        case cudaErrorNotReady: return "device not ready";
        case cudaErrorLaunchFailure: return report.empty() ? "unspecified launch failure" : report.c_str();
        default: return "an error that the emulator does not make";
    }
}
inline char const* cudaGetErrorName(cudaError_t error) {
    switch (error) {
        case cudaSuccess: return "cudaSuccess";
        case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
        case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
        case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
        case cudaErrorInvalidDeviceFunction: return "cudaErrorInvalidDeviceFunction";
        case cudaErrorInvalidResourceHandle: return "cudaErrorInvalidResourceHandle";
        case cudaErrorIllegalState: return "cudaErrorIllegalState";
        case cudaErrorStreamCaptureUnsupported: return "cudaErrorStreamCaptureUnsupported";
        case cudaErrorStreamCaptureInvalidated: return "cudaErrorStreamCaptureInvalidated";
        case cudaErrorStreamCaptureImplicit: return "cudaErrorStreamCaptureImplicit";
        case cudaErrorNotReady: return "cudaErrorNotReady";
        case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
        default: return "an error that the emulator does not make";
    }
}

// ---- memory and streams
// ------------------------------------------------------------------------------------------------

inline cudaError_t cudaMalloc(void** result, std::size_t bytes) {
    return emulator::detail::runtime::the().allocate(result, bytes);
}
template <class T>
cudaError_t cudaMalloc(T** result, std::size_t bytes) {
    return cudaMalloc(reinterpret_cast<void**>(result), bytes);
}
inline cudaError_t cudaFree(void* address) {
    return emulator::detail::runtime::the().release(address);
}
/// Memory of the host that copies need not wait for.
inline cudaError_t cudaMallocHost(void** result, std::size_t bytes) {
    return emulator::detail::runtime::the().allocate_host(result, bytes);
}
inline cudaError_t cudaFreeHost(void* address) {
    return emulator::detail::runtime::the().release_host(address);
}
inline cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t stream = nullptr) {
    return emulator::detail::runtime::the().copy(to, from, bytes, kind, stream);
}
inline cudaError_t cudaMemcpy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind);
}
inline cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t stream = nullptr) {
    return emulator::detail::runtime::the().fill(address, value, bytes, stream);
}
inline cudaError_t cudaMemset(void* address, int value, std::size_t bytes) {
    return cudaMemsetAsync(address, value, bytes);
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
    *stream = emulator::detail::runtime::the().make_stream();
    return emulator::detail::runtime::the().note(cudaSuccess);
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    return emulator::detail::runtime::the().end_stream(stream);
}
inline cudaError_t cudaStreamQuery(cudaStream_t stream) {
    return emulator::detail::runtime::the().query(stream);
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    return emulator::detail::runtime::the().finish(stream);
}
inline cudaError_t cudaDeviceSynchronize() {
    return emulator::detail::runtime::the().not_in_capture();
}

// ---- graphs
// ------------------------------------------------------------------------------------------------------------

inline cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
    return emulator::detail::runtime::the().begin_capture(stream);
}
inline cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
    return emulator::detail::runtime::the().end_capture(stream, graph);
}
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t* replay, cudaGraph_t graph, unsigned long long = 0) {
    *replay = new CUgraphExec_st{*graph};
    return emulator::detail::runtime::the().note(cudaSuccess);
}
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t replay, cudaStream_t stream) {
    return emulator::detail::runtime::the().replay(*replay, stream);
}
inline cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    delete graph;
    return emulator::detail::runtime::the().note(cudaSuccess);
}
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t replay) {
    delete replay;
    return emulator::detail::runtime::the().note(cudaSuccess);
}

// ---- the device
// --------------------------------------------------------------------------------------------------------

inline cudaError_t cudaGetDevice(int* device) {
    *device = 0;
    return cudaSuccess;
}
inline cudaError_t cudaGetDeviceCount(int* count) {
    *count = 1;
    return cudaSuccess;
}
inline cudaError_t cudaSetDevice(int device) {
    return emulator::detail::runtime::the().note(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    using emulator::detail::runtime;
    if (device != 0) return runtime::the().note(cudaErrorInvalidDevice);
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
        case cudaDevAttrMaxSharedMemoryPerBlock: *value = static_cast<int>(runtime::shared_by_default); break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrMultiProcessorCount: *value = runtime::processors; break;
        case cudaDevAttrL2CacheSize: *value = 50 * 1024 * 1024; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
            *value = static_cast<int>(runtime::shared_of_processor);
            break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = static_cast<int>(runtime::shared_at_most); break;
        case cudaDevAttrReservedSharedMemoryPerBlock: *value = 1024; break;
        default: return runtime::the().note(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

// ---- launches
// ----------------------------------------------------------------------------------------------------------

template <class T>
cudaError_t cudaFuncSetAttribute(T* kernel, cudaFuncAttribute attribute, int value) {
    using emulator::detail::runtime;
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        return runtime::the().allow_shared(reinterpret_cast<void const*>(kernel), value);
    }
    return runtime::the().note(kernel == nullptr ? cudaErrorInvalidDeviceFunction : cudaSuccess);
}

template <class T>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, T, int threads, std::size_t shared_bytes) {
    using emulator::detail::runtime;
    if (blocks == nullptr || threads < 1 || threads > 1024) return runtime::the().note(cudaErrorInvalidValue);
    auto const by_threads = static_cast<std::size_t>(2048 / ((threads + 31) / 32 * 32));
    auto const by_memory = runtime::shared_of_processor / (shared_bytes + 1024);
    *blocks = static_cast<int>(std::min<std::size_t>({32, by_threads, by_memory}));
    return cudaSuccess;
}

/// Parameters are copied for every thread, as constants are read on a device.
template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(cudaLaunchConfig_t const* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
    static_assert((std::is_trivially_copyable_v<Parameters> && ...),
                  "parameters of a kernel travel to the device as bytes: pass trivially copyable values");
    static_assert((!std::is_reference_v<Parameters> && ...),
                  "a kernel cannot take a reference: what it refers to is not on the device");
    using call = std::pair<void (*)(Parameters...), std::tuple<Parameters...>>;
    auto made = std::make_shared<call>(kernel, std::tuple<Parameters...>(std::forward<Arguments>(arguments)...));
    std::size_t bytes = 0;
    ((bytes = (bytes + alignof(Parameters) - 1) / alignof(Parameters) * alignof(Parameters) + sizeof(Parameters)), ...);
    return emulator::detail::runtime::the().launch(
        {reinterpret_cast<void const*>(kernel), config->gridDim, config->blockDim, config->dynamicSmemBytes}, bytes,
        [](void* made_here) {
            auto const& c = *static_cast<call const*>(made_here);
            std::apply(c.first, c.second);
        },
        std::move(made), config->stream);
}

/// Of kernels in a chain; here each has ended before the next begins.
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}
