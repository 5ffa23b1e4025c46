// SPDX-License-Identifier: MIT
//
// Trees of drafts from a semi-autoregressive drafter. One backbone pass gives hidden states and base logits of all
// positions. The sequential head then adds, behind each node, the bias of that node's own token: children of siblings
// have laws of their own, and no further pass.
//
//     decoder dec{target, tree_drafter{semi_autoregressive{..}, {.nodes = 16}}, planned_schedule{cost},
//                 recursive_rejection<>{}};
//
// A tree grows best node first (drafter/grow.hpp). A child's chance to be accepted is the confidence behind its parent,
// times a ratio for its rank. The ratio is what such confidences turned out to be worth (drafter/sibling_worth.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/grow.hpp>
#include <sureleap/drafter/sibling_worth.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/verify/draft_tree.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {
/// Calls f, which may not throw, when it goes out of scope.
template <class F>
struct at_exit {
    F f;
    explicit at_exit(F last) noexcept : f(std::move(last)) {}
    at_exit(at_exit const&) = delete;
    ~at_exit() { f(); }
};
}  // namespace detail

/// How trees grow, fixed at set-up.
struct tree_options {
    std::size_t nodes = 8;     ///< most drafted tokens of a tree; 1 .. most_keyed_drafts
    std::size_t children = 4;  ///< most of a node; at least 1
    std::size_t straight = 0;  ///< nodes above this depth have one child: delayed branching (arXiv 2602.16994)
    sibling_worth_settings siblings{};
};

/// Drafter: semi_autoregressive or parallel, held by value, or by reference where an lvalue was given to the deduction
/// guide. Its block_size() is the most positions of a path; that of this one is the most tokens of a tree, and what
/// limits drafts (request_view::draft_cap, never_lose) limits nodes. Models drafter, for rules that judge trees.
///
/// A tree's shape depends on tokens that were drawn before it, and never on those it decides about. So its growth is
/// causal, and sampling rules keep the target's law. With rules that choose their drafts (argmax_draft), children are
/// the likeliest tokens by the logits; with others a law of temperature 0 has one token, and so one child.
///
/// Learns in commit what siblings are worth. Takes memory when a round has more requests than any before.
template <class Drafter>
class tree_drafter {
    using parts_type = std::remove_cvref_t<Drafter>;

public:
    using value_type = typename parts_type::value_type;
    using forward_type = typename parts_type::forward_type;

    static_assert(!parts_type::is_deterministic && parts_type::is_parallel,
                  "tree_drafter: the argument drafts no block from one pass; give it semi_autoregressive or parallel");
    static_assert(parts_type::reads_hidden,
                  "tree_drafter: a tree grows by confidences that are known before q is made; give the drafter a "
                  "confidence_head, or another pre_token_confidence (concepts.hpp)");

    static constexpr bool is_deterministic = false;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = true;
    static constexpr bool drafts_trees = true;
    static constexpr bool plans_at_anchor = parts_type::plans_at_anchor;

    explicit tree_drafter(Drafter drafter, tree_options const& options = {})
        : parts_(std::forward<Drafter>(drafter)), options_(options), worth_(options.siblings) {
        detail::check_block_size("tree_options", "nodes", options.nodes);
        if (options.children == 0) fail_with("tree_options: children is 0, expected at least 1 of a node");
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return options_.nodes; }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return parts_.vocabulary(); }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return parts_.target_vocabulary(); }
    [[nodiscard]] std::size_t state_size() const noexcept { return parts_.state_size(); }
    [[nodiscard]] std::size_t room(request_view const& request) const { return draft_room(parts_, request); }
    [[nodiscard]] std::uint64_t unread(request_view const& request) const { return draft_unread(parts_, request); }
    [[nodiscard]] sibling_worth const& siblings() const noexcept { return worth_; }

    [[nodiscard]] forward_type forward(std::span<request_view const> requests) { return parts_.forward(requests); }

    /// The trees that confidences at the anchor promise, for planned_schedule: the worth of their nodes, in the order
    /// in which they would grow.
    void plan(forward_type const& forward, draft_block<value_type> const& block, planning_memory& memory) const
        requires plans_at_anchor
    {
        block.for_each_request(options_.nodes * parts_.plan_size(), [&](auto const& mine, std::size_t r) {
            memory.begin(r);
            if (!drafts(forward, mine, r)) return;
            draft_tree& tree = mine.tree(r);
            anchor_source source{*this, forward, mine, r};
            mine.growth(r).outline(tree, mine.requests()[r], limits(mine, r), source);
            double before = 1.0;
            for (std::size_t n = 1; n < tree.size(); ++n) {
                double const reach = std::min(mine.growth(r).reach()[n], before);
                fixed_probability c = 0;
                if (!quantise(reach > 0.0 ? reach / before : 0.0, c)) return;
                memory.append_fixed(r, c);
                before = reach;
            }
        });
    }

    /// Grows the trees of all requests. With a factored head a product with W2 serves one node of every request;
    /// O(nodes V r) for each, with a shortlist of M tokens O(V) for each position of a path, and O(nodes M r).
    template <class DraftRule, class Rng>
    void draw(forward_type const& forward, DraftRule rule, draft_block<value_type>& block, Rng& rng) {
        auto const requests = block.requests();
        make_room(requests.size());
        // However the draw ends: nodes that were drawn are drafts, or what throws would choose among them.
        detail::at_exit const take_all{[&]() noexcept {
            for (std::size_t r = 0; r < requests.size(); ++r) take(block, r, rule);
        }};
        for (std::size_t r = 0; r < requests.size(); ++r) {
            if (!parts_.well_shaped(forward, requests.size())) block.reject(r, status::invalid_draft);
        }
        if constexpr (parts_type::batches) {
            for (std::size_t r = 0; r < requests.size(); ++r) begin(forward, block, r);
            while (want_laws(forward, block)) {
                parts_.multiply(block);
                block.for_each_request(parts_.draw_size(), rng, [&](auto& mine, std::size_t r, auto& source) {
                    if (!drawn_[r].grows) return;
                    tree_growth<value_type>& growth = mine.growth(r);
                    if (growth.lacks_law()) {
                        growth.give(parts_.multiplied_law(mine.node_place(r, growth.now()), how(mine, r, rule),
                                                          mine.node_mask(r, growth.now()), mine));
                    }
                    draw_one(forward, mine, r, rule, source);
                });
            }
        } else {
            block.for_each_request(options_.nodes * parts_.draw_size(), rng,
                                   [&](auto& mine, std::size_t r, auto& source) {
                                       begin(forward, mine, r);
                                       while (next(mine, r)) {
                                           tree_growth<value_type>& growth = mine.growth(r);
                                           if (growth.lacks_law())
                                               growth.give(law_behind(forward, mine, r, growth.now(), rule));
                                           draw_one(forward, mine, r, rule, source);
                                       }
                                   });
        }
    }

    void shape_memory(draft_shape& shape) const noexcept {
        shape.trees = true;
        parts_.shape_memory(shape);
    }

    /// Learns from the trees of the block.
    void commit(std::span<verdict const> verdicts, draft_block<value_type> const& block) noexcept {
        for (std::size_t r = 0; r < std::min(verdicts.size(), block.requests().size()); ++r) {
            verdict const& v = verdicts[r];
            if (v.outcome != status::ok || block.found()[r]) continue;
            for (std::size_t k = 0; k < v.verified; ++k) {
                if (!v.reached(k)) continue;
                auto const rank = static_cast<std::size_t>(
                    std::count(v.parents.begin(), v.parents.begin() + static_cast<std::ptrdiff_t>(k), v.parents[k]));
                worth_.observe(rank, block.notes().confidence(r, v.parents[k]), v.kept(k));
            }
        }
        parts_.commit(verdicts);
    }

private:
    using block_type = draft_block<value_type>;
    static constexpr std::size_t unknown = static_cast<std::size_t>(-1);
    struct drawn_tree {
        bool began = false;
        bool grows = false;   // further
        bool unsure = false;  // a confidence was no probability
    };

    /// tree_source of a request, whose tokens are drawn.
    struct live_source {
        tree_drafter& of;
        forward_type const& forward;
        block_type const& block;
        std::size_t r;
        [[nodiscard]] double acceptance(draft_tree const& tree, node_id n, std::size_t rank) {
            double& c = block.notes().confidence(r, n);
            if (rank == 0) {
                std::size_t const k = tree.depth(n);
                double& raw = of.raw_[of.place(r, n)];
                raw = of.parts_.confidence_behind(forward, r, k, tree.token(n), block.node_state(r, n), {});
                c = block.calibration()(block.requests()[r], k, raw);
                if (fixed_probability unused = 0; !quantise(c, unused)) of.drawn_[r].unsure = true;
            }
            return of.drawn_[r].unsure ? 0.0 : std::min(c * of.worth_(rank), 1.0);
        }
    };
    /// Of one whose tokens are not known yet.
    struct anchor_source {
        tree_drafter const& of;
        forward_type const& forward;
        block_type const& block;
        std::size_t r;
        [[nodiscard]] double acceptance(draft_tree const& tree, node_id n, std::size_t rank) const {
            std::size_t const k = tree.depth(n);
            double const c = of.parts_.confidence_at_anchor(forward, r, k, block);
            double const calibrated = block.calibration()(block.requests()[r], k, c);
            return calibrated >= 0.0 ? std::min(calibrated * of.worth_(rank), 1.0) : 0.0;
        }
    };

    void make_room(std::size_t requests) {
        raw_.resize(std::max(raw_.size(), requests * options_.nodes));
        best_sizes_.assign(std::max(best_sizes_.size(), requests * parts_.block_size()), unknown);
        best_.resize(best_sizes_.size() * parts_.best_size());
        drawn_.assign(std::max(drawn_.size(), requests), drawn_tree{});
    }
    [[nodiscard]] std::size_t place(std::size_t r, node_id n) const noexcept {
        return r * options_.nodes + static_cast<std::size_t>(n);
    }
    [[nodiscard]] bool drafts(forward_type const& forward, block_type const& block, std::size_t r) const noexcept {
        return block.draft_outcome(r) == status::ok && block.requests()[r].draft_cap(options_.nodes) > 0 &&
               parts_.can_draft(forward, block, r);
    }
    /// The floor is a price, which begins with the request's weight; what grows knows probabilities.
    [[nodiscard]] tree_limits limits(block_type const& block, std::size_t r) const noexcept {
        request_view const& request = block.requests()[r];
        double const floor = static_cast<double>(request.draft_floor) / static_cast<double>(request.weight);
        return {.nodes = request.draft_cap(options_.nodes),
                .depth = parts_.block_size(),
                .children = children(block, r),
                .least_value = floor * (1.0 - 1e-6),  // take_tree draws the line
                .straight = options_.straight};
    }
    /// Most of a node. A law of few tokens has few children, so a plan must not count on more.
    [[nodiscard]] std::size_t children(block_type const& block, std::size_t r) const noexcept {
        transform const law = block.requests()[r].settings->draft_transform();
        if (law.greedy()) return block.shape().rule == drawn_by::categorical ? 1 : options_.children;
        return law.top_k <= 0 ? options_.children : std::min(options_.children, static_cast<std::size_t>(law.top_k));
    }
    /// Siblings are the likeliest tokens where the rule chooses them, or races that are decided by the weights alone.
    template <class DraftRule>
    [[nodiscard]] static transform how(block_type const& block, std::size_t r, DraftRule) noexcept {
        request_settings const& s = *block.requests()[r].settings;
        bool const chosen = DraftRule::is_deterministic || DraftRule::noise_returns;
        return chosen && s.draft_transform().greedy() ? transform{} : s.draft_transform();
    }

    void begin(forward_type const& forward, block_type const& block, std::size_t r) {
        bool const drafting = drafts(forward, block, r);
        drawn_[r] = {.began = drafting, .grows = drafting};
        if (!drafting) return;
        parts_.reset(block.node_state(r, anchor_node));
        live_source source{*this, forward, block, r};
        block.growth(r).begin(block.tree(r), block.requests()[r], limits(block, r), source);
    }
    [[nodiscard]] bool next(block_type const& block, std::size_t r) noexcept {
        if (!drawn_[r].grows) return false;
        drawn_[r].grows = block.growth(r).next(block.tree(r)) != no_node;
        return drawn_[r].grows;
    }
    /// The head's state behind node n, whose parent's law is known: where its law begins.
    [[nodiscard]] std::span<value_type> state_behind(block_type const& block, std::size_t r, node_id n) const noexcept {
        auto const state = block.node_state(r, n);
        if (n != anchor_node) {
            auto const above = block.node_state(r, block.tree(r).parent(n));
            std::copy(above.begin(), above.end(), state.begin());
        }
        return state;
    }
    /// What base logits choose of a position, once for all nodes of that depth.
    [[nodiscard]] std::span<token_id const> best_at(forward_type const& forward, block_type const& block, std::size_t r,
                                                    std::size_t k) noexcept {
        if constexpr (parts_type::lists_tokens) {
            std::size_t const i = r * parts_.block_size() + k;
            auto const kept = std::span<token_id>(best_).subspan(i * parts_.best_size(), parts_.best_size());
            if (best_sizes_[i] == unknown) {
                auto const best = parts_.best_at(forward, r, k, block);
                std::copy(best.begin(), best.end(), kept.begin());
                best_sizes_[i] = best.size();
            }
            return kept.first(best_sizes_[i]);
        } else {
            return {};
        }
    }
    template <class DraftRule>
    [[nodiscard]] distribution<value_type> law_behind(forward_type const& forward, block_type const& block,
                                                      std::size_t r, node_id n, DraftRule rule) {
        draft_tree const& tree = block.tree(r);
        return parts_.law_behind(forward, r, tree.depth(n), tree.token(n), state_behind(block, r, n),
                                 block.node_place(r, n), how(block, r, rule), block.node_mask(r, n), block,
                                 best_at(forward, block, r, tree.depth(n)));
    }
    /// Names the products of the next node of every request. False: no tree grows any more.
    [[nodiscard]] bool want_laws(forward_type const& forward, block_type const& block) {
        bool any = false;
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            block.code_rows()[r] = nullptr;
            if (!next(block, r)) continue;
            any = true;
            if (!block.growth(r).lacks_law()) continue;
            draft_tree const& tree = block.tree(r);
            node_id const n = block.growth(r).now();
            parts_.want_law_behind(forward, r, tree.depth(n), tree.token(n), state_behind(block, r, n),
                                   block.node_place(r, n), block);
        }
        return any;
    }
    template <class DraftRule, class Rng>
    void draw_one(forward_type const& forward, block_type& block, std::size_t r, DraftRule rule, Rng& rng) {
        live_source source{*this, forward, block, r};
        bool const drawn = block.growth(r).draw(block.tree(r), block.requests()[r], source, rng, rule);
        if (!drawn) block.reject(r, status::invalid_draft);
        if (drawn_[r].unsure) block.reject(r, status::invalid_confidence);
        drawn_[r].grows = drawn && !drawn_[r].unsure;
    }
    template <class DraftRule>
    void take(block_type& block, std::size_t r, DraftRule rule) noexcept {
        if (!drawn_[r].began) return;
        draft_tree const& tree = block.tree(r);
        block.take_tree(r, rule, [&](node_id n) {
            bool const eldest = tree.first_child(tree.parent(n)) == n;
            return eldest ? raw_[place(r, tree.parent(n))] : std::numeric_limits<double>::quiet_NaN();
        });
    }

    Drafter parts_;
    tree_options options_;
    sibling_worth worth_;
    // Scratch of a draw:
    std::vector<std::size_t> best_sizes_;  // [R, gamma] of lists: tokens that base logits choose, or unknown
    std::vector<token_id> best_;           // [R, gamma, best_size] these
    std::vector<drawn_tree> drawn_;        // [R]
    std::vector<double> raw_;              // [R, nodes] confidence behind each node, before calibration
};

template <class D>
tree_drafter(D&&, tree_options const&) -> tree_drafter<D>;
template <class D>
tree_drafter(D&&) -> tree_drafter<D>;

SURELEAP_END_NAMESPACE
