// SPDX-License-Identifier: MIT
//
// Adapters around a planner, one inside the other: a budget that does not jump between stairs, requests that were
// promised a speed, drafts only where they pay, and ranks that agree on the batch.
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include <sureleap/serving.hpp>
#include <sureleap/sureleap.hpp>

using namespace sureleap;

// What an engine of several ranks would do by a broadcast. Here is one rank, which agrees with itself.
struct only_rank {
    std::size_t operator()(std::size_t batch) const noexcept { return batch; }
};
static_assert(batch_exchange<only_rank>);

auto make_schedule() {
    additive_cost const cost{{.fixed = 4e-3, .batch_token = 4e-4, .draft_fixed = 4e-4}};
    hysteresis steady{top_k_schedule{cost}, hysteresis_options{.margin = 0.02}};
    speed_targets fast{steady, speed_target_options{.window = 16.0, .most = 7.0}};
    never_lose careful{fast, never_lose_options{.prior = 0.7}};
    return agreed{careful, only_rank{}};
}
using schedule_type = decltype(make_schedule());
static_assert(planner<schedule_type> && sized_part<schedule_type>);  // still a planner, with memory for each slot
static_assert(draft_limiter<schedule_type> && draft_stopper<schedule_type> && round_observer<schedule_type>);

int main() {
    auto const model = [](float draft) {
        return model_of<float>(16, [=](std::span<token_id const> context, std::span<float> logits) {
            auto const x = static_cast<std::size_t>(context.back());
            for (std::size_t v = 0; v < logits.size(); ++v) {
                logits[v] = static_cast<float>((5 * x + 3 * v) % 7) + draft * static_cast<float>((x + 2 * v) % 5);
            }
        });
    };
    autoregressive drafter{model(0.4f), top1_confidence{}, {.block_size = 4, .vocabulary = 16}};
    decoder dec{model(0.0f), drafter, make_schedule(), token_rejection{}, {.max_requests = 4, .seed = 1}};
    std::vector<request_id> ids;
    for (token_id x = 0; x < 4; ++x) {
        // The first one was promised more tokens a second than the others get.
        ids.push_back(
            dec.submit(std::vector<token_id>{x},
                       {.temperature = 0.5, .max_new_tokens = 60, .tokens_per_second = x == 0 ? 400.0 : 0.0}));
    }
    std::size_t steps = 0;
    while (dec.state(ids[0]) == request_state::running && dec.step()) ++steps;
    std::printf("the first is done after %zu steps\n", steps);
    for (std::size_t i = 1; i < ids.size(); ++i) {
        std::printf("request %d has %d of 60 tokens\n", static_cast<int>(ids[i]),
                    static_cast<int>(dec.generated(ids[i]).size()));
    }
}

// Prints:
// the first is done after 25 steps
// request 2 has 40 of 60 tokens
// request 3 has 42 of 60 tokens
// request 4 has 48 of 60 tokens
