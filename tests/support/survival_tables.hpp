// SPDX-License-Identifier: MIT
//
// Survival tables that own their memory, and the order of admission by a plain sort.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include <sureleap/schedule/frontier.hpp>
#include <sureleap/schedule/survival.hpp>

#include "support/dice.hpp"

namespace support {

struct owned_table {
    std::size_t block_size = 0;
    std::vector<std::uint32_t> sizes;
    std::vector<sureleap::fixed_probability> confidence;
    std::vector<sureleap::fixed_probability> survival;

    owned_table(std::size_t requests, std::size_t gamma)
        : block_size(gamma), sizes(requests), confidence(requests * gamma), survival(requests * gamma) {}

    [[nodiscard]] sureleap::survival_table view() const { return {block_size, sizes, confidence, survival}; }

    void set(std::size_t r, std::size_t k, sureleap::fixed_probability c) {
        std::size_t const i = r * block_size + k;
        std::uint64_t const before = k == 0 ? std::uint64_t{1} << 24 : survival[i - 1];
        confidence[i] = c;
        survival[i] = static_cast<sureleap::fixed_probability>(before * c / (std::uint64_t{1} << 24));
    }
};

/// The memory of one walk, filled with rubbish: a walk must not depend on what it finds.
struct admission_memory {
    std::vector<std::uint32_t> lengths, heap, where;

    explicit admission_memory(std::size_t requests)
        : lengths(requests, 0xdeadbeefu), heap(requests, 0xdeadbeefu), where(requests, 0xdeadbeefu) {}
    [[nodiscard]] sureleap::frontier_memory view(
        sureleap::survival_kernels const& kernels = sureleap::native_kernels<sureleap::survival_kernels>()) {
        return {lengths, heap, where, &kernels};
    }
};

/// Jagged rows, confidences from `levels` + 1 values including 0 and 1: the fewer levels, the more ties.
[[nodiscard]] inline owned_table random_table(dice& roll, std::size_t requests, std::size_t gamma, std::size_t levels) {
    owned_table table(requests, gamma);
    for (std::size_t r = 0; r < requests; ++r) {
        table.sizes[r] = static_cast<std::uint32_t>(roll.chance(0.5) ? gamma : roll.below(gamma + 1));
        for (std::size_t k = 0; k < gamma; ++k) {
            std::uint64_t const step = roll.below(levels + 1);
            table.set(r, k, static_cast<sureleap::fixed_probability>((step << 24) / levels));
        }
    }
    return table;
}

/// Every candidate in the order of admission: survival descending, position ascending, request ascending.
[[nodiscard]] inline std::vector<sureleap::candidate> sorted_candidates(sureleap::survival_table const& table) {
    std::vector<sureleap::candidate> all;
    for (std::size_t r = 0; r < table.requests(); ++r) {
        for (std::size_t k = 0; k < table.sizes[r]; ++k) all.push_back(table.at(r, k));
    }
    std::sort(all.begin(), all.end(), [](auto const& a, auto const& b) {
        return std::tuple(b.survival, a.position, a.request) < std::tuple(a.survival, b.position, b.request);
    });
    return all;
}

/// Lengths when the first `budget` candidates of the sorted order are admitted.
[[nodiscard]] inline std::vector<std::uint32_t> lengths_of_first(sureleap::survival_table const& table,
                                                                 std::size_t budget) {
    std::vector<std::uint32_t> lengths(table.requests());
    auto const all = sorted_candidates(table);
    for (std::size_t i = 0; i < std::min(budget, all.size()); ++i) ++lengths[all[i].request];
    return lengths;
}

}  // namespace support
