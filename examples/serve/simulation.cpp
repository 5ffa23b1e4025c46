// SPDX-License-Identifier: MIT
#include "simulation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include <sureleap/core/error.hpp>

#include "keyed.hpp"

namespace serve {
namespace {

[[nodiscard]] double uniform(std::uint64_t key, std::uint64_t index) noexcept {
    return static_cast<double>(mixed(key, index) >> 11) * 0x1p-53;
}

/// Requests in the decoder, and the books about them.
class open_requests {
public:
    open_requests(policy const& how, scenario const& where, run_settings const& settings, std::size_t places)
        : how_(how), where_(where), settings_(settings), decoder_(how.make(where, places)) {
        out_.policy = how.name;
        out_.lossless = how.lossless;
        out_.confidences = reliability(where.texts.block_size());
    }

    /// Neither finished nor paused.
    [[nodiscard]] std::size_t active() const noexcept { return open_.size() - paused_.size(); }
    [[nodiscard]] double now() const { return decoder_->now(); }
    void wait_until(double moment) { decoder_->wait_until(moment); }
    /// From here on rounds count, and requests that come.
    void measure() noexcept { measuring_ = true; }

    void submit(std::uint64_t text, arrival const& what) {
        if (prompt_.size() < what.context) prompt_.resize(what.context, 0);
        auto const id =
            decoder_->submit(std::span(prompt_).first(what.context),
                             {.seed = text, .max_new_tokens = what.tokens, .max_draft_tokens = how_.max_draft_tokens});
        open_.emplace(id, request{.arrived = what.seconds, .counts = measuring_});
        order_.push_back(id);
        ++out_.requests.arrived;
    }
    /// The one that came last of those that run.
    void pause_one() {
        while (!open_.contains(order_.back())) order_.pop_back();
        decoder_->pause(order_.back());
        paused_.push_back(order_.back());
        order_.pop_back();
    }
    /// False if none is paused.
    bool resume_one() {
        if (paused_.empty()) return false;
        decoder_->resume(paused_.back());
        order_.push_back(paused_.back());
        paused_.pop_back();
        return true;
    }

    void step() {
        double const begin = now();
        if (!decoder_->step()) sureleap::fail_with("simulation: requests are open and none of them runs");
        auto const& record = decoder_->round();
        if (measuring_) {
            out_.sums.add(record);
            out_.confidences.add(record);
        }
        if (settings_.window > 0) {
            if (out_.windows.empty() || out_.windows.back().rounds == settings_.window) {
                out_.windows.emplace_back();
                out_.window_confidences.emplace_back(where_.texts.block_size());
                out_.window_texts.push_back(out_.requests.arrived);
            }
            out_.windows.back().add(record);
            out_.window_confidences.back().add(record);
        }
        for (sureleap::request_event const& event : decoder_->events()) settle(event, begin);
        for (sureleap::request_id const id : failed_) decoder_->cancel(id);  // events are views until then
        failed_.clear();
    }

    [[nodiscard]] outcome finish() {
        out_.requests.placed = decoder_->placed();
        out_.requests.waiting = decoder_->waiting();
        return std::move(out_);
    }

private:
    struct request {
        double arrived = 0;
        double taken_in = 0;
        double first = 0;
        std::uint64_t tokens = 0;
        bool counts = false;
    };

    void settle(sureleap::request_event const& event, double begin) {
        auto const at = open_.find(event.request);
        request& r = at->second;
        if (r.tokens == 0) {
            r.taken_in = begin;
            r.first = now();
        }
        r.tokens += event.tokens.size();
        if (event.outcome != sureleap::status::ok) {
            ++out_.requests.failed;
            failed_.push_back(event.request);
        } else if (event.finished != sureleap::finish_reason::none) {
            ++out_.requests.finished;
            double const since = r.first < now() ? r.first : r.taken_in;
            if (r.counts) out_.served.push_back({r.taken_in - r.arrived, r.first - r.arrived, now() - since, r.tokens});
        } else {
            return;
        }
        open_.erase(at);
    }

    policy const& how_;
    scenario const& where_;
    run_settings const& settings_;
    std::unique_ptr<any_decoder> decoder_;
    std::unordered_map<sureleap::request_id, request> open_;
    std::vector<sureleap::request_id> order_;   // by arrival, some of them finished
    std::vector<sureleap::request_id> paused_;  // the last one goes on first
    std::vector<sureleap::request_id> failed_;
    std::vector<sureleap::token_id> prompt_;
    bool measuring_ = false;
    outcome out_;
};

/// Phases of low and high concurrency in turn.
class phases {
public:
    explicit phases(closed_workload const& load) : load_(load), end_(length()) {}
    [[nodiscard]] std::size_t concurrency_at(double now) {
        if (!(load_.period > 0)) return load_.concurrency;
        while (now >= end_) {
            ++index_;
            end_ += length();
        }
        return index_ % 2 == 0 ? load_.concurrency : load_.most();
    }

private:
    [[nodiscard]] double length() const { return 0.5 * load_.period * (0.5 + uniform(0x9a5e, index_)); }

    closed_workload const& load_;
    std::uint64_t index_ = 0;
    double end_;
};

}  // namespace

outcome run(policy const& how, scenario const& where, closed_workload const& load, run_settings const& settings,
            progress_observer const& progress) {
    open_requests requests(how, where, settings, settings.places > 0 ? settings.places : load.most());
    phases wanted_at(load);
    auto const rounds = static_cast<double>(settings.request_rounds);
    double const end = settings.seconds ? *settings.seconds : (1 + settings.warm_up) * rounds;
    double const begin = settings.warm_up * (settings.seconds ? *settings.seconds : rounds);
    std::uint64_t text = 0;
    for (double done = 0; done < end;) {
        if (done >= begin) requests.measure();
        std::size_t const wanted = wanted_at.concurrency_at(requests.now());
        while (requests.active() > wanted) requests.pause_one();
        while (requests.active() < wanted) {
            if (requests.resume_one()) continue;
            double const length = static_cast<double>(load.tokens) * (0.5 + where.texts.evenness(text));
            // The first ones are found in the middle of their texts, or all would finish together.
            double const left = text < load.concurrency ? uniform(0x1ef7, text) : 1.0;
            auto const tokens = static_cast<std::size_t>(std::max(1.0, std::ceil(length * left)));
            requests.submit(text++, {requests.now(), load.context, tokens});
        }
        requests.step();
        done = settings.seconds ? requests.now() : done + static_cast<double>(wanted);
        if (progress) progress(done / end);
    }
    return requests.finish();
}

outcome run(policy const& how, scenario const& where, open_workload const& load, run_settings const& settings,
            progress_observer const& progress) {
    open_requests requests(how, where, settings, settings.places > 0 ? settings.places : 256);
    requests.measure();
    std::size_t next = 0;
    while (next < load.arrivals.size() || requests.active() > 0) {
        if (settings.seconds && requests.now() >= *settings.seconds) break;
        if (requests.active() == 0) requests.wait_until(load.arrivals[next].seconds);
        for (; next < load.arrivals.size() && load.arrivals[next].seconds <= requests.now(); ++next) {
            requests.submit(next, load.arrivals[next]);
        }
        requests.step();
        if (progress) progress(static_cast<double>(next) / static_cast<double>(load.arrivals.size()));
    }
    return requests.finish();
}

}  // namespace serve
