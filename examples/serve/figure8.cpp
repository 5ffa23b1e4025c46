// SPDX-License-Identifier: MIT
//
// Figures 7 and 8 of the DSpark paper. They show throughput and verification budget by concurrency beside the published
// lines. From the same runs come comparisons at equal speed for a user and at equal throughput.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <engine/json_field.hpp>

#include "session.hpp"

namespace serve {
namespace {

/// A policy over concurrencies: a user's speed falls and the engine's throughput rises along it.
struct frontier {
    std::vector<double> speed, throughput;

    /// y where x is, on straight lines; NaN outside.
    [[nodiscard]] static double at(std::vector<double> const& xs, std::vector<double> const& ys, double x) {
        for (std::size_t i = 1; i < xs.size(); ++i) {
            double const a = xs[i - 1];
            double const b = xs[i];
            if ((a - x) * (b - x) <= 0 && a != b) return ys[i - 1] + (x - a) / (b - a) * (ys[i] - ys[i - 1]);
        }
        return std::numeric_limits<double>::quiet_NaN();
    }
    [[nodiscard]] double throughput_at(double user) const { return at(speed, throughput, user); }
    [[nodiscard]] double speed_at(double total) const { return at(throughput, speed, total); }
};

frontier frontier_of(std::vector<double> const& concurrency, std::vector<double> const& throughput) {
    frontier line{{}, throughput};
    for (std::size_t i = 0; i < throughput.size(); ++i) line.speed.push_back(throughput[i] / concurrency[i]);
    return line;
}

struct published_line {
    std::vector<double> concurrency, budget, dspark, mtp1;
};
published_line line_of(session const& s, std::string const& world) {
    engine::json_field const all = engine::json_field(s.figures->document(), s.figures->source())["fig8_budget"][world];
    published_line line;
    auto const read = [&](char const* name, std::vector<double>& out) {
        all[name].each([&](engine::json_field const& x) { out.push_back(x.number()); });
        if (out.empty() || (!line.concurrency.empty() && out.size() != line.concurrency.size())) {
            all[name].wrong("a number for every concurrency");
        }
    };
    read("concurrency", line.concurrency);
    read("budget", line.budget);
    read("tokens_per_s_dspark", line.dspark);
    read("tokens_per_s_mtp1", line.mtp1);
    return line;
}

std::string off_by(double simulated, double published) {
    return (simulated >= published ? "+" : "") + percent(simulated / published - 1);
}

}  // namespace

section run_figure8(session const& s) {
    if (!s.figures) sureleap::fail_with("figure8: compares with published lines, give --figures FILE");
    auto const policies = s.policies({"planned", "lagged", "greedy"});
    section out;
    for (std::string const& name : s.chosen.worlds) {
        world const w = s.find(name);
        if (!w.mtp1) sureleap::fail_with("figure8: world ", w.cost.name, " has no mtp1, expected it in its file");
        published_line const published = line_of(s, w.cost.name);
        auto const texts = s.texts(w, s.mixes().front());
        scenario const where{*texts, w.cost, s.believed(w.cost)};
        // The rival has one draft, of an acceptance of its own, and a draft model of its own cost.
        drawn_texts const rival_texts({{.name = "mtp-1",
                                        .centre = {std::log(w.mtp1->accepts / (1 - w.mtp1->accepts))},
                                        .request_sd = 0,
                                        .token_sd = 0}},
                                      {}, 1, s.chosen.seed);
        cost_world rival_cost = w.cost;
        rival_cost.draft_seconds = w.mtp1->draft_seconds;
        rival_cost.draft_per_request = rival_cost.draft_per_token = 0;
        scenario const rival_where{rival_texts, rival_cost, rival_cost};

        std::vector<std::size_t> concurrency{1,  2,   3,   5,   8,   12,  18,  25,  35, 50,
                                             70, 100, 125, 150, 175, 200, 250, 300, 400};
        for (double const c : published.concurrency) concurrency.push_back(static_cast<std::size_t>(c));
        std::sort(concurrency.begin(), concurrency.end());
        concurrency.erase(std::unique(concurrency.begin(), concurrency.end()), concurrency.end());
        run_progress progress(s.status, "figure8 " + w.cost.name, concurrency.size() * (policies.size() + 1));

        std::vector<std::vector<outcome>> runs(policies.size() + 1);  // the rival's first
        std::vector<frontier> frontiers(policies.size() + 1);
        nlohmann::ordered_json lines = nlohmann::ordered_json::array();
        for (std::size_t p = 0; p <= policies.size(); ++p) {
            policy how = p == 0 ? make_policy("fixed:1") : policies[p - 1];
            if (p == 0) how.name = "mtp-1";
            nlohmann::ordered_json line;
            for (std::size_t const n : concurrency) {
                outcome o = run(how, p == 0 ? rival_where : where, s.closed(n), s.settings(), progress.begin(how.name));
                frontiers[p].speed.push_back(o.sums.tokens_per_second() / static_cast<double>(n));
                frontiers[p].throughput.push_back(o.sums.tokens_per_second());
                auto json = to_json(o);
                json["concurrency"] = n;
                line.push_back(std::move(json));
                runs[p].push_back(std::move(o));
            }
            lines.push_back({{"policy", how.name}, {"runs", line}});
        }

        for (std::size_t p = 0; p <= policies.size(); ++p) {
            table t{.title = w.cost.name + ", " + runs[p].front().policy + ": simulated beside published (Figure 8)",
                    .header = {"requests", "tokens/s", "published", "off by"}};
            if (p > 0) t.header.insert(t.header.end(), {"budget", "published", "off by"});
            for (std::size_t i = 0; i < published.concurrency.size(); ++i) {
                auto const n = static_cast<std::size_t>(published.concurrency[i]);
                auto const at = static_cast<std::size_t>(std::lower_bound(concurrency.begin(), concurrency.end(), n) -
                                                         concurrency.begin());
                round_sums const& sums = runs[p][at].sums;
                double const there = p == 0 ? published.mtp1[i] : published.dspark[i];
                std::vector<std::string> row{std::to_string(n), fixed(sums.tokens_per_second(), 0), fixed(there, 0),
                                             off_by(sums.tokens_per_second(), there)};
                if (p > 0) {
                    row.insert(row.end(), {fixed(sums.budget(), 2), fixed(published.budget[i], 2),
                                           fixed(sums.budget() - published.budget[i], 2)});
                }
                t.add(std::move(row));
            }
            out.tables.push_back(std::move(t));
        }

        auto const& gains = s.figures->document()["fig7_frontier"][w.cost.name];
        // What Figure 8's lines give by themselves stands between what Figure 7 says and what is simulated.
        frontier const lines_mtp1 = frontier_of(published.concurrency, published.mtp1);
        frontier const lines_dspark = frontier_of(published.concurrency, published.dspark);
        auto const gain = [](double ours, double rivals) {
            double const ratio = ours / rivals - 1;
            return std::isnan(ratio) ? std::string("-") : (ratio < 0 ? "" : "+") + percent(ratio, 0);
        };
        table t{.title = w.cost.name + ": gains over MTP-1 (Figure 7)", .header = {"at", "published", "by Figure 8"}};
        for (policy const& p : policies) t.header.push_back(p.name);
        for (auto const& [key, value] : gains.items()) {
            std::string const prefix = "throughput_gain_at_";
            if (!key.starts_with(prefix)) continue;
            double const user = std::stod(key.substr(prefix.size()));
            std::vector<std::string> row{fixed(user, 0) + " tokens/s for each user: throughput",
                                         "+" + percent(value.get<double>(), 0),
                                         gain(lines_dspark.throughput_at(user), lines_mtp1.throughput_at(user))};
            for (std::size_t p = 1; p <= policies.size(); ++p) {
                row.push_back(gain(frontiers[p].throughput_at(user), frontiers[0].throughput_at(user)));
            }
            t.add(std::move(row));
        }
        for (double const total : published.mtp1) {
            std::vector<std::string> row{fixed(total, 0) + " tokens/s in all: a user's speed", "",
                                         gain(lines_dspark.speed_at(total), lines_mtp1.speed_at(total))};
            for (std::size_t p = 1; p <= policies.size(); ++p) {
                row.push_back(gain(frontiers[p].speed_at(total), frontiers[0].speed_at(total)));
            }
            t.add(std::move(row));
        }
        t.notes = {"Published for equal throughput: " + gains["speed_gain_at_matched_throughput"].dump() +
                       ", from the least to the most.",
                   "By Figure 8: straight lines between its published points.",
                   "-: one of the two does not get there."};
        out.tables.push_back(std::move(t));
        out.numbers.push_back({{"world", w.cost.name},
                               {"concurrency", concurrency},
                               {"lines", lines},
                               {"published",
                                {{"concurrency", published.concurrency},
                                 {"budget", published.budget},
                                 {"dspark", published.dspark},
                                 {"mtp1", published.mtp1},
                                 {"frontier", gains}}}});
    }
    return out;
}

}  // namespace serve
