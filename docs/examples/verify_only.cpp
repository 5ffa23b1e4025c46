// SPDX-License-Identifier: MIT
//
// An engine that drafts by itself and only verifies here: it hands over its arrays as they are, and gets what to emit.
// No model is the library's.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

constexpr std::size_t V = 6;
constexpr std::size_t block_size = 3;

int main() {
    // What the engine has. Two requests: one has three drafts, one has two, so the target gave seven rows.
    std::array<std::int32_t, 3> const row_begin{0, 4, 7};
    std::array<std::int64_t, 7> const tokens_of_rows{0, 1, 2, 3, 0, 4, 5};  // the anchor and the drafts of each
    std::vector<float> target(7 * V, 0.0f);
    std::vector<float> draft_logits(2 * block_size * V, 0.0f);  // [R, gamma, V]
    for (std::size_t k = 0; k < 3; ++k) {
        draft_logits[k * V + k + 1] = 3.0f;
        target[k * V + k + 1] = 3.0f;  // the target agrees with the first request
    }
    for (std::size_t k = 0; k < 2; ++k) draft_logits[(block_size + k) * V + k + 4] = 3.0f;
    target[4 * V + 2] = 8.0f;  // and of the second it holds another token likelier
    std::array<std::int64_t, 2> const positions{7, 19};
    std::array<std::int64_t, 2> const seeds{40, 41};
    std::array<float, 2> const temperatures{0.8f, 0.8f};

    // Made once.
    verifier_options const options{.drafts = {.block_size = block_size, .vocabulary = V}, .max_requests = 2};
    verifier<float, block_verification<>> verify{{}, options};
    verifier<float, block_verification<>, array_edits> verify_edited{{}, options};

    // A call.
    std::array<std::int64_t, 2 * (block_size + 1)> emitted{};
    std::array<std::int32_t, 2> counts{};
    engine_arrays<float> call{.requests = 2,
                              .target = {target.data(), 7, V},
                              .row_begin = row_begin.data(),
                              .drafts = tokens_of_rows.data(),
                              .positions = positions.data()};
    call.q = q_arrays<float>{.rows = draft_logits.data(), .slot_stride = block_size * V, .row_stride = V};
    call.settings = settings_arrays{.temperature = temperatures.data(), .seeds = seeds.data()};
    call.out = verified_arrays{.tokens = emitted.data(), .counts = counts.data()};
    auto const print = [&] {
        for (std::size_t r = 0; r < 2; ++r) {
            std::printf("request %d emits", static_cast<int>(r + 1));
            for (std::int32_t k = 0; k < counts[r]; ++k) {
                std::printf(" %d", static_cast<int>(emitted[r * (block_size + 1) + static_cast<std::size_t>(k)]));
            }
            std::puts("");
        }
    };
    verify(call);
    print();

    // The same where a grammar forbids token 2 behind every row: a bit for each token that may come.
    std::array<std::int32_t, 7> bitmask{};
    bitmask.fill(0b111011);
    call.edits = edit_arrays{.bitmask = bitmask.data(), .bitmask_stride = mask_words(V)};
    verify_edited(call);
    print();

    // Arrays are views of either width.
    std::array<float, 2> const given{0.5f, 2.0f};
    number_array const numbers = given.data();
    integer_array const integers = seeds.data();
    either_array<float const, double const> const none{};
    std::printf("%.1f %d %.1f\n", numbers[1], static_cast<int>(integers[0]), none.value_or(0, 1.0));
    integer_output const into = counts.data();
    into.store(0, 9);
    number_output{}.store(0, 9.0);  // not wanted: nothing happens
    std::printf("%d\n", counts[0]);
}
// Prints:
// request 1 emits 1 2 3 3
// request 2 emits 2
// request 1 emits 1 5
// request 2 emits 3
// 2.0 40 1.0
// 9
