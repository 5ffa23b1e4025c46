// SPDX-License-Identifier: MIT
//
// An engine that is divided among ranks, here threads. Products, logits and features have the bits of a single process.
// Texts are the same for any number of ranks. A rank that is gone is an error on the others. Ten seconds.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <engine/divided_products.hpp>
#include <engine/parts.hpp>
#include <engine/quantised.hpp>
#include <engine/ranks.hpp>
#include <engine/server.hpp>
#include <sureleap/ranks/thread_ranks.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"
#include "support/on_ranks.hpp"
#include "support/tiny_models.hpp"

namespace {

using engine::storage;
using sureleap::token_id;
using tiny::kind;

constexpr std::size_t rank_counts[] = {1, 2, 3, 4, 8};

/// What of_rank(ranks) returns on every rank, each of which may send so many bytes in an exchange.
template <class OfRank>
auto divided(std::size_t size, std::size_t most_bytes, OfRank const& of_rank, double seconds = 60) {
    std::vector<decltype(of_rank(std::declval<engine::any_ranks&>()))> out(size);
    sureleap::thread_ranks all(size, {.most_bytes = most_bytes, .seconds = seconds});
    support::on_ranks(size, [&](std::size_t i) {
        auto own = all.of(i);
        engine::any_ranks ranks(own, most_bytes);
        out[i] = of_rank(ranks);
    });
    return out;
}

std::vector<float> numbers(std::size_t n, support::dice& roll) {
    std::vector<float> out(n);
    for (float& x : out) x = static_cast<float>(roll.between(-1.0, 1.0));
    return out;
}

/// A random matrix of any storage, and its memory.
struct matrix {
    std::vector<float> plain;
    std::vector<sureleap::bf16> halves;
    std::optional<engine::packed_matrix> packed;
    engine::weight w;

    matrix(storage type, std::size_t rows, std::size_t cols, support::dice& roll) : plain(numbers(rows * cols, roll)) {
        if (engine::is_packed(type)) {
            packed.emplace(type, rows, cols);
            for (std::size_t r = 0; r < rows; ++r) packed->quantise(r, std::span(plain).subspan(r * cols, cols));
            w = packed->view();
        } else if (type == storage::bf16) {
            for (float const x : plain) halves.push_back(sureleap::bf16(x));
            w = {halves.data(), type, rows, cols};
        } else {
            w = {plain.data(), storage::f32, rows, cols};
        }
    }
    matrix(matrix const&) = delete;
    matrix& operator=(matrix const&) = delete;
};

// Three parts of the vocabulary, so that of eight ranks five have no logits.
tiny::shape const shape{
    .layers = 2, .hidden = 24, .intermediate = 40, .heads = 4, .kv_heads = 2, .vocabulary = 2 * 4096 + 100};
tiny::drafter_shape const drafter{.block_size = 3};
tiny::agreeing_models const& models() {
    static tiny::agreeing_models const all(shape, 5);
    return all;
}
/// To list the successors of all tokens takes time that grows with the square of their number: there are few of these.
tiny::agreeing_models const& models_for(kind k) {
    static tiny::agreeing_models const small(
        [] {
            auto few = shape;
            few.vocabulary = 500;
            return few;
        }(),
        5);
    return k == kind::listed ? small : models();
}

struct known {
    std::vector<float> logits;
    std::vector<float> features;
    bool operator==(known const&) const = default;
};

/// Of a prompt in two slots and a batch behind it: all columns, or those of the rank's slice.
known pass(engine::any_ranks* ranks, storage type) {
    engine::thread_pool pool(1);
    engine::causal_lm<float> model(models().target(type), tiny::feature_layers(shape), pool,
                                   {.slots = 2, .context_length = 64, .max_rows = 24}, ranks);
    std::vector<token_id> prompt;
    for (token_id x = 0; x < 20; ++x) prompt.push_back(x * 397);
    model.prefill(0, 0, prompt);
    model.prefill(1, 0, std::span(prompt).first(7));
    tiny::flat_batch const batch({{0, 20, {8000, 3, 4097}}, {1, 7, {5, 6}}});
    auto const rows = model.score(batch.batch());
    auto const features = model.features();
    return {{rows.values.data, rows.values.data + rows.values.rows * rows.values.cols},
            {features.data, features.data + features.rows * features.cols}};
}

struct products {
    std::vector<float> a, b, sum, gated;
    bool operator==(products const&) const = default;
};

using texts = std::map<sureleap::request_id, std::vector<token_id>>;

/// What a server makes of four prompts in three slots.
texts decode(engine::any_ranks* ranks, kind k, std::string const& rule, sureleap::any_schedule schedule,
             std::size_t tree = 0) {
    tiny::served parts(models_for(k), k, drafter, storage::bf16, {.slots = 3, .context_length = 64, .max_rows = 24}, 1,
                       ranks);
    if (tree > 0) engine::grow_trees(parts.drafter, {.nodes = tree});
    engine::server<float> server(parts.target, parts.drafter, parts.observer, std::move(schedule),
                                 engine::make_rule(rule), parts.pool);
    for (std::uint64_t i = 0; i < 4; ++i) {
        server.submit({static_cast<token_id>(i), static_cast<token_id>(parts.target.vocabulary() - 192), 17},
                      {.temperature = i == 3 ? 0.0 : 0.8,
                       .top_k = i == 1 ? 40 : 0,
                       .top_p = i == 2 ? 0.9 : 1.0,
                       .seed = 100 + i,
                       .max_new_tokens = 16});
    }
    texts out;
    while (server.step()) {
        for (auto const& event : server.events()) {
            if (event.outcome != sureleap::status::ok) out[event.id].push_back(-1);
            out[event.id].insert(out[event.id].end(), event.tokens.begin(), event.tokens.end());
        }
    }
    return out;
}

/// The same on every rank, which all come to the same texts.
texts decode_divided(std::size_t size, kind k, std::string const& rule, sureleap::any_schedule const& schedule,
                     std::size_t tree = 0) {
    auto const all =
        divided(size, 1 << 20, [&](engine::any_ranks& ranks) { return decode(&ranks, k, rule, schedule, tree); });
    for (texts const& of_rank : all) CHECK(of_rank == all.front());
    return all.front();
}

}  // namespace

TEST_CASE("ranks: divided products have the bits of whole ones, in one exchange or in many", "[engine]") {
    constexpr std::size_t n = 5, cols = 64;
    for (storage const type : {storage::f32, storage::bf16, storage::q4, storage::q5, storage::q8}) {
        support::dice roll(11);
        matrix const a(type, 83, cols, roll), b(type, 16, cols, roll), c(type, 83, cols, roll);
        auto const x = numbers(n * cols, roll);
        auto const residual = numbers(n * a.w.rows, roll);
        engine::thread_pool alone(1);
        products whole{std::vector<float>(n * a.w.rows), std::vector<float>(n * b.w.rows), residual,
                       std::vector<float>(n * a.w.rows)};
        engine::matmul<float>(alone, x.data(), n, {{a.w, whole.a.data()}, {b.w, whole.b.data()}});
        engine::matmul_add(alone, x.data(), n, a.w, whole.sum.data());
        engine::gated_matmul(alone, x.data(), n, a.w, c.w, whole.gated.data());
        for (std::size_t const size : rank_counts) {
            for (std::size_t const most_bytes : {std::size_t{1} << 16, std::size_t{512}}) {  // all rows, or one
                CAPTURE(type, size, most_bytes);
                auto const of_rank = divided(size, most_bytes, [&](engine::any_ranks& ranks) {
                    engine::thread_pool pool(1);
                    engine::divided_products<float> multiply(pool, &ranks);
                    products own{std::vector<float>(whole.a.size()), std::vector<float>(whole.b.size()), residual,
                                 std::vector<float>(whole.gated.size())};
                    multiply(x.data(), n, {{a.w, own.a.data()}, {b.w, own.b.data()}});
                    multiply.add(x.data(), n, a.w, own.sum.data());
                    multiply.gated(x.data(), n, a.w, c.w, own.gated.data());
                    return own;
                });
                for (products const& own : of_rank) CHECK(own == whole);
            }
        }
    }
}

TEST_CASE("ranks: a divided target has the logits and features of a whole one", "[engine]") {
    for (storage const type : {storage::f32, storage::bf16}) {
        known const whole = pass(nullptr, type);
        std::size_t const rows = whole.logits.size() / shape.vocabulary;
        for (std::size_t const size : rank_counts) {
            auto const slices = sureleap::vocabulary_slices::even(shape.vocabulary, size);
            auto const of_rank = divided(size, 4096, [&](engine::any_ranks& ranks) { return pass(&ranks, type); });
            for (std::size_t i = 0; i < size; ++i) {
                CAPTURE(type, size, i);
                CHECK(of_rank[i].features == whole.features);
                REQUIRE(of_rank[i].logits.size() == rows * slices.size(i));
                for (std::size_t r = 0; r < rows; ++r) {
                    CHECK(std::equal(
                        of_rank[i].logits.begin() + static_cast<std::ptrdiff_t>(r * slices.size(i)),
                        of_rank[i].logits.begin() + static_cast<std::ptrdiff_t>((r + 1) * slices.size(i)),
                        whole.logits.begin() + static_cast<std::ptrdiff_t>(r * shape.vocabulary + slices.first(i))));
                }
            }
        }
    }
}

TEST_CASE("ranks: texts are those of a single process where rules follow the target's token", "[engine]") {
    auto const compare = [](char const* rule, std::initializer_list<kind> kinds) {
        for (kind const k : kinds) {
            CAPTURE(rule, name_of(k));
            texts const whole = decode(nullptr, k, rule, sureleap::fixed_schedule{});
            CHECK(decode_divided(2, k, rule, sureleap::fixed_schedule{}) == whole);
        }
    };
    compare("coupled", {kind::none, kind::lookup, kind::vanilla, kind::eagle3, kind::listed, kind::joined});
    compare("match", {kind::vanilla});
    texts const whole = decode(nullptr, kind::rnn, "coupled", sureleap::fixed_schedule{});
    for (std::size_t const size : rank_counts) {
        CHECK(decode_divided(size, kind::rnn, "coupled", sureleap::fixed_schedule{}) == whole);
    }
}

TEST_CASE("ranks: texts do not depend on the number of ranks", "[engine]") {
    struct choice {
        char const* rule;
        kind drafter;
        std::size_t tree;
    };
    for (choice const& c : {choice{"token", kind::vanilla, 0}, choice{"block", kind::rnn, 0},
                            choice{"token", kind::joined, 0}, choice{"token", kind::vanilla, 6}}) {
        CAPTURE(c.rule, name_of(c.drafter), c.tree);
        texts const one = decode_divided(1, c.drafter, c.rule, sureleap::fixed_schedule{}, c.tree);
        for (std::size_t const size : {2u, 3u, 8u}) {
            CHECK(decode_divided(size, c.drafter, c.rule, sureleap::fixed_schedule{}, c.tree) == one);
        }
    }
}

TEST_CASE("ranks: schedules that learn from seconds decide alike", "[engine]") {
    // Each rank has a table of its own, as each would have measured it; the clock is one for all.
    texts const whole = decode(nullptr, kind::vanilla, "coupled", sureleap::fixed_schedule{});
    auto const schedule = [] {
        engine::learned_cost const cost = sureleap::of_batch(sureleap::capacity_table<>({{1, 1e-4}, {12, 2e-4}}));
        return sureleap::never_lose{sureleap::planned_schedule{cost}};
    };
    auto const all = divided(
        3, 1 << 20, [&](engine::any_ranks& ranks) { return decode(&ranks, kind::vanilla, "coupled", schedule()); });
    for (texts const& of_rank : all) CHECK(of_rank == whole);
    auto const seconds = divided(3, 64, [](engine::any_ranks& ranks) {
        double const own = static_cast<double>(ranks.rank());
        engine::rank_clock const clock(&ranks, []() noexcept { return 7.0; });
        return std::pair(engine::slowest(&ranks, own), clock());
    });
    for (auto const& [slowest, now] : seconds) {
        CHECK(slowest == 2.0);
        CHECK(now == 7.0);
    }
    CHECK(engine::slowest(nullptr, 3.0) == 3.0);
}

TEST_CASE("ranks: what is wrong is said on every rank", "[engine]") {
    SECTION("a rank that is gone") {
        auto const errors = divided(
            3, 4096,
            [](engine::any_ranks& ranks) {
                if (ranks.rank() == 1) return std::string();
                return support::error_text([&] { static_cast<void>(pass(&ranks, storage::f32)); });
            },
            0.2);
        for (std::size_t const rank : {0u, 2u}) {
            CHECK(support::says(errors[rank], {"of 3: an exchange of", "bytes failed", "expected all ranks"}));
        }
    }
    SECTION("an exchange that holds no round") {
        auto const errors = divided(2, 1024, [](engine::any_ranks& ranks) {
            return support::error_text(
                [&] { static_cast<void>(decode(&ranks, kind::lookup, "token", sureleap::fixed_schedule{})); });
        });
        for (std::string const& text : errors) {
            CHECK(support::says(text, {"row_acceptor: an exchange of the ranks holds 1024 bytes, expected",
                                       "for 3 requests with 3 drafts each"}));
        }
    }
}
