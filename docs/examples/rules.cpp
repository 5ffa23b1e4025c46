// SPDX-License-Identifier: MIT
//
// The acceptance rules for chains: what each promises and reads, and what it emits of one request. Rules that are
// pathwise exact emit what plain decoding with the same noise would emit.
#include <cstddef>
#include <cstdio>
#include <span>
#include <type_traits>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

// The draft agrees with the target in most places.
auto model(float disagreement) {
    return model_of<float>(16, [=](std::span<token_id const> context, std::span<float> logits) {
        auto const x = static_cast<std::size_t>(context.back());
        for (std::size_t v = 0; v < logits.size(); ++v) {
            logits[v] = static_cast<float>((5 * x + 3 * v) % 7) + disagreement * static_cast<float>((2 * v) % 5);
        }
    });
}

template <acceptance_sampler Rule>
void show(char const* name, Rule const& rule, double temperature) {
    rule_traits const traits = traits_of<Rule>();
    char const* const promise = traits.guarantee == fidelity::pathwise       ? "the same tokens"
                                : traits.guarantee == fidelity::distribution ? "the same law"
                                                                             : "other";
    std::printf("%-32s %-15s %s q:", name, promise, traits.access == q_access::row ? "reads " : "ignores");

    autoregressive drafter{model(0.3f), {.block_size = 4, .vocabulary = 16}};
    // The library's rules fit behind one type, so this program has one decoder.
    decoder dec{model(0.0f), drafter, fixed_schedule{}, any_rule{rule}};
    request_id const id =
        dec.submit(std::vector<token_id>{3}, {.temperature = temperature, .seed = 7, .max_new_tokens = 12});
    while (dec.step()) {
    }
    for (token_id const x : dec.generated(id)) std::printf(" %d", x);
    std::printf(" in %d rounds\n", static_cast<int>(dec.report().rounds()));
}

int main() {
    show("token_rejection", token_rejection<>{}, 1.0);
    show("token_rejection<argmax_draft>", token_rejection<argmax_draft>{}, 1.0);
    show("block_verification", block_verification<categorical_draft>{}, 1.0);
    show("target_match", target_match<>{}, 1.0);
    show("target_match<categorical_draft>", target_match<categorical_draft>{}, 1.0);
    show("keyed_coupling", keyed_coupling{}, 1.0);
    show("greedy_match, temperature 0", greedy_match{}, 0.0);
    static_assert(std::is_same_v<keyed_coupling::draft_rule, coupled_draft>);
}

// Prints:
// token_rejection                  the same law    reads  q: 4 14 1 7 9 10 4 0 8 0 2 14 in 3 rounds
// token_rejection<argmax_draft>    the same law    reads  q: 11 14 1 5 10 4 7 2 1 0 9 8 in 8 rounds
// block_verification               the same law    reads  q: 4 14 1 7 9 10 4 0 8 0 2 14 in 3 rounds
// target_match                     the same tokens ignores q: 6 13 13 6 6 10 13 6 13 8 7 9 in 9 rounds
// target_match<categorical_draft>  the same tokens ignores q: 6 13 13 6 6 10 13 6 13 8 7 9 in 9 rounds
// keyed_coupling                   the same tokens ignores q: 11 4 9 8 14 2 1 12 10 6 6 3 in 3 rounds
// greedy_match, temperature 0      the same tokens ignores q: 4 0 2 1 5 3 4 0 2 1 5 3 in 5 rounds
