// SPDX-License-Identifier: MIT
//
// An engine that drafts by itself and only verifies here: it hands over its tokens and the logits that each was drawn
// from, and gets what to emit. No model is the library's.
#include <array>
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

constexpr std::size_t V = 6;
constexpr std::size_t block_size = 3;

// What the engine has: for each request tokens, [R, gamma], rows of q, [R, gamma, V], and of p, [R, gamma + 1, V].
struct engine_batch {
    std::array<std::array<token_id, block_size>, 2> tokens{{{1, 2, 3}, {4, 0, 5}}};
    std::vector<float> q = std::vector<float>(2 * block_size * V, 0.0f);
    std::vector<float> p = std::vector<float>(2 * (block_size + 1) * V, 0.0f);

    engine_batch() {
        for (std::size_t r = 0; r < 2; ++r) {
            for (std::size_t k = 0; k < block_size; ++k) {
                auto const x = static_cast<std::size_t>(tokens[r][k]);
                q[(r * block_size + k) * V + x] = 3.0f;
                // The target agrees with the first request; of the second it holds other tokens likelier.
                p[(r * (block_size + 1) + k) * V + (r == 0 ? x : (x + 1) % V)] = 3.0f;
            }
        }
    }
};

int main() {
    engine_batch const engine;
    request_settings const settings{.temperature = 0.8};
    std::array<request_view, 2> requests;
    for (std::size_t r = 0; r < 2; ++r) {
        requests[r] = {.id = r + 1,
                       .slot = r,
                       .anchor = 0,
                       .position = 7,
                       .seed = 40 + r,
                       .remaining = 100,
                       .settings = &settings};
    }

    // Made once.
    given_drafts drafter{given_options{.block_size = block_size, .vocabulary = V}};
    fixed_schedule schedule;
    block_verification const rule;
    philox_randomness rng;
    round_memory<float, float> memory{drafter, schedule, rule, {.max_requests = 2}};

    // A round.
    std::array<given_draft<float>, 2> drafts;
    for (std::size_t r = 0; r < 2; ++r) {
        drafts[r] = {.tokens = engine.tokens[r], .q = {engine.q.data() + r * block_size * V, block_size, V}};
    }
    drafter.hand(drafts);
    if (begin_round(schedule, requests, memory)) draw(drafter, drafter.forward(requests), rule, rng, memory);
    verify_batch const& batch = admit(schedule, memory);  // what the target scores; here it has done so
    if (batch.rows() != 2 * (block_size + 1)) return 1;
    logits_rows<float> const rows{.values = {engine.p.data(), 2 * (block_size + 1), V}, .per_request = block_size + 1};
    accept(rule, rows, no_logits_hook{}, rng, memory);
    for (verdict const& v : end_round(schedule, memory).verdicts) {
        std::printf("request %d: %d of %d accepted, emit", static_cast<int>(v.id), static_cast<int>(v.accepted),
                    static_cast<int>(v.verified));
        for (token_id const x : v.emitted) std::printf(" %d", x);
        std::puts("");
    }
}
// Prints:
// request 1: 3 of 3 accepted, emit 1 2 3 3
// request 2: 0 of 3 accepted, emit 5
