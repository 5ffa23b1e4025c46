// SPDX-License-Identifier: MIT
//
// Cases of the benchmarks of kernels, and the program that runs them (cases.cpp). A case is a function and numbers with
// names; a source adds its cases before main begins:
//
//     bool const added = bench::add("verify/block/bf16", &verify, {"V", "R"}, {{32000, 1}, {32000, 8}});
//
// Rejected: Google Benchmark. This has to run on a machine that has nothing but a driver, so all of it is linked in.
// Each result is written when it is there. A program that dies or hangs loses one case.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace bench {

using numbers = std::vector<std::int64_t>;

/// A case as it runs: its numbers, and what is found.
class state {
public:
    state(std::vector<std::string> const& names, numbers const& values) : names_(names), values_(values) {}

    /// The number of that name.
    [[nodiscard]] std::uint32_t operator[](char const* name) const;
    /// Seconds of a call, in every sample.
    void set_seconds(std::vector<double> samples) { seconds_ = std::move(samples); }
    void figure(char const* name, double value) { figures_.emplace_back(name, value); }
    /// Something that the case needs is not there, or its result is wrong: what was measured does not count.
    void not_run(std::string why) { set_status("NOT RUN", std::move(why)); }
    void failed(std::string why) { set_status("failed", std::move(why)); }

    /// The line of JSON that says it all.
    [[nodiscard]] std::string json(std::string const& name, std::string const& family) const;

private:
    void set_status(char const* status, std::string why) {
        status_ = status;
        why_ = std::move(why);
    }

    std::vector<std::string> const& names_;
    numbers const& values_;
    std::vector<double> seconds_;
    std::vector<std::pair<std::string, double>> figures_;
    char const* status_ = "ok";
    std::string why_;
};

bool add(char const* family, void (*body)(state&), std::vector<std::string> names, std::vector<numbers> const& values);

/// Calls are made once, for a profiler, and not timed.
[[nodiscard]] bool once();

/// Ends the program: after a failed call nothing on the device can be relied on.
[[noreturn]] void give_up(char const* what, char const* why);

}  // namespace bench
