// SPDX-License-Identifier: MIT
//
// A decoder whose drafter failed behind drafted tokens runs the same round again, whoever came or went meanwhile.
#include "support/catch.hpp"

#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include <sureleap/decoder.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/error_text.hpp"
#include "support/small_world.hpp"

using namespace sureleap;
using namespace small_world;
using support::error_text;
using support::says;

namespace {

world const w{5, 3, 3};
using tokens = std::vector<token_id>;

/// Fails at the third token of a block while it is told to. Says for whom it was called last.
struct failing_model {
    bool* fails;
    std::vector<request_id>* asked;
    std::vector<double> rows{};
    [[nodiscard]] logits_rows<double> forward(std::span<request_view const> requests, draft_prefixes prefixes) {
        asked->clear();
        rows.assign(requests.size() * 3, 0.0);
        for (request_view const& r : requests) asked->push_back(r.id);
        if (prefixes.size == 2 && *fails) throw std::runtime_error("the draft model failed");
        return {{rows.data(), requests.size(), 3}, {}, {}};
    }
};

template <class Rule>
struct scene_of {
    bool fails = false;
    std::vector<request_id> asked;
    decltype(target_of(w)) target = target_of(w);
    decoder<decltype(target)&, autoregressive<failing_model, no_confidence>, fixed_schedule, Rule> dec{
        target, autoregressive{failing_model{&fails, &asked}, {.block_size = 3, .vocabulary = 3}}, fixed_schedule{},
        Rule{}, decoder_options{.max_requests = 3, .max_tokens = 200, .seed = 1}};

    request_id submit() { return dec.submit(tokens{0, 1}, {.max_new_tokens = 40}); }
    void fail() {
        fails = true;
        CHECK_THROWS_AS(dec.step(), std::runtime_error);
        fails = false;
    }
    [[nodiscard]] std::vector<request_id> emitted() {
        REQUIRE(dec.step());
        std::vector<request_id> ids;
        for (request_event const& e : dec.events()) ids.push_back(e.request);
        return ids;
    }
    void check_sums() {
        request_counts const c = dec.counts();
        CHECK(c.submitted == c.waiting + c.placed + c.finished + c.cancelled);
    }
};
using sampling = scene_of<token_rejection<>>;
using ids = std::vector<request_id>;

}  // namespace

TEST_CASE("decoder: who joins after a failed draw waits until that round is over") {
    sampling s;
    request_id const a = s.submit();
    s.fail();
    request_id const b = s.submit();
    CHECK(s.dec.state(b) == request_state::waiting);
    CHECK(s.dec.counts().waiting == 1);
    CHECK(s.emitted() == ids{a});
    CHECK(s.emitted() == ids{a, b});

    // Where any draft is exact, nobody waits.
    scene_of<target_match<categorical_draft>> any;
    request_id const c = any.submit();
    any.fail();
    request_id const d = any.submit();
    CHECK(any.emitted() == ids{c, d});
}

TEST_CASE("decoder: who was cancelled after a failed draw takes part once more, and is not heard of") {
    sampling s;
    request_id const a = s.submit();
    request_id const b = s.submit();
    s.fail();
    s.dec.cancel(b);
    CHECK_FALSE(s.dec.knows(b));
    CHECK(says(error_text([&] { static_cast<void>(s.dec.state(b)); }), "no request with id"));
    CHECK(says(error_text([&] { s.dec.cancel(b); }), "no request with id"));
    CHECK(s.dec.counts().cancelled == 1);
    CHECK(s.dec.counts().placed == 1);
    s.check_sums();
    request_id const c = s.submit();
    s.check_sums();
    s.fail();  // once more
    CHECK(s.emitted() == ids{a});
    CHECK(s.asked == ids{a, b});
    s.check_sums();
    CHECK(s.dec.round().size() == 2);  // of two requests
    CHECK(s.emitted() == ids{a, c});
    CHECK(s.asked == ids{a, c});
    s.check_sums();
    CHECK(s.dec.counts().placed == 2);
}

TEST_CASE("decoder: who was paused after a failed draw is as that round leaves it") {
    sampling s;
    request_id const a = s.submit();
    request_id const b = s.submit();
    s.fail();
    s.dec.pause(a);
    s.dec.pause(b);
    CHECK(s.emitted() == ids{a, b});
    CHECK(s.dec.state(a) == request_state::suspended);
    CHECK_FALSE(s.dec.step());
    s.dec.resume(b);
    CHECK(s.emitted() == ids{b});
}

TEST_CASE("decoder: a failed draw is given up when everybody in it was cancelled") {
    sampling s;
    request_id const a = s.submit();
    request_id const b = s.submit();
    s.fail();
    s.dec.cancel(a);
    request_id const c = s.submit();
    s.dec.cancel(b);
    s.check_sums();
    CHECK(s.emitted() == ids{c});
    CHECK(s.dec.counts().placed == 1);
    s.check_sums();
    for (int i = 0; i < 2; ++i) s.submit();  // both places are free again
    CHECK(s.emitted().size() == 3);
    CHECK(s.dec.counts().cancelled == 2);
}

TEST_CASE("decoder: tokens that were kept for who left are given back") {
    sampling s;  // 200 tokens: four requests of 42, places for three
    std::vector<request_id> here{s.submit(), s.submit(), s.submit()};
    for (int round = 0; round < 20; ++round) {
        s.fail();
        s.dec.cancel(here.front());  // the eldest, long before it has finished
        here.erase(here.begin());
        here.push_back(s.submit());
        static_cast<void>(s.emitted());
        CHECK(s.emitted().size() == 3);
        s.check_sums();
    }
}
