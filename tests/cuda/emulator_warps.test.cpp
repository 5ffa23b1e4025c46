// SPDX-License-Identifier: MIT
//
// The emulator itself: what a warp does together, and reports of threads that can never meet.
#include <sureleap/cuda/core/runtime.cuh>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/support/device_array.hpp"
#include "cuda/support/emulator_orders.hpp"
#include "support/catch.hpp"

using namespace support;

// ---- what a warp does together
// -----------------------------------------------------------------------------------------

namespace {

struct all_shuffles {
    int indexed, up, down, across;
};

__global__ void shuffle(int operand, int width, all_shuffles* out) {
    int const own = 100 + static_cast<int>(threadIdx.x);
    out[threadIdx.x] = {
        __shfl_sync(full, own, operand, width), __shfl_up_sync(full, own, static_cast<unsigned>(operand), width),
        __shfl_down_sync(full, own, static_cast<unsigned>(operand), width), __shfl_xor_sync(full, own, operand, width)};
}

template <class T>
__global__ void shuffle_type(T const* in, T* out) {
    out[threadIdx.x] = __shfl_xor_sync(full, in[threadIdx.x], 5);
}

struct all_votes {
    unsigned ballot, any, all, sum, least, most, both, either, differing, same;
    int least_signed, most_signed;
};

/// Odd lanes and even lanes vote apart, in branches of their own.
__global__ void vote(unsigned const* in, all_votes* out) {
    unsigned const lane = threadIdx.x;
    unsigned const own = in[lane];
    auto const votes = [&](unsigned mask) {
        all_votes v{};
        v.ballot = __ballot_sync(mask, static_cast<int>(own & 2u));
        v.any = static_cast<unsigned>(__any_sync(mask, own == 9));
        v.all = static_cast<unsigned>(__all_sync(mask, own < 30));
        v.sum = __reduce_add_sync(mask, own);
        v.least = __reduce_min_sync(mask, own);
        v.most = __reduce_max_sync(mask, own);
        v.both = __reduce_and_sync(mask, own | 0x100u);
        v.either = __reduce_or_sync(mask, own);
        v.differing = __reduce_xor_sync(mask, own);
        v.same = __match_any_sync(mask, own % 4);
        v.least_signed = __reduce_min_sync(mask, -static_cast<int>(own));
        v.most_signed = __reduce_max_sync(mask, -static_cast<int>(own));
        return v;
    };
    if (lane % 2 == 1) {
        out[lane] = votes(0xaaaaaaaau);
    } else {
        out[lane] = votes(0x55555555u);
    }
}

struct counts {
    int count, either, both;
};
__global__ void count(int const* in, counts* out) {
    int const own = in[threadIdx.x];
    int const yes = __syncthreads_count(own);
    int const some = __syncthreads_or(own);
    int const all = __syncthreads_and(own);
    out[threadIdx.x] = {yes, some, all};
}

}  // namespace

TEST_CASE("shuffles of any width") {
    device_array<all_shuffles> to(32);
    for (int width = 1; width <= 32; width *= 2) {
        for (int operand : {0, 1, 2, 3, 7, 13, 16, 31}) {
            INFO("width " << width << ", operand " << operand);
            require_cuda(launch(shuffle, 1, 32, 0, nullptr, operand, width, to.data()));
            auto const out = to.download();
            bool right = true;
            for (int lane = 0; lane < 32; ++lane) {
                int const start = lane / width * width;
                int const end = start + width;
                auto const& got = out[static_cast<std::size_t>(lane)];
                right = right && got.indexed == 100 + start + operand % width;
                right = right && got.up == 100 + (lane - operand >= start ? lane - operand : lane);
                right = right && got.down == 100 + (lane + operand < end ? lane + operand : lane);
                right = right && got.across == 100 + ((lane ^ operand) < end ? lane ^ operand : lane);
            }
            CHECK(right);
        }
    }
}

TEMPLATE_TEST_CASE("shuffles of every type", "", int, unsigned, long long, unsigned long long, float, double) {
    std::vector<TestType> in(32);
    for (std::size_t i = 0; i < 32; ++i) in[i] = static_cast<TestType>(static_cast<double>(i * i) * 2e6 + 0.5);
    device_array<TestType> const from{in};
    device_array<TestType> to(32);
    require_cuda(launch(shuffle_type<TestType>, 1, 32, 0, nullptr, from.data(), to.data()));
    auto const out = to.download();
    for (std::size_t i = 0; i < 32; ++i) CHECK(out[i] == in[i ^ 5u]);
}

TEST_CASE("votes, reductions and matches of halves of a warp in different branches") {
    std::vector<unsigned> in(32);
    for (unsigned i = 0; i < 32; ++i) in[i] = i * 7 % 32;
    device_array<unsigned> const from{in};
    for_each_order(orders, [&] {
        device_array<all_votes> to(32);
        require_cuda(launch(vote, 1, 32, 0, nullptr, from.data(), to.data()));
        auto const out = to.download();
        for (unsigned lane = 0; lane < 32; ++lane) {
            all_votes e{};
            e.all = 1;
            e.least = full;
            e.both = full;
            e.least_signed = std::numeric_limits<int>::max();
            e.most_signed = std::numeric_limits<int>::min();
            for (unsigned i = lane % 2; i < 32; i += 2) {
                e.ballot |= (in[i] >> 1 & 1u) << i;
                e.any |= in[i] == 9 ? 1u : 0u;
                e.all &= in[i] < 30 ? 1u : 0u;
                e.sum += in[i];
                e.least = std::min(e.least, in[i]);
                e.most = std::max(e.most, in[i]);
                e.both &= in[i] | 0x100u;
                e.either |= in[i];
                e.differing ^= in[i];
                e.same |= (in[i] % 4 == in[lane] % 4 ? 1u : 0u) << i;
                e.least_signed = std::min(e.least_signed, -static_cast<int>(in[i]));
                e.most_signed = std::max(e.most_signed, -static_cast<int>(in[i]));
            }
            auto const& o = out[lane];
            CHECK(o.ballot == e.ballot);
            CHECK(o.any == e.any);
            CHECK(o.all == e.all);
            CHECK(o.sum == e.sum);
            CHECK(o.least == e.least);
            CHECK(o.most == e.most);
            CHECK(o.both == e.both);
            CHECK(o.either == e.either);
            CHECK(o.differing == e.differing);
            CHECK(o.same == e.same);
            CHECK(o.least_signed == e.least_signed);
            CHECK(o.most_signed == e.most_signed);
        }
    });
}

TEST_CASE("barriers that count") {
    for (unsigned const yes : {0u, 1u, 40u, 70u}) {
        std::vector<int> in(70, 0);
        for (unsigned i = 0; i < yes; ++i) in[(i * 3) % 70] = 5;
        device_array<int> const from{in};
        for_each_order(orders, [&] {
            device_array<counts> to(70);
            require_cuda(launch(count, 1, 70, 0, nullptr, from.data(), to.data()));
            for (counts const& each : to.download()) {
                CHECK(each.count == static_cast<int>(yes));
                CHECK(each.either == (yes > 0 ? 1 : 0));
                CHECK(each.both == (yes == 70 ? 1 : 0));
            }
        });
    }
}

// ---- what is reported
// --------------------------------------------------------------------------------------------------

namespace {

__global__ void returns_early(int n) {
    if (static_cast<int>(threadIdx.x) >= n) return;
    __syncthreads();
}
__global__ void barrier_in_branches(int n) {
    if (static_cast<int>(threadIdx.x) < n) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}
__global__ void two_kinds_of_barrier(int n) {
    if (static_cast<int>(threadIdx.x) < n) {
        __syncthreads();
    } else {
        __syncthreads_or(1);
    }
}
__global__ void shuffle_after_return(int n) {
    if (static_cast<int>(threadIdx.x) >= n) return;
    __shfl_down_sync(full, n, 1u);
}
__global__ void shuffle_in_branch(int n) {
    if (static_cast<int>(threadIdx.x) < n) __shfl_down_sync(full, n, 1u);
    __syncthreads();
}
__global__ void two_collectives(int n) {
    if (static_cast<int>(threadIdx.x) < n) {
        __ballot_sync(full, 1);
    } else {
        __any_sync(full, 1);
    }
}
__global__ void two_masks(int n) {
    __syncwarp(static_cast<int>(threadIdx.x) < n ? full : full << n);
}
__global__ void not_in_own_mask(int n) {
    if (static_cast<int>(threadIdx.x) < n) __syncwarp(full << n);
}
__global__ void reads_outside_mask(int n) {
    if (static_cast<int>(threadIdx.x) < n) __shfl_xor_sync((1u << n) - 1u, 1, 8);
}
__global__ void lanes_that_do_not_exist(int) {
    __syncwarp();
}
__global__ void odd_width(int n) {
    __shfl_sync(full, 1, 0, n);
}
__global__ void throws(int n) {
    if (static_cast<int>(threadIdx.x) == n) throw std::runtime_error{"a bug in a test"};
    __syncthreads();
}

}  // namespace

TEST_CASE("divergence is reported, with place and thread") {
    struct scene {
        void (*kernel)(int);
        unsigned threads;
        int n;
        char const* expected;
    };
    scene const it = GENERATE(values<scene>(
        {{returns_early, 96, 40, "divergent barrier: 40 of 96 threads wait in __syncthreads (emulator_warps.test.cpp:"},
         {barrier_in_branches, 96, 33,
          "divergent barrier: this thread comes to __syncthreads (emulator_warps.test.cpp:"},
         {two_kinds_of_barrier, 64, 32, "divergent barrier: this thread comes to __syncthreads"},
         {shuffle_after_return, 64, 40, "waits for lane 8, which has returned"},
         {shuffle_in_branch, 64, 50, "waits for lane 18, which waits in __syncthreads (emulator_warps.test.cpp:"},
         {two_collectives, 32, 5, "_sync with mask 0xffffffff (emulator_warps.test.cpp:"},
         {two_masks, 32, 4, "divergent warp: __syncwarp with mask 0xffff"},
         {not_in_own_mask, 32, 3, "the mask does not name its caller, lane "},
         {reads_outside_mask, 32, 8, "reads lane 8, which the mask does not name"},
         {lanes_that_do_not_exist, 40, 0, "the mask names lanes that the warp does not have"},
         {odd_width, 32, 12, "width 12 is not a power of two"},
         {throws, 64, 50, "thread (50, 0, 0): the kernel threw an exception: a bug in a test"}}));
    for_each_order(orders, [&] {
        auto const report = report_of([&] { return launch(it.kernel, 2, it.threads, 0, nullptr, it.n); });
        INFO(report);
        CHECK(contains(report, it.expected));
        CHECK(contains(report, "grid (2, 1, 1), block (" + std::to_string(it.threads) + ", 1, 1)"));
        CHECK(contains(report, "seed "));
        // The machine is whole again.
        require_cuda(launch(quiet, 3, 64, 0, nullptr, 0));
    });
}

TEST_CASE("a failure stays until it is taken, as on a device") {
    CHECK(launch(returns_early, 1, 64, 0, nullptr, 40) == cudaErrorLaunchFailure);
    CHECK(cudaDeviceSynchronize() == cudaErrorLaunchFailure);
    CHECK(launch(quiet, 1, 64, 0, nullptr, 0) == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(cudaGetLastError() == cudaErrorLaunchFailure);
    CHECK(contains(cudaGetErrorString(cudaErrorLaunchFailure), "divergent barrier"));
    CHECK_FALSE(emulator::caught().empty());
    CHECK(cudaGetLastError() == cudaSuccess);
    CHECK(launch(quiet, 1, 64, 0, nullptr, 0) == cudaSuccess);
}

TEST_CASE("a failure that nobody takes ends the program with an error") {
    pid_t const child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        static_cast<void>(std::freopen("/dev/null", "w", stderr));
        std::exit(launch(returns_early, 1, 64, 0, nullptr, 40) == cudaErrorLaunchFailure ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 86);
}
