// SPDX-License-Identifier: MIT
//
// The decoder: output that can be predicted token by token (greedy, keyed coupling) equals plain decoding; requests
// come, end and go.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/cost/capacity.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/drafter/lookup.hpp>
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/drafter/with_lookup.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/decoder_scene.hpp"
#include "support/error_text.hpp"
#include "support/hash_models.hpp"

using namespace sureleap;
using namespace decoder_scene;
using support::error_text;
using support::says;

// ---- output that is known in advance ---------------------------------------------------------------------------

TEST_CASE("decoder: greedy output equals plain greedy decoding under every rule, schedule and drafter") {
    head_weights const weights;
    for (job j : several_jobs(0.0)) {
        j.settings.max_new_tokens = 30;
        tokens const expected = plain_greedy(j);
        auto const same = [&](auto&& drafter, auto schedule, auto rule) {
            return run_alone(target_model_of(), drafter, schedule, rule, j) == expected;
        };
        CHECK(same(draft_model_of(), greedy_schedule{capacity}, token_rejection<>{}));
        CHECK(same(draft_model_of(), top_k_schedule{capacity}, block_verification<>{}));
        CHECK(same(draft_model_of(), fixed_schedule{}, greedy_match{}));
        CHECK(same(draft_model_of(), threshold_schedule{0.2}, target_match<>{}));
        CHECK(same(draft_model_of(), retrospective_schedule{capacity}, keyed_coupling{}));
        CHECK(same(weights.drafter(), planned_schedule{capacity}, token_rejection<argmax_draft>{}));
        CHECK(same(weights.drafter(), survival_threshold_schedule{0.1}, block_verification<argmax_draft>{}));
        CHECK(same(lookup{{.block_size = block, .target_vocabulary = vocabulary}}, fixed_schedule{},
                   token_rejection<>{}));
    }
}

TEST_CASE("decoder: pathwise rules give plain decoding with the same noise, for any schedule, drafter and batch") {
    head_weights const weights;
    auto const jobs = several_jobs(1.0);
    std::vector<tokens> raced, drawn;
    for (job const& j : jobs) {
        raced.push_back(plain_race(j));
        drawn.push_back(plain_categorical(j));
    }
    auto const streams = [&](auto&& drafter, auto schedule, auto rule, std::size_t places) {
        auto target = target_model_of();
        decoder dec{target, drafter, schedule, rule, {.max_requests = places}};
        return run(dec, jobs, places);
    };
    for (std::size_t const places : {std::size_t{1}, std::size_t{3}, std::size_t{7}}) {
        INFO(places << " places");
        CHECK(streams(draft_model_of(), greedy_schedule{capacity}, keyed_coupling{}, places) == raced);
        CHECK(streams(draft_model_of(), fixed_schedule{2}, keyed_coupling{}, places) == raced);
        CHECK(streams(weights.drafter(), retrospective_schedule{capacity}, keyed_coupling{}, places) == raced);
        CHECK(streams(weights.drafter(), top_k_schedule{capacity}, keyed_coupling{}, places) == raced);
        CHECK(streams(draft_model_of(), greedy_schedule{capacity}, target_match<>{}, places) == drawn);
        CHECK(streams(weights.drafter(), planned_schedule{capacity}, target_match<categorical_draft>{}, places) ==
              drawn);
        CHECK(streams(lookup{{.block_size = block, .target_vocabulary = vocabulary}}, fixed_schedule{},
                      target_match<>{}, places) == drawn);
    }
}

// ---- joining, ending, leaving ----------------------------------------------------------------------------------

TEST_CASE("decoder: requests come, end, are cancelled, and their places are used again") {
    auto target = target_model_of();
    decoder dec{target, draft_model_of(), fixed_schedule{}, keyed_coupling{}, {.max_requests = 2, .max_waiting = 0}};
    CHECK_FALSE(dec.step());
    CHECK(dec.events().empty());

    tokens const prompt{1, 2};
    auto const a = dec.submit(prompt, {.seed = 1, .max_new_tokens = 3});
    auto const b = dec.submit(prompt, {.seed = 2, .max_new_tokens = 200});
    CHECK(a != b);
    CHECK(says(error_text([&] { dec.submit(prompt); }),
               {"decoder", "0 requests wait for 0 free of 2 places", "max_waiting = 0", "max_requests"}));

    tokens text_a;
    bool finished = false;
    while (!finished) {
        REQUIRE(dec.step());
        for (request_event const& e : dec.events()) {
            if (e.request != a) continue;
            text_a.insert(text_a.end(), e.tokens.begin(), e.tokens.end());
            finished = e.finished == finish_reason::max_new_tokens;
        }
    }
    CHECK(text_a.size() == 3);
    // A finished request takes no further part, and stays readable until its place is taken.
    REQUIRE(dec.step());
    REQUIRE(dec.events().size() == 1);
    CHECK(dec.events()[0].request == b);
    auto const kept = dec.generated(a);
    CHECK(tokens(kept.begin(), kept.end()) == text_a);

    auto const c = dec.submit(prompt, {.seed = 1, .max_new_tokens = 3});
    CHECK(c != a);
    CHECK(c != b);
    CHECK(says(error_text([&] { static_cast<void>(dec.generated(a)); }), {"no request with id 1"}));
    CHECK(dec.generated(c).empty());

    dec.cancel(b);
    CHECK(says(error_text([&] { static_cast<void>(dec.generated(b)); }), {"no request with id 2"}));
    CHECK(says(error_text([&] { dec.cancel(b); }), {"no request with id 2"}));
    while (dec.step()) {
        for (request_event const& e : dec.events()) CHECK(e.request == c);
    }
    auto const again = dec.generated(c);
    CHECK(tokens(again.begin(), again.end()) == text_a);  // same seed and prompt
    CHECK_FALSE(dec.step());
    CHECK(dec.events().empty());
}

TEST_CASE("decoder: exactly max_new_tokens come out, whatever the block size") {
    for (std::size_t most = 1; most <= 12; ++most) {
        auto target = target_model_of();
        decoder dec{target, draft_model_of(), fixed_schedule{}, token_rejection<>{}};
        auto const id = dec.submit(tokens{3}, {.temperature = 0.3, .seed = most, .max_new_tokens = most});
        finish_reason last = finish_reason::none;
        while (dec.step()) {
            REQUIRE(last == finish_reason::none);
            last = dec.events()[0].finished;
        }
        CHECK(dec.generated(id).size() == most);
        CHECK(last == finish_reason::max_new_tokens);
    }
}

TEST_CASE("decoder: a stop token ends the request, also inside the accepted prefix") {
    // A certain cycle 0 1 2 3 ..: everything drafted is accepted.
    auto const cycle = [](auto context, auto logits) {
        for (auto& l : logits) l = -50.0f;
        logits[(static_cast<std::size_t>(context.back()) + 1) % vocabulary] = 50.0f;
    };
    for (token_id stop = 1; stop <= 6; ++stop) {
        std::vector<token_id> stops{stop, 11};
        auto target = model_of<float>(vocabulary, cycle);
        // A parallel draft runs past the stop token; an autoregressive one would end its block there.
        std::vector<float> drafted(block * vocabulary, -50.0f);
        parallel drafter{[&](std::span<request_view const> requests) {
                             std::fill(drafted.begin(), drafted.end(), -50.0f);
                             for (std::size_t k = 0; k < block; ++k) {
                                 auto const next = (static_cast<std::size_t>(requests[0].anchor) + 1 + k) % vocabulary;
                                 drafted[k * vocabulary + next] = 50.0f;
                             }
                             return block_forward<float>{{}, {{drafted.data(), block, vocabulary}, {}}};
                         },
                         {.block_size = block, .vocabulary = vocabulary}};
        decoder dec{target, drafter, fixed_schedule{}, block_verification<>{}};
        request_settings settings{.seed = 1, .max_new_tokens = 50, .log_probabilities = true};
        settings.stop_tokens = stops;
        auto const id = dec.submit(tokens{0}, settings);
        stops.assign(2, 0);  // the decoder has its own copy
        tokens text;
        request_event last;
        std::size_t log_probabilities = 0;
        while (dec.step()) {
            last = dec.events()[0];
            text.insert(text.end(), last.tokens.begin(), last.tokens.end());
            log_probabilities += last.log_probabilities.size();
        }
        tokens expected;
        for (token_id x = 1; x <= stop; ++x) expected.push_back(x);
        INFO("stop token " << stop);
        CHECK(text == expected);
        CHECK(log_probabilities == text.size());
        CHECK(last.finished == finish_reason::stop_token);
        CHECK(dec.generated(id).size() == static_cast<std::size_t>(stop));
        // Every token is a draft that was accepted, or the bonus behind a whole block.
        std::size_t const bonuses = static_cast<std::size_t>(stop) / (block + 1);
        CHECK(dec.report().accepted() == static_cast<std::size_t>(stop) - bonuses);
        CHECK(dec.report().emitted() == static_cast<std::size_t>(stop));
    }
}

TEST_CASE("decoder: an autoregressive draft ends its block at a stop token") {
    auto const cycle = [](auto context, auto logits) {
        for (auto& l : logits) l = -50.0f;
        logits[(static_cast<std::size_t>(context.back()) + 1) % vocabulary] = 50.0f;
    };
    for (token_id stop = 1; stop <= static_cast<token_id>(block); ++stop) {
        std::vector<token_id> const stops{stop};
        auto target = model_of<float>(vocabulary, cycle);
        autoregressive drafter{model_of<float>(vocabulary, cycle), {.block_size = block, .vocabulary = vocabulary}};
        decoder dec{target, drafter, fixed_schedule{}, block_verification<>{}};
        dec.submit(tokens{0}, {.seed = 1, .max_new_tokens = 50, .stop_tokens = stops});
        while (dec.step()) {
        }
        INFO("stop token " << stop);
        CHECK(dec.report().drafted() == static_cast<std::size_t>(stop));
        CHECK(dec.report().accepted() == static_cast<std::size_t>(stop));
        CHECK(dec.report().emitted() == static_cast<std::size_t>(stop));
        CHECK(dec.report().rounds() == 1);
    }
}

TEST_CASE("decoder: max_draft_tokens caps blocks, and 0 is plain decoding") {
    for (std::size_t const cap : {0u, 1u, 2u, 3u, 100u}) {
        std::size_t longest = 0, calls = 0;
        auto inner = target_model_of();
        auto target = [&](verify_batch const& batch) {
            longest = std::max(longest, batch.length(0));
            ++calls;
            return inner.score(batch);
        };
        decoder dec{target, draft_model_of(), fixed_schedule{}, keyed_coupling{}};
        request_settings settings{.seed = 4, .max_new_tokens = 40};
        settings.max_draft_tokens = cap;
        job const j{{5}, settings};
        INFO("cap " << cap);
        CHECK(run(dec, {j}, 1)[0] == plain_race(j));
        CHECK(longest == std::min(cap, block));
        CHECK(dec.report().target_calls() == calls);
        if (cap == 0) {
            CHECK(calls == 40);
            CHECK(dec.report().drafted() == 0);
        } else {
            CHECK(calls < 40);
        }
    }
}

namespace {

/// Adds to a few logits.
struct biased {
    template <class Real>
    void operator()(hook_context const&, std::span<Real> row) const noexcept {
        row[1] += Real(2);
        row[3] -= Real(1);
    }
};

/// The likeliest tokens of logits, by sorting: at a temperature, of the `keep` largest.
std::vector<token_log_probability> by_sorting(std::vector<double> const& logits, double temperature, std::size_t keep,
                                              std::size_t count) {
    std::vector<token_id> order(logits.size());
    for (std::size_t v = 0; v < order.size(); ++v) order[v] = static_cast<token_id>(v);
    auto const of = [&](token_id v) { return logits[static_cast<std::size_t>(v)]; };
    std::stable_sort(order.begin(), order.end(), [&](token_id a, token_id b) { return of(a) > of(b); });
    order.resize(keep);
    double sum = 0.0;
    for (token_id const v : order) sum += std::exp((of(v) - of(order[0])) / temperature);
    std::vector<token_log_probability> best(count);
    for (std::size_t i = 0; i < std::min(count, keep); ++i) {
        best[i] = {order[i], (of(order[i]) - of(order[0])) / temperature - std::log(sum)};
    }
    return best;
}

}  // namespace

TEST_CASE("decoder: the likeliest tokens beside each, of p and of the row as it came") {
    std::vector<double> row(vocabulary);
    constexpr std::size_t count = 5;
    for (bool const raw : {false, true}) {
        for (request_settings settings : {request_settings{}, request_settings{.temperature = 0.5, .top_k = 3},
                                          request_settings{.temperature = 0.0}}) {
            settings.seed = 4;
            settings.max_new_tokens = 60;
            settings.log_probabilities = true;
            settings.raw_log_probabilities = raw;
            settings.top_log_probabilities = count;
            INFO("raw " << raw << ", temperature " << settings.temperature);
            auto target = hash_model<double>(vocabulary, target_language);
            autoregressive drafter{hash_model<double>(vocabulary, draft_language),
                                   {.block_size = block, .vocabulary = vocabulary}};
            decoder dec{target,  drafter, fixed_schedule{}, token_rejection<>{}, {.top_log_probabilities = count + 2},
                        biased{}};
            tokens text{3};
            dec.submit(text, settings);
            while (dec.step()) {
                auto const event = dec.events()[0];
                REQUIRE(event.top_log_probabilities.size() == event.tokens.size() * count);
                for (std::size_t i = 0; i < event.tokens.size(); ++i) {
                    target_language(std::span<token_id const>(text), std::span<double>(row));
                    if (!raw) biased{}(hook_context{dec.round().requests[0], {}}, std::span<double>(row));
                    bool const whole = raw || settings.temperature == 0.0;
                    std::size_t const keep = !whole && settings.top_k > 0 ? 3 : vocabulary;
                    double const temperature = whole ? 1.0 : settings.temperature;
                    auto const all = by_sorting(row, temperature, keep, vocabulary);
                    for (std::size_t k = 0; k < count; ++k) {
                        token_log_probability const& found = event.top_log_probabilities[i * count + k];
                        REQUIRE(found.token == all[k].token);
                        if (k < keep) REQUIRE(std::abs(found.log_probability - all[k].log_probability) < 1e-12);
                    }
                    auto const own = std::find_if(all.begin(), all.end(), [&](token_log_probability const& x) {
                        return x.token == event.tokens[i];
                    });
                    REQUIRE(own != all.end());
                    REQUIRE(std::abs(event.log_probabilities[i] - own->log_probability) < 1e-12);
                    text.push_back(event.tokens[i]);
                }
            }
        }
    }
    auto target = target_model_of();
    decoder dec{target, draft_model_of(), fixed_schedule{}, token_rejection<>{}, {.top_log_probabilities = 2}};
    CHECK(support::says(
        support::error_text([&] { dec.submit(tokens{1}, {.log_probabilities = true, .top_log_probabilities = 3}); }),
        {"asks for 3 top_log_probabilities", "decoder_options::top_log_probabilities = 2"}));
    CHECK(support::says(support::error_text([&] { dec.submit(tokens{1}, {.top_log_probabilities = 1}); }),
                        "expected log_probabilities"));
}

TEST_CASE("decoder: log-probabilities are those of the transformed target") {
    std::vector<double> logits(vocabulary);
    auto const compare = [&](auto zero, double tolerance) {
        using real = decltype(zero);
        for (request_settings settings :
             {request_settings{.temperature = 1.0}, request_settings{.temperature = 0.6, .top_k = 4},
              request_settings{.temperature = 1.3, .top_p = 0.7}, request_settings{.temperature = 0.0},
              request_settings{.min_p = 0.2}}) {
            settings.seed = 8;
            settings.max_new_tokens = 40;
            settings.log_probabilities = true;
            auto target = hash_model<real>(vocabulary, target_language);
            autoregressive drafter{hash_model<real>(vocabulary, draft_language),
                                   {.block_size = block, .vocabulary = vocabulary}};
            decoder dec{target, drafter, fixed_schedule{}, block_verification<>{}};
            tokens text{7, 2};
            dec.submit(text, settings);
            while (dec.step()) {
                auto const event = dec.events()[0];
                REQUIRE(event.log_probabilities.size() == event.tokens.size());
                for (std::size_t i = 0; i < event.tokens.size(); ++i) {
                    target_language(std::span<token_id const>(text), std::span<double>(logits));
                    bool const greedy = settings.temperature == 0.0;  // then they are those of temperature 1
                    distribution<double> const whole{
                        {logits, {}}, {.temperature = greedy ? 1.0 : settings.temperature}, {}};
                    if (greedy) REQUIRE(event.tokens[i] == whole.mode());
                    // The tokens that are left, by sorting; renormalised.
                    std::vector<token_id> order(vocabulary);
                    for (std::size_t v = 0; v < vocabulary; ++v) order[v] = static_cast<token_id>(v);
                    std::stable_sort(order.begin(), order.end(), [&](token_id a, token_id b) {
                        return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
                    });
                    std::size_t keep = settings.top_k > 0 ? static_cast<std::size_t>(settings.top_k) : vocabulary;
                    if (settings.top_p < 1.0) {
                        double mass = 0.0;
                        for (keep = 0; mass < settings.top_p; ++keep) mass += whole.probability(order[keep]);
                    }
                    if (settings.min_p > 0.0) {
                        keep = 0;
                        while (keep < vocabulary &&
                               whole.probability(order[keep]) >= settings.min_p * whole.probability(order[0])) {
                            ++keep;
                        }
                    }
                    double mass = 0.0;
                    for (std::size_t k = 0; k < keep; ++k) mass += whole.probability(order[k]);
                    double const expected = std::log(whole.probability(event.tokens[i]) / mass);
                    REQUIRE(std::find(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(keep),
                                      event.tokens[i]) != order.begin() + static_cast<std::ptrdiff_t>(keep));
                    REQUIRE(std::abs(event.log_probabilities[i] - expected) < tolerance);
                    text.push_back(event.tokens[i]);
                }
            }
        }
    };
    compare(0.0, 1e-12);
    compare(0.0f, 1e-5);
    // Not asked for, not given.
    auto target = target_model_of();
    decoder dec{target, draft_model_of(), fixed_schedule{}, token_rejection<>{}};
    dec.submit(tokens{1}, {.seed = 1});
    REQUIRE(dec.step());
    CHECK(dec.events()[0].log_probabilities.empty());
}

TEST_CASE("decoder: a request is told to draft less, also after its draft model failed") {
    constexpr std::size_t V = 5;
    auto const row = [](auto context, auto logits) {
        for (std::size_t v = 0; v < V; ++v)
            logits[v] = std::sin(static_cast<float>(3 * context.back() + 2) + static_cast<float>(v));
    };
    auto target = model_of<float>(V, row);
    bool out_of_room = false;
    std::vector<float> base;
    auto const backbone = [&](std::span<request_view const> requests) -> block_forward<float> {
        if (out_of_room) throw std::runtime_error("out of room");
        base.assign(requests.size() * 3 * V, 0.5f);
        return {{}, {{base.data(), requests.size() * 3, V}, {}, {}}};
    };
    parallel drafter{backbone, drafter_options{.block_size = 3, .vocabulary = V}};
    auto const texts = [&](auto const& meddle) {
        decoder dec{target, drafter, fixed_schedule{}, keyed_coupling{}, {.max_requests = 2}};
        std::array const ids{dec.submit(tokens{1}, {.seed = 5, .max_new_tokens = 20}),
                             dec.submit(tokens{2}, {.seed = 6, .max_new_tokens = 20})};
        meddle(dec, ids);
        while (dec.step()) {
        }
        return std::pair{tokens(dec.generated(ids[0]).begin(), dec.generated(ids[0]).end()),
                         tokens(dec.generated(ids[1]).begin(), dec.generated(ids[1]).end())};
    };
    auto const undisturbed = texts([](auto&, auto const&) {});
    auto const limited = texts([&](auto& dec, auto const& ids) {
        REQUIRE(dec.step());
        CHECK(dec.round().verdicts[0].drafted == 3);
        out_of_room = true;
        CHECK_THROWS_AS(dec.step(), std::runtime_error);
        for (request_id const id : ids) dec.limit_drafts(id, 0);
        REQUIRE(dec.step());  // and the model is not asked
        CHECK(dec.round().verdicts[0].drafted == 0);
        CHECK(dec.round().verdicts[0].emitted.size() == 1);
        out_of_room = false;
        dec.limit_drafts(ids[1], 2);
        REQUIRE(dec.step());
        CHECK(dec.round().verdicts[0].drafted == 0);
        CHECK(dec.round().verdicts[1].drafted == 2);
        CHECK_THROWS_AS(dec.limit_drafts(99, 0), error);
    });
    CHECK(limited == undisturbed);
}

namespace {

/// A model with a cache: it reads what it has missed when it drafts, and says before how much that is.
struct with_cache {
    decltype(hash_model<float>(0, {})) inner = hash_model<float>(vocabulary, draft_language);
    std::vector<std::uint64_t> held{0, 0};  // [slot]

    [[nodiscard]] std::uint64_t unread(request_view const& request) const {
        return request.position - held[request.slot];
    }
    logits_rows<float> forward(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        for (request_view const& r : requests) {
            if (prefixes.size > 0 || r.draft_cap(block) == 0) continue;
            CHECK(r.unread == r.position - held[r.slot]);
            held[r.slot] = r.position;
        }
        return inner.forward(requests, prefixes);
    }
};

/// A target that has to go back to a saved state where drafts were rejected.
struct with_states {
    decltype(target_model_of()) inner = target_model_of();
    std::vector<bool> behind{false, false};  // [slot]

    [[nodiscard]] bool replays(request_view const& request) const { return behind[request.slot]; }
    auto score(verify_batch const& batch) { return inner.score(batch); }
    void commit(std::span<verdict const> verdicts) noexcept {
        for (verdict const& v : verdicts) behind[v.slot] = v.accepted < v.verified;
    }
};

}  // namespace

TEST_CASE("decoder: a round's load tells what the draft reads and what the target decodes again") {
    with_states target;
    autoregressive drafter{with_cache{}, drafter_options{.block_size = block, .vocabulary = vocabulary}};
    decoder dec{target, drafter, fixed_schedule{}, keyed_coupling{}, {.max_requests = 2}};
    dec.submit(tokens{1, 2, 3, 4}, {.seed = 1, .max_new_tokens = 60});
    request_id const second = dec.submit(tokens{2, 5}, {.seed = 2, .max_new_tokens = 60});
    std::size_t rejected = 0;
    std::uint64_t most_unread = 0;
    for (int step = 0; dec.step(); ++step) {
        CHECK(dec.round().load.replays == rejected);
        rejected = 0;
        std::uint64_t unread = 0;
        for (std::size_t r = 0; r < dec.round().size(); ++r) {
            request_view const& q = dec.round().requests[r];
            verdict const& v = dec.round().verdicts[r];
            bool const ends = v.emitted.size() >= q.remaining;
            rejected += v.accepted < v.verified && !ends ? 1 : 0;
            if (q.draft_cap(block) > 0) unread += q.unread;
        }
        CHECK(dec.round().load.unread_tokens == unread);
        if (step == 0) CHECK(unread == 3 + 1);
        most_unread = std::max(most_unread, unread);
        if (step == 1) dec.limit_drafts(second, 0);
        if (step == 9) dec.limit_drafts(second, block);
    }
    CHECK(most_unread > 9);
}

namespace {

/// A model whose context ends at a position: it is not asked behind it.
struct short_context {
    std::size_t positions;
    decltype(hash_model<float>(0, {})) inner = hash_model<float>(vocabulary, draft_language);

    [[nodiscard]] std::size_t room(request_view const& request) const {
        return positions - std::min<std::size_t>(positions, request.position);
    }
    logits_rows<float> forward(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        for (request_view const& r : requests) {
            bool const drafts = r.draft_cap(block) > prefixes.size;
            if (drafts && r.position + prefixes.size >= positions) throw std::runtime_error("behind the context");
        }
        return inner.forward(requests, prefixes);
    }
};

}  // namespace

TEST_CASE("decoder: a model drafts as far as it has room, and requests that outgrow it decode plainly") {
    auto const texts = [](auto make, std::size_t most) {
        auto target = target_model_of();
        decoder dec{target, make(), fixed_schedule{}, keyed_coupling{}, {.max_requests = 2}};
        request_id const ids[] = {dec.submit(tokens{1, 2, 3, 4, 5, 6, 7, 8}, {.seed = 1, .max_new_tokens = 30}),
                                  dec.submit(tokens{2}, {.seed = 2, .max_new_tokens = 12})};
        std::size_t drafted[2] = {};
        while (dec.step()) {
            for (verdict const& v : dec.round().verdicts) {
                auto const size = dec.generated(v.id).size() - v.emitted.size() + (v.id == ids[0] ? 8u : 1u);
                CHECK(v.outcome == status::ok);
                CHECK(v.draft_outcome == status::ok);
                CHECK((v.drafted == 0 || size - 1 + v.drafted <= most));
                drafted[v.id == ids[0] ? 0 : 1] += v.drafted;
            }
        }
        CHECK(drafted[1] > 0);
        return std::pair{tokens(dec.generated(ids[0]).begin(), dec.generated(ids[0]).end()),
                         tokens(dec.generated(ids[1]).begin(), dec.generated(ids[1]).end())};
    };
    auto const with_context = [](std::size_t positions) {
        return [positions] {
            return autoregressive{short_context{positions},
                                  drafter_options{.block_size = block, .vocabulary = vocabulary}};
        };
    };
    auto const expected = texts(with_context(1000), 1000);
    for (std::size_t const positions : {7u, 8u, 10u, 14u, 20u}) {
        INFO(positions << " positions");
        CHECK(texts(with_context(positions), positions) == expected);
        // Found tokens need no room, and the model inside is limited all the same.
        CHECK(texts([&] { return with_lookup{with_context(positions)(), {.block_size = block}}; }, 1000) == expected);
    }
}
