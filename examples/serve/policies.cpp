// SPDX-License-Identifier: MIT
#include "policies.hpp"

#include <charconv>
#include <optional>
#include <system_error>
#include <type_traits>
#include <utility>

#include <sureleap/serving.hpp>
#include <sureleap/sureleap.hpp>

#include "schedules.hpp"
#include "simulated_models.hpp"

namespace serve {
namespace {

using sureleap::fail_with;

/// What a schedule reckons with: the scenario's belief, or what became of it by what was seen. Models cost_model.
class price {
public:
    price(cost_world const& model, sureleap::refined_cost<cost_world> const* refined) noexcept
        : model_(&model), refined_(refined) {}
    [[nodiscard]] double step_seconds(sureleap::step_load const& load) const noexcept {
        return refined_ != nullptr ? refined_->step_seconds(load) : model_->step_seconds(load);
    }

private:
    cost_world const* model_;
    sureleap::refined_cost<cost_world> const* refined_;
};

/// What stands behind a "+".
struct additions {
    bool never_lose = false;
    bool hysteresis = false;
    bool agreed = false;
    bool calibrated = false;
    bool refined = false;
};

/// The library's decoder over simulated models.
template <class Schedule, bool AllowLossy>
class decoder_of final : public any_decoder {
public:
    /// make_schedule(price, where, places)
    template <class MakeSchedule>
    decoder_of(scenario const& where, MakeSchedule const& make_schedule, additions const& add, std::size_t places)
        : truth_(where.truth),
          believed_(where.believed),
          target_(where.texts, truth_, places, where.prefill_seconds),
          drafter_(where.texts, places) {
        sureleap::decoder_options options{.max_requests = places, .seed = 1, .clock = clock_};
        if (add.refined) refined_.emplace(believed_);
        if (add.calibrated) {
            calibration_.emplace(where.texts.block_size());
            options.calibration = *calibration_;
        }
        decoder_.emplace(target_, drafter_,
                         make_schedule(price(believed_, refined_ ? &*refined_ : nullptr), where, places),
                         sureleap::token_rejection<>{}, options);
    }

    sureleap::request_id submit(std::span<sureleap::token_id const> prompt,
                                sureleap::request_settings const& settings) override {
        return decoder_->submit(prompt, settings);
    }
    void cancel(sureleap::request_id id) override { decoder_->cancel(id); }
    void pause(sureleap::request_id id) override { decoder_->pause(id); }
    void resume(sureleap::request_id id) override { decoder_->resume(id); }
    bool step() override {
        if (!decoder_->step()) return false;
        if (calibration_) calibration_->observe(decoder_->round());
        if (refined_) refined_->observe(decoder_->round());
        return true;
    }
    std::span<sureleap::request_event const> events() const override { return decoder_->events(); }
    sureleap::round_record const& round() const override { return decoder_->round(); }
    std::size_t placed() const override { return decoder_->counts().placed; }
    std::size_t waiting() const override { return decoder_->counts().waiting; }
    double now() const override { return target_.now(); }
    void wait_until(double moment) override { target_.wait_until(moment); }

private:
    cost_world truth_;
    cost_world believed_;
    simulated_target target_;
    virtual_clock clock_{&target_};
    simulated_drafter drafter_;
    std::optional<sureleap::refined_cost<cost_world>> refined_;
    std::optional<sureleap::online_calibration> calibration_;
    std::optional<sureleap::decoder<simulated_target&, simulated_drafter&, Schedule, sureleap::token_rejection<>,
                                    sureleap::no_logits_hook, sureleap::philox_randomness, AllowLossy>>
        decoder_;
};

/// make_schedule(price, where, places) gives the schedule; what the compiler would not let through is declared lossy.
template <bool AllowLossy = false, class MakeSchedule>
[[nodiscard]] policy scheduled(std::string words, additions const& add, MakeSchedule make_schedule) {
    using schedule_type = std::invoke_result_t<MakeSchedule const&, price, scenario const&, std::size_t>;
    policy p;
    p.words = std::move(words);
    p.lossless = !AllowLossy;
    p.make = [make_schedule, add](scenario const& where, std::size_t places) -> std::unique_ptr<any_decoder> {
        return std::make_unique<decoder_of<schedule_type, AllowLossy>>(where, make_schedule, add, places);
    };
    return p;
}

/// The same with a schedule that may be wrapped: in hysteresis, if it is a planner, and in never_lose.
template <class MakeSchedule>
[[nodiscard]] policy adapted(std::string const& words, additions const& add, MakeSchedule make_schedule) {
    using schedule_type = std::invoke_result_t<MakeSchedule const&, price, scenario const&, std::size_t>;
    auto const never_loses = [&](std::string const& so_far, auto make) {
        if (!add.never_lose) return scheduled(so_far, add, make);
        return scheduled(so_far + ", kept from losing", add,
                         [make](price cost, scenario const& where, std::size_t places) {
                             return sureleap::never_lose(make(cost, where, places), cost);
                         });
    };
    if constexpr (sureleap::planner<schedule_type>) {
        if (add.hysteresis) {
            return never_loses(words + ", with hysteresis",
                               [make_schedule](price cost, scenario const& where, std::size_t places) {
                                   return sureleap::hysteresis{make_schedule(cost, where, places)};
                               });
        }
    }
    return never_loses(words, make_schedule);
}

/// "name:number" in two.
struct parsed {
    std::string kind;
    std::optional<double> number;
};
[[nodiscard]] parsed parse(std::string const& name) {
    std::size_t const at = name.find(':');
    if (at == std::string::npos) return {name, std::nullopt};
    double value = 0;
    char const* const end = name.data() + name.size();
    auto const [stop, problem] = std::from_chars(name.data() + at + 1, end, value);
    if (problem != std::errc{} || stop != end) fail_with("policy '", name, "': expected a number after the colon");
    return {name.substr(0, at), value};
}
[[nodiscard]] double in(std::string const& name, std::optional<double> number, double low, double high) {
    if (!number || !(*number >= low && *number <= high)) {
        fail_with("policy '", name, "': expected a number in [", low, ", ", high, "] after the colon");
    }
    return *number;
}
[[nodiscard]] std::size_t whole(std::string const& name, std::optional<double> number, double low, double high) {
    return static_cast<std::size_t>(in(name, number, low, high));
}

/// Takes what stands behind the first "+" off the name.
[[nodiscard]] additions split_off(std::string& name) {
    additions add;
    for (std::size_t at; (at = name.rfind('+')) != std::string::npos; name.resize(at)) {
        std::string const word = name.substr(at + 1);
        bool* const flag = word == "never-lose"   ? &add.never_lose
                           : word == "hysteresis" ? &add.hysteresis
                           : word == "agreed"     ? &add.agreed
                           : word == "calibrated" ? &add.calibrated
                           : word == "refined"    ? &add.refined
                                                  : nullptr;
        if (flag == nullptr || *flag) {
            fail_with("policy '", name,
                      "': expected never-lose, hysteresis, agreed, calibrated or refined after a plus, each once");
        }
        *flag = true;
    }
    return add;
}

[[nodiscard]] policy find_policy(std::string const& name, additions const& add) {
    auto const [kind, number] = parse(name);
    auto const refuse = [&](bool wrapped, char const* what) {
        if (wrapped) fail_with("policy '", name, "': ", what);
    };
    refuse(add.hysteresis && kind != "planned" && kind != "lagged", "hysteresis is of planned and lagged alone");
    refuse(add.never_lose && kind != "planned" && kind != "lagged" && kind != "greedy" && kind != "fixed",
           "never-lose is of planned, lagged, greedy and fixed:K here");
    refuse(add.agreed && (kind != "planned" || add.never_lose || add.hysteresis),
           "agreed is of planned here, without never-lose and hysteresis");
    if ((kind == "none" && !number) || kind == "fixed") {
        std::size_t const length = kind == "none" ? 0 : whole(name, number, 0, 64);
        policy p = adapted(length == 0 ? "plain decoding" : std::to_string(length) + " drafts, all verified", add,
                           [](price, scenario const&, std::size_t) { return sureleap::fixed_schedule{}; });
        p.max_draft_tokens = length;  // drafts no more than it verifies
        return p;
    }
    if (kind == "threshold") {
        double const c = in(name, number, 0, 1);
        return scheduled("drafts up to the first confidence below it", add,
                         [c](price, scenario const&, std::size_t) { return sureleap::threshold_schedule{c}; });
    }
    if (kind == "survival") {
        double const a = in(name, number, 0, 1);
        return scheduled("drafts of at least this survival", add,
                         [a](price, scenario const&, std::size_t) { return sureleap::survival_threshold_schedule{a}; });
    }
    if (kind == "tetris") {
        std::size_t const drafts = number ? whole(name, number, 0, 64) : draft_probability_schedule<price>::by_cost;
        return scheduled<true>(
            "ranked by draft probability", add, [drafts](price cost, scenario const& where, std::size_t places) {
                return draft_probability_schedule<price>(cost, drafts, places, where.texts.block_size());
            });
    }
    if (kind == "closed-loop" && !number) {
        return scheduled("one length for all, from past acceptance", add,
                         [](price cost, scenario const& where, std::size_t) {
                             return closed_loop_schedule<price>(cost, where.texts.block_size());
                         });
    }
    if (kind == "lagged") {
        std::size_t const lag = number ? whole(name, number, 1, 3) : 2;
        auto const lagged = [&]<std::size_t Lag>() {
            return adapted(
                "budget from tables " + std::to_string(Lag) + " rounds old", add,
                [](price cost, scenario const&, std::size_t) { return sureleap::top_k_schedule<price, Lag>(cost); });
        };
        return lag == 1   ? lagged.template operator()<1>()
               : lag == 2 ? lagged.template operator()<2>()
                          : lagged.template operator()<3>();
    }
    if (kind == "planned" && !number && add.agreed) {
        policy p = scheduled("budget planned at the anchor, the batch agreed on by replicas in step", add,
                             [](price cost, scenario const& where, std::size_t) {
                                 if (where.agrees == nullptr) {
                                     fail_with(
                                         "policy 'planned+agreed': there are no replicas to agree with, expected "
                                         "the experiment replicas");
                                 }
                                 return sureleap::agreed{sureleap::planned_schedule{cost}, *where.agrees};
                             });
        p.agrees = true;
        return p;
    }
    if (kind == "planned" && !number) {
        return adapted("budget planned at the anchor", add,
                       [](price cost, scenario const&, std::size_t) { return sureleap::planned_schedule{cost}; });
    }
    if (kind == "greedy" && !number) {
        return adapted("Algorithm 1: live, stops early", add,
                       [](price cost, scenario const&, std::size_t) { return sureleap::greedy_schedule{cost}; });
    }
    if (kind == "oracle" && !number) {
        return scheduled<true>("best lengths in hindsight", add, [](price cost, scenario const&, std::size_t) {
            return sureleap::retrospective_schedule{cost};
        });
    }
    fail_with("policy '", name,
              "' is unknown, expected none, fixed:K, threshold:C, survival:A, tetris, tetris:K, closed-loop, lagged, "
              "lagged:N, planned, greedy or oracle");
}

}  // namespace

policy make_policy(std::string const& name) {
    std::string base = name;
    additions const add = split_off(base);
    policy p = find_policy(base, add);
    p.name = name;
    return p;
}

std::vector<policy> static_policies(std::size_t block_size) {
    std::vector<policy> all{make_policy("none")};
    for (std::size_t k = 1; k <= block_size; ++k) all.push_back(make_policy("fixed:" + std::to_string(k)));
    return all;
}

}  // namespace serve
