// SPDX-License-Identifier: MIT
//
// Never lose: what each policy makes of what was possible, at every load. The best static length is the best of all of
// them at that load and in that world, which nobody knows beforehand; the oracle sees the drawn block.
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "session.hpp"

namespace serve {
namespace {

std::vector<std::string> const judged{"threshold:0.5", "tetris",  "closed-loop",       "greedy",
                                      "lagged",        "planned", "planned+never-lose"};

struct place {
    std::string world, mix;
    std::size_t concurrency = 0;
};
struct worst {
    double share = std::numeric_limits<double>::infinity();
    place at;

    void see(double x, place const& where) {
        if (x < share) {
            share = x;
            at = where;
        }
    }
    [[nodiscard]] std::string words() const {
        return fixed(share, 3) + " (" + at.world + ", " + at.mix + ", " + std::to_string(at.concurrency) + ")";
    }
};

}  // namespace

section run_sweep(session const& s) {
    auto const policies = s.policies(judged);
    auto const concurrency = s.chosen.concurrency.empty()
                                 ? std::vector<std::size_t>{1, 2, 4, 8, 16, 32, 64, 128, 256, 512}
                                 : s.chosen.concurrency;
    auto const mixes = s.mixes();
    std::vector<world> worlds;
    std::size_t statics = 0;
    for (std::string const& name : s.chosen.worlds) {
        worlds.push_back(s.find(name));
        statics += s.block_size(worlds.back()) + 2;
    }
    run_progress progress(s.status, "sweep",
                          mixes.size() * concurrency.size() * (statics + worlds.size() * policies.size()));
    section out;
    policy const oracle = make_policy("oracle");
    std::vector<std::array<worst, 2>> worst_of(policies.size());
    for (world const& w : worlds) {
        auto const choices = static_policies(s.block_size(w));
        for (named_mix const* mix : mixes) {
            auto const texts = s.texts(w, mix);
            scenario const where{*texts, w.cost, s.believed(w.cost)};
            scenario const in_truth{*texts, w.cost, w.cost};
            table t{
                .title = w.cost.name + ", " + s.name_of(mix) + ": share of the best static length, and of the oracle",
                .header = {"requests", "best static", "tokens/s"}};
            for (policy const& p : policies) t.header.push_back(p.lossless ? p.name : p.name + " *");
            for (std::size_t const n : concurrency) {
                place const here{w.cost.name, s.name_of(mix), n};
                std::string const what = here.world + ", " + here.mix + ", " + std::to_string(n);
                nlohmann::ordered_json runs;
                auto const measure = [&](policy const& p, scenario const& in) {
                    outcome const o = run(p, in, s.closed(n), s.settings(), progress.begin(what + ", " + p.name));
                    runs.push_back(to_json(o));
                    return o.sums.tokens_per_second();
                };
                double best = 0;
                std::string choice;
                for (policy const& p : choices) {
                    if (double const rate = measure(p, in_truth); rate > best) {
                        best = rate;
                        choice = p.name;
                    }
                }
                double const ceiling = measure(oracle, in_truth);
                std::vector<std::string> row{std::to_string(n), choice,
                                             evaluate::grouped(static_cast<std::uint64_t>(best + 0.5))};
                for (std::size_t i = 0; i < policies.size(); ++i) {
                    double const rate = measure(policies[i], where);
                    worst_of[i][0].see(rate / best, here);
                    worst_of[i][1].see(rate / ceiling, here);
                    row.push_back(fixed(rate / best, 3) + " " + fixed(rate / ceiling, 3));
                }
                t.add(std::move(row));
                out.numbers.push_back({{"world", here.world},
                                       {"source", w.cost.source},
                                       {"mix", here.mix},
                                       {"concurrency", n},
                                       {"best_static", choice},
                                       {"best_static_tokens_per_second", best},
                                       {"oracle_tokens_per_second", ceiling},
                                       {"runs", runs}});
            }
            out.tables.push_back(std::move(t));
        }
    }
    table t{.title = "Worst shares, and where", .header = {"policy", "of the best static length", "of the oracle"}};
    for (std::size_t i = 0; i < policies.size(); ++i) {
        t.add({policies[i].lossless ? policies[i].name : policies[i].name + " *", worst_of[i][0].words(),
               worst_of[i][1].words()});
    }
    t.notes = {"*: not lossless."};
    out.tables.push_back(std::move(t));
    return out;
}

}  // namespace serve
