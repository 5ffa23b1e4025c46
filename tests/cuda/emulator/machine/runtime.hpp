// SPDX-License-Identifier: MIT
//
// What is behind the runtime API: memory, streams, launches. Device memory is host memory. Every stream runs at once
// and in order, but for work that waits for other host threads (nccl.h), and for what is behind it. A launch is refused
// for the reasons for which an H200 would refuse it. Host threads take turns.
//
// A stream that captures runs nothing: its work is kept, with arguments as they are then, and done at every replay.
// What a capture cannot keep makes it invalid, as in CUDA: allocations, copies that wait, waiting itself. Stricter than
// CUDA: so does work on another stream, which would be done once and be missing from the graph.
//
// A kernel that goes wrong makes its launch return cudaErrorLaunchFailure. As on a device the error stays: every later
// call returns it, cudaGetErrorString tells what happened, and the program ends with an error, unless
// emulator::caught() takes it. No exception is thrown, because the library's functions are noexcept.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "api_types.hpp"
#include "atomics.hpp"
#include "machine.hpp"

namespace emulator::detail {

class runtime {
public:
    static constexpr std::size_t shared_by_default = 48 * 1024;
    static constexpr std::size_t shared_at_most = 227 * 1024;
    static constexpr std::size_t shared_of_processor = 228 * 1024;
    static constexpr std::size_t parameters_at_most = 4096;
    static constexpr int processors = 3;  // few, so that the blocks of a persistent grid have more than one task each

    static runtime& the() {
        static runtime instance;
        return instance;
    }

    cudaError_t stored() const { return report_.empty() ? cudaSuccess : cudaErrorLaunchFailure; }
    std::string const& report() const { return report_; }
    std::string take_report() {
        std::lock_guard const lock(turn_);
        return std::exchange(report_, {});
    }
    /// Something other than a kernel went wrong.
    void fail(std::string report) {
        std::lock_guard const lock(turn_);
        if (report_.empty()) report_ = std::move(report);
    }

    /// Every function's outcome passes here.
    cudaError_t note(cudaError_t error) {
        std::lock_guard const lock(turn_);
        if (!report_.empty()) return cudaErrorLaunchFailure;
        if (error != cudaSuccess) last_of_thread() = error;
        return error;
    }
    cudaError_t last(bool forget) {
        std::lock_guard const lock(turn_);
        if (!report_.empty()) return cudaErrorLaunchFailure;
        return forget ? std::exchange(last_of_thread(), cudaSuccess) : last_of_thread();
    }

    // ---- streams
    // -------------------------------------------------------------------------------------------------------

    cudaStream_t make_stream() {
        std::lock_guard const lock(turn_);
        return streams_.emplace(std::make_unique<CUstream_st>()).first->get();
    }
    cudaError_t end_stream(cudaStream_t stream) {
        std::lock_guard const lock(turn_);
        if (capturing_ == stream) capturing_ = nullptr;
        auto const ended = std::erase_if(streams_, [&](auto const& each) { return each.get() == stream; });
        return note(ended == 1 ? cudaSuccess : cudaErrorInvalidResourceHandle);
    }

    /// Work that a graph can keep: done now, or kept.
    cudaError_t enqueue(cudaStream_t stream, std::function<void()> work) {
        std::lock_guard const lock(turn_);
        if (!report_.empty()) return cudaErrorLaunchFailure;
        if (!is_stream(stream)) return note(cudaErrorInvalidResourceHandle);
        if (capturing_ == nullptr) {
            if (stream != nullptr && !stream->waiting.empty()) {
                stream->waiting.push_back([work = std::move(work)] {
                    work();
                    return true;
                });
                return note(cudaSuccess);
            }
            work();
            return note(stored());
        }
        if (capturing_->invalid) return note(cudaErrorStreamCaptureInvalidated);
        if (stream != capturing_) {
            capturing_->invalid = true;
            return note(cudaErrorStreamCaptureImplicit);
        }
        capturing_->captured->work.push_back(std::move(work));
        return note(cudaSuccess);
    }
    /// Work that others end: true once it is done, asked by query(). Of streams that were made.
    cudaError_t enqueue_waiting(cudaStream_t stream, std::function<bool()> is_done) {
        std::lock_guard const lock(turn_);
        if (stream == nullptr || !is_stream(stream)) return note(cudaErrorInvalidResourceHandle);
        if (cudaError_t const error = not_in_capture(); error != cudaSuccess) return error;
        stream->waiting.push_back(std::move(is_done));
        return note(cudaSuccess);
    }
    /// cudaErrorNotReady, which is kept as an error is, while something on the stream waits.
    cudaError_t query(cudaStream_t stream) {
        std::lock_guard const lock(turn_);
        if (cudaError_t const error = not_in_capture(); error != cudaSuccess) return error;
        if (stream == nullptr) return note(cudaSuccess);
        if (!is_stream(stream)) return note(cudaErrorInvalidResourceHandle);
        auto& waiting = stream->waiting;
        while (!waiting.empty() && waiting.front()()) waiting.pop_front();
        return note(waiting.empty() ? stored() : cudaErrorNotReady);
    }
    /// Until nothing on it waits.
    cudaError_t finish(cudaStream_t stream) {
        for (;;) {
            cudaError_t const error = query(stream);
            if (error != cudaErrorNotReady) return error;
            static_cast<void>(last(true));
            std::this_thread::yield();
        }
    }
    /// What no graph can keep begins with this: an error while a stream captures.
    cudaError_t not_in_capture() {
        std::lock_guard const lock(turn_);
        if (capturing_ == nullptr || !report_.empty()) return note(cudaSuccess);
        capturing_->invalid = true;
        return note(cudaErrorStreamCaptureUnsupported);
    }

    cudaError_t begin_capture(cudaStream_t stream) {
        std::lock_guard const lock(turn_);
        if (stream == nullptr) return note(cudaErrorStreamCaptureUnsupported);
        if (!is_stream(stream)) return note(cudaErrorInvalidResourceHandle);
        if (capturing_ != nullptr) return note(cudaErrorIllegalState);  // CUDA captures several; nobody here does
        capturing_ = stream;
        stream->captured = std::make_unique<CUgraph_st>();
        stream->invalid = false;
        return note(cudaSuccess);
    }
    cudaError_t end_capture(cudaStream_t stream, cudaGraph_t* graph) {
        std::lock_guard const lock(turn_);
        *graph = nullptr;
        if (stream == nullptr || stream != capturing_) return note(cudaErrorIllegalState);
        capturing_ = nullptr;
        auto captured = std::move(stream->captured);
        if (stream->invalid) return note(cudaErrorStreamCaptureInvalidated);
        *graph = captured.release();
        return note(cudaSuccess);
    }
    cudaError_t replay(CUgraphExec_st const& graph, cudaStream_t stream) {
        std::lock_guard const lock(turn_);
        if (capturing_ != nullptr) return not_in_capture();  // CUDA would keep it as a graph within the graph
        if (!is_stream(stream)) return note(cudaErrorInvalidResourceHandle);
        for (auto const& work : graph.work) {
            if (!report_.empty()) break;
            work();
        }
        return note(stored());
    }

    // ---- memory
    // --------------------------------------------------------------------------------------------------------

    cudaError_t allocate(void** result, std::size_t bytes) {
        std::lock_guard const lock(turn_);
        if (result == nullptr) return note(cudaErrorInvalidValue);
        *result = nullptr;
        if (cudaError_t const error = not_in_capture(); error != cudaSuccess || bytes == 0) return error;
#if defined(EMULATOR_ASAN)
        std::size_t const guards = 0;
#else
        std::size_t const guards = guard_bytes;
#endif
        void* memory = nullptr;
        if (posix_memalign(&memory, guard_bytes, bytes + 2 * guards) != 0) return note(cudaErrorMemoryAllocation);
        std::byte* const start = static_cast<std::byte*>(memory) + guards;
        std::memset(memory, guard_value, guards);
        std::memset(start + bytes, guard_value, guards);
        fill_with_poison(start, bytes);
        allocations_[start] = {bytes, memory};
        *result = start;
        return note(cudaSuccess);
    }

    cudaError_t release(void* address) {
        std::lock_guard const lock(turn_);
        if (cudaError_t const error = not_in_capture(); error == cudaErrorStreamCaptureUnsupported) return error;
        if (address == nullptr) return note(cudaSuccess);
        auto const found = allocations_.find(static_cast<std::byte*>(address));
        if (found == allocations_.end()) return note(cudaErrorInvalidValue);
        check_guards(found->first, found->second.bytes);
        std::free(found->second.memory);
        allocations_.erase(found);
        return note(cudaSuccess);
    }

    cudaError_t allocate_host(void** result, std::size_t bytes) {
        std::lock_guard const lock(turn_);
        if (cudaError_t const error = not_in_capture(); error != cudaSuccess) return error;
        *result = std::malloc(bytes);
        if (*result == nullptr) return note(cudaErrorMemoryAllocation);
        fill_with_poison(*result, bytes);
        host_memory_.insert(*result);
        return note(cudaSuccess);
    }
    cudaError_t release_host(void* address) {
        std::lock_guard const lock(turn_);
        if (address != nullptr && host_memory_.erase(address) == 0) return note(cudaErrorInvalidValue);
        std::free(address);
        return note(cudaSuccess);
    }

    bool is_device(void const* address, std::size_t bytes) const {
        std::lock_guard const lock(turn_);
        auto const* const start = static_cast<std::byte const*>(address);
        auto next = allocations_.upper_bound(const_cast<std::byte*>(start));
        if (next == allocations_.begin()) return false;
        --next;
        return start + bytes <= next->first + next->second.bytes;
    }

    cudaError_t copy(void* to, void const* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
        std::lock_guard const lock(turn_);
        bool const to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
        bool const from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
        if (!report_.empty() || bytes == 0) return note(cudaSuccess);
        if ((to_device && !is_device(to, bytes)) || (from_device && !is_device(from, bytes))) {
            return note(cudaErrorInvalidValue);
        }
        return enqueue(stream, [=] { std::memmove(to, from, bytes); });
    }

    cudaError_t fill(void* address, int value, std::size_t bytes, cudaStream_t stream) {
        std::lock_guard const lock(turn_);
        if (!report_.empty() || bytes == 0) return note(cudaSuccess);
        if (!is_device(address, bytes)) return note(cudaErrorInvalidValue);
        return enqueue(stream, [=] { std::memset(address, value, bytes); });
    }

    // ---- launches
    // ------------------------------------------------------------------------------------------------------

    cudaError_t allow_shared(void const* kernel, int bytes) {
        std::lock_guard const lock(turn_);
        if (kernel == nullptr || bytes < 0 || static_cast<std::size_t>(bytes) > shared_at_most) {
            return note(cudaErrorInvalidValue);
        }
        allowed_shared_[kernel] = static_cast<std::size_t>(bytes);
        return note(cudaSuccess);
    }

    cudaError_t launch(launch_shape const& shape, std::size_t parameter_bytes, void (*invoke)(void*),
                       std::shared_ptr<void> arguments, cudaStream_t stream) {
        std::lock_guard const lock(turn_);
        if (!report_.empty()) return cudaErrorLaunchFailure;
        if (shape.kernel == nullptr) return note(cudaErrorInvalidDeviceFunction);
        dim3 const& b = shape.block;
        dim3 const& g = shape.grid;
        if (b.x == 0 || b.y == 0 || b.z == 0 || b.x > 1024 || b.y > 1024 || b.z > 64 || b.x * b.y * b.z > 1024) {
            return note(cudaErrorInvalidConfiguration);
        }
        if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7fffffffu || g.y > 65535 || g.z > 65535) {
            return note(cudaErrorInvalidConfiguration);
        }
        auto const allowed = allowed_shared_.find(shape.kernel);
        if (shape.shared_bytes >
            (allowed == allowed_shared_.end() ? shared_by_default : std::max(shared_by_default, allowed->second))) {
            return note(cudaErrorInvalidValue);
        }
        if (parameter_bytes > parameters_at_most) return note(cudaErrorInvalidValue);
        return enqueue(stream, [this, shape, invoke, arguments = std::move(arguments)] {
            report_ = machine::the().launch(shape, invoke, arguments.get());
        });
    }

private:
    static constexpr std::size_t guard_bytes = 256;
    static constexpr unsigned char guard_value = 0xc5;
    struct allocation {
        std::size_t bytes;
        void* memory;
    };

    runtime() { machine::the(); }  // which must outlive this
    ~runtime() {
        // What nobody freed ends with the program, as on a device.
        for (auto const& [start, each] : allocations_) {
            check_guards(start, each.bytes);
            std::free(each.memory);
        }
        for (void* const memory : host_memory_) std::free(memory);
        if (!report_.empty()) {
            std::fprintf(stderr, "emulator: a kernel failed and nobody asked: %s\n", report_.c_str());
            std::fflush(nullptr);
            std::_Exit(86);
        }
    }

    static cudaError_t& last_of_thread() {
        static thread_local cudaError_t last = cudaSuccess;
        return last;
    }

    bool is_stream(cudaStream_t stream) const {
        return stream == nullptr ||
               std::any_of(streams_.begin(), streams_.end(), [&](auto const& each) { return each.get() == stream; });
    }

    void check_guards([[maybe_unused]] std::byte const* start, [[maybe_unused]] std::size_t bytes) {
#if !defined(EMULATOR_ASAN)
        for (std::size_t i = 0; i < guard_bytes && report_.empty(); ++i) {
            if (start[bytes + i] != std::byte{guard_value}) {
                report_ = "some kernel wrote past the end of " + std::to_string(bytes) +
                          " bytes of device memory, at byte " + std::to_string(bytes + i);
            } else if (start[-1 - static_cast<std::ptrdiff_t>(i)] != std::byte{guard_value}) {
                report_ = "some kernel wrote before the start of " + std::to_string(bytes) +
                          " bytes of device memory, at byte -" + std::to_string(i + 1);
            }
        }
#endif
    }

    mutable std::recursive_mutex turn_;
    std::string report_;
    std::map<std::byte*, allocation> allocations_;
    std::map<void const*, std::size_t> allowed_shared_;
    std::set<void*> host_memory_;
    std::set<std::unique_ptr<CUstream_st>> streams_;
    cudaStream_t capturing_ = nullptr;
};

}  // namespace emulator::detail

namespace emulator {

/// What went wrong in a kernel, or nothing; from then on launches run again.
inline std::string caught() {
    return detail::runtime::the().take_report();
}

}  // namespace emulator
