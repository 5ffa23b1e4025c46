// SPDX-License-Identifier: MIT
//
// The causal frontier: all a live scheduler can see of a block.
//
// Candidate (r, k+1) is revealed by admitting (r, k), so whether x_{k+1} is verified can depend on x_1..x_k only: the
// verify length is a stopping time, which is what token rejection and block verification need (losslessness, paper
// Appendix A). One frontier serves all requests, so their decisions follow one order of reveal; two schedulers that
// each were causal for their own request could still decide by each other's future tokens.
//
// Since survival can only fall along a request, taking the best revealed candidate again and again visits all
// candidates in sorted order: Algorithm 1's sort is an R-way merge that stops early.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include <sureleap/config.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/workspace.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What a walk over a table of R requests keeps; carved once, reused in every round.
struct frontier_memory {
    std::span<std::uint32_t> lengths{};  ///< [R] admitted positions of each request: the result
    std::span<std::uint32_t> heap{};     ///< [R] requests with a revealed candidate, best first
    std::span<std::uint32_t> where{};    ///< [R] place of each request in the heap

    [[nodiscard]] static frontier_memory carve(workspace& ws, std::size_t requests) noexcept {
        return {ws.take<std::uint32_t>(requests), ws.take<std::uint32_t>(requests), ws.take<std::uint32_t>(requests)};
    }
};

/// A walk over the admissible candidates of a table. O(R) to build, O(log R) to admit, O(1) to look.
class causal_frontier {
public:
    causal_frontier(survival_table const& table, frontier_memory const& memory) noexcept
        : table_(table), memory_(memory) {
        SURELEAP_EXPECTS(memory.lengths.size() >= table.requests());
        for (std::size_t r = 0; r < requests(); ++r) {
            memory_.lengths[r] = 0;
            memory_.where[r] = closed;
            if (table_.sizes[r] > 0) place(open_++, static_cast<std::uint32_t>(r));
        }
        for (std::size_t i = open_ / 2; i-- > 0;) sift_down(i);
    }

    [[nodiscard]] std::size_t requests() const noexcept { return table_.requests(); }
    /// No candidate is left.
    [[nodiscard]] bool empty() const noexcept { return open_ == 0; }
    /// The first revealed candidate in the order of admission. Precondition: !empty().
    [[nodiscard]] candidate best() const noexcept {
        SURELEAP_EXPECTS(!empty());
        return revealed(memory_.heap[0]);
    }
    /// Request r has a revealed candidate.
    [[nodiscard]] bool has_next(std::size_t r) const noexcept { return memory_.where[r] != closed; }
    /// The revealed candidate of request r. Precondition: has_next(r).
    [[nodiscard]] candidate next(std::size_t r) const noexcept {
        SURELEAP_EXPECTS(has_next(r));
        return revealed(static_cast<std::uint32_t>(r));
    }
    /// Verifies the revealed candidate of request r and reveals the one behind it. Precondition: has_next(r).
    void admit(std::size_t r) noexcept {
        SURELEAP_EXPECTS(has_next(r));
        std::size_t const i = memory_.where[r];
        ++admitted_;
        if (++memory_.lengths[r] < table_.sizes[r]) {
            sift_down(i);  // survival never rises along a request
        } else {
            remove(i);
        }
    }
    /// Gives request r no further position in this round. Precondition: has_next(r).
    void close(std::size_t r) noexcept {
        SURELEAP_EXPECTS(has_next(r));
        remove(memory_.where[r]);
    }

    /// Positions admitted so far, of request r and of all requests.
    [[nodiscard]] std::size_t length(std::size_t r) const noexcept { return memory_.lengths[r]; }
    [[nodiscard]] std::size_t admitted() const noexcept { return admitted_; }

private:
    static constexpr std::uint32_t closed = static_cast<std::uint32_t>(-1);

    [[nodiscard]] candidate revealed(std::uint32_t r) const noexcept { return table_.at(r, memory_.lengths[r]); }
    [[nodiscard]] bool before(std::size_t i, std::size_t j) const noexcept {
        return precedes(revealed(memory_.heap[i]), revealed(memory_.heap[j]));
    }
    void place(std::size_t i, std::uint32_t r) noexcept {
        memory_.heap[i] = r;
        memory_.where[r] = static_cast<std::uint32_t>(i);
    }
    void exchange(std::size_t i, std::size_t j) noexcept {
        std::uint32_t const a = memory_.heap[i];
        std::uint32_t const b = memory_.heap[j];
        place(i, b);
        place(j, a);
    }
    void sift_down(std::size_t i) noexcept {
        for (;;) {
            std::size_t first = i;
            for (std::size_t child = 2 * i + 1; child <= 2 * i + 2 && child < open_; ++child) {
                if (before(child, first)) first = child;
            }
            if (first == i) return;
            exchange(i, first);
            i = first;
        }
    }
    void sift_up(std::size_t i) noexcept {
        while (i > 0 && before(i, (i - 1) / 2)) {
            exchange(i, (i - 1) / 2);
            i = (i - 1) / 2;
        }
    }
    void remove(std::size_t i) noexcept {
        memory_.where[memory_.heap[i]] = closed;
        --open_;
        if (i == open_) return;
        place(i, memory_.heap[open_]);
        sift_down(i);
        sift_up(i);
    }

    survival_table table_;
    frontier_memory memory_;
    std::size_t open_ = 0;
    std::size_t admitted_ = 0;
};

SURELEAP_END_NAMESPACE
