// SPDX-License-Identifier: MIT
//
// The functions that host and device share give the same bits on both: draws, uniforms, conversions of storage formats,
// the acceptance test, survivals and their order. Everything else rests on this.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <vector>

#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/schedule/survival.hpp>

#include "cuda/support/device_array.hpp"

namespace {

namespace sl = sureleap;

struct question {
    sl::draw_key key;
    std::uint32_t lane;
    double num, den;
    float number;
    std::uint16_t stored;
};

/// Bits and not numbers, so that a NaN compares.
struct answer {
    std::uint32_t random[4];
    std::uint64_t uniform;
    std::uint32_t accepted, quantised, survival, before;
    std::uint16_t bf16, half;
    std::uint32_t from_bf16, from_half;

    bool operator==(answer const&) const = default;
};

__host__ __device__ std::uint32_t bits_of(float x) {
    std::uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
__host__ __device__ std::uint64_t bits_of(double x) {
    std::uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

__host__ __device__ answer ask(question const& q) {
    answer a{};
    sl::key_bits const random{q.key, q.lane};
    for (int i = 0; i < 4; ++i) a.random[i] = random.word[i];
    double const u = sl::uniform(q.key);
    a.uniform = bits_of(u);
    a.accepted = sl::accepts(u, q.num, q.den) ? 1 : 0;

    sl::fixed_probability c = 0;
    a.quantised = sl::quantise(q.num, c) ? c : 0xffffffffu;
    sl::fixed_probability const before = q.lane & 0xffffffu;
    a.survival = sl::extend_survival(before, c);
    sl::candidate const first{
        .request = q.lane % 3, .position = q.lane % 5, .confidence = c, .survival = a.survival & 3u};
    sl::candidate const second{.request = q.lane % 2, .position = q.lane % 4, .confidence = c, .survival = before & 3u};
    a.before = sl::precedes(first, second) ? 1 : 0;

    sl::bf16 bf16(q.number);
    sl::half half(q.number);
    a.bf16 = bf16.bits;
    a.half = half.bits;
    bf16.bits = q.stored;
    half.bits = q.stored;
    a.from_bf16 = bits_of(static_cast<float>(bf16));
    a.from_half = bits_of(static_cast<float>(half));
    return a;
}

__global__ void ask_all(question const* questions, unsigned n, answer* answers) {
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        answers[i] = ask(questions[i]);
}

std::vector<question> make_questions() {
    std::vector<question> out;
    for (std::uint32_t i = 0; i < (1u << 20); ++i) {
        sl::draw_key const key{.seed = i * 0x9e3779b97f4a7c15u,
                               .position = std::uint64_t{i} * i * i,
                               .index = i % (1u << 24),
                               .use = static_cast<sl::purpose>(i % 9)};
        sl::key_bits const random{key, 7};
        question q{key, random.word[0], 0, 0, 0, static_cast<std::uint16_t>(i)};
        q.num = static_cast<double>(random.word[1]) * 0x1p-32;
        q.den = static_cast<double>(random.word[2]) * 0x1p-32;
        q.number = std::bit_cast<float>(random.word[3]);  // every exponent, infinities, NaNs
        if (i % 16 == 0) q.number = static_cast<float>(q.num);
        if (i % 16 == 1) q.number = static_cast<float>(q.num) * 0x1p-14f;  // around the subnormals of half
        if (i % 16 == 2) q.number = 65504.0f + static_cast<float>(i % 64);
        if (i % 16 == 3) q.num = q.den * sl::uniform(key);  // a tie, or next to one
        if (i % 1024 == 4) q.num = std::numeric_limits<double>::quiet_NaN();
        if (i % 1024 == 5) q.num = i % 2048 < 1024 ? 0.0 : 1.0;
        out.push_back(q);
    }
    return out;
}

}  // namespace

int main() {
    auto const questions = make_questions();
    device_array<question> const asked{questions};
    device_array<answer> told(questions.size());
    require_cuda(sl::cuda::launch(ask_all, 256, 256, 0, nullptr, asked.data(), static_cast<unsigned>(questions.size()),
                                  told.data()));
    auto const answers = told.download();
    std::size_t different = 0;
    for (std::size_t i = 0; i < questions.size(); ++i) {
        if (answers[i] == ask(questions[i])) continue;
        if (++different <= 5) std::printf("question %zu is answered differently on host and device\n", i);
    }
    std::printf("%zu questions, %zu answered differently\n", questions.size(), different);
    return different == 0 ? 0 : 1;
}
