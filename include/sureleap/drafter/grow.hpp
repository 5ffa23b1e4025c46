// SPDX-License-Identifier: MIT
//
// Growing a tree, best node first. A place is a child that does not exist yet: the j-th of a node. Its value is the
// probability that this child will be accepted, as far as the drafter can tell. The place of the largest value is
// taken, its token drawn, and two places come instead: the node's next child, and the new node's first.
//
//     value of the j-th child of n = reach(n) (1 - a_0) .. (1 - a_{j-1}) a_j      a_i: acceptance(n, i)
//     reach of that child          = its value
//
// Values are asked for before the token is drawn, so they cannot depend on it: whether a child exists depends on tokens
// that were drawn before it. That is what rules that sample need (verify/recursive.hpp). A tree whose nodes are drawn
// first and ranked by their own probability, as EAGLE-2 does, is exact with matching rules alone, and cannot be grown
// here with draws.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/undrawn.hpp>
#include <sureleap/verify/draft_tree.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Who knows what may follow a node.
///
///     law(tree, n)             q behind node n, a function of the path to n. Asked once a node, when its first child is drawn.
///                              Its row stays until the rule has decided. At temperature 0 a law has one token, and so one
///                              child; where children are chosen it may be of another temperature.
///     acceptance(tree, n, j)   in [0, 1]: that the j-th child will be accepted if n was and its elder children were not.
///                              Child j is not in the tree yet.
template <class S, class Q>
concept tree_source = requires(S& source, draft_tree const& tree, node_id n, std::size_t j) {
    { source.law(tree, n) } -> std::convertible_to<distribution<Q>>;
    { source.acceptance(tree, n, j) } -> std::convertible_to<double>;
};

struct tree_limits {
    std::size_t nodes = 8;     ///< drafted tokens
    std::size_t depth = 8;     ///< positions
    std::size_t children = 4;  ///< of a node
    double least_value = 0.0;  ///< places below are not taken
    std::size_t straight = 0;  ///< nodes above this depth have one child: delayed branching (arXiv 2602.16994)
};

/// Memory of growing, for trees of at most so many nodes.
template <class Q>
class tree_growth {
public:
    tree_growth() = default;
    tree_growth(workspace& ws, std::size_t most) noexcept
        : laws_(ws.take<distribution<Q>>(most + 1)),
          reach_(ws.take<double>(most + 1)),
          places_(ws.take<place>(2 * most + 1)),
          siblings_(ws.take<token_id>(most)) {}

    /// Grows the tree of one request from its anchor, at most as deep as the request may still emit. The rule's
    /// draft_rule says how tokens are drawn; `source` models tree_source<Q>. O(nodes log nodes) besides what the source
    /// takes, and O(V) for each node that is drawn.
    template <class DraftRule, class Source, class Rng>
    void operator()(draft_tree& tree, request_view const& request, tree_limits const& limits, Source& source, Rng& rng,
                    DraftRule rule = {}) {
        static_assert(
            tree_source<Source, Q>,
            "tree_growth: the source needs law(tree, node) -> distribution<Q> and acceptance(tree, node, j) -> double");
        begin(tree, request, limits, source);
        for (node_id n = next(tree); n != no_node; n = next(tree)) {
            if (lacks_law()) give(source.law(tree, n));
            draw(tree, request, source, rng, rule);
        }
    }

    // The same step by step, for who computes the laws of several requests at once:
    //
    //     growth.begin(tree, request, limits, source);
    //     for (node_id n = growth.next(tree); n != no_node; n = growth.next(tree)) {
    //         if (growth.lacks_law()) growth.give(<q behind n>);
    //         growth.draw(tree, request, source, rng, rule);
    //     }

    template <class Source>
    void begin(draft_tree& tree, request_view const& request, tree_limits const& limits, Source& source) {
        limits_ = limits;
        limits_.depth = request.draft_cap(limits.depth);
        shape_ = request.shape;
        tree.begin(request.anchor);
        reach_[0] = 1.0;
        count_ = 0;
        now_ = {};
        offer(tree, source, anchor_node, 0, 1.0);
    }
    /// The node whose child comes next, or no_node: the tree is complete.
    [[nodiscard]] node_id next(draft_tree const& tree) noexcept {
        bool const more = count_ > 0 && tree.size() <= limits_.nodes && !tree.full();
        bool const taken = more && (shape_.empty() ? take(limits_.least_value) : take_as_before(tree.size()));
        if (!taken) end();
        return now();
    }
    /// What next() said last.
    [[nodiscard]] node_id now() const noexcept { return now_.parent; }
    /// It has no child yet, so its law is not known.
    [[nodiscard]] bool lacks_law() const noexcept { return now_.rank == 0; }
    void give(distribution<Q> const& q) noexcept { laws_[at(now_.parent)] = q; }
    /// Draws the child, if its law has a further token. False, and the tree is complete, if there is no law.
    template <class DraftRule, class Source, class Rng>
    bool draw(draft_tree& tree, request_view const& request, Source& source, Rng& rng, DraftRule) {
        auto const& q = laws_[at(now_.parent)];
        if (!q.valid()) return end();
        undrawn const weights{q, elders(tree, now_.parent)};
        if (!(weights.total() > 0.0)) return true;  // every token that q has is there
        token_id const x = choose<DraftRule>(request, tree, q, weights, rng);
        if (x != no_token) add(tree, source, x, request.settings->stops_at(x));
        return true;
    }
    /// The shape of a tree whose tokens are not known yet: values may depend on depths and ranks alone. Tokens are 0.
    template <class Source>
    void outline(draft_tree& tree, request_view const& request, tree_limits const& limits, Source& source) {
        begin(tree, request, limits, source);
        while (next(tree) != no_node) add(tree, source, 0, false);
    }
    /// [tree.size()] q of each node that has children; of the last tree.
    [[nodiscard]] std::span<distribution<Q> const> laws() const noexcept { return laws_; }
    /// [tree.size()] how likely each node was thought to be accepted. In the order of nodes it can rise, where a child
    /// is likelier than its elder sibling.
    [[nodiscard]] std::span<double const> reach() const noexcept { return reach_; }

private:
    struct place {
        double value = 0.0;
        double missed = 0.0;  // that the node is reached and this child is rejected as well
        node_id parent = no_node;
        std::uint32_t rank = 0;
    };
    [[nodiscard]] static std::size_t at(node_id n) noexcept { return static_cast<std::size_t>(n); }
    // Larger values first, then elder nodes: the same tree on every machine.
    [[nodiscard]] static bool after(place const& a, place const& b) noexcept {
        return a.value != b.value ? a.value < b.value : a.parent > b.parent;
    }

    template <class Source>
    void offer(draft_tree const& tree, Source& source, node_id n, std::uint32_t rank, double reached) {
        std::size_t const depth = tree.depth(n);
        if (depth >= limits_.depth || rank >= (depth < limits_.straight ? 1 : limits_.children)) return;
        double const a = std::clamp(static_cast<double>(source.acceptance(tree, n, rank)), 0.0, 1.0);
        places_[count_++] = {reached * a, reached * (1.0 - a), n, rank};
        std::push_heap(places_.begin(), heap_end(), after);
    }
    [[nodiscard]] bool take(double least_value) noexcept {
        std::pop_heap(places_.begin(), heap_end(), after);
        now_ = places_[--count_];
        return now_.value >= least_value;
    }
    // The place that became this node in the round that failed.
    [[nodiscard]] bool take_as_before(std::size_t node) noexcept {
        if (node > shape_.size()) return false;
        auto const found =
            std::find_if(places_.begin(), heap_end(), [&](place const& p) { return p.parent == shape_[node - 1]; });
        if (found == heap_end()) return false;
        now_ = *found;
        *found = places_[--count_];
        std::make_heap(places_.begin(), heap_end(), after);
        return true;
    }
    bool end() noexcept {
        count_ = 0;
        now_ = {};
        return false;
    }
    [[nodiscard]] auto heap_end() const noexcept { return places_.begin() + static_cast<std::ptrdiff_t>(count_); }
    template <class Source>
    void add(draft_tree& tree, Source& source, token_id x, bool ends) {
        node_id const child = tree.append(now_.parent, x);
        reach_[at(child)] = now_.value;
        if (tree.size() > limits_.nodes || tree.full()) return;
        place const taken = now_;
        offer(tree, source, taken.parent, taken.rank + 1, taken.missed);
        if (!ends) offer(tree, source, child, 0, taken.value);  // a text has nothing behind a stop token
    }
    [[nodiscard]] std::span<token_id const> elders(draft_tree const& tree, node_id n) noexcept {
        std::size_t count = 0;
        for (node_id c = tree.first_child(n); c != no_node; c = tree.next_sibling(c))
            siblings_[count++] = tree.token(c);
        return siblings_.first(count);
    }
    template <class DraftRule, class Rng>
    [[nodiscard]] token_id choose(request_view const& request, draft_tree const& tree, distribution<Q> const& q,
                                  undrawn<distribution<Q>> const& weights, Rng& rng) const {
        bool const eldest = now_.rank == 0;
        // At temperature 0 races are won by the likeliest.
        bool const greedy = request.settings->draft_transform().greedy();
        if (std::is_same_v<DraftRule, argmax_draft> || (std::is_same_v<DraftRule, coupled_draft> && greedy)) {
            return eldest ? q.mode() : weights.mode();
        }
        if constexpr (std::is_same_v<DraftRule, coupled_draft>) {
            draw_key const noise = noise_key(request, tree.depth(now_.parent));
            return eldest ? rng.gumbel_max(noise, q) : rng.gumbel_max(noise, weights);
        }
        draw_key const key = block_key(request, tree.size(), purpose::draft);
        return eldest ? rng.categorical(key, q) : draw_undrawn(weights, key, rng);
    }

    std::span<distribution<Q>> laws_{};
    std::span<double> reach_{};
    std::span<place> places_{};
    std::size_t count_ = 0;
    std::span<token_id> siblings_{};
    tree_limits limits_{};
    std::span<node_id const> shape_{};
    place now_{};  // whose child comes next
};

SURELEAP_END_NAMESPACE
