// SPDX-License-Identifier: MIT
//
// Corrections after a rejection: draws from the residual distribution, which is proportional to max(scale p - q, 0).
// scale is 1 for token rejection and p_i for block verification.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/interval.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/bounded.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Weights max(scale p(v) - q(v), 0) over target ids. scale = 1 is token rejection's residual (Leviathan et al. 2023);
/// block verification uses scale = p_i < 1 (Sun et al. 2025). Both are indexed by token id, never by place in a list.
/// Construction sums the mass, O(V); each weight is evaluated again when asked. `sums` [row_blocks(V)] keeps the masses
/// of the blocks, so that a draw looks at one block, and must outlive the residual; it may be empty.
template <class P, class Q>
class residual {
public:
    using weight_type = double;

    residual(P const& p, Q const& q, double scale = 1.0, std::span<double> sums = {}) noexcept
        : p_(p), q_(q), factor_(scale / p.total()), ratio_(p.total() / (q.total() * scale)), sums_(sums) {
        SURELEAP_EXPECTS(p.size() == q.size());
        SURELEAP_EXPECTS(sums.empty() || sums.size() == row_blocks(p.size()));
        if constexpr (reads_rows) {
            auto const of_p = p.plain_row();
            auto const of_q = q.plain_row();
            if (!of_p.empty() && !of_q.empty()) {
                mass_ = p.functions().residual(of_p.data(), p.side(scale), of_q.data(), q.side(1.0), of_p.size(),
                                               sums.empty() ? nullptr : sums.data());
                return;
            }
        }
        std::fill(sums.begin(), sums.end(), 0.0);
        detail::segment<double> some;
        for (std::size_t first = 0; first < size(); first += some.size()) {
            auto const here = std::span(some).first(std::min(some.size(), size() - first));
            evaluate(static_cast<token_id>(first), here);
            double sum = 0.0;
            for (double const weight : here) sum += weight;
            if (!sums.empty()) sums[first / row_block] += sum;
            mass_ += sum;
        }
    }

    [[nodiscard]] std::size_t size() const noexcept { return p_.size(); }
    [[nodiscard]] double operator[](token_id v) const noexcept {
        return left(static_cast<double>(p_[v]), static_cast<double>(q_[v]));
    }
    /// The weights of tokens first, first + 1 ..., as many as fit `out`, at most a segment.
    void evaluate(token_id first, std::span<double> out) const noexcept {
        detail::segment<typename P::weight_type> p;
        detail::segment<typename Q::weight_type> q;
        SURELEAP_EXPECTS(out.size() <= p.size());
        p_.evaluate(first, std::span(p).first(out.size()));
        q_.evaluate(first, std::span(q).first(out.size()));
        for (std::size_t i = 0; i < out.size(); ++i) {
            out[i] = left(static_cast<double>(p[i]), static_cast<double>(q[i]));
        }
    }
    [[nodiscard]] double total() const noexcept { return mass_; }
    /// The first token whose cumulative weight exceeds u * total(); never one of weight zero. What rounded masses leave
    /// to no token is spread over all by their weights, as by distribution::quantile: where p and q nearly agree it may
    /// be most.
    ///
    /// A pass in float rounds what is left of a weight by a part of that weight: a block's mass may lack 2^-21 of its
    /// scale p. By that the last tokens of a block may be drawn too rarely, in all at most one draw of p in two
    /// million.
    [[nodiscard]] token_id quantile(double u) const noexcept {
        double const threshold = u * mass_;
        auto const block = detail::find_block(sums_, size(), threshold);
        std::size_t const end = sums_.empty() ? size() : std::min(block.first + row_block, size());
        auto const weights = [this](std::size_t first, std::span<double> out) {
            evaluate(static_cast<token_id>(first), out);
        };
        std::size_t i = detail::find_weight<double>(block, end, detail::block_sums_are::bounds, threshold, weights);
        if (i == end && block.first < end) {
            double const claimed = sums_.empty() ? mass_ : sums_[block.first / row_block];
            i = detail::find_leftover<double>(block, end, claimed, threshold, size(), weights);
        }
        return i < size() ? static_cast<token_id>(i) : no_token;
    }

private:
    // Two rows in the formats that one function reads.
    static constexpr bool reads_rows = requires(P const& p, Q const& q) {
        p.functions().residual(p.plain_row().data(), p.side(1.0), q.plain_row().data(), q.side(1.0), 1, nullptr);
    };

    // In units of p's weights, of which q's are a fixed multiple: exactly 0 where both are the same.
    [[nodiscard]] double left(double p, double q) const noexcept {
        double const difference = p - q * ratio_;
        return difference > 0.0 ? difference * factor_ : 0.0;
    }

    P const& p_;
    Q const& q_;
    double factor_;  // scale / p.total()
    double ratio_;
    double mass_ = 0.0;
    std::span<double const> sums_;
};

/// Numbers that decisions are made by: known() is where they lie, and refine() brings that closer.
struct exact_number {
    double value;
    [[nodiscard]] interval known() const noexcept { return {value, value}; }
    void refine() noexcept {}
};

/// True with the probability that `number` is.
template <class Number, class Rng>
[[nodiscard]] bool happens(Number& number, draw_key const& key, Rng& rng) {
    auto const known = [&]() -> odds_interval {
        interval const p = number.known();
        return {{p.low, 1.0}, {p.high, 1.0}};
    };
    return decide(rng, key, known, [&] { number.refine(); });
}

/// Whether y, drawn from p, is the correction: with probability max(1 - q(y) / (scale p(y)), 0). `scale` is a number.
template <class P, class Q, class Scale, class Rng>
[[nodiscard]] bool corrects(P& p, Q const& q, token_id y, Scale& scale, draw_key const& key, Rng& rng) {
    double const drafted = q.probability(y);
    auto const known = [&]() -> odds_interval {
        double const weight = weight_of(p, y);
        interval const mass = mass_of(p);
        interval const s = scale.known();
        if (mass.exact() && s.exact()) {
            double const survives = s.low * p.probability(y);
            return odds_interval::of({std::max(survives - drafted, 0.0), survives});
        }
        double const least = s.low * weight;
        double const most = s.high * weight;
        return {{std::max(least - drafted * mass.high, 0.0), least}, {std::max(most - drafted * mass.low, 0.0), most}};
    };
    auto const closer = [&] {
        if (!mass_of(p).exact()) return refine(p);
        scale.refine();
    };
    return decide(rng, key, known, closer);
}

/// How often draw_residual proposes before it makes a pass: as many proposals take about as long as the pass.
inline constexpr std::uint32_t residual_proposals = 64;

/// Draws the correction, a token with probability max(scale p - q, 0) / its mass. `key` names the draw
/// (purpose::residual); `sums` is scratch of row_blocks(V) numbers.
///
/// Where a row has blocks, by rejection first: y ~ p is the correction with probability max(1 - q(y) / (scale p(y)),
/// 0), which needs no pass over p and q. A proposal succeeds with the probability that brought the correction about, so
/// on average one is made for every position examined. Where only bounds of p's sums are known, a draw that misses is
/// one more proposal without success. After `proposals` failures comes the pass, and the law is the same: when to stop
/// does not depend on what would have been drawn.
///
/// No mass left means p = q up to rounding, where rejection has probability 0 but can round into existence: then p
/// itself is the law.
template <class P, class Q, class Rng>
[[nodiscard]] token_id draw_residual(P& p, Q const& q, double scale, draw_key const& key, Rng& rng,
                                     std::span<double> sums = {}, std::optional<std::uint32_t> proposals = {}) {
    exact_number known{scale};
    std::uint32_t const most = proposals.value_or(p.size() > row_block ? residual_proposals : 0);
    if (most > 0) add_up(p);
    for (std::uint32_t i = 0; i < most; ++i) {
        draw_key named = key;
        named.index = key.index | i << 16;
        named.use = purpose::proposal;
        token_id const y = rng.categorical(named, p);
        if (y == no_token) {
            distrust(p);
            continue;
        }
        named.use = purpose::proposal_accept;
        if (corrects(p, q, y, known, named, rng)) return y;
    }
    residual const left{settled(p), q, scale, sums};
    token_id const y = left.total() > 0.0 ? rng.categorical(key, left) : no_token;
    return y != no_token ? y : rng.categorical(key, p);
}

/// How often correct_or_reject proposes before it makes a pass.
inline constexpr std::uint32_t judging_proposals = 32;

/// Block verification's test of a prefix that survives with probability `scale` < 1, together with the correction
/// behind it. With R the mass of max(scale p - q, 0), a token drawn from that residual with probability h = R / (R + 1
/// - scale), else no_token. `scale` is a number; `accept` names the test, `key` the correction (purpose::residual).
///
/// R takes a pass over p and q, and h can be had without. With probability 1 - scale the prefix is rejected. Else a
/// token y ~ p is proposed. If it is taken, it is the correction; else all this is done once more. A turn ends in a
/// correction with probability R, in a rejection with 1 - scale. This is the two-coin algorithm (Goncalves, Latuszynski
/// and Roberts, "Barker's algorithm for Bayesian inference with intractable likelihoods", 2017). After `proposals`
/// turns comes the pass: what a turn leaves open is open as it was before.
template <class P, class Q, class Scale, class Rng>
[[nodiscard]] token_id correct_or_reject(P& p, Q const& q, Scale& scale, draw_key const& accept, draw_key const& key,
                                         Rng& rng, std::span<double> sums = {},
                                         std::optional<std::uint32_t> proposals = {}) {
    std::uint32_t const most = proposals.value_or(p.size() > row_block ? judging_proposals : 0);
    for (std::uint32_t i = 0; i < most; ++i) {
        // Eight draws a turn, of which `draw` may need all.
        std::uint32_t const turn = 8 * i << 16;
        draw_key named = accept;
        named.index = accept.index | turn;
        if (!happens(scale, named, rng)) return no_token;
        named = key;
        named.index = key.index | turn;
        named.use = purpose::proposal;
        token_id const y = draw(p, named, rng);
        if (y == no_token) continue;  // no law, as it turned out
        named.use = purpose::proposal_accept;
        if (corrects(p, q, y, scale, named, rng)) return y;
    }
    while (!scale.known().exact()) scale.refine();
    double const survives = scale.known().low;
    draw_key last = accept;
    if (most > 0) last.index = accept.index | 1u << 16;
    double const left = residual{settled(p), q, survives, sums}.total();
    if (!rng.bernoulli(last, left, left + (1.0 - survives))) return no_token;
    return draw_residual(p, q, survives, key, rng, sums, 0);
}

SURELEAP_END_NAMESPACE
