// SPDX-License-Identifier: MIT
//
// What changes during a run: how many requests there are, and what they are like.
#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "session.hpp"

namespace serve {

section run_burst(session const& s) {
    auto const policies =
        s.policies({"none", "fixed:3", "fixed:7", "closed-loop", "greedy", "lagged", "planned", "planned+never-lose"});
    auto const concurrency = s.chosen.concurrency.empty() ? std::vector<std::size_t>{16} : s.chosen.concurrency;
    auto const mixes = s.mixes();
    run_progress progress(s.status, "burst",
                          s.chosen.worlds.size() * mixes.size() * concurrency.size() * (policies.size() + 1));
    section out;
    for (std::string const& name : s.chosen.worlds) {
        world const w = s.find(name);
        for (named_mix const* mix : mixes) {
            auto const texts = s.texts(w, mix);
            scenario const where{*texts, w.cost, s.believed(w.cost)};
            for (std::size_t const n : concurrency) {
                closed_workload load = s.closed(n);
                load.burst = s.chosen.burst;
                load.period = s.chosen.period;
                // So long that the oracle makes about as many rounds of requests as were asked for; the same virtual
                // time for all, since a policy must not choose how long a burst lasts.
                run_settings settings = s.settings();
                double const step = w.cost.step_seconds({.requests = load.most(), .batch_tokens = 3 * load.most()});
                double const mean = static_cast<double>(n + load.most()) / 2;
                settings.seconds = std::max(static_cast<double>(s.chosen.rounds) / mean * step, 20 * load.period);
                settings.warm_up = 0;
                policy const best = make_policy("oracle");
                outcome const ceiling = run(best, {*texts, w.cost, w.cost}, load, settings, progress.begin("oracle"));
                table t{.title = w.cost.name + ", " + s.name_of(mix) + ", " + std::to_string(n) + " and " +
                                 std::to_string(load.most()) + " requests in turn, " + fixed(load.period / 2, 2) +
                                 " s each",
                        .header = header_of_runs(),
                        .notes = notes_of_runs()};
                t.header.insert(t.header.begin() + 1, "of the oracle");
                nlohmann::ordered_json runs;
                auto const add = [&](outcome const& o) {
                    auto row = row_of(o);
                    row.insert(row.begin() + 1,
                               fixed(o.sums.tokens_per_second() / ceiling.sums.tokens_per_second(), 3));
                    t.add(std::move(row));
                    runs.push_back(to_json(o));
                };
                for (policy const& p : policies) add(run(p, where, load, settings, progress.begin(p.name)));
                add(ceiling);
                out.tables.push_back(std::move(t));
                out.numbers.push_back({{"world", w.cost.name},
                                       {"mix", s.name_of(mix)},
                                       {"concurrency", n},
                                       {"burst", load.burst},
                                       {"period", load.period},
                                       {"runs", runs}});
            }
        }
    }
    return out;
}

namespace {

/// Windows whose first round is from `from` to `to` rounds after the drift began.
struct after_drift {
    round_sums sums;
    reliability confidences;
};
after_drift measure(outcome const& o, std::uint64_t first_text, std::uint64_t from, std::uint64_t to) {
    after_drift found{{}, reliability(o.confidences.block_size())};
    std::uint64_t rounds = 0;
    for (std::size_t i = 0; i < o.windows.size(); ++i) {
        if (o.window_texts[i] < first_text) continue;
        if (rounds >= from && rounds < to) {
            found.sums.add(o.windows[i]);
            found.confidences.add(o.window_confidences[i]);
        }
        rounds += o.windows[i].rounds;
    }
    return found;
}

}  // namespace

section run_drift(session const& s) {
    auto const policies = s.policies({"greedy", "planned", "planned+calibrated", "planned+calibrated+never-lose"});
    std::size_t const n = s.chosen.concurrency.empty() ? 64 : s.chosen.concurrency.front();
    run_progress progress(s.status, "drift", s.chosen.worlds.size() * policies.size() * 2);
    section out;
    for (std::string const& name : s.chosen.worlds) {
        world const w = s.find(name);
        // Texts that begin from some 500 rounds on are of the other kind; those that run finish as they began.
        std::uint64_t const first = n + 500 * 3 * n / s.chosen.tokens;
        auto const texts = s.drifting_texts(w, first, true);
        auto const known = s.drifting_texts(w, first, false);
        run_settings settings = s.settings();
        settings.warm_up = 0;
        settings.request_rounds = std::max<std::uint64_t>(settings.request_rounds, 3000 * n);
        settings.window = s.chosen.window;
        table t{
            .title = w.cost.name + ": " + std::to_string(n) + " requests, confidences of sharpness " +
                     fixed(s.chosen.drifted_sharpness, 2) + " and bias " + fixed(s.chosen.drifted_bias, 2) +
                     " from some moment on",
            .header = {"policy", "rounds after", "ECE", "confidences right", "tokens/s", "confidences right", "share"},
            .notes = {"Confidences right: the same texts, calibrated for what they have become."}};
        constexpr std::array<std::array<std::uint64_t, 2>, 4> spans{{{0, 100}, {200, 300}, {400, 500}, {500, 1500}}};
        nlohmann::ordered_json runs;
        for (policy const& p : policies) {
            outcome const drifted =
                run(p, {*texts, w.cost, s.believed(w.cost)}, s.closed(n), settings, progress.begin(p.name));
            outcome const right =
                run(p, {*known, w.cost, s.believed(w.cost)}, s.closed(n), settings, progress.begin(p.name));
            for (std::array<std::uint64_t, 2> const& span : spans) {
                auto const [from, to] = span;
                auto const a = measure(drifted, first, from, to);
                auto const b = measure(right, first, from, to);
                t.add({from == 0 ? marked(drifted) : "", std::to_string(from) + " .. " + std::to_string(to),
                       percent(a.confidences.ece(), 2), percent(b.confidences.ece(), 2),
                       fixed(a.sums.tokens_per_second(), 0), fixed(b.sums.tokens_per_second(), 0),
                       fixed(a.sums.tokens_per_second() / b.sums.tokens_per_second(), 3)});
            }
            runs.push_back({{"drifted", to_json(drifted)}, {"right", to_json(right)}});
        }
        out.tables.push_back(std::move(t));
        out.numbers.push_back({{"world", w.cost.name},
                               {"concurrency", n},
                               {"window", settings.window},
                               {"first_text", first},
                               {"runs", runs}});
    }
    return out;
}

}  // namespace serve
