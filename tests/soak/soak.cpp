// SPDX-License-Identifier: MIT
//
// A decoder under random traffic for a long time. Requests with settings of all kinds are submitted, paused, resumed
// and cancelled at any round, and their drafts are limited. Texts end at tokens and where two tokens meet, some are
// constrained. Models and hooks throw, and rows hold NaN. Rounds run on several threads, while another thread reads the
// metrics. Schedules and calibrations change their answers after every round, or are the library's own. It runs as many
// request rounds as asked:
//
//     soak --rounds 1000000 --seed 1
//
// Meant for the address and thread sanitizers, which see errors that leave no trace in the output. What is checked
// besides:
//   - no request is lost: whatever was submitted has finished, was cancelled, or is still there, and all finish in the end;
//   - a failure changes nothing: tokens are as they were, and the target's state by slot fits the next round;
//   - nothing is accepted that is not emitted, and nothing asked behind the end of a text;
//   - under pathwise rules, tokens and their log-probabilities are those of the request running alone: all of them when
//     it has finished, a prefix when it was cancelled.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sureleap/confidence/head.hpp>
#include <sureleap/cost/views.hpp>
#include <sureleap/decoder.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/schedule/greedy.hpp>
#include <sureleap/schedule/hysteresis.hpp>
#include <sureleap/schedule/planned.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/schedule/top_k.hpp>
#include <sureleap/serving/metrics.hpp>
#include <sureleap/serving/metrics_text.hpp>
#include <sureleap/serving/never_lose.hpp>
#include <sureleap/serving/online_calibration.hpp>
#include <sureleap/serving/refined_cost.hpp>
#include <sureleap/serving/speed_targets.hpp>
#include <sureleap/verify/block.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/rejection.hpp>
#include <sureleap/verify/traversal.hpp>

#include "soak/models.hpp"
#include "soak/pool.hpp"
#include "support/adaptive.hpp"
#include "support/dice.hpp"

using namespace soak;

namespace {

// ---- requests --------------------------------------------------------------------------------------------------

constexpr std::size_t max_requests = 6;
constexpr std::size_t max_waiting = 5;
token_id const stops[] = {5, 7};

struct job {
    std::vector<token_id> prompt;
    request_settings settings;
};

job random_job(support::dice& roll) {
    job j;
    j.prompt.resize(1 + roll.below(4));
    for (token_id& x : j.prompt) x = static_cast<token_id>(roll.below(vocabulary));
    request_settings& s = j.settings;
    s.temperature = roll.chance(0.2) ? 0.0 : roll.between(0.3, 1.5);
    if (roll.chance(0.2)) s.top_k = static_cast<int>(1 + roll.below(vocabulary));
    if (roll.chance(0.2)) s.top_p = roll.between(0.5, 1.0);
    if (roll.chance(0.2)) s.min_p = roll.between(0.0, 0.2);
    if (roll.chance(0.2)) s.draft = transform{.temperature = roll.between(0.3, 1.5)};
    s.seed = roll.bits();
    s.max_new_tokens = 1 + roll.below(40);
    if (roll.chance(0.3)) s.stop_tokens = std::span(stops).first(1 + roll.below(2));
    if (roll.chance(0.3)) s.text_end = ends_text;
    if (roll.chance(0.3)) s.constraint = allowed_tokens;
    if (roll.chance(0.2)) s.min_new_tokens = roll.below(s.max_new_tokens + 1);
    if (roll.chance(0.3)) s.max_draft_tokens = roll.below(block_size + 1);
    s.log_probabilities = roll.chance(0.3);
    if (roll.chance(0.5)) s.priority = roll.between(0.01, 100.0);
    if (roll.chance(0.3)) s.tokens_per_second = roll.between(0.1, 3.0);
    s.tenant = static_cast<std::uint32_t>(roll.below(12));
    return j;
}

struct stream {
    std::vector<token_id> tokens;
    std::vector<double> log_probabilities;

    void append(request_event const& e) {
        tokens.insert(tokens.end(), e.tokens.begin(), e.tokens.end());
        log_probabilities.insert(log_probabilities.end(), e.log_probabilities.begin(), e.log_probabilities.end());
    }
    [[nodiscard]] bool begins(stream const& whole) const {
        auto const prefix = [](auto const& a, auto const& b) {
            return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
        };
        return prefix(tokens, whole.tokens) && prefix(log_probabilities, whole.log_probabilities);
    }
};

// ---- one engine ------------------------------------------------------------------------------------------------

struct totals {
    std::size_t request_rounds = 0, submitted = 0, finished = 0, cancelled = 0, turned_away = 0;
    std::size_t thrown = 0, poisoned = 0, failed = 0, went_on = 0, tokens = 0;
};

/// Reads the metrics all the time, as an exporter would.
class watcher {
public:
    explicit watcher(serving_metrics const& metrics) : thread_([this, &metrics] { watch(metrics); }) {}
    ~watcher() {
        stop_ = true;
        thread_.join();
    }

private:
    void watch(serving_metrics const& metrics) const {
        serving_counts now;
        std::uint64_t last = 0;
        while (!stop_) {
            metrics.read(now);
            demand(now.rounds >= last && now.verified <= now.drafted && now.accepted <= now.verified &&
                       now.batch_tokens.count() == now.rounds,
                   "metrics were torn");
            last = now.rounds;
            demand(!metrics_text(now).empty(), "nothing was exported");
            std::this_thread::sleep_for(std::chrono::microseconds(200));
        }
    }
    std::atomic<bool> stop_{false};
    std::thread thread_;
};

/// Parts that change their minds after every round.
struct wild_parts {
    explicit wild_parts(std::uint64_t seed) : calibration(seed), seed_(seed) {}

    [[nodiscard]] adaptive::whole_step_cost cost() const { return model; }
    template <class Schedule>
    [[nodiscard]] auto around(Schedule schedule) const {
        std::uint64_t const life = seed_ % 4;
        return adaptive::free_schedule{
            std::move(schedule),
            {.limits = life % 3 != 0, .floors = life % 2 == 1, .weights = life >= 2, .seed = seed_}};
    }
    void observe(round_record const& round) { calibration.observe(round); }

    adaptive::whole_step_cost model{.pair = 0.1};
    adaptive::free_calibration calibration;

private:
    std::uint64_t seed_;
};

/// The library's own.
struct own_parts {
    explicit own_parts(std::uint64_t seed)
        : calibration(block_size,
                      {.maps = {.terms = online_terms::history}, .max_requests = max_requests, .tenants = 8}),
          past(seed) {}

    [[nodiscard]] auto cost() const { return cost_ref{refined}; }
    template <class Schedule>
    [[nodiscard]] auto around(Schedule schedule) const {
        return never_lose{speed_targets{std::move(schedule), cost()}, cost()};
    }
    void observe(round_record const& round) {
        calibration.observe(round);
        past.observe(round);
        double const factor = past.choice(std::array{0.7, 1.0, 1.3, -1.0}, 6);  // -1: the clock was set back
        refined.observe(round.load, factor * refined.model().step_seconds(round.load));
    }

    refined_cost<adaptive::whole_step_cost> refined{adaptive::whole_step_cost{.pair = 0.1}};
    online_calibration calibration;
    adaptive::past_rounds past;
};

template <class Parts, class MakeDrafter, class MakeSchedule, class Rule>
class traffic {
    static constexpr bool pathwise = Rule::guarantee == fidelity::pathwise;

public:
    traffic(std::uint64_t seed, MakeDrafter const& make, MakeSchedule const& schedule, Rule const& rule, pool& threads)
        : roll_(seed),
          faults_{support::dice{seed + 1}},
          make_(make),
          rule_(rule),
          parts_(seed),
          metrics_(block_size),
          target_(&faults_),
          engine_(target_, make(&faults_), parts_.around(schedule(parts_.cost())), rule,
                  decoder_options{.max_requests = max_requests,
                                  .max_waiting = max_waiting,
                                  .max_tokens = 180,
                                  .seed = seed,
                                  .executor = threads,
                                  .calibration = parts_.calibration,
                                  .constrained = true,
                                  .drafter_retries = seed % 2 == 0 ? std::size_t{3} : std::size_t{0}},
                  faulty_hook{&faults_}) {}

    /// Leaves requests behind, whose memory the engine's destructor must find.
    totals run(std::size_t request_rounds) {
        watcher const reader{metrics_};
        std::size_t idle = 0;
        while (done_.request_rounds < request_rounds) {
            if (--phase_left_ == 0) {
                phase_left_ = 20 + roll_.below(200);
                arrivals_ = 0.3 * static_cast<double>(roll_.below(4));
            }
            for (double p = arrivals_; p > 0.0; p -= 1.0) {
                if (roll_.chance(p)) submit();
            }
            disturb();
            std::size_t const before = done_.request_rounds;
            step();
            idle = done_.request_rounds == before ? idle + 1 : 0;
            demand(idle < 10000, "the engine has stopped");
        }
        check_counts();
        return done_;
    }
    /// Lets everybody finish.
    totals drain() {
        faults_.often = 0.0;
        for (auto const& [id, c] : clients_) engine_.limit_drafts(id, block_size);
        std::size_t turns = 0;
        while (!clients_.empty()) {
            for (auto const& [id, c] : clients_) engine_.resume(id);
            step();
            demand(++turns < 10000, "somebody never finishes");
        }
        check_counts();
        request_counts const c = engine_.counts();
        demand(c.waiting == 0 && c.placed == 0, "somebody is left after everybody has finished");
        return done_;
    }

private:
    struct client {
        job request;
        stream said;
    };

    void submit() {
        job j = random_job(roll_);
        request_counts const n = engine_.counts();
        demand(engine_.full() == (n.waiting >= max_waiting + max_requests - n.placed), "a queue is full, or is not");
        if (engine_.full()) {
            demand(refuses([&] { engine_.submit(j.prompt, j.settings); }), "a full queue took a request");
            ++done_.turned_away;
            return;
        }
        request_id const id = engine_.submit(j.prompt, j.settings);
        ++done_.submitted;
        clients_[id] = {std::move(j), {}};
    }
    [[nodiscard]] request_id anybody() {
        auto at = clients_.begin();
        std::advance(at, static_cast<std::ptrdiff_t>(roll_.below(clients_.size())));
        return at->first;
    }
    void disturb() {
        if (clients_.empty()) return;
        if (roll_.chance(0.1)) engine_.pause(anybody());
        if (roll_.chance(0.1)) engine_.limit_drafts(anybody(), roll_.below(block_size + 1));
        for (auto const& [id, c] : clients_) {
            if (roll_.chance(0.2)) engine_.resume(id);  // paused, or stopped by a failure; nothing to the others
        }
        if (roll_.chance(0.03)) {
            request_id const id = anybody();
            engine_.cancel(id);
            ++done_.cancelled;
            compare(clients_.at(id), false);
            clients_.erase(id);
            demand(refuses([&] { engine_.pause(id); }), "a cancelled request is still known");
        }
        if (roll_.chance(0.01)) demand(refuses([&] { (void)engine_.submit({}, {}); }), "an empty prompt was taken");
    }
    template <class Do>
    [[nodiscard]] static bool refuses(Do const& action) {
        try {
            action();
        } catch (error const&) {
            return true;
        }
        return false;
    }

    void step() {
        try {
            if (!engine_.step()) return;
        } catch (injected_failure const&) {
            demand(engine_.events().empty(), "a step that failed has events");
            for (auto const& [id, c] : clients_) {
                demand(engine_.generated(id).size() == c.said.tokens.size(), "a step that failed has emitted");
            }
            return;
        }
        round_record const& round = engine_.round();
        metrics_.observe(round, parts_.cost());
        parts_.observe(round);
        done_.request_rounds += round.size();
        for (verdict const& v : round.verdicts) {
            demand(v.accepted <= v.emitted.size() && v.accepted <= v.verified && v.verified <= v.drafted,
                   "more was accepted than was emitted");
            demand((v.outcome == status::ok) == !v.emitted.empty(), "a round that was judged has emitted nothing");
            if (v.draft_outcome == status::drafter_failed) ++done_.went_on;
        }
        for (request_event const& e : engine_.events()) {
            if (e.outcome != status::ok) ++done_.failed;
            client& c = clients_.at(e.request);
            c.said.append(e);
            done_.tokens += e.tokens.size();
            if (e.finished == finish_reason::none) continue;
            ++done_.finished;
            auto const kept = engine_.generated(e.request);
            demand(std::equal(kept.begin(), kept.end(), c.said.tokens.begin(), c.said.tokens.end()),
                   "events are not what was generated");
            compare(c, true);
            clients_.erase(e.request);
        }
        if (++steps_ % 64 == 0) check_counts();
    }

    void check_counts() {
        request_counts const n = engine_.counts();
        demand(n.submitted == done_.submitted && n.finished == done_.finished && n.cancelled == done_.cancelled,
               "counts are not what happened");
        demand(n.waiting + n.placed == clients_.size(), "a request was lost");
        for (auto const& [id, c] : clients_) demand(engine_.knows(id), "a request is not known any more");
        done_.thrown = faults_.thrown;
        done_.poisoned = faults_.poisoned;
    }

    /// With what the request says alone, with models in order and another schedule.
    void compare(client const& c, bool whole) const {
        demand(!c.request.settings.log_probabilities || c.said.log_probabilities.size() == c.said.tokens.size(),
               "log-probabilities are missing");
        if constexpr (pathwise) {
            cached_target target;
            decoder alone{target,       make_(nullptr), fixed_schedule{2}, rule_, decoder_options{.constrained = true},
                          faulty_hook{}};
            (void)alone.submit(c.request.prompt, c.request.settings);
            stream expected;
            while (alone.step()) expected.append(alone.events()[0]);
            demand(c.said.begins(expected), "a stream is not the request's own");
            demand(!whole || c.said.tokens.size() == expected.tokens.size(), "a stream ended early");
        } else {
            demand(!whole || c.said.tokens.size() <= c.request.settings.max_new_tokens, "a stream is too long");
        }
    }

    support::dice roll_;
    faults faults_;
    MakeDrafter make_;
    Rule rule_;
    Parts parts_;
    serving_metrics metrics_;
    cached_target target_;
    decoder<cached_target&, std::invoke_result_t<MakeDrafter const&, faults*>,
            decltype(std::declval<Parts>().around(std::declval<MakeSchedule const&>()(std::declval<Parts>().cost()))),
            Rule, faulty_hook>
        engine_;
    std::map<request_id, client> clients_;
    totals done_;
    double arrivals_ = 0.5;
    std::size_t phase_left_ = 100;
    std::size_t steps_ = 0;
};

/// Engines one after the other, each for a part of the rounds; every second one is given up with requests in it. How
/// many rounds went on without a drafter that threw.
template <class Parts, class MakeDrafter, class MakeSchedule, class Rule>
std::size_t leave_on(char const* name, std::size_t rounds, std::uint64_t seed, MakeDrafter const& make,
                     MakeSchedule const& schedule, Rule const& rule, pool& threads) {
    auto const start = std::chrono::steady_clock::now();
    totals sum;
    std::size_t const lives = 4;
    for (std::size_t life = 0; life < lives; ++life) {
        traffic<Parts, MakeDrafter, MakeSchedule, Rule> engine{seed + life, make, schedule, rule, threads};
        totals done = engine.run(rounds / lives + 1);
        if (life % 2 == 0) done = engine.drain();
        sum.request_rounds += done.request_rounds;
        sum.submitted += done.submitted;
        sum.finished += done.finished;
        sum.cancelled += done.cancelled;
        sum.turned_away += done.turned_away;
        sum.thrown += done.thrown;
        sum.poisoned += done.poisoned;
        sum.failed += done.failed;
        sum.went_on += done.went_on;
        sum.tokens += done.tokens;
    }
    double const seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    demand(sum.finished > 0 && sum.cancelled > 0 && sum.thrown > 0 && sum.failed > 0, "nothing happened");
    std::printf("%-44s %9zu %9zu %9zu %9zu %9zu %9zu %9zu %9zu %9zu %8.1f\n", name, sum.request_rounds, sum.tokens,
                sum.submitted, sum.finished, sum.cancelled, sum.thrown, sum.poisoned, sum.failed, sum.went_on, seconds);
    return sum.went_on;
}

std::uint64_t number_after(int argc, char** argv, char const* flag, std::uint64_t otherwise) {
    for (int i = 1; i + 1 < argc; ++i) {
        if (std::strcmp(argv[i], flag) == 0) return std::strtoull(argv[i + 1], nullptr, 10);
    }
    return otherwise;
}

}  // namespace

int main(int argc, char** argv) {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);
    std::size_t const rounds = number_after(argc, argv, "--rounds", 20000);
    std::uint64_t const seed = number_after(argc, argv, "--seed", 1);
    std::printf("soak: %zu request rounds, seed %llu\n", rounds, static_cast<unsigned long long>(seed));
    std::printf("%-44s %9s %9s %9s %9s %9s %9s %9s %9s %9s %8s\n", "engine", "rounds", "tokens", "submitted",
                "finished", "cancelled", "thrown", "poisoned", "failed", "undrafted", "seconds");
    pool threads{4};

    support::dice weights{99};
    auto const w1 = support::random_values<float>(weights, vocabulary * 2);
    auto const w2 = support::random_values<float>(weights, vocabulary * 2);
    float const c[] = {2.0f, -2.0f};
    auto const semi = [&](faults* f) {
        return semi_autoregressive{
            faulty_backbone{f},
            markov_head{matrix_view<float>{w1.data(), vocabulary, 2}, matrix_view<float>{w2.data(), vocabulary, 2}},
            confidence_head{matrix_view<float>{c, 1, 2}, 1.0f},
            drafter_options{.block_size = block_size, .vocabulary = vocabulary, .hidden_size = 2}};
    };
    auto const ordinary = [](faults* f) {
        return autoregressive{faulty_draft{f}, top1_confidence{},
                              drafter_options{.block_size = block_size, .vocabulary = vocabulary}};
    };
    auto const tree = [&](faults* f) {
        return tree_drafter<decltype(semi(f))>{semi(f), {.nodes = block_size, .children = 2}};
    };
    auto const planned = [](auto cost) { return planned_schedule{cost}; };
    auto const steady = [](auto cost) { return hysteresis{planned_schedule{cost}}; };
    auto const greedy = [](auto cost) { return greedy_schedule{cost}; };
    auto const lagged = [](auto cost) { return top_k_schedule{cost}; };

    std::size_t const share = rounds / 10;
    std::size_t went_on = 0;
    went_on += leave_on<wild_parts>("coupling, planned, semi-autoregressive, wild", share, 1000 * seed, semi, planned,
                                    keyed_coupling{}, threads);
    went_on += leave_on<own_parts>("coupling, planned, semi-autoregressive, own", share, 1000 * seed + 100, semi,
                                   steady, keyed_coupling{}, threads);
    went_on += leave_on<wild_parts>("coupling, top-K, autoregressive, wild", share, 1000 * seed + 200, ordinary, lagged,
                                    keyed_coupling{}, threads);
    went_on += leave_on<own_parts>("coupling, Algorithm 1, autoregressive, own", share, 1000 * seed + 300, ordinary,
                                   greedy, keyed_coupling{}, threads);
    went_on += leave_on<wild_parts>("match, Algorithm 1, autoregressive, wild", share, 1000 * seed + 400, ordinary,
                                    greedy, target_match<>{}, threads);
    went_on += leave_on<own_parts>("match, top-K, semi-autoregressive, own", share, 1000 * seed + 500, semi, lagged,
                                   target_match<>{}, threads);
    went_on += leave_on<wild_parts>("block, planned, semi-autoregressive, wild", share, 1000 * seed + 600, semi,
                                    planned, block_verification<>{}, threads);
    went_on += leave_on<own_parts>("rejection, planned, semi-autoregressive, own", share, 1000 * seed + 700, semi,
                                   steady, token_rejection<>{}, threads);
    went_on += leave_on<wild_parts>("trees, coupling, Algorithm 1, wild", share, 1000 * seed + 800, tree, greedy,
                                    keyed_coupling{}, threads);
    went_on += leave_on<own_parts>("trees, traversal, planned, own", share, 1000 * seed + 900, tree, steady,
                                   traversal_verification<>{}, threads);
    demand(went_on > 0, "no round went on without its drafter");  // seldom, of one engine
    return 0;
}
