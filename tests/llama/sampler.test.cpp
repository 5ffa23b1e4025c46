// SPDX-License-Identifier: MIT
//
// Reading chains of llama.cpp's samplers: what is run, and what is refused, with its text.
#include "support/catch.hpp"

#include <cstddef>
#include <string>
#include <string_view>

#include <llama.h>

#include <sureleap/ext/llama/sampler.hpp>

#include "support/chains.hpp"
#include "support/error_text.hpp"

using namespace sureleap;
using support::make_chain;
using support::owned_sampler;
using support::says;

// ---- what is read ----------------------------------------------------------------------------------------------

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
llama_sampler* dist() {
    return llama_sampler_init_dist(7);
}
llama_sampler* greedy() {
    return llama_sampler_init_greedy();
}

}  // namespace

TEST_CASE("read_llama_chain: stages are run, and nothing of them is a setting") {
    auto const sampling = read({temp(0.7F), top_k(40), top_p(0.9F), dist()});
    CHECK(sampling.needs_hook());
    CHECK(sampling.settings.target_transform() == transform{});
    CHECK(sampling.settings.seed == 7U);
    CHECK_FALSE(sampling.settings.draft);
    CHECK_FALSE(read({dist()}).needs_hook());
    // What llama.cpp made to do nothing is left out, whatever it is.
    CHECK_FALSE(
        read({temp(1.0F), top_k(0), top_p(1.0F), llama_sampler_init_min_p(0.0F, 1),
              llama_sampler_init_xtc(0.0F, 0.1F, 1, 3), llama_sampler_init_penalties(32, 0, 1.1F, 0.0F, 0.0F), dist()})
            .needs_hook());
    // A chain in a chain, and a sampler that is none.
    CHECK(read({top_k(5), make_chain({temp(0.5F), dist()}).release()}).settings.seed == 7U);
    CHECK_FALSE(read_llama_chain(owned_sampler{greedy()}.get()).needs_hook());
}

TEST_CASE("read_llama_chain: greedy is temperature 0, and run behind other stages") {
    auto const alone = read({greedy()});
    CHECK_FALSE(alone.needs_hook());
    auto const behind = read({temp(0.7F), top_k(3), greedy()});
    CHECK(behind.needs_hook());
    for (auto const* const sampling : {&alone, &behind}) {
        CHECK(sampling->settings.target_transform() == transform{.temperature = 0.0});
    }
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
