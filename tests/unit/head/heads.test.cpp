// SPDX-License-Identifier: MIT
//
// The sequential heads: a worked example each, an independent evaluation of their formulas, state, and bad weights.
#include "support/catch.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/head/gated.hpp>
#include <sureleap/head/markov.hpp>
#include <sureleap/head/none.hpp>
#include <sureleap/head/rnn.hpp>

namespace {

using sureleap::bf16;
using sureleap::half;
using sureleap::matrix_view;
using sureleap::token_id;

template <class Head>
constexpr bool has_head_interface() {
    using real = typename Head::value_type;
    Head const* head = nullptr;
    return noexcept(head->rank()) && noexcept(head->vocabulary()) && noexcept(head->previous_vocabulary()) &&
           noexcept(head->hidden_size()) && noexcept(head->state_size()) && noexcept(head->reset(std::span<real>{})) &&
           noexcept(head->add_bias(std::span<real>{}, std::span<real const>{}, token_id{}, std::span<real>{})) &&
           noexcept(head->embed(token_id{}, std::span<real>{})) && std::is_copy_constructible_v<Head>;
}
static_assert(has_head_interface<sureleap::no_head<float>>());
static_assert(has_head_interface<sureleap::markov_head<bf16>>());
static_assert(has_head_interface<sureleap::gated_head<half>>());
static_assert(has_head_interface<sureleap::rnn_head<double>>());
static_assert(sureleap::sequential_head<sureleap::no_head<float>>);
static_assert(sureleap::sequential_head<sureleap::markov_head<bf16>>);
static_assert(sureleap::sequential_head<sureleap::gated_head<half, double>>);
static_assert(sureleap::sequential_head<sureleap::rnn_head<double>>);
static_assert(sureleap::linear_backend<sureleap::scalar_backend, half, float>);
static_assert(sureleap::linear_backend<sureleap::scalar_backend, float, double>);
static_assert(std::is_same_v<sureleap::markov_head<bf16>::value_type, float>);
static_assert(std::is_same_v<sureleap::markov_head<double>::value_type, double>);
static_assert(std::is_same_v<sureleap::markov_head<float, double>::value_type, double>);
static_assert(std::is_trivially_copyable_v<sureleap::rnn_head<float>>);

/// Weights of all three heads: multiples of 1/64 in [-1, 1], exact in every storage.
template <class Weight>
struct weights {
    static constexpr std::size_t targets = 13;
    static constexpr std::size_t drafts = 9;
    static constexpr std::size_t r = 5;
    static constexpr std::size_t d = 7;

    std::vector<Weight> w1, w2, gate, gate_bias, joint, joint_bias;

    explicit weights(std::uint64_t seed) {
        std::mt19937_64 bits(seed);
        auto const fill = [&](std::vector<Weight>& out, std::size_t count) {
            for (std::size_t i = 0; i < count; ++i) {
                out.push_back(static_cast<Weight>((static_cast<float>(bits() % 129) - 64.0f) / 64.0f));
            }
        };
        fill(w1, targets * r);
        fill(w2, drafts * r);
        fill(gate, r * (d + r));
        fill(gate_bias, r);
        fill(joint, 3 * r * (2 * r + d));
        fill(joint_bias, 3 * r);
    }

    [[nodiscard]] matrix_view<Weight> w1_view() const { return {w1.data(), targets, r}; }
    [[nodiscard]] matrix_view<Weight> w2_view() const { return {w2.data(), drafts, r}; }
    [[nodiscard]] matrix_view<Weight> gate_view() const { return {gate.data(), r, d + r}; }
    [[nodiscard]] matrix_view<Weight> joint_view() const { return {joint.data(), 3 * r, 2 * r + d}; }
};

template <class T>
double at(std::vector<T> const& stored, std::size_t i) {
    return static_cast<double>(sureleap::load(stored.at(i)));
}

/// The formulas written out over one concatenated input, in double, with a sigmoid of its own.
struct reference {
    enum class kind { markov, gated, rnn };

    static double logistic(double x) { return 0.5 * (1.0 + std::tanh(0.5 * x)); }

    template <class Weight>
    static std::vector<double> bias(kind which, weights<Weight> const& w, std::vector<double>& s,
                                    std::vector<double> const& h, token_id previous) {
        constexpr std::size_t r = weights<Weight>::r;
        constexpr std::size_t d = weights<Weight>::d;
        std::vector<double> e(r);
        for (std::size_t i = 0; i < r; ++i) e[i] = at(w.w1, static_cast<std::size_t>(previous) * r + i);
        std::vector<double> features = e;
        if (which == kind::gated) {
            std::vector<double> z = h;
            z.insert(z.end(), e.begin(), e.end());
            for (std::size_t i = 0; i < r; ++i) {
                double g = at(w.gate_bias, i);
                for (std::size_t j = 0; j < d + r; ++j) g += at(w.gate, i * (d + r) + j) * z[j];
                features[i] = logistic(g) * e[i];
            }
        }
        if (which == kind::rnn) {
            std::vector<double> z = s;
            z.insert(z.end(), e.begin(), e.end());
            z.insert(z.end(), h.begin(), h.end());
            std::vector<double> parts(3 * r);
            for (std::size_t i = 0; i < 3 * r; ++i) {
                parts[i] = at(w.joint_bias, i);
                for (std::size_t j = 0; j < z.size(); ++j) parts[i] += at(w.joint, i * z.size() + j) * z[j];
            }
            for (std::size_t i = 0; i < r; ++i) {
                double const g = logistic(parts[i]);
                s[i] = g * s[i] + (1.0 - g) * std::tanh(parts[r + i]);
                features[i] = std::tanh(parts[2 * r + i]);
            }
        }
        std::vector<double> out(weights<Weight>::drafts);
        for (std::size_t v = 0; v < out.size(); ++v) {
            for (std::size_t i = 0; i < r; ++i) out[v] += at(w.w2, v * r + i) * features[i];
        }
        return out;
    }
};

/// Two blocks of five positions: the second starts from a used state and must not remember it.
template <class Head, class Weight>
void follow(reference::kind which, Head const& head, weights<Weight> const& w, std::uint64_t seed) {
    INFO("seed " << seed);
    using real = typename Head::value_type;
    std::mt19937_64 bits(seed);
    double const bound = std::is_same_v<real, double> ? 1e-14 : 1e-5;
    REQUIRE(head.rank() == weights<Weight>::r);
    REQUIRE(head.vocabulary() == weights<Weight>::drafts);
    REQUIRE(head.previous_vocabulary() == weights<Weight>::targets);
    REQUIRE(head.hidden_size() == (which == reference::kind::markov ? 0 : weights<Weight>::d));

    std::vector<real> state(head.state_size(), std::numeric_limits<real>::quiet_NaN());
    for (int block = 0; block < 2; ++block) {
        head.reset(state);
        std::vector<double> s(head.rank(), 0.0);
        for (int k = 0; k < 5; ++k) {
            std::vector<double> h(weights<Weight>::d);
            for (double& x : h) x = (static_cast<double>(bits() % 257) - 128.0) / 64.0;
            auto const previous = static_cast<token_id>(bits() % weights<Weight>::targets);
            std::vector<real> const hidden(h.begin(), h.end());
            std::vector<real> logits(head.vocabulary());
            for (std::size_t v = 0; v < logits.size(); ++v) logits[v] = static_cast<real>(v) - real(4);
            auto const expected = reference::bias(which, w, s, h, previous);
            head.add_bias(state, hidden, previous, logits);
            for (std::size_t v = 0; v < logits.size(); ++v) {
                double const bias = static_cast<double>(logits[v]) - (static_cast<double>(v) - 4.0);
                REQUIRE(std::abs(bias - expected[v]) <= bound);
            }
            if (which == reference::kind::rnn) {
                for (std::size_t i = 0; i < s.size(); ++i) {
                    REQUIRE(std::abs(static_cast<double>(state[i]) - s[i]) <= bound);
                }
            }
            std::vector<real> e(head.rank());
            head.embed(previous, e);
            for (std::size_t i = 0; i < e.size(); ++i) {
                REQUIRE(static_cast<double>(e[i]) == at(w.w1, static_cast<std::size_t>(previous) * e.size() + i));
            }
        }
    }
}

#if SURELEAP_EXCEPTIONS
template <class Make>
std::string message_of(Make make) {
    try {
        static_cast<void>(make());
    } catch (sureleap::error const& failure) {
        return failure.what();
    }
    return "no error";
}

bool mentions(std::string const& text, std::initializer_list<char const*> parts) {
    for (char const* part : parts) {
        if (text.find(part) == std::string::npos) return false;
    }
    return true;
}
#endif

}  // namespace

TEST_CASE("a Markov bias by hand", "[head]") {
    // Three target tokens, two draft tokens, rank 2. B(previous, v) = w2[v] . w1[previous].
    std::vector<float> const w1{1, 0, 0, 1, 2, -1};
    std::vector<float> const w2{3, 5, -1, 4};
    sureleap::markov_head const head{matrix_view<float>(w1.data(), 3, 2), matrix_view<float>(w2.data(), 2, 2)};
    STATIC_REQUIRE(std::is_same_v<decltype(head), sureleap::markov_head<float, float> const>);
    float const expected[3][2] = {{3, -1}, {5, 4}, {1, -6}};
    std::vector<float> state(head.state_size());
    head.reset(state);
    for (token_id previous = 0; previous < 3; ++previous) {
        std::vector<float> logits{10.0f, -std::numeric_limits<float>::infinity()};
        head.add_bias(state, {}, previous, logits);
        CHECK(logits[0] == 10.0f + expected[previous][0]);
        CHECK(logits[1] == -std::numeric_limits<float>::infinity());  // a masked token stays masked
        logits = {0.0f, 0.0f};
        head.add_bias(state, {}, previous, logits);
        CHECK(logits[0] == expected[previous][0]);
        CHECK(logits[1] == expected[previous][1]);
    }
}

TEST_CASE("gates by hand", "[head]") {
    // Rank 1, hidden 1. A gate of sigmoid(0) halves e; saturated, it passes or blocks.
    std::vector<double> const w1{2};
    std::vector<double> const w2{3};
    std::vector<double> const gate{1, 0};  // reads h only
    std::vector<double> const bias{0};
    matrix_view<double> const one(w1.data(), 1, 1);
    sureleap::gated_head const head{one, matrix_view<double>(w2.data(), 1, 1), matrix_view<double>(gate.data(), 1, 2),
                                    bias};
    std::vector<double> state(head.state_size());
    for (auto const& [h, expected] : {std::pair{0.0, 3.0}, {1000.0, 6.0}, {-1000.0, 0.0}}) {
        std::vector<double> const hidden{h};
        std::vector<double> logits{0.0};
        head.reset(state);
        head.add_bias(state, hidden, 0, logits);
        CHECK(logits[0] == expected);
    }

    // RNN, rank 1: gate closed (sigmoid(-1000) = 0), so s_k = tanh(c) with c = e; the output reads only s_{k-1}.
    std::vector<double> const joint{0, 0, -1000, 0, 1, 0, 1, 0, 0};  // rows g, c, o; columns s, e, h
    std::vector<double> const zeros{0, 0, 0};
    sureleap::rnn_head const rnn{one, matrix_view<double>(w2.data(), 1, 1), matrix_view<double>(joint.data(), 3, 3),
                                 zeros};
    std::vector<double> rnn_state(rnn.state_size());
    std::vector<double> const hidden{1.0};
    std::vector<double> logits{0.0};
    rnn.reset(rnn_state);
    rnn.add_bias(rnn_state, hidden, 0, logits);
    CHECK(logits[0] == 0.0);  // s_0 = 0: had the output read s_1, this would be 3 tanh(tanh(2))
    logits[0] = 0.0;
    rnn.add_bias(rnn_state, hidden, 0, logits);
    CHECK(std::abs(logits[0] - 3.0 * std::tanh(std::tanh(2.0))) < 1e-15);
}

TEMPLATE_TEST_CASE("heads follow their formulas for every storage", "[head]", (std::pair<double, double>),
                   (std::pair<float, double>), (std::pair<bf16, double>), (std::pair<half, double>),
                   (std::pair<double, float>), (std::pair<float, float>), (std::pair<bf16, float>),
                   (std::pair<half, float>)) {
    using weight = typename TestType::first_type;
    using real = typename TestType::second_type;
    for (std::uint64_t seed : {1u, 2u, 3u}) {
        weights<weight> const w(seed);
        follow(reference::kind::markov, sureleap::markov_head<weight, real>(w.w1_view(), w.w2_view()), w, seed);
        follow(reference::kind::gated,
               sureleap::gated_head<weight, real>(w.w1_view(), w.w2_view(), w.gate_view(), w.gate_bias), w, seed);
        follow(reference::kind::rnn,
               sureleap::rnn_head<weight, real>(w.w1_view(), w.w2_view(), w.joint_view(), w.joint_bias), w, seed);
    }
}

TEST_CASE("the state of a request is its own", "[head]") {
    weights<float> const w(4);
    sureleap::rnn_head const head{w.w1_view(), w.w2_view(), w.joint_view(), w.joint_bias};
    std::vector<float> const hidden(head.hidden_size(), 0.5f);
    auto const run = [&](std::span<float> state, token_id previous) {
        std::vector<float> logits(head.vocabulary());
        head.add_bias(state, hidden, previous, logits);
        return logits;
    };
    std::vector<float> a(head.state_size());
    std::vector<float> b(head.state_size());
    head.reset(a);
    auto const a1 = run(a, 1);
    auto const a2 = run(a, 2);

    // Interleaved with another request, the same numbers come out; after another first token, others do.
    head.reset(a);
    head.reset(b);
    CHECK(run(a, 1) == a1);
    auto const b1 = run(b, 3);
    CHECK(run(a, 2) == a2);
    CHECK(run(b, 2) != a2);
    CHECK(b1 != a1);
}

TEST_CASE("no head adds nothing", "[head]") {
    sureleap::no_head<double> const head;
    std::vector<double> logits{1.0, 2.0};
    head.reset({});
    head.add_bias({}, {}, 7, logits);
    CHECK(logits == std::vector<double>{1.0, 2.0});
    CHECK(head.state_size() == 0);
    CHECK(head.vocabulary() == 0);
}

TEST_CASE("a head of no output tokens has a state all the same", "[head]") {
    std::vector<float> const w1{1, 2, 3, 4};
    sureleap::markov_head const head{matrix_view<float>{w1.data(), 2, 2}, matrix_view<float>{nullptr, 0, 2}};
    CHECK(head.vocabulary() == 0);
    CHECK(head.previous_vocabulary() == 2);
    std::vector<float> state(2);
    head.add_bias(state, {}, 1, {});
    CHECK(state == std::vector<float>{3, 4});
}

#if SURELEAP_EXCEPTIONS
TEST_CASE("wrong shapes are refused with the tensor and the expectation", "[head][error]") {
    weights<float> const w(5);
    constexpr std::size_t r = weights<float>::r;
    constexpr std::size_t d = weights<float>::d;
    using view = matrix_view<float>;
    auto const markov = [&](view w1, view w2) { return message_of([&] { return sureleap::markov_head{w1, w2}; }); };
    auto const gated = [&](view gate, std::span<float const> bias) {
        return message_of([&] { return sureleap::gated_head{w.w1_view(), w.w2_view(), gate, bias}; });
    };
    auto const rnn = [&](view joint, std::span<float const> bias) {
        return message_of([&] { return sureleap::rnn_head{w.w1_view(), w.w2_view(), joint, bias}; });
    };
    CHECK(markov(w.w1_view(), w.w2_view()) == "no error");
    CHECK(mentions(markov(w.w1_view(), view(w.w2.data(), 9, 4)), {"markov_head", "w2", "[9, 4]", "[9, 5]"}));
    CHECK(mentions(markov(view(w.w1.data(), 0, 5), w.w2_view()), {"markov_head", "w1", "[0, 5]"}));
    CHECK(mentions(markov(view(w.w1.data(), 13, 0), w.w2_view()), {"markov_head", "w1", "[13, 0]"}));
    CHECK(mentions(markov(w.w1_view(), view(nullptr, 9, 5)), {"markov_head", "w2", "no data"}));
    CHECK(mentions(markov(w.w1_view(), view(w.w2.data(), 9, 5, 4)), {"markov_head", "w2", "stride", "4"}));

    CHECK(gated(w.gate_view(), w.gate_bias) == "no error");
    CHECK(mentions(gated(view(w.gate.data(), r, r), w.gate_bias), {"gated_head", "gate", "5 columns"}));
    CHECK(mentions(gated(view(w.gate.data(), r - 1, d + r), w.gate_bias), {"gate", "[4, 12]", "[5, 12]"}));
    CHECK(mentions(gated(w.gate_view(), std::span(w.gate_bias).first(3)), {"bias", "[1, 3]", "[1, 5]"}));

    CHECK(rnn(w.joint_view(), w.joint_bias) == "no error");
    CHECK(mentions(rnn(view(w.joint.data(), 3 * r, 2 * r), w.joint_bias), {"rnn_head", "joint", "10 columns"}));
    CHECK(mentions(rnn(view(w.joint.data(), r, 2 * r + d), w.joint_bias), {"joint", "[5, 17]", "[15, 17]"}));
    CHECK(mentions(rnn(w.joint_view(), std::span(w.joint_bias).first(r)), {"bias", "[1, 5]", "[1, 15]"}));
}

TEMPLATE_TEST_CASE("weights that are not finite are refused with their place", "[head][error]", float, double, bf16,
                   half) {
    float const nan = std::numeric_limits<float>::quiet_NaN();
    float const infinity = std::numeric_limits<float>::infinity();
    weights<TestType> const good(6);
    auto const rnn_message = [](weights<TestType> const& w) {
        return message_of([&] { return sureleap::rnn_head{w.w1_view(), w.w2_view(), w.joint_view(), w.joint_bias}; });
    };
    auto const gated_message = [](weights<TestType> const& w) {
        return message_of([&] { return sureleap::gated_head{w.w1_view(), w.w2_view(), w.gate_view(), w.gate_bias}; });
    };
    auto bad = good;
    bad.w1[2 * 5 + 3] = static_cast<TestType>(nan);
    CHECK(mentions(rnn_message(bad), {"rnn_head: w1", "row 2", "column 3", "nan"}));
    CHECK(mentions(message_of([&] { return sureleap::markov_head{bad.w1_view(), bad.w2_view()}; }),
                   {"markov_head: w1", "row 2", "column 3", "nan"}));
    bad = good;
    bad.w2[8 * 5 + 4] = static_cast<TestType>(-infinity);
    CHECK(mentions(gated_message(bad), {"gated_head: w2", "row 8", "column 4", "-inf"}));
    bad = good;
    bad.gate[1 * 12 + 11] = static_cast<TestType>(infinity);
    CHECK(mentions(gated_message(bad), {"gated_head: gate", "row 1", "column 11", "inf"}));
    bad = good;
    bad.gate_bias[4] = static_cast<TestType>(nan);
    CHECK(mentions(gated_message(bad), {"gated_head: bias", "column 4", "nan"}));
    bad = good;
    bad.joint[14 * 17 + 16] = static_cast<TestType>(nan);
    CHECK(mentions(rnn_message(bad), {"rnn_head: joint", "row 14", "column 16", "nan"}));
    bad = good;
    bad.joint_bias[0] = static_cast<TestType>(infinity);
    CHECK(mentions(rnn_message(bad), {"rnn_head: bias", "column 0", "inf"}));
}

TEST_CASE("a double weight beyond float is refused when the arithmetic is float", "[head][error]") {
    std::vector<double> const w1{1.0, 1e300};
    matrix_view<double> const view(w1.data(), 1, 2);
    CHECK(message_of([&] { return sureleap::markov_head<double, double>(view, view); }) == "no error");
    CHECK(mentions(message_of([&] { return sureleap::markov_head<double, float>(view, view); }),
                   {"w1", "row 0", "column 1", "inf"}));
}
#endif
