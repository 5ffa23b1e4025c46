// SPDX-License-Identifier: MIT
//
// Drafts that an engine drew itself: it hands over their tokens and the logits that each was drawn from, and a round
// records and judges them.
#include <array>
#include <cstddef>
#include <cstdio>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

int main() {
    constexpr std::size_t V = 6;
    auto target = model_of<float>(V, [](auto context, auto logits) {  // a token is followed by the next one
        for (float& l : logits) l = 0.0f;
        logits[static_cast<std::size_t>(context.back() + 1) % V] = 5.0f;
    });
    given_drafts drafter{given_options{.block_size = 3, .vocabulary = V}};
    fixed_schedule schedule;
    token_rejection<> const rule;
    philox_randomness rng;
    round_memory<float, float> memory{drafter, schedule, rule, {.max_requests = 1}};

    std::vector<token_id> const text{0};
    request_settings const settings{.max_new_tokens = 4};
    std::array<request_view, 1> const requests{
        {{.id = 1, .anchor = text.back(), .context = text, .seed = 3, .remaining = 4, .settings = &settings}}};

    // What the engine drafted: 1, 2, and then a 5 that the target would hardly say.
    std::array<token_id, 3> const tokens{1, 2, 5};
    std::vector<float> q(3 * V, 0.0f);
    for (std::size_t k = 0; k < 3; ++k) q[k * V + static_cast<std::size_t>(tokens[k])] = 5.0f;
    std::array<given_draft<float>, 1> const drafts{{{.tokens = tokens, .q = {q.data(), 3, V}}}};
    drafter.hand(drafts);

    if (begin_round(schedule, requests, memory)) {
        draw(drafter, drafter.forward(memory.requests()), rule, rng, memory);
    }
    accept(rule, target.score(admit(schedule, memory)), no_logits_hook{}, rng, memory);
    round_record const round = end_round(schedule, memory);
    verdict const& v = round.verdicts[0];
    std::printf("%zu of %zu drafts are accepted:", v.accepted, v.drafted);
    for (token_id const x : v.emitted) std::printf(" %d", static_cast<int>(x));
    std::puts("");
}

// Prints:
// 2 of 3 drafts are accepted: 1 2 3
