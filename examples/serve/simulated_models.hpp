// SPDX-License-Identifier: MIT
//
// A target and a drafter for the library's decoder that know the texts instead of computing them, over three tokens.
// The draft is s for token 0 and 1 - s for token 1; the target is c times the draft, and token 2 with probability 1 -
// c. So whichever token is drafted is accepted with probability c, exactly and by every rule that accepts sum_v min(p,
// q) of a position; token 2 is the correction; and the draft's own probability of what it drew, which ranking by draft
// probability goes by, is a quantity of its own. Rejected: one-hot drafts; then there is nothing to rank by, and the
// library would rightly take any schedule for lossless.
//
// The target is the simulated machine, too: scoring a batch moves the clock by what the step costs, drafting included.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include <sureleap/core/types.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/draft_memory.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/verify/verify_batch.hpp>

#include "cost_world.hpp"
#include "texts.hpp"

namespace serve {

inline constexpr std::size_t vocabulary = 3;

/// The virtual clock, and the step that moves it. A request's seed is the number of its text. It shares no state with
/// the drafter: both ask the same texts.
class simulated_target {
public:
    /// prefill_seconds: what a token of a prompt costs on top, in the first step of its request.
    simulated_target(text_source const& texts, cost_world const& truth, std::size_t max_requests,
                     double prefill_seconds = 0)
        : texts_(&texts),
          truth_(&truth),
          prefill_seconds_(prefill_seconds),
          facts_(texts.block_size() + 1),
          rows_(max_requests * (texts.block_size() + 1) * vocabulary) {}

    simulated_target(text_source const&, cost_world&&, std::size_t, double = 0) = delete;  // both must outlive it

    [[nodiscard]] sureleap::logits_rows<double> score(sureleap::verify_batch const& batch) {
        sureleap::pass_stamp const pass = passes_.begin(sureleap::fingerprint_of(batch.requests()));
        for (std::size_t r = 0; r < batch.requests().size(); ++r) {
            sureleap::request_view const& request = batch.requests()[r];
            bool const is_new = request.remaining == request.settings->max_new_tokens;
            if (is_new) now_ += prefill_seconds_ * static_cast<double>(request.context.size());
            auto const facts = std::span(facts_).first(batch.length(r) + 1);
            texts_->look(request.seed, request.position, facts);
            double* row = rows_.data() + batch.first_row(r) * vocabulary;
            for (position_facts const& at : facts) {
                // c s, c (1 - s) and 1 - c, all divided by 1 - c
                double const rest = std::log1p(std::exp(at.draft));
                row[0] = at.logit + at.draft - rest;
                row[1] = at.logit - rest;
                row[2] = 0;
                row += vocabulary;
            }
        }
        auto load = sureleap::load_of(batch.requests(), texts_->block_size());
        load.batch_tokens = batch.rows();
        now_ += truth_->step_seconds(load);
        return {.values = {rows_.data(), batch.rows(), vocabulary}, .pass = pass};
    }

    [[nodiscard]] double now() const noexcept { return now_; }
    /// Nothing happens until then.
    void wait_until(double moment) noexcept { now_ = std::max(now_, moment); }

private:
    text_source const* texts_;
    cost_world const* truth_;
    double prefill_seconds_;
    std::vector<position_facts> facts_;
    sureleap::pass_counter passes_;
    std::vector<double> rows_;
    double now_ = 0;
};

/// The clock as a decoder borrows it.
struct virtual_clock {
    simulated_target const* machine;
    [[nodiscard]] double operator()() const noexcept { return machine->now(); }
};

/// Models sureleap::drafter: parallel, with confidences live and at the anchor.
class simulated_drafter {
public:
    using value_type = double;
    struct forward_type {
        sureleap::pass_stamp pass{};  // facts of this round are the drafter's own, until the next
    };

    static constexpr bool is_deterministic = false;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = true;
    static constexpr bool plans_at_anchor = true;

    simulated_drafter(text_source const& texts, std::size_t max_requests)
        : texts_(&texts), facts_(max_requests * texts.block_size()) {}

    [[nodiscard]] std::size_t block_size() const noexcept { return texts_->block_size(); }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return serve::vocabulary; }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return serve::vocabulary; }

    [[nodiscard]] forward_type forward(std::span<sureleap::request_view const> requests) noexcept {
        sureleap::pass_stamp const pass = passes_.begin(sureleap::fingerprint_of(requests));
        for (std::size_t r = 0; r < requests.size(); ++r) {
            auto const out = std::span(facts_).subspan(r * block_size(), requests[r].draft_cap(block_size()));
            texts_->look(requests[r].seed, requests[r].position, out);
        }
        return {pass};
    }

    void plan(forward_type, sureleap::draft_block<double> const& block,
              sureleap::planning_memory& memory) const noexcept {
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            memory.begin(r);
            for (position_facts const& at : of(r, block.requests()[r])) memory.append(r, at.anchor);
        }
    }

    template <class DraftRule, class Rng>
    void draw(forward_type, DraftRule rule, sureleap::draft_block<double>& block,
              sureleap::draft_rows<double> const& rows, Rng& rng) noexcept {
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            for (position_facts const& at : of(r, block.requests()[r])) {
                auto const row = rows.next(block, r);
                row[0] = at.draft;
                row[1] = 0;
                row[2] = -std::numeric_limits<double>::infinity();
                auto const q = rows.law(block, r, row);
                if (block.draw(r, rule, q, at.live, rng) == sureleap::no_token) break;
            }
        }
    }

private:
    [[nodiscard]] std::span<position_facts const> of(std::size_t r,
                                                     sureleap::request_view const& request) const noexcept {
        return std::span(facts_).subspan(r * block_size(), request.draft_cap(block_size()));
    }

    text_source const* texts_;
    sureleap::pass_counter passes_;
    std::vector<position_facts> facts_;
};

}  // namespace serve
