// SPDX-License-Identifier: MIT
#include "options.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>

#include <CLI/CLI.hpp>

#include <generate/command_line.hpp>
#include <sureleap/core/error.hpp>

#include "policies.hpp"

namespace serve {
namespace {

using generate::at_most;
using generate::option_group;
using sureleap::fail_with;

constexpr char const* about =
    "Simulates a speculating engine under load, in virtual time, with the library's own decoder and\n"
    "schedules. Tables on stdout; all numbers with --json, for plot.py.\n";

constexpr char const* footer =
    "Experiments:\n"
    "  run      policies side by side at given concurrencies\n"
    "  sweep    shares of the best static length and of the oracle, by world, texts and concurrency\n"
    "  trace    requests of a recorded trace (--trace), or at random times (--rate): latencies\n"
    "  replicas so many engines behind one queue (--rate), some of which die: what is left of so many\n"
    "           times one\n"
    "  burst    concurrency that jumps within a round, and back\n"
    "  drift    texts and confidences that change during a run\n"
    "  figure8  published throughputs and budgets beside simulated ones, and the frontier of Figure 7\n"
    "\n"
    "Policies:\n"
    "  none, fixed:K, threshold:C, survival:A, closed-loop, lagged[:N], planned, greedy;\n"
    "  not lossless: tetris[:K], oracle; behind any of them +calibrated and +refined (costs and\n"
    "  confidences learned while serving), behind some +never-lose and +hysteresis;\n"
    "  planned+agreed: replicas in step agree on the batch\n"
    "\n"
    "Example:\n"
    "  serve sweep --figures published_figures.json --world smooth,stairs:64,h20 --mix chat --mix math\n";

constexpr std::array<char const*, 7> experiments{"run", "sweep", "trace", "replicas", "burst", "drift", "figure8"};

named_mix parse_mix(char const* flag, std::string const& text) {
    named_mix mix{text, {}, {}};
    for (std::size_t at = 0; at <= text.size();) {
        std::size_t const end = std::min(text.find(',', at), text.size());
        std::string const part = text.substr(at, end - at);
        at = end + 1;
        std::size_t const equals = std::min(part.find('='), part.size());
        double weight = 1;
        if (equals < part.size()) {
            char const* const last = part.data() + part.size();
            auto const [stop, problem] = std::from_chars(part.data() + equals + 1, last, weight);
            if (problem != std::errc{} || stop != last || !(weight >= 0)) weight = -1;
        }
        if (equals == 0 || weight < 0) fail_with(flag, " is '", text, "', expected DOMAIN[=WEIGHT],...");
        mix.domains.push_back(part.substr(0, equals));
        mix.weights.push_back(weight);
    }
    return mix;
}

struct raw_flags {
    std::vector<std::string> mixes;
    std::string after;
};

void add_texts(CLI::App& app, options& o, raw_flags& raw) {
    option_group texts(app, "Texts");
    texts.add("--figures", o.figures, "FILE", "Published figures, for --mix and the worlds made of them");
    texts
        .add("--mix", raw.mixes, "DOMAIN[=W],...",
             "Acceptance by depth as published for chat, code, math, or prefix16;\n"
             "requests of several domains in these proportions. Once for every mix")
        ->allow_extra_args(false);
    texts.add("--acceptance", o.acceptance, "C,...", "Without --mix: acceptance by depth, the last one goes on")
        ->delimiter(',')
        ->capture_default_str();
    texts.add("--recorded", o.recorded, "FILE", "Rounds that evaluate wrote with --record, instead of a formula");
    texts.add("--request-sd", o.request_sd, "S", "Spread of acceptance between requests, in logits [0.5]");
    texts.add("--token-sd", o.token_sd, "S", "And between positions [1.2]");
    texts.add("--anchor-share", o.anchor_share, "X", "Of the variance, known before a block is drawn")
        ->capture_default_str();
    texts.add("--live-share", o.live_share, "X", "And once the tokens before are drawn")->capture_default_str();
    texts.add("--sharpness", o.sharpness, "X", "Confidences lie: their logits times this,")->capture_default_str();
    texts.add("--bias", o.bias, "X", "plus this")->capture_default_str();
}

void add_engine(CLI::App& app, options& o) {
    option_group engine(app, "Engine");
    engine
        .add("--world", o.worlds, "NAME,...",
             "What steps cost: smooth, stairs:N, h20, mi350x (which need --figures),\n"
             "or files as worlds/README.md describes them")
        ->delimiter(',')
        ->capture_default_str();
    engine
        .add("--model", o.model, "WHAT",
             "What schedules believe: same, noisy:S (a profile off by a share S),\n"
             "or another world")
        ->capture_default_str();
    engine.add("--block", o.block_size, "N", "Longest draft [7, or the world's]")->check(at_most(64));
    engine.add("--places", o.places, "N", "trace, replicas: requests of an engine at a time")
        ->check(at_most(65536))
        ->capture_default_str();
    engine.add("--prefill", o.prefill, "S", "trace, replicas: seconds per prompt token, on the same machine")
        ->capture_default_str();
}

void add_load(CLI::App& app, options& o, raw_flags& raw) {
    option_group load(app, "Load");
    load.add("--concurrency", o.concurrency, "N,...", "Requests at a time")->delimiter(',');
    load.add("--tokens", o.tokens, "N", "Of a text, in the mean")->check(at_most(1 << 20))->capture_default_str();
    load.add("--context", o.context, "N", "Of its prompt")->check(at_most(1 << 20))->capture_default_str();
    load.add("--rounds", o.rounds, "N", "To measure: requests times rounds")
        ->check(at_most(std::size_t{1} << 40))
        ->capture_default_str();
    load.add("--trace", o.trace, "FILE", "trace: lines of TIMESTAMP,ContextTokens,GeneratedTokens");
    load.add("--speed-up", o.speed_up, "F", "trace: arrivals come so much faster")->capture_default_str();
    load.add("--skip", o.skip, "N", "trace: requests left out at the beginning")->capture_default_str();
    load.add("--requests", o.requests, "N", "trace, replicas: requests to serve")
        ->check(at_most(std::size_t{1} << 31))
        ->capture_default_str();
    load.add("--rate", o.rate, "R",
             "trace: instead, so many requests a second at random;\n"
             "replicas: so many for each");
    load.add("--replicas", o.replicas, "N,...", "replicas: how many, after one alone")
        ->delimiter(',')
        ->capture_default_str();
    load.add("--join", o.join, "HOW,...",
             "replicas: requests join the next one (round-robin), or that with the\n"
             "fewest requests, the fewest tokens left to emit (tokens), or the fewer\n"
             "requests of two at random (two)")
        ->delimiter(',')
        ->capture_default_str();
    load.add("--in-step", o.in_step, "N,...", "replicas: so many begin their rounds together")
        ->delimiter(',')
        ->capture_default_str();
    load.add("--deaths", o.deaths, "X", "replicas: this share of them dies, one after another")->capture_default_str();
    load.add("--burst", o.burst, "N", "burst: times as many requests")->check(at_most(4096))->capture_default_str();
    load.add("--period", o.period, "S", "burst: seconds from one burst to the next, half of which it lasts")
        ->capture_default_str();
    load.add("--after", raw.after, "MIX", "drift: the second half's texts");
    load.add("--drifted-sharpness", o.drifted_sharpness, "X", "drift: of their confidences")->capture_default_str();
    load.add("--drifted-bias", o.drifted_bias, "X", "drift: the same")->capture_default_str();
    load.add("--window", o.window, "N", "drift: rounds in a window")
        ->check(at_most(std::size_t{1} << 31))
        ->capture_default_str();
}

void add_running(CLI::App& app, options& o) {
    option_group running(app, "Running");
    running.add("--policies", o.policies, "NAME,...", "See below. Default: those of the experiment")->delimiter(',');
    running.add("--seed", o.seed, "N", "Of the texts")->capture_default_str();
    running.add("--json", o.json, "FILE", "Write all numbers");
    running.flag("--markdown", o.markdown, "Tables as Markdown");
}

void check(options const& o) {
    if (std::find(experiments.begin(), experiments.end(), o.experiment) == experiments.end()) {
        fail_with("experiment '", o.experiment,
                  "' is unknown, expected run, sweep, trace, replicas, burst, drift or figure8");
    }
    if (!o.mixes.empty() && o.figures.empty()) fail_with("--mix is of published figures, give --figures FILE");
    if (o.worlds.empty()) fail_with("--world has no value, expected at least one");
    for (std::size_t const n : o.concurrency) {
        if (n == 0 || n > 65536) fail_with("--concurrency has ", n, ", expected numbers in 1 .. 65536");
    }
    for (std::size_t const n : o.replicas) {
        if (n == 0 || n > 65536) fail_with("--replicas has ", n, ", expected numbers in 1 .. 65536");
    }
    if (!(o.deaths >= 0 && o.deaths < 1)) fail_with("--deaths is ", o.deaths, ", expected a share in [0, 1)");
    if (!(o.prefill >= 0)) fail_with("--prefill is ", o.prefill, ", expected a number that is not negative");
    if (!(o.period > 0)) fail_with("--period is ", o.period, ", expected a number above 0");
    for (std::string const& name : o.policies) static_cast<void>(make_policy(name));
}

}  // namespace

bool options::given(std::string const& flag) const {
    return std::any_of(command.begin(), command.end(),
                       [&](std::string const& word) { return word == flag || word.starts_with(flag + "="); });
}

std::optional<options> parse_options(int argc, char const* const* argv) {
    options chosen;
    raw_flags raw;
    CLI::App app{about, "serve"};
    app.footer(footer);
    app.add_option("experiment", chosen.experiment, "What to simulate, one of the names below. Default: run")
        ->type_name("");
    add_texts(app, chosen, raw);
    add_engine(app, chosen);
    add_load(app, chosen, raw);
    add_running(app, chosen);
    if (!generate::parse_flags(app, argc, argv)) return std::nullopt;
    chosen.command.assign(argv, argv + argc);
    if (chosen.experiment.empty()) chosen.experiment = "run";
    for (std::string const& text : raw.mixes) chosen.mixes.push_back(parse_mix("--mix", text));
    if (!raw.after.empty()) chosen.after = parse_mix("--after", raw.after);
    check(chosen);
    return chosen;
}

}  // namespace serve
