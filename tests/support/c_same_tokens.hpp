// SPDX-License-Identifier: MIT
//
// 10,000 random rounds of a storage format, over every rule, draft rule, schedule and way of drafting that keep the
// target's law together (support/c_rounds.hpp has the rounds).
#pragma once

#include "support/c_rounds.hpp"

namespace c_rounds {

enum class calibrated { no, before, online };

/// The same calibration in C++ and behind the header.
class both_calibrations {
public:
    explicit both_calibrations(calibrated how) : how_(how), memory_(sureleap_calibration_bytes()) {
        if (how == calibrated::no) return;
        double const temperatures[block_size] = {1.3, 0.8, 1.1, 2.0};
        double const offsets[block_size] = {0.1, -0.2, 0.0, 0.4};
        std::vector<logit_scaling> prior;
        for (std::size_t k = 0; k < block_size; ++k) prior.push_back({temperatures[k], offsets[k]});
        sureleap_calibration_options o;
        sureleap_calibration_options_init(&o);
        o.kind = how == calibrated::before ? SURELEAP_CALIBRATION_FIXED : SURELEAP_CALIBRATION_ONLINE;
        o.block_size = block_size;
        o.temperatures = temperatures;
        o.offsets = offsets;
        o.fit = SURELEAP_FIT_HISTORY;
        o.max_requests = most_requests;
        o.tenants = 8;
        REQUIRE(sureleap_calibration_create(&o, memory_.data(), memory_.size(), &c_, nullptr) == SURELEAP_OK);
        if (how == calibrated::before) {
            fixed_.emplace(prior);
        } else {
            online_.emplace(block_size,
                            online_calibration_settings{.maps = {.terms = online_terms::history, .prior = prior},
                                                        .max_requests = most_requests,
                                                        .tenants = 8});
        }
    }
    ~both_calibrations() {
        if (c_ != nullptr) CHECK(sureleap_calibration_destroy(c_) == SURELEAP_OK);
    }
    both_calibrations(both_calibrations const&) = delete;
    both_calibrations& operator=(both_calibrations const&) = delete;

    [[nodiscard]] calibration_ref cpp() const {
        if (fixed_) return *fixed_;
        if (online_) return *online_;
        return {};
    }
    [[nodiscard]] sureleap_calibration* c() const { return c_; }
    [[nodiscard]] online_calibration* learns() { return online_ ? &*online_ : nullptr; }

    void expect_equal() const {
        if (how_ != calibrated::online) return;
        double temperatures[block_size];
        double offsets[block_size];
        REQUIRE(sureleap_calibration_maps(c_, temperatures, offsets, block_size) == SURELEAP_OK);
        for (std::size_t k = 0; k < block_size; ++k) {
            REQUIRE(temperatures[k] == 1.0 / online_->shared().map(k).slope);
            REQUIRE(offsets[k] == online_->shared().map(k).offset);
        }
    }

private:
    calibrated how_;
    memory memory_;
    sureleap_calibration* c_ = nullptr;
    std::optional<sequential_scaling> fixed_{};
    std::optional<online_calibration> online_{};
};

template <class T>
void same_tokens(calibrated how_calibrated) {
    c_curve const cost;
    std::uint64_t seed = 20261125;
    std::size_t rounds = 0;
#if SURELEAP_TEST_QUICK
    constexpr std::size_t each = 8;
#else
    constexpr std::size_t each = 42;
#endif
    for_each_schedule([&](std::int32_t schedule, std::size_t lag, auto const& cpp_schedule) {
        using schedule_type = std::remove_cvref_t<decltype(cpp_schedule)>;
        constexpr bool looks_ahead = causality_of_v<schedule_type> == causality::anticipating;
        for_each_rule([&](std::int32_t rule, std::int32_t draft_rule, auto const& cpp_rule) {
            using rule_type = std::remove_cvref_t<decltype(cpp_rule)>;
            sureleap_round_options o;
            sureleap_round_options_init(&o);
            o.rule = rule;
            o.draft_rule = draft_rule;
            o.schedule = schedule;
            o.lag = lag;
            o.prior = 0.7;
            o.threshold = schedule == SURELEAP_THRESHOLD ? 0.5 : 0.4;
            o.fixed_length = 3;
            o.cost = cost.get();
            o.confidence = SURELEAP_CONFIDENCE_GIVEN;
            o.plans_at_anchor = 1;
            o.target_format = o.draft_format = format_of<T>();
            o.max_requests = most_requests;
            o.block_size = block_size;
            ++seed;
            o.vocabulary = o.list_size = seed % 16 == 0 ? 1100 : 5 + seed % 13;  // 1100: more than a block of sums

            INFO("seed " << seed << ", rule " << rule << " draft rule " << draft_rule << ", schedule " << schedule);
            traffic<T> from(seed, o.vocabulary, rule == SURELEAP_GREEDY_MATCH);
            numbers<T> n;
            n.vocabulary = o.vocabulary;
            both_calibrations calibration(how_calibrated);
            auto const run = [&](way how, auto const& drafter) {
                compare<T>(o, how, drafter, cpp_schedule, cpp_rule, calibration.cpp(), calibration.c(),
                           calibration.learns(), from, n, each);
                calibration.expect_equal();
                rounds += each;
            };
            using drafter_type = parallel<backbone_of<T>, given_confidence>;
            constexpr bool lossless = is_lossless_round_v<rule_type, schedule_type, drafter_type>;
            std::size_t bytes = 0;
            REQUIRE(sureleap_round_bytes(&o, &bytes, nullptr) == (lossless ? SURELEAP_OK : SURELEAP_NOT_LOSSLESS));
            constexpr bool categorical = std::is_same_v<typename rule_type::draft_rule, categorical_draft>;
            drafter_options const shape{.block_size = block_size, .vocabulary = o.vocabulary, .hidden_size = 1};
            if constexpr (lossless) {
                drafter_type drafter{backbone_of<T>{&n}, given_confidence{}, shape};
                run(way::block, drafter);
                run(way::step_by_step, drafter);
                if constexpr (categorical) run(way::drawn_outside, drafter);
            }
            if constexpr (std::is_same_v<schedule_type, live>) {
                o.q = SURELEAP_Q_SPARSE;
                run(way::lists, listing_drafter<T, false>{&n});
            }
            if constexpr (std::is_same_v<schedule_type, live> || looks_ahead) {
                o.q = SURELEAP_Q_ONE_HOT;
                run(way::one_hot, listing_drafter<T, true>{&n});
            }
        });
    });
    CHECK(rounds >= 240 * each);  // 10,000 where it is not quick
    WARN(rounds << " rounds, seeds from 20261126 to " << seed);
}

}  // namespace c_rounds
