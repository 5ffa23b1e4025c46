// SPDX-License-Identifier: MIT
//
// Speculative decoding on real models: continues a prompt with a drafter, then without one, and shows what the drafter
// was worth. Both runs share the models, the kernels and the process, so the ratio is that of decoding alone.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include <unistd.h>

#include <engine/read_floor.hpp>
#include <engine/thread_pool.hpp>
#include <engine/token_regex.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/serving/stop_texts.hpp>

#include "chat.hpp"
#include "decoding.hpp"
#include "display.hpp"
#include "json_report.hpp"
#include "loading.hpp"
#include "numbers.hpp"
#include "options.hpp"
#include "process_ranks.hpp"
#include "profile.hpp"
#include "prompt.hpp"
#include "rank_agreement.hpp"
#include "schedule.hpp"
#include "status_line.hpp"
#include "text_stream.hpp"
#include "trace.hpp"

namespace {

using namespace generate;

/// "plain: 17 tokens, 5.70 a second"
std::string progress(char const* name, decoding const& so_far, job const& what) {
    auto const& report = so_far.report;
    if (report.emitted() == 0) {
        return std::string(name) + ": prompt, " + grouped(so_far.prefilled) + " of " +
               counted(what.copies * (what.prompt.size() - 1), "token");
    }
    return std::string(name) + ": " + counted(report.emitted(), "token") + ", " + rounded(so_far.tokens_per_second()) +
           " a second" + (report.drafted() > 0 ? ", tau " + fixed(report.tau(), 2) : "");
}

/// Shows the first copy as it comes, the others when all are done.
decoding decode_and_show(char const* name, bool drafts, method const& how, job const& what, models& loaded,
                         prompt const& asked, engine::thread_pool& pool, status_line& status) {
    // Text and status line would write over each other. Where both go to a terminal, the text is the progress.
    bool const one_terminal = ::isatty(STDOUT_FILENO) == 1;
    bool const coloured = drafts && terminal::wants_colours(STDOUT_FILENO);
    print_heading(text_heading(coloured));
    text_stream text(asked.tokenizer, coloured);
    auto result =
        decode(how, what, *loaded.target, pool, [&](decoding const& so_far, std::span<round_seen const> news) {
            if (!one_terminal || so_far.report.emitted() == 0) {
                status.update([&] { return progress(name, so_far, what); });
            } else {
                status.clear();
            }
            for (round_seen const& round : news) show(text.push(round));
        });
    status.clear();
    show(text.finish());
    for (std::size_t copy = 1; copy < result.outputs.size(); ++copy) {
        print_heading("text, copy " + std::to_string(copy + 1));
        text_stream another(asked.tokenizer, false);
        show(another.push(result.outputs[copy], origin::target) + another.finish());
    }
    return result;
}

/// For a run beside one that was shown.
decoding decode_silently(char const* name, method const& how, job const& what, models& loaded,
                         engine::thread_pool& pool, status_line& status) {
    auto result = decode(how, what, *loaded.target, pool, [&](decoding const& so_far, std::span<round_seen const>) {
        status.update([&] { return progress(name, so_far, what); });
    });
    status.clear();
    return result;
}

/// Of all cores, if the flags leave it open.
std::size_t threads_of(options const& chosen, process_ranks const& processes) {
    std::size_t const cores = std::thread::hardware_concurrency();
    return chosen.threads > 0 ? chosen.threads : std::max<std::size_t>(1, cores / processes.on_this_machine());
}

int run(options const& chosen, process_ranks& processes) {
    if (!processes.is_first() && std::freopen("/dev/null", "w", stdout) == nullptr) {
        sureleap::fail_with("/dev/null cannot be written");  // all ranks find the same, and one says it
    }
    if (processes.ranks() != nullptr && chosen.converses()) {
        sureleap::fail_with("a conversation is held with one process, not with ranks: give --prompt");
    }
    status_line status;
    engine::thread_pool pool(threads_of(chosen, processes));
    prompt const asked = make_prompt(chosen);
    models loaded = load_models(chosen, asked.tokens.size(), pool, status, processes.ranks());
    if (processes.ranks() != nullptr) expect_agreement(*processes.ranks(), chosen, asked, loaded);

    auto const rule = engine::make_rule(chosen.rule);
    findings found{.prompt_tokens = asked.tokens.size(), .threads = pool.threads()};
    if (processes.ranks() != nullptr) found.ranks = processes.ranks()->size();
    std::optional<engine::learned_cost> cost;
    auto schedule = make_schedule(chosen.speculates() ? chosen.schedule : "fixed", loaded.drafter, [&] {
        pass_times const passes = measure_passes(loaded, chosen, pool, status);
        found.cost = measure_cost(loaded, chosen, pool, status, passes);
        return cost.emplace(*found.cost);
    });
    status.clear();
    print_setup(chosen, loaded, found);

    job what{.prompt = asked.tokens, .settings = chosen.settings, .seed = chosen.seed, .copies = chosen.copies};
    what.settings.stop_tokens = loaded.stop_tokens;
    auto const piece = [&](token_id x) noexcept { return asked.tokenizer->bytes_of(x); };
    sureleap::stop_texts const ends{piece, chosen.stops};
    if (!chosen.stops.empty()) what.settings.text_end = ends;
    std::optional<engine::token_regex> regex;
    if (!chosen.regex.empty()) {
        regex.emplace(chosen.regex, *asked.tokenizer, loaded.target->vocabulary(), loaded.stop_tokens);
        what.regex = &*regex;
    }
    engine::any_drafter<float> nothing = sureleap::no_drafter<float>(loaded.target->vocabulary());
    method const speculative{loaded.drafter, loaded.draft.get(), std::move(schedule), rule, cost};
    method const plain{nothing, nullptr, sureleap::fixed_schedule{}, rule};
    if (chosen.converses()) {
        converse(chosen, chosen.speculates() ? speculative : plain, what, loaded, asked, pool, status);
        return EXIT_SUCCESS;
    }
    if (chosen.speculates()) {
        found.speculative = decode_and_show("speculative", true, speculative, what, loaded, asked, pool, status);
        if (chosen.plain) found.plain = decode_silently("plain", plain, what, loaded, pool, status);
    } else {
        found.plain = decode_and_show("plain", false, plain, what, loaded, asked, pool, status);
    }
    found.may_part = loaded.target->rows_depend_on_batch();
    found.comparable = found.speculative && found.plain && is_reproducible(what.settings, rule);
    bool const asks_for_rates = chosen.verbose || !chosen.json.empty();
    if (asks_for_rates && found.plain && loaded.target_facts.weight_bytes > 0) {
        found.floor = engine::measure_read_floor(pool, loaded.target_facts.weight_bytes);
    }

    print_findings(chosen, loaded, found);
    if (!processes.is_first()) return EXIT_SUCCESS;
    if (!chosen.trace.empty()) write_trace(chosen, loaded, asked, *found.speculative);
    if (!chosen.json.empty()) write_json(chosen, loaded, asked.tokens, found);
    return found.parting() && !found.may_part ? EXIT_FAILURE : EXIT_SUCCESS;
}

}  // namespace

int main(int argc, char** argv) {
    std::unique_ptr<generate::process_ranks> processes;
    try {
        auto const chosen = generate::parse_options(argc, argv);
        if (!chosen) return EXIT_SUCCESS;
        processes = generate::meet_processes(chosen->rank_seconds);
        return run(chosen->converses() ? generate::with_room_to_talk(*chosen) : *chosen, *processes);
    } catch (std::exception const& problem) {
        std::fflush(stdout);
        std::fprintf(stderr, "generate: %s\n", problem.what());
        if (processes) processes->abandon();
        return 2;
    }
}
