// SPDX-License-Identifier: MIT
//
// What a drafter does without a round around it: a block of the shape that a round_memory would give it, begun for some
// requests, and a planner's table.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/schedule/planning.hpp>

namespace support {

/// Q: compute type of the block; the rule says which rows are kept. The requests must outlive it.
template <class Q>
class drafted {
public:
    template <class Drafter, class Rule>
    drafted(Drafter const& drafter, Rule const&, std::span<sureleap::request_view const> requests) {
        constexpr bool rows = Rule::access == sureleap::q_access::row && !Drafter::is_deterministic &&
                              !Rule::draft_rule::is_deterministic;
        sureleap::draft_shape shape{.requests = requests.size(),
                                    .block_size = drafter.block_size(),
                                    .vocabulary = drafter.vocabulary(),
                                    .state_size = drafter.state_size(),
                                    .keep_rows = rows};
        if constexpr (requires { drafter.shape_memory(shape); }) drafter.shape_memory(shape);
        sureleap::workspace sizer;
        carve(sizer, shape);
        buffer_.resize(sizer.used());
        sureleap::workspace ws{buffer_};
        carve(ws, shape);
        block.begin(requests);
    }
    // The members below are views of the buffer: it moves along with them, and a copy's would point into the original.
    drafted(drafted&&) noexcept = default;
    drafted& operator=(drafted&&) noexcept = default;

    sureleap::draft_block<Q> block{};
    sureleap::planning_memory planning{};

private:
    void carve(sureleap::workspace& ws, sureleap::draft_shape const& shape) {
        block = sureleap::draft_block<Q>(ws, shape);
        planning = sureleap::planning_memory::carve(ws, shape.requests, shape.block_size);
    }

    std::vector<std::byte> buffer_;
};

/// The same, drawn as the rule wants it.
template <class Q, class Drafter, class Rule>
[[nodiscard]] drafted<Q> draft(Drafter& drafter, Rule const& rule, std::span<sureleap::request_view const> requests) {
    drafted<Q> out(drafter, rule, requests);
    sureleap::philox_randomness rng;
    drafter.draw(drafter.forward(requests), typename Rule::draft_rule{}, out.block, rng);
    return out;
}

}  // namespace support
