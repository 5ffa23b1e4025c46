// SPDX-License-Identifier: MIT
//
// What any communicator can be asked: records of many sizes, and rounds over slices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sureleap/ranks/gather.hpp>
#include <sureleap/ranks/sharded_rows.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/verify/any.hpp>

#include "support/dice.hpp"
#include "support/engine_scene.hpp"
#include "support/sliced_calls.hpp"

namespace support {

/// Most bytes of the records and rounds here.
inline constexpr std::size_t exchanged_bytes = 1 << 16;

/// Exchanges records of `count` random sizes, after those next to `edges`. How many came with other bytes than sent.
template <communicator Ranks>
[[nodiscard]] std::size_t wrong_exchanges(Ranks& ranks, std::size_t count, std::span<std::size_t const> edges) {
    dice roll(1000);  // the same sizes on all ranks
    std::vector<std::size_t> sizes{0, 1, exchanged_bytes};
    for (std::size_t const edge : edges) sizes.insert(sizes.end(), {edge - 1, edge, edge + 1});
    while (sizes.size() < count) sizes.push_back(roll.below(roll.chance(0.5) ? 200 : 20000));
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        auto const sent = [&](std::size_t rank, std::size_t j) {
            return static_cast<std::byte>(7 * i + 31 * rank + j / 3);
        };
        std::vector<std::byte> own(sizes[i]), all(sizes[i] * ranks.size());
        for (std::size_t j = 0; j < own.size(); ++j) own[j] = sent(ranks.rank(), j);
        bool good = ranks.gather(own, all);
        for (std::size_t j = 0; j < all.size(); ++j) good = good && all[j] == sent(j / own.size(), j % own.size());
        wrong += good ? 0u : 1u;
    }
    return wrong;
}

/// What a random call emits whose rows lie in slices on these ranks: the same for any of the same number of ranks.
template <communicator Ranks>
[[nodiscard]] sliced_outputs random_sliced_call(Ranks& ranks, std::uint64_t seed) {
    any_rule const rules[]{token_rejection<>{}, block_verification<>{}, target_match<>{}, keyed_coupling{},
                           greedy_match{}};
    dice roll(seed);
    engine_shape const shape{.q = static_cast<q_kind>(seed / 5 % 5), .greedy = seed % 5 == 4};
    std::vector<plain_request<float>> requests;
    for (std::size_t r = 1 + roll.below(4); r > 0; --r) requests.push_back(random_request<float>(roll, shape));
    laid_out<float, std::vector> const whole(roll, shape, requests);
    auto const slices = uneven_slices(roll, shape.vocabulary, ranks.size(), 8);
    std::size_t const R = whole.call.requests;
    row_shards<float, Ranks, float, no_logits_hook> shards{
        ranks, slices, {.max_requests = R, .block_size = shape.block_size}};
    verifier<float, any_rule, no_logits_hook> verify{rules[seed % 5], sliced_options(shape, R, slices, ranks.rank())};
    sliced_outputs out(R, shape.block_size);
    sliced_call<float> own{whole, shape, slices, ranks.rank()};
    own.call.out = out.arrays();
    static_cast<void>(verify(own.call, shards));
    return out;
}

}  // namespace support
