// SPDX-License-Identifier: MIT
//
// A model that computes every pass into the same memory says of which pass its rows are. A round that would be
// judged by rows of another pass is refused, which matters where rounds overlap.
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

class toy_target {
public:
    [[nodiscard]] logits_rows<float> score(verify_batch const& batch) {
        rows_.assign(batch.rows() * 4, 0.0f);
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            rows_[i * 4 + static_cast<std::size_t>(batch.tokens()[i] + 1) % 4] = 5.0f;
        }
        logits_rows<float> rows{.values = {rows_.data(), batch.rows(), 4}};
        rows.pass = passes_.begin(fingerprint_of(batch.requests()));  // whom it was for
        return rows;
    }

private:
    pass_counter passes_;
    std::vector<float> rows_;
};
static_assert(target_model<toy_target>);

int main() {
    toy_target target;
    lookup finds{{.block_size = 2, .target_vocabulary = 4}};
    fixed_schedule schedule;
    token_rejection<> const rule;
    philox_randomness rng;
    request_settings const settings{.temperature = 0.0};
    std::vector<token_id> const text{0, 1, 2, 0};

    // Two rounds at a time, of one request each.
    std::vector<round_memory<float, float>> rounds;
    for (request_id id = 1; id <= 2; ++id) {
        request_view const request{
            .id = id, .anchor = 0, .position = 3, .context = text, .remaining = 9, .settings = &settings};
        auto& memory = rounds.emplace_back(finds, schedule, rule, round_limits{});
        if (begin_round(schedule, std::span(&request, 1), memory)) {
            draw(finds, finds.forward(memory.requests()), rule, rng, memory);
        }
    }
    logits_rows<float> const first = target.score(admit(schedule, rounds[0]));
    pass_stamp const stamp = first.pass;
    std::printf("pass %d is current: %s\n", static_cast<int>(stamp.number()), stamp.is_current() ? "yes" : "no");
    logits_rows<float> const second = target.score(admit(schedule, rounds[1]));  // overwrites the first
    std::printf("pass %d is current: %s\n", static_cast<int>(stamp.number()), stamp.is_current() ? "yes" : "no");
    try {
        accept(rule, first, no_logits_hook{}, rng, rounds[0]);
    } catch (error const& refused) {
        std::printf("refused: %.40s...\n", refused.what());
    }
    accept(rule, second, no_logits_hook{}, rng, rounds[1]);
    std::printf("the second round emits");
    for (token_id const x : end_round(schedule, rounds[1]).verdicts[0].emitted) std::printf(" %d", x);
    std::printf("\n");
}

// Prints:
// pass 1 is current: yes
// pass 1 is current: no
// refused: accept: the target's rows are of pass 1,...
// the second round emits 1 2 3
