// SPDX-License-Identifier: MIT
//
// Replicas behind one queue: how near so many come to so many times one, by how requests join them, and what deaths
// cost.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "arrivals.hpp"
#include "keyed.hpp"
#include "replicated.hpp"
#include "session.hpp"

namespace serve {
namespace {

constexpr std::array<std::pair<char const*, joining>, 4> joinings{{{"round-robin", joining::round_robin},
                                                                   {"requests", joining::fewest_requests},
                                                                   {"tokens", joining::fewest_tokens},
                                                                   {"two", joining::fewer_of_two}}};

[[nodiscard]] joining find_joining(std::string const& name) {
    for (auto const& [known, how] : joinings) {
        if (name == known) return how;
    }
    sureleap::fail_with("--join has '", name, "', expected round-robin, requests, tokens or two");
}

struct measured {
    std::string policy;
    std::string join;
    replicated_settings settings;
    replicated_outcome done;

    [[nodiscard]] double first_token(double q) const {
        return quantile(done.served, q, [](served_request const& r) { return r.first_token; });
    }
    [[nodiscard]] double speed(double q) const {
        return quantile(done.served, q, [](served_request const& r) { return r.tokens_per_second(); });
    }
};

/// Requests come as often to each of many replicas as to one alone. So that few of them are enough, each replica finds
/// `at_a_time` in the middle of their texts when the run begins, up to a quarter of all. There a text is met in
/// proportion to its length, so the lengths of these are x with a density of x, not even, over those of poisson().
[[nodiscard]] open_workload arrivals_for(options const& chosen, std::size_t replicas, std::size_t requests,
                                         double at_a_time) {
    auto const found = std::min(static_cast<std::size_t>(at_a_time * static_cast<double>(replicas)), requests / 4);
    auto all =
        poisson(chosen.rate * static_cast<double>(replicas), requests, chosen.context, chosen.tokens, chosen.seed);
    double const begin = found > 0 ? all[found - 1].seconds : 0;
    for (std::size_t n = 0; n < requests; ++n) all[n].seconds = std::max(0.0, all[n].seconds - begin);
    for (std::size_t n = 0; n < found; ++n) {
        double const u = static_cast<double>(mixed(chosen.seed, n) >> 11) * 0x1p-53;
        double const length = static_cast<double>(chosen.tokens) * std::sqrt(0.25 + 2 * u);
        double const left = static_cast<double>(n + 1) / static_cast<double>(found);
        all[n].tokens = static_cast<std::size_t>(std::ceil(length * left));
    }
    return {std::move(all)};
}

[[nodiscard]] measured measure(session const& s, policy const& how, scenario const& where, std::string const& join,
                               replicated_settings settings, std::size_t deaths, open_workload const& load,
                               progress_observer const& progress) {
    settings.places = s.chosen.places;
    settings.how = find_joining(join);
    settings.deaths = spread_deaths(deaths, settings.replicas, load.arrivals.back().seconds, s.chosen.seed);
    return {how.name, join, settings, run_replicated(how, where, load, settings, progress)};
}

/// Seconds by which requests that were given back were done later than without deaths, ascending.
[[nodiscard]] std::vector<double> delays(replicated_outcome const& died, replicated_outcome const& lived) {
    std::vector<std::uint64_t> back = died.returned;
    std::sort(back.begin(), back.end());
    back.erase(std::unique(back.begin(), back.end()), back.end());
    std::vector<double> all;
    for (std::uint64_t const n : back) all.push_back(died.ends[n] - lived.ends[n]);
    std::sort(all.begin(), all.end());
    return all;
}

/// What became of a world: two tables, and all numbers.
class report {
public:
    explicit report(std::string const& load) {
        runs_ = {.title = load,
                 .header = header({"tokens/s", "of so many", "a user's", "slowest 5 %", "first token, s: median",
                                   "95 %", "99 %", "at a time", "busiest"}),
                 .notes = {"Of so many: of the tokens that one replica emits, times the replicas. At a time: requests "
                           "of a replica's round.",
                           "Busiest: requests of the busiest replica over the mean. Measured between the first half of "
                           "the arrivals "
                           "and the last tenth."}};
        deaths_ = {.title = load + ": what deaths cost",
                   .header = header({"given back", "tokens read again", "rounds lost", "later, s: median", "95 %",
                                     "tokens/s", "first token, 99 %"}),
                   .notes = {"Later: when requests that were given back were done, beside the same run without deaths; "
                             "tokens/s and",
                             "first token: as shares of it. Rounds lost: of requests."}};
    }

    void add(measured const& run, measured const& one) {
        replicated_outcome const& done = run.done;
        double const share =
            done.tokens_per_second() / (static_cast<double>(run.settings.replicas) * one.done.tokens_per_second());
        runs_.add(
            row(run, {evaluate::grouped(static_cast<std::uint64_t>(done.tokens_per_second() + 0.5)), fixed(share, 3),
                      shown(run.speed(0.5), 1), shown(run.speed(0.05), 1), shown(run.first_token(0.5), 3),
                      shown(run.first_token(0.95), 3), shown(run.first_token(0.99), 3),
                      fixed(done.sums.mean_concurrency(), 1), fixed(done.busiest, 2)}));
        nlohmann::ordered_json json{{"replicas", run.settings.replicas},
                                    {"in_step", run.settings.in_step},
                                    {"policy", run.policy},
                                    {"join", run.join},
                                    {"deaths", run.settings.deaths.size()},
                                    {"tokens_per_second", done.tokens_per_second()},
                                    {"share", share},
                                    {"tau", done.sums.tau()},
                                    {"mean_concurrency", done.sums.mean_concurrency()},
                                    {"busiest", done.busiest},
                                    {"returned", done.returned.size()},
                                    {"read_again", done.read_again},
                                    {"rounds_lost", done.rounds_lost}};
        for (int const q : {50, 95, 99}) json["first_token"].push_back(run.first_token(q / 100.0));
        for (int const q : {5, 50}) json["tokens_per_second_of_a_user"].push_back(run.speed(q / 100.0));
        numbers_.push_back(std::move(json));
    }
    void add_cost(measured const& died, measured const& lived) {
        auto const late = delays(died.done, lived.done);
        auto const at = [&](double q) {
            auto const i = static_cast<std::size_t>(q * static_cast<double>(late.size() - 1));
            return late.empty() ? "-" : fixed(late[i], 3);
        };
        deaths_.add(row(died, {evaluate::grouped(died.done.returned.size()), evaluate::grouped(died.done.read_again),
                               evaluate::grouped(died.done.rounds_lost), at(0.5), at(0.95),
                               fixed(died.done.tokens_per_second() / lived.done.tokens_per_second(), 3),
                               fixed(died.first_token(0.99) / lived.first_token(0.99), 2)}));
    }
    void move_to(section& out, world const& w, double rate) {
        out.tables.push_back(std::move(runs_));
        if (!deaths_.rows.empty()) out.tables.push_back(std::move(deaths_));
        out.numbers.push_back({{"world", w.cost.name}, {"source", w.cost.source}, {"rate", rate}, {"runs", numbers_}});
    }

private:
    [[nodiscard]] static std::vector<std::string> header(std::initializer_list<char const*> found) {
        std::vector<std::string> all{"replicas", "in step", "policy", "join", "died"};
        all.insert(all.end(), found.begin(), found.end());
        return all;
    }
    [[nodiscard]] static std::vector<std::string> row(measured const& run, std::initializer_list<std::string> found) {
        replicated_settings const& s = run.settings;
        std::vector<std::string> all{std::to_string(s.replicas), s.in_step > 1 ? std::to_string(s.in_step) : "-",
                                     run.policy, run.join, std::to_string(s.deaths.size())};
        all.insert(all.end(), found.begin(), found.end());
        return all;
    }

    table runs_;
    table deaths_;
    nlohmann::ordered_json numbers_;
};

}  // namespace

section run_replicas(session const& s) {
    options const& chosen = s.chosen;
    if (!(chosen.rate > 0)) sureleap::fail_with("replicas: --rate is ", chosen.rate, ", expected a number above 0");
    auto const policies = s.policies({"planned"});
    std::size_t const kinds = chosen.replicas.size() * chosen.in_step.size() * chosen.join.size();
    run_progress progress(s.status, "replicas",
                          chosen.worlds.size() * policies.size() * (1 + kinds * (chosen.deaths > 0 ? 2 : 1)));
    section out;
    for (std::string const& name : chosen.worlds) {
        world const w = s.find(name);
        auto const texts = s.texts(w, s.mixes().front());
        scenario const where{*texts, w.cost, s.believed(w.cost), chosen.prefill};
        report found(w.cost.name + ", " + evaluate::counted(chosen.requests, "request") + ", " + fixed(chosen.rate, 1) +
                     " a second for each replica");
        for (policy const& how : policies) {
            // One needs fewer requests than many do to be known as well.
            open_workload const few = arrivals_for(chosen, 1, std::min<std::size_t>(chosen.requests, 200'000), 0);
            measured const one = measure(s, how, where, chosen.join.front(), {}, 0, few, progress.begin("one alone"));
            found.add(one, one);
            auto const compare = [&](replicated_settings const& settings, std::string const& join) {
                open_workload const load =
                    arrivals_for(chosen, settings.replicas, chosen.requests, one.done.sums.mean_concurrency());
                auto const run = [&](std::size_t deaths) {
                    measured done = measure(s, how, where, join, settings, deaths, load,
                                            progress.begin(std::to_string(settings.replicas) + ", " + join));
                    found.add(done, one);
                    return done;
                };
                measured const lived = run(0);
                auto const deaths = static_cast<std::size_t>(chosen.deaths * static_cast<double>(settings.replicas));
                if (deaths > 0) found.add_cost(run(deaths), lived);
            };
            for (std::size_t const replicas : chosen.replicas) {
                for (std::size_t const in_step : chosen.in_step) {
                    for (std::string const& join : chosen.join) {
                        compare({.replicas = replicas, .in_step = in_step}, join);
                    }
                }
            }
        }
        found.move_to(out, w, chosen.rate);
    }
    return out;
}

}  // namespace serve
