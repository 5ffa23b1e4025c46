// SPDX-License-Identifier: MIT
//
// A second model as a drafter: the same vocabulary and another one, catching up after rejections, rounds in which it is
// not asked, and passes that fail. A second.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
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
    llama_vocab const* const target_vocab = llama_model_get_vocab(model.get());
    tiny_context const context = make_context(small);
    llama_draft const draft{context.get(), target_vocab, {}};
    REQUIRE(draft.shared() != nullptr);
    auto const ids = draft.shared()->ids();
    CHECK(draft.options().vocabulary == ids.size());
    CHECK(ids.size() > 200);
    CHECK(ids.size() <= 270);
    llama_tokenizer const target(target_vocab);
    llama_tokenizer const own(llama_model_get_vocab(small.get()), target);
    CHECK(target.size() == 288);
    for (std::size_t d = 0; d < ids.size(); ++d) {
        auto const x = draft.shared()->map().to_target(static_cast<token_id>(d));
        CHECK(target.text_of(x) == own.text_of(ids[d]));
    }
    CHECK(llama_draft(context.get(), llama_model_get_vocab(small.get()), {}).shared() == nullptr);
    CHECK(run(model, small, fixed_schedule{}).texts == plain_texts(model));
}

TEST_CASE("a vocabulary says a text token by token as it was encoded, wherever it is cut") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    llama_vocab const* const vocab = llama_model_get_vocab(model.get());
    llama_tokenizer const own(vocab);
    std::string const begin(own.text_of(llama_vocab_bos(vocab)));
    REQUIRE(begin.front() == '\0');
    std::string const text = begin + "a word, and\n another <s> one" + begin + " \xE2\x82\xAC";
    auto const joined = [&](std::vector<token_id> const& tokens) {
        std::string all;
        for (token_id const x : tokens) all += own.text_of(x);
        return all;
    };
    auto const tokens = own.encode(text);
    CHECK(joined(tokens) == text);
    CHECK(std::count(tokens.begin(), tokens.end(), llama_vocab_bos(vocab)) == 2);  // the letters <s> are none
    std::string_view behind = text;
    for (token_id const x : tokens) {
        CHECK(joined(own.encode(behind)) == behind);
        behind.remove_prefix(own.text_of(x).size());
    }
    CHECK(own.encode(std::string_view("\0nobody\0a", 9)) == own.encode("a"));
    CHECK(own.encode(std::string_view("a\0", 2)) == own.encode("a"));
    CHECK(own.text_of(-1).empty());
    CHECK(own.text_of(288).empty());
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
        llama_tokenizer const said(llama_model_get_vocab(model.get()));
        llama_tokenizer const own(llama_model_get_vocab(small.get()), said);
        // In the draft's tokens.
        auto const length = [&](std::span<token_id const> prompt, std::span<token_id const> written) {
            if (draft.shared() == nullptr) return prompt.size() + written.size();
            std::string text;
            for (token_id const x : prompt) text += said.text_of(x);
            for (token_id const x : written) text += said.text_of(x);
            return own.encode(text).size();
        };
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
                auto const written = dec.generated(v.id);
                auto const before = written.first(written.size() - v.emitted.size());
                if (length(repeating_prompt(i, lengths[i], 6), before) > 256) late += v.drafted;
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
