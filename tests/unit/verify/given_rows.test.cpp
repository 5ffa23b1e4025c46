// SPDX-License-Identifier: MIT
//
// Acceptance over rows that bring their normaliser and block sums, as an LM head's epilogue hands them over: the
// verdicts of rows without, wrong shapes refused, and the law kept.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
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
            double const total = scalar_kernels<row_kernels>.get<float>().sum(logits.data() + r * vocabulary,
                                                                              vocabulary, 0.0f, 1.0f, blocks.data());
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

    template <class Rule, class Hook = no_logits_hook>
    [[nodiscard]] verdict decide(Rule const& rule, logits_rows<float> const& rows, std::uint64_t position,
                                 Hook const& hook = {}) {
        parallel drafter{backbone{&q}, drafter_options{.block_size = block, .vocabulary = vocabulary}};
        fixed_schedule schedule;
        round_memory<float, float, Hook> memory{drafter, schedule, rule, {.max_requests = 1}};
        philox_randomness rng;
        request_view const request{
            .anchor = 0, .position = position, .seed = 3, .remaining = 100, .settings = &settings};
        REQUIRE(begin_round(schedule, std::span(&request, 1), memory));
        draw(drafter, drafter.forward(memory.requests()), rule, rng, memory);
        REQUIRE(admit(schedule, memory).rows() == block + 1);
        accept(rule, rows, hook, rng, memory);
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

TEST_CASE("given rows: statistics of another shape are an error, and change nothing") {
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
        CHECK_THROWS_AS(one.decide(token_rejection<>{}, rows, 1), error);
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

// ---- statistics that are not exact, or wrong --------------------------------------------------------------------

namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

/// How often each token is drawn, by u on a grid of n numbers in the middle of equal parts.
template <class Law>
std::vector<double> drawn_by_grid(Law const& law, int n) {
    std::vector<double> drawn(law.size());
    for (int i = 0; i < n; ++i) {
        token_id const x = law.quantile((i + 0.5) / n);
        REQUIRE(x != no_token);
        drawn[static_cast<std::size_t>(x)] += 1.0 / n;
    }
    return drawn;
}

std::vector<double> softmax(std::span<float const> row) {
    std::vector<double> p;
    double const top = static_cast<double>(*std::max_element(row.begin(), row.end()));
    double sum = 0.0;
    for (float const l : row) sum += p.emplace_back(std::exp(static_cast<double>(l) - top));
    for (double& x : p) x /= sum;
    return p;
}

double distance(std::vector<double> const& a, std::vector<double> const& b) {
    double sum = 0.0;
    for (std::size_t v = 0; v < a.size(); ++v) sum += 0.5 * std::abs(a[v] - b[v]);
    return sum;
}

/// What an engine may make of the statistics of its rows.
enum class fault {
    none,
    normalisers_off,  ///< by 20 %
    no_room,          ///< too small by 20 %: the last tokens would be out of reach
    of_maximum,       ///< block sums relative to the row's largest logit
    never_filled,     ///< zeros
    of_nothing,       ///< block sums that are NaN
    of_another_row,
};
char const* name_of(fault f) {
    constexpr char const* names[] = {
        "none", "normalisers too large", "normalisers too small", "of maximum", "never filled", "NaN", "another row"};
    return names[static_cast<int>(f)];
}
logits_rows<float> spoil(given_rows& rows, fault f, bool with_blocks) {
    std::size_t const blocks = row_blocks(vocabulary);
    for (std::size_t r = 0; r < rows.normalisers.size(); ++r) {
        auto const sums = std::span(rows.sums).subspan(r * blocks, blocks);
        float const top = *std::max_element(rows.logits.begin() + static_cast<std::ptrdiff_t>(r * vocabulary),
                                            rows.logits.begin() + static_cast<std::ptrdiff_t>((r + 1) * vocabulary));
        float const by = f == fault::normalisers_off ? 0.2f : f == fault::no_room ? -0.2f : 0.0f;
        for (float& s : sums) {
            s *= std::exp(-by);
            if (f == fault::of_maximum) s *= std::exp(rows.normalisers[r] - top);
            if (f == fault::never_filled) s = 0.0f;
            if (f == fault::of_nothing) s = std::numeric_limits<float>::quiet_NaN();
        }
        rows.normalisers[r] += by;
        if (f == fault::never_filled) rows.normalisers[r] = 0.0f;
    }
    if (f == fault::of_another_row) {
        // Of a row that is as heavy as two of these.
        for (float& n : rows.normalisers) n += std::log(2.0f);
    }
    auto given = rows.whole();
    if (!with_blocks) given.block_sums = {};
    return given;
}

}  // namespace

TEST_CASE("given rows: what rounding leaves over is nobody's: a padded tail is not drawn") {
    // The last tokens of the row have 1.7e-28 each. Whatever a rounded normaliser leaves over is not theirs.
    support::dice roll(94);
    INFO("seed " << roll.seed());
    auto row = random_rows(roll, 1);
    std::fill(row.end() - 200, row.end(), -60.0f);
    for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
        std::vector<double> blocks(row_blocks(vocabulary));
        double const total = kernels->get<float>().sum(row.data(), vocabulary, 0.0f, 1.0f, blocks.data());
        for (double const off : {0.0, 3e-7, 1e-5, 5e-4, 5e-3, 0.5}) {
            for (bool const with_blocks : {true, false}) {
                INFO("kernels " << kernels->name << ", normaliser off by " << off << ", blocks " << with_blocks);
                auto const normaliser = static_cast<float>(std::log(total) + off);
                std::vector<float> given;
                for (double const sum : blocks) given.push_back(static_cast<float>(sum / total));
                std::vector<double> sums(row_blocks(vocabulary));
                logits_row<float> brought{row, normaliser, {}};
                if (with_blocks) brought.block_sums = given;
                for (totals const made : {totals::exact, totals::bounded, totals::none}) {
                    distribution<float> law{brought, {}, {}, {}, *kernels, sums, made};
                    philox_randomness rng;
                    for (std::uint64_t i = 0; i < 300; ++i) {
                        double const u = 1.0 - roll.real() * 1e-6;
                        token_id const x = law.quantile(u);
                        if (made == totals::exact && law.valid()) REQUIRE(x != no_token);
                        REQUIRE(x < static_cast<token_id>(vocabulary - 200));
                        token_id const y = draw(law, {1, i, 0, purpose::bonus}, rng);
                        REQUIRE((y == no_token) == !law.valid());
                        REQUIRE(y < static_cast<token_id>(vocabulary - 200));
                    }
                    // Sums that add up to 1 do not show that the normaliser is another row's, but a block that holds
                    // less.
                    if (off < normaliser_tolerance) REQUIRE(law.valid());
                    if (off > normaliser_tolerance && !with_blocks) REQUIRE_FALSE(law.valid());
                }
            }
        }
    }
}

TEST_CASE("given rows: draws have the row's law, however the normaliser is rounded or off") {
    support::dice roll(95);
    INFO("seed " << roll.seed());
    // Few tokens, and the last of each block are as good as others: what is cut off at an end shows.
    std::size_t const size = GENERATE(std::size_t{2500}, std::size_t{40 * 1024 + 20});
    INFO("size " << size);
    std::vector<float> row(size, -inf);
    for (std::size_t const v : {std::size_t{3}, std::size_t{500}, row_block - 2, row_block - 1, row_block, size / 2,
                                std::min(16 * row_block, size / 2 + 1), size - 1200, size - 2, size - 1}) {
        row[v] = static_cast<float>(roll.between(-3.0, 0.0));
    }
    row[size - 1] = -5.5f;
    auto const p = softmax(row);
    std::vector<double> blocks(row_blocks(size));
    double const total = scalar_kernels<row_kernels>.get<float>().sum(row.data(), size, 0.0f, 1.0f, blocks.data());
    int const n = 20'000;
    for (double const off : {0.0, 9e-4, -9e-4, 0.01, -0.01, 1.0, -1.0, 200.0, -200.0}) {
        for (bool const with_blocks : {true, false}) {
            INFO("normaliser off by " << off << ", blocks " << with_blocks);
            std::vector<float> given;
            for (double const sum : blocks) given.push_back(static_cast<float>(sum / total * std::exp(-off)));
            std::vector<double> sums(row_blocks(size));
            logits_row<float> brought{row, static_cast<float>(std::log(total) + off), {}};
            if (with_blocks) brought.block_sums = given;
            distribution<float> const law{brought, {}, {}, {}, native_kernels<row_kernels>(), sums};
            REQUIRE(law.valid() == (std::abs(off) <= normaliser_tolerance));
            if (!law.valid()) continue;
            CHECK(distance(drawn_by_grid(law, n), p) < 10.0 / n);
            for (std::size_t v = 0; v < size; ++v) {
                if (p[v] > 0.0) REQUIRE(std::abs(law.probability(static_cast<token_id>(v)) - p[v]) <= 1e-6 * p[v]);
            }
        }
    }
}

TEST_CASE("given rows: decisions are those of the exact sum while a normaliser is as exact as it must be") {
    support::dice roll(96);
    INFO("seed " << roll.seed());
    stage with{random_rows(roll, block)};
    stage without{with.q};
    auto values = with.q;
    for (float& l : values) l += static_cast<float>(roll.between(-0.7, 0.7));
    auto const last = random_rows(roll, 1);
    values.insert(values.end(), last.begin(), last.end());
    for (double const off : {0.0, 9e-4, -9e-4}) {
        given_rows target(values);
        for (float& n : target.normalisers) n += static_cast<float>(off);
        for (float& s : target.sums) s *= static_cast<float>(std::exp(-off));
        auto rows = target.whole();
        for (bool const with_blocks : {true, false}) {
            if (!with_blocks) rows.block_sums = {};
            INFO("normalisers off by " << off << ", blocks " << with_blocks);
            std::size_t different = 0, kept = 0;
            for (std::uint64_t position = 0; position < 400; ++position) {
                verdict const a = with.decide(token_rejection<>{}, rows, position);
                verdict const b = without.decide(token_rejection<>{}, target.bare(), position);
                REQUIRE(a.outcome == status::ok);
                different += a.accepted != b.accepted;
                kept += b.accepted;
            }
            CHECK(different == 0);
            CHECK(kept > 400);
        }
    }
}

TEMPLATE_TEST_CASE("given rows: statistics that prove wrong are no verdict; races need none", "", token_rejection<>,
                   block_verification<>, target_match<>, keyed_coupling) {
    support::dice roll(97);
    INFO("seed " << roll.seed());
    stage with{random_rows(roll, block)};
    stage without{with.q};
    auto values = with.q;
    for (float& l : values) l += static_cast<float>(roll.between(-0.7, 0.7));
    auto const last = random_rows(roll, 1);
    values.insert(values.end(), last.begin(), last.end());
    given_rows const exact(values);
    for (fault const f : {fault::normalisers_off, fault::no_room, fault::of_maximum, fault::never_filled,
                          fault::of_nothing, fault::of_another_row}) {
        for (bool const with_blocks : {true, false}) {
            if (!with_blocks && (f == fault::of_maximum || f == fault::of_nothing)) continue;  // normalisers are right
            if (with_blocks && f == fault::of_another_row) continue;  // sums that add up to 1: see below
            std::size_t refused = 0;
            given_rows spoiled = exact;
            auto const rows = spoil(spoiled, f, with_blocks);
            INFO(name_of(f) << ", blocks " << with_blocks);
            for (std::uint64_t position = 0; position < 60; ++position) {
                verdict const a = with.decide(TestType{}, rows, position);
                if (a.outcome == status::invalid_target) {
                    REQUIRE(with.emitted.empty());
                    ++refused;
                    continue;
                }
                REQUIRE(a.outcome == status::ok);
                REQUIRE(without.decide(TestType{}, exact.bare(), position).accepted == a.accepted);
                REQUIRE(with.emitted == without.emitted);
            }
            // Whoever draws makes a sum.
            CHECK(refused == (std::is_same_v<TestType, keyed_coupling> ? 0u : 60u));
        }
    }
}

TEST_CASE("given rows: log probabilities by a race are those of the row, or the row is refused") {
    support::dice roll(102);
    stage one{random_rows(roll, block)};
    one.settings.log_probabilities = true;
    given_rows target(random_rows(roll, block + 1));
    for (std::uint64_t position = 0; position < 20; ++position) {
        REQUIRE(one.decide(keyed_coupling{}, target.whole(), position).outcome == status::ok);
    }
    auto const wrong = spoil(target, fault::normalisers_off, true);
    for (std::uint64_t position = 0; position < 20; ++position) {
        verdict const v = one.decide(keyed_coupling{}, wrong, position);
        REQUIRE(v.outcome == status::invalid_target);
        REQUIRE(v.accepted == 0);
        REQUIRE(one.emitted.empty());
    }
}

TEST_CASE("given rows: a probability above 1 is not believed") {
    // Block sums add up to 1, the normaliser is another row's: only the weights show it.
    support::dice roll(98);
    INFO("seed " << roll.seed());
    stage with{std::vector<float>(block * vocabulary, 0.0f)};
    for (std::size_t k = 0; k < block; ++k) with.q[k * vocabulary + 70 + k] = 12.0f;  // nearly always drafted
    auto values = with.q;
    auto const last = random_rows(roll, 1);
    values.insert(values.end(), last.begin(), last.end());
    for (std::size_t k = 0; k < block; ++k) values[k * vocabulary + 9] = 12.0f;  // and half as probable as it looks
    given_rows target(values);
    for (float& n : target.normalisers) n -= 1.0f;
    std::size_t refused = 0;
    for (std::uint64_t position = 0; position < 100; ++position) {
        refused += with.decide(token_rejection<>{}, target.whole(), position).outcome == status::invalid_target;
    }
    CHECK(refused > 95);  // but for a first draft that is another token
}

TEST_CASE("given rows: a row without a law gives no token, wherever its NaN stands") {
    support::dice roll(99);
    INFO("seed " << roll.seed());
    stage one{random_rows(roll, block)};
    for (std::size_t const at : {std::size_t{0}, std::size_t{1023}, std::size_t{2000}, vocabulary - 1}) {
        INFO("NaN at " << at);
        // With block sums a draw reads no further than its token needs. So a third of the draws are to fall on the NaN.
        auto values = random_rows(roll, block + 1);
        for (std::size_t r = 0; r <= block; ++r) values[r * vocabulary + at] = 9.0f;
        given_rows target(values);
        for (std::size_t r = 0; r <= block; ++r) {
            target.logits[r * vocabulary + at] = std::numeric_limits<float>::quiet_NaN();
        }
        auto rows = target.whole();
        for (bool const with_blocks : {true, false}) {
            if (!with_blocks) rows.block_sums = {};
            std::size_t refused = 0;
            for (std::uint64_t position = 0; position < 40; ++position) {
                auto const judge = [&](auto const& rule) {
                    verdict const v = one.decide(rule, rows, position);
                    for (token_id const x : one.emitted) REQUIRE(x >= 0);
                    REQUIRE((v.outcome == status::ok) == !one.emitted.empty());
                    refused += v.outcome == status::invalid_target;
                };
                judge(token_rejection<>{});
                judge(block_verification<>{});
                judge(target_match<>{});
            }
            // Without block sums whoever draws reads the row; with them a block of it.
            CHECK(refused >= (with_blocks ? 20u : 100u));
        }
    }
}

namespace {
/// Counts its calls, and touches what it is told to.
struct counting_hook {
    bool touching = false;
    int* calls = nullptr;
    [[nodiscard]] bool touches(request_view const&) const noexcept { return touching; }
    void operator()(hook_context const&, std::span<float>) const { ++*calls; }
};
}  // namespace

TEST_CASE("given rows: rows that a hook does not touch are read where they are") {
    support::dice roll(19);
    given_rows const target{random_rows(roll, block + 1)};
    stage one{random_rows(roll, block)};
    int calls = 0;
    for (std::uint64_t position = 0; position < 20; ++position) {
        REQUIRE(one.decide(token_rejection<>{}, target.whole(), position).outcome == status::ok);
        auto const plain = one.emitted;
        (void)one.decide(token_rejection<>{}, target.whole(), position, counting_hook{false, &calls});
        REQUIRE(one.emitted == plain);
        REQUIRE(calls == 0);
    }
    (void)one.decide(token_rejection<>{}, target.whole(), 0, counting_hook{true, &calls});
    CHECK(calls > 0);
}

TEST_CASE("given rows: statistics are not read where a hook, a temperature or a truncation makes another law") {
    support::dice roll(100);
    INFO("seed " << roll.seed());
    stage with{random_rows(roll, block)};
    stage without{with.q};
    given_rows target(random_rows(roll, block + 1));
    for (float& n : target.normalisers) n = 0.3f;
    for (float& s : target.sums) s = 77.0f;
    auto const hook = [](hook_context const&, std::span<float> row) { row[5] = -inf; };
    request_settings all[4];
    all[1].temperature = 0.8;
    all[2].top_k = 30;
    all[3].top_p = 0.9;
    for (request_settings const& settings : all) {
        with.settings = without.settings = settings;
        for (std::uint64_t position = 0; position < 30; ++position) {
            bool const hooked = &settings == all;
            verdict const a = hooked ? with.decide(token_rejection<>{}, target.whole(), position, hook)
                                     : with.decide(token_rejection<>{}, target.whole(), position);
            verdict const b = hooked ? without.decide(token_rejection<>{}, target.bare(), position, hook)
                                     : without.decide(token_rejection<>{}, target.bare(), position);
            REQUIRE(a.outcome == status::ok);
            REQUIRE(a.accepted == b.accepted);
            REQUIRE(with.emitted == without.emitted);
        }
    }
}

namespace {

/// Whatever a rule says of itself and makes of a row: a token that is none is not emitted.
struct nothing {
    static constexpr fidelity guarantee = fidelity::pathwise;
    static constexpr q_access access = q_access::none;
    using draft_rule = categorical_draft;
    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng&) const {
        return {true, v.length() / 2, no_token};
    }
};
static_assert(acceptance_sampler<nothing>);

}  // namespace

TEST_CASE("given rows: a decision without a token is none") {
    support::dice roll(101);
    stage one{random_rows(roll, block)};
    given_rows const target(random_rows(roll, block + 1));
    verdict const out = one.decide(nothing{}, target.bare(), 1);
    CHECK(out.outcome == status::invalid_target);
    CHECK(out.emitted.empty());
}
