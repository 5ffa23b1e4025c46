// SPDX-License-Identifier: MIT
//
// Ranks that have a GPU each, over NCCL 2.14 or later (CMake: sureleap::nccl). There is no device code in it: any
// compiler will do.
//
//     cudaSetDevice(device);
//     ncclCommInitRankConfig(&engine, size, id, rank, &config);  // with config.blocking = 0
//     nccl_ranks ranks{engine, stream, {.most_bytes = 1 << 16, .seconds = 10}};
//
// The communicator stays the user's, and so does the stream. An exchange waits for what is on the stream already, and
// counts as a collective among the engine's own. A communicator of its own (ncclCommSplit) and a stream of its own keep
// it apart from both.
//
// NCCL has no time limits. The device works for itself, and is polled until it is done or the time is over. What is not
// done by then may still be written to later, so its buffers are given up and not freed. The engine reports the failure
// and calls ncclCommAbort, which ends what waits on the stream for a rank that is gone.
//
// NCCL's own calls return at once where the communicator does not block. One that blocks may wait in them for as long
// as it likes for a rank that is gone, as where it connects to it.
//
// All-gathers in which ranks disagree about the number of bytes are undefined. So the first one always has the same
// size: how many bytes a rank sends, and the first of these. Longer records take a second one.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>

SURELEAP_BEGIN_NAMESPACE

struct nccl_ranks_options {
    std::size_t most_bytes = 1 << 16;  ///< that a rank sends in one exchange; the same on all ranks
    double seconds = 60.0;             ///< that a rank waits for the others
};

/// The ranks of an NCCL communicator. Models communicator: records come from host memory and go there. Calls come from
/// one thread at a time. Made by all ranks together; destroyed by each for itself.
class nccl_ranks {
public:
    /// `engine`: initialised, of the current device. `engine` and `stream` must outlive it. Throws sureleap::error if
    /// the options cannot be met, or if NCCL or CUDA report an error. So it does if a rank is not there in time, or has
    /// other most_bytes.
    nccl_ranks(ncclComm_t engine, cudaStream_t stream, nccl_ranks_options const& options = {})
        : options_(options), engine_(engine), stream_(stream) {
        if (!(options.seconds > 0.0)) {
            fail_with("nccl_ranks: seconds is ", options.seconds, ", expected more than 0");
        }
        if (engine == nullptr) fail_with("nccl_ranks: the communicator is null, expected an initialised one");
        check(ncclCommUserRank(engine, &rank_), "ncclCommUserRank");
        check(ncclCommCount(engine, &size_), "ncclCommCount");
        int device = 0;
        int current = 0;
        check(ncclCommCuDevice(engine, &device), "ncclCommCuDevice");
        check(cudaGetDevice(&current), "cudaGetDevice");
        if (device != current) {
            fail_with("nccl_ranks: the current device is ", current, ", expected ", device, ", the communicator's");
        }
        std::size_t const room = std::max(options.most_bytes, frame_bytes);
        host_sent_ = on_host(room);
        host_received_ = on_host(room * size());
        device_sent_ = on_device(room);
        device_received_ = on_device(room * size());
        expect_same_options();
    }

    [[nodiscard]] std::size_t rank() const noexcept { return static_cast<std::size_t>(rank_); }
    [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(size_); }

    [[nodiscard]] bool gather(std::span<std::byte const> own, std::span<std::byte> all) noexcept {
        bool const fits = own.size() <= options_.most_bytes && all.size() == own.size() * size();
        return (!failed_ && fits && send(own, all)) || give_up();
    }

private:
    using clock = std::chrono::steady_clock;
    using time_limit = std::chrono::time_point<clock, std::chrono::duration<double>>;

    /// Of the first all-gather: few enough that latency is all that they cost.
    static constexpr std::size_t frame_bytes = 4096;

    struct free_on_host {
        void operator()(std::byte* memory) const noexcept { static_cast<void>(cudaFreeHost(memory)); }
    };
    struct free_on_device {
        void operator()(std::byte* memory) const noexcept { static_cast<void>(cudaFree(memory)); }
    };
    using host_bytes = std::unique_ptr<std::byte[], free_on_host>;
    using device_bytes = std::unique_ptr<std::byte[], free_on_device>;

    [[nodiscard]] static host_bytes on_host(std::size_t bytes) {
        void* memory = nullptr;
        check(cudaMallocHost(&memory, bytes), "cudaMallocHost");
        return host_bytes{static_cast<std::byte*>(memory)};
    }
    [[nodiscard]] static device_bytes on_device(std::size_t bytes) {
        void* memory = nullptr;
        check(cudaMalloc(&memory, bytes), "cudaMalloc");
        return device_bytes{static_cast<std::byte*>(memory)};
    }
    static void check(ncclResult_t error, char const* call) {
        if (error != ncclSuccess) fail_with("nccl_ranks: ", call, " failed: ", ncclGetErrorString(error));
    }
    static void check(cudaError_t error, char const* call) {
        if (error != cudaSuccess) fail_with("nccl_ranks: ", call, " failed: ", cudaGetErrorString(error));
    }
    /// Connects the ranks as well, while all of them are known to be there.
    void expect_same_options() {
        std::uint64_t const own = options_.most_bytes;
        std::vector<std::uint64_t> all(size());
        if (!send(std::as_bytes(std::span{&own, 1}), std::as_writable_bytes(std::span(all)))) {
            static_cast<void>(give_up());
            fail_with("nccl_ranks: the first exchange of rank ", rank_, " failed, expected all ", size_,
                      " ranks to come within ", options_.seconds, " s");
        }
        if (own != all[0]) {
            fail_with("nccl_ranks: most_bytes of rank ", rank_, " is ", own, ", expected ", all[0], " as on rank 0");
        }
    }

    /// Gathers what fits.
    [[nodiscard]] bool send(std::span<std::byte const> own, std::span<std::byte> all) noexcept {
        auto const limit = clock::now() + std::chrono::duration<double>(options_.seconds);
        std::uint64_t const bytes = own.size();
        std::size_t const begun = std::min(own.size(), frame_bytes - sizeof bytes);
        std::memcpy(host_sent_.get(), &bytes, sizeof bytes);
        std::copy_n(own.data(), begun, host_sent_.get() + sizeof bytes);
        if (!exchange(frame_bytes, limit)) return false;
        for (std::size_t r = 0; r < size(); ++r) {
            std::byte const* const frame = host_received_.get() + r * frame_bytes;
            if (std::memcmp(frame, &bytes, sizeof bytes) != 0) return false;
            std::copy_n(frame + sizeof bytes, begun, all.data() + r * own.size());
        }
        std::size_t const rest = own.size() - begun;
        if (rest == 0) return true;
        std::copy_n(own.data() + begun, rest, host_sent_.get());
        if (!exchange(rest, limit)) return false;
        for (std::size_t r = 0; r < size(); ++r) {
            std::copy_n(host_received_.get() + r * rest, rest, all.data() + r * own.size() + begun);
        }
        return true;
    }
    /// So many bytes of host_sent_ of each rank, into host_received_.
    [[nodiscard]] bool exchange(std::size_t bytes, time_limit const& limit) noexcept {
        if (cudaMemcpyAsync(device_sent_.get(), host_sent_.get(), bytes, cudaMemcpyHostToDevice, stream_) !=
            cudaSuccess) {
            return false;
        }
        ncclResult_t const begun =
            ncclAllGather(device_sent_.get(), device_received_.get(), bytes, ncclUint8, engine_, stream_);
        if (begun != ncclSuccess && begun != ncclInProgress) return false;
        if (!wait([] { return cudaSuccess; }, limit)) return false;  // before that it may not be on the stream
        if (cudaMemcpyAsync(host_received_.get(), device_received_.get(), bytes * size(), cudaMemcpyDeviceToHost,
                            stream_) != cudaSuccess) {
            return false;
        }
        return wait([this] { return cudaStreamQuery(stream_); }, limit);
    }
    /// Until NCCL's calls and what state() tells of the device are done. False: an error, or the time is over.
    template <class State>
    [[nodiscard]] bool wait(State const& state, time_limit const& limit) const noexcept {
        for (;;) {
            ncclResult_t engine = ncclSuccess;
            if (ncclCommGetAsyncError(engine_, &engine) != ncclSuccess) return false;
            if (engine != ncclSuccess && engine != ncclInProgress) return false;
            cudaError_t const device = state();
            // Which CUDA keeps for whoever next asks for an error.
            if (device == cudaErrorNotReady && cudaPeekAtLastError() == cudaErrorNotReady) {
                static_cast<void>(cudaGetLastError());
            }
            if (device != cudaSuccess && device != cudaErrorNotReady) return false;
            if (engine == ncclSuccess && device == cudaSuccess) return true;
            if (clock::now() > limit) return false;
            std::this_thread::yield();
        }
    }
    /// Buffers may still be written to, and to free them would wait for the device.
    [[nodiscard]] bool give_up() noexcept {
        failed_ = true;
        static_cast<void>(host_sent_.release());
        static_cast<void>(host_received_.release());
        static_cast<void>(device_sent_.release());
        static_cast<void>(device_received_.release());
        return false;
    }

    nccl_ranks_options options_;
    ncclComm_t engine_ = nullptr;
    cudaStream_t stream_ = nullptr;
    int rank_ = 0;
    int size_ = 1;
    host_bytes host_sent_{};          // [room]
    host_bytes host_received_{};      // [size, room]
    device_bytes device_sent_{};      // [room]
    device_bytes device_received_{};  // [size, room]
    bool failed_ = false;
};

SURELEAP_END_NAMESPACE
