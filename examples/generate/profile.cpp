// SPDX-License-Identifier: MIT
#include "profile.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <engine/heads.hpp>
#include <engine/ranks.hpp>
#include <engine/row_acceptor.hpp>
#include <sureleap/sureleap.hpp>

#include "numbers.hpp"

namespace generate {
namespace {

/// On the rank that takes longest: all of them go by the same numbers.
template <class F>
[[nodiscard]] double seconds_of(engine::any_ranks* ranks, F const& f) {
    auto const start = std::chrono::steady_clock::now();
    f();
    return engine::slowest(ranks, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

/// Reorders the values.
[[nodiscard]] double median(std::vector<double>& values) {
    auto const middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::ranges::nth_element(values, middle);
    return *middle;
}

/// Of count things, the median of what seconds(i) says. They take turns, so that what disturbs one disturbs all, and
/// more turns where they are short: prices are differences of these. A turn is four in a row, of which the first does
/// not count: what a larger pass leaves in the caches, and the clock that a processor has after it, make a small one
/// dearer.
template <class Seconds>
[[nodiscard]] std::vector<double> medians(std::size_t count, Seconds const& seconds) {
    std::vector<std::vector<double>> seen(count);
    double spent = 0.0;
    for (int turn = 0; turn < 3 || (turn < 10 && spent < 1.0); ++turn) {
        for (std::size_t i = 0; i < count; ++i) {
            for (int run = 0; run < 4; ++run) {
                double const now = seconds(i);
                spent += now;
                if (run > 0) seen[i].push_back(now);
            }
        }
    }
    std::vector<double> out;
    for (auto& of_one : seen) out.push_back(median(of_one));
    return out;
}

/// A round without a past: drafting, the target's pass over the anchors, and acceptance. And the pass alone over a
/// batch of any size, behind another one. Whoever drafts takes some of the target's weights out of the caches, which
/// makes the next pass dearer: that is part of what rounds with drafts take, and so of the price of drafting.
///
/// Every sequence has half of the context that it may come to, of one token again and again: rows are the dearer, the
/// more they attend to.
class dry_run {
public:
    dry_run(models& loaded, sureleap::request_settings const& settings, engine::thread_pool& pool)
        : loaded_(loaded),
          settings_(settings),
          memory_(std::visit(
              [&](auto const& d) -> sureleap::round_memory<float, float> {
                  return {d, schedule_, rule_, {.max_requests = slots(), .executor = pool}};
              },
              loaded.drafter)) {
        if (ranks() != nullptr) {
            acceptor_.emplace(*ranks(), loaded.target->slices(), slots(), loaded.block_size(), false, pool);
        }
        std::size_t const end = loaded.target->limits().context_length;
        std::size_t const context = std::min({end / 2, end - std::min(end, block() + 1), most_context / slots()});
        for (std::size_t slot = 0; slot < slots(); ++slot) {
            fill(slot, context);
            views_.push_back({.id = slot + 1,
                              .slot = slot,
                              .anchor = 0,
                              .position = context,
                              .remaining = block() + 1,
                              .settings = &settings_});
        }
    }

    dry_run(dry_run const&) = delete;
    dry_run& operator=(dry_run const&) = delete;

    [[nodiscard]] engine::any_ranks* ranks() const noexcept { return loaded_.target->ranks(); }
    [[nodiscard]] std::size_t slots() const { return loaded_.target->limits().slots; }
    [[nodiscard]] std::size_t block() const { return std::min(loaded_.block_size(), settings_.max_draft_tokens); }
    /// Of the drafter's model, where lookup may find more.
    [[nodiscard]] std::size_t drafted_block() const {
        auto const own = [](auto const& drafter) {
            if constexpr (requires { drafter.model_block_size(); }) return drafter.model_block_size();
            return drafter.block_size();
        };
        return std::min(std::visit(own, loaded_.drafter), settings_.max_draft_tokens);
    }

    void operator()(sureleap::step_load const& load) {
        auto const requests = std::span(views_).first(load.requests);
        for (std::size_t slot = 0; slot < slots(); ++slot) memory_.join(slot);  // a round like no other before
        for (std::size_t r = 0; r < load.requests; ++r) {
            requests[r].draft_limit = r < load.drafting ? load.draft_tokens / load.drafting : 0;
        }
        if (sureleap::begin_round(schedule_, requests, memory_)) {
            observe(load.drafting);
            std::visit([&](auto& d) { sureleap::draw(d, d.forward(memory_.requests()), rule_, rng_, memory_); },
                       loaded_.drafter);
        }
        auto const& batch = sureleap::admit(schedule_, memory_);
        sureleap::logits_rows<float> rows;
        in_passes_ += seconds_of(ranks(), [&] { rows = loaded_.target->score(batch); });
        if (acceptor_) {
            (*acceptor_)(rule_, rows, rng_, memory_);
        } else {
            sureleap::accept(rule_, rows, sureleap::no_logits_hook{}, rng_, memory_);
        }
        static_cast<void>(sureleap::end_round(schedule_, memory_));
    }

    /// Of all rounds so far, in the target.
    [[nodiscard]] double seconds_in_passes() const noexcept { return in_passes_; }

    /// The pass over so many tokens: an anchor of each request, and behind them any tokens, as nobody may have drafted
    /// some.
    [[nodiscard]] double seconds_of_pass(std::size_t batch_tokens) {
        std::size_t const requests = std::min(batch_tokens, slots());
        std::vector<std::byte> bytes(64 * (slots() + 1) * (block() + 2) + 4096);
        sureleap::workspace space{std::span<std::byte>(bytes)};
        sureleap::verify_batch batch(space, slots(), block());
        batch.begin(std::span(views_).first(requests));
        std::vector<sureleap::token_id> const tokens(block(), 0);
        for (std::size_t r = 0, left = batch_tokens - requests; r < requests; ++r) {
            std::size_t const here = std::min(left, block());
            batch.append(std::span(tokens).first(here));
            left -= here;
        }
        return seconds_of(ranks(), [&] { static_cast<void>(loaded_.target->score(batch)); });
    }

private:
    /// A drafter's model is told what the last rounds wrote before it drafts: that is part of drafting.
    void observe(std::size_t drafting) {
        if (loaded_.draft == nullptr) return;
        std::vector<engine::batch_row> rows;
        for (std::size_t r = 0; r < drafting && views_[r].position > 0; ++r) {
            rows.push_back({static_cast<std::uint32_t>(r), static_cast<std::uint32_t>(views_[r].position - 1), 0});
        }
        std::vector<sureleap::token_id> const tokens(rows.size(), 0);
        loaded_.draft->observe(rows, loaded_.target->features().data, tokens);
    }

    /// Tokens of all sequences: filling caches takes time.
    static constexpr std::size_t most_context = 1024;

    void fill(std::size_t slot, std::size_t context) {
        std::vector<sureleap::token_id> const tokens(context, 0);
        std::size_t const chunk = loaded_.target->limits().max_rows;
        for (std::size_t first = 0; first < context; first += chunk) {
            std::size_t const count = std::min(chunk, context - first);
            loaded_.target->prefill(slot, first, std::span(tokens).first(count));
            if (loaded_.draft == nullptr) continue;
            std::vector<engine::batch_row> rows;
            for (std::size_t i = 0; i < count; ++i) {
                rows.push_back({static_cast<std::uint32_t>(slot), static_cast<std::uint32_t>(first + i), 0});
            }
            loaded_.draft->observe(rows, loaded_.target->features().data, std::span(tokens).first(count));
        }
    }

    /// Anchors alone.
    struct verify_nothing {
        static constexpr bool needs_confidence = false;
        void admit(sureleap::causal_frontier&) const noexcept {}
    };

    /// One rule for all, of trees since a chain is one: they cost about the same, which is shaping the target's rows.
    sureleap::any_rule const rule_ = sureleap::recursive_rejection<>{};

    models& loaded_;
    sureleap::request_settings settings_;
    sureleap::philox_randomness rng_;
    verify_nothing schedule_;
    sureleap::round_memory<float, float> memory_;
    std::optional<engine::row_acceptor<float>> acceptor_;
    std::vector<sureleap::request_view> views_;
    double in_passes_ = 0.0;
};

/// Seconds of a token that a draft has missed, as it reads many at once.
[[nodiscard]] double seconds_of_reading(engine::draft_lm<float>& draft, sureleap::request_settings const& settings) {
    std::vector<sureleap::token_id> text(std::clamp<std::size_t>(draft.model().limits().context_length / 2, 2, 64));
    std::vector<double> const seconds = medians(2, [&](std::size_t i) {
        for (sureleap::token_id& x : text) x = 1 - x;  // so that nothing of it is known
        auto const context = std::span(text).first(i == 0 ? 1 : text.size());
        sureleap::request_view const request{.anchor = context.back(),
                                             .position = context.size() - 1,
                                             .context = context,
                                             .remaining = 2,
                                             .settings = &settings};
        return seconds_of(nullptr, [&] { static_cast<void>(draft.forward({&request, 1}, {text.data(), 1, 0})); });
    });
    return std::max(seconds[1] - seconds[0], 0.0) / static_cast<double>(text.size() - 1);
}

/// Every size while they are few, then in steps of an eighth: in between the curve is a straight line.
std::vector<std::size_t> batch_sizes(std::size_t most) {
    std::vector<std::size_t> sizes;
    for (std::size_t b = 1; b < most; b += std::max<std::size_t>(1, b / 8)) sizes.push_back(b);
    sizes.push_back(most);
    return sizes;
}

}  // namespace

pass_times measure_passes(models& loaded, options const& chosen, engine::thread_pool& pool, status_line& status) {
    dry_run step(loaded, chosen.settings, pool);
    pass_times passes{batch_sizes(step.slots() * (step.block() + 1)), {}};
    passes.seconds = medians(passes.batch_tokens.size(), [&](std::size_t i) {
        status.update([&] { return "measuring a pass of " + grouped(passes.batch_tokens[i]); });
        return step.seconds_of_pass(passes.batch_tokens[i]);
    });
    return passes;
}

engine::measured_cost measure_cost(models& loaded, options const& chosen, engine::thread_pool& pool,
                                   status_line& status, pass_times const& passes) {
    dry_run step(loaded, chosen.settings, pool);
    std::size_t const slots = step.slots();
    std::size_t const gamma = step.drafted_block();
    // With one request, everybody is that one.
    std::vector<sureleap::step_load> loads = {
        {.requests = 1, .batch_tokens = 1},
        {.requests = 1, .batch_tokens = 1, .drafting = 1, .draft_tokens = 1},
        {.requests = 1, .batch_tokens = 1, .drafting = 1, .draft_tokens = gamma},
        {.requests = slots, .batch_tokens = slots},
        {.requests = slots, .batch_tokens = slots, .drafting = slots, .draft_tokens = slots * gamma}};
    enum : std::size_t { plain, one_token, whole_block, everybody_plain, everybody_drafts };
    if (slots == 1) loads.resize(everybody_plain);
    std::vector<double> beside_pass;  // of plain rounds
    std::vector<double> const seconds = medians(loads.size(), [&](std::size_t i) {
        status.update([&] { return "measuring what rounds cost: " + grouped(i + 1) + " of " + grouped(loads.size()); });
        double const pass_before = step.seconds_in_passes();
        double const round = seconds_of(step.ranks(), [&] { step(loads[i]); });
        if (i == plain) beside_pass.push_back(round - (step.seconds_in_passes() - pass_before));
        return round;
    });

    // Differences of what was measured, none of which can be negative but by noise.
    auto const positive = [](double x) { return std::max(x, 0.0); };
    sureleap::draft_prices draft;
    if (gamma > 1) draft.token = positive(seconds[whole_block] - seconds[one_token]) / static_cast<double>(gamma - 1);
    double const of_block = positive(seconds[whole_block] - seconds[plain]);
    if (slots > 1) {
        double const of_everybody = positive(seconds[everybody_drafts] - seconds[everybody_plain]);
        draft.request = positive(positive(of_everybody - of_block) / static_cast<double>(slots - 1) -
                                 draft.token * static_cast<double>(gamma));
    }
    draft.fixed = positive(of_block - draft.request - draft.token * static_cast<double>(gamma));
    if (loaded.text_draft) draft.unread = seconds_of_reading(loaded.text_draft->model, chosen.settings);
    double const acceptance = median(beside_pass);  // of a row

    std::vector<sureleap::capacity_point> points;
    for (std::size_t i = 0; i < passes.seconds.size(); ++i) {
        std::size_t const rows = passes.batch_tokens[i];
        points.push_back({rows, passes.seconds[i] + acceptance * static_cast<double>(rows)});
    }
    return sureleap::of_batch(sureleap::capacity_table<>(std::move(points)), draft);
}

}  // namespace generate
