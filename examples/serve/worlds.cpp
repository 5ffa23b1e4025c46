// SPDX-License-Identifier: MIT
#include "worlds.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <system_error>
#include <utility>

#include <engine/json_field.hpp>
#include <engine/text_file.hpp>
#include <sureleap/core/error.hpp>

namespace serve {
namespace {

using engine::json_field;
using sureleap::fail_with;

std::vector<double> numbers(json_field const& field) {
    std::vector<double> values;
    field.each([&](json_field const& entry) { values.push_back(entry.number()); });
    return values;
}

double number_or(json_field const& field, double fallback) {
    return field.present() ? field.number() : fallback;
}

/// Least squares of two coefficients: the x that makes a x[0] + b x[1] closest to y.
std::array<double, 2> fit_two(std::vector<double> const& a, std::vector<double> const& b,
                              std::vector<double> const& y) {
    double aa = 0, ab = 0, bb = 0, ay = 0, by = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
        aa += a[i] * a[i];
        ab += a[i] * b[i];
        bb += b[i] * b[i];
        ay += a[i] * y[i];
        by += b[i] * y[i];
    }
    double const determinant = aa * bb - ab * ab;
    return {(bb * ay - ab * by) / determinant, (aa * by - ab * ay) / determinant};
}

polyline line_of(std::map<double, double> const& points) {
    polyline line;
    for (auto const& [at, seconds] : points) {
        line.at.push_back(at);
        line.seconds.push_back(seconds);
    }
    return line;
}

}  // namespace

world read_world(std::filesystem::path const& file) {
    std::string const source = file.string();
    auto const document = engine::parse_json_object(engine::read_text(file), source);
    json_field const root(document, source);
    if (root["format"].text() != "sureleap-world-1") root["format"].wrong("\"sureleap-world-1\"");
    world w;
    w.cost.name = root["name"].text();
    w.cost.source = root["source"].present() ? root["source"].text() : source;
    if (root["block"].present()) w.block_size = root["block"].size(1, 64);
    auto const step = root["step"];
    w.cost.requests = {numbers(step["requests"]["at"]), numbers(step["requests"]["seconds"])};
    w.cost.batch_tokens = {numbers(step["batch_tokens"]["at"]), numbers(step["batch_tokens"]["seconds"])};
    if (step["pad_batch_to"].present()) w.cost.pad_batch_to = step["pad_batch_to"].size(1, 1u << 20);
    if (auto const draft = root["draft"]; draft.present()) {
        w.cost.draft_seconds = number_or(draft["seconds"], 0);
        w.cost.draft_per_request = number_or(draft["per_request"], 0);
        w.cost.draft_per_token = number_or(draft["per_token"], 0);
    }
    w.cost.check();
    if (auto const mtp1 = root["mtp1"]; mtp1.present()) {
        w.mtp1 = rival{mtp1["accepts"].number(), number_or(mtp1["draft_seconds"], 0)};
    }
    if (auto const texts = root["acceptance"]; texts.present()) {
        texts["domains"].each([&](json_field const& entry) {
            domain_settings d;
            d.name = entry["name"].text();
            d.centre = numbers(entry["centre"]);
            d.request_sd = texts["request_sd"].number();
            d.token_sd = texts["token_sd"].number();
            w.domains.push_back(std::move(d));
            w.weights.push_back(number_or(entry["weight"], 1));
        });
    }
    if (document.contains("published")) w.published = document["published"];
    return w;
}

published_figures::published_figures(std::filesystem::path const& file)
    : source_(file.string()), document_(engine::parse_json_object(engine::read_text(file), source_)) {}

std::vector<double> published_figures::acceptance(std::string const& domain) const {
    json_field const root(document_, source_);
    if (domain == "prefix16") {
        auto rates = numbers(root["prefix_survival_16"]["survival"]);
        for (std::size_t k = rates.size(); k-- > 1;) rates[k] /= rates[k - 1];
        return rates;
    }
    return numbers(root["fig2_conditional_acceptance"][domain]["DSpark"]);
}

cost_world published_figures::h20() const {
    json_field const table = json_field(document_, source_)["verify_cost_H20_Qwen3-8B"];
    constexpr double block = 16;
    auto const shares = numbers(table["share"]);
    std::map<double, double> f, g;
    struct point {
        double requests, tokens, seconds;
    };
    std::vector<point> points;
    for (auto const& [batch, unused] : table["ms_by_batch"].object()) {
        auto const row = numbers(table["ms_by_batch"][batch]);
        double requests = 0;
        std::from_chars(batch.data(), batch.data() + batch.size(), requests);
        if (row.size() != shares.size() || !(requests >= 1))
            table["ms_by_batch"][batch].wrong("a time for every share");
        for (std::size_t i = 0; i < row.size(); ++i) {
            points.push_back({requests, requests * block * shares[i], 1e-3 * row[i]});
            f[requests] = 0;
            g[points.back().tokens] = 0;
        }
    }
    // Least squares of f(R) + g(B) by turns; each turn is exact for one of the two.
    auto const refit = [&](std::map<double, double>& these, double point::* key, auto const& others) {
        for (auto& [at, value] : these) {
            double sum = 0;
            double n = 0;
            for (point const& p : points) {
                if (p.*key != at) continue;
                sum += p.seconds - others(p);
                n += 1;
            }
            value = sum / n;
        }
    };
    for (int turn = 0; turn < 2000; ++turn) {
        refit(g, &point::tokens, [&](point const& p) { return f[p.requests]; });
        refit(f, &point::requests, [&](point const& p) { return g[p.tokens]; });
    }
    // What is common to all steps may stand on either side: f begins at 0.
    double const common = f.begin()->second;
    for (auto& [at, value] : f) value -= common;
    for (auto& [at, value] : g) value += common;
    cost_world world;
    world.name = "h20";
    world.source = table["source"].text();
    world.requests = line_of(f);
    world.batch_tokens = line_of(g);
    world.check();
    return world;
}

cost_world published_figures::mi350x() const {
    json_field const table = json_field(document_, source_)["adaptive_vs_static_MI350X"];
    auto const concurrency = numbers(table["concurrency"]);
    auto const none = numbers(table["none"]);
    auto const seven = numbers(table["fixed7"]);
    if (none.size() != concurrency.size() || seven.size() != concurrency.size()) table.wrong("series of equal length");
    double survival = 1;
    double tau = 1;
    for (double const c : acceptance("chat")) tau += survival *= c;
    std::map<double, double> plain;  // step seconds by B = R
    for (std::size_t i = 0; i < none.size(); ++i) plain[concurrency[i]] = concurrency[i] / none[i];
    // With 7 drafts: a R + g(8 R) + d. Without, at 8 R requests: a 8 R + g(8 R).
    std::vector<double> requests, ones, y;
    for (std::size_t i = 0; i < seven.size(); ++i) {
        auto const same = plain.find(8 * concurrency[i]);
        if (same == plain.end()) continue;
        requests.push_back(-7 * concurrency[i]);
        ones.push_back(1);
        y.push_back(concurrency[i] * tau / seven[i] - same->second);
    }
    auto const [per_request, draft] = fit_two(requests, ones, y);
    std::map<double, std::vector<double>> rest;
    for (std::size_t i = 0; i < concurrency.size(); ++i) {
        double const r = concurrency[i];
        rest[r].push_back(plain[r] - per_request * r);
        rest[8 * r].push_back(r * tau / seven[i] - per_request * r - draft);
    }
    std::map<double, double> g;
    for (auto const& [tokens, values] : rest) {
        for (double const v : values) g[tokens] += v / static_cast<double>(values.size());
    }
    cost_world world;
    world.name = "mi350x";
    world.source = table["source"].text();
    world.requests = {{0, 1}, {0, per_request}};
    world.batch_tokens = line_of(g);
    world.draft_seconds = draft;
    world.check();
    return world;
}

world find_world(std::string const& name, published_figures const* figures) {
    world w;
    if (name == "smooth") {
        w.cost = made_up_world();
        return w;
    }
    if (name.starts_with("stairs:")) {
        std::size_t stair = 0;
        char const* const end = name.data() + name.size();
        auto const [stop, problem] = std::from_chars(name.data() + 7, end, stair);
        if (problem != std::errc{} || stop != end || stair < 2 || stair > (1u << 20)) {
            fail_with("world '", name, "': expected stairs:N with N in 2 .. ", 1u << 20);
        }
        w.cost = made_up_world(stair);
        return w;
    }
    if (name == "h20" || name == "mi350x") {
        if (figures == nullptr) fail_with("world '", name, "' is made of published figures, give --figures FILE");
        w.cost = name == "h20" ? figures->h20() : figures->mi350x();
        return w;
    }
    if (!std::filesystem::exists(name)) {
        fail_with("world '", name, "' is neither smooth, stairs:N, h20 nor mi350x, and there is no such file");
    }
    return read_world(name);
}

}  // namespace serve
