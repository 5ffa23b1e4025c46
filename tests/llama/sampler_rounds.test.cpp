// SPDX-License-Identifier: MIT
//
// Chains of llama.cpp's samplers in rounds: whole decoders over hooked rows, grammars whose drafts are forbidden, and
// what becomes of requests whose stages cannot go on. Three seconds.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <llama.h>

#include <sureleap/ext/llama/sampler.hpp>
#include <sureleap/sureleap.hpp>
#include <sureleap/testing/enumerator.hpp>

#include "support/chains.hpp"
#include "support/executors.hpp"
#include "support/hash_models.hpp"
#include "support/tiny_models.hpp"

using namespace sureleap;
using support::make_chain;
using support::owned_sampler;

using tokens = std::vector<token_id>;

namespace {

constexpr std::size_t block = 4;

auto target_of(std::size_t vocabulary) {
    return support::hash_model<float>(vocabulary, {});
}
auto draft_of(std::size_t vocabulary, std::size_t block_size = block) {
    return autoregressive{support::hash_model<float>(vocabulary, {.own = 5, .disagreement = 0.4}),
                          top1_confidence{},
                          {.block_size = block_size, .vocabulary = vocabulary}};
}

/// Chains that remember, of different requests.
owned_sampler chain_of(std::size_t request, std::size_t vocabulary) {
    auto const size = static_cast<std::int32_t>(vocabulary);
    auto const seed = static_cast<std::uint32_t>(100 + request);
    switch (request % 4) {
        case 0:
            return make_chain({llama_sampler_init_penalties(size, 6, 1.3F, 0.2F, 0.1F), llama_sampler_init_top_k(9),
                               llama_sampler_init_temp(0.8F), llama_sampler_init_dist(seed)});
        case 1:
            return make_chain({llama_sampler_init_dry(nullptr, 1.0F, 1.75F, 1, 64, nullptr, 0),
                               llama_sampler_init_top_p(0.9F, 1), llama_sampler_init_temp(1.2F),
                               llama_sampler_init_dist(seed)});
        case 2: return make_chain({llama_sampler_init_temp(0.9F), llama_sampler_init_dist(seed)});
        default:
            return make_chain({llama_sampler_init_penalties(size, 64, 1.0F, 0.7F, 0.0F),
                               llama_sampler_init_typical(0.9F, 1), llama_sampler_init_greedy()});
    }
}

/// What five requests generate together.
template <class Rule>
std::vector<tokens> generated(Rule const& rule, std::size_t max_draft_tokens, executor_ref executor) {
    constexpr std::size_t vocabulary = 24;
    constexpr std::size_t requests = 5;
    llama_samplers samplers;
    auto target = target_of(vocabulary);
    auto drafter = draft_of(vocabulary);
    decoder dec{target,
                drafter,
                fixed_schedule{},
                rule,
                decoder_options{.max_requests = requests, .executor = executor},
                samplers.hook()};
    std::vector<request_id> ids;
    for (std::size_t i = 0; i < requests; ++i) {
        llama_sampling const sampling = read_llama_chain(chain_of(i, vocabulary).get(), {.sees_prompt = i % 2 == 0});
        tokens const prompt{static_cast<token_id>(i), 3};
        auto settings = sampling.settings;
        if (!settings.seed) settings.seed = 9;
        settings.max_new_tokens = 40;
        settings.max_draft_tokens = max_draft_tokens;
        ids.push_back(dec.submit(prompt, settings));
        samplers.join(ids.back(), sampling, prompt);
    }
    while (dec.step()) {
    }
    std::vector<tokens> texts;
    for (request_id const id : ids) {
        auto const text = dec.generated(id);
        REQUIRE(text.size() == 40);
        texts.emplace_back(text.begin(), text.end());
    }
    if (max_draft_tokens > 0) CHECK(dec.report().accepted() > 0);
    return texts;
}

}  // namespace

TEST_CASE("llama_samplers: with drafts the same tokens as without, with any executor") {
    auto const each_rule = [](auto rule) {
        auto const plain = generated(rule, 0, {});
        CHECK(generated(rule, block, {}) == plain);
        for (auto const order : {support::task_order::shuffled, support::task_order::at_once}) {
            support::test_executor lent{order, 3};
            CHECK(generated(rule, block, lent) == plain);
        }
    };
    each_rule(target_match<>{});
    each_rule(keyed_coupling{});
}

TEST_CASE("llama_samplers: the law of a text is the product of llama.cpp's laws") {
    constexpr std::size_t vocabulary = 4;
    constexpr std::size_t horizon = 3;
    tokens const prompt{1, 2};
    auto const chain =
        make_chain({llama_sampler_init_penalties(vocabulary, 64, 1.6F, 0.4F, 0.3F), llama_sampler_init_top_p(0.99F, 1),
                    llama_sampler_init_temp(2.5F), llama_sampler_init_dist(3)});
    std::map<tokens, double> expected;
    auto const follow = [&](auto const& self, tokens const& text, llama_sampler* at, double mass) -> void {
        if (text.size() == prompt.size() + horizon) {
            expected[tokens(text.begin() + static_cast<std::ptrdiff_t>(prompt.size()), text.end())] += mass;
            return;
        }
        std::vector<float> row(vocabulary);
        support::hash_language{}(std::span<token_id const>(text), std::span<float>(row));
        auto const p = support::law_by_llama(at, row);
        for (std::size_t v = 0; v < vocabulary; ++v) {
            if (!(p[v] > 0.0)) continue;
            owned_sampler const next{llama_sampler_clone(at)};
            llama_sampler_accept(next.get(), static_cast<token_id>(v));
            auto longer = text;
            longer.push_back(static_cast<token_id>(v));
            self(self, longer, next.get(), mass * p[v]);
        }
    };
    follow(follow, prompt, chain.get(), 1.0);

    REQUIRE(expected.size() > 20);
    llama_sampling const sampling = read_llama_chain(chain.get());
    auto settings = sampling.settings;
    settings.max_new_tokens = horizon;
    auto const largest_difference = [&](auto rule, auto hook_of) {
        std::map<tokens, double> found;
        enumerator walk{enumerator::noise::keyed};
        walk.for_each_path([&] {
            llama_samplers samplers;
            decoder dec{target_of(vocabulary),      draft_of(vocabulary, 2), fixed_schedule{}, rule,
                        decoder_options{.seed = 1}, hook_of(samplers),       walk.handle()};
            auto const id = dec.submit(prompt, settings);
            samplers.join(id, sampling, prompt);
            while (dec.step()) {
            }
            auto const text = dec.generated(id);
            found[tokens(text.begin(), text.end())] += walk.weight();
        });
        double largest = 0.0;
        for (auto const& [text, mass] : expected) found[text] -= mass;
        for (auto const& [text, difference] : found) largest = std::max(largest, std::abs(difference));
        return largest;
    };
    auto const right = [](llama_samplers const& samplers) { return samplers.hook(); };
    CHECK(largest_difference(token_rejection<>{}, right) <= 1e-6);
    CHECK(largest_difference(block_verification<>{}, right) <= 1e-6);
    // A mutant: rows behind drafted tokens know nothing of them.
    auto const forgetful = [](llama_samplers const& samplers) {
        return [of = samplers.hook()](hook_context const& at, std::span<float> row) {
            of(hook_context{at.request, {}}, row);
        };
    };
    CHECK(largest_difference(block_verification<>{}, forgetful) > 1e-3);
}

TEST_CASE("llama_samplers: the chain of llama.cpp's programs, from reading it to leaving") {
    constexpr std::size_t vocabulary = 24;
    auto const owned = make_chain({llama_sampler_init_penalties(vocabulary, 64, 1.1F, 0.0F, 0.0F),
                                   llama_sampler_init_top_k(40), llama_sampler_init_typical(1.0F, 1),
                                   llama_sampler_init_top_p(0.95F, 1), llama_sampler_init_min_p(0.05F, 1),
                                   llama_sampler_init_temp_ext(0.8F, 0.0F, 1.0F), llama_sampler_init_dist(42)});
    llama_sampler* const chain = owned.get();
    auto target = target_of(vocabulary);
    auto drafter = draft_of(vocabulary);
    fixed_schedule const schedule;
    target_match<> const rule;
    decoder_options const options;
    tokens const prompt{3, 1};

    llama_sampling const sampling = read_llama_chain(chain, {.sees_prompt = true});
    llama_samplers samplers;
    decoder dec{target, drafter, schedule, rule, options, samplers.hook()};
    request_id const id = dec.submit(prompt, sampling.settings);
    samplers.join(id, sampling, prompt);
    while (dec.step()) {
    }
    samplers.leave(id);

    // By hand: the row, llama.cpp's chain, the noise of the position.
    tokens text = prompt;
    for (token_id const x : prompt) llama_sampler_accept(chain, x);
    while (text.size() < prompt.size() + sampling.settings.max_new_tokens) {
        std::vector<float> row(vocabulary);
        support::hash_language{}(std::span<token_id const>(text), std::span<float>(row));
        auto const p = support::law_by_llama(chain, row);
        std::vector<float> logits;
        for (double const x : p) logits.push_back(static_cast<float>(std::log(x)));
        distribution<float> const made{{logits, {}, {}}, {}, {}};
        request_view const at{.anchor = text.back(), .position = text.size() - 1, .seed = 42};
        text.push_back(philox_randomness{}.categorical(noise_key(at, 0), made));
        llama_sampler_accept(chain, text.back());
    }
    auto const found = dec.generated(id);
    CHECK(std::equal(found.begin(), found.end(), text.begin() + 2, text.end()));
}

// ---- grammars --------------------------------------------------------------------------------------------------

namespace {

/// Bytes and letters; a grammar over them.
struct letters {
    support::tiny_model model = support::make_tiny(support::tiny_arch::llama, 1);
    llama_vocab const* vocab = llama_model_get_vocab(model.get());
    std::size_t size = static_cast<std::size_t>(llama_vocab_n_tokens(vocab));
    token_id end = llama_vocab_eos(vocab);

    [[nodiscard]] std::string text(std::span<token_id const> of) const {
        std::string all;
        for (token_id const x : of) {
            char piece[32];
            int const n = llama_token_to_piece(vocab, x, piece, sizeof piece, 0, false);
            all.append(piece, static_cast<std::size_t>(std::max(n, 0)));
        }
        return all;
    }
    /// A token whose text is this letter.
    [[nodiscard]] token_id operator[](char letter) const {
        for (token_id x = 3; x < static_cast<token_id>(size); ++x) {
            if (text(std::span(&x, 1)) == std::string(1, letter)) return x;
        }
        FAIL("no token " << letter);
        return no_token;
    }
    [[nodiscard]] llama_sampler* grammar(char const* rules) const {
        return llama_sampler_init_grammar(vocab, rules, "root");
    }
};

bool is_nan(std::span<float const> row) {
    return std::all_of(row.begin(), row.end(), [](float l) { return std::isnan(l); });
}

/// A request whose rows are asked for by hand.
struct asked {
    llama_sampling sampling;
    llama_samplers samplers{};
    tokens context;
    std::size_t size;

    asked(llama_sampler* chain, tokens prompt, std::size_t vocabulary)
        : sampling(read_llama_chain(owned_sampler{chain}.get())), context(std::move(prompt)), size(vocabulary) {
        samplers.join(1, sampling, context);
    }
    [[nodiscard]] std::vector<float> row(tokens const& drafted = {}, request_id id = 1) const {
        std::vector<float> logits(size, 0.5F);
        request_view const request{.id = id, .context = context, .settings = &sampling.settings};
        samplers.hook()(hook_context{request, drafted}, logits);
        return logits;
    }
};

}  // namespace

TEST_CASE("llama_samplers: texts of a grammar, whatever is drafted") {
    letters const in;
    char const* const rules = "root ::= (\"ab\" | \"cd\" | \"e\")+";
    auto const language = [&in](std::uint64_t own, double disagreement) {
        support::hash_language const hashed{.own = own, .disagreement = disagreement};
        std::vector<token_id> known;
        for (char const letter : {'a', 'b', 'c', 'd', 'e', 'f'}) known.push_back(in[letter]);
        return [=](std::span<token_id const> context, std::span<float> row) {
            hashed(context, row);
            for (token_id const x : known) row[static_cast<std::size_t>(x)] += 4.0F;
        };
    };
    auto const each_rule = [&](auto rule, llama_sampler* draws) {
        auto const chain = make_chain({in.grammar(rules), llama_sampler_init_top_k(30), draws});
        llama_sampling const sampling = read_llama_chain(chain.get());
        llama_samplers samplers;
        decoder dec{model_of<float>(in.size, language(1, 0.0)),
                    autoregressive{model_of<float>(in.size, language(5, 0.3)),
                                   top1_confidence{},
                                   {.block_size = block, .vocabulary = in.size}},
                    fixed_schedule{},
                    rule,
                    decoder_options{.max_requests = 6},
                    samplers.hook()};
        tokens const prompt{in['z'], in['q']};
        std::vector<request_id> ids;
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
            auto settings = sampling.settings;
            settings.seed = seed;
            settings.max_new_tokens = 60;
            settings.stop_tokens = std::span(&in.end, 1);
            ids.push_back(dec.submit(prompt, settings));
            samplers.join(ids.back(), sampling, prompt);
        }
        std::size_t rejected = 0;
        while (dec.step()) {
            for (request_event const& e : dec.events()) REQUIRE(e.outcome == status::ok);
        }
        rejected = dec.report().verified() - dec.report().accepted();
        for (request_id const id : ids) {
            auto const text = in.text(dec.generated(id));
            INFO(text);
            CHECK_FALSE(text.empty());
            for (std::size_t i = 0; i < text.size();) {
                bool const pair = text.compare(i, 2, "ab") == 0 || text.compare(i, 2, "cd") == 0;
                bool const half = i + 1 == text.size() && (text[i] == 'a' || text[i] == 'c');  // cut at 60 tokens
                REQUIRE((pair || half || text[i] == 'e'));
                i += pair ? 2 : 1;
            }
        }
        CHECK(dec.report().accepted() > 10);
        CHECK(rejected > 10);
    };
    each_rule(block_verification<>{}, llama_sampler_init_dist(1));
    each_rule(keyed_coupling{}, llama_sampler_init_dist(1));
    each_rule(block_verification<>{}, llama_sampler_init_greedy());
}

TEST_CASE("llama_samplers: a drafted token that a grammar forbids is no end of the program") {
    letters const in;
    asked one{make_chain({in.grammar("root ::= \"abc\""), llama_sampler_init_dist(1)}).release(), {in['z']}, in.size};
    float const cut = -std::numeric_limits<float>::infinity();
    auto const at = [&](std::vector<float> const& row, char letter) {
        return row[static_cast<std::size_t>(in[letter])];
    };
    CHECK(at(one.row(), 'a') == 0.5F);
    CHECK(at(one.row(), 'b') == cut);
    CHECK(at(one.row({in['a']}), 'b') == 0.5F);
    // Behind a forbidden token, and behind an end that comes too early, where llama.cpp would abort: the row as it was.
    std::vector<float> const as_it_was(in.size, 0.5F);
    CHECK(one.row({in['b']}) == as_it_was);
    CHECK(one.row({in['a'], in['c'], in['b']}) == as_it_was);
    CHECK(one.row({in.end}) == as_it_was);
    CHECK(one.row({in['a'], in.end, in.end}) == as_it_was);
    CHECK(at(one.row({in['a']}), 'b') == 0.5F);
    // The end in its place.
    auto const last = one.row({in['a'], in['b'], in['c']});
    CHECK(last[static_cast<std::size_t>(in.end)] == 0.5F);
    CHECK(at(last, 'a') == cut);
    // Committed, a forbidden token leaves no law.
    one.context.push_back(in['a']);
    CHECK(at(one.row(), 'b') == 0.5F);
    one.context.push_back(in['z']);
    CHECK(is_nan(one.row()));
    CHECK(is_nan(one.row({in['a']})));
    one.context.resize(1);
    one.samplers.join(1, one.sampling, one.context);  // begins anew
    CHECK(at(one.row(), 'a') == 0.5F);
}

TEST_CASE("llama_samplers: a lazy grammar whose trigger does not begin a text leaves no law") {
    letters const in;
    token_id const trigger[] = {in['t']};
    auto const lazy = [&](char const* rules) {
        auto* const grammar = llama_sampler_init_grammar_lazy_patterns(in.vocab, rules, "root", nullptr, 0, trigger, 1);
        REQUIRE(grammar != nullptr);
        return make_chain({grammar, llama_sampler_init_dist(1)}).release();
    };
    asked right{lazy("root ::= \"tab\""), {in['z']}, in.size};
    CHECK(right.row({in['x']}) == std::vector<float>(in.size, 0.5F));
    CHECK(right.row({in['x'], in['t']})[static_cast<std::size_t>(in['x'])] < 0.0F);
    asked wrong{lazy("root ::= \"ab\""), {in['z']}, in.size};  // llama.cpp throws when it accepts the trigger
    CHECK(is_nan(wrong.row({in['t']})));
    CHECK_FALSE(is_nan(wrong.row({in['x']})));
    wrong.context.push_back(in['t']);
    CHECK(is_nan(wrong.row()));
}

TEST_CASE("llama_samplers: requests that did not join, and tokens that nobody has, leave no law") {
    constexpr std::size_t size = 8;
    auto* const penalties = llama_sampler_init_penalties(size, 64, 2.0F, 0.0F, 0.0F);
    asked one{make_chain({penalties, llama_sampler_init_dist(1)}).release(), {1, 2}, size};
    CHECK_FALSE(is_nan(one.row()));
    CHECK(is_nan(one.row({}, 2)));
    one.context.clear();
    CHECK(is_nan(one.row()));
    one.samplers.leave(1);
    one.context = {1, 2};
    CHECK(is_nan(one.row()));
    // Without stages, and with such as remember nothing, no context is needed.
    asked plain{make_chain({llama_sampler_init_dist(1)}).release(), {1}, size};
    request_view const request{.id = 1, .settings = &plain.sampling.settings};
    CHECK_FALSE(plain.samplers.hook().touches(request));
    CHECK(plain.row() == std::vector<float>(size, 0.5F));
    asked forgets{make_chain({llama_sampler_init_typical(0.5F, 1), llama_sampler_init_dist(1)}).release(), {1}, size};
    forgets.context.clear();
    CHECK(forgets.samplers.hook().touches(request));
    CHECK_FALSE(is_nan(forgets.row()));
    // A decoder says so.
    llama_samplers samplers;
    auto target = target_of(size);
    auto drafter = draft_of(size);
    decoder dec{target, drafter, fixed_schedule{}, target_match<>{}, decoder_options{}, samplers.hook()};
    tokens const prompt{1};
    (void)dec.submit(prompt);
    REQUIRE(dec.step());
    CHECK(dec.events()[0].outcome == status::invalid_target);
}

TEST_CASE("llama_samplers: stages of an earlier request do not serve the next of its id") {
    constexpr std::size_t size = 24;
    auto const stages =
        make_chain({llama_sampler_init_penalties(size, 64, 1.4F, 0.3F, 0.0F), llama_sampler_init_dist(1)});
    auto const bare = make_chain({llama_sampler_init_dist(1)});
    auto const run = [&](llama_samplers& samplers, tokens const& prompt, llama_sampling const& sampling,
                         std::uint64_t seed, bool joins) {
        auto target = target_of(size);
        auto drafter = draft_of(size);
        decoder dec{target, drafter, fixed_schedule{}, target_match<>{}, decoder_options{}, samplers.hook()};
        auto settings = sampling.settings;
        settings.seed = seed;
        settings.max_new_tokens = 12;
        auto const id = dec.submit(prompt, settings);
        if (joins) samplers.join(id, sampling, prompt);
        status outcome = status::ok;
        while (dec.step()) {
            if (dec.events()[0].outcome == status::ok) continue;
            outcome = dec.events()[0].outcome;
            samplers.join(id, sampling, prompt);  // the remedy
            dec.resume(id);
        }
        auto const text = dec.generated(id);
        return std::pair{outcome, tokens(text.begin(), text.end())};
    };
    // Those of `earlier` know other tokens; those of a bare chain edit nothing.
    for (llama_sampler* const earlier : {stages.get(), bare.get()}) {
        llama_sampling const first = read_llama_chain(earlier, {.sees_prompt = true});
        llama_sampling const second = read_llama_chain(stages.get(), {.sees_prompt = true});
        struct {
            tokens prompt;
            std::uint64_t seed;
        } const next[] = {
            {{3, 1}, 8},                                           // another seed
            {{3, 1}, 7},                                           // a position that fell
            {{4, 1, 5, 2, 5, 2, 5, 2, 5, 2, 5, 2, 5, 2, 5, 2}, 7}  // another text, further on
        };
        for (auto const& [prompt, seed] : next) {
            INFO("seed " << seed << ", a prompt of " << prompt.size());
            llama_samplers fresh;
            auto const expected = run(fresh, prompt, second, seed, true);
            REQUIRE(expected.first == status::ok);
            REQUIRE(expected.second.size() == 12);
            llama_samplers used;
            REQUIRE(run(used, {3, 1}, first, 7, true).first == status::ok);
            auto const found = run(used, prompt, second, seed, false);
            CHECK(found.first == status::invalid_target);
            CHECK(found.second == expected.second);
        }
    }
}

TEST_CASE("llama_samplers: rows without a law stay as they are") {
    asked one{make_chain({llama_sampler_init_typical(0.5F, 1), llama_sampler_init_dist(1)}).release(), {1}, 4};
    float const none = -std::numeric_limits<float>::infinity();
    for (auto const& bad : {std::vector<float>{0, NAN, 1, 2}, std::vector<float>{0, 1, INFINITY, 2},
                            std::vector<float>{none, none, none, none}}) {
        auto row = bad;
        request_view const request{.id = 1, .context = one.context, .settings = &one.sampling.settings};
        one.samplers.hook()(hook_context{request, {}}, row);
        for (std::size_t v = 0; v < 4; ++v) CHECK((row[v] == bad[v] || std::isnan(bad[v])));
    }
}
