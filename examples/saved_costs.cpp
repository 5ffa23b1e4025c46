// SPDX-License-Identifier: MIT
//
// From a machine to a schedule: steps are timed at start-up, prices are fitted to them and saved. The next start loads
// the file if it was measured on this machine, and serves. A profile that is missing or foreign does not stop the
// engine: it then verifies one draft at most.
//
// The machine is a toy: its clock is a number, and a step takes 10 ms and 0.4 ms a row.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include <sureleap/ext/cost_json.hpp>
#include <sureleap/serving.hpp>
#include <sureleap/sureleap.hpp>
#include <sureleap/training.hpp>

using namespace sureleap;

namespace {

constexpr std::size_t vocabulary = 16;
constexpr std::size_t block_size = 4;
constexpr std::size_t places = 8;

double now = 0.0;  // seconds
struct machine_clock {
    using duration = std::chrono::duration<double>;
    using rep = double;
    using period = duration::period;
    using time_point = std::chrono::time_point<machine_clock>;
    static time_point now() { return time_point(duration(::now)); }
};

void dry_run(step_load const& load) {
    now += 0.010 + 0.0004 * static_cast<double>(load.batch_tokens) + 0.0001 * static_cast<double>(load.draft_tokens);
}

auto model(std::size_t taste) {
    return model_of<float>(vocabulary, [taste](auto context, auto logits) {
        auto const x = static_cast<std::size_t>(context.back());
        for (std::size_t v = 0; v < logits.size(); ++v) {
            logits[v] = static_cast<float>((5 * x + 3 * v) % 7) + 0.3f * static_cast<float>((taste * v) % 5);
        }
    });
}

}  // namespace

int main() {
    std::string const file = (std::filesystem::temp_directory_path() / "sureleap_saved_costs.json").string();
    cost_fingerprint const here{{"device", "toy"}, {"model", "two tokens"}};

    auto const grid = profile_grid({.max_requests = places, .block_size = block_size, .contexts = {128, 4096}});
    step_profile const profile = profile_steps<machine_clock>(dry_run, grid);  // at start-up, once
    auto const fit = fit_additive_cost(profile.samples());
    std::printf("%zu loads, %zu noisy\n", grid.size(), profile.noisy());
    save(
        cost_table{
            .prices = fit.cost.prices(), .cells = profile.samples(), .measured_on = here, .measured_at = unix_now()},
        file);

    for (cost_fingerprint const& machine : {here, cost_fingerprint{{"device", "another"}}}) {
        cost_offer offer = find_cost(file, {.machine = machine, .max_age = 30 * 86400});
        any_schedule const safe =
            offer.table ? any_schedule{top_k_schedule{offer.table->model()}} : any_schedule{fixed_schedule{1}};

        autoregressive drafter{model(1), top1_confidence{}, {.block_size = block_size, .vocabulary = vocabulary}};
        decoder dec{model(2), drafter, safe, token_rejection{}, {.max_requests = places, .seed = 1}};
        for (token_id x = 0; x < 8; ++x) dec.submit(std::vector<token_id>{x}, {.max_new_tokens = 100});
        while (dec.step()) {
        }
        std::printf("%.2f tokens per request and step; %s\n", dec.report().tau(),
                    offer.table ? "priced" : offer.refusal.c_str());
    }
    std::filesystem::remove(file);
}
