// SPDX-License-Identifier: MIT
//
// The decoder: seeds and streams, the logits hook as part of the target, models that keep state of their own.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include <sureleap/decoder.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/decoder_scene.hpp"

using namespace sureleap;
using namespace decoder_scene;

// ---- randomness ------------------------------------------------------------------------------------------------

TEST_CASE("decoder: unseeded requests have streams of their own, seeded ones share by seed") {
    constexpr std::size_t wide = 64;
    auto flat = [rows = std::vector<float>()](verify_batch const& batch) mutable {
        rows.assign(batch.rows() * wide, 0.0f);
        return logits_rows<float>{{rows.data(), batch.rows(), wide}, {}};
    };
    auto const make = [&] {
        return autoregressive{
            model_of<float>(wide, [](auto, auto logits) { std::fill(logits.begin(), logits.end(), 0.0f); }),
            {.block_size = 3, .vocabulary = wide}};
    };
    auto const streams = [&](auto rule, decoder_options const& options, std::optional<std::uint64_t> seed) {
        auto target = flat;
        decoder dec{target, make(), fixed_schedule{}, rule, options};
        std::vector<request_id> ids;
        for (std::size_t i = 0; i < options.max_requests; ++i) {
            ids.push_back(dec.submit(tokens{9}, {.seed = seed, .max_new_tokens = 24}));
        }
        while (dec.step()) {
        }
        std::vector<tokens> out;
        for (auto const id : ids) out.emplace_back(dec.generated(id).begin(), dec.generated(id).end());
        return out;
    };
    auto const distinct = [](std::vector<tokens> all) {
        std::sort(all.begin(), all.end());
        return std::adjacent_find(all.begin(), all.end()) == all.end();
    };
    auto const each_rule = [&](auto rule) {
        auto const first = streams(rule, {.max_requests = 5, .seed = 77}, {});
        CHECK(distinct(first));
        CHECK(streams(rule, {.max_requests = 5, .seed = 77}, {}) == first);  // reproducible when asked for
        CHECK(streams(rule, {.max_requests = 5, .seed = 78}, {}) != first);
        CHECK(distinct(streams(rule, {.max_requests = 5}, {})));
        CHECK(streams(rule, {.max_requests = 2}, {}) != streams(rule, {.max_requests = 2}, {}));
        // The request's id and place are no part of a key.
        auto const seeded = streams(rule, {.max_requests = 5}, 123);
        for (tokens const& text : seeded) CHECK(text == seeded[0]);
        CHECK(streams(rule, {.max_requests = 1}, 123)[0] == seeded[0]);
        CHECK(streams(rule, {.max_requests = 1}, 124)[0] != seeded[0]);
    };
    each_rule(keyed_coupling{});
    each_rule(target_match<>{});
    each_rule(token_rejection<>{});
    each_rule(block_verification<>{});
}

// ---- the logits hook -------------------------------------------------------------------------------------------

namespace {

/// A grammar: parities alternate with the position of the token.
bool allowed(std::size_t position, token_id x) {
    return static_cast<std::size_t>(x) % 2 == position % 2;
}

struct parity_grammar {
    void operator()(hook_context const& at, std::span<float> logits) const {
        // x_1..x_j stand behind the anchor, so the row is for the token after them.
        std::size_t const position = static_cast<std::size_t>(at.request.position) + 1 + at.drafted.size();
        for (std::size_t v = 0; v < logits.size(); ++v) {
            if (!allowed(position, static_cast<token_id>(v))) logits[v] = -std::numeric_limits<float>::infinity();
        }
    }
};

/// Forbids what was said before: needs the drafted prefix, not only its length.
struct no_repeats {
    void operator()(hook_context const& at, std::span<float> logits) const {
        for (token_id const x : at.request.context) logits[static_cast<std::size_t>(x)] -= 8.0f;
        for (token_id const x : at.drafted) logits[static_cast<std::size_t>(x)] -= 8.0f;
    }
};

template <class Edit>
auto edited_target(Edit edit) {
    return model_of<float>(vocabulary, [edit](std::span<token_id const> context, std::span<float> logits) {
        target_language(context, logits);
        edit(context, logits);
    });
}

}  // namespace

TEST_CASE("decoder: the logits hook is part of the target, row by row") {
    job const j{{1, 4, 2},
                {.temperature = 1.2, .top_p = 0.9, .seed = 31, .max_new_tokens = 60, .log_probabilities = true}};
    auto const compare = [&](auto hook, auto edited, auto rule) {
        auto target = target_model_of();
        decoder hooked{target, draft_model_of(), fixed_schedule{}, rule, decoder_options{}, hook};
        decoder reference{edited, draft_model_of(), fixed_schedule{}, rule};
        auto const a = hooked.submit(j.prompt, j.settings);
        auto const b = reference.submit(j.prompt, j.settings);
        while (hooked.step()) {
            REQUIRE(reference.step());
            auto const& x = hooked.events()[0];
            auto const& y = reference.events()[0];
            REQUIRE(tokens(x.tokens.begin(), x.tokens.end()) == tokens(y.tokens.begin(), y.tokens.end()));
            REQUIRE(std::equal(x.log_probabilities.begin(), x.log_probabilities.end(), y.log_probabilities.begin(),
                               y.log_probabilities.end()));
        }
        CHECK(hooked.generated(a).size() == 60);
        CHECK(hooked.report().accepted() > 0);
        return tokens(reference.generated(b).begin(), reference.generated(b).end());
    };
    auto const masked = edited_target([](auto context, std::span<float> logits) {
        for (std::size_t v = 0; v < logits.size(); ++v) {
            if (!allowed(context.size(), static_cast<token_id>(v))) logits[v] = -std::numeric_limits<float>::infinity();
        }
    });
    auto const penalised = edited_target([](auto context, std::span<float> logits) {
        for (token_id const x : context) logits[static_cast<std::size_t>(x)] -= 8.0f;
    });
    auto const each_rule = [&](auto rule) {
        tokens const text = compare(parity_grammar{}, masked, rule);
        for (std::size_t i = 0; i < text.size(); ++i) REQUIRE(allowed(j.prompt.size() + i, text[i]));
        compare(no_repeats{}, penalised, rule);
    };
    each_rule(token_rejection<>{});
    each_rule(block_verification<>{});
    each_rule(keyed_coupling{});
    each_rule(target_match<>{});
}

// ---- models that keep their own state --------------------------------------------------------------------------

TEST_CASE("decoder: commit tells a stateful target what became of its rows") {
    // This target never reads request_view::context: it keeps the committed tokens itself, as an engine with a cache.
    struct stateful_target {
        tokens text;
        std::vector<float> rows{};
        std::size_t vocabulary_size = vocabulary;

        logits_rows<float> score(verify_batch const& batch) {
            rows.resize(batch.rows() * vocabulary);
            tokens context = text;
            for (std::size_t i = 0; i < batch.rows(); ++i) {
                if (i > 0) context.push_back(batch.tokens()[i]);
                REQUIRE(batch.positions()[i] == context.size() - 1);
                REQUIRE(batch.tokens()[i] == context.back());
                target_language(std::span<token_id const>(context),
                                std::span(rows).subspan(i * vocabulary, vocabulary));
            }
            return {{rows.data(), batch.rows(), vocabulary}, {}};
        }
        void commit(std::span<verdict const> verdicts) noexcept {
            text.insert(text.end(), verdicts[0].emitted.begin(), verdicts[0].emitted.end());
            REQUIRE(verdicts[0].next_anchor() == text.back());
        }
    };
    job const j{{2, 8, 1}, {.seed = 3, .max_new_tokens = 40}};
    stateful_target target{j.prompt};
    decoder dec{target, draft_model_of(), fixed_schedule{}, keyed_coupling{}};
    CHECK(run(dec, {j}, 1)[0] == plain_race(j));
}
