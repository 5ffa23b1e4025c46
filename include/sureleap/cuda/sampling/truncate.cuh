// SPDX-License-Identifier: MIT
//
// Top-k, top-p and min-p of a row as one cutoff, the last token kept, found by a block of threads. truncation.hpp finds
// the same on the host. Each token has a key of its own that sorts as tokens do (logit descending, id ascending). A
// filter is then a search for a key: that at which the number of tokens before it, or their mass, reaches a target.
//
// A search first lists the tokens above some logit, sorts that list and looks there (listed_tokens.cuh). The largest
// logits of the row's parts tell which one (ordered_row.cuh). In nine rows of ten that is all there is to do, and most
// of the row is skipped. A list that became too long is narrowed by histograms over ten bits of the key at a time. That
// ends however flat the row is, and however many tokens are tied.
//
// Masses are summed in integers; the host sums weights in double in the order of tokens. Both are within 2^-40 of the
// sum of the same weights. Besides, their weights differ by as much as expf does. A total that the caller knows was
// summed in float. It is used where that is far less than what a top-p leaves out.
//
// Rejected: sorting the row (ten passes); a threshold on the weight, refined until the count is right (as many passes,
// and ties are still open); pops from a heap as on the host (one thread's work).
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/cold.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/listed_tokens.cuh>
#include <sureleap/cuda/sampling/ordered_row.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// The last token kept, in the order of truncation.hpp; detail::cutoff of the host.
struct cutoff {
    float logit = -infinity;
    token_id id = 0x7fffffff;
};

namespace detail {

/// The filters of one row. All members are BLOCK collectives unless they are marked otherwise.
template <class Row>
class row_filters {
public:
    using key_type = unsigned long long;
    using measure = token_measure;

    __device__ row_filters(Row row, std::uint32_t size, float scale, row_statistics const& statistics,
                           truncate_shared& s)
        : row_(row, size, scale, statistics, s), tokens_(s), first_(row_.first_key()), end_(row_.end_key()) {}

    /// Top-k (amount: how many) or top-p (amount: the share of the mass).
    __device__ void keep(measure what, double amount) {
        if (what == measure::count) {
            keep_until_reached(
                what, amount,
                amount < truncate_shared::parts ? static_cast<unsigned>(amount) : truncate_shared::parts + 1);
        } else {
            bool const leaves_much = 1.0 - amount > 0x1p-10;
            keep_until_reached(what, amount * mass_left(leaves_much), (row_.parts() + 1) / 2);
        }
    }

    /// The mode's weight is 1. A weight decides, and tokens of equal weight are kept together.
    __device__ void keep_weight(double least) {
        key_type const bound = end_of_weight(least);
        if (bound >= end_) return;
        if (complete_) {
            unsigned kept = 1;  // the mode at least
#pragma unroll 1
            while (kept < listed_) {
                unsigned const middle = (kept + listed_) / 2;
                if (tokens_.key(middle) < bound) {
                    kept = middle + 1;
                } else {
                    listed_ = middle;
                }
            }
            end_ = tokens_.key(listed_ - 1) + 1;
        } else {
            (void)tokens_.list(row_, first_, bound);
            end_ = tokens_.last() + 1;
        }
        all_left_ = false;
    }

    /// Of the mode, if no filter took anything away.
    [[nodiscard]] __device__ cutoff last_kept() const {
        return {row_.order().logit(end_ - 1), static_cast<token_id>(row_.order().id(end_ - 1))};
    }

private:
    /// Ends what is left with the first token at which the measure of what is kept reaches the target; keeps all of it
    /// if none does. `parts` of the row, which have the largest logits, are believed to be enough.
    __device__ void keep_until_reached(measure what, double target, std::uint32_t parts) {
        if (complete_) {
            reached_sum const at = tokens_.reach_in_list(row_, what, listed_, 0, target);
            if (at.index < listed_) listed_ = at.index + 1;
            end_ = tokens_.key(listed_ - 1) + 1;
            return;
        }
        key_type begin = first_;
        key_type stop = end_;
        bool fits = row_.size() <= truncate_shared::capacity;
        if (!fits) {
            float const bound = row_.nth_largest(parts);
            key_type const above = row_.order().key(bound, row_.size() - 1) + 1;
            fits = bound > -infinity;
            if (fits && above < stop) stop = above;
        }
        key_type before = 0;
        key_type last = first_;
        for (;;) {
            if (fits) {
                unsigned const count = tokens_.list(row_, begin, stop);
                fits = count <= truncate_shared::capacity;
                if (fits) {
                    reached_sum const at = tokens_.reach_in_list(row_, what, count, before, target);
                    bool const found = at.index < count;
                    if (count > 0) last = tokens_.key(found ? at.index : count - 1);
                    if (found || stop == end_) {
                        complete_ = begin == first_;
                        listed_ = found ? at.index + 1 : count;
                        break;
                    }
                    before = at.before;
                    begin = stop;
                    stop = end_;
                }
            }
            // Too many, or less than the target: a bin of them, the first that reaches it or the last one.
            unsigned const shift = tokens_.count_bins(row_, what, begin, stop);
            reached_sum at = tokens_.reach_in_bins(row_, what, before, target);
            before = at.before;
            if (at.index == truncate_shared::capacity) {
                if (stop != end_) {
                    begin = stop;
                    stop = end_;
                    continue;
                }
                while (at.index > 0 && tokens_.tokens_of_bin(at.index - 1) == 0) --at.index;
                if (at.index == 0) break;  // nothing is behind the last list
                before -= tokens_.of_bin(what, --at.index);
            }
            fits = tokens_.tokens_of_bin(at.index) <= truncate_shared::capacity;
            begin += static_cast<key_type>(at.index) << shift;
            key_type const next = begin + (key_type{1} << shift);
            if (next < stop) stop = next;
            end_ = stop;
        }
        end_ = last + 1;
        all_left_ = false;
    }

    /// The mass of what is left, in units of the row; within 2^-20 of it will do if `roughly`.
    [[nodiscard]] __device__ double mass_left(bool roughly) {
        double const known = row_.statistics().total;
        if (all_left_ && known > 0.0 && roughly) return known * static_cast<double>(row_.unit());
        if (!complete_) (void)tokens_.count_bins(row_, measure::mass, first_, end_);
        reached_sum const all = complete_ ? tokens_.reach_in_list(row_, measure::mass, listed_, 0, __builtin_inf())
                                          : tokens_.reach_in_bins(row_, measure::mass, 0, __builtin_inf());
        return static_cast<double>(all.before);
    }
    /// Any thread: the end of the keys whose weight is `least` or more. Bisects logits, of which there are 2^32: no
    /// token is looked at.
    [[nodiscard]] __device__ __noinline__ key_type end_of_weight(double least) const {
        token_order const& order = row_.order();
        key_type heavy = first_ >> order.id_bits();
        key_type light = ((end_ - 1) >> order.id_bits()) + 1;
#pragma unroll 1
        while (light - heavy > 1) {
            key_type const middle = heavy + (light - heavy) / 2;
            bool const is_heavy = static_cast<double>(row_.weight(order.logit(middle << order.id_bits()))) >= least;
            (is_heavy ? heavy : light) = middle;
        }
        return light << order.id_bits();
    }

    ordered_row<Row> row_;
    listed_tokens<Row> tokens_;
    // What is left lies in [first_, end_). It is all that counts of the row until a filter ended it, and then the token
    // before end_ is the last one kept.
    key_type first_;
    key_type end_;
    bool all_left_ = true;
    bool complete_ = false;  ///< the list holds all that is left
    unsigned listed_ = 0;
};

}  // namespace detail

/// What top-k, top-p and min-p of `how` keep of a row that has a distribution: the last token kept. A BLOCK collective
/// of 32 to 1024 threads, a power of two; every thread gets the result. `how` truncates and is not greedy; no logit is
/// NaN or +inf, and statistics.top is finite. The result is detail::truncate's, up to weights at the boundary of top-p
/// or min-p that differ by rounding. Passes over the row: one for its largest logits, unless the statistics tell them;
/// one for the total, if top-p comes first and they do not tell it; then mostly one over a part of it.
template <class Row>
[[nodiscard]] __device__ __noinline__ cutoff truncate(Row row, std::uint32_t size, transform const& how,
                                                      row_statistics const& statistics, truncate_shared& shared) {
    detail::row_filters<Row> filters(row, size, static_cast<float>(quotient(1.0, how.temperature)), statistics, shared);
    using measure = typename detail::row_filters<Row>::measure;
#pragma unroll 1
    for (unsigned i = 0; i < 2; ++i) {  // one copy of the search is large enough
        bool const first = i == 0;
        if (!(first ? how.top_k > 0 : how.top_p < 1.0)) continue;
        filters.keep(first ? measure::count : measure::mass, first ? static_cast<double>(how.top_k) : how.top_p);
    }
    if (how.min_p > 0.0) filters.keep_weight(how.min_p);
    return filters.last_kept();
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
