// SPDX-License-Identifier: MIT
//
// Ranks that are processes, over MPI 3. Link what your MPI asks for (CMake: MPI::MPI_C).
//
//     MPI_Init(&argc, &argv);
//     mpi_ranks ranks{MPI_COMM_WORLD, {.most_bytes = 1 << 16, .seconds = 10}};
//
// It exchanges over a duplicate of the communicator, so what the engine sends itself does not meet it. MPI's errors
// come back as a failed exchange.
//
// MPI has no time limits. An exchange is begun, and polled until it is done or the time is over. What is not done by
// then may still be written to later, so its buffers are given up and not freed. The engine reports the failure and
// ends by MPI_Abort: MPI_Finalize would wait for the rank that is gone.
#pragma once

#include <mpi.h>

#include <chrono>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>

SURELEAP_BEGIN_NAMESPACE

struct mpi_ranks_options {
    std::size_t most_bytes = 1 << 16;  ///< that a rank sends in one exchange; the same on all ranks
    double seconds = 60.0;             ///< that a rank waits for the others
};

/// The ranks of an MPI communicator. Models communicator. Calls come from one thread at a time, which MPI was
/// initialised for. Made and destroyed by all ranks, between MPI_Init and MPI_Finalize.
class mpi_ranks {
public:
    /// Throws sureleap::error if the options cannot be met, if MPI reports an error, or if ranks have other most_bytes.
    explicit mpi_ranks(MPI_Comm engine, mpi_ranks_options const& options = {}) : options_(options) {
        if (!(options.seconds > 0.0)) {
            fail_with("mpi_ranks: seconds is ", options.seconds, ", expected more than 0");
        }
        if (options.most_bytes > static_cast<std::size_t>(std::numeric_limits<int>::max())) {
            fail_with("mpi_ranks: most_bytes is ", options.most_bytes, ", expected at most ",
                      std::numeric_limits<int>::max(), ", the most that MPI counts");
        }
        check(MPI_Comm_dup(engine, &ranks_), "MPI_Comm_dup");
        check(MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
        check(MPI_Comm_rank(ranks_, &rank_), "MPI_Comm_rank");
        check(MPI_Comm_size(ranks_, &size_), "MPI_Comm_size");
        unsigned long long const own = options.most_bytes;
        unsigned long long const of_rank_0 = first(own);
        if (own != of_rank_0) {
            fail_with("mpi_ranks: most_bytes of rank ", rank_, " is ", own, ", expected ", of_rank_0, " as on rank 0");
        }
        sent_ = std::make_unique<std::byte[]>(options.most_bytes);
        received_ = std::make_unique<std::byte[]>(options.most_bytes * size());
    }
    mpi_ranks(mpi_ranks&& other) noexcept
        : options_(other.options_),
          ranks_(std::exchange(other.ranks_, MPI_COMM_NULL)),
          rank_(other.rank_),
          size_(other.size_),
          sent_(std::move(other.sent_)),
          received_(std::move(other.received_)),
          failed_(other.failed_) {}
    mpi_ranks& operator=(mpi_ranks&&) = delete;
    ~mpi_ranks() {
        // Freeing is collective too: a rank that is gone would be waited for.
        if (ranks_ != MPI_COMM_NULL && !failed_) MPI_Comm_free(&ranks_);
    }

    [[nodiscard]] std::size_t rank() const noexcept { return static_cast<std::size_t>(rank_); }
    [[nodiscard]] std::size_t size() const noexcept { return static_cast<std::size_t>(size_); }

    [[nodiscard]] bool gather(std::span<std::byte const> own, std::span<std::byte> all) noexcept {
        if (failed_ || own.size() > options_.most_bytes || all.size() != own.size() * size()) {
            failed_ = true;
            return false;
        }
        if (own.empty()) return true;
        std::memcpy(sent_.get(), own.data(), own.size());
        auto const bytes = static_cast<int>(own.size());
        MPI_Request request = MPI_REQUEST_NULL;
        int error = MPI_Iallgather(sent_.get(), bytes, MPI_BYTE, received_.get(), bytes, MPI_BYTE, ranks_, &request);
        auto const limit = std::chrono::steady_clock::now() + std::chrono::duration<double>(options_.seconds);
        for (int done = 0; error == MPI_SUCCESS && done == 0;) {
            error = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
            if (done != 0) break;
            if (std::chrono::steady_clock::now() > limit) return give_up();
            std::this_thread::yield();
        }
        if (error != MPI_SUCCESS) return give_up();
        std::memcpy(all.data(), received_.get(), all.size());
        return true;
    }

private:
    /// What rank 0 has.
    [[nodiscard]] unsigned long long first(unsigned long long own) const {
        check(MPI_Bcast(&own, 1, MPI_UNSIGNED_LONG_LONG, 0, ranks_), "MPI_Bcast");
        return own;
    }
    /// The exchange is not done: MPI may still write to its buffers.
    [[nodiscard]] bool give_up() noexcept {
        failed_ = true;
        static_cast<void>(sent_.release());
        static_cast<void>(received_.release());
        return false;
    }
    static void check(int error, char const* call) {
        if (error == MPI_SUCCESS) return;
        char text[MPI_MAX_ERROR_STRING];
        int length = 0;
        if (MPI_Error_string(error, text, &length) != MPI_SUCCESS) length = 0;
        fail_with("mpi_ranks: ", call, " failed: ", std::string(text, static_cast<std::size_t>(length)));
    }

    mpi_ranks_options options_;
    MPI_Comm ranks_ = MPI_COMM_NULL;
    int rank_ = 0;
    int size_ = 1;
    std::unique_ptr<std::byte[]> sent_{};      // [most_bytes]
    std::unique_ptr<std::byte[]> received_{};  // [size, most_bytes]
    bool failed_ = false;
};

SURELEAP_END_NAMESPACE
