// SPDX-License-Identifier: MIT
//
// A sequential head that leaves only some tokens to draw from: the best of the backbone's base logits, and, if asked
// for, the best successors of the previous token by the head's own bias. A head that knows its candidates before it
// looks at its tables needs only their rows, which is what makes a shortlist fast; here it is only about what the
// restriction costs in acceptance, so all logits are computed and most are thrown away. q is what is drawn from, so any
// rule stays exact.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <engine/heads.hpp>
#include <sureleap/types.hpp>

namespace evaluate {

struct shortlist {
    std::size_t base = 0;        ///< tokens by base logits
    std::size_t successors = 0;  ///< tokens by the bias; may be the same ones
};

/// Models sureleap::sequential_head. Not for several threads: scratch is shared.
class shortlist_head {
public:
    using value_type = float;

    shortlist_head(engine::any_head<float> head, shortlist sizes) : head_(std::move(head)), sizes_(sizes) {}

    [[nodiscard]] std::size_t vocabulary() const noexcept { return head_.vocabulary(); }
    [[nodiscard]] std::size_t previous_vocabulary() const noexcept { return head_.previous_vocabulary(); }
    [[nodiscard]] std::size_t hidden_size() const noexcept { return head_.hidden_size(); }
    [[nodiscard]] std::size_t state_size() const noexcept { return head_.state_size(); }
    void reset(std::span<float> state) const noexcept { head_.reset(state); }

    void add_bias(std::span<float> state, std::span<float const> hidden, sureleap::token_id previous,
                  std::span<float> logits) const noexcept {
        base_.assign(logits.begin(), logits.end());
        head_.add_bias(state, hidden, previous, logits);
        bias_.resize(logits.size());
        std::transform(logits.begin(), logits.end(), base_.begin(), bias_.begin(), std::minus<>{});
        float const least_base = largest(base_, sizes_.base);
        float const least_bias = largest(bias_, sizes_.successors);
        for (std::size_t v = 0; v < logits.size(); ++v) {
            if (base_[v] < least_base && bias_[v] < least_bias) logits[v] = -std::numeric_limits<float>::infinity();
        }
    }

private:
    /// The n-th largest number; infinity for n = 0, and -infinity if there are not more than n.
    [[nodiscard]] float largest(std::vector<float> const& values, std::size_t n) const noexcept {
        constexpr float infinity = std::numeric_limits<float>::infinity();
        if (n == 0) return infinity;
        if (n >= values.size()) return -infinity;
        order_ = values;
        auto const nth = order_.begin() + static_cast<std::ptrdiff_t>(n - 1);
        std::nth_element(order_.begin(), nth, order_.end(), std::greater<>{});
        return *nth;
    }

    engine::any_head<float> head_;
    shortlist sizes_;
    mutable std::vector<float> base_, bias_, order_;
};

}  // namespace evaluate
