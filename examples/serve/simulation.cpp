// SPDX-License-Identifier: MIT
#include "simulation.hpp"

#include <cmath>
#include <deque>
#include <limits>
#include <unordered_map>

#include "keyed.hpp"

namespace serve {
namespace {

/// Requests in the decoder, and the books about them.
class running_requests {
public:
    running_requests(policy const& how, scenario const& where, run_settings const& settings, std::size_t places)
        : how_(how),
          where_(where),
          settings_(settings),
          places_(places),
          decoder_(how.make(where, places)) {
        out_.policy = how.name;
        out_.lossless = how.lossless;
        out_.confidences = reliability(where.texts.block_size());
    }

    [[nodiscard]] std::size_t size() const noexcept { return open_.size(); }
    [[nodiscard]] std::size_t places() const noexcept { return places_; }
    [[nodiscard]] double now() const { return decoder_->machine().now(); }
    void wait_until(double moment) { decoder_->machine().wait_until(moment); }
    [[nodiscard]] outcome& result() noexcept { return out_; }

    void join(std::uint64_t text, arrival const& what) {
        if (prompt_.size() < what.context) prompt_.resize(what.context, 0);
        wait_until(now() + settings_.prefill_seconds * static_cast<double>(what.context));
        auto const id = decoder_->join(std::span(prompt_).first(what.context),
                                       {.seed = text,
                                        .max_new_tokens = what.tokens,
                                        .max_draft_tokens = how_.max_draft_tokens});
        open_.emplace(id, request{what.seconds, now(), 0, 0, measuring_});
        youngest_.push_back(id);
    }
    /// Of those running, the one that came last.
    void cancel_youngest() {
        while (!open_.contains(youngest_.back())) youngest_.pop_back();
        decoder_->leave(youngest_.back());
        open_.erase(youngest_.back());
        youngest_.pop_back();
        ++out_.requests.cancelled;
    }
    void measure() noexcept { measuring_ = true; }

    void step() {
        decoder_->step();
        auto const& record = decoder_->round();
        double const took = decoder_->machine().last_seconds();
        if (measuring_) {
            out_.sums.add(record, took);
            out_.confidences.add(record);
        }
        if (settings_.window > 0) {
            if (out_.windows.empty() || out_.windows.back().rounds == settings_.window) {
                out_.windows.emplace_back();
                out_.window_confidences.emplace_back(where_.texts.block_size());
            }
            out_.windows.back().add(record, took);
            out_.window_confidences.back().add(record);
        }
        for (sureleap::request_event const& event : decoder_->events()) settle(event);
    }

private:
    struct request {
        double arrived = 0;
        double joined = 0;
        double first = 0;
        std::uint64_t tokens = 0;
        bool counts = false;
    };

    void settle(sureleap::request_event const& event) {
        request& r = open_.at(event.request);
        if (r.tokens == 0) r.first = now();
        r.tokens += event.tokens.size();
        bool const failed = event.outcome != sureleap::status::ok;
        if (!failed && event.finished == sureleap::finish_reason::none) return;
        if (failed) {
            ++out_.requests.failed;
        } else {
            ++out_.requests.finished;
            double const since = r.first < now() ? r.first : r.joined;
            if (r.counts) out_.served.push_back({r.joined - r.arrived, r.first - r.arrived, now() - since, r.tokens});
        }
        decoder_->leave(event.request);
        open_.erase(event.request);
    }

    policy const& how_;
    scenario const& where_;
    run_settings const& settings_;
    std::size_t places_;
    std::unique_ptr<any_decoder> decoder_;
    std::unordered_map<sureleap::request_id, request> open_;
    std::vector<sureleap::request_id> youngest_;
    std::vector<sureleap::token_id> prompt_;
    bool measuring_ = false;
    outcome out_;
};

}  // namespace

std::size_t closed_workload::concurrency_at(double seconds) const noexcept {
    if (!(period > 0)) return concurrency;
    double const phase = seconds / period - std::floor(seconds / period);
    return phase < 1.0 - burst_share ? concurrency : most();
}

outcome run(policy const& how, scenario const& where, closed_workload const& load, run_settings const& settings,
            progress_observer const& progress) {
    running_requests requests(how, where, settings, settings.places > 0 ? settings.places : load.most());
    outcome& out = requests.result();
    std::uint64_t text = 0;
    auto const warm_up = static_cast<std::uint64_t>(settings.warm_up * static_cast<double>(settings.request_rounds));
    for (std::uint64_t done = 0;;) {
        if (settings.seconds ? requests.now() >= *settings.seconds : done >= warm_up + settings.request_rounds) break;
        if (settings.seconds ? requests.now() >= settings.warm_up * *settings.seconds : done >= warm_up) requests.measure();
        std::size_t const wanted = load.concurrency_at(requests.now());
        while (requests.size() > wanted) requests.cancel_youngest();
        while (requests.size() < wanted) {
            double const length = static_cast<double>(load.tokens) * (0.5 + where.texts.evenness(text));
            // The first ones are found in the middle of their texts, or all would finish together.
            double const left = text < load.concurrency ? static_cast<double>(mixed(text) >> 11) * 0x1p-53 : 1.0;
            auto const tokens = static_cast<std::size_t>(std::max(1.0, std::ceil(length * left)));
            requests.join(text++, {requests.now(), load.context, tokens});
            ++out.requests.arrived;
        }
        requests.step();
        done += wanted;
        if (progress) {
            progress(settings.seconds ? requests.now() / *settings.seconds
                                      : static_cast<double>(done) / static_cast<double>(warm_up + settings.request_rounds));
        }
    }
    out.requests.running = requests.size();
    return std::move(out);
}

outcome run(policy const& how, scenario const& where, open_workload const& load, run_settings const& settings,
            progress_observer const& progress) {
    running_requests requests(how, where, settings, settings.places > 0 ? settings.places : 256);
    outcome& out = requests.result();
    requests.measure();
    std::size_t joined = 0;
    while (joined < load.arrivals.size() || requests.size() > 0) {
        if (settings.seconds && requests.now() >= *settings.seconds) break;
        if (requests.size() == 0) requests.wait_until(load.arrivals[joined].seconds);
        // First come, first served.
        while (joined < load.arrivals.size() && load.arrivals[joined].seconds <= requests.now() &&
               requests.size() < requests.places()) {
            requests.join(joined, load.arrivals[joined]);
            ++joined;
        }
        requests.step();
        if (progress) progress(static_cast<double>(joined) / static_cast<double>(load.arrivals.size()));
    }
    out.requests.arrived = joined;
    while (out.requests.arrived < load.arrivals.size() &&
           load.arrivals[out.requests.arrived].seconds <= requests.now()) {
        ++out.requests.arrived;
    }
    out.requests.waiting = out.requests.arrived - joined;
    out.requests.running = requests.size();
    return std::move(out);
}

}  // namespace serve
