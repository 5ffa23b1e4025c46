// SPDX-License-Identifier: MIT
//
// The part of NCCL that the library uses, among host threads: a rank is a thread. An all-gather waits on its stream
// until all ranks have come to it. Ranks that disagree about its size, which NCCL leaves undefined, are a failure of
// the program, as one of a kernel is.
//
// For tests, of a communicator that the thread has: emulator::set_async_error(comm, ncclRemoteError);
// emulator::set_nonblocking(comm, n), whose calls are in progress until they were asked about n times.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cuda_runtime.h"

enum ncclResult_t : int {
    ncclSuccess = 0,
    ncclUnhandledCudaError = 1,
    ncclSystemError = 2,
    ncclInternalError = 3,
    ncclInvalidArgument = 4,
    ncclInvalidUsage = 5,
    ncclRemoteError = 6,
    ncclInProgress = 7,
};
enum ncclDataType_t : int { ncclUint8 = 1 };

namespace emulator::detail {

/// What ranks sent in one all-gather.
struct nccl_exchange {
    std::map<int, std::vector<std::byte>> sent;
    int received = 0;
};
struct nccl_group {
    int size = 0;
    std::mutex mutex;
    std::map<std::size_t, nccl_exchange> exchanges;  // by their number
    bool aborted = false;

    void send(std::size_t number, int rank, void const* from, std::size_t bytes) {
        std::lock_guard const lock(mutex);
        auto const* const first = static_cast<std::byte const*>(from);
        auto& sent = exchanges[number].sent;
        sent[rank].assign(first, first + bytes);
        for (auto const& [other, record] : sent) {
            if (record.size() == bytes) continue;
            runtime::the().fail("ncclAllGather: rank " + std::to_string(rank) + " sends " + std::to_string(bytes) +
                                " bytes, rank " + std::to_string(other) + " sends " + std::to_string(record.size()));
        }
    }
    /// True once all have sent.
    bool receive(std::size_t number, void* to, std::size_t bytes) {
        std::lock_guard const lock(mutex);
        if (aborted) return true;
        auto const found = exchanges.find(number);
        if (found->second.sent.size() < static_cast<std::size_t>(size)) return false;
        for (auto const& [rank, record] : found->second.sent) {
            std::memcpy(static_cast<std::byte*>(to) + static_cast<std::size_t>(rank) * bytes, record.data(),
                        std::min(bytes, record.size()));
        }
        if (++found->second.received == size) exchanges.erase(found);
        return true;
    }
};

}  // namespace emulator::detail

struct ncclComm {
    std::shared_ptr<emulator::detail::nccl_group> group;
    int rank = 0;
    std::size_t exchanges = 0;
    int calls_ask = 0;  ///< how often it is asked about a call before that begins
    int asked = 0;
    std::function<void()> begins{};  ///< the call
    std::atomic<ncclResult_t> error{ncclSuccess};
};
using ncclComm_t = ncclComm*;

inline char const* ncclGetErrorString(ncclResult_t error) {
    switch (error) {
        case ncclSuccess: return "no error";
        case ncclInvalidArgument: return "invalid argument";
        case ncclRemoteError: return "remote process exited or there was a network error";
        case ncclInProgress: return "NCCL operation in progress";
        default: return "an error that the emulator does not make";
    }
}
/// All on the emulator's one device.
inline ncclResult_t ncclCommInitAll(ncclComm_t* comms, int size, int const*) {
    auto const group = std::make_shared<emulator::detail::nccl_group>();
    group->size = size;
    for (int rank = 0; rank < size; ++rank) comms[rank] = new ncclComm{.group = group, .rank = rank};
    return ncclSuccess;
}
inline ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    delete comm;
    return ncclSuccess;
}
/// Whoever waits for this rank waits no more.
inline ncclResult_t ncclCommAbort(ncclComm_t comm) {
    {
        std::lock_guard const lock(comm->group->mutex);
        comm->group->aborted = true;
    }
    return ncclCommDestroy(comm);
}
inline ncclResult_t ncclCommCount(ncclComm_t comm, int* size) {
    *size = comm->group->size;
    return ncclSuccess;
}
inline ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
    *rank = comm->rank;
    return ncclSuccess;
}
inline ncclResult_t ncclCommCuDevice(ncclComm_t, int* device) {
    *device = 0;
    return ncclSuccess;
}
inline ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    *error = comm->error;
    if (*error != ncclSuccess || !comm->begins) return ncclSuccess;
    if (++comm->asked <= comm->calls_ask) {
        *error = ncclInProgress;
    } else {
        std::exchange(comm->begins, nullptr)();
    }
    return ncclSuccess;
}
inline ncclResult_t ncclAllGather(void const* from, void* to, std::size_t bytes, ncclDataType_t, ncclComm_t comm,
                                  cudaStream_t stream) {
    auto& runtime = emulator::detail::runtime::the();
    auto const size = static_cast<std::size_t>(comm->group->size);
    if (!runtime.is_device(from, bytes) || !runtime.is_device(to, bytes * size)) return ncclInvalidArgument;
    auto begin = [=, &runtime, group = comm->group, rank = comm->rank, number = comm->exchanges++] {
        static_cast<void>(runtime.enqueue(stream, [=] { group->send(number, rank, from, bytes); }));
        static_cast<void>(runtime.enqueue_waiting(stream, [=] { return group->receive(number, to, bytes); }));
    };
    if (comm->calls_ask == 0) {
        begin();
        return ncclSuccess;
    }
    comm->asked = 0;
    comm->begins = std::move(begin);
    return ncclInProgress;
}

namespace emulator {
inline void set_async_error(ncclComm_t comm, ncclResult_t error) {
    comm->error = error;
}
inline void set_nonblocking(ncclComm_t comm, int times) {
    comm->calls_ask = times;
}
}  // namespace emulator
