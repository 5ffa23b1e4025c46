// SPDX-License-Identifier: MIT
//
// How ranks draw a drafted token in one exchange. Each says of the parts of its slice what the weights add up to, and
// which token is drawn if the part is. Then everybody draws the part.
#pragma once

#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ranks/message.hpp>
#include <sureleap/ranks/part_sums.hpp>
#include <sureleap/ranks/sharded_source.hpp>
#include <sureleap/ranks/slice_row.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/random.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// What a rank says of a part: its sum, and who is drawn if the part is.
template <class Real>
struct drafted_part {
    static constexpr std::size_t bytes = 3 * sizeof(Real) + sizeof(token_id);

    part_sum<Real> sum{};
    token_id token = no_token;
    Real logit = -std::numeric_limits<Real>::infinity();

    void put(byte_writer& out) const noexcept {
        out.put(sum.top);
        out.put(static_cast<Real>(sum.sum));
        out.put(token);
        out.put(logit);
    }
    [[nodiscard]] static drafted_part take(byte_reader in) noexcept {
        drafted_part part;
        part.sum.top = in.template take<Real>();
        part.sum.sum = static_cast<double>(in.template take<Real>());
        part.token = in.template take<token_id>();
        part.logit = in.template take<Real>();
        return part;
    }
};

/// How the token of a position is drawn.
template <class Real>
struct position_draw {
    draw_key key;
    Real scale;
    bool takes_mode;  ///< or else as the draft rule says
};
template <class DraftRule>
inline constexpr bool is_raced_v = std::is_same_v<DraftRule, coupled_draft>;

/// `q`: what a rank has of it.
template <class DraftRule, class Q>
[[nodiscard]] position_draw<Q> draw_of(request_view const& request, std::size_t k, distribution<Q> const& q) noexcept {
    bool const greedy = !std::isfinite(q.scale());
    return {is_raced_v<DraftRule> ? noise_key(request, k) : block_key(request, k, purpose::draft),
            greedy ? Q(1) : q.scale(), greedy || DraftRule::is_deterministic};
}

/// The weights of a part, which add up to `mass`.
template <class Q>
struct weights_of_part {
    slice_row<Q> const& row;
    vocabulary_part const& part;
    double mass;

    [[nodiscard]] std::size_t size() const noexcept { return part.count; }
    [[nodiscard]] double operator[](token_id i) const noexcept {
        Q weight = 0;
        row.evaluate(part.first + static_cast<std::size_t>(i), std::span(&weight, 1));
        return row.unit() * static_cast<double>(weight);
    }
    [[nodiscard]] double total() const noexcept { return mass; }
    [[nodiscard]] token_id quantile(double u) const noexcept {
        token_id const x = row.find(part, u, mass);
        return x == no_token ? no_token : x - static_cast<token_id>(part.first);
    }
};

/// The token of a part by its weights. `index`: of the part among all.
template <class Q, class Rng>
[[nodiscard]] token_id draw_in_part(slice_row<Q> row, vocabulary_part const& part, std::size_t index,
                                    part_sum<Q> const& sum, draw_key const& key, Rng& rng) {
    row.shift_by(sum.top);
    token_id const x = rng.categorical(key_in_part(key, index), weights_of_part<Q>{row, part, sum.sum});
    return x == no_token ? no_token : static_cast<token_id>(part.first) + x;
}

/// What a rank says of its parts, of which `first` is the first among all. `to_top`: sums are relative to the largest
/// logits. Two passes at most.
template <class DraftRule, class Q, class Rng>
void say_parts(slice_row<Q> const& row, position_draw<Q> const& draw, std::span<vocabulary_part const> parts,
               std::size_t first, bool to_top, byte_writer out, Rng& rng) {
    double earliest = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < parts.size(); ++i) {
        drafted_part<Q> said{.sum = row.sum(parts[i], to_top)};
        if (draw.takes_mode) {
            said.token = row.mode(parts[i]).token;
        } else if constexpr (is_raced_v<DraftRule>) {
            static_assert(std::is_same_v<std::remove_const_t<Rng>, philox_randomness>,
                          "sharded_drafter: over ranks every rank runs the race of its own tokens, by the "
                          "exponentials of philox_randomness; use it, or a rule that does not race");
            race_winner const here = row.race(parts[i], draw.key, earliest);
            if (here.time < earliest) earliest = here.time;
            said.token = here.token;
        } else if (said.sum.sum > 0.0) {
            said.token = draw_in_part(row, parts[i], first + i, said.sum, draw.key, rng);
        }
        if (said.token != no_token) said.logit = row.logit(said.token);
        said.put(out);
    }
}

/// The part that is drawn, by what was said of all: part(i). Their sums are added up in `sums`.
template <class DraftRule, class Q, class Part, class Rng>
[[nodiscard]] drafted_part<Q> draw_part(position_draw<Q> const& draw, std::span<double const> sums, Part const& part,
                                        Rng& rng) {
    if (!draw.takes_mode && !is_raced_v<DraftRule>) {
        token_id const i = rng.categorical(draw.key, part_masses{sums});
        return i == no_token ? drafted_part<Q>{} : part(static_cast<std::size_t>(i));
    }
    drafted_part<Q> best{};
    double earliest = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < sums.size(); ++i) {
        drafted_part<Q> const here = part(i);
        if (here.token == no_token) continue;
        if (draw.takes_mode) {
            if (here.logit > best.logit) best = here;  // of equals the one in the first part
            continue;
        }
        double const time = arrival_of(here.token, here.logit, draw.scale, draw.key);
        if (!(time < earliest)) continue;
        earliest = time;
        best = here;
    }
    return best;
}

}  // namespace detail
SURELEAP_END_NAMESPACE
