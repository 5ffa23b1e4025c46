// SPDX-License-Identifier: MIT
//
// The ranks of an engine that is divided among processes, whoever connects them. They run the same rounds. A rank
// computes some outputs of every product (divided_products.hpp) and a slice of the logits (row_acceptor.hpp).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/error.hpp>

namespace engine {

/// A view of any communicator, which must outlive it. Models sureleap::communicator.
class any_ranks {
public:
    /// most_bytes: that a rank may send in one exchange.
    template <sureleap::communicator Ranks>
    any_ranks(Ranks& ranks, std::size_t most_bytes) noexcept
        : ranks_(std::addressof(ranks)),
          gather_([](void* to, std::span<std::byte const> own, std::span<std::byte> all) noexcept {
              return static_cast<Ranks*>(to)->gather(own, all);
          }),
          rank_(ranks.rank()),
          size_(ranks.size()),
          most_bytes_(most_bytes) {}

    [[nodiscard]] std::size_t rank() const noexcept { return rank_; }
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    [[nodiscard]] std::size_t most_bytes() const noexcept { return most_bytes_; }
    [[nodiscard]] bool gather(std::span<std::byte const> own, std::span<std::byte> all) noexcept {
        return gather_(ranks_, own, all);
    }

private:
    void* ranks_;
    bool (*gather_)(void*, std::span<std::byte const>, std::span<std::byte>) noexcept;
    std::size_t rank_;
    std::size_t size_;
    std::size_t most_bytes_;
};

/// What all ranks have, [size, own.size()]. Throws if one is lost: a forward pass has no status to report it by.
template <class Number>
void gather_all(any_ranks& ranks, std::span<Number const> own, std::span<Number> all) {
    if (ranks.gather(std::as_bytes(own), std::as_writable_bytes(all))) return;
    sureleap::fail_with("rank ", ranks.rank(), " of ", ranks.size(), ": an exchange of ", own.size_bytes(),
                        " bytes failed, expected all ranks to take part in time with the same models and requests");
}

/// The seconds of the slowest rank: what ranks go by who decide by measured times. Null: there is one.
[[nodiscard]] inline double slowest(any_ranks* ranks, double seconds) {
    if (ranks == nullptr) return seconds;
    std::vector<double> all(ranks->size());
    gather_all(*ranks, std::span<double const>(&seconds, 1), std::span(all));
    for (double const s : all) seconds = s > seconds ? s : seconds;
    return seconds;
}

/// One clock for all ranks, that of rank 0. A schedule that learns from seconds then decides alike on all of them.
class rank_clock {
public:
    /// own: seconds.
    rank_clock(any_ranks* ranks, double (*own)() noexcept)
        : ranks_(ranks), own_(own), all_(ranks != nullptr ? ranks->size() : 0) {}

    /// Of a lost rank the next pass speaks.
    [[nodiscard]] double operator()() const noexcept {
        double const now = own_();
        if (ranks_ == nullptr) return now;
        bool const met = ranks_->gather(std::as_bytes(std::span(&now, 1)), std::as_writable_bytes(std::span(all_)));
        return met ? all_.front() : now;
    }

private:
    any_ranks* ranks_;
    double (*own_)() noexcept;
    mutable std::vector<double> all_;  // [ranks]
};

}  // namespace engine
