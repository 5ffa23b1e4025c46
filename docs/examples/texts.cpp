// SPDX-License-Identifier: MIT
//
// Texts that drafts may come from: an index of a corpus, saved and mapped, and texts of tenants that do not see each
// other's. What is shown is what followed the last tokens of a context there, and how two tenants write a text that one
// of them wrote before.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <vector>

#include <sureleap/ext/ngram_file.hpp>
#include <sureleap/serving/text_store.hpp>
#include <sureleap/sureleap.hpp>

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

// A request that writes what its tenant wrote before finds its drafts; nobody else drafts.
void write_again(text_store const& store, std::uint32_t tenant) {
    auto target = model_of<float>(50, [](std::span<token_id const> context, std::span<float> logits) {
        for (float& l : logits) l = 0.0f;
        logits[(static_cast<std::size_t>(context.back()) * 11 + 7) % logits.size()] = 20.0f;
    });
    with_lookup drafter{no_drafter{50}, store, {.block_size = 3}};
    decoder dec{target, drafter, fixed_schedule{}, target_match{}};
    request_id const id = dec.submit(std::vector<token_id>{0, 7, 34},
                                     {.temperature = 0.0, .seed = 1, .max_new_tokens = 12, .tenant = tenant});
    std::size_t rounds = 0;
    while (dec.step()) ++rounds;
    match_acceptance const& seen = drafter.acceptance();
    std::printf(
        "tenant %u: %zu tokens in %zu rounds; found behind 5 tokens and accepted %.2f, where places agree %.2f\n",
        tenant, dec.generated(id).size(), rounds, seen(5), seen(5, agreement::all_places));
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
    std::vector<token_id> text{0};
    while (text.size() < 20) text.push_back((text.back() * 11 + 7) % 50);
    store.add(1, text);
    store.add(1, text);
    for (std::uint32_t const tenant : {1u, 2u}) write_again(store, tenant);
}

// Prints:
// the corpus: 3 tokens stand before 7 8
// the corpus: 3 tokens stand before 5
// tenant 1: 3 tokens stand before 6
// tenant 2: nothing like it
// tenant 1: 12 tokens in 3 rounds; found behind 5 tokens and accepted 0.80, where places agree 0.82
// tenant 2: 12 tokens in 12 rounds; found behind 5 tokens and accepted 0.80, where places agree 0.80
