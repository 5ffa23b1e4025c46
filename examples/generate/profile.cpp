// SPDX-License-Identifier: MIT
#include "profile.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

#include <engine/heads.hpp>
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
              [&](auto const& d) {
                  return sureleap::round_memory<float, float>(d, sureleap::token_rejection<>{},
                                                              {.max_requests = slots(), .executor = pool});
              },
              loaded.drafter)),
          lengths_(slots()) {
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
        auto& block = memory_.block;
        block.begin(requests);
        std::visit([&](auto& d) { d.draw(d.forward(requests), sureleap::categorical_draft{}, block, randomness_); },
                   loaded_.drafter);
        std::size_t left = batch_tokens - requests.size();
        for (std::size_t r = 0; r < requests.size(); ++r) {
            lengths_[r] = static_cast<std::uint32_t>(std::min(left, block.size(r)));
            left -= lengths_[r];
        }
        sureleap::flatten(block, lengths_, memory_.batch);
        static_cast<void>(loaded_.target->score(memory_.batch));
    }

private:
    [[nodiscard]] std::size_t slots() const { return loaded_.target->limits().slots; }
    [[nodiscard]] std::size_t block() const { return loaded_.block_size(); }

    models& loaded_;
    sureleap::request_settings settings_;
    sureleap::philox_randomness randomness_;
    sureleap::round_memory<float, float> memory_;
    std::vector<sureleap::request_view> views_;
    std::vector<std::uint32_t> lengths_;
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
