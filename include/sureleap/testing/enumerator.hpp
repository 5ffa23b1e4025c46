// SPDX-License-Identifier: MIT
//
// Exact laws instead of statistics. The enumerator is a source of randomness that walks every outcome of every draw. A
// program run under it yields the exact distribution of its result. Losslessness is then an equality to 1e-12, where a
// chi-square would miss a bias of a few per cent. For tests of rules, schedulers and drafters on tiny vocabularies, the
// library's and yours. It allocates and is slow; nothing of the library includes it.
//
//     enumerator walk{enumerator::noise::keyed};
//     std::map<result, double> law;
//     walk.for_each_path([&] {
//         decoder dec{target, drafter, schedule, rule, {}, no_logits_hook{}, walk.handle()};
//         auto const seen = ... run it ...;
//         law[seen] += walk.weight();
//     });
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/random.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Walks all outcomes of a program that draws through it. Models randomness through handle().
///
/// Two kinds. `fresh`: every question is an independent draw, keys are ignored. `keyed`: a key owns one uniform
/// number (and one vector of exponentials for races); a second question under a key is answered by what the first left
/// possible. Only the second sees a draw that is used twice, which is how production works.
class enumerator {
public:
    enum class noise { fresh, keyed };

    /// A copyable model of randomness that refers to the enumerator.
    class source {
    public:
        explicit source(enumerator& owner) noexcept : owner_(&owner) {}
        [[nodiscard]] bool bernoulli(draw_key const& key, double num, double den) const {
            return owner_->bernoulli(key, num, den);
        }
        template <class Weights>
        [[nodiscard]] token_id categorical(draw_key const& key, Weights const& weights) const {
            return owner_->categorical(key, weights);
        }
        template <class Weights>
        [[nodiscard]] token_id gumbel_max(draw_key const& key, Weights const& weights) const {
            return owner_->gumbel_max(key, weights);
        }

    private:
        enumerator* owner_;
    };

    explicit enumerator(noise kind) : kind_(kind) {}

    [[nodiscard]] source handle() noexcept { return source{*this}; }

    /// Calls run() once for every sequence of outcomes of positive probability. run must be a function of its draws.
    template <class Run>
    void for_each_path(Run&& run) {
        path_.clear();
        do {
            depth_ = 0;
            weight_ = 1.0;
            uniforms_.clear();
            races_.clear();
            run();
            ++paths_;
        } while (advance());
    }
    /// Probability of the current path; final when run() ends.
    [[nodiscard]] double weight() const noexcept { return weight_; }
    /// Paths walked so far.
    [[nodiscard]] std::size_t paths() const noexcept { return paths_; }

private:
    using point = std::array<double, 2>;

    struct choice {
        std::vector<double> probabilities;
        std::size_t taken = 0;
    };
    // What is still possible of a key's uniform: [low, high).
    struct interval {
        draw_key key;
        double low = 0.0;
        double high = 1.0;
    };
    // What is still possible of a key's exponentials E. Only their ratios matter, and E / sum(E) is uniform on the
    // simplex: a convex region of it, in the coordinates (s_0, s_1); for two tokens the segment of s_0.
    struct region {
        draw_key key;
        std::vector<point> corners;
    };

    // A branch: takes the outcome of the path, or the first possible one where the path ends.
    std::size_t choose(std::vector<double> probabilities) {
        if (depth_ == path_.size()) {
            std::size_t first = 0;
            while (first < probabilities.size() && !(probabilities[first] > 0.0)) ++first;
            if (first == probabilities.size()) fail_with("enumerator: a draw has no outcome of positive probability");
            path_.push_back({std::move(probabilities), first});
        }
        choice const& here = path_[depth_++];
        weight_ *= here.probabilities[here.taken];
        return here.taken;
    }
    bool advance() {
        for (; !path_.empty(); path_.pop_back()) {
            choice& last = path_.back();
            while (++last.taken < last.probabilities.size()) {
                if (last.probabilities[last.taken] > 0.0) return true;
            }
        }
        return false;
    }

    // Splits a uniform at `ends` (ascending, the last one 1): outcome i is [ends[i-1], ends[i]).
    std::size_t split(draw_key const& key, std::vector<double> const& ends) {
        if (kind_ == noise::fresh) {
            std::vector<double> probabilities;
            double before = 0.0;
            for (double const end : ends) {
                probabilities.push_back(end - before);
                before = end;
            }
            return choose(std::move(probabilities));
        }
        auto found = std::find_if(uniforms_.begin(), uniforms_.end(), [&](interval const& i) { return i.key == key; });
        if (found == uniforms_.end()) found = uniforms_.insert(uniforms_.end(), interval{key});
        std::vector<double> probabilities;
        double before = 0.0;
        for (double const end : ends) {
            double const length = std::min(end, found->high) - std::max(before, found->low);
            probabilities.push_back(length > negligible ? length / (found->high - found->low) : 0.0);
            before = end;
        }
        std::size_t const taken = choose(std::move(probabilities));
        if (taken > 0) found->low = std::max(found->low, ends[taken - 1]);
        found->high = std::min(found->high, ends[taken]);
        return taken;
    }

    bool bernoulli(draw_key const& key, double num, double den) {
        double const p = num < den ? num / den : 1.0;
        return split(key, {p, 1.0}) == 0;
    }

    template <class Weights>
    token_id categorical(draw_key const& key, Weights const& weights) {
        std::vector<double> ends;
        double cumulative = 0.0;
        for (std::size_t v = 0; v < weights.size(); ++v) {
            cumulative += static_cast<double>(weights[static_cast<token_id>(v)]);
            ends.push_back(cumulative / static_cast<double>(weights.total()));
        }
        // Rounding at the end belongs to the last token that has weight.
        for (std::size_t v = ends.size(); v-- > 0;) {
            ends[v] = 1.0;
            if (static_cast<double>(weights[static_cast<token_id>(v)]) > 0.0) break;
        }
        return static_cast<token_id>(split(key, ends));
    }

    template <class Weights>
    token_id gumbel_max(draw_key const& key, Weights const& weights) {
        std::size_t const size = weights.size();
        if (kind_ == noise::fresh) return categorical(key, weights);
        if (size != 2 && size != 3) {
            fail_with("enumerator: a keyed race over ", size, " tokens; exact only for vocabularies of 2 or 3");
        }
        auto found = std::find_if(races_.begin(), races_.end(), [&](region const& r) { return r.key == key; });
        if (found == races_.end()) {
            std::vector<point> whole{{0.0, 0.0}, {1.0, 0.0}};
            if (size == 3) whole.push_back({0.0, 1.0});
            found = races_.insert(races_.end(), region{key, std::move(whole)});
        }
        auto const place = found - races_.begin();
        std::vector<std::vector<point>> cells(size);
        std::vector<double> probabilities(size, 0.0);
        double const whole = measure(found->corners, size);
        for (std::size_t i = 0; i < size; ++i) {
            double const wi = static_cast<double>(weights[static_cast<token_id>(i)]);
            if (!(wi > 0.0)) continue;
            std::vector<point> cell = found->corners;
            for (std::size_t j = 0; j < size; ++j) {
                double const wj = static_cast<double>(weights[static_cast<token_id>(j)]);
                if (j != i) cell = clip(cell, size, i, wi, j, wj);  // s_i / w_i <= s_j / w_j
            }
            double const part = measure(cell, size);
            if (part > negligible) probabilities[i] = part / whole;
            cells[i] = std::move(cell);
        }
        std::size_t const winner = choose(std::move(probabilities));
        races_[static_cast<std::size_t>(place)].corners = std::move(cells[winner]);
        return static_cast<token_id>(winner);
    }

    [[nodiscard]] static double coordinate(point const& p, std::size_t size, std::size_t i) noexcept {
        if (i < 2 && i + 1 < size) return p[i];
        return size == 2 ? 1.0 - p[0] : 1.0 - p[0] - p[1];
    }
    [[nodiscard]] static double measure(std::vector<point> const& corners, std::size_t size) noexcept {
        if (corners.size() < 2) return 0.0;
        if (size == 2) return std::abs(corners[1][0] - corners[0][0]);
        double twice = 0.0;
        for (std::size_t a = 0; a < corners.size(); ++a) {
            point const& p = corners[a];
            point const& q = corners[(a + 1) % corners.size()];
            twice += p[0] * q[1] - q[0] * p[1];
        }
        return std::abs(twice);  // the whole triangle measures 1
    }
    // The part of a convex region where s_i w_j <= s_j w_i (Sutherland and Hodgman 1974).
    [[nodiscard]] static std::vector<point> clip(std::vector<point> const& corners, std::size_t size, std::size_t i,
                                                 double wi, std::size_t j, double wj) {
        auto const excess = [&](point const& p) { return coordinate(p, size, i) * wj - coordinate(p, size, j) * wi; };
        std::vector<point> kept;
        std::size_t const edges = size == 2 ? corners.size() / 2 : corners.size();
        for (std::size_t a = 0; a < edges; ++a) {
            point const& p = corners[a];
            point const& q = corners[(a + 1) % corners.size()];
            double const ep = excess(p);
            double const eq = excess(q);
            if (ep <= 0.0) kept.push_back(p);
            if ((ep < 0.0 && eq > 0.0) || (ep > 0.0 && eq < 0.0)) {
                double const t = ep / (ep - eq);
                kept.push_back({p[0] + t * (q[0] - p[0]), p[1] + t * (q[1] - p[1])});
            }
            if (size == 2 && eq <= 0.0) kept.push_back(q);
        }
        return kept;
    }

    // Slivers left by rounding: outcomes this improbable are cut, well below the 1e-12 of the tests.
    static constexpr double negligible = 1e-15;

    noise kind_;
    std::vector<choice> path_;
    std::size_t depth_ = 0;
    double weight_ = 1.0;
    std::size_t paths_ = 0;
    std::vector<interval> uniforms_;
    std::vector<region> races_;
};

SURELEAP_END_NAMESPACE
