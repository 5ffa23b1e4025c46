// SPDX-License-Identifier: MIT
//
// Texts that drafts may come from: an index of a corpus, saved and mapped, and texts of tenants that do not see each
// other's. What is shown is what followed the last tokens of a context there.
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <vector>

#include <sureleap/ext/ngram_file.hpp>
#include <sureleap/serving/text_store.hpp>

using namespace sureleap;

void show(char const* where, ngram_view const& texts, std::vector<token_id> const& context) {
    ngram_matches const found = texts.find(context, ngram_search{.longest = 16, .candidates = 4});
    if (found.empty()) std::printf("%s: nothing like it\n", where);
    for (ngram_match const& match : found) {
        std::printf("%s: %zu tokens stand before", where, match.length);
        for (std::size_t k = 0; k < 3 && texts[match.next + k] != no_token; ++k) {
            std::printf(" %d", static_cast<int>(texts[match.next + k]));
        }
        std::printf("\n");
    }
}

int main() {
    ngram_index index{1000};  // tokens; the oldest make room
    for (auto const& text : {std::vector<token_id>{1, 2, 3, 4, 5}, std::vector<token_id>{9, 2, 3, 4, 7, 8}}) {
        index.append(text);
        index.end_text();
    }
    auto const path = std::filesystem::temp_directory_path() / "sureleap_example.ngrams";
    write_ngrams(path, index.view());
    {
        ngram_file const corpus{path};
        show("the corpus", corpus.view(), {0, 2, 3, 4});
    }
    std::filesystem::remove(path);

    text_store store{text_store_options{.tokens_per_tenant = 1 << 12, .tenants = 2}};
    store.add(1, std::vector<token_id>{2, 3, 4, 6});
    for (std::uint32_t const tenant : {1u, 2u}) {
        store.look(tenant,
                   [&](ngram_view const& texts) { show(tenant == 1 ? "tenant 1" : "tenant 2", texts, {0, 2, 3, 4}); });
    }
}

// Prints:
// the corpus: 3 tokens stand before 7 8
// the corpus: 3 tokens stand before 5
// tenant 1: 3 tokens stand before 6
// tenant 2: nothing like it
