// SPDX-License-Identifier: MIT
//
// llama_target on tiny models of every kind of memory: the texts of speculation are those of passes of one token, rows
// are those of such passes, and a context that cannot serve is refused before the first token. Two seconds.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <sureleap/ext/llama.hpp>
#include <sureleap/sureleap.hpp>

#include "llama/support/plain_text.hpp"
#include "llama/support/tiny_models.hpp"

using namespace sureleap;
using namespace support;

namespace {

constexpr std::size_t gamma_ = 5;

[[nodiscard]] lookup lookup_of(tiny_model const& model) {
    return lookup({.block_size = gamma_, .target_vocabulary = tokens_of(model)});
}

/// Compares each row with that of passes of one token.
class checked_target {
public:
    checked_target(llama_target& target, tiny_model const& model, llama_context_params const& params)
        : target_(target), reference_(model, params) {}

    [[nodiscard]] logits_rows<float> score(verify_batch const& batch) {
        auto const rows = target_.score(batch);
        REQUIRE(target_.outcome() == llama_outcome::ok);
        std::vector<float> expected(rows.values.cols);
        for (std::size_t r = 0; r < batch.requests().size(); ++r) {
            auto const context = batch.requests()[r].context;
            std::vector<token_id> tokens(context.begin(), context.end());
            for (std::size_t k = 0; k <= batch.length(r); ++k) {
                if (k > 0) tokens.push_back(batch.drafted(r)[k - 1]);
                reference_(tokens, expected);
                auto const row = rows.values.row(batch.first_row(r) + k);
                for (std::size_t v = 0; v < expected.size(); ++v) {
                    worst = std::max(worst, std::abs(static_cast<double>(row[v]) - static_cast<double>(expected[v])));
                }
            }
        }
        rows_seen += rows.values.rows;
        return rows;
    }
    void commit(std::span<verdict const> verdicts) noexcept { target_.commit(verdicts); }

    double worst = 0.0;
    std::size_t rows_seen = 0;

private:
    llama_target& target_;
    one_by_one reference_;
};

[[nodiscard]] std::string error_of(auto const& make) {
    try {
        make();
    } catch (error const& e) {
        return e.what();
    }
    return "none";
}

}  // namespace

TEST_CASE("a request's text is that of passes of one token, whatever the memory, the batch and the places") {
    for (tiny_arch const arch : every_tiny_arch) {
        for (std::uint32_t const window : {0U, 8U}) {
            INFO(name_of(arch) << ", n_rs_seq " << window);
            tiny_model const model = make_tiny(arch, 7);
            llama_context_params params = tiny_context_params();
            params.n_rs_seq = window;
            tiny_context const context = make_context(model, params);
            tiny_model const near = make_tiny(arch, 7, {.disturbance = 0.2F});
            tiny_context const draft_context = make_context(near);
            llama_draft draft{
                draft_context.get(), llama_model_get_vocab(model.get()), {.max_requests = 3, .block_size = gamma_}};
            autoregressive drafter{draft, draft.options()};
            llama_target target{context.get(), drafter, {.max_requests = 3, .first_sequence = 2}};
            decoder dec{target, drafter, fixed_schedule{}, keyed_coupling{}, {.max_requests = 3}};

            std::vector<request_id> ids;
            std::vector<std::vector<token_id>> prompts;
            std::vector<request_settings> settings;
            for (std::size_t i = 0; i < 7; ++i) {  // more than there are places
                prompts.push_back(repeating_prompt(i, 9 + 5 * i, 3 + i % 3));
                settings.push_back({.temperature = i % 3 == 0 ? 0.0 : 0.8, .seed = i, .max_new_tokens = 12 + 3 * i});
                ids.push_back(dec.submit(prompts[i], settings[i]));
            }
            std::vector<std::vector<token_id>> texts(ids.size());
            while (dec.step()) {
                for (auto const& event : dec.events()) {
                    REQUIRE(event.outcome == status::ok);
                    auto const at =
                        static_cast<std::size_t>(std::find(ids.begin(), ids.end(), event.request) - ids.begin());
                    texts[at].insert(texts[at].end(), event.tokens.begin(), event.tokens.end());
                }
            }
            for (std::size_t i = 0; i < ids.size(); ++i) {
                INFO("request " << i);
                CHECK(texts[i] == plain_text(model, prompts[i], settings[i]));
            }
            CHECK(dec.report().accepted() > 20);
            CHECK(dec.report().verified() > dec.report().accepted());  // something was taken back
        }
    }
}

TEST_CASE("rows of a ragged batch are those of passes of one token") {
    for (tiny_arch const arch : every_tiny_arch) {
        INFO(name_of(arch));
        tiny_model const model = make_tiny(arch, 3);
        llama_context_params params = tiny_context_params();
        params.type_k = GGML_TYPE_F32;  // rounding to F16 would make small differences large
        params.type_v = GGML_TYPE_F32;
        params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
        tiny_context const context = make_context(model, params);
        auto drafter = lookup_of(model);
        llama_target target{context.get(), drafter, {.max_requests = 2}};
        checked_target checked{target, model, params};
        decoder dec{checked, drafter, fixed_schedule{}, token_rejection{}, {.max_requests = 2}};
        for (std::size_t i = 0; i < 4; ++i) {
            dec.submit(repeating_prompt(i, 10 + 3 * i, 4), {.seed = i, .max_new_tokens = 14});
        }
        while (dec.step()) {
        }
        CHECK(checked.rows_seen > 60);
        CHECK(checked.worst < 1e-4);  // logits have a standard deviation of 2
    }
}

TEST_CASE("a prompt is decoded where it goes on from the slot's text before, in chunks if that is asked") {
    tiny_model const model = make_tiny(tiny_arch::llama, 1);
    tiny_context const context = make_context(model);
    auto drafter = lookup_of(model);
    llama_target target{context.get(), drafter};
    request_settings const settings{.temperature = 0.0, .max_new_tokens = 4};
    std::vector<token_id> tokens = repeating_prompt(1, 200, 50);
    request_view request{
        .id = 1, .anchor = tokens.back(), .position = 199, .context = tokens, .remaining = 4, .settings = &settings};

    CHECK(target.prefill(request, 30) == 169);
    CHECK(target.passes() == 1);
    CHECK(target.prefill(request) == 0);  // 64 tokens a pass
    CHECK(target.passes() == 4);
    CHECK(std::ranges::equal(target.held(0), std::span(tokens).first(199)));

    std::vector<token_id> next(tokens.begin(), tokens.begin() + 150);
    next.insert(next.end(), {5, 6, 7});
    request_view const other{
        .id = 2, .anchor = 7, .position = 152, .context = next, .remaining = 4, .settings = &settings};
    CHECK(target.prefill(other, 0) == 2);  // 150 of them are there
    CHECK(target.prefill(other) == 0);
    CHECK(target.passes() == 5);

    request_view unknown = other;
    unknown.id = 3;
    unknown.context = {};
    target.prefill(unknown);
    CHECK(target.outcome() == llama_outcome::no_context);
    target.forget(0);
    CHECK(target.held(0).empty());
}

TEST_CASE("decoders one after another over one target, whose requests have the same ids") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    tiny_context const context = make_context(model);
    lookup drafter = lookup_of(model);
    llama_target target{context.get(), drafter};
    for (std::size_t i = 0; i < 3; ++i) {
        auto const prompt = repeating_prompt(i, 20, 4);
        request_settings const settings{.temperature = 0.7, .seed = i, .max_new_tokens = 12};
        decoder dec{target, drafter, fixed_schedule{}, keyed_coupling{}};
        request_id const id = dec.submit(prompt, settings);
        while (dec.step()) {
        }
        CHECK(std::ranges::equal(dec.generated(id), plain_text(model, prompt, settings)));
    }
}

TEST_CASE("an engine that counts positions itself: prompts by slot, then rows without contexts or verdicts") {
    for (tiny_arch const arch : every_tiny_arch) {
        INFO(name_of(arch));
        tiny_model const model = make_tiny(arch, 3);
        tiny_context const context = make_context(model);
        auto const text = repeating_prompt(2, 24, 7);
        std::vector<float> expected(tokens_of(model));
        one_by_one reference{model};
        request_settings const settings;
        alignas(std::max_align_t) std::array<std::byte, 4096> memory;
        // Rows at `position` and behind it, of a request that nobody has seen before.
        auto const score = [&](llama_target& target, std::size_t position, std::size_t rows) {
            request_view const request{.id = 100 + position,
                                       .slot = 1,
                                       .anchor = text[position],
                                       .position = position,
                                       .remaining = 1,
                                       .settings = &settings};
            workspace space{memory};
            verify_batch batch(space, 1, 8);
            batch.begin({&request, 1});
            batch.append(std::span(text).subspan(position + 1, rows - 1));
            auto const scored = target.score(batch);
            for (std::size_t k = 0; k < scored.values.rows; ++k) {
                reference(std::span(text).first(position + k + 1), expected);
                CHECK_THAT(scored.values.row(k)[5], Catch::Matchers::WithinAbs(expected[5], 2e-2));
            }
            return scored.values.rows;
        };
        {
            llama_target target{context.get(), {.max_requests = 2, .trusts_positions = true}};
            target.prefill(1, 0, std::span(text).first(8));
            target.prefill(1, 8, std::span(text).subspan(8, 4));
            CHECK(target.outcome() == llama_outcome::ok);
            CHECK(std::ranges::equal(target.held(1), std::span(text).first(12)));
            CHECK(target.passes() == 2);
            for (std::size_t position = 12; position < 20; position += 2) CHECK(score(target, position, 2) == 2);
            CHECK(score(target, 20, 4) == 4);
            CHECK(target.passes() == 7);
            CHECK(std::ranges::equal(target.held(1), text));

            bool const goes_back = !llama_model_is_recurrent(model.get()) && !llama_model_is_hybrid(model.get());
            CHECK(score(target, 9, 3) == (goes_back ? 3 : 0));
            CHECK(target.outcome() == (goes_back ? llama_outcome::ok : llama_outcome::no_context));

            target.prefill(1, 0, std::span(text).first(5));  // another text in its place
            CHECK(std::ranges::equal(target.held(1), std::span(text).first(5)));
            CHECK(score(target, 6, 1) == 0);  // there is a gap
            CHECK(target.outcome() == llama_outcome::no_context);
            target.prefill(0, 3, text);
            CHECK(target.outcome() == llama_outcome::no_context);
            CHECK(target.held(0).empty());
        }
        llama_target target{context.get(), {.max_requests = 2}};
        target.prefill(1, 0, std::span(text).first(12));
        CHECK(score(target, 12, 2) == 0);  // it has to say what is before it
        CHECK(target.outcome() == llama_outcome::no_context);
    }
}

TEST_CASE("a dry run is a round, saved states and what is decoded again included, and no text changes by it") {
    for (tiny_arch const arch : every_tiny_arch) {
        INFO(name_of(arch));
        tiny_model const model = make_tiny(arch, 7);
        tiny_context const context = make_context(model);
        lookup drafter = lookup_of(model);
        llama_target target{context.get(), drafter};
        // Three of five drafts are lost. A memory without a window is restored then, and two and the anchor are decoded
        // again.
        bool const has_states = llama_model_is_recurrent(model.get()) || llama_model_is_hybrid(model.get());
        bool const again = has_states && llama_n_rs_seq(context.get()) == 0;
        target.dry_run(1);
        for (std::size_t const rows : {1U, 6U, 2U, 1U, 5U}) {
            auto const before = target.passes();
            target.dry_run(rows);
            CHECK(target.passes() - before == (again && rows > 1 ? 2U : 1U));
        }
        for (int i = 0; i < 200; ++i) target.dry_run(6);  // more than the context holds
        CHECK(target.outcome() == llama_outcome::ok);
        if (!has_states) CHECK(target.held(0).empty());

        auto const prompt = repeating_prompt(3, 20, 4);
        request_settings const settings{.temperature = 0.7, .seed = 9, .max_new_tokens = 12};
        decoder dec{target, drafter, fixed_schedule{}, keyed_coupling{}};
        request_id const id = dec.submit(prompt, settings);
        while (dec.step()) {
        }
        CHECK(std::ranges::equal(dec.generated(id), plain_text(model, prompt, settings)));
    }
}

TEST_CASE("a request that outgrows the context fails with its tokens kept, and a decoder's limit keeps it out") {
    tiny_model const model = make_tiny(tiny_arch::llama, 1);
    llama_context_params params = tiny_context_params();
    params.n_ctx = 256;
    tiny_context const context = make_context(model, params);
    auto drafter = lookup_of(model);
    llama_target target{context.get(), drafter};
    CHECK(target.max_tokens() == 256);
    decoder dec{target, drafter, fixed_schedule{}, keyed_coupling{}};
    auto const prompt = repeating_prompt(1, 250, 6);
    auto const id = dec.submit(prompt, {.seed = 1, .max_new_tokens = 50});
    while (dec.step() && dec.state(id) == request_state::running) {
    }
    CHECK(dec.state(id) == request_state::suspended);
    CHECK(target.outcome() == llama_outcome::context_full);
    auto const expected = plain_text(model, prompt, {.seed = 1, .max_new_tokens = 50});
    auto const text = dec.generated(id);
    CHECK(text.size() >= 2);
    CHECK(std::equal(text.begin(), text.end(), expected.begin()));

    decoder limited{target, drafter, fixed_schedule{}, keyed_coupling{}, {.max_tokens = target.max_tokens()}};
    CHECK(error_of([&] { limited.submit(prompt, {.max_new_tokens = 50}); }).find("max_tokens = 256") !=
          std::string::npos);
}

TEST_CASE("a context that cannot serve is refused before the first token") {
    tiny_model const model = make_tiny(tiny_arch::llama, 1);
    auto const drafter = lookup_of(model);
    auto const refusal = [&](llama_context_params const& params, llama_target_options const& options,
                             lookup const& drafts) {
        tiny_context const context = make_context(model, params);
        return error_of([&] { llama_target(context.get(), drafts, options); });
    };
    llama_context_params const good = tiny_context_params();
    CHECK(refusal(good, {.max_requests = 8}, drafter) == "none");

    CHECK(error_of([&] { llama_target(nullptr, drafter); }) ==
          "llama_target: the context is null, expected what llama_init_from_model returned");
    llama_context_params params = good;
    params.kv_unified = false;
    CHECK(refusal(params, {.max_requests = 2}, drafter) ==
          "llama_target: the context keeps a cache for each sequence, which cuts batches of different lengths into "
          "several "
          "passes; set llama_context_params::kv_unified");
    CHECK(refusal(params, {.max_requests = 1}, drafter) == "none");  // one request is never ragged
    CHECK(refusal(good, {.max_requests = 16, .first_sequence = 1}, drafter) ==
          "llama_target: the sequences 1 .. 16 are needed, expected ids below n_seq_max = 16; raise "
          "llama_context_params::n_seq_max");
    CHECK(refusal(good, {.max_requests = 0}, drafter) == "llama_target: max_requests is 0, expected at least 1");
    CHECK(
        refusal(good, {.max_requests = 11}, drafter) ==
        "llama_target: a round may have 66 rows, expected at most n_batch = 64 and n_ubatch = 64; raise them, or lower "
        "max_requests or the drafter's block_size");
    params = good;
    params.n_ubatch = 8;
    CHECK(refusal(params, {.max_requests = 2}, drafter).find("n_ubatch = 8") != std::string::npos);
    params = good;
    params.embeddings = true;
    CHECK(refusal(params, {}, drafter) ==
          "llama_target: embeddings are on, so that every token of a prompt is an output; clear "
          "llama_context_params::embeddings");
    CHECK(refusal(good, {}, lookup({.block_size = 5, .target_vocabulary = 12})) ==
          "llama_target: the drafter's target vocabulary has 12 tokens, expected the model's 288; it was made for "
          "another "
          "target");
}

TEST_CASE("every code of llama_decode is an outcome, and each has a text of its own") {
    CHECK(outcome_of_code(0) == llama_outcome::ok);
    CHECK(outcome_of_code(1) == llama_outcome::no_slot);
    CHECK(outcome_of_code(2) == llama_outcome::aborted);
    CHECK(outcome_of_code(-1) == llama_outcome::invalid);
    CHECK(outcome_of_code(-2) == llama_outcome::failed);
    CHECK(outcome_of_code(-3) == llama_outcome::failed);
    std::vector<std::string> texts;
    for (int i = 0; i <= static_cast<int>(llama_outcome::too_many_paths); ++i) {
        texts.emplace_back(to_string(static_cast<llama_outcome>(i)));
    }
    std::sort(texts.begin(), texts.end());
    CHECK(std::adjacent_find(texts.begin(), texts.end()) == texts.end());
    CHECK(std::find(texts.begin(), texts.end(), "unknown outcome") == texts.end());
}

TEST_CASE("rounds that overlap: rows of an earlier pass are refused, and a verdict finds its own") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    tiny_context const context = make_context(model);
    lookup drafter = lookup_of(model);
    // Two adapters of one context, as two engines have them; the context has the rows of one pass.
    llama_target first{context.get(), drafter};
    llama_target second{context.get(), drafter, {.first_sequence = 1}};
    fixed_schedule schedule;
    philox_randomness const rng;
    request_settings const settings{.temperature = 0.7};
    struct loop {
        llama_target& target;
        std::uint64_t seed;
        std::vector<token_id> text;
        round_memory<float, float> memory;
        request_view view{};
    };
    using rule = keyed_coupling;
    loop a{first, 1, repeating_prompt(1, 20, 4), {drafter, schedule, rule{}, {}}};
    loop b{second, 2, repeating_prompt(2, 24, 4), {drafter, schedule, rule{}, {}}};
    auto const draft = [&](loop& l) -> verify_batch const& {
        l.view = {.id = 1,  // in both
                  .anchor = l.text.back(),
                  .position = l.text.size() - 1,
                  .context = l.text,
                  .seed = l.seed,
                  .remaining = 30,
                  .settings = &settings};
        static_cast<void>(begin_round(schedule, {&l.view, 1}, l.memory));
        draw(drafter, drafter.forward(l.memory.requests()), rule{}, rng, l.memory);
        return admit(schedule, l.memory);
    };
    auto const judge = [&](loop& l, logits_rows<float> const& rows) {
        accept(rule{}, rows, no_logits_hook{}, rng, l.memory);
    };
    auto const end = [&](loop& l) {
        auto const record = end_round(schedule, l.memory, l.target);
        auto const& v = record.verdicts[0];
        l.text.insert(l.text.end(), v.emitted.begin(), v.emitted.end());
        CHECK(std::ranges::equal(l.target.held(0), std::span(l.text).first(l.text.size() - 1)));
        return std::vector<verdict>{v};
    };
    for (int round = 0; round < 3; ++round) {
        auto const rows = a.target.score(draft(a));
        auto const others = b.target.score(draft(b));
        CHECK(error_of([&] { judge(a, rows); }).starts_with("accept: the target's rows are of pass "));
        judge(b, others);
        static_cast<void>(end(b));
        judge(a, a.target.score(a.memory.batch()));
        auto const verdicts = end(a);
        // Said again when the next pass is over, it is of another one.
        auto const next = a.target.score(draft(a));
        auto const held = std::vector<token_id>(a.target.held(0).begin(), a.target.held(0).end());
        a.target.commit(verdicts);
        CHECK(std::ranges::equal(a.target.held(0), held));
        judge(a, next);
        static_cast<void>(end(a));
    }
    auto const plain = [&](std::size_t i, std::size_t size, std::uint64_t seed, std::vector<token_id> const& text) {
        auto const prompt = repeating_prompt(i, size, 4);
        request_settings as_plain = settings;
        as_plain.seed = seed;
        as_plain.max_new_tokens = text.size() - size;
        return std::ranges::equal(plain_text(model, prompt, as_plain), std::span(text).subspan(size));
    };
    CHECK(plain(1, 20, 1, a.text));
    CHECK(plain(2, 24, 2, b.text));
}
