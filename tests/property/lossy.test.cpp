// SPDX-License-Identifier: MIT
//
// Combinations the compiler refuses, let in through allow_lossy: the enumerator must see that they are biased, and that
// rules which are exact under any schedule do not mind them.
#include "support/mutants.hpp"

using namespace mutants;

namespace {

/// The largest bias over a few worlds: a bug shows in most, but need not in each.
template <class Schedule, class Rule>
double worst_bias(Schedule const& s, Rule const& rule, scene const& what, std::size_t vocabulary, std::size_t gamma) {
    double worst = 0.0;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        world const w{seed, vocabulary, gamma};
        worst = std::max(worst, bias_of(enumerator::noise::keyed, w, what, [&] { return semi_of(w); }, s, rule));
    }
    return worst;
}

template <class Schedule>
void check_anticipating(std::string const& name, Schedule const& s) {
    static_assert(causality_of_v<Schedule> == causality::anticipating);
    scene const one{{{}}, 3, 2};
    INFO(name);
    CHECK(worst_bias(s, token_rejection<>{}, one, 2, 2) > visible);
    CHECK(worst_bias(s, block_verification<>{}, one, 2, 2) > visible);
    CHECK(worst_bias(s, token_rejection<>{}, one, 3, 2) > visible);
    // Deterministic drafts and rules that emit the target's own tokens have nothing to anticipate.
    CHECK(worst_bias(s, token_rejection<argmax_draft>{}, one, 2, 2) <= tolerance);
    CHECK(worst_bias(s, block_verification<argmax_draft>{}, one, 2, 2) <= tolerance);
    CHECK(worst_bias(s, target_match<categorical_draft>{}, one, 2, 2) <= tolerance);
    CHECK(worst_bias(s, keyed_coupling{}, one, 3, 2) <= tolerance);
}

}  // namespace

TEST_CASE("global search over this round's confidences is biased", "[lossy]") {
    check_anticipating("retrospective", retrospective_schedule{cliff_capacity{}});
}

TEST_CASE("dropping a sampled token because its q is small is biased", "[lossy]") {
    check_anticipating("drops unlikely tokens", drops_unlikely{0.5});
}

TEST_CASE("ranking by the sampled tokens' own probabilities is biased", "[lossy]") {
    // With one request a count is no decision; two requests compete for it.
    scene const two{{{}, {{1}}}, 2, 1};
    for (std::size_t const budget : {1u, 2u}) {
        CHECK(worst_bias(ranks_by_token_probability{budget}, token_rejection<>{}, two, 2, 2) > visible);
        CHECK(worst_bias(ranks_by_token_probability{budget}, block_verification<>{}, two, 2, 2) > visible);
        CHECK(worst_bias(ranks_by_token_probability{budget}, keyed_coupling{}, two, 2, 2) <= tolerance);
    }
}

namespace {
/// Saturates after the first position for one token only: x_1 = 0 makes a_2 tie with a_1.
struct saturating_confidence {
    [[nodiscard]] double operator()(std::span<double const>, token_id previous, std::size_t k) const {
        return k == 0 ? 0.8 : previous == 0 ? 1.0 : 0.1;
    }
};
}  // namespace

TEST_CASE("top-K by count with ties to the later position is biased", "[lossy]") {
    double worst = 0.0;
    double ordered = 0.0;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        world const w{seed, 2, 2};
        // A budget of one: the second request's block is verified exactly when its own x_1 = 0 saturates c_2.
        scene const two{{{}, {{1}}}, 2, 1};
        auto const make = [&] { return semi_of(w, saturating_confidence{}); };
        worst =
            std::max(worst, bias_of(enumerator::noise::keyed, w, two, make, ties_to_the_later{1}, token_rejection<>{}));
        // The library's order of the same count stays exact: lagged budgets of any size rank on the frontier.
        ordered = std::max(ordered, bias_of(enumerator::noise::keyed, w, two, make, lagged_top_k<1>(jagged_capacity{}),
                                            token_rejection<>{}));
    }
    CHECK(worst > visible);
    CHECK(ordered <= tolerance);
}

TEST_CASE("two requests that decide by each other's tokens: exact marginals, biased joint law", "[lossy]") {
    double joint = 0.0;
    double marginal = 0.0;
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        world const w{seed, 2, 2};
        scene const two{{{}, {{1}}}, 2, 0};
        auto const make = [&] { return semi_of(w); };
        law const found = law_of(enumerator::noise::keyed, w, two, make, decides_by_the_other{}, token_rejection<>{});
        joint = std::max(joint, total_variation(found, autoregressive_law(w, two)));
        for (std::size_t which : {0u, 1u}) {
            law alone;
            for (auto const& [o, p] : found) {
                auto const middle = std::find(o.begin(), o.end(), -1) + 1;
                alone[which == 0 ? outcome(o.begin(), middle) : outcome(middle, o.end())] += p;
            }
            scene single = two;
            single.requests = {two.requests[which]};
            marginal = std::max(marginal, largest_difference(alone, autoregressive_law(w, single)));
        }
    }
    CHECK(marginal <= tolerance);
    CHECK(joint > visible);
}

// ---- Appendix A ------------------------------------------------------------------------------------------------

namespace {
/// Two tokens A = 0 and B = 1. Target (0.7, 0.3), draft (0.5, 0.5), at every position.
struct appendix_a_confidence {
    [[nodiscard]] double operator()(std::span<double const>, token_id previous, std::size_t k) const {
        return k == 0 ? 0.8 : previous == 0 ? 1.0 : 0.0;
    }
};
/// One position does not pay, two cost no more than one.
struct appendix_a_capacity {
    [[nodiscard]] double steps_per_second(std::size_t b) const { return b == 1 ? 1.0 : 0.5; }
};

template <class Schedule, class Rule>
law appendix_a(Schedule const& s, Rule const& rule) {
    auto target = model_of<double>(2, [](auto, std::span<double> l) {
        l[0] = std::log(0.7);
        l[1] = std::log(0.3);
    });
    std::vector<double> const base(4, 0.0);
    auto backbone = [&](std::span<request_view const> r) {
        return block_forward<double>{{}, {{base.data(), 2 * r.size(), 2}, {}}};
    };
    scene const first_token{{{}}, 1, 3};
    return decoder_law(enumerator::noise::keyed, first_token, [&](auto rng) {
        using drafter_type = parallel<decltype(backbone)&, appendix_a_confidence>;
        return decoder<decltype(target)&, drafter_type, Schedule, Rule, no_logits_hook, decltype(rng), true>(
            target, drafter_type(backbone, {}, {.block_size = 2, .vocabulary = 2}), s, rule, allow_lossy,
            decoder_options{.seed = 1}, no_logits_hook{}, rng);
    });
}
}  // namespace

TEST_CASE("Appendix A: the global search turns 0.7 / 0.3 into 0.85 / 0.15", "[lossy][worked]") {
    auto const near = [](double a, double b) { return std::abs(a - b) <= tolerance; };
    outcome const a{0, -1};
    outcome const b{1, -1};

    // x_1 = A is verified and kept (p/q > 1); x_1 = B is dropped and replaced by a fresh draw from p.
    law biased = appendix_a(retrospective_schedule{appendix_a_capacity{}}, token_rejection<>{});
    CHECK(near(biased[a], 0.85));
    CHECK(near(biased[b], 0.15));

    law early_stop = appendix_a(greedy_schedule{appendix_a_capacity{}}, token_rejection<>{});
    CHECK(near(early_stop[a], 0.7));
    CHECK(near(early_stop[b], 0.3));

    law coupled = appendix_a(retrospective_schedule{appendix_a_capacity{}}, keyed_coupling{});
    CHECK(near(coupled[a], 0.7));
    CHECK(near(coupled[b], 0.3));
}
