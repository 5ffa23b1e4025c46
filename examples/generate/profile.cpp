// SPDX-License-Identifier: MIT
#include "profile.hpp"

#include <algorithm>
#include <cstddef>
#include <span>
#include <variant>
#include <vector>

#include <engine/heads.hpp>
#include <sureleap/fit/profile.hpp>
#include <sureleap/sureleap.hpp>

#include "numbers.hpp"

namespace generate {
namespace {

/// A round without a past and without acceptance, of any number of batch tokens: drafting, and the target's pass over
/// the anchors and as much of the blocks as makes up the number. What drafting costs belongs to a step, though it does
/// not depend on its size: the dearer it is, the more of a block is worth verifying.
///
/// Every sequence stands at position 0, where nothing had to be observed before. So attention to a context is left out;
/// beside the weights it is little until contexts grow to thousands of tokens.
class dry_run {
public:
    dry_run(models& loaded, sureleap::request_settings const& settings, engine::thread_pool& pool)
        : loaded_(loaded),
          settings_(settings),
          memory_(std::visit(
              [&](auto const& d) -> sureleap::round_memory<float, float> {
                  return {d, schedule_, rule, {.max_requests = slots(), .executor = pool}};
              },
              loaded.drafter)) {
        for (std::size_t slot = 0; slot < slots(); ++slot) {
            views_.push_back(
                {.id = slot + 1, .slot = slot, .anchor = 0, .remaining = block() + 1, .settings = &settings_});
        }
    }

    dry_run(dry_run const&) = delete;
    dry_run& operator=(dry_run const&) = delete;

    [[nodiscard]] std::size_t most_tokens() const {
        return slots() * (std::min(block(), settings_.max_draft_tokens) + 1);
    }

    void operator()(std::size_t batch_tokens) {
        auto const requests = std::span(views_).first(std::min(batch_tokens, slots()));
        for (std::size_t slot = 0; slot < slots(); ++slot) memory_.join(slot);  // a round like no other before
        schedule_.left = batch_tokens - requests.size();
        if (sureleap::begin_round(schedule_, requests, memory_)) {
            std::visit([&](auto& d) { sureleap::draw(d, d.forward(memory_.requests()), rule, randomness_, memory_); },
                       loaded_.drafter);
        }
        static_cast<void>(loaded_.target->score(sureleap::admit(schedule_, memory_)));
    }

private:
    [[nodiscard]] std::size_t slots() const { return loaded_.target->limits().slots; }
    [[nodiscard]] std::size_t block() const { return loaded_.block_size(); }

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
    static constexpr sureleap::token_rejection<> rule{};

    models& loaded_;
    sureleap::request_settings settings_;
    sureleap::philox_randomness randomness_;
    fill_batch schedule_;
    sureleap::round_memory<float, float> memory_;
    std::vector<sureleap::request_view> views_;
};

}  // namespace

engine::capacity measure_capacity(models& loaded, options const& chosen, engine::thread_pool& pool,
                                  status_line& status) {
    dry_run step(loaded, chosen.settings, pool);
    // Every size while they are few, then in steps of an eighth: in between the curve is a straight line.
    std::vector<std::size_t> sizes;
    std::size_t const most = step.most_tokens();
    for (std::size_t b = 1; b < most; b += std::max<std::size_t>(1, b / 8)) sizes.push_back(b);
    sizes.push_back(most);
    sureleap::profile_settings const runs{.warm_up = 1, .repeats = 5};
    std::size_t const all = sizes.size() * (runs.warm_up + runs.repeats);
    std::size_t done = 0;
    auto const timed = [&](std::size_t batch_tokens) {
        ++done;
        status.update([&] { return "profiling: step " + grouped(done) + " of " + grouped(all); });
        step(batch_tokens);
    };
    return sureleap::profile(timed, sizes, runs);
}

}  // namespace generate
