// SPDX-License-Identifier: MIT
//
// A draft that speaks another vocabulary is exact, by the tokens that both have and by texts: with tokenizers that
// split differently, byte tokens, contexts that neither tokenizer would make, and merges over the end of a context.
// Every text of the target is walked, so all of these occur. 15 s to compile.
#include <sureleap/drafter/retokenised_drafts.hpp>
#include <sureleap/drafter/shared_token_model.hpp>

#include "support/exactness.hpp"
#include "support/toy_tokenizers.hpp"

using namespace exactness;
using support::splits;
using support::toy_tokenizer;

namespace {

/// The target has "ab" as a token. One draft has "ba" and "bb", a byte token that spells "a" as well, and one that ends
/// texts; another lacks "b" alone, and knows longer texts.
toy_tokenizer const target_texts{{"a", "b", "ab"}};
toy_tokenizer const draft_texts[] = {{{"", "a", "b", "ba", "bb", "a"}},
                                     {{"a", "ab", "bab", "aab"}, splits::longest_first}};

/// A model of a draft's vocabulary: what comes behind the last of its tokens.
auto model_over(world const& w, toy_tokenizer const& tokenizer) {
    return model_of<double>(tokenizer.texts.size(), [&w](std::span<token_id const> context, std::span<double> logits) {
        for (std::size_t v = 0; v < logits.size(); ++v) {
            logits[v] = 4.0 * hash01(w.seed, 6, context.back(), context.size() % 2, v) - 2.0;
        }
    });
}

/// Prompts that neither tokenizer would make; requests that join; texts that are constrained, where a token that is
/// forced may be one that the draft lacks.
std::vector<scene> scenes() {
    scene constrained{{{{1}}}, 3, 1};
    constrained.requests[0].settings.constraint = grammar;
    return {{{{{0, 2, 1}}}, 3, 1}, {{{{0, 1}}, {{2}, {}, 1}}, 2, 1}, constrained};
}

/// Every rule under schedules that are chosen at run time, so that a drafter is compiled once.
template <class Make>
void check_all(world const& w, std::span<any_schedule const> schedules, Make const& make) {
    for (any_rule const& rule :
         {any_rule{token_rejection<>{}}, any_rule{token_rejection<argmax_draft>{}}, any_rule{block_verification<>{}},
          any_rule{target_match<>{}}, any_rule{keyed_coupling{}}}) {
        for (std::size_t i = 0; i < schedules.size(); ++i) {
            for (scene const& s : scenes()) {
                check_exact("schedule " + std::to_string(i), enumerator::noise::keyed, w, s, make, schedules[i], rule);
            }
        }
    }
}

any_schedule const causal[] = {fixed_schedule{}, threshold_schedule{0.6}, greedy_schedule{smooth_capacity{}}};
any_schedule const anticipating[] = {fixed_schedule{}, threshold_schedule{0.6},
                                     retrospective_schedule{jagged_capacity{}}};

}  // namespace

TEST_CASE("drafts of tokens that two vocabularies share are exact", "[exact]") {
    for (toy_tokenizer const& tokenizer : draft_texts) {
        for (std::uint64_t const seed : {1u, 2u}) {
            world const w{seed, 3, 2};
            shared_token_model model{model_over(w, tokenizer), tokenizer, tokenizer.texts.size(), target_texts,
                                     w.vocabulary};
            check_all(w, causal, [&] { return autoregressive{model, top1_confidence{}, model.options(w.block_size)}; });
        }
    }
}

TEST_CASE("drafts of texts are exact under any schedule", "[exact]") {
    for (toy_tokenizer const& tokenizer : draft_texts) {
        for (std::uint64_t const seed : {1u, 2u}) {
            world const w{seed, 3, 3};
            check_all(w, anticipating, [&] {
                return retokenised_drafts{model_over(w, tokenizer),
                                          tokenizer,
                                          target_texts,
                                          {.block_size = w.block_size,
                                           .draft_vocabulary = tokenizer.texts.size(),
                                           .target_vocabulary = w.vocabulary}};
            });
        }
    }
}
