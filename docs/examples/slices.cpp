// SPDX-License-Identifier: MIT
//
// Four ranks, here threads, each with a quarter of the vocabulary: they verify the drafts of a round where the logits
// are, and come to the same tokens as three or one would. Then they decode, with a head that lies in slices as well.
// Over processes it is mpi_ranks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include <sureleap/ranks/sharded_drafter.hpp>
#include <sureleap/ranks/sharded_rows.hpp>
#include <sureleap/ranks/thread_ranks.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/sureleap.hpp>

using namespace sureleap;

constexpr std::size_t V = 1000;
constexpr std::size_t draft_count = 3;

// One request with three drafts: logits of the target and of the draft, as one engine would have them.
struct round_of_engine {
    std::vector<float> p = std::vector<float>((draft_count + 1) * V);
    std::vector<float> q = std::vector<float>(draft_count * V);
    std::vector<std::int32_t> drafts{7, 77, 777};
    std::vector<std::int64_t> seeds{42}, positions{10};

    round_of_engine() {
        for (std::size_t i = 0; i < p.size(); ++i) p[i] = static_cast<float>((i * i) % 97) / 16.0f;
        std::copy_n(p.begin(), q.size(), q.begin());
        for (std::size_t k = 0; k < draft_count; ++k) {
            q[k * V + static_cast<std::size_t>(drafts[k])] = 9.0f;
            if (k < 2) p[k * V + static_cast<std::size_t>(drafts[k])] = 9.5f;
        }
    }
};

std::vector<token_id> verify_on(std::size_t P) {
    round_of_engine const engine;
    auto const slices = vocabulary_slices::even(V, P, 50);
    row_shards_options const sizes{.max_requests = 1, .block_size = draft_count};
    thread_ranks threads{P, {.most_bytes = row_shards<float, thread_ranks::rank_type>::most_bytes(slices, sizes)}};
    std::vector<std::vector<token_id>> emitted(P);
    std::vector<std::thread> all;
    for (std::size_t rank = 0; rank < P; ++rank) {
        all.emplace_back([&, rank] {
            auto ranks = threads.of(rank);
            row_shards<float, thread_ranks::rank_type> shards{ranks, slices, sizes};
            std::size_t const first = slices.first(rank), own = slices.size(rank);
            verifier<float, token_rejection<>> verify{
                {},
                {.drafts = {
                     .block_size = draft_count, .vocabulary = V, .slice = vocabulary_view::slice(first, own, V)}}};
            // This rank's columns of the rows, and what is the same on all ranks.
            auto const verdicts = verify({.requests = 1,
                                          .target = {engine.p.data() + first, draft_count + 1, own, V},
                                          .drafts = engine.drafts.data(),
                                          .draft_stride = draft_count,
                                          .q = {.rows = engine.q.data() + first, .slot_stride = 0, .row_stride = V},
                                          .positions = engine.positions.data(),
                                          .settings = {.seeds = engine.seeds.data()}},
                                         shards);
            emitted[rank].assign(verdicts[0].emitted.begin(), verdicts[0].emitted.end());
        });
    }
    for (std::thread& t : all) t.join();
    std::printf("%zu ranks:", P);
    for (token_id const x : emitted[0]) std::printf(" %d", static_cast<int>(x));
    bool const same = std::all_of(emitted.begin(), emitted.end(), [&](auto const& e) { return e == emitted[0]; });
    std::printf(", %s on all of them\n", same ? "the same" : "NOT the same");
    return emitted[0];
}

// Logits of token v behind x, of the target and of the draft's head: W1 [V, 2], W2 [V, 2].
float target_logit(token_id x, std::size_t v) {
    return static_cast<float>((static_cast<std::size_t>(x) * 31 + v * v) % 97) / 12.0f;
}
struct head_weights {
    std::vector<float> w1 = std::vector<float>(2 * V), w2 = std::vector<float>(2 * V);

    head_weights() {
        for (std::size_t i = 0; i < 2 * V; ++i) {
            w1[i] = static_cast<float>(i % 7) / 4.0f;
            w2[i] = static_cast<float>((i / 2) * (i / 2) % 97) / 12.0f;
        }
    }
};

std::vector<token_id> decode_on(std::size_t P) {
    head_weights const weights;
    auto const slices = vocabulary_slices::even(V, P, 50);
    thread_ranks threads{P};
    std::vector<std::vector<token_id>> texts(P);
    std::vector<std::thread> all;
    for (std::size_t rank = 0; rank < P; ++rank) {
        all.emplace_back([&, rank] {
            auto ranks = threads.of(rank);
            std::size_t const first = slices.first(rank), own = slices.size(rank);
            row_shards<float, thread_ranks::rank_type> shards{ranks, slices, {.block_size = draft_count}};
            std::vector<float> rows;
            auto target = [&](verify_batch const& batch) {  // this rank's columns
                rows.clear();
                for (token_id const x : batch.tokens()) {
                    for (std::size_t v = first; v < first + own; ++v) rows.push_back(target_logit(x, v));
                }
                return shards.of({.values = {rows.data(), batch.rows(), own}});
            };
            std::vector<float> const base(draft_count * own);  // of one request
            auto backbone = [&](std::span<request_view const>) {
                return block_forward<float>{{}, {.values = {base.data(), draft_count, own}}};
            };
            // W1 is whole, and of W2 there are this rank's rows.
            markov_head head{matrix_view<float>{weights.w1.data(), V, 2},
                             matrix_view<float>{weights.w2.data() + 2 * first, own, 2}};
            semi_autoregressive parts{
                backbone, head, {.block_size = draft_count, .vocabulary = V, .slice = slices.tokens(rank)}};
            decoder dec{target, sharded_drafter{parts, ranks, slices}, fixed_schedule{}, token_rejection<>{}};
            dec.submit(std::vector<token_id>{1}, {.temperature = 0.7, .seed = 42, .max_new_tokens = 8});
            while (dec.step()) {
                for (auto const& e : dec.events()) {
                    texts[rank].insert(texts[rank].end(), e.tokens.begin(), e.tokens.end());
                }
            }
        });
    }
    for (std::thread& t : all) t.join();
    std::printf("%zu ranks decode:", P);
    for (token_id const x : texts[0]) std::printf(" %d", static_cast<int>(x));
    bool const same = std::all_of(texts.begin(), texts.end(), [&](auto const& t) { return t == texts[0]; });
    std::printf(", %s on all of them\n", same ? "the same" : "NOT the same");
    return texts[0];
}

int main() {
    auto const four = verify_on(4);
    auto const text = decode_on(4);
    return verify_on(3) == four && verify_on(1) == four && decode_on(1) == text ? 0 : 1;
}

// Prints:
// 4 ranks: 7 77 265, the same on all of them
// 4 ranks decode: 708 747 302 74 891 333 517 533, the same on all of them
// 3 ranks: 7 77 265, the same on all of them
// 1 ranks: 7 77 265, the same on all of them
// 1 ranks decode: 708 747 302 74 891 333 517 533, the same on all of them
