// SPDX-License-Identifier: MIT
//
// What differs between compilers of the kernels of this folder. nvcc is one. The other is a host compiler with the
// emulator of the tests (tests/cuda/emulator). It supplies the names of <cuda_runtime.h> and runs kernels on the
// processor. Everything else in the folder is plain CUDA C++, the same for both.
//
// Conventions of the whole folder:
//   - A host function takes views and a stream, checks shapes and pointers, launches, and returns. It returns
//     cudaErrorInvalidValue before anything is launched if they do not fit, never waits for the device, never allocates and
//     never throws.
//   - Launches have a shape that depends on limits alone; how many requests there are, how long their blocks are and which
//     tokens they hold is read from device memory. So every call can be captured in a graph once and replayed.
//   - No launch depends on how many blocks are resident. A block waits for another one only where that one runs already
//     (verify/queue.cuh).
//   - Shared memory is dynamic and one struct per kernel, so that one look tells what a kernel keeps there.
//   - Every kernel is a template, by `template <class = void>` if by nothing else: nvcc does not know inline kernels, and two
//     files that include one that is neither would not link.
//   - "no mutant" beside a barrier, fence or wait: no test misses it (tests/cuda/mutants.py leaves it in), and the comment says
//     why it is there all the same.
//   - Device code uses plain pointers and arrays: members of std:: containers may not be called without a flag of nvcc.
#pragma once

#if !defined(__CUDACC__) && !defined(SURELEAP_CUDA_EMULATED)
#error \
    "sureleap/cuda/ is device code: compile this file with nvcc (-x cu -std=c++20; the CMake target is sureleap::cuda). Host code includes <sureleap/sureleap.hpp>."
#endif

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

inline constexpr unsigned warp_size = 32;
inline constexpr unsigned all_lanes = 0xffffffffu;

/// std::numeric_limits is for the host.
inline constexpr float infinity = __builtin_inff();

/// The dynamic shared memory of the running block as a T, which is launched with sizeof(T) bytes. Nothing is
/// constructed.
template <class T>
[[nodiscard]] __device__ __forceinline__ T& shared_memory() {
    static_assert(alignof(T) <= 16, "shared_memory: T needs more than the 16 bytes of alignment that are sure");
#if defined(SURELEAP_CUDA_EMULATED)
    return *static_cast<T*>(::emulator::shared_memory());
#else
    extern __shared__ __align__(16) unsigned char sureleap_shared_memory[];
    return *reinterpret_cast<T*>(sureleap_shared_memory);
#endif
}

/// The lane and the warp of the calling thread, in blocks of one dimension.
[[nodiscard]] __device__ __forceinline__ unsigned lane_index() {
    return threadIdx.x % warp_size;
}
[[nodiscard]] __device__ __forceinline__ unsigned warp_index() {
    return threadIdx.x / warp_size;
}

/// 2^x to two units in the last place, 0 below 2^-126: one instruction, where exp2f spends four to keep what is
/// smaller.
[[nodiscard]] __device__ __forceinline__ float quick_exp2(float x) {
#if defined(__CUDA_ARCH__)
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
#else
    return exp2f(x);
#endif
}

/// A word that other blocks of threads change meanwhile.
[[nodiscard]] __device__ __forceinline__ std::uint32_t peek(std::uint32_t* word) {
#if defined(SURELEAP_CUDA_EMULATED)
    return atomicAdd(word, 0u);
#else
    return *const_cast<std::uint32_t volatile*>(word);
#endif
}
/// Others see what this thread, and those that it had a barrier with, wrote before, once they see an atomic that it
/// makes behind this; and it sees what others wrote, behind an atomic by which it sees theirs. Costs less than
/// __threadfence, which is sequentially consistent.
__device__ __forceinline__ void publish() {
#if defined(SURELEAP_CUDA_EMULATED)
    __threadfence();  // no mutant: those that call this are mutants
#else
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
#endif
}
/// Some 100 ns, in which others run.
__device__ __forceinline__ void back_off() {
    __nanosleep(100);
}

/// Of a kernel that another one is launched behind (launch_behind): blocks of that one may become resident as soon as
/// those of this one make room.
__device__ __forceinline__ void admit_next_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
/// Of the kernel that was launched behind: all that the other one wrote is there. Before that it reads nothing.
__device__ __forceinline__ void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

namespace detail {
/// As much shared memory as the device has, whatever a launch asks for: host threads that launch the same kernel with
/// other sizes do not take it from each other.
template <class Kernel>
[[nodiscard]] cudaError_t allow_shared_memory(Kernel* kernel) {
    int device = 0;
    int most = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    }
    if (error != cudaSuccess) return error;
    return cudaFuncSetAttribute(reinterpret_cast<void const*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                most);
}
/// The kernel has an instruction with which it waits for the one before.
template <class Kernel>
[[nodiscard]] bool waits_for_kernel_before([[maybe_unused]] Kernel* kernel) {
#if defined(SURELEAP_CUDA_EMULATED) || CUDART_VERSION < 12030  // which cannot capture such launches
    return false;
#else
    cudaFuncAttributes made{};
    if (cudaFuncGetAttributes(&made, reinterpret_cast<void const*>(kernel)) != cudaSuccess) return false;
    return made.ptxVersion >= 90 && made.binaryVersion >= 90;
#endif
}
template <class... Parameters, class... Arguments>
[[nodiscard]] cudaError_t launch(bool early, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                                 std::size_t shared_bytes, cudaStream_t stream, Arguments&&... arguments) {
    constexpr std::size_t without_asking = 48 * 1024;
    if (shared_bytes > without_asking) {
        cudaError_t const allowed = allow_shared_memory(kernel);
        if (allowed != cudaSuccess) return allowed;
    }
    cudaLaunchAttribute early_start{};
    early_start.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early_start.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = &early_start;
    config.numAttrs = early ? 1 : 0;
    return cudaLaunchKernelEx(&config, kernel, std::forward<Arguments>(arguments)...);
}
}  // namespace detail

/// kernel<<<grid, block, shared_bytes, stream>>>(arguments...), with as much shared memory as the device has.
template <class... Parameters, class... Arguments>
[[nodiscard]] cudaError_t launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                                 cudaStream_t stream, Arguments&&... arguments) {
    return detail::launch(false, kernel, grid, block, shared_bytes, stream, std::forward<Arguments>(arguments)...);
}
/// The same behind a kernel that calls admit_next_kernel. This one calls wait_for_kernel_before first of all. Where a
/// device can, its launch costs no time then (programmatic dependent launch, sm_90 and later).
template <class... Parameters, class... Arguments>
[[nodiscard]] cudaError_t launch_behind(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                                        cudaStream_t stream, Arguments&&... arguments) {
    return detail::launch(detail::waits_for_kernel_before(kernel), kernel, grid, block, shared_bytes, stream,
                          std::forward<Arguments>(arguments)...);
}

/// Multiprocessors of the current device, for grids that divide work among blocks: so many blocks, a few times over.
[[nodiscard]] inline cudaError_t count_multiprocessors(unsigned& count) {
    int device = 0;
    int found = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, device);
    count = static_cast<unsigned>(found);
    return error;
}
/// Bytes of shared memory that a block of threads can have.
[[nodiscard]] inline cudaError_t find_shared_memory(std::size_t& bytes) {
    int device = 0;
    int found = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess) {
        error = cudaDeviceGetAttribute(&found, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    }
    bytes = static_cast<std::size_t>(found);
    return error;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
