// SPDX-License-Identifier: MIT
//
// Ranks that are processes: mpirun -n 3 ranks.mpi <mode>.
//
//   exchanges   records of all ranks, in their order
//   agrees      decoders of all ranks emit the same
//   differs     one with another seed: an error on all ranks
//   model       one with another model: an error on all ranks, when they meet
//   version     one with another version of the library (other_version.cpp): the same
//   late        one that comes after the time that others wait
//   killed      one that ends in the middle of a round
//   stopped     one that is stopped for longer than others wait
//
// Of the last three the others are told in time that a rank is lost, with nothing emitted; rank 0 says so.
#include <mpi.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sureleap/cost/capacity.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/ext/mpi.hpp>
#include <sureleap/ranks/gather.hpp>
#include <sureleap/ranks/rank_consensus.hpp>
#include <sureleap/schedule/agreed.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/verify/rejection.hpp>

#include "ranks/processes.hpp"
#include "support/dice.hpp"
#include "support/small_world.hpp"

using namespace sureleap;
using support::expect;

namespace {

static_assert(communicator<mpi_ranks>);

struct record {
    std::uint64_t rank;
    std::uint64_t exchange;
};

void exchanges(mpi_ranks& ranks) {
    support::dice roll(1000);  // the same sizes on all ranks
    for (std::uint64_t i = 0; i < 300; ++i) {
        std::vector<record> all(ranks.size());
        expect(gather(ranks, record{ranks.rank(), i}, std::span(all)), "an exchange failed");
        for (std::size_t r = 0; r < all.size(); ++r) {
            expect(all[r].rank == r && all[r].exchange == i, "another record than was sent");
        }
        std::vector<std::uint32_t> const own(roll.below(100), static_cast<std::uint32_t>(7 * i + ranks.rank()));
        std::vector<std::uint32_t> numbers(ranks.size() * own.size());
        expect(gather(ranks, std::span<std::uint32_t const>(own), std::span(numbers)), "an exchange failed");
        for (std::size_t j = 0; j < numbers.size(); ++j) {
            expect(numbers[j] == 7 * i + j / own.size(), "other numbers than were sent");
        }
    }
    std::vector<std::byte> const too_much(5000);
    std::vector<std::byte> all(5000 * ranks.size());
    expect(!ranks.gather(too_much, all), "more bytes than most_bytes were sent");
}

struct capacity {
    [[nodiscard]] double steps_per_second(std::size_t batch) const noexcept {
        return 1.0 / (1.0 + 0.01 * static_cast<double>((batch + 3) / 4 * 4));
    }
};

/// Decodes until `rounds` are done or one ends with an error; before(round) comes first. What the last one ended with.
template <class Before>
status decode(mpi_ranks& ranks, std::uint64_t seed, std::size_t rounds, Before const& before,
              std::vector<token_id>& tokens) {
    small_world::world const w{12, 3, 3};
    auto target = small_world::target_of(w);
    decoder dec{target,
                small_world::semi_of(w),
                agreed{top_k_schedule{capacity{}}, rank_consensus{ranks, {.max_requests = 4}}},
                token_rejection{},
                {.max_requests = 4}};
    for (std::uint64_t r = 0; r < 4; ++r) {
        dec.submit(std::vector<token_id>{static_cast<token_id>(r % w.vocabulary)},
                   {.seed = seed + r, .max_new_tokens = 10000});
    }
    for (std::size_t t = 0; t < rounds; ++t) {
        before(t);
        if (!dec.step()) return status::ok;
        for (auto const& event : dec.events()) {
            if (event.outcome != status::ok) return event.outcome;
            tokens.insert(tokens.end(), event.tokens.begin(), event.tokens.end());
        }
    }
    return status::ok;
}

void agrees(mpi_ranks& ranks) {
    std::vector<token_id> tokens;
    expect(decode(ranks, 70, 200, [](std::size_t) {}, tokens) == status::ok, "a round failed");
    expect(tokens.size() > 800, "few tokens were emitted");
    std::uint64_t number = 0;
    for (token_id const x : tokens) number = number * 31 + static_cast<std::uint64_t>(x) + 1;
    std::vector<std::uint64_t> all(ranks.size());
    expect(gather(ranks, number, std::span(all)), "an exchange failed");
    for (std::uint64_t const n : all) expect(n == all[0], "ranks emitted other tokens");
}

void differs(mpi_ranks& ranks) {
    std::vector<token_id> tokens;
    std::uint64_t const seed = ranks.rank() == 1 ? 71 : 70;
    status const found = decode(ranks, seed, 200, [](std::size_t) {}, tokens);
    expect(found == status::ranks_differ, "ranks with another seed were not told from each other");
    expect(tokens.empty(), "tokens were emitted");
}

/// fingerprint: of rank 1, where that of others is 1.
void refused(mpi_ranks& ranks, std::uint64_t fingerprint) {
    std::string text;
    try {
        rank_consensus const consensus{ranks, {.fingerprint = ranks.rank() == 1 ? fingerprint : 1u}};
    } catch (error const& e) {
        text = e.what();
    }
    expect(text.find("rank 1 has another version, fingerprint") != std::string::npos,
           "another model or version was not refused");
}

/// Rank 1 does `fault` in round 20; the others wait for four seconds.
template <class Fault>
void loses_a_rank(mpi_ranks& ranks, Fault const& fault) {
    std::vector<token_id> tokens;
    auto begun = std::chrono::steady_clock::now();
    std::size_t at_fault = 0;
    status const found = decode(
        ranks, 70, 200,
        [&](std::size_t t) {
            if (t != 20) return;
            at_fault = tokens.size();
            begun = std::chrono::steady_clock::now();
            if (ranks.rank() == 1) fault();
        },
        tokens);
    double const waited = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
    expect(found == status::ranks_lost, "the ranks were not told that one is lost");
    expect(tokens.size() == at_fault, "tokens were emitted in the round that lost a rank");
    expect(ranks.rank() == 1 || waited < 20.0, "the ranks were told too late");
    support::end_without_rank_1(ranks);
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    std::string_view const mode = argc == 2 ? argv[1] : "";
    {
        bool const loses = mode == "late" || mode == "killed" || mode == "stopped";
        mpi_ranks ranks{MPI_COMM_WORLD, {.most_bytes = 4096, .seconds = loses ? 4.0 : 50.0}};
        if (mode == "exchanges") {
            exchanges(ranks);
        } else if (mode == "agrees") {
            agrees(ranks);
        } else if (mode == "differs") {
            differs(ranks);
        } else if (mode == "model") {
            refused(ranks, 2);
        } else if (mode == "version") {
            refused(ranks, 1);
        } else if (mode == "late") {
            loses_a_rank(ranks, [] { std::this_thread::sleep_for(std::chrono::seconds(8)); });
        } else if (mode == "killed") {
            loses_a_rank(ranks, [] { _exit(0); });
        } else if (mode == "stopped") {
            loses_a_rank(ranks, support::be_stopped);
        } else {
            std::fprintf(stderr, "ranks.mpi: unknown mode \"%s\"\n", argc == 2 ? argv[1] : "");
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    MPI_Finalize();
    return 0;
}
