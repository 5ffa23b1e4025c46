// SPDX-License-Identifier: MIT
#include "profile.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <engine/heads.hpp>
#include <sureleap/fit/profile.hpp>
#include <sureleap/sureleap.hpp>

#include "numbers.hpp"

namespace generate {
namespace {

/// A round without a past, of any load: drafting, the target's pass over the anchors and as much of the blocks as makes up
/// the batch, and acceptance.
///
/// Every sequence stands at position 0, where nothing had to be observed before. So attention to a context is left out;
/// beside the weights it is little until contexts grow to thousands of tokens.
class dry_run {
public:
    dry_run(models& loaded, sureleap::request_settings const& settings, engine::any_rule const& rule,
            engine::thread_pool& pool)
        : loaded_(loaded),
          settings_(settings),
          rule_(rule),
          memory_(std::visit(
              [&](auto const& d, auto const& r) -> sureleap::round_memory<float, float> {
                  return {d, schedule_, r, {.max_requests = slots(), .executor = pool}};
              },
              loaded.drafter, rule_)) {
        for (std::size_t slot = 0; slot < slots(); ++slot) {
            views_.push_back(
                {.id = slot + 1, .slot = slot, .anchor = 0, .remaining = block() + 1, .settings = &settings_});
        }
    }

    dry_run(dry_run const&) = delete;
    dry_run& operator=(dry_run const&) = delete;

    [[nodiscard]] std::size_t slots() const { return loaded_.target->limits().slots; }
    [[nodiscard]] std::size_t block() const { return std::min(loaded_.block_size(), settings_.max_draft_tokens); }

    void operator()(sureleap::step_load const& load) {
        auto const requests = std::span(views_).first(load.requests);
        for (std::size_t slot = 0; slot < slots(); ++slot) memory_.join(slot);  // a round like no other before
        for (std::size_t r = 0; r < load.requests; ++r) {
            requests[r].draft_limit = r < load.drafting ? load.draft_tokens / load.drafting : 0;
        }
        schedule_.left = load.batch_tokens - load.requests;
        if (sureleap::begin_round(schedule_, requests, memory_)) {
            std::visit(
                [&](auto& d, auto const& r) { sureleap::draw(d, d.forward(memory_.requests()), r, rng_, memory_); },
                loaded_.drafter, rule_);
        }
        auto const rows = loaded_.target->score(sureleap::admit(schedule_, memory_));
        std::visit([&](auto const& r) { sureleap::accept(r, rows, sureleap::no_logits_hook{}, rng_, memory_); }, rule_);
        static_cast<void>(sureleap::end_round(schedule_, memory_));
    }

private:
    /// Whole blocks as far as the batch goes. Drafts have no need to be good, so it looks at none.
    struct fill_batch {
        static constexpr bool needs_confidence = false;
        std::size_t left = 0;

        void admit(sureleap::causal_frontier& frontier) const noexcept {
            for (std::size_t r = 0; r < frontier.requests(); ++r) {
                while (frontier.has_next(r) && frontier.admitted() < left) frontier.admit(r);
            }
        }
    };

    models& loaded_;
    sureleap::request_settings settings_;
    engine::any_rule rule_;
    sureleap::philox_randomness rng_;
    fill_batch schedule_;
    sureleap::round_memory<float, float> memory_;
    std::vector<sureleap::request_view> views_;
};

/// Every size while they are few, then in steps of an eighth: in between the curve is a straight line.
std::vector<std::size_t> batch_sizes(std::size_t most) {
    std::vector<std::size_t> sizes;
    for (std::size_t b = 1; b < most; b += std::max<std::size_t>(1, b / 8)) sizes.push_back(b);
    sizes.push_back(most);
    return sizes;
}

}  // namespace

engine::measured_cost measure_cost(models& loaded, options const& chosen, engine::any_rule const& rule,
                                   engine::thread_pool& pool, status_line& status) {
    dry_run step(loaded, chosen.settings, rule, pool);
    std::size_t const slots = step.slots();
    std::size_t const gamma = step.block();
    // A batch that has room for drafts is filled from whole blocks of everybody; their price is taken off.
    std::vector<sureleap::step_load> loads;
    for (std::size_t const b : batch_sizes(slots * (gamma + 1))) {
        if (b <= slots) {
            loads.push_back({.requests = b, .batch_tokens = b});
        } else {
            loads.push_back({.requests = slots, .batch_tokens = b, .drafting = slots, .draft_tokens = slots * gamma});
        }
    }
    std::size_t const sizes = loads.size();
    std::size_t const whole = loads.size();
    loads.push_back({.requests = 1, .batch_tokens = 1, .drafting = 1, .draft_tokens = gamma});
    std::size_t const short_block = loads.size();
    loads.push_back({.requests = 1, .batch_tokens = 1, .drafting = 1, .draft_tokens = 1});
    std::size_t const everybody = loads.size();
    loads.push_back({.requests = slots, .batch_tokens = slots, .drafting = slots, .draft_tokens = slots * gamma});

    std::size_t done = 0;
    auto const timed = [&](sureleap::step_load const& load) {
        ++done;
        status.update([&] { return "measuring what steps cost: " + grouped(done); });
        step(load);
    };
    auto const profile =
        sureleap::profile_steps(timed, loads, {.warm_up = 1, .repeats = 5, .most_spread = 0.1, .retries = 1});
    auto const seconds = [&](std::size_t i) { return profile.steps[i].seconds; };
    auto const plain_of_everybody = [&] {
        for (std::size_t i = 0; i < sizes; ++i) {
            if (loads[i].batch_tokens >= slots) return seconds(i);
        }
        return seconds(sizes - 1);
    }();

    // Differences of what was measured, none of which can be negative but by noise.
    auto const positive = [](double x) { return std::max(x, 0.0); };
    sureleap::draft_prices draft;
    if (gamma > 1) draft.token = positive(seconds(whole) - seconds(short_block)) / static_cast<double>(gamma - 1);
    double const of_whole = positive(seconds(whole) - seconds(0));
    double const of_everybody = positive(seconds(everybody) - plain_of_everybody);
    if (slots > 1) {
        draft.request = positive(positive(of_everybody - of_whole) / static_cast<double>(slots - 1) -
                                 draft.token * static_cast<double>(gamma));
    }
    draft.fixed = positive(of_whole - draft.request - draft.token * static_cast<double>(gamma));

    std::vector<sureleap::capacity_point> points;
    for (std::size_t i = 0; i < sizes; ++i) {
        double const verify = loads[i].drafting > 0 ? seconds(i) - of_everybody : seconds(i);
        points.push_back({loads[i].batch_tokens, std::max(verify, 0.5 * seconds(0))});
    }
    return sureleap::of_batch(sureleap::capacity_table<>(std::move(points)), draft);
}

}  // namespace generate
