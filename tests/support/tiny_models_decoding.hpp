// SPDX-License-Identifier: MIT
//
// Verification batches written by hand, and plain decoding, which everything faster is compared with.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <engine/target.hpp>
#include <sureleap/sureleap.hpp>

namespace tiny {

using sureleap::token_id;

// ---- batches -------------------------------------------------------------------------------------------------------

/// Rows of one sequence: tokens at positions first, first + 1, ...; the first one stands where the anchor does.
struct segment {
    std::size_t slot = 0;
    std::uint64_t first = 0;
    std::vector<token_id> tokens;
};

/// A verification batch over such segments, in their order.
class flat_batch {
public:
    explicit flat_batch(std::vector<segment> segments) : segments_(std::move(segments)) {
        std::size_t longest = 1;
        for (segment const& s : segments_) {
            longest = std::max(longest, s.tokens.size());
            requests_.push_back({.id = s.slot + 1,
                                 .slot = s.slot,
                                 .anchor = s.tokens[0],
                                 .position = s.first,
                                 .remaining = 1 << 20,
                                 .settings = &settings_});
        }
        sureleap::workspace sizer;
        static_cast<void>(sureleap::verify_batch(sizer, segments_.size(), longest));
        memory_.resize(sizer.used());
        sureleap::workspace carver{memory_};
        batch_ = sureleap::verify_batch(carver, segments_.size(), longest);
        batch_.begin(requests_);
        for (segment const& s : segments_) batch_.append(std::span(s.tokens).subspan(1));
    }
    // Its parts point at each other.
    flat_batch(flat_batch const&) = delete;
    flat_batch& operator=(flat_batch const&) = delete;

    [[nodiscard]] sureleap::verify_batch const& batch() const noexcept { return batch_; }
    [[nodiscard]] std::span<sureleap::request_view const> requests() const noexcept { return requests_; }

private:
    std::vector<segment> segments_;
    sureleap::request_settings settings_;
    std::vector<sureleap::request_view> requests_;
    std::vector<std::byte> memory_;
    sureleap::verify_batch batch_;
};

/// Logits of the token after `token`, which stands at `position` of a slot: one row, one step of plain decoding.
template <class Real>
[[nodiscard]] std::span<Real const> score_one(engine::target<Real>& served, std::size_t slot, std::uint64_t position,
                                              token_id token) {
    flat_batch const one({{slot, position, {token}}});
    return served.score(one.batch()).values.row(0);
}

// ---- plain decoding ------------------------------------------------------------------------------------------------

/// The token at `position` by its definition: the first largest logit, or the outcome of the noise that `position`
/// owns in the request's law.
[[nodiscard]] inline token_id choose(std::span<float const> logits, sureleap::request_settings const& settings,
                                     std::uint64_t position, std::string const& rule) {
    if (settings.temperature == 0.0) {
        return static_cast<token_id>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
    std::vector<token_id> scratch(logits.size());
    sureleap::distribution<float> const p({logits, {}}, settings.target_transform(), scratch);
    sureleap::draw_key const noise{*settings.seed, position, 0, sureleap::purpose::noise};
    sureleap::philox_randomness const random;
    return rule == "coupled" ? random.gumbel_max(noise, p) : random.categorical(noise, p);
}

[[nodiscard]] inline std::vector<token_id> decode_plainly(engine::target<float>& served,
                                                          std::vector<token_id> const& prompt,
                                                          sureleap::request_settings const& settings,
                                                          std::string const& rule) {
    for (std::size_t t = 0; t + 1 < prompt.size(); ++t) (void)score_one(served, 0, t, prompt[t]);
    std::vector<token_id> out;
    token_id last = prompt.back();
    while (out.size() < settings.max_new_tokens) {
        std::uint64_t const position = prompt.size() - 1 + out.size();
        last = choose(score_one(served, 0, position, last), settings, position + 1, rule);
        out.push_back(last);
        if (settings.stops_at(last)) break;
    }
    return out;
}

}  // namespace tiny
