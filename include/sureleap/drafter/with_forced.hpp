// SPDX-License-Identifier: MIT
//
// Long runs of forced tokens without the drafter's model. A grammar leaves one token at some places: the keys of an
// object, say. Every drafter drafts such a token where it comes to it, inside a block that its model has made. Where a
// run of them is as long as a block, no model is needed: the run is drafted whole, and accepted without a draw.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/drafter/beside_model.hpp>
#include <sureleap/sampling/row_mask.hpp>

SURELEAP_BEGIN_NAMESPACE

/// When a forced run is drafted, fixed at set-up.
struct with_forced_options {
    /// Most tokens of a run in a round; 0: as many as the other drafter drafts. A run costs rows alone, and all of it
    /// is accepted, so what the target scores in one pass is worth more than a block of a model.
    std::size_t block_size = 0;
};

/// Tokens that a request's constraint forces.
struct forced_run {
    std::vector<token_id> forced{};
    [[nodiscard]] std::span<token_id const> tokens() const noexcept { return forced; }
};

/// Runs of at least the other drafter's block_size, or up to the request's cap, for the requests that begin with one;
/// `Drafter` for the others, and for shorter runs, which it drafts as well and goes on behind them (beside_model).
/// Models drafter; plans at the anchor if Drafter does. The other drafter is held as by with_lookup.
template <class Drafter>
class with_forced : public beside_model<with_forced<Drafter>, Drafter, forced_run> {
    using base = beside_model<with_forced<Drafter>, Drafter, forced_run>;

public:
    static constexpr char const* name = "with_forced";

    explicit with_forced(Drafter other, with_forced_options const& options = {})
        : base(std::forward<Drafter>(other), options.block_size) {}

    /// Asks the constraint along its run.
    void find(request_view const& request, forced_run& run) const {
        run.forced.clear();
        if (!request.settings->constraint) return;
        std::size_t const most = request.found_cap(this->most());
        while (run.forced.size() < most) {
            token_id const x = mask_behind(request, run.forced).only(this->target_vocabulary());
            if (x == no_token) break;
            run.forced.push_back(x);
            if (request.settings->stops_at(x)) return;  // the text ends here, so nobody could go on
        }
        if (run.forced.size() < std::min(most, this->model_block_size())) run.forced.clear();
    }
    [[nodiscard]] double confidence(forced_run const&, std::size_t) const noexcept { return 1.0; }
};

template <class D>
with_forced(D&&, with_forced_options const&) -> with_forced<D>;
template <class D>
with_forced(D&&) -> with_forced<D>;

SURELEAP_END_NAMESPACE
