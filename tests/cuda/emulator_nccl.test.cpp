// SPDX-License-Identifier: MIT
//
// Ranks over NCCL, where threads of the emulator stand in for devices: what they exchange, and that a rank which is
// lost, late or says something else ends with a failure in time. On devices it is tests/cuda/device/nccl.cu.
//
// Meant for the thread sanitizer too.
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sureleap/ext/nccl.hpp>
#include <sureleap/ranks/thread_ranks.hpp>

#include "support/catch.hpp"
#include "support/error_text.hpp"
#include "support/on_ranks.hpp"
#include "support/rank_exchanges.hpp"

using namespace sureleap;
using namespace support;

namespace {

static_assert(communicator<nccl_ranks>);

/// Communicators of so many threads, and a stream for each.
class engines {
public:
    explicit engines(std::size_t size) : comms_(size), streams_(size) {
        REQUIRE(ncclCommInitAll(comms_.data(), static_cast<int>(size), nullptr) == ncclSuccess);
        for (auto& stream : streams_) REQUIRE(cudaStreamCreate(&stream) == cudaSuccess);
    }
    engines(engines const&) = delete;
    engines& operator=(engines const&) = delete;
    ~engines() {
        for (auto const stream : streams_) static_cast<void>(cudaStreamDestroy(stream));
        for (auto const comm : comms_) static_cast<void>(ncclCommDestroy(comm));
    }
    [[nodiscard]] std::size_t size() const { return comms_.size(); }
    [[nodiscard]] ncclComm_t comm(std::size_t rank) const { return comms_[rank]; }
    [[nodiscard]] cudaStream_t stream(std::size_t rank) const { return streams_[rank]; }

private:
    std::vector<ncclComm_t> comms_;
    std::vector<cudaStream_t> streams_;
};
nccl_ranks ranks_of(engines const& of, std::size_t rank, nccl_ranks_options const& options = {}) {
    return nccl_ranks{of.comm(rank), of.stream(rank), options};
}
/// The text of what making the ranks throws, on each of them.
std::vector<std::string> refusals(engines const& of, std::function<nccl_ranks_options(std::size_t)> const& options) {
    std::vector<std::string> texts(of.size());
    on_ranks(of.size(), [&](std::size_t rank) {
        texts[rank] = error_text([&] { static_cast<void>(ranks_of(of, rank, options(rank))); });
    });
    return texts;
}

}  // namespace

TEST_CASE("nccl: ranks hear each other, in records of any size, whether or not the communicator blocks") {
    constexpr std::array<std::size_t, 2> frame{4088, 2 * 4088};
    for (std::size_t const size : {1u, 2u, 3u, 8u}) {
        for (int const times : {0, 3}) {
            engines const of(size);
            std::vector<std::size_t> wrong(size);
            std::vector<cudaError_t> kept(size);
            on_ranks(size, [&](std::size_t rank) {
                emulator::set_nonblocking(of.comm(rank), times);
                auto ranks = ranks_of(of, rank, {.most_bytes = exchanged_bytes});
                wrong[rank] = wrong_exchanges(ranks, 40, frame) + (ranks.rank() == rank ? 0u : 1u);
                kept[rank] = cudaPeekAtLastError();  // of polling
            });
            CHECK(wrong == std::vector<std::size_t>(size, 0));
            CHECK(kept == std::vector<cudaError_t>(size, cudaSuccess));
        }
    }
}

TEST_CASE("nccl: rounds over slices emit what they emit over threads") {
    constexpr std::size_t size = 3;
    engines const of(size);
    thread_ranks threads{size, {.most_bytes = exchanged_bytes}};
    std::vector<std::size_t> wrong(size), emitted(size);
    on_ranks(size, [&](std::size_t rank) {
        auto ranks = ranks_of(of, rank, {.most_bytes = exchanged_bytes});
        auto plain = threads.of(rank);
        for (std::uint64_t seed = 0; seed < 50; ++seed) {
            sliced_outputs const out = random_sliced_call(ranks, seed);
            wrong[rank] += out == random_sliced_call(plain, seed) ? 0u : 1u;
            for (auto const count : out.counts) emitted[rank] += static_cast<std::size_t>(count);
        }
    });
    CHECK(wrong == std::vector<std::size_t>(size, 0));
    CHECK(emitted == std::vector<std::size_t>(size, emitted[0]));
    CHECK(emitted[0] > 100);
}

TEST_CASE("nccl: one that leaves, is late, says too much or is told of an error fails all of them, now and later") {
    enum class fault { leaves, sleeps, other_size, too_large, error };
    for (fault const what : {fault::leaves, fault::sleeps, fault::other_size, fault::too_large, fault::error}) {
        INFO("fault " << static_cast<int>(what));
        constexpr std::size_t size = 3;
        // Sizes that differ, and errors, are seen at once.
        double const seconds = what == fault::other_size || what == fault::error ? 50.0 : 0.5;
        engines const of(size);
        std::vector<std::size_t> heard(size);
        auto const before = std::chrono::steady_clock::now();
        on_ranks(size, [&](std::size_t rank) {
            auto ranks = ranks_of(of, rank, {.most_bytes = 64, .seconds = seconds});
            for (std::uint64_t i = 0; i < 10; ++i) {
                std::vector<std::uint64_t> own(2, i);
                if (i == 4 && rank == 1) {
                    if (what == fault::leaves) return;
                    if (what == fault::sleeps) std::this_thread::sleep_for(std::chrono::milliseconds(1500));
                    if (what == fault::other_size) own.resize(3);
                    if (what == fault::too_large) own.resize(9);
                }
                // The device works for a rank that is gone, and NCCL says so on all others.
                if (i == 4 && what == fault::error) {
                    if (rank == 1) return;
                    emulator::set_async_error(of.comm(rank), ncclRemoteError);
                }
                std::vector<std::uint64_t> all(size * own.size());
                heard[rank] += gather(ranks, std::span<std::uint64_t const>(own), std::span(all)) ? 1u : 0u;
            }
        });
        // One that is late hears what the others said before they left.
        CHECK(heard == std::vector<std::size_t>{4, what == fault::sleeps ? 5u : 4u, 4});
        CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(20));
    }
}

TEST_CASE("nccl: what cannot be is refused when ranks are made") {
    {
        engines const of(2);
        CHECK(says(error_text([&] { ranks_of(of, 0, {.seconds = 0.0}); }), {"seconds is 0", "more than 0"}));
        CHECK(says(error_text([&] { nccl_ranks(nullptr, of.stream(0)); }), {"communicator is null", "initialised"}));
        CHECK(says(error_text([&] { ranks_of(of, 1, {.seconds = 0.1}); }),
                   {"first exchange of rank 1 failed", "all 2 ranks", "within 0.1 s"}));
    }
    engines const of(2);
    auto const texts = refusals(of, [](std::size_t rank) { return nccl_ranks_options{.most_bytes = 8 + rank}; });
    CHECK(texts[0] == "");
    CHECK(says(texts[1], {"most_bytes of rank 1 is 9", "expected 8", "rank 0"}));
}

TEST_CASE("nccl: the emulator does not let ranks send other numbers of bytes in one all-gather") {
    engines const of(2);
    void* memory = nullptr;
    REQUIRE(cudaMalloc(&memory, 64) == cudaSuccess);
    CHECK(ncclAllGather(memory, memory, 8, ncclUint8, of.comm(0), of.stream(0)) == ncclSuccess);
    CHECK(cudaStreamQuery(of.stream(0)) == cudaErrorNotReady);
    CHECK(ncclAllGather(memory, memory, 16, ncclUint8, of.comm(1), of.stream(1)) == ncclSuccess);
    CHECK(cudaStreamQuery(of.stream(1)) == cudaErrorLaunchFailure);
    CHECK(emulator::caught() == "ncclAllGather: rank 1 sends 16 bytes, rank 0 sends 8");
    CHECK(cudaFree(memory) == cudaSuccess);
    static_cast<void>(cudaGetLastError());
}
