// SPDX-License-Identifier: MIT
//
// A schedule chosen at run time, with what it remembers of earlier rounds. Only the planned schedule remembers anything;
// the server need not know which one that is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>

#include <sureleap/sureleap.hpp>

#include "parts.hpp"

namespace engine {

class scheduler {
public:
    scheduler(any_schedule schedule, std::size_t slots, std::size_t block_size) : schedule_(std::move(schedule)) {
        std::visit(
            [&]<class S>(S const& s) {
                if constexpr (reads_history<S>) {
                    history_ = sureleap::survival_history(slots, block_size, S::origin::lag, s.prior());
                }
            },
            schedule_);
    }

    [[nodiscard]] any_schedule const& schedule() const noexcept { return schedule_; }

    /// A request has taken the slot: what was seen of another one there no longer counts.
    void join(std::size_t slot) {
        if (remembers()) history_.join(slot);
    }

    /// Before anything is drawn: how much a planner will verify. Others plan nothing, and the planned schedule plans only
    /// with drafters it was checked with (check_parts).
    template <class Drafter, class Forward, class Real>
    [[nodiscard]] sureleap::verify_budget plan(Drafter const& drafter, Forward const& forward,
                                               sureleap::round_memory<Real, Real>& memory) const {
        return std::visit(
            [&]<class S>(S const& s) -> sureleap::verify_budget {
                if constexpr (!sureleap::planner<S>) {
                    return std::nullopt;
                } else if constexpr (reads_history<S> || sureleap::plans_at_anchor_v<Drafter>) {
                    return sureleap::plan(s, drafter, forward, memory.block, history_, memory.planning);
                } else {
                    return std::nullopt;
                }
            },
            schedule_);
    }

    /// How much of each block is verified.
    template <class Real>
    [[nodiscard]] std::span<std::uint32_t const> admit(sureleap::verify_budget const& budget,
                                                       sureleap::round_memory<Real, Real>& memory) const {
        return std::visit(
            [&](auto const& s) { return sureleap::admit(s, memory.block.table(), budget, memory.frontier); },
            schedule_);
    }

    /// What the round's drafter said of its blocks, for later rounds.
    template <class Real>
    void remember(sureleap::round_memory<Real, Real> const& memory) {
        if (remembers()) history_.push(memory.batch.requests(), memory.block.table().survivals);
    }

private:
    template <class S>
    static constexpr bool reads_history = requires { S::origin::lag; };

    [[nodiscard]] bool remembers() const {
        return std::visit([]<class S>(S const&) { return reads_history<S>; }, schedule_);
    }

    any_schedule schedule_;
    sureleap::survival_history history_;
};

}  // namespace engine
