// SPDX-License-Identifier: MIT
//
// The engine's products with stored weights, at the shapes of Qwen3 and the batch sizes of decoding (1), verification
// (8) and prefill (64, 256). Weights rotate through a buffer larger than any cache, as they do in a forward pass.
//
// A small batch cannot be faster than reading its weights. So every product is followed by a pure read of as many other
// bytes of the same buffer. of_read is the time of the reads over that of the products. Interleaving them lets a busy
// machine slow down both. For a large batch GFLOP/s is the number to look at.
#include <cstddef>
#include <cstdint>
#include <vector>

#include <benchmark/benchmark.h>

#include "engine/kernels.hpp"
#include "measure.hpp"

namespace {

using namespace engine;

constexpr std::size_t buffer_bytes = std::size_t{1} << 30;

/// 1 GiB of numbers that are small and normal in every storage: no product is infinite, none is slow.
std::vector<std::uint32_t> const& buffer() {
    static std::vector<std::uint32_t> const all = [] {
        std::vector<std::uint32_t> words(buffer_bytes / 4);
        std::uint32_t bits = 1;
        for (std::uint32_t& word : words) {
            bits = bits * 1664525U + 1013904223U;
            word = (bits >> 8 & 0x83ffU) | (bits & 0x83ff0000U) | 0x3c003c00U;
        }
        return words;
    }();
    return all;
}

thread_pool& pool() {
    static thread_pool all;
    return all;
}

void product(benchmark::State& state, storage type) {
    auto const n = static_cast<std::size_t>(state.range(0));
    auto const rows = static_cast<std::size_t>(state.range(1));
    auto const cols = static_cast<std::size_t>(state.range(2));
    weight w{nullptr, type, rows, cols};
    std::size_t const copies = buffer_bytes / w.bytes();
    auto const copy = [&](std::size_t i) {
        return reinterpret_cast<char const*>(buffer().data()) + i % copies * w.bytes();
    };
    std::vector<float> x(n * cols, 0.25f);
    std::vector<float> y(n * rows);
    double products = 0.0;
    double reads = 0.0;
    std::size_t turn = 0;
    for (auto _ : state) {
        w.data = copy(turn);
        double const seconds = measure::seconds_of([&] { matmul(pool(), x.data(), n, w, y.data()); });
        state.SetIterationTime(seconds);
        products += seconds;
        reads += static_cast<double>(w.bytes()) / read_bandwidth(pool(), copy(turn + copies / 2), w.bytes(), 1);
        ++turn;
    }
    auto const turns = static_cast<double>(turn);
    state.counters["GB/s"] = static_cast<double>(w.bytes()) * turns / products * 1e-9;
    state.counters["of_read"] = reads / products;
    state.counters["GFLOP/s"] = 2.0 * static_cast<double>(n * rows * cols) * turns / products * 1e-9;
}

void shapes(benchmark::internal::Benchmark* b) {
    for (std::int64_t const n : {1, 8, 64, 256}) {
        b->Args({n, 3072, 1024});
        b->Args({n, 9728, 2560});
        b->Args({n, 151936, 1024});
    }
    b->ArgNames({"n", "rows", "cols"})->UseManualTime()->Unit(benchmark::kMillisecond);
}

BENCHMARK_CAPTURE(product, bf16, storage::bf16)->Apply(shapes);
BENCHMARK_CAPTURE(product, f32, storage::f32)->Apply(shapes);

}  // namespace
