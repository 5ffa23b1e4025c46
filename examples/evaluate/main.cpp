// SPDX-License-Identifier: MIT
//
// Measures drafters of one target on prompts: reads the prompts, runs the experiments that were asked for, prints their
// tables and writes their counts.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include <engine/kernels.hpp>
#include <engine/model_files.hpp>
#include <engine/text_file.hpp>
#include <engine/thread_pool.hpp>
#include <generate/status_line.hpp>
#include <sureleap/core/error.hpp>

#include "json_text.hpp"
#include "options.hpp"
#include "prompts.hpp"
#include "session.hpp"
#include "table.hpp"

namespace {

using namespace evaluate;
using nlohmann::ordered_json;
using sureleap::fail_with;

std::map<std::string, std::function<section(session const&)>> const experiments{{"tau", run_tau},
                                                                                {"rules", run_rules},
                                                                                {"threshold", run_threshold},
                                                                                {"calibration", run_calibration},
                                                                                {"shortlist", run_shortlist},
                                                                                {"speed", run_speed},
                                                                                {"batch", run_batch},
                                                                                {"equality", run_equality},
                                                                                {"trees", run_trees},
                                                                                {"costs", run_costs},
                                                                                {"perplexity", run_perplexity},
                                                                                {"passes", run_passes}};

/// The processor's name, where Linux tells it.
std::string processor() {
    std::ifstream in("/proc/cpuinfo");
    for (std::string line; std::getline(in, line);) {
        if (line.starts_with("model name")) return line.substr(std::min(line.size(), line.find(": ") + 2));
    }
    return "unknown";
}

prompt_set read_prompts_for(options const& chosen) {
    auto const target = engine::config_of(chosen.target).transformer;
    if (chosen.context > target.max_positions) {
        fail_with("--context is ", chosen.context, ", expected at most the target's ", target.max_positions);
    }
    // All drafters see the same prompts, so the longest block decides how much of them fits.
    std::size_t block = 1;
    for (draft_source const& d : chosen.drafts) block = std::max(block, block_size_of(d));
    return read_prompts(chosen, target.vocabulary, chosen.context > 0 ? chosen.context : target.max_positions,
                        positions_for(chosen.tokens, block));
}

ordered_json about_run(options const& chosen, prompt_set const& prompts, std::size_t threads) {
    ordered_json json{{"program", "evaluate"},
                      {"command", chosen.command},
                      {"machine",
                       {{"processor", processor()},
                        {"threads", threads},
                        {"kernels", engine::instruction_set()},
                        {"packed_kernels", engine::packed_instruction_set()}}},
                      {"settings",
                       {{"temperature", chosen.sampling.temperature},
                        {"top_k", chosen.sampling.top_k},
                        {"top_p", chosen.sampling.top_p},
                        {"min_p", chosen.sampling.min_p},
                        {"rule", chosen.rule},
                        {"tokens", chosen.tokens},
                        {"texts", chosen.texts},
                        {"context", prompts.context},
                        {"batch", chosen.batch},
                        {"seed", chosen.seed},
                        {"ignore_eos", chosen.ignore_eos},
                        {"arithmetic", generate::arithmetic_name(chosen.bf16)}}}};
    for (domain const& d : prompts.domains) {
        json["prompts"].push_back({{"domain", d.name},
                                   {"files", d.files},
                                   {"used", d.prompts.size()},
                                   {"available", d.available},
                                   {"cut", d.cut}});
    }
    return json;
}

/// Before an hour of work, not after it.
void check_writable(std::filesystem::path const& file) {
    if (!std::ofstream(file, std::ios::app)) fail_with(file.string(), ": cannot be written");
}

void run(options const& chosen) {
    if (!chosen.json.empty()) check_writable(chosen.json);
    generate::status_line status;
    engine::thread_pool pool(chosen.threads);
    session const s{chosen, pool, status, read_prompts_for(chosen)};
    print(describe(s.prompts), chosen.markdown);
    ordered_json json = about_run(chosen, s.prompts, pool.threads());
    for (std::string const& name : chosen.experiments) {
        section const done = experiments.at(name)(s);
        for (table const& t : done.tables) print(t, chosen.markdown);
        json[done.name] = done.counts;
        // After every experiment: the next one may take an hour, and be interrupted.
        if (!chosen.json.empty()) engine::write_text(chosen.json, json_text(json));
    }
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (auto const chosen = evaluate::parse_options(argc, argv)) run(*chosen);
        return EXIT_SUCCESS;
    } catch (std::exception const& problem) {
        std::fflush(stdout);
        std::fprintf(stderr, "evaluate: %s\n", problem.what());
        return 2;
    }
}
