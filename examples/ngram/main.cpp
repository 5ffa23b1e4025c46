// SPDX-License-Identifier: MIT
//
// Speculative decoding on real text: one target and three drafts, all counted from a text at start-up (model.hpp)
// and given to the library as lambdas. It shows what each draft is worth, and that none changes what is written.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <sureleap/sureleap.hpp>

#include "model.hpp"
#include "terminal.hpp"

// The build says where the shipped text is, so that the program runs from any directory.
#ifndef NGRAM_TEXT
#define NGRAM_TEXT "examples/ngram/text/harbour_tales.txt"
#endif

namespace {

using ngram::token_id;
using tokens = std::vector<token_id>;

struct options {
    std::filesystem::path text = NGRAM_TEXT;
    std::string prompt = "\n";  // a new paragraph, in any text
    std::size_t tokens = 20000;
    std::uint64_t seed = 1;
    std::size_t block = 7;
};

constexpr std::size_t text_limit = std::size_t{16} << 20;
constexpr std::size_t target_order = 6;
constexpr std::size_t draft_order = 4;
constexpr std::size_t head_rank = 32;
constexpr std::size_t shown_bytes = 440;

// ---- decoding --------------------------------------------------------------------------------------------------

/// What one request wrote, and what it took.
struct generation {
    ::tokens tokens;
    sureleap::round_report report;
};

/// A request from its prompt to its last token, the decoder owning the loop.
template <class Target, class Drafter, class Rule>
generation generate(Target& target, Drafter& drafter, Rule rule, tokens const& prompt,
                    sureleap::request_settings const& settings) {
    sureleap::decoder decoder{target, drafter, sureleap::fixed_schedule{}, rule};
    auto const id = decoder.join(prompt, settings);
    while (decoder.step()) {
        for (auto const& event : decoder.events()) {
            if (event.outcome != sureleap::status::ok) throw sureleap::error(to_string(event.outcome));
        }
    }
    auto const generated = decoder.generated(id);
    return {{generated.begin(), generated.end()}, decoder.report()};
}

/// Plain autoregressive decoding, what speculation has to equal: one target row and one choice for every token. It
/// uses no part of a round; only the noise of a token at temperature 1 is the library's, a function of seed and
/// position.
tokens decode_plainly(ngram::model const& target, tokens const& prompt,
                      sureleap::request_settings const& settings) {
    tokens context = prompt;
    std::vector<float> row(ngram::vocabulary);
    sureleap::philox_randomness const noise;
    for (std::size_t i = 0; i < settings.max_new_tokens; ++i) {
        target.logits(context, row);
        if (settings.temperature == 0.0) {
            context.push_back(static_cast<token_id>(std::max_element(row.begin(), row.end()) - row.begin()));
        } else {
            sureleap::distribution<float> const p({row}, settings.target_transform(), {});
            context.push_back(noise.race({*settings.seed, context.size(), 0, sureleap::purpose::noise}, p));
        }
    }
    return {context.begin() + static_cast<std::ptrdiff_t>(prompt.size()), context.end()};
}

// ---- the three drafts ------------------------------------------------------------------------------------------

/// What the program shows of one draft.
struct draft_run {
    char const* name;
    bool parallel;  // one pass for the block, or one for every token
    generation sampled, greedy, coupled;
};

/// The backbone of both parallel drafts: the logits of all positions from the committed text alone. `amend` may
/// change the row of the first position, given the anchor.
template <class Amend>
auto backbone_of(std::span<ngram::model const> marginals, Amend amend) {
    return [marginals, amend, logits = std::vector<float>()](
               std::span<sureleap::request_view const> requests) mutable -> sureleap::block_forward<float> {
        std::size_t const rows = requests.size() * marginals.size();
        logits.resize(rows * ngram::vocabulary);
        for (std::size_t i = 0; i < rows; ++i) {
            auto const& request = requests[i / marginals.size()];
            std::size_t const k = i % marginals.size();
            std::span<float> const row(logits.data() + i * ngram::vocabulary, ngram::vocabulary);
            marginals[k].logits(request.context, row);
            if (k == 0) amend(request.anchor, row);
        }
        return {.hidden = {}, .base_logits = {{logits.data(), rows, ngram::vocabulary}, {}}};
    };
}

/// Samples at temperature 1, decodes greedily, and samples at temperature 1 under keyed coupling.
template <class Target, class Drafter>
draft_run run(char const* name, Target& target, Drafter drafter, tokens const& prompt, options const& chosen) {
    sureleap::request_settings const warm{
        .temperature = 1.0, .seed = chosen.seed, .max_new_tokens = chosen.tokens};
    sureleap::request_settings const cold{
        .temperature = 0.0, .seed = chosen.seed, .max_new_tokens = chosen.tokens};
    return {name, Drafter::is_parallel,
            generate(target, drafter, sureleap::token_rejection{}, prompt, warm),
            generate(target, drafter, sureleap::token_rejection{}, prompt, cold),
            generate(target, drafter, sureleap::keyed_coupling{}, prompt, warm)};
}

// ---- what is shown ---------------------------------------------------------------------------------------------

class stopwatch {
public:
    [[nodiscard]] double milliseconds() const {
        return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_).count();
    }

private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void show_text(draft_run const& draft) {
    ngram::print_heading(std::string(draft.name) + " draft");
    std::string text = ngram::to_text(std::span(draft.sampled.tokens).first(
        std::min(shown_bytes, draft.sampled.tokens.size())));
    if (text.size() < draft.sampled.tokens.size()) {
        if (auto const space = text.rfind(' '); space != text.npos) text.resize(space);
        text += " ...";
    }
    ngram::print_wrapped(text, "    ");
}

void show_acceptance(std::span<draft_run const> drafts, std::size_t block) {
    ngram::print_heading("conditional acceptance: drafted token k is kept, given that all before it were");
    std::printf("    %-26s", "draft                  k =");
    for (std::size_t k = 1; k <= block; ++k) std::printf("%5zu", k);
    std::printf("%8s\n", "tau");
    for (auto const& draft : drafts) {
        auto const& report = draft.sampled.report;
        std::printf("    %-26s", draft.name);
        for (std::size_t k = 0; k < block; ++k) {
            if (report.reached(k) > 0) {
                std::printf(" %.2f", report.conditional_acceptance(k));
            } else {
                std::printf("    -");
            }
        }
        std::printf("%8.2f\n", report.tau());
    }
    std::puts("    tau: tokens a round, the target's own included. Late positions come up in easy places only.");
}

void show_cost(std::span<draft_run const> drafts, std::size_t count) {
    auto const line = [](char const* name, std::size_t calls, double tokens_per_call, std::size_t passes) {
        std::printf("    %-26s%14s%26.2f%16s\n", name, ngram::grouped(calls).c_str(), tokens_per_call,
                    ngram::grouped(passes).c_str());
    };
    ngram::print_heading("cost of " + ngram::grouped(count) + " tokens");
    std::printf("    %-26s%14s%26s%16s\n", "draft", "target calls", "tokens per target call", "draft passes");
    line("none, plain decoding", count, 1.0, 0);
    for (auto const& draft : drafts) {
        auto const& report = draft.sampled.report;
        line(draft.name, report.target_calls(), report.tokens_per_target_call(),
             draft.parallel ? report.rounds() : report.drafted());
    }
}

/// Prints a row for each draft and, below, the place of every first difference. True if there is none.
bool show_comparison(std::span<draft_run const> drafts, tokens const& greedy, tokens const& coupled) {
    bool all_identical = true;
    std::string differences;
    auto const compare = [&](char const* name, tokens const& actual, tokens const& expected) {
        if (actual == expected) return "identical, " + ngram::grouped(actual.size()) + " bytes";
        all_identical = false;
        auto const parting = std::mismatch(actual.begin(), actual.end(), expected.begin(), expected.end());
        auto const at = static_cast<std::size_t>(parting.first - actual.begin());
        auto const around = [at](tokens const& text) {
            std::size_t const from = at < 40 ? 0 : at - 40;
            return ngram::quoted(
                ngram::to_text(std::span(text).subspan(from, std::min<std::size_t>(60, text.size() - from))));
        };
        differences += std::string("\n    ") + name + ", first difference at byte " + ngram::grouped(at) +
                       ":\n        got      " + around(actual) + "\n        expected " + around(expected) + "\n";
        return "DIFFERENT at byte " + ngram::grouped(at);
    };
    ngram::print_heading("against plain autoregressive decoding, byte for byte");
    std::printf("    %-26s%-34s%s\n", "draft", "greedy", "keyed coupling, temperature 1");
    for (auto const& draft : drafts) {
        std::string const first = compare(draft.name, draft.greedy.tokens, greedy);
        std::string const second = compare(draft.name, draft.coupled.tokens, coupled);
        std::printf("    %-26s%-34s%s\n", draft.name, first.c_str(), second.c_str());
    }
    std::printf("%s", differences.c_str());
    return all_identical;
}

// ---- the program -----------------------------------------------------------------------------------------------

int demonstrate(options const& chosen) {
    std::printf("sureleap: speculative decoding on real text\n\n");

    stopwatch const clock;
    ngram::corpus const text(ngram::read_text(chosen.text, text_limit));
    ngram::model const target_model(text, {.order = target_order});
    std::printf("  text      %s, %s bytes\n", chosen.text.filename().string().c_str(),
                ngram::grouped(text.text().size()).c_str());
    std::printf("  target    byte-level %zu-gram, %s contexts; read and counted in %.0f ms\n", target_order + 1,
                ngram::grouped(target_model.contexts()).c_str(), clock.milliseconds());

    stopwatch const preparing;
    ngram::model const draft_model(text, {.order = draft_order});
    std::vector<ngram::model> marginals;
    for (std::size_t k = 1; k <= chosen.block; ++k)
        marginals.emplace_back(text, ngram::model::settings{.order = draft_order, .distance = k});
    ngram::transition_bias const bias = ngram::fit_transition_bias(text, head_rank);
    std::printf("  drafts    %zu-gram; %zu marginals of %zu bytes; Markov head of rank %zu; built in %.0f ms\n",
                draft_order + 1, chosen.block, draft_order, head_rank, preparing.milliseconds());
    std::printf("  decoding  blocks of %zu, token rejection, temperature 1, seed %llu, %s tokens, prompt %s\n",
                chosen.block, static_cast<unsigned long long>(chosen.seed), ngram::grouped(chosen.tokens).c_str(),
                ngram::quoted(chosen.prompt).c_str());

    // The parts as the library takes them: functions of a context or of requests, and weights as views.
    auto const V = ngram::vocabulary;
    auto const logits_of = [](ngram::model const& m) {
        return [&m](std::span<token_id const> context, std::span<float> out) { m.logits(context, out); };
    };
    auto target = sureleap::model_of<float>(V, logits_of(target_model));
    sureleap::drafter_options const shape{.block_size = chosen.block, .vocabulary = V};
    sureleap::matrix_view<float> const w1(bias.w1.data(), V, bias.rank);
    sureleap::matrix_view<float> const w2(bias.w2.data(), V, bias.rank);
    sureleap::markov_head const head{w1, w2};
    auto const unchanged = [](token_id, std::span<float>) {};
    auto const make_room = [&bias](token_id anchor, std::span<float> row) { bias.remove(anchor, row); };

    auto const prompt = ngram::to_tokens(chosen.prompt);
    draft_run const drafts[] = {
        run("autoregressive", target,
            sureleap::autoregressive{sureleap::model_of<float>(V, logits_of(draft_model)), shape}, prompt, chosen),
        run("parallel", target, sureleap::parallel{backbone_of(marginals, unchanged), shape}, prompt, chosen),
        run("parallel + Markov head", target,
            sureleap::semi_autoregressive{backbone_of(marginals, make_room), head, shape}, prompt, chosen),
    };

    for (auto const& draft : drafts) show_text(draft);
    std::printf("\n    Three samples of one law: token rejection keeps the distribution, not the random stream.\n");
    show_acceptance(drafts, chosen.block);
    show_cost(drafts, chosen.tokens);

    auto const greedy = decode_plainly(target_model, prompt, {.temperature = 0.0, .max_new_tokens = chosen.tokens});
    auto const coupled = decode_plainly(target_model, prompt,
                                        {.temperature = 1.0, .seed = chosen.seed, .max_new_tokens = chosen.tokens});
    bool const identical = show_comparison(drafts, greedy, coupled);
    std::printf("\n%s; %.1f s for everything.\n", identical ? "All identical" : "NOT IDENTICAL",
                clock.milliseconds() / 1000.0);
    return identical ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace

int main(int argc, char** argv) {
    options chosen;
    bool quick = false;
    CLI::App app{"Speculative decoding on real text with byte-level n-gram models."};
    app.add_option("text", chosen.text, "Text to learn from; the first 16 MiB are read")->capture_default_str();
    app.add_option("--prompt", chosen.prompt, "What to continue; default: a new line");
    auto* const count = app.add_option("--tokens", chosen.tokens, "Bytes to generate with each draft")
                            ->check(CLI::Range(1, 10'000'000))->capture_default_str();
    app.add_option("--seed", chosen.seed, "Seed of all random choices")->capture_default_str();
    app.add_option("--block", chosen.block, "Block size: tokens drafted in a round")
        ->check(CLI::Range(1, 12))->capture_default_str();
    app.add_flag("--quick", quick, "1,000 tokens, enough for a smoke test")->excludes(count);
    CLI11_PARSE(app, argc, argv);
    if (quick) chosen.tokens = 1000;
    try {
        return demonstrate(chosen);
    } catch (std::exception const& problem) {
        std::fprintf(stderr, "ngram: %s\n", problem.what());
        return 2;
    }
}
