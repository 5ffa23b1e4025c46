// SPDX-License-Identifier: MIT
//
// Admission of candidates in the order of survival.hpp, many at once. In: a table of survivals and a rule that says
// when to stop. Out: the batch tokens and the least survival admitted, from which admit_until makes the verify lengths.
// The lengths are those of admission one by one.
//
// A rule decides about one prefix of the order after another: whether admission goes on to it. All that the rule sees
// of a prefix is how many candidates it has and the sum of their survivals (expected_step). With a heap each candidate
// costs O(log R). Here the rule is asked about a segment first: all candidates between two thresholds of survival.
//
//   1. One pass over the table gives the number of candidates in the segment and their sum (detail/kernel/survivals.hpp).
//   2. If the rule can prove from these two numbers that it admits all of them, the segment is passed.
//   3. Otherwise the segment is cut in two. Short ones are sorted, and the rule decides candidate by candidate.
//
// The time is that of the passes, so there must be few. Admission over a sample of the rows says where to cut first. A
// segment that has become small is copied to the memory of the heap. So a large table is read about twice: once to find
// the threshold, once for the lengths.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/detail/kernel/survivals.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/schedule/throughput.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// What a walk asks, of prefixes in order.
///
/// - take(longer): the walk goes on to this prefix, one candidate longer than the last one.
/// - pass(segment): take() would say so all along the segment, whatever candidates it is made of, and the rule needs to
///   see none of them. After `true` the last prefix is segment.to.
/// - visit(prefix): says no more than that this prefix exists, ahead of the walk.
/// - answer(): batch tokens of the prefix that the rule is after, once the walk is over.
template <class R>
concept admission_rule = requires(R& rule, R const& done, expected_step const& step, admission_segment const& segment) {
    { rule.take(step) } -> std::same_as<bool>;
    { rule.pass(segment) } -> std::same_as<bool>;
    rule.visit(step);
    { done.answer() } -> std::same_as<std::size_t>;
};

/// Where a walk ended.
struct admission_end {
    std::size_t batch_tokens = 0;
    fixed_probability least = 0;  ///< of the candidates taken; certain + 1 if there is none
};

/// Candidates with low <= survival < high, and the prefix of the order before them.
struct candidate_set {
    survival_rows rows{};
    fixed_probability low = 0;
    fixed_probability high = certain + 1;
    expected_step before{};
    std::size_t size = 0;  ///< at most so many
};

/// One walk. `weight`: a candidate of the set stands for so many.
class bulk_admission {
public:
    /// Room for copies: a segment is copied out when it fits and when that makes further passes four times shorter.
    bulk_admission(survival_kernels const& kernels, candidate_set const& all, std::size_t weight,
                   std::span<std::uint32_t> first, std::span<std::uint32_t> second) noexcept
        : kernels_(kernels), weight_(weight), sets_{all, {}, {}}, room_{first, second} {}

    /// The prefix of all candidates of at least t. Precondition: the innermost set reaches to t.
    [[nodiscard]] expected_step prefix(fixed_probability t) const noexcept {
        return after(sets_[depth_].before, kernels_.at_least(sets_[depth_].rows, t));
    }

    /// Cuts the walk at the thresholds of `guess` (high >= middle >= low) before it begins, and copies what lies
    /// between.
    void cut(fixed_probability low, fixed_probability middle, fixed_probability high) noexcept {
        candidate_set const& all = sets_[0];
        survival_tally above;
        survival_tally const inside = kernels_.between(all.rows, low, high, room_[0].data(), stored(0), above);
        expected_step const upper = after(all.before, above);
        push(0);
        push(low, after(upper, inside));
        if (inside.count <= stored(0)) descend(low, high, upper, inside.count);
        push(middle, prefix(middle));
        // Copies that do not fit are of many equals as a rule: cut them off on both sides.
        if (inside.count > stored(0) && middle + 1 < high) push(middle + 1, prefix(middle + 1));
        push(high, upper);
    }

    template <admission_rule Rule>
    admission_end run(Rule& rule) noexcept {
        expected_step from = sets_[0].before;
        fixed_probability high = certain + 1;  // `from` is the prefix of all of at least `high`
        if (cuts_ == 0) push(0);
        for (std::size_t i = 1; i < cuts_; ++i) rule.visit(cut_[i].to);
        while (cuts_ > 0) {
            segment_end& next = cut_[cuts_ - 1];
            if (!next.known) {
                climb(next.low, high);
                next = {next.low, true, prefix(next.low)};
            }
            admission_segment const segment{from, next.to, next.low, high - 1, weight_};
            if (segment.size() == 0 || rule.pass(segment)) {
                from = next.to;
                --cuts_;
                if (cuts_ == 0 || cut_[cuts_ - 1].low < segment.least) high = segment.least;
                continue;
            }
            climb(segment.least, high);
            std::size_t const size = segment.size() / weight_;
            bool const alike = segment.least == segment.most;
            if (size <= leaf) {
                admission_end const end = walk_leaf(rule, segment, size);
                if (end.batch_tokens < segment.to.batch_tokens) return end;
                from = segment.to;
                --cuts_;
                if (cuts_ == 0 || cut_[cuts_ - 1].low < segment.least) high = segment.least;
            } else if (alike) {
                push(segment.least, after(from, {size / 2, size / 2 * std::uint64_t{segment.least}}));
            } else if (depth_ < 2 && size <= stored(depth_) && size <= sets_[depth_].size / 4) {
                survival_tally above;
                kernels_.between(sets_[depth_].rows, segment.least, high, room_[depth_].data(), size, above);
                descend(segment.least, high, from, size);
            } else {
                fixed_probability const middle = segment.least + (high - segment.least) / 2;
                expected_step const to = prefix(middle);
                rule.visit(to);
                push(middle, to);
            }
        }
        return {from.batch_tokens, high};
    }

private:
    static constexpr std::size_t leaf = 16;

    struct segment_end {
        fixed_probability low = 0;
        bool known = false;
        expected_step to{};
    };

    [[nodiscard]] expected_step after(expected_step const& before, survival_tally const& more) const noexcept {
        return before.with(more.count * weight_, more.sum * weight_);
    }
    void push(fixed_probability low) noexcept { cut_[cuts_++] = {low, false, {}}; }
    void push(fixed_probability low, expected_step const& to) noexcept { cut_[cuts_++] = {low, true, to}; }

    /// Numbers that `between` may be asked to store in a room.
    [[nodiscard]] std::size_t stored(std::size_t room) const noexcept {
        std::size_t const size = room_[room].size();
        return size > survival_kernels::spare ? size - survival_kernels::spare : 0;
    }
    void descend(fixed_probability low, fixed_probability high, expected_step const& before,
                 std::size_t size) noexcept {
        sets_[depth_ + 1] = {{room_[depth_].data(), 1, size, nullptr}, low, high, before, size};
        ++depth_;
    }

    /// Back to a set that holds all from `low` to `high`.
    void climb(fixed_probability low, fixed_probability high) noexcept {
        while (low < sets_[depth_].low || high > sets_[depth_].high) --depth_;
    }

    template <class Rule>
    [[nodiscard]] admission_end walk_leaf(Rule& rule, admission_segment const& segment,
                                          std::size_t size) const noexcept {
        std::array<std::uint32_t, leaf + survival_kernels::spare> values;
        admission_end end{segment.from.batch_tokens, segment.most + 1};
        if (segment.least == segment.most) {
            std::fill_n(values.begin(), size, segment.least);
            end.least = segment.least;  // some of these may have been taken before
        } else {
            survival_tally above;
            kernels_.between(sets_[depth_].rows, segment.least, segment.most + 1, values.data(), size, above);
            std::sort(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(size),
                      [](auto a, auto b) { return a > b; });
        }
        expected_step step = segment.from;
        for (std::size_t i = 0; i < size; ++i) {
            step = after(step, {1, values[i]});
            if (!rule.take(step)) break;
            end = {step.batch_tokens, values[i]};
        }
        return end;
    }

    survival_kernels const& kernels_;
    std::size_t weight_;
    std::array<candidate_set, 3> sets_;  // each copied out of the one before
    std::array<std::span<std::uint32_t>, 2> room_;
    std::size_t depth_ = 0;
    std::array<segment_end, 80> cut_;  // ends of segments ahead, the next one last: 24 + 40 halvings
    std::size_t cuts_ = 0;
};

/// Goes to a given prefix, or as far as there are candidates.
struct up_to {
    std::size_t batch_tokens;

    [[nodiscard]] bool take(expected_step const& longer) const noexcept { return longer.batch_tokens <= batch_tokens; }
    [[nodiscard]] bool pass(admission_segment const& s) const noexcept { return take(s.to); }
    void visit(expected_step const&) const noexcept {}
    [[nodiscard]] std::size_t answer() const noexcept { return batch_tokens; }
};

/// The rows of a table in use; one array if no row is cut short.
[[nodiscard]] inline survival_rows rows_of(survival_table const& table, survival_kernels const& kernels) noexcept {
    auto const size = static_cast<std::uint32_t>(table.block_size);
    bool const full = kernels.at_least({table.sizes.data(), 1, table.requests()}, size).count == table.requests();
    return {table.survival.data(), table.requests(), table.block_size, full ? nullptr : table.sizes.data()};
}

/// Walks over a whole table from `start`, the prefix without drafts. Room: [R] each, overwritten.
template <admission_rule Rule>
admission_end admit_in_bulk(survival_rows const& rows, expected_step const& start, Rule& rule,
                            std::span<std::uint32_t> first, std::span<std::uint32_t> second,
                            survival_kernels const& kernels) noexcept {
    std::size_t const size = rows.rows * rows.stride;
    bulk_admission walk{kernels, {.rows = rows, .before = start, .size = size}, 1, first, second};
    if (rows.rows >= 1024) {
        // A sample of every 16th row of 4,096, of every 256th of a million.
        std::size_t every = 1;
        while (every * every * 16 < rows.rows) every *= 2;
        survival_rows some = rows;
        some.every = every;
        survival_tally above;
        std::size_t const room = second.size() - survival_kernels::spare;
        survival_tally const sample = kernels.between(some, 0, certain + 1, second.data(), room, above);
        if (sample.count > 0 && sample.count <= room) {
            candidate_set const all{.rows = {second.data(), 1, sample.count}, .before = start, .size = sample.count};
            Rule probe = rule;
            admission_end const stop = bulk_admission(kernels, all, every, first, {}).run(probe);
            std::size_t const answer = (probe.answer() - start.batch_tokens) / every;
            // Some four standard deviations of a rank: more than three because survivals of a row are not independent.
            auto const margin = static_cast<std::size_t>(2.0 * std::sqrt(static_cast<double>(sample.count))) + 1;
            auto const at = [&](std::size_t place) {
                up_to there{start.batch_tokens + place * every};
                return bulk_admission(kernels, all, every, first, {}).run(there).least;
            };
            fixed_probability const high = answer > margin ? at(answer - margin) : certain + 1;
            fixed_probability const low = answer + margin < sample.count ? at(answer + margin) : 0;
            fixed_probability const middle = probe.answer() == stop.batch_tokens ? stop.least : at(answer);
            walk.cut(low, std::clamp(middle, low, high), std::min(high + 1, certain + 1));
        }
    }
    return walk.run(rule);
}

/// The lengths of the first candidates in the order of admission, where a walk ended.
inline void admit_until(admission_end const& end, survival_table const& table, survival_rows const& rows,
                        std::span<std::uint32_t> lengths, survival_kernels const& kernels) noexcept {
    std::size_t const admitted = end.batch_tokens - table.requests();
    if (kernels.lengths(rows, end.least, lengths.data()) == admitted) return;
    // Only some of those that survive as well as the last one: the earlier positions, there the earlier requests.
    std::size_t left = admitted - kernels.lengths(rows, end.least + 1, lengths.data());
    for (std::size_t k = 0; left > 0; ++k) {
        for (std::size_t r = 0; r < table.requests() && left > 0; ++r) {
            if (lengths[r] != k || k >= table.sizes[r] || table.at(r, k).survival != end.least) continue;
            ++lengths[r];
            --left;
        }
    }
}

}  // namespace detail
SURELEAP_END_NAMESPACE
