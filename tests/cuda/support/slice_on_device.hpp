// SPDX-License-Identifier: MIT
//
// Records of slices, made on the device and brought back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <sureleap/cuda/sampling/slice_records.cuh>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/sampling/slice_records.hpp>

#include "cuda/support/device_array.hpp"
#include "support/dice.hpp"

namespace support {

/// Slices that begin at multiples of 1,024 tokens; some may be empty.
[[nodiscard]] inline sureleap::vocabulary_slices uneven_blocks(dice& roll, std::size_t vocabulary, std::size_t ranks,
                                                               std::size_t part_size) {
    std::vector<std::size_t> ends(ranks, vocabulary);
    for (std::size_t r = 0; r + 1 < ranks; ++r) ends[r] = roll.below(vocabulary / 1024 + 1) * 1024;
    std::sort(ends.begin(), ends.end());
    return sureleap::vocabulary_slices{ends, part_size};
}

struct device_records {
    std::vector<sureleap::slice_part> parts;
    std::vector<sureleap::slice_best> best;
    std::vector<sureleap::slice_drafted> drafted;
    std::vector<sureleap::slice_winner> winners;

    [[nodiscard]] sureleap::slice_records view() const {
        return {parts.data(), best.data(), drafted.data(), winners.data()};
    }
};
/// Of rows of a rank's slice.
template <class T>
[[nodiscard]] device_records records_on_device(std::vector<std::vector<T>> const& rows,
                                               sureleap::vocabulary_slices const& slices, std::size_t rank,
                                               std::vector<float> const& scales,
                                               std::vector<sureleap::token_id> const& drafted,
                                               std::vector<sureleap::draw_key> const& noise) {
    std::size_t const size = slices.size(rank);
    std::size_t const stride = (size + 7) / 8 * 8;  // rows begin at multiples of 16 bytes
    std::vector<T> all(rows.size() * stride);
    for (std::size_t n = 0; n < rows.size(); ++n) {
        std::copy(rows[n].begin(), rows[n].end(), all.begin() + static_cast<std::ptrdiff_t>(n * stride));
    }
    device_array<T> const logits{all};
    device_array<float> const scales_there{scales};
    device_array<sureleap::token_id> const drafted_there{drafted};
    device_array<sureleap::draw_key> const noise_there{noise};
    device_array<sureleap::slice_part> parts(rows.size() * slices.parts_of(rank).size());
    device_array<sureleap::slice_best> best(rows.size());
    device_array<sureleap::slice_drafted> numbers(rows.size());
    device_array<sureleap::slice_winner> winners(rows.size());
    std::size_t const part_size = slices.part_size();
    sureleap::cuda::slice_task<T> task{};
    task.logits = {.data = logits.data(), .rows = static_cast<std::uint32_t>(rows.size()), .stride = stride};
    task.first = static_cast<std::uint32_t>(slices.first(rank));
    task.size = static_cast<std::uint32_t>(size);
    task.part_size = static_cast<std::uint32_t>(part_size);
    task.scales = scales_there.data();
    task.drafted = drafted_there.data();
    task.noise = noise_there.data();
    task.parts = parts.data();
    task.best = best.data();
    task.numbers = numbers.data();
    task.winners = winners.data();
    require_cuda(record_slices(task, nullptr));
    return {parts.download(), best.download(), numbers.download(), winners.download()};
}

}  // namespace support
