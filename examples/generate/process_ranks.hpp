// SPDX-License-Identifier: MIT
//
// The processes that mpirun started, as the ranks of one engine. Whether the program knows MPI is chosen when it is
// linked: process_ranks_mpi.cpp, or process_ranks_alone.cpp.
#pragma once

#include <cstddef>
#include <memory>

#include <engine/ranks.hpp>

namespace generate {

class process_ranks {
public:
    process_ranks() = default;
    process_ranks(process_ranks const&) = delete;
    process_ranks& operator=(process_ranks const&) = delete;
    virtual ~process_ranks() = default;

    /// Null: this process is alone.
    [[nodiscard]] virtual engine::any_ranks* ranks() noexcept = 0;
    /// Processes on this machine, which share its cores.
    [[nodiscard]] virtual std::size_t on_this_machine() const noexcept = 0;
    /// After an error of this process, which then ends: the others must not wait for it.
    virtual void abandon() noexcept = 0;

    [[nodiscard]] bool is_first() noexcept { return ranks() == nullptr || ranks()->rank() == 0; }
};

/// seconds: that a rank waits for the others.
[[nodiscard]] std::unique_ptr<process_ranks> meet_processes(double seconds);

}  // namespace generate
