// SPDX-License-Identifier: MIT
//
// Two more ways in which rounds fail and are run again (the others are in every_part.hpp). One is a draft model that
// throws when it sees a drafted token. The other is an engine whose batch was too large and which runs its requests one
// by one. Some seconds.
#include "support/every_part.hpp"

using namespace every_part;

namespace {

/// Long batches pay.
struct cheap_rows {
    [[nodiscard]] double steps_per_second(std::size_t b) const { return 1.0 / (8.0 + static_cast<double>(b)); }
};

/// The schedules that need nothing at the anchor, in the adapters that change their minds.
template <class Visit>
void for_each_live_or_lagged(Visit&& visit) {
    visit("fixed", fixed_schedule{});
    visit("threshold", threshold_schedule{0.6});
    visit("greedy in never_lose",
          never_lose{greedy_schedule{cheap_rows{}}, dear_drafts{}, {.prior = 0.6, .probing = 0.3}});
    visit("top-K, lag 1", lagged_top_k<1>(cliff_capacity{}, 0.7));
    visit("top-K, lag 2, in hysteresis", hysteresis{top_k_schedule{cheap_rows{}, 0.7}, {.margin = 0.3}});
}

template <class Schedule, class Rule>
void check_failing_drafter(std::string const& name, Schedule const& schedule, Rule const& rule) {
    for (trial const& t : scenes<Rule>()) {
        bad_luck luck{trouble::draw};
        auto const make = [&] { return failing_autoregressive(t.where, luck); };
        law const found = law_in_trouble(t.where, t.what, luck, company::same, make, schedule, rule);
        INFO(name << ", world " << t.where.seed << ", requests " << t.what.requests.size());
        CHECK(luck.struck > 0);
        CHECK(largest_difference(found, autoregressive_law(t.where, t.what)) <= tolerance);
    }
}

/// Runs everybody together and, when the batch was too large, each alone.
template <class Schedule, class Rule>
class splitting_engine {
    using target_type = decltype(unlucky_target{target_of(std::declval<world const&>()), nullptr});

public:
    splitting_engine(world const& w, std::size_t requests, Schedule const& schedule, Rule const& rule,
                     enumerator::source rng, std::size_t& split)
        : luck_(std::make_unique<bad_luck>(bad_luck{trouble::score})),
          split_(&split),
          engine_(unlucky_target{target_of(w), luck_.get()}, semi_of(w), schedule, rule,
                  decoder_options{.max_requests = requests, .seed = 1}, no_logits_hook{}, rng) {}

    request_id submit(std::span<token_id const> prompt, request_settings const& settings) {
        ids_.push_back(engine_.submit(prompt, settings));
        return ids_.back();
    }
    void cancel(request_id id) { engine_.cancel(id); }
    bool step() {
        events_.clear();
        texts_.clear();
        luck_->armed = true;
        try {
            if (!engine_.step()) return false;
            keep();
        } catch (failed_round const&) {
            ++*split_;
            luck_->armed = false;
            std::vector<request_id> running;
            for (request_id const id : ids_) {
                if (engine_.knows(id) && engine_.state(id) == request_state::running) running.push_back(id);
            }
            // The last one first: nothing depends on the order.
            for (request_id const id : running) engine_.pause(id);
            for (auto id = running.rbegin(); id != running.rend(); ++id) {
                engine_.resume(*id);
                REQUIRE(engine_.step());
                keep();
                if (engine_.knows(*id)) engine_.pause(*id);
            }
            for (request_id const id : running) {
                if (engine_.knows(id)) engine_.resume(id);
            }
        }
        for (std::size_t i = 0; i < events_.size(); ++i) events_[i].tokens = texts_[i];
        return true;
    }
    [[nodiscard]] std::span<request_event const> events() const { return events_; }

private:
    void keep() {
        for (request_event const& e : engine_.events()) {
            events_.push_back(e);
            texts_.emplace_back(e.tokens.begin(), e.tokens.end());
        }
    }

    std::unique_ptr<bad_luck> luck_;
    std::size_t* split_;
    std::vector<request_id> ids_;
    std::vector<request_event> events_;
    std::vector<std::vector<token_id>> texts_;
    decoder<target_type, decltype(semi_of(std::declval<world const&>())), Schedule, Rule, no_logits_hook,
            enumerator::source>
        engine_;
};

template <class Schedule, class Rule>
void check_splitting(std::string const& name, Schedule const& schedule, Rule const& rule) {
    for (trial const& t : scenes<Rule>()) {
        if (t.what.requests.size() < 2 || t.where.stop != no_token) continue;  // texts that end have no large batches
        std::size_t split = 0;
        law result;
        enumerator walk{enumerator::noise::keyed};
        walk.for_each_path([&] {
            splitting_engine<Schedule, Rule> dec(t.where, t.what.requests.size(), schedule, rule, walk.handle(), split);
            outcome const seen = play(dec, t.what);
            result[seen] += walk.weight();
        });
        INFO(name << ", world " << t.where.seed);
        CHECK(split > 0);
        CHECK(largest_difference(result, autoregressive_law(t.where, t.what)) <= tolerance);
    }
}

}  // namespace

TEST_CASE("a draft model that fails at what it drafted: exact", "[exact][long]") {
    for_each_live_or_lagged([](std::string const& name, auto const& schedule) {
        check_failing_drafter(name, schedule, token_rejection<>{});
        check_failing_drafter(name, schedule, block_verification<>{});
    });
}

TEST_CASE("requests of a batch that was too large, one by one: exact", "[exact][long]") {
    for_each_live_or_lagged([](std::string const& name, auto const& schedule) {
        check_splitting(name, schedule, token_rejection<>{});
        check_splitting(name, schedule, block_verification<>{});
        check_splitting(name, schedule, keyed_coupling{});
    });
    check_splitting("planned", planned_schedule{cheap_rows{}}, token_rejection<>{});
}

// Between two attempts the other request's round changes what siblings are thought to be worth.
TEST_CASE("a tree whose round failed is grown again in its shape: exact", "[exact][long]") {
    bad_luck luck{trouble::row};
    auto const check = [&](auto const& rule) {
        for (std::uint64_t seed = 50; seed < 53; ++seed) {
            world const w{seed, 3, 2};
            scene const s{{{}, {.prompt = {1}}}, 2, 1};
            INFO("world " << seed);
            drafter_for<std::remove_cvref_t<decltype(rule)>> const make{&w};
            law const found = law_in_trouble(w, s, luck, company::same, make, fixed_schedule{}, rule);
            CHECK(largest_difference(found, autoregressive_law(w, s)) <= tolerance);
        }
    };
    check(recursive_rejection<>{});
    check(traversal_verification<>{});
    CHECK(luck.struck > 0);
}
