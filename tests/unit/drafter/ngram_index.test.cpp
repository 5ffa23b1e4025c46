// SPDX-License-Identifier: MIT
//
// An index of n-grams beside a scan of the texts: places, lengths, what is forgotten, and tables that hold nonsense.
// Texts by tenant, and files.
#include <sureleap/drafter/ngram_index.hpp>
#include <sureleap/ext/ngram_file.hpp>
#include <sureleap/serving/text_store.hpp>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <vector>

#include "support/common.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/on_ranks.hpp"
#include "support/scratch_folder.hpp"

using namespace sureleap;
using namespace support;

namespace {

/// By the definition: all places of the newest `kept` tokens that the context's end stands before, the newest first.
std::vector<ngram_match> scan(std::vector<token_id> const& texts, std::size_t kept, std::span<token_id const> context,
                              std::size_t longest) {
    std::size_t const oldest = texts.size() - std::min(texts.size(), kept);
    std::vector<ngram_match> all;
    for (std::size_t next = texts.size(); next-- > oldest;) {
        if (texts[next] == no_token) continue;
        std::size_t length = 0;
        while (length < std::min(longest, context.size()) && next - length > oldest) {
            token_id const x = texts[next - length - 1];
            if (x == no_token || x != context[context.size() - 1 - length]) break;
            ++length;
        }
        if (length > 0) all.push_back({next, length});
    }
    return all;
}
/// The order that a search comes to: the largest that one of the places has.
std::size_t order_of(std::vector<ngram_match> const& all) {
    std::size_t found = 0;
    for (std::size_t const n : ngram_view::orders) {
        if (std::ranges::any_of(all, [&](ngram_match const& m) { return m.length >= n; })) found = n;
    }
    return found;
}
bool operator==(ngram_match const& a, ngram_match const& b) {
    return a.next == b.next && a.length == b.length;
}

}  // namespace

TEST_CASE("ngram index: a search finds the newest places of the longest n-gram that is known") {
    std::size_t compared = 0, several = 0, missed = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        INFO("seed " << seed);
        dice roll(seed);
        std::size_t const capacity = std::size_t{1} << (4 + roll.below(6));
        std::size_t const vocabulary = 2 + roll.below(4);
        ngram_index index(capacity);
        std::vector<token_id> texts;
        ngram_search const how{.longest = 16 + roll.below(20), .candidates = ngram_matches::most};
        for (std::size_t t = 0; t < 600; ++t) {
            if (roll.chance(0.02)) {
                if (!texts.empty() && texts.back() != no_token) texts.push_back(no_token);
                index.end_text();
            }
            // What was written before is often written again, so that matches become long.
            bool const copies = texts.size() > 30 && roll.chance(0.9) && texts[texts.size() - 20] != no_token;
            texts.push_back(copies ? texts[texts.size() - 20] : static_cast<token_id>(roll.below(vocabulary)));
            index.append(texts.back());
            REQUIRE(index.view().count() == texts.size());
            std::vector<token_id> context(
                texts.end() - static_cast<std::ptrdiff_t>(std::min<std::size_t>(texts.size(), 1 + roll.below(40))),
                texts.end());
            if (auto const end = std::find(context.rbegin(), context.rend(), no_token); end != context.rend()) {
                context.erase(context.begin(), end.base());
            }
            if (roll.chance(0.3)) context.push_back(static_cast<token_id>(roll.below(vocabulary)));
            auto expected = scan(texts, capacity, context, how.longest);
            std::size_t const order = order_of(expected);
            std::erase_if(expected, [&](ngram_match const& m) { return m.length < order; });
            if (order == 0) expected.clear();
            // Places of other n-grams with the same hash are looked at as well, and count.
            auto const found = index.view().find(context, how);
            std::size_t const count = found.size();
            REQUIRE(count <= expected.size());
            missed += std::min(expected.size(), ngram_matches::most) - count;
            for (std::size_t i = 0; i < count; ++i) {
                CHECK((found[i] == expected[i]));
            }
            compared += count;
            several += count > 1 ? 1u : 0u;
        }
    }
    CHECK(compared > 100'000);
    CHECK(several > 10'000);
    CHECK(missed * 100 < compared);
}

TEST_CASE("ngram index: a place is asked for within what is kept") {
    ngram_index index(4);
    CHECK(index.view()[0] == no_token);
    CHECK(index.view().find(std::vector<token_id>{1, 2}, {}).empty());
    index.end_text();
    CHECK(index.view().count() == 0);  // of nothing there is no end
    for (token_id x = 10; x < 16; ++x) index.append(x);
    auto const all = index.view();
    CHECK(all.capacity() == 4);
    CHECK(all.count() == 6);
    CHECK(all.oldest() == 2);
    CHECK(all[1] == no_token);
    CHECK(all[2] == 12);
    CHECK(all[5] == 15);
    CHECK(all[6] == no_token);
    CHECK(error_text([] { ngram_index(0); }) == "ngram_index: capacity is 0, expected 1 .. 2147483648 tokens");
    CHECK(ngram_view().find(std::vector<token_id>{1, 2}, {}).empty());
}

TEST_CASE("ngram index: tables of nonsense are searched within their bounds, and end") {
    // Run with sanitizers as well: what a search reads lies inside of the words.
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        dice roll(seed);
        std::size_t const capacity = std::size_t{1} << (1 + roll.below(6));
        std::vector<std::uint32_t> words(capacity * ngram_view::bytes_per_token / 4);
        std::uint64_t const count = roll.chance(0.5) ? roll.below(3 * capacity) : roll.bits();
        for (std::uint32_t& w : words) {
            w = roll.chance(0.5) ? static_cast<std::uint32_t>(count - roll.below(2 * capacity))
                                 : static_cast<std::uint32_t>(roll.below(3));
        }
        ngram_view const all(words, capacity, count);
        std::vector<token_id> context(20);
        for (token_id& x : context) x = static_cast<token_id>(roll.below(3));
        for (ngram_match const& m : all.find(context, {.longest = 32, .candidates = ngram_matches::most})) {
            CHECK(m.length >= ngram_view::orders.front());
            CHECK(all[m.next] != no_token);
        }
    }
}

// ---- texts of tenants ----------------------------------------------------------------------------------------------

namespace {

std::vector<token_id> const context{5, 6, 7};
/// What followed context in the texts of a tenant, the newest first.
std::vector<token_id> followed(text_store const& store, std::uint32_t tenant) {
    std::vector<token_id> all;
    store.look(tenant, [&](ngram_view const& texts) {
        for (ngram_match const& m : texts.find(context, {})) all.push_back(texts[m.next]);
    });
    return all;
}
std::vector<token_id> text_with(token_id next) {
    return {4, 5, 6, 7, next};
}

}  // namespace

TEST_CASE("text store: what a tenant added is found for it alone, until it is forgotten") {
    text_store store{{.tokens_per_tenant = 64, .tenants = 2}};
    CHECK(followed(store, 1).empty());
    store.add(1, text_with(8));
    store.add(2, text_with(9));
    CHECK(followed(store, 1) == std::vector<token_id>{8});
    CHECK(followed(store, 2) == std::vector<token_id>{9});
    store.add(1, text_with(10));
    CHECK(followed(store, 1) == std::vector<token_id>{10, 8});
    // Two ends of texts are no text: nothing is found that runs from one over into the next.
    store.add(1, std::vector<token_id>{5, 6});
    store.add(1, std::vector<token_id>{7, 11});
    CHECK(followed(store, 1) == std::vector<token_id>{10, 8});
    // The third tenant takes the place of the one that added nothing for the longest time.
    store.add(3, text_with(12));
    CHECK(followed(store, 2).empty());
    CHECK(followed(store, 1) == std::vector<token_id>{10, 8});
    CHECK(followed(store, 3) == std::vector<token_id>{12});
    store.forget(1);
    CHECK(followed(store, 1).empty());
    CHECK(followed(store, 3) == std::vector<token_id>{12});
    CHECK(error_text([] { text_store{{.tenants = 0}}; }) == "text_store: tenants is 0, expected at least 1");
    CHECK(error_text([] { text_store{{.tokens_per_tenant = 0}}; }) ==
          "ngram_index: capacity is 0, expected 1 .. 2147483648 tokens");
}

TEST_CASE("text store: eight threads add and search at the same time") {
    // Meant for the thread sanitizer. A tenant's texts have the tenant's own token behind the context.
    text_store store{{.tokens_per_tenant = 256, .tenants = 4}};
    std::atomic<std::size_t> foreign{0}, found{0};
    on_ranks(8, [&](std::size_t thread) {
        dice roll(thread);
        for (std::size_t t = 0; t < 2000; ++t) {
            auto const tenant = static_cast<std::uint32_t>(roll.below(4));
            if (roll.chance(0.3)) store.add(tenant, text_with(static_cast<token_id>(100 + tenant)));
            for (token_id const x : followed(store, tenant)) {
                ++found;
                if (x != static_cast<token_id>(100 + tenant)) ++foreign;
            }
        }
    });
    CHECK(foreign == 0);
    CHECK(found > 10'000);
}

// ---- files ---------------------------------------------------------------------------------------------------------

TEST_CASE("ngram file: what is mapped is what was written, and anything else is refused") {
    scratch_folder const folder("ngram_file");
    auto const path = folder / "corpus.ngrams";
    ngram_index index(1000);
    dice roll(3);
    for (std::size_t i = 0; i < 3000; ++i) index.append(static_cast<token_id>(roll.below(5)));
    write_ngrams(path, index.view());
    ngram_file const file(path);
    CHECK(file.view().count() == 3000);
    CHECK(std::ranges::equal(file.view().words(), index.view().words()));
    std::vector<token_id> const end{0, 1, 2};
    auto const a = file.view().find(end, {}), b = index.view().find(end, {});
    CHECK(!a.empty());
    CHECK(std::ranges::equal(a, b, [](auto const& m, auto const& n) { return m == n; }));

    std::vector<char> bytes(std::filesystem::file_size(path));
    std::ifstream(path, std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    auto const refused = [](std::vector<char> const& of) {
        return error_text([&] { ngram_file(mapped_file::view(std::as_bytes(std::span(of)), "c.ngrams")); });
    };
    CHECK(refused(bytes).empty());
    // Cut anywhere, or with any byte of what is checked changed.
    for (std::size_t size = 0; size < bytes.size(); size += size < 40 ? 1 : 997) {
        INFO("cut to " << size);
        CHECK(!refused({bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)}).empty());
    }
    for (std::size_t t = 0; t < 100; ++t) {
        auto changed = bytes;
        std::size_t const at = t < 32 ? t : roll.below(bytes.size());
        changed[at] = static_cast<char>(changed[at] ^ static_cast<char>(1 << roll.below(8)));
        INFO("changed at " << at);
        CHECK(!refused(changed).empty());
    }
    CHECK(says(refused({}), {"c.ngrams: is no index of n-grams"}));
    CHECK(says(refused({bytes.begin(), bytes.end() - 4}),
               {"c.ngrams: has 36860 bytes of tables", "36 for each of 1024"}));
    auto changed = bytes;
    changed.back() = static_cast<char>(changed.back() + 1);
    CHECK(says(refused(changed), {"c.ngrams: its checksum is not that of its tables"}));
    CHECK(says(error_text([&] { write_ngrams(folder / "none/x", index.view()); }), {"cannot be written"}));
}
