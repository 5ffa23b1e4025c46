// SPDX-License-Identifier: MIT
//
// Ranks as threads of a test.
#pragma once

#include <cstddef>
#include <thread>
#include <vector>

namespace support {

/// of_rank(0), of_rank(1) ..., each on a thread of its own.
template <class OfRank>
void on_ranks(std::size_t ranks, OfRank const& of_rank) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < ranks; ++i) threads.emplace_back([&of_rank, i] { of_rank(i); });
    for (std::thread& t : threads) t.join();
}

}  // namespace support
