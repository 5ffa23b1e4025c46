// SPDX-License-Identifier: MIT
//
// Acceptance over rows that bring their normaliser and block sums, as an LM head's epilogue hands them over: the verdicts
// of rows without, wrong shapes refused, and the law kept.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/sureleap.hpp>

#include "support/dice.hpp"

using namespace sureleap;

namespace {

constexpr std::size_t vocabulary = 2500;
constexpr std::size_t block = 4;  // gamma

std::vector<float> random_rows(support::dice& roll, std::size_t rows) {
    std::vector<float> out;
    for (std::size_t i = 0; i < rows * vocabulary; ++i) out.push_back(static_cast<float>(roll.between(-4.0, 4.0)));
    return out;
}

/// Target rows with what an epilogue knows of them.
struct given_rows {
    std::vector<float> logits;
    std::vector<float> normalisers;
    std::vector<float> sums;

    explicit given_rows(std::vector<float> values) : logits(std::move(values)) {
        std::vector<double> blocks(row_blocks(vocabulary));
        for (std::size_t r = 0; r < logits.size() / vocabulary; ++r) {
            double const total =
                scalar_row_kernels.for_float.sum(logits.data() + r * vocabulary, vocabulary, 0.0f, 1.0f, blocks.data());
            normalisers.push_back(static_cast<float>(std::log(total)));
            for (double const sum : blocks) sums.push_back(static_cast<float>(sum / total));
        }
    }
    [[nodiscard]] logits_rows<float> bare() const { return {{logits.data(), block + 1, vocabulary}, {}, {}}; }
    [[nodiscard]] logits_rows<float> whole() const {
        auto rows = bare();
        rows.log_normalisers = normalisers;
        rows.block_sums = {sums.data(), block + 1, row_blocks(vocabulary)};
        return rows;
    }
};

/// One block drafted from q, as a stage sees it.
struct stage {
    std::vector<float> q;
    struct backbone {
        std::vector<float> const* q;
        [[nodiscard]] block_forward<float> operator()(std::span<request_view const>) const {
            return {{}, {{q->data(), block, vocabulary}, {}, {}}};
        }
    };
    request_settings settings{};

    template <class Rule>
    [[nodiscard]] verdict decide(Rule const& rule, logits_rows<float> const& rows, std::uint64_t position) {
        parallel drafter{backbone{&q}, drafter_options{.block_size = block, .vocabulary = vocabulary}};
        fixed_schedule schedule;
        round_memory<float, float> memory{drafter, schedule, rule, {.max_requests = 1}};
        philox_randomness rng;
        request_view const request{
            .anchor = 0, .position = position, .seed = 3, .remaining = 100, .settings = &settings};
        REQUIRE(begin_round(schedule, std::span(&request, 1), memory));
        draw(drafter, drafter.forward(memory.requests()), rule, rng, memory);
        REQUIRE(admit(schedule, memory).rows() == block + 1);
        accept(rule, rows, no_logits_hook{}, rng, memory);
        verdict out = end_round(schedule, memory).verdicts[0];
        emitted.assign(out.emitted.begin(), out.emitted.end());
        return out;
    }
    std::vector<token_id> emitted{};
};

}  // namespace

namespace {

/// Blocks of a target that is near the draft, decided with and without statistics.
template <class Rule, class Seen>
void decide_both(std::size_t times, Seen const& seen) {
    support::dice roll(91);
    INFO("seed " << roll.seed());
    stage with{random_rows(roll, block)};
    stage without{with.q};
    auto values = with.q;
    for (float& l : values) l += static_cast<float>(roll.between(-0.7, 0.7));
    auto const last = random_rows(roll, 1);
    values.insert(values.end(), last.begin(), last.end());
    given_rows const target(values);
    for (std::uint64_t position = 0; position < times; ++position) {
        verdict const a = with.decide(Rule{}, target.whole(), position);
        verdict const b = without.decide(Rule{}, target.bare(), position);
        REQUIRE(a.outcome == status::ok);
        REQUIRE(b.outcome == status::ok);
        seen(a, with.emitted, b, without.emitted);
    }
}

}  // namespace

TEMPLATE_TEST_CASE("given rows: rules that follow the target's own noise decide as without statistics", "",
                   target_match<>, keyed_coupling) {
    // Rounding may move a draw over a boundary between two tokens: 1e-6 of them.
    std::size_t different = 0;
    std::size_t accepted = 0;
    decide_both<TestType>(300, [&](verdict const& a, auto const& x, verdict const& b, auto const& y) {
        accepted += a.accepted;
        different += a.accepted != b.accepted || x != y;
    });
    CHECK(different <= 2);
    CHECK(accepted > 0);
}

TEST_CASE("given rows: token rejection accepts the same drafts as without statistics") {
    // Corrections are drawn by the sums that are there, and rows without statistics have but bounds of them.
    std::size_t different = 0;
    std::size_t accepted = 0;
    decide_both<token_rejection<>>(300, [&](verdict const& a, auto const& x, verdict const& b, auto const& y) {
        accepted += a.accepted;
        different += a.accepted != b.accepted || !std::equal(x.begin(), x.end() - 1, y.begin(), y.end() - 1);
    });
    CHECK(different <= 2);
    CHECK(accepted > 0);
}

TEST_CASE("given rows: block verification accepts as many drafts as without statistics") {
    std::size_t const times = 2000;
    double with = 0.0, without = 0.0;
    decide_both<block_verification<>>(times, [&](verdict const& a, auto const&, verdict const& b, auto const&) {
        with += static_cast<double>(a.accepted);
        without += static_cast<double>(b.accepted);
    });
    CHECK(with > 0.0);
    // A block accepts 0 .. 4: the difference of two means is less than five of its deviations.
    CHECK(std::abs(with - without) / times < 5.0 * 2.0 * std::sqrt(2.0 / times));
}

TEST_CASE("given rows: statistics of another shape are refused, nothing is emitted") {
    support::dice roll(92);
    stage one{random_rows(roll, block)};
    given_rows const target(random_rows(roll, block + 1));
    auto few = target.whole();
    few.log_normalisers = few.log_normalisers.first(block);
    auto narrow = target.whole();
    narrow.block_sums.cols -= 1;
    auto low = target.whole();
    low.block_sums.rows -= 1;
    for (auto const& rows : {few, narrow, low}) {
        verdict const out = one.decide(token_rejection<>{}, rows, 1);
        CHECK(out.outcome == status::invalid_target);
        CHECK(out.emitted.empty());
    }
    CHECK(one.decide(token_rejection<>{}, target.whole(), 1).outcome == status::ok);
}

TEST_CASE("given rows: a normaliser that is no number is a row without a law") {
    support::dice roll(93);
    stage one{random_rows(roll, block)};
    given_rows target(random_rows(roll, block + 1));
    target.normalisers[0] = std::numeric_limits<float>::quiet_NaN();
    CHECK(one.decide(token_rejection<>{}, target.whole(), 1).outcome == status::invalid_target);
    CHECK(one.decide(block_verification<>{}, target.whole(), 1).outcome == status::invalid_target);
}
