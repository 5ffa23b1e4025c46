// SPDX-License-Identifier: MIT
#include "texts.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <sureleap/core/error.hpp>

#include "keyed.hpp"

namespace serve {
namespace {

using sureleap::fail_with;

[[nodiscard]] double logistic(double x) noexcept {
    return 1.0 / (1.0 + std::exp(-x));
}
[[nodiscard]] double logit(double p) noexcept {
    return std::log(p / (1.0 - p));
}

/// Nodes of a normal law for sums: an even grid, which for a smooth integrand is as good as any quadrature.
struct normal_grid {
    static constexpr int half = 48;
    std::array<double, 2 * half + 1> at{};
    std::array<double, 2 * half + 1> weight{};
    normal_grid() {
        double total = 0;
        for (int i = -half; i <= half; ++i) {
            double const x = 6.0 * i / half;
            auto const j = static_cast<std::size_t>(i + half);
            at[j] = x;
            weight[j] = std::exp(-0.5 * x * x);
            total += weight[j];
        }
        for (double& w : weight) w /= total;
    }
};
normal_grid const& grid() {
    static normal_grid const nodes;
    return nodes;
}

void check(domain_settings const& d) {
    auto const in = [&](char const* what, double x, double low, double high) {
        if (!(x >= low && x <= high)) {
            fail_with("domain ", d.name, ": ", what, " is ", x, ", expected a number in [", low, ", ", high, "]");
        }
    };
    if (d.centre.empty()) fail_with("domain ", d.name, ": centre is empty, expected a logit for every depth");
    for (double c : d.centre) in("centre", c, -20, 20);
    in("request_sd", d.request_sd, 0, 5);
    in("token_sd", d.token_sd, 0, 5);
    in("anchor_share", d.anchor_share, 0, 1);
    in("live_share", d.live_share, d.anchor_share, 1);
    in("sharpness", d.sharpness, 0.05, 20);
    in("bias", d.bias, -10, 10);
    in("draft_noise", d.draft_noise, 0, 5);
}

/// A reported confidence.
[[nodiscard]] double reported(double c, domain_settings const& d) noexcept {
    if (d.sharpness == 1.0 && d.bias == 0.0) return c;
    double const inside = std::clamp(c, 1e-12, 1 - 1e-12);
    return logistic(d.sharpness * logit(inside) + d.bias);
}

}  // namespace

logistic_mean::logistic_mean(double sd) : sd_(sd) {
    if (sd == 0) return;
    for (double x = -reach; x <= reach; x += 1.0 / per_unit) {
        double mean = 0;
        for (std::size_t i = 0; i < grid().at.size(); ++i) mean += grid().weight[i] * logistic(x + sd * grid().at[i]);
        table_.push_back(mean);
    }
}

double logistic_mean::operator()(double x) const noexcept {
    if (sd_ == 0) return logistic(x);
    double const at = std::clamp((x + reach) * per_unit, 0.0, static_cast<double>(table_.size()) - 1.001);
    auto const i = static_cast<std::size_t>(at);
    return table_[i] + (at - static_cast<double>(i)) * (table_[i + 1] - table_[i]);
}

std::vector<double> centre_of(std::span<double const> acceptance, double request_sd, double token_sd) {
    for (std::size_t k = 0; k < acceptance.size(); ++k) {
        if (!(acceptance[k] > 1e-4 && acceptance[k] < 1 - 1e-4)) {
            fail_with("acceptance at depth ", k + 1, " is ", acceptance[k],
                      ", expected a number between 0.0001 and 0.9999");
        }
    }
    logistic_mean const mean(token_sd);
    auto const& nodes = grid();
    std::size_t const n = nodes.at.size();
    std::vector<double> centre(acceptance.size());
    for (std::size_t k = 0; k < centre.size(); ++k) centre[k] = logit(acceptance[k]);
    // Rounds per token of a text are 1 / tau(z), and tau depends on the solution.
    for (int turn = 0; turn < 30; ++turn) {
        std::vector<double> weight(n);
        for (std::size_t i = 0; i < n; ++i) {
            double survival = 1;
            double tau = 1;
            for (double b : centre) tau += survival *= mean(b + request_sd * nodes.at[i]);
            weight[i] = nodes.weight[i] / tau;
        }
        for (std::size_t k = 0; k < centre.size(); ++k) {
            double const before = std::accumulate(weight.begin(), weight.end(), 0.0);
            double low = -20;
            double high = 20;
            for (int step = 0; step < 50; ++step) {
                double const b = 0.5 * (low + high);
                double after = 0;
                for (std::size_t i = 0; i < n; ++i) after += weight[i] * mean(b + request_sd * nodes.at[i]);
                (after < acceptance[k] * before ? low : high) = b;
            }
            centre[k] = 0.5 * (low + high);
            for (std::size_t i = 0; i < n; ++i) weight[i] *= mean(centre[k] + request_sd * nodes.at[i]);
        }
    }
    return centre;
}

// ---- by formula ------------------------------------------------------------------------------------------------

drawn_texts::drawn_texts(std::vector<domain_settings> domains, std::vector<mix> mixes, std::size_t block_size,
                         std::uint64_t seed)
    : mixes_(std::move(mixes)), block_size_(block_size), seed_(seed) {
    if (domains.empty()) sureleap::fail_with("texts: no domain, expected at least one");
    if (mixes_.empty()) mixes_.push_back({0, std::vector<double>(domains.size(), 1.0)});
    for (mix& m : mixes_) {
        double const total = std::accumulate(m.weights.begin(), m.weights.end(), 0.0);
        bool const usable = std::all_of(m.weights.begin(), m.weights.end(), [](double w) { return w >= 0; });
        if (m.weights.size() != domains.size() || !usable || !(total > 0)) {
            fail_with("texts: the mix from text ", m.first, " on has ", m.weights.size(), " weights that sum to ",
                      total, ", expected ", domains.size(), " that are not negative and not all 0");
        }
        double sum = 0;
        for (double& w : m.weights) w = sum += w / total;
    }
    for (domain_settings const& d : domains) {
        check(d);
        double const z = d.request_sd * d.request_sd;
        double const e = d.token_sd * d.token_sd;
        double const hidden = std::clamp(d.anchor_share * (z + e) - z, 0.0, e);
        double const known = std::clamp(d.live_share * (z + e) - z, hidden, e);
        domains_.push_back({.settings = d,
                            .request = d.request_sd,
                            .hidden = std::sqrt(hidden),
                            .drafted = std::sqrt(known - hidden),
                            .unknown = std::sqrt(e - known),
                            .live = logistic_mean(std::sqrt(e - known)),
                            .anchor = logistic_mean(std::sqrt(e - hidden))});
    }
}

drawn_texts::text drawn_texts::find(std::uint64_t index) const noexcept {
    auto const point = even_point(index, seed_);
    return {&domains_[domain_of(index)], domains_[domain_of(index)].request * normals()(point[1]), mixed(seed_, index)};
}

std::size_t drawn_texts::domain_of(std::uint64_t index) const noexcept {
    mix const* now = &mixes_.front();
    for (mix const& m : mixes_) {
        if (m.first <= index) now = &m;
    }
    double const u = even_point(index, seed_)[0];
    std::size_t d = 0;
    while (d + 1 < now->weights.size() && u >= now->weights[d]) ++d;
    return d;
}

double drawn_texts::evenness(std::uint64_t index) const noexcept {
    return even_point(index, seed_)[2];
}

void drawn_texts::look(std::uint64_t index, std::uint64_t position, std::span<position_facts> out) const noexcept {
    text const t = find(index);
    domain const& d = *t.of;
    auto const& normal = normals();
    for (std::size_t k = 0; k < out.size(); ++k) {
        std::uint64_t const bits = mixed(t.key ^ (position + 1 + k));
        double const at_anchor =
            d.settings.centre[std::min(k, d.settings.centre.size() - 1)] + t.request + d.hidden * normal(bits, 0);
        double const known = at_anchor + d.drafted * normal(bits, 1);
        out[k].logit = known + d.unknown * normal(bits, 2);
        out[k].live = reported(d.live(known), d.settings);
        out[k].anchor = reported(d.anchor(at_anchor), d.settings);
        out[k].draft = known + d.settings.draft_noise * normal(mixed(bits), 0);
    }
}

// ---- as recorded -----------------------------------------------------------------------------------------------

recorded_texts::recorded_texts(std::vector<recorded_round> rounds, std::size_t block_size, std::uint64_t seed)
    : rounds_(std::move(rounds)), block_size_(block_size), seed_(seed) {
    if (rounds_.empty()) sureleap::fail_with("recorded rounds: there are none, expected at least one");
    for (std::size_t i = 0; i < rounds_.size(); ++i) {
        recorded_round const& r = rounds_[i];
        if (r.confidences.empty()) fail_with("recorded round ", i, ": it drafted nothing, expected confidences");
        for (double c : r.confidences) {
            if (!(c >= 0 && c <= 1)) fail_with("recorded round ", i, ": a confidence is ", c, ", expected [0, 1]");
        }
        if (r.accepted > r.confidences.size()) {
            fail_with("recorded round ", i, ": it accepted ", r.accepted, " of ", r.confidences.size(), " drafts");
        }
    }
    std::sort(rounds_.begin(), rounds_.end(), [](recorded_round const& a, recorded_round const& b) {
        return a.text != b.text ? a.text < b.text : a.position < b.position;
    });
    for (std::size_t i = 0; i < rounds_.size(); ++i) {
        if (i == 0 || rounds_[i].text != rounds_[i - 1].text) first_of_text_.push_back(i);
    }
    first_of_text_.push_back(rounds_.size());

    std::vector<double> firsts;
    for (recorded_round const& r : rounds_) firsts.push_back(r.confidences.front());
    std::sort(firsts.begin(), firsts.end());
    for (std::size_t t = 1; t < tenths; ++t) tenth_ends_.push_back(firsts[t * firsts.size() / tenths]);
    auto const tenth_of = [&](double c) {
        return static_cast<std::size_t>(std::upper_bound(tenth_ends_.begin(), tenth_ends_.end(), c) -
                                        tenth_ends_.begin());
    };
    std::vector<double> sum(tenths * block_size);
    std::vector<double> count(tenths * block_size);
    for (recorded_round const& r : rounds_) {
        for (std::size_t k = 0; k < std::min(block_size, r.confidences.size()); ++k) {
            sum[tenth_of(r.confidences.front()) * block_size + k] += r.confidences[k];
            count[tenth_of(r.confidences.front()) * block_size + k] += 1;
        }
    }
    for (std::size_t i = 0; i < sum.size(); ++i) anchor_means_.push_back(count[i] > 0 ? sum[i] / count[i] : 0.5);
}

double recorded_texts::evenness(std::uint64_t text) const noexcept {
    return even_point(text, seed_)[2];
}

void recorded_texts::look(std::uint64_t text, std::uint64_t position, std::span<position_facts> out) const noexcept {
    // Texts come again, in another order.
    std::size_t const texts = first_of_text_.size() - 1;
    std::size_t const t = text < texts ? text : mixed(seed_, text) % texts;
    auto const begin = rounds_.begin() + static_cast<std::ptrdiff_t>(first_of_text_[t]);
    auto const end = rounds_.begin() + static_cast<std::ptrdiff_t>(first_of_text_[t + 1]);
    // A simulated text may be longer than the recorded one: it begins again.
    std::uint64_t const length = (end - 1)->position - begin->position + (end - 1)->accepted + 1;
    std::uint64_t const at = begin->position + position % length;
    auto const after =
        std::upper_bound(begin, end, at, [](std::uint64_t p, recorded_round const& r) { return p < r.position; });
    recorded_round const& r = after == begin ? *begin : *(after - 1);
    auto const tenth = static_cast<std::size_t>(
        std::upper_bound(tenth_ends_.begin(), tenth_ends_.end(), r.confidences.front()) - tenth_ends_.begin());
    constexpr double sure = 40;  // 1 to a double
    for (std::size_t k = 0; k < out.size(); ++k) {
        bool const drafted = k < r.confidences.size();
        double const c = drafted ? r.confidences[k] : 0.0;
        out[k] = {.logit = k < r.accepted ? sure : -sure,
                  .live = c,
                  .anchor = k == 0 ? c : anchor_means_[tenth * block_size_ + std::min(k, block_size_ - 1)],
                  .draft = logit(std::clamp(c, 1e-6, 1 - 1e-6))};
    }
}

}  // namespace serve
