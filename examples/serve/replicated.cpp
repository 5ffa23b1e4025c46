// SPDX-License-Identifier: MIT
#include "replicated.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <queue>
#include <span>
#include <utility>

#include <sureleap/core/error.hpp>

#include "agreeing_group.hpp"
#include "keyed.hpp"

namespace serve {
namespace {

constexpr double never = std::numeric_limits<double>::infinity();

/// One for each group, if its replicas agree.
using agreeing_groups = std::vector<std::unique_ptr<agreeing_group>>;

[[nodiscard]] agreeing_groups agreeing(policy const& how, replicated_settings const& settings) {
    agreeing_groups all;
    for (std::size_t r = 0; how.agrees && r < settings.replicas; r += settings.in_step) {
        all.push_back(std::make_unique<agreeing_group>(settings.in_step, settings.places));
    }
    return all;
}

[[nodiscard]] std::vector<std::unique_ptr<any_decoder>> decoders(policy const& how, scenario where,
                                                                 replicated_settings const& settings,
                                                                 agreeing_groups const& agreeing) {
    std::vector<std::unique_ptr<any_decoder>> all;
    for (std::size_t r = 0; r < settings.replicas; ++r) {
        if (how.agrees) where.agrees = &agreeing[r / settings.in_step]->of(r % settings.in_step);
        all.push_back(how.make(where, settings.places));
    }
    return all;
}

class replicated_run {
public:
    replicated_run(policy const& how, scenario const& where, open_workload const& load,
                   replicated_settings const& settings)
        : how_(how),
          arrivals_(load.arrivals),
          settings_(settings),
          agreeing_(agreeing(how, settings)),
          queue_(decoders(how, where, settings, agreeing_), settings.how),
          groups_(settings.replicas / settings.in_step),
          times_(arrivals_.size()),
          first_(static_cast<std::size_t>(settings.warm_up * static_cast<double>(arrivals_.size()))),
          last_(arrivals_.size() - 1 -
                static_cast<std::size_t>(settings.cool_down * static_cast<double>(arrivals_.size()))),
          begin_(arrivals_.at(first_).seconds),
          end_(arrivals_.at(last_).seconds) {
        out_.seconds = end_ - begin_;
        out_.ends.resize(arrivals_.size());
    }

    [[nodiscard]] replicated_outcome operator()(progress_observer const& progress) {
        std::size_t arrived = 0;
        std::size_t died = 0;
        while (arrived < arrivals_.size() || queue_.open() > 0) {
            double const round = ends_.empty() ? never : ends_.top().seconds;
            double const death = died < settings_.deaths.size() ? settings_.deaths[died].seconds : never;
            double const arrival = arrived < arrivals_.size() ? arrivals_[arrived].seconds : never;
            if (arrival <= std::min(round, death)) {
                submit(arrived++);
                if (progress) progress(static_cast<double>(arrived) / static_cast<double>(arrivals_.size()));
            } else if (round <= death) {
                std::size_t const ended = ends_.top().group;
                ends_.pop();
                turn(ended, round);
            } else {
                lose(settings_.deaths[died++]);
            }
        }
        out_.busiest /= samples_;
        return std::move(out_);
    }

private:
    /// Replicas that step together; a replica of its own, mostly.
    struct group {
        bool decodes = false;
        double begun = 0;  // its last round
    };
    struct round_end {
        double seconds;
        std::size_t group;
        [[nodiscard]] bool operator>(round_end const& other) const noexcept {
            return std::pair(seconds, group) > std::pair(other.seconds, other.group);
        }
    };
    struct request_times {
        double taken_in = 0;
        double first = 0;
        std::uint64_t tokens = 0;
    };

    /// The group's round is over, and the next one begins if there is anything to decode.
    void turn(std::size_t g, double now) {
        group& together = groups_[g];
        std::size_t const first = g * settings_.in_step;
        std::size_t const last = first + settings_.in_step;
        for (std::size_t r = first; r < last; ++r) {
            if (!queue_.lives(r)) continue;
            if (queue_.in_round(r) && now > begin_ && now <= end_) out_.sums.add(queue_.decoder(r).round());
            queue_.settle(
                r, [&](std::uint64_t n, sureleap::request_event const& event) { note(n, event, together.begun, now); });
            queue_.decoder(r).wait_until(now);
        }
        step(g);
        together = {false, now};
        double end = now;
        for (std::size_t r = first; r < last; ++r) {
            if (!queue_.in_round(r)) continue;
            together.decodes = true;
            end = std::max(end, queue_.decoder(r).now());
        }
        if (together.decodes) ends_.push({end, g});
    }
    void step(std::size_t g) {
        std::size_t const first = g * settings_.in_step;
        if (agreeing_.empty()) {
            for (std::size_t r = first; r < first + settings_.in_step; ++r) {
                if (queue_.lives(r)) queue_.step(r);
            }
            return;
        }
        agreeing_[g]->each([&](std::size_t i) {
            if (!queue_.step(first + i)) agreeing_[g]->stand_by(i);
        });
    }
    void wake(std::size_t replica, double now) {
        std::size_t const g = replica / settings_.in_step;
        if (!std::exchange(groups_[g].decodes, true)) ends_.push({now, g});
    }

    void submit(std::size_t n) {
        arrival const& what = arrivals_[n];
        if (prompt_.size() < what.context) prompt_.resize(what.context, 0);
        wake(queue_.submit(std::span(prompt_).first(what.context),
                           {.seed = n, .max_new_tokens = what.tokens, .max_draft_tokens = how_.max_draft_tokens}),
             what.seconds);
        if (is_measured(n) && n % (arrivals_.size() / 1000 + 1) == 0) sample();
    }
    void lose(death const& what) {
        if (queue_.in_round(what.replica)) out_.rounds_lost += queue_.decoder(what.replica).events().size();
        queue_.lose(what.replica,
                    [&](std::uint64_t n, std::span<sureleap::token_id const> tokens, std::size_t replica) {
                        out_.returned.push_back(n);
                        out_.read_again += tokens.size();
                        wake(replica, what.seconds);
                    });
    }

    [[nodiscard]] bool is_measured(std::size_t n) const noexcept { return n >= first_ && n <= last_; }
    void note(std::uint64_t n, sureleap::request_event const& event, double begun, double now) {
        request_times& times = times_[n];
        if (times.tokens == 0) {
            times.taken_in = begun;
            times.first = now;
        }
        times.tokens += event.tokens.size();
        double const inside = std::max(0.0, std::min(now, end_) - std::max(begun, begin_));
        out_.tokens += static_cast<double>(event.tokens.size()) * inside / (now - begun);
        if (event.finished == sureleap::finish_reason::none) return;
        out_.ends[n] = now;
        if (!is_measured(n)) return;
        double const arrived = arrivals_[n].seconds;
        double const since = times.first < now ? times.first : times.taken_in;
        out_.served.push_back({times.taken_in - arrived, times.first - arrived, now - since, times.tokens});
    }
    void sample() {
        std::size_t most = 0;
        std::size_t sum = 0;
        std::size_t living = 0;
        for (std::size_t r = 0; r < queue_.size(); ++r) {
            most = std::max(most, queue_.requests_at(r));
            sum += queue_.requests_at(r);
            living += queue_.lives(r) ? 1u : 0u;
        }
        out_.busiest += static_cast<double>(most * living) / static_cast<double>(sum);
        samples_ += 1;
    }

    policy const& how_;
    std::vector<arrival> const& arrivals_;
    replicated_settings const& settings_;
    agreeing_groups agreeing_;
    replica_queue queue_;
    std::vector<group> groups_;
    std::priority_queue<round_end, std::vector<round_end>, std::greater<>> ends_;
    std::vector<request_times> times_;  // [arrivals]
    std::size_t first_;                 // that is measured
    std::size_t last_;                  // the same
    double begin_;
    double end_;
    std::vector<sureleap::token_id> prompt_;
    double samples_ = 0;
    replicated_outcome out_;
};

}  // namespace

std::vector<death> spread_deaths(std::size_t count, std::size_t replicas, double seconds, std::uint64_t seed) {
    if (count > 0 && count >= replicas) {
        sureleap::fail_with("deaths: ", count, " of ", replicas, " replicas die, expected fewer than there are");
    }
    std::vector<std::size_t> order(replicas);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::vector<death> all;
    for (std::size_t i = 0; i < count; ++i) {
        std::swap(order[i], order[i + mixed(seed, i) % (replicas - i)]);
        all.push_back({seconds * static_cast<double>(i + 1) / static_cast<double>(count + 1), order[i]});
    }
    return all;
}

replicated_outcome run_replicated(policy const& how, scenario const& where, open_workload const& load,
                                  replicated_settings const& settings, progress_observer const& progress) {
    if (load.arrivals.empty()) sureleap::fail_with("replicas: there are 0 arrivals, expected at least 1");
    if (!(settings.warm_up >= 0 && settings.cool_down >= 0 && settings.warm_up + settings.cool_down < 1)) {
        sureleap::fail_with("replicas: the warm-up is ", settings.warm_up, " and the cool-down ", settings.cool_down,
                            " of the arrivals, expected shares that leave something");
    }
    if (settings.in_step == 0 || settings.replicas % settings.in_step != 0) {
        sureleap::fail_with("replicas: ", settings.in_step, " of ", settings.replicas,
                            " go in step, expected a divisor that is not 0");
    }
    if (how.agrees && !settings.deaths.empty()) {
        sureleap::fail_with("replicas: ", settings.deaths.size(),
                            " of those that agree die, expected none: agreements ", "end with a rank that is lost");
    }
    return replicated_run(how, where, load, settings)(progress);
}

}  // namespace serve
