// SPDX-License-Identifier: MIT
//
// Draws from laws in slices, for one request. A draw takes two steps, like one of a row that has sums of its blocks:
// all ranks choose the part, by the same masses, and whoever holds the part finds the token. By the inverse of the CDF
// both follow from one number. So the token is the one that the whole row would have given, up to the rounding of sums.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/ranks/questions.hpp>
#include <sureleap/ranks/sharded_law.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/quantile.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/draft_tree.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// Masses of parts as weights. Whoever draws by the inverse of the CDF leaves where in the part its number falls.
class part_masses {
public:
    explicit part_masses(std::span<double const> masses) noexcept : masses_(masses) {
        for (double const mass : masses) total_ += mass;
    }
    [[nodiscard]] std::size_t size() const noexcept { return masses_.size(); }
    [[nodiscard]] double operator[](token_id i) const noexcept { return masses_[static_cast<std::size_t>(i)]; }
    [[nodiscard]] double total() const noexcept { return total_; }
    [[nodiscard]] token_id quantile(double u) const noexcept {
        double const threshold = u * total_;
        auto const at = find_part(0, masses_.size(), 1, 0.0, threshold, [&](std::size_t i) { return masses_[i]; });
        if (at.first == masses_.size()) return no_token;
        within_ = share_between(0.0, masses_[at.first], threshold - at.before);
        return static_cast<token_id>(at.first);
    }
    /// NaN if quantile was not asked.
    [[nodiscard]] double within() const noexcept { return within_; }

private:
    std::span<double const> masses_;
    double total_ = 0.0;
    mutable double within_ = std::numeric_limits<double>::quiet_NaN();
};

/// The key of a draw within a part, of a source that draws the part by `key`. `index`: of the part, where tokens of
/// several parts are drawn; positions of tokens are below 2^40.
[[nodiscard]] inline draw_key key_in_part(draw_key const& key, std::size_t index = 0) noexcept {
    draw_key inside = key;
    inside.index |= 1u << 23;
    inside.position |= std::uint64_t{index} << 40;
    return inside;
}

/// The weights of a part's tokens, for a source that draws by them.
template <class Evaluate>
class weights_in_part {
public:
    weights_in_part(vocabulary_part const& part, Evaluate const& evaluate) noexcept
        : part_(part), evaluate_(evaluate) {}
    [[nodiscard]] std::size_t size() const noexcept { return part_.count; }
    [[nodiscard]] double operator[](token_id i) const noexcept {
        double weight = 0.0;
        evaluate_(part_.first + static_cast<std::size_t>(i), std::span(&weight, 1));
        return weight;
    }
    [[nodiscard]] double total() const noexcept {
        double sum = 0.0;
        for (std::size_t i = 0; i < size(); ++i) sum += (*this)[static_cast<token_id>(i)];
        return sum;
    }

private:
    vocabulary_part const& part_;
    Evaluate const& evaluate_;
};

}  // namespace detail

/// A source of randomness for one request over ranks: what a rule is handed. View: sharded_verification.
template <class View, class Rng>
class sharded_source {
public:
    sharded_source(View& view, Rng& rng) noexcept : view_(view), rng_(rng) {}

    /// False where numbers that it is asked of are not known yet.
    [[nodiscard]] bool bernoulli(draw_key const& key, double num, double den) const {
        return !questions().waits() && rng_.bernoulli(key, num, den);
    }
    /// Of a law alone. A rule that draws from weights of its own cannot do so over ranks.
    template <class T>
    [[nodiscard]] token_id categorical(draw_key const& key, sharded_law<T> const& p) const {
        if (p.is_one_hot()) return p.mode();
        if (!p.valid() || questions().is_stopped()) return no_token;
        if (key.use != purpose::noise) return token(p.row().index, key, p.row().sums);
        // Which rows it comes to depends on the tokens, so that of each is asked at once, when all rows have laws.
        for (std::size_t n = 0; n <= view_.length(); ++n) static_cast<void>(view_.law_of(n).valid());
        if (questions().is_stopped()) return no_token;
        for (std::size_t n = 0; n <= view_.length(); ++n) {
            auto const& other = view_.law_of(n);
            bool const is_drawn = !other.is_one_hot() && other.valid();
            if (is_drawn) static_cast<void>(token(n, view_.noise(n), other.row().sums));
        }
        return token(p.row().index, key, p.row().sums);
    }
    template <class T>
    [[nodiscard]] token_id gumbel_max(draw_key const&, sharded_law<T> const& p) const {
        static_assert(std::is_same_v<std::remove_const_t<Rng>, philox_randomness>,
                      "sureleap: over ranks every rank runs the race of its own tokens, by the exponentials of "
                      "philox_randomness; use it, or a rule that does not race");
        if (p.is_one_hot()) return p.mode();
        if (p.row().has_winner) return p.row().winner;
        if (!all_can_race()) return no_token;  // rows run together, each without what its truncation leaves out
        // Ranks that know when the drafts come need to look at few of their tokens.
        bool const knows = view_.has_logits() || questions().ask({.what = question::kind::drafts}) != nullptr;
        if (knows) static_cast<void>(questions().ask({.what = question::kind::races}));
        questions().stop();
        return no_token;
    }

    /// Drawn from what is left of p: `rest` says what that is, `masses` [parts] how much there is of it.
    [[nodiscard]] token_id draw_left(detail::rank_question const& rest, draw_key const& key,
                                     std::span<double const> masses) const {
        return token(rest.row, key, masses, &rest);
    }

private:
    using question = detail::rank_question;

    [[nodiscard]] detail::rank_questions& questions() const noexcept { return view_.questions(); }
    [[nodiscard]] bool all_can_race() const noexcept {
        for (std::size_t n = 0; n <= view_.length(); ++n) {
            if (!view_.law_of(n).can_race()) return false;
        }
        return true;
    }
    [[nodiscard]] token_id token(std::size_t n, draw_key const& key, std::span<double const> masses,
                                 question const* rest = nullptr) const {
        detail::part_masses const parts{masses};
        if (!(parts.total() > 0.0)) return no_token;
        question wanted{.what = question::kind::token, .row = static_cast<std::uint32_t>(n)};
        if (rest != nullptr) {
            wanted.of_rest = true;
            wanted.a = rest->a;
            wanted.b = rest->b;
            wanted.rejected = rest->rejected;
        }
        wanted.key = key;
        token_id const part = rng_.categorical(key, parts);
        if (part == no_token) return no_token;
        wanted.part = static_cast<std::uint32_t>(part);
        wanted.within = parts.within();
        wanted.mass = parts[part];
        question const* const known = questions().ask(wanted);
        return known == nullptr ? no_token : known->token;
    }

    View& view_;
    Rng& rng_;
};

SURELEAP_END_NAMESPACE
