// SPDX-License-Identifier: MIT
//
// The semi-autoregressive drafter: every recorded q is the softmax of base logits and bias, of all tokens or of a list,
// alone and in any batch.
#include "support/catch.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <type_traits>
#include <vector>

#include <sureleap/confidence/estimate.hpp>
#include <sureleap/confidence/head.hpp>
#include <sureleap/drafter/autoregressive.hpp>
#include <sureleap/drafter/context_model.hpp>
#include <sureleap/drafter/parallel.hpp>
#include <sureleap/drafter/semi_autoregressive.hpp>
#include <sureleap/head/gated.hpp>
#include <sureleap/head/int8.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/rnn.hpp>
#include <sureleap/head/shortlist.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/rejection.hpp>

#include "support/dice.hpp"
#include "support/drafted.hpp"
#include "support/drafter_scene.hpp"
#include "support/error_text.hpp"

using namespace sureleap;
using namespace drafter_scene;
using support::error_text;
using support::random_values;
using support::says;

namespace {

double logistic(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

/// y = W x for W [rows, cols].
reals product(reals const& w, std::size_t cols, reals const& x) {
    reals y(w.size() / cols);
    for (std::size_t i = 0; i < y.size(); ++i) {
        for (std::size_t j = 0; j < cols; ++j) y[i] += w[i * cols + j] * x[j];
    }
    return y;
}

enum class kind { markov, gated, rnn };

/// Backbone storage T, weights W, arithmetic Real.
template <class T, class W, class Real>
void compare_semi_autoregressive(kind which, std::uint64_t seed, double tolerance) {
    support::dice roll(seed);
    INFO("seed " << seed << ", head " << static_cast<int>(which));
    std::size_t drawn = 0;
    for (int trial = 0; trial < 60; ++trial) {
        std::size_t const target = 2 + roll.below(12);
        bool const mapped = roll.chance(0.5);
        std::size_t const draft = mapped ? 1 + roll.below(target) : target;
        auto const map = random_map(roll, draft, target);
        std::size_t const rank = 1 + roll.below(4), d = 1 + roll.below(5), gamma = 1 + roll.below(5);
        std::size_t const requests = 1 + roll.below(4);
        auto const w1 = random_values<W>(roll, target * rank, 1.0);
        auto const w2 = random_values<W>(roll, draft * rank, 1.0);
        auto const gate = random_values<W>(roll, rank * (d + rank), 1.0);
        auto const gate_bias = random_values<W>(roll, rank, 1.0);
        auto const joint = random_values<W>(roll, 3 * rank * (2 * rank + d), 0.7);
        auto const joint_bias = random_values<W>(roll, 3 * rank, 0.7);
        auto const confidence_weights = random_values<W>(roll, d + rank, 1.0);
        auto const hidden = random_values<T>(roll, requests * gamma * d, 1.0);
        auto const logits = random_values<T>(roll, requests * gamma * draft, 2.0);
        matrix_view<W> const w1_view{w1.data(), target, rank}, w2_view{w2.data(), draft, rank};

        std::size_t calls = 0;
        auto const backbone = [&](std::span<request_view const> views) {
            ++calls;
            REQUIRE(views.size() == requests);
            return block_forward<T>{{hidden.data(), requests * gamma, d},
                                    {{logits.data(), requests * gamma, draft}, {}}};
        };
        confidence_head<W, Real> const confidence{
            {confidence_weights.data(), 1, d + rank}, static_cast<Real>(0.25), w1_view};
        drafter_options const options{gamma, draft, d, mapped ? &map : nullptr};

        auto const compare = [&](auto const& head) {
            semi_autoregressive drafter{backbone, head, confidence, options};
            using drafter_type = decltype(drafter);
            static_assert(sureleap::drafter<drafter_type>);
            static_assert(drafter_type::has_confidence && drafter_type::plans_at_anchor && drafter_type::is_parallel);
            static_assert(std::is_same_v<typename drafter_type::value_type, Real>);
            REQUIRE(drafter.target_vocabulary() == target);
            scene<Real> s(roll, requests, gamma, target);
            auto const memory = s.draw(drafter);
            REQUIRE(calls == 1);

            auto const e_all = widened(w1), w2_all = widened(w2), gate_all = widened(gate), gate_b = widened(gate_bias);
            auto const joint_all = widened(joint), joint_b = widened(joint_bias), cw = widened(confidence_weights);
            auto const h_all = widened(hidden), u_all = widened(logits);
            for (std::size_t r = 0; r < requests; ++r) {
                auto const laws = memory.block.laws(r);
                auto const xs = memory.block.tokens(r);
                REQUIRE(memory.block.draft_outcome(r) == status::ok);
                REQUIRE(xs.size() == s.views[r].draft_cap(gamma));
                token_id previous = s.views[r].anchor;
                reals state(rank);
                for (std::size_t k = 0; k < xs.size(); ++k) {
                    auto const h = part(h_all, (r * gamma + k) * d, d);
                    auto const e = part(e_all, static_cast<std::size_t>(previous) * rank, rank);
                    reals inner = e;
                    if (which == kind::gated) {
                        reals z = h;
                        z.insert(z.end(), e.begin(), e.end());
                        auto const g = product(gate_all, d + rank, z);
                        for (std::size_t i = 0; i < rank; ++i) inner[i] = logistic(g[i] + gate_b[i]) * e[i];
                    } else if (which == kind::rnn) {
                        reals z = state;
                        z.insert(z.end(), e.begin(), e.end());
                        z.insert(z.end(), h.begin(), h.end());
                        auto const gco = product(joint_all, 2 * rank + d, z);
                        for (std::size_t i = 0; i < rank; ++i) {
                            double const keep = logistic(gco[i] + joint_b[i]);
                            state[i] = keep * state[i] + (1.0 - keep) * std::tanh(gco[rank + i] + joint_b[rank + i]);
                            inner[i] = std::tanh(gco[2 * rank + i] + joint_b[2 * rank + i]);
                        }
                    }
                    auto const bias = product(w2_all, rank, inner);
                    auto u = part(u_all, (r * gamma + k) * draft, draft);
                    for (std::size_t v = 0; v < draft; ++v) u[v] += bias[v];
                    auto const q = scattered(softmax(u, s.settings[r].temperature), mapped ? &map : nullptr);
                    INFO("trial " << trial << ", request " << r << ", position " << k);
                    REQUIRE(has_law(laws[k], q, tolerance));
                    draw_key const key{s.views[r].seed, s.views[r].position, static_cast<std::uint32_t>(k),
                                       purpose::draft};
                    REQUIRE(xs[k] == philox_randomness{}.categorical(key, laws[k]));

                    double logit = 0.25;
                    for (std::size_t i = 0; i < d; ++i) logit += cw[i] * h[i];
                    for (std::size_t i = 0; i < rank; ++i) logit += cw[d + i] * e[i];
                    double const c = static_cast<double>(memory.block.table().survivals.at(r, k).confidence) * 0x1p-24;
                    REQUIRE(std::abs(c - logistic(logit)) < tolerance + 0x1p-24);
                    previous = xs[k];
                    ++drawn;
                }
            }
        };
        if (which == kind::markov) compare(markov_head<W, Real>{w1_view, w2_view});
        if (which == kind::gated) {
            compare(gated_head<W, Real>{w1_view, w2_view, {gate.data(), rank, d + rank}, gate_bias});
        }
        if (which == kind::rnn) {
            compare(rnn_head<W, Real>{w1_view, w2_view, {joint.data(), 3 * rank, 2 * rank + d}, joint_bias});
        }
    }
    CHECK(drawn > 200);
}

}  // namespace

TEST_CASE("semi-autoregressive: q_k = softmax(U_k + B_k) of the tokens drawn, and c_k from h_k and x_{k-1}") {
    for (kind const which : {kind::markov, kind::gated, kind::rnn}) {
        compare_semi_autoregressive<double, double, double>(which, 91, 1e-12);
        compare_semi_autoregressive<float, float, float>(which, 92, 1e-5);
    }
}

TEST_CASE("semi-autoregressive: a backbone and weights in bf16 or half compute in the head's type") {
    for (kind const which : {kind::markov, kind::gated, kind::rnn}) {
        compare_semi_autoregressive<bf16, bf16, float>(which, 93, 1e-5);
        compare_semi_autoregressive<bf16, float, double>(which, 94, 1e-12);
        compare_semi_autoregressive<half, bf16, float>(which, 95, 1e-5);
    }
}

namespace {

/// Base logits and hidden states of a request go by its id, so that they are the same in any batch.
template <class T>
struct backbone_by_id {
    std::size_t gamma, vocabulary, d;
    std::vector<T> all_logits, all_hidden;  // of ids 1, 2 ...
    std::vector<T> logits{}, hidden{};

    backbone_by_id(support::dice& roll, std::size_t requests, std::size_t gamma_, std::size_t size, std::size_t hidden_)
        : gamma(gamma_),
          vocabulary(size),
          d(hidden_),
          all_logits(random_values<T>(roll, requests * gamma * size, 2.0)),
          all_hidden(random_values<T>(roll, requests * gamma * d, 1.0)) {}

    [[nodiscard]] block_forward<T> forward(std::span<request_view const> views) {
        logits.clear(), hidden.clear();
        for (auto const& view : views) {
            auto const copy = [&](std::vector<T> const& from, std::size_t size, std::vector<T>& to) {
                auto const first = from.begin() + static_cast<std::ptrdiff_t>((view.id - 1) * gamma * size);
                to.insert(to.end(), first, first + static_cast<std::ptrdiff_t>(gamma * size));
            };
            copy(all_logits, vocabulary, logits);
            copy(all_hidden, d, hidden);
        }
        std::size_t const rows = views.size() * gamma;
        return {{hidden.data(), rows, d}, {{logits.data(), rows, vocabulary}, {}}};
    }
};

template <class Real>
bool same_draft(draft_block<Real> const& a, std::size_t i, draft_block<Real> const& b, std::size_t j, bool rows) {
    auto const xs = a.tokens(i), ys = b.tokens(j);
    if (a.draft_outcome(i) != b.draft_outcome(j) || !std::equal(xs.begin(), xs.end(), ys.begin(), ys.end()))
        return false;
    for (std::size_t k = 0; k < xs.size(); ++k) {
        if (a.table().survivals.at(i, k).confidence != b.table().survivals.at(j, k).confidence) return false;
        auto const &p = a.laws(i)[k], &q = b.laws(j)[k];
        for (token_id v = 0; rows && v < static_cast<token_id>(p.size()); ++v) {
            if (p[v] != q[v] || p.probability(v) != q.probability(v)) return false;
        }
    }
    return true;
}

/// f(head) for each kind of head, over W2 in floating point and in eight bits, of all tokens and of a shortlist.
template <class W, class F>
void each_head(support::dice& roll, std::size_t vocabulary, std::size_t d, F const& f) {
    std::size_t const r = 1 + roll.below(20);
    auto const w1 = random_values<W>(roll, vocabulary * r, 1.0), w2 = random_values<W>(roll, vocabulary * r, 1.0);
    auto const gate = random_values<W>(roll, r * (d + r), 1.0), gate_bias = random_values<W>(roll, r, 1.0);
    auto const joint = random_values<W>(roll, 3 * r * (2 * r + d), 0.7), bias = random_values<W>(roll, 3 * r, 0.7);
    matrix_view<W> const first{w1.data(), vocabulary, r}, second{w2.data(), vocabulary, r};
    int8_matrix const eight{second};
    auto const both = [&](auto const& head) {
        f(head);
        successor_table const table{head, 1 + roll.below(4)};
        f(shortlist_head{head, 1 + roll.below(vocabulary), table.view()});
        f(shortlist_head{head, 1 + roll.below(4)});
    };
    auto const every = [&](auto output) {
        both(markov_head{first, output});
        both(gated_head{first, output, matrix_view<W>{gate.data(), r, d + r}, gate_bias});
        both(rnn_head{first, output, matrix_view<W>{joint.data(), 3 * r, 2 * r + d}, bias});
    };
    every(second);
    every(eight.view());
}

/// Requests of any caps and settings.
scene<float> mixed_scene(support::dice& roll, std::size_t requests, std::size_t gamma, std::size_t vocabulary) {
    scene<float> s(roll, requests, gamma, vocabulary);
    for (auto& settings : s.settings) {
        if (roll.chance(0.3))
            settings.draft = transform{.temperature = 0.7, .top_k = static_cast<int>(1 + roll.below(5))};
        if (roll.chance(0.2)) settings.draft = transform{.temperature = 0.0};
    }
    return s;
}

template <class T, class W>
void compare_batches(std::uint64_t seed) {
    support::dice roll(seed);
    INFO("seed " << roll.seed());
    std::size_t drawn = 0;
    for (int trial = 0; trial < 12; ++trial) {
        std::size_t const vocabulary = 2 + roll.below(40), d = 1 + roll.below(6), gamma = 1 + roll.below(5);
        std::size_t const requests = 2 + roll.below(4);
        each_head<W>(roll, vocabulary, d, [&]<class Head>(Head const& head) {
            std::size_t const size = head.hidden_size() == 0 ? 0 : d;
            backbone_by_id<T> const backbone(roll, requests, gamma, vocabulary, size);
            semi_autoregressive drafter{
                backbone_by_id<T>(backbone), head, top1_confidence{},
                drafter_options{.block_size = gamma, .vocabulary = vocabulary, .hidden_size = size}};
            static_assert(sureleap::drafter<decltype(drafter)>);
            scene<float> s = mixed_scene(roll, requests, gamma, vocabulary);
            auto const check = [&](auto rule) {
                // A rule that reads no rows keeps none: then positions share their memory.
                auto const draw = [&](std::span<request_view const> views) {
                    return support::draft<float>(drafter, rule, views);
                };
                auto const together = draw(s.views);
                for (std::size_t r = 0; r < requests; ++r) {
                    INFO("trial " << trial << ", request " << r << " of " << requests << ", V " << vocabulary);
                    REQUIRE(together.block.draft_outcome(r) == status::ok);
                    REQUIRE(together.block.size(r) == s.views[r].draft_cap(gamma));
                    auto const alone = draw(std::span(s.views).subspan(r, 1));
                    bool const rows = decltype(rule)::access == q_access::row;
                    REQUIRE(same_draft(together.block, r, alone.block, 0, rows));
                    drawn += alone.block.size(0);
                }
                std::vector<request_view> reversed(s.views.rbegin(), s.views.rend());
                reversed.pop_back();
                auto const others = draw(reversed);
                for (std::size_t i = 0; i < reversed.size(); ++i) {
                    REQUIRE(same_draft(others.block, i, together.block, requests - 1 - i,
                                       decltype(rule)::access == q_access::row));
                }
            };
            check(token_rejection<>{});
            check(token_rejection<argmax_draft>{});
            check(keyed_coupling{});
        });
    }
    CHECK(drawn > 1000);
}

}  // namespace

TEST_CASE("semi-autoregressive: a request's draft is the same bits alone and in any batch") {
    compare_batches<float, float>(191);
    compare_batches<bf16, bf16>(192);  // hidden states are converted
}

TEST_CASE("semi-autoregressive: q over a list is the softmax of the full head's logits there") {
    support::dice roll(193);
    INFO("seed " << roll.seed());
    std::size_t unlisted = 0;
    for (int trial = 0; trial < 20; ++trial) {
        std::size_t const vocabulary = 2 + roll.below(40), d = 3, gamma = 4, requests = 3;
        each_head<float>(roll, vocabulary, d, [&]<class Head>(Head const& head) {
            if constexpr (requires { head.capacity(); }) {
                std::size_t const size = head.hidden_size();
                backbone_by_id<float> const backbone(roll, requests, gamma, vocabulary, size);
                semi_autoregressive drafter{
                    backbone_by_id<float>(backbone), head, top1_confidence{},
                    drafter_options{.block_size = gamma, .vocabulary = vocabulary, .hidden_size = size}};
                REQUIRE(drafter.vocabulary() == head.capacity());
                REQUIRE(drafter.target_vocabulary() == vocabulary);
                scene<float> s(roll, requests, gamma, vocabulary);
                auto const memory = s.draw(drafter);
                for (std::size_t r = 0; r < requests; ++r) {
                    std::vector<float> state(head.state_size());
                    head.reset(state);
                    token_id previous = s.views[r].anchor;
                    for (std::size_t k = 0; k < memory.block.size(r); ++k) {
                        auto const row = [&](std::vector<float> const& all, std::size_t n) {
                            return std::span<float const>(all).subspan((r * gamma + k) * n, n);
                        };
                        auto const u = row(backbone.all_logits, vocabulary);
                        std::vector<float> full(u.begin(), u.end());
                        head.add_bias(state, row(backbone.all_hidden, size), previous, full);
                        auto const& q = memory.block.laws(r)[k];
                        auto const listed = q.support();
                        REQUIRE_FALSE(listed.empty());
                        REQUIRE(listed.size() <= head.capacity());
                        reals some;
                        for (token_id const v : listed)
                            some.push_back(static_cast<double>(full[static_cast<std::size_t>(v)]));
                        some = softmax(some, s.settings[r].temperature);
                        reals expected(vocabulary);
                        for (std::size_t i = 0; i < some.size(); ++i)
                            expected[static_cast<std::size_t>(listed[i])] = some[i];
                        REQUIRE(has_law(q, expected, 1e-5));
                        unlisted += vocabulary - listed.size();
                        previous = memory.block.tokens(r)[k];
                        REQUIRE(q.probability(previous) > 0.0);
                        double const c =
                            static_cast<double>(memory.block.table().survivals.at(r, k).confidence) * 0x1p-24;
                        REQUIRE(std::abs(c - *std::max_element(expected.begin(), expected.end())) < 1e-5);
                    }
                }
            }
        });
    }
    CHECK(unlisted > 0);
}

TEST_CASE("semi-autoregressive: a shortlist of bad rows costs its request the round, and no other") {
    std::size_t const gamma = 2, size = 4;
    std::vector<float> const w(size, 1.0f);
    matrix_view<float> const view{w.data(), size, 1};
    shortlist_head const head{markov_head{view, view}, 2};
    float const none = std::numeric_limits<float>::quiet_NaN(), most = std::numeric_limits<float>::infinity();
    support::dice roll(194);
    scene<float> s(roll, 3, gamma, size);
    for (auto& settings : s.settings) settings.max_draft_tokens = gamma;
    for (auto& view_of : s.views) view_of.remaining = gamma + 1;
    auto const outcomes = [&](std::size_t rows, std::size_t cols, std::vector<float> const& logits) {
        auto backbone = [&, rows, cols](std::span<request_view const>) {
            return block_forward<float>{{}, {{logits.data(), rows, cols}, {}}};
        };
        semi_autoregressive drafter{backbone, head, drafter_options{.block_size = gamma, .vocabulary = size}};
        auto const memory = s.draw(drafter);
        std::vector<status> all;
        std::size_t const before = rows == 3 * gamma && cols == size ? 1 : 0;  // the bad position, which is the second
        for (std::size_t r = 0; r < 3; ++r) {
            all.push_back(memory.block.draft_outcome(r));
            CHECK(memory.block.size(r) == (all.back() == status::ok ? gamma : before));
        }
        return all;
    };
    std::vector<status> const fine(3, status::ok), refused(3, status::invalid_draft);
    std::vector<status> const second{status::ok, status::invalid_draft, status::ok};
    std::vector<float> logits(3 * gamma * size + 10, 0.5f);
    CHECK(outcomes(3 * gamma, size, logits) == fine);
    CHECK(outcomes(3 * gamma - 1, size, logits) == refused);
    CHECK(outcomes(3 * gamma, size - 1, logits) == refused);
    CHECK(outcomes(3 * gamma, size + 1, logits) == refused);
    // The second position of the second request: one NaN is passed over, nothing but NaN or an infinity is no law.
    std::size_t const at = (1 * gamma + 1) * size;
    logits[at + 1] = none;
    CHECK(outcomes(3 * gamma, size, logits) == fine);
    logits[at + 1] = most;
    CHECK(outcomes(3 * gamma, size, logits) == second);
    std::fill_n(logits.begin() + static_cast<std::ptrdiff_t>(at), size, none);
    CHECK(outcomes(3 * gamma, size, logits) == second);
    std::fill_n(logits.begin() + static_cast<std::ptrdiff_t>(at), size, -most);
    CHECK(outcomes(3 * gamma, size, logits) == second);
}

TEST_CASE("semi-autoregressive: at the anchor a shortlist plans by the best of the base logits alone") {
    // Logits log 8, 4, 2, 1, 1 in some order: of the best two the first has 8 / 12, of all tokens 8 / 16, and at a
    // temperature of 1/2 it has 64 / 80. What a previous token would add, by the head's bias and its successors, is far
    // larger than that.
    std::size_t const gamma = 2, size = 5, requests = 4;
    std::vector<float> const w1(size, 1.0f);
    std::vector<float> const w2{0.0f, 9.0f, 0.0f, -9.0f, 5.0f};
    matrix_view<float> const first{w1.data(), size, 1}, second{w2.data(), size, 1};
    markov_head const full{first, second};
    successor_table const successors{full, 2};
    std::vector<float> logits;
    for (std::size_t row = 0; row < requests * gamma; ++row) {
        for (std::size_t v = 0; v < size; ++v) {
            std::array<float, 5> const odds{8.0f, 4.0f, 2.0f, 1.0f, 1.0f};
            logits.push_back(std::log(odds[(v + row) % size]));
        }
    }
    // A list of nothing has no law: a plan ends before it.
    std::fill_n(logits.end() - static_cast<std::ptrdiff_t>(size), size, std::numeric_limits<float>::quiet_NaN());
    auto const backbone = [&](std::span<request_view const>) {
        return block_forward<float>{{}, {{logits.data(), requests * gamma, size}, {}}};
    };
    support::dice roll(196);
    scene<float> s(roll, requests, gamma, size);
    for (auto& settings : s.settings) settings = {.max_draft_tokens = gamma};
    for (auto& view : s.views) view.remaining = gamma + 1;
    s.settings[1].temperature = 0.5;
    s.settings[2].temperature = 0.0;  // that of the softmax behind the one-hot law
    s.views[2].remaining = gamma;     // one token of them the anchor's own: gamma - 1 may be drafted
    std::array<std::array<double, 2>, 4> const expected{
        {{2.0 / 3.0, 2.0 / 3.0}, {0.8, 0.8}, {2.0 / 3.0, 2.0 / 3.0}, {2.0 / 3.0}}};

    auto const check = [&](auto const& head) {
        semi_autoregressive drafter{backbone, head, top1_confidence{}, {.block_size = gamma, .vocabulary = size}};
        static_assert(decltype(drafter)::plans_at_anchor);
        support::drafted<float> memory{drafter, token_rejection<>{}, s.views};
        memory.planning.start(memory.block.requests());
        memory.plan(drafter, drafter.forward(s.views));
        survival_table const table = memory.planning.view();
        for (std::size_t r = 0; r < requests; ++r) {
            INFO("request " << r);
            REQUIRE(table.sizes[r] == (r >= 2 ? gamma - 1 : gamma));
            for (std::size_t k = 0; k < table.sizes[r]; ++k) {
                CHECK(std::abs(static_cast<double>(table.at(r, k).confidence) * 0x1p-24 - expected[r][k]) < 1e-6);
            }
            CHECK(memory.block.size(r) == 0);  // lent scratch only
        }
    };
    check(shortlist_head{full, 2});
    check(shortlist_head{full, 2, successors.view()});
}

TEST_CASE("semi-autoregressive: a shortlist that does not fit is refused at set-up") {
    auto const backbone = [](std::span<request_view const>) { return block_forward<float>{}; };
    std::vector<float> const weights(20, 0.5f);
    matrix_view<float> const eight{weights.data(), 8, 2}, three{weights.data(), 3, 2};
    vocabulary_map const map{tokens{0, 3, 5}, 8};
    CHECK(says(error_text([&] {
                   semi_autoregressive{
                       backbone, shortlist_head{markov_head{eight, three}, 2}, {.vocabulary = 3, .map = &map}};
               }),
               {"semi_autoregressive", "shortlist_head lists target tokens", "without a vocabulary map"}));
    CHECK(says(error_text([&] {
                   semi_autoregressive{backbone, shortlist_head{markov_head{eight, eight}, 2}, {.vocabulary = 9}};
               }),
               {"semi_autoregressive", "8 output tokens", "draft vocabulary of 9"}));
    semi_autoregressive const fits{backbone, shortlist_head{markov_head{eight, eight}, 2}, {.vocabulary = 8}};
    CHECK(fits.vocabulary() == 2);
    CHECK(fits.target_vocabulary() == 8);
}
