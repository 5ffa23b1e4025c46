// SPDX-License-Identifier: MIT
//
// Verification over slices of the vocabulary: how long the library's part of a round takes on these ranks. Beside it
// stand rank 0 alone with the same rows, and a plain user's version, which gathers whole rows to verify them.
//
//     mpirun -n 2 build/release/bench/bench.ranks [rounds]
//
// Rank 0 alone goes first, while others wait; then all together, in the same run. Seconds are the best of so many
// rounds, on the rank that takes longest. Rows are of 151,936 tokens, 32 requests with 7 drafts each.
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <sureleap/ext/mpi.hpp>
#include <sureleap/ranks/one_rank.hpp>
#include <sureleap/ranks/sharded_rows.hpp>
#include <sureleap/verifier.hpp>
#include <sureleap/verify/any.hpp>

using namespace sureleap;

namespace {

constexpr std::size_t V = 151936;
constexpr std::size_t R = 32;
constexpr std::size_t gamma = 7;
constexpr std::size_t p_rows = R * (gamma + 1);
constexpr std::size_t q_rows = R * gamma;

/// A communicator that counts what it receives.
template <class Ranks>
struct counted {
    Ranks& ranks;
    std::size_t exchanges = 0;
    std::size_t bytes = 0;

    [[nodiscard]] std::size_t rank() const noexcept { return ranks.rank(); }
    [[nodiscard]] std::size_t size() const noexcept { return ranks.size(); }
    [[nodiscard]] bool gather(std::span<std::byte const> own, std::span<std::byte> all) noexcept {
        ++exchanges;
        bytes += all.size();
        return ranks.gather(own, all);
    }
};

/// Rows like a model's, which draft and target mostly agree on.
struct rows_of_all {
    std::vector<bf16> p = std::vector<bf16>(p_rows * V);
    std::vector<float> q = std::vector<float>(q_rows * V);
    std::vector<std::int32_t> drafts;
    std::vector<std::int64_t> seeds, positions;

    rows_of_all() {
        std::uint64_t state = 7;
        auto const next = [&state] {
            state = state * 6364136223846793005u + 1442695040888963407u;
            return static_cast<float>(state >> 40) / static_cast<float>(1u << 24);
        };
        for (std::size_t r = 0; r < R; ++r) {
            for (std::size_t k = 0; k <= gamma; ++k) {
                std::size_t const liked = static_cast<std::size_t>(next() * static_cast<float>(V));
                for (std::size_t v = 0; v < V; ++v) {
                    float const l = 8.0f * (next() + next() + next() - 1.5f);
                    p[(r * (gamma + 1) + k) * V + v] = bf16(l);
                    if (k < gamma) q[(r * gamma + k) * V + v] = l + next() - 0.5f;
                }
                p[(r * (gamma + 1) + k) * V + liked] = bf16(20.0f);
                if (k == gamma) continue;
                // Three of four drafts are what the target likes.
                std::size_t const drafted = (3 * r + k) % 4 == 0 ? (liked + 1) % V : liked;
                q[(r * gamma + k) * V + drafted] = 20.0f;
                drafts.push_back(static_cast<std::int32_t>(drafted));
            }
            seeds.push_back(static_cast<std::int64_t>(r));
            positions.push_back(0);
        }
    }
    [[nodiscard]] engine_arrays<bf16> call(vocabulary_slices const& slices, std::size_t rank) const {
        std::size_t const first = slices.first(rank);
        return {.requests = R,
                .target = {p.data() + first, p_rows, slices.size(rank), V},
                .drafts = drafts.data(),
                .draft_stride = gamma,
                .q = {.rows = q.data() + first, .slot_stride = gamma * V, .row_stride = V},
                .positions = positions.data(),
                .settings = {.seeds = seeds.data()}};
    }
};

struct measured {
    double seconds = 1e9;
    std::size_t exchanges = 0;
    std::size_t bytes = 0;
};
template <class Rule, class Ranks>
measured measure(rows_of_all& rows, Ranks& ranks, std::size_t rounds) {
    auto const slices = vocabulary_slices::even(V, ranks.size());
    counted<Ranks> some{ranks};
    row_shards<bf16, counted<Ranks>> shards{some, slices, {.max_requests = R, .block_size = gamma}};
    verifier<bf16, Rule> verify{
        {},
        {.drafts = {.block_size = gamma,
                    .vocabulary = V,
                    .slice = vocabulary_view::slice(slices.first(ranks.rank()), slices.size(ranks.rank()), V)},
         .max_requests = R}};
    measured best;
    std::ranges::fill(rows.positions, 0);  // the same on all ranks
    for (std::size_t t = 0; t < rounds; ++t) {
        for (std::int64_t& position : rows.positions) position += 8;
        auto const call = rows.call(slices, ranks.rank());
        some.exchanges = some.bytes = 0;
        auto const begun = std::chrono::steady_clock::now();
        static_cast<void>(verify(call, shards));
        double own = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
        std::vector<double> all(ranks.size());
        static_cast<void>(gather(ranks, own, std::span(all)));
        best.seconds = std::min(best.seconds, *std::max_element(all.begin(), all.end()));
    }
    best.exchanges = some.exchanges;
    best.bytes = some.bytes;
    return best;
}
template <class Rule>
double whole(rows_of_all& rows, std::size_t rounds) {
    auto const all = vocabulary_slices::even(V, 1);
    verifier<bf16, Rule> verify{{}, {.drafts = {.block_size = gamma, .vocabulary = V}, .max_requests = R}};
    double best = 1e9;
    for (std::size_t t = 0; t < rounds; ++t) {
        for (std::int64_t& position : rows.positions) position += 8;
        auto const call = rows.call(all, 0);
        auto const begun = std::chrono::steady_clock::now();
        static_cast<void>(verify(call));
        best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
    }
    return best;
}

template <class Rule>
void report(char const* name, rows_of_all& rows, mpi_ranks& ranks, std::size_t rounds, double gathering) {
    measured alone;
    double of_whole = 0.0;
    if (ranks.rank() == 0) {
        one_rank self;
        alone = measure<Rule>(rows, self, rounds);
        of_whole = whole<Rule>(rows, rounds);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    measured const all = measure<Rule>(rows, ranks, rounds);
    if (ranks.rank() != 0) return;
    std::printf("%-22s %8.2f ms %8.2f ms %6.2f %10.2f ms %10.2f ms %4zu %9zu bytes\n", name, 1e3 * alone.seconds,
                1e3 * all.seconds, all.seconds / alone.seconds, 1e3 * of_whole, 1e3 * (gathering + of_whole),
                all.exchanges, all.bytes);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    {
        std::size_t const rounds = argc > 1 ? std::stoul(argv[1]) : 20;
        mpi_ranks ranks{MPI_COMM_WORLD, {.most_bytes = 16 << 20}};
        rows_of_all rows;
        // Whole rows of p alone, as bf16.
        std::size_t const P = ranks.size();
        std::vector<bf16> own(p_rows * (V / P)), gathered(P * own.size());
        double gathering = 1e9;
        for (std::size_t t = 0; t < 3; ++t) {
            MPI_Barrier(MPI_COMM_WORLD);
            auto const begun = std::chrono::steady_clock::now();
            auto const bytes = static_cast<int>(own.size() * sizeof(bf16));
            MPI_Allgather(own.data(), bytes, MPI_BYTE, gathered.data(), bytes, MPI_BYTE, MPI_COMM_WORLD);
            gathering =
                std::min(gathering, std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count());
        }
        if (ranks.rank() == 0) {
            std::printf("%-22s %11s %11s %6s %13s %13s %4s %15s\n", "", "alone", "together", "ratio", "whole rows",
                        "gathered", "", "received");
        }
        report<token_rejection<>>("token_rejection", rows, ranks, rounds, gathering);
        report<block_verification<>>("block_verification", rows, ranks, rounds, gathering);
        report<target_match<>>("target_match", rows, ranks, rounds, gathering);
        report<keyed_coupling>("keyed_coupling", rows, ranks, rounds, gathering);
    }
    MPI_Finalize();
    return 0;
}
