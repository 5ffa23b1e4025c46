// SPDX-License-Identifier: MIT
//
// Replicas that step together and agree on the batch that all of them fill. An exchange waits until every rank has come
// to it, so each has a thread while they step.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <thread>
#include <vector>

#include <sureleap/ranks/rank_consensus.hpp>
#include <sureleap/ranks/thread_ranks.hpp>

#include "simulation.hpp"

namespace serve {

class agreeing_group {
public:
    agreeing_group(std::size_t size, std::size_t places) : ranks_(size), agreements_(size) {
        for (std::size_t i = 0; i < size; ++i) members_.push_back(ranks_.of(i));
        each([&](std::size_t i) {
            agreements_[i].emplace(members_[i], sureleap::rank_consensus_options{
                                                    .requests = sureleap::rank_requests::own, .max_requests = places});
        });
    }
    // Agreements refer to members, and these to the ranks.
    agreeing_group(agreeing_group const&) = delete;
    agreeing_group& operator=(agreeing_group const&) = delete;

    [[nodiscard]] agreement const& of(std::size_t i) const noexcept { return *agreements_[i]; }
    /// A round of a rank without requests: the two exchanges that the others make in it.
    void stand_by(std::size_t i) const noexcept {
        static_cast<void>(of(i)(0));
        static_cast<void>(of(i).seconds(std::numeric_limits<double>::quiet_NaN()));
    }
    /// run(0) .. run(size - 1) at once; they do not throw.
    template <class Run>
    void each(Run const& run) const {
        std::vector<std::thread> threads;
        for (std::size_t i = 0; i < agreements_.size(); ++i) threads.emplace_back([&run, i] { run(i); });
        for (std::thread& t : threads) t.join();
    }

private:
    sureleap::thread_ranks ranks_;
    std::vector<sureleap::thread_ranks::rank_type> members_;
    std::vector<std::optional<agreement>> agreements_;
};

}  // namespace serve
