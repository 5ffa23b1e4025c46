// SPDX-License-Identifier: MIT
//
// Token rejection against stored outcomes of the reference evaluation loop. The same logits, drafted tokens and
// uniforms go through the library's own stages (draw, flatten, accept). A random source reads the uniforms from the
// file (support/golden_verification.hpp).
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sureleap/drafter/parallel.hpp>
#include <sureleap/round/stages.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/golden_verification.hpp"

namespace {

using namespace sureleap;
using golden::is_stop;
using golden::softmax;
using golden::stop_tokens;
using golden::verify_case;

/// Answers every question with the uniforms of the file; a draft question with the token of the file.
struct scripted_randomness {
    verify_case const* script;

    bool bernoulli(draw_key const& key, double num, double den) const {
        CHECK(key.use == purpose::accept);
        return accepts(script->u_accept.at(key.index), num, den);
    }
    template <class Weights>
    token_id categorical(draw_key const& key, Weights const& weights) const {
        if (key.use == purpose::draft) {
            token_id const x = script->ids.at(key.index + 1);
            CHECK(weights[x] > 0);  // the recorded q could have drawn what the file says was drawn
            return x;
        }
        CHECK((key.use == purpose::residual || key.use == purpose::bonus));
        return inverse_cdf(weights, script->u_sample);
    }
    template <class Weights>
    token_id gumbel_max(draw_key const&, Weights const&) const {
        FAIL("token rejection has no use for a race");
        return no_token;
    }
};

/// How far the uniforms are from where a decision would turn. A float may decide otherwise below its own rounding, so
/// cases that close are left to the double test. Rejected blocks draw from max(p - q, 0), whose rounding grows with
/// the inverse of its mass.
double margin(verify_case const& c) {
    double least = 1.0;
    auto const row = [&](std::vector<double> const& from, std::size_t k) {
        return softmax(std::span(from).subspan(k * c.vocabulary, c.vocabulary), c.temperature);
    };
    std::vector<double> weights;
    std::size_t k = 0;
    for (; k < c.n; ++k) {
        auto const p = row(c.target, k);
        auto const q = row(c.draft, k);
        auto const x = static_cast<std::size_t>(c.ids[k + 1]);
        least = std::min(least, std::abs(p[x] / q[x] - c.u_accept[k]));
        if (c.u_accept[k] * q[x] < p[x]) continue;
        for (std::size_t v = 0; v < c.vocabulary; ++v) weights.push_back(std::max(p[v] - q[v], 0.0));
        break;
    }
    if (weights.empty()) weights = row(c.target, k);
    double total = 0.0;
    for (double const w : weights) total += w;
    double cumulative = 0.0;
    for (std::size_t v = 0; v + 1 < weights.size(); ++v) {
        cumulative += weights[v];
        least = std::min(least, std::abs(cumulative - c.u_sample * total));  // absolute, since the rounding of p is
    }
    return least;
}

/// One round through the stages, in storage type Real for both models.
template <class Real>
void verify(verify_case const& c, row_kernels const& kernels = native_kernels<row_kernels>()) {
    std::size_t const gamma = std::max<std::size_t>(c.n, 1);
    std::vector<Real> base(c.draft.begin(), c.draft.end());
    base.resize(gamma * c.vocabulary);  // an empty block still has a backbone pass
    std::vector<Real> const rows(c.target.begin(), c.target.end());

    auto const backbone = [&](std::span<request_view const>) {
        return block_forward<Real>{{}, {{base.data(), gamma, c.vocabulary}, {}}};
    };
    parallel drafter{backbone, {.block_size = gamma, .vocabulary = c.vocabulary}};
    auto target = [&](verify_batch const& batch) {
        CHECK(batch.rows() == c.drafted + 1);
        CHECK(std::equal(batch.tokens().begin(), batch.tokens().end(), c.ids.begin()));
        return logits_rows<Real>{{rows.data(), c.n + 1, c.vocabulary}, {}};
    };
    token_rejection<> const rule;
    fixed_schedule schedule;
    scripted_randomness rng{&c};
    no_logits_hook const hook;

    request_settings settings{.temperature = c.temperature, .max_new_tokens = c.n + 1, .log_probabilities = true};
    settings.stop_tokens = stop_tokens;
    settings.max_draft_tokens = c.n;
    request_view const request{
        .id = 7, .anchor = c.ids[0], .position = 40, .remaining = c.n + 1, .settings = &settings};
    std::span<request_view const> const requests{&request, 1};

    round_memory<Real, Real> memory{drafter, schedule, rule, {.max_requests = 1, .kernels = &kernels}};
    CHECK(begin_round(schedule, requests, memory) == (c.n > 0));
    auto const forward = drafter.forward(memory.requests());
    plan(schedule, drafter, forward, memory);
    draw(drafter, forward, rule, rng, memory);
    accept(rule, score(target, admit(schedule, memory)), hook, rng, memory);
    verdict const v = end_round(schedule, memory).verdicts.front();

    REQUIRE(v.outcome == status::ok);
    CHECK(v.drafted == c.drafted);
    CHECK(v.verified == c.drafted);
    CHECK(v.accepted == c.accepted);
    std::vector<token_id> expected(c.committed.begin(), c.committed.end());
    if (c.terminated) {
        CHECK(c.accepted == c.effective);
        REQUIRE(expected.size() == c.effective + 1);
        expected.pop_back();  // the next token that is drawn and thrown away
        CHECK(v.finished == finish_reason::stop_token);
        CHECK(v.ended_in_draft());
    } else {
        CHECK(v.next_anchor() == c.next);
        CHECK((v.finished == finish_reason::stop_token) == is_stop(c.next));
    }
    CHECK(std::vector<token_id>(v.emitted.begin(), v.emitted.end()) == expected);
    // The mask of the reference is the rule's prefix, before stop tokens are looked at.
    auto const kept = static_cast<std::size_t>(std::count(c.prefix_mask.begin(), c.prefix_mask.end(), 1));
    CHECK(v.accepted == std::min(kept, c.drafted));

    double const tolerance = std::is_same_v<Real, double> ? 1e-12 : 1e-5;
    REQUIRE(v.log_probabilities.size() == v.emitted.size());
    for (std::size_t k = 0; k < v.emitted.size(); ++k) {
        double const temperature =
            c.temperature < least_temperature ? 1.0 : c.temperature;  // greedy: see log_probabilities
        auto const p = softmax(std::span(c.target).subspan(k * c.vocabulary, c.vocabulary), temperature);
        CHECK(std::abs(v.log_probabilities[k] - std::log(p[static_cast<std::size_t>(v.emitted[k])])) < tolerance);
    }
}

/// How far storing the logits as float can move p/q or a cumulative sum: half an ulp of the largest logit, over T, in
/// the logit and in the normaliser of both p and q; doubled for the arithmetic. A uniform nearer to a decision than
/// this may rightly decide otherwise.
double float_rounding(verify_case const& c) {
    if (c.temperature < 1e-5) return 0.0;  // probabilities are 0 and 1, and stay that
    double largest = 1.0;
    for (double const l : c.target) largest = std::max(largest, std::abs(l));
    for (double const l : c.draft) largest = std::max(largest, std::abs(l));
    return 4.0 * 0x1p-23 * largest / c.temperature;
}

}  // namespace

TEST_CASE("verify: token rejection reproduces the reference in double", "[golden]") {
    auto const cases = golden::verify_cases();
    REQUIRE_FALSE(cases.empty());
    for (verify_case const& c : cases) {
        INFO("case " << c.name);
        verify<double>(c);
    }
}

TEST_CASE("verify: token rejection reproduces the reference in float, over every table", "[golden]") {
    std::size_t compared = 0;
    for (verify_case const& c : golden::verify_cases()) {
        if (margin(c) < float_rounding(c)) continue;
        for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
            INFO("case " << c.name << ", margin " << margin(c) << ", table " << kernels->name);
            verify<float>(c, *kernels);
        }
        ++compared;
    }
    CHECK(compared > 0);
}
