// SPDX-License-Identifier: MIT
//
// Truncated rows of p over ranks: where they are cut, and what is kept.
//
//     1. Every rank lists its best tokens. All lists together mostly hold the cut, and always that of a small top-k.
//     2. Where they do not, the ranks search for it, digit by digit (cut_search.hpp).
//     3. After a search, and for min-p alone, they exchange the sums of what is kept; of lists everybody adds up.
//
// Masses are whole numbers and sums are in the order of tokens. So a row is cut at the same token, and has the same
// bits, whatever the slices are and whichever way it went.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ranks/cut_search.hpp>
#include <sureleap/ranks/message.hpp>
#include <sureleap/ranks/questions.hpp>
#include <sureleap/ranks/sharded_law.hpp>
#include <sureleap/ranks/sharded_verification.hpp>
#include <sureleap/ranks/slice_row.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// One rank's part in it. P: storage of the target's rows as they are read, Q: of the draft's.
template <class P, class Q>
class rank_cuts {
    using request_type = sharded_request<P, Q>;
    using row_type = sharded_row<P>;
    using real = compute_t<P>;
    using listed_token = slice_mode<real>;
    using bins_type = std::array<cut_bin, cut_bins>;

public:
    rank_cuts(vocabulary_slices const& slices, std::size_t rank) noexcept : slices_(slices), rank_(rank) {}

    [[nodiscard]] static constexpr std::size_t most_bytes_of_row() noexcept {
        return std::max(request_type::most_listed * sizeof(listed_token), sizeof(bins_type));
    }
    [[nodiscard]] std::size_t bytes_of_best(request_type const& of) const noexcept {
        return (of.asked_length + 1) * of.best_count() * (sizeof(real) + sizeof(token_id));
    }
    [[nodiscard]] std::size_t bytes_of_cut(request_type const& of) const noexcept {
        return count_rows(of, &is_searched) * sizeof(bins_type);
    }
    [[nodiscard]] std::size_t bytes_of_kept(request_type const& of) const noexcept {
        return count_rows(of, &is_uncounted) * (slices_.most_parts() * sizeof(double) + sizeof(token_id));
    }

    // ---- lists -------------------------------------------------------------------------------------------------

    void say_best(request_type const& of, byte_writer& out) const noexcept {
        std::array<listed_token, request_type::most_listed> all;
        auto const list = std::span(all).first(of.best_count());
        for (std::size_t n = 0; n <= of.asked_length; ++n) {
            std::size_t const count = of.targets[n].row().own.find_best(list);
            for (std::size_t i = 0; i < list.size(); ++i) {
                listed_token const x = i < count ? list[i] : listed_token{};
                out.put(x.top);
                out.put(x.token);
            }
        }
    }
    void hear_best(request_type& of, std::byte const* first, std::size_t size) const noexcept {
        constexpr std::size_t step = sizeof(real) + sizeof(token_id);
        std::size_t const most = of.best_count();
        for (std::size_t n = 0; n <= of.asked_length; ++n) {
            row_type& row = of.targets[n].row();
            if (!is_truncated(row)) continue;
            // All tokens that are listed, in their order, up to the end of the first list that may go on.
            std::size_t count = 0;
            real end = -std::numeric_limits<real>::infinity();
            bool is_law = true;
            for (std::size_t rank = 0; rank < slices_.ranks(); ++rank) {
                byte_reader in{first + rank * size + n * most * step};
                for (std::size_t i = 0; i < most; ++i) {
                    auto const top = in.template take<real>();
                    listed_token const x{top, in.template take<token_id>()};
                    is_law = is_law && !std::isnan(top);
                    if (x.token == no_token) continue;
                    of.listed[count++] = x;
                    if (i + 1 == most) end = std::max(end, top);
                }
            }
            auto const list = of.listed.first(count);
            std::ranges::sort(list, [](listed_token const& a, listed_token const& b) {
                return a.top > b.top || (a.top == b.top && a.token < b.token);
            });
            if (!is_law || list.empty()) {
                give_up(row);
                continue;
            }
            row.top = list[0].top;
            auto const open = std::ranges::find_if(list, [end](listed_token const& x) { return !(x.top > end); });
            cut_in_list(of, row, list, static_cast<std::size_t>(open - list.begin()));
        }
        of.questions.search(count_rows(of, &is_searched) > 0);
    }

    // ---- searches ----------------------------------------------------------------------------------------------

    /// Of requests that list nothing, once the sums of all tokens are known.
    void begin(request_type& of) const noexcept {
        for_each_row(of, &is_truncated, [&](row_type& row) {
            if (!std::isfinite(row.top)) return give_up(row);
            if (of.how.top_k > 0) {
                row.search = cut_search<real>::of_count(static_cast<std::uint64_t>(of.how.top_k));
            } else {
                cut_by_min_p(of, row, -std::numeric_limits<real>::infinity(), no_token);
            }
        });
        of.questions.search(count_rows(of, &is_searched) > 0);
    }
    void say_cut(request_type const& of, byte_writer& out) const noexcept {
        for_each_row(of, &is_searched, [&](row_type const& row) {
            bins_type bins{};
            row.own.count(row.search, row.top, bins);
            out.put(bins);
        });
    }
    void hear_cut(request_type& of, std::byte const* first, std::size_t size) const noexcept {
        std::size_t at = 0;
        for_each_row(of, &is_searched, [&](row_type& row) {
            bins_type all{};
            for (std::size_t rank = 0; rank < slices_.ranks(); ++rank) {
                auto const bins = byte_reader{first + rank * size + at}.template take<bins_type>();
                for (std::size_t i = 0; i < cut_bins; ++i) {
                    all[i].count += bins[i].count;
                    all[i].mass += bins[i].mass;
                }
            }
            cut_search<real> const before = row.search;
            bool const found = row.search.go_on(all, zeros);
            if (found) {  // of tokens with that logit each rank keeps those that come first
                std::uint64_t left = row.search.equals();
                for (std::size_t rank = 0; rank <= rank_; ++rank) {
                    auto const bins = byte_reader{first + rank * size + at}.template take<bins_type>();
                    row.own_equals = std::min(left, bins[before.bin(row.search.logit())].count);
                    left -= row.own_equals;
                }
                end_search(of, row);
            }
            at += sizeof(bins_type);
        });
        of.questions.search(count_rows(of, &is_searched) > 0);
    }

    // ---- sums of what is kept ----------------------------------------------------------------------------------

    void say_kept(request_type const& of, byte_writer& out) const noexcept {
        auto const parts = slices_.parts_of(rank_);
        for_each_row(of, &is_uncounted, [&](row_type const& row) {
            slice_row<P> own = row.own;
            token_id last = row.cut_token;
            if (last == no_token) {  // a search counted those that are kept
                last = own.find_equal(row.cut_logit, row.own_equals);
                own.keep(row.cut_logit, last == no_token ? static_cast<token_id>(slices_.first(rank_)) - 1 : last);
            } else {
                own.keep(row.cut_logit, last);
            }
            for (std::size_t i = 0; i < slices_.most_parts(); ++i) {
                out.put(i < parts.size() ? own.sum_kept(parts[i], row.top) : 0.0);
            }
            out.put(last);
        });
    }
    void hear_kept(request_type& of, std::byte const* first, std::size_t size) const noexcept {
        std::size_t at = 0;
        for_each_row(of, &is_uncounted, [&](row_type& row) {
            for (std::size_t rank = 0; rank < slices_.ranks(); ++rank) {
                byte_reader in{first + rank * size + at};
                for (std::size_t i = 0; i < slices_.most_parts(); ++i) {
                    auto const sum = in.template take<double>();
                    if (i < slices_.parts_of(rank).size()) row.sums[slices_.first_part(rank) + i] = sum;
                }
                row.cut_token = std::max(row.cut_token, in.template take<token_id>());
            }
            at += slices_.most_parts() * sizeof(double) + sizeof(token_id);
            add_up(row);
        });
    }

private:
    static constexpr int zeros = std::is_same_v<P, bf16> ? 16 : std::is_same_v<P, half> ? 13 : 0;
    static constexpr token_id all_equals = std::numeric_limits<token_id>::max();

    [[nodiscard]] static bool is_truncated(row_type const& row) noexcept {
        return row.truncates && row.is == row_type::kind::dense && !row.is_summed;
    }
    [[nodiscard]] static bool is_searched(row_type const& row) noexcept { return is_truncated(row) && !row.is_cut; }
    [[nodiscard]] static bool is_uncounted(row_type const& row) noexcept { return is_truncated(row) && row.is_cut; }
    template <class Request, class Visit>
    static void for_each_row(Request& of, bool (*which)(row_type const&), Visit const& visit) {
        for (std::size_t n = 0; n <= of.asked_length; ++n) {
            if (which(of.targets[n].row())) visit(of.targets[n].row());
        }
    }
    [[nodiscard]] static std::size_t count_rows(request_type const& of, bool (*which)(row_type const&)) noexcept {
        std::size_t count = 0;
        for_each_row(of, which, [&](row_type const&) { ++count; });
        return count;
    }

    /// The first `sure` tokens of `list` are those of the row; if that is all of it, the row has no more.
    void cut_in_list(request_type& of, row_type& row, std::span<listed_token const> list,
                     std::size_t sure) const noexcept {
        auto const mass_of = [&](std::size_t i) {
            return whole_mass(weight_beside(list[i].top, row.top, row.own.scale()));
        };
        auto const k = static_cast<std::size_t>(of.how.top_k);
        std::size_t kept = k > 0 ? std::min(k, list.size()) : list.size();
        auto const reach = [&](std::uint64_t wanted) {  // how many tokens, `kept` at most, have so much mass
            std::uint64_t mass = 0;
            std::size_t i = 0;
            while (i < kept && mass < wanted) mass += mass_of(i++);
            return i;
        };
        if (of.how.top_p < 1.0 && k > 0) {
            std::uint64_t mass = 0;
            for (std::size_t i = 0; i < kept; ++i) mass += mass_of(i);
            kept = reach(part_of(of.how.top_p, static_cast<double>(mass)));
        } else if (of.how.top_p < 1.0) {
            // The row was summed by weights that are rounded. Where that may move the cut, masses are counted.
            constexpr double rounding = std::is_same_v<real, double> ? 0x1p-36 : 0x1p-17;
            double const mass = row.total * 0x1p40;
            std::size_t const least = reach(part_of(of.how.top_p, mass * (1.0 - rounding)));
            std::size_t const most = reach(part_of(of.how.top_p, mass * (1.0 + rounding)));
            if (least != most || most > sure || (most == list.size() && sure < list.size())) {
                row.search = cut_search<real>::of_part(of.how.top_p);
                row.searches_mass = true;
                return;
            }
            kept = most;
        }
        cut_by_min_p(of, row, list[kept - 1].top, list[kept - 1].token);
        // Every rank has all that is kept: added up in the order of tokens.
        std::ranges::fill(row.sums, 0.0);
        auto const some = of.listed.first(kept);
        std::ranges::sort(some, {}, &listed_token::token);
        for (listed_token const& x : some) {
            bool const is_kept = x.top > row.cut_logit || (x.top == row.cut_logit && x.token <= row.cut_token);
            if (is_kept) row.sums[slices_.part_of(x.token)] += weight_beside(x.top, row.top, row.own.scale());
        }
        add_up(row);
    }
    /// A top-k may be followed by a top-p, and both by a min-p.
    void end_search(request_type& of, row_type& row) const noexcept {
        if (!row.searches_mass && of.how.top_p < 1.0) {
            row.search = cut_search<real>::of_mass(part_of(of.how.top_p, static_cast<double>(row.search.mass())));
            row.searches_mass = true;
            return;
        }
        cut_by_min_p(of, row, row.search.logit(), no_token);
    }
    void cut_by_min_p(request_type const& of, row_type& row, real logit, token_id token) const noexcept {
        row.is_cut = true;
        row.cut_logit = logit;
        row.cut_token = token;
        if (!(of.how.min_p > 0.0)) return;
        real const least = least_logit(of.how.min_p, row.top, row.own.scale());
        if (!(least > logit)) return;
        row.cut_logit = least;
        row.cut_token = all_equals;
    }
    static void add_up(row_type& row) noexcept {
        row.total = 0.0;
        for (double const sum : row.sums) row.total += sum;
        row.own.shift_by(row.top);
        row.own.keep(row.cut_logit, row.cut_token);
        row.is_summed = true;
    }
    static void give_up(row_type& row) noexcept {
        row.is_cut = row.is_summed = true;
        row.total = 0.0;
    }

    vocabulary_slices const& slices_;
    std::size_t rank_;
};

}  // namespace detail
SURELEAP_END_NAMESPACE
