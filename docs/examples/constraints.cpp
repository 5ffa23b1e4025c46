// SPDX-License-Identifier: MIT
//
// A text that a grammar constrains. Its matcher says which tokens may come next; runs that it forces are drafted
// without a model and accepted as they are.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <vector>

#include <sureleap/serving.hpp>
#include <sureleap/sureleap.hpp>

using namespace sureleap;

constexpr std::size_t V = 40;

// The grammar (1 2 3 4 5 x)*, where x is one of 10 and 11.
class list_matcher {
public:
    [[nodiscard]] token_mask mask() {
        words_ = {};
        if (at_ % 6 < 5) {
            allow(1 + at_ % 6);
        } else {
            allow(10);
            allow(11);
        }
        return token_mask{words_};
    }
    bool accept(token_id token) {
        bool const allowed = mask().allows(token);
        at_ += allowed ? 1 : 0;
        return allowed;
    }
    void rollback(std::size_t n) { at_ -= n; }

private:
    void allow(std::size_t token) { words_[token / 32] |= 1u << (token % 32); }

    std::size_t at_ = 0;  // tokens accepted
    std::array<std::uint32_t, mask_words(V)> words_{};
};
static_assert(token_matcher<list_matcher>);

int main() {
    auto const likes = [](std::span<token_id const>, std::span<float> logits) {
        for (std::size_t v = 0; v < logits.size(); ++v) logits[v] = static_cast<float>(v % 3);
    };
    with_forced drafter{autoregressive{model_of<float>(V, likes), {.block_size = 3, .vocabulary = V}},
                        with_forced_options{.block_size = 8}};
    decoder dec{model_of<float>(V, likes), drafter, fixed_schedule{}, token_rejection{}, {.constrained = true}};

    constraint const grammar{list_matcher{}};
    request_id const id =
        dec.submit(std::vector<token_id>{0}, {.seed = 1, .max_new_tokens = 24, .constraint = constraint_ref{grammar}});
    while (dec.step()) {
    }
    std::printf("0");
    for (token_id const x : dec.generated(id)) std::printf(" %d", x);
    std::printf("\n%d tokens in %d calls of the target\n", static_cast<int>(dec.report().emitted()),
                static_cast<int>(dec.report().target_calls()));
}

// Prints:
// 0 1 2 3 4 5 11 1 2 3 4 5 10 1 2 3 4 5 11 1 2 3 4 5 11
// 24 tokens in 4 calls of the target
