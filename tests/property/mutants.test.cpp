// SPDX-License-Identifier: MIT
//
// Every bug of support/mutants.hpp is put back and must be caught. Where a bug needs the keyed noise to be seen, the
// test shows that the fresh one is blind to it.
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "support/mutants.hpp"

using namespace mutants;

namespace {

/// Bias of a decoder whose random source is wrapped by wrap(source).
template <class Schedule, class Rule, class Wrap>
double bias_with(enumerator::noise kind, world const& w, scene const& s, Schedule const& schedule, Rule const& rule,
                 Wrap const& wrap) {
    auto target = target_of(w);
    law const found = decoder_law(kind, s, [&](enumerator::source source) {
        auto rng = wrap(source);
        return decoder<decltype(target)&, decltype(semi_of(w)), Schedule, Rule, no_logits_hook, decltype(rng), true>(
            target, semi_of(w), schedule, rule, allow_lossy,
            decoder_options{.max_requests = s.requests.size(), .seed = 1}, no_logits_hook{}, rng);
    });
    return total_variation(found, autoregressive_law(w, s));
}

template <class Rename>
auto renaming(Rename rename) {
    return [rename](enumerator::source s) { return renamed_source<Rename>{s, rename}; };
}
template <class Change>
auto misdrawing(Change change) {
    return [change](enumerator::source s) { return misdrawing_source<Change>{s, change}; };
}

template <class Bias>
double worst(Bias&& bias) {
    double largest = 0.0;
    for (std::uint64_t seed = 1; seed <= 12; ++seed) largest = std::max(largest, bias(seed));
    return largest;
}

struct unchanged {
    [[nodiscard]] draw_key operator()(draw_key key) const { return key; }
};

}  // namespace

TEST_CASE("mutant control: the harness itself adds no bias", "[mutant]") {
    CHECK(worst([](std::uint64_t seed) {
              return bias_with(enumerator::noise::keyed, {seed, 3, 2}, {{{}}, 3, 1}, fixed_schedule{},
                               token_rejection<>{}, renaming(unchanged{}));
          }) <= tolerance);
}

TEST_CASE("mutant: draws keyed by absolute position", "[mutant]") {
    auto const bias = [&](enumerator::noise kind, std::size_t gamma, auto const& schedule, auto const& rule) {
        return worst([&](std::uint64_t seed) {
            return bias_with(kind, {seed, 2, gamma}, {{{}}, 3, 2}, schedule, rule, renaming(by_absolute_position{}));
        });
    };
    CHECK(bias(enumerator::noise::keyed, 2, fixed_schedule{}, block_verification<>{}) > visible);
    // Token rejection never looks at draws behind a rejection; a budget made from last round's confidences does.
    CHECK(bias(enumerator::noise::keyed, 3, fixed_schedule{}, token_rejection<>{}) <= tolerance);
    CHECK(bias(enumerator::noise::keyed, 3, lagged_top_k<1>(cliff_capacity{}, 0.7), token_rejection<>{}) > visible);
    // A draw that is used twice is invisible to an enumerator in which every question is new.
    CHECK(bias(enumerator::noise::fresh, 2, fixed_schedule{}, block_verification<>{}) <= tolerance);
}

TEST_CASE("mutant: the residual reuses the draft's noise or the acceptance uniform", "[mutant]") {
    scene const s{{{}}, 3, 0};
    auto const bias = [&](enumerator::noise kind, auto const& rename) {
        return worst([&](std::uint64_t seed) {
            return bias_with(kind, {seed, 3, 2}, s, fixed_schedule{}, token_rejection<>{}, renaming(rename));
        });
    };
    CHECK(bias(enumerator::noise::keyed, residual_reuses_draft{}) > visible);
    CHECK(bias(enumerator::noise::keyed, residual_reuses_accept{}) > visible);
    CHECK(bias(enumerator::noise::fresh, residual_reuses_draft{}) <= tolerance);
}

TEST_CASE("mutant: u = 0 always accepts", "[mutant]") {
    // u = 0 has probability 2^-53 in production and 0 here, so it is asked for by name.
    CHECK_FALSE(accepts(0.0, 0.0, 0.5));
    CHECK(accepts(0.0, 1e-300, 0.5));
    auto const mutant = [](double u, double num, double den) { return u * den <= num; };
    CHECK(mutant(0.0, 0.0, 0.5));
}

TEST_CASE("mutant: the recorded q is not the q that was sampled", "[mutant]") {
    scene const s{{{}}, 2, 1};
    auto const bias = [&](auto const& change, auto const& rule) {
        return worst([&](std::uint64_t seed) {
            return bias_with(enumerator::noise::keyed, {seed, 3, 2}, s, fixed_schedule{}, rule, misdrawing(change));
        });
    };
    CHECK(bias(coarse{}, token_rejection<>{}) > visible);
    CHECK(bias(truncated_to_two{}, token_rejection<>{}) > visible);
    CHECK(bias(argmax_only{}, token_rejection<>{}) > 0.05);
    CHECK(bias(argmax_only{}, block_verification<>{}) > 0.05);
}

TEST_CASE("mutant: the user's truncation is not applied to p", "[mutant]") {
    scene wanted{{{}}, 2, 1};
    wanted.requests[0].settings.top_p = 0.7;
    scene forgotten = wanted;
    forgotten.requests[0].settings.top_p = 1.0;
    CHECK(worst([&](std::uint64_t seed) {
              world const w{seed, 3, 2};
              law const found = law_of(
                  enumerator::noise::keyed, w, forgotten, [&] { return semi_of(w); }, fixed_schedule{},
                  token_rejection<>{});
              return total_variation(found, autoregressive_law(w, wanted));
          }) > visible);
}

TEST_CASE("mutant: generation goes on after a stop token inside the accepted prefix", "[mutant]") {
    scene wanted{{{}}, 3, 2};
    wanted.requests[0].settings.stop_tokens = stop_token;
    scene ignored = wanted;
    ignored.requests[0].settings.stop_tokens = {};
    CHECK(worst([&](std::uint64_t seed) {
              world const w{seed, 3, 2};
              law const found = law_of(
                  enumerator::noise::keyed, w, ignored, [&] { return semi_of(w); }, fixed_schedule{},
                  token_rejection<>{});
              return total_variation(found, autoregressive_law(w, wanted));
          }) > visible);
}

TEST_CASE("mutant: block verification with the token rule's residual or acceptance", "[mutant]") {
    scene const s{{{}}, 3, 1};
    auto const bias = [&](auto const& rule) {
        return worst([&](std::uint64_t seed) {
            world const w{seed, 3, 3};
            return bias_of(
                enumerator::noise::fresh, w, {{{}}, 2, 2}, [&] { return semi_of(w); }, fixed_schedule{2}, rule);
        });
    };
    CHECK(bias(mixed_block<false, false>{}) <= tolerance);
    CHECK(bias(mixed_block<true, false>{}) > visible);
    CHECK(bias(mixed_block<false, true>{}) > visible);
    CHECK(bias(mixed_block<true, true>{}) > visible);
}

TEST_CASE("mutant: the residual is subtracted by list index instead of token id", "[mutant]") {
    std::vector<token_id> const to_target{2, 0};
    vocabulary_map const map{to_target, 3};
    auto const bias = [&](auto const& rule) {
        return worst([&](std::uint64_t seed) {
            world const w{seed, 3, 2};
            auto const make = [&] {
                return parallel{two_token_backbone{&w}, drafter_options{.block_size = 2, .vocabulary = 2, .map = &map}};
            };
            return bias_of(enumerator::noise::keyed, w, {{{}}, 3, 1}, make, fixed_schedule{}, rule);
        });
    };
    CHECK(bias(token_rejection<>{}) <= tolerance);
    CHECK(bias(block_verification<>{}) <= tolerance);
    CHECK(bias(keyed_coupling{}) <= tolerance);
    CHECK(bias(list_index_rejection{&map}) > visible);
}

TEST_CASE("mutant: all requests share one stream", "[mutant]") {
    scene const two{{{}, {{1}}}, 2, 0};
    auto const bias = [&](auto const& rename) {
        return worst([&](std::uint64_t seed) {
            return bias_with(enumerator::noise::keyed, {seed, 2, 2}, two, fixed_schedule{}, token_rejection<>{},
                             renaming(rename));
        });
    };
    CHECK(bias(unchanged{}) <= tolerance);
    CHECK(bias(one_stream{}) > visible);
}

TEST_CASE("mutant: seeds that depend on the place in the batch", "[mutant]") {
    // The law survives this one; what breaks is that a request's stream is its own. Same seed, same prompt, two places.
    world const w{3, 3, 2};
    auto target = target_of(w);
    auto const stream = [&](std::size_t place, bool mutant) {
        decoder dec{target, semi_of(w), greedy_schedule{smooth_capacity{}}, keyed_coupling{}, {.max_requests = 3}};
        std::vector<token_id> const prompt{0};
        request_id mine = 0;
        for (std::size_t i = 0; i <= place; ++i) {
            auto const id =
                dec.submit(prompt, {.seed = i == place ? 5 + (mutant ? place : 0) : 900 + i, .max_new_tokens = 40});
            if (i == place) mine = id;
        }
        while (dec.step()) {
        }
        auto const tokens = dec.generated(mine);
        return std::vector<token_id>(tokens.begin(), tokens.end());
    };
    CHECK(stream(0, false) == stream(1, false));
    CHECK(stream(0, false) == stream(2, false));
    CHECK(stream(0, true) != stream(1, true));
}

TEST_CASE("mutant: a confidence that was computed after x_k was drawn", "[mutant]") {
    auto const bias = [](auto const& schedule, auto peeks) {
        return worst([&](std::uint64_t seed) {
            world const w{seed, 2, 2};
            scene const s{{{}}, 3, 1};
            auto target = target_of(w);
            using schedule_type = std::remove_cvref_t<decltype(schedule)>;
            law const found = decoder_law(enumerator::noise::keyed, s, [&](enumerator::source rng) {
                using drafter_type = peeking_drafter<decltype(peeks)::value>;
                return decoder<decltype(target)&, drafter_type, schedule_type, token_rejection<>, no_logits_hook,
                               enumerator::source>(target, drafter_type{w, rng}, schedule, token_rejection<>{},
                                                   decoder_options{.seed = 1}, no_logits_hook{}, rng);
            });
            return total_variation(found, autoregressive_law(w, s));
        });
    };
    using after_draw = std::integral_constant<peek, peek::confidence_after_draw>;
    using in_hidden = std::integral_constant<peek, peek::hidden_after_draw>;
    // The types cannot see a broken promise; the enumerator does, even on the causal frontier.
    CHECK(bias(threshold_schedule{0.6}, after_draw{}) > visible);
    CHECK(bias(greedy_schedule{smooth_capacity{}}, after_draw{}) > visible);
    CHECK(bias(planned_schedule{jagged_capacity{}}, in_hidden{}) > visible);
    // The same drafter with its confidence in order is exact, so it is the peeking that is caught.
    CHECK(bias(threshold_schedule{0.6}, in_hidden{}) <= tolerance);
}

TEST_CASE("mutant: coupling with noise that is redrawn after a truncation", "[mutant]") {
    auto const bias = [](auto const& schedule, bool redraw) {
        return worst([&](std::uint64_t seed) {
            world const w{seed, 2, 3};  // x_1 is drawn and judged by one noise; x_2 decides whether x_1 is verified
            scene const s{{{}}, 3, 1};
            auto target = target_of(w);
            using schedule_type = std::remove_cvref_t<decltype(schedule)>;
            std::size_t round = 0;
            law const found = decoder_law(enumerator::noise::keyed, s, [&](enumerator::source source) {
                round = 0;
                auto backbone = [inner = table_backbone{&w}, &round, redraw](std::span<request_view const> r) mutable {
                    round += redraw ? 1 : 0;
                    return inner.forward(r);
                };
                using drafter_type = semi_autoregressive<decltype(backbone), table_head, table_confidence>;
                renamed_source<noise_of_the_round> rng{source, {&round}};
                return decoder<decltype(target)&, drafter_type, schedule_type, keyed_coupling, no_logits_hook,
                               decltype(rng)>(
                    target,
                    drafter_type(backbone, table_head{&w}, table_confidence{&w}, {.block_size = 3, .vocabulary = 2}),
                    schedule, keyed_coupling{}, decoder_options{.seed = 1}, no_logits_hook{}, rng);
            });
            return total_variation(found, autoregressive_law(w, s));
        });
    };
    CHECK(bias(retrospective_schedule{cliff_capacity{}}, false) <= tolerance);
    CHECK(bias(retrospective_schedule{cliff_capacity{}}, true) > visible);
}

TEST_CASE("mutant: a gate that looks at the token that is about to be drafted", "[mutant]") {
    auto const bias = [](bool looks_ahead, auto const& rule) {
        return worst([&](std::uint64_t seed) {
            world const w{seed, 2, 2};
            scene const s{{{}}, 3, 1};
            auto target = target_of(w);
            using rule_type = std::remove_cvref_t<decltype(rule)>;
            law const found = decoder_law(enumerator::noise::keyed, s, [&](enumerator::source rng) {
                return decoder<decltype(target)&, decltype(semi_of(w)), gate_by_token, rule_type, no_logits_hook,
                               enumerator::source>(target, semi_of(w),
                                                   gate_by_token{fixed_schedule{}, &w, rng, looks_ahead}, rule,
                                                   decoder_options{.seed = 1}, no_logits_hook{}, rng);
            });
            return total_variation(found, autoregressive_law(w, s));
        });
    };
    CHECK(bias(false, token_rejection<>{}) <= tolerance);
    CHECK(bias(false, block_verification<>{}) <= tolerance);
    CHECK(bias(true, token_rejection<>{}) > visible);
    CHECK(bias(true, block_verification<>{}) > visible);
}

TEST_CASE("mutant: a floor that is applied after the draw, by the drafted token's own probability", "[mutant]") {
    auto const bias = [](auto const& look, auto const& rule) {
        return worst([&](std::uint64_t seed) {
            world const w{seed, 2, 2};
            auto const make = [&] { return eager_drafter{w, look}; };
            return bias_of(enumerator::noise::keyed, w, {{{}}, 3, 1}, make, fixed_schedule{}, rule);
        });
    };
    auto const by_token = [](token_id, double q, double survival) { return q * survival >= 0.3; };
    auto const by_confidence = [](token_id, double, double survival) { return survival >= 0.3; };
    CHECK(bias(by_confidence, token_rejection<>{}) <= tolerance);
    CHECK(bias(by_confidence, block_verification<>{}) <= tolerance);
    CHECK(bias(by_token, token_rejection<>{}) > visible);
    CHECK(bias(by_token, block_verification<>{}) > visible);
}

TEST_CASE("mutant: a calibration that is updated inside a round, from the drafted token", "[mutant]") {
    auto const bias = [](bool updates, auto const& schedule) {
        return worst([&](std::uint64_t seed) {
            world const w{seed, 2, 2};
            scene const s{{{}}, 3, 1};
            auto target = target_of(w);
            token_id seen = 0;
            auto const calibration = [&](std::size_t, double c) noexcept { return seen == 0 ? c : c * c * c; };
            auto const look = [&](token_id x, double, double) {
                if (updates) seen = x;
                return true;
            };
            using schedule_type = std::remove_cvref_t<decltype(schedule)>;
            using drafter_type = eager_drafter<decltype(look)>;
            law const found = decoder_law(enumerator::noise::keyed, s, [&](enumerator::source rng) {
                seen = 0;
                return decoder<decltype(target)&, drafter_type, schedule_type, token_rejection<>, no_logits_hook,
                               enumerator::source>(target, drafter_type{w, look}, schedule, token_rejection<>{},
                                                   decoder_options{.seed = 1, .calibration = calibration},
                                                   no_logits_hook{}, rng);
            });
            return total_variation(found, autoregressive_law(w, s));
        });
    };
    CHECK(bias(false, threshold_schedule{0.6}) <= tolerance);
    CHECK(bias(true, threshold_schedule{0.6}) > visible);
    CHECK(bias(true, greedy_schedule{smooth_capacity{}}) > visible);
}

TEST_CASE("mutant: a step priced by what was drafted, where chains end by a floor", "[mutant]") {
    auto const bias = [](fixed_probability floor) {
        return worst([&](std::uint64_t seed) {
            world const w{seed, 2, 2};
            auto const make = [&] { return semi_of(w); };
            return bias_of(enumerator::noise::keyed, w, {{{}}, 3, 1}, make, prices_what_was_drafted{2, floor},
                           token_rejection<>{});
        });
    };
    CHECK(bias(0) <= tolerance);  // chains as long as their caps say, which everybody may know
    CHECK(bias(certain / 2) > visible);
}

TEST_CASE("mutant: a sampling rule with the noise of absolute positions", "[mutant]") {
    auto const bias = [](std::size_t vocabulary, auto const& schedule, auto const& rule) {
        return worst([&](std::uint64_t seed) {
            world const w{seed, vocabulary, 3};
            return bias_of(enumerator::noise::keyed, w, {{{}}, 4, 1}, [&] { return semi_of(w); }, schedule, rule);
        });
    };
    CHECK(bias(2, fixed_schedule{}, block_verification<coupled_draft>{}) > visible);
    // Token rejection looks at nothing behind a rejection, but a budget from the confidences of past rounds did.
    CHECK(bias(2, lagged_top_k<1>(cliff_capacity{}, 0.7), token_rejection<coupled_draft>{}) > visible);
    CHECK(bias(2, fixed_schedule{}, keyed_coupling{}) <= tolerance);
    CHECK(bias(2, lagged_top_k<1>(cliff_capacity{}, 0.7), keyed_coupling{}) <= tolerance);
}

namespace {

/// Verifies nothing in the round after one that failed: an engine that answers a failure by doing less.
struct less_after_failure {
    bool const* failed;
    static constexpr bool needs_confidence = false;
    void admit(causal_frontier& frontier) const {
        if (!*failed) fixed_schedule{}.admit(frontier);
    }
};

/// The target fails once at every batch that is long because of what was drafted (a token of 1 makes the chain go on).
struct short_of_memory {
    world const* w;
    bool* failed;
    [[nodiscard]] logits_rows<double> score(verify_batch const& batch) {
        if (!*failed && batch.rows() > 2) {
            *failed = true;
            throw std::runtime_error("out of memory");
        }
        rows.clear();
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            std::vector<token_id> context(batch.requests()[0].context.begin(), batch.requests()[0].context.end());
            for (std::size_t k = 1; k <= i; ++k) context.push_back(batch.tokens()[k]);
            std::vector<double> logits(w->vocabulary);
            w->target(context, logits);
            rows.insert(rows.end(), logits.begin(), logits.end());
        }
        return {{rows.data(), batch.rows(), w->vocabulary}, {}, {}};
    }
    std::vector<double> rows{};
};

/// Runs a round that failed again, in the decoder that remembers it or as a request that is new to it.
template <class Rule>
class retrying_decoder {
public:
    retrying_decoder(world const& w, Rule const& rule, bool rejoins, enumerator::source rng)
        : failed_(std::make_unique<bool>(false)),
          rejoins_(rejoins),
          decoder_(short_of_memory{&w, failed_.get()}, semi_of(w), adapt(failed_.get()), rule,
                   decoder_options{.seed = 1}, no_logits_hook{}, rng) {}

    request_id submit(std::span<token_id const> prompt, request_settings const& settings) {
        text_.assign(prompt.begin(), prompt.end());
        settings_ = settings;
        return id_ = decoder_.submit(prompt, settings);
    }
    void cancel(request_id) { decoder_.cancel(inner()); }
    bool step() {
        try {
            if (!decoder_.step()) return false;
        } catch (std::runtime_error const&) {
            if (rejoins_) {
                decoder_.cancel(inner());
                moved_ = decoder_.submit(text_, settings_);
            }
            decoder_.step();
        }
        *failed_ = false;
        events_.assign(decoder_.events().begin(), decoder_.events().end());
        for (request_event& e : events_) {
            e.request = id_;
            text_.insert(text_.end(), e.tokens.begin(), e.tokens.end());
            settings_.max_new_tokens -= e.tokens.size();
        }
        return true;
    }
    [[nodiscard]] std::span<request_event const> events() const { return events_; }

private:
    // The chain ends where confidences are low, so its length tells of the drafted tokens.
    struct chained : less_after_failure {
        [[nodiscard]] fixed_probability draft_floor() const { return certain / 3; }
    };
    static chained adapt(bool const* failed) { return {{failed}}; }
    [[nodiscard]] request_id inner() const { return moved_ != 0 ? moved_ : id_; }

    std::unique_ptr<bool> failed_;
    bool rejoins_;
    request_id id_ = 0;
    request_id moved_ = 0;
    std::vector<token_id> text_;
    request_settings settings_;
    std::vector<request_event> events_;
    decoder<short_of_memory, decltype(semi_of(std::declval<world const&>())), chained, Rule, no_logits_hook,
            enumerator::source>
        decoder_;
};

}  // namespace

TEST_CASE("mutant: a round that failed is run again with other lengths", "[mutant]") {
    auto const bias = [](bool rejoins, auto const& rule) {
        return worst([&](std::uint64_t seed) {
            world const w{seed, 2, 3};
            scene const s{{{}}, 3, 1};
            law result;
            enumerator walk{enumerator::noise::keyed};
            walk.for_each_path([&] {
                retrying_decoder<std::remove_cvref_t<decltype(rule)>> dec(w, rule, rejoins, walk.handle());
                outcome const seen = play(dec, s);
                result[seen] += walk.weight();
            });
            return total_variation(result, autoregressive_law(w, s));
        });
    };
    CHECK(bias(false, token_rejection<>{}) <= tolerance);
    CHECK(bias(false, block_verification<>{}) <= tolerance);
    CHECK(bias(false, keyed_coupling{}) <= tolerance);
    // The same request, the same seed, and nobody who remembers what was decided: nothing in the library can see that.
    CHECK(bias(true, token_rejection<>{}) > visible);
    CHECK(bias(true, block_verification<>{}) > visible);
    CHECK(bias(true, keyed_coupling{}) <= tolerance);
}

TEST_CASE("mutant: lookup takes over after the model has drawn", "[mutant]") {
    CHECK(worst([](std::uint64_t seed) {
              world const w{seed, 3, 2};
              scene const s{{{{0, 1, 2, 0}}}, 2, 0};
              auto target = target_of(w);
              law const found = decoder_law(enumerator::noise::keyed, s, [&](enumerator::source rng) {
                  return decoder<decltype(target)&, second_thoughts, fixed_schedule, token_rejection<>, no_logits_hook,
                                 decltype(rng)>(target, second_thoughts(w), fixed_schedule{}, token_rejection<>{},
                                                decoder_options{.seed = 1}, no_logits_hook{}, rng);
              });
              return total_variation(found, autoregressive_law(w, s));
          }) > visible);
}
