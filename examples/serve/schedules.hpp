// SPDX-License-Identifier: MIT
//
// Schedules of other systems, to compare with. The library does not have them: one would not keep the target's law
// (ranking by draft probability), and its own do better than the other (one length for all).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/sureleap.hpp>

namespace serve {

/// TETRIS (Wu et al. 2025): verifies the drafts of largest joint draft probability q_1(x_1) .. q_k(x_k). It takes a
/// fixed number per request. If none is given, it takes as many as would maximise expected tokens per second if those
/// products were survivals. Whether x_k is verified depends on x_k: not lossless with rules that sample.
template <sureleap::step_cost Cost>
class draft_probability_schedule {
public:
    static constexpr bool needs_confidence = false;
    static constexpr std::size_t by_cost = static_cast<std::size_t>(-1);

    draft_probability_schedule(Cost cost, std::size_t drafts_per_request, std::size_t max_requests,
                               std::size_t block_size)
        : cost_(std::move(cost)), drafts_(drafts_per_request), products_(max_requests * block_size) {}

    void admit(sureleap::draft_table const& table, sureleap::frontier_memory const& memory) const noexcept {
        sureleap::survival_table ranks = table.survivals;
        for (std::size_t r = 0; r < ranks.requests(); ++r) {
            sureleap::fixed_probability product = sureleap::certain;
            for (std::size_t k = 0; k < ranks.sizes[r]; ++k) {
                std::size_t const i = r * ranks.block_size + k;
                sureleap::fixed_probability q = 0;
                if (!sureleap::quantise(table.token_probabilities[i], q)) q = sureleap::certain;  // rounded above 1
                products_[i] = product = sureleap::extend_survival(product, q);
            }
        }
        ranks.survival = products_;
        std::size_t const budget =
            drafts_ == by_cost ? sureleap::best_budget(ranks, memory, cost_) : drafts_ * ranks.requests();
        sureleap::causal_frontier{ranks, memory}.admit_best(budget);
    }

private:
    Cost cost_;
    std::size_t drafts_;
    std::vector<sureleap::fixed_probability> mutable products_;  // scratch of a call
};

/// TurboSpec (Liu et al. 2024): one draft length for all requests, that which would have had the best goodput by the
/// acceptance of past rounds and the cost model. Acceptance is a moving average by depth; a depth that is not drafted
/// keeps what it last had, and one never drafted follows the depth before it.
template <sureleap::step_cost Cost>
class closed_loop_schedule {
public:
    static constexpr bool needs_confidence = false;

    /// `memory`: drafts after which an observation weighs 1/e.
    closed_loop_schedule(Cost cost, std::size_t block_size, double prior = 0.8, double memory = 1000)
        : cost_(std::move(cost)), accepted_(block_size, prior), seen_(block_size, false), memory_(memory) {}

    void limit_drafts(std::span<sureleap::request_view> requests) {
        std::size_t const length = best_length(requests);
        for (sureleap::request_view& r : requests) r.draft_limit = std::min(r.draft_limit, length);
    }
    void admit(sureleap::causal_frontier& frontier) const noexcept { sureleap::fixed_schedule{}.admit(frontier); }

    void observe(sureleap::round_record const& record) noexcept {
        for (std::size_t k = 0; k < accepted_.size(); ++k) {
            double reached = 0;
            double kept = 0;
            for (sureleap::verdict const& v : record.verdicts) {
                reached += v.verified > k && v.accepted >= k ? 1 : 0;
                kept += v.accepted > k ? 1 : 0;
            }
            if (reached == 0) continue;
            accepted_[k] += (1 - std::exp(-reached / memory_)) * (kept / reached - accepted_[k]);
            seen_[k] = true;
            for (std::size_t next = k + 1; next < accepted_.size() && !seen_[next]; ++next)
                accepted_[next] = accepted_[k];
        }
    }

private:
    [[nodiscard]] std::size_t best_length(std::span<sureleap::request_view const> requests) const {
        std::vector<sureleap::request_view> trial;
        std::size_t best = 0;
        double most = 0;
        double tokens = 1;
        double survival = 1;
        for (std::size_t length = 0; length <= accepted_.size(); ++length) {
            if (length > 0) tokens += survival *= accepted_[length - 1];
            trial.assign(requests.begin(), requests.end());
            for (sureleap::request_view& r : trial) r.draft_limit = std::min(r.draft_limit, length);
            auto load = sureleap::load_of(trial, accepted_.size());
            auto const& curve = sureleap::curve_of(cost_, load);
            double const goodput = tokens * curve.steps_per_second(load.requests + load.draft_tokens);
            if (goodput > most) {
                most = goodput;
                best = length;
            }
        }
        return best;
    }

    Cost cost_;
    std::vector<double> accepted_;
    std::vector<bool> seen_;
    double memory_;
};

}  // namespace serve
