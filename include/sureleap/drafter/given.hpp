// SPDX-License-Identifier: MIT
//
// Drafts that come from outside, for an engine that drafts by itself and only verifies here. Each token goes through
// the draw of the library, from a source of randomness that answers with it. So it is recorded together with its q, or
// not at all. A tree grows in the shape that it has.
//
//     given_drafts drafter{{.block_size = 7, .vocabulary = V}};
//     fixed_schedule schedule;
//     round_memory<float, float> memory{drafter, schedule, token_rejection{}, {.max_requests = 64}};
//     ...
//     drafter.hand(drafts);  // one entry a request: its tokens, and the logits that each was drawn from
//     if (begin_round(schedule, requests, memory)) {
//         draw(drafter, drafter.forward(requests), token_rejection{}, rng, memory);
//     }
//     accept(token_rejection{}, target_rows(admit(schedule, memory)), no_logits_hook{}, rng, memory);
//     for (verdict const& v : end_round(schedule, memory).verdicts) ...
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/draft_memory.hpp>
#include <sureleap/drafter/grow.hpp>
#include <sureleap/drafter/listed_rows.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/traits.hpp>
#include <sureleap/verify/draft_tree.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What is handed over for one request. Views, until the round has ended.
template <class Q>
struct given_draft {
    /// [l] x_1..x_l, in the order in which they were drawn. no_token (-1) ends them, as in padded arrays.
    std::span<token_id const> tokens{};
    /// [l] of a tree: 0 for the anchor, else 1 + the index of the token before. Empty: a chain.
    std::span<node_id const> parents{};
    /// [l, V] logits, or probabilities, that each token was drawn from: of a tree the row behind its parent, before
    /// elder siblings were taken out. Of listed rows [l, n]. Empty where given_options::keeps_q is false.
    matrix_view<Q> q{};
    /// [l, n] of listed rows: which token each number of q is of, in any order; no_token where a row has fewer.
    matrix_view<token_id> listed{};
    /// The tokens of this chain were found or chosen, so it comes without a q.
    bool found = false;
};

/// What will be handed over.
struct given_options {
    std::size_t block_size = 0;  ///< the most tokens of a request, 1 .. 65,535
    std::size_t vocabulary = 0;  ///< V, the target's
    bool keeps_q = true;         ///< false: tokens were found, chosen, or drawn from a q that nobody kept
    bool trees = false;
    bool probabilities = false;  ///< q holds probabilities, which need not add up to 1, and not logits
    std::size_t listed = 0;      ///< n: a row of q has n numbers, of tokens that are listed; all others have q = 0
    /// The tokens of this rank, where each has a slice of q (ranks/sharded_rows.hpp): a row has so many numbers, or
    /// lists some of these tokens. Such a q is not truncated.
    vocabulary_view slice{};
};

/// Drafts what it is handed. Models drafter. Logits become q by the request's draft settings, as they have to have been
/// when the token was drawn: nothing can check that. A token that its q excludes, or that is none of the vocabulary,
/// ends the drafts of its request (status::invalid_draft). A rule that reads no q, or that chooses its drafts
/// (argmax_draft), needs none. Without one the q of a chain is one-hot, which keeps p for every rule. Siblings that
/// were drawn have no q of that kind: a tree for a rule that samples comes with its q, or draw throws. A list that
/// names a token twice, or one outside of the vocabulary, has no law.
/// Logits are not copied; probabilities are, O(l V), and listed rows, O(l n log n).
template <class Q = float>
class given_drafts {
public:
    using value_type = Q;
    struct forward_type {};

    static constexpr bool is_deterministic = false;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = false;

    explicit given_drafts(given_options const& options) : options_(options) {
        detail::check_block_size("given_options", "block_size", options.block_size);
        if (options.vocabulary == 0) fail_with("given_options: vocabulary is 0, expected the target's");
        if (options.listed > options.vocabulary) {
            fail_with("given_options: listed is ", options.listed,
                      ", expected at most vocabulary = ", options.vocabulary);
        }
        if (options.slice && (!options.slice.is_slice() || options.slice.target_size() != options.vocabulary)) {
            fail_with("given_options: slice is of ", options.slice.target_size(), " tokens, expected a slice of the ",
                      options.vocabulary, " of the vocabulary");
        }
    }

    [[nodiscard]] std::size_t block_size() const noexcept { return options_.block_size; }
    [[nodiscard]] std::size_t vocabulary() const noexcept {
        return options_.keeps_q ? row_size() : options_.trees ? options_.block_size : 0;
    }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return options_.vocabulary; }
    [[nodiscard]] drafter_traits traits() const noexcept { return {.drafts_trees = options_.trees}; }
    [[nodiscard]] forward_type forward(std::span<request_view const>) const noexcept { return {}; }

    /// What the next round drafts, in the order of its requests.
    void hand(std::span<given_draft<Q> const> drafts) noexcept { drafts_ = drafts; }

private:
    struct listed_number {
        token_id token = no_token;
        Q number{};
    };

public:
    struct memory_type {
        memory_type() = default;
        memory_type(workspace& ws, draft_shape const& shape, given_drafts const& drafter) noexcept
            : rows(ws, shape, !drafter.options_.probabilities && !drafter.is_listed(), drafter.is_listed()),
              pairs(ws.take<listed_number>(drafter.is_listed() ? shape.workers() : 0, shape.vocabulary)),
              tree(ws, shape.trees ? shape.block_size : 0),
              growth(ws, shape.trees ? shape.block_size : 0),
              prefix(ws.take<token_id>(shape.trees ? shape.block_size : 0)),
              lists(ws.take<token_id>(shape.trees ? shape.requests : 0, shape.block_size)),
              level(ws.take<Q>(shape.trees ? shape.block_size : 0)) {
            if (!ws.counting()) std::fill(level.begin(), level.end(), Q{0});
        }

        listed_rows<Q> rows{};
        carved_rows<listed_number> pairs{};  // scratch of a list that is put in order, by worker
        mutable draft_tree tree{};
        mutable tree_growth<Q> growth{};
        std::span<token_id> prefix{};
        carved_rows<token_id> lists{};  // [R, l] the tokens of a tree, ascending; laws refer to them
        std::span<Q> level{};           // logits 0
    };

    /// Throws, before anything is drafted, where there is not a draft for each request, or one lacks what the rule
    /// needs.
    template <class DraftRule, class Rng>
    void draw(forward_type, DraftRule how, draft_block<Q>& block, memory_type const& memory, Rng&) {
        std::size_t const requests = block.requests().size();
        if (drafts_.size() != requests) {
            fail_with("given_drafts: ", drafts_.size(), " drafts were handed over, expected one for each of the ",
                      requests, " requests of the round");
        }
        constexpr bool samples = std::is_same_v<DraftRule, categorical_draft>;
        bool const drawn = options_.keeps_q && samples;
        if (options_.trees && samples && !drawn) {
            fail_with(
                "given_drafts: keeps_q is false, expected the q of drawn trees: this rule tests siblings by it. Hand "
                "q over, or take a rule that reads none or has argmax_draft");
        }
        for (std::size_t r = 0; r < requests; ++r) check(r, drawn, block.requests());
        if (options_.slice) {
            for (std::size_t r = 0; r < requests; ++r) take_slices(r, drawn, block, memory);
            return;
        }
        if (options_.trees) {
            for (std::size_t r = 0; r < requests; ++r) draw_tree(r, how, drawn, block, memory);
            return;
        }
        block.for_each_request(drawn ? options_.block_size * row_size() : 0, [&](draft_block<Q>& mine, std::size_t r) {
            draw_chain(r, drawn && !drafts_[r].found, mine, memory);
        });
    }

private:
    // The part of a source that growth asks for in a shape that is given: nobody reads the values.
    struct values {
        [[nodiscard]] double acceptance(draft_tree const&, node_id, std::size_t) const noexcept { return 1.0; }
    };

    /// Throws unless the draft of request r has the shape that it says.
    void check(std::size_t r, bool drawn, std::span<request_view const> requests) const {
        given_draft<Q> const& d = drafts_[r];
        std::size_t const l = d.tokens.size();
        if (l > options_.block_size) {
            fail_with("given_drafts: request ", r, " has ", l,
                      " tokens, expected at most block_size = ", options_.block_size);
        }
        bool const has_q = drawn && l > 0 && !d.found;
        if (has_q && (d.q.rows < l || d.q.cols != row_size())) {
            fail_with("given_drafts: request ", r, " has q of ", d.q.rows, " rows of ", d.q.cols, " numbers, expected ",
                      l, " rows of ", row_size());
        }
        if (has_q && is_listed() && (d.listed.rows < l || d.listed.cols != options_.listed)) {
            fail_with("given_drafts: request ", r, " has lists of ", d.listed.rows, " rows of ", d.listed.cols,
                      " tokens, expected ", l, " rows of ", options_.listed);
        }
        if (has_q && options_.slice && !options_.probabilities) {
            transform const q_is = requests[r].settings->draft_transform();
            if (q_is.truncates() && !q_is.greedy()) {
                fail_with("given_drafts: request ", r,
                          " truncates q, which comes in slices, expected a temperature alone");
            }
        }
        if (!options_.trees) return;
        if (d.found && drawn) {
            fail_with("given_drafts: request ", r,
                      " has a tree that was found, expected one that was drawn: this rule tests siblings by their q");
        }
        if (d.parents.size() != l) {
            fail_with("given_drafts: request ", r, " has ", d.parents.size(), " parents, expected one for each of its ",
                      l, " tokens");
        }
        for (std::size_t i = 0; i < l; ++i) {
            if (d.parents[i] >= 0 && static_cast<std::size_t>(d.parents[i]) <= i) continue;
            fail_with("given_drafts: request ", r, " has parents[", i, "] = ", d.parents[i], ", expected 0 .. ", i,
                      ": the anchor, or 1 + the index of a token before");
        }
    }
    [[nodiscard]] bool is_listed() const noexcept { return options_.listed > 0; }
    [[nodiscard]] std::size_t row_size() const noexcept {
        if (is_listed()) return options_.listed;
        return options_.slice ? options_.slice.draft_size() : options_.vocabulary;
    }
    [[nodiscard]] bool is_token(token_id x) const noexcept {
        return x >= 0 && static_cast<std::size_t>(x) < options_.vocabulary;
    }
    void draw_chain(std::size_t r, bool drawn, draft_block<Q>& block, memory_type const& memory) const noexcept {
        std::span<token_id const> const tokens = drafts_[r].tokens;
        for (std::size_t k = 0; k < tokens.size() && block.drafts(r, k); ++k) {
            if (!is_token(tokens[k])) {
                if (tokens[k] != no_token) block.reject(r, status::invalid_draft);
                return;
            }
            if (drawn) {
                detail::given_token source{tokens[k]};
                block.draw(r, categorical_draft{}, law(r, k, k, block, memory, block.mask(r)), 1.0, source);
            } else if (!block.append_found(r, tokens[k], options_.vocabulary)) {
                return;
            }
        }
    }
    /// Whether q has the tokens is found when the ranks verify them.
    void take_slices(std::size_t r, bool drawn, draft_block<Q>& block, memory_type const& memory) const noexcept {
        given_draft<Q> const& d = drafts_[r];
        request_view const& request = block.requests()[r];
        double const temperature = options_.probabilities ? 1.0 : request.settings->draft_transform().temperature;
        std::size_t const most = std::min(d.tokens.size(), request.draft_cap(options_.block_size));
        for (std::size_t i = 0; i < most && d.tokens[i] != no_token; ++i) {
            if (!options_.trees && !block.drafts(r, i)) return;  // behind a stop token
            if (!is_token(d.tokens[i])) {
                block.reject(r, status::invalid_draft);
                return;
            }
            if (!options_.trees && (!drawn || d.found)) {
                if (!block.append_found(r, d.tokens[i], options_.vocabulary)) return;
                continue;
            }
            node_id const parent = options_.trees ? d.parents[i] : no_node;
            auto const mask = mask_behind(request, options_.trees ? path(d, parent, memory.prefix) : block.tokens(r));
            auto const q = drawn ? slice(r, i, block, memory, temperature, mask)
                                 : distribution<Q>::one_hot(options_.vocabulary, d.tokens[i]);
            if (!block.append_drawn(r, d.tokens[i], q, 1.0, certain, parent)) return;
        }
    }
    /// The tokens from the anchor to a node.
    [[nodiscard]] static std::span<token_id const> path(given_draft<Q> const& d, node_id n,
                                                        std::span<token_id> out) noexcept {
        std::size_t depth = 0;
        for (node_id m = n; m != anchor_node; m = d.parents[static_cast<std::size_t>(m) - 1]) ++depth;
        for (std::size_t k = depth; k > 0; n = d.parents[static_cast<std::size_t>(n) - 1]) {
            out[--k] = d.tokens[static_cast<std::size_t>(n) - 1];
        }
        return out.first(depth);
    }
    template <class DraftRule>
    void draw_tree(std::size_t r, DraftRule how, bool drawn, draft_block<Q>& block,
                   memory_type const& memory) const noexcept {
        auto& [rows, pairs, tree, growth, prefix, lists, level] = memory;
        std::span<token_id const> const given = drafts_[r].tokens;
        auto const end = std::find_if(given.begin(), given.end(), [&](token_id x) { return !is_token(x); });
        auto const tokens = given.first(static_cast<std::size_t>(end - given.begin()));
        request_view request = block.requests()[r];
        request.shape = drafts_[r].parents.first(tokens.size());
        values source;
        growth.begin(tree, request, {.nodes = tokens.size(), .depth = tokens.size(), .children = tokens.size()},
                     source);
        auto const list = drawn ? std::span<token_id const>{} : listed(tokens, lists[r]);
        bool mistaken = end != given.end() && *end != no_token;
        for (node_id n = growth.next(tree); n != no_node; n = growth.next(tree)) {
            std::size_t const i = tree.size() - 1;
            if (growth.lacks_law()) {
                auto const node = static_cast<std::size_t>(n);
                auto const mask = mask_behind(request, tree.prefix(n, prefix));
                growth.give(drawn ? law(r, i, node, block, memory, mask)
                                  : rows.law(0, rows.place(r, node), level.first(list.size()),
                                             vocabulary_view{list, options_.vocabulary}, transform{}, mask));
            }
            detail::given_token token{tokens[i]};
            growth.draw(tree, request, source, token, categorical_draft{});
            if (tree.size() > i + 1) continue;
            mistaken = mistaken || drawn;
            break;
        }
        if (mistaken) block.reject(r, status::invalid_draft);
        block.take_tree(r, how, tree, growth, [](node_id) noexcept { return 1.0; });
    }
    /// A law that has all tokens of a tree stands for a q that nobody kept.
    [[nodiscard]] static std::span<token_id const> listed(std::span<token_id const> tokens,
                                                          std::span<token_id> list) noexcept {
        std::copy(tokens.begin(), tokens.end(), list.begin());
        auto const end = list.begin() + static_cast<std::ptrdiff_t>(tokens.size());
        std::sort(list.begin(), end);
        return list.first(static_cast<std::size_t>(std::unique(list.begin(), end) - list.begin()));
    }
    /// q of token i, which is drawn behind so many tokens, or behind a node.
    [[nodiscard]] distribution<Q> law(std::size_t r, std::size_t i, std::size_t behind, draft_block<Q> const& block,
                                      memory_type const& memory, row_mask const& mask) const noexcept {
        std::size_t const worker = block.worker();
        std::size_t const place = memory.rows.place(r, behind);
        auto const [row, map] = logits(r, i, place, worker, memory);
        if (is_listed() && row.empty()) return {};
        transform const how = options_.probabilities ? transform{} : block.requests()[r].settings->draft_transform();
        return memory.rows.law(worker, place, row, map, how, mask);
    }
    /// What this rank has of it.
    [[nodiscard]] distribution<Q> slice(std::size_t r, std::size_t i, draft_block<Q> const& block,
                                        memory_type const& memory, double temperature,
                                        row_mask const& mask) const noexcept {
        std::size_t const place = memory.rows.place(r, i);
        auto const [row, map] = logits(r, i, place, block.worker(), memory);
        return memory.rows.slice(place, row, map ? map : options_.slice, temperature, mask);
    }
    /// The row of token i as logits, and what it runs over, if that is a list.
    struct listed_logits {
        std::span<Q const> row{};
        vocabulary_view map{};
    };
    [[nodiscard]] listed_logits logits(std::size_t r, std::size_t i, std::size_t place, std::size_t worker,
                                       memory_type const& memory) const noexcept {
        std::span<Q const> row = drafts_[r].q.row(i);
        vocabulary_view map{};
        if (is_listed()) {
            auto const list = put_in_order(drafts_[r].listed.row(i), row, place, memory.pairs[worker], memory.rows);
            if (list.empty()) return {};
            row = memory.rows.row(place).first(list.size());
            map = vocabulary_view{list, options_.vocabulary};
        }
        if (!options_.probabilities) return {row, map};
        std::span<Q> const kept = memory.rows.row(place).first(row.size());
        std::transform(row.begin(), row.end(), kept.begin(), [](Q x) { return std::log(x); });
        return {kept, map};
    }
    /// The tokens of a row, ascending, and its numbers likewise at its place. Empty if they are not tokens, each once.
    [[nodiscard]] std::span<token_id const> put_in_order(std::span<token_id const> tokens, std::span<Q const> numbers,
                                                         std::size_t place, std::span<listed_number> pairs,
                                                         listed_rows<Q> const& rows) const noexcept {
        std::size_t n = 0;
        for (std::size_t i = 0; i < tokens.size(); ++i) {
            if (tokens[i] == no_token) continue;
            if (!is_token(tokens[i])) return {};
            pairs[n++] = {tokens[i], numbers[i]};
        }
        pairs = pairs.first(n);
        std::ranges::sort(pairs, {}, &listed_number::token);
        auto const same = [](listed_number const& a, listed_number const& b) { return a.token == b.token; };
        if (std::ranges::adjacent_find(pairs, same) != pairs.end()) return {};
        auto const list = rows.list(place).first(n);
        std::ranges::transform(pairs, list.begin(), &listed_number::token);
        std::ranges::transform(pairs, rows.row(place).begin(), &listed_number::number);
        return list;
    }

    given_options options_;
    std::span<given_draft<Q> const> drafts_{};
};

SURELEAP_END_NAMESPACE
