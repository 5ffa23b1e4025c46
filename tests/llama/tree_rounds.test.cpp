// SPDX-License-Identifier: MIT
//
// Decoding with draft trees over llama.cpp: texts are those of plain decoding, whatever joins, leaves, fails or is
// pushed out of the cache, and after each round the cache holds what was kept and nothing else. Some ten seconds, for
// some thousand rounds.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
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
#include "llama/support/trees.hpp"

using namespace sureleap;
using namespace support;

namespace {

constexpr std::size_t nodes = 9;

struct known_request {
    std::vector<token_id> prompt{};
    request_settings settings{};
    std::vector<token_id> text{};
};

[[nodiscard]] std::vector<known_request> known_requests(tiny_model const& model, std::size_t count,
                                                        double temperature) {
    std::vector<known_request> all;
    std::size_t const vocabulary = tokens_of(model);
    for (std::size_t i = 0; i < count; ++i) {
        known_request k{{}, {.temperature = i % 4 == 0 ? 0.0 : temperature, .seed = i, .max_new_tokens = 6 + 4 * i}};
        for (std::size_t t = 0; t < 6 + 3 * i; ++t) {
            k.prompt.push_back(static_cast<token_id>((7 * i + t % 5 * 3 + 1) % vocabulary));
        }
        k.text = plain_text(model, k.prompt, k.settings, {}, exact(tiny_context_params()));
        all.push_back(std::move(k));
    }
    return all;
}
[[nodiscard]] std::vector<std::vector<token_id>> whole_texts(std::vector<known_request> const& requests) {
    std::vector<std::vector<token_id>> texts;
    for (known_request const& k : requests) {
        texts.push_back(k.prompt);
        texts.back().insert(texts.back().end(), k.text.begin(), k.text.end());
    }
    return texts;
}

/// Aborts when its countdown ends; llama.cpp asks before every node of a graph.
struct abort_after {
    long left = -1;  // negative: never

    static bool ask(void* self) {
        auto& left = static_cast<abort_after*>(self)->left;
        return left >= 0 && left-- == 0;
    }
    void attach(llama_context_params& params) {
        params.abort_callback = &abort_after::ask;
        params.abort_callback_data = this;
    }
};

/// Paths that were accepted and were not the first nodes of their trees, one after another.
[[nodiscard]] std::size_t branches_taken(std::span<verdict const> verdicts) {
    return static_cast<std::size_t>(std::count_if(verdicts.begin(), verdicts.end(), [](verdict const& v) {
        for (std::size_t k = 0; k < v.path.size(); ++k) {
            if (v.path[k] != static_cast<std::int32_t>(k) + 1) return true;
        }
        return false;
    }));
}

/// More requests than there are places.
template <class Rule>
void check_texts(tiny_model const& model, Rule rule, double temperature) {
    auto const requests = known_requests(model, 7, temperature);
    llama_context_params params = exact(tree_context_params());
    params.n_ctx = 512;
    tiny_context const context = make_context(model, params);
    auto drafter = knowing_trees(nodes, tokens_of(model), whole_texts(requests));
    llama_target target{context.get(), drafter, {.max_requests = 3, .first_sequence = 2}};
    decoder dec{target, drafter, fixed_schedule{}, rule, {.max_requests = 3, .max_tokens = target.max_tokens()}};
    std::vector<request_id> ids;
    for (known_request const& k : requests) ids.push_back(dec.submit(k.prompt, k.settings));
    std::vector<std::vector<token_id>> texts(ids.size());
    std::size_t branches = 0, rounds = 0;
    while (dec.step()) {
        for (auto const& event : dec.events()) {
            REQUIRE(event.outcome == status::ok);
            auto const at = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), event.request) - ids.begin());
            texts[at].insert(texts[at].end(), event.tokens.begin(), event.tokens.end());
        }
        branches += branches_taken(dec.round().verdicts);
        REQUIRE(sequences_fit(target, context, 3, nodes, 2));
        if (++rounds % 8 == 0) REQUIRE(no_cell_is_lost(target, context, 3));
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
        INFO("request " << i);
        CHECK(texts[i] == requests[i].text);
    }
    CHECK(branches > 5);
    CHECK(dec.report().tau() > 1.5);
    CHECK(dec.report().verified() > dec.report().accepted());
}

}  // namespace

TEST_CASE("texts under trees are those of plain decoding") {
    for (tiny_arch const arch : {tiny_arch::llama, tiny_arch::qwen3}) {
        INFO(name_of(arch));
        tiny_model const model = make_tiny(arch, 7);
        check_texts(model, target_match<>{}, 0.0);
        check_texts(model, greedy_match{}, 0.0);
        check_texts(model, keyed_coupling{}, 1.0);
    }
}

TEST_CASE("a round of trees that was aborted is run again with the same tokens") {
    for (tiny_arch const arch : {tiny_arch::llama, tiny_arch::qwen3}) {
        INFO(name_of(arch));
        tiny_model const model = make_tiny(arch, 7);
        auto const requests = known_requests(model, 5, 0.8);
        abort_after aborter;
        llama_context_params params = exact(tree_context_params());
        aborter.attach(params);
        tiny_context const context = make_context(model, params);
        auto drafter = knowing_trees(nodes, tokens_of(model), whole_texts(requests));
        llama_target target{context.get(), drafter, {.max_requests = 2}};
        decoder dec{target, drafter, fixed_schedule{}, keyed_coupling{}, {.max_requests = 2}};
        std::vector<request_id> ids;
        for (known_request const& k : requests) ids.push_back(dec.submit(k.prompt, k.settings));
        std::vector<std::vector<token_id>> texts(ids.size());
        std::size_t aborted = 0;
        std::mt19937 random(5);
        for (bool more = true; more;) {
            aborter.left = random() % 4 == 0 ? -1 : static_cast<long>(random() % 120);
            more = dec.step();
            aborter.left = -1;
            for (auto const& event : dec.events()) {
                if (event.outcome != status::ok) {
                    CHECK(target.outcome() == llama_outcome::aborted);
                    ++aborted;
                    dec.resume(event.request);
                    more = true;
                }
                auto const at =
                    static_cast<std::size_t>(std::find(ids.begin(), ids.end(), event.request) - ids.begin());
                texts[at].insert(texts[at].end(), event.tokens.begin(), event.tokens.end());
            }
            REQUIRE(sequences_fit(target, context, 2, nodes));
            if (target.outcome() != llama_outcome::ok && aborted % 4 == 0) {
                REQUIRE(no_cell_is_lost(target, context, 2));
            }
        }
        CHECK(aborted > 10);
        for (std::size_t i = 0; i < ids.size(); ++i) CHECK(texts[i] == requests[i].text);
    }
}

TEST_CASE("a round of trees without a verdict takes all of its rows back") {
    tiny_model const model = make_tiny(tiny_arch::llama, 7);
    auto const requests = known_requests(model, 9, 0.7);
    tiny_context const context = make_context(model, exact(tree_context_params()));
    auto drafter = knowing_trees(nodes, tokens_of(model), whole_texts(requests));
    llama_target target{context.get(), drafter};
    forgetful_target forgetful{target};
    decoder dec{forgetful, drafter, fixed_schedule{}, keyed_coupling{}};
    auto const id = dec.submit(requests[8].prompt, requests[8].settings);
    while (dec.step()) {
        if (dec.state(id) == request_state::suspended) dec.resume(id);
    }
    CHECK(forgetful.rounds > 9);
    CHECK(std::ranges::equal(dec.generated(id), requests[8].text));
    CHECK(sequences_fit(target, context, 1, nodes));
    CHECK(no_cell_is_lost(target, context, 1));
}

TEST_CASE("hidden states of the accepted path are kept, as without speculation") {
    tiny_model const model = make_tiny(tiny_arch::qwen3, 7);
    auto const requests = known_requests(model, 6, 0.8);
    struct seen {
        std::vector<float> rows{};
        std::size_t branches = 0;
    };
    auto const run = [&](std::size_t drafts, bool take_early) {
        llama_features features{{1, 0}};
        llama_context_params params = exact(tree_context_params());
        features.attach(params);
        tiny_context const context = make_context(model, params);
        auto drafter = knowing_trees(nodes, tokens_of(model), whole_texts(requests));
        llama_target target{context.get(), drafter, {.max_requests = 1, .features = &features}};
        decoder dec{target, drafter, fixed_schedule{drafts}, keyed_coupling{}, {.max_requests = 1}};
        auto const id = dec.submit(requests[5].prompt, requests[5].settings);
        seen found;
        auto const take = [&] {
            auto const rows = features.rows(0);
            REQUIRE(features.first(0) * features.width() == found.rows.size());
            found.rows.insert(found.rows.end(), rows.data, rows.data + rows.rows * rows.cols);
            features.take(0, rows.rows);
        };
        while (dec.step()) {
            found.branches += branches_taken(dec.round().verdicts);
            if (take_early) take();
        }
        take();
        CHECK(std::ranges::equal(dec.generated(id), requests[5].text));
        return found;
    };
    auto const plain = run(0, false);
    CHECK(plain.rows.size() == (requests[5].prompt.size() + requests[5].text.size() - 1) * 128);
    float const largest = *std::max_element(plain.rows.begin(), plain.rows.end());
    for (bool const take_early : {false, true}) {
        auto const trees = run(nodes, take_early);
        CHECK(trees.branches > 0);
        REQUIRE(trees.rows.size() == plain.rows.size());
        float worst = 0.0F;
        for (std::size_t j = 0; j < plain.rows.size(); ++j) {
            worst = std::max(worst, std::abs(trees.rows[j] - plain.rows[j]));
        }
        CHECK(worst < 1e-4F * largest);
    }
}

namespace {

struct soak_counts {
    std::map<llama_outcome, std::size_t> outcomes{};
    std::size_t level = 0;
    std::size_t finished = 0;
    std::size_t branches = 0;
};

/// Rounds with joins, leaves, cancels, pauses and aborts, of four requests of up to 90 tokens.
[[nodiscard]] soak_counts soak(std::size_t rounds, std::uint32_t cells, std::uint32_t seed) {
    std::mt19937 random(seed);
    tiny_model const model = make_tiny(tiny_arch::llama, 7, {.layers = 1, .tokens = 64});
    llama_context_params params = exact(tree_context_params());
    params.n_ctx = cells;
    abort_after aborter;
    aborter.attach(params);
    tiny_context const context = make_context(model, params);
    auto const kinds = known_requests(model, 11, 0.8);
    auto drafter = knowing_trees(nodes, 64, whole_texts(kinds));
    llama_target target{context.get(), drafter, {.max_requests = 4}};
    // A tree is not verified to its end.
    decoder dec{target, drafter, fixed_schedule{nodes - 2}, keyed_coupling{}, {.max_requests = 4}};
    std::map<request_id, expected_text> known;
    soak_counts seen;
    for (std::size_t round = 0; round < rounds; ++round) {
        INFO("round " << round);
        while (dec.counts().placed + dec.counts().waiting < 4 + random() % 3) {
            known_request const& k = kinds[random() % kinds.size()];
            known.emplace(dec.submit(k.prompt, k.settings),
                          expected_text(model, exact(tiny_context_params()), k.prompt, k.settings, k.text));
        }
        auto const any = [&] { return std::next(known.begin(), static_cast<std::ptrdiff_t>(random() % known.size())); };
        if (random() % 50 == 0) {
            auto const at = any();
            if (dec.knows(at->first)) dec.cancel(at->first);
            known.erase(at);
        }
        if (random() % 20 == 0 && !known.empty()) dec.pause(any()->first);
        if (random() % 10 == 0) {
            for (auto const& [id, text] : known) dec.resume(id);
        }
        aborter.left = random() % 10 == 0 ? static_cast<long>(random() % 60) : -1;
        dec.step();
        aborter.left = -1;
        ++seen.outcomes[target.outcome()];
        bool failed = false;
        for (auto const& event : dec.events()) {
            auto const at = known.find(event.request);
            REQUIRE(at != known.end());
            for (token_id const x : event.tokens) REQUIRE(at->second.takes(x));
            failed = failed || event.outcome != status::ok;
            if (event.finished != finish_reason::none) {
                REQUIRE(at->second.has_ended());
                seen.level += at->second.level();
                ++seen.finished;
                known.erase(at);
            }
        }
        seen.branches += failed ? 0 : branches_taken(dec.round().verdicts);
        // After a failure one request at a time goes on.
        if (failed) dec.resume(dec.events()[random() % dec.events().size()].request);
        REQUIRE(sequences_fit(target, context, 4, nodes));
        if (round % 50 == 0) REQUIRE(no_cell_is_lost(target, context, 4));
    }
    return seen;
}

}  // namespace

TEST_CASE("many rounds of trees: no text changes, and a cache that has room for all is never full") {
    std::size_t const rounds = SURELEAP_TEST_QUICK ? 1000 : 3000;
    std::uint32_t const seed = std::random_device{}();
    INFO("seed " << seed);
    // Four requests of up to 82 tokens, their anchors and nodes fit in 512 cells, and do not always fit in 256.
    auto const roomy = soak(rounds, 512, seed);
    CHECK(roomy.outcomes.at(llama_outcome::ok) + roomy.outcomes.at(llama_outcome::aborted) == rounds);
    auto const narrow = soak(rounds, 256, seed + 1);
    for (soak_counts seen : {roomy, narrow}) {
        CHECK(seen.level <= 1 + rounds / 2000);
        CHECK(seen.outcomes[llama_outcome::ok] > rounds / 2);
        CHECK(seen.outcomes[llama_outcome::aborted] > rounds / 200);
        CHECK(seen.branches > rounds / 10);
        CHECK(seen.finished > rounds / 100);
    }
    CHECK(narrow.outcomes.at(llama_outcome::no_slot) > 0);
    CHECK(narrow.outcomes.at(llama_outcome::no_slot) + narrow.outcomes.at(llama_outcome::ok) +
              narrow.outcomes.at(llama_outcome::aborted) ==
          rounds);
}
