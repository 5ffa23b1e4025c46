// SPDX-License-Identifier: MIT
//
// Exactness does not depend on who drafts: autoregressive models, prompt lookup, drafts with a vocabulary of their own,
// drafts behind a logits hook.
#include <sureleap/drafter/with_lookup.hpp>

#include "support/exactness.hpp"

using namespace exactness;

namespace {

template <class Rule, class Visit>
void with_causal_confidence_schedules(Rule const& rule, Visit&& visit) {
    visit("fixed", fixed_schedule{}, rule);
    visit("greedy", greedy_schedule{smooth_capacity{}}, rule);
    visit("threshold", threshold_schedule{0.6}, rule);
    visit("top-K, lag 1", lagged_top_k<1>(cliff_capacity{}, 0.7), rule);
    visit("top-K, lag 2", top_k_schedule{jagged_capacity{}, 0.7}, rule);
}

template <class Visit>
void with_sampling_rules(Visit&& visit) {
    with_causal_confidence_schedules(token_rejection<>{}, visit);
    with_causal_confidence_schedules(block_verification<>{}, visit);
    with_causal_confidence_schedules(keyed_coupling{}, visit);
}

}  // namespace

TEST_CASE("autoregressive drafts with top-1 confidence are exact", "[exact]") {
    with_sampling_rules([](std::string const& name, auto const& schedule, auto const& rule) {
        for (world const& w : {world{8, 2, 3}, world{5, 3, 2}}) {
            check_exact(
                name, enumerator::noise::keyed, w, {{{}}, 3, 1}, [&] { return autoregressive_of(w); }, schedule, rule);
        }
        world const w{6, 2, 2};
        check_exact(
            name, enumerator::noise::keyed, w, {{{}, {{1}, {}, 1}}, 3, 0}, [&] { return autoregressive_of(w); },
            schedule, rule);
        // A drafted stop token ends the block: its length then depends on a drafted token, of which the others must not
        // learn before that token is admitted.
        scene stopped{{{}, {{1}, {}, 0}}, 2, 0};
        for (auto& request : stopped.requests) request.settings.stop_tokens = stop_token;
        world const three{9, 3, 2};
        check_exact(
            name, enumerator::noise::keyed, three, stopped, [&] { return autoregressive_of(three); }, schedule, rule);
    });
}

TEST_CASE("prompt lookup is exact, whatever it finds", "[exact]") {
    auto const check = [](std::string const& name, auto const& rule) {
        for (std::uint64_t const seed : {1u, 2u, 3u}) {
            world const w{seed, 3, 3};
            scene repeated{{{{0, 1, 2, 0, 1}}}, 4, 1};
            auto const make = [] { return lookup{{.block_size = 3, .target_vocabulary = 3}}; };
            check_exact(name, enumerator::noise::keyed, w, repeated, make, fixed_schedule{}, rule);
            check_exact(name, enumerator::noise::fresh, w, repeated, make, fixed_schedule{2}, rule);
        }
    };
    check("rejection", token_rejection<>{});
    check("block", block_verification<>{});
    check("match", target_match<>{});
    check("coupling", keyed_coupling{});
}

TEST_CASE("lookup joined with a model is exact, and what it learns of matches too", "[exact]") {
    // Short matches, and observations that count at once: confidences, and so lengths, differ from round to round.
    with_lookup_options const joined{
        .longest = 3,
        .shortest = 1,
        .acceptance = {.assumed = 0.6, .assumed_longest = 0.6, .assumed_weight = 1, .memory = 4}};
    auto const check = [&](std::string const& name, auto const& schedule, auto const& rule) {
        for (std::uint64_t const seed : {1u, 2u}) {
            world const w{seed, 2, 2};
            auto const make = [&] { return with_lookup{semi_of(w), joined}; };
            check_exact(name, enumerator::noise::keyed, w, {{{{0, 1, 0}}}, 3, 1}, make, schedule, rule);
            // One begins with a match and one without, each other's lengths depend on both.
            check_exact(name, enumerator::noise::keyed, w, {{{{1, 1}}, {{0}, {}, 0}}, 2, 1}, make, schedule, rule);
        }
    };
    with_sampling_rules(check);
    auto const planned = [&](auto const& rule) { check("planned", planned_schedule{cliff_capacity{}}, rule); };
    planned(token_rejection<>{});
    planned(block_verification<>{});
    planned(target_match<>{});
    // A block that lookup found may be longer than the model's.
    world const w{3, 2, 2};
    auto longer = joined;
    longer.block_size = 3;
    auto const make = [&] { return with_lookup{semi_of(w), longer}; };
    check_exact("greedy", enumerator::noise::keyed, w, {{{{0, 1, 0, 1}}}, 4, 0}, make,
                greedy_schedule{smooth_capacity{}}, block_verification<>{});
}

namespace {
/// Texts beside the context, in which places go on differently.
struct other_texts {
    ngram_index index{64};

    other_texts() {
        for (std::vector<token_id> const& text :
             {std::vector<token_id>{0, 1, 0, 0, 1}, {1, 0, 1, 1, 0, 1, 1}, {0, 1, 0, 0, 0}}) {
            index.append(text);
            index.end_text();
        }
    }
    template <class Visit>
    void look(request_view const&, Visit const& visit) const {
        visit(index.view());
    }
};
}  // namespace

TEST_CASE("lookup in other texts is exact, and what it learns of places that agree too", "[exact]") {
    other_texts const texts;
    with_lookup_options const joined{
        .longest = 3,
        .shortest = 2,
        .acceptance = {.assumed = 0.6, .assumed_longest = 0.6, .assumed_weight = 1, .memory = 4}};
    auto const check = [&](std::string const& name, auto const& schedule, auto const& rule) {
        for (std::uint64_t const seed : {1u, 2u}) {
            world const w{seed, 2, 2};
            auto const make = [&] { return with_lookup{semi_of(w), texts, joined}; };
            check_exact(name, enumerator::noise::keyed, w, {{{{0, 1, 0}}}, 3, 1}, make, schedule, rule);
            check_exact(name, enumerator::noise::keyed, w, {{{{1, 0}}, {{0}, {}, 0}}, 2, 1}, make, schedule, rule);
        }
    };
    with_sampling_rules(check);
    check("planned", planned_schedule{cliff_capacity{}}, block_verification<>{});
}

namespace {
/// Samples its tokens, and tells nobody from which q.
struct sampled_elsewhere {
    using value_type = double;
    struct forward_type {};
    static constexpr bool is_deterministic = true;  // for the rule they are: it is given the tokens
    static constexpr bool is_parallel = false;
    static constexpr bool has_confidence = true;
    world const* w;

    [[nodiscard]] std::size_t block_size() const { return w->block_size; }
    [[nodiscard]] std::size_t vocabulary() const { return w->vocabulary; }
    [[nodiscard]] std::size_t target_vocabulary() const { return w->vocabulary; }
    [[nodiscard]] forward_type forward(std::span<request_view const>) { return {}; }
    template <class DraftRule, class Rng>
    void draw(forward_type, DraftRule, draft_block<double>& block, Rng& rng) {
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            request_view const& request = block.requests()[r];
            token_id previous = request.anchor;
            for (std::size_t k = 0; k < request.draft_cap(block_size()); ++k) {
                std::vector<double> logits(vocabulary());
                for (std::size_t v = 0; v < logits.size(); ++v) {
                    logits[v] = w->base(request.anchor, request.position, k, v) + w->bias(previous, v);
                }
                distribution<double> const q{{logits, {}}, {}, {}};
                token_id const x = rng.categorical(block_key(request, k, purpose::draft), q);
                fixed_probability c = 0;
                if (!quantise(w->confidence(previous, k), c) || !block.append_found(r, x, vocabulary(), c)) break;
                previous = x;
            }
        }
    }
};
}  // namespace

TEST_CASE("a sampled token that is recorded one-hot is exact under any schedule", "[exact]") {
    world const w{12, 2, 2};
    auto const check = [&](std::string const& name, auto const& schedule) {
        auto const check_rule = [&](auto const& rule) {
            auto const make = [&] { return sampled_elsewhere{&w}; };
            check_exact(name, enumerator::noise::keyed, w, {{{}, {{1}, {}, 1}}, 2, 1}, make, schedule, rule);
        };
        check_rule(token_rejection<>{});
        check_rule(block_verification<>{});
        check_rule(target_match<>{});
        check_rule(keyed_coupling{});
    };
    check("greedy", greedy_schedule{smooth_capacity{}});
    check("top-K, lag 1", lagged_top_k<1>(cliff_capacity{}, 0.7));
    check("retrospective", retrospective_schedule{jagged_capacity{}});
}

TEST_CASE("a draft with a vocabulary of its own is exact", "[exact]") {
    // The draft knows two of three tokens, in another order.
    std::vector<token_id> const to_target{2, 0};
    vocabulary_map const map{to_target, 3};
    with_sampling_rules([&](std::string const& name, auto const& schedule, auto const& rule) {
        world const w{9, 3, 2};
        auto const make = [&] {
            return parallel{two_token_backbone{&w}, top1_confidence{},
                            drafter_options{.block_size = 2, .vocabulary = 2, .map = &map}};
        };
        check_exact(name, enumerator::noise::keyed, w, {{{}}, 3, 1}, make, schedule, rule);
    });
}

namespace {
/// Token 1 never follows token 0, and a repeated token is discouraged.
struct masking_hook {
    void operator()(hook_context const& at, std::span<double> logits) const {
        token_id const last = at.drafted.empty() ? at.request.anchor : at.drafted.back();
        if (last == 0) logits[1] = -std::numeric_limits<double>::infinity();
        logits[static_cast<std::size_t>(last)] -= 0.5;
    }
};
}  // namespace

TEST_CASE("a logits hook is part of the target's law", "[exact]") {
    world const w{4, 3, 2};
    auto target = target_of(w);
    auto const check = [&](auto const& rule) {
        using rule_type = std::remove_cvref_t<decltype(rule)>;
        law const found = decoder_law(enumerator::noise::keyed, {{{}}, 3, 1}, [&](auto rng) {
            return decoder<decltype(target)&, decltype(semi_of(w)), fixed_schedule, rule_type, masking_hook,
                           decltype(rng)>(target, semi_of(w), fixed_schedule{}, rule, decoder_options{.seed = 1},
                                          masking_hook{}, rng);
        });
        // The same law, from a target that has the grammar built in.
        law expected{{{}, 1.0}};
        for (std::size_t n = 0; n < 3; ++n) {
            law longer;
            for (auto const& [tokens, p] : expected) {
                std::vector<token_id> context{0};
                context.insert(context.end(), tokens.begin(), tokens.end());
                std::vector<double> logits(3);
                w.target(context, logits);
                request_view const view{.anchor = context.back()};
                masking_hook{}(hook_context{view, {}}, logits);
                distribution<double> const d{{logits, {}}, {}, {}};
                for (token_id v = 0; v < 3; ++v) {
                    if (!(d.probability(v) > 0.0)) continue;
                    outcome o = tokens;
                    o.push_back(v);
                    longer[o] += p * d.probability(v);
                }
            }
            expected = std::move(longer);
        }
        law closed;
        for (auto const& [tokens, p] : expected) {
            outcome o = tokens;
            o.push_back(-1);
            closed[o] = p;
        }
        CHECK(largest_difference(found, closed) <= tolerance);
        for (auto const& [o, p] : found) {
            for (std::size_t i = 0; i + 2 < o.size(); ++i) CHECK_FALSE((o[i] == 0 && o[i + 1] == 1));
        }
    };
    check(token_rejection<>{});
    check(block_verification<>{});
    check(keyed_coupling{});
    check(target_match<>{});
}
