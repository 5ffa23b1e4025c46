// SPDX-License-Identifier: MIT
//
// A language model of one's own, as a target and as a draft. It gets all requests of a pass at once, and its rows
// of logits stay where it made them, here in bf16.
#include <cstddef>
#include <cstdio>
#include <span>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

class toy_model {
public:
    explicit toy_model(float taste) : taste_(taste) {}

    // As a target: a row for each token of the batch, of what follows it.
    [[nodiscard]] logits_rows<bf16> score(verify_batch const& batch) {
        rows_.resize(batch.rows() * V);
        for (std::size_t i = 0; i < batch.rows(); ++i) fill(i, batch.tokens()[i]);
        return {.values = {rows_.data(), batch.rows(), V}};
    }
    // As a draft: a row for each request, of what follows its anchor and what was drafted so far.
    [[nodiscard]] logits_rows<bf16> forward(std::span<request_view const> requests, draft_prefixes const& drafted) {
        rows_.resize(requests.size() * V);
        for (std::size_t r = 0; r < requests.size(); ++r) {
            fill(r, drafted.size == 0 ? requests[r].anchor : drafted.of(r).back());
        }
        return {.values = {rows_.data(), requests.size(), V}};
    }
    static constexpr std::size_t V = 8;

private:
    void fill(std::size_t row, token_id last) {
        for (std::size_t v = 0; v < V; ++v) {
            float const next = v == static_cast<std::size_t>(last + 1) % V ? 3.0f : 0.0f;
            rows_[row * V + v] = bf16(next + taste_ * static_cast<float>(v % 3));
        }
    }

    float taste_;
    std::vector<bf16> rows_;
};
static_assert(target_model<toy_model> && autoregressive_model<toy_model>);

int main() {
    autoregressive drafter{toy_model{0.2f}, {.block_size = 4, .vocabulary = toy_model::V}};
    decoder dec{toy_model{0.5f}, drafter, fixed_schedule{}, block_verification{}, {.max_requests = 2}};
    for (token_id const x : {0, 4}) dec.submit(std::vector<token_id>{x}, {.seed = 6, .max_new_tokens = 20});
    while (dec.step()) {
        for (request_event const& event : dec.events()) {
            std::printf("request %d:", static_cast<int>(event.request));
            for (token_id const x : event.tokens) std::printf(" %d", x);
            std::printf("\n");
        }
    }
}

// Prints:
// request 1: 7 6 7 0 1
// request 2: 6 7 2 3 4
// request 1: 2 3 4 1 2
// request 2: 5 6 7 0 1
// request 1: 3 6 7 4 5
// request 2: 2 6 7 4 5
// request 1: 6 7 0 1 2
// request 2: 6 7 0 1 2
