// SPDX-License-Identifier: MIT
//
// The law of a chain of llama.cpp's samplers is that of the hook made of it: token by token, for chains of all stages
// in any order, after texts of accepted, drafted and rejected tokens. The other side is llama.cpp's own chain. Three
// seconds; one more, and the model's vocabulary, where SURELEAP_SMOLLM2_GGUF names a file.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <llama.h>

#include <sureleap/ext/llama/sampler.hpp>

#include "support/chains.hpp"
#include "support/dice.hpp"
#include "support/tiny_models.hpp"

using namespace sureleap;
using support::between;
using support::dice;
using support::law;
using support::make_chain;
using support::owned_sampler;

namespace {

/// A vocabulary to sample from: bytes and letters, or that of a real model.
struct words {
    std::shared_ptr<llama_model> model;
    llama_vocab const* vocab = llama_model_get_vocab(model.get());
    std::size_t size = static_cast<std::size_t>(llama_vocab_n_tokens(vocab));
    char const* grammar = "root ::= ([a-f]+ \" \")+";
};
words const& tiny_words() {
    static words const made{support::make_tiny(support::tiny_arch::llama, 1)};
    return made;
}

std::vector<float> random_row(dice& roll, std::size_t size, double scale) {
    auto row = support::random_values<float>(roll, size, scale);
    for (int i = 0; i < 3; ++i) row[roll.below(size)] = -std::numeric_limits<float>::infinity();
    return row;
}

/// Up to seven stages of every kind that is not refused, in any order, as often as it happens.
class chain_maker {
public:
    chain_maker(dice& roll, words const& in) : roll_(roll), words_(in) {}

    owned_sampler operator()() {
        owned_sampler made = make_chain({});
        bool grammar = false;
        bool infill = false;
        auto const add = [&made](llama_sampler* stage) { llama_sampler_chain_add(made.get(), stage); };
        for (std::size_t i = roll_.below(8); i > 0; --i) {
            std::size_t const kind = roll_.below(12);
            if (kind == 10) {  // a token that infill puts in may be one that a grammar aborts at
                if (grammar || infill) continue;
                grammar = true;
                add(llama_sampler_init_grammar(words_.vocab, words_.grammar, "root"));
            } else if (kind == 11) {
                if (grammar) continue;
                infill = true;
                add(llama_sampler_init_top_k(12));
                add(llama_sampler_init_infill(words_.vocab));
            } else {
                add(stage(kind));
            }
        }
        add(roll_.chance(0.15) ? llama_sampler_init_greedy() : llama_sampler_init_dist(3));
        return made;
    }

private:
    llama_sampler* stage(std::size_t kind) {
        auto const size = static_cast<std::int32_t>(words_.size);
        std::size_t const min_keep = roll_.chance(0.2) ? 3 : roll_.below(2);
        switch (kind) {
            case 0: return llama_sampler_init_temp(roll_.chance(0.05) ? 0.0F : number(0.3, 2.0));
            case 1: {
                float const t = number(0.5, 2.0);
                float const delta = roll_.chance(0.5) ? 0.0F : number(0.05, 0.4);
                return llama_sampler_init_temp_ext(t, delta, number(0.5, 2.0));
            }
            case 2: return llama_sampler_init_top_k(static_cast<std::int32_t>(roll_.below(words_.size / 3)));
            case 3: return llama_sampler_init_top_p(number(0.2, 1.05), min_keep);
            case 4: return llama_sampler_init_min_p(number(-0.01, 0.3), min_keep);
            case 5: return llama_sampler_init_typical(number(0.2, 1.05), min_keep);
            case 6: return llama_sampler_init_top_n_sigma(number(0.5, 3.0));
            case 7: {
                std::vector<llama_logit_bias> biases;
                for (std::size_t i = roll_.below(5); i > 0; --i) {
                    float const bias = roll_.chance(0.3) ? -std::numeric_limits<float>::infinity() : number(-5.0, 5.0);
                    biases.push_back({static_cast<llama_token>(roll_.below(words_.size)), bias});
                }
                return llama_sampler_init_logit_bias(size, static_cast<std::int32_t>(biases.size()), biases.data());
            }
            case 8: return llama_sampler_init_penalties(size, 8, number(0.7, 2.0), number(-0.5, 1.0), number(0.0, 1.0));
            default: return llama_sampler_init_dry(nullptr, number(0.5, 2.0), 1.75F, 1, 32, nullptr, 0);
        }
    }
    float number(double low, double high) { return static_cast<float>(roll_.between(low, high)); }

    dice& roll_;
    words const& words_;
};

/// One request and what was committed of its text.
struct reader {
    request_settings settings;
    std::vector<token_id> context;

    [[nodiscard]] request_view view() const {
        return {.id = 1,
                .anchor = context.back(),
                .position = context.size() - 1,
                .context = context,
                .remaining = 100,
                .settings = &settings};
    }
};

/// Writes a text by llama.cpp's law and shows both laws of every token: visit(llama's, ours). `ours` is asked as rounds
/// do: with some tokens committed and others drafted, and now and then for rows behind drafts that are rejected.
template <class NextRow, class Ours, class Visit>
void write_text(dice& roll, llama_sampler* chain, NextRow const& next_row, std::size_t length,
                request_settings const& settings, Ours const& ours, Visit const& visit) {
    owned_sampler const theirs{llama_sampler_clone(chain)};
    reader one{settings, {0}};
    std::vector<token_id> drafted;
    for (std::size_t i = 0; i < length; ++i) {
        std::vector<float> const row = next_row();
        std::size_t const vocabulary = row.size();
        if (roll.chance(0.5)) {
            auto rejected = drafted;
            for (std::size_t n = 1 + roll.below(3); n > 0; --n) {
                rejected.push_back(static_cast<token_id>(roll.below(vocabulary)));
                (void)ours(one.view(), std::span<token_id const>(rejected), row);
            }
        }
        law const expected = support::law_by_llama(theirs.get(), row);
        visit(expected, ours(one.view(), std::span<token_id const>(drafted), row));
        if (expected.empty()) return;
        double u = roll.real();
        token_id next = no_token;
        for (std::size_t v = 0; v < vocabulary && u >= 0.0; ++v) {
            if (expected[v] > 0.0) next = static_cast<token_id>(v);
            u -= expected[v];
        }
        llama_sampler_accept(theirs.get(), next);
        drafted.push_back(next);
        if (roll.chance(0.4)) {
            std::size_t const emitted = 1 + roll.below(drafted.size());
            one.context.insert(one.context.end(), drafted.begin(),
                               drafted.begin() + static_cast<std::ptrdiff_t>(emitted));
            drafted.erase(drafted.begin(), drafted.begin() + static_cast<std::ptrdiff_t>(emitted));
        }
    }
}

/// The library's side of write_text for a chain.
struct library {
    llama_sampling sampling;
    llama_samplers samplers{};

    explicit library(llama_sampler* chain) : sampling(read_llama_chain(chain)) {
        token_id const prompt[] = {0};
        samplers.join(1, sampling, prompt);
    }
    [[nodiscard]] law operator()(request_view const& request, std::span<token_id const> drafted,
                                 std::span<float const> row) const {
        return support::law_by_library(samplers.hook(), request, drafted, row);
    }
};

struct counts {
    std::size_t rows = 0;
    std::size_t without_law = 0;
};

/// Random chains over some vocabulary; all rows must agree.
counts compare(dice& roll, words const& in, int chains, std::size_t length) {
    counts seen;
    chain_maker make{roll, in};
    for (int i = 0; i < chains; ++i) {
        auto const made = make();
        double const scale = 1.0 + 7.0 * roll.real();
        library const ours{made.get()};
        auto const next_row = [&] { return random_row(roll, in.size, scale); };
        write_text(roll, made.get(), next_row, length, ours.sampling.settings, ours,
                   [&](law const& expected, law const& found) {
                       ++seen.rows;
                       INFO("seed " << roll.seed() << ", chain " << i << ": " << support::names_of(made.get()));
                       if (expected.empty()) {
                           ++seen.without_law;
                           CHECK(found.empty());
                           return;
                       }
                       auto const apart = between(expected, found);
                       CHECK(apart.edge == 0);
                       CHECK(apart.relative <= 1e-5);  // of exponents and a sum in floats
                   });
    }
    return seen;
}

}  // namespace

TEST_CASE("chains of all stages in any order have llama.cpp's law, token by token") {
    dice roll(2611);
    counts const seen = compare(roll, tiny_words(), 1500, 6);
    INFO("seed " << roll.seed() << ": " << seen.rows << " rows, " << seen.without_law << " without a law");
    CHECK(seen.rows > 6000);
    CHECK(seen.without_law > 0);
}

TEST_CASE("mutants: another order, and other memories, have another law") {
    dice roll(2614);
    INFO("seed " << roll.seed());
    auto const number = [&roll](double low, double high) { return static_cast<float>(roll.between(low, high)); };
    auto const fixed = random_row(roll, tiny_words().size, 3.0);  // so that tokens are said again
    auto const largest = [&](owned_sampler const& chain, request_settings const& settings, auto const& ours) {
        double apart = 0.0;
        write_text(
            roll, chain.get(), [&fixed] { return fixed; }, 24, settings, ours,
            [&](law const& expected, law const& found) { apart = std::max(apart, between(expected, found).largest); });
        return apart;
    };
    auto const plain = [](request_view const& request, std::span<token_id const>, std::span<float const> row) {
        struct {
            static bool touches(request_view const&) { return false; }
            void operator()(hook_context const&, std::span<float>) const {}
        } const nothing;
        return support::law_by_library(nothing, request, {}, row);
    };
    for (int i = 0; i < 20; ++i) {
        // Numbers without their order: temperature first, though top-p stands before it.
        float const p = number(0.4, 0.8);
        float const t = number(0.4, 0.6);
        auto const swapped =
            make_chain({llama_sampler_init_top_p(p, 1), llama_sampler_init_temp(t), llama_sampler_init_dist(3)});
        request_settings const numbers{.temperature = static_cast<double>(t), .top_p = static_cast<double>(p)};
        CHECK(largest(swapped, numbers, plain) > 1e-3);
        library const right{swapped.get()};
        CHECK(largest(swapped, right.sampling.settings, right) < 1e-5);

        auto const penalised = make_chain(
            {llama_sampler_init_penalties(static_cast<std::int32_t>(tiny_words().size), 32, 1.5F, 0.5F, 1.0F),
             llama_sampler_init_top_k(5), llama_sampler_init_dist(3)});
        library const remembers{penalised.get()};
        CHECK(largest(penalised, remembers.sampling.settings, remembers) < 1e-5);
        // Rows behind drafted tokens that have not accepted these.
        library const behind{penalised.get()};
        CHECK(largest(penalised, behind.sampling.settings,
                      [&behind](auto const& request, auto, auto row) { return behind(request, {}, row); }) > 1e-3);
        // Drafted tokens that stay accepted after their rejection.
        library const kept{penalised.get()};
        reader all{kept.sampling.settings, {0}};
        CHECK(largest(penalised, kept.sampling.settings, [&](auto const& request, auto drafted, auto row) {
                  all.context.insert(all.context.end(), drafted.begin(), drafted.end());
                  auto const view = request.context.size() > all.context.size() ? request : all.view();
                  return kept(view, {}, row);
              }) > 1e-3);
    }
}

TEST_CASE("a chain begins as it stands, and sees the prompt if it is told to") {
    auto const& in = tiny_words();
    auto const penalties = [&in] {
        return llama_sampler_init_penalties(static_cast<std::int32_t>(in.size), 64, 2.0F, 0, 0);
    };
    auto const grammar = [&in] { return llama_sampler_init_grammar(in.vocab, "root ::= \"abc\"", "root"); };
    std::vector<float> row(in.size, 1.0F);
    std::vector<token_id> const prompt{270, 271, 272};
    auto const penalised = [&](llama_sampler* chain, bool sees_prompt) {
        llama_sampling const sampling = read_llama_chain(chain, {.sees_prompt = sees_prompt});
        llama_samplers samplers;
        samplers.join(1, sampling, prompt);
        auto edited = row;
        reader const one{sampling.settings, prompt};
        samplers.hook()(hook_context{one.view(), {}}, edited);
        return std::vector{edited[270] < 1.0F, edited[271] < 1.0F, edited[280] < 1.0F};
    };
    auto const chain = make_chain({penalties(), llama_sampler_init_dist(3)});
    CHECK(penalised(chain.get(), false) == std::vector{false, false, false});
    CHECK(penalised(chain.get(), true) == std::vector{true, true, false});
    llama_sampler_accept(chain.get(), 280);
    CHECK(penalised(chain.get(), false) == std::vector{false, false, true});
    CHECK(penalised(chain.get(), true) == std::vector{true, true, true});
    CHECK(penalised(chain.get(), true) == std::vector{true, true, true});  // the chain is as it was
    // A grammar does not: a prompt is not a text of it.
    auto const both = make_chain({grammar(), penalties(), llama_sampler_init_dist(3)});
    CHECK(penalised(both.get(), true)[2]);  // -inf: no letter that may begin the text, and not NaN
}

TEST_CASE("chains over a real vocabulary have llama.cpp's law") {
    char const* const path = std::getenv("SURELEAP_SMOLLM2_GGUF");
    if (path == nullptr) {
        WARN("skipped: SURELEAP_SMOLLM2_GGUF names no file");
        return;
    }
    auto options = llama_model_default_params();
    options.vocab_only = true;
    std::shared_ptr<llama_model> model{llama_model_load_from_file(path, options), llama_model_free};
    REQUIRE(model);
    words const real{.model = std::move(model),
                     .grammar = "root ::= \"{\" ( \"\\\"\" [a-zA-Z ]+ \"\\\"\" \":\" [0-9]+ \",\"? )* \"}\""};
    dice roll(2615);
    (void)compare(roll, real, 12, 3);
}
