// SPDX-License-Identifier: MIT
//
// The emulator itself: fresh memory, writes beside it, and asynchronous copies that arrive no earlier than they must.
#include <sureleap/cuda/core/runtime.cuh>

#include <cuda_pipeline.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cuda/support/device_array.hpp"
#include "cuda/support/emulator_orders.hpp"
#include "support/catch.hpp"

using namespace support;

// ---- shared and global memory
// ------------------------------------------------------------------------------------------

namespace {

__global__ void read_shared(float* out) {
    out[threadIdx.x] = (&shared_memory<float>())[threadIdx.x];
}

/// The second block of a multiprocessor must not find what the first left.
__global__ void use_shared(float* out) {
    float* const s = &shared_memory<float>();
    out[blockIdx.x * blockDim.x + threadIdx.x] = s[threadIdx.x];
    __syncthreads();
    s[threadIdx.x] = 1.0f;
}

#if !defined(EMULATOR_ASAN)  // which ends the program
__global__ void write_shared(int index) {
    (&shared_memory<unsigned char>())[index] = 1;
}
#endif

}  // namespace

TEST_CASE("fresh memory is poisoned") {
    device_array<float> out(64);
    require_cuda(launch(read_shared, 1, 64, 64 * sizeof(float), nullptr, out.data()));
    for (float const value : out.download()) CHECK(std::isnan(value));
    device_array<float> many(640);
    require_cuda(launch(use_shared, 10, 64, 64 * sizeof(float), nullptr, many.data()));
    for (float const value : many.download()) CHECK(std::isnan(value));

    void* fresh = nullptr;
    require_cuda(cudaMalloc(&fresh, 64));
    CHECK(std::isnan(static_cast<double*>(fresh)[7]));
    CHECK(std::isnan(static_cast<float*>(fresh)[15]));
    CHECK(std::isnan(static_cast<float>(static_cast<sureleap::half*>(fresh)[31])));
    CHECK(std::isnan(static_cast<float>(static_cast<sureleap::bf16*>(fresh)[31])));
    CHECK(cudaFree(fresh) == cudaSuccess);
}

#if !defined(EMULATOR_ASAN)
TEST_CASE("writes beside memory are found") {
    CHECK(contains(report_of([] { return launch(write_shared, 1, 32, 100, nullptr, 100); }),
                   "past the end of its 100 bytes of shared memory, at byte 100"));
    CHECK(contains(report_of([] { return launch(write_shared, 1, 32, 100, nullptr, -3); }),
                   "before the start of its shared memory, at byte -3"));
    CHECK(report_of([] { return launch(write_shared, 1, 32, 100, nullptr, 99); }).empty());

    unsigned char* memory = nullptr;
    require_cuda(cudaMalloc(&memory, 50));
    memory[50] = 1;
    CHECK(
        contains(report_of([&] { return cudaFree(memory); }), "past the end of 50 bytes of device memory, at byte 50"));
}
#endif

TEST_CASE("copies and fills touch device memory only") {
    device_array<int> const device{1, 2, 3};
    std::vector<int> host(4);
    CHECK(cudaMemcpy(host.data(), device.data(), 12, cudaMemcpyDeviceToHost) == cudaSuccess);
    CHECK(cudaMemcpy(host.data(), device.data(), 16, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaMemcpy(host.data(), host.data() + 1, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
    CHECK(cudaMemcpyAsync(host.data(), host.data() + 1, 4, cudaMemcpyHostToDevice, nullptr) == cudaErrorInvalidValue);
    CHECK(cudaMemset(host.data(), 0, 4) == cudaErrorInvalidValue);
    CHECK(cudaFree(host.data()) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(host[2] == 3);
}

// ---- asynchronous copies
// -----------------------------------------------------------------------------------------------

namespace {

/// Sums tiles of blockDim.x numbers, two in flight. first: does not wait. second: waits for too few. third: overwrites
/// the tile that others still read.
template <flaw Flaw>
__global__ void sum_tiles(unsigned const* in, unsigned tiles, unsigned* out) {
    unsigned* const s = &shared_memory<unsigned>();
    unsigned const n = blockDim.x;
    auto const fetch = [&](unsigned tile) {
        // The last quarter of the threads does nothing, 16 bytes each are enough.
        if (tile < tiles && threadIdx.x < n / 4) {
            __pipeline_memcpy_async(s + tile % 2 * n + threadIdx.x * 4, in + tile * n + threadIdx.x * 4, 16);
        }
        __pipeline_commit();
    };
    unsigned total = 0;
    fetch(0);
    for (unsigned tile = 0; tile < tiles; ++tile) {
        fetch(tile + 1);
        if constexpr (Flaw != flaw::first) __pipeline_wait_prior(Flaw == flaw::second ? 2 : 1);
        __syncthreads();
        total += s[tile % 2 * n + (n - 1 - threadIdx.x)];
        if constexpr (Flaw != flaw::third) __syncthreads();
    }
    out[threadIdx.x] = total;
}

/// No barrier between arrival and use by others.
__global__ void sum_tile_of_others(unsigned const* in, unsigned* out) {
    unsigned* const s = &shared_memory<unsigned>();
    __pipeline_memcpy_async(s + threadIdx.x, in + threadIdx.x, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    out[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}

__global__ void zero_fill(unsigned const* in, unsigned* out) {
    unsigned* const s = &shared_memory<unsigned>();
    __pipeline_memcpy_async(s, in, 16, 8);
    __pipeline_commit();
    __pipeline_memcpy_async(s + 4, in, 4);  // never waited for
    __pipeline_wait_prior(0);
    for (int i = 0; i < 5; ++i) out[i] = s[i];
}

__global__ void copy_at(unsigned const* in, int to, int from, unsigned bytes) {
    __pipeline_memcpy_async(&shared_memory<unsigned char>() + to, reinterpret_cast<unsigned char const*>(in) + from,
                            bytes);
}

}  // namespace

TEST_CASE("tiles that are fetched ahead") {
    constexpr unsigned n = 96;
    constexpr unsigned tiles = 5;
    auto const in = numbers(n * tiles);
    std::vector<unsigned> expected(n, 0);
    for (unsigned i = 0; i < n * tiles; ++i) expected[n - 1 - i % n] += in[i];
    device_array<unsigned> const from{in};
    device_array<unsigned> to(n);
    auto const right = [&](auto kernel) {
        return [&, kernel] {
            require_cuda(launch(kernel, 1, n, 2 * n * sizeof(unsigned), nullptr, from.data(), tiles, to.data()));
            return to.download() == expected;
        };
    };
    CHECK(wrong_orders(right(sum_tiles<flaw::none>)) == 0);
    CHECK(wrong_orders(right(sum_tiles<flaw::first>)) == orders);
    CHECK(wrong_orders(right(sum_tiles<flaw::second>)) == orders);
    CHECK(wrong_orders(right(sum_tiles<flaw::third>)) > orders / 2);
    CHECK(wrong_orders([&] {
              require_cuda(launch(sum_tile_of_others, 1, n, n * sizeof(unsigned), nullptr, from.data(), to.data()));
              auto const got = to.download();
              return std::equal(got.rbegin(), got.rend(), in.begin());
          }) > orders / 2);

    require_cuda(launch(zero_fill, 1, 1, 32, nullptr, from.data(), to.data()));
    auto const got = to.download();
    CHECK(std::vector<unsigned>(got.begin(), got.begin() + 4) == std::vector<unsigned>{in[0], in[1], 0, 0});
    CHECK(got[4] == 0x7ff57ff5);
}

TEST_CASE("asynchronous copies that the hardware cannot do") {
    device_array<unsigned> const from{numbers(16)};
    auto const report = [&](int to, int source, unsigned bytes) {
        return report_of([&] { return launch(copy_at, 1, 1, 64, nullptr, from.data(), to, source, bytes); });
    };
    CHECK(report(0, 16, 16).empty());
    CHECK(report(48, 16, 16).empty());
    CHECK(contains(report(4, 16, 16), "not aligned to 16"));
    CHECK(contains(report(8, 12, 8), "not aligned to 8"));
    CHECK(contains(report(2, 0, 4), "not aligned to 4"));
    CHECK(contains(report(0, 0, 12), "neither 4, 8 nor 16"));
    CHECK(contains(report(64, 0, 4), "not in the block's shared memory"));
    CHECK(contains(report(-4, 0, 4), "not in the block's shared memory"));
}
