// SPDX-License-Identifier: MIT
//
// A language model of another tokenizer as a draft: it reads what it has missed and nothing twice, told the engine's
// texts as its tokenizer splits them, and what it drafts changes no text. Random models write any bytes, so texts here
// are mostly no UTF-8.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <engine/draft_lm.hpp>
#include <engine/parts.hpp>
#include <engine/server.hpp>
#include <sureleap/drafter/told_requests.hpp>

#include "support/dice.hpp"
#include "support/tiny_models.hpp"
#include "support/tokenizer_data.hpp"

using namespace sureleap;

namespace {

/// The same bytes and another way to merge them: the last two thirds of the merges are not made.
engine::tokenizer fewer_merges() {
    nlohmann::json const all = support::changed_document({});
    nlohmann::json merges = all["model"]["merges"];
    merges.erase(merges.begin() + static_cast<std::ptrdiff_t>(merges.size() / 3), merges.end());
    return support::changed_tokenizer({{"model", {{"merges", merges}}}});
}

constexpr std::size_t V = 640;  // more than the tokenizer has
tiny::shape const target_shape{.vocabulary = V};
tiny::shape const small_shape{
    .layers = 1, .hidden = 16, .intermediate = 24, .heads = 2, .kv_heads = 1, .vocabulary = V};

}  // namespace

TEST_CASE("a context is told as the draft's tokenizer splits it", "[engine]") {
    engine::tokenizer const target = support::changed_tokenizer({});
    engine::tokenizer const draft = fewer_merges();
    engine::token_texts const from{&target}, to{&draft};
    static_assert(text_tokenizer<engine::token_texts>);
    std::string_view const text =
        "The water's 12345 degrees (\u00e9\u00e8 \u4e2d\u6587): don't\n\n  go   in.\r\n\tif (x == 10) { return \"a "
        "b\"; }"
        "<|im_end|>\n<|im_start|>user\nWhat?  \n \n";
    support::dice roll(1);
    // As the target would split it, and with every byte a token of its own: ends of contexts are anywhere.
    for (bool const by_bytes : {false, true}) {
        std::vector<token_id> all = target.encode(text);
        if (by_bytes) {
            all.clear();
            for (char const& c : text.substr(0, text.find("<|"))) all.push_back(*target.id_of({&c, 1}));
        }
        retokenised_text told;
        for (int step = 0; step < 400; ++step) {
            std::size_t const size = step < 200 ? std::min<std::size_t>(all.size(), static_cast<std::size_t>(step))
                                                : roll.below(all.size() + 1);
            auto const context = std::span(all).first(size);
            auto const tokens = told.follow(context, from, to);
            INFO("by bytes: " << by_bytes << ", " << size << " tokens: " << target.decode(context));
            CHECK(std::vector<token_id>(tokens.begin(), tokens.end()) == draft.encode(target.decode(context)));
        }
    }
}

TEST_CASE("a draft that goes on reading says what one says that reads all", "[engine]") {
    engine::thread_pool pool(1);
    engine::serving_limits const limits{.slots = 3, .context_length = 40, .max_rows = 8};
    tiny::agreeing_models const models(small_shape, 5);
    engine::draft_lm<float> reads(models.target(engine::storage::f32), pool, limits);
    support::dice roll(2);
    request_settings const settings{.max_draft_tokens = 3};
    std::vector<std::vector<token_id>> contexts(3, {1});
    for (int round = 0; round < 40; ++round) {
        INFO("round " << round);
        std::vector<request_view> requests;
        for (std::size_t slot = 0; slot < 3; ++slot) {
            auto& context = contexts[slot];
            if (roll.chance(0.1)) context.resize(1);
            context.resize(context.size() - roll.below(std::min<std::size_t>(context.size(), 4)));
            for (std::size_t n = roll.below(7); n-- > 0;) context.push_back(static_cast<token_id>(roll.below(V)));
            requests.push_back({.id = slot + 1,
                                .slot = slot,
                                .anchor = context.back(),
                                .position = context.size() - 1,
                                .context = context,
                                .remaining = 1 + roll.below(5),
                                .settings = &settings});
        }
        std::vector<token_id> prefixes(9);
        for (token_id& x : prefixes) x = static_cast<token_id>(roll.below(V));
        for (std::size_t k = 0; k < 3; ++k) {
            auto const rows = reads.forward(requests, {prefixes.data(), 3, k}).values;
            REQUIRE(rows.rows == 3);
            for (std::size_t r = 0; r < 3; ++r) {
                if (requests[r].draft_cap(3) <= k) continue;  // nobody reads its row
                std::vector<token_id> all = contexts[r];
                all.insert(all.end(), &prefixes[3 * r], &prefixes[3 * r] + k);
                if (all.size() > limits.context_length) {
                    CHECK(std::isnan(rows.row(r)[0]));
                    continue;
                }
                engine::draft_lm<float> fresh(models.target(engine::storage::f32), pool, limits);
                request_view const alone{.anchor = all.back(),
                                         .position = all.size() - 1,
                                         .context = all,
                                         .remaining = 9,
                                         .settings = &settings};
                auto const expected = fresh.forward(std::span(&alone, 1), {}).values.row(0);
                auto const row = rows.row(r);
                CHECK(std::equal(row.begin(), row.end(), expected.begin(), expected.end()));
            }
        }
    }
}

TEST_CASE("drafts of a model with another tokenizer change no text", "[engine]") {
    engine::thread_pool pool(1);
    engine::serving_limits const limits{.slots = 2, .context_length = 96, .max_rows = 16};
    tiny::agreeing_models const models(target_shape, 3), small(small_shape, 5);
    engine::causal_lm<float> target(models.target(engine::storage::f32), {}, pool, limits);
    engine::language_draft<float> draft(fewer_merges(), support::changed_tokenizer({}),
                                        small.target(engine::storage::f32), pool, limits);
    std::vector<std::vector<token_id>> const prompts = {draft.served.encode("The water is"), {300, 7, 601}};
    for (char const* const rule : {"match", "coupled"}) {
        for (double const temperature : {0.0, 0.8}) {
            INFO(rule << " at " << temperature);
            auto drafter = engine::make_drafter(draft, V, 4);
            engine::server<float> server(target, drafter, nullptr, fixed_schedule{}, engine::make_rule(rule), pool);
            std::vector<request_id> ids;
            request_settings settings{.temperature = temperature, .max_new_tokens = 40};
            for (std::size_t i = 0; i < prompts.size(); ++i) {
                settings.seed = i;
                ids.push_back(server.submit(prompts[i], settings));
            }
            std::vector<std::vector<token_id>> texts(prompts.size());
            while (server.step()) {
                for (auto const& event : server.events()) {
                    REQUIRE(event.outcome == status::ok);
                    auto& text =
                        texts[static_cast<std::size_t>(std::find(ids.begin(), ids.end(), event.id) - ids.begin())];
                    text.insert(text.end(), event.tokens.begin(), event.tokens.end());
                }
            }
            CHECK(server.report().drafted() > 20);
            for (std::size_t i = 0; i < prompts.size(); ++i) {
                settings.seed = i;
                CHECK(texts[i] == tiny::decode_plainly(target, prompts[i], settings, rule));
            }
        }
    }
}
