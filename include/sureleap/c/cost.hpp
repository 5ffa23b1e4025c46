// SPDX-License-Identifier: MIT
//
// The object behind sureleap_cost: one of the library's cost models, chosen when the program runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include <sureleap/c/cost.h>
#include <sureleap/c/handle.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cost/additive.hpp>
#include <sureleap/cost/capacity.hpp>
#include <sureleap/cost/padded.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace c {

/// Models cost_model. Immutable.
class chosen_cost {
public:
    using table = batch_cost<capacity_table<>>;
    using stairs = batch_cost<capacity_table<staircase>>;
    using closed_form = batch_cost<analytic_capacity>;

    explicit chosen_cost(std::variant<additive_cost, table, stairs, closed_form> model) : model_(std::move(model)) {}

    [[nodiscard]] double step_seconds(step_load const& load) const noexcept {
        return std::visit([&](auto const& m) { return m.step_seconds(load); }, model_);
    }

private:
    std::variant<additive_cost, table, stairs, closed_form> model_;
};

/// With no sizes the model as it is.
using any_cost = padded_cost<chosen_cost>;

[[nodiscard]] inline std::vector<std::size_t> sizes_of(char const* what, std::size_t const* sizes, std::size_t count) {
    if (count == 0) return {};
    expect_given("sureleap_cost", what, sizes);
    expect_size("sureleap_cost", what, count, 1, 4096);
    return {sizes, sizes + count};
}

[[nodiscard]] inline std::vector<capacity_point> points_of(sureleap_cost_options const& o) {
    expect_size("sureleap_cost", "points", o.points, 1, std::size_t{1} << 20);
    expect_given("sureleap_cost", "batch_tokens", o.batch_tokens);
    expect_given("sureleap_cost", "seconds", o.seconds);
    std::vector<capacity_point> points;
    for (std::size_t i = 0; i < o.points; ++i) points.push_back({o.batch_tokens[i], o.seconds[i]});
    return points;
}

[[nodiscard]] inline chosen_cost cost_of(sureleap_cost_options const& o) {
    expect_choice("sureleap_cost", "kind", o.kind, SURELEAP_COST_ANALYTIC);
    sureleap_prices const& p = o.prices;
    if (o.kind == SURELEAP_COST_ADDITIVE) {
        return chosen_cost(additive_cost({p.fixed, p.request, p.batch_token, p.context_token, p.draft_fixed,
                                          p.drafting_request, p.draft_token, p.unread_token, p.replay}));
    }
    if (p.fixed != 0.0 || p.request != 0.0 || p.batch_token != 0.0 || p.context_token != 0.0) {
        fail_with("sureleap_cost: prices.fixed, request, batch_token and context_token are ", p.fixed, ", ", p.request,
                  ", ", p.batch_token, " and ", p.context_token,
                  ", expected 0: the curve says what the batch takes, prices are for the draft");
    }
    draft_prices const draft{p.draft_fixed, p.drafting_request, p.draft_token, p.unread_token, p.replay};
    if (o.kind == SURELEAP_COST_ANALYTIC) return chosen_cost(of_batch(analytic_capacity(o.rate, o.overhead), draft));
    if (o.kind == SURELEAP_COST_TABLE) return chosen_cost(of_batch(capacity_table<>(points_of(o)), draft));
    return chosen_cost(of_batch(capacity_table<staircase>(points_of(o)), draft));
}

}  // namespace c
SURELEAP_END_NAMESPACE

struct sureleap_cost {
    static constexpr std::uint64_t kind = 0x5355'5245'436f'7374u;

    explicit sureleap_cost(sureleap_cost_options const& o)
        : model(sureleap::c::cost_of(o), sureleap::c::sizes_of("token_sizes", o.token_sizes, o.token_size_count),
                sureleap::c::sizes_of("request_sizes", o.request_sizes, o.request_size_count)) {}

    sureleap::c::handle<sureleap_cost> head{};
    sureleap::c::any_cost model;
};
