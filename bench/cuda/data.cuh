// SPDX-License-Identifier: MIT
//
// Logits to measure with, made on the device in the shape of bench/logits.hpp: most tokens N(0, 2), forty peaks N(9,
// 1.8) that hold nearly all the mass, a draft that is its target with noise: N(0, 0.45) makes a good one, N(0, 2.0) a
// poor one. And rounds of such drafts, drawn from the very rows that they are recorded with, at the temperature of
// their request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/sampling/draw_key.hpp>

#include "measure.cuh"

namespace data {

using sureleap::draw_key;
using sureleap::key_bits;
using sureleap::purpose;
using sureleap::token_id;

inline constexpr int peaks = 40;

/// Four N(0, 1) of a place (Box and Muller 1958).
__device__ inline float4 normals(std::uint64_t seed, std::uint64_t place) {
    key_bits const bits{draw_key{seed, place, 0, purpose::draft}};
    float out[4];
    for (int i = 0; i < 4; i += 2) {
        float const u = (static_cast<float>(bits.word[i] >> 8) + 0.5f) * 0x1p-24f;
        float const v = static_cast<float>(bits.word[i + 1] >> 8) * 0x1p-24f;
        float const radius = sqrtf(-2.0f * logf(u));
        out[i] = radius * cospif(2.0f * v);
        out[i + 1] = radius * sinpif(2.0f * v);
    }
    return {out[0], out[1], out[2], out[3]};
}

template <class T>
__global__ void fill_normals(T* out, std::size_t size, float scale, std::uint64_t seed) {
    std::size_t const step = std::size_t{gridDim.x} * blockDim.x;
    for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; 4 * i < size; i += step) {
        float4 const four = normals(seed, i);
        float const values[4] = {four.x, four.y, four.z, four.w};
        for (std::size_t j = 0; j < 4 && 4 * i + j < size; ++j) out[4 * i + j] = static_cast<T>(scale * values[j]);
    }
}

/// Peaks of [rows, vocabulary], which lie `stride` apart, a block per row.
template <class T>
__global__ void add_peaks(T* rows, std::size_t stride, std::size_t vocabulary, std::uint64_t seed) {
    if (threadIdx.x >= peaks) return;
    std::uint64_t const place = std::uint64_t{blockIdx.x} * peaks + threadIdx.x;
    float4 const four = normals(seed, place);
    key_bits const bits{draw_key{seed, place, 0, purpose::noise}};
    rows[blockIdx.x * stride + bits.word[0] % vocabulary] = static_cast<T>(9.0f + 1.8f * four.x);
}

/// A draft's rows [R, gamma, V] from its target's, which lie as a batch does, `stride` apart: a block per row of the
/// draft. Beyond a request's rows it is a draft of its last one.
template <class T>
__global__ void add_noise(T const* p, std::size_t stride, std::int32_t const* offsets, T* q, std::uint32_t gamma,
                          std::size_t vocabulary, float noise, std::uint64_t seed) {
    std::uint32_t const r = blockIdx.x / gamma;
    std::int32_t const asked = offsets[r] + static_cast<std::int32_t>(blockIdx.x % gamma);
    T const* const from = p + static_cast<std::size_t>(min(asked, offsets[r + 1] - 1)) * stride;
    T* const to = q + blockIdx.x * vocabulary;
    for (std::size_t i = threadIdx.x; i < vocabulary; i += blockDim.x) {
        float4 const four = normals(seed, blockIdx.x * vocabulary + i);
        to[i] = static_cast<T>(static_cast<float>(from[i]) + noise * four.x);
    }
}

/// x ~ softmax(q / T), its distribution and its probability: a block of 256 per row, by a race of every token
/// (Gumbel-max); the argmax where T is 0. Slow and plain: this is not what is measured.
template <class T>
__global__ void draw_drafts(T const* q, sureleap::cuda::device_round round, std::uint64_t seed) {
    struct shared {
        float best[256];
        int token[256];
        float top[256];
        double total[256];
    };
    auto& s = sureleap::cuda::shared_memory<shared>();
    std::size_t const vocabulary = round.limits.vocabulary;
    T const* const row = q + blockIdx.x * vocabulary;
    sureleap::transform const how = round.requests.drafts[blockIdx.x / round.limits.block_size];
    auto const rate = static_cast<float>(how.greedy() ? 1.0 : 1.0 / how.temperature);
    unsigned const t = threadIdx.x;
    float best = -sureleap::cuda::infinity;
    float top = best;
    int token = 0;
    for (std::size_t i = t; i < vocabulary; i += blockDim.x) {
        auto const logit = static_cast<float>(row[i]);
        key_bits const bits{draw_key{seed, blockIdx.x, static_cast<std::uint32_t>(i), purpose::draft}};
        float const u = (static_cast<float>(bits.word[0] >> 8) + 0.5f) * 0x1p-24f;
        float const arrival = rate * logit - (how.greedy() ? 0.0f : logf(-logf(u)));
        if (arrival > best) {
            best = arrival;
            token = static_cast<int>(i);
        }
        top = fmaxf(top, logit);
    }
    s.best[t] = best;
    s.token[t] = token;
    s.top[t] = top;
    __syncthreads();
    for (unsigned width = blockDim.x / 2; width > 0; width /= 2) {
        if (t < width) {
            if (s.best[t + width] > s.best[t]) {
                s.best[t] = s.best[t + width];
                s.token[t] = s.token[t + width];
            }
            s.top[t] = fmaxf(s.top[t], s.top[t + width]);
        }
        __syncthreads();
    }
    double total = 0.0;
    for (std::size_t i = t; i < vocabulary; i += blockDim.x) {
        total += expf((static_cast<float>(row[i]) - s.top[0]) * rate);
    }
    s.total[t] = total;
    __syncthreads();
    for (unsigned width = blockDim.x / 2; width > 0; width /= 2) {
        if (t < width) s.total[t] += s.total[t + width];
        __syncthreads();
    }
    if (t > 0) return;
    sureleap::cuda::distribution q_k{};
    q_k.shift = s.top[0];
    q_k.scale = rate;
    q_k.total = s.total[0];
    q_k.kind = sureleap::cuda::distribution_kind::dense;
    double const probability = q_k.weight(static_cast<float>(row[s.token[0]]), s.token[0]) / s.total[0];
    round.drafts.tokens[blockIdx.x] = s.token[0];
    round.drafts.distributions[blockIdx.x] = how.greedy() ? sureleap::cuda::distribution::one_hot(s.token[0]) : q_k;
    round.drafts.token_probabilities[blockIdx.x] = how.greedy() ? 1.0 : probability;
}

/// Rows of a target and of its draft, in device memory, for a batch that was flattened.
template <class T>
struct recording {
    std::size_t stride;          ///< of p
    measure::device_array<T> p;  ///< [rows, stride], at most R (gamma + 1) rows
    measure::device_array<T> q;  ///< [R, gamma, V]

    recording(sureleap::cuda::device_round const& round, float noise, std::uint64_t seed, std::size_t padding = 0)
        : stride(round.limits.vocabulary + padding),
          p(std::size_t{round.limits.requests} * (round.limits.block_size + 1) * stride),
          q(std::size_t{round.limits.requests} * round.limits.block_size * round.limits.vocabulary) {
        auto const& [requests, gamma, vocabulary, stop_tokens, log_probabilities] = round.limits;
        fill_normals<<<1024, 256>>>(p.get(), p.size(), 2.0f, seed);
        add_peaks<<<requests*(gamma + 1), 64>>>(p.get(), stride, vocabulary, seed + 1);
        add_noise<<<requests * gamma, 256>>>(p.get(), stride, round.batch.offsets, q.get(), gamma, vocabulary, noise,
                                             seed + 2);
        draw_drafts<<<requests * gamma, 256, 8192>>>(q.get(), round, seed);
        MEASURE_CHECK(cudaDeviceSynchronize());
    }
};

/// A round of `requests` with memory of its own. Request r has the (r modulo their number)th of `settings`; drafts its
/// temperature.
class round {
public:
    explicit round(sureleap::cuda::device_limits const& limits, std::uint64_t seed,
                   std::vector<sureleap::transform> const& settings = {{}}) {
        sureleap::cuda::workspace sizer;
        static_cast<void>(carve(sizer, limits));
        memory_ = measure::device_array<unsigned char>(sizer.used());
        MEASURE_CHECK(cudaMemset(memory_.get(), 0, memory_.size()));
        sureleap::cuda::workspace ws{memory_.get(), memory_.size()};
        columns = carve(ws, limits);
        auto const R = limits.requests;
        auto const fill = [](auto* to, auto const& values) {
            MEASURE_CHECK(cudaMemcpy(to, values.data(), values.size() * sizeof(values[0]), cudaMemcpyHostToDevice));
        };
        std::vector<std::uint64_t> positions(R);
        std::vector<std::uint64_t> seeds(R);
        std::vector<std::uint32_t> slots(R);
        std::vector<token_id> anchors(R);
        std::vector<sureleap::transform> targets(R);
        std::vector<sureleap::transform> drafts(R);
        for (std::uint32_t r = 0; r < R; ++r) {
            positions[r] = 1000 + 37 * r;
            seeds[r] = seed + r;
            slots[r] = R - 1 - r;
            targets[r] = settings[r % settings.size()];
            drafts[r].temperature = targets[r].temperature;
            anchors[r] = static_cast<token_id>((r * 7919 + seed) % limits.vocabulary);
        }
        fill(columns.requests.count, std::vector<std::uint32_t>{R});
        fill(columns.requests.anchors, anchors);
        fill(columns.requests.positions, positions);
        fill(columns.requests.seeds, seeds);
        fill(columns.requests.slots, slots);
        fill(columns.requests.targets, targets);
        fill(columns.requests.drafts, drafts);
        fill(columns.requests.remaining, std::vector<std::uint32_t>(R, 1u << 20));
        fill(columns.requests.min_remaining, std::vector<std::uint32_t>(R, 0));
        fill(columns.requests.draft_limits, std::vector<std::uint32_t>(R, limits.block_size));
        fill(columns.requests.weights, std::vector<sureleap::fixed_probability>(R, sureleap::certain));
        fill(columns.drafts.sizes, std::vector<std::uint32_t>(R, limits.block_size));
    }

    sureleap::cuda::device_round columns{};

private:
    measure::device_array<unsigned char> memory_;
};

}  // namespace data
