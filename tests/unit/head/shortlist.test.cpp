// SPDX-License-Identifier: MIT
//
// Lists of tokens: which they are, against sorting the row; the logits that they get, against the full head's; the law
// over them, against the softmax written out and a race of all tokens; and what is refused at set-up.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/head/gated.hpp>
#include <sureleap/head/int8.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/rnn.hpp>
#include <sureleap/head/shortlist.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

#include "support/dice.hpp"
#include "support/error_text.hpp"

using namespace sureleap;
using support::error_text;
using support::random_values;
using support::says;

namespace {

using tokens = std::vector<token_id>;
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();

/// By (logit descending, id ascending), NaN left out; ascending again. Logits count as Real.
template <class Real, class T>
tokens best_by_sorting(std::vector<T> const& row, std::size_t best) {
    tokens ids;
    for (std::size_t v = 0; v < row.size(); ++v) {
        if (load(row[v]) == load(row[v])) ids.push_back(static_cast<token_id>(v));
    }
    auto const logit = [&](token_id v) { return static_cast<Real>(load(row[static_cast<std::size_t>(v)])); };
    std::sort(ids.begin(), ids.end(),
              [&](token_id a, token_id b) { return logit(a) > logit(b) || (logit(a) == logit(b) && a < b); });
    ids.resize(std::min(best, ids.size()));
    std::sort(ids.begin(), ids.end());
    return ids;
}

/// Memory of exactly the promised sizes.
template <class Real>
struct memory {
    tokens candidates;
    std::vector<Real> values;
    memory(std::size_t best, std::size_t vocabulary)
        : candidates(shortlist_scratch<Real>::candidate_count(best)),
          values(shortlist_scratch<Real>::value_count(best, vocabulary)) {}
    [[nodiscard]] shortlist_scratch<Real> scratch() { return {candidates, values}; }
};

template <class Real, class T>
tokens best_of(std::vector<T> const& row, std::size_t best) {
    memory<Real> m(best, row.size());
    std::size_t const count = detail::best_tokens<T, Real>(row, best, m.scratch());
    return {m.candidates.begin(), m.candidates.begin() + static_cast<std::ptrdiff_t>(count)};
}

/// The kinds of rows that a choice by threshold may get wrong.
constexpr int shapes = 11;
double shaped(int shape, std::size_t v, std::size_t size, support::dice& roll) {
    auto const at = static_cast<double>(v), n = static_cast<double>(size);
    switch (shape) {
        case 0: return roll.bell();
        case 1: return static_cast<double>(roll.below(4));               // heavy ties
        case 2: return 1.0;                                              // nothing but ties
        case 3: return at;                                               // every later token is better
        case 4: return n - at;                                           // none is
        case 5: return v % 128 == 0 ? 10.0 + roll.real() : roll.real();  // the sample is all there is
        case 6: return v % 128 == 0 ? -10.0 : roll.real();               // the sample knows nothing
        case 7: return roll.chance(0.7) ? -inf : roll.bell();
        case 8: return roll.chance(0.3) ? nan_value : static_cast<double>(roll.below(6));
        case 9: return roll.chance(0.5) ? nan_value : -inf;
        default: return v % 128 == 0 ? nan_value : roll.chance(0.01) ? inf : roll.bell();
    }
}

}  // namespace

TEMPLATE_TEST_CASE("best_tokens: what sorting finds, for rows of every kind", "", (std::pair<float, float>),
                   (std::pair<double, double>), (std::pair<bf16, float>), (std::pair<half, double>),
                   (std::pair<float, double>), (std::pair<double, float>)) {
    using T = typename TestType::first_type;
    using real = typename TestType::second_type;
    support::dice roll(701);
    INFO("seed " << roll.seed());
    for (std::size_t const size : {1u, 2u, 3u, 17u, 128u, 129u, 500u, 1023u, 1024u, 1025u, 2100u, 5000u}) {
        for (int shape = 0; shape < shapes; ++shape) {
            std::vector<T> row;
            for (std::size_t v = 0; v < size; ++v) {
                row.push_back(static_cast<T>(static_cast<compute_t<T>>(shaped(shape, v, size, roll))));
            }
            row.shrink_to_fit();
            for (std::size_t const best : {std::size_t{1}, std::size_t{2}, std::size_t{7}, std::size_t{40},
                                           std::size_t{129}, 1 + roll.below(size), size - 1, size, size + 5}) {
                INFO("V " << size << ", best " << best << ", shape " << shape);
                REQUIRE(best_of<real>(row, best) == best_by_sorting<real>(row, best));
            }
        }
    }
}

namespace {

template <class Real, class W = Real>
struct head_weights {
    std::size_t target, draft, r, d;
    std::vector<W> w1, w2, gate, gate_bias, joint, joint_bias;
    head_weights(support::dice& roll, std::size_t vocabulary, std::size_t rank, std::size_t hidden)
        : target(vocabulary),
          draft(vocabulary),
          r(rank),
          d(hidden),
          w1(random_values<W>(roll, target * r)),
          w2(random_values<W>(roll, draft * r)),
          gate(random_values<W>(roll, r * (d + r))),
          gate_bias(random_values<W>(roll, r)),
          joint(random_values<W>(roll, 3 * r * (2 * r + d))),
          joint_bias(random_values<W>(roll, 3 * r)) {}

    [[nodiscard]] matrix_view<W> w1_view() const { return {w1.data(), target, r}; }
    [[nodiscard]] matrix_view<W> w2_view() const { return {w2.data(), draft, r}; }

    /// Calls f for each kind of head over W2 in floating point, and in eight bits where that is multiplied.
    template <class F>
    void each(F const& f) const {
        every_kind(w2_view(), f);
        if constexpr (std::is_same_v<Real, float>) {
            int8_matrix const matrix{w2_view()};
            every_kind(matrix.view(), f);
        }
    }

private:
    template <class Output, class F>
    void every_kind(Output output, F const& f) const {
        using backend = native_backend;
        f("markov", markov_head<W, Real, backend, Output>{w1_view(), output});
        f("gated", gated_head<W, Real, backend, Output>{w1_view(), output, {gate.data(), r, d + r}, gate_bias});
        f("rnn", rnn_head<W, Real, backend, Output>{w1_view(), output, {joint.data(), 3 * r, 2 * r + d}, joint_bias});
    }
};

/// W2 W1[previous], whatever the head does with its gates.
template <class Head>
std::vector<typename Head::value_type> open_bias(Head const& head, token_id previous) {
    using real = typename Head::value_type;
    std::vector<real> e(head.rank()), bias(head.vocabulary());
    head.embed(previous, e);
    head.output().add(std::span<real const>(e), std::span<real>(bias));
    return bias;
}

template <class Real, class W>
void check_lists(std::uint64_t seed) {
    support::dice roll(seed);
    INFO("seed " << roll.seed());
    for (int trial = 0; trial < 12; ++trial) {
        std::size_t const vocabulary = trial < 10 ? 1 + roll.below(60) : 1500 + roll.below(700);
        head_weights<Real, W> const weights(roll, vocabulary, 1 + roll.below(20), 1 + roll.below(4));
        std::size_t const best = 1 + roll.below(trial < 10 ? vocabulary + 3 : 50);
        std::size_t const successors = roll.below(std::min<std::size_t>(vocabulary, 20) + 3);
        weights.each([&](std::string const& name, auto const& head) {
            INFO("V " << vocabulary << ", best " << best << ", successors " << successors << ", " << name);
            using head_type = std::remove_cvref_t<decltype(head)>;
            static_assert(sequential_head<shortlist_head<head_type>>);
            static_assert(!factored_head<shortlist_head<head_type>>, "its rows are lists");
            if (vocabulary > 1000 && name != "markov") return;
            successor_table const table{head, successors};
            auto const view = table.view();
            REQUIRE(view.rows == vocabulary);
            REQUIRE(view.cols == std::min(vocabulary, successors));
            for (std::size_t u = 0; u < vocabulary; u += vocabulary > 1000 ? 23 : 1) {
                auto const bias = open_bias(head, static_cast<token_id>(u));
                auto const row = view.row(u);
                REQUIRE(tokens(row.begin(), row.end()) == best_by_sorting<Real>(bias, successors));
            }

            shortlist_head const listed{head, best, view};
            REQUIRE(listed.best() == std::min(best, vocabulary));
            REQUIRE(listed.capacity() == std::min(vocabulary, listed.best() + view.cols));
            REQUIRE(listed.vocabulary() == head.vocabulary());
            REQUIRE(listed.previous_vocabulary() == head.previous_vocabulary());
            REQUIRE(listed.hidden_size() == head.hidden_size());
            REQUIRE(listed.state_size() == head.state_size());
            std::vector<Real> s(head.state_size(), Real(5)), t(head.state_size(), Real(6));
            head.reset(s), listed.reset(t);
            auto const hidden = random_values<Real>(roll, head.hidden_size());
            for (int k = 0; k < 4; ++k) {
                // Few different logits, so that lists meet ties; the base is in the weights' storage.
                std::vector<W> base;
                for (std::size_t v = 0; v < vocabulary; ++v) {
                    base.push_back(static_cast<W>(static_cast<float>(roll.below(6))));
                }
                auto const previous = static_cast<token_id>(roll.below(vocabulary));
                memory<Real> m(listed.best(), vocabulary);
                tokens list(listed.capacity());
                list.resize(listed.unite(listed.choose_best(std::span<W const>(base), m.scratch()), previous, list));

                tokens expected = best_by_sorting<Real>(base, best);
                auto const next = view.row(static_cast<std::size_t>(previous));
                expected.insert(expected.end(), next.begin(), next.end());
                std::sort(expected.begin(), expected.end());
                expected.erase(std::unique(expected.begin(), expected.end()), expected.end());
                REQUIRE(list == expected);
                tokens at_anchor(listed.capacity());
                at_anchor.resize(
                    listed.unite(listed.choose_best(std::span<W const>(base), m.scratch()), no_token, at_anchor));
                REQUIRE(at_anchor == best_by_sorting<Real>(base, best));

                std::vector<Real> full, some(list.size(), Real(-7)), copied(list.size()), biased;
                for (W const& u : base) full.push_back(static_cast<Real>(load(u)));
                biased = full;
                listed.copy(std::span<W const>(base), list, std::span<Real>(copied));
                auto other = t;
                listed.add_bias(other, hidden, previous, biased);
                head.add_bias(s, hidden, previous, full);
                REQUIRE(biased == full);
                listed.evaluate(std::span<W const>(base), list, t, hidden, previous, some);
                REQUIRE(s == t);
                for (std::size_t i = 0; i < list.size(); ++i) {
                    auto const v = static_cast<std::size_t>(list[i]);
                    REQUIRE(some[i] == full[v]);  // the same bits: a row's sum is the same in any selection
                    REQUIRE(copied[i] == static_cast<Real>(load(base[v])));
                }
            }
        });
    }
}

}  // namespace

TEST_CASE("shortlist_head: the list is the best and the successors, its logits are the full head's") {
    check_lists<float, float>(702);
    check_lists<float, bf16>(703);
    check_lists<double, double>(704);
}

TEST_CASE("shortlist_head: a token that has no row of successors is followed by the best alone") {
    std::vector<float> const w1{1, 2, 3, 4}, w2{4, 3, 2, 1}, base{0.0f, 3.0f, 1.0f, 2.0f};
    std::vector<token_id> const successors{0, 1, 2, 0};
    shortlist_head const head{markov_head<float>{{w1.data(), 4, 1}, {w2.data(), 4, 1}}, 1, {successors.data(), 4, 1}};
    std::vector<token_id> ids(decltype(head)::scratch_type::candidate_count(1)), tokens(head.capacity());
    std::vector<float> values(decltype(head)::scratch_type::value_count(1, 4));
    auto const listed = [&](token_id previous) {
        std::size_t const count =
            head.unite(head.choose_best(std::span<float const>(base), {ids, values}), previous, tokens);
        return std::vector<token_id>(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
    };
    CHECK(listed(0) == std::vector<token_id>{0, 1});
    CHECK(listed(2) == std::vector<token_id>{1, 2});
    for (token_id const foreign : {no_token, token_id{-200}, token_id{4}, std::numeric_limits<token_id>::max()}) {
        CHECK(listed(foreign) == std::vector<token_id>{1});
    }
}

TEST_CASE("shortlist_head: NaN is not listed, a row of nothing else gives an empty list") {
    std::vector<float> const w(5, 1.0f);
    matrix_view<float> const view{w.data(), 5, 1};
    shortlist_head const head{markov_head{view, view}, 2};
    memory<float> m(2, 5);
    tokens list(head.capacity(), 9);
    auto const nothing = static_cast<float>(nan_value);
    std::vector<float> base(5, nothing);
    CHECK(head.unite(head.choose_best(std::span<float const>(base), m.scratch()), 0, list) == 0);
    base[3] = -1.0f;
    CHECK(head.unite(head.choose_best(std::span<float const>(base), m.scratch()), 0, list) == 1);
    CHECK(list[0] == 3);
}

#if SURELEAP_EXCEPTIONS
TEST_CASE("a table of successors refuses weights whose products are no numbers", "[error]") {
    std::vector<float> const w1{1.0f, 1.0f, 10.0f, 10.0f}, large{3e38f, -3e38f, 3e38f, -3e38f, 1.0f, 1.0f};
    markov_head const head{matrix_view<float>{w1.data(), 2, 2}, matrix_view<float>{large.data(), 3, 2}};
    CHECK(error_text([&] { successor_table{head, 1}; }).empty());
    CHECK(says(error_text([&] { successor_table{head, 2}; }),
               {"successor_table", "after token 1", "1 values", "at least 2", "too large"}));
}

TEST_CASE("shortlist_head refuses lists that do not fit", "[error]") {
    std::vector<float> const w(4, 1.0f);
    matrix_view<float> const view{w.data(), 4, 1};
    markov_head const head{view, view};
    auto const text = [&](std::size_t best, tokens const& ids, std::size_t rows, std::size_t cols) {
        return error_text([&] { shortlist_head{head, best, matrix_view<token_id>{ids.data(), rows, cols}}; });
    };
    CHECK(text(1, {0, 1, 0, 2, 1, 3, 2, 3}, 4, 2).empty());
    CHECK(error_text([&] { shortlist_head{head, 1}; }).empty());
    CHECK(says(error_text([&] { shortlist_head{head, 0}; }), {"shortlist_head", "best is 0", "at least 1"}));
    CHECK(says(text(1, {0, 1, 2}, 3, 1), {"shortlist_head", "successors of 3 tokens", "expected 4"}));
    CHECK(says(text(1, {0, 1, 4, 2}, 4, 1), {"successor 0 of token 2 is 4", "0 .. 3"}));
    CHECK(says(text(1, {0, -1, 1, 2}, 4, 1), {"successor 0 of token 1 is -1", "0 .. 3"}));
    CHECK(says(text(1, {0, 1, 0, 2, 1, 1, 2, 3}, 4, 2), {"successor 1 of token 2 is 1", "2 .. 3", "ascending"}));
    CHECK(says(text(1, {1, 0, 0, 2, 1, 2, 2, 3}, 4, 2), {"successor 1 of token 0 is 0", "2 .. 3"}));
}
#endif

TEST_CASE("vocabulary_view: a list is searched, a map is asked, nothing is neither") {
    vocabulary_view const none;
    CHECK_FALSE(static_cast<bool>(none));
    CHECK_FALSE(static_cast<bool>(vocabulary_view{static_cast<vocabulary_map const*>(nullptr)}));
    CHECK(none.list().empty());

    tokens const list{2, 3, 7};
    vocabulary_view const listed{list, 9};
    REQUIRE(static_cast<bool>(listed));
    CHECK(listed.draft_size() == 3);
    CHECK(listed.target_size() == 9);
    CHECK(listed.list().data() == list.data());
    for (token_id v = 0; v < 9; ++v) {
        auto const at = std::find(list.begin(), list.end(), v);
        CHECK(listed.to_draft(v) == (at == list.end() ? no_token : static_cast<token_id>(at - list.begin())));
    }
    for (token_id i = 0; i < 3; ++i) CHECK(listed.to_target(i) == list[static_cast<std::size_t>(i)]);

    vocabulary_map const map{tokens{7, 2}, 9};
    vocabulary_view const mapped{&map};
    CHECK(mapped.draft_size() == 2);
    CHECK(mapped.target_size() == 9);
    CHECK(mapped.list().empty());
    CHECK(mapped.to_target(0) == 7);
    CHECK(mapped.to_draft(2) == 1);
    CHECK(mapped.to_draft(3) == no_token);
}

TEMPLATE_TEST_CASE("a law over a list is the softmax of the listed tokens, and no other has any", "", float, double) {
    support::dice roll(705);
    INFO("seed " << roll.seed());
    double const bound = std::is_same_v<TestType, float> ? 2e-6 : 1e-14;
    double const sum_bound = std::is_same_v<TestType, float> ? 0x1p-22 : 1e-12;  // tables add a few floats as floats
    for (int trial = 0; trial < 400; ++trial) {
        std::size_t const vocabulary = trial % 2 == 0 ? 1 + roll.below(30) : 1000 + roll.below(3000);
        tokens list;
        std::size_t const wanted = 1 + roll.below(std::min<std::size_t>(vocabulary, 60));
        double const share = static_cast<double>(wanted) / static_cast<double>(vocabulary);
        for (std::size_t v = 0; v < vocabulary; ++v) {
            if (roll.chance(share)) list.push_back(static_cast<token_id>(v));
        }
        if (list.empty()) list.push_back(static_cast<token_id>(roll.below(vocabulary)));
        std::vector<TestType> row;
        for (std::size_t i = 0; i < list.size(); ++i) {
            row.push_back(static_cast<TestType>(roll.chance(0.2) ? 1.0 : 3.0 * roll.bell()));
        }
        if (list.size() > 2) row[list.size() / 2] = static_cast<TestType>(-inf);
        transform how{.temperature = roll.chance(0.1) ? 0.0 : roll.between(0.5, 2.0)};
        if (roll.chance(0.3)) how.top_k = static_cast<int>(1 + roll.below(list.size() + 2));
        if (roll.chance(0.2)) how.top_p = 0.7;
        if (roll.chance(0.2)) how.min_p = 0.05;
        INFO("trial " << trial << ", V " << vocabulary << ", list of " << list.size() << ", temperature "
                      << how.temperature << ", top-k " << how.top_k << ", top-p " << how.top_p << ", min-p "
                      << how.min_p);
        tokens order(list.size());
        std::vector<double> sums(row_blocks(list.size()));
        distribution<TestType> const q{
            {row, {}}, how, order, vocabulary_view{list, vocabulary}, native_kernels<row_kernels>(), sums};
        REQUIRE(q.valid());
        REQUIRE(q.size() == vocabulary);
        // The same law over the list alone, which other tests compare with formulas; and one without truncation here.
        distribution<TestType> const own{{row, {}}, how, order};
        std::vector<double> expected(vocabulary, 0.0);
        double sum = 0.0;
        double const top = static_cast<double>(*std::max_element(row.begin(), row.end()));
        for (std::size_t i = 0; i < list.size(); ++i) {
            sum += std::exp((static_cast<double>(row[i]) - top) / how.temperature);
        }
        for (std::size_t i = 0; i < list.size(); ++i) {
            double const p = own.probability(static_cast<token_id>(i));
            expected[static_cast<std::size_t>(list[i])] = p;
            if (!how.greedy() && !how.truncates()) {
                REQUIRE(std::fabs(p - std::exp((static_cast<double>(row[i]) - top) / how.temperature) / sum) <= bound);
            }
        }
        double total = 0.0, probability = 0.0;
        for (std::size_t v = 0; v < vocabulary; ++v) {
            auto const token = static_cast<token_id>(v);
            double const p = q.probability(token);
            REQUIRE(p == expected[v]);
            REQUIRE((q.log_probability(token) == -inf) == (p == 0.0));
            total += static_cast<double>(q[token]);
            probability += p;
        }
        REQUIRE(std::fabs(total - q.total()) <= sum_bound * total);
        REQUIRE(std::fabs(probability - 1.0) <= sum_bound);
        REQUIRE(q.mode() == list[static_cast<std::size_t>(own.mode())]);
        REQUIRE(q.peak() == own.peak());

        // The listed tokens share out [0, 1) in their order.
        double cumulative = 0.0;
        for (token_id const v : list) {
            double const p = q.probability(v);
            if (p > 1e-9 && !how.greedy()) REQUIRE(q.quantile(cumulative + 0.5 * p) == v);
            cumulative += p;
        }
        // Stretches, wherever they start.
        for (int i = 0; i < 4; ++i) {
            std::size_t const first = roll.below(vocabulary), count = 1 + roll.below(vocabulary - first);
            std::vector<compute_t<TestType>> out(count, TestType(9));
            q.evaluate(static_cast<token_id>(first), out);
            for (std::size_t j = 0; j < count; ++j) REQUIRE(out[j] == q[static_cast<token_id>(first + j)]);
        }
        REQUIRE((how.greedy() ? q.support().empty() : q.support().data() == list.data()));

        // The race of all tokens, brute force.
        for (std::uint64_t position = 0; position < 5; ++position) {
            draw_key const key{roll.seed(), position, 0, purpose::noise};
            token_id winner = no_token;
            double best = inf;
            for (std::size_t v = 0; v < vocabulary; ++v) {
                auto const weight = static_cast<double>(q[static_cast<token_id>(v)]);
                double const time = weight > 0.0 ? exponential(key, v) / weight : inf;
                if (time < best) best = time, winner = static_cast<token_id>(v);
            }
            REQUIRE(gumbel_max(key, q) == winner);
        }
    }
}

TEST_CASE("a law over a list is none if a listed logit is NaN or +inf, or all are -inf") {
    tokens const list{1, 4, 5};
    auto const valid = [&](std::vector<float> const& row) {
        return distribution<float>{{row, {}}, {}, {}, vocabulary_view{list, 8}}.valid();
    };
    auto const f = [](double x) { return static_cast<float>(x); };
    CHECK(valid({0.0f, f(-inf), 1.0f}));
    CHECK_FALSE(valid({0.0f, f(nan_value), 1.0f}));
    CHECK_FALSE(valid({0.0f, f(inf), 1.0f}));
    CHECK_FALSE(valid({f(-inf), f(-inf), f(-inf)}));
}
