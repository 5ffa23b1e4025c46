// SPDX-License-Identifier: MIT
#include "policies.hpp"

#include <charconv>
#include <optional>
#include <system_error>
#include <utility>

#include <sureleap/sureleap.hpp>

#include "schedules.hpp"
#include "simulated_models.hpp"

namespace serve {
namespace {

using sureleap::detail::fail_with;

/// The library's decoder over simulated models.
template <class Schedule, bool AllowLossy>
class decoder_of final : public any_decoder {
public:
    decoder_of(scenario const& where, Schedule schedule, std::size_t places)
        : truth_(where.truth),
          target_(where.texts, truth_, places, where.prefill_seconds),
          drafter_(where.texts, places),
          decoder_(target_, drafter_, std::move(schedule), sureleap::token_rejection<>{},
                   sureleap::batch_options{.max_requests = places, .seed = 1, .clock = clock_}) {}

    sureleap::request_id submit(std::span<sureleap::token_id const> prompt,
                                sureleap::request_settings const& settings) override {
        return decoder_.submit(prompt, settings).value();
    }
    void cancel(sureleap::request_id id) override { decoder_.cancel(id); }
    void pause(sureleap::request_id id) override { decoder_.pause(id); }
    void resume(sureleap::request_id id) override { decoder_.resume(id); }
    bool step() override { return decoder_.step(); }
    std::span<sureleap::request_event const> events() const override { return decoder_.events(); }
    sureleap::round_record const& round() const override { return decoder_.round(); }
    std::size_t placed() const override { return decoder_.counts().placed; }
    std::size_t waiting() const override { return decoder_.counts().waiting; }
    double now() const override { return target_.now(); }
    void wait_until(double moment) override { target_.wait_until(moment); }

private:
    cost_world truth_;
    simulated_target target_;
    virtual_clock clock_{&target_};
    simulated_drafter drafter_;
    sureleap::batch_decoder<simulated_target&, simulated_drafter&, Schedule, sureleap::token_rejection<>,
                            sureleap::no_logits_hook, sureleap::philox_randomness, AllowLossy>
        decoder_;
};

/// make_schedule(where, places) gives the schedule; what the compiler would not let through is declared lossy.
template <bool AllowLossy = false, class MakeSchedule>
[[nodiscard]] policy scheduled(std::string name, std::string words, MakeSchedule make_schedule) {
    return {.name = std::move(name),
            .words = std::move(words),
            .lossless = !AllowLossy,
            .make = [make_schedule](scenario const& where, std::size_t places) -> std::unique_ptr<any_decoder> {
                auto schedule = make_schedule(where, places);
                using schedule_type = decltype(schedule);
                return std::make_unique<decoder_of<schedule_type, AllowLossy>>(where, std::move(schedule), places);
            }};
}

[[nodiscard]] policy fixed(std::string name, std::size_t length) {
    policy p = scheduled(std::move(name), "at most " + std::to_string(length) + " drafts, all verified",
                         [](scenario const&, std::size_t) { return sureleap::fixed_schedule{}; });
    p.max_draft_tokens = length;  // drafts no more than it verifies
    if (length == 0) p.words = "plain decoding";
    return p;
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

using cost = cost_world;

}  // namespace

policy make_policy(std::string const& name) {
    auto const [kind, number] = parse(name);
    if (kind == "none" && !number) return fixed(name, 0);
    if (kind == "fixed") return fixed(name, whole(name, number, 0, 64));
    if (kind == "threshold") {
        double const c = in(name, number, 0, 1);
        return scheduled(name, "drafts up to the first confidence below it",
                         [c](scenario const&, std::size_t) { return sureleap::threshold_schedule{c}; });
    }
    if (kind == "survival") {
        double const a = in(name, number, 0, 1);
        return scheduled(name, "drafts of at least this survival",
                         [a](scenario const&, std::size_t) { return sureleap::survival_threshold_schedule{a}; });
    }
    if (kind == "tetris") {
        std::size_t const drafts =
            number ? whole(name, number, 0, 64) : draft_probability_schedule<cost>::by_cost;
        return scheduled<true>(name, "ranked by draft probability", [drafts](scenario const& where, std::size_t places) {
            return draft_probability_schedule<cost>(where.believed, drafts, places, where.texts.block_size());
        });
    }
    if (kind == "closed-loop" && !number) {
        return scheduled(name, "one length for all, from past acceptance", [](scenario const& where, std::size_t) {
            return closed_loop_schedule<cost>(where.believed, where.texts.block_size());
        });
    }
    if (kind == "lagged") {
        std::size_t const lag = number ? whole(name, number, 1, 3) : 2;
        auto const lagged = [&]<std::size_t Lag>() {
            return scheduled(name, "budget from tables " + std::to_string(Lag) + " rounds old",
                             [](scenario const& where, std::size_t) {
                                 return sureleap::top_k_schedule<cost, Lag>(where.believed);
                             });
        };
        return lag == 1   ? lagged.template operator()<1>()
               : lag == 2 ? lagged.template operator()<2>()
                          : lagged.template operator()<3>();
    }
    if (kind == "planned" && !number) {
        return scheduled(name, "budget planned at the anchor", [](scenario const& where, std::size_t) {
            return sureleap::planned_schedule{where.believed};
        });
    }
    if (kind == "greedy" && !number) {
        return scheduled(name, "Algorithm 1: live, stops early",
                         [](scenario const& where, std::size_t) { return sureleap::greedy_schedule{where.believed}; });
    }
    if (kind == "oracle" && !number) {
        return scheduled<true>(name, "best lengths in hindsight", [](scenario const& where, std::size_t) {
            return sureleap::retrospective_schedule{where.believed};
        });
    }
    fail_with("policy '", name,
              "' is unknown, expected none, fixed:K, threshold:C, survival:A, tetris, tetris:K, closed-loop, lagged, "
              "lagged:N, planned, greedy or oracle");
}

std::vector<policy> static_policies(std::size_t block_size) {
    std::vector<policy> all{make_policy("none")};
    for (std::size_t k = 1; k <= block_size; ++k) all.push_back(make_policy("fixed:" + std::to_string(k)));
    return all;
}

}  // namespace serve
