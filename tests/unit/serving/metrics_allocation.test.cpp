// SPDX-License-Identifier: MIT
//
// Observing a round allocates nothing, nor does reading into counts that were read before, under a global operator new
// that counts.
#include "support/catch.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sureleap/serving/metrics.hpp>

#include "support/allocations.hpp"

using namespace sureleap;

TEST_CASE("serving metrics: nothing is allocated after construction") {
    serving_metrics metrics{4};
    token_id const tokens[4] = {};
    std::vector<request_view> const requests(1);
    std::vector<verdict> const verdicts{{.drafted = 4, .verified = 4, .accepted = 3, .emitted = tokens}};
    std::vector<std::uint32_t> const sizes{4};
    std::vector<fixed_probability> const confidence(4, certain / 2);
    round_record round{};
    round.requests = requests;
    round.verdicts = verdicts;
    round.survivals.block_size = 4;
    round.survivals.sizes = sizes;
    round.survivals.confidence = confidence;
    round.survivals.survival = confidence;
    round.load = {.requests = 1, .batch_tokens = 5};
    round.seconds = 0.1;

    serving_counts counts;
    metrics.read(counts);
    std::size_t const before = allocations;
    for (int n = 0; n < 100; ++n) {
        metrics.observe(round, 0.1);
        metrics.read(counts);
    }
    std::size_t const after = allocations;
    CHECK(after == before);
    CHECK(counts.rounds == 100);
    CHECK(metrics.read().accepted == 300);
    CHECK(allocations > after);  // the count counts
}
