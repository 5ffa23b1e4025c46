// SPDX-License-Identifier: MIT
//
// What a communicator promises, of one rank and of threads: records of all ranks in their order, and a failure that all
// ranks see in time.
//
// Meant for the thread sanitizer too.
#include "support/catch.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include <sureleap/ranks/gather.hpp>
#include <sureleap/ranks/one_rank.hpp>
#include <sureleap/ranks/thread_ranks.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/on_ranks.hpp"

using namespace sureleap;
using support::error_text;
using support::on_ranks;
using support::says;

namespace {

static_assert(communicator<one_rank>);
static_assert(communicator<thread_ranks::rank_type>);

struct no_gather {
    std::size_t rank() const { return 0; }
    std::size_t size() const { return 1; }
};
struct may_throw : no_gather {
    bool gather(std::span<std::byte const>, std::span<std::byte>) { return true; }
};
struct answers_number : no_gather {
    int gather(std::span<std::byte const>, std::span<std::byte>) noexcept { return 1; }
};
static_assert(!communicator<no_gather>);
static_assert(!communicator<may_throw>);
static_assert(!communicator<answers_number>);

struct record {
    std::uint64_t rank;
    std::uint64_t exchange;
};

}  // namespace

TEST_CASE("ranks: an engine that is alone hears itself") {
    one_rank ranks;
    std::array<record, 1> all{};
    CHECK(gather(ranks, record{3, 4}, std::span<record>(all)));
    CHECK(all[0].exchange == 4);
    std::array<std::byte, 2> too_many{};
    CHECK_FALSE(ranks.gather(std::as_bytes(std::span(all)), too_many));
}

TEST_CASE("ranks: threads hear each other, in the order of ranks, in records of any size") {
    for (std::size_t const size : {1u, 2u, 3u, 8u}) {
        thread_ranks ranks{size, {.most_bytes = 512}};
        std::vector<std::size_t> wrong(size);
        on_ranks(size, [&](std::size_t rank) {
            auto own = ranks.of(rank);
            support::dice roll(1000);  // the same sizes on all ranks
            support::dice pauses(rank);
            for (std::uint64_t i = 0; i < 300; ++i) {
                if (pauses.chance(0.05)) std::this_thread::yield();
                std::vector<record> all(size);
                bool good = gather(own, record{rank, i}, std::span(all));
                for (std::size_t r = 0; r < size; ++r) good = good && all[r].rank == r && all[r].exchange == i;
                std::vector<std::uint32_t> const mine(roll.below(100), static_cast<std::uint32_t>(7 * i + rank));
                std::vector<std::uint32_t> numbers(size * mine.size());
                good = good && gather(own, std::span<std::uint32_t const>(mine), std::span(numbers));
                for (std::size_t j = 0; j < numbers.size(); ++j) good = good && numbers[j] == 7 * i + j / mine.size();
                wrong[rank] += good ? 0u : 1u;
            }
        });
        CHECK(wrong == std::vector<std::size_t>(size, 0));
    }
}

TEST_CASE("ranks: one that leaves, is late, or says too much fails all of them, now and later") {
    enum class fault { leaves, sleeps, other_size, too_large };
    for (fault const what : {fault::leaves, fault::sleeps, fault::other_size, fault::too_large}) {
        INFO("fault " << static_cast<int>(what));
        constexpr std::size_t size = 3;
        thread_ranks ranks{size, {.most_bytes = 64, .seconds = what == fault::sleeps ? 0.1 : 30.0}};
        std::vector<std::size_t> heard(size);
        auto const before = std::chrono::steady_clock::now();
        on_ranks(size, [&](std::size_t rank) {
            auto own = ranks.of(rank);
            std::vector<record> all(size);
            for (std::uint64_t i = 0; i < 10; ++i) {
                if (rank == 1 && i == 4) {
                    if (what == fault::leaves) return ranks.leave();
                    if (what == fault::sleeps) std::this_thread::sleep_for(std::chrono::milliseconds(400));
                    std::vector<record> more(what == fault::too_large ? 5 : 2);
                    std::vector<record> of_all(size * more.size());
                    if (what == fault::other_size || what == fault::too_large) {
                        static_cast<void>(gather(own, std::span<record const>(more), std::span(of_all)));
                        continue;
                    }
                }
                heard[rank] += gather(own, record{rank, i}, std::span(all)) ? 1u : 0u;
            }
        });
        CHECK(heard == std::vector<std::size_t>(size, 4));
        CHECK(std::chrono::steady_clock::now() - before < std::chrono::seconds(20));
    }
}

TEST_CASE("ranks: what cannot be is refused when they are made") {
    CHECK(says(error_text([] { thread_ranks(0); }), {"there are 0 ranks", "at least 1"}));
    CHECK(says(error_text([] { thread_ranks(2, {.seconds = 0.0}); }), {"seconds is 0", "more than 0"}));
}
