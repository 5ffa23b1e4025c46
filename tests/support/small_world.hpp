// SPDX-License-Identifier: MIT
//
// Tiny models with strong dependences, and the exact law of what a decoder makes of them. Everything is in double.
// Every number is a pure function of the world's seed and its arguments, so a path can be run again.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include <sureleap/decoder.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/testing/enumerator.hpp>

namespace small_world {

using namespace sureleap;

/// A number in [0, 1) that depends on everything it is given. Every path of an enumeration asks for the same few
/// thousand, so those that were made last are remembered.
template <class... Parts>
[[nodiscard]] double hash01(std::uint64_t seed, Parts... parts) {
    struct made {
        std::array<std::uint64_t, 1 + sizeof...(parts)> from{};
        double number = -1.0;  // none yet
    };
    static thread_local std::array<made, 1024> recent{};
    std::array<std::uint64_t, 1 + sizeof...(parts)> const from{seed, static_cast<std::uint64_t>(parts)...};
    std::uint64_t place = 0;
    for (std::uint64_t const part : from) place = (place ^ part) * 0x9E3779B97F4A7C15u;
    made& m = recent[place >> 54];
    if (m.number >= 0.0 && m.from == from) return m.number;

    std::uint64_t state = seed;
    ((state = (std::uint64_t{philox4x32({static_cast<std::uint32_t>(parts), 0, 0, 0}, state)[0]} << 32) ^
              philox4x32({static_cast<std::uint32_t>(parts), 1, 0, 0}, state)[1]),
     ...);
    m = {from, static_cast<double>(state >> 11) * 0x1p-53};
    return m.number;
}

struct world {
    std::uint64_t seed = 1;
    std::size_t vocabulary = 2;
    std::size_t block_size = 2;
    /// Behind this token the target has no law.
    token_id stop = no_token;
    /// Makes the confidence in x_k given x_{k-1} NaN where it returns true. Optional.
    std::function<bool(token_id previous, std::size_t k)> spoils_confidence{};

    /// Target logits: depend on the last two tokens and on the position.
    void target(std::span<token_id const> context, std::span<double> logits) const {
        token_id const last = context.back();
        if (last == stop) {
            std::ranges::fill(logits, std::numeric_limits<double>::quiet_NaN());
            return;
        }
        token_id const before = context.size() > 1 ? context[context.size() - 2] : no_token;
        for (std::size_t v = 0; v < vocabulary; ++v) {
            logits[v] = 3.0 * hash01(seed, 1, last, before, context.size() % 3, v) - 1.5;
        }
    }
    /// Base logits of the backbone: depend on the anchor, its position and k.
    [[nodiscard]] double base(token_id anchor, std::uint64_t position, std::size_t k, std::size_t v) const {
        return 2.0 * hash01(seed, 2, anchor, position % 3, k, v) - 1.0;
    }
    /// Transition bias of the head.
    [[nodiscard]] double bias(token_id previous, std::size_t v) const {
        return 2.0 * hash01(seed, 3, previous, v) - 1.0;
    }
    /// Confidence in x_k given x_{k-1}: low or high by a coin, so that schedules really depend on drafted tokens.
    [[nodiscard]] double confidence(token_id previous, std::size_t k) const {
        if (spoils_confidence && spoils_confidence(previous, k)) return std::numeric_limits<double>::quiet_NaN();
        double const u = hash01(seed, 4, previous, k);
        return u < 0.5 ? 0.15 + 0.4 * u : 0.75 + 0.5 * (u - 0.5);
    }
};

struct table_head {
    using value_type = double;
    world const* w;
    [[nodiscard]] std::size_t vocabulary() const { return w->vocabulary; }
    [[nodiscard]] std::size_t previous_vocabulary() const { return w->vocabulary; }
    [[nodiscard]] std::size_t hidden_size() const { return 0; }
    [[nodiscard]] std::size_t state_size() const { return 0; }
    void reset(std::span<double>) const {}
    void add_bias(std::span<double>, std::span<double const>, token_id previous, std::span<double> logits) const {
        for (std::size_t v = 0; v < logits.size(); ++v) logits[v] += w->bias(previous, v);
    }
};

struct table_confidence {
    world const* w;
    [[nodiscard]] double operator()(std::span<double const>, token_id previous, std::size_t k) const {
        return w->confidence(previous, k);
    }
    [[nodiscard]] double at_anchor(std::span<double const>, token_id anchor, std::size_t k) const {
        return w->confidence(k == 0 ? anchor : no_token, k);
    }
};

struct table_backbone {
    world const* w;
    std::vector<double> logits{};
    [[nodiscard]] block_forward<double> forward(std::span<request_view const> requests) {
        logits.clear();
        for (auto const& r : requests) {
            for (std::size_t k = 0; k < w->block_size; ++k) {
                for (std::size_t v = 0; v < w->vocabulary; ++v) logits.push_back(w->base(r.anchor, r.position, k, v));
            }
        }
        return {{}, {{logits.data(), requests.size() * w->block_size, w->vocabulary}, {}}};
    }
};

/// A backbone of block size 2 that speaks two tokens only; a vocabulary_map says which.
struct two_token_backbone {
    world const* w;
    std::vector<double> logits{};
    [[nodiscard]] block_forward<double> forward(std::span<request_view const> requests) {
        logits.clear();
        for (auto const& r : requests) {
            for (std::size_t i = 0; i < 4; ++i) logits.push_back(w->base(r.anchor, r.position, i / 2, i % 2));
        }
        return {{}, {{logits.data(), 2 * requests.size(), 2}, {}}};
    }
};

[[nodiscard]] inline auto target_of(world const& w) {
    return model_of<double>(w.vocabulary, [&w](std::span<token_id const> c, std::span<double> l) { w.target(c, l); });
}

/// Semi-autoregressive drafter of a world; its confidence may be replaced.
template <class Confidence = table_confidence>
[[nodiscard]] auto semi_of(world const& w, Confidence confidence) {
    return semi_autoregressive{table_backbone{&w}, table_head{&w}, std::move(confidence),
                               drafter_options{.block_size = w.block_size, .vocabulary = w.vocabulary}};
}
[[nodiscard]] inline auto semi_of(world const& w) {
    return semi_of(w, table_confidence{&w});
}

/// An autoregressive drafter that knows another language; its confidence is its top-1 probability.
[[nodiscard]] inline auto autoregressive_of(world const& w) {
    auto f = [&w](std::span<token_id const> context, std::span<double> logits) {
        for (std::size_t v = 0; v < logits.size(); ++v) {
            logits[v] = 4.0 * hash01(w.seed, 5, context.back(), context.size() % 2, v) - 2.0;
        }
    };
    return autoregressive{model_of<double>(w.vocabulary, f), top1_confidence{},
                          drafter_options{.block_size = w.block_size, .vocabulary = w.vocabulary}};
}

// ---- what is observed ------------------------------------------------------------------------------------------

/// One request of a scenario.
struct scene_request {
    std::vector<token_id> prompt{0};
    request_settings settings{};
    std::size_t joins_after = 0;  ///< steps before it joins
    /// It leaves after this many steps (0: never) and joins again with what it has by then, as a request does that is
    /// moved elsewhere and back, after that many.
    std::size_t leaves_after = 0;
    std::size_t returns_after = 0;
};

/// Requests and the horizon: the first `horizon` tokens of each are observed. Requests generate `beyond` more, so that
/// the last observed round is not shortened by the limit on new tokens.
struct scene {
    std::vector<scene_request> requests{{}};
    std::size_t horizon = 4;
    std::size_t beyond = 0;
};

/// Outputs of all requests, -1 between them.
using outcome = std::vector<token_id>;
using law = std::map<outcome, double>;

[[nodiscard]] inline double total_variation(law const& a, law const& b) {
    double sum = 0.0;
    auto const at = [](law const& l, outcome const& o) {
        auto const it = l.find(o);
        return it == l.end() ? 0.0 : it->second;
    };
    for (auto const& [o, p] : a) sum += std::abs(p - at(b, o));
    for (auto const& [o, p] : b) sum += a.count(o) ? 0.0 : p;
    return 0.5 * sum;
}
[[nodiscard]] inline double largest_difference(law const& a, law const& b) {
    double largest = 0.0;
    for (auto const& [o, p] : a) largest = std::max(largest, std::abs(p - (b.count(o) ? b.at(o) : 0.0)));
    for (auto const& [o, p] : b) largest = std::max(largest, a.count(o) ? 0.0 : p);
    return largest;
}

/// What the request's settings forbid behind these tokens of its text.
inline void forbid(scene_request const& request, std::span<token_id const> tokens, std::span<double> logits) {
    request_settings const& settings = request.settings;
    std::size_t const generated = tokens.size() - request.prompt.size();
    token_mask mask;
    if (settings.constraint) {
        mask = settings.constraint({.context = request.prompt, .settings = &settings}, tokens.last(generated));
    }
    for (std::size_t v = 0; v < logits.size(); ++v) {
        auto const x = static_cast<token_id>(v);
        bool const early = generated < settings.min_new_tokens && settings.stops_at(x);
        if (early || !mask.allows(x)) logits[v] = -std::numeric_limits<double>::infinity();
    }
}

/// The law of plain autoregressive decoding: independent requests, each token from the transformed target, as one table
/// of passes computes it from logits in Real.
template <class Real = double>
[[nodiscard]] law autoregressive_law(world const& w, scene const& s,
                                     row_kernels const& kernels = scalar_kernels<row_kernels>) {
    law joint{{{}, 1.0}};
    for (auto const& request : s.requests) {
        std::vector<std::pair<std::vector<token_id>, double>> open{{request.prompt, 1.0}};
        std::vector<std::pair<std::vector<token_id>, double>> done;
        for (std::size_t n = 0; n < s.horizon; ++n) {
            std::vector<std::pair<std::vector<token_id>, double>> next;
            for (auto const& [tokens, p] : open) {
                std::vector<double> exact(w.vocabulary);
                std::vector<token_id> order(w.vocabulary);
                w.target(tokens, exact);
                forbid(request, tokens, exact);
                std::vector<Real> const logits(exact.begin(), exact.end());
                distribution<Real> const d{{logits, {}}, request.settings.target_transform(), order, {}, kernels};
                for (token_id v = 0; v < static_cast<token_id>(w.vocabulary); ++v) {
                    if (!(d.probability(v) > 0.0)) continue;
                    auto longer = tokens;
                    longer.push_back(v);
                    request_settings const& settings = request.settings;
                    request_view const view{.remaining = settings.max_new_tokens, .settings = &settings};
                    auto const generated = std::span(longer).subspan(request.prompt.size());
                    bool const stop = settings.stops_at(v) || (settings.text_end && settings.text_end(view, generated));
                    (stop ? done : next).emplace_back(std::move(longer), p * d.probability(v));
                }
            }
            open = std::move(next);
        }
        done.insert(done.end(), open.begin(), open.end());
        law extended;
        for (auto const& [before, p] : joint) {
            for (auto const& [tokens, q] : done) {
                outcome o = before;
                o.insert(o.end(), tokens.begin() + static_cast<std::ptrdiff_t>(request.prompt.size()), tokens.end());
                o.push_back(-1);
                extended[o] += p * q;
            }
        }
        joint = std::move(extended);
    }
    return joint;
}

/// Runs a decoder over a scene and returns the observed outputs.
template <class Decoder>
[[nodiscard]] outcome play(Decoder& dec, scene const& s) {
    enum class state { away, here, done };
    struct player {
        state now = state::away;
        request_id id = 0;
        std::vector<token_id> seen{};
    };
    std::vector<player> players(s.requests.size());
    auto const come_and_go = [&](std::size_t step) {
        for (std::size_t i = 0; i < players.size(); ++i) {
            scene_request const& request = s.requests[i];
            player& p = players[i];
            if (p.now == state::here && request.leaves_after > 0 && step == request.leaves_after) {
                dec.cancel(p.id);
                p.now = state::away;
            }
            bool const left = request.leaves_after > 0 && step >= request.leaves_after;
            if (p.now != state::away || step < request.joins_after || (left && step < request.returns_after)) continue;
            request_settings settings = request.settings;
            settings.max_new_tokens = s.horizon + s.beyond - p.seen.size();
            if (!settings.seed) settings.seed = 100 + i;
            std::vector<token_id> prompt = request.prompt;
            prompt.insert(prompt.end(), p.seen.begin(), p.seen.end());
            p.id = dec.submit(prompt, settings);
            p.now = state::here;
        }
    };
    auto const somebody_away = [&] {
        return std::any_of(players.begin(), players.end(), [](player const& p) { return p.now == state::away; });
    };
    come_and_go(0);
    for (std::size_t step = 1; dec.step() || somebody_away(); ++step) {
        for (auto const& e : dec.events()) {
            for (player& p : players) {
                if (p.now != state::here || p.id != e.request) continue;
                p.seen.insert(p.seen.end(), e.tokens.begin(), e.tokens.end());
                // Past the horizon nothing is observed, so nothing needs to be enumerated.
                bool const enough = p.seen.size() >= s.horizon;
                if (enough && e.finished == finish_reason::none) dec.cancel(e.request);
                if (enough || e.finished != finish_reason::none) p.now = state::done;
            }
        }
        come_and_go(step);
    }
    outcome o;
    for (player& p : players) {
        p.seen.resize(std::min(p.seen.size(), s.horizon));
        o.insert(o.end(), p.seen.begin(), p.seen.end());
        o.push_back(-1);
    }
    return o;
}

/// The exact law of a decoder's output. make(rng) builds a fresh decoder around a random source.
template <class Make>
[[nodiscard]] law decoder_law(enumerator::noise kind, scene const& s, Make&& make) {
    law result;
    enumerator walk{kind};
    walk.for_each_path([&] {
        auto dec = make(walk.handle());
        outcome const seen = play(dec, s);  // first: the weight is final only now
        result[seen] += walk.weight();
    });
    return result;
}

}  // namespace small_world
