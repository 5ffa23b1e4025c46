// SPDX-License-Identifier: MIT
//
// The loop of a training run, whatever is trained: gradients, an optimizer step, a word about progress, a state on
// disk.
//
// A run can be stopped at any time and started again by the same command. An interrupt (Ctrl-C, SIGTERM) ends it after
// the step at hand; a crash or a power cut costs what was done since the last save. Both ways the weights come out
// bit for bit as without: a step is a function of the state and its number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include <engine/thread_pool.hpp>

#include "optimizer.hpp"
#include "parameters.hpp"

namespace train {

/// Gradients of a step, computed in shards that run in parallel and are added in a fixed order: the sum does not depend
/// on the number of threads, only on that of shards.
class sharded_gradients {
public:
    sharded_gradients(std::size_t shards, std::size_t parameters, engine::thread_pool& pool)
        : pool_(pool), shards_(shards, aligned_vector<float>(parameters)) {}

    [[nodiscard]] std::size_t shards() const noexcept { return shards_.size(); }

    /// f(shard, gradients) adds to gradients, which are zero before. Returns the sum, valid until the next call. Throws
    /// what an f throws.
    std::span<float const> sum(std::function<void(std::size_t, std::span<float>)> const& f);
    /// f(shard), in parallel. Throws what an f throws.
    void for_each_shard(std::function<void(std::size_t)> const& f);

private:
    engine::thread_pool& pool_;
    std::vector<aligned_vector<float>> shards_;
};

struct step_result {
    std::span<float const> gradients;
    std::size_t tokens = 0;  ///< that the step has seen
    std::string losses;      ///< for the progress line
};

struct run_settings {
    std::size_t steps = 0;
    optimizer_settings optimizer;
    std::filesystem::path state_file;
    /// Everything that the weights depend on, in words. A state that was saved under other settings is refused.
    std::string fingerprint;
    double save_seconds = 60;
    double log_seconds = 15;
    char const* unit = "tokens";  ///< what step_result::tokens counts
    /// Threads of the optimizer's pass; null: the calling one alone. The weights do not depend on it.
    engine::thread_pool* pool = nullptr;
    /// Called after every `visit_steps` steps, and after the last.
    std::size_t visit_steps = 0;
    std::function<void(training_state const&)> visit{};
};

/// Trains until settings.steps are done: true. False if interrupted; the state is saved then. Starts from the state
/// file if there is one. Prints progress to stdout.
[[nodiscard]] bool run(run_settings const& settings, parameter_layout const& layout,
                       std::function<step_result(std::size_t step, std::span<float const> values)> const& step,
                       training_state& state);

/// From here on an interrupt ends runs in order instead of the process at once. Forgets earlier ones.
void catch_interrupts();
[[nodiscard]] bool interrupted();

void save_state(std::filesystem::path const& file, std::string const& fingerprint, training_state const& state);
/// False if there is no such file. Throws sureleap::error if it belongs to another run.
[[nodiscard]] bool load_state(std::filesystem::path const& file, std::string const& fingerprint, training_state& state);

}  // namespace train
