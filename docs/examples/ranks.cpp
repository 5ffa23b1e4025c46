// SPDX-License-Identifier: MIT
//
// An engine of three ranks, here threads: each has the same requests, and they agree on what a round verifies. A rank
// with another seed ends the round on all of them, with nothing emitted. Over processes it is mpi_ranks.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include <sureleap/ranks/gather.hpp>
#include <sureleap/ranks/one_rank.hpp>
#include <sureleap/ranks/rank_consensus.hpp>
#include <sureleap/ranks/thread_ranks.hpp>
#include <sureleap/sureleap.hpp>

using namespace sureleap;

static_assert(communicator<one_rank> && communicator<thread_ranks::rank_type>);

struct outcome {
    std::size_t tokens = 0;
    status ended = status::ok;
    std::uint64_t heard = 0;
};

outcome decode(thread_ranks& ranks, std::size_t rank, std::uint64_t seed) {
    constexpr std::size_t V = 8;
    auto const model = [](float taste) {
        return model_of<float>(V, [taste](auto context, auto logits) {
            auto const x = static_cast<std::size_t>(context.back());
            for (std::size_t v = 0; v < V; ++v) {
                logits[v] = static_cast<float>((3 * x + 5 * v) % 8) + taste * static_cast<float>(v);
            }
        });
    };
    auto target = model(0.0f);
    auto own = ranks.of(rank);
    rank_consensus_options const options{.requests = rank_requests::same, .max_requests = 2, .fingerprint = 4711};
    decoder dec{target,
                autoregressive{model(0.4f), top1_confidence{}, {.block_size = 3, .vocabulary = V}},
                agreed{top_k_schedule{analytic_capacity{8000.0, 64.0}}, rank_consensus{own, options}},
                token_rejection{},
                {.max_requests = 2}};
    dec.submit(std::vector<token_id>{0}, {.seed = seed, .max_new_tokens = 20});
    outcome result;
    while (result.ended == status::ok && dec.step()) {
        for (request_event const& event : dec.events()) {
            result.ended = event.outcome;
            result.tokens += event.tokens.size();
        }
    }
    std::array<std::uint64_t, 3> all{};  // any record may be exchanged
    if (gather(own, std::uint64_t{10 + rank}, all)) result.heard = all[1];
    return result;
}

void show(std::uint64_t seed_of_rank_1) {
    thread_ranks ranks{3, thread_ranks_options{.most_bytes = 4096, .seconds = 20.0}};
    std::array<outcome, 3> all{};
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < 3; ++i) {
        threads.emplace_back([&, i] { all[i] = decode(ranks, i, i == 1 ? seed_of_rank_1 : 5); });
    }
    for (std::thread& t : threads) t.join();
    for (outcome const& o : all) std::printf("%2zu tokens, %s\n", o.tokens, to_string(o.ended));
    std::printf("rank 1 says %d\n", static_cast<int>(all[0].heard));
}

int main() {
    show(5);
    show(6);
}

// Prints:
// 20 tokens, ok
// 20 tokens, ok
// 20 tokens, ok
// rank 1 says 11
//  0 tokens, ranks do not hold the same requests
//  0 tokens, ranks do not hold the same requests
//  0 tokens, ranks do not hold the same requests
// rank 1 says 11
