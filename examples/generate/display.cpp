// SPDX-License-Identifier: MIT
#include "display.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include <engine/kernels.hpp>

#include "numbers.hpp"

namespace generate {
namespace {

/// A line of a table. Blanks at its end are left out.
class row {
public:
    explicit row(std::string const& name, std::size_t width = 28) { cell(name, width); }

    row& cell(std::string const& text, std::size_t width) {
        line_ += text + std::string(width > text.size() ? width - text.size() : 0, ' ');
        return *this;
    }
    row& right(std::string const& text, std::size_t width) {
        line_ += std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
        return *this;
    }
    void print(std::string const& rest = {}) {
        line_ += rest;
        line_.erase(line_.find_last_not_of(' ') + 1);
        std::printf("    %s\n", line_.c_str());
    }

private:
    std::string line_;
};

// ---- before ----------------------------------------------------------------------------------------------------

/// A few points say what a curve is like.
std::string in_words(engine::measured_cost const& cost) {
    auto const points = cost.curve().points();
    std::size_t const last = points.size() - 1;
    std::size_t const shown = std::clamp<std::size_t>(last, 1, 4);
    std::string text;
    for (std::size_t i = 0; i <= shown; ++i) {
        auto const& p = points[i * last / shown];
        text += (i > 0 ? ", " : "") + grouped(p.batch_tokens) + ": " + in_time(p.seconds);
    }
    auto const& d = cost.draft();
    double const whole = d.fixed + d.request + d.token * static_cast<double>(std::max<std::size_t>(last, 1));
    return "a step of so many tokens takes " + text + "; drafting " + in_time(whole);
}

// ---- acceptance ------------------------------------------------------------------------------------------------

/// Acceptance by position, and how many rounds that is of; of long blocks so many positions below each other.
void print_positions(sureleap::round_report const& report, bool with_counts) {
    constexpr std::size_t width = 10;
    for (std::size_t first = 0; first < report.block_size(); first += width) {
        row position("position in the block"), reached("rounds that got there"), accepted("accepted there");
        for (std::size_t k = first; k < std::min(first + width, report.block_size()); ++k) {
            position.right(grouped(k + 1), 6);
            reached.right(grouped(report.reached(k)), 6);
            accepted.right(report.reached(k) > 0 ? fixed(report.conditional_acceptance(k), 2) : "-", 6);
        }
        position.print();
        if (with_counts) reached.print();
        accepted.print();
    }
}

void print_acceptance(sureleap::round_report const& report) {
    print_heading("acceptance");
    row("tau").print(fixed(report.tau(), 2) + " tokens a round, the target's own included");
    row("rounds").print(grouped(report.rounds()) + ", in " + grouped(report.target_calls()) + " passes of the target");
    row("tokens").print(grouped(report.drafted()) + " drafted, " + grouped(report.verified()) + " verified, " +
                        grouped(report.accepted()) + " accepted, " + grouped(report.emitted()) + " emitted");
    std::puts("");
    print_positions(report, true);
}

// ---- times -----------------------------------------------------------------------------------------------------

struct named_run {
    char const* name;
    decoding const* run;
};

/// The runs side by side.
void print_times(std::vector<named_run> const& runs) {
    constexpr std::size_t width = 12;
    constexpr std::size_t run_width = 3 * width;
    print_heading("time");
    row names(""), titles("");
    for (auto const& [name, _] : runs) {
        names.cell(name, run_width);
        titles.cell("all", width).cell("a step", width).cell("share", width);
    }
    names.print();
    titles.print();
    auto const phase = [&](char const* name, double engine::phase_times::* which, bool of_drafting) {
        row line(name);
        for (auto const& [_, run] : runs) {
            double const seconds = run->times.*which;
            if (of_drafting && run->report.drafted() == 0) {
                line.cell("-", run_width);
            } else {
                line.cell(in_time(seconds), width)
                    .cell(in_time(seconds / static_cast<double>(run->report.target_calls())), width)
                    .cell(fixed(100 * seconds / run->times.decode(), 1) + " %", width);
            }
        }
        line.print();
    };
    if (runs.back().run->report.drafted() > 0) {
        phase("draft", &engine::phase_times::draft, true);
        phase("sequential head", &engine::phase_times::head, true);
    }
    phase("verify (the target)", &engine::phase_times::verify, false);
    phase("schedule and accept", &engine::phase_times::accept, false);
    row all("decoding"), prompt("the prompt, before");
    for (auto const& [_, run] : runs) {
        all.cell(in_time(run->times.decode()), width).cell(in_time(1 / run->steps_per_second()), run_width - width);
        prompt.cell(in_time(run->times.prefill), run_width);
    }
    all.print();
    prompt.print();
}

/// Every step reads all weights; nothing decodes faster than memory is read.
void print_memory(models const& loaded, findings const& found) {
    if (found.floor.bytes_per_second == 0) return;
    auto const bytes = static_cast<double>(loaded.target_facts.weight_bytes);
    print_heading("memory");
    row("plain decoding")
        .print(rounded(1e-9 * bytes * found.plain->steps_per_second()) +
               " GB/s: " + in_bytes(loaded.target_facts.weight_bytes) + " of weights a step");
    row("reading only")
        .print(rounded(1e-9 * found.floor.bytes_per_second) + " GB/s: over a buffer of " + in_bytes(found.floor.bytes));
}

// ---- comparison ------------------------------------------------------------------------------------------------

std::string around(std::vector<token_id> const& tokens, std::size_t index) {
    std::string text;
    std::size_t const first = index < 3 ? 0 : index - 3;
    for (std::size_t i = first; i < std::min(tokens.size(), index + 6); ++i) text += std::to_string(tokens[i]) + " ";
    return text + (index >= tokens.size() ? "(the end)" : "...");
}

void print_comparison(findings const& found) {
    if (!found.comparable) {
        row("Two samples of one law: this rule keeps the distribution, not the random stream.").print();
        row("With --rule coupled, or --temperature 0, both runs must write the same tokens.").print();
    } else if (auto const at = found.parting(); at && found.may_part) {
        row("the same as plain decoding up to token " + grouped(at->index) + " of copy " + grouped(at->copy + 1) +
            ": rows of this target depend on the batch,")
            .print();
        row("and two tokens were nearly level there.").print();
    } else if (at) {
        row("DIFFERENT from plain decoding from token " + grouped(at->index + 1) + " of copy " + grouped(at->copy + 1) +
            " on, and they must not be:")
            .print();
        row("speculative").print(around(found.speculative->outputs[at->copy], at->index));
        row("plain").print(around(found.plain->outputs[at->copy], at->index));
    } else {
        row("identical to plain decoding: " + counted(found.plain->report.emitted(), "token")).print();
    }
}

// ---- the result ------------------------------------------------------------------------------------------------

std::string percent(double part) {
    return fixed(100 * part, 1) + " %";
}

/// The library's own work, as a part of decoding: what the target and the draft model do not do.
struct library_share {
    double drafts;  ///< the sequential head, confidences, draws
    double rest;    ///< schedule, verification, bookkeeping

    explicit library_share(engine::phase_times const& t) : drafts(t.head / t.decode()), rest(t.accept / t.decode()) {}
};

void print_result(options const& chosen, models const& loaded, findings const& found,
                  std::vector<named_run> const& runs) {
    constexpr std::size_t width = 14;
    print_heading("result");
    row names(""), speed("tokens a second"), tau("tokens a round (tau)");
    row step(chosen.copies > 1 ? "time of a step" : "time of a round");
    row target("  the target"), draft("  the draft model"), library("  sureleap");
    for (auto const& [name, run] : runs) {
        engine::phase_times const& t = run->times;
        library_share const own(t);
        names.cell(name, width);
        speed.cell(rounded(run->tokens_per_second()), width);
        tau.cell(fixed(run->report.tau(), 2), width);
        step.cell(in_time(1 / run->steps_per_second()), width);
        target.cell(percent(t.verify / t.decode()), width);
        draft.cell(run->report.drafted() > 0 ? percent(t.draft / t.decode()) : "-", width);
        library.cell(percent(own.drafts + own.rest), width);
    }
    names.print();
    if (auto const ratio = found.ratio()) {
        speed.print(fixed(*ratio, 2) + " times as many");
    } else {
        speed.print();
    }
    if (!found.speculative) {
        for (row* const line : {&tau, &step, &target, &library}) line->print();
        return;
    }
    auto const& report = found.speculative->report;
    library_share const own(found.speculative->times);
    tau.print(grouped(report.accepted()) + " of " + grouped(report.verified()) + " drafts accepted in " +
              counted(report.rounds(), "round"));
    step.print();
    target.print();
    if (loaded.draft || loaded.text_draft) draft.print();
    library.print("drafts " + percent(own.drafts) + ", schedule and verification " + percent(own.rest));
    std::puts("");
    print_positions(report, false);
    // One that was made for the target is right about half of its first drafts, and one of another model about the
    // commonest tokens.
    if (loaded.draft && report.reached(0) >= 100 && report.conditional_acceptance(0) < 0.05) {
        std::puts("");
        row("The drafter is right about " + percent(report.conditional_acceptance(0)) +
            " of its first drafts: is it made for this target?")
            .print();
    }
    if (!found.plain) return;
    std::puts("");
    print_comparison(found);
}

}  // namespace

std::string in_words(sureleap::request_settings const& s) {
    if (s.target_transform().greedy()) return "greedy";
    std::string text = "temperature " + terminal::plain(s.temperature);
    if (s.top_k > 0) text += ", top-k " + std::to_string(s.top_k);
    if (s.top_p < 1) text += ", top-p " + terminal::plain(s.top_p);
    if (s.min_p > 0) text += ", min-p " + terminal::plain(s.min_p);
    return text;
}

void show(std::string const& text) {
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
}

void print_setup(options const& chosen, models const& loaded, findings const& found) {
    auto const& target = loaded.target_facts;
    auto const& draft = loaded.draft_facts;
    auto const fact = [](char const* name, std::string const& value) { row(name, 12).print(value); };
    std::puts("sureleap: speculative decoding on a CPU\n");
    fact("target", target.name + ": " + target.description);
    fact("draft", chosen.speculates() ? draft.name + ": " + draft.description : "none");
    fact("memory", in_bytes(target.file_bytes) + " of files mapped for the target" +
                       (draft.file_bytes > 0 ? ", " + in_bytes(draft.file_bytes) + " for the draft" : ""));
    fact("decoding", in_words(chosen.settings) + ", seed " + std::to_string(chosen.seed) + ", rule " + chosen.rule +
                         (chosen.speculates() ? ", schedule " + chosen.schedule : ""));
    if (found.cost) fact("profile", in_words(*found.cost));
    std::string const output = ", at most " + grouped(chosen.settings.max_new_tokens) + " new";
    if (chosen.converses()) {
        fact("context", counted(chosen.context, "token") + output + " in an answer");
    } else {
        fact("prompt", counted(found.prompt_tokens, "token") + output +
                           (chosen.copies > 1 ? ", " + grouped(chosen.copies) + " copies" : ""));
    }
    std::string const ranks = found.ranks > 1 ? counted(found.ranks, "rank") + " of " : "";
    fact("machine", ranks + counted(found.threads, "thread") + ", " + engine::instruction_set() +
                        (chosen.bf16 ? ", bf16 arithmetic" : ""));
    std::fflush(stdout);
}

void print_findings(options const& chosen, models const& loaded, findings const& found) {
    std::vector<named_run> runs;  // plain decoding first, as what the other is compared with
    if (found.plain) runs.push_back({"plain", &*found.plain});
    if (found.speculative) runs.push_back({"speculative", &*found.speculative});
    if (chosen.verbose) {
        if (found.speculative) print_acceptance(found.speculative->report);
        print_times(runs);
        if (!chosen.tiny()) print_memory(loaded, found);
    }
    print_result(chosen, loaded, found, runs);
    if (chosen.tiny() && found.speculative) {
        std::puts("\n    Models this small say nothing about speed: here a draft costs more than the target.");
    }
}

}  // namespace generate
