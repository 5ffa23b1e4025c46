// SPDX-License-Identifier: MIT
//
// Drafts from outside: what is handed over wrongly is refused with the request and the numbers, and a token that its q
// excludes ends its chain. That verdicts are exact is tests/property/exact_every_drafter.test.cpp. A second.
#include <sureleap/drafter/given.hpp>

#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <sureleap/round/stages.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/recursive.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/common.hpp"
#include "support/error_text.hpp"

using namespace sureleap;
using namespace support;

namespace {

constexpr std::size_t V = 6;
constexpr std::size_t block_size = 3;

/// One request, which hands over a draft; rows of the target prefer token 2.
template <class Rule>
class one_round {
public:
    one_round(given_options const& options, Rule const& rule)
        : drafter_{options}, rule_(rule), memory_{drafter_, schedule_, rule_, {.max_requests = 1}} {
        for (std::size_t row = 0; row < p_.size() / V; ++row) p_[row * V + 2] = 40.0f;
    }
    verdict const& run(std::vector<given_draft<float>> const& drafts) {
        request_view const request{
            .id = 7, .slot = 0, .anchor = 0, .position = 3, .seed = 5, .remaining = 50, .settings = &settings_};
        drafter_.hand(drafts);
        if (begin_round(schedule_, std::span(&request, 1), memory_)) {
            draw(drafter_, drafter_.forward(memory_.requests()), rule_, rng_, memory_);
        }
        std::size_t const rows = admit(schedule_, memory_).rows();
        accept(rule_, logits_rows<float>{{p_.data(), rows, V}, {}, {}}, no_logits_hook{}, rng_, memory_);
        return end_round(schedule_, memory_).verdicts[0];
    }

private:
    given_drafts<float> drafter_;
    fixed_schedule schedule_;
    Rule rule_;
    philox_randomness rng_;
    request_settings settings_;
    round_memory<float, float> memory_;
    std::vector<float> p_ = std::vector<float>((block_size + 1) * V, 0.0f);
};
template <class Rule>
one_round(given_options const&, Rule const&) -> one_round<Rule>;

std::vector<float> const level(block_size* V, 0.0f);
std::vector<token_id> const twos{2, 2, 2};
matrix_view<float> rows_of(std::vector<float> const& numbers, std::size_t rows) {
    return {numbers.data(), rows, V};
}
given_options const chains{.block_size = block_size, .vocabulary = V};
given_options const trees{.block_size = block_size, .vocabulary = V, .trees = true};

}  // namespace

TEST_CASE("what is handed over wrongly is refused", "[given]") {
    using handed = std::vector<given_draft<float>>;
    std::vector<token_id> const four{2, 2, 2, 2};
    std::vector<node_id> const later{0, 2, 0};
    std::vector<node_id> const root{0, 1, 2};
    struct mistake {
        given_options options;
        handed drafts;
        std::string text;
    };
    mistake const mistakes[]{
        {chains, {}, "given_drafts: 0 drafts were handed over, expected one for each of the 1 requests"},
        {chains, handed(2), "given_drafts: 2 drafts were handed over, expected one for each of the 1 requests"},
        {chains,
         {{four, {}, rows_of(level, 3)}},
         "given_drafts: request 0 has 4 tokens, expected at most block_size = 3"},
        {chains, {{twos, {}, rows_of(level, 2)}}, "request 0 has q of 2 rows of 6 numbers, expected 3 rows of 6"},
        {chains,
         {{twos, {}, {level.data(), 3, V - 1}}},
         "request 0 has q of 3 rows of 5 numbers, expected 3 rows of 6"},
        {trees, {{twos, {}, rows_of(level, 3)}}, "request 0 has 0 parents, expected one for each of its 3 tokens"},
        {trees,
         {{twos, later, rows_of(level, 3)}},
         "request 0 has parents[1] = 2, expected 0 .. 1: the anchor, or 1 +"},
    };
    for (mistake const& m : mistakes) {
        INFO(m.text);
        std::string const text = m.options.trees
                                     ? error_text([&] { one_round(m.options, recursive_rejection<>{}).run(m.drafts); })
                                     : error_text([&] { one_round(m.options, token_rejection<>{}).run(m.drafts); });
        CHECK(says(text, m.text));
    }
    given_options lists = chains;
    lists.listed = 2;
    std::vector<token_id> const pairs{5, 2, 1, 2, 2, 0};
    handed const unlisted{{.tokens = twos, .q = {level.data(), 3, 2}}};
    CHECK(says(error_text([&] { one_round(lists, token_rejection<>{}).run(unlisted); }),
               "given_drafts: request 0 has lists of 0 rows of 0 tokens, expected 3 rows of 2"));
    handed const wide{{.tokens = twos, .q = {level.data(), 3, V}, .listed = {pairs.data(), 3, 2}}};
    CHECK(says(error_text([&] { one_round(lists, token_rejection<>{}).run(wide); }),
               "request 0 has q of 3 rows of 6 numbers, expected 3 rows of 2"));
    handed const found{{.tokens = twos, .parents = root, .found = true}};
    CHECK(says(error_text([&] { one_round(trees, recursive_rejection<>{}).run(found); }),
               "given_drafts: request 0 has a tree that was found, expected one that was drawn"));
    given_options more = chains;
    more.listed = V + 1;
    CHECK(says(error_text([&] { given_drafts<float>{more}; }),
               "given_options: listed is 7, expected at most vocabulary = 6"));
    given_options unkept = trees;
    unkept.keeps_q = false;
    handed const tree{{twos, root, {}}};
    CHECK(says(error_text([&] { one_round(unkept, recursive_rejection<>{}).run(tree); }),
               "given_drafts: keeps_q is false, expected the q of drawn trees: this rule tests siblings by it"));
    CHECK(error_text([&] { one_round(unkept, recursive_rejection<argmax_draft>{}).run(tree); }).empty());
    CHECK(error_text([&] { one_round(unkept, target_match<>{}).run(tree); }).empty());
    CHECK(error_text([&] { one_round(trees, target_match<>{}).run(tree); }).empty());  // reads no q
    CHECK(says(error_text([] { given_drafts<float>{given_options{.vocabulary = V}}; }),
               "given_options: block_size is 0"));
    CHECK(says(error_text([] { given_drafts<float>{given_options{.block_size = 2}}; }),
               "given_options: vocabulary is 0"));
}

TEST_CASE("a list that is none ends the drafts", "[given]") {
    given_options lists = chains;
    lists.listed = 2;
    struct list {
        std::vector<token_id> tokens;
        std::size_t accepted;
        status outcome;
    };
    list const cases[]{{{5, 2, 2, 1, 0, 2}, 3, status::ok},             // in any order
                       {{-1, 2, 2, -1, 0, 2}, 3, status::ok},           // one of the two
                       {{5, 2, 2, 2, 0, 2}, 1, status::invalid_draft},  // a token twice
                       {{5, 2, 6, 2, 0, 2}, 1, status::invalid_draft},  // none of the vocabulary
                       {{5, 2, 1, 2, 0, 4}, 2, status::invalid_draft},  // without the token
                       {{-1, -1, 1, 2, 0, 2}, 0, status::invalid_draft}};
    for (list const& l : cases) {
        one_round round(lists, token_rejection<>{});
        verdict const& v = round.run({{.tokens = twos, .q = {level.data(), 3, 2}, .listed = {l.tokens.data(), 3, 2}}});
        CHECK(v.accepted == l.accepted);
        CHECK(v.draft_outcome == l.outcome);
    }
}

TEST_CASE("tokens are accepted by the q that they come with", "[given]") {
    std::vector<float> never = level;
    never[V + 2] = -INFINITY;  // the second token cannot have been drawn
    one_round round(chains, token_rejection<>{});
    verdict const& cut = round.run({{twos, {}, rows_of(never, 3)}});
    CHECK(cut.outcome == status::ok);
    CHECK(cut.draft_outcome == status::invalid_draft);
    CHECK(cut.drafted == 1);

    std::vector<float> probabilities(block_size * V, 0.5f);  // they need not add up to 1
    given_options as_probabilities = chains;
    as_probabilities.probabilities = true;
    std::vector<token_id> const padded{2, no_token, no_token};
    std::vector<token_id> const foreign{2, 9, 2};
    one_round pads(chains, token_rejection<>{});
    verdict const& short_one = pads.run({{padded, {}, rows_of(level, 3)}});
    CHECK(short_one.draft_outcome == status::ok);
    CHECK(short_one.drafted == 1);
    one_round strays(chains, token_rejection<>{});
    verdict const& stray = strays.run({{foreign, {}, rows_of(level, 3)}});
    CHECK(stray.draft_outcome == status::invalid_draft);
    CHECK(stray.drafted == 1);

    given_options found = chains;
    found.keeps_q = false;
    CHECK(one_round(chains, token_rejection<>{}).run({{twos, {}, rows_of(level, 3)}}).accepted == 3);
    CHECK(one_round(as_probabilities, token_rejection<>{}).run({{twos, {}, rows_of(probabilities, 3)}}).accepted == 3);
    CHECK(one_round(found, token_rejection<argmax_draft>{}).run({{twos, {}, {}}}).accepted == 3);
    CHECK(one_round(chains, target_match<>{}).run({{twos, {}, rows_of(level, 3)}}).accepted == 3);
    CHECK(one_round(chains, token_rejection<>{}).run({{{}, {}, {}}}).emitted.size() == 1);
}

TEST_CASE("a tree is verified in the shape that it has", "[given]") {
    std::vector<token_id> const tokens{1, 2, 2};
    std::vector<node_id> const parents{0, 0, 2};
    one_round round(trees, recursive_rejection<>{});
    verdict const& v = round.run({{tokens, parents, rows_of(level, 3)}});
    CHECK(v.outcome == status::ok);
    CHECK(v.drafted == 3);
    CHECK(v.accepted == 2);
    CHECK(std::vector<node_id>(v.path.begin(), v.path.end()) == std::vector<node_id>{2, 3});

    for (token_id const x : {no_token, token_id{9}}) {
        std::vector<token_id> const ended{1, 2, x};
        one_round cut(trees, recursive_rejection<>{});
        verdict const& two = cut.run({{ended, parents, rows_of(level, 3)}});
        CHECK(two.drafted == 2);
        CHECK(two.draft_outcome == (x == no_token ? status::ok : status::invalid_draft));
    }
}
