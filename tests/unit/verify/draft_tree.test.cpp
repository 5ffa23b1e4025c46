// SPDX-License-Identifier: MIT
//
// Draft trees: what a tree says of itself, what grows, and whole texts under rules whose text depends on the request
// alone. A second.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <span>
#include <vector>

#include <sureleap/drafter/grow.hpp>
#include <sureleap/verify/coupled.hpp>
#include <sureleap/verify/draft_tree.hpp>
#include <sureleap/verify/match.hpp>
#include <sureleap/verify/recursive.hpp>
#include <sureleap/verify/traversal.hpp>
#include <sureleap/verify/verification.hpp>

#include "support/allocations.hpp"
#include "support/catch.hpp"

using namespace sureleap;

namespace {

constexpr std::size_t most = 31;
constexpr std::size_t vocabulary = 2000;

/// Random rows of float, the draft's and the target's alike where `agreement` is large.
class random_models {
public:
    explicit random_models(float agreement) : agreement_(agreement) {}

    void target(std::span<token_id const> context, std::span<float> row) const { fill(1, context, row, 1.0F); }
    void draft(std::span<token_id const> context, std::span<float> row) const {
        std::vector<float> own(row.size());
        fill(1, context, row, agreement_);
        fill(2, context, own, 1.0F - agreement_);
        for (std::size_t v = 0; v < row.size(); ++v) row[v] += own[v];
    }

private:
    static void fill(std::uint64_t which, std::span<token_id const> context, std::span<float> row, float scale) {
        std::uint64_t state = 977 * which + context.size();
        for (token_id const x : context.last(std::min(context.size(), std::size_t{2}))) {
            state = (state ^ static_cast<std::uint64_t>(x)) * 0x9E3779B97F4A7C15u;
        }
        for (float& l : row) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            l = scale * 12.0F * static_cast<float>(state >> 40) * 0x1p-24F;
        }
    }
    float agreement_;
};

/// Rounds of one request with trees.
class tree_runner {
public:
    explicit tree_runner(random_models const& models)
        : models_(models), bytes_(size()), rows_((most + 1) * vocabulary) {
        workspace ws{bytes_};
        carve(ws);
    }

    draft_tree tree;
    tree_growth<float> growth;
    verification_memory<float, no_logits_hook> memory;
    tree_scratch scratch;
    std::vector<distribution<float>> recorded;
    std::span<float> draft_rows;
    std::span<token_id> order;

    /// tree_source
    [[nodiscard]] distribution<float> law(draft_tree const& of, node_id n) {
        auto const row = draft_rows.subspan(static_cast<std::size_t>(n) * vocabulary, vocabulary);
        models_.draft(context_behind(of, n), row);
        // At temperature 0 q has one token. Siblings are the next best ones, by the logits as they are.
        transform const how = request_->settings->draft_transform();
        return {{row, {}}, how.greedy() ? transform{} : how, order};
    }
    [[nodiscard]] double acceptance(draft_tree const&, node_id, std::size_t j) const { return j == 0 ? 0.6 : 0.3; }

    /// Appends what the round emits.
    template <class Rule, class Rng>
    std::size_t round(std::vector<token_id>& text, request_settings const& settings, tree_limits const& limits,
                      Rule const& rule, Rng& rng, std::size_t remaining = 100) {
        request_view const request{.id = 1,
                                   .anchor = text.back(),
                                   .position = text.size() - 1,
                                   .context = text,
                                   .seed = 5,
                                   .remaining = remaining,
                                   .settings = &settings};
        request_ = &request;
        growth(tree, request, limits, *this, rng, typename Rule::draft_rule{});
        for (std::size_t n = 0; n < tree.size(); ++n) {
            models_.target(context_behind(tree, static_cast<node_id>(n)),
                           std::span(rows_).subspan(n * vocabulary, vocabulary));
        }
        recorded.clear();
        for (node_id const parent : tree.parents().subspan(1)) {
            recorded.push_back(growth.laws()[static_cast<std::size_t>(parent)]);
        }
        scratch.tree = tree;
        logits_rows<float> const rows{{rows_.data(), tree.size(), vocabulary}, {}};
        no_logits_hook const hook{};
        verification<float, float> v{request, recorded, rows, 0, hook, memory, scratch};
        std::size_t const before = allocations;
        decision const d = sureleap::detail::decide(rule, v, rng);
        allocated += allocations - before;
        REQUIRE(d.valid);
        std::vector<node_id> path(most);
        for (node_id const n : tree.path(static_cast<node_id>(d.row), path)) text.push_back(tree.token(n));
        text.push_back(d.next);
        return tree.depth(static_cast<node_id>(d.row));
    }
    std::size_t allocated = 0;

private:
    tree_runner() = default;
    void carve(workspace& ws) {
        tree = draft_tree(ws, most);
        growth = tree_growth<float>(ws, most);
        memory = decltype(memory)::carve(ws, most, vocabulary);
        scratch = tree_scratch::carve(ws, most);
        draft_rows = ws.take<float>((most + 1) * vocabulary);
        order = ws.take<token_id>(vocabulary);
    }
    [[nodiscard]] static std::size_t size() {
        workspace sizer;
        tree_runner nothing;
        nothing.carve(sizer);
        return sizer.used();
    }
    [[nodiscard]] std::vector<token_id> context_behind(draft_tree const& of, node_id n) const {
        std::vector<token_id> context(request_->context.begin(), request_->context.end());
        std::vector<node_id> path(most);
        for (node_id const m : of.path(n, path)) context.push_back(of.token(m));
        return context;
    }

    random_models models_{0.5F};
    request_view const* request_ = nullptr;
    std::vector<std::byte> bytes_;
    std::vector<float> rows_;
};

template <class Rule>
[[nodiscard]] std::vector<token_id> text_of(Rule const& rule, request_settings const& settings,
                                            tree_limits const& limits, std::size_t& accepted) {
    tree_runner run{random_models{0.8F}};
    philox_randomness rng;
    std::vector<token_id> text{3};
    while (text.size() < 200) accepted += run.round(text, settings, limits, rule, rng);
    CHECK(run.allocated == 0);
    text.resize(200);
    return text;
}

}  // namespace

TEST_CASE("a tree by its views") {
    std::vector<std::byte> bytes(8192);
    workspace ws{bytes};
    draft_tree tree(ws, 80);
    tree.begin(7);
    CHECK(tree.size() == 1);
    node_id const a = tree.append(anchor_node, 10);
    node_id const b = tree.append(anchor_node, 11);
    node_id const c = tree.append(a, 12);
    node_id const d = tree.append(b, 13);
    node_id const e = tree.append(a, 14);
    CHECK(std::ranges::equal(tree.tokens(), std::vector<token_id>{7, 10, 11, 12, 13, 14}));
    CHECK(std::ranges::equal(tree.parents(), std::vector<node_id>{-1, 0, 0, 1, 2, 1}));
    CHECK(std::ranges::equal(tree.depths(), std::vector<std::uint32_t>{0, 1, 1, 2, 2, 2}));
    CHECK(std::ranges::equal(tree.first_children(), std::vector<node_id>{1, 3, 4, -1, -1, -1}));
    CHECK(std::ranges::equal(tree.next_siblings(), std::vector<node_id>{-1, 2, -1, 5, -1, -1}));
    CHECK(tree.child(a, 14) == e);
    CHECK(tree.child(a, 13) == no_node);
    std::vector<node_id> path(2);
    CHECK(std::ranges::equal(tree.path(d, path), std::vector<node_id>{b, d}));
    CHECK(tree.path(anchor_node, path).empty());
    std::vector<std::uint64_t> masks(tree.size() * tree.mask_words());
    tree.ancestors(masks);
    CHECK(masks == std::vector<std::uint64_t>{0b1, 0b11, 0b101, 0b1011, 0b10101, 0b100011});

    // Beyond a word.
    node_id last = c;
    while (tree.size() < 70) last = tree.append(last, 1);
    masks.assign(tree.size() * tree.mask_words(), 0);
    tree.ancestors(masks);
    CHECK(tree.mask_words() == 2);
    CHECK(masks[2 * static_cast<std::size_t>(last)] == (~std::uint64_t{0} & ~std::uint64_t{0b110100}));
    CHECK(masks[2 * static_cast<std::size_t>(last) + 1] == 0b111111);
    tree.begin(8);
    CHECK(tree.size() == 1);
    CHECK(tree.first_child(anchor_node) == no_node);
}

TEST_CASE("what grows keeps to its limits, and siblings are different tokens") {
    tree_runner run{random_models{0.8F}};
    philox_randomness rng;
    request_settings const settings{};
    for (std::size_t i = 0; i < 20; ++i) {
        std::vector<token_id> text{static_cast<token_id>(i)};
        tree_limits const limits{.nodes = 1 + i, .depth = 1 + i % 5, .children = 1 + i % 4, .straight = i % 3};
        if (i % 2 == 0) run.round(text, settings, limits, recursive_rejection<>{}, rng);
        if (i % 2 == 1) run.round(text, settings, limits, traversal_verification<>{}, rng);
        CHECK(run.tree.size() <= 1 + limits.nodes);
        for (std::size_t n = 0; n < run.tree.size(); ++n) {
            auto const node = static_cast<node_id>(n);
            CHECK(run.tree.depth(node) <= limits.depth);
            std::set<token_id> tokens;
            std::size_t children = 0;
            for (node_id c = run.tree.first_child(node); c != no_node; c = run.tree.next_sibling(c), ++children) {
                CHECK(c > node);
                CHECK(run.growth.reach()[static_cast<std::size_t>(c)] <= run.growth.reach()[n]);
                tokens.insert(run.tree.token(c));
            }
            CHECK(tokens.size() == children);
            CHECK(children <= (run.tree.depth(node) < limits.straight ? 1 : limits.children));
        }
    }
    for (std::size_t const left : {1U, 2U, 3U}) {  // tokens that may still be emitted, of which one is the target's own
        std::vector<token_id> text{1};
        run.round(text, settings, {.nodes = most}, recursive_rejection<>{}, rng, left);
        CHECK(*std::ranges::max_element(run.tree.depths()) == left - 1);
    }
    std::vector<token_id> text{1};
    run.round(text, settings, {.nodes = most, .least_value = 0.5}, recursive_rejection<>{}, rng);
    CHECK(run.tree.size() == 2);  // 0.6; behind it 0.36, beside it 0.4 * 0.3
}

TEST_CASE("texts of matching rules are those of plain decoding, whatever the tree") {
    for (double const temperature : {0.0, 0.3, 1.0}) {
        request_settings const settings{.temperature = temperature, .top_p = 0.95};
        auto const check = [&](auto const& rule) {
            std::size_t none = 0, accepted = 0;
            auto const plain = text_of(rule, settings, {.nodes = 0}, none);
            CHECK(none == 0);
            CHECK(text_of(rule, settings, {.nodes = 12, .children = 3}, accepted) == plain);
            CHECK(text_of(rule, settings, {.nodes = 31, .depth = 4}, accepted) == plain);
            CHECK(accepted > 5);
        };
        check(target_match<>{});
        check(keyed_coupling{});
        if (temperature == 0.0) check(greedy_match{});
    }
}

TEST_CASE("a row that holds no law is no decision") {
    std::vector<std::byte> bytes(1 << 16);
    workspace ws{bytes};
    auto const memory = verification_memory<float, no_logits_hook>::carve(ws, 2, 4);
    auto scratch = tree_scratch::carve(ws, 2);
    scratch.tree.begin(0);
    scratch.tree.append(anchor_node, 1);
    std::vector<float> const wrong(8, std::numeric_limits<float>::quiet_NaN());
    logits_rows<float> const rows{{wrong.data(), 2, 4}, {}};
    std::vector<distribution<float>> const laws(2, distribution<float>::one_hot(4, 1));
    request_settings const settings{};
    request_view const request{.anchor = 0, .remaining = 9, .settings = &settings};
    philox_randomness rng;
    no_logits_hook const hook{};
    verification<float, float> v{request, laws, rows, 0, hook, memory, scratch};
    CHECK_FALSE(recursive_rejection<>{}(v, rng).valid);
    CHECK_FALSE(traversal_verification<>{}(v, rng).valid);
    CHECK_FALSE(target_match<>{}(v, rng).valid);
    CHECK_FALSE(keyed_coupling{}(v, rng).valid);
    CHECK_FALSE(greedy_match{}(v, rng).valid);
}
