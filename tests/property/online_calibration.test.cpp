// SPDX-License-Identifier: MIT
//
// Learning from trimmed rounds. Exact expectations over every path of a small engine show which readings of such rounds
// are biased. Simulations show what the bias does to maps that learn while their own trimming decides what they see.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/confidence/calibration.hpp>
#include <sureleap/cost/capacity.hpp>
#include <sureleap/fit/confidence_metrics.hpp>
#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/serving/online_calibration.hpp>
#include <sureleap/serving/online_maps.hpp>

#include "support/exactness.hpp"
#include "support/survival_tables.hpp"
#include "support/traffic.hpp"

using namespace sureleap;

namespace {

constexpr std::size_t requests = 2;
constexpr std::size_t gamma_ = 3;

/// Two requests of three positions. A confidence has one of two values and is true: x_k is accepted with that
/// probability, given that it is reached. What the next confidence is may depend on whether x_k is acceptable: a
/// head that sees x_k when it judges x_{k+1} tells something about it.
struct small_engine {
    std::array<double, 2> confidence{0.375, 0.875};
    double high_after_good = 0.5;
    double high_after_bad = 0.5;

    struct path {
        double probability = 1.0;
        std::array<std::array<double, gamma_>, requests> c{};
        std::array<std::array<bool, gamma_>, requests> good{};
    };

    template <class Visit>
    void for_each_path(Visit const& visit) const {
        walk(path{}, 0, visit);
    }

private:
    template <class Visit>
    void walk(path const& at, std::size_t i, Visit const& visit) const {
        if (i == requests * gamma_) return visit(at);
        std::size_t const r = i / gamma_;
        std::size_t const k = i % gamma_;
        double const high = k == 0 ? 0.5 : at.good[r][k - 1] ? high_after_good : high_after_bad;
        for (bool const is_high : {false, true}) {
            for (bool const good : {false, true}) {
                path next = at;
                double const c = confidence[is_high ? 1 : 0];
                next.probability *= (is_high ? high : 1.0 - high) * (good ? c : 1.0 - c);
                next.c[r][k] = c;
                next.good[r][k] = good;
                walk(next, i + 1, visit);
            }
        }
    }
};

/// Observed minus predicted, by position, summed over everything that a reading of the rounds takes for an observation.
struct bias {
    std::array<double, gamma_> residual{};
    std::array<double, gamma_> weight{};

    void add(double probability, std::size_t k, double label, double prediction) {
        residual[k] += probability * (label - prediction);
        weight[k] += probability;
    }
    [[nodiscard]] double at(std::size_t k) const { return residual[k] / weight[k]; }
};

struct readings {
    bias conditional;  ///< accepted or not, where verified and reached: what online_maps learn
    bias survival;     ///< survival labels of verified positions
    bias complete;     ///< survival labels of all positions, unverified ones as rejected
    bias known;        ///< survival labels of all positions whose label is known
    double trimmed = 0.0;
    double lengths_differ = 0.0;  ///< how often two requests get different lengths
};

template <class Admit>
readings expectations(small_engine const& engine, Admit const& admit) {
    readings out;
    engine.for_each_path([&](small_engine::path const& p) {
        support::owned_table table(requests, gamma_);
        for (std::size_t r = 0; r < requests; ++r) {
            table.sizes[r] = gamma_;
            for (std::size_t k = 0; k < gamma_; ++k) {
                fixed_probability c = 0;
                if (!quantise(p.c[r][k], c)) FAIL("a confidence that is none");
                table.set(r, k, c);
            }
        }
        support::admission_memory memory(requests);
        auto const walk = memory.view();
        causal_frontier frontier{table.view(), walk};
        admit(frontier);
        out.lengths_differ += walk.lengths[0] != walk.lengths[1] ? p.probability : 0.0;
        for (std::size_t r = 0; r < requests; ++r) {
            std::size_t const verified = walk.lengths[r];
            auto const first_bad = std::find(p.good[r].begin(), p.good[r].end(), false) - p.good[r].begin();
            auto const labels =
                label_round(verified, std::min<std::size_t>(verified, static_cast<std::size_t>(first_bad)), gamma_);
            out.trimmed += p.probability * static_cast<double>(gamma_ - verified);
            double survival = 1.0;
            for (std::size_t k = 0; k < gamma_; ++k) {
                survival *= p.c[r][k];
                double const label = labels.label(k);
                if (k < verified && labels.accepted >= k) out.conditional.add(p.probability, k, label, p.c[r][k]);
                if (k < labels.verified) out.survival.add(p.probability, k, label, survival);
                if (k < labels.known) out.known.add(p.probability, k, label, survival);
                out.complete.add(p.probability, k, label, survival);
            }
        }
    });
    return out;
}

template <class Check>
void under_each_schedule(Check const& check) {
    SECTION("Algorithm 1") {
        greedy_schedule const schedule{analytic_capacity{1000.0, 3.0}};
        check([&](causal_frontier& frontier) { schedule.admit(frontier); });
    }
    SECTION("top-K of a planner") {
        check([](causal_frontier& frontier) { frontier.admit_best(3); });
    }
}

}  // namespace

TEST_CASE("conditional labels of verified and reached positions are unbiased under trimming, exactly") {
    // c_2 and c_3 tell nothing, or a lot, about x_1 and x_2.
    auto const correlated = GENERATE(false, true);
    small_engine engine;
    if (correlated) engine = {.high_after_good = 0.75, .high_after_bad = 0.25};
    under_each_schedule([&](auto const& admit) {
        readings const e = expectations(engine, admit);
        CHECK(e.trimmed > 1.0);  // of 6
        CHECK(e.lengths_differ > 0.1);
        for (std::size_t k = 0; k < gamma_; ++k) {
            INFO("position " << k << (correlated ? ", correlated" : ""));
            REQUIRE(e.conditional.weight[k] > 0.01);
            CHECK(std::fabs(e.conditional.residual[k]) < 1e-12);
            CAPTURE(e.survival.at(k), e.complete.at(k), e.known.at(k));
            if (k == 0) continue;
            if (correlated) {  // the product of true conditionals is not the survival of those that got that far
                CHECK(std::fabs(e.survival.at(k)) > 0.05);
            } else {
                CHECK(std::fabs(e.survival.residual[k]) < 1e-12);
                CHECK(e.complete.at(k) < -0.05);
                CHECK(e.known.at(k) < -0.03);
            }
        }
    });
}

namespace {

/// How a round is read: all as online_maps do, or in one of the two biased ways.
enum class reading { reached, complete, known };

void learn(online_maps& maps, reading how, std::span<double const> raw, verdict const& v) {
    if (how == reading::reached) return maps.observe_round(raw, v.verified, v.accepted);
    bool const rejected = v.accepted < v.verified;
    for (std::size_t k = 0; k < raw.size(); ++k) {
        bool const counts = how == reading::complete ? k <= v.accepted : k < v.verified || rejected;
        if (counts) maps.observe(k, logit_terms::of_confidence(raw[k]), k < v.accepted);
    }
}

/// ECE of survivals by position, over full blocks that nobody trimmed.
std::vector<double> survival_errors(online_maps const& maps, support::domain const& truth, std::uint64_t seed) {
    support::dice roll(seed);
    std::size_t const gamma = maps.block_size();
    calibration_recorder recorder(gamma);
    std::vector<double> c(gamma);
    std::vector<std::uint8_t> label(gamma);
    for (int i = 0; i < 100000; ++i) {
        bool alive = true;
        for (std::size_t k = 0; k < gamma; ++k) {
            auto const token = truth.draw(roll, k);
            c[k] = maps(k, support::sigmoid_of(token.z));
            alive = alive && token.accepted;
            label[k] = alive ? 1 : 0;
        }
        if (recorder.observe(c, label, gamma) != status::ok) FAIL("a confidence that is none");
    }
    std::vector<double> out;
    for (std::size_t k = 0; k < gamma; ++k) out.push_back(recorder.position(k).ece);
    return out;
}

}  // namespace

// Maps learn while the schedule that uses them decides what they see. In 3,000 rounds of 32 requests the last position
// is verified and reached at least 5,000 times. That leaves its map a standard deviation of 0.03 logits, and survivals,
// with the positions before it, half a point. The bound is three standard deviations. Biased readings amplify
// themselves: what is not verified counts against being verified.
TEST_CASE("maps that learn from what their own trimming lets them see") {
    std::size_t constexpr gamma = 4;
    support::domain const truth{.offset = 0.3, .decay = 0.1, .slope = 0.7};
    auto const how = GENERATE(reading::reached, reading::complete, reading::known);
    auto const seed = GENERATE(std::uint64_t{11}, std::uint64_t{12}, std::uint64_t{13});
    INFO("seed " << seed);
    online_settings settings;
    settings.memory = 1e9;
    online_maps maps(gamma, settings);
    support::traffic traffic(32, gamma, greedy_schedule{analytic_capacity{1000.0, 96.0}}, seed);
    for (int i = 0; i < 3000; ++i) {
        auto const round = traffic.round(maps, [&](std::size_t) { return truth; });
        for (std::size_t r = 0; r < round.size(); ++r) {
            learn(maps, how, round.raw_confidences.subspan(r * gamma, gamma), round.verdicts[r]);
        }
        maps.close_round(round.size());
    }
    auto const errors = survival_errors(maps, truth, seed + 100);
    CAPTURE(static_cast<int>(how), errors, maps.observations(gamma - 1));
    double const worst = *std::max_element(errors.begin(), errors.end());
    if (how == reading::reached) {
        CHECK(worst < 0.015);
    } else {
        CHECK(worst > 0.2);
    }
}

// ---- losslessness --------------------------------------------------------------------------------------------------

namespace {

/// A decoder whose rounds teach the calibration that is lent to it. Settings that let one round turn the maps over.
template <class Target, class Drafter, class Schedule, class Rule, class Rng>
class calibrated_decoder {
public:
    calibrated_decoder(std::size_t places, Target& target, Drafter drafter, Schedule const& schedule, Rule const& rule,
                       Rng rng)
        : calibration_(drafter.block_size(),
                       {.maps = {.terms = online_terms::history,
                                 .prior_weight = 1.0,
                                 .memory = 2.0,
                                 .trusted_observations = 1.0,
                                 .drift = {.false_alarm_rounds = 1.0, .tolerated = 0.0, .shift = 2.0}},
                        .max_requests = places,
                        .tenants = 8,
                        .shared_weight = 1.0}),
          decoder_(target, std::move(drafter), schedule, rule,
                   decoder_options{.max_requests = places, .seed = 1, .calibration = calibration_}, no_logits_hook{},
                   rng) {}

    request_id submit(std::span<token_id const> prompt, request_settings const& settings) {
        return decoder_.submit(prompt, settings);
    }
    void cancel(request_id id) { decoder_.cancel(id); }
    bool step() {
        bool const any = decoder_.step();
        if (any) calibration_.observe(decoder_.round());
        return any;
    }
    [[nodiscard]] std::span<request_event const> events() const { return decoder_.events(); }

private:
    online_calibration calibration_;
    decoder<Target&, Drafter, Schedule, Rule, no_logits_hook, Rng> decoder_;
};

template <class Schedule, class Rule>
void check_lossless(exactness::world const& w, exactness::scene const& s, Schedule const& schedule, Rule const& rule) {
    auto target = exactness::target_of(w);
    for (auto const kind : {enumerator::noise::fresh, enumerator::noise::keyed}) {
        auto const found = exactness::decoder_law(kind, s, [&](auto rng) {
            return calibrated_decoder<decltype(target), decltype(exactness::semi_of(w)), Schedule, Rule, decltype(rng)>(
                s.requests.size(), target, exactness::semi_of(w), schedule, rule, rng);
        });
        CHECK(exactness::largest_difference(found, exactness::autoregressive_law(w, s)) <= exactness::tolerance);
    }
}

template <class Rule>
void check_lossless(Rule const& rule) {
    auto const one = [](token_id prompt, std::uint32_t tenant) {
        return exactness::scene_request{{prompt}, {.tenant = tenant}};
    };
    exactness::scene const alone{{one(0, 0)}, 5, 2};
    exactness::scene const together{{one(0, 1), one(1, 2)}, 3, 0};
    auto const both = [&](auto const& schedule) {
        check_lossless({11, 2, 2}, alone, schedule, rule);
        check_lossless({41, 2, 2}, together, schedule, rule);
    };
    both(greedy_schedule{exactness::smooth_capacity{}});
    both(lagged_top_k<1>(exactness::jagged_capacity{}, 0.7));
    both(planned_schedule{exactness::jagged_capacity{}});
}

}  // namespace

TEST_CASE("rounds whose calibration learns from every round before are lossless", "[exact]") {
    check_lossless(token_rejection<>{});
    check_lossless(block_verification<>{});
    check_lossless(keyed_coupling{});
}
