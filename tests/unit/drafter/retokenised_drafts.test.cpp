// SPDX-License-Identifier: MIT
//
// Drafts as text, one block at a time: which tokens a text is, how sure they are, where it ends, and what the model is
// asked. That verdicts are exact is tests/property/exact_another_vocabulary.test.cpp.
#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <sureleap/drafter/context_model.hpp>
#include <sureleap/drafter/retokenised_drafts.hpp>
#include <sureleap/drafter/shared_token_model.hpp>
#include <sureleap/verify/match.hpp>

#include "support/drafted.hpp"
#include "support/error_text.hpp"
#include "support/toy_tokenizers.hpp"

using namespace sureleap;
using support::error_text;
using support::says;
using support::toy_tokenizer;
using tokens = std::vector<token_id>;

namespace {

toy_tokenizer const target{{"t", "h", "e", " ", "c", "a", "the", " c", "at", "th", "."}};
toy_tokenizer const draft{{"<end>", "t", "h", "e", " ", "c", "a", ".", "th", "at", " cat", "he"},
                          support::splits::longest_first};

/// Goes on with `story` behind a text that it begins with; each token with the probability that is given for it. Behind
/// any other text it has no law.
struct storyteller {
    std::string story;
    std::map<token_id, double> sure;
    std::vector<tokens> asked{};

    void operator()(std::span<token_id const> context, std::span<double> logits) {
        asked.emplace_back(context.begin(), context.end());
        std::fill(logits.begin(), logits.end(), 0.0);
        std::string const text = draft.text_of_all(context);
        if (!story.starts_with(text)) {
            logits[0] = std::numeric_limits<double>::quiet_NaN();
            return;
        }
        tokens const rest = draft.encode(story.substr(text.size()));
        token_id const next = rest.empty() ? 0 : rest.front();
        double const p = sure.contains(next) ? sure.at(next) : 0.9;
        double const others = static_cast<double>(logits.size() - 1);
        logits[static_cast<std::size_t>(next)] = std::log(p / (1.0 - p) * others);
    }
};

auto asks(storyteller& teller) {
    return model_of<double>(draft.texts.size(), [&](auto context, auto logits) { teller(context, logits); });
}

struct silent_end : toy_tokenizer {
    [[nodiscard]] std::string_view text_of(token_id x) const {
        return x == 0 ? std::string_view{} : toy_tokenizer::text_of(x);
    }
};
silent_end const ending{draft};

/// What is drafted behind a context.
struct told {
    tokens drafted;
    std::vector<double> confidences;
    status outcome = status::ok;
    std::vector<tokens> asked;
};
told drafted_behind(tokens const& context, storyteller teller, request_view request = {},
                    request_settings settings = {}, std::size_t block_size = 4) {
    auto model = asks(teller);
    retokenised_drafts drafter{
        model,
        ending,
        target,
        {.block_size = block_size, .draft_vocabulary = draft.texts.size(), .target_vocabulary = target.texts.size()}};
    request.anchor = context.back();
    request.position = context.size() - 1;
    request.context = context;
    if (request.remaining == 0) request.remaining = 100;
    request.settings = &settings;
    auto const out = support::draft<double>(drafter, target_match{}, std::span(&request, 1));
    told seen{{}, {}, out.block.draft_outcome(0), teller.asked};
    for (token_id const x : out.block.tokens(0)) seen.drafted.push_back(x);
    auto const table = out.block.table();
    for (std::size_t k = 0; k < seen.drafted.size(); ++k) {
        seen.confidences.push_back(static_cast<double>(table.survivals.confidence[k]) / static_cast<double>(certain));
    }
    return seen;
}

bool near(std::vector<double> const& a, std::vector<double> const& b) {
    bool good = a.size() == b.size();
    for (std::size_t i = 0; good && i < a.size(); ++i) good = std::abs(a[i] - b[i]) < 1e-6;
    return good;
}

}  // namespace

TEST_CASE("retokenised_drafts: a text becomes the target's tokens, each as sure as what it reaches") {
    // "the cat." is th|e| cat|. to the draft and the| c|at|. to the target.
    told const all = drafted_behind(tokens{3}, {" the cat.", {{8, 0.5}, {3, 0.8}, {10, 0.7}, {7, 0.6}}});
    CHECK(all.drafted == tokens{6, 7, 8, 10});
    CHECK(near(all.confidences, {0.5 * 0.8, 0.7, 1.0, 0.6}));
    CHECK(all.asked == std::vector<tokens>{{4}, {4, 8}, {4, 8, 3}, {4, 8, 3, 10}});
    // Fewer passes, a shorter text.
    CHECK(drafted_behind(tokens{3}, {" the cat.", {}}, {}, {.max_draft_tokens = 2}).drafted == tokens{6});
    CHECK(drafted_behind(tokens{3}, {" the cat.", {}}, {.remaining = 3}).drafted == tokens{6});
    CHECK(drafted_behind(tokens{3}, {" the cat.", {}}, {}, {}, 1).drafted == tokens{9});
    CHECK(drafted_behind(tokens{3}, {" the cat.", {}}, {.draft_limit = 0}).asked.empty());
}

TEST_CASE("retokenised_drafts: a text that would be merged with the anchor is drafted alone") {
    // Behind "th" the target would say "the" of both.
    CHECK(drafted_behind(tokens{3, 9}, {" the cat", {}}).drafted == tokens{2, 7, 8});
    // And the draft is told "th", which it would not make of " the" either.
    CHECK(drafted_behind(tokens{3, 9}, {" the cat", {}}).asked.front() == tokens{4, 8});
    // Behind "t" it is told "t", though it writes "he".
    CHECK(drafted_behind(tokens{3, 0}, {" the", {}}).drafted == tokens{1, 2});
}

TEST_CASE("retokenised_drafts: where a text ends") {
    // A token without a text.
    told const ends = drafted_behind(tokens{3}, {" the", {}});
    CHECK(ends.drafted == tokens{6});
    CHECK(ends.outcome == status::ok);
    CHECK(ends.asked.size() == 3);
    // No law: what was written before is drafted.
    told const lost = drafted_behind(tokens{3, 4}, {" cat", {}});
    CHECK(lost.drafted == tokens{8});
    told const nothing = drafted_behind(tokens{10}, {" cat", {}});
    CHECK(nothing.drafted.empty());
    CHECK(nothing.outcome == status::invalid_draft);
    // The floor: 0.5 * 0.8 is above it, and 0.7 of that is not. The model is not asked further.
    request_view floored{};
    REQUIRE(quantise(0.35, floored.draft_floor));
    told const low = drafted_behind(tokens{3}, {" the cat.", {{8, 0.5}, {3, 0.8}, {10, 0.7}}}, floored);
    CHECK(low.drafted == tokens{6});
    CHECK(low.asked.size() == 3);
    // A stop token of the target.
    tokens const stops{7};
    CHECK(drafted_behind(tokens{3}, {" the cat.", {}}, {}, {.stop_tokens = stops}).drafted == tokens{6, 7});
}

TEST_CASE("retokenised_drafts and shared_token_model: what is refused") {
    storyteller teller{"", {}};
    auto model = asks(teller);
    auto const refused = [&](retokenised_options const& options) {
        return error_text([&] { retokenised_drafts{model, draft, target, options}; });
    };
    CHECK(says(refused({.block_size = 0, .draft_vocabulary = 12, .target_vocabulary = 11}), "block_size (gamma)"));
    CHECK(says(refused({.draft_vocabulary = 12}), {"draft_vocabulary is 12", "target_vocabulary 0"}));
    CHECK(says(refused({.target_vocabulary = 11}), {"draft_vocabulary is 0", "target_vocabulary 11"}));
    toy_tokenizer const other{{"x", "y"}};
    CHECK(says(error_text([&] { shared_token_model{model, draft, 12, other, 2}; }), "shared_tokens"));
}

TEST_CASE("shared_token_model: rows of shared tokens, asked in the draft's own") {
    storyteller teller{" the cat.", {{10, 0.7}}};
    auto model = asks(teller);
    shared_token_model shared{model, draft, draft.texts.size(), target, target.texts.size()};
    // t h e " " c a . th at are in both; <end>, " cat" and "he" are not.
    auto const ids = shared.shared().ids();
    CHECK(tokens(ids.begin(), ids.end()) == tokens{1, 2, 3, 4, 5, 6, 7, 8, 9});
    auto const options = shared.options(3);
    CHECK(options.vocabulary == 9);
    CHECK(options.target_vocabulary() == 11);
    tokens const context{3, 6};
    request_settings const settings{};
    request_view const request{.anchor = 6, .position = 1, .context = context, .remaining = 10, .settings = &settings};
    tokens const prefix{3, 4};  // " c"
    auto const rows = shared.forward(std::span(&request, 1), {prefix.data(), 3, 2});
    CHECK(teller.asked.back() == tokens{4, 8, 3, 4, 5});
    REQUIRE(rows.values.rows == 1);
    REQUIRE(rows.values.cols == 9);
    auto const row = rows.values.row(0);
    CHECK(std::max_element(row.begin(), row.end()) - row.begin() == 8);  // "at"
    // A token that the draft lacks is told as the first of its text's.
    tokens const forced{7};  // " c"
    static_cast<void>(shared.forward(std::span(&request, 1), {forced.data(), 3, 1}));
    CHECK(teller.asked.back() == tokens{4, 8, 3, 4});
}
