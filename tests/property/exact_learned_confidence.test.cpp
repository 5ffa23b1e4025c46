// SPDX-License-Identifier: MIT
//
// Confidences that learn from every round before, at a pace at which one round turns them over: the law stays the
// target's. One that knows the drafted token is exact with rules that are exact for any draft, and biased with others.
#include <sureleap/drafter/with_lookup.hpp>
#include <sureleap/serving/learned_confidence.hpp>

#include "support/exactness.hpp"
#include "support/hasty_confidence.hpp"

using namespace exactness;

namespace {

scene const alone{{{}}, 5, 1};
scene const together{{{{0}, {.tenant = 1}}, {{1}, {}, 1}}, 3, 0};

template <class Make, class Schedule, class Rule>
void check_both(std::string const& name, Make const& make, Schedule const& schedule, Rule const& rule) {
    world const one{8, 2, 2};
    world const two{6, 2, 2};
    check_exact(name, enumerator::noise::keyed, one, alone, [&] { return make(one); }, schedule, rule);
    check_exact(name, enumerator::noise::keyed, two, together, [&] { return make(two); }, schedule, rule);
}

template <class Confidence>
constexpr auto stepwise = [](world const& w) { return autoregressive_with(w, hasty_confidence<Confidence>(w)); };
template <class Confidence>
constexpr auto headed = [](world const& w) { return semi_of(w, hasty_confidence<Confidence>(w)); };
template <class Confidence>
constexpr auto found = [](world const& w) { return with_lookup{stepwise<Confidence>(w), {.shortest = 1}}; };
constexpr auto at_once = [](world const& w) {
    return parallel{table_backbone{&w}, hasty_confidence<learned_confidence>(w),
                    drafter_options{.block_size = w.block_size, .vocabulary = w.vocabulary}};
};

greedy_schedule const greedy{smooth_capacity{}};
auto const top_k = lagged_top_k<1>(jagged_capacity{}, 0.7);
planned_schedule const planned{cliff_capacity{}};

}  // namespace

TEST_CASE("what is learned from every round before keeps the target's law", "[exact]") {
    using mine = learned_confidence;
    check_both("autoregressive, threshold", stepwise<mine>, threshold_schedule{0.6}, token_rejection<>{});
    check_both("autoregressive, greedy", stepwise<mine>, greedy, block_verification<>{});
    check_both("semi_autoregressive, greedy", headed<mine>, greedy, token_rejection<>{});
    check_both("with_lookup, top-K", found<mine>, top_k, token_rejection<>{});
    check_both("parallel, planned", at_once, planned, token_rejection<>{});
    check_both("parallel, planned", at_once, planned, block_verification<>{});
    check_both("semi_autoregressive, threshold", headed<mine>, threshold_schedule{0.6}, keyed_coupling{});
}

TEST_CASE("a confidence in the drafted token: exact where the draft does not matter", "[exact]") {
    using mine = token_confidence;
    check_both("autoregressive, threshold", stepwise<mine>, threshold_schedule{0.6}, keyed_coupling{});
    check_both("autoregressive, greedy", stepwise<mine>, greedy, target_match<categorical_draft>{});
    check_both("semi_autoregressive, greedy", headed<mine>, greedy, keyed_coupling{});
    check_both("with_lookup, top-K", found<mine>, top_k, target_match<categorical_draft>{});
    // An argmax is a function of what is known before it.
    check_both("autoregressive, greedy", stepwise<mine>, greedy, token_rejection<argmax_draft>{});
}

TEST_CASE("a confidence in the drafted token biases rules that sample", "[lossy]") {
    using drafter_type = std::invoke_result_t<decltype(stepwise<token_confidence>), world const&>;
    constexpr auto refused =
        misfit_of(traits_of<drafter_type>(), traits_of<threshold_schedule>(), traits_of<token_rejection<>>());
    STATIC_REQUIRE(refused == misfit::grows_by_tokens);
    auto const worst = [](auto const& make, auto const& rule) {
        double most = 0.0;
        for (std::uint64_t seed = 1; seed <= 8; ++seed) {
            world const w{seed, 2, 2};
            most = std::max(
                most,
                bias_of(enumerator::noise::keyed, w, alone, [&] { return make(w); }, threshold_schedule{0.6}, rule));
        }
        return most;
    };
    CHECK(worst(stepwise<token_confidence>, token_rejection<>{}) > visible);
    CHECK(worst(stepwise<learned_confidence>, token_rejection<>{}) <= tolerance);
}
