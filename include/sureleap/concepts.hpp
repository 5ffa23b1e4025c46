// SPDX-License-Identifier: MIT
//
// Every public concept of the library: what a part must provide, what it means, what it costs, what it does not
// promise. A type that models one of these plugs into the stages and into the decoder; a lambda is a valid target,
// backbone, autoregressive model or hook.
//
//     anchors --forward--> h, U --plan--> budget --draw--> block --admit--> lengths --flatten--> batch --score--> rows
//        ^                                                                                                         |
//        +--------------------------------------- commit(verdicts) <--------accept---------------------------------+
//
// Concepts check the syntax; the semantics are promises. Where a broken promise would bias the output, the concept says
// so, and tests/property shows the bias. testing/enumerator.hpp finds it in a part of your own, in twenty lines.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/sampling/random.hpp>

SURELEAP_BEGIN_NAMESPACE

// Parts of higher layers that concepts only need the name of.
class verify_batch;
struct verdict;
struct round_record;
class causal_frontier;
struct draft_table;
struct frontier_memory;
template <class Origin>
class planning_table;
template <class T>
class distribution;

// ---- randomness ------------------------------------------------------------------------------------------------

/// Non-negative weights of tokens 0 .. size()-1. total() is the sum of w[v] in index order, in double.
template <class W>
concept weight_function = requires(W const& w, token_id v) {
    { w.size() } -> std::convertible_to<std::size_t>;
    { w[v] } -> std::convertible_to<double>;
    { w.total() } -> std::convertible_to<double>;
};

namespace detail {
struct weights_archetype {
    [[nodiscard]] std::size_t size() const { return 0; }
    [[nodiscard]] double operator[](token_id) const { return 0; }
    [[nodiscard]] double total() const { return 0; }
};
}  // namespace detail

/// A source of decisions, each named by a draw_key.
///
/// - bernoulli(key, num, den): true with probability min(1, num/den).
/// - categorical(key, w): v with probability w[v] / total.
/// - gumbel_max(key, w): argmin_v E_v / w[v] with exponentials E_v owned by the key: the same law, and the same E for
///   every w asked under that key.
///
/// Two more forms are used where a source has them, as philox_randomness does, and save passes over rows:
/// bernoulli(key, low, high, exact), of a probability known by bounds, and gumbel_max(key, w, guess).
///
/// Promise: outcomes of different keys are independent; the same question under the same key has the same answer. It
/// does not promise independence of different questions under one key, and no component asks two.
template <class R>
concept randomness = requires(R& rng, draw_key const& key, double x, detail::weights_archetype const& w) {
    { rng.bernoulli(key, x, x) } -> std::same_as<bool>;
    { rng.categorical(key, w) } -> std::same_as<token_id>;
    { rng.gumbel_max(key, w) } -> std::same_as<token_id>;
};

/// A source that several threads may ask at once, through const, and whose answers do not depend on who asks first; it
/// says so: `static constexpr bool is_concurrent = true`. Stages divide among threads (executor.hpp) what draws from
/// such a source only, and decide by any other in the order of the batch. Rejected: taking const for a yes; a view of a
/// stateful source, like enumerator::source, is const too.
template <class R>
concept concurrent_randomness =
    randomness<R const> && requires { requires std::bool_constant<R::is_concurrent>::value; };

// ---- linear algebra --------------------------------------------------------------------------------------------

/// Matrix-vector kernels of the heads, chosen as a policy type. scalar_backend (linear.hpp) is what others are tested
/// against. A backend may sum in another order: two may differ by rounding. dot is w . x, gemv writes W x, gemv_add
/// adds it.
template <class B, class W, class R>
concept linear_backend =
    requires(matrix_view<W> weights, std::span<W const> row, std::span<R const> x, std::span<R> y) {
        { B::dot(row, x) } -> std::same_as<R>;
        B::gemv(weights, x, y);
        B::gemv_add(weights, x, y);
    };

// ---- drafting --------------------------------------------------------------------------------------------------

/// Gives h_1..h_gamma and U_1..U_gamma of every request in one pass: `forward(requests)` or a call returns
/// block_forward<T>, valid until the next call. Rounds that would read it later are refused. A backbone with several
/// buffers says itself which passes are current (core/pass.hpp).
///
/// Promise: reads committed tokens only, and keeps base logits that no head adds to until the round has ended. Hidden
/// states that consumed a drafted token would make confidences anticipating; an autoregressive model is therefore
/// another concept.
template <class B>
concept backbone = requires(B& b, std::span<request_view const> requests) {
    { b.forward(requests).base_logits.values.data };
    { b.forward(requests).hidden.data };
} || requires(B& b, std::span<request_view const> requests) {
    { b(requests).base_logits.values.data };
    { b(requests).hidden.data };
};

/// The tokens drafted so far, k of each request.
struct draft_prefixes {
    token_id const* tokens = nullptr;  ///< [R, stride]
    std::size_t stride = 0;
    std::size_t size = 0;  ///< k

    [[nodiscard]] std::span<token_id const> of(std::size_t r) const noexcept { return {tokens + r * stride, size}; }
};

/// An ordinary language model as a drafter: `forward(requests, prefixes)` or a call gives logits_rows<T> [R, V] of the
/// next token after each request's context and its drafted prefix. Called gamma times a round.
///
/// Its state consumes drafted tokens, so it cannot feed a planner; its q can be any distribution.
template <class M>
concept autoregressive_model = requires(M& m, std::span<request_view const> requests, draft_prefixes p) {
    { m.forward(requests, p).values.data };
} || requires(M& m, std::span<request_view const> requests, draft_prefixes p) {
    { m(requests, p).values.data };
};

/// Adds the transition bias B_k to base logits, token by token (paper eq. 5 and 6).
///
/// reset(state) starts a block; add_bias(state, h_k, x_{k-1}, logits) adds B_k in place and advances the state.
/// previous tokens are target ids (previous_vocabulary() of them), logits are over the draft vocabulary. Const and
/// concurrently callable: all mutable state is in `state` (state_size() numbers). O(V r) a call.
template <class H>
concept sequential_head =
    requires(H const& head, std::span<typename H::value_type> state, std::span<typename H::value_type const> hidden,
             token_id previous, std::span<typename H::value_type> logits) {
        typename H::value_type;
        { head.vocabulary() } -> std::convertible_to<std::size_t>;
        { head.previous_vocabulary() } -> std::convertible_to<std::size_t>;
        { head.hidden_size() } -> std::convertible_to<std::size_t>;
        { head.state_size() } -> std::convertible_to<std::size_t>;
        head.reset(state);
        head.add_bias(state, hidden, previous, logits);
    };

/// A sequential head whose bias is a product B_k = W2 z_k. code(state, h_k, x_{k-1}) makes the code z_k [r] in the
/// state and advances it. output().add(codes, base, logits, n, threads) makes n rows of logits: the product of each
/// code, added to its row of base logits. W2 is read once. `base` and `logits` may be the same memory.
/// output().add_at(tokens, code, logits) adds the products of some tokens only. Promise: code() and output() together
/// are add_bias, whatever `threads` are lent.
template <class H>
concept factored_head =
    sequential_head<H> &&
    requires(H const& head, std::span<typename H::value_type> state, std::span<typename H::value_type const> hidden,
             token_id previous, std::span<token_id const> tokens, std::span<typename H::value_type> logits,
             typename H::value_type const* const* codes, typename H::value_type const* const* base,
             typename H::value_type* const* rows, std::size_t n, executor_ref const& threads) {
        { head.code(state, hidden, previous) } -> std::same_as<std::span<typename H::value_type const>>;
        head.output().add(codes, base, rows, n, threads);
        head.output().add_at(tokens, head.code(state, hidden, previous), logits);
    };

/// c(h_k, x_{k-1}, k) in [0, 1]: the probability that x_k will be accepted given that x_1..x_{k-1} were (paper eq. 7).
///
/// Pre-token by signature: there is no x_k in it. Promise: of the drafted tokens it knows what it is given,
/// x_1..x_{k-1}, and keeps none beside. A confidence that has seen x_k biases the output even on the causal frontier.
template <class C, class Real>
concept pre_token_confidence = requires(C const& c, std::span<Real const> hidden, token_id previous, std::size_t k) {
    { c(hidden, previous, k) } -> std::convertible_to<double>;
};

/// The same from the row q_k itself, for drafters without a learned head: c(q_k, k). q_k is known before x_k is drawn.
template <class C, class Real>
concept confidence_estimate = requires(C const& c, distribution<Real> const& q, std::size_t k) {
    { c(q, k) } -> std::convertible_to<double>;
};

/// A confidence that can be asked at the anchor, before any token of the block is drawn: at_anchor(h_k, x_0, k) for a
/// head, at_anchor(softmax(U_k), k) for an estimate. Promise: uses no drafted token. Needed by planned_schedule.
template <class C, class Real>
concept anchor_confidence = requires(C const& c, std::span<Real const> hidden, token_id anchor, std::size_t k) {
    { c.at_anchor(hidden, anchor, k) } -> std::convertible_to<double>;
} || requires(C const& c, distribution<Real> const& q, std::size_t k) {
    { c.at_anchor(q, k) } -> std::convertible_to<double>;
};

/// Maps a confidence to a calibrated one; lent to the rounds as a calibration_ref. Promise: increasing in c for each k,
/// and a fixed function during a round.
template <class C>
concept calibrator = requires(C const& cal, std::size_t k, double c) {
    { cal(k, c) } noexcept -> std::convertible_to<double>;
};

/// Draws blocks. The library's own: semi_autoregressive, parallel, autoregressive, lookup. Required:
///
/// - value_type: compute type of its rows. block_size(): gamma. vocabulary(): length of a logits row, 0 if it has none.
///   target_vocabulary(): of the tokens that it drafts.
/// - is_deterministic: x_k is a function of the context, whatever the acceptance rule's draft_rule.
/// - is_parallel: forward() consumes no drafted token.  has_confidence: it records confidences below certainty.
/// - forward(requests): the pass of its model, if it has one; what it returns is what a planner may see.
/// - draw fills the block: for each request of block.requests() it appends tokens, up to draft_cap
///   (drafter/draft_block.hpp). No concept can ask for a template, so the stage does:
///       template <class DraftRule, class Rng>
///       void draw(<what forward returns>, DraftRule rule, draft_block<Q>& block, draft_rows<Q> const& rows,
///                 Rng& rng) {
///           auto const row = rows.next(block, r);  // the logits of the next position of request r go there
///           block.draw(r, rule, rows.law(block, r, row), confidence, rng);  // no_token: the chain ends here
///       }
///   DraftRule is the acceptance rule's (guarantee.hpp). A drafter without a model takes no rows: draw(.., block, rng)
///   appends with append_found(r, x, target_vocabulary()) until that is false (examples/own_drafter.cpp). Q is
///   value_type, or any where the drafter has no rows.
///
/// Optional:
///
/// - memory_type: other memory of a round than rows, which draw is handed in their place (drafter/draft_memory.hpp).
/// - plan(..), and plans_at_anchor = true: confidences before the draw, for planned_schedule. parallel and
///   semi_autoregressive have it.
/// - commit(verdicts), or commit(verdicts, block, memory) of one that learns from its drafts; noexcept.
/// - room(request): how many tokens its model can draft for the request in the coming round, as its context may be
///   shorter than the target's or its memory full (draft_room); 0: none. unread(request): committed tokens before the
///   anchor that the model reads before it drafts (draft_unread). A backbone or a model may have both as well.
/// - model_block_size(): it finds tokens without its model too (with_lookup), and its model drafts at most so many. Of
///   those that it finds found_cap is the limit, and the drafter is asked where that is not 0.
/// - drafts_trees: its tokens may be trees, in the order in which they grew; block_size() counts nodes then.
/// - lends_rows: its q are rows that stay with its model until the round is over. state_size(): numbers that its head
///   keeps for a request.
///
/// Rounds may overlap: another forward may come before this one's draw, and another draw before this one's commit. So
/// what belongs to a pass is in what forward returns. Where that refers to memory which the next forward overwrites, it
/// has a member `pass` (pass_stamp), by which stages refuse it.
///
/// A request whose draft_cap is 0 drafts nothing, and a backbone need not fill its rows. In a round in which nobody
/// drafts neither is called; a model that keeps state of its own finds what it has missed in the requests' contexts, or
/// in commit.
template <class D>
concept drafter = requires(D& d, D const& c, std::span<request_view const> requests) {
    typename D::value_type;
    { c.block_size() } -> std::convertible_to<std::size_t>;
    { c.vocabulary() } -> std::convertible_to<std::size_t>;
    { c.target_vocabulary() } -> std::convertible_to<std::size_t>;
    { std::bool_constant<D::is_deterministic>{} };
    { std::bool_constant<D::is_parallel>{} };
    { std::bool_constant<D::has_confidence>{} };
    d.forward(requests);
};

// ---- scheduling ------------------------------------------------------------------------------------------------

/// Steps per second of the engine at a batch of B tokens (paper's SPS(B)), positive and finite. Pure.
template <class C>
concept capacity_curve = requires(C const& c, std::size_t batch_tokens) {
    { c.steps_per_second(batch_tokens) } -> std::convertible_to<double>;
};

/// The time of a step by all that it depends on (step_load): positive, finite, pure. What a capacity curve cannot say:
/// what drafting costs, how long contexts are. A schedule asks about one round at a time, with everything but B fixed
/// (priced_round).
template <class C>
concept cost_model = requires(C const& c, step_load const& load) {
    { c.step_seconds(load) } -> std::convertible_to<double>;
};

/// What a schedule reckons with. A type that is both counts as a cost_model.
template <class C>
concept step_cost = capacity_curve<C> || cost_model<C>;

/// Decides live, seeing only the causal frontier: non-anticipating by construction. Request r of the frontier is the
/// r-th of limit_drafts(requests) and of the record that observe is given. To decide by a request's past, keep what
/// past rounds verified, accepted and emitted by slot in observe, and lower draft_limit in limit_drafts
/// (draft_limiter). Promise: of a block it remembers nothing that no round revealed.
template <class S>
concept frontier_scheduler = requires(S const& s, causal_frontier& frontier) { s.admit(frontier); };

/// Decides how many positions to verify from a table made before the block was drawn (S::origin says which); the
/// library fills the budget with the best live candidates. Promise: reads nothing but its argument, and decides alike,
/// asked again, until observe is called (round_observer).
template <class S>
concept planner = requires(S const& s, planning_table<typename S::origin> const& table) {
    { s.budget(table) } -> std::convertible_to<std::size_t>;
};

/// Sees the whole drawn block and writes memory.lengths: anticipating, unless enable_non_anticipating<S> says that it
/// was proved otherwise. Prefer a frontier_scheduler: there the signature is the proof.
template <class S>
concept table_scheduler =
    requires(S const& s, draft_table const& table, frontier_memory const& memory) { s.admit(table, memory); };

/// Anything that schedules.
template <class S>
concept scheduler = frontier_scheduler<S> || planner<S> || table_scheduler<S>;

/// A schedule that limits drafting: limit_drafts(requests) is called before the drafter runs, with weights set by the
/// priorities, and may lower draft_limit or model_limit and change weight. Limits that it raises are the engine's
/// again, and one that changes or orders requests is refused. Where nobody may draft, forward is not called. Promise:
/// it decides by past rounds and by its arguments, which are known before anything is drafted. Until observe is called,
/// it decides the same for a request that it is asked about again, in any batch. A round that failed is run again: with
/// other limits its length would depend on why it failed, and so on the tokens that were drafted.
template <class S>
concept draft_limiter = requires(S& s, std::span<request_view> requests) { s.limit_drafts(requests); };

/// A schedule that ends chains early. A request's chain ends before the first position whose survival would be below
/// draft_floor(). Survivals begin with the request's weight, so the floor is a price and no probability. The position's
/// confidence is known before its token is drawn, so this is causal if the floor depends on past rounds only. Promise:
/// constant during a round, and the same when the round is run again (draft_limiter).
template <class S>
concept draft_stopper = requires(S const& s) {
    { s.draft_floor() } -> std::convertible_to<fixed_probability>;
};

/// A schedule that keeps something for each slot or position. set_up(sizes) is called before the first round, and
/// allocates; sizes() tells for what, zeros before. So the sizes stand in one place, the limits of the rounds. The same
/// sizes again change nothing (`if (sizes == sizes_) return;`); a schedule that was moved to rounds of other sizes
/// makes room for them and forgets what it cannot keep. A slot that becomes free goes to another request: compare
/// request_view::id. What wraps a sized part is one, and passes the call on.
template <class S>
concept sized_part = requires(S& s, S const& constant, round_sizes const& sizes) {
    s.set_up(sizes);
    { constant.sizes() } -> std::same_as<round_sizes>;
};

/// A part that learns between rounds: observe(record) is called after commit (round/record.hpp), once for every round
/// that was committed. A round that a stage threw out of is none; a verdict that is not ok emitted nothing. It is
/// noexcept, as commit is, which end_round asserts. Promise: it is the only call by which later decisions change.
template <class S>
concept round_observer = requires(S& s, round_record const& record) { s.observe(record); };

/// What a schedule may know: see guarantee.hpp.
template <scheduler S>
inline constexpr causality causality_of_v =
    (!table_scheduler<S> || enable_non_anticipating<S>) ? causality::non_anticipating : causality::anticipating;

/// A schedule reads confidences unless it says `static constexpr bool needs_confidence = false`.
template <class S>
inline constexpr bool needs_confidence_v = true;
template <class S>
    requires requires {
        { std::bool_constant<S::needs_confidence>{} };
    }
inline constexpr bool needs_confidence_v<S> = S::needs_confidence;

// ---- verification ----------------------------------------------------------------------------------------------

/// Scores a flattened batch: `score(batch)` or a call returns logits_rows<T>, one row a token of the batch, row i the
/// law of the token after it. Rows stay valid until the verdicts are committed; the library never copies them. A target
/// whose next pass overwrites them says of which pass they are (logits_rows::pass): a round that would be judged by the
/// rows of another is refused.
///
/// Promise: row i is a function of the request's committed tokens and of its own path in the batch. Without trees
/// (scores_trees) that path is the tokens up to i. Optional: commit(verdicts) noexcept, called last in a round (roll
/// back to what was emitted). It may not fail: others have committed. A model that cannot follow remembers that and
/// fails in its next pass. Optional: replays(request), asked before a round: tokens of the request are decoded again in
/// it, since drafts of the last one could not be taken back for nothing (a recurrent state). Cost models price it.
template <class T>
concept target_model = requires(T& t, verify_batch const& batch) {
    { t.score(batch).values.data };
} || requires(T& t, verify_batch const& batch) {
    { t(batch).values.data };
};

/// Where a hook stands: the row after `drafted` (x_1..x_j) of a request.
struct hook_context {
    request_view const& request;
    std::span<token_id const> drafted;
    std::size_t first_token = 0;  ///< of the row: not 0 where ranks have slices of it (ranks/sharded_rows.hpp)
};

/// Edits a copy of one target row before the transform: penalties, biases, masks (-inf) that drafts need not know
/// (request_settings::constraint masks them too). Promise: a function of the request's committed tokens and `drafted`.
/// What it throws comes out of accept, with nothing committed. Where an executor is lent, it is called from its
/// threads, for several requests at once. Optional: touches(request), whether it edits the request's rows at all; if
/// not, they are read in place where they are stored in the compute type, without a copy.
template <class H, class Real>
concept logits_hook = requires(H const& hook, hook_context const& at, std::span<Real> logits) { hook(at, logits); };

/// What an acceptance rule decided for one request.
struct decision {
    bool valid = false;   ///< false: a target row that was needed holds no law
    std::size_t row = 0;  ///< that `next` stands behind: of a chain the tokens that are accepted, of a tree the node
    token_id next = no_token;  ///< correction or bonus

    constexpr decision() = default;
    /// Rows are counted by std::size_t, nodes of a tree by node_id.
    template <std::integral Row>
    constexpr decision(bool is_valid, Row at, token_id then) noexcept
        : valid(is_valid), row(static_cast<std::size_t>(at)), next(then) {}
};

namespace detail {
struct verification_archetype {
    [[nodiscard]] std::size_t length() const { return 0; }
    [[nodiscard]] token_id token(std::size_t) const { return 0; }
    [[nodiscard]] draw_key key(std::size_t, purpose) const { return {}; }
    [[nodiscard]] draw_key noise(std::size_t) const { return {}; }
    [[nodiscard]] std::span<double> scratch() const { return {}; }
    struct law : weights_archetype {
        [[nodiscard]] bool valid() const { return true; }
        [[nodiscard]] double probability(token_id) const { return 0; }
        [[nodiscard]] double log_probability(token_id) const { return 0; }
        [[nodiscard]] double peak() const { return 0; }
        [[nodiscard]] token_id mode() const { return 0; }
    };
    [[nodiscard]] law target(std::size_t) const { return {}; }
    [[nodiscard]] law draft(std::size_t) const { return {}; }
};
struct randomness_archetype {
    template <class W>
    [[nodiscard]] token_id categorical(draw_key const&, W const&) const {
        return 0;
    }
    template <class W>
    [[nodiscard]] token_id gumbel_max(draw_key const&, W const&) const {
        return 0;
    }
    [[nodiscard]] bool bernoulli(draw_key const&, double, double) const { return true; }
};
}  // namespace detail

/// Compares target rows with a draft and decides what is kept: `rule(verification, rng)` returns a decision.
///
/// - guarantee: the fidelity it promises (guarantee.hpp). draft_rule: how x_k must be drawn for that promise; drawing
///   otherwise loses acceptance silently, so the rule declares it and the drafter obeys. access: what it reads of q.
/// - It sees a verification (verify/verification.hpp). Of target(k) and draft(k), probability(x) is p(x) or q(x), and
///   [x] a weight, which total() makes a probability.
/// - It may ask for target rows in any order. A row is made when it is first asked for, so those behind a rejection
///   are best left alone. Const, concurrently callable.
/// - Each decision that draws has a key of its own, v.key(k, purpose) (draw_key.hpp): one key twice is a bias.
/// - Its call operator declares `decision` as its return type: with `auto` the compiler reads its body before it knows
///   the verification.
/// - A rule that is chosen when the program runs says the first three by traits() (traits.hpp).
template <class A>
concept acceptance_sampler =
    (requires(A const& rule) { rule.traits(); } || requires {
        { std::integral_constant<fidelity, A::guarantee>{} };
        { std::integral_constant<q_access, A::access>{} };
        { std::bool_constant<A::draft_rule::is_deterministic>{} };
    }) && requires(A const& rule, detail::verification_archetype& v, detail::randomness_archetype& rng) {
        { rule(v, rng) } -> std::same_as<decision>;
    };

// ---- ranks -----------------------------------------------------------------------------------------------------

/// The ranks of one engine: processes or threads that run the same rounds, rank() of size() them. gather(own, all)
/// sends `own` to all, and receives in `all` what each of them sent, in the order of ranks: size() * own.size() bytes.
/// All ranks make the same calls in the same order. Models: one_rank and thread_ranks (ranks/), mpi_ranks
/// (ext/mpi.hpp), nccl_ranks (ext/nccl.hpp).
///
/// False: a rank is gone, did not come within the time that the user set, or sent another number of bytes. Then `all`
/// means nothing, and every later call is false at once. Promise: it neither throws nor allocates.
template <class C>
concept communicator = requires(C& ranks, C const& constant, std::span<std::byte const> own, std::span<std::byte> all) {
    { constant.rank() } -> std::convertible_to<std::size_t>;
    { constant.size() } -> std::convertible_to<std::size_t>;
    { ranks.gather(own, all) } noexcept -> std::same_as<bool>;
};

SURELEAP_END_NAMESPACE
