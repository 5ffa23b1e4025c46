// SPDX-License-Identifier: MIT
//
// A context in another tokenizer's tokens, while it grows, is cut and changes: always its text, and with merges by rank
// what the tokenizer makes of all of it. Little is made again.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/drafter/told_requests.hpp>

#include "support/dice.hpp"
#include "support/toy_tokenizers.hpp"

using namespace sureleap;
using support::splits;
using support::toy_tokenizer;
using tokens = std::vector<token_id>;

namespace {

tokens list(std::span<token_id const> of) {
    return {of.begin(), of.end()};
}

/// All letters, and random texts of two tokens that stand before each.
toy_tokenizer random_merges(support::dice& roll, std::size_t letters, std::size_t size) {
    toy_tokenizer made;
    for (std::size_t v = 0; v < letters; ++v) made.texts.emplace_back(1, static_cast<char>('a' + v));
    while (made.texts.size() < size) {
        std::string const text = made.texts[roll.below(made.texts.size())] + made.texts[roll.below(made.texts.size())];
        if (std::find(made.texts.begin(), made.texts.end(), text) == made.texts.end()) made.texts.push_back(text);
    }
    return made;
}

/// Grows, is cut back as by drafts that were not accepted, and becomes another request's.
void change(support::dice& roll, tokens& context, std::size_t vocabulary) {
    if (roll.chance(0.05)) context.clear();
    context.resize(context.size() - roll.below(std::min<std::size_t>(context.size(), 4) + 1));
    for (std::size_t n = roll.below(6); n-- > 0;) context.push_back(static_cast<token_id>(roll.below(vocabulary)));
}

}  // namespace

TEST_CASE("retokenised_text: a merge over the end of a context") {
    toy_tokenizer const target{{"t", "h", "e", " ", "th"}};
    toy_tokenizer const draft{{"t", "h", "e", " ", "th", "the", " the"}};
    retokenised_text text;
    CHECK(list(text.follow(tokens{3, 4}, target, draft)) == tokens{3, 4});
    CHECK(list(text.follow(tokens{3, 4, 2}, target, draft)) == tokens{6});
    CHECK(list(text.follow(tokens{3, 4, 2, 3}, target, draft)) == tokens{6, 3});
    CHECK(list(text.follow(tokens{3, 4}, target, draft)) == tokens{3, 4});
    CHECK(text.follow(tokens{}, target, draft).empty());
    retokenised_text begun(tokens{5, 0});
    CHECK(list(begun.follow(tokens{3, 0}, target, draft)) == tokens{5, 0, 3, 0});
    CHECK(list(begun.follow(tokens{0, 1, 2}, target, draft)) == tokens{5, 0, 5});
    CHECK(list(begun.follow(tokens{}, target, draft)) == tokens{5, 0});
}

TEST_CASE("retokenised_text: with merges by rank, what is made of the whole text") {
    support::dice roll(1);
    for (int trial = 0; trial < 60; ++trial) {
        INFO("trial " << trial);
        auto const target = random_merges(roll, 3, 12);
        auto const draft = random_merges(roll, 3, 5 + roll.below(40));
        retokenised_text text;
        tokens context;
        for (int step = 0; step < 100; ++step) {
            change(roll, context, target.texts.size());
            REQUIRE(list(text.follow(context, target, draft)) == draft.encode(target.text_of_all(context)));
        }
    }
}

TEST_CASE("retokenised_text: of any tokenizer the same text") {
    support::dice roll(2);
    for (int trial = 0; trial < 60; ++trial) {
        INFO("trial " << trial);
        auto const target = random_merges(roll, 3, 12);
        toy_tokenizer draft = random_merges(roll, 3, 5 + roll.below(40));
        draft.how = splits::longest_first;
        retokenised_text text;
        tokens context;
        for (int step = 0; step < 100; ++step) {
            change(roll, context, target.texts.size());
            REQUIRE(draft.text_of_all(text.follow(context, target, draft)) == target.text_of_all(context));
        }
    }
}

TEST_CASE("retokenised_text: a tokenizer that loses bytes, and one that changes them, say what they would of all") {
    support::dice roll(4);
    auto const target = random_merges(roll, 4, 12);
    for (int trial = 0; trial < 30; ++trial) {
        INFO("trial " << trial);
        auto const losing = random_merges(roll, 3, 20);  // has no "d"
        struct changing {
            toy_tokenizer inner;
            [[nodiscard]] std::string_view text_of(token_id x) const { return inner.text_of(x); }
            [[nodiscard]] tokens encode(std::string_view text) const {
                std::string other(text);
                std::replace(other.begin(), other.end(), 'd', 'a');
                return inner.encode(other);
            }
        } const changes{losing};
        retokenised_text lost, changed;
        tokens context;
        for (int step = 0; step < 60; ++step) {
            change(roll, context, target.texts.size());
            std::string const text = target.text_of_all(context);
            REQUIRE(list(lost.follow(context, target, losing)) == losing.encode(text));
            REQUIRE(list(changed.follow(context, target, changes)) == changes.encode(text));
        }
    }
}

TEST_CASE("retokenised_text: few tokens are made again, whatever the length of the text") {
    support::dice roll(5);
    auto const target = random_merges(roll, 4, 16);
    struct counting {
        toy_tokenizer inner;
        std::size_t mutable bytes = 0;
        [[nodiscard]] std::string_view text_of(token_id x) const { return inner.text_of(x); }
        [[nodiscard]] tokens encode(std::string_view text) const {
            bytes += text.size();
            return inner.encode(text);
        }
    } const draft{random_merges(roll, 4, 40)};
    retokenised_text text;
    tokens context, before;
    std::size_t again = 0;
    std::size_t made = 0;
    for (int step = 0; step < 2000; ++step) {
        context.push_back(static_cast<token_id>(roll.below(16)));
        tokens const now = list(text.follow(context, target, draft));
        auto const same = std::mismatch(before.begin(), before.end(), now.begin(), now.end()).first - before.begin();
        again += before.size() - static_cast<std::size_t>(same);
        made += now.size() - static_cast<std::size_t>(same);
        before = now;
    }
    std::size_t const length = target.text_of_all(context).size();
    INFO(again << " tokens of " << before.size() << " made again, " << draft.bytes << " bytes encoded of " << length);
    CHECK(again + before.size() == made);
    CHECK(again < before.size());
    CHECK(draft.bytes < 10 * length);
}

TEST_CASE("told_requests: each request by its slot, and a request without a text") {
    toy_tokenizer const target{{"a", "b", "", "ab"}};
    toy_tokenizer const draft{{"z", "b", "a", "ba"}};
    told_requests told(draft, target, {});
    tokens const contexts[] = {{0, 1, 0}, {2}, {3}};
    request_settings const settings{};
    std::vector<request_view> views;
    for (std::size_t r = 0; r < 3; ++r) {
        views.push_back({.id = r,
                         .slot = 5 - r,
                         .anchor = contexts[r].back(),
                         .position = contexts[r].size() - 1,
                         .context = contexts[r],
                         .remaining = 9,
                         .settings = &settings});
    }
    CHECK(told.unread(views[0]) == 2);
    auto const seen = told.tell(views);
    REQUIRE(seen.size() == 3);
    CHECK(list(seen[0].context) == tokens{2, 3});
    CHECK(list(seen[1].context) == tokens{0});
    CHECK(list(seen[2].context) == tokens{2, 1});
    for (request_view const& view : seen) {
        CHECK(view.anchor == view.context.back());
        CHECK(view.position == view.context.size() - 1);
    }
    CHECK(seen[0].slot == 5);
    CHECK(seen[2].id == 2);
    CHECK(told.unread(views[0]) == 0);
    // One that drafts nothing is told nothing more.
    tokens const longer{0, 1, 0, 1, 1};
    views[0].context = longer;
    views[0].position = 4;
    CHECK(told.unread(views[0]) == 1);
    views[0].draft_limit = 0;
    CHECK(list(told.tell(views)[0].context) == tokens{2, 3});
    CHECK(told.unread(views[0]) == 1);
    views[0].draft_limit = 1;
    CHECK(list(told.tell(views)[0].context) == tokens{2, 3, 1, 1});
    CHECK(told.unread(views[0]) == 0);
    views[0].context = contexts[0];
    // With a begin of texts.
    told_requests begun(draft, target, tokens{0});
    CHECK(list(begun.tell(views)[0].context) == tokens{0, 2, 3});
    CHECK(list(begun.tell(views)[1].context) == tokens{0});
}
