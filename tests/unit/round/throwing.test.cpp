// SPDX-License-Identifier: MIT
//
// Callables of a user's that throw in a round: a hook, a confidence, a model. A step that fails changes nothing, on
// threads that were lent too, and a drafter that fails need not stop the round. Exact laws of such rounds are in
// tests/property (failing_rounds.hpp). A second.
#include <atomic>
#include <cstddef>
#include <exception>
#include <new>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/sureleap.hpp>
#include <sureleap/verify/match.hpp>

#include "support/catch.hpp"
#include "support/decoder_scene.hpp"
#include "support/error_text.hpp"
#include "support/executors.hpp"
#include "support/with_trees.hpp"

using namespace decoder_scene;
using support::error_text;
using support::says;
using support::task_order;
using support::test_executor;

namespace {

struct failed : std::runtime_error {
    failed() : std::runtime_error("a call of the user's") {}
};

/// Throws at every `every`-th call, if it is above 0.
struct fuse {
    std::atomic<std::size_t> calls{0};
    std::size_t every = 0;
    void burn() {
        if (every > 0 && ++calls % every == 0) throw failed{};
    }
};

struct throwing_hook {
    fuse* lent;
    void operator()(hook_context const&, std::span<float> row) const {
        lent->burn();
        row[0] -= 0.5F;
    }
};
struct throwing_confidence {
    fuse* lent;
    [[nodiscard]] double operator()(std::span<float const>, token_id previous, std::size_t) const {
        lent->burn();
        return previous % 2 == 0 ? 0.9 : 0.6;
    }
};

constexpr std::size_t requests = 6;
constexpr std::size_t length = 80;

/// Texts of a decoder whose steps may fail. A step that fails has no events and leaves all texts as they were.
template <class Decoder>
[[nodiscard]] std::vector<tokens> texts_of(Decoder& dec, std::size_t& failures) {
    std::vector<request_id> ids;
    for (std::size_t i = 0; i < requests; ++i) {
        ids.push_back(dec.submit(tokens{static_cast<token_id>(1 + i)}, {.seed = 70 + i, .max_new_tokens = length}));
    }
    auto const texts = [&] {
        std::vector<tokens> all;
        for (request_id const id : ids) all.emplace_back(dec.generated(id).begin(), dec.generated(id).end());
        return all;
    };
    for (;;) {
        auto const before = texts();
        try {
            if (!dec.step()) return before;
        } catch (failed const&) {
            ++failures;
            REQUIRE(failures < 10'000);
            CHECK(dec.events().empty());
            CHECK(texts() == before);
        }
    }
}

/// A drafter of chains or trees, a rule, a hook and a confidence: texts of steps that fail are those of steps that do
/// not.
template <class Make, class Rule>
void check_same_texts(Make const& make, Rule rule, fuse& hooks, fuse& confidences) {
    auto const with = [&](executor_ref threads, std::size_t& failures) {
        auto target = target_model_of();
        decoder dec{target,
                    make(),
                    threshold_schedule{0.3},
                    rule,
                    {.max_requests = requests, .executor = threads},
                    throwing_hook{&hooks}};
        return texts_of(dec, failures);
    };
    std::size_t none = 0;
    auto const undisturbed = with({}, none);
    REQUIRE(none == 0);
    for (auto const order : {task_order::ascending, task_order::descending, task_order::at_once}) {
        for (fuse* const lent : {&hooks, &confidences}) {
            INFO(support::name_of(order) << ", " << (lent == &hooks ? "the hook" : "the confidence"));
            test_executor threads{order, 3};
            lent->every = 101;
            std::size_t failures = 0;
            CHECK(with(threads, failures) == undisturbed);
            CHECK(failures > 3);
            lent->every = 0;
        }
    }
}

}  // namespace

TEST_CASE("throwing: a hook or a confidence that throws leaves every request as it was") {
    fuse hooks;
    fuse confidences;
    head_weights const weights;
    auto const chain = [&] {
        return semi_autoregressive{hash_backbone{},
                                   markov_head{matrix_view<float>{weights.w1.data(), vocabulary, 2},
                                               matrix_view<float>{weights.w2.data(), vocabulary, 2}},
                                   throwing_confidence{&confidences},
                                   {.block_size = block, .vocabulary = vocabulary, .hidden_size = 3}};
    };
    auto const tree = [&] { return tree_drafter<decltype(chain())>{chain(), {.nodes = 6, .children = 2}}; };
    check_same_texts(chain, target_match<>{}, hooks, confidences);
    check_same_texts(chain, keyed_coupling{}, hooks, confidences);
    check_same_texts(tree, support::with_trees<target_match<>>{}, hooks, confidences);
    check_same_texts(tree, support::with_trees<keyed_coupling>{}, hooks, confidences);
}

// ---- a round that goes on without its drafter
// ------------------------------------------------------------------------

namespace {

/// A draft model that throws at position `at` while it is broken.
struct breaking_model {
    std::optional<std::size_t>* at;
    decltype(hash_model<float>(0, {})) inner = hash_model<float>(vocabulary, draft_language);
    logits_rows<float> forward(std::span<request_view const> round, draft_prefixes const& prefixes) {
        if (*at == prefixes.size) throw failed{};
        return inner.forward(round, prefixes);
    }
};

}  // namespace

TEST_CASE("throwing: a drafter that fails is tried again in as many rounds as the option says") {
    std::optional<std::size_t> at;
    auto target = target_model_of();
    auto const make = [&] {
        return autoregressive{breaking_model{&at}, {.block_size = block, .vocabulary = vocabulary}};
    };
    decoder reference{target, make(), fixed_schedule{}, target_match<>{}};
    job const only{{1, 2}, {.seed = 5, .max_new_tokens = 40}};
    auto const undisturbed = run(reference, {only}, 1);

    decoder dec{target, make(), fixed_schedule{}, target_match<>{}, {.drafter_retries = 2}};
    request_id const id = dec.submit(only.prompt, only.settings);
    REQUIRE(dec.step());
    CHECK(dec.draft_failure() == nullptr);
    CHECK(dec.round().verdicts[0].draft_outcome == status::ok);
    for (std::size_t const position : {2u, 0u}) {  // twice in a row it goes on
        at = position;
        REQUIRE(dec.step());
        REQUIRE(dec.draft_failure() != nullptr);
        CHECK_THROWS_AS(std::rethrow_exception(dec.draft_failure()), failed);
        verdict const& v = dec.round().verdicts[0];
        CHECK(v.outcome == status::ok);
        CHECK(v.draft_outcome == status::drafter_failed);
        CHECK(v.drafted == position);
        CHECK(v.verified == position);
        CHECK(!v.emitted.empty());
    }
    auto const kept = tokens(dec.generated(id).begin(), dec.generated(id).end());
    CHECK_THROWS_AS(dec.step(), failed);
    CHECK_THROWS_AS(dec.step(), failed);
    CHECK(tokens(dec.generated(id).begin(), dec.generated(id).end()) == kept);
    dec.limit_drafts(id, 0);  // decodes without it
    REQUIRE(dec.step());
    CHECK(dec.round().verdicts[0].draft_outcome == status::ok);
    CHECK(dec.draft_failure() == nullptr);
    dec.limit_drafts(id, block);
    at.reset();
    REQUIRE(dec.step());  // it works again, and the count begins anew
    at = 1;
    REQUIRE(dec.step());
    CHECK(dec.round().verdicts[0].drafted == 1);
    at.reset();
    while (dec.step()) CHECK(dec.draft_failure() == nullptr);
    CHECK(tokens(dec.generated(id).begin(), dec.generated(id).end()) == undisturbed[0]);
}

TEST_CASE("throwing: a round that is run again goes on with the drafts that it had, or not at all") {
    // The target fails once behind whole chains. Then the drafter fails in the second attempt: chains that are shorter
    // would depend on that failure, where a rule samples.
    bool target_fails = true;
    std::optional<std::size_t> at;
    auto inner = target_model_of();
    auto target = [&](verify_batch const& batch) {
        if (std::exchange(target_fails, false)) throw std::bad_alloc{};
        return inner.score(batch);
    };
    decoder dec{target,
                autoregressive{breaking_model{&at}, {.block_size = block, .vocabulary = vocabulary}},
                fixed_schedule{},
                token_rejection<>{},
                {.drafter_retries = 9}};
    dec.submit(tokens{1}, {.seed = 1});
    CHECK_THROWS_AS(dec.step(), std::bad_alloc);
    at = 2;
    CHECK_THROWS_AS(dec.step(), failed);
    at.reset();
    REQUIRE(dec.step());
    CHECK(dec.round().verdicts[0].drafted == block);
}

TEST_CASE("throwing: with several requests a rule that samples goes on where nothing was drawn, and nowhere else") {
    std::optional<std::size_t> at;
    auto const outcomes = [&](auto rule) {
        std::vector<bool> goes_on;
        for (std::size_t const position : {0u, 2u}) {
            auto target = target_model_of();
            decoder dec{target,
                        autoregressive{breaking_model{&at}, {.block_size = block, .vocabulary = vocabulary}},
                        fixed_schedule{},
                        rule,
                        {.max_requests = 2, .drafter_retries = 9}};
            dec.submit(tokens{1}, {.seed = 1});
            dec.submit(tokens{2}, {.seed = 2});
            at = position;
            bool went_on = true;
            try {
                bool const stepped = dec.step();
                CHECK(stepped);
                for (verdict const& v : dec.round().verdicts) CHECK(v.drafted == position);
            } catch (failed const&) {
                went_on = false;
                at.reset();
                REQUIRE(dec.step());  // the same round
                for (verdict const& v : dec.round().verdicts) CHECK(v.drafted == block);
            }
            goes_on.push_back(went_on);
            at.reset();
        }
        return goes_on;
    };
    CHECK(outcomes(token_rejection<>{}) == std::vector<bool>{true, false});
    CHECK(outcomes(block_verification<>{}) == std::vector<bool>{true, false});
    CHECK(outcomes(token_rejection<argmax_draft>{}) == std::vector<bool>{true, true});
    CHECK(outcomes(target_match<>{}) == std::vector<bool>{true, true});
}

TEST_CASE("throwing: end_drafts has its place between begin_round and admit") {
    auto target = target_model_of();
    auto drafter = draft_model_of();
    fixed_schedule schedule;
    target_match<> const rule;
    philox_randomness rng;
    request_settings const settings{.seed = 3};
    round_memory<float, float> memory{drafter, schedule, rule, {}};
    tokens const context{4};
    request_view const request{.id = 1, .anchor = 4, .context = context, .remaining = 9, .settings = &settings};
    CHECK(says(error_text([&] { end_drafts(memory); }),
               {"end_drafts: no round drafts", "between begin_round and admit"}));
    REQUIRE(begin_round(schedule, std::span(&request, 1), memory));
    end_drafts(memory);
    CHECK(memory.block().draft_outcome(0) == status::drafter_failed);
    accept(rule, score(target, admit(schedule, memory)), no_logits_hook{}, rng, memory);
    CHECK(says(error_text([&] { end_drafts(memory); }), {"end_drafts: no round drafts"}));
    auto const record = end_round(schedule, memory, target, drafter);
    CHECK(record.verdicts[0].draft_outcome == status::drafter_failed);
    CHECK(record.verdicts[0].emitted.size() == 1);
}
