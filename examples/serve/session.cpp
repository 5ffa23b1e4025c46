// SPDX-License-Identifier: MIT
#include "session.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <system_error>
#include <utility>

#include <sureleap/core/error.hpp>

#include "recorded.hpp"

namespace serve {

using nlohmann::ordered_json;
using sureleap::fail_with;

progress_observer run_progress::begin(std::string const& what) {
    ++begun_;
    return [this, what](double share) {
        if (++calls_ % 16 != 0) return;
        status_.update([&] {
            double const all = (static_cast<double>(begun_ - 1) + std::min(share, 1.0)) / static_cast<double>(runs_);
            constexpr std::size_t width = 20;
            auto const full = static_cast<std::size_t>(all * width);
            return name_ + " [" + std::string(full, '#') + std::string(width - full, ' ') + "] " +
                   std::to_string(static_cast<int>(100 * all)) + " % " + what;
        });
    };
}

world session::find(std::string const& name) const {
    return find_world(name, figures ? &*figures : nullptr);
}

cost_world session::believed(cost_world const& truth) const {
    if (chosen.model == "same") return truth;
    if (chosen.model.starts_with("noisy:")) {
        cost_world model = truth;
        char const* const end = chosen.model.data() + chosen.model.size();
        auto const [stop, problem] = std::from_chars(chosen.model.data() + 6, end, model.noise);
        if (problem != std::errc{} || stop != end || !(model.noise >= 0 && model.noise <= 2)) {
            fail_with("--model is '", chosen.model, "', expected noisy:S with S in 0 .. 2");
        }
        model.noise_seed = chosen.seed;
        return model;
    }
    return find(chosen.model).cost;
}

std::size_t session::block_size(world const& w) const {
    return chosen.block_size ? *chosen.block_size : w.block_size.value_or(7);
}

std::vector<domain_settings> session::domains(world const& w, named_mix const* mix,
                                              std::vector<double>& weights) const {
    std::vector<domain_settings> all;
    if (mix == nullptr && !w.domains.empty() && !chosen.given("--acceptance")) {
        all = w.domains;
        weights = w.weights;
        for (domain_settings& d : all) {
            d.request_sd = chosen.request_sd.value_or(d.request_sd);
            d.token_sd = chosen.token_sd.value_or(d.token_sd);
        }
    } else {
        std::size_t const n = mix == nullptr ? 1 : mix->domains.size();
        for (std::size_t i = 0; i < n; ++i) {
            domain_settings d;
            d.request_sd = chosen.request_sd.value_or(d.request_sd);
            d.token_sd = chosen.token_sd.value_or(d.token_sd);
            auto curve = chosen.acceptance;
            if (mix != nullptr) {
                d.name = mix->domains[i];
                curve = figures->acceptance(d.name);
            }
            curve.resize(block_size(w), curve.back());
            d.centre = centre_of(curve, d.request_sd, d.token_sd);
            all.push_back(std::move(d));
        }
        weights = mix == nullptr ? std::vector{1.0} : mix->weights;
    }
    for (domain_settings& d : all) {
        d.anchor_share = chosen.anchor_share;
        d.live_share = chosen.live_share;
        d.sharpness = chosen.sharpness;
        d.bias = chosen.bias;
    }
    return all;
}

std::unique_ptr<text_source> session::texts(world const& w, named_mix const* mix) const {
    if (!chosen.recorded.empty()) {
        return std::make_unique<recorded_texts>(read_recorded(chosen.recorded), block_size(w), chosen.seed);
    }
    std::vector<double> weights;
    auto all = domains(w, mix, weights);
    return std::make_unique<drawn_texts>(std::move(all), std::vector<serve::mix>{{0, weights}}, block_size(w),
                                         chosen.seed);
}

std::unique_ptr<text_source> session::drifting_texts(world const& w, std::uint64_t first, bool distorted) const {
    std::vector<double> before;
    auto all = domains(w, mixes().front(), before);
    std::vector<double> after;
    auto drifted = domains(w, chosen.after ? &*chosen.after : mixes().front(), after);
    for (domain_settings& d : drifted) {
        d.name += ", drifted";
        d.sharpness = distorted ? chosen.drifted_sharpness : 1.0;
        d.bias = distorted ? chosen.drifted_bias : 0.0;
    }
    before.resize(all.size() + drifted.size(), 0.0);
    after.insert(after.begin(), all.size(), 0.0);
    all.insert(all.end(), drifted.begin(), drifted.end());
    return std::make_unique<drawn_texts>(std::move(all), std::vector<serve::mix>{{0, before}, {first, after}},
                                         block_size(w), chosen.seed);
}

std::vector<named_mix const*> session::mixes() const {
    std::vector<named_mix const*> all;
    for (named_mix const& m : chosen.mixes) all.push_back(&m);
    if (all.empty()) all.push_back(nullptr);
    return all;
}

run_settings session::settings() const {
    return {.request_rounds = chosen.rounds};
}

closed_workload session::closed(std::size_t concurrency) const {
    return {.concurrency = concurrency, .tokens = chosen.tokens, .context = chosen.context};
}

std::vector<policy> session::policies(std::vector<std::string> const& otherwise) const {
    std::vector<policy> all;
    for (std::string const& name : chosen.policies.empty() ? otherwise : chosen.policies)
        all.push_back(make_policy(name));
    return all;
}

ordered_json to_json(outcome const& o) {
    auto const or_null = [](double x) { return std::isnan(x) ? ordered_json() : ordered_json(x); };
    ordered_json ece = ordered_json::array();
    for (std::size_t k = 0; k < o.confidences.block_size(); ++k) ece.push_back(or_null(o.confidences.ece(k)));
    ordered_json json{{"policy", o.policy},
                      {"lossless", o.lossless},
                      {"tokens_per_second", o.sums.tokens_per_second()},
                      {"tau", o.sums.tau()},
                      {"budget", o.sums.budget()},
                      {"trimmed", o.sums.trimmed()},
                      {"mean_concurrency", o.sums.mean_concurrency()},
                      {"seconds", o.sums.seconds},
                      {"rounds", o.sums.rounds},
                      {"tokens", o.sums.tokens},
                      {"drafted", o.sums.drafted},
                      {"verified", o.sums.verified},
                      {"accepted", o.sums.accepted},
                      {"ece", ece},
                      {"ece_mean", or_null(o.confidences.ece())},
                      {"requests",
                       {{"arrived", o.requests.arrived},
                        {"finished", o.requests.finished},
                        {"failed", o.requests.failed},
                        {"placed", o.requests.placed},
                        {"waiting", o.requests.waiting},
                        {"lost", o.requests.lost()}}}};
    for (auto const& [name, of] :
         {std::pair{"waited", &served_request::waited}, std::pair{"first_token", &served_request::first_token}}) {
        for (int const q : {50, 95, 99}) {
            json["latency"][name].push_back(
                or_null(quantile(o.served, q / 100.0, [of](served_request const& r) { return r.*of; })));
        }
    }
    for (int const q : {1, 5, 50}) {
        json["latency"]["tokens_per_second"].push_back(
            or_null(quantile(o.served, q / 100.0, [](served_request const& r) { return r.tokens_per_second(); })));
    }
    for (std::size_t i = 0; i < o.windows.size(); ++i) {
        json["windows"].push_back({o.window_texts[i], o.windows[i].seconds, o.windows[i].tokens, o.windows[i].budget(),
                                   or_null(o.window_confidences[i].ece()), o.windows[i].mean_concurrency()});
    }
    return json;
}

std::string marked(outcome const& o) {
    return o.lossless ? o.policy : o.policy + " *";
}

std::vector<std::string> header_of_runs() {
    return {"policy", "tokens/s", "a user's", "tau", "budget", "trimmed", "kept", "ECE"};
}

std::vector<std::string> row_of(outcome const& o) {
    return {marked(o),
            evaluate::grouped(static_cast<std::uint64_t>(o.sums.tokens_per_second() + 0.5)),
            fixed(o.sums.tokens_per_second() / o.sums.mean_concurrency(), 1),
            fixed(o.sums.tau(), 3),
            fixed(o.sums.budget(), 2),
            percent(o.sums.trimmed()),
            o.sums.verified > 0 ? percent(o.sums.acceptance()) : "-",
            o.sums.verified > 0 ? percent(o.confidences.ece(), 2) : "-"};
}

std::vector<std::string> notes_of_runs() {
    return {
        "tau: tokens a round of a request; budget: batch tokens a request, the anchor included; trimmed: of the "
        "drafts,",
        "never verified; kept: of the verified; *: not lossless."};
}

}  // namespace serve
