// SPDX-License-Identifier: MIT
#include "options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <system_error>
#include <utility>

#include <CLI/CLI.hpp>

#include <engine/config.hpp>
#include <engine/parts.hpp>
#include <generate/command_line.hpp>
#include <generate/schedule.hpp>

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
    "  threshold    tau and verified tokens by confidence threshold (Figure 5)\n"
    "  calibration  confidences against outcomes, before and after temperature scaling (Figure 6)\n"
    "  shortlist    tau of drafting from the best M tokens of the backbone only\n"
    "  speed        tokens a second beside plain decoding, one text at a time\n"
    "  perplexity   of the prompts under the target; needs no drafter\n"
    "  passes       time of a pass of 1 to 8 rows behind the first prompt; needs no drafter\n"
    "\n"
    "Example:\n"
    "  evaluate tau speed --target small --draft dspark=small-dspark --draft dflash=small-dflash \\\n"
    "           --prompts test.jsonl --prompts math=gsm8k.jsonl --template math='Question: {}\\nAnswer:'\n";

/// More than anybody means.
constexpr std::size_t many = std::size_t{1} << 31;

constexpr std::array<char const*, 8> known_experiments{"tau",       "rules", "threshold",  "calibration",
                                                       "shortlist", "speed", "perplexity", "passes"};

bool is_known(std::string const& experiment) {
    return std::find(known_experiments.begin(), known_experiments.end(), experiment) != known_experiments.end();
}
/// The others are of the target alone.
bool is_of_drafters(std::string const& experiment) {
    return is_known(experiment) && experiment != "perplexity" && experiment != "passes";
}

/// "name=value" in two.
struct assignment {
    std::optional<std::string> name;
    std::string value;
};
assignment split(std::string const& text) {
    std::size_t const at = text.find('=');
    if (at == std::string::npos) return {std::nullopt, text};
    return {text.substr(0, at), text.substr(at + 1)};
}
assignment named(char const* flag, std::string const& text, char const* value) {
    assignment const parts = split(text);
    if (!parts.name || parts.name->empty() || parts.value.empty()) {
        fail_with(flag, " is '", text, "', expected NAME=", value);
    }
    return parts;
}

/// What CLI11 collects as texts before it is understood.
struct raw_flags {
    std::vector<std::string> drafts, zero_biases, max_drafts, schedules, prompts, templates;
};

void add_models(CLI::App& app, options& o, raw_flags& raw) {
    option_group models(app, "Models");
    models.add("--target", o.target, "FOLDER", "A Qwen3ForCausalLM model as Hugging Face saves it")->required();
    models
        .add("--draft", raw.drafts, "NAME=FOLDER",
             "A DSpark, DFlash or Eagle3 drafter made for this target, or lookup\n"
             "(NAME=lookup); once for every drafter")
        ->allow_extra_args(false);
    models
        .add("--zero-bias", raw.zero_biases, "NAME",
             "That drafter also without its sequential head, as 'NAME, no bias'")
        ->allow_extra_args(false);
    models.add("--of", o.of, "NAME",
               "The drafter that rules, threshold, calibration and shortlist look at,\n"
               "and that tau compares the others with. Default: the first");
}

void add_prompts(CLI::App& app, options& o, raw_flags& raw) {
    option_group prompts(app, "Prompts");
    prompts
        .add("--prompts", raw.prompts, "[NAME=]FILE",
             "JSON lines with 'prompt', 'question', 'turns' (the first) or 'tokens'.\n"
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

void add_decoding(CLI::App& app, options& o, raw_flags& raw) {
    option_group decoding(app, "Decoding");
    decoding.add("--temperature", o.temperature, "T", "0 is greedy")->capture_default_str();
    decoding.add("--rule", o.rule, "NAME", "What is accepted: token, token-argmax, block, match, coupled")
        ->capture_default_str();
    decoding
        .add("--max-draft", raw.max_drafts, "[NAME=]N",
             "Draft and verify only the first N tokens of a block.\n"
             "Of all drafters, or of NAME; later ones count")
        ->allow_extra_args(false);
    decoding
        .add("--schedule", raw.schedules, "[NAME=]SCHEDULE",
             "For speed, how much of a block is verified: fixed, fixed:N,\n"
             "threshold:C, greedy, top-k, planned (the last three by a profile).\n"
             "Of all drafters, or of NAME; later ones count. Default: fixed")
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
    list("--shortlists", o.shortlists, "M,...", "shortlist: sizes");
}

void add_running(CLI::App& app, options& o) {
    option_group running(app, "Running");
    running.add("--batch", o.batch, "N", "Texts at a time, but for speed")->check(at_most(4096))->capture_default_str();
    running.add("--threads", o.threads, "N", "Default: one per core")->check(at_most(1024));
    running.flag("--bf16", o.bf16, generate::about_bf16);
    running.add("--json", o.json, "FILE", "Write all counts");
    running.add("--record", o.record, "FILE",
                "calibration: write its rounds as well, a JSON object a line, for serve\n"
                "--recorded");
    running.flag("--markdown", o.markdown, "Tables as Markdown");
}

/// What a flag "[NAME=]VALUE" says, for the drafter of that name or for all.
template <class F>
void for_drafts(options& o, char const* flag, std::vector<std::string> const& texts, F const& set) {
    for (std::string const& text : texts) {
        assignment const parts = split(text);
        bool used = false;
        for (draft_source& d : o.drafts) {
            if (parts.name && d.name != *parts.name) continue;
            set(d, parts.value);
            used = true;
        }
        if (!used) fail_with(flag, " is for '", *parts.name, "', expected the NAME of a --draft");
    }
}

std::size_t parse_max_draft(std::string const& text) {
    std::size_t value = 0;
    auto const [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc{} || end != text.data() + text.size() || value < 1 || value > engine::limits::block_size) {
        fail_with("--max-draft is '", text, "', expected a number in 1 .. ", engine::limits::block_size);
    }
    return value;
}

void complete_drafts(options& o, raw_flags const& raw) {
    for (std::string const& text : raw.drafts) {
        assignment const parts = named("--draft", text, "FOLDER");
        o.drafts.push_back({*parts.name, parts.value});
    }
    for (std::string const& name : raw.zero_biases) {
        auto const found = std::find_if(o.drafts.begin(), o.drafts.end(),
                                        [&](draft_source const& d) { return d.name == name && !d.zero_bias; });
        if (found == o.drafts.end()) fail_with("--zero-bias is '", name, "', expected the NAME of a --draft");
        draft_source const bare{name + ", no bias", found->folder, true};
        o.drafts.insert(found + 1, bare);
    }
    for_drafts(o, "--max-draft", raw.max_drafts,
               [](draft_source& d, std::string const& value) { d.max_draft = parse_max_draft(value); });
    for_drafts(o, "--schedule", raw.schedules, [](draft_source& d, std::string const& value) {
        static_cast<void>(generate::make_schedule(value, generate::unmeasured));
        d.schedule = value;
    });
    std::set<std::string> names;
    for (draft_source const& d : o.drafts) {
        if (!names.insert(d.name).second) fail_with("--draft: '", d.name, "' is there twice, expected different names");
    }
    if (o.of.empty()) o.of = o.drafts.front().name;
    if (!names.contains(o.of)) fail_with("--of is '", o.of, "', expected the NAME of a --draft");
}

void complete_prompts(options& o, raw_flags const& raw) {
    for (std::string const& text : raw.prompts) {
        assignment const parts = split(text);
        if (parts.value.empty() || (parts.name && parts.name->empty())) {
            fail_with("--prompts is '", text, "', expected FILE or NAME=FILE");
        }
        o.prompts.push_back({parts.name, parts.value});
    }
    for (std::string const& text : raw.templates) {
        assignment parts = named("--template", text, "TEXT");
        if (parts.value.find("{}") == std::string::npos) {
            fail_with("--template of '", *parts.name, "' has no {}, expected it where the question goes");
        }
        for (std::size_t at; (at = parts.value.find("\\n")) != std::string::npos;) parts.value.replace(at, 2, "\n");
        if (!o.templates.emplace(*parts.name, parts.value).second) {
            fail_with("--template of '", *parts.name, "' is there twice");
        }
    }
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
            fail_with(
                "experiment '", name,
                "' is unknown, expected tau, rules, threshold, calibration, shortlist, speed, perplexity or passes");
        }
        if (!names.insert(name).second) fail_with("experiment '", name, "' is there twice");
    }
    auto const usable = [](double t) { return t >= 0.0 && t <= 100.0; };
    auto const warm = [](double t) { return t >= 1e-3 && t <= 100.0; };
    check_all("--temperature", std::vector{o.temperature}, "a number in [0, 100]", usable);
    check_all("--temperatures", o.temperatures, "numbers in [0, 100]", usable);
    check_all("--cooler", std::vector{o.cooler}, "a number in [0.001, 100]", warm);
    check_all("--thresholds", o.thresholds, "numbers in [0, 1]", [](double c) { return c >= 0.0 && c <= 1.0; });
    check_all("--sharper", o.sharper, "numbers in [0.2, 5], which temperature scaling can undo",
              [](double s) { return s >= 0.2 && s <= 5.0; });
    check_all("--shortlists", o.shortlists, "at least 1", [](std::size_t m) { return m > 0; });
    if (!o.record.empty() && !names.contains("calibration")) {
        fail_with("--record is of the experiment calibration, expected that among the experiments");
    }
    if (names.contains("calibration") && !warm(o.temperature)) {
        fail_with("calibration samples: --temperature must be in [0.001, 100]");
    }
    static_cast<void>(engine::make_rule(o.rule));
}

}  // namespace

draft_source const& options::closely() const {
    return *std::find_if(drafts.begin(), drafts.end(), [&](draft_source const& d) { return d.name == of; });
}

std::optional<options> parse_options(int argc, char const* const* argv) {
    options chosen;
    raw_flags raw;
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
            if (is_of_drafters(name)) fail_with("--draft is missing, expected NAME=FOLDER, which ", name, " measures");
        }
        raw.drafts = {"plain=none"};
    }
    complete_drafts(chosen, raw);
    complete_prompts(chosen, raw);
    check(chosen);
    return chosen;
}

}  // namespace evaluate
