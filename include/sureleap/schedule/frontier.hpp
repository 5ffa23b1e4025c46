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
// candidates in sorted order: Algorithm 1's sort is an R-way merge that stops early. The merge is a heap for schedulers
// that look at candidates. Schedulers of the library that only ask how far to go (admit_best, Algorithm 1) get the
// answer for many candidates at once (bulk_admission.hpp). The lengths are the same, so it is still the same stopping
// time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/detail/kernel/native.hpp>
#include <sureleap/detail/kernel/survivals.hpp>
#include <sureleap/schedule/bulk_admission.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/schedule/throughput.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What a walk over a table of R requests keeps; carved once, reused in every round.
struct frontier_memory {
    std::span<std::uint32_t> lengths{};  ///< [R] admitted positions of each request: the result
    std::span<std::uint32_t> heap{};   ///< [R] requests with a revealed candidate, best first; or survivals copied out
    std::span<std::uint32_t> where{};  ///< [R] place of each request in the heap; or the same once more
    /// For passes over the table; a static table. Null: the best that this machine runs.
    survival_kernels const* kernels = nullptr;

    [[nodiscard]] static frontier_memory carve(workspace& ws, std::size_t requests) noexcept {
        return {ws.take<std::uint32_t>(requests), ws.take<std::uint32_t>(requests), ws.take<std::uint32_t>(requests)};
    }
    /// Asked where a schedule needs them: a program without such a schedule compiles none.
    [[nodiscard]] survival_kernels const& passes() const noexcept {
        return kernels != nullptr ? *kernels : native_kernels<survival_kernels>();
    }
};

namespace detail {
struct frontier_access;
}

/// A walk over the admissible candidates of a table. O(R) at the first look at the best, from then on O(log R) to
/// admit, O(1) to look. A schedule that goes through requests one by one never asks for the best, and pays O(1) for
/// everything.
class causal_frontier {
public:
    causal_frontier(survival_table const& table, frontier_memory const& memory) noexcept
        : table_(table), memory_(memory) {
        SURELEAP_EXPECTS(memory.lengths.size() >= table.requests());
        std::fill_n(memory_.lengths.begin(), requests(), 0u);
    }
    // A copy could be walked to the end, and the frontier itself then admit by what was seen there.
    causal_frontier(causal_frontier const&) = delete;
    causal_frontier& operator=(causal_frontier const&) = delete;

    [[nodiscard]] std::size_t requests() const noexcept { return table_.requests(); }
    /// No candidate is left.
    [[nodiscard]] bool empty() const noexcept {
        order();
        return open_ == 0;
    }
    /// The first revealed candidate in the order of admission. Precondition: !empty().
    [[nodiscard]] candidate best() const noexcept {
        order();
        SURELEAP_EXPECTS(open_ > 0);
        return revealed(memory_.heap[0]);
    }
    /// Request r has a revealed candidate.
    [[nodiscard]] bool has_next(std::size_t r) const noexcept {
        return ordered_ ? memory_.where[r] != closed : memory_.lengths[r] < table_.sizes[r];
    }
    /// The revealed candidate of request r. Precondition: has_next(r).
    [[nodiscard]] candidate next(std::size_t r) const noexcept {
        SURELEAP_EXPECTS(has_next(r));
        return revealed(static_cast<std::uint32_t>(r));
    }
    /// Verifies the revealed candidate of request r and reveals the one behind it. Precondition: has_next(r).
    void admit(std::size_t r) noexcept {
        SURELEAP_EXPECTS(has_next(r));
        ++admitted_;
        bool const more = ++memory_.lengths[r] < table_.sizes[r];
        if (!ordered_) return;
        if (more) {
            sift_down(memory_.where[r]);  // survival never rises along a request
        } else {
            remove(memory_.where[r]);
        }
    }
    /// Verifies the next n candidates in the order of admission, or all there are: n times admit(best().request). O(R
    /// gamma) at any n, by passes over the table.
    void admit_best(std::size_t n) noexcept;
    /// Gives request r no further position in this round. Precondition: has_next(r).
    void close(std::size_t r) noexcept {
        order();
        SURELEAP_EXPECTS(has_next(r));
        remove(memory_.where[r]);
    }

    /// The step before any draft is admitted: what is known of its load before the block was drawn, and its tau and B.
    [[nodiscard]] step_load load() const noexcept { return table_.load_without_drafts(); }
    [[nodiscard]] expected_step without_drafts() const noexcept { return expected_step::without_drafts(table_); }

    /// Positions admitted so far, of request r and of all requests.
    [[nodiscard]] std::size_t length(std::size_t r) const noexcept { return memory_.lengths[r]; }
    [[nodiscard]] std::size_t admitted() const noexcept { return admitted_; }
    /// The probability that all admitted positions of request r survive: a product of confidences, without the weight
    /// that candidates' survivals begin with. O(length(r)).
    [[nodiscard]] fixed_probability survival(std::size_t r) const noexcept {
        fixed_probability product = certain;
        for (std::size_t k = 0; k < length(r); ++k) product = extend_survival(product, table_.at(r, k).confidence);
        return product;
    }

private:
    friend struct detail::frontier_access;
    static constexpr std::uint32_t closed = static_cast<std::uint32_t>(-1);

    [[nodiscard]] bool touched() const noexcept { return ordered_ || admitted_ > 0; }
    /// Puts the revealed candidates into the heap, if nobody has compared requests yet.
    void order() const noexcept {
        if (ordered_) return;
        ordered_ = true;
        for (std::size_t r = 0; r < requests(); ++r) {
            memory_.where[r] = closed;
            if (memory_.lengths[r] < table_.sizes[r]) place(open_++, static_cast<std::uint32_t>(r));
        }
        for (std::size_t i = open_ / 2; i-- > 0;) sift_down(i);
    }
    [[nodiscard]] candidate revealed(std::uint32_t r) const noexcept { return table_.at(r, memory_.lengths[r]); }
    [[nodiscard]] bool before(std::size_t i, std::size_t j) const noexcept {
        return precedes(revealed(memory_.heap[i]), revealed(memory_.heap[j]));
    }
    void place(std::size_t i, std::uint32_t r) const noexcept {
        memory_.heap[i] = r;
        memory_.where[r] = static_cast<std::uint32_t>(i);
    }
    void exchange(std::size_t i, std::size_t j) const noexcept {
        std::uint32_t const a = memory_.heap[i];
        std::uint32_t const b = memory_.heap[j];
        place(i, b);
        place(j, a);
    }
    void sift_down(std::size_t i) const noexcept {
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
    mutable std::size_t open_ = 0;  // candidates in the heap,
    mutable bool ordered_ = false;  // which is made when somebody looks
    std::size_t admitted_ = 0;
};

namespace detail {

/// Walks of the library's own schedules. Not for others: a rule that proves something about a segment is told sums of
/// survivals that the walk may never reveal. The rules here use them for nothing but the walk's own answer.
struct frontier_access {
    /// Admits in order while the rule takes what comes. The same as
    ///
    ///     while (!frontier.empty() && rule.take(step = step.with(frontier.best()))) frontier.admit(<that request>);
    ///
    /// and done so on a frontier that somebody has looked at; otherwise by passes over the table, at any R.
    template <admission_rule Rule>
    static void admit_while(causal_frontier& frontier, Rule& rule) noexcept {
        if (frontier.touched()) return one_by_one(frontier, rule);
        frontier_memory const& memory = frontier.memory_;
        survival_kernels const& kernels = memory.passes();
        survival_rows const rows = rows_of(frontier.table_, kernels);
        admission_end const end =
            admit_in_bulk(rows, frontier.without_drafts(), rule, memory.heap, memory.where, kernels);
        admit_until(end, frontier.table_, rows, memory.lengths, kernels);
        frontier.admitted_ = end.batch_tokens - frontier.requests();
    }

    /// The same walk over a table that may be seen whole, for the rule's own answer. What it leaves in the memory means
    /// nothing.
    template <admission_rule Rule>
    static void walk(survival_table const& table, frontier_memory const& memory, Rule& rule) noexcept {
        survival_kernels const& kernels = memory.passes();
        admit_in_bulk(rows_of(table, kernels), expected_step::without_drafts(table), rule, memory.heap, memory.where,
                      kernels);
    }

private:
    template <admission_rule Rule>
    static void one_by_one(causal_frontier& frontier, Rule& rule) noexcept {
        auto step = frontier.without_drafts();
        while (!frontier.empty()) {
            candidate const c = frontier.best();
            step = step.with(c);
            if (!rule.take(step)) return;
            frontier.admit(c.request);
        }
    }
};

}  // namespace detail

inline void causal_frontier::admit_best(std::size_t n) noexcept {
    std::size_t const left = requests() * table_.block_size - admitted_;
    detail::up_to rule{requests() + std::min(n, left)};
    detail::frontier_access::admit_while(*this, rule);
}

SURELEAP_END_NAMESPACE
