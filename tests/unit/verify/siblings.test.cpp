// SPDX-License-Identifier: MIT
//
// Siblings whose elder has nearly all of q, over every table of passes: what is left is a sum of its own, the draw and
// the rule go by that one number, and what rounding leaves over is no token's. Laws of whole nodes by enumeration, in
// float over rows of several blocks, where sums of weights are rounded. Bugs that only rounding shows are put back and
// seen. Two seconds.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/testing/enumerator.hpp>
#include <sureleap/verify/bounded_remaining.hpp>
#include <sureleap/verify/recursive.hpp>
#include <sureleap/verify/traversal.hpp>
#include <sureleap/verify/verification.hpp>

#include "support/catch.hpp"
#include "support/dice.hpp"

using namespace sureleap;
using support::dice;
using tokens = std::vector<token_id>;
using reals = std::vector<double>;

namespace {

constexpr float nothing = -std::numeric_limits<float>::infinity();

enum class over { all, a_list, a_map };
constexpr over everywhere[] = {over::all, over::a_list, over::a_map};

/// A law over a row that it owns. Over a list or a map the row has all tokens, in the order of the target's or another
/// one.
struct owned_law {
    std::vector<float> row;
    tokens ids = tokens(row.size());
    tokens order = tokens(row.size());
    reals sums = reals(row_blocks(row.size()));
    std::optional<vocabulary_map> map;
    distribution<float> law;

    owned_law(std::vector<float> logits, row_kernels const& kernels, over what = over::all, transform const& how = {})
        : row(std::move(logits)) {
        std::iota(ids.begin(), ids.end(), 0);
        vocabulary_view view;
        if (what == over::a_list) view = vocabulary_view(ids, ids.size());
        if (what == over::a_map) {  // in steps that are no multiple of any block
            std::vector<float> const by_token = row;
            for (std::size_t i = 0; i < row.size(); ++i) {
                ids[i] = static_cast<token_id>(i * 1021 % row.size());
                row[i] = by_token[static_cast<std::size_t>(ids[i])];
            }
            view = vocabulary_view(&map.emplace(ids, ids.size()));
        }
        law = {{row, {}}, how, order, view, kernels, sums};
    }
    owned_law(owned_law const&) = delete;
    owned_law& operator=(owned_law const&) = delete;
};

/// Ordinary logits, one of which is `lead`; the last 200 tokens have next to nothing. Where vectors add, the second
/// likeliest shares a sum with the likeliest.
[[nodiscard]] std::vector<float> peaked_row(dice& roll, std::size_t size, double lead, std::size_t& top) {
    std::vector<float> logits(size);
    for (float& l : logits) l = static_cast<float>(2.0 * roll.bell());
    std::fill(logits.end() - 200, logits.end(), -30.0f);
    top = roll.below(size - 300);
    logits[top] = static_cast<float>(lead);
    logits[top + 32] = 7.0f;
    return logits;
}

[[nodiscard]] long double sum_without(distribution<float> const& q, std::span<token_id const> elders) {
    long double sum = 0.0L;
    for (token_id v = 0; v < static_cast<token_id>(q.size()); ++v) {
        if (std::find(elders.begin(), elders.end(), v) == elders.end()) sum += static_cast<long double>(q[v]);
    }
    return sum;
}

/// The part of all numbers that leads to each token, by so many of [from, 1) at even distances; those before are
/// nobody's.
template <class Weights>
[[nodiscard]] reals shares_of_draws(Weights const& weights, double from, int draws) {
    reals shares(weights.size());
    for (int i = 0; i < draws; ++i) {
        token_id const x = weights.quantile(from + (1.0 - from) * (i + 0.5) / draws);
        if (x == no_token) FAIL("number " << i << " of " << draws << " leads to no token");
        shares[static_cast<std::size_t>(x)] += (1.0 - from) / draws;
    }
    return shares;
}

template <class Visit>
void for_each_table(Visit const& visit) {
    for (row_kernels const* const kernels : available_kernels<row_kernels>()) {
        INFO("table " << kernels->name);
        visit(*kernels);
    }
}

// ---- one node ------------------------------------------------------------------------------------------------------

constexpr std::size_t most_children = 3;

/// A node, the children of which are drawn from q, or chosen, and judged.
class judged_node {
public:
    judged_node(std::vector<float> const& p, distribution<float> const& q, row_kernels const& kernels)
        : q_(q), bytes_(size_for(p.size())), vocabulary_(p.size()) {
        for (std::size_t n = 0; n <= most_children; ++n) rows_.insert(rows_.end(), p.begin(), p.end());
        workspace ws{bytes_};
        carve(ws, p.size(), kernels);
    }
    /// The first token that is emitted; no_token if a row has no law, or if the rule found none.
    template <class Rule, class Rng>
    [[nodiscard]] token_id first_token(Rule const& rule, std::size_t children, std::uint64_t position, Rng& rng) {
        request_settings const settings{};
        request_view const request{.position = position, .seed = 5, .remaining = 100, .settings = &settings};
        draft_tree& tree = scratch_.tree;
        tree.begin(0);
        tokens elders;
        for (std::size_t i = 0; i < children; ++i) {
            undrawn const weights{q_, elders};
            if (!(weights.total() > 0.0)) break;
            draw_key const key = block_key(request, i + 1, purpose::draft);
            if (Rule::draft_rule::is_deterministic) {
                elders.push_back(weights.mode());
            } else if constexpr (requires { rng.never_proposes; }) {
                elders.push_back(rng.categorical(key, weights));
            } else {
                elders.push_back(draw_undrawn(weights, key, rng));
            }
            tree.append(anchor_node, elders.back());
        }
        std::vector<distribution<float>> const recorded(tree.size() - 1, q_);
        logits_rows<float> const rows{{rows_.data(), tree.size(), vocabulary_}, {}, {}};
        no_logits_hook const hook{};
        verification<float, float> v{request, recorded, rows, 0, hook, memory_, scratch_};
        decision const d = sureleap::detail::decide(rule, v, rng);
        if (!d.valid) return no_token;
        auto n = static_cast<node_id>(d.row);
        token_id first = d.next;
        for (; n != anchor_node; n = tree.parent(n)) first = tree.token(n);
        return first;
    }

private:
    judged_node(distribution<float> const& q) : q_(q), vocabulary_(0) {}
    void carve(workspace& ws, std::size_t vocabulary, row_kernels const& kernels) {
        memory_ = verification_memory<float, no_logits_hook>::carve(ws, most_children, vocabulary, kernels);
        scratch_ = tree_scratch::carve(ws, most_children);
    }
    [[nodiscard]] static std::size_t size_for(std::size_t vocabulary) {
        workspace sizer;
        distribution<float> const none;
        judged_node nobody{none};
        nobody.carve(sizer, vocabulary, scalar_kernels<row_kernels>);
        return sizer.used();
    }

    distribution<float> const& q_;
    std::vector<std::byte> bytes_;
    std::size_t vocabulary_;
    std::vector<float> rows_;
    verification_memory<float, no_logits_hook> memory_{};
    tree_scratch scratch_{};
};

/// Four tokens have weight. The likeliest and the second likeliest share a sum. One is liked by p and not by q. The
/// last of the row has next to nothing of either.
constexpr std::size_t length = 2500;
constexpr token_id top = 5;
constexpr token_id second = 37;
constexpr token_id liked = 1200;
constexpr token_id last = static_cast<token_id>(length) - 1;

[[nodiscard]] std::vector<float> row_of(double of_top, double of_second, double of_liked, double of_last) {
    std::vector<float> row(length, nothing);
    row[top] = static_cast<float>(of_top);
    row[second] = static_cast<float>(of_second);
    row[liked] = static_cast<float>(of_liked);
    row[last] = static_cast<float>(of_last);
    return row;
}
[[nodiscard]] std::vector<float> target_row() {
    return row_of(std::log(0.2), std::log(0.4), std::log(0.4), std::log(1e-9));
}

/// Draws of those four tokens, by the weights that they have. Nobody proposes: what proposals leave open is decided by
/// the pass, which has the same law. So paths are few, and short.
struct by_passes {
    static constexpr bool never_proposes = true;
    static constexpr std::array<token_id, 4> some{top, second, liked, last};

    enumerator::source source;

    template <class Weights>
    struct weights_of_some {
        Weights const& all;
        [[nodiscard]] std::size_t size() const { return some.size(); }
        [[nodiscard]] double operator[](token_id i) const {
            return static_cast<double>(all[some[static_cast<std::size_t>(i)]]);
        }
        [[nodiscard]] double total() const { return static_cast<double>(all.total()); }
    };
    [[nodiscard]] bool bernoulli(draw_key const& key, double num, double den) const {
        return key.use != purpose::proposal_accept && source.bernoulli(key, num, den);
    }
    template <class Weights>
    [[nodiscard]] token_id categorical(draw_key const& key, Weights const& weights) const {
        if (key.use == purpose::proposal) return top;
        return some[static_cast<std::size_t>(source.categorical(key, weights_of_some<Weights>{weights}))];
    }
};

/// Total variation between p and what is emitted.
template <class Rule>
[[nodiscard]] double bias_of(Rule const& rule, std::size_t children, distribution<float> const& q,
                             row_kernels const& kernels) {
    owned_law const p(target_row(), kernels);
    judged_node node(p.row, q, kernels);
    reals found(length);
    enumerator walk{enumerator::noise::fresh};
    walk.for_each_path([&] {
        by_passes rng{walk.handle()};
        token_id const x = node.first_token(rule, children, 0, rng);
        REQUIRE(x != no_token);
        found[static_cast<std::size_t>(x)] += walk.weight();
    });
    double bias = 0.0;
    for (std::size_t v = 0; v < length; ++v)
        bias += 0.5 * std::abs(found[v] - p.law.probability(static_cast<token_id>(v)));
    return bias;
}

// ---- bugs ----------------------------------------------------------------------------------------------------------

/// Recursive rejection that takes what elder children have from the whole of q, as a float keeps that.
struct undrawn_by_difference {
    using draft_rule = categorical_draft;
    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        auto const& p = v.target(anchor_node);
        auto const& q = v.draft(anchor_node);
        remaining<categorical_draft, typename Verification::law, typename Verification::draft_law> left{p, q,
                                                                                                        v.rejected()};
        auto undrawn_part = 1.0f;
        node_id c = v.tree().first_child(anchor_node);
        for (; c != no_node; c = v.tree().next_sibling(c)) {
            token_id const x = v.tree().token(c);
            if (rng.bernoulli(v.key(c, purpose::accept), left[x], q.probability(x) / static_cast<double>(undrawn_part)))
                return {true, c, x};
            left.reject(x, 1.0);
            undrawn_part -= static_cast<float>(q.probability(x));
        }
        return {true, anchor_node, rng.categorical(v.key(anchor_node, purpose::residual), left)};
    }
};

/// Weights whose total is more than they add up to: the search gives the rest to the last token of the row.
struct too_large_total {
    undrawn<distribution<float>> const& weights;
    double factor;
    [[nodiscard]] std::size_t size() const { return weights.size(); }
    [[nodiscard]] float operator[](token_id v) const { return weights[v]; }
    [[nodiscard]] double total() const { return factor * weights.total(); }
};

/// Tests are decided by the largest number that a source gives: what has no probability but for rounding happens.
struct largest_number {
    philox_randomness source{};
    [[nodiscard]] bool bernoulli(draw_key const& key, double num, double den) const {
        return key.use == purpose::accept ? accepts(1.0 - 0x1p-53, num, den) : source.bernoulli(key, num, den);
    }
    template <class Weights>
    [[nodiscard]] token_id categorical(draw_key const& key, Weights const& weights) const {
        return source.categorical(key, weights);
    }
};

template <class Visit>
void for_each_rule(Visit const& visit) {
    visit("recursive rejection", recursive_rejection<>{});
    visit("traversal verification", traversal_verification<>{});
}

}  // namespace

TEST_CASE("what elder children leave of q is a sum of its own") {
    for_each_table([](row_kernels const& kernels) {
        dice roll{21};
        for (std::size_t const size : {1000u, 2500u, 20'000u}) {
            for (double const lead : {9.0, 16.0, 20.0, 24.0, 30.0}) {
                std::size_t heaviest = 0;
                auto const row = peaked_row(roll, size, lead, heaviest);
                owned_law const p(peaked_row(roll, size, 0.0, heaviest), kernels);
                for (over const what : everywhere) {
                    if (size == 20'000 && (lead != 20.0 || what != over::all)) continue;
                    INFO("V " << size << ", lead " << lead << ", over " << static_cast<int>(what));
                    owned_law const q(row, kernels, what);
                    std::vector<rejected_child> room(3), own(3);
                    remaining<categorical_draft, distribution<float>, distribution<float>> left{p.law, q.law, room};
                    distribution<float> outline = p.law;
                    bounded_remaining<categorical_draft, distribution<float>, distribution<float>> by_bounds{
                        nullptr, no_token, own};
                    by_bounds.look(outline, q.law);
                    tokens elders;
                    for (int i = 0; i < 3; ++i) {
                        undrawn const weights{q.law, elders};
                        auto const exact = sum_without(q.law, elders);
                        CHECK(std::abs(weights.total() - static_cast<double>(exact)) <=
                              0x1p-22 * static_cast<double>(exact));
                        // Rules judge by the same number.
                        token_id const x = weights.mode();
                        double const drawn_with = static_cast<double>(q.law[x]) / weights.total();
                        CHECK(left.drawn_with(x) == Approx(drawn_with).epsilon(1e-15));
                        CHECK(by_bounds.drawn_with(x) == Approx(drawn_with).epsilon(1e-15));
                        if (i == 2) break;
                        left.reject(x, 1.0);
                        by_bounds.reject(x);
                        elders.push_back(x);
                    }
                }
            }
        }
    });
}

TEST_CASE("a further child is drawn by what is left, and the last token of the row gets no more than its share") {
    constexpr int draws = 300;
    for_each_table([](row_kernels const& kernels) {
        dice roll{22};
        for (std::size_t const size : {1000u, 2500u}) {
            for (double const lead : {9.0, 20.0, 24.0, 34.0}) {
                std::size_t heaviest = 0;
                auto const row = peaked_row(roll, size, lead, heaviest);
                for (over const what : everywhere) {
                    INFO("V " << size << ", lead " << lead << ", over " << static_cast<int>(what));
                    owned_law const q(row, kernels, what);
                    tokens const elders{static_cast<token_id>(heaviest)};
                    undrawn const weights{q.law, elders};
                    reals const shares = shares_of_draws(weights, 0.0, draws);
                    auto const exact = static_cast<double>(sum_without(q.law, elders));
                    for (std::size_t v = 0; v < size; ++v) {
                        double const expected = static_cast<double>(weights[static_cast<token_id>(v)]) / exact;
                        if (std::abs(shares[v] - expected) > 1.0 / draws + 1e-6) {
                            FAIL("token " << v << " has " << shares[v] << " of the draws, expected " << expected);
                        }
                    }
                    CHECK(static_cast<double>(weights[weights.quantile(1.0 - 0x1p-20)]) > 1e-9 * exact);
                }
            }
        }
    });
}

TEST_CASE("every token of q is a child before there is none left") {
    for_each_table([](row_kernels const& kernels) {
        for (double const gap : {3.0, 19.0, 40.0}) {
            for (over const what : everywhere) {
                owned_law const q(row_of(0.0, -gap, -gap - 1.0, nothing), kernels, what);
                tokens elders;
                philox_randomness const rng;
                for (token_id const expected : {top, second, liked}) {
                    undrawn const weights{q.law, elders};
                    CHECK(weights.total() > 0.0);
                    token_id const x = draw_undrawn(weights, {1, 2, 3, purpose::draft}, rng);
                    CHECK(!weights.is_drawn(x));
                    elders.push_back(expected);
                }
                undrawn const none{q.law, elders};
                CHECK(none.total() == 0.0);
                CHECK(draw_undrawn(none, {1, 2, 3, purpose::draft}, rng) == no_token);
                CHECK(none.mode() == no_token);
            }
        }
        auto const one = distribution<float>::one_hot(length, second);
        tokens const elder{second};
        CHECK(undrawn{one, elder}.total() == 0.0);
        CHECK(undrawn{one, elder}.quantile(0.5) == no_token);
    });
}

TEST_CASE("what is left of p is drawn by its weights where p and q nearly agree") {
    constexpr int draws = 600;
    for_each_table([](row_kernels const& kernels) {
        dice roll{23};
        for (std::size_t const size : {1000u, 2500u}) {
            for (double const distance : {1e-3, 1e-4}) {
                for (int trial = 0; trial < 4; ++trial) {
                    // The last token has next to nothing of what is left, or as much as others.
                    double const at_end = trial % 2 == 0 ? -30.0 : 1.0;
                    INFO("V " << size << ", distance " << distance << ", trial " << trial);
                    std::vector<float> of_p(size), of_q(size);
                    for (std::size_t v = 0; v < size; ++v) {
                        of_q[v] = static_cast<float>(v + 200 < size ? 2.0 * roll.bell() : -30.0);
                        of_p[v] = of_q[v] + static_cast<float>(distance * roll.bell());
                    }
                    of_q.back() = static_cast<float>(at_end);
                    of_p.back() = static_cast<float>(at_end + distance);
                    owned_law const p(of_p, kernels), q(of_q, kernels);
                    std::vector<rejected_child> room(1);
                    remaining<categorical_draft, distribution<float>, distribution<float>> left{p.law, q.law, room};
                    token_id x = 0;
                    while (!(p.law.probability(x) < q.law.probability(x))) ++x;
                    left.reject(x, 1.0);
                    double sum = 0.0;
                    for (std::size_t v = 0; v < size; ++v) sum += left[static_cast<token_id>(v)];
                    CHECK(std::abs(sum - 1.0) <= left.rounding());
                    double const expected = left[static_cast<token_id>(size - 1)] / sum;
                    // Smaller numbers lead to tokens in front of it.
                    double const from = 1.0 - 2.0 * (expected + left.rounding());
                    double const found = shares_of_draws(left, from, draws).back();
                    CHECK(std::abs(found - expected) <= 3.0 * (1.0 - from) / draws);
                }
            }
        }
    });
}

TEST_CASE("siblings of which the elder has nearly all of q: the law of a node, over every table", "[exact]") {
    for_each_table([](row_kernels const& kernels) {
        for (double const gap : {3.0, 16.4, 30.0}) {
            for (over const what : everywhere) {
                owned_law const q(row_of(0.0, -gap, -60.0, -60.0), kernels, what);
                for (std::size_t children = 1; children <= most_children; ++children) {
                    for_each_rule([&](char const* name, auto const& rule) {
                        INFO(name << ", gap " << gap << ", " << children << " children, over "
                                  << static_cast<int>(what));
                        // The bound of remaining.hpp; the last child is not rejected where it is kept.
                        CHECK(bias_of(rule, children, q.law, kernels) <= 0x1p-20 * static_cast<double>(children));
                    });
                }
            }
        }
    });
}

TEST_CASE("a token of one in 10^9 is not emitted in two hundred rounds") {
    for_each_table([](row_kernels const& kernels) {
        for (over const what : {over::all, over::a_map}) {
            owned_law const q(row_of(0.0, -16.4, -60.0, -60.0), kernels, what);
            judged_node node(target_row(), q.law, kernels);
            philox_randomness const rng;
            for_each_rule([&](char const* name, auto const& rule) {
                INFO(name << ", over " << static_cast<int>(what));
                int rare = 0;
                for (std::uint64_t i = 0; i < 200; ++i) rare += node.first_token(rule, 2, i, rng) == last ? 1 : 0;
                CHECK(rare == 0);
            });
        }
    });
}

TEST_CASE("mutant: what is left of q is its total without the elder's weight, as a float keeps it", "[mutant]") {
    for_each_table([](row_kernels const& kernels) {
        owned_law const q(row_of(0.0, -16.4, -60.0, -60.0), kernels);
        CHECK(bias_of(recursive_rejection<>{}, 2, q.law, kernels) < 1e-6);
        CHECK(bias_of(undrawn_by_difference{}, 2, q.law, kernels) > 1e-3);
    });
}

TEST_CASE("mutant: what a total claims too much goes to the last token", "[mutant]") {
    owned_law const q(row_of(0.0, -16.4, -60.0, -60.0), native_kernels<row_kernels>());
    tokens const elder{top};
    undrawn const weights{q.law, elder};
    CHECK(inverse_cdf(weights, 0.999) == second);
    CHECK(inverse_cdf(too_large_total{weights, 1.1}, 0.999) == last);
}

TEMPLATE_TEST_CASE("children that have all of p are rejected by rounding alone: then p is the law", "",
                   recursive_rejection<>, recursive_rejection<argmax_draft>, traversal_verification<>,
                   traversal_verification<argmax_draft>) {
    for_each_table([](row_kernels const& kernels) {
        dice roll{24};
        largest_number rng;
        for (int trial = 0; trial < 100; ++trial) {
            std::size_t const size = trial % 3 == 0 ? length : 2 + roll.below(2);
            std::vector<float> p(size, nothing), q(size, nothing);
            std::size_t const some = 2 + roll.below(2);  // tokens, one of which has most of p
            for (std::size_t i = 0; i < some; ++i) {
                std::size_t const v = i * (size / some);
                p[v] = static_cast<float>(roll.between(0.5, 12.0) * roll.bell());
                q[v] = p[v] + static_cast<float>((trial % 2 == 0 ? 1e-6 : 1.0) * roll.bell());
            }
            for (over const what : everywhere) {
                owned_law const drafted(q, kernels, what);
                judged_node node(p, drafted.law, kernels);
                token_id const x = node.first_token(TestType{}, some, static_cast<std::uint64_t>(trial), rng);
                if (x == no_token) FAIL("trial " << trial << ", over " << static_cast<int>(what) << ": no token");
                if (!(p[static_cast<std::size_t>(x)] > nothing)) FAIL("token " << x << " has no probability");
            }
        }
    });
}
