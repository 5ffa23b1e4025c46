// SPDX-License-Identifier: MIT
//
// What all experiments share: the flags, how they become worlds and texts, and what an experiment hands back.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <evaluate/table.hpp>
#include <generate/status_line.hpp>

#include "options.hpp"
#include "policies.hpp"
#include "simulation.hpp"
#include "worlds.hpp"

namespace serve {

using evaluate::fixed;
using evaluate::percent;
using evaluate::shown;
using evaluate::table;

/// The outcome of an experiment, for people and for programs.
struct section {
    std::vector<table> tables{};
    nlohmann::ordered_json numbers{};
};

/// How far an experiment of so many runs is, on the status line.
class run_progress {
public:
    run_progress(generate::status_line& status, std::string name, std::size_t runs)
        : status_(status), name_(std::move(name)), runs_(runs) {}
    ~run_progress() { status_.clear(); }
    run_progress(run_progress const&) = delete;
    run_progress& operator=(run_progress const&) = delete;

    /// For one run, which begins now.
    [[nodiscard]] progress_observer begin(std::string const& what);

private:
    generate::status_line& status_;
    std::string name_;
    std::size_t runs_;
    std::size_t begun_ = 0;
    std::size_t calls_ = 0;
};

struct session {
    options const& chosen;
    generate::status_line& status;
    std::optional<published_figures> figures;

    [[nodiscard]] world find(std::string const& name) const;
    /// What a schedule believes of it.
    [[nodiscard]] cost_world believed(cost_world const& truth) const;
    [[nodiscard]] std::size_t block_size(world const& w) const;
    /// Of a mix, of the world's own domains, or of --acceptance; or --recorded ones.
    [[nodiscard]] std::unique_ptr<text_source> texts(world const& w, named_mix const* mix) const;
    /// The same domains, and from text `first` on those of --after, whose confidences are distorted as the flags say,
    /// or right.
    [[nodiscard]] std::unique_ptr<text_source> drifting_texts(world const& w, std::uint64_t first,
                                                              bool distorted) const;
    /// The mixes of the flags, or one that stands for no mix.
    [[nodiscard]] std::vector<named_mix const*> mixes() const;
    [[nodiscard]] static std::string name_of(named_mix const* mix) { return mix == nullptr ? "texts" : mix->name; }

    [[nodiscard]] run_settings settings() const;
    [[nodiscard]] closed_workload closed(std::size_t concurrency) const;
    /// --policies, or these.
    [[nodiscard]] std::vector<policy> policies(std::vector<std::string> const& otherwise) const;

private:
    [[nodiscard]] std::vector<domain_settings> domains(world const& w, named_mix const* mix,
                                                       std::vector<double>& weights) const;
};

/// Everything about one run.
[[nodiscard]] nlohmann::ordered_json to_json(outcome const& o);
/// A row of "policy, tok/s, tau, budget, trimmed, accepted, ECE", under header_of_runs().
[[nodiscard]] std::vector<std::string> header_of_runs();
[[nodiscard]] std::vector<std::string> row_of(outcome const& o);
/// "*: not lossless." and what a budget is.
[[nodiscard]] std::vector<std::string> notes_of_runs();
[[nodiscard]] std::string marked(outcome const& o);

// ---- the experiments -------------------------------------------------------------------------------------------

[[nodiscard]] section run_run(session const& s);
[[nodiscard]] section run_sweep(session const& s);
[[nodiscard]] section run_trace(session const& s);
[[nodiscard]] section run_replicas(session const& s);
[[nodiscard]] section run_burst(session const& s);
[[nodiscard]] section run_drift(session const& s);
[[nodiscard]] section run_figure8(session const& s);

}  // namespace serve
