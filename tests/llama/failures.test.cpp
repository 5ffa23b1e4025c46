// SPDX-License-Identifier: MIT
//
// Passes that fail in llama.cpp: the abort callback, a cache without room, memories that are changed from outside.
// Whatever happens, each request's text is the one that it has alone, without a token lost or emitted twice. The soak
// takes some twenty seconds, because it is many thousand rounds of everything at once; elsewhere a tenth of them.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <random>
#include <span>
#include <vector>

#include <sureleap/ext/llama.hpp>
#include <sureleap/sureleap.hpp>

#include "llama/support/forgetful_target.hpp"
#include "llama/support/plain_text.hpp"
#include "llama/support/tiny_models.hpp"

using namespace sureleap;
using namespace support;

namespace {

[[nodiscard]] lookup lookup_of(tiny_model const& model) {
    return lookup({.block_size = 4, .target_vocabulary = tokens_of(model)});
}

/// Aborts when its countdown ends; llama.cpp asks before every node of a graph.
struct abort_after {
    long left = -1;  // negative: never

    static bool ask(void* self) {
        auto& left = static_cast<abort_after*>(self)->left;
        return left >= 0 && left-- == 0;
    }
};

}  // namespace

TEST_CASE("an aborted round is run again with the same tokens, wherever it was aborted") {
    for (tiny_arch const arch : every_tiny_arch) {
        for (std::uint32_t const window : {0U, 8U}) {
            INFO(name_of(arch) << ", n_rs_seq " << window);
            tiny_model const model = make_tiny(arch, 7);
            abort_after aborter;
            llama_context_params params = tiny_context_params();
            params.n_rs_seq = window;
            params.abort_callback = &abort_after::ask;
            params.abort_callback_data = &aborter;
            tiny_context const context = make_context(model, params);
            auto drafter = lookup_of(model);
            llama_target target{context.get(), drafter, {.max_requests = 2}};
            decoder dec{target, drafter, fixed_schedule{}, keyed_coupling{}, {.max_requests = 2}};
            std::vector<std::vector<token_id>> const prompts{repeating_prompt(1, 70, 3), repeating_prompt(2, 9, 4)};
            std::vector<request_settings> const settings{{.temperature = 0.7, .seed = 1, .max_new_tokens = 24},
                                                         {.temperature = 0.0, .max_new_tokens = 30}};
            std::vector<request_id> ids;
            for (std::size_t i = 0; i < 2; ++i) ids.push_back(dec.submit(prompts[i], settings[i]));
            std::vector<std::vector<token_id>> texts(2);
            std::size_t aborted = 0;
            std::mt19937 random(5);
            for (bool more = true; more;) {
                aborter.left = random() % 4 == 0 ? -1 : static_cast<long>(random() % 300);
                more = dec.step();
                for (auto const& event : dec.events()) {
                    if (event.outcome != status::ok) {
                        CHECK(target.outcome() == llama_outcome::aborted);
                        ++aborted;
                        dec.resume(event.request);
                        more = true;
                    }
                    auto& text = texts[event.request == ids[0] ? 0 : 1];
                    text.insert(text.end(), event.tokens.begin(), event.tokens.end());
                }
            }
            CHECK(aborted > 1);
            for (std::size_t i = 0; i < 2; ++i) CHECK(texts[i] == plain_text(model, prompts[i], settings[i]));
        }
    }
}

TEST_CASE("a round without a verdict takes all of its rows back, of every kind of memory") {
    for (tiny_arch const arch : every_tiny_arch) {
        for (std::uint32_t const window : {0U, 8U}) {
            INFO(name_of(arch) << ", n_rs_seq " << window);
            tiny_model const model = make_tiny(arch, 7);
            llama_context_params params = tiny_context_params();
            params.n_rs_seq = window;
            tiny_context const context = make_context(model, params);
            tiny_model const near = make_tiny(arch, 7, {.disturbance = 0.2F});
            tiny_context const draft_context = make_context(near);
            llama_draft draft{draft_context.get(), llama_model_get_vocab(model.get()), {.block_size = 4}};
            autoregressive drafter{draft, draft.options()};
            llama_target target{context.get(), drafter};
            forgetful_target forgetful{target};
            decoder dec{forgetful, drafter, fixed_schedule{}, keyed_coupling{}};
            auto const prompt = repeating_prompt(3, 15, 4);
            auto const id = dec.submit(prompt, {.temperature = 0.7, .seed = 4, .max_new_tokens = 40});
            while (dec.step()) {
                if (dec.state(id) == request_state::suspended) dec.resume(id);
            }
            CHECK(forgetful.rounds > 9);
            CHECK(std::ranges::equal(dec.generated(id),
                                     plain_text(model, prompt, {.temperature = 0.7, .seed = 4, .max_new_tokens = 40})));
        }
    }
}

TEST_CASE("where the cache has no room, requests that take no part give way, and are decoded again") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    llama_context_params params = tiny_context_params();
    params.n_ctx = 256;
    tiny_context const context = make_context(model, params);
    auto drafter = lookup_of(model);
    llama_target target{context.get(), drafter, {.max_requests = 3}};
    decoder dec{target, drafter, fixed_schedule{}, keyed_coupling{}, {.max_requests = 3}};
    std::vector<std::vector<token_id>> prompts;
    std::vector<request_id> ids;
    for (std::size_t i = 0; i < 3; ++i) {
        prompts.push_back(repeating_prompt(i, 90, 5));
        ids.push_back(dec.submit(prompts[i], {.temperature = 0.9, .seed = i, .max_new_tokens = 25}));
    }
    // All three at once need 270 cells and more.
    dec.step();
    CHECK(target.outcome() == llama_outcome::no_slot);
    for (auto const id : ids) CHECK(dec.state(id) == request_state::suspended);
    CHECK(dec.generated(ids[0]).empty());
    // Two and two fit.
    for (std::size_t turn = 0; dec.counts().finished < 3; ++turn) {
        REQUIRE(turn < 200);
        for (std::size_t i = 0; i < 3; ++i) {
            if (dec.state(ids[i]) == request_state::finished) continue;
            if (i == turn % 3) {
                dec.pause(ids[i]);
            } else {
                dec.resume(ids[i]);
            }
        }
        for (int rounds = 0; rounds < 2; ++rounds) {
            dec.step();
            for (auto const& event : dec.events()) CHECK(event.outcome == status::ok);
        }
    }
    for (std::size_t i = 0; i < 3; ++i) {
        auto const text = dec.generated(ids[i]);
        CHECK(std::ranges::equal(text,
                                 plain_text(model, prompts[i], {.temperature = 0.9, .seed = i, .max_new_tokens = 25})));
    }
}

TEST_CASE("a memory that somebody else has changed is noticed, and decoded again") {
    for (tiny_arch const arch : every_tiny_arch) {
        INFO(name_of(arch));
        tiny_model const model = make_tiny(arch, 7);
        tiny_context const context = make_context(model);
        auto drafter = lookup_of(model);
        llama_target target{context.get(), drafter};
        decoder dec{target, drafter, fixed_schedule{}, keyed_coupling{}};
        auto const prompt = repeating_prompt(4, 20, 3);
        auto const id = dec.submit(prompt, {.seed = 3, .max_new_tokens = 20});
        for (int rounds = 0; dec.step(); ++rounds) {
            if (rounds == 2) llama_memory_clear(llama_get_memory(context.get()), true);
            if (rounds == 5) llama_memory_seq_rm(llama_get_memory(context.get()), 0, 0, -1);
        }
        CHECK(std::ranges::equal(dec.generated(id), plain_text(model, prompt, {.seed = 3, .max_new_tokens = 20})));
    }
}

TEST_CASE("many rounds with joins, leaves, cancels, pauses, aborts and a full cache") {
    std::size_t const rounds = SURELEAP_TEST_QUICK ? 10000 : 100000;
    std::uint32_t const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937 random(seed);
    tiny_model const model = make_tiny(tiny_arch::llama, 7, {.layers = 1, .tokens = 64});
    abort_after aborter;
    llama_context_params params = tiny_context_params();
    params.type_k = GGML_TYPE_F32;  // rounding to F16 would make small differences large
    params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context_params const params_alone = params;
    params.n_ctx = 256;  // four requests of up to 90 tokens do not always fit
    params.abort_callback = &abort_after::ask;
    params.abort_callback_data = &aborter;
    tiny_context const context = make_context(model, params);
    auto drafter = lookup_of(model);
    llama_target target{context.get(), drafter, {.max_requests = 4}};
    decoder dec{target, drafter, fixed_schedule{}, keyed_coupling{}, {.max_requests = 4}};

    // Requests of a few kinds, so that their texts are known.
    struct kind {
        std::vector<token_id> prompt;
        request_settings settings;
        std::vector<token_id> text;
    };
    std::vector<kind> kinds;
    for (std::size_t i = 0; i < 12; ++i) {
        kind k{{}, {.temperature = i % 4 == 0 ? 0.0 : 0.8, .seed = i, .max_new_tokens = 5 + 5 * i}, {}};
        for (std::size_t t = 0; t < 8 + 2 * i; ++t) k.prompt.push_back(static_cast<token_id>((i + t % 3 * 5) % 60));
        k.text = plain_text(model, k.prompt, k.settings, {}, params_alone);
        kinds.push_back(std::move(k));
    }

    std::map<request_id, expected_text> known;
    std::size_t run = 0, level = 0;
    std::map<llama_outcome, std::size_t> seen;
    for (; run < rounds; ++run) {
        while (dec.counts().placed + dec.counts().waiting < 4 + random() % 3) {
            kind const& k = kinds[random() % kinds.size()];
            known.emplace(dec.submit(k.prompt, k.settings),
                          expected_text(model, params_alone, k.prompt, k.settings, k.text));
        }
        if (random() % 50 == 0) {
            auto const at = std::next(known.begin(), static_cast<std::ptrdiff_t>(random() % known.size()));
            if (dec.knows(at->first)) dec.cancel(at->first);
            known.erase(at);
        }
        if (random() % 20 == 0 && !known.empty()) {
            dec.pause(std::next(known.begin(), static_cast<std::ptrdiff_t>(random() % known.size()))->first);
        }
        if (random() % 10 == 0) {
            for (auto const& [id, text] : known) dec.resume(id);
        }
        aborter.left = random() % 10 == 0 ? static_cast<long>(random() % 60) : -1;
        dec.step();
        ++seen[target.outcome()];
        bool failed = false;
        for (auto const& event : dec.events()) {
            auto const at = known.find(event.request);
            REQUIRE(at != known.end());
            for (token_id const x : event.tokens) {
                INFO("round " << run << ": request " << event.request << " emits " << x);
                REQUIRE(at->second.takes(x));
            }
            failed = failed || event.outcome != status::ok;
            if (event.finished != finish_reason::none) {
                REQUIRE(at->second.has_ended());
                level += at->second.level();
                known.erase(at);
            }
        }
        // After a failure one request at a time goes on.
        if (failed) {
            auto const id = dec.events()[random() % dec.events().size()].request;
            dec.resume(id);
        }
    }
    CHECK(level <= rounds / 10000);
    CHECK(seen[llama_outcome::ok] > rounds / 2);
    CHECK(seen[llama_outcome::aborted] > rounds / 200);
    CHECK(seen[llama_outcome::no_slot] > 0);
    CHECK(seen[llama_outcome::invalid] == 0);
    CHECK(seen[llama_outcome::failed] == 0);
}
