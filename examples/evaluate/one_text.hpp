// SPDX-License-Identifier: MIT
//
// A target alone, on one text whose tokens are given: nothing is drafted, sampled or accepted.
//
//   one_text text(*who.models.target);
//   auto const rows = text.score(0, tokens);  // row i: logits of the token after tokens[i]
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <engine/target.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/verify/verify_batch.hpp>

namespace evaluate {

/// Slot 0 of a target. The target must outlive it.
class one_text {
public:
    explicit one_text(engine::target<float>& target) : target_(target) {
        sureleap::workspace sizer;
        static_cast<void>(sureleap::verify_batch(sizer, 1, most_rows()));
        memory_.resize(sizer.used());
    }
    one_text(one_text const&) = delete;
    one_text& operator=(one_text const&) = delete;

    /// Tokens in one pass, at most.
    [[nodiscard]] std::size_t most_rows() const noexcept { return target_.limits().max_rows; }

    /// One pass over tokens at positions first, first + 1, ... Those before must have been passed. Valid until the
    /// next.
    [[nodiscard]] sureleap::logits_rows<float> score(std::uint64_t first, std::span<sureleap::token_id const> tokens) {
        sureleap::request_view const request{
            .id = 1, .slot = 0, .anchor = tokens[0], .position = first, .remaining = 1, .settings = &settings_};
        sureleap::workspace carver{memory_};
        sureleap::verify_batch batch(carver, 1, most_rows());
        batch.begin(std::span(&request, 1));
        batch.append(tokens.subspan(1));
        return target_.score(batch);
    }

private:
    engine::target<float>& target_;
    sureleap::request_settings settings_;
    std::vector<std::byte> memory_;
};

/// Sum of -log p(token | those before) over all tokens but the first, which nothing predicts.
[[nodiscard]] inline double nats_of(one_text& text, std::span<sureleap::token_id const> tokens) {
    auto const log_sum_exp = [](std::span<float const> logits) {
        auto const largest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
        double sum = 0;
        for (float const x : logits) sum += std::exp(static_cast<double>(x) - largest);
        return largest + std::log(sum);
    };
    double nats = 0;
    for (std::size_t first = 0; first + 1 < tokens.size(); first += text.most_rows()) {
        std::size_t const rows = std::min(text.most_rows(), tokens.size() - 1 - first);
        auto const logits = text.score(first, tokens.subspan(first, rows)).values;
        for (std::size_t i = 0; i < rows; ++i) {
            auto const next = static_cast<std::size_t>(tokens[first + i + 1]);
            nats += log_sum_exp(logits.row(i)) - static_cast<double>(logits.row(i)[next]);
        }
    }
    return nats;
}

}  // namespace evaluate
