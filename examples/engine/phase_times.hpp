// SPDX-License-Identifier: MIT
//
// Where the time of serving goes.
#pragma once

#include <chrono>

namespace engine {

/// Seconds spent since the server was made.
struct phase_times {
    double prefill = 0;  ///< prompts through target and drafter
    double draft = 0;    ///< the backbone, and taking in features; all passes of an autoregressive drafter
    double head = 0;     ///< the sequential loop: biases, confidences, draws
    double verify = 0;   ///< the target
    double accept = 0;   ///< schedule, acceptance, bookkeeping

    [[nodiscard]] double decode() const noexcept { return draft + head + verify + accept; }
};

/// Adds the time of its scope to a phase.
class stopwatch {
public:
    explicit stopwatch(double& seconds) noexcept : seconds_(seconds) {}
    ~stopwatch() { seconds_ += std::chrono::duration<double>(clock::now() - start_).count(); }
    stopwatch(stopwatch const&) = delete;
    stopwatch& operator=(stopwatch const&) = delete;

private:
    using clock = std::chrono::steady_clock;
    double& seconds_;
    clock::time_point start_ = clock::now();
};

}  // namespace engine
