// SPDX-License-Identifier: MIT
//
// Tables a planner may read, each a type of its own so that the compiler keeps live confidences out.
//
// A budget K may come from any search, as unconstrained as one likes, if it is fixed before the block's tokens are
// drawn. Two kinds of tables are: those of past rounds, and those computed at the anchor from hidden states that
// consumed no drafted token. K then ranks live candidates on the causal frontier, and every rule stays exact.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/core/calibration_ref.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/survival.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Where a planning table comes from.
struct from_anchor {};  ///< this round's hidden states, no drafted token
template <std::size_t Lag>
struct from_rounds {  ///< past rounds, at least Lag of them ago
    static_assert(Lag >= 1,
                  "from_rounds: a lag of 0 is this round's own table; use from_anchor or a frontier_scheduler");
    static constexpr std::size_t lag = Lag;
};

namespace detail {
struct planning_access;
}

/// A survival table from before the block, for the current set of requests. Made by anchor_planning and
/// survival_history only.
template <class Origin>
class planning_table {
public:
    using origin = Origin;

    [[nodiscard]] survival_table const& survivals() const noexcept { return table_; }
    [[nodiscard]] std::size_t requests() const noexcept { return table_.requests(); }
    /// A walk over all candidates in the order of admission; starts anew at every call.
    [[nodiscard]] causal_frontier walk() const noexcept { return {table_, memory_}; }
    /// Scratch for a search of the table.
    [[nodiscard]] frontier_memory const& memory() const noexcept { return memory_; }

private:
    friend struct detail::planning_access;
    planning_table(survival_table const& table, frontier_memory const& memory) noexcept
        : table_(table), memory_(memory) {}

    survival_table table_;
    frontier_memory memory_;
};

namespace detail {
struct planning_access {
    template <class Origin>
    [[nodiscard]] static planning_table<Origin> make(survival_table const& table,
                                                     frontier_memory const& memory) noexcept {
        return {table, memory};
    }
};
}  // namespace detail

/// A writable table for the planning stage and the walk over it.
struct planning_memory {
    std::size_t block_size = 0;
    std::span<std::uint32_t> sizes{};
    std::span<fixed_probability> confidence{};
    std::span<fixed_probability> survival{};
    frontier_memory walk{};
    std::span<request_view const> requests{};  ///< of the round that is planned
    calibration_ref calibration{};

    [[nodiscard]] static planning_memory carve(workspace& ws, std::size_t requests, std::size_t block_size) noexcept {
        return {block_size,
                ws.take<std::uint32_t>(requests),
                ws.take<fixed_probability>(requests * block_size),
                ws.take<fixed_probability>(requests * block_size),
                frontier_memory::carve(ws, requests),
                {},
                {}};
    }
    /// Starts a table for these requests; confidences that are appended go through the calibration.
    void start(std::span<request_view const> round, calibration_ref const& lent = {}) noexcept {
        requests = round;
        calibration = lent;
    }
    /// Starts the row of request r.
    void begin(std::size_t r) noexcept { sizes[r] = 0; }
    /// Appends a confidence to row r; a value that is no probability ends the row (nothing is known beyond it).
    bool append(std::size_t r, double c) noexcept {
        fixed_probability fixed = 0;
        return quantise(calibration(requests[r], sizes[r], c), fixed) && append_fixed(r, fixed);
    }
    bool append_fixed(std::size_t r, fixed_probability c) noexcept {
        std::size_t const k = sizes[r];
        std::size_t const i = r * block_size + k;
        confidence[i] = c;
        survival[i] = extend_survival(k == 0 ? requests[r].weight : survival[i - 1], c);
        sizes[r] = static_cast<std::uint32_t>(k + 1);
        return true;
    }
    [[nodiscard]] survival_table view() const noexcept {
        survival_table table{block_size, sizes.first(requests.size()), confidence, survival,
                             load_of(requests, block_size)};
        for (request_view const& r : requests) table.weight += r.weight;
        return table;
    }
};

/// Survival tables of past rounds, one ring per request slot. Allocates at construction only.
///
/// lagged<N>() answers with each request's table of exactly N rounds ago. A request that was not in that round (it
/// joined later, or paused) is given the prior. So a budget is always for the current set of requests. A chain that
/// ended before its cap (draft_floor, a stop token) is taken to end there again.
///
/// Asked of rounds that it was not made for (a slot beyond its own, another gamma), it throws, in release builds too.
class survival_history {
public:
    survival_history() = default;
    /// `prior` is the conditional confidence assumed at every position of a request without a past.
    survival_history(std::size_t max_requests, std::size_t block_size, std::size_t lag, double prior)
        : block_size_(block_size), lag_(lag), entries_(max_requests * lag), table_(max_requests * lag * block_size) {
        if (!quantise(prior, prior_)) {
            fail_with("survival_history: prior confidence is ", prior, ", expected a number in [0, 1]");
        }
        if (lag == 0) fail_with("survival_history: lag is 0, expected at least 1 round");
    }

    /// Forgets slot's past; call when a request takes it. Of a slot that it does not have there is nothing to forget.
    void join(std::size_t slot) noexcept {
        if (slot >= slots()) return;
        for (std::size_t i = 0; i < lag_; ++i) entries_[slot * lag_ + i] = {};
    }

    /// The table a planner may read in the coming round. Positions a request may not draft are left out.
    template <std::size_t Lag>
    [[nodiscard]] planning_table<from_rounds<Lag>> lagged(std::span<request_view const> requests,
                                                          planning_memory& memory) const {
        SURELEAP_EXPECTS(Lag == lag_);
        recall(requests, memory);
        return detail::planning_access::make<from_rounds<Lag>>(memory.view(), memory.walk);
    }
    /// The same, left in the memory.
    void recall(std::span<request_view const> requests, planning_memory& memory) const {
        expect(requests, memory.block_size);
        memory.start(requests);
        for (std::size_t r = 0; r < requests.size(); ++r) {
            std::size_t const cap = requests[r].draft_cap(block_size_);
            std::size_t const ring = requests[r].slot * lag_ + round_ % lag_;
            entry const& past = entries_[ring];
            bool const known = past.used && past.round + lag_ == round_;
            memory.begin(r);
            for (std::size_t k = 0; k < cap; ++k) {
                if (known && past.ended && k >= past.size) break;
                // A past block may have been shorter than this one may be: the prior takes over where it ends.
                fixed_probability const c = known && k < past.size ? table_[ring * block_size_ + k] : prior_;
                memory.append_fixed(r, c);
            }
        }
    }

    /// Remembers this round's confidences; call once at the end of every round. text_ends(r): the chain of request r
    /// ended in a stop token, which says nothing about the next one.
    template <class TextEnds>
    void push(std::span<request_view const> requests, survival_table const& table, TextEnds const& text_ends) {
        expect(requests, table.block_size);
        for (std::size_t r = 0; r < requests.size(); ++r) {
            std::size_t const ring = requests[r].slot * lag_ + round_ % lag_;
            bool const ended = table.sizes[r] < requests[r].draft_cap(block_size_) && !text_ends(r);
            entries_[ring] = {round_, table.sizes[r], true, ended};
            for (std::size_t k = 0; k < table.sizes[r]; ++k) table_[ring * block_size_ + k] = table.at(r, k).confidence;
        }
        ++round_;
    }
    void push(std::span<request_view const> requests, survival_table const& table) {
        push(requests, table, [](std::size_t) { return false; });
    }

private:
    struct entry {
        std::uint64_t round = 0;
        std::uint32_t size = 0;
        bool used = false;
        bool ended = false;  // its chain ended before its cap: nothing worth drafting came behind
    };

    [[nodiscard]] std::size_t slots() const noexcept { return entries_.size() / lag_; }
    void expect(std::span<request_view const> requests, std::size_t block_size) const {
        if (block_size != block_size_) {
            fail_with("survival_history: a round with a block_size of ", block_size, ", expected its own, ",
                      block_size_, "; make it with the drafter's block_size()");
        }
        for (std::size_t r = 0; r < requests.size(); ++r) {
            if (requests[r].slot < slots()) continue;
            fail_with("survival_history: request ", r, " has slot ", requests[r].slot,
                      ", expected one below max_requests = ", slots(), ", which it was made for");
        }
    }

    std::size_t block_size_ = 0;
    std::size_t lag_ = 1;
    fixed_probability prior_ = certain;
    std::uint64_t round_ = 0;
    std::vector<entry> entries_;            // [slots, lag]
    std::vector<fixed_probability> table_;  // [slots, lag, gamma] confidences
};

SURELEAP_END_NAMESPACE
