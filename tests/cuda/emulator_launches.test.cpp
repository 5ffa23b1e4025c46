// SPDX-License-Identifier: MIT
//
// The emulator itself: products of matrices, arithmetic of one thread, and launches.
#include <sureleap/cuda/core/mma.cuh>
#include <sureleap/cuda/core/runtime.cuh>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cuda/support/device_array.hpp"
#include "cuda/support/emulator_orders.hpp"
#include "support/catch.hpp"

using namespace support;

// ---- matrices
// ----------------------------------------------------------------------------------------------------------

namespace {

/// One warp: d = a b + c, a in rows of 16, b in columns of 16 (rows of its transpose). Fragments as PTX lays them out.
template <class T>
__global__ void multiply(T const* a, T const* b, float const* c, float* d) {
    struct shared {
        T a[16][16];
        T b[8][16];
    };
    auto& s = shared_memory<shared>();
    unsigned const lane = threadIdx.x;
    for (unsigned i = lane; i < 256; i += 32) s.a[i / 16][i % 16] = a[i];
    for (unsigned i = lane; i < 128; i += 32) s.b[i / 16][i % 16] = b[i];
    __syncwarp();
    std::uint32_t fragment_a[4];
    std::uint32_t b_and_again[4];
    sureleap::cuda::ldmatrix_x4(fragment_a, &s.a[lane % 16][lane / 16 * 8]);
    sureleap::cuda::ldmatrix_x4(b_and_again, &s.b[lane % 8][lane / 8 % 2 * 8]);
    std::uint32_t const fragment_b[2] = {b_and_again[0], b_and_again[1]};
    unsigned const g = lane / 4;
    unsigned const t = lane % 4;
    float sums[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1], c[(g + 8) * 8 + 2 * t], c[(g + 8) * 8 + 2 * t + 1]};
    sureleap::cuda::mma_m16n8k16<T>(sums, fragment_a, fragment_b, sums);
    d[g * 8 + 2 * t] = sums[0];
    d[g * 8 + 2 * t + 1] = sums[1];
    d[(g + 8) * 8 + 2 * t] = sums[2];
    d[(g + 8) * 8 + 2 * t + 1] = sums[3];
}

__global__ void load_row(int offset) {
    std::uint32_t r[4];
    sureleap::cuda::ldmatrix_x4(r, &shared_memory<unsigned char>() + threadIdx.x * 16 + offset);
}

}  // namespace

TEMPLATE_TEST_CASE("products of fragments", "", sureleap::bf16, sureleap::half) {
    std::vector<TestType> a(256), b(128);
    std::vector<float> c(128);
    for (std::size_t i = 0; i < 256; ++i) a[i] = TestType(static_cast<float>(static_cast<int>(i * 37 % 65) - 32) / 8);
    for (std::size_t i = 0; i < 128; ++i) b[i] = TestType(static_cast<float>(static_cast<int>(i * 29 % 33) - 16) / 4);
    for (std::size_t i = 0; i < 128; ++i) c[i] = static_cast<float>(i) / 2;
    device_array<TestType> const from_a{a}, from_b{b};
    device_array<float> const from_c{c};
    for_each_order(4, [&] {
        device_array<float> to(128);
        require_cuda(
            launch(multiply<TestType>, 1, 32, 768, nullptr, from_a.data(), from_b.data(), from_c.data(), to.data()));
        auto const d = to.download();
        for (std::size_t i = 0; i < 16; ++i) {
            for (std::size_t j = 0; j < 8; ++j) {
                float sum = 0;  // exact: small numbers of few bits
                for (std::size_t k = 0; k < 16; ++k) {
                    sum += static_cast<float>(a[i * 16 + k]) * static_cast<float>(b[j * 16 + k]);
                }
                CHECK(d[i * 8 + j] == sum + c[i * 8 + j]);
            }
        }
    });
}

TEST_CASE("every half is converted as the library does") {
    for (unsigned bits = 0; bits < 0x10000u; ++bits) {
        sureleap::half h;
        h.bits = static_cast<std::uint16_t>(bits);
        sureleap::bf16 b;
        b.bits = static_cast<std::uint16_t>(bits);
        float const ours_half = emulator::detail::from_half(bits);
        float const ours_bf16 = emulator::detail::from_bf16(bits);
        if (std::isnan(ours_half) != std::isnan(static_cast<float>(h))) FAIL("half " << bits);
        if (!std::isnan(ours_half) && ours_half != static_cast<float>(h)) FAIL("half " << bits);
        if (std::bit_cast<std::uint32_t>(ours_bf16) != std::bit_cast<std::uint32_t>(static_cast<float>(b))) {
            FAIL("bf16 " << bits);
        }
    }
}

TEST_CASE("rows of a matrix lie in shared memory, aligned") {
    CHECK(report_of([] { return launch(load_row, 1, 32, 512, nullptr, 0); }).empty());
    CHECK(contains(report_of([] { return launch(load_row, 1, 32, 512, nullptr, 16); }),
                   "lane 31 is not in shared memory"));
    CHECK(contains(report_of([] { return launch(load_row, 1, 32, 1024, nullptr, 8); }), "not aligned to 16"));
}

// ---- one thread
// --------------------------------------------------------------------------------------------------------

namespace {

__global__ void atomics(int* i, unsigned* u, unsigned long long* w, float* f, double* d) {
    int const own = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(i, 1);
    atomicSub(i + 1, 2);
    atomicMax(i + 2, own % 50);
    atomicMin(i + 3, -own);
    atomicOr(u, 1u << threadIdx.x % 32);
    atomicAnd(u + 1, ~(1u << threadIdx.x % 8));
    atomicXor(u + 2, 5u);
    atomicInc(u + 3, 9u);
    atomicAdd(w, 1ull << 33);
    atomicMax(w + 1, static_cast<unsigned long long>(own) << 32);
    atomicAdd(f, 0.5f);
    atomicAdd(d, 0.25);
    // a lock-free maximum of floats
    auto* const bits = reinterpret_cast<unsigned*>(f + 1);
    unsigned seen = *bits;
    while (static_cast<float>(own) > __uint_as_float(seen)) {
        unsigned const before = atomicCAS(bits, seen, __float_as_uint(static_cast<float>(own)));
        if (before == seen) break;
        seen = before;
    }
    if (own == 7) atomicExch(i + 4, 70);
}

}  // namespace

TEST_CASE("atomics") {
    for_each_order(orders, [&] {
        device_array<int> i{0, 0, 0, 0, 0};
        device_array<unsigned> u{0, 0xffu, 0, 0};
        device_array<unsigned long long> w{0, 0};
        device_array<float> f{0, 0};
        device_array<double> d{0};
        require_cuda(launch(atomics, 3, 96, 0, nullptr, i.data(), u.data(), w.data(), f.data(), d.data()));
        CHECK(i.download() == std::vector<int>{288, -576, 49, -287, 70});
        CHECK(u.download() == std::vector<unsigned>{full, 0, 0, 288 % 10});
        CHECK(w.download() == std::vector<unsigned long long>{288ull << 33, 287ull << 32});
        CHECK(f.download() == std::vector<float>{144.0f, 287.0f});
        CHECK(d.download() == std::vector<double>{72.0});
    });
}

TEST_CASE("bits, conversions and arithmetic of one thread") {
    CHECK(__popc(0xf0f0u) == 8);
    CHECK(__popcll(~0ull) == 64);
    CHECK(__ffs(0) == 0);
    CHECK(__ffs(8) == 4);
    CHECK(__ffs(std::numeric_limits<int>::min()) == 32);
    CHECK(__clz(0) == 32);
    CHECK(__clz(1) == 31);
    CHECK(__clz(-1) == 0);
    CHECK(__brev(1u) == 0x80000000u);
    CHECK(__brev(0x12345678u) == 0x1e6a2c48u);
    CHECK(__byte_perm(0x33221100u, 0x77665544u, 0x7531u) == 0x77553311u);
    CHECK(__byte_perm(0x00008000u, 0u, 0x9999u) == full);
    CHECK(__funnelshift_l(0x80000000u, 1u, 1) == 3u);
    CHECK(__funnelshift_r(0u, 1u, 1) == 0x80000000u);
    CHECK(__umulhi(full, full) == 0xfffffffeu);
    CHECK(__mulhi(-1, 1) == -1);
    CHECK(__umul64hi(~0ull, ~0ull) == ~0ull - 1);
    CHECK(__dp4a(0x01ff7f80, 0x02030405, 10) == 10 + 1 * 2 - 1 * 3 + 127 * 4 - 128 * 5);
    CHECK(__float2int_rn(2.5f) == 2);
    CHECK(__float2int_rz(-2.7f) == -2);
    CHECK(__float2int_rn(1e20f) == std::numeric_limits<int>::max());
    CHECK(__float2uint_rn(-1.0f) == 0u);
    CHECK(__float2int_rn(std::nanf("")) == 0);
    CHECK(__double2ll_rd(-0.5) == -1);
    CHECK(__double2ull_ru(0.5) == 1u);
    CHECK(__double2ll_rn(std::nan("")) == std::numeric_limits<long long>::min());
    CHECK(__double2uint_rz(4294967295.5) == full);
    CHECK(__int_as_float(__float_as_int(-0.0f)) == 0.0f);
    CHECK(__double_as_longlong(1.0) == 0x3ff0000000000000ll);
    CHECK(__fmaf_rn(0x1.000002p0f, 0x1.000002p0f, -0x1.000004p0f) == 0x1p-46f);
    CHECK(__fma_rn(0x1.0000000000001p0, 0x1.0000000000001p0, -0x1.0000000000002p0) == 0x1p-104);
    CHECK(min(3, -4) == -4);
    CHECK(max(3.0f, std::nanf("")) == 3.0f);
    CHECK(sizeof(float4) == 16);
    CHECK(alignof(uint4) == 16);
    CHECK(alignof(uint2) == 8);
    CHECK(sizeof(float3) == 12);
}

namespace {
__global__ void load_vector(unsigned char const* in, int offset, uint4* out) {
    *out = __ldcs(reinterpret_cast<uint4 const*>(in + offset));
}
}  // namespace

TEST_CASE("vectors are loaded from where they can lie") {
    device_array<unsigned char> const in{std::vector<unsigned char>(64, 7)};
    device_array<uint4> out(1);
    CHECK(launch(load_vector, 1, 1, 0, nullptr, in.data(), 16, out.data()) == cudaSuccess);
    CHECK(out.download()[0].w == 0x07070707u);
    CHECK(contains(report_of([&] { return launch(load_vector, 1, 1, 0, nullptr, in.data(), 8, out.data()); }),
                   "__ldcs: the address is not aligned to 16 bytes"));
}

// ---- launches
// ----------------------------------------------------------------------------------------------------------

namespace {

struct large {
    unsigned char bytes[4092];
};
struct too_large {
    unsigned char bytes[4097];
};
__global__ void take_large(large, int) {}
__global__ void take_too_large(too_large) {}

__global__ void identify(uint3* out) {
    unsigned const block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    unsigned const thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * blockDim.x * blockDim.y * blockDim.z + thread] = {block, thread, threadIdx.z};
}

}  // namespace

TEST_CASE("launches that a device refuses") {
    auto const run = [](dim3 grid, dim3 block, std::size_t shared) {
        cudaLaunchConfig_t config{};
        config.gridDim = grid;
        config.blockDim = block;
        config.dynamicSmemBytes = shared;
        return cudaLaunchKernelEx(&config, quiet, 0);
    };
    CHECK(run(1, 1024, 0) == cudaSuccess);
    CHECK(run(1, 1025, 0) == cudaErrorInvalidConfiguration);
    CHECK(run(1, dim3(32, 32, 2), 0) == cudaErrorInvalidConfiguration);
    CHECK(run(1, dim3(1, 1, 65), 0) == cudaErrorInvalidConfiguration);
    CHECK(run(1, 0, 0) == cudaErrorInvalidConfiguration);
    CHECK(run(0, 32, 0) == cudaErrorInvalidConfiguration);
    CHECK(run(dim3(1, 65536), 32, 0) == cudaErrorInvalidConfiguration);
    CHECK(run(1, 32, 48 * 1024) == cudaSuccess);
    CHECK(run(1, 32, 48 * 1024 + 1) == cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(quiet, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000) == cudaSuccess);
    CHECK(run(1, 32, 100000) == cudaSuccess);
    CHECK(run(1, 32, 100001) == cudaErrorInvalidValue);
    CHECK(cudaFuncSetAttribute(quiet, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 * 1024 + 1) ==
          cudaErrorInvalidValue);
    CHECK(launch(take_large, 1, 1, 0, nullptr, large{}, 1) == cudaSuccess);
    CHECK(launch(take_too_large, 1, 1, 0, nullptr, too_large{}) == cudaErrorInvalidValue);
    CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

TEST_CASE("threads and blocks know who they are") {
    device_array<uint3> to(6 * 60);
    require_cuda(launch(identify, dim3(1, 2, 3), dim3(5, 4, 3), 0, nullptr, to.data()));
    auto const out = to.download();
    for (unsigned i = 0; i < out.size(); ++i) {
        CHECK(out[i].x == i / 60);
        CHECK(out[i].y == i % 60);
        CHECK(out[i].z == i % 60 / 20);
    }
}

TEST_CASE("the device is a small H200") {
    int device = -1;
    int value = 0;
    int blocks = 0;
    require_cuda(cudaGetDevice(&device));
    require_cuda(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, device));
    CHECK(value == 3);
    require_cuda(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
    CHECK(value == 227 * 1024);
    require_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, quiet, 256, 0));
    CHECK(blocks == 8);
    require_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, quiet, 256, 100 * 1024));
    CHECK(blocks == 2);
}
