// SPDX-License-Identifier: MIT
//
// Trees judged by bounds of the target's sums: the same decisions as by exact sums and the formulas of remaining.hpp,
// on rows of several blocks; and the token behind rejected children has the law that is left. Ten seconds.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/verify/bounded_remaining.hpp>
#include <sureleap/verify/recursive.hpp>
#include <sureleap/verify/remaining.hpp>
#include <sureleap/verify/traversal.hpp>
#include <sureleap/verify/verification.hpp>

#include "support/catch.hpp"
#include "support/chi_square.hpp"
#include "support/dice.hpp"

using namespace sureleap;
using support::dice;

namespace {

constexpr std::size_t vocabulary = 5000;
constexpr std::size_t most = 12;

// ---- the rules with exact numbers ----------------------------------------------------------------------------------

template <class DraftRule>
struct traversal_exactly {
    using draft_rule = DraftRule;
    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        decision d;
        static_cast<void>(judge(v, rng, anchor_node, 1.0, 0, d));
        return d;
    }
    template <class Verification, class Rng>
    [[nodiscard]] static bool judge(Verification& v, Rng& rng, node_id n, double survival, std::size_t used,
                                    decision& d) {
        auto const& p = v.target(n);
        remaining<DraftRule, typename Verification::law, typename Verification::draft_law> left{
            p, v.draft(n), v.rejected().subspan(used)};
        for (node_id c = v.tree().first_child(n); c != no_node; c = v.tree().next_sibling(c)) {
            token_id const x = v.tree().token(c);
            double const kept = survival * left[x];
            double const below = std::min(kept / left.drawn_with(x), 1.0);
            if (kept > 0.0 && judge(v, rng, c, below, used + left.rejected(), d)) return true;
            double const mass = left.reject(x, survival);
            if (survival < 1.0) survival = mass / (mass + (1.0 - survival));
        }
        if (!rng.bernoulli(v.key(n, purpose::accept), survival, 1.0)) return false;
        d = {true, n, 0};
        return true;
    }
};

template <class DraftRule>
struct rejection_exactly {
    using draft_rule = DraftRule;
    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        for (node_id n = anchor_node;;) {
            auto const& p = v.target(n);
            remaining<DraftRule, typename Verification::law, typename Verification::draft_law> left{p, v.draft(n),
                                                                                                    v.rejected()};
            node_id c = v.tree().first_child(n);
            for (; c != no_node; c = v.tree().next_sibling(c)) {
                token_id const x = v.tree().token(c);
                if (rng.bernoulli(v.key(c, purpose::accept), left[x], left.drawn_with(x))) break;
                left.reject(x, 1.0);
            }
            if (c == no_node) return {true, n, 0};
            n = c;
        }
    }
};

// ---- random trees
// ----------------------------------------------------------------------------------------------------

enum class over { all, a_list, a_map };

/// Rows of p, and of q over all tokens, over a list, or over a vocabulary of its own. A few tokens have most of both.
struct row_pair {
    std::vector<float> target = std::vector<float>(vocabulary);
    std::vector<float> draft;
    std::vector<token_id> list;
    std::vector<double> sums_q;
    std::optional<vocabulary_map> map;
    distribution<float> q;

    row_pair(dice& roll, over what, double noise) {
        std::vector<float> both(vocabulary);
        for (float& l : both) l = static_cast<float>(2.5 * roll.bell());
        for (int i = 0; i < 8; ++i) both[roll.below(vocabulary)] += static_cast<float>(roll.between(7.0, 9.5));
        for (std::size_t v = 0; v < vocabulary; ++v) target[v] = both[v] + static_cast<float>(noise * roll.bell());
        vocabulary_view view;
        if (what == over::all) {
            draft = both;
        } else {
            list.resize(vocabulary);
            std::iota(list.begin(), list.end(), 0);
            std::sort(list.begin(), list.end(), [&](token_id a, token_id b) {
                return both[static_cast<std::size_t>(a)] > both[static_cast<std::size_t>(b)];
            });
            list.resize(what == over::a_list ? 300 : 1800);  // a list of two segments
            if (what == over::a_list) std::sort(list.begin(), list.end());
            for (token_id const v : list) draft.push_back(both[static_cast<std::size_t>(v)]);
            if (what == over::a_map) map.emplace(list, vocabulary);
            view = what == over::a_list ? vocabulary_view(list, vocabulary) : vocabulary_view(&*map);
        }
        sums_q.resize(row_blocks(draft.size()));
        q = {{draft, {}}, transform{}, {}, view, native_kernels<row_kernels>(), sums_q};
    }
    row_pair(row_pair const&) = delete;
    row_pair& operator=(row_pair const&) = delete;
};

std::size_t sums_made = 0;
double count_sum(float const* row, std::size_t size, float shift, float scale, double* sums) {
    if (size == vocabulary) ++sums_made;
    return native_kernels<row_kernels>().get<float>().sum(row, size, shift, scale, sums);
}
row_kernels const& counting() {
    static row_functions<float> const functions = [] {
        auto f = native_kernels<row_kernels>().get<float>();
        f.sum = count_sum;
        return f;
    }();
    static row_kernels const all{.name = "counting", .for_float = &functions};
    return all;
}

/// Memory of one tree, and its rows.
class judged_tree {
public:
    judged_tree() : bytes_(size()), rows_((most + 1) * vocabulary) {
        workspace ws{bytes_};
        carve(ws);
    }
    /// A tree whose tokens are drawn from the laws of `pairs`, which are dealt out at random.
    template <class DraftRule>
    void grow(dice& roll, std::vector<std::optional<row_pair>> const& pairs, request_view const& request, DraftRule) {
        draft_tree& tree = scratch_.tree;
        tree.begin(0);
        std::vector<row_pair const*> of;
        for (std::size_t n = 0; n <= most; ++n) of.push_back(&*pairs[roll.below(pairs.size())]);
        std::vector<std::vector<token_id>> children(most + 1);
        std::size_t const nodes = 1 + roll.below(most);
        recorded_.clear();
        while (tree.size() <= nodes) {
            std::size_t const low = tree.size() > 4 ? tree.size() - 4 : 0;
            std::size_t const n = low + roll.below(tree.size() - low);
            distribution<float> const& q = of[n]->q;
            undrawn const left{q, children[n]};
            draw_key const key = block_key(request, tree.size(), purpose::draft);
            token_id const x = DraftRule::is_deterministic ? left.mode() : draw_undrawn(left, key, rng_);
            if (x == no_token) continue;
            children[n].push_back(x);
            tree.append(static_cast<node_id>(n), x);
            recorded_.push_back(q);
        }
        for (std::size_t n = 0; n < tree.size(); ++n) {
            std::copy(of[n]->target.begin(), of[n]->target.end(),
                      rows_.begin() + static_cast<std::ptrdiff_t>(n * vocabulary));
        }
    }
    template <class Rule>
    [[nodiscard]] decision by(Rule const& rule, request_view const& request) {
        logits_rows<float> const rows{{rows_.data(), scratch_.tree.size(), vocabulary}, {}, {}};
        no_logits_hook const hook{};
        verification<float, float> v{request, recorded_, rows, 0, hook, memory_, scratch_};
        return sureleap::detail::decide(rule, v, rng_);
    }
    [[nodiscard]] std::size_t nodes() const { return scratch_.tree.size(); }

private:
    judged_tree(int) {}
    void carve(workspace& ws) {
        memory_ = verification_memory<float, no_logits_hook>::carve(ws, most, vocabulary, counting());
        scratch_ = tree_scratch::carve(ws, most);
    }
    [[nodiscard]] static std::size_t size() {
        workspace sizer;
        judged_tree nothing{0};
        nothing.carve(sizer);
        return sizer.used();
    }

    std::vector<std::byte> bytes_;
    std::vector<float> rows_;
    std::vector<distribution<float>> recorded_;
    verification_memory<float, no_logits_hook> memory_{};
    tree_scratch scratch_{};
    philox_randomness rng_{};
};

template <class Rule, class Exact>
void check_decisions(char const* name, over what, Rule const& rule, Exact const& exact, double noise, int trials) {
    dice roll{static_cast<std::uint64_t>(41 + static_cast<int>(what))};
    INFO(name << ", seed " << roll.seed() << ", noise " << noise);
    std::vector<std::optional<row_pair>> pairs(8);
    for (auto& pair : pairs) pair.emplace(roll, what, noise);
    judged_tree tree;
    std::size_t by_bounds = 0, exactly = 0, rows = 0;
    int kept = 0;
    for (int i = 0; i < trials; ++i) {
        request_settings const settings{};
        request_view const request{
            .position = static_cast<std::uint64_t>(i), .seed = 9, .remaining = 100, .settings = &settings};
        tree.grow(roll, pairs, request, typename Rule::draft_rule{});
        rows += tree.nodes();
        sums_made = 0;
        decision const d = tree.by(rule, request);
        by_bounds += sums_made;
        sums_made = 0;
        decision const e = tree.by(exact, request);
        exactly += sums_made;
        if (!d.valid || d.row != e.row) FAIL("trial " << i << ": node " << d.row << ", expected " << e.row);
        kept += d.row != 0 ? 1 : 0;
    }
    CAPTURE(by_bounds, exactly, rows, kept);
    CHECK(kept > trials / 10);
    CHECK(kept < trials * 49 / 50);
    // Bounds decide mostly, and not always.
    if (native_kernels<row_kernels>().get<float>().bound != nullptr && what == over::a_list) {
        CHECK(by_bounds > 0);
        CHECK(by_bounds < exactly / 2);
    }
}

/// Draws behind so many children, against the law that `remaining` has by exact numbers.
template <class DraftRule>
void check_draws(over what, std::size_t children) {
    dice roll{17};
    INFO("seed " << roll.seed() << ", " << children << " children, chosen " << DraftRule::is_deterministic);
    row_pair const above(roll, what, 2.5);
    row_pair const here(roll, what, 2.5);
    std::vector<double> sums_above(row_blocks(vocabulary));
    std::vector<double> sums(row_blocks(vocabulary));
    using law = distribution<float>;
    auto const outline = [](row_pair const& of, std::vector<double>& into, totals how) {
        return law{{of.target, {}}, transform{}, {}, {}, native_kernels<row_kernels>(), into, how};
    };
    // The node is the child of the first token that survives with a probability inside (0, 1); then the likeliest are
    // rejected.
    law const p_above = outline(above, sums_above, totals::exact);
    token_id token = no_token;
    double survival = 0.0;
    while (!(survival > 0.1 && survival < 0.9)) {
        ++token;
        double const drawn = DraftRule::is_deterministic ? 1.0 : above.q.probability(token);
        survival = drawn > 0.0 ? p_above.probability(token) / drawn : 0.0;
    }
    law const p = outline(here, sums, totals::exact);
    std::vector<rejected_child> room(4);
    remaining<DraftRule, law, law> exact{p, here.q, room};
    std::vector<token_id> rejected;
    for (std::size_t i = 0; i < children; ++i) {
        token_id x = no_token;  // the likeliest that can be rejected
        for (token_id v = 0; v < static_cast<token_id>(vocabulary); ++v) {
            if (std::find(rejected.begin(), rejected.end(), v) != rejected.end()) continue;
            bool const more = x == no_token || here.q[v] > here.q[x];
            if (more && survival * exact[v] < 0.9 * exact.drawn_with(v)) x = v;
        }
        double const mass = exact.reject(x, survival);
        survival = mass / (mass + (1.0 - survival));
        rejected.push_back(x);
    }
    std::vector<double> expected(vocabulary);
    for (std::size_t v = 0; v < vocabulary; ++v) expected[v] = exact[static_cast<token_id>(v)];

    constexpr int draws = 3000;
    std::vector<double> counts(vocabulary);
    philox_randomness const rng;
    std::vector<rejected_child> own(4);
    for (int i = 0; i < draws; ++i) {
        law q_above = outline(above, sums_above, totals::bounded);
        law q_here = outline(here, sums, totals::bounded);
        std::vector<rejected_child> none(1);
        bounded_remaining<DraftRule, law, law> parent{nullptr, no_token, none};
        parent.look(q_above, above.q);
        bounded_remaining<DraftRule, law, law> left{&parent, token, own};
        left.look(q_here, here.q);
        for (token_id const x : rejected) left.reject(x);
        interval const known = left.known();
        if (!(known.low <= survival * (1.0 + 1e-6) && survival <= known.high * (1.0 + 1e-6))) {
            FAIL("survival " << survival << " is not between " << known.low << " and " << known.high);
        }
        draw_key const key{3 + children, static_cast<std::uint64_t>(i), 2, purpose::residual};
        token_id const y = left.draw(key, rng);
        if (y == no_token) FAIL("draw " << i << " has no token");
        counts[static_cast<std::size_t>(y)] += 1.0;
    }
    CHECK(std::ranges::count_if(expected, [](double share) { return share >= 0.004; }) > 1);
    support::check_counts(expected, counts, draws, 0.004);
}

}  // namespace

TEST_CASE("bounds decide about trees as exact sums do") {
    for (auto const what : {over::a_list, over::all, over::a_map}) {
        int const trials = what == over::a_list ? 3000 : 600;
        for (double const noise : {0.3, 1.5}) {
            using drawn = categorical_draft;
            check_decisions("traversal", what, traversal_verification<>{}, traversal_exactly<drawn>{}, noise, trials);
            check_decisions("rejection", what, recursive_rejection<>{}, rejection_exactly<drawn>{}, noise, trials);
        }
        using chosen = argmax_draft;
        check_decisions("traversal, chosen", what, traversal_verification<chosen>{}, traversal_exactly<chosen>{}, 0.3,
                        600);
        check_decisions("rejection, chosen", what, recursive_rejection<chosen>{}, rejection_exactly<chosen>{}, 0.3,
                        600);
    }
}

TEST_CASE("the token behind rejected children, drawn by bounds, has the law that is left") {
    for (std::size_t children = 1; children < 4; ++children) {
        check_draws<categorical_draft>(over::a_list, children);
        check_draws<categorical_draft>(over::all, children);
        check_draws<argmax_draft>(over::all, children);
    }
}
