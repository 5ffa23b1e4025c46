// SPDX-License-Identifier: MIT
//
// What all experiments share: the flags, the prompts, the threads; and what one hands back.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <engine/thread_pool.hpp>
#include <generate/profile.hpp>
#include <generate/status_line.hpp>

#include "contestant.hpp"
#include "counts.hpp"
#include "options.hpp"
#include "prompts.hpp"
#include "rounds.hpp"
#include "table.hpp"

namespace evaluate {

/// The outcome of an experiment, for people and for programs.
struct section {
    std::string name;
    nlohmann::ordered_json counts{};
    std::vector<table> tables{};
};

/// How far an experiment of several parts is, on the status line. Parts are taken to last equally long.
class progress {
public:
    progress(generate::status_line& status, std::string name, std::size_t parts)
        : status_(status), name_(std::move(name)), parts_(parts) {}
    ~progress() { status_.clear(); }
    progress(progress const&) = delete;
    progress& operator=(progress const&) = delete;

    void begin_part(std::string what) {
        what_ = std::move(what);
        ++part_;
    }
    /// A share, in [0, 1], of the current part.
    void update(double share);

private:
    using clock = std::chrono::steady_clock;
    generate::status_line& status_;
    std::string name_;
    std::size_t parts_;
    std::size_t part_ = 0;
    std::string what_;
    clock::time_point start_ = clock::now();
};

/// Texts to decode, and where they stand among the prompts.
struct text_list {
    struct place {
        std::size_t domain;
        std::size_t prompt;
    };
    std::vector<place> places{};
    std::vector<text> texts{};
};

struct session {
    options const& chosen;
    engine::thread_pool& pool;
    generate::status_line& status;
    prompt_set prompts;

    [[nodiscard]] contestant load(draft_source const& source, std::size_t slots) const {
        return load_contestant(chosen, source, slots, prompts.context, pool, status);
    }
    /// The flags' sampling and rule, whole blocks.
    [[nodiscard]] decoding_settings settings() const {
        return {.sampling = chosen.sampling,
                .rule = engine::make_rule(chosen.rule),
                .schedule = sureleap::fixed_schedule{},
                .tokens = chosen.tokens};
    }
    /// The same with the source's schedule. One that goes by costs has them measured here, for as many requests as
    /// `who` was loaded for.
    [[nodiscard]] decoding_settings settings_for(draft_source const& source, contestant& who) const {
        return settings_for(source, who, [&] { return passes_of(who); });
    }
    /// `passes` is called for schedules that go by costs.
    [[nodiscard]] decoding_settings settings_for(draft_source const& source, contestant& who,
                                                 std::function<generate::pass_times()> const& passes) const;
    /// The time of the target's pass, up to as many rows as `who` can make.
    [[nodiscard]] generate::pass_times passes_of(contestant& who) const;

    /// Every prompt once. Another pass has other seeds.
    [[nodiscard]] text_list texts(std::size_t pass = 0) const;
    /// Whole passes over the prompts, cut to at least `least` texts.
    [[nodiscard]] text_list texts_of_passes(std::size_t least) const;
    /// "temperature 0.2, top-p 0.9", or "greedy".
    [[nodiscard]] std::string sampling_in_words() const;
    /// "math 3": the third prompt of that domain.
    [[nodiscard]] std::string name_of(text_list::place const& at) const {
        return prompts.domains[at.domain].name + " " + std::to_string(at.prompt + 1);
    }
    /// Every prompt once, in batches. `totals` may be null.
    [[nodiscard]] std::vector<domain_counts> measure(contestant& who, decoding_settings const& how, progress& shown,
                                                     run_totals* totals = nullptr) const;
    /// "math, code, ..., mean": what comes behind the first columns of many tables.
    [[nodiscard]] std::vector<std::string> with_domains(std::vector<std::string> columns) const;
};

[[nodiscard]] nlohmann::ordered_json to_json(std::vector<domain_counts> const& domains);
[[nodiscard]] nlohmann::ordered_json to_json(engine::phase_times const& times);
/// Name, folder, depth, block and head.
[[nodiscard]] nlohmann::ordered_json to_json(contestant const& who);

// ---- the experiments -------------------------------------------------------------------------------------------

[[nodiscard]] section run_tau(session const& s);
[[nodiscard]] section run_rules(session const& s);
[[nodiscard]] section run_threshold(session const& s);
[[nodiscard]] section run_calibration(session const& s);
[[nodiscard]] section run_shortlist(session const& s);
[[nodiscard]] section run_speed(session const& s);
[[nodiscard]] section run_batch(session const& s);
[[nodiscard]] section run_equality(session const& s);
[[nodiscard]] section run_trees(session const& s);
[[nodiscard]] section run_costs(session const& s);
// Of the target alone:
[[nodiscard]] section run_perplexity(session const& s);
[[nodiscard]] section run_passes(session const& s);

}  // namespace evaluate
