// SPDX-License-Identifier: MIT
//
// Ranks over NCCL on one GPU, and on all that are there: records of all sizes, rounds over slices, a rank that is lost.
// What an exchange costs is printed. Without devices: tests/cuda/emulator_nccl.test.cpp.
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <sureleap/ext/nccl.hpp>
#include <sureleap/ranks/thread_ranks.hpp>

#include "cuda/support/device_array.hpp"
#include "support/on_ranks.hpp"
#include "support/rank_exchanges.hpp"

namespace {

namespace sl = sureleap;
using clock_type = std::chrono::steady_clock;

void require_nccl(ncclResult_t error) {
    if (error != ncclSuccess) throw std::runtime_error{std::string{"NCCL: "} + ncclGetErrorString(error)};
}
double seconds_since(clock_type::time_point begun) {
    return std::chrono::duration<double>(clock_type::now() - begun).count();
}
void expect(bool holds, char const* what) {
    if (!holds) throw std::runtime_error{what};
}

/// The communicator of this thread's device, whose calls do not block.
ncclComm_t connect(int size, ncclUniqueId const& id, int rank) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    ncclComm_t comm = nullptr;
    ncclResult_t state = ncclCommInitRankConfig(&comm, size, id, rank, &config);
    for (auto const begun = clock_type::now(); state == ncclInProgress && seconds_since(begun) < 60.0;) {
        require_nccl(ncclCommGetAsyncError(comm, &state));
        std::this_thread::yield();
    }
    require_nccl(state);
    return comm;
}

void time_exchanges(sl::nccl_ranks& ranks) {
    constexpr int repetitions = 200;
    for (std::size_t const bytes : {std::size_t{8}, std::size_t{4088}, std::size_t{32768}}) {
        std::vector<std::byte> const own(bytes);
        std::vector<std::byte> all(bytes * ranks.size());
        bool heard = ranks.gather(own, all);
        auto const begun = clock_type::now();
        for (int i = 0; i < repetitions; ++i) heard = ranks.gather(own, all) && heard;
        expect(heard, "an exchange failed");
        if (ranks.rank() == 0) {
            std::printf("%zu ranks, %zu bytes of each: %.1f us\n", ranks.size(), bytes,
                        seconds_since(begun) / repetitions * 1e6);
        }
    }
}
/// Rank 1 does not come: the others are told in time.
void lose_a_rank(sl::nccl_ranks& ranks) {
    if (ranks.rank() == 1) return std::this_thread::sleep_for(std::chrono::seconds(6));
    std::vector<std::byte> all(ranks.size());
    auto const begun = clock_type::now();
    expect(!ranks.gather(std::span<std::byte const>(all).first(1), all), "a rank that is lost was heard");
    expect(seconds_since(begun) < 5.0, "the loss of a rank was seen too late");
    expect(!ranks.gather(std::span<std::byte const>(all).first(1), all), "a rank was heard after one was lost");
}
void run(ncclComm_t comm, std::size_t size, sl::thread_ranks& threads) {
    constexpr std::array<std::size_t, 2> frame{4088, 2 * 4088};
    cudaStream_t stream = nullptr;
    require_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    {
        sl::nccl_ranks ranks{comm, stream, {.most_bytes = support::exchanged_bytes, .seconds = 30.0}};
        expect(support::wrong_exchanges(ranks, 100, frame) == 0, "other records than were sent");
        auto plain = threads.of(ranks.rank());
        for (std::uint64_t seed = 0; seed < 50; ++seed) {
            expect(support::random_sliced_call(ranks, seed) == support::random_sliced_call(plain, seed),
                   "other tokens than over threads");
        }
        time_exchanges(ranks);
        expect(cudaPeekAtLastError() == cudaSuccess, "an error of CUDA's is left");
    }
    if (size > 1) {
        sl::nccl_ranks ranks{comm, stream, {.most_bytes = 64, .seconds = 3.0}};
        lose_a_rank(ranks);
    }
    require_nccl(ncclCommAbort(comm));  // which ends what waits for the rank that is lost
    require_cuda(cudaStreamDestroy(stream));
}

/// Ranks on so many devices, made by connection(rank). True if all is well.
template <class Connection>
bool on_devices(char const* what, int devices, Connection const& connection) {
    auto const size = static_cast<std::size_t>(devices);
    sl::thread_ranks threads{size, {.most_bytes = support::exchanged_bytes, .seconds = 30.0}};
    std::atomic<int> failed{0};
    support::on_ranks(size, [&](std::size_t rank) {
        try {
            require_cuda(cudaSetDevice(static_cast<int>(rank)));
            run(connection(static_cast<int>(rank)), size, threads);
        } catch (std::exception const& error) {
            ++failed;
            threads.leave();
            std::printf("rank %zu: %s\n", rank, error.what());
        }
    });
    std::printf("%-7s %s, %d GPU%s\n", failed == 0 ? "ok" : "FAILED", what, devices, devices == 1 ? "" : "s");
    return failed == 0;
}

}  // namespace

int main() {
    try {
        ncclComm_t alone = nullptr;
        require_nccl(ncclCommInitAll(&alone, 1, nullptr));
        bool good = on_devices("a communicator that blocks", 1, [&](int) { return alone; });
        int devices = 0;
        require_cuda(cudaGetDeviceCount(&devices));
        ncclUniqueId id;
        require_nccl(ncclGetUniqueId(&id));
        good = on_devices("one that does not", devices, [&](int rank) { return connect(devices, id, rank); }) && good;
        return good ? 0 : 1;
    } catch (std::exception const& error) {
        std::printf("%s\n", error.what());
        return 1;
    }
}
