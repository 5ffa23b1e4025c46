// SPDX-License-Identifier: MIT
//
// A drafter of your own that draws from rows: each position over a short list of tokens, which is kept beside the
// row of logits. Its memory is the round's, so rounds of it may overlap.
#include <cstddef>
#include <cstdio>
#include <span>
#include <type_traits>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

// Draws the next token from the two that follow the last one.
class pair_drafter {
public:
    using value_type = float;
    using memory_type = listed_rows<float>;  // rows of vocabulary() logits, and a list of tokens with each
    static constexpr bool is_deterministic = false;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = false;

    explicit pair_drafter(std::size_t target_vocabulary) : target_vocabulary_(target_vocabulary) {}
    [[nodiscard]] std::size_t block_size() const noexcept { return 4; }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return 2; }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return target_vocabulary_; }
    struct nothing {};
    [[nodiscard]] nothing forward(std::span<request_view const>) const noexcept { return {}; }

    template <class DraftRule, class Rng>
    void draw(nothing, DraftRule rule, draft_block<float>& block, memory_type const& rows, Rng& rng) const {
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            for (std::size_t k = 0; block.drafts(r, k); ++k) {
                auto const next = static_cast<std::size_t>(block.last(r)) + 1;
                auto const list = rows.next_list(block, r).first(2);  // ascending
                auto const row = rows.next(block, r);
                bool const wraps = next + 1 >= target_vocabulary_;
                list[0] = static_cast<token_id>(wraps ? 0 : next);
                list[1] = static_cast<token_id>(wraps ? 1 : next + 1);
                row[0] = 1.0f;
                row[1] = 0.0f;
                distribution<float> const q = rows.law(block, r, row, {list, target_vocabulary_});
                if (block.draw(r, rule, q, 1.0, rng) == no_token) break;
            }
        }
    }

private:
    std::size_t target_vocabulary_;
};
static_assert(drafter<pair_drafter>);
static_assert(std::is_same_v<draft_memory_t<pair_drafter, float>, listed_rows<float>>);
static_assert(std::is_same_v<draft_memory_t<lookup, float>, draft_rows<float>>);  // one that names no memory

int main() {
    auto target = model_of<float>(8, [](auto context, auto logits) {
        for (std::size_t v = 0; v < logits.size(); ++v) logits[v] = 0.0f;
        logits[static_cast<std::size_t>(context.back() + 1) % 8] = 3.0f;
    });
    decoder dec{target, pair_drafter{8}, fixed_schedule{}, token_rejection{}};
    request_id const id = dec.submit(std::vector<token_id>{0}, {.seed = 4, .max_new_tokens = 24});
    while (dec.step()) {
    }
    std::printf("0");
    for (token_id const x : dec.generated(id)) std::printf(" %d", x);
    std::printf("\n%d of %d drafts accepted\n", static_cast<int>(dec.report().accepted()),
                static_cast<int>(dec.report().drafted()));

    // What a round carves for it.
    draft_shape const shape{.requests = 2, .block_size = 4, .vocabulary = 2};
    workspace counted;
    listed_rows<float> const memory{counted, shape, pair_drafter{8}};
    std::printf("rows and lists of two requests take %zu bytes\n", counted.used());
}

// Prints:
// 0 7 0 4 5 6 7 0 3 4 6 7 0 1 0 1 2 3 4 5 6 0 1 2 3
// 16 of 32 drafts accepted
// rows and lists of two requests take 320 bytes
