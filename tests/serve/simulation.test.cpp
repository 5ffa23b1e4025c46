// SPDX-License-Identifier: MIT
//
// The simulator does what it says: drafts are accepted with the probability that the text says, whoever schedules; time
// is the sum of its steps; nobody is lost.
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <serve/arrivals.hpp>
#include <serve/policies.hpp>
#include <serve/simulated_models.hpp>
#include <serve/simulation.hpp>
#include <sureleap/sureleap.hpp>
#include <sureleap/testing/enumerator.hpp>

#include "support/catch.hpp"
#include "support/error_text.hpp"

namespace {

using namespace serve;

std::vector<double> const chat{0.735, 0.738, 0.741, 0.745, 0.758, 0.766, 0.760};

domain_settings domain_of(std::vector<double> const& acceptance, double request_sd = 0.5, double token_sd = 1.2) {
    domain_settings d;
    d.request_sd = request_sd;
    d.token_sd = token_sd;
    d.centre = centre_of(acceptance, request_sd, token_sd);
    return d;
}

/// A text of three positions with given acceptances, whatever the anchor.
class given_text final : public text_source {
public:
    explicit given_text(std::vector<double> acceptance) : acceptance_(std::move(acceptance)) {}
    void look(std::uint64_t, std::uint64_t, std::span<position_facts> out) const noexcept override {
        for (std::size_t k = 0; k < out.size(); ++k) {
            double const c = acceptance_[std::min(k, acceptance_.size() - 1)];
            out[k] = {std::log(c / (1 - c)), c, c, 0.7 - 0.4 * static_cast<double>(k)};
        }
    }
    double evenness(std::uint64_t) const noexcept override { return 0; }
    std::size_t block_size() const noexcept override { return acceptance_.size(); }

private:
    std::vector<double> acceptance_;
};

}  // namespace

TEST_CASE("A draft is accepted with exactly the probability that the text says, under both rules") {
    std::vector<double> const c{0.8, 0.35, 0.9};
    given_text const texts(c);
    cost_world const truth = made_up_world();
    auto const law_under = [&](auto rule) {
        using rule_type = decltype(rule);
        std::array<double, 4> accepted{};
        sureleap::enumerator walk{sureleap::enumerator::noise::keyed};
        walk.for_each_path([&] {
            simulated_target target(texts, truth, 1);
            simulated_drafter drafter(texts, 1);
            auto source = walk.handle();
            sureleap::decoder<simulated_target&, simulated_drafter&, sureleap::fixed_schedule, rule_type,
                              sureleap::no_logits_hook, decltype(source)>
                decoder(target, drafter, sureleap::fixed_schedule{}, rule, {.max_requests = 1, .seed = 1}, {}, source);
            sureleap::token_id const prompt[] = {0};
            decoder.submit(prompt, {.seed = 5, .max_new_tokens = 50});
            decoder.step();
            std::size_t const kept = decoder.round().verdicts[0].accepted;
            accepted[kept] += walk.weight();
        });
        return accepted;
    };
    std::array<double, 4> const expected{1 - c[0], c[0] * (1 - c[1]), c[0] * c[1] * (1 - c[2]), c[0] * c[1] * c[2]};
    for (auto const& law : {law_under(sureleap::token_rejection<>{}), law_under(sureleap::block_verification<>{})}) {
        for (std::size_t k = 0; k < law.size(); ++k) {
            INFO("accepted " << k);
            CHECK(std::abs(law[k] - expected[k]) < 1e-12);
        }
    }
}

TEST_CASE("Centres of a curve give its rates: exactly without variation between texts, and by simulation with it") {
    for (double const sd : {0.0, 1.2, 2.5}) {
        auto const centre = centre_of(chat, 0.0, sd);
        logistic_mean const mean(sd);
        for (std::size_t k = 0; k < chat.size(); ++k) CHECK(std::abs(mean(centre[k]) - chat[k]) < 1e-6);
    }

    drawn_texts const texts({domain_of(chat, 0.8, 1.2)}, {}, 7, 3);
    scenario const where{texts, made_up_world(), made_up_world()};
    auto const done = run(make_policy("fixed:7"), where, {.concurrency = 64}, {.request_rounds = 300'000});
    double tau = 1;
    double survival = 1;
    for (double const c : chat) tau += survival *= c;
    // One standard deviation of the mean of 300,000 rounds is 0.005, and texts are spread evenly. Blocks at the end of
    // a text are cut: one of 70 rounds.
    INFO("tau " << done.sums.tau() << ", expected " << tau);
    CHECK(std::abs(done.sums.tau() - tau) < 0.05);
}

TEST_CASE("Every policy meets the same text") {
    drawn_texts const texts({domain_of(chat)}, {}, 7, 11);
    std::array<position_facts, 7> once{};
    std::array<position_facts, 7> again{};
    texts.look(3, 100, once);
    texts.look(4, 100, again);
    CHECK(once[0].logit != again[0].logit);
    texts.look(3, 100, again);
    for (std::size_t k = 0; k < once.size(); ++k) CHECK(once[k].logit == again[k].logit);
    // A position seen from another anchor differs by its depth's centre alone.
    texts.look(3, 102, again);
    auto const centre = domain_of(chat).centre;
    for (std::size_t k = 2; k < once.size(); ++k) {
        CHECK(std::abs((once[k].logit - centre[k]) - (again[k - 2].logit - centre[k - 2])) < 1e-12);
    }
}

TEST_CASE("Confidences are calibrated unless they are told not to be, live and at the anchor") {
    domain_settings d = domain_of(chat);
    d.live_share = 0.8;
    drawn_texts const texts({d}, {}, 7, 5);
    // The mean of c over positions whose confidence lies in a bin is the mean confidence.
    for (auto const seen : {&position_facts::live, &position_facts::anchor}) {
        std::map<int, std::array<double, 3>> bins;
        std::array<position_facts, 7> facts{};
        for (std::uint64_t i = 0; i < 60'000; ++i) {
            texts.look(i % 500, i / 500 * 8, facts);
            double const c = 1 / (1 + std::exp(-facts[2].logit));
            auto& bin = bins[static_cast<int>(10 * facts[2].*seen)];
            bin[0] += 1;
            bin[1] += facts[2].*seen;
            bin[2] += c;
        }
        for (auto const& [at, bin] : bins) {
            if (bin[0] < 2000) continue;
            INFO("bin " << at << " of " << bin[0]);
            CHECK(std::abs(bin[1] - bin[2]) / bin[0] < 0.02);
        }
    }
    d.sharpness = 2;
    drawn_texts const sharp({d}, {}, 7, 5);
    std::array<position_facts, 7> facts{};
    std::array<position_facts, 7> sharper{};
    texts.look(1, 8, facts);
    sharp.look(1, 8, sharper);
    auto const logit = [](double c) { return std::log(c / (1 - c)); };
    CHECK(sharper[3].logit == facts[3].logit);
    CHECK(std::abs(logit(sharper[3].live) - 2 * logit(facts[3].live)) < 1e-9);
}

TEST_CASE("Virtual time is the sum of its steps, and a step costs what the world says") {
    drawn_texts const texts({domain_of(chat)}, {}, 7, 1);
    cost_world const truth = made_up_world(64);
    for (char const* const name : {"none", "fixed:3", "planned", "greedy", "closed-loop"}) {
        policy const how = make_policy(name);
        scenario const where{texts, truth, truth};
        auto const decoder = how.make(where, 5);
        std::vector<sureleap::token_id> const prompt(10, 0);
        for (std::uint64_t text = 0; text < 5; ++text) {
            decoder->submit(prompt, {.seed = text, .max_new_tokens = 40, .max_draft_tokens = how.max_draft_tokens});
        }
        double sum = 0;
        while (decoder->step()) {
            auto const& load = decoder->round().load;
            sum += truth.step_seconds(load);
            CHECK(sum == decoder->now());
            CHECK(std::abs(decoder->round().seconds - truth.step_seconds(load)) < 1e-12 * sum);
            if (how.max_draft_tokens == 0) CHECK(load.drafting == 0);
        }
    }
}

TEST_CASE("Every request that arrived is finished or still there") {
    drawn_texts const texts({domain_of(chat)}, {}, 7, 1);
    scenario const where{texts, made_up_world(), made_up_world()};
    for (char const* const name : {"none", "fixed:7", "tetris", "lagged", "planned", "oracle"}) {
        INFO(name);
        auto const open = run(make_policy(name), where, open_workload{poisson(40, 200, 16, 30, 9)}, {.places = 8});
        CHECK(open.requests.arrived == 200);
        CHECK(open.requests.finished == 200);
        CHECK(open.requests.placed + open.requests.waiting + open.requests.failed == 0);
        CHECK(open.served.size() == 200);
        double longest = 0;
        for (served_request const& s : open.served) {
            CHECK(s.first_token >= s.waited);
            CHECK(s.generating > 0);
            longest = std::max(longest, s.waited);
        }
        CHECK(longest > 0);  // eight places are too few for that rate

        auto const burst =
            run(make_policy(name), where, closed_workload{.concurrency = 4, .tokens = 40, .burst = 8, .period = 1.0},
                {.seconds = 5.0, .window = 10});
        CHECK(burst.requests.lost() == 0);
        CHECK(burst.requests.placed > 0);
        CHECK(burst.requests.finished > 0);
        // Both phases were seen.
        CHECK(burst.sums.mean_concurrency() > 5);
        CHECK(burst.sums.mean_concurrency() < 31);
        std::uint64_t rounds = 0;
        for (round_sums const& w : burst.windows) rounds += w.rounds;
        CHECK(rounds >= burst.sums.rounds);
    }
}

TEST_CASE("What is known of policies holds here") {
    drawn_texts const texts({domain_of(chat)}, {}, 7, 1);
    run_settings const brief{.request_rounds = 40'000};
    auto const rate = [&](char const* name, cost_world const& world, std::size_t concurrency) {
        return run(make_policy(name), {texts, world, world}, closed_workload{.concurrency = concurrency}, brief)
            .sums.tokens_per_second();
    };
    // A staircase traps Algorithm 1, and neither the planned budget nor the one from past rounds.
    cost_world const stairs = made_up_world(64);
    double const oracle = rate("oracle", stairs, 64);
    CHECK(rate("greedy", stairs, 64) < 0.6 * oracle);
    CHECK(rate("planned", stairs, 64) > 0.98 * oracle);
    CHECK(rate("lagged", stairs, 64) > 0.98 * oracle);
    // Under load whole blocks lose to none, alone they win.
    CHECK(rate("fixed:7", made_up_world(), 512) < rate("none", made_up_world(), 512));
    CHECK(rate("fixed:7", made_up_world(), 1) > 2 * rate("none", made_up_world(), 1));
    CHECK(rate("closed-loop", made_up_world(), 512) > 0.99 * rate("fixed:1", made_up_world(), 512));
}

TEST_CASE("What is learned while serving undoes what was wrong") {
    // Confidences too sure of themselves: a schedule that learns loses little to one that knows, one that does not,
    // much.
    domain_settings d = domain_of(chat);
    drawn_texts const right({d}, {}, 7, 1);
    d.sharpness = 2.5;
    d.bias = 1.0;
    drawn_texts const sure({d}, {}, 7, 1);
    cost_world const truth = made_up_world();
    run_settings const brief{.request_rounds = 60'000};
    auto const rate = [&](char const* name, drawn_texts const& texts) {
        auto const done = run(make_policy(name), {texts, truth, truth}, closed_workload{.concurrency = 128}, brief);
        return std::array{done.sums.tokens_per_second(), done.confidences.ece()};
    };
    auto const knows = rate("planned", right);
    CHECK(rate("planned", sure)[1] > 0.1);
    CHECK(rate("planned+calibrated", sure)[1] < 0.02);
    CHECK(rate("planned", sure)[0] < 0.98 * knows[0]);
    CHECK(rate("planned+calibrated", sure)[0] > 0.99 * knows[0]);
    // Neither costs anything where all is right.
    CHECK(rate("planned+calibrated+refined", right)[0] > 0.995 * knows[0]);
}

TEST_CASE("Recorded rounds are replayed") {
    std::vector<recorded_round> rounds;
    for (std::uint64_t text = 0; text < 4; ++text) {
        for (std::uint64_t i = 0; i < 50; ++i) {
            double const c = 0.05 + 0.9 * static_cast<double>((i * 7 + text) % 10) / 9;
            rounds.push_back({text, 20 + 3 * i, {c, 0.8, 0.7}, (i + text) % 4});
        }
    }
    recorded_texts const texts(rounds, 3, 1);
    std::array<position_facts, 3> facts{};
    texts.look(1, 0, facts);  // its first round accepted one
    CHECK(facts[0].logit > 0);
    CHECK(facts[1].logit < 0);
    CHECK(std::abs(facts[0].live - (0.05 + 0.9 / 9)) < 1e-12);
    CHECK(facts[0].anchor == facts[0].live);
    CHECK(std::abs(facts[1].anchor - 0.8) < 1e-12);
    scenario const where{texts, made_up_world(), made_up_world()};
    auto const done = run(make_policy("planned"), where, closed_workload{.concurrency = 4}, {.request_rounds = 2000});
    CHECK(done.sums.tau() > 1.0);
    CHECK(done.requests.lost() == 0);

    rounds[3].accepted = 9;
    CHECK(support::error_text([&] { recorded_texts{rounds, 3, 1}; }) == "recorded round 3: it accepted 9 of 3 drafts");
    CHECK(support::error_text([] { recorded_texts({}, 3, 1); }) ==
          "recorded rounds: there are none, expected at least one");
}

TEST_CASE("Policies have names") {
    for (char const* const name : {"none", "fixed:2", "threshold:0.4", "survival:0.3", "tetris", "tetris:3",
                                   "closed-loop", "lagged", "lagged:1", "lagged:3", "planned", "greedy", "oracle"}) {
        CHECK(make_policy(name).name == name);
        CHECK(make_policy(name).lossless ==
              (std::string(name) != "oracle" && !std::string(name).starts_with("tetris")));
    }
    for (char const* const name : {"planned+never-lose", "lagged+hysteresis+never-lose", "greedy+never-lose+calibrated",
                                   "planned+calibrated+refined", "planned+agreed", "oracle+calibrated"}) {
        CHECK(make_policy(name).name == name);
    }
    using support::error_text;
    using support::says;
    CHECK(says(error_text([] { static_cast<void>(make_policy("best")); }), {"policy 'best' is unknown", "planned"}));
    CHECK(
        says(error_text([] { static_cast<void>(make_policy("planned+fast")); }),
             {"policy 'planned+fast'", "expected never-lose, hysteresis, agreed, calibrated or refined after a plus"}));
    CHECK(says(error_text([] { static_cast<void>(make_policy("planned+refined+refined")); }), "each once"));
    CHECK(says(error_text([] { static_cast<void>(make_policy("greedy+hysteresis")); }), "of planned and lagged alone"));
    CHECK(says(error_text([] { static_cast<void>(make_policy("lagged+agreed")); }), "agreed is of planned here"));
    CHECK(says(error_text([] { static_cast<void>(make_policy("oracle+never-lose")); }), "never-lose is of planned"));
    CHECK(error_text([] { static_cast<void>(make_policy("fixed:x")); }) ==
          "policy 'fixed:x': expected a number after the colon");
    CHECK(error_text([] { static_cast<void>(make_policy("threshold:1.5")); }) ==
          "policy 'threshold:1.5': expected a number in [0, 1] after the colon");
}
