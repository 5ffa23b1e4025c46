// SPDX-License-Identifier: MIT
//
// Speculative decoding through the whole engine writes what plain decoding writes.
//
// Greedy and keyed decoding must give the very tokens: whatever drafts, plans and accepts, whoever else is in the
// batch, whoever comes and goes. Plain decoding is a loop of a few lines, one token and one row at a time
// (tiny::decode_plainly). Rules that sample are exact in law: the library proves that by enumeration, here one count
// over many requests shows that the engine feeds them the right numbers.
//
// Drafters come from tiny::agreeing_models, so that drafts are accepted at times and rejected at times; both are
// checked, for a drafter that is never right would let any mistake about accepted drafts pass.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <engine/causal_lm.hpp>
#include <engine/parts.hpp>
#include <engine/server.hpp>

#include "support/dice.hpp"
#include "support/tiny_models.hpp"

namespace {

using sureleap::request_settings;
using sureleap::token_id;
using tiny::kind;

// ---- everything that can be chosen ---------------------------------------------------------------------------------

std::vector<std::string> schedules_for(kind k) {
    if (k == kind::none || k == kind::lookup) return {"fixed", "never lose, fixed"};
    if (k == kind::eagle3) return {"fixed", "threshold", "greedy", "top-k", "never lose, greedy"};
    return {"fixed", "threshold", "greedy", "top-k", "planned", "never lose, planned"};
}

sureleap::any_schedule make_schedule(std::string const& name) {
    // A row costs enough that some drafts are not worth verifying.
    engine::learned_cost const cost =
        sureleap::of_batch(sureleap::capacity_table<>({{1, 1.0e-3}, {4, 1.3e-3}, {16, 3.5e-3}}));
    if (name == "threshold") return sureleap::threshold_schedule{0.4};
    if (name == "greedy") return sureleap::greedy_schedule{cost};
    if (name == "top-k") return sureleap::top_k_schedule{cost, 0.6};
    if (name == "planned") return sureleap::planned_schedule{cost};
    if (name == "never lose, planned") return sureleap::never_lose{sureleap::planned_schedule{cost}};
    if (name == "never lose, greedy") return sureleap::never_lose{sureleap::greedy_schedule{cost}};
    if (name == "never lose, fixed") return sureleap::never_lose{sureleap::fixed_schedule{}, cost};
    return sureleap::fixed_schedule{};
}

std::vector<tiny::shape> const& shapes() {
    // layers, hidden, intermediate, heads, kv_heads, head_dim, V, tied, theta
    static std::vector<tiny::shape> const all{
        {1, 16, 24, 2, 2, 8, 50, false, 1e4},   {2, 32, 48, 4, 2, 8, 61, true, 1e6},
        {3, 24, 40, 4, 1, 10, 97, false, 1e6},  {4, 32, 56, 8, 1, 6, 83, true, 1e4},
        {5, 32, 31, 6, 3, 16, 150, false, 5e5}, {6, 40, 72, 8, 2, 8, 120, true, 1e5},
        {2, 17, 29, 3, 3, 6, 71, false, 1e4},   {1, 48, 33, 8, 4, 20, 300, false, 1e6},
        {3, 32, 48, 4, 4, 8, 200, true, 1e4},
    };
    return all;
}

// ---- requests that come and go -------------------------------------------------------------------------------------

struct request {
    std::vector<token_id> prompt;
    std::vector<token_id> stops;
    request_settings settings;
    std::size_t joins = 0;          // before this step
    std::size_t leaves = SIZE_MAX;  // once it has so many tokens
    sureleap::request_id id = 0;
    std::vector<token_id> got;
    bool ended = false;
};

std::vector<request> random_requests(support::dice& roll, std::size_t vocabulary, bool greedy) {
    std::vector<request> all(7);
    for (request& r : all) {
        r.prompt = tiny::random_tokens(roll, 1 + roll.below(roll.chance(0.3) ? 30 : 6), vocabulary);
        r.settings.max_new_tokens = 1 + roll.below(70);
        r.settings.temperature = greedy ? 0.0 : roll.between(0.3, 1.5);
        r.settings.seed = roll.bits();
        if (!greedy && roll.chance(0.3)) r.settings.top_k = static_cast<int>(2 + roll.below(20));
        if (!greedy && roll.chance(0.3)) r.settings.top_p = roll.between(0.5, 1.0);
        if (roll.chance(0.2)) r.settings.max_draft_tokens = roll.below(3);
        if (roll.chance(0.2)) r.settings.draft = sureleap::transform{.temperature = roll.between(0.2, 2.0)};
        if (roll.chance(0.3)) r.stops = tiny::random_tokens(roll, 2, vocabulary);
        r.settings.stop_tokens = r.stops;
        r.joins = roll.below(20);
        if (roll.chance(0.25)) r.leaves = roll.below(r.settings.max_new_tokens);
    }
    return all;
}

// Serves them; what each one got is in it afterwards.
void serve(engine::server<float>& server, std::vector<request>& all) {
    std::size_t open = all.size();
    for (std::size_t step = 0; open > 0; ++step) {
        REQUIRE(step < 100'000);
        for (request& r : all) {
            if (r.id == 0 && r.joins <= step) r.id = server.submit(r.prompt, r.settings);
        }
        (void)server.step();
        for (auto const& event : server.events()) {
            auto const r = std::find_if(all.begin(), all.end(), [&](request const& q) { return q.id == event.id; });
            REQUIRE(r != all.end());
            REQUIRE_FALSE(r->ended);
            REQUIRE(event.outcome == sureleap::status::ok);
            r->got.insert(r->got.end(), event.tokens.begin(), event.tokens.end());
            r->ended = event.finished;
            open -= event.finished ? 1 : 0;
        }
        for (request& r : all) {
            if (r.id == 0 || r.ended || r.got.size() < r.leaves) continue;
            server.leave(r.id);
            r.ended = true;
            --open;
        }
    }
}

struct counts {
    std::uint64_t tokens = 0, verified = 0, accepted = 0, cut = 0;
};

// Some requests, served by a combination of parts and decoded plainly. Storage, threads and sizes as they come.
counts run(tiny::shape const& s, kind k, std::string const& schedule, std::string const& rule, bool greedy,
           std::uint64_t seed) {
    support::dice roll(seed);
    INFO(s << "; " << name_of(k) << ", " << schedule << ", " << rule << ", seed " << roll.seed());
    constexpr engine::storage storages[] = {engine::storage::bf16, engine::storage::f32, engine::storage::f16};
    engine::storage const type = storages[roll.below(3)];
    tiny::drafter_shape const d{.block_size = 2 + roll.below(5),
                                .layers = 1 + roll.below(2),
                                .output = roll.chance(0.5) ? tiny::lm_head::own : tiny::lm_head::shared};
    std::size_t const slots = 1 + roll.below(4);
    tiny::agreeing_models const models(s, seed);
    tiny::served parts(models, k, d, type,
                       {.slots = slots, .context_length = 104, .max_rows = slots * (d.block_size + 1)}, 1 + seed % 2);
    engine::server<float> server(parts.target, parts.drafter, parts.observer, make_schedule(schedule),
                                 engine::make_rule(rule), parts.pool);
    auto requests = random_requests(roll, s.vocabulary, greedy);
    serve(server, requests);

    counts out;
    tiny::served plain(models, kind::none, d, type, {.slots = 1, .context_length = 104, .max_rows = 1});
    for (request const& r : requests) {
        auto expected = tiny::decode_plainly(plain.target, r.prompt, r.settings, rule);
        if (r.leaves < expected.size()) {
            REQUIRE(r.got.size() >= r.leaves);
            REQUIRE(r.got.size() <= expected.size());
            expected.resize(r.got.size());
        }
        REQUIRE(r.got == expected);
        out.tokens += r.got.size();
    }
    REQUIRE(server.report().failures() == 0);
    out.verified = server.report().verified();
    out.accepted = server.report().accepted();
    out.cut = server.report().drafted() - out.verified;
    return out;
}

// Every drafter with every schedule it can serve, with these rules and the shapes in turn, until so many tokens were
// compared.
void check_all(std::vector<std::string> const& rules, bool greedy, std::uint64_t seed, std::size_t wanted) {
    std::map<kind, counts> seen;
    std::uint64_t tokens = 0;
    for (std::size_t i = 0, pass = 0; tokens < wanted; ++pass) {
        for (kind const k : tiny::kinds) {
            for (std::string const& schedule : schedules_for(k)) {
                counts const now =
                    run(shapes()[i % shapes().size()], k, schedule, rules[(i + pass) % rules.size()], greedy, seed + i);
                ++i;
                tokens += now.tokens;
                auto& total = seen[k];
                total.verified += now.verified;
                total.accepted += now.accepted;
                total.cut += now.cut;
            }
        }
    }
    for (auto const& [k, total] : seen) {
        INFO(name_of(k) << ": " << total.accepted << " of " << total.verified << " drafts accepted, " << total.cut
                        << " not verified");
        if (k == kind::none) {
            CHECK(total.verified == 0);
            continue;
        }
        CHECK(total.accepted >= 25);
        CHECK(total.verified - total.accepted >= 25);
        CHECK((total.cut > 0) == (schedules_for(k).size() > 2));
    }
}

}  // namespace

TEST_CASE("lossless: greedy decoding gives the tokens of plain greedy decoding", "[engine]") {
    check_all({"token", "token-argmax", "block", "match", "coupled"}, true, 1000, 12'000);
}

TEST_CASE("lossless: keyed decoding gives the tokens of plain decoding with the same noise", "[engine]") {
    check_all({"coupled", "match"}, false, 5000, 12'000);
}

// ---- in law --------------------------------------------------------------------------------------------------------

TEST_CASE("lossless: sampled tokens have the target's law", "[engine]") {
    // Three tokens of many requests against their exact joint law, by chi square. The first token comes from a plain
    // round, the others mostly from drafts. False alarm: 1e-6 a rule (Wilson-Hilferty: the cube root of a chi square
    // over its degrees of freedom is nearly normal); seeds are fixed, so that this is about changes of the engine.
    constexpr double one_in_a_million = 4.753;
    constexpr std::size_t V = 5, cells = V * V * V, n = 20'000;
    tiny::shape const s{.layers = 2, .hidden = 16, .intermediate = 16, .heads = 2, .kv_heads = 1, .vocabulary = V};
    tiny::agreeing_models const models(s, 3);
    std::vector<token_id> const prompt{3, 0, 2};
    engine::thread_pool pool(1);

    engine::serving_limits const one{.slots = 1, .context_length = 8, .max_rows = 4};
    engine::causal_lm<double> exact(models.target(engine::storage::bf16), {}, pool, one);
    auto const law_after = [&](std::size_t position, token_id x) {
        auto const row = tiny::score_one(exact, 0, position, x);
        std::vector<double> p(row.begin(), row.end());
        double total = 0;
        for (double& l : p) total += l = std::exp(l);
        for (double& l : p) l /= total;
        return p;
    };
    exact.prefill(0, 0, std::span(prompt).first(2));
    std::vector<double> expected;
    auto const p1 = law_after(2, prompt[2]);
    for (std::size_t a = 0; a < V; ++a) {
        auto const p2 = law_after(3, static_cast<token_id>(a));
        for (std::size_t b = 0; b < V; ++b) {
            for (double const p : law_after(4, static_cast<token_id>(b))) expected.push_back(p1[a] * p2[b] * p);
        }
    }

    struct choice {
        char const* rule;
        kind drafter;
        char const* schedule;
    };
    for (choice const& c : {choice{"token", kind::rnn, "fixed"}, choice{"block", kind::vanilla, "threshold"},
                            choice{"token", kind::listed, "fixed"}, choice{"block", kind::listed, "greedy"},
                            choice{"token", kind::joined, "fixed"}, choice{"block", kind::joined, "fixed"}}) {
        INFO(c.rule << ", " << name_of(c.drafter) << ", " << c.schedule);
        engine::serving_limits const limits{.slots = 16, .context_length = 8, .max_rows = 64};
        tiny::served parts(models, c.drafter, {.block_size = 3, .layers = 1}, engine::storage::bf16, limits, 1);
        engine::server<float> server(parts.target, parts.drafter, parts.observer, make_schedule(c.schedule),
                                     engine::make_rule(c.rule), parts.pool);
        std::vector<std::vector<token_id>> got(n);
        for (std::size_t i = 0; i < n; ++i) {
            REQUIRE(server.submit(prompt, {.seed = i, .max_new_tokens = 4}) == i + 1);
        }
        while (server.step()) {
            for (auto const& event : server.events()) {
                got[event.id - 1].insert(got[event.id - 1].end(), event.tokens.begin(), event.tokens.end());
            }
        }
        std::vector<double> counted(cells);
        for (auto const& x : got) {
            REQUIRE(x.size() == 4);
            ++counted[static_cast<std::size_t>(x[0]) * V * V + static_cast<std::size_t>(x[1]) * V +
                      static_cast<std::size_t>(x[2])];
        }
        // Cells too small for the approximation count as one.
        double chi_square = 0, rare_expected = 0, rare_counted = 0, terms = 0;
        auto const add = [&](double e, double o) {
            chi_square += (o - e) * (o - e) / e;
            ++terms;
        };
        for (std::size_t i = 0; i < cells; ++i) {
            double const e = expected[i] * static_cast<double>(n);
            if (e >= 10.0) {
                add(e, counted[i]);
            } else {
                rare_expected += e;
                rare_counted += counted[i];
            }
        }
        if (rare_expected >= 10.0) add(rare_expected, rare_counted);
        double const freedom = terms - 1;
        double const z =
            (std::cbrt(chi_square / freedom) - (1.0 - 2.0 / (9.0 * freedom))) / std::sqrt(2.0 / (9.0 * freedom));
        INFO("chi square " << chi_square << " with " << freedom << " degrees of freedom, z = " << z);
        CHECK(z < one_in_a_million);
        CHECK(freedom > 30);
        // Speculation took part, and was wrong often enough to matter.
        CHECK(server.report().accepted() > n / 8);
        CHECK(server.report().verified() - server.report().accepted() > n / 8);
    }
}
