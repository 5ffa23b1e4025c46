// SPDX-License-Identifier: MIT
//
// Replicas behind one queue. Under rules that follow the target's token a text is the same, token for token, whichever
// replicas it was on and whenever they died; nothing of it is emitted twice, nothing is lost.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <serve/arrivals.hpp>
#include <serve/keyed.hpp>
#include <serve/policies.hpp>
#include <serve/replica_queue.hpp>
#include <serve/replicated.hpp>
#include <sureleap/sureleap.hpp>
#include <sureleap/testing/enumerator.hpp>

#include "support/catch.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/hash_models.hpp"

namespace {

using namespace sureleap;
using serve::joining;
using serve::replica_queue;
using support::dice;
using support::error_text;
using support::says;

using tokens = std::vector<token_id>;

constexpr std::size_t vocabulary = 12;
constexpr std::size_t places = 3;

constexpr joining every_joining[] = {joining::round_robin, joining::fewest_requests, joining::fewest_tokens,
                                     joining::fewer_of_two};

/// A replica: the library's decoder of a hash language, with a draft and a schedule of its own. Its clock stands still.
template <class Rule>
class hash_replica final : public serve::any_decoder {
    using target_type = decltype(support::hash_model<float>(vocabulary, {}));
    using drafter_type = autoregressive<target_type, top1_confidence>;

public:
    hash_replica(Rule rule, std::uint64_t own)
        : decoder_(support::hash_model<float>(vocabulary, {}),
                   drafter_type(support::hash_model<float>(vocabulary, {.own = own, .disagreement = 0.4}),
                                top1_confidence{}, {.block_size = 1 + own % 5, .vocabulary = vocabulary}),
                   own % 2 == 0 ? any_schedule{fixed_schedule{}}
                                : any_schedule{greedy_schedule{analytic_capacity{100.0, 6.0}}},
                   std::move(rule), {.max_requests = places, .seed = own, .constrained = true}) {}

    request_id submit(std::span<token_id const> prompt, request_settings const& settings) override {
        return decoder_.submit(prompt, settings);
    }
    void cancel(request_id id) override { decoder_.cancel(id); }
    void pause(request_id id) override { decoder_.pause(id); }
    void resume(request_id id) override { decoder_.resume(id); }
    bool step() override { return decoder_.step(); }
    std::span<request_event const> events() const override { return decoder_.events(); }
    round_record const& round() const override { return decoder_.round(); }
    std::size_t placed() const override { return decoder_.counts().placed; }
    std::size_t waiting() const override { return decoder_.counts().waiting; }
    double now() const override { return 0; }
    void wait_until(double) override {}

private:
    decoder<target_type, drafter_type, any_schedule, Rule> decoder_;
};

struct job {
    tokens prompt;
    request_settings settings;
};

token_id const stop_token[] = {3};

std::vector<job> some_jobs(dice& roll, bool greedy) {
    std::vector<job> all(2 + roll.below(15));
    for (job& one : all) {
        for (std::size_t i = 1 + roll.below(20); i > 0; --i) {
            one.prompt.push_back(static_cast<token_id>(roll.below(vocabulary)));
        }
        one.settings = {.temperature = greedy || roll.chance(0.2) ? 0.0 : roll.between(0.5, 1.5),
                        .top_k = roll.chance(0.5) ? 5 : 0,
                        .seed = roll.bits(),
                        .max_new_tokens = 1 + roll.below(40)};
        if (roll.chance(0.5)) {
            one.settings.stop_tokens = stop_token;
            one.settings.min_new_tokens = roll.below(one.settings.max_new_tokens + 1);
        }
    }
    return all;
}

/// The text of a request that is alone on its engine from the first to the last token.
template <class Rule>
tokens undisturbed(Rule const& rule, job const& one, std::uint64_t own = 1) {
    hash_replica<Rule> replica(rule, own);
    replica.submit(one.prompt, one.settings);
    tokens text;
    while (replica.step()) {
        auto const emitted = replica.events()[0].tokens;
        text.insert(text.end(), emitted.begin(), emitted.end());
    }
    return text;
}

/// What became of requests on replicas that died now and then, in the middle of a round or between two.
struct eventful {
    std::vector<tokens> texts;
    std::vector<std::size_t> ends;      // how often each was said to be finished
    std::set<std::uint64_t> went_on{};  // elsewhere, with tokens behind the prompt
};

template <class Rule>
eventful through_deaths(Rule const& rule, std::vector<job> const& jobs, joining how, dice& roll) {
    std::size_t const replicas = 2 + roll.below(5);
    std::vector<std::unique_ptr<serve::any_decoder>> all;
    for (std::size_t r = 0; r < replicas; ++r) all.push_back(std::make_unique<hash_replica<Rule>>(rule, roll.bits()));
    replica_queue queue(std::move(all), how);
    eventful out{std::vector<tokens>(jobs.size()), std::vector<std::size_t>(jobs.size())};
    std::size_t submitted = 0;
    std::size_t living = replicas;
    while (submitted < jobs.size() || queue.open() > 0) {
        std::size_t const r = roll.below(replicas);
        if (submitted < jobs.size() && roll.chance(0.3)) {
            CHECK(queue.lives(queue.submit(jobs[submitted].prompt, jobs[submitted].settings)));
            ++submitted;
        } else if (queue.lives(r) && living > 1 && roll.chance(0.05)) {
            std::vector<std::uint64_t> back;
            queue.lose(r, [&](std::uint64_t n, std::span<token_id const> from, std::size_t elsewhere) {
                back.push_back(n);
                CHECK(elsewhere != r);
                CHECK(from.size() == jobs[n].prompt.size() + out.texts[n].size());
                if (!out.texts[n].empty()) out.went_on.insert(n);
            });
            CHECK(std::is_sorted(back.begin(), back.end()));  // in the order of submission
            --living;
        } else if (queue.lives(r) && !queue.in_round(r)) {
            queue.step(r);
        } else if (queue.lives(r)) {
            queue.settle(r, [&](std::uint64_t n, request_event const& event) {
                out.texts[n].insert(out.texts[n].end(), event.tokens.begin(), event.tokens.end());
                out.ends[n] += event.finished != finish_reason::none ? 1 : 0;
            });
        }
    }
    return out;
}

template <class Rule>
void check_texts(Rule const& rule, bool greedy = false) {
    std::size_t went_on = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        dice roll(seed);
        auto const jobs = some_jobs(roll, greedy);
        for (auto const how : every_joining) {
            auto const out = through_deaths(rule, jobs, how, roll);
            went_on += out.went_on.size();
            for (std::size_t n = 0; n < jobs.size(); ++n) {
                INFO("seed " << seed << ", joining " << static_cast<int>(how) << ", request " << n);
                CHECK(out.texts[n] == undisturbed(rule, jobs[n]));
                CHECK(out.ends[n] == 1);
            }
        }
    }
    CHECK(went_on > 100);  // or nothing was tested
}

}  // namespace

TEST_CASE("Texts go on token for token when replicas die: keyed coupling") {
    check_texts(keyed_coupling{});
}
TEST_CASE("Texts go on token for token when replicas die: target match") {
    check_texts(target_match<>{});
    check_texts(target_match<categorical_draft>{});
}
TEST_CASE("Texts go on token for token when replicas die: greedy decoding") {
    check_texts(greedy_match{}, true);
}

TEST_CASE("A text that goes on with another seed, another position or other limits is another text") {
    std::size_t seeds = 0, positions = 0, limits = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        INFO("seed " << seed);
        dice roll(seed);
        for (job const& one : some_jobs(roll, false)) {
            tokens const text = undisturbed(keyed_coupling{}, one);
            if (text.size() < 2) continue;
            std::size_t const emitted = 1 + roll.below(text.size() - 1);
            auto const split = text.begin() + static_cast<std::ptrdiff_t>(emitted);
            tokens const rest(split, text.end());
            job right = one;
            right.prompt.insert(right.prompt.end(), text.begin(), split);
            right.settings.max_new_tokens -= emitted;
            right.settings.min_new_tokens -= std::min(right.settings.min_new_tokens, emitted);
            CHECK(undisturbed(keyed_coupling{}, right, 2) == rest);

            job wrong = right;
            wrong.settings.seed = *right.settings.seed + 1;
            seeds += undisturbed(keyed_coupling{}, wrong) != rest ? 1u : 0u;
            // Rows of the hash language know the last two tokens and the length modulo 15: these are the same rows.
            wrong = right;
            if (wrong.prompt.size() > 16) {
                wrong.prompt.erase(wrong.prompt.begin(), wrong.prompt.begin() + 15);
                positions += undisturbed(keyed_coupling{}, wrong) != rest ? 1u : 0u;
            }
            wrong = right;
            wrong.settings.min_new_tokens = std::min(one.settings.min_new_tokens, wrong.settings.max_new_tokens);
            limits += undisturbed(keyed_coupling{}, wrong) != rest ? 1u : 0u;
        }
    }
    CHECK(seeds > 100);
    CHECK(positions > 100);
    CHECK(limits > 10);
}

TEST_CASE("Under rules that sample a text that goes on elsewhere keeps the target's law: exact") {
    constexpr std::size_t small = 3, length = 3;
    support::hash_language const language{.sharpness = 1.5};
    tokens const prompt{0};
    auto const law_of = [&](auto const& rule, bool loses_a_round) {
        std::map<tokens, double> law;
        enumerator walk{enumerator::noise::keyed};
        walk.for_each_path([&] {
            auto const replica = [&](std::uint64_t own, std::size_t block, auto schedule) {
                return decoder(support::hash_model<double>(small, language),
                               autoregressive{support::hash_model<double>(small, {.own = own, .disagreement = 0.5}),
                                              top1_confidence{},
                                              {.block_size = block, .vocabulary = small}},
                               std::move(schedule), rule, {.max_requests = 1, .seed = 1}, no_logits_hook{},
                               walk.handle());
            };
            auto first = replica(2, 2, greedy_schedule{analytic_capacity{100.0, 6.0}});
            auto const id = first.submit(prompt, {.seed = 5, .max_new_tokens = length});
            first.step();
            tokens text(first.generated(id).begin(), first.generated(id).end());
            // The draws of a lost round are drawn again elsewhere, under the same keys.
            if (loses_a_round) first.step();
            if (text.size() < length) {
                auto second = replica(7, 1, fixed_schedule{});
                tokens all = prompt;
                all.insert(all.end(), text.begin(), text.end());
                auto const again = second.submit(all, {.seed = 5, .max_new_tokens = length - text.size()});
                while (second.step()) {
                }
                text.insert(text.end(), second.generated(again).begin(), second.generated(again).end());
            }
            law[text] += walk.weight();
        });
        return law;
    };
    std::map<tokens, double> expected;
    for (token_id code = 0; code < 27; ++code) {
        tokens all = prompt;
        double p = 1;
        for (token_id const x : {code / 9, code / 3 % 3, code % 3}) {
            std::array<double, small> logits{};
            language(std::span<token_id const>(all), std::span<double>(logits));
            double sum = 0;
            for (double const logit : logits) sum += std::exp(logit);
            p *= std::exp(logits[static_cast<std::size_t>(x)]) / sum;
            all.push_back(x);
        }
        expected[tokens(all.begin() + 1, all.end())] = p;
    }
    auto const check = [&](auto const& rule) {
        for (bool const loses_a_round : {false, true}) {
            auto const law = law_of(rule, loses_a_round);
            for (auto const& [text, p] : expected) {
                INFO("text " << text[0] << text[1] << text[2] << ", loses a round: " << loses_a_round);
                REQUIRE(law.contains(text));
                CHECK(std::abs(law.at(text) - p) < 1e-12);
            }
        }
    };
    check(token_rejection<>{});
    check(block_verification<>{});
}

TEST_CASE("Requests join the next replica, that with the least to do or the first of such, or the better of two") {
    auto const joined = [](joining how) {
        std::vector<std::unique_ptr<serve::any_decoder>> all;
        for (std::uint64_t r = 0; r < 3; ++r)
            all.push_back(std::make_unique<hash_replica<greedy_match>>(greedy_match{}, r));
        replica_queue queue(std::move(all), how);
        std::vector<std::size_t> at;
        token_id const prompt[] = {0};
        for (std::size_t const most : {9u, 2u, 2u, 2u, 2u}) {
            at.push_back(queue.submit(prompt, {.temperature = 0.0, .seed = 1, .max_new_tokens = most}));
        }
        queue.lose(1, [&](std::uint64_t, std::span<token_id const>, std::size_t r) { at.push_back(r); });
        return at;
    };
    using found = std::vector<std::size_t>;
    CHECK(joined(joining::round_robin) == found{0, 1, 2, 0, 1, 2, 0});
    CHECK(joined(joining::fewest_requests) == found{0, 1, 2, 0, 1, 2, 0});
    CHECK(joined(joining::fewest_tokens) == found{0, 1, 2, 1, 2, 2, 2});
    // Request n looks at replicas mixed(n) and mixed(n, 1) modulo 3.
    found expected;
    std::array<std::size_t, 3> loads{};
    for (std::uint64_t n = 0; n < 5; ++n) {
        std::size_t const one = serve::mixed(n) % 3;
        std::size_t const other = serve::mixed(n, 1) % 3;
        expected.push_back(loads[other] < loads[one] ? other : one);
        ++loads[expected.back()];
    }
    auto const of_two = joined(joining::fewer_of_two);
    CHECK(std::equal(expected.begin(), expected.end(), of_two.begin()));
    CHECK(std::count(of_two.begin() + 5, of_two.end(), std::size_t{1}) == 0);
}

TEST_CASE("What could not go on elsewhere is refused, and that no replica lives is said") {
    std::vector<std::unique_ptr<serve::any_decoder>> one;
    one.push_back(std::make_unique<hash_replica<keyed_coupling>>(keyed_coupling{}, 1));
    replica_queue queue(std::move(one), joining::fewest_requests);
    token_id const prompt[] = {0};
    CHECK(error_text([&] { queue.submit(prompt, {}); }) ==
          "replica_queue: request 0 has no seed, expected one: it would go on with another one");
    auto const ends = [](request_view const&, std::span<token_id const>) noexcept { return false; };
    CHECK(says(error_text([&] { queue.submit(prompt, {.seed = 1, .text_end = ends}); }),
               {"request 0 has a text_end or a constraint", "expected none"}));
    queue.submit(prompt, {.seed = 1});
    CHECK(error_text([&] { queue.lose(0, [](auto&&...) {}); }) ==
          "replica_queue: request 0 finds 0 of 1 replicas alive, expected one");
}

// ---- simulated -------------------------------------------------------------------------------------------------

namespace {

serve::domain_settings chat() {
    serve::domain_settings d;
    d.centre = serve::centre_of(std::vector{0.735, 0.738, 0.741, 0.745, 0.758, 0.766, 0.760}, d.request_sd, d.token_sd);
    return d;
}

}  // namespace

TEST_CASE("One replica is the engine that is simulated without a queue") {
    serve::drawn_texts const texts({chat()}, {}, 7, 1);
    serve::scenario const where{texts, serve::made_up_world(), serve::made_up_world()};
    serve::open_workload const load{serve::poisson(40, 200, 16, 30, 9)};
    for (char const* const name : {"none", "fixed:7", "planned"}) {
        auto const how = serve::make_policy(name);
        auto const alone = serve::run(how, where, load, serve::run_settings{.places = 8});
        auto const replica = serve::run_replicated(how, where, load, {.places = 8, .warm_up = 0, .cool_down = 0});
        REQUIRE(replica.served.size() == alone.served.size());
        for (std::size_t i = 0; i < alone.served.size(); ++i) {
            CHECK(replica.served[i].waited == alone.served[i].waited);
            CHECK(replica.served[i].first_token == alone.served[i].first_token);
            CHECK(replica.served[i].generating == alone.served[i].generating);
            CHECK(replica.served[i].tokens == alone.served[i].tokens);
        }
    }
}

TEST_CASE("A death costs the round it falls into, and nothing that was emitted before") {
    serve::drawn_texts const texts({chat()}, {}, 7, 1);
    serve::scenario const where{texts, serve::made_up_world(), serve::made_up_world()};
    double const step = serve::made_up_world().step_seconds({.requests = 1, .batch_tokens = 1});
    // Ten tokens, one a step; the replica dies in the middle of the fourth step, and the other one was idle.
    serve::open_workload const load{{{0.0, 5, 10}, {1.0, 5, 1}}};
    auto const out = serve::run_replicated(serve::make_policy("none"), where, load,
                                           {.replicas = 2, .deaths = {{3.5 * step, 0}}, .warm_up = 0, .cool_down = 0});
    CHECK(std::abs(out.ends[0] - 10.5 * step) < 1e-12);
    CHECK(out.returned == std::vector<std::uint64_t>{0});
    CHECK(out.read_again == 5 + 3);
    CHECK(out.rounds_lost == 1);
    // Nobody measures a death that meets an idle replica.
    auto const idle = serve::run_replicated(serve::make_policy("none"), where, load,
                                            {.replicas = 2, .deaths = {{3.5 * step, 1}}, .warm_up = 0, .cool_down = 0});
    CHECK(std::abs(idle.ends[0] - 10 * step) < 1e-12);
    CHECK(idle.returned.empty());
}

TEST_CASE("Replicas that go in step wait for the slowest") {
    serve::drawn_texts const texts({chat()}, {}, 7, 1);
    serve::scenario const where{texts, serve::made_up_world(), serve::made_up_world()};
    auto const seconds = [&](std::size_t requests) {
        return serve::made_up_world().step_seconds({.requests = requests, .batch_tokens = requests});
    };
    // Three requests join two replicas: two and one.
    serve::open_workload const load{{{0.0, 5, 4}, {0.0, 5, 4}, {0.0, 5, 4}}};
    serve::replicated_settings settings{.replicas = 2, .warm_up = 0, .cool_down = 0};
    auto const alone = serve::run_replicated(serve::make_policy("none"), where, load, settings);
    CHECK(std::abs(alone.ends[0] - 4 * seconds(2)) < 1e-12);
    CHECK(std::abs(alone.ends[1] - 4 * seconds(1)) < 1e-12);
    CHECK(alone.ends[2] == alone.ends[0]);
    settings.in_step = 2;
    auto const together = serve::run_replicated(serve::make_policy("none"), where, load, settings);
    CHECK(together.ends == std::vector(3, alone.ends[0]));
}

TEST_CASE("Replicas in step that agree fill the largest of their batches") {
    serve::drawn_texts const texts({chat()}, {}, 7, 1);
    serve::scenario const where{texts, serve::made_up_world(), serve::made_up_world()};
    serve::open_workload const load{serve::poisson(120, 400, 16, 30, 9)};
    serve::replicated_settings const settings{
        .replicas = 4, .places = 16, .how = joining::round_robin, .in_step = 4, .warm_up = 0, .cool_down = 0};
    auto const own = serve::run_replicated(serve::make_policy("planned"), where, load, settings);
    auto const agreed = serve::run_replicated(serve::make_policy("planned+agreed"), where, load, settings);
    CHECK(agreed.served.size() == 400);
    CHECK(agreed.sums.budget() > own.sums.budget());
    CHECK(agreed.sums.tau() > own.sums.tau());
    // Threads take no part in what comes out.
    auto const again = serve::run_replicated(serve::make_policy("planned+agreed"), where, load, settings);
    CHECK(again.ends == agreed.ends);
    // Alone there is nobody to agree with.
    serve::replicated_settings const apart{.replicas = 4, .places = 16, .warm_up = 0, .cool_down = 0};
    CHECK(serve::run_replicated(serve::make_policy("planned+agreed"), where, load, apart).ends ==
          serve::run_replicated(serve::make_policy("planned"), where, load, apart).ends);

    CHECK(says(error_text([&] { static_cast<void>(serve::make_policy("planned+agreed").make(where, 4)); }),
               "there are no replicas to agree with"));
    CHECK(says(error_text([&] {
                   static_cast<void>(serve::run_replicated(serve::make_policy("planned+agreed"), where, load,
                                                           {.replicas = 2, .deaths = {{0.1, 0}}}));
               }),
               "1 of those that agree die, expected none"));
}

TEST_CASE("Every request is finished once, whoever dies") {
    serve::drawn_texts const texts({chat()}, {}, 7, 1);
    serve::scenario const where{texts, serve::made_up_world(), serve::made_up_world()};
    serve::open_workload const load{serve::poisson(120, 600, 16, 30, 9)};
    std::uint64_t all = 0;
    for (auto const& a : load.arrivals) all += a.tokens;
    for (auto const how : every_joining) {
        for (std::size_t const in_step : {1u, 4u}) {
            for (std::size_t const deaths : {0u, 5u}) {
                INFO("joining " << static_cast<int>(how) << ", in step " << in_step << ", deaths " << deaths);
                serve::replicated_settings const settings{
                    .replicas = 8,
                    .places = 4,
                    .how = how,
                    .in_step = in_step,
                    .deaths = serve::spread_deaths(deaths, 8, load.arrivals.back().seconds, 3),
                    .warm_up = 0,
                    .cool_down = 0};
                auto const out = serve::run_replicated(serve::make_policy("planned"), where, load, settings);
                CHECK(out.served.size() == 600);
                std::uint64_t emitted = 0;
                for (serve::served_request const& one : out.served) emitted += one.tokens;
                CHECK(emitted == all);
                CHECK(out.returned.empty() == (deaths == 0));
                CHECK(out.busiest >= 1);
                auto const again = serve::run_replicated(serve::make_policy("planned"), where, load, settings);
                CHECK(again.ends == out.ends);
            }
        }
    }
    CHECK(error_text([] { static_cast<void>(serve::spread_deaths(3, 3, 1.0, 1)); }) ==
          "deaths: 3 of 3 replicas die, expected fewer than there are");
    CHECK(error_text([&] {
              static_cast<void>(
                  serve::run_replicated(serve::make_policy("none"), where, load, {.replicas = 8, .in_step = 3}));
          }) == "replicas: 3 of 8 go in step, expected a divisor that is not 0");
}
