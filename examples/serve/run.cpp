// SPDX-License-Identifier: MIT
//
// Policies side by side, in a closed loop or under arrivals, with what requests saw of it.
#include <algorithm>
#include <cmath>
#include <utility>

#include "arrivals.hpp"
#include "session.hpp"

namespace serve {
namespace {

std::string seconds_or_dash(double x) {
    return std::isnan(x) ? "-" : fixed(x, 2);
}

table latencies(std::string title, std::vector<outcome> const& all) {
    table t{.title = std::move(title),
            .header = {"policy", "first token, s: median", "95 %", "99 %", "a user's tokens/s: median", "slowest 5 %",
                       "finished", "lost"},
            .notes = {"First token: from the arrival, waiting for a place included."}};
    for (outcome const& o : all) {
        auto const first = [](served_request const& r) { return r.first_token; };
        auto const speed = [](served_request const& r) { return r.tokens_per_second(); };
        t.add({marked(o), seconds_or_dash(quantile(o.served, 0.5, first)),
               seconds_or_dash(quantile(o.served, 0.95, first)), seconds_or_dash(quantile(o.served, 0.99, first)),
               shown(quantile(o.served, 0.5, speed), 1), shown(quantile(o.served, 0.05, speed), 1),
               evaluate::grouped(o.requests.finished), evaluate::grouped(o.requests.lost())});
    }
    return t;
}

std::vector<std::string> const usual{"none",        "fixed:1", "fixed:3", "fixed:7", "threshold:0.5",      "tetris",
                                     "closed-loop", "lagged",  "greedy",  "planned", "planned+never-lose", "oracle"};

}  // namespace

section run_run(session const& s) {
    auto const policies = s.policies(usual);
    auto const concurrency = s.chosen.concurrency.empty() ? std::vector<std::size_t>{64} : s.chosen.concurrency;
    auto const mixes = s.mixes();
    run_progress progress(s.status, "run",
                          s.chosen.worlds.size() * mixes.size() * concurrency.size() * policies.size());
    section out;
    for (std::string const& name : s.chosen.worlds) {
        world const w = s.find(name);
        for (named_mix const* mix : mixes) {
            auto const texts = s.texts(w, mix);
            scenario const where{*texts, w.cost, s.believed(w.cost)};
            for (std::size_t const n : concurrency) {
                table t{.title = w.cost.name + ", " + s.name_of(mix) + ", " + std::to_string(n) + " requests at a time",
                        .header = header_of_runs(),
                        .notes = notes_of_runs()};
                nlohmann::ordered_json runs;
                for (policy const& p : policies) {
                    outcome const o = run(p, where, s.closed(n), s.settings(), progress.begin(p.name));
                    t.add(row_of(o));
                    runs.push_back(to_json(o));
                }
                out.tables.push_back(std::move(t));
                out.numbers.push_back({{"world", w.cost.name},
                                       {"source", w.cost.source},
                                       {"mix", s.name_of(mix)},
                                       {"concurrency", n},
                                       {"runs", runs}});
            }
        }
    }
    return out;
}

section run_trace(session const& s) {
    options const& chosen = s.chosen;
    if (chosen.trace.empty() == (chosen.rate == 0)) {
        sureleap::fail_with("trace: expected either --trace FILE or --rate R");
    }
    open_workload const load{
        chosen.trace.empty()
            ? poisson(chosen.rate, chosen.requests, chosen.context, chosen.tokens, chosen.seed)
            : read_trace(chosen.trace, {.speed_up = chosen.speed_up, .skip = chosen.skip, .most = chosen.requests})};
    auto const policies = s.policies(usual);
    auto const mixes = s.mixes();
    run_progress progress(s.status, "trace", chosen.worlds.size() * mixes.size() * policies.size());
    section out;
    for (std::string const& name : chosen.worlds) {
        world const w = s.find(name);
        for (named_mix const* mix : mixes) {
            auto const texts = s.texts(w, mix);
            scenario const where{*texts, w.cost, s.believed(w.cost), chosen.prefill};
            run_settings const settings{.places = chosen.places, .window = 200};
            std::vector<outcome> all;
            nlohmann::ordered_json runs;
            for (policy const& p : policies) {
                all.push_back(run(p, where, load, settings, progress.begin(p.name)));
                runs.push_back(to_json(all.back()));
            }
            std::string const title = w.cost.name + ", " + s.name_of(mix) + ", " +
                                      evaluate::counted(load.arrivals.size(), "request") + " in " +
                                      fixed(load.arrivals.back().seconds, 0) + " s";
            table t{.title = title, .header = header_of_runs(), .notes = notes_of_runs()};
            t.header.insert(t.header.begin() + 1, {"done after, s", "at a time"});
            for (outcome const& o : all) {
                auto row = row_of(o);
                row.insert(row.begin() + 1, {fixed(o.sums.seconds, 0), fixed(o.sums.mean_concurrency(), 1)});
                t.add(std::move(row));
            }
            t.notes.push_back("Done after: seconds in which at least one request was decoded.");
            out.tables.push_back(std::move(t));
            out.tables.push_back(latencies(title + ": what requests saw", all));
            out.numbers.push_back({{"world", w.cost.name}, {"mix", s.name_of(mix)}, {"runs", runs}});
        }
    }
    return out;
}

}  // namespace serve
