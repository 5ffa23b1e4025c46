// SPDX-License-Identifier: MIT
//
// The decoder: settings and parts that are refused at set-up; bad data and failures in a round, which change nothing.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/cost/capacity.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/schedule/greedy.hpp>
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

// ---- set-up errors ---------------------------------------------------------------------------------------------

TEST_CASE("decoder: unusable settings are refused with value and expectation") {
    auto target = target_model_of();
    decoder dec{target, draft_model_of(), fixed_schedule{}, token_rejection<>{}, {.max_requests = 2}};
    auto const refused = [&](request_settings const& settings) {
        return error_text([&] { dec.submit(tokens{1}, settings); });
    };
    double const nan = std::numeric_limits<double>::quiet_NaN();
    double const inf = std::numeric_limits<double>::infinity();
    CHECK(says(refused({.temperature = -0.5}), {"request_settings", "temperature is -0.5", ">= 0"}));
    CHECK(says(refused({.temperature = nan}), {"temperature is", "nan", "finite"}));
    CHECK(says(refused({.temperature = inf}), {"temperature is inf", "finite"}));
    CHECK(says(refused({.top_k = -3}), {"top_k is -3", ">= 0"}));
    CHECK(says(refused({.top_p = 0.0}), {"top_p is 0, ", "(0, 1]"}));
    CHECK(says(refused({.top_p = 1.25}), {"top_p is 1.25", "(0, 1]"}));
    CHECK(says(refused({.top_p = nan}), {"top_p is", "nan", "(0, 1]"}));
    CHECK(says(refused({.min_p = -0.25}), {"min_p is -0.25", "[0, 1]"}));
    CHECK(says(refused({.min_p = 1.5}), {"min_p is 1.5", "[0, 1]"}));
    CHECK(says(refused({.draft = transform{.temperature = -2.0}}), {"draft temperature is -2, ", ">= 0"}));
    CHECK(says(refused({.draft = transform{.top_p = 2.0}}), {"draft top_p is 2, ", "(0, 1]"}));
    CHECK(says(refused({.max_new_tokens = 0}), {"max_new_tokens is 0", "expected 1"}));
    CHECK(says(refused({.max_new_tokens = static_cast<std::size_t>(-1)}), {"max_new_tokens is 18446744073709551615"}));
    CHECK(says(error_text([&] { dec.submit(tokens{}); }), {"prompt is empty", "at least one token"}));
    CHECK(says(error_text([&] { dec.submit(tokens{1, 12, 3}); }), {"prompt token 1 is 12", "0 .. 11"}));
    CHECK(says(error_text([&] { dec.submit(tokens{-1}); }), {"prompt token 0 is -1", "0 .. 11"}));
    CHECK(says(error_text([&] { dec.resume(99); }), {"no request with id 99"}));
    // Nothing of this took a place.
    CHECK_FALSE(dec.step());
    dec.submit(tokens{1});
    dec.submit(tokens{2});
}

TEST_CASE("decoder: parts that do not fit are refused at set-up") {
    auto wide = hash_model<float>(vocabulary + 1, target_language);
    CHECK(says(error_text([&] { decoder{wide, draft_model_of(), fixed_schedule{}, token_rejection<>{}}; }),
               {"the target has 13 tokens", "drafter speaks of 12", "vocabulary_map"}));
    auto target = target_model_of();
    CHECK(says(error_text([&] {
                   decoder{target, draft_model_of(), fixed_schedule{}, token_rejection<>{}, {.max_requests = 0}};
               }),
               {"max_requests is 0", "at least 1"}));
    CHECK(
        says(error_text([&] { decoder{target, draft_model_of(), top_k_schedule{capacity, 1.5}, token_rejection<>{}}; }),
             {"prior confidence is 1.5", "[0, 1]"}));
    decoder greedy{target, draft_model_of(), fixed_schedule{}, greedy_match{}};
    CHECK(says(error_text([&] { greedy.submit(tokens{1}, {.temperature = 0.7}); }),
               {"temperature is 0.7", "expected 0", "decodes greedily"}));
    greedy.submit(tokens{1}, {.temperature = 0.0});
    CHECK(says(error_text([] { static_cast<void>(hash_model<float>(0, target_language)); }),
               {"context_model", "vocabulary is 0"}));
}

// ---- bad data in a round ---------------------------------------------------------------------------------------

namespace {

using damage = std::function<void(logits_rows<float>& rows, std::span<float> row)>;

/// A target that goes wrong once, at call `when`: `harm` gets all rows, and the anchor's of the request in `slot`.
struct faulty_target {
    damage harm;
    std::size_t when = 0, slot = 0, calls = 0;
    decltype(target_model_of()) inner = target_model_of();
    std::vector<float> copy{};
    std::vector<std::vector<status>> committed{};

    [[nodiscard]] std::size_t vocabulary_size() const { return vocabulary; }
    logits_rows<float> score(verify_batch const& batch) {
        auto rows = inner.score(batch);
        if (calls++ != when) return rows;
        copy.assign(rows.values.data, rows.values.data + rows.values.rows * vocabulary);
        rows.values.data = copy.data();
        for (std::size_t r = 0; r < batch.requests().size(); ++r) {
            if (batch.requests()[r].slot != slot) continue;
            harm(rows, std::span(copy).subspan(batch.first_row(r) * vocabulary, vocabulary));
        }
        return rows;
    }
    void commit(std::span<verdict const> verdicts) noexcept {
        auto& round = committed.emplace_back();
        for (verdict const& v : verdicts) round.push_back(v.outcome);
    }
};

/// A draft model that returns a NaN for the request in `slot` while it is switched on.
struct faulty_draft {
    std::shared_ptr<bool> on;
    std::size_t slot = 0, position = 0;
    decltype(hash_model<float>(0, {})) inner = hash_model<float>(vocabulary, draft_language);
    std::vector<float> copy{};

    logits_rows<float> forward(std::span<request_view const> requests, draft_prefixes const& prefixes) {
        auto rows = inner.forward(requests, prefixes);
        copy.assign(rows.values.data, rows.values.data + rows.values.rows * vocabulary);
        for (std::size_t r = 0; r < requests.size(); ++r) {
            if (*on && requests[r].slot == slot && prefixes.size == position) {
                copy[r * vocabulary] = std::numeric_limits<float>::quiet_NaN();
            }
        }
        rows.values.data = copy.data();
        return rows;
    }
};

struct faulty_confidence {
    std::shared_ptr<bool> on;
    double bad;

    double operator()(distribution<float> const& q, std::size_t k) const {
        return *on && k == 1 ? bad : q.probability(q.mode());
    }
};

job const job_0{{1, 2, 3}, {.temperature = 0.9, .seed = 21, .max_new_tokens = 30}};
job const job_1{{4, 5}, {.temperature = 1.1, .seed = 22, .max_new_tokens = 30}};

/// Steps through a fault that starts before round `when`: `broken` requests report `expected`, emit nothing and keep
/// their text; after resume() all end with the texts of an undisturbed run.
template <class Decoder, class Before, class After>
void survive(Decoder& dec, std::vector<tokens> const& undisturbed, std::size_t when,
             std::vector<std::size_t> const& broken, status expected, Before before, After after) {
    request_id const ids[] = {dec.submit(job_0.prompt, job_0.settings), dec.submit(job_1.prompt, job_1.settings)};
    for (std::size_t round = 0; round < when; ++round) REQUIRE(dec.step());
    std::vector<tokens> kept;
    for (auto const id : ids) kept.emplace_back(dec.generated(id).begin(), dec.generated(id).end());
    auto const failures = dec.report().failures();

    before();
    REQUIRE(dec.step());
    REQUIRE(dec.events().size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
        request_event const& e = dec.events()[i];
        bool const is_broken = std::find(broken.begin(), broken.end(), i) != broken.end();
        CHECK(e.request == ids[i]);
        CHECK(e.outcome == (is_broken ? expected : status::ok));
        CHECK(e.tokens.empty() == is_broken);
        CHECK(e.finished == finish_reason::none);
        auto const text = dec.generated(ids[i]);
        if (is_broken) CHECK(tokens(text.begin(), text.end()) == kept[i]);
    }
    CHECK(dec.report().failures() == failures + broken.size());
    after();
    // Suspended requests sit out.
    CHECK(dec.step() == (broken.size() < 2));
    for (request_event const& e : dec.events()) CHECK(e.outcome == status::ok);
    for (std::size_t const i : broken) {
        auto const text = dec.generated(ids[i]);
        CHECK(tokens(text.begin(), text.end()) == kept[i]);
        dec.resume(ids[i]);
    }
    while (dec.step()) {
        for (request_event const& e : dec.events()) REQUIRE(e.outcome == status::ok);
    }
    for (std::size_t i = 0; i < 2; ++i) {
        auto const text = dec.generated(ids[i]);
        CHECK(tokens(text.begin(), text.end()) == undisturbed[i]);
    }
}

}  // namespace

TEST_CASE("decoder: bad target rows suspend the request and change nothing") {
    float const inf = std::numeric_limits<float>::infinity();
    std::pair<char const*, damage> const faults[] = {
        {"nan", [](auto&, auto row) { row[vocabulary / 2] = std::numeric_limits<float>::quiet_NaN(); }},
        {"infinity", [&](auto&, auto row) { row[vocabulary / 2] = inf; }},
        {"masked", [&](auto&, auto row) { std::fill(row.begin(), row.end(), -inf); }},
        {"no rows", [](auto& rows, auto) { rows = {}; }},
    };
    auto const each_rule = [&](auto rule) {
        auto clean = target_model_of();
        decoder reference{clean, draft_model_of(), fixed_schedule{3}, rule, {.max_requests = 2}};
        auto const undisturbed = run(reference, {job_0, job_1}, 2);
        for (std::size_t const when : {0u, 2u}) {
            for (auto const& [name, harm] : faults) {
                bool const all = name == std::string("no rows");
                for (std::size_t const slot : {0u, 1u}) {
                    INFO("round " << when << ", " << name << ", slot " << slot);
                    faulty_target target{harm, when, slot};
                    decoder dec{target, draft_model_of(), fixed_schedule{3}, rule, {.max_requests = 2}};
                    survive(
                        dec, undisturbed, when, all ? std::vector<std::size_t>{0, 1} : std::vector<std::size_t>{slot},
                        status::invalid_target, [] {}, [] {});
                    REQUIRE(target.committed.size() > when);
                    CHECK(target.committed[when][slot] == status::invalid_target);  // so that it rolls back
                }
            }
        }
    };
    each_rule(token_rejection<>{});
    each_rule(block_verification<>{});
    each_rule(keyed_coupling{});
    each_rule(target_match<>{});
}

TEST_CASE("decoder: a target row nobody needs may hold anything") {
    // Row 0 gives the drafted token probability 0, so the block ends there; NaN behind it is never looked at.
    std::vector<float> rows;
    auto target = [&](verify_batch const& batch) {
        rows.assign(batch.rows() * vocabulary, std::numeric_limits<float>::quiet_NaN());
        for (std::size_t v = 0; v < vocabulary; ++v) rows[v] = v == 3 ? 0.0f : -std::numeric_limits<float>::infinity();
        return logits_rows<float>{{rows.data(), batch.rows(), vocabulary}, {}};
    };
    auto draft = [logits = std::vector<float>(vocabulary)](std::span<request_view const>,
                                                           draft_prefixes const&) mutable {
        std::fill(logits.begin(), logits.end(), -std::numeric_limits<float>::infinity());
        logits[5] = 0.0f;
        return logits_rows<float>{{logits.data(), 1, vocabulary}, {}};
    };
    auto const first = [&](auto rule) {
        decoder dec{target, autoregressive{draft, {.block_size = block, .vocabulary = vocabulary}}, fixed_schedule{},
                    rule};
        dec.submit(tokens{0}, {.seed = 1});
        REQUIRE(dec.step());
        CHECK(dec.report().verified() == block);
        auto const event = dec.events()[0];
        CHECK(event.outcome == status::ok);
        return tokens(event.tokens.begin(), event.tokens.end());
    };
    CHECK(first(token_rejection<>{}) == tokens{3});
    CHECK(first(block_verification<>{}) == tokens{3});
    CHECK(first(keyed_coupling{}) == tokens{3});
    CHECK(first(target_match<>{}) == tokens{3});
}

namespace {

/// Steps through a fault of the drafter in round `when` that ends chains at `length`, those of `broken` requests. The
/// round goes on, other chains are whole, and texts of rules that decode pathwise are those of an undisturbed run.
template <class Decoder, class Before, class After>
void shorten(Decoder& dec, std::vector<tokens> const& undisturbed, std::size_t when,
             std::vector<std::size_t> const& broken, std::size_t length, status expected, Before before, After after) {
    request_id const ids[] = {dec.submit(job_0.prompt, job_0.settings), dec.submit(job_1.prompt, job_1.settings)};
    for (std::size_t round = 0; round < when; ++round) REQUIRE(dec.step());
    before();
    REQUIRE(dec.step());
    auto const verdicts = dec.round().verdicts;
    REQUIRE(verdicts.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
        bool const is_broken = std::find(broken.begin(), broken.end(), i) != broken.end();
        CHECK(verdicts[i].outcome == status::ok);
        CHECK(verdicts[i].draft_outcome == (is_broken ? expected : status::ok));
        CHECK(verdicts[i].drafted == (is_broken ? length : block));
        CHECK(dec.events()[i].outcome == status::ok);
        CHECK(!dec.events()[i].tokens.empty());
    }
    CHECK(dec.report().failures() == 0);
    after();
    while (dec.step()) {
        for (verdict const& v : dec.round().verdicts) REQUIRE(v.draft_outcome == status::ok);
    }
    for (std::size_t i = 0; i < 2; ++i) {
        auto const text = dec.generated(ids[i]);
        CHECK(text.size() == 30);
        bool const same_text = Decoder::rule_type::guarantee == fidelity::pathwise;
        if (same_text) CHECK(tokens(text.begin(), text.end()) == undisturbed[i]);
    }
}

}  // namespace

TEST_CASE("decoder: a bad draft row ends its chain where it stands, and nothing else") {
    auto const each_rule = [](auto rule) {
        auto target = target_model_of();
        auto const make = [&](std::shared_ptr<bool> on, std::size_t slot, std::size_t position) {
            return autoregressive{faulty_draft{std::move(on), slot, position},
                                  {.block_size = block, .vocabulary = vocabulary}};
        };
        decoder reference{
            target, make(std::make_shared<bool>(false), 0, 0), fixed_schedule{}, rule, {.max_requests = 2}};
        auto const undisturbed = run(reference, {job_0, job_1}, 2);
        for (std::size_t const position : {0u, 2u}) {
            for (std::size_t const slot : {0u, 1u}) {
                INFO("slot " << slot << ", position " << position);
                auto const on = std::make_shared<bool>(false);
                decoder dec{target, make(on, slot, position), fixed_schedule{}, rule, {.max_requests = 2}};
                shorten(
                    dec, undisturbed, 1, {slot}, position, status::invalid_draft, [&] { *on = true; },
                    [&] { *on = false; });
            }
        }
    };
    each_rule(token_rejection<>{});
    each_rule(token_rejection<argmax_draft>{});
    each_rule(keyed_coupling{});
}

TEST_CASE("decoder: a model that gives rows for the first requests alone leaves the others undrafted") {
    auto target = target_model_of();
    auto inner = hash_model<float>(vocabulary, draft_language);
    bool few = false;
    auto const model = [&](std::span<request_view const> requests, draft_prefixes const& prefixes) {
        auto rows = inner.forward(requests, prefixes);
        if (few) rows.values.rows = 1;
        return rows;
    };
    auto const make = [&] { return autoregressive{model, {.block_size = block, .vocabulary = vocabulary}}; };
    decoder reference{target, make(), fixed_schedule{}, keyed_coupling{}, {.max_requests = 2}};
    auto const undisturbed = run(reference, {job_0, job_1}, 2);
    decoder dec{target, make(), fixed_schedule{}, keyed_coupling{}, {.max_requests = 2}};
    shorten(dec, undisturbed, 1, {1}, 0, status::invalid_draft, [&] { few = true; }, [&] { few = false; });
}

TEST_CASE("decoder: a bad confidence ends its chain where it stands, and nothing else") {
    double const nan = std::numeric_limits<double>::quiet_NaN();
    for (double const bad : {nan, 1.5, -0.25, std::numeric_limits<double>::infinity()}) {
        INFO("confidence " << bad);
        auto target = target_model_of();
        auto const make = [&](std::shared_ptr<bool> on) {
            return autoregressive{hash_model<float>(vocabulary, draft_language),
                                  faulty_confidence{std::move(on), bad},
                                  {.block_size = block, .vocabulary = vocabulary}};
        };
        auto const each_rule = [&](auto rule) {
            threshold_schedule const schedule{0.1};
            decoder reference{target, make(std::make_shared<bool>(false)), schedule, rule, {.max_requests = 2}};
            auto const undisturbed = run(reference, {job_0, job_1}, 2);
            auto const on = std::make_shared<bool>(false);
            decoder dec{target, make(on), schedule, rule, {.max_requests = 2}};
            shorten(
                dec, undisturbed, 1, {0, 1}, 1, status::invalid_confidence, [&] { *on = true; }, [&] { *on = false; });
        };
        each_rule(token_rejection<>{});
        each_rule(keyed_coupling{});
    }
}

namespace {

/// What any exception says.
template <class F>
[[nodiscard]] std::string failure_text(F const& f) {
    try {
        f();
    } catch (std::exception const& e) {
        return e.what();
    }
    return {};
}

}  // namespace

TEST_CASE("decoder: a target that throws, or whose rows do not fit, leaves everything as it was") {
    auto const fails = [](damage const& harm, char const* text, auto schedule, auto rule) {
        INFO(text);
        auto clean = target_model_of();
        decoder reference{clean, draft_model_of(), schedule, rule, {.max_requests = 2}};
        auto const undisturbed = run(reference, {job_0, job_1}, 2);
        faulty_target target{harm, 2};
        decoder dec{target, draft_model_of(), schedule, rule, {.max_requests = 2}};
        request_id const ids[] = {dec.submit(job_0.prompt, job_0.settings), dec.submit(job_1.prompt, job_1.settings)};
        REQUIRE(dec.step());
        REQUIRE(dec.step());
        std::vector<tokens> kept;
        for (auto const id : ids) kept.emplace_back(dec.generated(id).begin(), dec.generated(id).end());
        auto const rounds = dec.report().rounds();
        CHECK(says(failure_text([&] { dec.step(); }), {text}));
        CHECK(dec.events().empty());
        CHECK(dec.report().rounds() == rounds);
        CHECK(target.committed.size() == 2);
        for (std::size_t i = 0; i < 2; ++i) {
            CHECK(tokens(dec.generated(ids[i]).begin(), dec.generated(ids[i]).end()) == kept[i]);
        }
        while (dec.step()) {
        }
        for (std::size_t i = 0; i < 2; ++i) {
            CHECK(tokens(dec.generated(ids[i]).begin(), dec.generated(ids[i]).end()) == undisturbed[i]);
        }
    };
    std::pair<damage, char const*> const faults[] = {
        {[](auto&, auto) { throw std::runtime_error("out of memory on the device"); }, "out of memory on the device"},
        {[](auto& rows, auto) { --rows.values.rows; }, "the target gave"},
        {[](auto& rows, auto) { --rows.values.cols; }, "rows of 11 logits, expected at least"},
        {[](auto& rows, auto) { rows.log_normalisers = {rows.values.data, 1}; },
         "the target gave 1 normalisers, expected none or"},
        {[](auto& rows, auto) { rows.block_sums = {rows.values.data, 1, 1}; },
         "the target gave 1 rows of 1 block sums, expected none or"},
    };
    auto const compare = [&](auto schedule, auto rule) {
        for (auto const& [harm, text] : faults) fails(harm, text, schedule, rule);
    };
    compare(fixed_schedule{}, keyed_coupling{});
    compare(greedy_schedule{capacity}, token_rejection<>{});
    compare(top_k_schedule{capacity}, block_verification<>{});  // the failed round is no round of the history
}
