// SPDX-License-Identifier: MIT
//
// A second model as a drafter: the same vocabulary and another one, catching up after rejections, rounds in which it is
// not asked, and passes that fail. A second.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include <sureleap/ext/llama.hpp>
#include <sureleap/sureleap.hpp>

#include "llama/support/plain_text.hpp"
#include "llama/support/tiny_models.hpp"

using namespace sureleap;
using namespace support;

namespace {

struct outcome_of_run {
    std::vector<std::vector<token_id>> texts;
    double tau = 0.0;
    std::uint64_t draft_passes = 0;
    std::uint64_t drafted = 0;
};

template <class Schedule>
[[nodiscard]] outcome_of_run run(tiny_model const& model, tiny_model const& small, Schedule schedule,
                                 llama_context_params const& draft_params = tiny_context_params()) {
    tiny_context const context = make_context(model);
    tiny_context const draft_context = make_context(small, draft_params);
    llama_draft draft{draft_context.get(), llama_model_get_vocab(model.get()), {.max_requests = 3, .block_size = 4}};
    autoregressive drafter{draft, top1_confidence{}, draft.options()};
    llama_target target{context.get(), drafter, {.max_requests = 3}};
    decoder dec{target, drafter, std::move(schedule), keyed_coupling{}, {.max_requests = 3}};
    std::vector<request_id> ids;
    outcome_of_run result;
    for (std::size_t i = 0; i < 3; ++i) {
        ids.push_back(
            dec.submit(repeating_prompt(i, 8 + 30 * i, 7),
                       {.temperature = 0.5 * static_cast<double>(i), .seed = i, .max_new_tokens = 30 + 10 * i}));
    }
    while (dec.step()) {
    }
    for (auto const id : ids) {
        auto const text = dec.generated(id);
        result.texts.emplace_back(text.begin(), text.end());
    }
    result.tau = dec.report().tau();
    result.draft_passes = draft.passes();
    result.drafted = dec.report().drafted();
    return result;
}

[[nodiscard]] std::vector<std::vector<token_id>> plain_texts(tiny_model const& model) {
    std::vector<std::vector<token_id>> texts;
    for (std::size_t i = 0; i < 3; ++i) {
        texts.push_back(
            plain_text(model, repeating_prompt(i, 8 + 30 * i, 7),
                       {.temperature = 0.5 * static_cast<double>(i), .seed = i, .max_new_tokens = 30 + 10 * i}));
    }
    return texts;
}

}  // namespace

TEST_CASE("a model drafts for itself: every draft is accepted, in one pass a position") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    auto const result = run(model, model, fixed_schedule{});
    CHECK(result.texts == plain_texts(model));
    CHECK(result.tau > 4.5);
    CHECK(result.draft_passes * 3 < result.drafted * 2);  // requests share passes
}

TEST_CASE("a draft that is wrong now and then catches up, of every kind of memory") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    auto const expected = plain_texts(model);
    tiny_model const near = make_tiny(tiny_arch::llama, 7, {.disturbance = 0.3F});
    auto const result = run(model, near, fixed_schedule{});
    CHECK(result.texts == expected);
    CHECK(result.tau > 1.5);
    CHECK(result.tau < 4.9);
    for (tiny_arch const arch : every_tiny_arch) {
        INFO(name_of(arch));
        tiny_model const other = make_tiny(arch, 5);
        CHECK(run(model, other, fixed_schedule{}).texts == expected);
        CHECK(run(model, other, threshold_schedule{0.2}).texts == expected);  // chains that end early
    }
}

TEST_CASE("a draft of another vocabulary is told the text, and drafts what both can say") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    tiny_model const small = make_tiny(tiny_arch::llama, 7, {.tokens = 270});
    llama_vocabulary_match const match(llama_model_get_vocab(small.get()), llama_model_get_vocab(model.get()));
    REQUIRE_FALSE(match.same());
    CHECK(match.target_size() == 288);
    CHECK(match.drawn().size() <= 270);
    CHECK(match.drawn().size() > 200);
    for (std::size_t d = 0; d < match.drawn().size(); ++d) {
        auto const x = match.map()->to_target(static_cast<token_id>(d));
        REQUIRE(match.told(x).size() == 1);
        CHECK(match.told(x)[0] == match.drawn()[d]);
    }
    for (token_id x = 0; x < 288; ++x) CHECK_FALSE(match.told(x).empty());
    CHECK(llama_vocabulary_match(llama_model_get_vocab(model.get()), llama_model_get_vocab(model.get())).same());
    CHECK(run(model, small, fixed_schedule{}).texts == plain_texts(model));
}

TEST_CASE("a draft whose context is full drafts for those that fit, and the others go on without") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    tiny_model const other = make_tiny(tiny_arch::llama, 7, {.tokens = 270});
    for (tiny_model const& small : {model, other}) {
        INFO((small == model ? "the same vocabulary" : "another one"));
        tiny_context const context = make_context(model);
        llama_context_params params = tiny_context_params();
        params.n_ctx = 256;  // for all requests together, and less than the third one's text
        tiny_context const draft_context = make_context(small, params);
        llama_draft draft{
            draft_context.get(), llama_model_get_vocab(model.get()), {.max_requests = 3, .block_size = 4}};
        autoregressive drafter{draft, top1_confidence{}, draft.options()};
        llama_target target{context.get(), drafter, {.max_requests = 3}};
        decoder dec{target, drafter, fixed_schedule{}, keyed_coupling{}, {.max_requests = 3}};
        std::size_t const lengths[] = {20, 150, 230};
        std::vector<request_id> ids;
        std::size_t drafted[3] = {};
        std::size_t late = 0;  // drafts that would lie beyond the context
        for (std::size_t i = 0; i < 3; ++i) {
            ids.push_back(dec.submit(repeating_prompt(i, lengths[i], 6), {.seed = i, .max_new_tokens = 60}));
        }
        while (dec.step()) {
            for (verdict const& v : dec.round().verdicts) {
                REQUIRE(v.outcome == status::ok);
                auto const i = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), v.id) - ids.begin());
                drafted[i] += v.drafted;
                if (lengths[i] + dec.generated(v.id).size() - v.emitted.size() > 256) late += v.drafted;
            }
        }
        CHECK(drafted[0] > 0);
        CHECK(drafted[1] > 0);
        CHECK(late == 0);
        for (std::size_t i = 0; i < 3; ++i) {
            CHECK(dec.state(ids[i]) == request_state::finished);
            auto const expected =
                plain_text(model, repeating_prompt(i, lengths[i], 6), {.seed = i, .max_new_tokens = 60});
            auto const text = dec.generated(ids[i]);
            CHECK(std::equal(text.begin(), text.end(), expected.begin(), expected.end()));
        }
    }
}
