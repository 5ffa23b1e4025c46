// SPDX-License-Identifier: MIT
//
// The decoder owns the loop. Five requests share three places; they join and leave between rounds. Each has settings
// and a seed of its own. Their text is streamed as it is made, one line a step. A request that finds no place waits.
// Algorithm 1 (greedy_schedule) shares the verify budget among the requests that have a place.
//
// The rule is keyed_coupling, so a request's text depends on its own prompt, settings and seed and on nothing else:
// the program checks that by generating one of them again, alone and under another schedule.
#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

namespace {

constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyz .";
constexpr token_id full_stop = 27;

std::vector<token_id> encode(std::string_view text) {
    std::vector<token_id> tokens;
    for (char const c : text) tokens.push_back(static_cast<token_id>(letters.find(c)));
    return tokens;
}

std::string decode(std::span<token_id const> tokens) {
    std::string text;
    for (token_id const x : tokens) text += letters[static_cast<std::size_t>(x)];
    return text;
}

// A toy language: vowels and consonants take turns, and each pair of letters has a taste of its own.
float follows(token_id a, std::size_t b) {
    auto const vowel = [](char c) { return std::string_view("aeiou").find(c) != std::string_view::npos; };
    auto const i = static_cast<std::size_t>(a);
    float const taste = 0.5f * static_cast<float>((5 * i + 11 * b) % 8);
    return taste + (vowel(letters[i]) != vowel(letters[b]) ? 3.0f : 0.0f);
}

// The draft sees one letter, the target two, and the target ends a sentence sooner or later.
constexpr auto draft_logits = [](std::span<token_id const> context, std::span<float> logits) {
    for (std::size_t v = 0; v < logits.size(); ++v) logits[v] = follows(context.back(), v);
};
constexpr auto target_logits = [](std::span<token_id const> context, std::span<float> logits) {
    token_id const before = context.size() < 2 ? context.back() : context[context.size() - 2];
    for (std::size_t v = 0; v < logits.size(); ++v) {
        logits[v] = follows(context.back(), v) - 0.5f * follows(before, v);
    }
    logits[full_stop] += 0.2f * static_cast<float>(context.size()) - 7.0f;
};

struct job {
    char const* name;
    std::vector<token_id> prompt;
    request_settings settings;
    std::size_t arrives;  ///< before this step
    request_id id = 0;
    std::string text{};
};

auto make_drafter() {
    return autoregressive{model_of<float>(letters.size(), draft_logits),
                          top1_confidence{},
                          {.block_size = 4, .vocabulary = letters.size()}};
}

}  // namespace

int main() {
    std::vector<token_id> const stop{full_stop};
    std::vector<job> jobs{
        {"ada", encode("le"), {.temperature = 0.7, .seed = 1, .max_new_tokens = 32}, 0},
        {"ben", encode("to"), {.temperature = 0.0, .max_new_tokens = 16}, 0},
        {"cem", encode("mi"), {.top_p = 0.8, .seed = 3, .max_new_tokens = 48, .stop_tokens = stop}, 1},
        {"dea", encode("sa"), {.top_k = 5, .seed = 4, .max_new_tokens = 24}, 2},
        {"eli", encode("no"), {.temperature = 0.9, .min_p = 0.05, .seed = 5, .max_new_tokens = 400}, 4},
    };

    auto target = model_of<float>(letters.size(), target_logits);
    auto drafter = make_drafter();
    // A step with B rows costs (96 + B) / 8000 seconds here; profile() measures such a curve on a real engine.
    analytic_capacity const capacity{8000.0, 96.0};
    decoder dec{target, drafter, greedy_schedule{capacity}, keyed_coupling{}, {.max_requests = 3}};

    auto const job_of = [&](request_id id) -> job& {
        return *std::find_if(jobs.begin(), jobs.end(), [&](job const& j) { return j.id == id; });
    };
    for (std::size_t step = 0;; ++step) {
        for (job& j : jobs) {
            if (j.arrives == step) j.id = dec.submit(j.prompt, j.settings);
        }
        if (!dec.step()) break;
        std::printf("%3zu", step);
        for (request_event const& event : dec.events()) {
            job& j = job_of(event.request);
            std::string const piece = decode(event.tokens);
            j.text += piece;
            char const* note = "";
            if (event.finished == finish_reason::stop_token) note = " (stop token)";
            if (event.finished == finish_reason::max_new_tokens) note = " (all made)";
            bool const bored = event.finished == finish_reason::none && j.text.size() > 40;
            if (bored) {
                dec.cancel(j.id);  // its reader went away
                note = " (cancelled)";
            }
            std::printf("  %s:%s%s", j.name, piece.c_str(), note);
        }
        std::printf("\n");
    }

    std::printf("\n");
    for (job const& j : jobs) std::printf("%s: %s%s\n", j.name, decode(j.prompt).c_str(), j.text.c_str());
    round_report const& report = dec.report();
    std::printf("\n%.2f letters per request and step, %.2f per call of the target\n", report.tau(),
                report.tokens_per_target_call());
    std::printf("drafted %zu, verified %zu, accepted %zu\n", static_cast<std::size_t>(report.drafted()),
                static_cast<std::size_t>(report.verified()), static_cast<std::size_t>(report.accepted()));

    // Alone and always verified in full: other rounds, the same text.
    auto other_target = model_of<float>(letters.size(), target_logits);
    decoder alone{other_target, make_drafter(), fixed_schedule{}, keyed_coupling{}};
    request_id const id = alone.submit(jobs[3].prompt, jobs[3].settings);
    while (alone.step()) {
    }
    bool const same = decode(alone.generated(id)) == jobs[3].text;
    std::printf("%s alone is %s\n", jobs[3].name, same ? "the same" : "different");
    return same ? 0 : 1;
}
