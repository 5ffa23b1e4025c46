// SPDX-License-Identifier: MIT
//
// Barriers in shared memory at which some warps arrive and others wait (PTX: mbarrier), where __syncthreads would hold
// up all of them. A barrier goes through phases 0, 1, 2 ... A phase is over when as many warps have arrived as init()
// was told. What they wrote or read before is ordered before what others do behind their wait.
//
// The emulator runs a plain form of it: a counter of arrivals.
#pragma once

#include <cuda_pipeline.h>  // and the primitives of barriers

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/cuda/core/runtime.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

class warp_barrier {
public:
    /// One thread, before a __syncthreads.
    __device__ void init(std::uint32_t warps) {
#if defined(SURELEAP_CUDA_EMULATED)
        warps_ = warps;
        arrivals_ = 0;
#else
        __mbarrier_init(&word_, warps);
#endif
    }
    /// WARP collective.
    __device__ __forceinline__ void arrive() {
        __syncwarp();
        if (lane_index() != 0) return;
#if defined(SURELEAP_CUDA_EMULATED)
        publish();
        atomicAdd(&arrivals_, 1u);
#else
        static_cast<void>(__mbarrier_arrive(&word_));
#endif
    }
    /// WARP collective: arrives when the copies have that the warp's lanes began (__pipeline_memcpy_async), and goes on
    /// at once.
    __device__ __forceinline__ void arrive_with_copies() {
#if defined(SURELEAP_CUDA_EMULATED)
        __pipeline_commit();
        __pipeline_wait_prior(0);
#else
        __pipeline_arrive_on(&word_);  // raises what the phase waits for by one, until the copies are there
#endif
        arrive();
    }
    /// WARP collective: until a phase is over, the present one or that before.
    __device__ __forceinline__ void wait(std::uint32_t phase) {
#if defined(SURELEAP_CUDA_EMULATED)
        if (lane_index() == 0) {
            while (peek(&arrivals_) < (phase + 1) * warps_) back_off();
            publish();
        }
        __syncwarp();
#else
        while (!is_over(phase)) {
        }
#endif
    }

private:
#if defined(SURELEAP_CUDA_EMULATED)
    std::uint32_t warps_;
    std::uint32_t arrivals_;
#else
    /// False may come late: sm_90 lets the warp sleep meanwhile.
    [[nodiscard]] __device__ __forceinline__ bool is_over([[maybe_unused]] std::uint32_t phase) {
        std::uint32_t over = 1;
#if defined(__CUDA_ARCH__)
        auto const address = static_cast<std::uint32_t>(__cvta_generic_to_shared(&word_));
#if __CUDA_ARCH__ >= 900
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#else
        asm volatile("{ .reg .pred p; mbarrier.test_wait.parity.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
#endif
                     : "=r"(over)
                     : "r"(address), "r"(phase & 1u)
                     : "memory");
#endif
        return over != 0;
    }

    std::uint64_t word_;
#endif
};

}  // namespace cuda
SURELEAP_END_NAMESPACE
