// SPDX-License-Identifier: MIT
//
// A drafter of your own, without a model: behind a token comes what followed it when the text had it last. Its members
// are all that a drafter needs; concepts.hpp says which others it may have.
#include <cstddef>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

class successor_drafter {
public:
    using value_type = float;                       // of its logits; it has none, so any type will do
    static constexpr bool is_deterministic = true;  // a draft is a function of the context: every schedule is exact
    static constexpr bool is_parallel = true;       // forward() reads no drafted token
    static constexpr bool has_confidence = false;   // it does not say how sure it is

    successor_drafter(std::size_t block_size, std::size_t vocabulary)
        : block_size_(block_size), vocabulary_(vocabulary) {}

    [[nodiscard]] std::size_t block_size() const noexcept { return block_size_; }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return 0; }  // tokens of its logits
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return vocabulary_; }

    /// The pass of a model, for all requests at once. What it returns is handed to draw.
    struct nothing {};
    [[nodiscard]] nothing forward(std::span<request_view const>) const noexcept { return {}; }

    /// Appends tokens to each request's chain. append_found says when a chain is full.
    template <class DraftRule, class Real, class Rng>
    void draw(nothing, DraftRule, draft_block<Real>& block, Rng&) const noexcept {
        auto const requests = block.requests();
        for (std::size_t r = 0; r < requests.size(); ++r) {
            token_id next = successor(requests[r].context, requests[r].anchor);
            while (next != no_token && block.append_found(r, next, vocabulary_)) {
                next = successor(requests[r].context, next);
            }
        }
    }

private:
    [[nodiscard]] static token_id successor(std::span<token_id const> context, token_id x) noexcept {
        for (std::size_t i = context.size(); i-- > 1;) {
            if (context[i - 1] == x) return context[i];
        }
        return no_token;
    }

    std::size_t block_size_;
    std::size_t vocabulary_;
};
static_assert(drafter<successor_drafter>);

constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz ";

int main() {
    // A target that likes what the text has said already.
    auto target = model_of<float>(letters.size(), [](auto context, auto logits) {
        for (std::size_t v = 0; v < logits.size(); ++v) logits[v] = static_cast<float>((7 * v) % 5) / 4.0f;
        for (std::size_t i = 1; i < context.size(); ++i) {
            if (context[i - 1] == context.back()) logits[static_cast<std::size_t>(context[i])] += 2.0f;
        }
    });
    successor_drafter drafter{6, letters.size()};
    decoder dec{target, drafter, fixed_schedule{}, token_rejection{}};

    std::vector<token_id> prompt;
    for (char const letter : std::string_view("the cat sat on the mat and the cat ")) {
        prompt.push_back(static_cast<token_id>(letters.find(letter)));
    }
    request_id const id = dec.submit(prompt, {.seed = 5, .max_new_tokens = 60});
    while (dec.step()) {
    }
    for (token_id const x : dec.generated(id)) std::putchar(letters[static_cast<std::size_t>(x)]);
    std::printf("\n%.2f letters per call of the target\n", dec.report().tau());
}
