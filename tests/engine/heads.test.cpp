// SPDX-License-Identifier: MIT
//
// The heads of examples/engine: whatever the kind of a head, the format of its weights, the batch and the number of
// threads, a token's logit has the same bits.
#include "support/catch.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <vector>

#include <engine/heads.hpp>
#include <engine/parts.hpp>
#include <engine/thread_pool.hpp>

#include "support/dice.hpp"
#include "support/tiny_models.hpp"

namespace {

using sureleap::token_id;

// Wide enough that products are shared out over threads, in parts that are not all equal.
tiny::shape const widths{.layers = 1, .hidden = 61, .vocabulary = 4999};

std::vector<tiny::drafter_shape> drafters() {
    std::vector<tiny::drafter_shape> all;
    for (auto const head : {engine::head_kind::none, engine::head_kind::vanilla, engine::head_kind::gated,
                            engine::head_kind::rnn, engine::head_kind::domino}) {
        tiny::drafter_shape d;
        d.head = head;
        d.rank = 43;
        all.push_back(d);
    }
    return all;
}

template <class Real>
std::vector<Real> random_numbers(support::dice& roll, std::size_t n) {
    std::vector<Real> x(n);
    for (Real& e : x) e = static_cast<Real>(roll.between(-2.0, 2.0));
    return x;
}

// Codes of `n` requests, each with a state of its own.
template <class Real>
struct requests {
    requests(engine::any_head<Real> const& head, std::size_t n, support::dice& roll) {
        for (std::size_t i = 0; i < n; ++i) {
            states.emplace_back(head.state_size());
            head.reset(states.back());
            std::vector<Real> const first(head.hidden_size(), Real(1));
            static_cast<void>(head.code(states.back(), first, 7));  // no first position, of which Domino says nothing
            hidden.push_back(random_numbers<Real>(roll, head.hidden_size()));
            previous.push_back(static_cast<token_id>(roll.below(widths.vocabulary)));
            base.push_back(random_numbers<Real>(roll, widths.vocabulary));
        }
    }
    std::vector<std::vector<Real>> states, hidden, base;
    std::vector<token_id> previous;
};

}  // namespace

TEMPLATE_TEST_CASE("heads: a batch on many threads is each request on one, bit for bit", "[engine]", double, float) {
    using Real = TestType;
    for (auto const type : {engine::storage::f64, engine::storage::f32, engine::storage::f16, engine::storage::bf16}) {
        for (auto const& d : drafters()) {
            support::dice roll(31 + static_cast<unsigned>(d.head));
            auto const from = engine::make_in_memory(tiny::dspark_config(widths, d), type, 3);
            auto const head = engine::load_head<Real>(from);
            INFO(engine::name_of(d.head) << " head, storage " << static_cast<int>(type) << ", seed " << roll.seed());
            REQUIRE(head.vocabulary() == widths.vocabulary);
            REQUIRE(head.output().vocabulary() == widths.vocabulary);
            constexpr std::size_t n = 70;  // more than one pass of the backend takes
            requests<Real> const of(head, n, roll);

            auto one_by_one = of.base;
            auto states = of.states;
            for (std::size_t i = 0; i < n; ++i) {
                head.add_bias(states[i], of.hidden[i], of.previous[i], one_by_one[i]);
            }
            CHECK((one_by_one != of.base) == (d.head != engine::head_kind::none));

            engine::thread_pool pool(3);
            REQUIRE(sureleap::executor_ref(pool).worth(widths.vocabulary * d.rank * n / 4) == 3);
            auto together = of.base;
            for (auto& row : together) std::fill(row.begin(), row.end(), Real(0));
            auto at = of.states;
            std::vector<Real const*> codes;
            std::vector<Real const*> base;
            std::vector<Real*> rows;
            for (std::size_t i = 0; i < n; ++i) {
                codes.push_back(head.code(at[i], of.hidden[i], of.previous[i]).data());
                base.push_back(of.base[i].data());
                rows.push_back(together[i].data());
            }
            head.output().add(codes.data(), base.data(), rows.data(), n, pool);
            CHECK(together == one_by_one);
            CHECK(at == states);

            // Some rows alone, in any order.
            std::vector<token_id> tokens(3001);
            for (token_id& v : tokens) v = static_cast<token_id>(roll.below(widths.vocabulary));
            std::vector<Real> few(tokens.size()), expected(tokens.size());
            for (std::size_t i = 0; i < tokens.size(); ++i) {
                few[i] = of.base[0][static_cast<std::size_t>(tokens[i])];
                expected[i] = one_by_one[0][static_cast<std::size_t>(tokens[i])];
            }
            auto again = of.states[0];
            head.output().add_at(tokens, head.code(again, of.hidden[0], of.previous[0]), few);
            CHECK(few == expected);
        }
    }
}

TEST_CASE("heads: a shortlist keeps the best base logits, and the best successors beside them") {
    tiny::agreeing_models const models({.vocabulary = 61}, 4);
    auto const from = models.dspark({.head = engine::head_kind::vanilla}, engine::storage::f32);
    auto const head = engine::load_head<float>(from);
    std::size_t const V = head.vocabulary();
    support::dice roll(9);
    auto const base = random_numbers<float>(roll, V);
    std::vector<float> state(head.state_size()), hidden(head.hidden_size());
    std::vector<float> biased = base;
    head.add_bias(state, hidden, 5, biased);
    std::vector<float> bias(V);
    head.add_bias(state, hidden, 5, bias);

    auto const check = [&](std::size_t best, std::size_t successors, std::vector<token_id> const& expected) {
        sureleap::successor_table const table(head, successors);
        engine::listing_head<float> const lister(head, best, table.view());
        std::vector<token_id> candidates(engine::listing_head<float>::scratch_type::candidate_count(best));
        std::vector<float> values(engine::listing_head<float>::scratch_type::value_count(best, V));
        std::vector<token_id> list(lister.capacity());
        list.resize(lister.unite(lister.choose_best<float>(base, {candidates, values}), 5, list));
        CHECK(list == expected);
        std::vector<float> logits(list.size());
        lister.evaluate<float>(base, list, state, hidden, 5, logits);
        for (std::size_t i = 0; i < list.size(); ++i) {
            CHECK(logits[i] == biased[static_cast<std::size_t>(list[i])]);
        }
    };
    auto const largest = [&](std::size_t n, std::vector<float> const& score) {
        std::vector<token_id> order(V);
        for (std::size_t v = 0; v < V; ++v) order[v] = static_cast<token_id>(v);
        std::sort(order.begin(), order.end(), [&](token_id a, token_id b) {
            return score[static_cast<std::size_t>(a)] > score[static_cast<std::size_t>(b)];
        });
        order.resize(n);
        std::sort(order.begin(), order.end());
        return order;
    };
    auto const by_base = largest(8, base);
    auto const by_bias = largest(6, bias);
    std::vector<token_id> both;
    std::set_union(by_base.begin(), by_base.end(), by_bias.begin(), by_bias.end(), std::back_inserter(both));
    check(8, 0, by_base);
    check(8, 6, both);
    check(V, 0, largest(V, base));
    check(V + 1, 0, largest(V, base));
}
