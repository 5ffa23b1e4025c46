// SPDX-License-Identifier: MIT
//
// Verification beside a device copy of as many bytes as the rows that the rule must touch: of a request that accepted a
// tokens, a + 1 rows; of block verification all, but for the one behind a block that was not accepted whole.
//
//     verify/rejection, block, greedy, match, coupled /<format>     gamma = 5 or 7, dense or ragged (lengths 0 .. gamma)
//     noise 45: good drafts, 200: poor ones (hundredths; data.cuh)
//     rows   the rows a request made the rule touch, on average
//     given  1: rows come with normalisers and block sums, and no pass over them is made
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <type_traits>
#include <vector>

#include <benchmark/benchmark.h>

#include <sureleap/cuda/verify/flatten.cuh>
#include <sureleap/cuda/verify/verify.cuh>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "data.cuh"
#include "measure.cuh"

namespace {

using namespace sureleap;
namespace device = sureleap::cuda;

/// Normalisers and block sums of rows, plainly: a block of threads a row, a thread a block of tokens.
template <class T>
__global__ void sum_rows(T const* rows, std::uint32_t vocabulary, float* normalisers, float* sums) {
    struct shared {
        double block[1024];
        double total;
    };
    auto& s = device::shared_memory<shared>();
    T const* const row = rows + static_cast<std::size_t>(blockIdx.x) * vocabulary;
    std::uint32_t const blocks = (vocabulary + 1023) / 1024;
    if (threadIdx.x < blocks) {
        double sum = 0.0;
        for (std::uint32_t i = threadIdx.x * 1024; i < vocabulary && i < (threadIdx.x + 1) * 1024; ++i) {
            sum += exp(static_cast<double>(static_cast<float>(row[i])));
        }
        s.block[threadIdx.x] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        s.total = 0.0;
        for (std::uint32_t b = 0; b < blocks; ++b) s.total += s.block[b];
        normalisers[blockIdx.x] = static_cast<float>(log(s.total));
    }
    __syncthreads();
    if (threadIdx.x < blocks) {
        sums[static_cast<std::size_t>(blockIdx.x) * blocks + threadIdx.x] =
            static_cast<float>(s.block[threadIdx.x] / s.total);
    }
}

struct shape {
    std::uint32_t vocabulary;
    std::uint32_t requests;
    std::uint32_t gamma;
    float noise;
    bool ragged;
    bool given;

    explicit shape(benchmark::State const& state)
        : vocabulary(static_cast<std::uint32_t>(state.range(0))),
          requests(static_cast<std::uint32_t>(state.range(1))),
          gamma(static_cast<std::uint32_t>(state.range(2))),
          noise(0.01f * static_cast<float>(state.range(3))),
          ragged(state.range(4) != 0),
          given(state.range(5) != 0) {}
    [[nodiscard]] std::size_t rows() const { return std::size_t{requests} * (gamma + 1); }
};

/// A round whose rows have their places, which its drafts are made from. ragged: lengths between 0 and gamma.
data::round flattened(shape const& s, std::uint64_t seed) {
    data::round round({s.requests, s.gamma, s.vocabulary}, seed);
    std::mt19937_64 bits(seed);
    std::vector<std::uint32_t> lengths(s.requests, s.gamma);
    if (s.ragged) {
        for (auto& l : lengths) l = static_cast<std::uint32_t>(bits() % (s.gamma + 1));
    }
    MEASURE_CHECK(cudaMemcpy(round.columns.batch.lengths, lengths.data(), lengths.size() * sizeof(lengths[0]),
                             cudaMemcpyHostToDevice));
    MEASURE_CHECK(flatten(round.columns, nullptr));
    return round;
}

template <class T>
struct turn {
    data::round round;
    data::recording<T> rows;
    measure::device_array<float> normalisers;
    measure::device_array<float> sums;

    turn(shape const& s, std::uint64_t seed)
        : round(flattened(s, seed)),
          rows(round.columns, s.noise, seed),
          normalisers(s.given ? s.rows() : 0),
          sums(s.given ? s.rows() * row_blocks(s.vocabulary) : 0) {
        MEASURE_CHECK(flatten(round.columns, nullptr));  // again, now that there are drafts
        if (!s.given) return;
        sum_rows<<<static_cast<unsigned>(s.rows()), 256, 9000>>>(rows.p.get(), s.vocabulary, normalisers.get(),
                                                                 sums.get());
        MEASURE_CHECK(cudaDeviceSynchronize());
    }
};

template <class Rule>
std::size_t touched(std::uint32_t accepted, std::uint32_t length) {
    if constexpr (std::is_same_v<Rule, block_verification<>>) {
        return accepted == length ? length + 1 : length;
    } else {
        return accepted + 1;
    }
}

template <class Rule, class T>
void verify(benchmark::State& state) {
    shape const s(state);
    std::vector<turn<T>> turns;
    unsigned const count = measure::turns_for(s.rows() * s.vocabulary * sizeof(T) / 4);
    for (unsigned i = 0; i < count; ++i) turns.emplace_back(s, 11 + 17 * i);
    device::round_limits const limits{s.requests, s.gamma, s.vocabulary};
    device::workspace sizer;
    static_cast<void>(carve_verification(sizer, limits));
    measure::device_array<unsigned char> memory(sizer.used());
    device::workspace ws{memory.get(), memory.size()};
    auto const verification = carve_verification(ws, limits);
    measure::stream on;
    measure::captured const calls(on, count, [&](unsigned i) {
        auto const& t = turns[i];
        device::logits_rows<T> const rows{t.rows.p.get(), static_cast<std::uint32_t>(s.rows()), s.vocabulary,
                                          s.given ? t.normalisers.get() : nullptr, s.given ? t.sums.get() : nullptr};
        device::dense_draft_rows<T> const drafts{t.rows.q.get(), s.vocabulary, s.gamma, s.vocabulary};
        return device::accept<Rule>(rows, drafts, verification, t.round.columns, on);
    });
    static_cast<void>(calls.replay());

    std::size_t rows = 0;
    for (auto const& t : turns) {
        std::vector<std::uint32_t> accepted(s.requests);
        std::vector<std::uint32_t> lengths(s.requests);
        std::vector<status> statuses(s.requests);
        auto const fetch = [&](auto& to, auto const* from) {
            MEASURE_CHECK(cudaMemcpy(to.data(), from, to.size() * sizeof(to[0]), cudaMemcpyDeviceToHost));
        };
        fetch(accepted, t.round.columns.verdicts.accepted);
        fetch(lengths, t.round.columns.batch.lengths);
        fetch(statuses, t.round.columns.verdicts.statuses);
        for (std::uint32_t r = 0; r < s.requests; ++r) {
            if (statuses[r] != status::ok) state.SkipWithError("a request has no verdict");
            rows += touched<Rule>(accepted[r], lengths[r]);
        }
    }
    std::size_t const bytes = s.given ? 0 : rows * s.vocabulary * sizeof(T) / count;
    measure::run(state, calls, bytes, bytes == 0 ? 0.0 : measure::copy_seconds(on, bytes));
    state.counters["rows"] = static_cast<double>(rows) / (static_cast<double>(count) * s.requests);
}

void shapes(benchmark::internal::Benchmark* b) {
    b->UseManualTime()->ArgNames({"V", "R", "gamma", "noise", "ragged", "given"});
    for (int const noise : {45, 200}) {
        for (int const v : {32000, 129280, 151936}) {
            for (int const r : {1, 8, 32, 128, 256}) b->Args({v, r, 7, noise, 0, 0});
        }
        b->Args({151936, 128, 5, noise, 0, 0});
        b->Args({151936, 32, 7, noise, 1, 0});
        b->Args({151936, 128, 7, noise, 1, 0});
        b->Args({151936, 256, 7, noise, 1, 0});
    }
}
void some_shapes(benchmark::internal::Benchmark* b) {
    b->UseManualTime()->ArgNames({"V", "R", "gamma", "noise", "ragged", "given"});
    for (int const noise : {45, 200}) {
        for (int const r : {32, 128}) b->Args({151936, r, 7, noise, 0, 0});
    }
}
void given_shapes(benchmark::internal::Benchmark* b) {
    b->UseManualTime()->ArgNames({"V", "R", "gamma", "noise", "ragged", "given"});
    for (int const r : {1, 32, 128, 256}) b->Args({151936, r, 7, 45, 0, 1});
}
BENCHMARK(verify<token_rejection<>, bf16>)->Name("verify/rejection/bf16")->Apply(shapes);
BENCHMARK(verify<token_rejection<>, float>)->Name("verify/rejection/float")->Apply(some_shapes);
BENCHMARK(verify<token_rejection<>, half>)->Name("verify/rejection/half")->Apply(some_shapes);
BENCHMARK(verify<block_verification<>, bf16>)->Name("verify/block/bf16")->Apply(shapes);
BENCHMARK(verify<greedy_match, bf16>)->Name("verify/greedy/bf16")->Apply(some_shapes);
BENCHMARK(verify<target_match<>, bf16>)->Name("verify/match/bf16")->Apply(some_shapes);
BENCHMARK(verify<keyed_coupling, bf16>)->Name("verify/coupled/bf16")->Apply(some_shapes);
BENCHMARK(verify<token_rejection<>, bf16>)->Name("verify/given_normaliser/bf16")->Apply(given_shapes);

}  // namespace
