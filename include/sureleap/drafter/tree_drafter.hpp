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

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/workspace.hpp>
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
/// Learns in commit what siblings are worth.
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
    static constexpr bool lends_rows = parts_type::lends_rows;

    /// Memory of the drafter inside, and a tree of each request where it grows.
    struct memory_type {
        struct growing {
            draft_tree tree{};
            tree_growth<value_type> growth{};
            bool began = false;
            bool grows = false;   // further
            bool unsure = false;  // a confidence was no probability
        };

        memory_type() = default;
        memory_type(workspace& ws, draft_shape const& shape, tree_drafter const& drafter) noexcept
            : parts(ws, shape, drafter.parts_),
              trees(ws.take<growing>(shape.requests)),
              raw(ws.take<double>(shape.requests, shape.block_size)),
              prefixes(ws.take<token_id>(shape.constrained ? shape.workers() : 0, shape.block_size)) {
            for (std::size_t r = 0; r < shape.requests; ++r) {
                growing const one{draft_tree(ws, shape.block_size), tree_growth<value_type>(ws, shape.block_size)};
                if (!ws.counting()) trees[r] = one;
            }
        }

        typename parts_type::memory_type parts{};
        std::span<growing> trees{};        // [R]
        carved_rows<double> raw{};         // [R, nodes] confidence behind a node, before calibration
        carved_rows<token_id> prefixes{};  // by worker
    };

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
    void plan(forward_type const& forward, draft_block<value_type> const& block, memory_type const& memory,
              planning_memory& planning) const
        requires plans_at_anchor
    {
        block.for_each_request(options_.nodes * parts_.plan_size(), [&](auto const& mine, std::size_t r) {
            planning.begin(r);
            if (!drafts(forward, mine, r)) return;
            auto& [tree, growth, began, grows, unsure] = memory.trees[r];
            auto source = anchor_source(forward, mine, memory, r);
            growth.outline(tree, mine.requests()[r], limits(mine, r), source);
            double before = 1.0;
            for (std::size_t n = 1; n < tree.size(); ++n) {
                double const reach = std::min(growth.reach()[n], before);
                fixed_probability c = 0;
                if (!quantise(reach > 0.0 ? reach / before : 0.0, c)) return;
                planning.append_fixed(r, c);
                before = reach;
            }
        });
    }

    /// Grows the trees of all requests. With a factored head a product with W2 serves one node of every request;
    /// O(nodes V r) for each, with a shortlist of M tokens O(V) for each position of a path, and O(nodes M r).
    template <class DraftRule, class Rng>
    void draw(forward_type const& forward, DraftRule rule, draft_block<value_type>& block, memory_type const& memory,
              Rng& rng) {
        std::size_t const requests = block.requests().size();
        for (std::size_t r = 0; r < requests; ++r) memory.trees[r].began = memory.trees[r].grows = false;
        // However the draw ends: nodes that were drawn are drafts, or what throws would choose among them.
        detail::at_exit const take_all{[&]() noexcept {
            for (std::size_t r = 0; r < requests; ++r) take(block, memory, r, rule);
        }};
        for (std::size_t r = 0; r < requests; ++r) {
            if (!parts_.well_shaped(forward, requests)) block.reject(r, status::invalid_draft);
        }
        if constexpr (parts_type::rows_type::is_shared) {
            for (std::size_t r = 0; r < requests; ++r) begin(forward, block, memory, r);
            auto const any_wants = [&] {
                bool any = false;
                for (std::size_t r = 0; r < requests; ++r) any = want_next(forward, block, memory, r) || any;
                return any;
            };
            while (any_wants()) {
                parts_.make(memory.parts, block);
                block.for_each_request(parts_.draw_size(), rng, [&](auto& mine, std::size_t r, auto& source) {
                    if (memory.trees[r].grows) draw_one(forward, mine, memory, r, rule, source);
                });
            }
        } else {
            block.for_each_request(options_.nodes * parts_.draw_size(), rng,
                                   [&](auto& mine, std::size_t r, auto& source) {
                                       begin(forward, mine, memory, r);
                                       while (want_next(forward, mine, memory, r)) {
                                           draw_one(forward, mine, memory, r, rule, source);
                                       }
                                   });
        }
    }

    /// Learns from the trees of the block.
    void commit(std::span<verdict const> verdicts, draft_block<value_type> const& block,
                memory_type const& memory) noexcept {
        for (std::size_t r = 0; r < std::min(verdicts.size(), block.requests().size()); ++r) {
            verdict const& v = verdicts[r];
            if (v.outcome != status::ok || block.found()[r]) continue;
            for (std::size_t k = 0; k < v.verified; ++k) {
                if (!v.reached(k)) continue;
                auto const rank = static_cast<std::size_t>(
                    std::count(v.parents.begin(), v.parents.begin() + static_cast<std::ptrdiff_t>(k), v.parents[k]));
                worth_.observe(rank, confidence(block, memory, r, v.parents[k]), v.kept(k));
            }
        }
        parts_.commit(verdicts);
    }

private:
    using block_type = draft_block<value_type>;
    using position = typename parts_type::position;

    template <class Acceptance>
    struct acceptance_source {  // models tree_source, but that laws are given
        Acceptance acceptance;
    };
    /// Of a request whose tokens are drawn. A confidence that is no probability ends its tree.
    [[nodiscard]] auto live_source(forward_type const& forward, block_type const& block, memory_type const& memory,
                                   std::size_t r) const noexcept {
        auto const acceptance = [&, r](draft_tree const&, node_id n, std::size_t rank) {
            if (rank == 0) {
                memory.raw[r][static_cast<std::size_t>(n)] =
                    parts_.confidence_behind(forward, memory.parts, behind(block, memory, r, n), {});
            }
            double const c = confidence(block, memory, r, n);
            bool& unsure = memory.trees[r].unsure;
            if (fixed_probability unused = 0; !quantise(c, unused)) unsure = true;
            return unsure ? 0.0 : std::min(c * worth_(rank), 1.0);
        };
        return acceptance_source<decltype(acceptance)>{acceptance};
    }
    /// Behind node n, calibrated.
    [[nodiscard]] static double confidence(block_type const& block, memory_type const& memory, std::size_t r,
                                           node_id n) noexcept {
        double const raw = memory.raw[r][static_cast<std::size_t>(n)];
        return block.calibration()(block.requests()[r], memory.trees[r].tree.depth(n), raw);
    }
    /// Of one whose tokens are not known yet.
    [[nodiscard]] auto anchor_source(forward_type const& forward, block_type const& block, memory_type const& memory,
                                     std::size_t r) const noexcept {
        auto const acceptance = [&, r](draft_tree const&, node_id n, std::size_t rank) {
            position const at = behind(block, memory, r, n);
            double const c = parts_.confidence_at_anchor(forward, block, memory.parts, at);
            double const calibrated = block.calibration()(block.requests()[r], at.k, c);
            return calibrated >= 0.0 ? std::min(calibrated * worth_(rank), 1.0) : 0.0;
        };
        return acceptance_source<decltype(acceptance)>{acceptance};
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

    /// The position behind node n.
    [[nodiscard]] static position behind(block_type const& block, memory_type const& memory, std::size_t r,
                                         node_id n) noexcept {
        draft_tree const& tree = memory.trees[r].tree;
        std::size_t const place = memory.parts.rows.place(r, static_cast<std::size_t>(n));
        return {block.worker(), r, tree.depth(n), place, tree.token(n), memory.parts.states[place]};
    }
    /// What the settings of request r forbid there.
    [[nodiscard]] static row_mask mask_behind_node(block_type const& block, memory_type const& memory, std::size_t r,
                                                   node_id n) noexcept {
        request_view const& request = block.requests()[r];
        if (!request.settings->masks_rows()) return {};
        return mask_behind(request, memory.trees[r].tree.prefix(n, memory.prefixes[block.worker()]));
    }

    void begin(forward_type const& forward, block_type const& block, memory_type const& memory, std::size_t r) const {
        auto& at = memory.trees[r];
        at.began = at.grows = drafts(forward, block, r);
        at.unsure = false;
        if (!at.grows) return;
        at.tree.begin(block.requests()[r].anchor);
        parts_.begin(memory.parts, r, behind(block, memory, r, anchor_node).state);
        auto source = live_source(forward, block, memory, r);
        at.growth.begin(at.tree, block.requests()[r], limits(block, r), source);
    }
    /// Wants the law behind the next node that has a child, if it is not known. False: the tree grows no further.
    [[nodiscard]] bool want_next(forward_type const& forward, block_type const& block, memory_type const& memory,
                                 std::size_t r) const {
        auto& at = memory.trees[r];
        if (at.grows) at.grows = at.growth.next(at.tree) != no_node;
        if (!at.grows || !at.growth.lacks_law()) return at.grows;
        node_id const n = at.growth.now();
        position const where = behind(block, memory, r, n);
        if (n != anchor_node) {  // the head goes on from where the law of the parent left it
            std::ranges::copy(behind(block, memory, r, at.tree.parent(n)).state, where.state.begin());
        }
        parts_.want(forward, memory.parts, where);
        return true;
    }
    template <class DraftRule, class Rng>
    void draw_one(forward_type const& forward, block_type& block, memory_type const& memory, std::size_t r,
                  DraftRule rule, Rng& rng) const {
        auto& at = memory.trees[r];
        if (at.growth.lacks_law()) {
            node_id const n = at.growth.now();
            at.growth.give(parts_.law(forward, memory.parts, behind(block, memory, r, n), how(block, r, rule),
                                      mask_behind_node(block, memory, r, n)));
        }
        auto source = live_source(forward, block, memory, r);
        bool const drawn = at.growth.draw(at.tree, block.requests()[r], source, rng, rule);
        if (!drawn) block.reject(r, status::invalid_draft);
        if (at.unsure) block.reject(r, status::invalid_confidence);
        at.grows = drawn && !at.unsure;
    }
    template <class DraftRule>
    void take(block_type& block, memory_type const& memory, std::size_t r, DraftRule rule) const noexcept {
        auto const& at = memory.trees[r];
        if (!at.began) return;
        block.take_tree(r, rule, at.tree, at.growth, [&](node_id n) {
            node_id const parent = at.tree.parent(n);
            bool const eldest = at.tree.first_child(parent) == n;
            return eldest ? memory.raw[r][static_cast<std::size_t>(parent)] : std::numeric_limits<double>::quiet_NaN();
        });
    }

    Drafter parts_;
    tree_options options_;
    sibling_worth worth_;
};

template <class D>
tree_drafter(D&&, tree_options const&) -> tree_drafter<D>;
template <class D>
tree_drafter(D&&) -> tree_drafter<D>;

SURELEAP_END_NAMESPACE
