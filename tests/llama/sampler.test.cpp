// SPDX-License-Identifier: MIT
//
// Reading chains of llama.cpp's samplers: the numbers of stages that tell none, what becomes settings and what is run, and
// what is refused, with its text. Two seconds.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <llama.h>

#include <sureleap/ext/llama/sampler.hpp>

#include "support/chains.hpp"
#include "support/dice.hpp"
#include "support/error_text.hpp"

using namespace sureleap;
using support::make_chain;
using support::owned_sampler;
using support::says;

// ---- numbers ---------------------------------------------------------------------------------------------------

namespace {

/// 0.8, 0.95 and the like, and floats with all their digits.
float some_number(support::dice& roll, double low, double high) {
    double const x = roll.between(low, high);
    return static_cast<float>(roll.chance(0.5) ? x : std::max(low, std::round(x * 100.0) / 100.0));
}

}  // namespace

TEST_CASE("numbers of stages: what was given is found, to the float") {
    support::dice roll(2601);
    INFO("seed " << roll.seed());
    for (std::size_t i = 0; i < 3000; ++i) {
        float const t = roll.chance(0.2) ? std::exp(some_number(roll, -11.0, 13.0)) : some_number(roll, 0.05, 3.0);
        float const p =
            roll.chance(0.2) ? 1.0F - std::exp(some_number(roll, -15.0, -3.0)) : some_number(roll, 0.02, 0.99);
        float const m = roll.chance(0.2) ? std::exp(some_number(roll, -20.0, -1.0)) : some_number(roll, 0.01, 1.0);
        int const k = 1 + static_cast<int>(roll.below(roll.chance(0.1) ? 40000 : 300));
        CAPTURE(i, t, p, m, k);
        if (t != 1.0F) {
            owned_sampler const temp{llama_sampler_init_temp(t)};
            REQUIRE(detail::find_temperature(temp.get()) == static_cast<double>(t));
            owned_sampler const plain{llama_sampler_init_temp_ext(t, 0.0F, 1.0F)};
            REQUIRE(detail::find_temperature(plain.get()) == static_cast<double>(t));
        }
        if (p < 1.0F) {
            owned_sampler const top_p{llama_sampler_init_top_p(p, i % 2)};
            REQUIRE(detail::find_top_p(top_p.get()) == static_cast<double>(p));
        }
        owned_sampler const min_p{llama_sampler_init_min_p(m, i % 2)};
        auto const found = detail::find_min_p(min_p.get());
        REQUIRE(found);
        // Other numbers with the same logarithm make the same stage.
        REQUIRE(std::log(static_cast<float>(*found)) == std::log(m));
        if (i % 10 == 0) {
            owned_sampler const top_k{llama_sampler_init_top_k(k)};
            REQUIRE(detail::find_top_k(top_k.get()) == k);
        }
    }
}

TEST_CASE("numbers of stages: none where none says what the stage does") {
    auto const number = [](auto find, llama_sampler* stage) { return find(owned_sampler{stage}.get()); };
    auto const temperature = [](llama_sampler* s) { return detail::find_temperature(s); };
    auto const top_k = [](llama_sampler* s) { return detail::find_top_k(s); };
    auto const top_p = [](llama_sampler* s) { return detail::find_top_p(s); };
    auto const min_p = [](llama_sampler* s) { return detail::find_min_p(s); };
    for (std::size_t const min_keep : {2U, 3U, 50U, 800U}) {
        CHECK_FALSE(number(top_p, llama_sampler_init_top_p(0.3F, min_keep)));
        CHECK_FALSE(number(min_p, llama_sampler_init_min_p(0.3F, min_keep)));
    }
    for (float const delta : {0.001F, 0.1F, 0.7F}) {
        CHECK_FALSE(number(temperature, llama_sampler_init_temp_ext(0.7F, delta, 1.0F)));
        CHECK_FALSE(number(temperature, llama_sampler_init_temp_ext(0.7F, delta, 0.3F)));
    }
    CHECK(number(temperature, llama_sampler_init_temp_ext(0.5F, 0.25F, 0.0F)) == 0.75);  // exponent 0: a plain one
    CHECK(number(temperature, llama_sampler_init_temp(0.0F)) == 0.0);
    CHECK(number(temperature, llama_sampler_init_temp(-1.0F)) == 0.0);
    // Out of the library's range: greedy there, and not here; flatter than it allows.
    for (float const t : {1e-40F, 1e-20F, 9e-6F, 1.1e6F, INFINITY, NAN}) {
        CAPTURE(t);
        CHECK_FALSE(number(temperature, llama_sampler_init_temp(t)));
    }
    CHECK_FALSE(number(top_k, llama_sampler_init_top_k(1 << 20)));
    CHECK(number(top_k, llama_sampler_init_top_k((1 << 20) - 1)) == (1 << 20) - 1);
    for (float const p : {-1.0F, 0.0F, 1e-7F, 9e-4F}) CHECK_FALSE(number(top_p, llama_sampler_init_top_p(p, 1)));
    CHECK_FALSE(number(min_p, llama_sampler_init_min_p(1.5F, 1)));
    // Another stage is none of them.
    using find = std::function<bool(llama_sampler*)>;
    std::vector<find> const finds{[](llama_sampler* s) { return detail::find_temperature(s).has_value(); },
                                  [](llama_sampler* s) { return detail::find_top_k(s).has_value(); },
                                  [](llama_sampler* s) { return detail::find_top_p(s).has_value(); },
                                  [](llama_sampler* s) { return detail::find_min_p(s).has_value(); }};
    std::vector<llama_sampler*> const stages{llama_sampler_init_temp(0.7F),       llama_sampler_init_top_k(7),
                                             llama_sampler_init_top_p(0.7F, 1),   llama_sampler_init_min_p(0.7F, 1),
                                             llama_sampler_init_typical(0.7F, 1), llama_sampler_init_top_n_sigma(1.0F)};
    for (std::size_t s = 0; s < stages.size(); ++s) {
        owned_sampler const stage{stages[s]};
        for (std::size_t f = 0; f < finds.size(); ++f) {
            CAPTURE(s, f);
            CHECK(finds[f](stage.get()) == (s == f));
        }
    }
}

// ---- what becomes settings -------------------------------------------------------------------------------------

namespace {

llama_sampling read(std::initializer_list<llama_sampler*> stages, llama_chain_options const& options = {}) {
    return read_llama_chain(make_chain(stages).get(), options);
}
llama_sampler* temp(float t) {
    return llama_sampler_init_temp(t);
}
llama_sampler* top_k(int k) {
    return llama_sampler_init_top_k(k);
}
llama_sampler* top_p(float p) {
    return llama_sampler_init_top_p(p, 1);
}
llama_sampler* min_p(float p) {
    return llama_sampler_init_min_p(p, 1);
}
llama_sampler* penalties() {
    return llama_sampler_init_penalties(32, 64, 1.1F, 0.0F, 0.0F);
}
llama_sampler* typical() {
    return llama_sampler_init_typical(0.9F, 1);
}
llama_sampler* dist() {
    return llama_sampler_init_dist(7);
}
llama_sampler* greedy() {
    return llama_sampler_init_greedy();
}

bool near(double a, double b) {
    return std::abs(a - b) <= 1e-6 * std::abs(b);
}

}  // namespace

TEST_CASE("read_llama_chain: the end of a chain that fits becomes settings") {
    auto const whole = read({temp(0.7F), top_k(40), top_p(0.9F), min_p(0.05F), dist()});
    CHECK_FALSE(whole.needs_hook());
    CHECK(whole.settings.target_transform() ==
          transform{static_cast<double>(0.7F), 40, static_cast<double>(0.9F), whole.settings.min_p});
    CHECK(near(whole.settings.min_p, 0.05));
    CHECK(whole.settings.seed == 7U);
    CHECK_FALSE(whole.settings.draft);

    // llama.h's own example has top-k before the temperature: the same law. So has min-p, at another number.
    auto const example = read({top_k(50), temp(0.5F), top_p(0.9F), dist()});
    CHECK_FALSE(example.needs_hook());
    CHECK(example.settings.target_transform() == transform{0.5, 50, static_cast<double>(0.9F), 0.0});
    auto const simple = read({min_p(0.04F), temp(0.5F), dist()});
    CHECK_FALSE(simple.needs_hook());
    CHECK(near(simple.settings.min_p, 0.0016));
    CHECK(near(read({min_p(0.04F), temp(0.5F), top_k(9), dist()}).settings.min_p, 0.0016));
    CHECK(near(read({temp(0.5F), min_p(0.04F), dist()}).settings.min_p, 0.04));

    auto const nothing = read({dist()});
    CHECK_FALSE(nothing.needs_hook());
    CHECK(nothing.settings.target_transform() == transform{});
    // What llama.cpp made to do nothing is left out, whatever it is.
    CHECK_FALSE(read({temp(1.0F), top_k(0), top_p(1.0F), min_p(0.0F), llama_sampler_init_xtc(0.0F, 0.1F, 1, 3),
                      llama_sampler_init_penalties(32, 0, 1.1F, 0.0F, 0.0F), dist()})
                    .needs_hook());
    // A chain in a chain, and a sampler that is none.
    CHECK(read({top_k(5), make_chain({temp(0.5F), dist()}).release()}).settings.top_k == 5);
    CHECK(read_llama_chain(owned_sampler{greedy()}.get()).settings.temperature == 0.0);
}

TEST_CASE("read_llama_chain: what stands before, or in another order, is run") {
    struct expected {
        llama_sampling sampling;
        transform settings;
    };
    std::vector<expected> list;
    auto const add = [&list](std::initializer_list<llama_sampler*> stages, transform const& how) {
        list.push_back({read(stages), how});
    };
    double const t = 0.5;
    add({penalties(), temp(0.5F), dist()}, {.temperature = t});
    add({temp(0.5F), penalties(), dist()}, {});
    add({top_p(0.5F), temp(0.5F), dist()}, {.temperature = t});  // the nucleus of another temperature
    add({top_p(0.5F), top_k(4), dist()}, {.top_k = 4});          // the nucleus of all tokens
    add({min_p(0.5F), top_p(0.5F), dist()}, {.top_p = 0.5});     // the nucleus of what min-p leaves
    add({temp(0.25F), temp(0.5F), dist()}, {.temperature = t});
    add({top_k(9), top_k(4), dist()}, {.top_k = 4});
    add({llama_sampler_init_top_p(0.5F, 3), temp(0.5F), dist()}, {.temperature = t});
    add({llama_sampler_init_temp_ext(0.5F, 0.2F, 1.0F), top_k(4), dist()}, {.top_k = 4});
    add({temp(0.5F), typical(), greedy()}, {.temperature = 0.0});
    // Behind a stage that sorts, a logit-bias leaves candidates marked as sorted that are not, and top-k takes the first.
    llama_logit_bias const bias{3, 5.0F};
    auto const biased = [&bias] { return llama_sampler_init_logit_bias(32, 1, &bias); };
    add({biased(), temp(0.5F), top_k(4), dist()}, {.temperature = t, .top_k = 4});
    add({top_k(9), biased(), temp(0.5F), top_k(4), dist()}, {});
    add({top_k(9), biased(), top_k(4), temp(0.5F), dist()}, {.temperature = t});
    for (std::size_t i = 0; i < list.size(); ++i) {
        CAPTURE(i);
        CHECK(list[i].sampling.needs_hook());
        CHECK(list[i].sampling.settings.target_transform() == list[i].settings);
    }
    // llama.cpp's programs have the temperature last.
    auto const program =
        read({penalties(), top_k(40), top_p(0.95F), min_p(0.05F), llama_sampler_init_temp_ext(0.5F, 0, 1), dist()});
    CHECK(program.needs_hook());
    CHECK(program.settings.temperature == 0.5);
    // The draft draws at the chain's temperature, wherever that stands.
    auto const early = read({temp(0.5F), top_p(0.5F), top_k(4), dist()});
    CHECK(early.settings.temperature == 1.0);
    REQUIRE(early.settings.draft);
    CHECK(early.settings.draft->temperature == 0.5);
    auto const ours = read({temp(0.5F), top_k(4), dist()}, {.all_by_llama = true});
    CHECK(ours.needs_hook());
    CHECK(ours.settings.target_transform() == transform{});
    CHECK(ours.settings.draft->temperature == 0.5);
}

TEST_CASE("read_llama_chain: greedy needs no stage that keeps the largest logit") {
    for (auto const& sampling :
         {read({greedy()}), read({temp(0.7F), top_p(0.5F), top_k(3), min_p(0.1F), temp(2.0F), greedy()}),
          read({top_p(0.5F), temp(0.0F), dist()}), read({temp(0.0F), top_k(9), min_p(0.1F), dist()})}) {
        CHECK_FALSE(sampling.needs_hook());
        CHECK(sampling.settings.target_transform() == transform{.temperature = 0.0});
    }
    CHECK(read({llama_sampler_init_temp(INFINITY), greedy()}).needs_hook());  // all logits become 0
}

TEST_CASE("read_llama_chain: dist's seed, and none for LLAMA_DEFAULT_SEED") {
    CHECK(read({llama_sampler_init_dist(0)}).settings.seed == 0U);
    CHECK(read({llama_sampler_init_dist(123456789)}).settings.seed == 123456789U);
    CHECK_FALSE(read({llama_sampler_init_dist(LLAMA_DEFAULT_SEED)}).settings.seed);
    CHECK_FALSE(read({greedy()}).settings.seed);
}

// ---- what is refused -------------------------------------------------------------------------------------------

namespace {

std::string refused(std::initializer_list<llama_sampler*> stages, llama_chain_options const& options = {}) {
    auto const chain = make_chain(stages);
    return support::error_text([&] { (void)read_llama_chain(chain.get(), options); });
}

/// A stage of the user's that halves logits; it can be cloned if `clone` is given.
llama_sampler* halving(llama_sampler_i& functions, char const* name, bool cloned) {
    static char const* called = "";
    called = name;
    functions = {};
    functions.name = [](llama_sampler const*) { return called; };
    functions.apply = [](llama_sampler*, llama_token_data_array* a) {
        for (std::size_t i = 0; i < a->size; ++i) a->data[i].logit /= 2.0F;
    };
    static int anything = 0;
    return llama_sampler_init(&functions, cloned ? nullptr : &anything);  // without a context a clone is a copy
}

}  // namespace

TEST_CASE("read_llama_chain: stages without an equal are refused by name, with the remedy") {
    struct trial {
        llama_sampler* stage;
        char const* name;
    };
    for (trial const& t : {trial{llama_sampler_init_xtc(0.5F, 0.1F, 1, 3), "\"xtc\""},
                           trial{llama_sampler_init_mirostat(32, 3, 5.0F, 0.1F, 100), "\"mirostat\""},
                           trial{llama_sampler_init_mirostat_v2(3, 5.0F, 0.1F), "\"mirostat-v2\""},
                           trial{llama_sampler_init_adaptive_p(0.5F, 0.9F, 3), "\"adaptive-p\""}}) {
        std::string const text = refused({temp(0.5F), t.stage, dist()});
        INFO(text);
        CHECK(says(text, {"read_llama_chain: stage 1 of 3 is", t.name, "random numbers of its own", "leave it out"}));
    }
    CHECK(
        says(refused({temp(0.5F), llama_sampler_init_mirostat_v2(3, 5.0F, 0.1F)}), "stage 1 of 2 is \"mirostat-v2\""));
    CHECK(says(refused({temp(0.5F), top_k(4)}),
               {"stage 1 of 2 is \"top-k\"", "expected dist or greedy as the last", "llama_sampler_init_dist"}));
    CHECK(says(refused({greedy(), top_k(4), dist()}), {"stage 0 of 3 is \"greedy\"", "of the last stage only"}));
    CHECK(says(refused({}), {"the chain is empty", "end in dist or greedy"}));
    CHECK(says(support::error_text([] { (void)read_llama_chain(nullptr); }), "the chain is null"));
    CHECK(refused({temp(0.5F), dist()}).empty());
}

TEST_CASE("read_llama_chain: a stage of the user's is run if it is named") {
    llama_sampler_i functions;
    std::string const text = refused({halving(functions, "halving", true), dist()});
    INFO(text);
    CHECK(says(text, {"stage 0 of 2 is \"halving\", which is not known", "llama_chain_options::own_stages"}));
    constexpr std::string_view own[] = {"halving"};
    CHECK(read({halving(functions, "halving", true), dist()}, {.own_stages = own}).needs_hook());
    CHECK(says(refused({halving(functions, "halving", false), dist()}, {.own_stages = own}), "which cannot be cloned"));
    // A name with a question mark is not enough to be left out, nor is a sign enough to be attached.
    CHECK(says(refused({halving(functions, "?halving", true), dist()}), "\"?halving\", which is not known"));
    CHECK(says(refused({halving(functions, "+top-k", true), dist()}),
               {"\"+top-k\", which is attached to a context", "without llama_set_sampler"}));
    functions.name = nullptr;
    owned_sampler const unnamed{llama_sampler_init(&functions, nullptr)};
    CHECK(says(support::error_text([&] { (void)read_llama_chain(unnamed.get()); }), "\"a stage without a name\""));
}
