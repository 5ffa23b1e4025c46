// SPDX-License-Identifier: MIT
//
// A scheduler of your own. It receives the causal_frontier, which shows one position of each request: the next one
// that may be verified. Admitting it reveals the one behind it. Whatever you do with that, the output keeps the
// target's law, because no decision can depend on a token it decides about.
//
// A scheduler that asks for the whole drawn block can break the law, and the compiler stops it. To see how:
//     c++ -std=c++20 -fsyntax-only -I include -DLOOK_AHEAD examples/own_scheduler.cpp
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

// Shares a budget of rows fairly: in turn, every request gets one more position, until the budget is used up or
// nothing promising is left. Algorithm 1 would give all of it to the requests with the likeliest drafts.
class fair_schedule {
public:
    fair_schedule(std::size_t rows, double least_survival) : rows_(rows), least_(least_survival * certain) {}

    void admit(causal_frontier& frontier) const noexcept {
        while (!frontier.empty()) {
            for (std::size_t r = 0; r < frontier.requests(); ++r) {
                if (!frontier.has_next(r)) continue;
                if (frontier.admitted() == rows_) return;
                if (extend_survival(frontier.survival(r), frontier.next(r).confidence) < least_) {
                    frontier.close(r);
                } else {
                    frontier.admit(r);
                }
            }
        }
    }

private:
    std::size_t rows_;
    double least_;  // a survival is a count of 2^-24
};
static_assert(frontier_scheduler<fair_schedule>);

// Looks harmless: verify a block if all of it is likely to be accepted, or nothing of it. But the survival of position
// k+1 depends on the token x_k, so x_k influences whether x_k is verified. Tokens after which the draft is unsure are
// discarded more often than others. So they end up too rare in the output (the paper's Appendix A computes such a
// case).
class look_ahead_schedule {
public:
    explicit look_ahead_schedule(double least_survival) : least_(least_survival * certain) {}

    void admit(draft_table const& table, frontier_memory const& memory) const noexcept {
        for (std::size_t r = 0; r < table.survivals.requests(); ++r) {
            std::uint32_t const size = table.survivals.sizes[r];
            bool const likely = size > 0 && table.survivals.at(r, size - 1).survival >= least_;
            memory.lengths[r] = likely ? size : 0;
        }
    }

private:
    double least_;
};
static_assert(table_scheduler<look_ahead_schedule>);

constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz ";

// A toy language: vowels and consonants take turns, and each pair of letters has a taste of its own.
float follows(token_id a, std::size_t b) {
    auto const vowel = [](char c) { return std::string_view("aeiou").find(c) != std::string_view::npos; };
    auto const i = static_cast<std::size_t>(a);
    float const taste = 0.5f * static_cast<float>((5 * i + 11 * b) % 8);
    return taste + (vowel(letters[i]) != vowel(letters[b]) ? 3.0f : 0.0f);
}

template <class Schedule>
void generate(char const* name, Schedule schedule) {
    auto draft = model_of<float>(letters.size(), [](auto context, auto logits) {
        for (std::size_t v = 0; v < logits.size(); ++v) logits[v] = follows(context.back(), v);
    });
    auto target = model_of<float>(letters.size(), [](auto context, auto logits) {
        token_id const before = context[context.size() - 2];
        for (std::size_t v = 0; v < logits.size(); ++v) {
            logits[v] = follows(context.back(), v) - 0.5f * follows(before, v);
        }
    });
    autoregressive drafter{draft, top1_confidence{}, {.block_size = 4, .vocabulary = letters.size()}};

    // Here the compiler looks at schedule and rule together. With look_ahead_schedule it says
    //     sureleap: this schedule looks ahead (it sees drafted tokens it decides about), which biases rules whose
    //     guarantee is fidelity::distribution (token_rejection, block_verification). Use a schedule that only sees
    //     the causal_frontier (greedy_schedule, threshold_schedule) or plans before drafting (planned_schedule,
    //     top_k_schedule), or a rule that is exact under any schedule (target_match, keyed_coupling), or deterministic
    //     drafts (token_rejection<argmax_draft>), or pass sureleap::allow_lossy
    decoder dec{target, drafter, schedule, token_rejection{}, {.max_requests = 3, .seed = 7}};

    std::vector<std::vector<token_id>> const prompts{{11, 4}, {19, 14}, {12, 8}};
    std::vector<request_id> ids;
    for (auto const& prompt : prompts) ids.push_back(dec.submit(prompt, {.temperature = 0.7, .max_new_tokens = 32}));
    while (dec.step()) {
    }
    round_report const& report = dec.report();
    std::printf("%s: %.2f letters per request and step, %.0f %% of verified drafts accepted\n", name, report.tau(),
                100.0 * static_cast<double>(report.accepted()) / static_cast<double>(report.verified()));
    for (request_id const id : ids) {
        std::printf("    ");
        for (token_id const x : dec.generated(id)) std::putchar(letters[static_cast<std::size_t>(x)]);
        std::printf("\n");
    }
}

int main() {
    generate("everything verified", fixed_schedule{});
    generate("six rows, shared fairly", fair_schedule{6, 0.05});
#ifdef LOOK_AHEAD
    generate("all or nothing", look_ahead_schedule{0.05});
#endif
}
