// SPDX-License-Identifier: MIT
//
// A kernel, and the same with one thing missing, which may well compute the right thing. Built with ThreadSanitizer,
// which must be silent about the first and name the lines of the others:
//   races <none | syncthreads | syncwarp | shuffle | fence_before | fence_after>
#include <cuda_pipeline.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <string_view>
#include <vector>

#include "cuda/support/device_array.hpp"

namespace {

enum class missing { none, syncthreads, syncwarp, shuffle, fence_before, fence_after };

/// Each stage writes what the next one reads in other threads.
template <missing What>
__global__ void stages(int const* in, int* parts, unsigned* done, int* out) {
    auto* const s = static_cast<int*>(emulator::shared_memory());
    unsigned const n = blockDim.x;
    unsigned const i = threadIdx.x;

    __pipeline_memcpy_async(s + i, in + i, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    if constexpr (What != missing::syncthreads) __syncthreads();
    int own = s[n - 1 - i];
    __syncthreads();

    s[i] = own;
    if constexpr (What == missing::shuffle) {
        own = __shfl_xor_sync(0xffffffffu, own, 1);  // brings lanes together, but orders no memory
    } else if constexpr (What != missing::syncwarp) {
        __syncwarp();
    }
    own += s[i ^ 2u];
    __syncthreads();

    parts[blockIdx.x * n + i] = own;
    __syncthreads();
    int last = 0;
    if (i == 0) {
        if constexpr (What != missing::fence_before) __threadfence();
        last = atomicAdd(done, 1u) == gridDim.x - 1 ? 1 : 0;
        if constexpr (What != missing::fence_after) __threadfence();
    }
    if (__syncthreads_or(last) == 0) return;
    int total = 0;
    for (unsigned block = 0; block < gridDim.x; ++block) total += parts[block * n + i];
    out[i] = total;
}

template <missing What>
void run() {
    constexpr unsigned n = 64;
    std::vector<int> numbers(n);
    for (unsigned i = 0; i < n; ++i) numbers[i] = static_cast<int>(i * i);
    device_array<int> const in{numbers};
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        emulator::seed(seed);
        device_array<int> parts(5 * n), out(n);
        device_array<unsigned> done{0u};
        cudaLaunchConfig_t config{};
        config.gridDim = 5;
        config.blockDim = n;
        config.dynamicSmemBytes = n * sizeof(int);
        require_cuda(cudaLaunchKernelEx(&config, stages<What>, in.data(), parts.data(), done.data(), out.data()));
        static_cast<void>(out.download());
    }
}

}  // namespace

int main(int argc, char** argv) {
    std::string_view const what = argc == 2 ? argv[1] : "";
    if (what == "none") {
        run<missing::none>();
    } else if (what == "syncthreads") {
        run<missing::syncthreads>();
    } else if (what == "syncwarp") {
        run<missing::syncwarp>();
    } else if (what == "shuffle") {
        run<missing::shuffle>();
    } else if (what == "fence_before") {
        run<missing::fence_before>();
    } else if (what == "fence_after") {
        run<missing::fence_after>();
    } else {
        std::fprintf(stderr, "races: what is missing?\n");
        return 2;
    }
    std::puts("done");
}
