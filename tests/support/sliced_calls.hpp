// SPDX-License-Identifier: MIT
//
// The calls of engine_scene.hpp as the ranks of one engine make them, each with its own columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <sureleap/ranks/sharded_rows.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/verifier.hpp>

#include "support/dice.hpp"
#include "support/engine_scene.hpp"

namespace support {

/// What a call emits, as arrays.
struct sliced_outputs {
    std::vector<std::int64_t> tokens, accepted;
    std::vector<std::int32_t> counts;
    std::vector<std::uint8_t> statuses, finished;

    sliced_outputs(std::size_t requests, std::size_t block_size)
        : tokens(requests * (block_size + 1), 7),
          accepted(requests, 7),
          counts(requests, 7),
          statuses(requests, 77),
          finished(requests, 77) {}
    [[nodiscard]] verified_arrays arrays() {
        return {.tokens = tokens.data(),
                .counts = counts.data(),
                .accepted = accepted.data(),
                .statuses = statuses.data(),
                .finished = finished.data()};
    }
    [[nodiscard]] bool operator==(sliced_outputs const&) const = default;
};

/// A rank's columns of a call: views of the whole one, but lists, of which it has its own tokens.
template <class T>
class sliced_call {
public:
    template <class Laid>
    sliced_call(Laid const& whole, engine_shape const& shape, vocabulary_slices const& slices, std::size_t rank)
        : call(whole.call) {
        std::size_t const first = slices.first(rank);
        call.target = {call.target.data + first, call.target.rows, slices.size(rank), call.target.stride};
        if (call.q.rows == nullptr) return;
        if (!shape.is_listed()) {
            call.q.rows += first;
            return;
        }
        for (std::size_t i = 0; i < whole.q.size(); ++i) {
            std::int64_t const x = whole.call.q.listed[i];
            bool const own = x >= 0 && x < static_cast<std::int64_t>(slices.vocabulary()) &&
                             slices.owner(static_cast<token_id>(x)) == rank;
            listed_.push_back(own ? x : -1);
        }
        call.q.listed = listed_.data();
    }
    sliced_call(sliced_call const&) = delete;
    sliced_call& operator=(sliced_call const&) = delete;

    engine_arrays<T> call;

private:
    std::vector<std::int64_t> listed_;
};

/// The options of a verifier that has a rank's slice.
[[nodiscard]] inline verifier_options sliced_options(engine_shape const& shape, std::size_t requests,
                                                     vocabulary_slices const& slices, std::size_t rank) {
    return {.drafts = {.block_size = shape.block_size,
                       .vocabulary = shape.vocabulary,
                       .probabilities = shape.probabilities(),
                       .listed = shape.listed(),
                       .slice = vocabulary_view::slice(slices.first(rank), slices.size(rank), shape.vocabulary)},
            .max_requests = requests,
            .stop_tokens = scene_stops};
}

/// Slices of so many ranks, at multiples of `part`; not even ones: some may be empty.
[[nodiscard]] inline vocabulary_slices uneven_slices(dice& roll, std::size_t vocabulary, std::size_t ranks,
                                                     std::size_t part) {
    std::vector<std::size_t> ends(ranks, vocabulary);
    for (std::size_t r = 0; r + 1 < ranks; ++r) ends[r] = roll.below(vocabulary / part + 1) * part;
    std::sort(ends.begin(), ends.end());
    return vocabulary_slices{ends, part};
}

}  // namespace support
