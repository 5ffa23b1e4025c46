// SPDX-License-Identifier: MIT
//
// The part of the runtime API that the library and its tests use. Device memory is host memory, every stream runs at once and in
// order, and a launch is refused for the reasons for which an H200 would refuse it.
//
// A kernel that goes wrong makes its launch return cudaErrorLaunchFailure. As on a device the error stays: every later call
// returns it, cudaGetErrorString tells what happened, and the program ends with an error, unless emulator::caught()
// takes it. No exception is thrown, because the library's functions are noexcept.
#pragma once

#include <map>
#include <tuple>

#include "atomics.hpp"
#include "machine.hpp"

enum cudaError_t : int {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchOutOfResources = 701,
    cudaErrorAssert = 710,
    cudaErrorMisalignedAddress = 716,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotPermitted = 800,
    cudaErrorNotSupported = 801,
    cudaErrorUnknown = 999,
};

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault,
};

enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9,
};

enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrReservedSharedMemoryPerBlock = 111,
};

using cudaStream_t = struct CUstream_st*;

enum cudaLaunchAttributeID {
    cudaLaunchAttributeIgnore = 0,
    cudaLaunchAttributeCooperative = 2,
    cudaLaunchAttributeProgrammaticStreamSerialization = 6,
    cudaLaunchAttributePriority = 8,
};
union cudaLaunchAttributeValue {
    int cooperative;
    int programmaticStreamSerializationAllowed;
    int priority;
};
struct cudaLaunchAttribute {
    cudaLaunchAttributeID id;
    cudaLaunchAttributeValue val;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    std::size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute* attrs;
    unsigned numAttrs;
};

namespace emulator::detail {

class runtime {
public:
    static constexpr std::size_t shared_by_default = 48 * 1024;
    static constexpr std::size_t shared_at_most = 227 * 1024;
    static constexpr std::size_t shared_of_processor = 228 * 1024;
    static constexpr std::size_t parameters_at_most = 4096;
    static constexpr int processors = 3;  // few, so that the blocks of a persistent grid have more than one task each

    static runtime& the() {
        static runtime instance;
        return instance;
    }

    cudaError_t stored() const { return report_.empty() ? cudaSuccess : cudaErrorLaunchFailure; }
    std::string const& report() const { return report_; }
    std::string take_report() { return std::exchange(report_, {}); }

    /// Every function's outcome passes here.
    cudaError_t note(cudaError_t error) {
        if (!report_.empty()) return cudaErrorLaunchFailure;
        if (error != cudaSuccess) last_ = error;
        return error;
    }
    cudaError_t last(bool forget) {
        if (!report_.empty()) return cudaErrorLaunchFailure;
        return forget ? std::exchange(last_, cudaSuccess) : last_;
    }

    // ---- memory --------------------------------------------------------------------------------------------------------

    cudaError_t allocate(void** result, std::size_t bytes) {
        if (result == nullptr) return note(cudaErrorInvalidValue);
        *result = nullptr;
        if (bytes == 0 || !report_.empty()) return note(cudaSuccess);
#if defined(EMULATOR_ASAN)
        std::size_t const guards = 0;
#else
        std::size_t const guards = guard_bytes;
#endif
        void* memory = nullptr;
        if (posix_memalign(&memory, guard_bytes, bytes + 2 * guards) != 0) return note(cudaErrorMemoryAllocation);
        std::byte* const start = static_cast<std::byte*>(memory) + guards;
        std::memset(memory, guard_value, guards);
        std::memset(start + bytes, guard_value, guards);
        fill_with_poison(start, bytes);
        allocations_[start] = {bytes, memory};
        *result = start;
        return note(cudaSuccess);
    }

    cudaError_t release(void* address) {
        if (address == nullptr) return note(cudaSuccess);
        auto const found = allocations_.find(static_cast<std::byte*>(address));
        if (found == allocations_.end()) return note(cudaErrorInvalidValue);
        check_guards(found->first, found->second.bytes);
        std::free(found->second.memory);
        allocations_.erase(found);
        return note(cudaSuccess);
    }

    bool is_device(void const* address, std::size_t bytes) const {
        auto const* const start = static_cast<std::byte const*>(address);
        auto next = allocations_.upper_bound(const_cast<std::byte*>(start));
        if (next == allocations_.begin()) return false;
        --next;
        return start + bytes <= next->first + next->second.bytes;
    }

    cudaError_t copy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind) {
        bool const to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
        bool const from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
        if (!report_.empty() || bytes == 0) return note(cudaSuccess);
        if ((to_device && !is_device(to, bytes)) || (from_device && !is_device(from, bytes))) {
            return note(cudaErrorInvalidValue);
        }
        std::memmove(to, from, bytes);
        return note(cudaSuccess);
    }

    cudaError_t fill(void* address, int value, std::size_t bytes) {
        if (!report_.empty() || bytes == 0) return note(cudaSuccess);
        if (!is_device(address, bytes)) return note(cudaErrorInvalidValue);
        std::memset(address, value, bytes);
        return note(cudaSuccess);
    }

    // ---- launches ------------------------------------------------------------------------------------------------------

    cudaError_t allow_shared(void const* kernel, int bytes) {
        if (kernel == nullptr || bytes < 0 || static_cast<std::size_t>(bytes) > shared_at_most) {
            return note(cudaErrorInvalidValue);
        }
        allowed_shared_[kernel] = static_cast<std::size_t>(bytes);
        return note(cudaSuccess);
    }

    cudaError_t launch(launch_shape const& shape, std::size_t parameter_bytes, void (*invoke)(void*), void* arguments) {
        if (!report_.empty()) return cudaErrorLaunchFailure;
        if (shape.kernel == nullptr) return note(cudaErrorInvalidDeviceFunction);
        dim3 const& b = shape.block;
        dim3 const& g = shape.grid;
        if (b.x == 0 || b.y == 0 || b.z == 0 || b.x > 1024 || b.y > 1024 || b.z > 64 || b.x * b.y * b.z > 1024) {
            return note(cudaErrorInvalidConfiguration);
        }
        if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) {
            return note(cudaErrorInvalidConfiguration);
        }
        auto const allowed = allowed_shared_.find(shape.kernel);
        if (shape.shared_bytes >
            (allowed == allowed_shared_.end() ? shared_by_default : std::max(shared_by_default, allowed->second))) {
            return note(cudaErrorInvalidValue);
        }
        if (parameter_bytes > parameters_at_most) return note(cudaErrorInvalidValue);
        report_ = machine::the().launch(shape, invoke, arguments);
        return note(stored());
    }

private:
    static constexpr std::size_t guard_bytes = 256;
    static constexpr unsigned char guard_value = 0xc5;
    struct allocation {
        std::size_t bytes;
        void* memory;
    };

    runtime() { machine::the(); }  // which must outlive this
    ~runtime() {
        for (auto const& [start, each] : allocations_) check_guards(start, each.bytes);
        if (!report_.empty()) {
            std::fprintf(stderr, "emulator: a kernel failed and nobody asked: %s\n", report_.c_str());
            std::fflush(nullptr);
            std::_Exit(86);
        }
    }

    void check_guards([[maybe_unused]] std::byte const* start, [[maybe_unused]] std::size_t bytes) {
#if !defined(EMULATOR_ASAN)
        for (std::size_t i = 0; i < guard_bytes && report_.empty(); ++i) {
            if (start[bytes + i] != std::byte{guard_value}) {
                report_ = "some kernel wrote past the end of " + std::to_string(bytes) +
                          " bytes of device memory, at byte " + std::to_string(bytes + i);
            } else if (start[-1 - static_cast<std::ptrdiff_t>(i)] != std::byte{guard_value}) {
                report_ = "some kernel wrote before the start of " + std::to_string(bytes) +
                          " bytes of device memory, at byte -" + std::to_string(i + 1);
            }
        }
#endif
    }

    std::string report_;
    cudaError_t last_ = cudaSuccess;
    std::map<std::byte*, allocation> allocations_;
    std::map<void const*, std::size_t> allowed_shared_;
};

}  // namespace emulator::detail

namespace emulator {

/// What went wrong in a kernel, or nothing; from then on launches run again.
inline std::string caught() {
    return detail::runtime::the().take_report();
}

}  // namespace emulator

// ---- errors ------------------------------------------------------------------------------------------------------------

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
        case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
        default: return "an error that the emulator does not make";
    }
}

// ---- memory and streams ------------------------------------------------------------------------------------------------

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
inline cudaError_t cudaMemcpy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind) {
    return emulator::detail::runtime::the().copy(to, from, bytes, kind);
}
inline cudaError_t cudaMemcpyAsync(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind,
                                   cudaStream_t = nullptr) {
    return emulator::detail::runtime::the().copy(to, from, bytes, kind);
}
inline cudaError_t cudaMemset(void* address, int value, std::size_t bytes) {
    return emulator::detail::runtime::the().fill(address, value, bytes);
}
inline cudaError_t cudaMemsetAsync(void* address, int value, std::size_t bytes, cudaStream_t = nullptr) {
    return emulator::detail::runtime::the().fill(address, value, bytes);
}
inline cudaError_t cudaStreamCreate(cudaStream_t* stream) {
    *stream = nullptr;
    return emulator::detail::runtime::the().note(cudaSuccess);
}
inline cudaError_t cudaStreamDestroy(cudaStream_t) {
    return emulator::detail::runtime::the().note(cudaSuccess);
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t) {
    return emulator::detail::runtime::the().note(cudaSuccess);
}
inline cudaError_t cudaDeviceSynchronize() {
    return emulator::detail::runtime::the().note(cudaSuccess);
}

// ---- the device --------------------------------------------------------------------------------------------------------

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

// ---- launches ----------------------------------------------------------------------------------------------------------

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
    call made{kernel, std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)};
    std::size_t bytes = 0;
    ((bytes = (bytes + alignof(Parameters) - 1) / alignof(Parameters) * alignof(Parameters) + sizeof(Parameters)), ...);
    return emulator::detail::runtime::the().launch(
        {reinterpret_cast<void const*>(kernel), config->gridDim, config->blockDim, config->dynamicSmemBytes}, bytes,
        [](void* made_here) {
            auto const& c = *static_cast<call const*>(made_here);
            std::apply(c.first, c.second);
        },
        &made);
}

/// Of kernels in a chain; here each has ended before the next begins.
inline void cudaGridDependencySynchronize() {}
inline void cudaTriggerProgrammaticLaunchCompletion() {}
