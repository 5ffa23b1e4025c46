// SPDX-License-Identifier: MIT
//
// The laws of the exactness list once more in float, over every table of passes that the machine runs: what a table
// computes as p is the law of what is emitted, under every rule.
#include "support/exactness.hpp"

#include <sureleap/head/markov.hpp>

using namespace exactness;

namespace {

/// The reference adds weights in double. Vectors add them in float first. So a draw by weights and p by their sum may
/// differ by the rounding of that sum, once for each token and draft. The largest difference seen was 6e-9.
double tolerance_of(row_kernels const& kernels) {
    return &kernels == &scalar_kernels<row_kernels> ? tolerance : 1e-7;
}

auto target_in_float(world const& w) {
    return model_of<float>(w.vocabulary, [&w](std::span<token_id const> context, std::span<float> logits) {
        std::vector<double> exact(logits.size());
        w.target(context, exact);
        for (std::size_t v = 0; v < logits.size(); ++v) logits[v] = static_cast<float>(exact[v]);
    });
}

auto drafter_in_float(world const& w) {
    auto f = [&w](std::span<token_id const> context, std::span<float> logits) {
        for (std::size_t v = 0; v < logits.size(); ++v) {
            logits[v] = static_cast<float>(4.0 * hash01(w.seed, 5, context.back(), context.size() % 2, v) - 2.0);
        }
    };
    return autoregressive{model_of<float>(w.vocabulary, f), top1_confidence{},
                          drafter_options{.block_size = w.block_size, .vocabulary = w.vocabulary}};
}

template <class Rule>
void check_rule(Rule const& rule) {
    for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
        for (trial const& t : trials()) {
            if (t.large) continue;
            auto target = target_in_float(t.where);
            auto const visit = [&](std::string const& name, auto const& schedule) {
                law const found = decoder_law(enumerator::noise::keyed, t.what, [&](auto rng) {
                    using drafter_type = decltype(drafter_in_float(t.where));
                    return decoder<decltype(target)&, drafter_type, std::remove_cvref_t<decltype(schedule)>, Rule,
                                   no_logits_hook, decltype(rng)>(
                        target, drafter_in_float(t.where), schedule, rule,
                        {.max_requests = t.what.requests.size(), .seed = 1, .kernels = kernels, .constrained = true},
                        no_logits_hook{}, rng);
                });
                INFO("table " << kernels->name << ", " << name << ", world " << t.where.seed);
                CHECK(largest_difference(found, autoregressive_law<float>(t.where, t.what, *kernels)) <=
                      tolerance_of(*kernels));
            };
            visit("fixed", fixed_schedule{});
            visit("greedy, jagged", greedy_schedule{jagged_capacity{}});
        }
    }
}

}  // namespace

TEST_CASE("token rejection: exact in float over every table of passes", "[exact]") {
    check_rule(token_rejection<>{});
}

TEST_CASE("block verification: exact in float over every table of passes", "[exact]") {
    check_rule(block_verification<>{});
}

TEST_CASE("target match: exact in float over every table of passes", "[exact]") {
    check_rule(target_match<>{});
}

TEST_CASE("keyed coupling: exact in float over every table of passes", "[exact]") {
    check_rule(keyed_coupling{});
}
