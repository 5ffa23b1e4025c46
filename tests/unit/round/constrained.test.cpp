// SPDX-License-Identifier: MIT
//
// Constrained texts: masks of a grammar and min_new_tokens, under every kind of drafter. Texts are those of plain
// decoding whose rows a hook masks, and drafts are grammatical. Exact laws are in tests/property (exactness.hpp). Some
// seconds.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/serving/constraint.hpp>
#include <sureleap/serving/stop_texts.hpp>
#include <sureleap/sureleap.hpp>

#include "support/catch.hpp"
#include "support/error_text.hpp"
#include "support/hash_models.hpp"
#include "support/with_trees.hpp"

using namespace sureleap;
using support::error_text;
using support::hash_language;
using support::hash_model;
using support::says;

namespace {

constexpr std::size_t V = 70;  // three words of a mask, the last one short
constexpr std::size_t gamma_ = 4;
constexpr token_id stop = 69;
token_id const stops[] = {stop};
hash_language const target_language{};
hash_language const draft_language{.own = 5, .disagreement = 0.5};

/// Seven states, which are sums of tokens. State 3 allows one token alone, state 5 is where a text may end.
constexpr int next_state(int state, token_id x) {
    return (3 * state + x + 1) % 7;
}
constexpr bool is_allowed(int state, token_id x) {
    if (x == stop) return state == 5;
    return state == 3 ? x == 40 : (3 * x + state) % 7 < 4;
}

/// Models token_matcher. It is given what it allows, and rolled back by no more than it accepted.
class automaton {
public:
    [[nodiscard]] token_mask mask() {
        ++masks_;
        words_.fill(0);
        for (std::size_t v = 0; v < V; ++v) {
            if (is_allowed(states_.back(), static_cast<token_id>(v))) words_[v / 32] |= 1u << v % 32;
        }
        return token_mask{std::span<std::uint32_t const>(words_)};
    }
    [[nodiscard]] bool accept(token_id x) {
        if (x == stop) throw std::logic_error("the text has ended");
        if (!is_allowed(states_.back(), x)) return false;
        states_.push_back(next_state(states_.back(), x));
        return true;
    }
    void rollback(std::size_t n) {
        if (n >= states_.size()) throw std::logic_error("so much was not accepted");
        states_.resize(states_.size() - n);
    }
    [[nodiscard]] std::size_t masks() const { return masks_; }

private:
    std::vector<int> states_{0};
    std::array<std::uint32_t, mask_words(V)> words_{};
    std::size_t masks_ = 0;
};
static_assert(token_matcher<automaton>);

[[nodiscard]] int state_behind(request_view const& request, std::span<token_id const> drafted) {
    int state = 0;
    for (token_id const x : request.context.last(request.emitted())) state = next_state(state, x);
    for (token_id const x : drafted) state = next_state(state, x);
    return state;
}
/// The same grammar for plain decoding.
struct masking_hook {
    template <class Real>
    void operator()(hook_context const& at, std::span<Real> row) const {
        int const state = state_behind(at.request, at.drafted);
        bool const early = at.request.emitted() + at.drafted.size() < at.request.settings->min_new_tokens;
        for (std::size_t v = 0; v < row.size(); ++v) {
            auto const x = static_cast<token_id>(v);
            if (!is_allowed(state, x) || (early && x == stop)) row[v] = -std::numeric_limits<Real>::infinity();
        }
    }
};

/// Base logits that know the language a little; `stride` says which tokens of the target's they are of.
struct backbone_model {
    std::size_t width = V;
    token_id stride = 1;
    std::vector<float> rows{};
    [[nodiscard]] block_forward<float> forward(std::span<request_view const> requests) {
        rows.resize(requests.size() * gamma_ * width);
        std::vector<float> all(V);
        for (std::size_t i = 0; i < requests.size() * gamma_; ++i) {
            draft_language(requests[i / gamma_].context, std::span(all));
            for (std::size_t v = 0; v < width; ++v) rows[i * width + v] = all[v * static_cast<std::size_t>(stride)];
        }
        return {{}, {{rows.data(), requests.size() * gamma_, width}, {}, {}}};
    }
};
struct even_confidence {
    [[nodiscard]] double operator()(std::span<float const>, token_id, std::size_t) const { return 0.8; }
    [[nodiscard]] double at_anchor(std::span<float const>, token_id, std::size_t) const { return 0.8; }
};

struct head_weights {
    std::vector<float> w1 = numbers(V * 3, 1), w2 = numbers(V * 3, 2);
    static std::vector<float> numbers(std::size_t count, std::uint64_t seed) {
        std::vector<float> all;
        for (std::size_t i = 0; i < count; ++i) {
            all.push_back(static_cast<float>(support::hashed(seed, static_cast<std::uint32_t>(i), 0, 0, 0)));
        }
        return all;
    }
    [[nodiscard]] auto head() const { return markov_head<float>{{w1.data(), V, 3}, {w2.data(), V, 3}}; }
};
head_weights const weights;
vocabulary_map const even_tokens = [] {
    std::vector<token_id> ids;
    for (token_id x = 0; x < static_cast<token_id>(V); x += 2) ids.push_back(x);
    return vocabulary_map{ids, V};
}();

/// A target that has to score what the grammar allows, and nothing behind the end of a text.
template <class T>
struct grammatical_target {
    static constexpr bool scores_trees = true;
    decltype(hash_model<T>(0, {})) inner = hash_model<T>(V, target_language);
    [[nodiscard]] logits_rows<T> score(verify_batch const& batch) {
        std::vector<int> states(batch.rows());
        for (std::size_t i = 0; i < batch.rows(); ++i) {
            std::uint32_t const parent = batch.parents()[i];
            if (parent == verify_batch::no_row) {
                states[i] = state_behind(batch.requests()[batch.markers()[i]], {});
                continue;
            }
            token_id const x = batch.tokens()[i];
            if (batch.requests()[batch.markers()[i]].settings->constraint) REQUIRE(is_allowed(states[parent], x));
            states[i] = next_state(states[parent], x);
        }
        return inner.score(batch);
    }
};

drafter_options const shape{.block_size = gamma_, .vocabulary = V};

/// visit(name, make) for each kind of drafter that goes with the rule.
template <class Rule, class Visit>
void for_each_drafter(Visit&& visit) {
    auto const headless = [] { return parallel{backbone_model{}, even_confidence{}, shape}; };
    auto const product = [] { return semi_autoregressive{backbone_model{}, weights.head(), even_confidence{}, shape}; };
    auto const listed = [] {
        return semi_autoregressive{backbone_model{}, shortlist_head{weights.head(), 12}, even_confidence{}, shape};
    };
    if constexpr (support::is_given_trees_v<Rule>) {
        tree_options const options{.nodes = gamma_ + 3, .children = 2};
        auto const tree = [&](auto chain) { return tree_drafter<decltype(chain)>{std::move(chain), options}; };
        visit("trees of lent rows", [&] { return tree(headless()); });
        visit("trees of products", [&] { return tree(product()); });
        visit("trees of lists", [&] { return tree(listed()); });
        visit("trees beside lookup", [&] { return with_lookup{tree(product())}; });
        visit("trees beside forced runs", [&] { return with_forced{tree(product())}; });
    } else {
        visit("lent rows", headless);
        visit("products", product);
        visit("lists", listed);
        visit("a vocabulary of its own", [] {
            return parallel{backbone_model{.width = V / 2, .stride = 2}, even_confidence{},
                            drafter_options{.block_size = gamma_, .vocabulary = V / 2, .map = &even_tokens}};
        });
        visit("a model", [] { return autoregressive{hash_model<float>(V, draft_language), top1_confidence{}, shape}; });
        visit("lent rows beside forced runs", [&] { return with_forced{headless(), {.block_size = 6}}; });
        visit("lent rows beside lookup", [&] { return with_lookup{headless()}; });
        if constexpr (!std::is_same_v<typename Rule::draft_rule, coupled_draft>) {
            visit("lookup", [] { return lookup{{.block_size = gamma_, .target_vocabulary = V, .shortest = 1}}; });
        }
    }
}

struct by_confidence : threshold_schedule {
    by_confidence() : threshold_schedule(0.5) {}
};

constexpr std::size_t texts = 12;
constexpr std::size_t places = 4;
struct tally {
    std::size_t drafted = 0;
    std::size_t accepted = 0;
    std::size_t emitted = 0;
    std::size_t ended = 0;
};

/// Texts of a decoder. settings_of(i) are those of request i. Drafted tokens are grammatical, along their branches.
template <class Decoder, class Settings>
[[nodiscard]] std::vector<std::vector<token_id>> texts_of(Decoder& dec, Settings const& settings_of, tally& seen) {
    std::vector<std::vector<token_id>> all(texts);
    std::vector<request_id> ids;
    std::size_t next = 0;
    for (;;) {
        while (next < texts && next - seen.ended < places) {
            ids.push_back(dec.submit(std::vector<token_id>{static_cast<token_id>(next + 1), 7, 7}, settings_of(next)));
            ++next;
        }
        if (!dec.step()) return all;
        for (verdict const& v : dec.round().verdicts) {
            REQUIRE(v.outcome == status::ok);
            REQUIRE(v.accepted <= v.emitted.size());
            seen.drafted += v.drafted;
            seen.accepted += v.accepted;
            seen.emitted += v.emitted.size();
        }
        for (request_event const& e : dec.events()) {
            auto const i = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), e.request) - ids.begin());
            all[i].insert(all[i].end(), e.tokens.begin(), e.tokens.end());
            if (e.finished != finish_reason::none) ++seen.ended;
        }
    }
}

template <class T, class Rule>
void check_texts(Rule rule) {
    auto const target = [] { return hash_model<T>(V, target_language); };
    auto const plain = [](std::size_t i) {
        return request_settings{.temperature = i % 3 == 0 ? 0.0 : 0.8,
                                .seed = 50 + i,
                                .max_new_tokens = 40,
                                .min_new_tokens = i % 2 == 0 ? std::size_t{6} : std::size_t{0},
                                .stop_tokens = stops,
                                .log_probabilities = true};
    };
    tally of_plain;
    decoder reference{target(),         lookup{{.block_size = 1, .target_vocabulary = V}}, fixed_schedule{0},
                      target_match<>{}, {.max_requests = places, .constrained = true},     masking_hook{}};
    auto const expected = texts_of(reference, plain, of_plain);
    for_each_drafter<Rule>([&](std::string const& name, auto const& make) {
        INFO(name);
        std::vector<constraint<automaton>> grammars(texts, constraint<automaton>{automaton{}});
        auto const constrained = [&](std::size_t i) {
            request_settings settings = plain(i);
            settings.constraint = grammars[i];
            return settings;
        };
        using drafter_type = std::invoke_result_t<decltype(make)>;
        std::conditional_t<drafter_type::has_confidence, by_confidence, fixed_schedule> const schedule{};
        decoder dec{grammatical_target<T>{}, make(), schedule, rule, {.max_requests = places, .constrained = true}};
        tally seen;
        CHECK(texts_of(dec, constrained, seen) == expected);
        CHECK(seen.ended == texts);
        CHECK(seen.emitted == of_plain.emitted);
        CHECK(seen.accepted > 0);
        std::size_t masks = 0;
        for (auto const& grammar : grammars) {
            CHECK(grammar.failure() == nullptr);
            masks += grammar.matcher().masks();
        }
        // A mask of a chain is made once: behind each drafted token and each round's last one.
        if constexpr (!support::is_given_trees_v<Rule>) CHECK(masks <= seen.drafted + seen.emitted + texts);
    });
}

}  // namespace

TEST_CASE("constrained: texts are those of plain decoding with masked rows, under every kind of drafter") {
    check_texts<float>(support::with_trees<target_match<>>{});
    check_texts<double>(target_match<>{});
    check_texts<half>(target_match<>{});
    check_texts<float>(target_match<>{});
    check_texts<bf16>(support::with_trees<target_match<>>{});
}

TEST_CASE("constrained: what the grammar forces is drafted for certain, and accepted") {
    auto const of_law = [&](auto rule) {
        decoder dec{grammatical_target<float>{},
                    semi_autoregressive{backbone_model{}, weights.head(), even_confidence{}, shape},
                    fixed_schedule{},
                    rule,
                    {.constrained = true}};
        constraint<automaton> const mine{automaton{}};
        dec.submit(std::vector<token_id>{1}, {.seed = 4, .max_new_tokens = 300, .constraint = mine});
        std::size_t forced = 0;
        int state = 0;
        while (dec.step()) {
            verdict const& v = dec.round().verdicts[0];
            for (std::size_t k = 0; k < v.emitted.size(); ++k) {
                if (state == 3 && k < v.drafted) {
                    CHECK(dec.round().raw_confidence(0, k) == 1.0);
                    CHECK(k < v.accepted);
                    ++forced;
                }
                state = next_state(state, v.emitted[k]);
            }
        }
        CHECK(forced > 5);
    };
    of_law(token_rejection<>{});
    of_law(block_verification<>{});
    of_law(keyed_coupling{});
}

TEST_CASE("constrained: a long forced run is drafted without the model, a short one by it") {
    // Behind token 1 come 10, 11 .. 29; behind token 2 come 30 and 31; behind token 3 the text ends.
    std::array<std::uint32_t, mask_words(V)> words{};
    auto const allows = [&](request_view const& request, std::span<token_id const> drafted) noexcept {
        token_id const last = drafted.empty() ? request.context.back() : drafted.back();
        bool const in_run = (last >= 10 && last < 29) || last == 30;
        words.fill(in_run || (last >= 1 && last <= 3) ? 0u : 0xeu);
        token_id const next = last == 1 ? 10 : last == 2 ? 30 : last == 3 ? stop : last + 1;
        if (words[0] == 0u) words[static_cast<std::size_t>(next) / 32] = 1u << next % 32;
        return token_mask{std::span<std::uint32_t const>(words)};
    };
    std::size_t asked = 0;
    auto const run = [&](auto make) {
        asked = 0;
        std::vector<std::pair<std::size_t, std::size_t>> rounds;  // accepted, and whether the model was asked
        decoder dec{hash_model<float>(V, target_language),
                    make(),
                    fixed_schedule{},
                    token_rejection<>{},
                    {.constrained = true}};
        request_id const id = dec.submit(
            std::vector<token_id>{1}, {.seed = 3, .max_new_tokens = 400, .stop_tokens = stops, .constraint = allows});
        for (std::size_t before = 0; dec.step(); before = asked) {
            rounds.emplace_back(dec.round().verdicts[0].accepted, asked - before);
        }
        auto const text = dec.generated(id);
        CHECK(text.back() == stop);
        return std::pair(std::vector<token_id>(text.begin(), text.end()), rounds);
    };
    auto const counting = [&](std::span<request_view const> requests) {
        ++asked;
        static backbone_model inner;
        return inner.forward(requests);
    };
    auto const model = [&] { return parallel{counting, even_confidence{}, shape}; };
    auto const [text, rounds] = run([&] { return with_forced{model(), {.block_size = 16}}; });
    CHECK(rounds[0] == std::pair<std::size_t, std::size_t>{16, 0});  // 10 .. 25, and 26 as the bonus
    CHECK(rounds[1].second == 1);                                    // 27 .. 29 is shorter than a block of the model
    CHECK(rounds[1].first >= 3);
    auto const plain = run(model).second;
    CHECK(plain.front() == std::pair<std::size_t, std::size_t>{gamma_, 1});
    CHECK(rounds.size() < plain.size());
    CHECK(std::count(text.begin(), text.end(), 10) >= 1);
}

TEST_CASE("constrained: a matcher that fails costs its request the round, and says so") {
    struct failing : automaton {
        bool fails = false;
        [[nodiscard]] token_mask mask() {
            if (fails) throw std::runtime_error("the grammar is out of memory");
            return automaton::mask();
        }
    };
    constraint<failing> const broken{failing{{}, true}};
    constraint<failing> const sound{failing{}};
    decoder dec{grammatical_target<float>{},
                parallel{backbone_model{}, even_confidence{}, shape},
                fixed_schedule{},
                token_rejection<>{},
                {.max_requests = 2, .constrained = true}};
    dec.submit(std::vector<token_id>{1}, {.constraint = broken});
    dec.submit(std::vector<token_id>{2}, {.constraint = sound});
    REQUIRE(dec.step());
    CHECK(dec.events()[0].outcome == status::invalid_target);
    CHECK(dec.events()[1].outcome == status::ok);
    REQUIRE(broken.failure() != nullptr);
    CHECK_THROWS_AS(std::rethrow_exception(broken.failure()), std::runtime_error);
}

TEST_CASE("constrained: a text does not end before min_new_tokens") {
    // The likeliest token is the stop token, and every string ends with the first token.
    auto target = model_of<float>(V, [](std::span<token_id const>, std::span<float> row) {
        std::fill(row.begin(), row.end(), 0.0F);
        row[stop] = 9.0F;
    });
    stop_texts const any_end{[](token_id) noexcept { return std::string_view{"x"}; }, {"x"}};
    for (std::size_t const least : {0u, 1u, 5u, 6u}) {
        for (bool const by_text : {false, true}) {
            INFO(least << ", " << (by_text ? "strings" : "stop tokens"));
            decoder dec{target,
                        parallel{backbone_model{}, even_confidence{}, shape},
                        fixed_schedule{},
                        token_rejection<>{},
                        {.constrained = true}};
            request_settings settings{.seed = 1, .max_new_tokens = 30, .min_new_tokens = least, .stop_tokens = stops};
            if (by_text) settings.text_end = any_end;
            request_id const id = dec.submit(std::vector<token_id>{1}, settings);
            finish_reason why = finish_reason::none;
            while (dec.step()) why = dec.events()[0].finished;
            auto const text = dec.generated(id);
            CHECK(why == (by_text && least > 0 ? finish_reason::stop_text : finish_reason::stop_token));
            CHECK(text.size() >= least);
            if (by_text) CHECK(text.size() == std::max<std::size_t>(least, 1));
            CHECK(std::find(text.begin(), text.end(), stop) >=
                  text.begin() + static_cast<std::ptrdiff_t>(least) - (by_text ? 1 : 0));
        }
    }
}

TEST_CASE("constrained: rounds without room for masked rows refuse them, and settings that do not fit") {
    auto const make = [] { return parallel{backbone_model{}, even_confidence{}, shape}; };
    decoder dec{hash_model<float>(V, target_language), make(), fixed_schedule{}, token_rejection<>{}};
    constraint<automaton> const grammar{automaton{}};
    auto const refused = [&](request_settings const& settings) {
        return error_text([&] { dec.submit(std::vector<token_id>{1}, settings); });
    };
    CHECK(says(refused({.constraint = grammar}), {"a constraint or min_new_tokens", "decoder_options::constrained"}));
    CHECK(says(refused({.min_new_tokens = 1}), {"a constraint or min_new_tokens", "decoder_options::constrained"}));
    CHECK(says(refused({.max_new_tokens = 3, .min_new_tokens = 4}),
               {"min_new_tokens is 4", "at most max_new_tokens = 3"}));
    // Of stages as well.
    auto drafter = make();
    fixed_schedule schedule;
    request_settings const settings{.constraint = grammar};
    request_view const request{.id = 3, .anchor = 1, .remaining = 9, .settings = &settings};
    round_memory<float, float> memory{drafter, schedule, token_rejection<>{}, {}};
    CHECK(says(error_text([&] { static_cast<void>(begin_round(schedule, std::span(&request, 1), memory)); }),
               {"begin_round: request 0 (id 3)", "round_limits::constrained"}));
    std::size_t const bytes = round_memory<float, float>::bytes_for(drafter, token_rejection<>{}, {});
    std::size_t const more = round_memory<float, float>::bytes_for(drafter, token_rejection<>{}, {.constrained = true});
    // gamma + 1 rows of the target's, and gamma of a drafter's that lends them.
    CHECK(more >= bytes + (2 * gamma_ + 1) * V * sizeof(float));
}

TEST_CASE("constraint: a matcher needs to know the text before") {
    constraint<automaton> const grammar{automaton{}};
    request_settings const settings{.max_new_tokens = 10};
    request_view const request{.id = 5, .remaining = 8, .settings = &settings};
    CHECK(grammar(request, {}).only() == -1);
    CHECK_FALSE(grammar(request, {}).allows(40));
    REQUIRE(grammar.failure() != nullptr);
    CHECK(says(error_text([&] { std::rethrow_exception(grammar.failure()); }),
               {"constraint: request 5", "a context of 0 tokens", "expected the 2 that it has emitted"}));
}

TEST_CASE("token_mask: what it allows") {
    std::uint32_t const words[] = {0x80000001u, 0u, 0x8u};
    token_mask const some{std::span<std::uint32_t const>(words)};
    CHECK(some);
    CHECK(some.allows(0));
    CHECK(some.allows(31));
    CHECK(some.allows(67));
    for (token_id const x : {-1, 1, 32, 66, 68, 96, 1000}) CHECK_FALSE(some.allows(x));
    CHECK(some.only() == -1);
    CHECK(token_mask{std::span<std::uint32_t const>(words).subspan(1)}.only() == 35);
    CHECK(token_mask{std::span<std::uint32_t const>(words).subspan(1, 1)}.only() == -1);
    std::int32_t const sign[] = {std::numeric_limits<std::int32_t>::min()};
    CHECK(token_mask{std::span<std::int32_t const>(sign)}.only() == 31);
    token_mask const none{};
    CHECK_FALSE(none);
    CHECK(none.allows(12345));
    CHECK(none.only() == -1);
    CHECK(mask_words(0) == 0);
    CHECK(mask_words(32) == 1);
    CHECK(mask_words(33) == 2);
}
