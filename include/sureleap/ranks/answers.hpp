// SPDX-License-Identifier: MIT
//
// What a rank says to a question, and what all of them make of the answers (questions.hpp). To one question every rank
// says as many bytes; what it has not got is left open. `say` and `hear` go through the same numbers in the same order.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ranks/cuts.hpp>
#include <sureleap/ranks/message.hpp>
#include <sureleap/ranks/part_sums.hpp>
#include <sureleap/ranks/questions.hpp>
#include <sureleap/ranks/sharded_law.hpp>
#include <sureleap/ranks/sharded_source.hpp>
#include <sureleap/ranks/sharded_verification.hpp>
#include <sureleap/ranks/slice_row.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// A drafted token in a row.
template <class Real>
struct drafted_number {
    Real logit = 0;
    Real weight = 0;
};

/// The answers of one rank. P: storage of the target's rows as they are read, Q: of the draft's.
template <class P, class Q>
class rank_answers {
    using request_type = sharded_request<P, Q>;
    using question = rank_question;
    using cuts_type = rank_cuts<P, Q>;
    using target_real = compute_t<P>;
    using draft_real = compute_t<Q>;
    template <class X>
    using kind_of = typename sharded_row<X>::kind;

public:
    rank_answers(vocabulary_slices const& slices, std::size_t rank) noexcept
        : slices_(slices), rank_(rank), cuts_(slices, rank) {}

    [[nodiscard]] std::size_t bytes_of(request_type const& of, question const& q) const noexcept {
        std::size_t const rows = of.asked_length + 1;
        switch (q.what) {
            case question::kind::laws:
                return 2 *
                           ((of.sums_targets() ? rows : 0) * sizeof(target_real) +
                            count_drafts(of, kind_of<Q>::dense) * sizeof(draft_real)) *
                           slices_.most_parts() +
                       2 * of.asked_length * (sizeof(target_real) + (of.reads_q ? sizeof(draft_real) : 0));
            case question::kind::best: return cuts_.bytes_of_best(of);
            case question::kind::cut: return cuts_.bytes_of_cut(of);
            case question::kind::kept: return cuts_.bytes_of_kept(of);
            case question::kind::modes:
                return rows * (sizeof(target_real) + sizeof(token_id)) +
                       count_drafts(of, kind_of<Q>::greedy) * (sizeof(draft_real) + sizeof(token_id));
            case question::kind::drafts: return of.asked_length * sizeof(target_real);
            case question::kind::races: return rows * (sizeof(double) + sizeof(token_id));
            case question::kind::masses: return slices_.most_parts() * sizeof(double);
            case question::kind::token: return sizeof(token_id);
            case question::kind::logit: return sizeof(double);
        }
        return 0;
    }
    /// Most bytes of all questions that a request may ask at once.
    [[nodiscard]] static std::size_t most_bytes(vocabulary_slices const& slices, std::size_t block_size) noexcept {
        std::size_t const rows = 2 * block_size + 1;
        std::size_t const masses = 2 * (block_size + 1);
        std::size_t const numbers = (2 * rows + masses) * slices.most_parts() + 4 * block_size + 12 * rows;
        return numbers * sizeof(double) + (block_size + 1) * cuts_type::most_bytes_of_row();
    }

    template <class Rng>
    void say(request_type const& of, question const& q, byte_writer& out, Rng& rng) const {
        switch (q.what) {
            case question::kind::laws: return say_laws(of, out);
            case question::kind::best: return cuts_.say_best(of, out);
            case question::kind::cut: return cuts_.say_cut(of, out);
            case question::kind::kept: return cuts_.say_kept(of, out);
            case question::kind::modes: {
                auto const mode = [&](auto const& row) {
                    auto const best = row.own_mode();
                    out.put(best.top);
                    out.put(best.token);
                };
                for (std::size_t n = 0; n <= of.asked_length; ++n) mode(of.targets[n].row());
                for_each_draft(of, kind_of<Q>::greedy, [&](std::size_t k) { mode(of.drafts[k].row()); });
                return;
            }
            case question::kind::drafts:
                for (std::size_t k = 0; k < of.asked_length; ++k) {
                    token_id const x = of.drafted.tokens[k];
                    auto const& row = of.targets[of.drafted.row(k)].row();
                    bool const is_given = row.given.drafted != nullptr;
                    auto const logit = [&] {
                        return is_given ? static_cast<target_real>(row.given.drafted->logit) : row.own.logit(x);
                    };
                    out.put(owns(x) ? logit() : target_real(0));
                }
                return;
            case question::kind::races:
                for (std::size_t n = 0; n <= of.asked_length; ++n) {
                    auto const best = race(of, n);
                    out.put(best.time);
                    out.put(best.token);
                }
                return;
            case question::kind::masses:
                for (std::size_t i = 0; i < slices_.most_parts(); ++i) {
                    out.put(i < own_parts().size() ? mass(of, q, own_parts()[i]) : 0.0);
                }
                return;
            case question::kind::token: return out.put(own_token(of, q, rng));
            case question::kind::logit:
                return out.put(static_cast<double>(q.of_q ? of.drafts[of.first_behind(q.row)].row().own.logit(q.token)
                                                          : of.targets[q.row].row().own.logit(q.token)));
        }
    }
    void hear(request_type& of, question& q, std::byte const* first, std::size_t size) const noexcept {
        auto const from = [&](std::size_t rank) { return byte_reader{first + rank * size}; };
        switch (q.what) {
            case question::kind::laws: return hear_laws(of, first, size);
            case question::kind::best: return cuts_.hear_best(of, first, size);
            case question::kind::cut: return cuts_.hear_cut(of, first, size);
            case question::kind::kept: return cuts_.hear_kept(of, first, size);
            case question::kind::modes: return hear_modes(of, first, size);
            case question::kind::drafts:
                for (std::size_t k = 0; k < of.asked_length; ++k) {
                    byte_reader in{first + slices_.owner(of.drafted.tokens[k]) * size + k * sizeof(target_real)};
                    of.target_logits[k] = in.template take<target_real>();
                }
                of.has_logits = true;
                return;
            case question::kind::races: return hear_races(of, first, size);
            case question::kind::masses: {
                q.number = 0.0;
                for (std::size_t rank = 0; rank < slices_.ranks(); ++rank) {
                    byte_reader in = from(rank);
                    for (std::size_t i = 0; i < slices_.parts_of(rank).size(); ++i) {
                        double const here = in.template take<double>();
                        q.masses[slices_.first_part(rank) + i] = here;
                        q.number += here;
                    }
                }
                return;
            }
            case question::kind::token: q.token = from(slices_.parts()[q.part].rank).template take<token_id>(); return;
            case question::kind::logit: q.number = from(slices_.owner(q.token)).template take<double>(); return;
        }
    }

    /// Once the laws are known: drafts end before a token that its q does not have, as they do where one rank has all
    /// of q.
    static void shorten(request_type& of) noexcept {
        for (std::size_t k = 0; of.reads_q && !of.bad_drafts && k < of.length; ++k) {
            auto const& q = of.drafts[of.first_behind(of.drafted.row(k))];
            bool const is_greedy = q.row().is == kind_of<Q>::greedy;
            if (q.row().is == kind_of<Q>::one_hot || !(is_greedy ? q.row().has_mode : q.row().is_summed)) continue;
            bool const has_it = is_greedy ? q.row().mode == of.drafted.tokens[k]
                                          : of.draft_logits[k] > -std::numeric_limits<draft_real>::infinity();
            if (has_it && !q.is_known_invalid()) continue;
            of.length = k;
            of.bad_drafts = true;
        }
    }

private:
    [[nodiscard]] std::span<vocabulary_part const> own_parts() const noexcept { return slices_.parts_of(rank_); }
    [[nodiscard]] bool owns(token_id v) const noexcept { return slices_.owner(v) == rank_; }

    /// Rows of q that are read, and of that kind: one for all that was drafted behind a row of p.
    template <class Visit>
    static void for_each_draft(request_type const& of, kind_of<Q> which, Visit const& visit) {
        for (std::size_t k = 0; of.reads_q && k < of.asked_length; ++k) {
            if (of.is_first_behind(k) && of.drafts[k].row().is == which) visit(k);
        }
    }
    [[nodiscard]] static std::size_t count_drafts(request_type const& of, kind_of<Q> which) noexcept {
        std::size_t count = 0;
        for_each_draft(of, which, [&](std::size_t) { ++count; });
        return count;
    }

    // Sums of all rows, p's first. Then the drafted tokens: each one's logit, and its weight beside what its part was
    // summed relative to, so that a probability is a quotient of what one table made.

    void say_laws(request_type const& of, byte_writer& out) const noexcept {
        std::byte const* const first = out.here();
        auto const sums = [&](auto const& row) {
            using real = std::remove_cvref_t<decltype(row.top)>;
            for (std::size_t i = 0; i < slices_.most_parts(); ++i) {
                bool const is_there = i < own_parts().size();
                auto const sum = is_there ? row.own_sum(own_parts()[i], i) : part_sum<real>{};
                out.put(sum.top);
                out.put(static_cast<real>(sum.sum));
            }
        };
        for (std::size_t n = 0; of.sums_targets() && n <= of.asked_length; ++n) sums(of.targets[n].row());
        for_each_draft(of, kind_of<Q>::dense, [&](std::size_t k) { sums(of.drafts[k].row()); });
        for (std::size_t k = 0; k < of.asked_length; ++k) {
            token_id const x = of.drafted.tokens[k];
            auto const drafted = [&](auto const& row, bool is_summed, std::size_t at) {
                using real = std::remove_cvref_t<decltype(row.top)>;
                drafted_number<real> number{};
                if (owns(x) && row.given.drafted != nullptr) {
                    number = {static_cast<real>(row.given.drafted->logit),
                              static_cast<real>(row.given.drafted->weight)};
                } else if (owns(x)) {
                    number.logit = row.own.logit(x);
                    std::size_t const i = slices_.part_of(x) - slices_.first_part(rank_);
                    if (is_summed) {
                        byte_reader in{first + at + i * 2 * sizeof(real)};
                        number.weight = row.own.weight(x, in.template take<real>());
                    }
                }
                out.put(number.logit);
                out.put(number.weight);
            };
            std::size_t const n = of.drafted.row(k);
            drafted(of.targets[n].row(), of.sums_targets(), place_of_target(n));
            if (!of.reads_q) continue;
            std::size_t const d = of.first_behind(n);
            drafted(of.drafts[d].row(), of.drafts[d].row().is == kind_of<Q>::dense, place_of_draft(of, d));
        }
    }
    void hear_laws(request_type& of, std::byte const* first, std::size_t size) const noexcept {
        auto const part = [&]<class Real>(std::size_t at, std::size_t i, Real) {
            std::size_t const rank = slices_.parts()[i].rank;
            byte_reader in{first + rank * size + at + (i - slices_.first_part(rank)) * 2 * sizeof(Real)};
            Real const top = in.template take<Real>();
            return part_sum<Real>{top, static_cast<double>(in.template take<Real>())};
        };
        auto const sums = [&](auto& row, std::size_t at) {
            combine(row, [&](std::size_t i) { return part(at, i, row.top); });
        };
        for (std::size_t n = 0; of.sums_targets() && n <= of.asked_length; ++n) {
            sums(of.targets[n].row(), place_of_target(n));
        }
        for_each_draft(of, kind_of<Q>::dense, [&](std::size_t k) { sums(of.drafts[k].row(), place_of_draft(of, k)); });
        std::size_t at = place_of_draft(of, of.asked_length);
        for (std::size_t k = 0; k < of.asked_length; ++k) {
            token_id const x = of.drafted.tokens[k];
            byte_reader in{first + slices_.owner(x) * size + at};
            auto const drafted = [&](auto& row, std::size_t place) {
                using real = std::remove_cvref_t<decltype(row.top)>;
                row.logits[k] = in.template take<real>();
                auto const weight = static_cast<double>(in.template take<real>());
                at += 2 * sizeof(real);
                if (!row.is_summed || row.truncates || row.is != std::remove_cvref_t<decltype(row)>::kind::dense)
                    return;
                real const top = part(place, slices_.part_of(x), row.top).top;
                row.weights[k] = weight * weight_beside(top, row.top, row.own.scale());
            };
            std::size_t const n = of.drafted.row(k);
            drafted(of.targets[n].row(), place_of_target(n));
            if (!of.reads_q) continue;
            std::size_t const d = of.first_behind(n);
            drafted(of.drafts[d].row(), place_of_draft(of, d));
        }
        of.has_logits = true;
        if (!of.lists_best()) cuts_.begin(of);
    }
    // Where a row's sums begin in what a rank says of laws; of drafts behind the last one where the drafted tokens do.
    [[nodiscard]] std::size_t place_of_target(std::size_t n) const noexcept {
        return n * slices_.most_parts() * 2 * sizeof(target_real);
    }
    [[nodiscard]] std::size_t place_of_draft(request_type const& of, std::size_t d) const noexcept {
        std::size_t before = 0;
        for_each_draft(of, kind_of<Q>::dense, [&](std::size_t k) { before += k < d ? 1 : 0; });
        std::size_t const targets = of.sums_targets() ? place_of_target(of.asked_length + 1) : 0;
        return targets + before * slices_.most_parts() * 2 * sizeof(draft_real);
    }
    /// A row's largest logit, and its sums relative to it, in the order of parts.
    template <class X, class OfPart>
    void combine(sharded_row<X>& row, OfPart const& of_part) const noexcept {
        row.is_summed = !row.truncates;
        auto const all = add_up(row.own.scale(), row.sums, of_part);
        row.top = all.top;
        row.total = all.sum;
        if (row.total > 0.0) row.own.shift_by(row.top);
    }

    void hear_modes(request_type& of, std::byte const* first, std::size_t size) const noexcept {
        std::size_t at = 0;
        auto const mode = [&](auto& row) {
            using real = std::remove_cvref_t<decltype(row.top)>;
            slice_mode<real> best{};
            bool is_law = true;
            for (std::size_t rank = 0; rank < slices_.ranks(); ++rank) {
                byte_reader in{first + rank * size + at};
                auto const top = in.template take<real>();
                auto const token = in.template take<token_id>();
                is_law = is_law && !std::isnan(top);
                if (top > best.top) best = {top, token};  // of equals the lower rank, whose tokens come first
            }
            at += sizeof(real) + sizeof(token_id);
            if (row.is != std::remove_cvref_t<decltype(row)>::kind::greedy) return;
            row.has_mode = true;
            row.mode = is_law ? best.token : no_token;
        };
        for (std::size_t n = 0; n <= of.asked_length; ++n) mode(of.targets[n].row());
        for_each_draft(of, kind_of<Q>::greedy, [&](std::size_t k) { mode(of.drafts[k].row()); });
    }
    void hear_races(request_type& of, std::byte const* first, std::size_t size) const noexcept {
        for (std::size_t n = 0; n <= of.asked_length; ++n) {
            race_winner best{};
            bool is_law = true;
            for (std::size_t rank = 0; rank < slices_.ranks(); ++rank) {
                byte_reader in{first + rank * size + n * (sizeof(double) + sizeof(token_id))};
                auto const time = in.template take<double>();
                auto const token = in.template take<token_id>();
                is_law = is_law && !std::isnan(time);
                if (time < best.time) best = {time, token};
            }
            of.targets[n].row().has_winner = true;
            of.targets[n].row().winner = is_law ? best.token : no_token;
        }
    }
    [[nodiscard]] race_winner race(request_type const& of, std::size_t n) const noexcept {
        slice_row<P> const& row = of.targets[n].row().own;
        slice_winner const* const given = of.targets[n].row().given.winners;
        if (given != nullptr && !of.targets[n].row().truncates) return {given->log_time, given->token};
        race_winner best{};
        // What was drafted is likely to win.
        double known = std::numeric_limits<double>::infinity();
        std::size_t const k = of.first_behind(n);
        if (k < of.asked_length && of.targets[n].keeps(of.drafted.tokens[k])) {
            known = arrival_of(of.drafted.tokens[k], of.target_logits[k], row.scale(), of.noise[n]);
        }
        for (vocabulary_part const& part : own_parts()) {
            auto const here = row.race(part, of.noise[n], std::min(known, best.time));
            if (std::isnan(here.time)) return here;
            if (here.time < best.time) best = here;
        }
        return best;
    }

    // ---- what is left of p, in the slice -----------------------------------------------------------------------

    [[nodiscard]] double mass(request_type const& of, question const& q, vocabulary_part const& part) const noexcept {
        if (q.of_q) {
            auto const& row = of.drafts[of.first_behind(q.row)].row();
            return left_in_slice<Q, Q>{.p = row.own, .a = 1.0 / row.total, .rejected = q.rejected}.mass(part);
        }
        return left(of, q).mass(part);
    }
    [[nodiscard]] left_in_slice<P, Q> left(request_type const& of, question const& q) const noexcept {
        auto const& p = of.targets[q.row].row();
        left_in_slice<P, Q> rest{.p = p.own, .a = q.a / p.total, .rejected = q.rejected};
        std::size_t const k = of.first_behind(q.row);
        if (q.b == 0.0 || !of.reads_q || k >= of.length) return rest;
        auto const& drafted = of.drafts[k].row();
        if (drafted.is == kind_of<Q>::one_hot) {
            rest.chosen = drafted.mode;
            rest.b = q.b;
        } else {
            rest.q = &drafted.own;
            rest.b = q.b / drafted.total;
        }
        return rest;
    }
    template <class Rng>
    [[nodiscard]] token_id own_token(request_type const& of, question const& q, Rng& rng) const {
        vocabulary_part const& part = slices_.parts()[q.part];
        if (part.rank != rank_) return no_token;
        auto const find = [&](auto const& weights, double mass) {
            auto const evaluate = [&](std::size_t v, std::span<double> out) { weights.evaluate(v, out); };
            if (!std::isnan(q.within)) return find_in_part<target_real>(part, q.within, mass, evaluate);
            weights_in_part const inside{part, evaluate};
            token_id const i = rng.categorical(key_in_part(q.key), inside);
            return i == no_token ? no_token : static_cast<token_id>(part.first) + i;
        };
        if (q.of_rest) return find(left(of, q), q.mass);
        auto const& p = of.targets[q.row].row();
        return find(left_in_slice<P, Q>{.p = p.own}, q.mass);
    }

    vocabulary_slices const& slices_;
    std::size_t rank_;
    cuts_type cuts_;
};

}  // namespace detail
SURELEAP_END_NAMESPACE
