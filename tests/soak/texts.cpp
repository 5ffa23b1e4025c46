// SPDX-License-Identifier: MIT
//
// A large text store under several threads, for the thread sanitizer: half of them add texts of tenants, half search.
// Meanwhile a corpus is saved, mapped and searched by all of them. What is checked besides:
//   - every match is one: the tokens before the place are those of the context, as many as it says, and no more;
//   - nothing crosses tenants: tokens of tenant t lie in [1000 t, 1000 t + 1000), those of the corpus below;
//   - a text that was added is found;
//   - a file of which a byte was changed, or which was cut, is refused.
//
//     soak.texts --tokens 10000000 --threads 8 --seed 1
#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <sureleap/core/error.hpp>
#include <sureleap/ext/ngram_file.hpp>
#include <sureleap/serving/text_store.hpp>

#include "support/dice.hpp"

namespace {

using sureleap::fail_with;
using sureleap::ngram_view;
using sureleap::token_id;

constexpr std::uint32_t tenants = 4;
constexpr sureleap::ngram_search how{.longest = 24, .candidates = 8};

/// Of a vocabulary so small that texts repeat one another.
std::vector<token_id> text_of(support::dice& roll, token_id first, std::size_t size) {
    std::vector<token_id> text(size);
    for (token_id& x : text) x = first + static_cast<token_id>(roll.below(1000) * roll.below(1000) / 1000);
    return text;
}

/// Throws unless every match is one, and of the tokens from `first` on alone.
std::size_t check(ngram_view const& texts, std::span<token_id const> context, token_id first) {
    auto const matches = texts.find(context, how);
    for (sureleap::ngram_match const& m : matches) {
        std::size_t length = 0;
        while (length < std::min(how.longest, context.size()) && m.next > length &&
               texts[m.next - 1 - length] == context[context.size() - 1 - length]) {
            ++length;
        }
        if (length != m.length) fail_with("a match has ", length, " tokens, and is said to have ", m.length);
        token_id const x = texts[m.next];
        if (x < first || x >= first + 1000) fail_with("token ", x, " was found, expected ", first, " .. ", first + 999);
    }
    return matches.size();
}

void expect_refusal(std::filesystem::path const& path, char const* what) {
    try {
        sureleap::ngram_file const file{path};
    } catch (sureleap::error const&) {
        return;
    }
    fail_with("a file was mapped that is ", what);
}

/// Saved, and refused where a byte of it is another or the last is missing.
void save(std::filesystem::path const& path, ngram_view const& corpus, support::dice& roll) {
    sureleap::write_ngrams(path, corpus);
    auto const size = std::filesystem::file_size(path);
    auto const flip = [&](std::uint64_t at) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(static_cast<std::streamoff>(at));
        int const byte = file.get();
        file.seekp(static_cast<std::streamoff>(at));
        file.put(static_cast<char>(byte ^ 1));
    };
    for (int i = 0; i < 3; ++i) {
        std::uint64_t const at = i == 0 ? 0 : roll.below(static_cast<std::size_t>(size));
        flip(at);
        expect_refusal(path, "poisoned");
        flip(at);
    }
    std::filesystem::resize_file(path, size - 4);
    expect_refusal(path, "truncated");
    sureleap::write_ngrams(path, corpus);
}

void run(std::size_t tokens, std::size_t threads, std::uint64_t seed) {
    // Half of the tokens are a corpus, the others are the tenants'.
    support::dice roll(seed);
    sureleap::ngram_index corpus(tokens / 2);
    while (corpus.view().count() < tokens / 2) {
        corpus.append(text_of(roll, 0, 400));
        corpus.end_text();
    }
    auto const path = std::filesystem::temp_directory_path() / ("soak.texts." + std::to_string(seed) + ".ngrams");
    save(path, corpus.view(), roll);
    sureleap::ngram_file const mapped{path};
    sureleap::text_store store{{.tokens_per_tenant = tokens / 2 / tenants, .tenants = tenants}};
    store.add_for_all(mapped.view());

    std::size_t const writers = std::max<std::size_t>(threads / 2, 1);
    std::size_t const share = tokens / 2 / writers;
    std::atomic<std::size_t> writing = writers, searches = 0, found = 0;
    std::atomic<bool> failed = false;
    auto const guarded = [&](auto const& work) {
        return [&, work] {
            try {
                work();
            } catch (std::exception const& problem) {
                if (!failed.exchange(true)) std::fprintf(stderr, "soak.texts: %s\n", problem.what());
            }
        };
    };
    std::vector<std::thread> all;
    for (std::size_t t = 0; t < threads; ++t) {
        all.emplace_back(guarded([&, t] {
            support::dice mine(seed * 1000 + t);
            bool const writes = t < writers;
            std::size_t added = 0;
            while (!failed && (writes ? added < share : writing > 0)) {
                auto const tenant = static_cast<std::uint32_t>(1 + mine.below(tenants));
                auto const first = static_cast<token_id>(1000 * tenant);
                auto const text = text_of(mine, writes ? first : 0, 200);
                if (writes) {
                    store.add(tenant, text);
                    added += text.size() + 1;
                }
                store.look(tenant, [&](ngram_view const& texts) {
                    std::size_t const here = check(texts, std::span(text).first(100), first);
                    if (writes && here == 0) fail_with("a text that was added is not found");
                    ++searches;
                });
                if (!writes) found += check(mapped.view(), text, 0);
            }
            if (writes) --writing;
        }));
    }
    for (std::thread& one : all) one.join();
    std::filesystem::remove(path);
    if (failed) std::exit(EXIT_FAILURE);
    std::printf("%zu tokens, %zu threads: %zu searches of tenants' texts, %zu matches in the corpus\n", tokens, threads,
                searches.load(), found.load());
}

}  // namespace

int main(int argc, char** argv) {
    std::size_t tokens = 10'000'000, threads = 8;
    std::uint64_t seed = 1;
    for (int i = 1; i + 1 < argc; i += 2) {
        auto const value = std::strtoull(argv[i + 1], nullptr, 10);
        if (std::strcmp(argv[i], "--tokens") == 0) tokens = value;
        if (std::strcmp(argv[i], "--threads") == 0) threads = value;
        if (std::strcmp(argv[i], "--seed") == 0) seed = value;
    }
    std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
    try {
        run(tokens, threads, seed);
    } catch (std::exception const& problem) {
        std::fprintf(stderr, "soak.texts: %s\n", problem.what());
        return EXIT_FAILURE;
    }
}
