// SPDX-License-Identifier: MIT
//
// Parallel drafting: every position is drawn from its own base logits, independently of tokens drafted before it. It is
// cheap, but its acceptance decays along the block (suffix decay). A sequential head corrects that at little cost.
#pragma once

#include <utility>

#include <sureleap/core/config.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/head/none.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A backbone without a sequential head. Models drafter.
template <class Backbone, class Confidence = no_confidence>
class parallel
    : public semi_autoregressive<Backbone, no_head<compute_t<typename detail::forward_result_t<Backbone>::value_type>>,
                                 Confidence> {
    using head = no_head<compute_t<typename detail::forward_result_t<Backbone>::value_type>>;
    using base = semi_autoregressive<Backbone, head, Confidence>;

public:
    parallel(Backbone model, Confidence confidence, drafter_options const& options)
        : base(std::forward<Backbone>(model), head{}, std::forward<Confidence>(confidence), options) {}
    parallel(Backbone model, drafter_options const& options)
        requires std::is_same_v<Confidence, no_confidence>
        : base(std::forward<Backbone>(model), head{}, Confidence{}, options) {}
};

template <class B, class C>
parallel(B&&, C&&, drafter_options const&) -> parallel<B, C>;
template <class B>
parallel(B&&, drafter_options const&) -> parallel<B, no_confidence>;

SURELEAP_END_NAMESPACE
