// SPDX-License-Identifier: MIT
//
// Lookup in texts beside the context: which match counts, what places go on with, who sees whose texts, and what is
// learned of tokens that places agree on. That it is exact is tests/property/exact_drafters.
#include <sureleap/drafter/with_lookup.hpp>
#include <sureleap/serving/text_store.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include <sureleap/decoder.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/common.hpp"
#include "support/drafted.hpp"
#include "support/error_text.hpp"
#include "support/small_world.hpp"

using namespace sureleap;
using namespace small_world;
using namespace support;
using tokens = std::vector<token_id>;

namespace {

constexpr std::size_t V = 20;
constexpr std::size_t block = 4;  // gamma
world const w{1, V, block};

/// One request with a context, of a tenant.
struct one_request {
    tokens context;
    request_settings settings{};
    std::vector<request_view> views{};

    explicit one_request(tokens of, std::uint32_t tenant = 0) : context(std::move(of)) {
        settings.tenant = tenant;
        views.push_back({.id = 7,
                         .anchor = context.back(),
                         .position = context.size() - 1,
                         .context = context,
                         .seed = 3,
                         .remaining = 10,
                         .settings = &settings});
    }
    one_request(one_request const&) = delete;
    one_request& operator=(one_request const&) = delete;
};
template <class Drafter>
tokens drawn(Drafter& from, one_request const& of) {
    auto const made = draft<double>(from, target_match<>{}, of.views);
    return {made.block.tokens(0).begin(), made.block.tokens(0).end()};
}
/// Texts of everybody, one after the other.
ngram_index texts_of(std::vector<tokens> const& all) {
    ngram_index index(1000);
    for (tokens const& text : all) {
        index.append(text);
        index.end_text();
    }
    return index;
}
struct texts_for_all {
    ngram_index index;
    template <class Visit>
    void look(request_view const&, Visit const& visit) const {
        visit(index.view());
    }
};

}  // namespace

TEST_CASE("with_lookup: the longest match counts, the context's own among equals") {
    texts_for_all const texts{texts_of({{1, 2, 3, 10, 11, 12, 13, 14}})};
    with_lookup joined{semi_of(w), texts};
    static_assert(drafter<decltype(joined)>);
    CHECK(drawn(joined, one_request({0, 1, 2, 3})) == tokens{10, 11, 12, 13});
    CHECK(drawn(joined, one_request({2, 3, 5, 0, 1, 2, 3})) == tokens{10, 11, 12, 13});  // three of one, two of the own
    CHECK(drawn(joined, one_request({1, 2, 3, 5, 0, 1, 2, 3})) == tokens{5, 0, 1, 2});   // three of each
    CHECK(drawn(joined, one_request({9, 4, 2, 3})) == tokens{10, 11, 12, 13});           // two are enough
    texts_for_all const six{texts_of({{2, 3, 4, 5, 6, 7, 10}})};
    with_lookup long_matches{semi_of(w), six};  // lookup itself looks no further than five
    CHECK(drawn(long_matches, one_request({1, 2, 3, 4, 5, 6, 7, 11, 0, 1, 2, 3, 4, 5, 6, 7})) == tokens{11, 0, 1, 2});
    auto alone = semi_of(w);
    CHECK(drawn(joined, one_request({9, 4, 3})) == drawn(alone, one_request({9, 4, 3})));  // one is not
    // What lies outside of the vocabulary is matched and not drafted.
    texts_for_all const others{texts_of({{1, 2, 50, 7}, {1, 2, 50, 8, 60}, {50, 8, 3, 60}})};
    with_lookup images{semi_of(w), others};
    CHECK(drawn(images, one_request({1, 2, 50})) == tokens{8});
    CHECK(drawn(images, one_request({8, 3, 5, 50, 8, 3})) == tokens{5});  // nothing can follow the longer match there
}

TEST_CASE("with_lookup: the newest of the longest matches is followed, and the other places vote") {
    texts_for_all const texts{
        texts_of({{1, 2, 10, 11, 15}, {1, 2, 10, 12, 15}, {1, 2, 10, 12, 16}, {1, 2, 13}, {1, 2, 14}})};
    with_lookup joined{semi_of(w), texts};
    detail::found_text found;
    one_request const of({0, 1, 2});
    joined.find(of.views[0], found);
    CHECK(found.length == 2);
    CHECK(found.followed == tokens{14});
    CHECK(found.agreed == std::vector{agreement::some_places});
    one_request const longer({0, 1, 2, 10, 12});
    joined.find(longer.views[0], found);
    CHECK(found.length == 4);
    CHECK(found.followed == tokens{16});
    CHECK(found.agreed == std::vector{agreement::some_places});
    one_request const shorter({5, 2, 10});
    joined.find(shorter.views[0], found);
    CHECK(found.followed == tokens{12, 16});
    CHECK(found.agreed == std::vector{agreement::some_places, agreement::some_places});
    texts_for_all const same{texts_of({{1, 2, 10, 11}, {1, 2, 10, 12, 13, 14}})};
    with_lookup both{semi_of(w), same};
    both.find(of.views[0], found);
    CHECK(found.followed == tokens{10, 12, 13, 14});
    CHECK(found.agreed ==
          std::vector{agreement::all_places, agreement::some_places, agreement::one_place, agreement::one_place});
    // The context's own place votes as well.
    one_request const own({1, 2, 10, 19, 1, 2});
    both.find(own.views[0], found);
    CHECK(found.followed == tokens{10, 19, 1, 2});
    CHECK(found.agreed ==
          std::vector{agreement::all_places, agreement::some_places, agreement::one_place, agreement::one_place});
}

TEST_CASE("with_lookup: a request drafts from its tenant's texts and from those of everybody") {
    text_store store{{.tokens_per_tenant = 100, .tenants = 3}};
    ngram_index const corpus = texts_of({{4, 5, 6, 16, 17}});
    store.add_for_all(corpus.view());
    store.add(1, tokens{1, 2, 3, 11});
    store.add(2, tokens{1, 2, 3, 12});
    with_lookup joined{semi_of(w), store};
    auto alone = semi_of(w);
    CHECK(drawn(joined, one_request({0, 1, 2, 3}, 1)) == tokens{11});
    CHECK(drawn(joined, one_request({0, 1, 2, 3}, 2)) == tokens{12});
    CHECK(drawn(joined, one_request({0, 1, 2, 3}, 3)) == drawn(alone, one_request({0, 1, 2, 3}, 3)));
    for (std::uint32_t const tenant : {1u, 2u, 3u}) {
        CHECK(drawn(joined, one_request({4, 5, 6}, tenant)) == tokens{16, 17});
    }
    store.forget(1);
    CHECK(drawn(joined, one_request({0, 1, 2, 3}, 1)) == drawn(alone, one_request({0, 1, 2, 3}, 1)));
}

TEST_CASE("with_lookup: what is learned is learned by the length of a match, and by whether places agree") {
    texts_for_all const texts{texts_of({{1, 2, 3, 10, 11, 13}, {0, 2, 3, 10, 12}})};
    with_lookup joined{semi_of(w), texts, {.acceptance = {.assumed_weight = 1e-6}}};
    one_request const of({9, 2, 3});
    auto made = draft<double>(joined, target_match<>{}, of.views);
    REQUIRE(tokens(made.block.tokens(0).begin(), made.block.tokens(0).end()) == tokens{10, 12});
    // The first is accepted and the second is not.
    token_id const emitted[]{10, 11};
    std::vector<verdict> const verdicts{{.id = 7, .drafted = 2, .verified = 2, .accepted = 1, .emitted = emitted}};
    joined.commit(verdicts, made.block, made.memory(joined));
    auto const near = [](double a, double b) { return std::abs(a - b) < 1e-3; };
    auto const& seen = joined.acceptance();
    CHECK(near(seen(2, agreement::all_places), 1.0));
    CHECK(near(seen(3, agreement::some_places), 0.0));
    CHECK(!near(seen(2, agreement::some_places), 1.0));
    CHECK(!near(seen(2, agreement::one_place), 1.0));
    CHECK(!near(seen(3, agreement::all_places), 0.0));
}

TEST_CASE("with_lookup: a round that is run again drafts what it found, whatever was added since") {
    text_store store{{.tokens_per_tenant = 100, .tenants = 1}};
    store.add(0, tokens{1, 2, 3, 11, 12});
    bool fails = true;
    auto target = model_of<double>(V, [&](auto, auto logits) {
        if (fails) throw std::runtime_error("no memory for this pass");
        std::fill(logits.begin(), logits.end(), 0.0);
        logits[11] = 3.0;
    });
    decoder dec{target, with_lookup{semi_of(w), store}, fixed_schedule{}, token_rejection{}};
    request_id const id = dec.submit(tokens{0, 1, 2, 3}, {.seed = 1, .max_new_tokens = 4});
    for (int again = 0; again < 2; ++again) {
        CHECK_THROWS_WITH(dec.step(), "no memory for this pass");
        store.add(0, tokens{0, 1, 2, 3, 13, 14});  // a longer match
    }
    fails = false;
    dec.step();
    CHECK(dec.round().verdicts[0].outcome == status::ok);
    CHECK(dec.round().verdicts[0].drafted == 2);
    CHECK(dec.generated(id).size() == dec.round().verdicts[0].emitted.size());
    // What the round after finds is new.
    one_request const of({0, 1, 2, 3});
    with_lookup anew{semi_of(w), store};
    CHECK(drawn(anew, of) == tokens{13, 14});
}

TEST_CASE("match_acceptance: of lengths beyond the longest as much is assumed, and each learns for itself") {
    match_acceptance seen(3, {.assumed = 0.2, .assumed_longest = 0.8, .assumed_weight = 1e-6}, 5);
    for (std::size_t const length : {3u, 4u, 5u, 9u}) CHECK(seen(length) == 0.8);
    CHECK(std::abs(seen(2) - 0.5) < 1e-12);
    seen.observe(5, false);
    CHECK(seen(4) == 0.8);
    CHECK(seen(5) < 1e-3);
    CHECK(seen(9) < 1e-3);
}

TEST_CASE("with_lookup: a search of texts that is none is refused") {
    text_store const store;
    auto const refused = [&](ngram_search const& how) {
        return error_text([&] { with_lookup{semi_of(w), store, {.texts = how}}; });
    };
    CHECK(refused({}).empty());
    CHECK(refused({.longest = 15}) ==
          "with_lookup_options: texts are searched for matches of 15 tokens at 8 places, "
          "expected at least 16 and 1 .. 32");
    CHECK(says(refused({.candidates = 0}), {"at 0 places"}));
    CHECK(says(refused({.candidates = 33}), {"at 33 places"}));
}
