// SPDX-License-Identifier: MIT
//
// What a pass of the target costs, by its rows, behind the first prompt: the price of verifying a draft, without
// drafting and acceptance. The sizes take turns, so that a slow moment of the machine falls on all of them.
#include <algorithm>
#include <array>
#include <chrono>

#include "one_text.hpp"
#include "session.hpp"
#include "timing.hpp"

namespace evaluate {
namespace {

constexpr std::array<std::size_t, 10> sizes{1, 2, 3, 4, 5, 6, 7, 8, 12, 16};
constexpr std::size_t turns = 41;

}  // namespace

section run_passes(session const& s) {
    using clock = std::chrono::steady_clock;
    contestant who = s.load(plain_decoding(), 1);
    auto const& prompt = s.prompts.domains[0].prompts[0];
    if (s.prompts.context < prompt.size() + sizes.back()) {
        sureleap::fail_with("passes: the context has ", s.prompts.context, " positions, expected ",
                            prompt.size() + sizes.back(), ": those of the first prompt and of the largest pass");
    }
    one_text target(*who.models.target);
    for (std::size_t first = 0; first < prompt.size(); first += target.most_rows()) {
        auto const rest = std::span(prompt).subspan(first);
        who.models.target->prefill(0, first, rest.first(std::min(rest.size(), target.most_rows())));
    }
    std::array<std::vector<double>, sizes.size()> seconds;
    std::vector<token_id> const tokens(sizes.back(), prompt.back());
    progress shown_so_far(s.status, "passes", 1);
    shown_so_far.begin_part("behind " + counted(prompt.size(), "token"));
    for (std::size_t turn = 0; turn < turns; ++turn) {
        for (std::size_t i = 0; i < sizes.size(); ++i) {
            auto const start = clock::now();
            static_cast<void>(target.score(prompt.size(), std::span(tokens).first(sizes[i])));
            seconds[i].push_back(std::chrono::duration<double>(clock::now() - start).count());
        }
        shown_so_far.update(static_cast<double>(turn + 1) / turns);
    }

    section out{.name = "passes", .counts = {{"context", prompt.size()}, {"turns", turns}}};
    table t{.title = "A pass of the target behind " + counted(prompt.size(), "token"),
            .header = {"rows", "time", "times one row"},
            .notes = {"Medians of " + grouped(turns) + "."}};
    double const one = median(seconds[0]);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        double const time = median(seconds[i]);
        t.add({grouped(sizes[i]), in_time(time), shown(time / one, 2)});
        out.counts["passes"].push_back({{"rows", sizes[i]}, {"seconds", time}});
    }
    out.tables.push_back(std::move(t));
    return out;
}

}  // namespace evaluate
