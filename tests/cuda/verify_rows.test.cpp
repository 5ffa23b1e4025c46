// SPDX-License-Identifier: MIT
//
// Verification on the device where rounding, empty mass and rows without a distribution are at stake, and what is
// refused.
#include "cuda/support/verify_round.hpp"

#include "cuda/support/seeds.hpp"

#include <sureleap/verify/block.hpp>
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

// One prefix after the other, each of which waits for a pass: more of them than there are kernels of passes.
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
