// SPDX-License-Identifier: MIT
//
// Who drafts for a decoder of the C interface: a drafter with what it is made of, and what its drafts cost. A cost that
// nobody gave is measured: here that of drafting, with the target's passes in decoder.hpp.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <llama.h>

#include <sureleap/ext/llama/c/decoder.h>
#include <sureleap/c/handle.hpp>
#include <sureleap/confidence/estimate.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/cost/additive.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/lookup.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/drafter/tree_drafter.hpp>
#include <sureleap/drafter/with_lookup.hpp>
#include <sureleap/ext/llama/draft.hpp>
#include <sureleap/ext/llama/dspark.hpp>
#include <sureleap/ext/llama/features.hpp>
#include <sureleap/fit/profile.hpp>

struct sureleap_llama_dspark {
    static constexpr std::uint64_t kind = 0x5355'5245'4473'706bu;

    explicit sureleap_llama_dspark(char const* file) : model(file) {}

    sureleap::c::handle<sureleap_llama_dspark> head{};
    sureleap::llama_dspark model;
};

SURELEAP_BEGIN_NAMESPACE
namespace c {

/// One untimed pass of each size, and five that count by their median.
inline constexpr profile_settings timing{.warm_up = 1, .repeats = 5};

[[nodiscard]] inline llama_vocab const* vocabulary_of(llama_context const* context) noexcept {
    return llama_model_get_vocab(llama_get_model(context));
}

/// `Drafter`, with lookup beside it or not.
template <bool looks, class Drafter>
using maybe_with_lookup = std::conditional_t<looks, with_lookup<Drafter>, Drafter>;

/// Lookup alone. Where nobody is to draft, requests have no drafts.
class lookup_source {
public:
    explicit lookup_source(sureleap_llama_options const& o)
        : lookup_({.block_size = o.lookup != 0 ? o.block_size : 1,
                   .target_vocabulary = static_cast<std::size_t>(llama_vocab_n_tokens(vocabulary_of(o.target)))}) {}

    [[nodiscard]] lookup& drafter() noexcept { return lookup_; }
    [[nodiscard]] llama_features* features() const noexcept { return nullptr; }
    [[nodiscard]] draft_prices prices(sureleap_llama_options const&) const noexcept { return {}; }

private:
    lookup lookup_;
};

/// A second model.
template <bool looks>
class model_source {
public:
    explicit model_source(sureleap_llama_options const& o)
        : model_(
              o.draft, vocabulary_of(o.target),
              {.max_requests = o.max_requests, .block_size = o.block_size, .first_sequence = o.draft_first_sequence}),
          drafter_(autoregressive<llama_draft&, top1_confidence>{model_, top1_confidence{}, model_.options()}) {}

    [[nodiscard]] auto& drafter() noexcept { return drafter_; }
    [[nodiscard]] llama_features* features() const noexcept { return nullptr; }
    /// A pass drafts a token for every request. What was not read is read in one pass.
    [[nodiscard]] draft_prices prices(sureleap_llama_options const& o) {
        std::size_t const requests = o.max_requests;
        std::size_t const many = std::min<std::size_t>(llama_n_batch(o.draft), requests + 16);
        auto const curve = profile([&](std::size_t rows) { model_.dry_run(rows); }, {requests, many}, timing);
        double const pass = curve.points()[0].seconds;
        double const more = std::max(curve.points()[1].seconds - pass, 0.0);
        return {.token = pass / static_cast<double>(requests), .unread = more / static_cast<double>(many - requests)};
    }

private:
    llama_draft model_;
    maybe_with_lookup<looks, autoregressive<llama_draft&, top1_confidence>> drafter_;
};

/// A DSpark file: chains, or trees of up to tree_nodes tokens.
template <bool looks, bool trees>
class dspark_source {
    using chains =
        semi_autoregressive<llama_dspark&, llama_dspark::head_type const&, llama_dspark::confidence_type const&>;
    using drafts = std::conditional_t<trees, tree_drafter<chains>, chains>;

public:
    explicit dspark_source(sureleap_llama_options const& o) : model_(o.dspark->model), drafter_(drafts_of(model_, o)) {}

    [[nodiscard]] auto& drafter() noexcept { return drafter_; }
    [[nodiscard]] llama_features* features() const noexcept { return &model_.features(); }
    /// A pass drafts all blocks, and the head makes a row for each token.
    [[nodiscard]] draft_prices prices(sureleap_llama_options const& o) {
        std::size_t const requests = o.max_requests;
        double const first = seconds_of(1, [&](std::size_t) { model_.dry_run(1); });
        double const all = requests == 1 ? first : seconds_of(requests, [&](std::size_t r) { model_.dry_run(r); });
        double const request = std::max(all - first, 0.0) / static_cast<double>(std::max<std::size_t>(requests - 1, 1));
        std::vector<float> state(model_.head().state_size());
        std::vector<float> row(model_.options().vocabulary);
        double const token = seconds_of(1, [&](std::size_t) { model_.head().add_bias(state, {}, 0, row); });
        return {.fixed = std::max(first - request, 0.0), .request = request, .token = token};
    }

private:
    [[nodiscard]] static drafts drafts_of(llama_dspark& model, sureleap_llama_options const& o) {
        model.serve(o.target,
                    {.max_requests = o.max_requests, .block_size = std::min(o.block_size, model.most_drafts())});
        chains all{model, model.head(), model.confidence(), model.options()};
        if constexpr (trees) {
            return drafts{std::move(all), {.nodes = o.tree_nodes}};
        } else {
            return all;
        }
    }
    template <class Step>
    [[nodiscard]] static double seconds_of(std::size_t size, Step const& step) {
        return profile(step, {size}, timing).points()[0].seconds;
    }

    llama_dspark& model_;
    maybe_with_lookup<looks, drafts> drafter_;
};

}  // namespace c
SURELEAP_END_NAMESPACE
