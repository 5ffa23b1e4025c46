// SPDX-License-Identifier: MIT
//
// What the benchmarks of kernels measure with. The calls of a case are captured in one graph. So launches follow each
// other as closely as in an engine's round. Each call has data of its own, which come from device memory and not from
// the cache of the call before. The graph is replayed between two events in a stream that is still busy. So nothing of
// the host's stands between them. What an empty graph takes that way is subtracted.
//
//     us       median time of a call, in microseconds
//     GB/s     bytes that a call must read, each once, over that time
//     of_read  time of a kernel that only reads the same bytes, measured in the same run, over the time of a call
//     floor    where multiplications can take longer than the reading: time over the larger of both
//
// Rejected as the ceiling: copies. A copy node of a graph moves 2.7 TB/s on an H200, the same copy in a stream 4.3 TB/s
// (ceiling.cu measures both), and verification writes nothing.
#pragma once

#include <cuda_profiler_api.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "cases.hpp"

namespace measure {

inline void check(cudaError_t error, char const* what) {
    if (error != cudaSuccess) bench::give_up(what, cudaGetErrorString(error));
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

/// A stream that may be captured, and the events between which its work is timed.
class stream {
public:
    stream() {
        MEASURE_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
        MEASURE_CHECK(cudaEventCreate(&begin_));
        MEASURE_CHECK(cudaEventCreate(&end_));
    }
    stream(stream const&) = delete;
    stream& operator=(stream const&) = delete;
    ~stream() {
        cudaEventDestroy(begin_);
        cudaEventDestroy(end_);
        cudaStreamDestroy(stream_);
    }
    [[nodiscard]] operator cudaStream_t() const noexcept { return stream_; }

    /// Seconds that the device takes for what `enqueue`() puts into the stream.
    template <class Enqueue>
    [[nodiscard]] double seconds_of(Enqueue const& enqueue) const;

private:
    cudaStream_t stream_ = nullptr;
    cudaEvent_t begin_ = nullptr;
    cudaEvent_t end_ = nullptr;
};

/// Keeps a stream busy for so long.
template <class = void>
__global__ void wait_for(std::uint64_t nanoseconds) {
    std::uint64_t begin = 0;
    std::uint64_t now = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
    do {
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    } while (now - begin < nanoseconds);
}
template <class = void>
__global__ void do_nothing() {}

template <class Enqueue>
double stream::seconds_of(Enqueue const& enqueue) const {
    constexpr std::uint64_t longest = 200'000'000;
    for (std::uint64_t busy = 200'000; busy < longest; busy *= 2) {
        wait_for<<<1, 1, 0, stream_>>>(busy);
        MEASURE_CHECK(cudaEventRecord(begin_, stream_));
        MEASURE_CHECK(enqueue());
        MEASURE_CHECK(cudaEventRecord(end_, stream_));
        bool const was_busy = cudaEventQuery(begin_) == cudaErrorNotReady;
        MEASURE_CHECK(cudaEventSynchronize(end_));
        static_cast<void>(cudaGetLastError());  // "not ready" stays there otherwise
        float milliseconds = 0.0f;
        MEASURE_CHECK(cudaEventElapsedTime(&milliseconds, begin_, end_));
        if (was_busy) return 1e-3 * static_cast<double>(milliseconds);
    }
    bench::give_up("the host", "takes more than 100 ms to enqueue a graph");
}

[[nodiscard]] inline double median(std::vector<double> values) {
    auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// What one sample is: a median of so many makes a figure.
inline constexpr unsigned samples = 21;

/// A graph of what `enqueue`() puts into the stream.
class graph {
public:
    template <class Enqueue>
    graph(stream const& on, Enqueue const& enqueue) : stream_(on) {
        cudaGraph_t captured = nullptr;
        MEASURE_CHECK(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
        MEASURE_CHECK(enqueue());
        MEASURE_CHECK(cudaStreamEndCapture(stream_, &captured));
        MEASURE_CHECK(cudaGraphInstantiate(&replay_, captured, 0));
        MEASURE_CHECK(cudaGraphDestroy(captured));
    }
    graph(graph const&) = delete;
    graph& operator=(graph const&) = delete;
    ~graph() { cudaGraphExecDestroy(replay_); }

    void replay() const {
        MEASURE_CHECK(cudaGraphLaunch(replay_, stream_));
        MEASURE_CHECK(cudaStreamSynchronize(stream_));
    }
    /// Seconds of each of `samples` replays, after one that does not count.
    [[nodiscard]] std::vector<double> seconds() const {
        replay();
        std::vector<double> all(samples);
        for (double& one : all) one = stream_.seconds_of([&] { return cudaGraphLaunch(replay_, stream_); });
        return all;
    }

private:
    stream const& stream_;
    cudaGraphExec_t replay_ = nullptr;
};

/// What a graph takes that does next to nothing: one kernel of one thread. A graph without nodes is not launched at
/// all.
[[nodiscard]] inline double empty_graph_seconds(stream const& on) {
    static double const found = [&] {
        graph const empty(on, [&] {
            do_nothing<<<1, 1, 0, on>>>();
            return cudaGetLastError();
        });
        return median(empty.seconds());
    }();
    return found;
}

/// call(turn) for turns 0 .. turns - 1, captured once; over again where there are few, so that what a graph takes by
/// itself is divided by at least eight. With bench --once: called once, outside of a graph, for a profiler.
class captured {
public:
    template <class Call>
    captured(stream const& on, unsigned turns, Call const& call) {
        if (bench::once()) {
            MEASURE_CHECK(cudaStreamSynchronize(on));
            MEASURE_CHECK(cudaProfilerStart());
            MEASURE_CHECK(call(0));
            MEASURE_CHECK(cudaStreamSynchronize(on));
            MEASURE_CHECK(cudaProfilerStop());
            seconds_ = {1.0};
            return;
        }
        constexpr unsigned least_calls = 8;
        unsigned const calls = turns * ((least_calls + turns - 1) / turns);
        graph const all(on, [&] {
            cudaError_t error = cudaSuccess;
            for (unsigned i = 0; i < calls && error == cudaSuccess; ++i) error = call(i % turns);
            return error;
        });
        double const empty = empty_graph_seconds(on);
        for (double const sample : all.seconds()) seconds_.push_back(std::max(sample - empty, 0.0) / calls);
    }
    /// Seconds of a call, in every sample.
    [[nodiscard]] std::vector<double> const& all() const noexcept { return seconds_; }
    [[nodiscard]] double seconds() const { return median(seconds_); }

private:
    std::vector<double> seconds_;
};

/// Turns that together touch so much that the cache holds nothing of a call when its turn comes again.
[[nodiscard]] inline unsigned turns_for(std::size_t bytes) {
    int cache = 0;
    MEASURE_CHECK(cudaDeviceGetAttribute(&cache, cudaDevAttrL2CacheSize, 0));
    std::size_t const wanted = 4 * static_cast<std::size_t>(cache);
    return static_cast<unsigned>(
        std::clamp<std::size_t>((wanted + bytes - 1) / std::max<std::size_t>(bytes, 1), 1, 64));
}

[[nodiscard]] inline unsigned multiprocessors() {
    int found = 0;
    MEASURE_CHECK(cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, 0));
    return static_cast<unsigned>(found);
}

/// Reads so many 16 bytes, or copies them where there is a `to`. Eight loads of a thread are in flight.
template <class = void>
__global__ void __launch_bounds__(256) read_or_copy(uint4 const* from, std::size_t size, uint4* to, uint4* never) {
    constexpr unsigned loads = 8;
    std::size_t const step = std::size_t{gridDim.x} * blockDim.x * loads;
    uint4 seen{};
    for (std::size_t first = std::size_t{blockIdx.x} * blockDim.x * loads + threadIdx.x; first < size; first += step) {
        uint4 read[loads];
#pragma unroll
        for (unsigned i = 0; i < loads; ++i) {
            std::size_t const at = first + i * blockDim.x;
            read[i] = at < size ? __ldcs(from + at) : uint4{};
        }
#pragma unroll
        for (unsigned i = 0; i < loads; ++i) {
            std::size_t const at = first + i * blockDim.x;
            if (to != nullptr && at < size) __stcs(to + at, read[i]);
            seen.x ^= read[i].x ^ read[i].y ^ read[i].z ^ read[i].w;
        }
    }
    if (never != nullptr) *never = seen;  // or nothing would be read
}

/// Seconds of a kernel that reads `bytes` of from[turn], by the best of some grids; with to[turn], copies them there.
[[nodiscard]] inline double stream_seconds(stream const& on, std::size_t bytes, std::vector<void const*> const& from,
                                           std::vector<void*> const& to = {}) {
    if (bench::once()) return 1.0;
    double best = 1e9;
    for (unsigned const residency : {2u, 4u, 8u}) {
        captured const calls(on, static_cast<unsigned>(from.size()), [&](unsigned turn) {
            read_or_copy<<<residency * multiprocessors(), 256, 0, on>>>(
                static_cast<uint4 const*>(from[turn]), bytes / sizeof(uint4),
                to.empty() ? nullptr : static_cast<uint4*>(to[turn]), nullptr);
            return cudaGetLastError();
        });
        best = std::min(best, calls.seconds());
    }
    return best;
}

/// Sets the time of a case, and its figures over the reading of `bytes` in `read` seconds; 0: nothing to compare with.
inline void report(bench::state& state, captured const& calls, std::size_t bytes = 0, double read = 0.0) {
    state.set_seconds(calls.all());
    if (bytes == 0) return;
    state.figure("GB/s", 1e-9 * static_cast<double>(bytes) / calls.seconds());
    state.figure("of_read", read / calls.seconds());
}

}  // namespace measure
