// SPDX-License-Identifier: MIT
//
// Ranks that take turns: one runs until it exchanges something, then the next. So a source of randomness that all of
// them ask is asked in the same order every time.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <span>
#include <vector>

#include "support/on_ranks.hpp"

namespace support {

class turn_ranks {
public:
    explicit turn_ranks(std::size_t size) : exchanges_(size) {
        for (auto& half : records_) half.resize(size);
    }

    class rank_type {
    public:
        rank_type(turn_ranks& ranks, std::size_t rank) : ranks_(&ranks), rank_(rank) {}
        [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
        [[nodiscard]] std::size_t size() const noexcept { return ranks_->size(); }
        [[nodiscard]] bool gather(std::span<std::byte const> own, std::span<std::byte> all) noexcept {
            return ranks_->gather(rank_, own, all);
        }

    private:
        turn_ranks* ranks_;
        std::size_t rank_;
    };

    [[nodiscard]] std::size_t size() const noexcept { return exchanges_.size(); }
    /// of_rank(0), of_rank(1) ... until all have ended. They make the same exchanges.
    template <class OfRank>
    void run(OfRank const& of_rank) {
        turn_ = 0;
        on_ranks(size(), [&](std::size_t rank) {
            {
                std::unique_lock lock(mutex_);
                changed_.wait(lock, [&] { return turn_ == rank; });
            }
            of_rank(rank_type(*this, rank));
            std::lock_guard const lock(mutex_);
            pass_on();
        });
    }

private:
    bool gather(std::size_t rank, std::span<std::byte const> own, std::span<std::byte> all) noexcept {
        std::unique_lock lock(mutex_);
        auto& records = records_[exchanges_[rank]++ % 2];  // a rank that is ahead writes into the other ones
        records[rank].assign(own.begin(), own.end());
        pass_on();
        changed_.wait(lock, [&] { return turn_ == rank; });
        for (std::size_t r = 0; r < size(); ++r) {
            if (records[r].size() != own.size()) return false;
            std::memcpy(all.data() + r * own.size(), records[r].data(), own.size());
        }
        return true;
    }
    void pass_on() noexcept {
        turn_ = (turn_ + 1) % size();
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t turn_ = 0;
    std::vector<std::size_t> exchanges_;                            // of each rank
    std::array<std::vector<std::vector<std::byte>>, 2> records_{};  // of two exchanges, by rank
};

}  // namespace support
