// SPDX-License-Identifier: MIT
//
// A cost model with padding, for engines that replay captured graphs of a few sizes. Such an engine pads its batch to
// the next size and pays for the padding. Times become a staircase in B: tokens up to the next size are free, the one
// after it is dear. A schedule that knows this fills the batch up to a size. One that does not stops below it, or one
// token beyond.
//
//   padded_cost cost{model, {1, 2, 4, 8, 16, 24, 32, 64, 128, 256}};
//
// planned_schedule and top_k_schedule search beyond the edges of stairs; greedy_schedule stops at the first.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cost/sample.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

inline void check_graph_sizes(std::string const& who, std::vector<std::size_t> const& sizes) {
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (sizes[i] == 0) fail_with(who, " at index ", i, ": got 0, expected at least 1");
        if (sizes[i] > most_tokens)
            fail_with(who, " at index ", i, ": got ", sizes[i], ", expected ", most_tokens_text);
        if (i > 0 && sizes[i] <= sizes[i - 1]) {
            fail_with(who, " at index ", i, ": got ", sizes[i], " after ", sizes[i - 1],
                      ", expected strictly ascending sizes");
        }
    }
}

}  // namespace detail

/// A model asked for the sizes that really run. Models cost_model. Immutable; a copy copies the sizes. O(log sizes) and
/// at most two questions to the model.
///
/// - Batch tokens are rounded up to a size of `token_sizes`; requests, if `request_sizes` are given, to one of those
///   first, each padded request with a token. No sizes at all: the model as it is.
/// - Beyond the largest size a step runs several graphs, all full but the last, which is padded like any batch.
///   Requests (at least one each) and contexts are divided among them evenly, and each is launched; drafting, and what
///   is paid for the past, are paid once. Rejected: going on without padding, which is what an engine does that falls
///   back to running without graphs: its times jump there, and that is for cells to say (cell_cost).
/// - More requests than the largest of `request_sizes` are rounded up to a multiple of it.
template <cost_model Model>
class padded_cost {
public:
    using model_type = Model;

    /// Error if sizes are 0 or above 2^62, or do not ascend.
    explicit padded_cost(Model model, std::vector<std::size_t> token_sizes, std::vector<std::size_t> request_sizes = {})
        : model_(std::move(model)), token_sizes_(std::move(token_sizes)), request_sizes_(std::move(request_sizes)) {
        detail::check_graph_sizes("padded_cost: token_sizes", token_sizes_);
        detail::check_graph_sizes("padded_cost: request_sizes", request_sizes_);
    }

    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        step_load last = load;
        last.requests = padded(request_sizes_, std::max<std::size_t>(load.requests, 1));
        last.batch_tokens = std::max(load.batch_tokens, last.requests);
        std::size_t const full = full_graphs(last.batch_tokens);
        if (full == 0) {
            last.batch_tokens = padded(token_sizes_, last.batch_tokens);
            return static_cast<double>(model_.step_seconds(last));
        }
        step_load const one{.requests = std::max<std::size_t>(last.requests / (full + 1), 1),
                            .batch_tokens = token_sizes_.back(),
                            .context_tokens = last.context_tokens / (full + 1)};
        last.requests -= std::min(last.requests - 1, full * one.requests);
        last.context_tokens -= full * one.context_tokens;
        last.batch_tokens = padded(token_sizes_, last.batch_tokens - full * one.batch_tokens);
        return std::fma(static_cast<double>(full), static_cast<double>(model_.step_seconds(one)),
                        static_cast<double>(model_.step_seconds(last)));
    }

    [[nodiscard]] Model const& model() const noexcept { return model_; }
    [[nodiscard]] std::vector<std::size_t> const& token_sizes() const noexcept { return token_sizes_; }
    [[nodiscard]] std::vector<std::size_t> const& request_sizes() const noexcept { return request_sizes_; }

private:
    [[nodiscard]] static std::size_t padded(std::vector<std::size_t> const& sizes, std::size_t n) noexcept {
        if (sizes.empty()) return n;
        auto const next = std::lower_bound(sizes.begin(), sizes.end(), n);
        if (next != sizes.end()) return *next;
        return (n + sizes.back() - 1) / sizes.back() * sizes.back();
    }
    /// Graphs of the largest size before the last one, which holds what is left, at least one token.
    [[nodiscard]] std::size_t full_graphs(std::size_t batch_tokens) const noexcept {
        if (token_sizes_.empty() || batch_tokens == 0) return 0;
        return (batch_tokens - 1) / token_sizes_.back();
    }

    Model model_;
    std::vector<std::size_t> token_sizes_;
    std::vector<std::size_t> request_sizes_;
};

SURELEAP_END_NAMESPACE
