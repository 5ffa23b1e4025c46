// SPDX-License-Identifier: MIT
//
// What the benchmarks of kernels measure with. The calls of a case are captured in one graph, each on data of its own.
// The graph is replayed between two events. So launches follow each other as closely as in an engine's round. Data
// comes from device memory and not from the cache of the call before.
//
//     us        median time of a call, in microseconds
//     GB/s      bytes that the case says it must read and write, over that time
//     vs_copy   bandwidth of a device copy of as many bytes (read + written), measured in the same run, as a share: GB/s over it
//     floor     where there is one that is no copy: time over it
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

namespace measure {

inline void check(cudaError_t error, char const* what) {
    if (error == cudaSuccess) return;
    std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(error));
    std::exit(1);
}
#define MEASURE_CHECK(call) ::measure::check((call), #call)

/// Device memory that frees itself. Not initialised: a case fills what it reads.
template <class T>
class device_array {
public:
    device_array() = default;
    explicit device_array(std::size_t size) : size_(size) {
        MEASURE_CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), std::max<std::size_t>(size, 1) * sizeof(T)));
    }
    explicit device_array(std::vector<T> const& values) : device_array(values.size()) {
        MEASURE_CHECK(cudaMemcpy(data_, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    }
    device_array(device_array&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
    device_array& operator=(device_array&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~device_array() { cudaFree(data_); }

    [[nodiscard]] T* get() const noexcept { return data_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::vector<T> read() const {
        std::vector<T> values(size_);
        MEASURE_CHECK(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost));
        return values;
    }

private:
    T* data_ = nullptr;
    std::size_t size_ = 0;
};

/// A stream that may be captured.
class stream {
public:
    stream() { MEASURE_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
    stream(stream const&) = delete;
    stream& operator=(stream const&) = delete;
    ~stream() { cudaStreamDestroy(stream_); }
    [[nodiscard]] operator cudaStream_t() const noexcept { return stream_; }

private:
    cudaStream_t stream_ = nullptr;
};

[[nodiscard]] inline double median(std::vector<double> values) {
    auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// call(turn) for turns 0 .. turns - 1, captured once.
class captured {
public:
    template <class Call>
    captured(stream const& on, unsigned turns, Call const& call) : stream_(on), turns_(turns) {
        cudaGraph_t graph = nullptr;
        MEASURE_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
        for (unsigned turn = 0; turn < turns; ++turn) MEASURE_CHECK(call(turn));
        MEASURE_CHECK(cudaStreamEndCapture(stream_, &graph));
        MEASURE_CHECK(cudaGraphInstantiate(&replay_, graph, 0));
        MEASURE_CHECK(cudaGraphDestroy(graph));
        MEASURE_CHECK(cudaEventCreate(&begin_));
        MEASURE_CHECK(cudaEventCreate(&end_));
    }
    captured(captured const&) = delete;
    captured& operator=(captured const&) = delete;
    ~captured() {
        cudaGraphExecDestroy(replay_);
        cudaEventDestroy(begin_);
        cudaEventDestroy(end_);
    }

    /// Seconds of a call, the mean over one replay.
    [[nodiscard]] double replay() const {
        MEASURE_CHECK(cudaEventRecord(begin_, stream_));
        MEASURE_CHECK(cudaGraphLaunch(replay_, stream_));
        MEASURE_CHECK(cudaEventRecord(end_, stream_));
        MEASURE_CHECK(cudaEventSynchronize(end_));
        float milliseconds = 0.0f;
        MEASURE_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
        return 1e-3 * static_cast<double>(milliseconds) / turns_;
    }
    /// Median over `times` replays, after one that does not count.
    [[nodiscard]] double seconds(unsigned times) const {
        static_cast<void>(replay());
        std::vector<double> all(times);
        for (double& one : all) one = replay();
        return median(std::move(all));
    }

private:
    cudaStream_t stream_;
    unsigned turns_;
    cudaGraphExec_t replay_ = nullptr;
    cudaEvent_t begin_ = nullptr;
    cudaEvent_t end_ = nullptr;
};

/// Turns that together touch so much that the cache holds nothing of a call when its turn comes again.
[[nodiscard]] inline unsigned turns_for(std::size_t bytes) {
    int cache = 0;
    MEASURE_CHECK(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, 0));
    std::size_t const wanted = 4 * static_cast<std::size_t>(cache);
    return static_cast<unsigned>(
        std::clamp<std::size_t>((wanted + bytes - 1) / std::max<std::size_t>(bytes, 1), 1, 64));
}

/// Seconds of a device copy that reads and writes `bytes` altogether, on rotating data.
[[nodiscard]] inline double copy_seconds(stream const& on, std::size_t bytes) {
    std::size_t const half = std::max<std::size_t>(bytes / 2 / 16 * 16, 16);
    unsigned const turns = turns_for(bytes);
    device_array<unsigned char> const from(half * turns);
    device_array<unsigned char> const to(half * turns);
    MEASURE_CHECK(cudaMemset(from.get(), 0x5a, from.size()));
    captured const copies(on, turns, [&](unsigned turn) {
        return cudaMemcpyAsync(to.get() + turn * half, from.get() + turn * half, half, cudaMemcpyDeviceToDevice, on);
    });
    return copies.seconds(21);
}

/// Replays `calls` as long as the benchmark wants, and sets the counters. `bytes`: what a call must read and write at least;
/// 0: nothing to compare with.
inline void run(benchmark::State& state, captured const& calls, std::size_t bytes, double copy) {
    static_cast<void>(calls.replay());
    std::vector<double> all;
    for (auto _ : state) {
        all.push_back(calls.replay());
        state.SetIterationTime(all.back());
    }
    double const seconds = median(std::move(all));
    state.counters["us"] = 1e6 * seconds;
    if (bytes == 0) return;
    state.counters["GB/s"] = 1e-9 * static_cast<double>(bytes) / seconds;
    state.counters["vs_copy"] = copy / seconds;
}

}  // namespace measure
