// SPDX-License-Identifier: MIT
//
// Threads lent to a round. Whatever runs the tasks, in whatever order and however many at once, a round gives the bits
// that it gives alone: verdicts, tokens, log-probabilities, under every rule. Meant to run under the thread sanitizer
// as well.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sureleap/sureleap.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/executors.hpp"

using namespace sureleap;
using support::task_order;
using support::test_executor;

namespace {

// ---- the executor itself ---------------------------------------------------------------------------------------

TEST_CASE("executor: none is a width of one and runs tasks here, in order") {
    executor_ref const none;
    CHECK(none.width() == 1);
    std::vector<std::size_t> seen;
    auto const see = [&](std::size_t i) noexcept { seen.push_back(i); };
    none.run(4, see);
    CHECK(seen == std::vector<std::size_t>{0, 1, 2, 3});
}

TEST_CASE("executor: a view of a view runs on the same threads") {
    test_executor lent{task_order::descending, 3};
    executor_ref const view = lent;
    executor_ref const copy = view;
    CHECK(copy.width() == 3);
    std::vector<std::size_t> seen;
    auto const see = [&](std::size_t i) noexcept { seen.push_back(i); };
    copy.run(3, see);
    CHECK(seen == std::vector<std::size_t>{2, 1, 0});
    CHECK(lent.runs() == 1);
}

TEST_CASE("executor: every item is shared out once, and no worker is in two places") {
    for (task_order const order :
         {task_order::ascending, task_order::descending, task_order::shuffled, task_order::at_once}) {
        for (std::size_t const workers : {0u, 1u, 2u, 3u, 7u}) {
            for (std::size_t const items : {0u, 1u, 2u, 5u, 100u}) {
                INFO(support::name_of(order) << ", " << workers << " workers, " << items << " items");
                test_executor lent{order, 7};
                std::vector<std::atomic<int>> calls(items);
                std::array<std::atomic<int>, 7> inside{};
                std::atomic<int> together{0};
                detail::share_out(lent, workers, items, [&](std::size_t worker, std::size_t i) {
                    if (inside[worker].fetch_add(1) != 0) ++together;
                    ++calls[i];
                    std::this_thread::yield();
                    --inside[worker];
                });
                std::size_t wrong = 0;
                for (auto const& c : calls) wrong += std::size_t{c.load() != 1};
                CHECK(wrong == 0);
                CHECK(together == 0);
                CHECK(lent.runs() == (std::min(workers, items) > 1 ? 1 : 0));
                CHECK(lent.most_tasks() == (std::min(workers, items) > 1 ? std::min(workers, items) : 0));
            }
        }
    }
}

// ---- rounds ----------------------------------------------------------------------------------------------------

constexpr std::size_t vocabulary = 2500;  // blocks of sums, the last one short
constexpr std::size_t block_size = 4;
constexpr std::size_t places = 13;

/// Rows that were made once and are handed out from another place in every pass. The draft's are the target's with
/// noise.
struct recorded {
    std::vector<float> target, draft;
    std::size_t pass = 0;

    explicit recorded(std::uint64_t seed) {
        support::dice roll(seed);
        std::size_t const size = places * (block_size + 1) * vocabulary + 64;
        for (std::size_t i = 0; i < size; ++i) {
            double const l = i % 97 == 0 ? 8.0 + 2.0 * roll.bell() : 2.0 * roll.bell();
            target.push_back(static_cast<float>(l));
            draft.push_back(static_cast<float>(l + 0.7 * roll.bell()));
        }
        target[3 * vocabulary + 70] = std::numeric_limits<float>::quiet_NaN();  // a row without a law here and there
    }
    [[nodiscard]] matrix_view<float> of(std::vector<float> const& from, std::size_t rows) const {
        return {from.data() + pass % 64, rows, vocabulary};
    }
};

struct outcome {
    request_id id;
    status what;
    std::vector<token_id> tokens;
    std::vector<double> log_probabilities;
    [[nodiscard]] bool operator==(outcome const&) const = default;
};

struct tilt {
    void operator()(hook_context const& at, std::span<float> logits) const noexcept {
        std::this_thread::yield();
        logits[(static_cast<std::size_t>(at.request.anchor) + at.drafted.size()) % logits.size()] += 3.0f;
    }
};

/// Six rounds of requests of every kind, and all that came out.
template <class Make, class Rule, class Hook, class Schedule>
[[nodiscard]] std::vector<outcome> rounds(recorded& rows, Make const& make, Rule rule, Hook hook, executor_ref lent,
                                          double temperature, Schedule schedule) {
    rows.pass = 0;
    auto const target = [&](verify_batch const& batch) {
        ++rows.pass;
        return logits_rows<float>{rows.of(rows.target, batch.rows()), {}, {}};
    };
    decoder dec{target, make(), schedule, rule, {.max_requests = places, .executor = lent}, hook};
    for (std::size_t i = 0; i < places; ++i) {
        request_settings settings{.temperature = temperature, .seed = 20 + i, .max_new_tokens = 12 + i};
        if (i % 4 == 1) settings.top_p = 0.9, settings.top_k = 50, settings.draft = transform{.temperature = 0.8};
        if (i % 4 == 3) settings.min_p = 0.001, settings.draft = transform{.top_k = 900, .top_p = 0.99};
        if (i % 4 == 2) settings.max_draft_tokens = 2;
        settings.log_probabilities = i % 3 == 0;
        token_id const prompt[] = {static_cast<token_id>(i), 3};
        dec.submit(prompt, settings);
    }
    std::vector<outcome> all;
    for (int round = 0; round < 6 && dec.step(); ++round) {
        for (request_event const& e : dec.events()) {
            all.push_back({e.request,
                           e.outcome,
                           {e.tokens.begin(), e.tokens.end()},
                           {e.log_probabilities.begin(), e.log_probabilities.end()}});
        }
    }
    return all;
}

template <class Make, class Rule, class Hook, class Schedule = fixed_schedule>
void same_with_every_executor(recorded& rows, Make const& make, Rule rule, Hook hook, double temperature,
                              Schedule schedule = Schedule{}) {
    auto const alone = rounds(rows, make, rule, hook, {}, temperature, schedule);
    REQUIRE(alone.size() > 2 * places);
    for (auto const& [order, width] :
         {std::pair{task_order::ascending, 1}, std::pair{task_order::descending, 2}, std::pair{task_order::shuffled, 3},
          std::pair{task_order::at_once, 2}, std::pair{task_order::at_once, 3}, std::pair{task_order::at_once, 7}}) {
        INFO(support::name_of(order) << ", width " << width);
        test_executor lent{order, static_cast<std::size_t>(width)};
        CHECK(rounds(rows, make, rule, hook, lent, temperature, schedule) == alone);
        CHECK((lent.runs() > 0) == (width > 1));
        CHECK(lent.most_tasks() == (width > 1 ? lent.width() : 0));
    }
}

template <class Make>
void every_rule(Make const& make) {
    static recorded rows(31);
    INFO("seed 31");
    auto const with = [&](auto rule, double temperature) {
        same_with_every_executor(rows, [&] { return make(rows); }, rule, no_logits_hook{}, temperature);
    };
    with(token_rejection<>{}, 1.0);
    with(token_rejection<argmax_draft>{}, 1.0);
    with(block_verification<>{}, 0.8);
    with(target_match<>{}, 1.0);
    with(keyed_coupling{}, 1.0);
    with(greedy_match{}, 0.0);
    same_with_every_executor(rows, [&] { return make(rows); }, token_rejection<>{}, tilt{}, 1.0);
}

auto by_block(recorded& rows) {
    auto backbone = [&rows](std::span<request_view const> requests) {
        return block_forward<float>{{}, {rows.of(rows.draft, requests.size() * block_size), {}, {}}};
    };
    return parallel{std::move(backbone), top1_confidence{},
                    drafter_options{.block_size = block_size, .vocabulary = vocabulary}};
}

/// All weights of heads, and hidden states; sizes that no part of W2 is a multiple of.
struct head_weights {
    static constexpr std::size_t rank = 9;
    static constexpr std::size_t hidden = 5;
    std::vector<float> w1 = numbers(vocabulary * rank), w2 = numbers(vocabulary * rank);
    std::vector<float> gate = numbers(rank * (hidden + rank)), gate_bias = numbers(rank);
    std::vector<float> joint = numbers(3 * rank * (2 * rank + hidden)), joint_bias = numbers(3 * rank);
    std::vector<float> states = numbers(places * block_size * hidden);
    std::vector<float> confidence = numbers(hidden + rank);
    int8_matrix eight{matrix_view<float>{w2.data(), vocabulary, rank}};

    [[nodiscard]] matrix_view<float> in() const { return {w1.data(), vocabulary, rank}; }
    [[nodiscard]] matrix_view<float> out() const { return {w2.data(), vocabulary, rank}; }
    [[nodiscard]] auto markov() const { return markov_head{in(), out()}; }
    [[nodiscard]] auto markov_in_eight_bits() const { return markov_head{in(), eight.view()}; }
    [[nodiscard]] auto gated() const {
        return gated_head{in(), out(), matrix_view<float>{gate.data(), rank, hidden + rank}, gate_bias};
    }
    [[nodiscard]] auto rnn() const {
        return rnn_head{in(), out(), matrix_view<float>{joint.data(), 3 * rank, 2 * rank + hidden}, joint_bias};
    }
    [[nodiscard]] auto sure() const {
        return confidence_head<float>{{confidence.data(), 1, hidden + rank}, 0.5f, in()};
    }

private:
    static std::vector<float> numbers(std::size_t size) {
        static support::dice roll(41);
        std::vector<float> all(size);
        for (float& x : all) x = static_cast<float>(roll.bell());
        return all;
    }
};
head_weights const of_heads;

/// Stored: of what the backbone gives; another type than float is converted on the way.
template <class Stored, class Head>
auto with_head(recorded& rows, Head head) {
    std::vector<Stored> states, logits;
    for (float const x : of_heads.states) states.push_back(static_cast<Stored>(x));
    for (float const x : rows.draft) logits.push_back(static_cast<Stored>(x));
    auto backbone = [&rows, states = std::move(states),
                     logits = std::move(logits)](std::span<request_view const> requests) {
        std::size_t const n = requests.size() * block_size;
        return block_forward<Stored>{{states.data(), n, head_weights::hidden},
                                     {{logits.data() + rows.pass % 64, n, vocabulary}, {}, {}}};
    };
    return semi_autoregressive{
        std::move(backbone), std::move(head), of_heads.sure(),
        drafter_options{.block_size = block_size, .vocabulary = vocabulary, .hidden_size = head_weights::hidden}};
}

auto token_by_token(recorded& rows) {
    auto model = [&rows](std::span<request_view const> requests, draft_prefixes) {
        return logits_rows<float>{rows.of(rows.draft, requests.size()), {}, {}};
    };
    return autoregressive{std::move(model), drafter_options{.block_size = block_size, .vocabulary = vocabulary}};
}

TEST_CASE("executor: rounds of a parallel drafter are the same bits with any executor, under every rule") {
    every_rule(by_block);
}

TEST_CASE("executor: rounds of an autoregressive drafter are the same bits with any executor, under every rule") {
    every_rule(token_by_token);
}

TEST_CASE("executor: rounds of a sequential head are the same bits with any executor, under every rule") {
    every_rule([](recorded& rows) { return with_head<float>(rows, of_heads.markov()); });
}

TEST_CASE("executor: every head, storage and list drafts the same with any executor") {
    recorded rows(36);
    INFO("seed 36");
    auto const drafts = [&](auto const& make) {
        same_with_every_executor(rows, make, token_rejection<>{}, no_logits_hook{}, 1.0);
    };
    drafts([&] { return with_head<float>(rows, of_heads.markov_in_eight_bits()); });
    drafts([&] { return with_head<float>(rows, of_heads.gated()); });
    drafts([&] { return with_head<float>(rows, of_heads.rnn()); });
    drafts([&] { return with_head<double>(rows, of_heads.rnn()); });  // converted, in scratch of each request
    successor_table const next{of_heads.markov(), 6};
    drafts([&] { return with_head<float>(rows, shortlist_head{of_heads.markov(), 20, next.view()}); });
    drafts([&] { return with_head<double>(rows, shortlist_head{of_heads.gated(), 20, next.view()}); });
}

TEST_CASE("executor: a plan at the anchor is the same with any executor") {
    recorded rows(37);
    INFO("seed 37");
    capacity_table<staircase> const capacity{{{8, 1.0}, {24, 1.4}, {65, 2.5}}};
    auto const plans = [&](auto const& make) {
        same_with_every_executor(rows, make, block_verification<>{}, no_logits_hook{}, 1.0, planned_schedule{capacity});
    };
    plans([&] { return with_head<float>(rows, of_heads.markov()); });
    plans([&] { return with_head<double>(rows, of_heads.gated()); });
    plans([&] { return by_block(rows); });
}

TEMPLATE_TEST_CASE("executor: products are the same bits however W2 is divided", "", float, double, bf16, half) {
    using real = compute_t<TestType>;
    constexpr std::size_t rank = 7;
    support::dice roll(38);
    INFO("seed " << roll.seed());
    for (std::size_t const v : {1u, 63u, 64u, 65u, 500u, 1300u}) {
        std::vector<TestType> w2;
        for (std::size_t i = 0; i < v * rank; ++i) w2.push_back(TestType(static_cast<real>(roll.bell())));
        output_layer<matrix_view<TestType>, real, native_backend> const w{"test", {w2.data(), v, rank}, rank};
        for (std::size_t const n : {1u, 2u, 5u, 64u, 65u, 130u}) {
            std::vector<real> codes, base;
            for (std::size_t i = 0; i < n * rank; ++i) codes.push_back(static_cast<real>(roll.bell()));
            for (std::size_t i = 0; i < n * v; ++i) base.push_back(static_cast<real>(roll.bell()));
            auto const products = [&](executor_ref threads, bool in_place) {
                std::vector<real> logits = in_place ? base : std::vector<real>(n * v);
                std::vector<real const*> z, from;
                std::vector<real*> to;
                for (std::size_t i = 0; i < n; ++i) {
                    z.push_back(codes.data() + i * rank);
                    to.push_back(logits.data() + i * v);
                    from.push_back(in_place ? to.back() : base.data() + i * v);
                }
                w.add(z.data(), from.data(), to.data(), n, threads);
                return logits;
            };
            auto const alone = products({}, false);
            INFO("V = " << v << ", " << n << " codes");
            for (std::size_t const width : {2u, 3u, 7u}) {
                test_executor shuffled{task_order::shuffled, width}, at_once{task_order::at_once, width};
                CHECK(products(shuffled, false) == alone);
                CHECK(products(at_once, true) == alone);
                CHECK((shuffled.runs() > 0) == (v > 64));
            }
        }
    }
}

TEST_CASE("executor: steps over requests have scratch of their own") {
    constexpr std::size_t requests = 40;
    test_executor lent{task_order::at_once, 4};
    draft_shape const shape{.requests = requests, .block_size = 1, .vocabulary = 8, .executor = lent};
    workspace sizer;
    draft_block<float> const counted(sizer, shape);
    static_cast<void>(sizer.take<token_id>(shape.workers(), 5));
    std::vector<std::byte> memory(sizer.used());
    workspace ws{memory};
    draft_block<float> block(ws, shape);
    auto const scratch = ws.take<token_id>(shape.workers(), 5);
    request_settings const settings;
    std::vector<request_view> const views(requests, request_view{.remaining = 1, .settings = &settings});
    block.begin(views);
    std::atomic<int> disturbed{0};
    std::vector<std::atomic<int>> steps(requests);
    block.for_each_request(1, [&](draft_block<float>& mine, std::size_t r) {
        auto const ids = scratch[mine.worker()];
        std::fill(ids.begin(), ids.end(), static_cast<token_id>(r));
        for (int i = 0; i < 20; ++i) std::this_thread::yield();
        for (token_id const x : ids) disturbed += int{x != static_cast<token_id>(r)};
        ++steps[r];
    });
    CHECK(lent.most_tasks() == 4);
    CHECK(disturbed == 0);
    CHECK(std::all_of(steps.begin(), steps.end(), [](auto const& n) { return n == 1; }));
}

// ---- what is not divided ---------------------------------------------------------------------------------------

/// Answers as philox does and writes down for whom. Does not say that it may be asked by two threads.
struct recording {
    std::vector<std::uint64_t>* seeds;
    [[nodiscard]] bool bernoulli(draw_key const& key, double num, double den) const {
        seeds->push_back(key.seed);
        return philox_randomness{}.bernoulli(key, num, den);
    }
    [[nodiscard]] token_id categorical(draw_key const& key, auto const& weights) const {
        seeds->push_back(key.seed);
        return philox_randomness{}.categorical(key, weights);
    }
    [[nodiscard]] token_id gumbel_max(draw_key const& key, auto const& weights) const {
        seeds->push_back(key.seed);
        return philox_randomness{}.gumbel_max(key, weights);
    }
};

TEST_CASE("executor: a random source that does not say it is concurrent is asked in the order of the batch") {
    recorded rows(32);
    std::vector<std::uint64_t> asked;
    test_executor lent{task_order::at_once, 3};
    auto const target = [&](verify_batch const& batch) {
        return logits_rows<float>{rows.of(rows.target, batch.rows()), {}, {}};
    };
    decoder dec{target,
                by_block(rows),
                fixed_schedule{},
                token_rejection<>{},
                {.max_requests = places, .executor = lent},
                no_logits_hook{},
                recording{&asked}};
    for (std::size_t i = 0; i < places; ++i) {
        dec.submit(std::vector<token_id>{1}, {.seed = 100 + i, .max_new_tokens = 20});
    }
    REQUIRE(dec.step());
    CHECK(lent.runs() == 0);
    // All drafts in order, then all verdicts.
    std::size_t falls = 0;
    for (std::size_t i = 1; i < asked.size(); ++i) falls += std::size_t{asked[i] < asked[i - 1]};
    CHECK(asked.size() > 2 * places);
    CHECK(falls == 1);
}

TEST_CASE("executor: a round too small to share wakes nobody") {
    recorded rows(33);
    std::size_t const touched = 2 * block_size * vocabulary;  // drafts of two requests; what accept counts is less
    test_executor lent{task_order::at_once, 3, touched / 2 + 1};
    CHECK(executor_ref(lent).worth(touched) == 1);
    CHECK(executor_ref(lent).worth(2 * touched) == 3);
    CHECK(executor_ref(lent).worth(100 * touched) == 3);
    auto const target = [&](verify_batch const& batch) {
        return logits_rows<float>{rows.of(rows.target, batch.rows()), {}, {}};
    };
    decoder dec{
        target, by_block(rows), fixed_schedule{}, token_rejection<>{}, {.max_requests = places, .executor = lent}};
    for (std::uint64_t i = 0; i < 2; ++i) dec.submit(std::vector<token_id>{1}, {.seed = i, .max_new_tokens = 20});
    REQUIRE(dec.step());
    CHECK(lent.runs() == 0);
    for (std::uint64_t i = 0; i < 6; ++i) dec.submit(std::vector<token_id>{1}, {.seed = i, .max_new_tokens = 20});
    REQUIRE(dec.step());
    CHECK(lent.runs() > 0);
}

TEST_CASE("executor: memory grows with the width, up to one scratch a request") {
    recorded rows(34);
    auto const drafter = by_block(rows);
    auto const bytes = [&](std::size_t requests, std::size_t width) {
        test_executor lent{task_order::ascending, width};
        fixed_schedule all;
        return round_memory<float, float>{
            drafter, all, token_rejection<>{}, {.max_requests = requests, .executor = lent}}
            .bytes();
    };
    CHECK(bytes(3, 1) < bytes(3, 2));
    CHECK(bytes(3, 2) < bytes(3, 3));
    CHECK(bytes(3, 3) == bytes(3, 64));
}

TEST_CASE("executor: one that runs nothing at once is refused") {
    recorded rows(35);
    test_executor none{task_order::ascending, 0};
    fixed_schedule all;
    std::string const text = support::error_text([&] {
        round_memory<float, float> const memory{
            by_block(rows), all, token_rejection<>{}, {.max_requests = 2, .executor = none}};
    });
    CHECK(support::says(text, "the executor's width is 0, expected at least 1"));
}

}  // namespace
