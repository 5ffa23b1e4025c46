// SPDX-License-Identifier: MIT
//
// What one rank computes of its slice of a row: sums of its parts, weights of its tokens, and masses of what is left of
// p when q is taken away. Tokens have their ids in the whole vocabulary.
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
#include <sureleap/detail/kernel/native.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/ranks/cut_search.hpp>
#include <sureleap/ranks/part_sums.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/gumbel_max.hpp>
#include <sureleap/sampling/quantile.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/sampling/weighted_row.hpp>
#include <sureleap/verify/draft_tree.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// The largest logit of a slice, the first token among equals; no_token if none is finite.
template <class Real>
struct slice_mode {
    Real top = -std::numeric_limits<Real>::infinity();
    token_id token = no_token;
};

/// The log of the time at which token v arrives in the race of `key`.
template <class Real>
[[nodiscard]] double arrival_of(token_id v, Real logit, Real scale, draw_key const& key) noexcept {
    return std::log(exponential(key, static_cast<std::size_t>(v))) -
           static_cast<double>(logit) * static_cast<double>(scale);
}
/// The log of its time, NaN if a logit is NaN or +inf; no_token and +inf if nobody runs.
struct race_winner {
    double time = std::numeric_limits<double>::infinity();
    token_id token = no_token;
};

/// Part of a sum by which one in Real may be too small: what is drawn by it is drawn by so much more, and what is left
/// over is spread over all weights.
template <class Real>
inline constexpr double room_of_sum = std::is_same_v<Real, double> ? 0x1p-40 : 0x1p-19;

/// A rank's logits of one row, those of a slice or of an ascending list of its tokens. A view.
template <class T>
class slice_row {
public:
    using real = compute_t<T>;

    slice_row() = default;
    /// `over`: the tokens of the logits, which ascend.
    slice_row(std::span<T const> logits, vocabulary_view over, real scale, row_functions<T> const& functions) noexcept
        : row_(logits, functions), over_(over) {
        row_.scale_by(scale);
    }

    [[nodiscard]] real scale() const noexcept { return row_.scale(); }
    [[nodiscard]] std::span<T const> logits() const noexcept { return row_.logits(); }
    [[nodiscard]] row_functions<T> const& functions() const noexcept { return row_.functions(); }
    [[nodiscard]] bool is_slice() const noexcept { return over_.list().empty(); }
    [[nodiscard]] token_id token(std::size_t place) const noexcept {
        return over_.to_target(static_cast<token_id>(place));
    }
    /// -inf for tokens that the row does not have.
    [[nodiscard]] real logit(token_id v) const noexcept {
        token_id const i = logits().empty() ? no_token : over_.to_draft(v);
        return i == no_token ? -std::numeric_limits<real>::infinity() : load(logits()[static_cast<std::size_t>(i)]);
    }

    // ---- before anybody knows the row's largest logit ----------------------------------------------------------

    /// Relative to the part's largest logit if `to_top`, or else to some of its size, which saves a pass.
    [[nodiscard]] part_sum<real> sum(vocabulary_part const& part, bool to_top) const noexcept {
        auto const here = entries(part);
        if (here.empty()) return {};
        if (real const near = some_logit(here); !to_top && std::isfinite(near)) {
            double const sum = sum_beside(near, here);
            if (sum > 0.25 && sum < too_large) return {near, sum};
        }
        real const top = top_of(here).top;
        return {top, std::isfinite(top) ? sum_beside(top, here) : 0.0};
    }
    /// The weight of a token beside what its part was summed relative to.
    [[nodiscard]] real weight(token_id v, real top) const noexcept {
        real const l = logit(v);
        if (!std::isfinite(top) || !(l > -std::numeric_limits<real>::infinity())) return real(0);
        T const at{l};
        real weight = 0;
        functions_beside(top).weights(&at, 1, top, scale(), &weight);
        return static_cast<real>(static_cast<double>(weight) * unit_beside(top));
    }
    /// Its top is NaN if a logit is NaN or +inf.
    [[nodiscard]] slice_mode<real> mode() const noexcept { return top_of(logits()); }
    [[nodiscard]] slice_mode<real> mode(vocabulary_part const& part) const noexcept { return top_of(entries(part)); }

    /// The first of its tokens by (logit descending, id ascending), in that order; NaN without a token if a logit is
    /// NaN or +inf. Tokens whose weight is 0 beside the largest may be missing. How many there are.
    [[nodiscard]] std::size_t find_best(std::span<slice_mode<real>> out) const noexcept {
        auto const best = mode();
        if (best.token == no_token) {
            if (!std::isnan(best.top)) return 0;
            out[0] = best;
            return 1;
        }
        slice_row mine = *this;
        mine.shift_by(best.top);
        constexpr std::size_t groups = 16;
        std::array<double, groups> least{};
        std::array<std::uint32_t, groups * row_group> heavy;
        std::size_t count = 0;
        for (std::size_t first = 0; first < logits().size(); first += heavy.size()) {
            std::size_t const here = std::min(heavy.size(), logits().size() - first);
            std::size_t const listed = mine.functions().above(logits().data() + first, here, mine.shift(), scale(),
                                                              least.data(), heavy.data());
            for (std::size_t i = 0; i < listed; ++i) {
                std::size_t const place = first + heavy[i];
                real const l = load(logits()[place]);
                if (count == out.size() && !(l > out.back().top)) continue;
                std::size_t at = count < out.size() ? count++ : count - 1;
                for (; at > 0 && out[at - 1].top < l; --at) out[at] = out[at - 1];
                out[at] = {l, token(place)};
            }
            // Weights of logits next to each other may be the same.
            if (count == out.size()) least.fill(mine.weight_of(out.back().top) * (1.0 - 1e-6));
        }
        return count;
    }

    // ---- truncation --------------------------------------------------------------------------------------------

    /// Keeps the tokens up to `id` of those with this logit, and all of larger ones.
    void keep(real logit, token_id id) noexcept {
        std::ptrdiff_t const last = static_cast<std::ptrdiff_t>(id) - static_cast<std::ptrdiff_t>(token(0));
        auto const end = static_cast<std::ptrdiff_t>(logits().size());
        row_.keep({logit, static_cast<token_id>(std::clamp(last, std::ptrdiff_t{-1}, end))});
    }
    [[nodiscard]] bool keeps_all() const noexcept { return row_.keeps_all(); }
    /// The sum of exp((logit - top) scale) over what is kept of a part, in double and in the order of tokens.
    [[nodiscard]] double sum_kept(vocabulary_part const& part, real top) const noexcept {
        auto const here = entries(part);
        auto const first = static_cast<std::size_t>(here.data() - logits().data());
        double sum = 0.0;
        for (std::size_t i = 0; i < here.size(); ++i) {
            if (row_.keeps(first + i)) sum += weight_beside(load(here[i]), top, scale());
        }
        return sum;
    }
    /// Adds to `bins` what there is of tokens whose keys begin with the search's bits, by the next ones.
    void count(cut_search<real> const& search, real top, std::span<cut_bin> bins) const noexcept {
        for (T const& stored : logits()) {
            real const l = load(stored);
            if (!(l > -std::numeric_limits<real>::infinity()) || !search.is_open(l)) continue;
            cut_bin& bin = bins[search.bin(l)];
            ++bin.count;
            bin.mass += whole_mass(weight_beside(l, top, scale()));
        }
    }
    /// The n-th token with this logit, n from 1 on; no_token if n is 0.
    [[nodiscard]] token_id find_equal(real logit, std::uint64_t n) const noexcept {
        for (std::size_t i = 0; n > 0 && i < logits().size(); ++i) {
            if (load(logits()[i]) == logit && --n == 0) return token(i);
        }
        return no_token;
    }

    // ---- once everybody knows the row's largest logit ----------------------------------------------------------

    /// From here on weights are exp((logit - top) scale), times unit().
    void shift_by(real top) noexcept {
        if (&functions_beside(top) != &row_.functions()) row_.use_reference();
        row_.shift_by(top);
        unit_ = unit_beside(top);
    }
    /// Tables round the product of shift and scale, which all weights of a row share and rows do not.
    [[nodiscard]] double unit() const noexcept { return unit_; }
    [[nodiscard]] real shift() const noexcept { return row_.shift(); }
    /// The weights of tokens first, first + 1 ... of the rank's slice.
    void evaluate(std::size_t first, std::span<real> out) const noexcept {
        if (is_slice() && !logits().empty())
            return row_.weights(static_cast<std::size_t>(over_.to_draft(static_cast<token_id>(first))), out);
        std::fill(out.begin(), out.end(), real(0));
        auto const list = over_.list();
        auto at = std::lower_bound(list.begin(), list.end(), static_cast<token_id>(first));
        for (; at != list.end() && static_cast<std::size_t>(*at) - first < out.size(); ++at) {
            out[static_cast<std::size_t>(*at) - first] = row_.weight(static_cast<std::size_t>(at - list.begin()));
        }
    }
    /// find_in_part of a row alone. O(part), and a pass of a kernel mostly.
    [[nodiscard]] token_id find(vocabulary_part const& part, double within, double mass) const noexcept {
        auto const here = entries(part);
        auto const first = static_cast<std::size_t>(here.data() - logits().data());
        double const claimed = mass * (1.0 + room_of_sum<real>) / unit();
        std::size_t i = functions().reach(here.data(), here.size(), shift(), scale(), within * claimed);
        if (i == here.size()) {
            i = find_leftover<real>({0, 0.0}, here.size(), claimed, within * claimed, here.size(),
                                    [&](std::size_t at, std::span<real> out) { row_.weights(first + at, out); });
        }
        return i < here.size() ? token(first + i) : no_token;
    }
    /// The logits of a part's tokens, all of them.
    [[nodiscard]] std::span<T const> entries(vocabulary_part const& part) const noexcept {
        if (logits().empty()) return {};
        if (is_slice()) {
            return logits().subspan(static_cast<std::size_t>(over_.to_draft(static_cast<token_id>(part.first))),
                                    part.count);
        }
        auto const list = over_.list();
        auto const place = [&](std::size_t v) {
            return std::lower_bound(list.begin(), list.end(), static_cast<token_id>(v)) - list.begin();
        };
        auto const begin = static_cast<std::size_t>(place(part.first));
        return logits().subspan(begin, static_cast<std::size_t>(place(part.first + part.count)) - begin);
    }

    [[nodiscard]] double arrival(token_id v, draw_key const& key) const noexcept {
        return arrival_of(v, logit(v), scale(), key);
    }
    /// The winner of a part's race, as a race over all tokens has it; nobody if it comes later than `best`, as far as
    /// rounding lets that be seen.
    [[nodiscard]] race_winner race(vocabulary_part const& part, draw_key const& key, double best) const noexcept {
        auto const here = entries(part);
        if (here.empty()) return {};
        // So far above `near` that its time is next to nothing in such units, nobody is seen to be earlier.
        real const near = some_logit(here);
        if (std::isfinite(near) && limit(near, best) > 1.0 / too_large) {
            if (auto const found = race(part, here, key, near, best); !std::isnan(found.time)) return found;
        }
        auto const mode = top_of(here);
        if (mode.token == no_token) return {static_cast<double>(-mode.top), no_token};
        return race(part, here, key, mode.top, best);
    }

private:
    // Sums from here on lose digits, and so do weights relative to such a logit.
    static constexpr double too_large = 1e30;

    /// Of the size of the first ones, so that weights are the same wherever slices end; -inf or NaN if these are.
    [[nodiscard]] static real some_logit(std::span<T const> here) noexcept {
        real largest = -std::numeric_limits<real>::infinity();
        for (T const& l : here.first(std::min<std::size_t>(here.size(), 64))) largest = std::max(largest, load(l));
        return largest;
    }
    /// The time of `best` in units of weights relative to `near`, and as much later as rounding may hide.
    [[nodiscard]] double limit(real near, double best) const noexcept {
        return std::exp(best + static_cast<double>(near) * static_cast<double>(scale())) * unit_beside(near) *
               (1.0 + 1e-5);
    }
    /// By weights relative to `near`. NaN where these are of no use.
    [[nodiscard]] race_winner race(vocabulary_part const& part, std::span<T const> here, draw_key const& key, real near,
                                   double best) const noexcept {
        slice_row<T> mine = *this;
        mine.shift_by(near);
        runners const weights{mine, static_cast<std::size_t>(here.data() - logits().data()), here.size()};
        gumbel_search leader{key};
        leader.know(limit(near, best));
        std::size_t const begin = part.first - part.first % (2 * row_group);
        if (!leader.visit_some(weights, no_token, begin, part.first + part.count)) {
            return {std::numeric_limits<double>::quiet_NaN(), no_token};
        }
        if (leader.winner() == no_token) return {};
        return {arrival(leader.winner(), key), leader.winner()};
    }
    [[nodiscard]] double weight_of(real logit) const noexcept {
        T const at{logit};
        real weight = 0;
        functions().weights(&at, 1, shift(), scale(), &weight);
        return static_cast<double>(weight);
    }
    /// The entries of a part as weights of a race.
    struct runners {
        using weight_type = real;
        slice_row const& row;
        std::size_t first;
        std::size_t count;

        [[nodiscard]] real operator[](token_id v) const noexcept {
            std::size_t const place = static_cast<std::size_t>(row.over_.to_draft(v)) - first;
            return place < count ? row.row_.weight(first + place) : real(0);
        }
        [[nodiscard]] std::size_t mapped_size() const noexcept { return count; }
        [[nodiscard]] token_id mapped_token(std::size_t i) const noexcept { return row.token(first + i); }
        void mapped_weights(std::size_t i, std::span<real> out) const noexcept { row.row_.weights(first + i, out); }
        [[nodiscard]] std::size_t above(std::size_t i, std::size_t number, double const* least,
                                        std::uint32_t* out) const noexcept {
            return row.functions().above(row.logits().data() + first + i, number, row.shift(), row.scale(), least, out);
        }
    };
    [[nodiscard]] slice_mode<real> top_of(std::span<T const> here) const noexcept {
        if (here.empty()) return {};
        auto const place = static_cast<std::size_t>(here.data() - logits().data());
        std::size_t const i = row_.functions().mode(here.data(), here.size());
        if (i < here.size()) return {load(here[i]), token(place + i)};
        // A mask may leave nothing of a part, and that is no fault of the row.
        bool const is_empty = std::all_of(here.begin(), here.end(),
                                          [](T const& l) { return load(l) == -std::numeric_limits<real>::infinity(); });
        if (is_empty) return {};
        return {std::numeric_limits<real>::quiet_NaN(), no_token};
    }
    [[nodiscard]] double unit_beside(real top) const noexcept {
        T const at{top};
        real one = 0;
        functions_beside(top).weights(&at, 1, top, scale(), &one);
        return 1.0 / static_cast<double>(one);
    }
    [[nodiscard]] double sum_beside(real top, std::span<T const> here) const noexcept {
        return functions_beside(top).sum(here.data(), here.size(), top, scale(), nullptr) * unit_beside(top);
    }
    // The reference where `top` is so large that its product with the scale is rounded to more than weights say.
    [[nodiscard]] row_functions<T> const& functions_beside(real top) const noexcept {
        T const at{top};
        real one = 0;
        row_.functions().weights(&at, 1, top, scale(), &one);
        return one > real(0.5) && one < real(2) ? row_.functions() : scalar_kernels<row_kernels>.template get<T>();
    }

    weighted_row<T> row_{};
    vocabulary_view over_{};
    double unit_ = 1.0;
};

/// What is left of p: weights max(a w(v) - b q(v), 0), with w the weights of p's row and q those of its own; nothing of
/// rejected children.
template <class P, class Q>
struct left_in_slice {
    slice_row<P> const& p;
    double a = 1.0;
    slice_row<Q> const* q = nullptr;  ///< null: q is `chosen`, or nothing is taken
    token_id chosen = no_token;
    double b = 0.0;
    std::span<rejected_child const> rejected{};

    /// The weights of tokens first, first + 1 ..., at most a segment.
    void evaluate(std::size_t first, std::span<double> out) const noexcept {
        segment<compute_t<P>> some;
        p.evaluate(first, std::span(some).first(out.size()));
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = a * p.unit() * static_cast<double>(some[i]);
        if (q != nullptr && b > 0.0 && !q->logits().empty()) {
            segment<compute_t<Q>> drafted;
            q->evaluate(first, std::span(drafted).first(out.size()));
            for (std::size_t i = 0; i < out.size(); ++i) {
                out[i] = std::max(out[i] - b * q->unit() * static_cast<double>(drafted[i]), 0.0);
            }
        }
        auto const place = [first](token_id v) { return static_cast<std::size_t>(v) - first; };
        if (chosen != no_token && place(chosen) < out.size()) {
            out[place(chosen)] = std::max(out[place(chosen)] - b, 0.0);
        }
        for (rejected_child const& child : rejected) {
            if (place(child.token) < out.size()) out[place(child.token)] = 0.0;
        }
    }
    [[nodiscard]] double mass(vocabulary_part const& part) const noexcept {
        using real = compute_t<P>;
        auto const is_here = [&](token_id v) { return static_cast<std::size_t>(v) - part.first < part.count; };
        bool const plain = !is_here(chosen) && std::none_of(rejected.begin(), rejected.end(),
                                                            [&](rejected_child const& c) { return is_here(c.token); });
        if constexpr (std::is_same_v<Q, real>) {
            if (plain && p.keeps_all() && q != nullptr && a > 0.0 && b > 0.0 && p.is_slice() && q->is_slice() &&
                !q->logits().empty()) {
                return p.functions().residual(p.entries(part).data(), {p.shift(), p.scale(), a * p.unit()},
                                              q->entries(part).data(), {q->shift(), q->scale(), b * q->unit()},
                                              part.count, nullptr);
            }
        }
        return sum_of_part<double>(0, part.count,
                                   [&](std::size_t i, std::span<double> out) { evaluate(part.first + i, out); });
    }
};

/// The token of a part that the share `within` of its weights, 0 .. 1 without 1, stands for, in the order of tokens.
/// `mass` is what the weights were said to add up to; what that is more or less than they do is spread over them.
/// no_token if there is none. evaluate(v, out) writes the weights of tokens v, v + 1 ...
template <class Real, class Evaluate>
[[nodiscard]] token_id find_in_part(vocabulary_part const& part, double within, double mass,
                                    Evaluate const& evaluate) noexcept {
    std::size_t const i =
        find_share_of<double>(part.count, within, mass * (1.0 + room_of_sum<Real>),
                              [&](std::size_t first, std::span<double> out) { evaluate(part.first + first, out); });
    return i < part.count ? static_cast<token_id>(part.first + i) : no_token;
}

}  // namespace detail
SURELEAP_END_NAMESPACE
