// SPDX-License-Identifier: MIT
//
// Instructions of the device that the emulator stands in for, against what the host computes: products of tensor cores
// and the loads of their operands, copies that arrive later, barriers, shuffles, votes, reductions, atomics, fences and
// polling between blocks, a launch behind another, conversions, exponentials. If one of them is not what the kernels
// take it for, no other test tells as plainly.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <numeric>
#include <type_traits>
#include <vector>

#include <cuda_pipeline.h>

#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/barrier.cuh>
#include <sureleap/cuda/core/mma.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/core/wgmma.cuh>

#include "cuda/support/captured.hpp"
#include "cuda/support/device_array.hpp"

namespace {

namespace sl = sureleap;
namespace gpu = sureleap::cuda;

/// What `kernel` leaves in `size` numbers, launched as one block of so many threads.
template <class T, class Kernel, class... Arguments>
std::vector<T> run(Kernel* kernel, unsigned threads, std::size_t shared_bytes, std::size_t size,
                   Arguments... arguments) {
    device_array<T> out(size);
    require_cuda(gpu::launch(kernel, 1, threads, shared_bytes, nullptr, arguments..., out.data()));
    return out.download();
}

__host__ __device__ unsigned number_of(unsigned lane) {
    return (lane * 2654435761u) ^ 0x5bd1e995u;
}

// ---- tensor cores ---------------------------------------------------------------------------------------------------

/// A, then B by columns, in rows of 16 as ldmatrix takes them; the product by both fragments.
struct operands {
    std::uint16_t a[16 * 16];
    std::uint16_t b[8 * 16];
};

template <class T>
__global__ void multiply(operands const* in, float* out) {
    auto& s = gpu::shared_memory<operands>();
    unsigned const lane = gpu::lane_index();
    for (unsigned i = lane; i < 16 * 16; i += 32) s.a[i] = in->a[i];
    for (unsigned i = lane; i < 8 * 16; i += 32) s.b[i] = in->b[i];
    __syncwarp();
    std::uint32_t a[4];
    std::uint32_t b_and_again[4];  // four matrices: the two halves of B, twice
    gpu::ldmatrix_x4(a, s.a + lane % 16 * 16 + lane / 16 * 8);
    gpu::ldmatrix_x4(b_and_again, s.b + lane % 8 * 16 + lane / 8 % 2 * 8);
    std::uint32_t const b[2] = {b_and_again[0], b_and_again[1]};
    unsigned const g = lane / 4;
    unsigned const t = lane % 4;
    float sums[4] = {0.5f, 0.5f, 0.5f, 0.5f};
    gpu::mma_m16n8k16<T>(sums, a, b, sums);
    if (b_and_again[2] != b[0] || b_and_again[3] != b[1]) sums[0] = gpu::infinity;
    for (unsigned i = 0; i < 4; ++i) out[(g + i / 2 * 8) * 8 + 2 * t + i % 2] = sums[i];
}

/// Small integers, whose products and sums are exact in any order.
template <class T>
bool multiplies() {
    std::vector<operands> in(1);
    auto const a_of = [](int i, int k) { return (i * 7 + k * 3) % 11 - 5; };
    auto const b_of = [](int k, int j) { return (k * 5 + j * 2) % 13 - 6; };
    for (int i = 0; i < 16; ++i) {
        for (int k = 0; k < 16; ++k) in[0].a[i * 16 + k] = T(static_cast<float>(a_of(i, k))).bits;
    }
    for (int j = 0; j < 8; ++j) {
        for (int k = 0; k < 16; ++k) in[0].b[j * 16 + k] = T(static_cast<float>(b_of(k, j))).bits;
    }
    device_array<operands> const there{in};
    auto const out = run<float>(multiply<T>, 32, sizeof(operands), 16 * 8, there.data());
    for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 8; ++j) {
            int sum = 0;
            for (int k = 0; k < 16; ++k) sum += a_of(i, k) * b_of(k, j);
            if (out[i * 8 + j] != static_cast<float>(sum) + 0.5f) return false;
        }
    }
    return true;
}

/// 128 rows of A and of B, two chunks of 64 elements each; two groups of four warps take 64 rows of A each.
constexpr unsigned wide = 128;
template <class T>
__global__ void multiply_wide(std::uint16_t const* a, std::uint16_t const* b, float* out) {
    constexpr unsigned units = 2 * 64 / 8;  // of a row
    constexpr unsigned chunk_bytes = wide * 128;
    unsigned char* s = &gpu::shared_memory<unsigned char>();
    s += -reinterpret_cast<std::uintptr_t>(s) % gpu::wgmma_alignment;
    for (unsigned i = threadIdx.x; i < wide * units; i += blockDim.x) {
        unsigned const unit = i % units;
        unsigned const place = unit / 8 * chunk_bytes + gpu::swizzled(i / units, unit % 8);
        __pipeline_memcpy_async(s + place, a + i * 8, 16);
        *reinterpret_cast<uint4*>(s + 2 * chunk_bytes + place) = *reinterpret_cast<uint4 const*>(b + i * 8);
    }
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    float sums[16][4];
    for (auto& square : sums) {
        for (float& sum : square) sum = 0.5f;
    }
    unsigned const warp = gpu::warp_index();
    for (unsigned chunk = 0; chunk < 2; ++chunk) {
        unsigned char const* const rows_of_a = s + chunk * chunk_bytes + gpu::swizzled(warp / 4 * 64, 0);
        gpu::wgmma_m64n128k64<T>(sums, rows_of_a, s + (2 + chunk) * chunk_bytes);
    }
    for (unsigned j = 0; j < 16; ++j) {
        for (unsigned c = 0; c < 4; ++c) {
            unsigned const row = warp * 16 + gpu::lane_index() / 4 + c / 2 * 8;
            out[row * wide + j * 8 + gpu::lane_index() % 4 * 2 + c % 2] = sums[j][c];
        }
    }
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
    out[wide * wide] = 1.0f;
#else
    out[wide * wide] = 0.0f;
#endif
}

template <class T>
bool multiplies_wide() {
    auto const a_of = [](unsigned i, unsigned k) { return static_cast<int>((i * 7 + k * 3) % 11) - 5; };
    auto const b_of = [](unsigned j, unsigned k) { return static_cast<int>((k * 5 + j * 2) % 13) - 6; };
    std::vector<std::uint16_t> a, b;
    for (unsigned i = 0; i < wide; ++i) {
        for (unsigned k = 0; k < 128; ++k) {
            a.push_back(T(static_cast<float>(a_of(i, k))).bits);
            b.push_back(T(static_cast<float>(b_of(i, k))).bits);
        }
    }
    device_array<std::uint16_t> const a_there{a}, b_there{b};
    auto const out = run<float>(multiply_wide<T>, 256, 4 * wide * 128 + gpu::wgmma_alignment, wide * wide + 1,
                                a_there.data(), b_there.data());
    if (out[wide * wide] == 0.0f) std::printf("wgmma below is mma: this was not compiled for sm_90a\n");
    for (unsigned i = 0; i < wide; ++i) {
        for (unsigned j = 0; j < wide; ++j) {
            int sum = 0;
            for (unsigned k = 0; k < 128; ++k) sum += a_of(i, k) * b_of(j, k);
            if (out[i * wide + j] != static_cast<float>(sum) + 0.5f) return false;
        }
    }
    return true;
}

// ---- memory ---------------------------------------------------------------------------------------------------------

/// Three stages of 16 bytes a thread on their way while a fourth is summed, over more shared memory than can be had
/// without asking.
constexpr unsigned stages = 4;
constexpr unsigned copied = 1024;
struct staged {
    uint4 of[stages][copied];
};
__global__ void sum_pipelined(uint4 const* in, unsigned count, unsigned* out) {
    auto& s = gpu::shared_memory<staged>();
    unsigned const t = threadIdx.x;
    auto const start = [&](unsigned i) {
        if (i < count) __pipeline_memcpy_async(&s.of[i % stages][t], in + std::size_t{i} * copied + t, 16);
        __pipeline_commit();
    };
    for (unsigned i = 0; i < stages - 1; ++i) start(i);
    unsigned sum = 0;
    for (unsigned i = 0; i < count; ++i) {
        __pipeline_wait_prior(stages - 2);
        __syncthreads();
        uint4 const other = s.of[i % stages][(t + 1) % copied];  // what another thread asked for
        sum = sum * 31 + (other.x ^ other.y ^ other.z ^ other.w);
        start(i + stages - 1);
    }
    out[t] = sum;
}

bool pipelines() {
    constexpr unsigned count = 37;
    std::vector<uint4> in(count * copied);
    for (unsigned i = 0; i < in.size(); ++i) in[i] = {i * 2654435761u, i, ~i, i * i};
    device_array<uint4> const there{in};
    auto const out = run<unsigned>(sum_pipelined, copied, sizeof(staged), copied, there.data(), count);
    for (unsigned t = 0; t < copied; ++t) {
        unsigned sum = 0;
        for (unsigned i = 0; i < count; ++i) {
            uint4 const x = in[i * copied + (t + 1) % copied];
            sum = sum * 31 + (x.x ^ x.y ^ x.z ^ x.w);
        }
        if (out[t] != sum) return false;
    }
    return true;
}

/// A warp copies rows of 32 numbers into a ring for three others. Each of them sums a column of all rows, and gives
/// stages back at a pace of its own.
constexpr unsigned ring_stages = 3;
constexpr unsigned summing_warps = 3;
struct ringed {
    gpu::warp_barrier full[ring_stages], empty[ring_stages];
    uint4 rows[ring_stages][32];
};
__global__ void sum_from_ring(uint4 const* in, unsigned count, unsigned* out) {
    auto& s = gpu::shared_memory<ringed>();
    if (threadIdx.x == 0) {
        for (unsigned i = 0; i < ring_stages; ++i) {
            s.full[i].init(1);
            s.empty[i].init(summing_warps);
        }
    }
    __syncthreads();
    unsigned const lane = gpu::lane_index();
    unsigned const warp = gpu::warp_index();
    unsigned sum = 0;
    for (unsigned i = 0; i < count; ++i) {
        unsigned const stage = i % ring_stages;
        unsigned const turn = i / ring_stages;
        if (warp == summing_warps) {
            if (turn > 0) s.empty[stage].wait(turn - 1);
            if (lane % 4 == 3) {
                s.rows[stage][lane] = in[std::size_t{i} * 32 + lane];  // a plain store among the copies
            } else {
                __pipeline_memcpy_async(&s.rows[stage][lane], in + std::size_t{i} * 32 + lane, 16);
            }
            s.full[stage].arrive_with_copies();
        } else {
            s.full[stage].wait(turn);
            uint4 const other = s.rows[stage][(lane + 1 + i) % 32];
            sum = sum * 31 + (other.x ^ other.y ^ other.z ^ other.w);
            if ((number_of(i) >> warp) % 8 == 0) __nanosleep(500);
            s.empty[stage].arrive();
        }
    }
    if (warp < summing_warps) out[threadIdx.x] = sum;
}

bool hands_stages_on() {
    constexpr unsigned count = 1000;
    std::vector<uint4> in(count * 32);
    for (unsigned i = 0; i < in.size(); ++i) in[i] = {i * 2654435761u, i, ~i, i * i};
    device_array<uint4> const there{in};
    auto const out =
        run<unsigned>(sum_from_ring, 32 * (summing_warps + 1), sizeof(ringed), 32 * summing_warps, there.data(), count);
    for (unsigned t = 0; t < 32 * summing_warps; ++t) {
        unsigned sum = 0;
        for (unsigned i = 0; i < count; ++i) {
            uint4 const x = in[i * 32 + (t % 32 + 1 + i) % 32];
            sum = sum * 31 + (x.x ^ x.y ^ x.z ^ x.w);
        }
        if (out[t] != sum) return false;
    }
    return true;
}

/// Every block writes a part, and the one that counts the last of them reads all: as passes of verification end.
__global__ void hand_over(unsigned* parts, unsigned round, unsigned* arrived, unsigned* out) {
    unsigned const per_block = blockDim.x;
    parts[blockIdx.x * per_block + threadIdx.x] = round * 1000003u + blockIdx.x * per_block + threadIdx.x;
    auto& last = gpu::shared_memory<unsigned>();
    __syncthreads();
    if (threadIdx.x == 0) {
        gpu::publish();
        last = atomicAdd(arrived, 1u) + 1 == gridDim.x ? 1 : 0;
        gpu::publish();
    }
    __syncthreads();
    if (last == 0) return;
    unsigned wrong = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x * per_block; i += blockDim.x)
        wrong += parts[i] != round * 1000003u + i;
    atomicAdd(out, wrong);
    if (threadIdx.x == 0) *arrived = 0;
}

bool hands_over() {
    constexpr unsigned blocks = 512;
    constexpr unsigned threads = 128;
    device_array<unsigned> parts(blocks * threads);
    device_array<unsigned> arrived{0u};
    device_array<unsigned> wrong{0u};
    for (unsigned round = 1; round <= 500; ++round) {
        require_cuda(gpu::launch(hand_over, blocks, threads, sizeof(unsigned), nullptr, parts.data(), round,
                                 arrived.data(), wrong.data()));
    }
    return wrong.download()[0] == 0;
}

/// The block that comes first writes, the others poll until it says so: as those wait that help with passes.
__global__ void wait_for_first(unsigned round, unsigned* tickets, unsigned* said, unsigned* value, unsigned* wrong) {
    if (threadIdx.x != 0) return;
    if (atomicAdd(tickets, 1u) % gridDim.x == 0) {
        gpu::back_off();
        *value = round * 1000003u;
        gpu::publish();
        atomicExch(said, round);
        return;
    }
    while (gpu::peek(said) != round) gpu::back_off();
    gpu::publish();
    if (*value != round * 1000003u) atomicAdd(wrong, 1u);
}

bool waits_for_others() {
    device_array<unsigned> tickets{0u};
    device_array<unsigned> said{0u};
    device_array<unsigned> value{0u};
    device_array<unsigned> wrong{0u};
    for (unsigned round = 1; round <= 500; ++round) {
        require_cuda(gpu::launch(wait_for_first, 512, 32, 0, nullptr, round, tickets.data(), said.data(), value.data(),
                                 wrong.data()));
    }
    return wrong.download()[0] == 0;
}

/// A kernel that admits the next one before it writes, and one behind it that reads what other blocks wrote.
__global__ void write_late(unsigned* values, unsigned* round) {
    gpu::admit_next_kernel();
    unsigned const i = blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned times = 0; times < 10; ++times) gpu::back_off();
    values[i] = *round * 1000003u + i;
}
__global__ void read_behind(unsigned const* values, unsigned* round, unsigned* arrived, unsigned* wrong) {
    gpu::wait_for_kernel_before();
    unsigned const all = gridDim.x * blockDim.x;
    unsigned const i = (blockIdx.x * blockDim.x + threadIdx.x + all / 2) % all;
    if (values[i] != *round * 1000003u + i) atomicAdd(wrong, 1u);
    if (atomicAdd(arrived, 1u) + 1 < all) return;
    *arrived = 0;
    ++*round;
}

bool launches_behind() {
    constexpr unsigned blocks = 512;
    constexpr unsigned threads = 128;
    device_array<unsigned> values(blocks * threads);
    device_array<unsigned> round{1u};
    device_array<unsigned> arrived{0u};
    device_array<unsigned> wrong{0u};
    auto const both = [&](cudaStream_t stream) {
        cudaError_t const error = gpu::launch(write_late, blocks, threads, 0, stream, values.data(), round.data());
        if (error != cudaSuccess) return error;
        return gpu::launch_behind(read_behind, blocks, threads, 0, stream, static_cast<unsigned const*>(values.data()),
                                  round.data(), arrived.data(), wrong.data());
    };
    for (unsigned i = 0; i < 200; ++i) require_cuda(both(nullptr));
    support::captured const graph(both);
    for (unsigned i = 0; i < 200; ++i) graph.replay();
    return wrong.download()[0] == 0 && round.download()[0] == 401;
}

struct totals {
    unsigned sum, least, most;
    int least_signed, most_signed;
    unsigned long long wide_sum, wide_least, wide_most;
};
__global__ void add_up(totals* out) {
    unsigned const i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned const x = i * 2654435761u;
    unsigned long long const wide = static_cast<unsigned long long>(x) << 20 | i;
    atomicAdd(&out->sum, x);
    atomicMin(&out->least, x);
    atomicMax(&out->most, x);
    atomicMin(&out->least_signed, static_cast<int>(x));
    atomicMax(&out->most_signed, static_cast<int>(x));
    atomicAdd(&out->wide_sum, wide);
    atomicMin(&out->wide_least, wide);
    atomicMax(&out->wide_most, wide);
}

bool adds_up() {
    totals expected{0, ~0u, 0, 0x7fffffff, -0x7fffffff - 1, 0, ~0ull, 0};
    device_array<totals> there{expected};
    constexpr unsigned blocks = 200;
    constexpr unsigned threads = 256;
    require_cuda(gpu::launch(add_up, blocks, threads, 0, nullptr, there.data()));
    for (unsigned i = 0; i < blocks * threads; ++i) {
        unsigned const x = i * 2654435761u;
        unsigned long long const wide = static_cast<unsigned long long>(x) << 20 | i;
        expected = {expected.sum + x,
                    std::min(expected.least, x),
                    std::max(expected.most, x),
                    std::min(expected.least_signed, static_cast<int>(x)),
                    std::max(expected.most_signed, static_cast<int>(x)),
                    expected.wide_sum + wide,
                    std::min(expected.wide_least, wide),
                    std::max(expected.wide_most, wide)};
    }
    totals const got = there.download()[0];
    return got.sum == expected.sum && got.least == expected.least && got.most == expected.most &&
           got.least_signed == expected.least_signed && got.most_signed == expected.most_signed &&
           got.wide_sum == expected.wide_sum && got.wide_least == expected.wide_least &&
           got.wide_most == expected.wide_most;
}

// ---- warps ----------------------------------------------------------------------------------------------------------

template <class T>
struct shuffled {
    T from_9, from_before, across;
};
template <class T>
__global__ void shuffle(shuffled<T>* out) {
    T const own = static_cast<T>(number_of(threadIdx.x)) / static_cast<T>(3);
    out[threadIdx.x] = {__shfl_sync(gpu::all_lanes, own, 9), __shfl_up_sync(gpu::all_lanes, own, 4),
                        __shfl_xor_sync(gpu::all_lanes, own, 21)};
}

template <class T>
bool shuffles() {
    auto const out = run<shuffled<T>>(shuffle<T>, 32, 0, 32);
    auto const of = [](unsigned lane) { return static_cast<T>(number_of(lane)) / static_cast<T>(3); };
    for (unsigned lane = 0; lane < 32; ++lane) {
        auto const& got = out[lane];
        bool const right =
            got.from_9 == of(9) && got.from_before == of(lane < 4 ? lane : lane - 4) && got.across == of(lane ^ 21u);
        if (!right) return false;
    }
    return true;
}

struct votes {
    unsigned ballot, any, none, all, least, most, sum, bits, leading, lowest, block_or;
};
__global__ void vote(votes* out) {
    unsigned const own = number_of(threadIdx.x);
    unsigned const mask = threadIdx.x % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
    votes v{};
    v.block_or = static_cast<unsigned>(__syncthreads_or(threadIdx.x == 77));
    if (threadIdx.x % 2 == 0) {  // halves of a warp, in branches of their own
        v.ballot = __ballot_sync(mask, (own & 4u) != 0);
    } else {
        v.ballot = __ballot_sync(mask, (own & 8u) != 0);
    }
    v.any = static_cast<unsigned>(__any_sync(gpu::all_lanes, threadIdx.x % 32 == 30));
    v.none = static_cast<unsigned>(__any_sync(gpu::all_lanes, threadIdx.x % 32 == 32));
    v.all = static_cast<unsigned>(__all_sync(gpu::all_lanes, threadIdx.x % 32 < 32));
    v.least = __reduce_min_sync(gpu::all_lanes, own);
    v.most = __reduce_max_sync(gpu::all_lanes, own);
    v.sum = __reduce_add_sync(gpu::all_lanes, own);
    v.bits = static_cast<unsigned>(__popc(own));
    v.leading = static_cast<unsigned>(__clz(static_cast<int>(own >> (threadIdx.x % 32))));
    v.lowest = static_cast<unsigned>(__ffs(static_cast<int>(own << (threadIdx.x % 32))));
    out[threadIdx.x] = v;
}

bool votes_right() {
    constexpr unsigned threads = 96;
    auto const out = run<votes>(vote, threads, 0, threads);
    for (unsigned t = 0; t < threads; ++t) {
        unsigned const own = number_of(t);
        unsigned const first = t / 32 * 32;
        votes e{};
        e.least = ~0u;
        for (unsigned lane = 0; lane < 32; ++lane) {
            unsigned const x = number_of(first + lane);
            if (lane % 2 == t % 2 && (x & (t % 2 == 0 ? 4u : 8u)) != 0) e.ballot |= 1u << lane;
            e.least = std::min(e.least, x);
            e.most = std::max(e.most, x);
            e.sum += x;
        }
        unsigned const low = own << (t % 32);
        votes const& got = out[t];
        bool const right = got.ballot == e.ballot && got.any == 1 && got.none == 0 && got.all == 1 &&
                           got.least == e.least && got.most == e.most && got.sum == e.sum && got.block_or == 1 &&
                           got.bits == static_cast<unsigned>(std::popcount(own)) &&
                           got.leading == static_cast<unsigned>(std::countl_zero(own >> (t % 32))) &&
                           got.lowest == (low == 0 ? 0 : static_cast<unsigned>(std::countr_zero(low)) + 1);
        if (!right) return false;
    }
    return true;
}

// ---- arithmetic -----------------------------------------------------------------------------------------------------

template <class T>
__global__ void widen_all(float* out) {
    for (unsigned i = threadIdx.x; i < 65536; i += blockDim.x) {
        T stored;
        stored.bits = static_cast<std::uint16_t>(i);
        out[i] = gpu::detail::widen(stored);
    }
}

/// Every number of 16 bits; of a NaN that it is one.
template <class T>
bool widens() {
    auto const out = run<float>(widen_all<T>, 1024, 0, 65536);
    for (unsigned i = 0; i < 65536; ++i) {
        T stored;
        stored.bits = static_cast<std::uint16_t>(i);
        auto const expected = static_cast<float>(stored);
        bool const same = std::bit_cast<std::uint32_t>(out[i]) == std::bit_cast<std::uint32_t>(expected);
        if (!same && !(std::isnan(out[i]) && std::isnan(expected))) return false;
    }
    return true;
}

struct functions {
    float power, logarithm;
};
constexpr unsigned asked = 1 << 16;
__host__ __device__ float exponent_of(unsigned i) {
    return -140.0f + 280.0f * static_cast<float>(i) / asked;
}
__global__ void take_functions(functions* out) {
    for (unsigned i = threadIdx.x; i < asked; i += blockDim.x) {
        float const x = exponent_of(i);
        out[i] = {gpu::quick_exp2(x), __log2f(exp2f(x * 0.5f))};
    }
}

/// 2^x to two units in the last place, no subnormal numbers; log2 to 2^-21 near 1 and two units elsewhere.
bool takes_functions() {
    auto const out = run<functions>(take_functions, 1024, 0, asked);
    for (unsigned i = 0; i < asked; ++i) {
        float const x = exponent_of(i);
        double const power = std::exp2(static_cast<double>(x));
        double const allowed = 2.5 * 0x1p-23 * power;
        bool const right = x < -126.0f  ? out[i].power == 0.0f
                           : x > 128.0f ? std::isinf(out[i].power)
                                        : std::abs(static_cast<double>(out[i].power) - power) <= allowed;
        double const logarithm = 0.5 * static_cast<double>(x);
        double const off = std::abs(static_cast<double>(out[i].logarithm) - logarithm);
        if ((!right && x != 128.0f) || off > 0x1p-20 + 4.0 * 0x1p-23 * std::abs(logarithm)) return false;
    }
    return true;
}

struct check {
    char const* name;
    std::function<bool()> holds;
};

}  // namespace

int main() {
    check const checks[] = {
        {"mma.m16n8k16 and ldmatrix.x4, bf16", multiplies<sl::bf16>},
        {"mma.m16n8k16 and ldmatrix.x4, half", multiplies<sl::half>},
        {"wgmma.m64n128k16, bf16", multiplies_wide<sl::bf16>},
        {"wgmma.m64n128k16, half", multiplies_wide<sl::half>},
        {"cp.async in four stages, 64 KiB of shared memory", pipelines},
        {"mbarriers of a ring, with copies and without", hands_stages_on},
        {"a fence between blocks", hands_over},
        {"polling for another block", waits_for_others},
        {"a kernel launched behind another, and in a graph", launches_behind},
        {"atomics", adds_up},
        {"shuffles of unsigned", shuffles<unsigned>},
        {"shuffles of float", shuffles<float>},
        {"shuffles of double", shuffles<double>},
        {"shuffles of 64 bits", shuffles<unsigned long long>},
        {"votes, redux, counts of bits", votes_right},
        {"widening bf16", widens<sl::bf16>},
        {"widening half", widens<sl::half>},
        {"ex2 and lg2", takes_functions},
    };
    int failed = 0;
    for (check const& each : checks) {
        bool holds = false;
        try {
            holds = each.holds();
        } catch (std::exception const& error) {
            std::printf("%s\n", error.what());
        }
        std::printf("%-7s %s\n", holds ? "ok" : "FAILED", each.name);
        failed += holds ? 0 : 1;
    }
    return failed == 0 ? 0 : 1;
}
