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
#include <sureleap/drafter/draft_memory.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/traits.hpp>

namespace support {

/// Q: compute type of the block; the rule says which rows are kept. The requests must outlive it.
template <class Q>
class drafted {
public:
    template <class Drafter, class Rule>
    drafted(Drafter const& drafter, Rule const&, std::span<sureleap::request_view const> requests)
        : drafted(drafter, requests,
                  {.keep_rows = Rule::access == sureleap::q_access::row && !Drafter::is_deterministic &&
                                !Rule::draft_rule::is_deterministic}) {}
    /// `shape` without the sizes, which are the drafter's and the requests'.
    template <class Drafter>
    drafted(Drafter const& drafter, std::span<sureleap::request_view const> requests, sureleap::draft_shape shape) {
        shape.requests = requests.size();
        shape.block_size = drafter.block_size();
        shape.vocabulary = drafter.vocabulary();
        shape.trees = sureleap::traits_of(drafter).drafts_trees;
        sureleap::workspace sizer;
        carve(sizer, shape, drafter);
        buffer_.resize(sizer.used());
        sureleap::workspace ws{buffer_};
        carve(ws, shape, drafter);
        block.begin(requests);
    }
    // The members below are views of the buffer: it moves along with them, and a copy's would point into the original.
    drafted(drafted&&) noexcept = default;
    drafted& operator=(drafted&&) noexcept = default;

    sureleap::draft_block<Q> block{};
    sureleap::planning_memory planning{};

    /// Of the drafter that this was made for.
    template <class Drafter>
    [[nodiscard]] auto& memory(Drafter const&) const {
        return *static_cast<sureleap::draft_memory_t<Drafter, Q> const*>(memory_);
    }
    template <class Drafter, class Forward, class DraftRule, class Rng>
    void draw(Drafter& drafter, Forward const& forward, DraftRule rule, Rng& rng) {
        sureleap::draw_block(drafter, forward, rule, block, memory(drafter), rng);
    }
    template <class Drafter, class Forward>
    void plan(Drafter const& drafter, Forward const& forward) {
        sureleap::plan_block(drafter, forward, block, memory(drafter), planning);
    }
    template <class Drafter>
    void commit(Drafter& drafter, std::span<sureleap::verdict const> verdicts) const {
        sureleap::commit_block(drafter, verdicts, block, memory(drafter));
    }

private:
    template <class Drafter>
    void carve(sureleap::workspace& ws, sureleap::draft_shape const& shape, Drafter const& drafter) {
        block = sureleap::draft_block<Q>(ws, shape);
        sureleap::draft_memory_t<Drafter, Q> const carved(ws, block.shape(), drafter);
        auto const place = ws.take<sureleap::draft_memory_t<Drafter, Q>>(1);
        if (!ws.counting()) place[0] = carved;
        memory_ = place.data();
        planning = sureleap::planning_memory::carve(ws, shape.requests, shape.block_size);
    }

    std::vector<std::byte> buffer_;
    void* memory_ = nullptr;
};

/// The same, drawn as the rule wants it.
template <class Q, class Drafter, class Rule>
[[nodiscard]] drafted<Q> draft(Drafter& drafter, Rule const& rule, std::span<sureleap::request_view const> requests) {
    drafted<Q> out(drafter, rule, requests);
    sureleap::philox_randomness rng;
    out.draw(drafter, drafter.forward(requests), typename Rule::draft_rule{}, rng);
    return out;
}

}  // namespace support
