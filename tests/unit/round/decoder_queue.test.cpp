// SPDX-License-Identifier: MIT
//
// Continuous batching: who waits, who has a place and who is gone, at any traffic; and a request's tokens, which do not
// depend on it.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <stdexcept>
#include <vector>

#include <sureleap/cost/capacity.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/hash_models.hpp"

using namespace sureleap;
using support::error_text;
using support::says;

namespace {

using tokens = std::vector<token_id>;

constexpr std::size_t vocabulary = 10;
constexpr std::size_t block = 4;
support::hash_language const target_language{};
support::hash_language const draft_language{.own = 5, .disagreement = 0.5};
analytic_capacity const capacity{100.0, 6.0};
token_id const stops[] = {7};

auto target_of() {
    return support::hash_model<float>(vocabulary, target_language);
}
auto drafter_of() {
    return autoregressive{support::hash_model<float>(vocabulary, draft_language),
                          top1_confidence{},
                          {.block_size = block, .vocabulary = vocabulary}};
}

struct job {
    tokens prompt;
    request_settings settings;
};

job random_job(support::dice& roll) {
    job j;
    for (std::size_t i = 0; i < 1 + roll.below(5); ++i)
        j.prompt.push_back(static_cast<token_id>(roll.below(vocabulary)));
    j.settings = {.temperature = roll.chance(0.2) ? 0.0 : roll.between(0.3, 1.5),
                  .top_p = roll.chance(0.3) ? 0.9 : 1.0,
                  .seed = roll.bits(),
                  .max_new_tokens = 1 + roll.below(30),
                  .max_draft_tokens = roll.chance(0.3) ? roll.below(block) : block,
                  .priority = roll.chance(0.5) ? 1.0 : roll.between(0.1, 9.0)};
    if (roll.chance(0.5)) j.settings.stop_tokens = stops;
    return j;
}

template <class Rule>
tokens alone(job const& j, Rule rule) {
    auto target = target_of();
    decoder dec{target, drafter_of(), fixed_schedule{2}, rule};
    auto const id = dec.submit(j.prompt, j.settings);
    while (dec.step()) {
    }
    auto const text = dec.generated(id);
    return {text.begin(), text.end()};
}

void check_counts(request_counts const& c) {
    REQUIRE(c.submitted == c.waiting + c.placed + c.finished + c.cancelled);
}

/// Any traffic; every stream is a prefix of what the request says alone, and all of it once it has finished.
template <class Schedule, class Rule>
void random_traffic(std::uint64_t seed, Schedule schedule, Rule rule) {
    support::dice roll(seed);
    INFO("seed " << seed);
    auto target = target_of();
    std::size_t const most_tokens = 120;
    decoder engine{target, drafter_of(), schedule, rule,
                   decoder_options{.max_requests = 4, .max_waiting = 6, .max_tokens = most_tokens}};
    std::map<request_id, job> jobs;
    std::map<request_id, tokens> said;
    std::size_t turned_away = 0, finished = 0, cancelled = 0;
    auto const someone = [&] {
        auto at = said.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(roll.below(said.size())));
        return at->first;
    };
    auto const finish = [&](request_id id) {
        REQUIRE(said.at(id) == alone(jobs.at(id), rule));
        said.erase(id);
        ++finished;
    };
    for (int turn = 0; turn < 1200; ++turn) {
        bool const draining = turn > 1000;
        if (!draining && roll.chance(0.6)) {
            job const j = random_job(roll);
            if (engine.full()) {
                ++turned_away;
            } else {
                auto const id = engine.submit(j.prompt, j.settings);
                jobs[id] = j;
                said[id];
            }
        }
        if (!said.empty() && roll.chance(0.1)) engine.pause(someone());
        for (auto const& [id, text] : said) {
            if (engine.state(id) == request_state::suspended && (draining || roll.chance(0.3))) engine.resume(id);
        }
        if (!draining && !said.empty() && roll.chance(0.03)) {
            auto const id = someone();
            engine.cancel(id);
            REQUIRE_FALSE(engine.knows(id));
            auto const& cut = said.at(id);
            auto const whole = alone(jobs.at(id), rule);
            REQUIRE(std::equal(cut.begin(), cut.end(), whole.begin(),
                               whole.begin() + static_cast<std::ptrdiff_t>(cut.size())));
            said.erase(id);
            ++cancelled;
        }
        check_counts(engine.counts());
        if (!engine.step()) continue;
        std::size_t placed_tokens = 0;
        for (request_event const& e : engine.events()) {
            REQUIRE(e.outcome == status::ok);
            auto& text = said.at(e.request);
            text.insert(text.end(), e.tokens.begin(), e.tokens.end());
            auto const kept = engine.generated(e.request);
            REQUIRE(text == tokens(kept.begin(), kept.end()));
            placed_tokens += jobs.at(e.request).prompt.size() + jobs.at(e.request).settings.max_new_tokens;
        }
        REQUIRE(placed_tokens <= most_tokens);
        for (std::size_t r = 0; r < engine.round().size(); ++r) {
            REQUIRE(engine.round().verdicts[r].drafted <= engine.round().requests[r].settings->max_draft_tokens);
        }
        for (request_event const& e : engine.events()) {
            if (e.finished != finish_reason::none) finish(e.request);
        }
    }
    CHECK(said.empty());  // none is lost
    CHECK(turned_away > 0);
    CHECK(cancelled > 0);
    CHECK(engine.counts().finished == finished);
    CHECK(engine.counts().cancelled == cancelled);
    CHECK(engine.counts().submitted == finished + cancelled);
}

}  // namespace

TEST_CASE("decoder: at any traffic nobody is lost, and a stream is what it is alone") {
    random_traffic(1, greedy_schedule{capacity}, keyed_coupling{});
    random_traffic(2, top_k_schedule{capacity}, target_match<>{});
    random_traffic(3, fixed_schedule{3}, keyed_coupling{});
}

TEST_CASE("decoder: places go by priority, then by order; nobody overtakes the first") {
    auto target = target_of();
    decoder engine{target, drafter_of(), fixed_schedule{}, token_rejection<>{},
                   decoder_options{.max_requests = 2, .max_tokens = 60, .seed = 1}};
    tokens const prompt{1, 2};
    auto const submit = [&](double priority, std::size_t most) {
        return engine.submit(prompt, {.max_new_tokens = most, .priority = priority});
    };
    auto const a = submit(1.0, 40);
    auto const b = submit(1.0, 30);  // does not fit beside a
    auto const c = submit(1.0, 5);   // would
    auto const d = submit(2.0, 10);
    CHECK(engine.state(d) == request_state::running);
    CHECK(engine.state(b) == request_state::waiting);
    REQUIRE(engine.step());
    CHECK(engine.state(d) == request_state::running);
    CHECK(engine.state(a) == request_state::running);
    CHECK(engine.state(b) == request_state::waiting);
    CHECK(engine.state(c) == request_state::waiting);
    engine.cancel(d);
    REQUIRE(engine.step());
    CHECK(engine.state(b) == request_state::waiting);
    CHECK(engine.state(c) == request_state::waiting);  // behind b
    engine.pause(b);
    REQUIRE(engine.step());
    CHECK(engine.state(c) != request_state::waiting);
    engine.resume(b);
    CHECK(engine.state(b) == request_state::waiting);
    std::vector<request_id> order;
    while (engine.step()) {
        for (auto const& e : engine.events()) {
            if (e.finished != finish_reason::none) order.push_back(e.request);
        }
    }
    CHECK(order == std::vector<request_id>{c, a, b});
    CHECK(engine.counts().waiting == 0);
    CHECK(engine.generated(a).size() == 40);  // readable until its place is taken
}

TEST_CASE("decoder: a model that throws leaves everybody as they were") {
    struct failing {
        decltype(target_of()) inner = target_of();
        int left = 3;
        logits_rows<float> score(verify_batch const& batch) {
            if (left-- == 0) throw std::runtime_error("out of memory");
            return inner.score(batch);
        }
    } target;
    decoder engine{target, drafter_of(), top_k_schedule{capacity}, keyed_coupling{},
                   decoder_options{.max_requests = 2}};
    job const j{{1, 2, 3}, {.seed = 4, .max_new_tokens = 40}};
    auto const id = engine.submit(j.prompt, j.settings);
    for (int i = 0; i < 3; ++i) REQUIRE(engine.step());
    auto const before = engine.generated(id);
    tokens const kept(before.begin(), before.end());
    CHECK_THROWS_AS(engine.step(), std::runtime_error);
    CHECK(engine.events().empty());
    CHECK(engine.round().size() == 0);
    CHECK(engine.state(id) == request_state::running);
    auto const still = engine.generated(id);
    CHECK(kept == tokens(still.begin(), still.end()));
    tokens text = kept;
    while (engine.step()) {
        for (auto const& e : engine.events()) text.insert(text.end(), e.tokens.begin(), e.tokens.end());
    }
    CHECK(text == alone(j, keyed_coupling{}));
}

TEST_CASE("decoder: a failed round suspends, resume tries again with the same keys") {
    struct faulty {
        decltype(target_of()) inner = target_of();
        bool bad = false;
        std::vector<float> copy{};
        logits_rows<float> score(verify_batch const& batch) {
            auto rows = inner.score(batch);
            if (!bad) return rows;
            copy.assign(rows.values.data, rows.values.data + rows.values.rows * vocabulary);
            for (std::size_t v = 0; v < vocabulary; ++v) copy[v] = std::numeric_limits<float>::quiet_NaN();
            rows.values.data = copy.data();
            return rows;
        }
    } target;
    decoder engine{target, drafter_of(), fixed_schedule{}, token_rejection<>{}, decoder_options{.max_requests = 2}};
    job const j{{1, 2, 3}, {.seed = 4, .max_new_tokens = 20}};
    auto const first = engine.submit(j.prompt, j.settings);
    auto const second = engine.submit(j.prompt, j.settings);
    REQUIRE(engine.step());
    target.bad = true;
    REQUIRE(engine.step());
    CHECK(engine.events()[0].outcome == status::invalid_target);
    CHECK(engine.state(first) == request_state::suspended);
    CHECK(engine.state(second) == request_state::running);
    CHECK(engine.counts().placed == 2);
    target.bad = false;
    std::map<request_id, tokens> last;
    engine.resume(first);
    do {
        for (auto const id : {first, second}) {
            auto const text = engine.generated(id);
            last[id].assign(text.begin(), text.end());
        }
    } while (engine.step());
    CHECK(last.at(first) == last.at(second));  // the same seed and prompt, a failure apart
    CHECK(last.at(first).size() == 20);
}

TEST_CASE("decoder: what cannot be served is refused with its reason") {
    auto target = target_of();
    decoder engine{target, drafter_of(), fixed_schedule{}, token_rejection<>{},
                   decoder_options{.max_requests = 1, .max_waiting = 1, .max_tokens = 20}};
    tokens const prompt{1, 2};
    CHECK(says(error_text([&] { engine.submit(tokens{}); }), {"decoder", "prompt is empty"}));
    CHECK(says(error_text([&] { engine.submit(tokens{1, 99}); }), {"prompt token 1 is 99", "0 .. 9"}));
    CHECK(says(error_text([&] { engine.submit(prompt, {.max_new_tokens = 19}); }), {"21", "max_tokens = 20"}));
    CHECK(says(error_text([&] { engine.submit(prompt, {.max_new_tokens = 5, .priority = 0.0}); }),
               {"priority is 0", "positive"}));
    CHECK(says(error_text([&] {
                   engine.submit(prompt, {.max_new_tokens = 5, .priority = std::numeric_limits<double>::infinity()});
               }),
               {"priority is inf"}));
    CHECK(says(error_text([&] { engine.submit(prompt, {.max_new_tokens = 5, .tokens_per_second = -1.0}); }),
               {"tokens_per_second is -1"}));
    CHECK(says(error_text([&] { engine.cancel(1); }), {"no request with id 1"}));
    CHECK(says(error_text([&] { static_cast<void>(engine.generated(7)); }), {"no request with id 7"}));
    CHECK(engine.counts().submitted == 0);
    auto const first = engine.submit(prompt, {.seed = 1, .max_new_tokens = 18});
    CHECK_FALSE(engine.full());
    engine.submit(prompt, {.max_new_tokens = 5});
    auto const refused = [&] { return error_text([&] { engine.submit(prompt, {.max_new_tokens = 5}); }); };
    CHECK(engine.full());
    CHECK(says(refused(), {"1 requests wait for 0 free of 1 places", "max_waiting = 1", "full()"}));
    REQUIRE(engine.step());
    CHECK(engine.full());
    engine.cancel(first);
    CHECK_FALSE(engine.full());  // there is a place for the one that waits
    CHECK(says(error_text([&] { engine.pause(first); }), {"no request with id 1", "cancelled"}));
    CHECK(engine.round().size() == 0);  // it pointed into the request
}

TEST_CASE("decoder: finished requests are readable until their places are taken, the longest free first") {
    auto target = target_of();
    decoder engine{target,
                   drafter_of(),
                   fixed_schedule{},
                   keyed_coupling{},
                   {.max_requests = 3, .max_waiting = 0, .max_tokens = 40}};
    tokens const prompt{1, 2};
    auto const submit = [&](std::size_t most) { return engine.submit(prompt, {.seed = 9, .max_new_tokens = most}); };
    auto const finish = [&](request_id id) {
        while (engine.state(id) != request_state::finished) REQUIRE(engine.step());
    };
    auto const a = submit(1), b = submit(12), c = submit(15);
    CHECK(engine.full());  // no queue: three requests for three places
    finish(a);
    finish(b);
    finish(c);
    CHECK_FALSE(engine.step());
    for (auto const id : {a, b, c}) CHECK(engine.knows(id));
    tokens const said(engine.generated(c).begin(), engine.generated(c).end());
    CHECK(said.size() == 15);
    CHECK(std::equal(said.begin(), said.begin() + 12, engine.generated(b).begin(), engine.generated(b).end()));
    // Finished requests hold no tokens of max_tokens: the next one needs nearly all of them.
    auto const d = submit(38);
    CHECK_FALSE(engine.knows(a));
    CHECK(engine.round().size() == 0);  // it may have pointed into it
    finish(d);
    CHECK(engine.knows(b));
    engine.cancel(c);  // forgotten at the reader's wish, and no cancellation of a running request
    CHECK_FALSE(engine.knows(c));
    CHECK(engine.counts().cancelled == 0);
    auto const e = submit(2), f = submit(2);
    finish(f);
    CHECK(engine.knows(e));
    CHECK_FALSE(engine.knows(b));
    CHECK(engine.knows(d));
    CHECK(engine.counts().finished == 6);
    CHECK(engine.counts().placed == 0);
    CHECK_FALSE(engine.full());
    check_counts(engine.counts());
}
