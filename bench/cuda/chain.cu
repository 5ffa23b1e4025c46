// SPDX-License-Identifier: MIT
//
// The sequential chain with a Markov head, r = 256, weights and base logits in bf16: what a step costs beside what it must.
//
//     chain/product   the product of one position with its statistics, for R requests. floor: its time over the larger of two:
//                     W2 and the base logits through a device copy of as many bytes, and the multiplications at the rate of
//                     a large bf16 product of cuBLAS, both measured in this run
//     chain/block     the whole chain of gamma positions: product, draw, code; us_step is a position's part
#include <cublas_v2.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include <sureleap/core/guarantee.hpp>
#include <sureleap/cuda/drafter/chain.cuh>

#include "data.cuh"
#include "measure.cuh"

namespace {

using namespace sureleap;
namespace device = sureleap::cuda;

constexpr std::uint32_t rank = 256;

/// Seconds of a multiply-add, in a product large enough to be bound by nothing else.
double seconds_per_multiplication() {
    static double const found = [] {
        constexpr int n = 8192;
        constexpr std::size_t size = std::size_t{n} * n;
        measure::stream on;
        measure::device_array<bf16> a(size);
        measure::device_array<bf16> b(size);
        measure::device_array<bf16> c(size);
        data::fill_normals<<<1024, 256>>>(a.get(), size, 1.0f, 1);
        data::fill_normals<<<1024, 256>>>(b.get(), size, 1.0f, 2);
        MEASURE_CHECK(cudaDeviceSynchronize());
        cublasHandle_t blas = nullptr;
        measure::device_array<unsigned char> room(std::size_t{64} << 20);
        cublasCreate(&blas);
        cublasSetStream(blas, on);
        cublasSetWorkspace(blas, room.get(), room.size());
        float const one = 1.0f;
        float const zero = 0.0f;
        double const seconds = measure::captured(on, 4, [&](unsigned) {
                                   cublasStatus_t const done =
                                       cublasGemmEx(blas, CUBLAS_OP_T, CUBLAS_OP_N, n, n, n, &one, a.get(), CUDA_R_16BF,
                                                    n, b.get(), CUDA_R_16BF, n, &zero, c.get(), CUDA_R_16BF, n,
                                                    CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
                                   return done == CUBLAS_STATUS_SUCCESS ? cudaSuccess : cudaErrorUnknown;
                               }).seconds(11);
        cublasDestroy(blas);
        return seconds / (static_cast<double>(n) * n * n);
    }();
    return found;
}

struct shape {
    std::uint32_t vocabulary;
    std::uint32_t requests;
    std::uint32_t gamma;

    explicit shape(benchmark::State const& state)
        : vocabulary(static_cast<std::uint32_t>(state.range(0))),
          requests(static_cast<std::uint32_t>(state.range(1))),
          gamma(static_cast<std::uint32_t>(state.range(2))) {}
    [[nodiscard]] device::round_limits limits() const { return {requests, gamma, vocabulary}; }
};

/// A head, base logits of so many rounds that no cache holds them, and memory.
struct scene {
    measure::device_array<bf16> w1;
    measure::device_array<bf16> w2;
    measure::device_array<bf16> base;  ///< [turns, R gamma, V]
    measure::device_array<unsigned char> memory;
    unsigned turns;
    shape of;
    data::round round;
    device::chain_memory chain{};

    explicit scene(shape const& s)
        : w1(std::size_t{s.vocabulary} * rank),
          w2(std::size_t{s.vocabulary} * rank),
          turns(measure::turns_for(rows(s) * s.vocabulary * sizeof(bf16))),
          of(s),
          round(s.limits(), 5) {
        base = measure::device_array<bf16>(turns * rows(s) * s.vocabulary);
        data::fill_normals<<<1024, 256>>>(w1.get(), w1.size(), 0.2f, 1);
        data::fill_normals<<<1024, 256>>>(w2.get(), w2.size(), 0.2f, 2);
        data::fill_normals<<<1024, 256>>>(base.get(), base.size(), 2.0f, 3);
        data::add_peaks<<<static_cast<unsigned>(turns * rows(s)), 64>>>(base.get(), s.vocabulary, 4);
        device::workspace sizer;
        static_cast<void>(carve_chain(sizer, s.limits(), shape_of(head())));
        memory = measure::device_array<unsigned char>(sizer.used());
        device::workspace ws{memory.get(), memory.size()};
        chain = carve_chain(ws, s.limits(), shape_of(head()));
        MEASURE_CHECK(cudaDeviceSynchronize());
    }
    [[nodiscard]] static std::size_t rows(shape const& s) { return std::size_t{s.requests} * s.gamma; }
    [[nodiscard]] device::markov<bf16> head() const {
        return {{w1.get(), of.vocabulary, rank}, {w2.get(), of.vocabulary, rank}};
    }
    [[nodiscard]] device::forward_view<bf16> forward(unsigned turn) const {
        return {{base.get() + turn * rows(of) * of.vocabulary, rows(of), of.vocabulary}, {}};
    }
    [[nodiscard]] cudaError_t draw(unsigned turn, cudaStream_t on) const {
        return draw_chain<categorical_draft>(head(), device::no_confidence{}, forward(turn), chain, round.columns, on);
    }
};

void product(benchmark::State& state) {
    scene const s{shape(state)};
    measure::stream on;
    // A chain first, so that there are codes and lists of those who draft.
    MEASURE_CHECK(s.draw(0, on));
    MEASURE_CHECK(cudaStreamSynchronize(on));
    measure::captured const calls(on, s.turns * s.of.gamma, [&](unsigned turn) {
        std::uint32_t const k = turn % s.of.gamma;
        return device::multiply<1>(device::product_step<bf16, bf16>{s.head().w2,
                                                                    s.forward(turn / s.of.gamma).base_logits,
                                                                    s.chain.code_rows_of<bf16>(1),
                                                                    s.chain.list(k),
                                                                    s.round.columns.requests.drafts,
                                                                    s.chain.statistics,
                                                                    {},
                                                                    k},
                                   s.of.requests, on);
    });
    std::size_t const bytes = (rank + s.of.requests) * std::size_t{s.of.vocabulary} * sizeof(bf16);
    double const copy = measure::copy_seconds(on, bytes);
    double const multiplications = static_cast<double>(rank) * s.of.requests * s.of.vocabulary;
    double const floor = std::max(copy, multiplications * seconds_per_multiplication());
    measure::run(state, calls, bytes, copy);
    state.counters["floor"] = state.counters["us"] / (1e6 * floor);
}

void block(benchmark::State& state) {
    scene const s{shape(state)};
    measure::stream on;
    measure::captured const calls(on, s.turns, [&](unsigned turn) { return s.draw(turn, on); });
    measure::run(state, calls, 0, 0.0);
    state.counters["us_step"] = state.counters["us"] / s.of.gamma;
}

void shapes(benchmark::internal::Benchmark* b) {
    b->UseManualTime()->ArgNames({"V", "R", "gamma"});
    for (int const v : {32000, 129280, 151936}) {
        for (int const r : {1, 8, 32, 128, 256}) b->Args({v, r, 7});
    }
    b->Args({151936, 128, 5});
}
BENCHMARK(product)->Name("chain/product")->Apply(shapes);
BENCHMARK(block)->Name("chain/block")->Apply(shapes);

}  // namespace
