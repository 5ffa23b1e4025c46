// SPDX-License-Identifier: MIT
//
// The emulator itself. Kernels as they are usually written pass under many orders of their threads. Each kernel with
// one thing left out is caught, by a wrong result under some order or by a report.
#include <sureleap/cuda/core/mma.cuh>
#include <sureleap/cuda/core/runtime.cuh>

#include <cuda_pipeline.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/support/device_array.hpp"
#include "cuda/support/seeds.hpp"
#include "support/catch.hpp"

namespace {

using sureleap::cuda::launch;
using sureleap::cuda::shared_memory;

constexpr unsigned full = 0xffffffffu;
constexpr std::uint64_t orders = 40;

/// What went wrong in f's kernel, or nothing.
template <class F>
std::string report_of(F f) {
    cudaError_t const error = f();
    std::string const report = emulator::caught();
    CHECK((error == cudaErrorLaunchFailure) == !report.empty());
    return report;
}

/// Under how many of the orders f() is false. A kernel that lacks a barrier must not always come out right.
template <class F>
std::uint64_t wrong_orders(F f) {
    std::uint64_t wrong = 0;
    for_each_order(orders, [&] { wrong += f() ? 0u : 1u; });
    return wrong;
}

std::vector<unsigned> numbers(std::size_t n) {
    std::vector<unsigned> out(n);
    for (std::size_t i = 0; i < n; ++i) out[i] = static_cast<unsigned>((i * 2654435761u) % 1999u);
    return out;
}

bool contains(std::string const& text, std::string const& part) {
    return text.find(part) != std::string::npos;
}

// ---- reductions --------------------------------------------------------------------------------------------------------

enum class flaw { none, first, second, third };

__device__ unsigned warp_sum(unsigned value) {
    for (unsigned offset = 16; offset > 0; offset /= 2) value += __shfl_down_sync(full, value, offset);
    return value;
}

/// first: no barrier between the warps' sums and their sum. second: none that tells everybody the total.
template <flaw Flaw>
__global__ void reduce_by_shuffles(unsigned const* in, unsigned n, unsigned* out) {
    struct shared {
        unsigned sums[32];
        unsigned total;
    };
    auto& s = shared_memory<shared>();
    unsigned own = 0;
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) own += __ldg(in + i);
    own = warp_sum(own);
    unsigned const lane = threadIdx.x % 32;
    unsigned const warp = threadIdx.x / 32;
    if (lane == 0) s.sums[warp] = own;
    if constexpr (Flaw != flaw::first) __syncthreads();
    if (warp == 0) {
        own = warp_sum(lane < blockDim.x / 32 ? s.sums[lane] : 0);
        if (lane == 0) s.total = own;
    }
    if constexpr (Flaw != flaw::second) __syncthreads();
    if (threadIdx.x == blockDim.x - 1) out[blockIdx.x] = s.total;
}

template <flaw Flaw>
bool reduces_by_shuffles() {
    auto const in = numbers(5000);
    device_array<unsigned> const from{in};
    device_array<unsigned> to(7);
    require_cuda(
        launch(reduce_by_shuffles<Flaw>, 7, 256, 33 * sizeof(unsigned), nullptr, from.data(), 5000u, to.data()));
    auto const sums = to.download();
    return std::accumulate(sums.begin(), sums.end(), 0u) == std::accumulate(in.begin(), in.end(), 0u);
}

/// first: no barrier in the loop. second: the barrier only for those who add.
template <flaw Flaw>
__global__ void reduce_by_tree(unsigned const* in, unsigned* out) {
    unsigned* const s = &shared_memory<unsigned>();
    s[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (unsigned stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (threadIdx.x < stride) {
            s[threadIdx.x] += s[threadIdx.x + stride];
            if constexpr (Flaw == flaw::second) __syncthreads();
        }
        if constexpr (Flaw == flaw::none) __syncthreads();
    }
    if (threadIdx.x == 0) *out = s[0];
}

/// The last steps of a tree in one warp. first: no __syncwarp between reading and writing. second: none after writing.
template <flaw Flaw>
__global__ void reduce_in_warp(unsigned const* in, unsigned* out) {
    unsigned* const s = &shared_memory<unsigned>() + threadIdx.x / 32 * 32;
    unsigned const lane = threadIdx.x % 32;
    unsigned own = in[threadIdx.x];
    s[lane] = own;
    __syncwarp();
    for (unsigned stride = 16; stride > 0; stride /= 2) {
        own += s[lane ^ stride];
        if constexpr (Flaw != flaw::first) __syncwarp();
        s[lane] = own;
        if constexpr (Flaw != flaw::second) __syncwarp();
    }
    out[threadIdx.x] = own;
}

template <flaw Flaw>
bool reduces_in_warp() {
    auto const in = numbers(64);
    device_array<unsigned> const from{in};
    device_array<unsigned> to(64);
    require_cuda(launch(reduce_in_warp<Flaw>, 1, 64, 64 * sizeof(unsigned), nullptr, from.data(), to.data()));
    auto const sums = to.download();
    for (std::size_t i = 0; i < 64; ++i) {
        auto const first = in.begin() + static_cast<std::ptrdiff_t>(i / 32 * 32);
        if (sums[i] != std::accumulate(first, first + 32, 0u)) return false;
    }
    return true;
}

}  // namespace

TEST_CASE("a reduction by shuffles") {
    CHECK(wrong_orders(reduces_by_shuffles<flaw::none>) == 0);
    CHECK(wrong_orders(reduces_by_shuffles<flaw::first>) > orders / 2);
    CHECK(wrong_orders(reduces_by_shuffles<flaw::second>) > orders / 2);
}

TEST_CASE("a reduction by a tree in shared memory") {
    auto const in = numbers(256);
    unsigned const expected = std::accumulate(in.begin(), in.end(), 0u);
    device_array<unsigned> const from{in};
    device_array<unsigned> to(1);
    auto const reduce = [&](auto kernel) {
        return launch(kernel, 1, 256, 256 * sizeof(unsigned), nullptr, from.data(), to.data());
    };
    CHECK(wrong_orders([&] {
              require_cuda(reduce(reduce_by_tree<flaw::none>));
              return to.download()[0] == expected;
          }) == 0);
    CHECK(wrong_orders([&] {
              require_cuda(reduce(reduce_by_tree<flaw::first>));
              return to.download()[0] == expected;
          }) > orders / 2);
    for_each_order(orders, [&] {
        auto const report = report_of([&] { return reduce(reduce_by_tree<flaw::second>); });
        CHECK(contains(report, "divergent barrier"));
        CHECK(contains(report, "emulator.test.cpp:"));
    });
}

TEST_CASE("a reduction in shared memory by one warp") {
    CHECK(wrong_orders(reduces_in_warp<flaw::none>) == 0);
    CHECK(wrong_orders(reduces_in_warp<flaw::first>) > orders / 2);
    CHECK(wrong_orders(reduces_in_warp<flaw::second>) > orders / 2);
}

// ---- scans and sorts ---------------------------------------------------------------------------------------------------

namespace {

/// Inclusive sums over a block. first: in place without a barrier between reading and writing.
template <flaw Flaw>
__global__ void scan(unsigned const* in, unsigned* out) {
    unsigned* const s = &shared_memory<unsigned>();
    unsigned own = in[threadIdx.x];
    s[threadIdx.x] = own;
    __syncthreads();
    for (unsigned offset = 1; offset < blockDim.x; offset *= 2) {
        unsigned const before = threadIdx.x >= offset ? s[threadIdx.x - offset] : 0;
        if constexpr (Flaw != flaw::first) __syncthreads();
        own += before;
        s[threadIdx.x] = own;
        __syncthreads();
    }
    out[threadIdx.x] = own;
}

__global__ void scan_by_shuffles(unsigned const* in, unsigned* out) {
    unsigned* const sums = &shared_memory<unsigned>();
    unsigned const lane = threadIdx.x % 32;
    unsigned const warp = threadIdx.x / 32;
    unsigned own = in[threadIdx.x];
    for (unsigned offset = 1; offset < 32; offset *= 2) {
        unsigned const before = __shfl_up_sync(full, own, offset);
        if (lane >= offset) own += before;
    }
    if (lane == 31) sums[warp] = own;
    __syncthreads();
    for (unsigned w = 0; w < warp; ++w) own += sums[w];
    out[threadIdx.x] = own;
}

/// Bitonic, in place. first: no barrier between steps.
template <flaw Flaw>
__global__ void sort(unsigned* data) {
    unsigned* const s = &shared_memory<unsigned>();
    unsigned const i = threadIdx.x;
    s[i] = data[i];
    __syncthreads();
    for (unsigned size = 2; size <= blockDim.x; size *= 2) {
        for (unsigned stride = size / 2; stride > 0; stride /= 2) {
            unsigned const other = i ^ stride;
            if (other > i && (s[i] > s[other]) == ((i & size) == 0)) {
                unsigned const kept = s[i];
                s[i] = s[other];
                s[other] = kept;
            }
            if constexpr (Flaw != flaw::first) __syncthreads();
        }
    }
    data[i] = s[i];
}

}  // namespace

TEST_CASE("scans over a block") {
    auto const in = numbers(192);
    std::vector<unsigned> expected(in.size());
    std::partial_sum(in.begin(), in.end(), expected.begin());
    device_array<unsigned> const from{in};
    device_array<unsigned> to(in.size());
    auto const right = [&](auto kernel) {
        return [&, kernel] {
            require_cuda(launch(kernel, 1, 192, 192 * sizeof(unsigned), nullptr, from.data(), to.data()));
            return to.download() == expected;
        };
    };
    CHECK(wrong_orders(right(scan<flaw::none>)) == 0);
    CHECK(wrong_orders(right(scan<flaw::first>)) > orders / 2);
    CHECK(wrong_orders(right(scan_by_shuffles)) == 0);
}

TEST_CASE("a bitonic sort") {
    auto const in = numbers(256);
    auto expected = in;
    std::sort(expected.begin(), expected.end());
    auto const right = [&](auto kernel) {
        return [&, kernel] {
            device_array<unsigned> data{in};
            require_cuda(launch(kernel, 1, 256, 256 * sizeof(unsigned), nullptr, data.data()));
            return data.download() == expected;
        };
    };
    CHECK(wrong_orders(right(sort<flaw::none>)) == 0);
    CHECK(wrong_orders(right(sort<flaw::first>)) > orders / 2);
}

// ---- blocks that share work --------------------------------------------------------------------------------------------

namespace {

/// Every block writes its part, the last one done sums them up. first: the counter goes up before the part is there. second:
/// a block believes to be last one too late. third: no barrier between thread 0 and those who ask it.
template <flaw Flaw>
__global__ void sum_by_last_block(unsigned const* in, unsigned* parts, unsigned* done, unsigned* out) {
    struct shared {
        unsigned last;
    };
    auto& s = shared_memory<shared>();
    auto const count = [&] {
        if (threadIdx.x == 0) {
            __threadfence();
            s.last = atomicAdd(done, 1) == gridDim.x - (Flaw == flaw::second ? 0u : 1u) ? 1u : 0u;
        }
    };
    if constexpr (Flaw == flaw::first) count();
    unsigned const own = warp_sum(in[blockIdx.x * 32 + threadIdx.x % 32]);
    if (threadIdx.x == 32) parts[blockIdx.x] = own;
    if constexpr (Flaw != flaw::third) __syncthreads();
    if constexpr (Flaw != flaw::first) {
        count();
        __syncthreads();
    }
    if (s.last == 1 && threadIdx.x == 40) {
        __threadfence();
        unsigned total = 0;
        for (unsigned i = 0; i < gridDim.x; ++i) total += __ldcg(parts + i);
        *out = total;
    }
}

/// Blocks take tasks until there are none. first: the next task is taken before everybody has read the last.
template <flaw Flaw>
__global__ void work_queue(unsigned* next, unsigned tasks, unsigned* workers) {
    auto& task = shared_memory<unsigned>();
    for (;;) {
        if (threadIdx.x == 0) task = atomicAdd(next, 1u);
        __syncthreads();
        unsigned const own = task;
        if constexpr (Flaw != flaw::first) __syncthreads();
        if (own >= tasks) return;
        atomicAdd(workers + own, 1u);
    }
}

/// Every block leaves its number where it finds room.
__global__ void note_order(unsigned* room, unsigned* order) {
    if (threadIdx.x == 0) order[atomicAdd(room, 1u)] = blockIdx.x;
}

}  // namespace

TEST_CASE("the last block done") {
    constexpr unsigned blocks = 9;
    auto const in = numbers(blocks * 32);
    unsigned const expected = std::accumulate(in.begin(), in.end(), 0u);
    device_array<unsigned> const from{in};
    auto const right = [&](auto kernel) {
        return [&, kernel] {
            device_array<unsigned> parts(blocks);
            device_array<unsigned> done{0u};
            device_array<unsigned> out(1);
            require_cuda(launch(kernel, blocks, 64, 16, nullptr, from.data(), parts.data(), done.data(), out.data()));
            return out.download()[0] == expected;
        };
    };
    CHECK(wrong_orders(right(sum_by_last_block<flaw::none>)) == 0);
    CHECK(wrong_orders(right(sum_by_last_block<flaw::first>)) >= 4);  // one warp of one block must come late
    CHECK(wrong_orders(right(sum_by_last_block<flaw::second>)) == orders);
    CHECK(wrong_orders(right(sum_by_last_block<flaw::third>)) >= 4);
}

TEST_CASE("a queue of tasks") {
    constexpr unsigned tasks = 23;
    auto const run = [&](auto kernel, std::vector<unsigned>& workers) {
        device_array<unsigned> next{0u};
        device_array<unsigned> to{std::vector<unsigned>(tasks, 0u)};
        auto const report =
            report_of([&] { return launch(kernel, 5, 64, 16, nullptr, next.data(), tasks, to.data()); });
        workers = to.download();
        return report;
    };
    std::vector<unsigned> workers;
    std::vector<unsigned> const expected(tasks, 64u);
    CHECK(wrong_orders([&] { return run(work_queue<flaw::none>, workers).empty() && workers == expected; }) == 0);
    CHECK(wrong_orders([&] { return run(work_queue<flaw::first>, workers).empty() && workers == expected; }) >
          orders / 2);
}

TEST_CASE("blocks start in any order, and the same seed gives the same one") {
    std::set<std::vector<unsigned>> seen;
    auto const order = [] {
        device_array<unsigned> room{0u};
        device_array<unsigned> noted(6);
        require_cuda(launch(note_order, dim3(3, 2), 32, 0, nullptr, room.data(), noted.data()));
        return noted.download();
    };
    for_each_order(orders, [&] { seen.insert(order()); });
    CHECK(seen.size() > orders / 2);
    emulator::seed(17);
    auto const once = order();
    emulator::seed(17);
    CHECK(order() == once);
}

// ---- what a warp does together -----------------------------------------------------------------------------------------

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

// ---- what is reported --------------------------------------------------------------------------------------------------

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
__global__ void quiet(int) noexcept {
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
        {{returns_early, 96, 40, "divergent barrier: 40 of 96 threads wait in __syncthreads (emulator.test.cpp:"},
         {barrier_in_branches, 96, 33, "divergent barrier: this thread comes to __syncthreads (emulator.test.cpp:"},
         {two_kinds_of_barrier, 64, 32, "divergent barrier: this thread comes to __syncthreads"},
         {shuffle_after_return, 64, 40, "waits for lane 8, which has returned"},
         {shuffle_in_branch, 64, 50, "waits for lane 18, which waits in __syncthreads (emulator.test.cpp:"},
         {two_collectives, 32, 5, "_sync with mask 0xffffffff (emulator.test.cpp:"},
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

// ---- shared and global memory ------------------------------------------------------------------------------------------

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

// ---- asynchronous copies -----------------------------------------------------------------------------------------------

namespace {

/// Sums tiles of blockDim.x numbers, two in flight. first: does not wait. second: waits for too few. third: overwrites the
/// tile that others still read.
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

// ---- matrices ----------------------------------------------------------------------------------------------------------

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
    std::uint32_t fragment_b[2];
    sureleap::cuda::ldmatrix_x4(fragment_a, &s.a[lane % 16][lane / 16 * 8]);
    sureleap::cuda::ldmatrix_x2(fragment_b, &s.b[lane % 8][lane / 8 % 2 * 8]);
    unsigned const g = lane / 4;
    unsigned const t = lane % 4;
    float sums[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1], c[(g + 8) * 8 + 2 * t], c[(g + 8) * 8 + 2 * t + 1]};
    sureleap::cuda::mma_m16n8k16<T>(sums, fragment_a, fragment_b, sums);
    d[g * 8 + 2 * t] = sums[0];
    d[g * 8 + 2 * t + 1] = sums[1];
    d[(g + 8) * 8 + 2 * t] = sums[2];
    d[(g + 8) * 8 + 2 * t + 1] = sums[3];
}

/// The same with b in rows of 8, by way of the transposing load.
template <class T>
__global__ void multiply_rows(T const* a, T const* b, float* d) {
    struct shared {
        T a[16][16];
        T b[16][8];
    };
    auto& s = shared_memory<shared>();
    unsigned const lane = threadIdx.x;
    for (unsigned i = lane; i < 256; i += 32) s.a[i % 16][i / 16] = a[i];  // transposed, and back by the load
    for (unsigned i = lane; i < 128; i += 32) s.b[i / 8][i % 8] = b[i];
    __syncwarp();
    std::uint32_t fragment_a[4];
    std::uint32_t fragment_b[2];
    sureleap::cuda::ldmatrix_x4_trans(fragment_a, &s.a[lane / 16 * 8 + lane % 8][lane / 8 % 2 * 8]);
    sureleap::cuda::ldmatrix_x2_trans(fragment_b, &s.b[lane % 16][0]);
    unsigned const g = lane / 4;
    unsigned const t = lane % 4;
    float const zero[4] = {};
    float sums[4];
    sureleap::cuda::mma_m16n8k16<T>(sums, fragment_a, fragment_b, zero);
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
    std::vector<TestType> a(256), b(128), rows(128);
    std::vector<float> c(128);
    for (std::size_t i = 0; i < 256; ++i) a[i] = TestType(static_cast<float>(static_cast<int>(i * 37 % 65) - 32) / 8);
    for (std::size_t i = 0; i < 128; ++i) b[i] = TestType(static_cast<float>(static_cast<int>(i * 29 % 33) - 16) / 4);
    for (std::size_t i = 0; i < 128; ++i) rows[i % 16 * 8 + i / 16] = b[i];
    for (std::size_t i = 0; i < 128; ++i) c[i] = static_cast<float>(i) / 2;
    device_array<TestType> const from_a{a}, from_b{b}, from_rows{rows};
    device_array<float> const from_c{c};
    for_each_order(4, [&] {
        device_array<float> to(128), to_rows(128);
        require_cuda(
            launch(multiply<TestType>, 1, 32, 768, nullptr, from_a.data(), from_b.data(), from_c.data(), to.data()));
        require_cuda(
            launch(multiply_rows<TestType>, 1, 32, 768, nullptr, from_a.data(), from_rows.data(), to_rows.data()));
        auto const d = to.download();
        auto const d_rows = to_rows.download();
        for (std::size_t i = 0; i < 16; ++i) {
            for (std::size_t j = 0; j < 8; ++j) {
                float sum = 0;  // exact: small numbers of few bits
                for (std::size_t k = 0; k < 16; ++k) {
                    sum += static_cast<float>(a[i * 16 + k]) * static_cast<float>(b[j * 16 + k]);
                }
                CHECK(d[i * 8 + j] == sum + c[i * 8 + j]);
                CHECK(d_rows[i * 8 + j] == sum);
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

// ---- one thread --------------------------------------------------------------------------------------------------------

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

// ---- launches ----------------------------------------------------------------------------------------------------------

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
