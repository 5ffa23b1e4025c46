// SPDX-License-Identifier: MIT
//
// Ranks that are threads of one process, each with a device or a socket of its own; and for tests.
//
//     thread_ranks ranks{4, {.most_bytes = 4096, .seconds = 10}};
//     std::thread worker{[&] { auto own = ranks.of(1); ... gather(own, record, all) ... }};
//
// Records go through memory that all threads see. It is there twice. A rank that is ahead writes into the other half,
// and cannot be two exchanges ahead: the one between ends when all ranks have come to it.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>

SURELEAP_BEGIN_NAMESPACE

struct thread_ranks_options {
    std::size_t most_bytes = 1 << 16;  ///< that a rank sends in one exchange
    double seconds = 60.0;             ///< that a rank waits for the others
};

/// What `size` threads exchange through. Must outlive what of() returns, which models communicator.
class thread_ranks {
public:
    /// Throws sureleap::error if there are no ranks or if they would not wait.
    explicit thread_ranks(std::size_t size, thread_ranks_options const& options = {}) : options_(options), size_(size) {
        if (size == 0) fail_with("thread_ranks: there are 0 ranks, expected at least 1");
        if (!(options.seconds > 0.0)) {
            fail_with("thread_ranks: seconds is ", options.seconds, ", expected more than 0");
        }
        for (auto& half : records_) half.resize(size * options.most_bytes);
        bytes_.resize(size);
    }

    class rank_type {
    public:
        [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
        [[nodiscard]] std::size_t size() const noexcept { return ranks_->size_; }
        [[nodiscard]] bool gather(std::span<std::byte const> own, std::span<std::byte> all) noexcept {
            return ranks_->gather(rank_, own, all);
        }

    private:
        friend thread_ranks;
        rank_type(thread_ranks& ranks, std::size_t rank) noexcept : ranks_(&ranks), rank_(rank) {}
        thread_ranks* ranks_;
        std::size_t rank_;
    };

    /// The place of one thread.
    [[nodiscard]] rank_type of(std::size_t rank) noexcept {
        SURELEAP_EXPECTS(rank < size_);
        return {*this, rank};
    }
    /// A thread takes part no more: others need not wait for it.
    void leave() noexcept {
        std::lock_guard const lock(mutex_);
        failed_ = true;
        all_came_.notify_all();
    }

private:
    [[nodiscard]] bool gather(std::size_t rank, std::span<std::byte const> own, std::span<std::byte> all) noexcept {
        std::unique_lock lock(mutex_);
        bool const fits = own.size() <= options_.most_bytes && all.size() == own.size() * size_;
        if (failed_ || !fits) return fail();
        std::uint64_t const exchange = exchange_;
        auto& half = records_[exchange % 2];
        std::copy(own.begin(), own.end(), half.begin() + static_cast<std::ptrdiff_t>(rank * options_.most_bytes));
        bytes_[rank] = own.size();
        if (++came_ == size_) {
            if (std::any_of(bytes_.begin(), bytes_.end(), [&](std::size_t n) { return n != own.size(); }))
                return fail();
            came_ = 0;
            ++exchange_;
            all_came_.notify_all();
        } else {
            auto const limit = std::chrono::duration<double>(options_.seconds);
            all_came_.wait_for(lock, limit, [&] { return failed_ || exchange_ != exchange; });
            if (exchange_ == exchange) return fail();
        }
        for (std::size_t i = 0; i < size_; ++i) {
            auto const from = half.begin() + static_cast<std::ptrdiff_t>(i * options_.most_bytes);
            std::copy_n(from, own.size(), all.begin() + static_cast<std::ptrdiff_t>(i * own.size()));
        }
        return true;
    }
    [[nodiscard]] bool fail() noexcept {
        failed_ = true;
        all_came_.notify_all();
        return false;
    }

    thread_ranks_options options_;
    std::size_t size_;
    std::mutex mutex_{};
    std::condition_variable all_came_{};
    std::array<std::vector<std::byte>, 2> records_{};  // [size, most_bytes] each
    std::vector<std::size_t> bytes_{};                 // [size] of the exchange that is made
    std::uint64_t exchange_ = 0;                       // how many were made
    std::size_t came_ = 0;
    bool failed_ = false;
};

SURELEAP_END_NAMESPACE
