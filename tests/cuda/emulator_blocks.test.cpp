// SPDX-License-Identifier: MIT
//
// The emulator itself: reductions, scans, sorts and work that blocks share pass under many orders of their threads.
// Each with one thing left out is caught, by a wrong result under some order or by a report.
#include <sureleap/cuda/core/runtime.cuh>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "cuda/support/device_array.hpp"
#include "cuda/support/emulator_orders.hpp"
#include "support/catch.hpp"

using namespace support;

// ---- reductions
// --------------------------------------------------------------------------------------------------------

namespace {

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
        CHECK(contains(report, "emulator_blocks.test.cpp:"));
    });
}

TEST_CASE("a reduction in shared memory by one warp") {
    CHECK(wrong_orders(reduces_in_warp<flaw::none>) == 0);
    CHECK(wrong_orders(reduces_in_warp<flaw::first>) > orders / 2);
    CHECK(wrong_orders(reduces_in_warp<flaw::second>) > orders / 2);
}

// ---- scans and sorts
// ---------------------------------------------------------------------------------------------------

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

// ---- blocks that share work
// --------------------------------------------------------------------------------------------

namespace {

/// Every block writes its part, the last one done sums them up. first: the counter goes up before the part is there.
/// second: a block believes to be last one too late. third: no barrier between thread 0 and those who ask it.
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
