// SPDX-License-Identifier: MIT
//
// Verification on the device where rounding, empty mass and rows without a distribution are at stake, and what is
// refused.
#include "cuda/support/verify_round.hpp"

#include "cuda/support/seeds.hpp"

#include <tuple>
#include <vector>

#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

using namespace support;

namespace {

template <class Rule>
void judge_wishes(std::uint64_t seed, std::size_t rounds, round_wishes wishes, tally& sum) {
    constexpr std::size_t sizes[] = {37, 1024, 4099};
    dice roll{seed};
    for (std::size_t i = 0; i < rounds_of(rounds); ++i) {
        wishes.vocabulary = sizes[i % 3];
        INFO("seed " << seed << ", round " << i << ", V " << wishes.vocabulary);
        if (i % 2 == 0) {
            judge_twice<Rule, float>(roll, wishes, sum);
        } else {
            judge_twice<Rule, bf16>(roll, wishes, sum);
        }
    }
}

}  // namespace

TEMPLATE_TEST_CASE("cuda verify: a draft that is the target is accepted, far from zero too", "[cuda]",
                   token_rejection<>, block_verification<>) {
    for (double const level : {0.0, 1e4, -1e4}) {
        tally sum;
        judge_wishes<TestType>(31, 6,
                               {.target = transform{.temperature = 0.8},
                                .bad_rows = false,
                                .normalised = false,
                                .distance = 0.0,
                                .level = level,
                                .shape = row_shape::bell},
                               sum);
        sum.check();
        CHECK(sum.refused == 0);
    }
}

TEMPLATE_TEST_CASE("cuda verify: distributions of one token, masked tokens, drafts far off", "[cuda]",
                   token_rejection<>, block_verification<>, target_match<>) {
    tally sum;
    for (row_shape const shape : {row_shape::one_left, row_shape::masked, row_shape::peaked, row_shape::flat}) {
        judge_wishes<TestType>(41, 6, {.distance = 40.0, .shape = shape}, sum);
        judge_wishes<TestType>(42, 6, {.distance = 0.2, .shape = shape}, sum);
    }
    sum.check();
}

// A row without a distribution is found wherever it is, and only if the rule comes to it.
TEMPLATE_TEST_CASE("cuda verify: rows without a distribution", "[cuda]", token_rejection<>, block_verification<>,
                   target_match<>, greedy_match) {
    tally sum;
    judge_wishes<TestType>(51, 60, {.requests = 2, .block_size = 3, .bad_rows = true, .distance = 0.3}, sum);
    sum.check();
    CHECK(sum.refused > 10);
    CHECK(sum.refused < sum.requests);
}

// Passes of many blocks, and of few that the request makes alone: nothing that a proposal would settle, and prefixes
// that survive with almost certainty.
TEMPLATE_TEST_CASE("cuda verify: corrections by passes over long rows", "[cuda]", token_rejection<>,
                   block_verification<>) {
    tally sum;
    dice roll{61};
    for (std::size_t i = 0; i < 24; ++i) {
        INFO("round " << i);
        round_wishes const wishes{.vocabulary = i % 3 == 0 ? std::size_t{3000} : std::size_t{6000},
                                  .requests = 4,
                                  .block_size = 5,
                                  .target = transform{},
                                  .bad_rows = false,
                                  .distance = 0.02,
                                  .shape = row_shape::bell,
                                  .needs_passes = i % 2 == 0,
                                  .twice = true};
        judge_twice<TestType, float>(roll, wishes, sum);
    }
    sum.check();
}

// One prefix after the other, each of which waits for a pass.
TEST_CASE("cuda verify: a block that is taken back token by token", "[cuda]") {
    tally sum;
    dice roll{62};
    for (std::size_t i = 0; i < 10; ++i) {
        INFO("round " << i);
        judge_twice<block_verification<>, float>(roll,
                                                 {.vocabulary = 6000,
                                                  .requests = 3,
                                                  .block_size = 4,
                                                  .target = transform{},
                                                  .bad_rows = false,
                                                  .normalised = false,
                                                  .distance = i % 2 == 0 ? 0.03 : 0.01,
                                                  .level = 0.0,
                                                  .shape = row_shape::bell,
                                                  .needs_passes = true},
                                                 sum);
    }
    sum.check();
    CHECK(sum.accepted < sum.requests * 4);
}

// A placeholder of an engine (-1), or a token that was added to the draft's vocabulary: judged as if the block ended
// before it. So is a round of more requests than there is memory for as one of those that there are.
TEMPLATE_TEST_CASE("cuda verify: a token that the vocabulary lacks is no draft", "[cuda]", token_rejection<>,
                   block_verification<>, target_match<>, greedy_match, keyed_coupling) {
    constexpr std::uint32_t requests = 6;
    constexpr std::uint32_t gamma = 4;
    constexpr std::uint32_t size = 2100;
    cuda::device_limits const limits{requests, gamma, size, 0, true};
    cuda::workspace sizer;
    static_cast<void>(cuda::carve(sizer, limits));
    static_cast<void>(cuda::carve_verification(sizer, limits));
    device_array<unsigned char> bytes(sizer.used());
    cuda::workspace ws{bytes.data(), bytes.bytes()};
    auto const round = cuda::carve(ws, limits);
    auto const memory = cuda::carve_verification(ws, limits);
    dice roll{81};
    std::vector<float> rows(requests * (gamma + 1) * size);
    for (float& logit : rows) logit = static_cast<float>(roll.between(0.0, 3.0));
    std::vector<token_id> drafted(requests * gamma), tokens;
    std::vector<device::distribution> distributions;
    std::vector<std::uint32_t> markers, whole(requests, gamma), cut;
    std::vector<std::int32_t> offsets;
    std::vector<transform> targets(requests);
    std::vector<std::uint64_t> numbers;
    for (std::uint32_t r = 0; r < requests; ++r) {
        if (r % 3 == 2) targets[r].top_k = 40;
        std::uint32_t const bad = r % (gamma + 1);  // in the last requests none
        cut.push_back(bad);
        numbers.push_back(100 + r);
        offsets.push_back(static_cast<std::int32_t>(r * (gamma + 1)));
        for (std::uint32_t k = 0; k <= gamma; ++k) {
            std::size_t const row = r * (gamma + 1) + k;
            markers.push_back(r);
            if (k == 0) tokens.push_back(0);
            if (k == gamma) continue;
            auto x = static_cast<token_id>(roll.below(size));
            rows[row * size + static_cast<std::size_t>(x)] = 16.0f;  // as good as certain
            if (k == bad) x = r % 2 == 0 ? -1 : static_cast<token_id>(size) + 7;
            tokens.push_back(x);
            drafted[r * gamma + k] = x;
            distributions.push_back(device::distribution::one_hot(x));
        }
    }
    offsets.push_back(static_cast<std::int32_t>(requests * (gamma + 1)));
    device_array<float> const row_memory{rows};
    cuda::logits_rows<float> const target{row_memory.data(), requests * (gamma + 1), size, nullptr, nullptr};
    put(round.requests.positions, numbers);
    put(round.requests.seeds, numbers);
    put(round.requests.targets, targets);
    put(round.requests.remaining, std::vector<std::uint32_t>(requests, gamma + 1));
    put(round.drafts.tokens, drafted);
    put(round.drafts.distributions, distributions);
    put(round.drafts.token_probabilities, std::vector<double>(requests * gamma, 1.0));
    put(round.drafts.sizes, whole);
    put(round.drafts.statuses, std::vector<status>(requests, status::ok));
    put(round.batch.offsets, offsets);
    put(round.batch.markers, markers);
    put(round.batch.tokens, tokens);
    auto const judged = [&](std::vector<std::uint32_t> const& lengths, std::uint32_t count) {
        put(round.batch.lengths, lengths);
        put(round.requests.count, {count});
        put(round.verdicts.tokens, std::vector<token_id>(requests * (gamma + 1), no_token));
        put(round.verdicts.log_probabilities, std::vector<double>(requests * (gamma + 1), 0.0));
        REQUIRE(device::accept<TestType>(target, device::one_hot_draft_rows{}, memory, round, nullptr) == cudaSuccess);
        return std::tuple{get(round.verdicts.statuses, requests), get(round.verdicts.emitted, requests),
                          get(round.verdicts.tokens, requests * (gamma + 1)),
                          get(round.verdicts.log_probabilities, requests * (gamma + 1))};
    };
    auto const expected = judged(cut, requests);
    CHECK(std::get<0>(expected) == std::vector<status>(requests, status::ok));
    CHECK(std::get<1>(expected)[3] > 1);
    CHECK(judged(whole, requests) == expected);
    CHECK(judged(whole, 1000) == expected);
}

TEST_CASE("cuda verify: any order of threads and blocks gives the same", "[cuda]") {
    for_each_order(12, [] {
        tally sum;
        dice roll{71};
        judge_twice<token_rejection<>, bf16>(roll, {.vocabulary = 5000, .requests = 3, .block_size = 3}, sum);
        judge_twice<block_verification<>, float>(
            roll, {.vocabulary = 5000, .requests = 3, .block_size = 3, .distance = 0.05, .twice = true}, sum);
        judge_twice<target_match<>, half>(roll, {.vocabulary = 2100, .requests = 3, .block_size = 3}, sum);
        CHECK(sum.differing == 0);
    });
}

TEST_CASE("cuda verify: what does not fit is refused before anything is launched", "[cuda]") {
    cuda::device_limits const limits{2, 3, 100, 0, false};
    cuda::workspace sizer;
    static_cast<void>(cuda::carve(sizer, limits));
    static_cast<void>(cuda::carve_verification(sizer, limits));
    device_array<unsigned char> bytes(sizer.used());
    device_array<float> const row_memory(100 * 8);
    cuda::workspace ws{bytes.data(), bytes.bytes()};
    auto const round = cuda::carve(ws, limits);
    auto const memory = cuda::carve_verification(ws, limits);
    REQUIRE(memory.ready());
    cuda::logits_rows<float> const rows{row_memory.data(), 8, 100, nullptr, nullptr};
    auto const asked = [](auto const& r, cuda::verify_memory const& m, cuda::device_round const& d) {
        return cuda::accept<greedy_match>(r, cuda::one_hot_draft_rows{}, m, d, nullptr);
    };
    put(round.requests.count, {0u});
    CHECK(asked(rows, memory, round) == cudaSuccess);  // nobody there

    CHECK(asked(cuda::logits_rows<float>{nullptr, 8, 100, nullptr, nullptr}, memory, round) == cudaErrorInvalidValue);
    CHECK(asked(cuda::logits_rows<float>{row_memory.data(), 8, 99, nullptr, nullptr}, memory, round) ==
          cudaErrorInvalidValue);
    CHECK(asked(rows, cuda::verify_memory{}, round) == cudaErrorInvalidValue);
    CHECK(asked(rows, memory, cuda::device_round{}) == cudaErrorInvalidValue);
    cuda::workspace too_small{bytes.data(), 1000};
    CHECK_FALSE(cuda::carve_verification(too_small, limits).ready());
    cuda::device_limits more = limits;
    more.requests = 3;
    cuda::workspace other_sizer;
    static_cast<void>(cuda::carve(other_sizer, more));
    device_array<unsigned char> other_bytes(other_sizer.used());
    cuda::workspace other{other_bytes.data(), other_bytes.bytes()};
    CHECK(asked(rows, memory, cuda::carve(other, more)) == cudaErrorInvalidValue);
}
