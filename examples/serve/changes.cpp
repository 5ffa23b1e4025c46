// SPDX-License-Identifier: MIT
//
// What changes during a run: how many requests there are, and what they are like.
#include <algorithm>
#include <cmath>
#include <utility>

#include "session.hpp"

namespace serve {

section run_burst(session const& s) {
    auto const policies = s.policies({"none", "fixed:3", "fixed:7", "closed-loop", "greedy", "lagged", "planned"});
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
                // So long that the oracle makes about as many rounds of requests as were asked for; the same virtual time for
                // all, since a policy must not choose how long a burst lasts.
                run_settings settings = s.settings();
                double const step = w.cost.step_seconds({.requests = load.most(), .batch_tokens = 3 * load.most()});
                double const mean = static_cast<double>(n + load.most()) / 2;
                settings.seconds = std::max(static_cast<double>(s.chosen.rounds) / mean * step, 100 * load.period);
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
                    row.insert(row.begin() + 1, fixed(o.sums.tokens_per_second() / ceiling.sums.tokens_per_second(), 3));
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

section run_drift(session const& s) {
    auto const policies = s.policies({"fixed:3", "threshold:0.5", "greedy", "lagged", "planned"});
    std::size_t const n = s.chosen.concurrency.empty() ? 64 : s.chosen.concurrency.front();
    run_progress progress(s.status, "drift", s.chosen.worlds.size() * policies.size());
    section out;
    for (std::string const& name : s.chosen.worlds) {
        world const w = s.find(name);
        // Texts that begin from the middle on are of the other kind: those running finish as they began.
        double const texts_in_all = static_cast<double>(s.chosen.rounds) * 1.2 * 3 / static_cast<double>(s.chosen.tokens);
        auto const texts = s.drifting_texts(w, static_cast<std::uint64_t>(texts_in_all / 2));
        scenario const where{*texts, w.cost, s.believed(w.cost)};
        run_settings settings = s.settings();
        settings.window = s.chosen.window;
        table t{.title = w.cost.name + ": " + std::to_string(n) + " requests, drift to confidences of sharpness " +
                         fixed(s.chosen.drifted_sharpness, 2) + " and bias " + fixed(s.chosen.drifted_bias, 2),
                .header = {"policy", "tokens/s, first fifth", "last fifth", "ECE, first fifth", "last fifth"}};
        nlohmann::ordered_json runs;
        for (policy const& p : policies) {
            outcome const o = run(p, where, s.closed(n), settings, progress.begin(p.name));
            auto const mean = [&](std::size_t first, std::size_t last, auto const& of) {
                double sum = 0;
                for (std::size_t i = first; i < last; ++i) sum += of(i);
                return sum / static_cast<double>(last - first);
            };
            std::size_t const windows = o.windows.size();
            std::size_t const fifth = std::max<std::size_t>(windows / 5, 1);
            auto const rate = [&](std::size_t i) { return o.windows[i].tokens_per_second(); };
            auto const ece = [&](std::size_t i) { return o.window_confidences[i].ece(); };
            t.add({marked(o), fixed(mean(0, fifth, rate), 0), fixed(mean(windows - fifth, windows, rate), 0),
                   percent(mean(0, fifth, ece), 2), percent(mean(windows - fifth, windows, ece), 2)});
            runs.push_back(to_json(o));
        }
        out.tables.push_back(std::move(t));
        out.numbers.push_back(
            {{"world", w.cost.name}, {"concurrency", n}, {"window", settings.window}, {"runs", runs}});
    }
    return out;
}

}  // namespace serve
