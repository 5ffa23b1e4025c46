// SPDX-License-Identifier: MIT
//
// A round's drafts: tokens, the q each was drawn from, confidences and survivals, for R requests and gamma positions.
//
// A request's tokens are a chain, or a tree in the order in which it was grown (drafter/grow.hpp). Then the survival of
// a token is how likely it is to be accepted, which falls along that order, and its confidence is the ratio to the one
// before. So a schedule sees a chain: a prefix of the order is a tree, and its survivals add up to the tokens that it
// is worth.
//
// A token travels with the q it was drawn from: one call draws and records it, so verification cannot use another q.
// The confidence of a position is recorded in the same call, from an argument that was computed before the draw.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>

#include <sureleap/concepts.hpp>
#include <sureleap/core/calibration_ref.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/drafter/grow.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/draw_key.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/row_mask.hpp>
#include <sureleap/schedule/survival.hpp>
#include <sureleap/verify/draft_tree.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Sizes of a round; fixed at set-up.
struct draft_shape {
    std::size_t requests = 0;              ///< most requests in a round
    std::size_t block_size = 0;            ///< gamma
    std::size_t vocabulary = 0;            ///< length of a draft logits row; 0 if the drafter has none
    bool trees = false;                    ///< tokens are nodes of trees, block_size at most
    bool constrained = false;              ///< rows may have to be masked, so there is room for lent ones too
    bool keep_rows = true;                 ///< the acceptance rule reads q rows, so they must outlive the draw
    drawn_by rule = drawn_by::any;         ///< how tokens have to be drawn
    row_kernels const* kernels = nullptr;  ///< null: the best that this machine runs
    executor_ref executor{};
    calibration_ref calibration{};  ///< applied to every confidence; what it was before is kept then

    /// Positions of a request whose rows have a place of their own.
    [[nodiscard]] std::size_t kept_positions() const noexcept { return keep_rows || trees ? block_size : 1; }
    /// How many steps may have scratch at once.
    [[nodiscard]] std::size_t workers() const noexcept { return std::min(executor.width(), requests); }
};

/// Rows of q lie with the drafter's model until the round is over, as the drafter says (`lends_rows`): none are kept.
template <class Drafter>
inline constexpr bool lends_rows_v = requires { requires Drafter::lends_rows; };

/// Q is the compute type of the draft (float or double). A view of workspace memory.
template <class Q>
class draft_block {
public:
    draft_block() = default;
    draft_block(workspace& ws, draft_shape const& shape) noexcept
        : shape_(shape),
          tokens_(ws.take<token_id>(shape.requests * shape.block_size)),
          laws_(ws.take<distribution<Q>>(shape.requests * shape.block_size)),
          token_probabilities_(ws.take<double>(shape.requests * shape.block_size)),
          confidence_(ws.take<fixed_probability>(shape.requests * shape.block_size)),
          survival_(ws.take<fixed_probability>(shape.requests * shape.block_size)),
          raw_(ws.take<double>(shape.calibration ? shape.requests * shape.block_size : 0)),
          sizes_(ws.take<std::uint32_t>(shape.requests)),
          statuses_(ws.take<status>(shape.requests)),
          found_(ws.take<bool>(shape.requests)),
          parents_(ws.take<node_id>(shape.trees ? shape.requests * shape.block_size : 0)) {
        if (shape_.kernels == nullptr) shape_.kernels = &native_kernels<row_kernels>();
    }

    /// Empties the block for this round's requests.
    void begin(std::span<request_view const> requests) noexcept {
        SURELEAP_EXPECTS(requests.size() <= shape_.requests);
        ++round_;
        requests_ = requests;
        load_ = load_of(requests, shape_.block_size);
        weight_ = 0;
        for (request_view const& r : requests) weight_ += r.weight;
        std::fill_n(sizes_.begin(), requests.size(), 0u);
        std::fill_n(statuses_.begin(), requests.size(), status::ok);
        std::fill_n(found_.begin(), requests.size(), false);
    }

    // ---- for drafters ------------------------------------------------------------------------------------------

    /// The chain of request r has k tokens and may have another one.
    [[nodiscard]] bool drafts(std::size_t r, std::size_t k) const noexcept {
        return statuses_[r] == status::ok && sizes_[r] == k && !is_full(r);
    }
    /// The token that the next position of request r follows: its last one, or the anchor.
    [[nodiscard]] token_id last(std::size_t r) const noexcept {
        return sizes_[r] == 0 ? requests_[r].anchor : tokens(r).back();
    }
    /// What the settings of request r forbid behind its chain.
    [[nodiscard]] row_mask mask(std::size_t r) const noexcept { return mask_behind(requests_[r], tokens(r)); }
    /// Draws the next token of request r from `q` as DraftRule says and records both, with the position's confidence.
    /// Returns no_token if the chain ends here, by its floor, its cap or a stop token. Returns no_token and marks the
    /// request if q holds no law, the confidence is no probability, or the acceptance rule asked for another DraftRule.
    template <class DraftRule, class Rng>
    token_id draw(std::size_t r, DraftRule, distribution<Q> const& q, double confidence, Rng& rng) {
        fixed_probability c = 0;
        std::size_t const k = sizes_[r];
        if (!may_follow<DraftRule>(r, q.valid(), confidence, c)) return no_token;
        token_id x = no_token;
        if constexpr (std::is_same_v<DraftRule, argmax_draft>) {
            x = q.mode();
        } else if constexpr (std::is_same_v<DraftRule, coupled_draft>) {
            x = rng.gumbel_max(noise_key(requests_[r], k), q);
        } else {
            static_assert(std::is_same_v<DraftRule, categorical_draft>,
                          "draft_block: unknown draft_rule; use categorical_draft, argmax_draft or coupled_draft");
            x = rng.categorical(block_key(requests_[r], k, purpose::draft), q);
        }
        if (x == no_token) return reject(r, status::invalid_draft);
        // An argmax was drawn from a one-hot law; recording the softmax instead is a bias of up to 0.34 seen.
        record(r, x, DraftRule::is_deterministic ? distribution<Q>::one_hot(q.size(), x) : q, c,
               DraftRule::is_deterministic ? 1.0 : q.probability(x));
        return x;
    }
    /// Records the tree that has grown for request r, each node with the law that it was drawn from. raw(n) is the
    /// confidence of node n before it was calibrated, NaN if it was not. Ends at the floor, or if the rule asked for
    /// another DraftRule.
    template <class DraftRule, class Raw>
    void take_tree(std::size_t r, DraftRule, draft_tree const& from, tree_growth<Q> const& growth,
                   Raw const& raw) noexcept {
        if (shape_.rule != drawn_by::any && shape_.rule != drawn_by_v<DraftRule>) {
            reject(r, status::wrong_draft_rule);
            return;
        }
        double before = 1.0;
        for (std::size_t n = 1; n < from.size() && sizes_[r] < requests_[r].draft_cap(shape_.block_size); ++n) {
            fixed_probability c = 0;
            double const reach = std::min(growth.reach()[n], before);
            if (!quantise(reach > 0.0 ? reach / before : 0.0, c)) return;
            if (extend_survival(survival_before(r), c) < requests_[r].draft_floor) return;
            before = reach;
            auto const node = static_cast<node_id>(n);
            std::size_t const i = r * shape_.block_size + sizes_[r];
            if (!raw_.empty()) raw_[i] = raw(node);
            auto const parent = from.parent(node);
            auto const& q = growth.laws()[static_cast<std::size_t>(parent)];
            record(r, from.token(node), q, c, q.probability(from.token(node)));
            parents_[i] = parent;
        }
    }

    /// The same of a token that ranks drew together, each of which has a slice of q: no_token where there is no law.
    /// `probability` is the token's, the same on all ranks.
    template <class DraftRule>
    token_id take_drawn(std::size_t r, DraftRule, token_id x, distribution<Q> const& q, double probability,
                        double confidence) noexcept {
        fixed_probability c = 0;
        if (!may_follow<DraftRule>(r, x != no_token, confidence, c)) return no_token;
        record(r, x, q, c, probability);
        return x;
    }
    /// Appends a token that was drawn elsewhere, from a law of which this rank has a slice: what `q` is recorded for.
    /// `probability` is the token's, the same on all ranks. Of a tree behind `parent`; of a chain no_node. False, and
    /// the drafts end, if x is no token, at its cap, or behind a stop token of a chain.
    bool append_drawn(std::size_t r, token_id x, distribution<Q> const& q, double probability, fixed_probability c,
                      node_id parent = no_node) noexcept {
        if (sizes_[r] >= requests_[r].draft_cap(shape_.block_size) || (parent == no_node && has_ended(r))) return false;
        if (x < 0 || static_cast<std::size_t>(x) >= q.size()) {
            reject(r, status::invalid_draft);
            return false;
        }
        if (extend_survival(survival_before(r), c) < requests_[r].draft_floor) return false;
        if (!raw_.empty()) {
            raw_[r * shape_.block_size + sizes_[r]] = static_cast<double>(c) / static_cast<double>(certain);
        }
        record(r, x, q, c, probability);
        if (parent != no_node) parents_[r * shape_.block_size + sizes_[r] - 1] = parent;
        return true;
    }
    /// Appends a token that was found rather than drawn (prompt lookup): q is one-hot over the target vocabulary.
    /// False, and the chain ends, if x is no token of it: contexts hold placeholders and ids that only an embedding
    /// knows. So it is if the request's constraint forbids x, and at its floor, its cap or a stop token. A token that
    /// was sampled from a q that nobody kept may be appended as well. The law stays exact, since it is for each token,
    /// and the token is accepted with p(x).
    bool append_found(std::size_t r, token_id x, std::size_t target_vocabulary) noexcept {
        return !is_full(r) && append_one_hot(r, x, target_vocabulary, certain, 1.0);
    }
    /// The same of a token that was found beside a drafter's model, with a confidence of its own: model_limit is no
    /// limit to it, no calibration sees the confidence (the raw one is NaN), and the request's chain counts as found().
    bool append_found(std::size_t r, token_id x, std::size_t target_vocabulary, fixed_probability c) noexcept {
        if (sizes_[r] >= requests_[r].found_cap(shape_.block_size) || has_ended(r)) return false;
        if (!append_one_hot(r, x, target_vocabulary, c, std::numeric_limits<double>::quiet_NaN())) return false;
        found_[r] = true;
        return true;
    }
    /// The same block, whose requests are seen as these, each at its place: for the drafter inside of another, that is
    /// to draft for some of them only, and less.
    [[nodiscard]] draft_block seen_as(std::span<request_view const> requests) const noexcept {
        SURELEAP_EXPECTS(requests.size() == requests_.size());
        draft_block same = *this;
        same.requests_ = requests;
        return same;
    }
    /// Marks request r: its drafts end here, and its verdict reports `why`. What was drawn before stays and is
    /// verified: where a chain ends so is known before its next token is drawn. Only a status that is no
    /// is_draft_failure ends the round for the request.
    token_id reject(std::size_t r, status why) noexcept {
        statuses_[r] = why;
        return no_token;
    }
    [[nodiscard]] draft_prefixes prefixes(std::size_t k) const noexcept {
        return {tokens_.data(), shape_.block_size, k};
    }

    /// step(block, r) for every request, divided among the threads if it is worth it: a step passes over so many
    /// `numbers` (logits, weights). The block it is given is this one with a worker() that no step at the same time
    /// has.
    template <class Step>
    void for_each_request(std::size_t numbers, Step const& step) const {
        std::size_t const worth = shape_.executor.worth(numbers * requests_.size());
        detail::share_out(shape_.executor, std::min(worth, shape_.workers()), requests_.size(),
                          [&](std::size_t worker, std::size_t r) {
                              draft_block mine = *this;
                              mine.worker_ = worker;
                              step(mine, r);
                          });
    }
    /// step(block, r, rng), for steps that draw. One after the other if `rng` may not be asked by several threads.
    template <class Rng, class Step>
    void for_each_request(std::size_t numbers, Rng& rng, Step const& step) {
        if constexpr (concurrent_randomness<Rng>) {
            for_each_request(numbers, [&](draft_block& block, std::size_t r) { step(block, r, std::as_const(rng)); });
        } else {
            for (std::size_t r = 0; r < requests_.size(); ++r) step(*this, r, rng);
        }
    }

    /// Whose scratch a step may use, of shape().workers().
    [[nodiscard]] std::size_t worker() const noexcept { return worker_; }

    // ---- for everybody -----------------------------------------------------------------------------------------

    [[nodiscard]] std::span<request_view const> requests() const noexcept { return requests_; }
    [[nodiscard]] std::size_t block_size() const noexcept { return shape_.block_size; }
    /// Rounds that have begun: whoever keeps notes for commit knows by it whether they are of this one.
    [[nodiscard]] std::uint64_t round() const noexcept { return round_; }
    /// Of the round before its batch is decided.
    [[nodiscard]] step_load const& load() const noexcept { return load_; }
    [[nodiscard]] std::size_t size(std::size_t r) const noexcept { return sizes_[r]; }
    [[nodiscard]] status draft_outcome(std::size_t r) const noexcept { return statuses_[r]; }
    /// Of a chain: its last token is a stop token, so nothing comes behind it.
    [[nodiscard]] bool has_ended(std::size_t r) const noexcept {
        return sizes_[r] > 0 && requests_[r].settings->stops_at(tokens(r).back());
    }
    /// x_1..x_size of request r, and the laws they were drawn from.
    [[nodiscard]] std::span<token_id const> tokens(std::size_t r) const noexcept {
        return tokens_.subspan(r * shape_.block_size, sizes_[r]);
    }
    [[nodiscard]] std::span<distribution<Q> const> laws(std::size_t r) const noexcept {
        return laws_.subspan(r * shape_.block_size, sizes_[r]);
    }
    /// Of a tree: the parents of these tokens, 0 for the anchor, else 1 + the index of the token before it. Empty for
    /// chains.
    [[nodiscard]] std::span<node_id const> parents(std::size_t r) const noexcept {
        return parents_.empty() ? parents_ : parents_.subspan(r * shape_.block_size, sizes_[r]);
    }
    [[nodiscard]] draft_table table() const noexcept {
        return {{shape_.block_size, sizes_.first(requests_.size()), confidence_, survival_, load_, weight_},
                tokens_,
                token_probabilities_};
    }
    [[nodiscard]] draft_shape const& shape() const noexcept { return shape_; }
    [[nodiscard]] calibration_ref const& calibration() const noexcept { return shape_.calibration; }
    /// [R] whether a request's tokens were found beside the drafter's model.
    [[nodiscard]] std::span<bool const> found() const noexcept { return found_.first(requests_.size()); }
    /// [R, gamma] confidences before they were calibrated; empty if no calibration was lent.
    [[nodiscard]] std::span<double const> raw_confidences() const noexcept { return raw_; }

private:
    // Whatever the drafter believes: a longer chain would be written beside the memory, or emit more than may be
    // emitted.
    [[nodiscard]] bool is_full(std::size_t r) const noexcept {
        return sizes_[r] >= requests_[r].draft_cap(shape_.block_size) || has_ended(r);
    }
    /// Another token of request r is recorded, with confidence c. False: its chain ends, or the request is marked.
    template <class DraftRule>
    [[nodiscard]] bool may_follow(std::size_t r, bool is_law, double confidence, fixed_probability& c) noexcept {
        std::size_t const k = sizes_[r];
        auto const fails = [&](status why) {
            reject(r, why);
            return false;
        };
        if (shape_.rule != drawn_by::any && shape_.rule != drawn_by_v<DraftRule>) {
            return fails(status::wrong_draft_rule);
        }
        if (is_full(r)) return false;
        if (!is_law) return fails(status::invalid_draft);
        if (!quantise(shape_.calibration(requests_[r], k, confidence), c)) return fails(status::invalid_confidence);
        if (extend_survival(survival_before(r), c) < requests_[r].draft_floor) return false;
        if (!raw_.empty()) raw_[r * shape_.block_size + k] = confidence;
        return true;
    }
    bool append_one_hot(std::size_t r, token_id x, std::size_t vocabulary, fixed_probability c, double raw) noexcept {
        if (x < 0 || static_cast<std::size_t>(x) >= vocabulary || !mask(r).allows(x)) return false;
        if (extend_survival(survival_before(r), c) < requests_[r].draft_floor) return false;
        if (!raw_.empty()) raw_[r * shape_.block_size + sizes_[r]] = raw;
        record(r, x, distribution<Q>::one_hot(vocabulary, x), c, 1.0);
        return true;
    }
    void record(std::size_t r, token_id x, distribution<Q> const& q, fixed_probability c, double probability) noexcept {
        SURELEAP_EXPECTS(sizes_[r] < shape_.block_size);
        std::size_t const i = r * shape_.block_size + sizes_[r];
        tokens_[i] = x;
        token_probabilities_[i] = probability;
        laws_[i] = q;
        if (!parents_.empty()) parents_[i] = static_cast<node_id>(sizes_[r]);
        confidence_[i] = c;
        survival_[i] = extend_survival(survival_before(r), c);
        ++sizes_[r];
    }
    // Of the next position: what the chain is worth so far.
    [[nodiscard]] fixed_probability survival_before(std::size_t r) const noexcept {
        return sizes_[r] == 0 ? requests_[r].weight : survival_[r * shape_.block_size + sizes_[r] - 1];
    }

    draft_shape shape_{};
    std::size_t worker_ = 0;
    std::uint64_t round_ = 0;
    std::span<request_view const> requests_{};
    step_load load_{};
    std::uint64_t weight_ = 0;
    std::span<token_id> tokens_{};
    std::span<distribution<Q>> laws_{};
    std::span<double> token_probabilities_{};
    std::span<fixed_probability> confidence_{};
    std::span<fixed_probability> survival_{};
    std::span<double> raw_{};
    std::span<std::uint32_t> sizes_{};
    std::span<status> statuses_{};
    std::span<bool> found_{};
    std::span<node_id> parents_{};
};

SURELEAP_END_NAMESPACE
