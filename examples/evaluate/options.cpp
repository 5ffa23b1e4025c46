// SPDX-License-Identifier: MIT
#include "options.hpp"

#include <algorithm>
#include <array>
#include <set>

#include <CLI/CLI.hpp>

#include <engine/parts.hpp>
#include <generate/command_line.hpp>

namespace evaluate {
namespace {

using generate::at_most;
using generate::option_group;
using sureleap::fail_with;

constexpr char const* about =
    "Measures drafters of one target on prompts: the tables and figures of the DSpark paper that need no\n"
    "data centre. Tables on stdout; counts with --json, for plot.py.\n";

constexpr char const* footer =
    "Experiments:\n"
    "  tau          tokens a round by domain and drafter, acceptance by position (Table 1, Figures 2 to 4)\n"
    "  rules        tau of every acceptance rule, by temperature\n"
    "  threshold    tau and verified tokens by threshold of confidence and survival (Figure 5)\n"
    "  calibration  confidences against outcomes, before and after temperature scaling (Figure 6)\n"
    "  shortlist    tau of drafting from the best M tokens of the backbone only\n"
    "  speed        tokens a second beside plain decoding, one text at a time\n"
    "  batch        the same of several at once, beside every fixed draft length\n"
    "  equality     every token against plain decoding's, one text and several at a time\n"
    "  trees        trees of drafts beside chains, at equal rows of the target\n"
    "  costs        the same priced by step times of other machines, and the schedule's choice\n"
    "  perplexity   of the prompts under the target; needs no drafter\n"
    "  passes       time of a pass of 1 to 8 rows behind the first prompt; needs no drafter\n"
    "\n"
    "Example:\n"
    "  evaluate tau speed --target small --draft dspark=small-dspark --draft dflash=small-dflash \\\n"
    "           --prompts test.jsonl --prompts math=gsm8k.jsonl --template math='Question: {}\\nAnswer:'\n";

/// More than anybody means.
constexpr std::size_t many = std::size_t{1} << 31;

constexpr std::array<char const*, 12> known_experiments{"tau",       "rules", "threshold",  "calibration",
                                                        "shortlist", "speed", "batch",      "equality",
                                                        "trees",     "costs", "perplexity", "passes"};

bool is_known(std::string const& experiment) {
    return std::find(known_experiments.begin(), known_experiments.end(), experiment) != known_experiments.end();
}
/// The others are of the target alone.
bool is_of_drafters(std::string const& experiment) {
    return is_known(experiment) && experiment != "perplexity" && experiment != "passes";
}

void add_models(CLI::App& app, options& o, source_flags& raw) {
    option_group models(app, "Models");
    models
        .add("--target", o.target, "PATH", "A Qwen3 or Llama model: a folder as Hugging Face saves it, or a GGUF file")
        ->required();
    models
        .add("--draft", raw.drafts, "NAME=PATH",
             "A DSpark, DFlash or Eagle3 drafter made for this target; or lookup, which\n"
             "drafts what followed the last tokens before; or none, plain decoding once\n"
             "more. lookup+PATH: lookup where it finds something, the model elsewhere,\n"
             "and nothing for lookup+none; store+PATH: in speed, it also looks in the\n"
             "texts before; zeroed:PATH: the model with all weights 0. Once for every\n"
             "drafter")
        ->allow_extra_args(false);
    models
        .add("--zero-bias", raw.zero_biases, "NAME",
             "That drafter also without its sequential head, as 'NAME, no bias'")
        ->allow_extra_args(false);
    models.add("--of", o.of, "NAME",
               "The drafter that rules, threshold, calibration, shortlist and batch look\n"
               "at, and that tau compares the others with. Default: the first");
}

void add_prompts(CLI::App& app, options& o, source_flags& raw) {
    option_group prompts(app, "Prompts");
    prompts
        .add("--prompts", raw.prompts, "[NAME=]FILE",
             "JSON lines with 'messages' (as chat), 'prompt', 'question', 'turns' (the\n"
             "first) or 'tokens'.\n"
             "Their domain is NAME, or what a line's 'domain' says; with both, lines\n"
             "of other domains are left out. Once for every file")
        ->required()
        ->allow_extra_args(false);
    prompts
        .add("--template", raw.templates, "NAME=TEXT",
             "Text around the questions and turns of a domain, {} in their place;\n"
             "\\n is a new line. A 'prompt' is taken as it is")
        ->allow_extra_args(false);
    prompts.add("--texts", o.texts, "N", "Prompts of a domain, the first ones")
        ->check(at_most(many))
        ->capture_default_str();
    prompts.add("--tokens", o.tokens, "N", "Tokens measured of a text")->check(at_most(many))->capture_default_str();
    prompts
        .add("--context", o.context, "N",
             "Positions a text may have; longer prompts lose their beginning.\n"
             "Default: what they need, or the target's own limit")
        ->check(at_most(many));
}

void add_decoding(CLI::App& app, options& o, source_flags& raw) {
    option_group decoding(app, "Decoding");
    decoding.add("--temperature", o.sampling.temperature, "T", "0 is greedy")->capture_default_str();
    decoding.add("--top-k", o.sampling.top_k, "K", "Keep the K likeliest tokens; 0 keeps all")->capture_default_str();
    decoding.add("--top-p", o.sampling.top_p, "P", "Keep the likeliest tokens of this mass")->capture_default_str();
    decoding.add("--min-p", o.sampling.min_p, "P", "Keep tokens of at least P times the likeliest")
        ->capture_default_str();
    decoding.add("--rule", o.rule, "NAME", "What is accepted: token, token-argmax, block, match, coupled")
        ->capture_default_str();
    decoding
        .add("--tree", raw.trees, "[NAME=]N", "Draft trees of up to N tokens, with all drafters or with NAME. DSpark")
        ->allow_extra_args(false);
    decoding
        .add("--max-draft", raw.max_drafts, "[NAME=]N",
             "Draft and verify only the first N tokens of a block.\n"
             "Of all drafters, or of NAME; later ones count")
        ->allow_extra_args(false);
    decoding
        .add("--schedule", raw.schedules, "[NAME=]SCHEDULE",
             "For speed, batch and equality, how much of a block is drafted and\n"
             "verified, as in generate: auto, fixed, fixed:N, threshold:C,\n"
             "survival:C, greedy, top-k\n"
             "or planned. Of all drafters, or of NAME; later ones count. Default: auto")
        ->allow_extra_args(false);
    decoding.add("--seed", o.seed, "N", "Seed of all random choices")->capture_default_str();
    decoding.flag("--ignore-eos", o.ignore_eos, "Do not stop at the model's stop tokens");
}

void add_experiments(CLI::App& app, options& o) {
    option_group experiments(app, "Experiments");
    auto const list = [&](char const* name, auto& values, char const* type, char const* text) {
        experiments.add(name, values, type, text)->delimiter(',')->capture_default_str();
    };
    list("--temperatures", o.temperatures, "T,...", "rules: sampling temperatures");
    list("--thresholds", o.thresholds, "C,...", "threshold: confidences");
    experiments.add("--rounds", o.rounds, "N", "calibration: rounds to fit on, and rounds to report on, at least")
        ->check(at_most(many))
        ->capture_default_str();
    experiments.add("--cooler", o.cooler, "T", "calibration: a second sampling temperature")->capture_default_str();
    list("--sharper", o.sharper, "S,...",
         "calibration: logits of the confidences times these, position after\n"
         "position, are the overconfident scores");
    experiments.flag("--store", o.store,
                     "calibration: put the temperatures fitted at --temperature into the\n"
                     "drafter's config.json, where they are used from then on");
    list("--shortlists", o.shortlists, "M,...", "shortlist: sizes");
    experiments.add("--repeats", o.repeats, "N", "speed and batch: runs over all texts; the median counts")
        ->check(at_most(1000))
        ->capture_default_str();
    experiments.flag("--fresh", o.fresh, "speed: nothing that schedule and drafter learn is kept from text to text");
    list("--at-once", o.at_once, "N,...", "batch and equality: numbers of requests");
    list("--rows", o.rows, "N,...", "trees and costs: rows of the target in a round");
    experiments
        .add("--costs", o.costs, "STEPS",
             "costs: step times. FILE#NAME, a member of a JSON file with 'rows' and\n"
             "'seconds' or 'passes'; or WORLD@R, a world of serve with R requests.\n"
             "Once for each")
        ->allow_extra_args(false);
    experiments.add("--figures", o.figures, "FILE", "costs: published figures, for the worlds h20 and mi350x");
    experiments
        .add("--draft-share", o.draft_share, "S",
             "costs: what drafting takes of a step without drafts, where nothing says it")
        ->capture_default_str();
}

void add_running(CLI::App& app, options& o) {
    option_group running(app, "Running");
    running.add("--batch", o.batch, "N", "Texts at a time, where it is not speed that is measured")
        ->check(at_most(4096))
        ->capture_default_str();
    running.add("--threads", o.threads, "N", "Default: one per core")->check(at_most(1024));
    running.flag("--bf16", o.bf16, generate::about_bf16);
    running.add("--json", o.json, "FILE", "Write all counts");
    running.add("--record", o.record, "FILE",
                "calibration: write its rounds as well, a JSON object a line, for serve\n"
                "--recorded");
    running.flag("--markdown", o.markdown, "Tables as Markdown");
}

template <class T, class F>
void check_all(char const* flag, std::vector<T> const& values, char const* expected, F const& good) {
    if (values.empty()) fail_with(flag, " has no value, expected at least one");
    for (T const& v : values) {
        if (!good(v)) fail_with(flag, " has ", v, ", expected ", expected);
    }
}

void check(options const& o) {
    std::set<std::string> names;
    for (std::string const& name : o.experiments) {
        if (!is_known(name)) {
            fail_with("experiment '", name,
                      "' is unknown, expected tau, rules, threshold, calibration, shortlist, speed, batch, equality, "
                      "trees, costs, perplexity or passes");
        }
        if (!names.insert(name).second) fail_with("experiment '", name, "' is there twice");
    }
    auto const usable = [](double t) { return t >= 0.0 && t <= 100.0; };
    auto const warm = [](double t) { return t >= 1e-3 && t <= 100.0; };
    check_all("--temperature", std::vector{o.sampling.temperature}, "a number in [0, 100]", usable);
    check_all("--temperatures", o.temperatures, "numbers in [0, 100]", usable);
    check_all("--cooler", std::vector{o.cooler}, "a number in [0.001, 100]", warm);
    check_all("--thresholds", o.thresholds, "numbers in [0, 1]", [](double c) { return c >= 0.0 && c <= 1.0; });
    check_all("--sharper", o.sharper, "numbers in [0.2, 5], which temperature scaling can undo",
              [](double s) { return s >= 0.2 && s <= 5.0; });
    check_all("--shortlists", o.shortlists, "at least 1", [](std::size_t m) { return m > 0; });
    check_all("--at-once", o.at_once, "numbers in 1 .. 4096", [](std::size_t n) { return n > 0 && n <= 4096; });
    check_all("--rows", o.rows, "numbers in 2 .. 256", [](std::size_t n) { return n >= 2 && n <= 256; });
    check_all("--draft-share", std::vector{o.draft_share}, "a number in [0, 10]",
              [](double share) { return share >= 0.0 && share <= 10.0; });
    if (names.contains("costs"))
        check_all("--costs", o.costs, "FILE#NAME or WORLD@R", [](auto const&) { return true; });
    for (auto const& [flag, given] : {std::pair{"--record", !o.record.empty()}, std::pair{"--store", o.store}}) {
        if (!given || names.contains("calibration")) continue;
        fail_with(flag, " is of the experiment calibration, expected that among the experiments");
    }
    if (names.contains("calibration") && !warm(o.sampling.temperature)) {
        fail_with("calibration samples: --temperature must be in [0.001, 100]");
    }
    if (std::none_of(o.drafts.begin(), o.drafts.end(), [&](draft_source const& d) { return d.name == o.of; })) {
        fail_with("--of is '", o.of, "', expected the NAME of a --draft");
    }
    auto const& p = o.sampling;
    sureleap::check_settings({.temperature = p.temperature, .top_k = p.top_k, .top_p = p.top_p, .min_p = p.min_p});
    static_cast<void>(engine::make_rule(o.rule));
}

}  // namespace

draft_source const& options::closely() const {
    return *std::find_if(drafts.begin(), drafts.end(), [&](draft_source const& d) { return d.name == of; });
}

std::optional<options> parse_options(int argc, char const* const* argv) {
    options chosen;
    source_flags raw;
    CLI::App app{about, "evaluate"};
    app.footer(footer);
    app.add_option("experiment", chosen.experiments, "What to measure, any of the names below. Default: tau")
        ->type_name("")
        ->expected(0, static_cast<int>(known_experiments.size()));
    add_models(app, chosen, raw);
    add_prompts(app, chosen, raw);
    add_decoding(app, chosen, raw);
    add_experiments(app, chosen);
    add_running(app, chosen);
    if (!generate::parse_flags(app, argc, argv)) return std::nullopt;
    chosen.command.assign(argv, argv + argc);
    if (chosen.experiments.empty()) chosen.experiments = {"tau"};
    if (raw.drafts.empty()) {
        for (std::string const& name : chosen.experiments) {
            if (is_of_drafters(name)) fail_with("--draft is missing, expected NAME=PATH, which ", name, " measures");
        }
        raw.drafts = {"plain=none"};
    }
    chosen.drafts = parse_drafts(raw);
    chosen.prompts = parse_prompts(raw);
    chosen.templates = parse_templates(raw);
    if (chosen.of.empty()) chosen.of = chosen.drafts.front().name;
    check(chosen);
    return chosen;
}

}  // namespace evaluate
