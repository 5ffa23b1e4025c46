// SPDX-License-Identifier: MIT
//
// Simulates a speculating engine under load: makes the worlds and texts that the flags ask for, runs an experiment,
// prints its tables and writes its numbers.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <map>
#include <string>

#include <nlohmann/json.hpp>

#include <engine/text_file.hpp>
#include <evaluate/json_text.hpp>
#include <evaluate/table.hpp>
#include <sureleap/core/error.hpp>

#include "options.hpp"
#include "session.hpp"

namespace {

using namespace serve;

std::map<std::string, std::function<section(session const&)>> const experiments{
    {"run", run_run},     {"sweep", run_sweep}, {"trace", run_trace},    {"replicas", run_replicas},
    {"burst", run_burst}, {"drift", run_drift}, {"figure8", run_figure8}};

void run(options const& chosen) {
    // Before minutes of work, not after them.
    if (!chosen.json.empty() && !std::ofstream(chosen.json, std::ios::app)) {
        sureleap::fail_with(chosen.json.string(), ": cannot be written");
    }
    generate::status_line status;
    session s{chosen, status, std::nullopt};
    if (!chosen.figures.empty()) s.figures.emplace(chosen.figures);
    section const done = experiments.at(chosen.experiment)(s);
    for (table const& t : done.tables) evaluate::print(t, chosen.markdown);
    if (chosen.json.empty()) return;
    engine::write_text(chosen.json, evaluate::json_text({{"program", "serve"},
                                                         {"command", chosen.command},
                                                         {"experiment", chosen.experiment},
                                                         {"numbers", done.numbers}}));
}

}  // namespace

int main(int argc, char** argv) {
    try {
        if (auto const chosen = serve::parse_options(argc, argv)) run(*chosen);
        return EXIT_SUCCESS;
    } catch (std::exception const& problem) {
        std::fflush(stdout);
        std::fprintf(stderr, "serve: %s\n", problem.what());
        return 2;
    }
}
