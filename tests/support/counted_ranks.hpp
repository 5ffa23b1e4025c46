// SPDX-License-Identifier: MIT
//
// A communicator that counts.
#pragma once

#include <cstddef>
#include <span>

namespace support {

/// Models communicator over another one, by value.
template <class Ranks>
struct counted_ranks {
    Ranks ranks;
    std::size_t exchanges = 0;
    std::size_t bytes = 0;  // that were received

    [[nodiscard]] std::size_t rank() const noexcept { return ranks.rank(); }
    [[nodiscard]] std::size_t size() const noexcept { return ranks.size(); }
    [[nodiscard]] bool gather(std::span<std::byte const> own, std::span<std::byte> all) noexcept {
        ++exchanges;
        bytes += all.size();
        return ranks.gather(own, all);
    }
};

}  // namespace support
