// SPDX-License-Identifier: MIT
//
// Bugs that real systems shipped, kept alive so that the tests can be seen to catch them. A mutant is the library with
// one part replaced; losslessness.md says what each got wrong.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "support/exactness.hpp"

namespace mutants {

using namespace exactness;

// ---- sources of randomness -------------------------------------------------------------------------------------

/// Renames keys on their way to the source: two draws given one name become one draw.
template <class Rename>
struct renamed_source {
    enumerator::source base;
    Rename rename;

    [[nodiscard]] bool bernoulli(draw_key const& key, double num, double den) const {
        return base.bernoulli(rename(key), num, den);
    }
    template <class W>
    [[nodiscard]] token_id categorical(draw_key const& key, W const& w) const {
        return base.categorical(rename(key), w);
    }
    template <class W>
    [[nodiscard]] token_id gumbel_max(draw_key const& key, W const& w) const {
        return base.gumbel_max(rename(key), w);
    }
};

/// Draws keyed by absolute position: drafted again, a position sees the same draw.
struct by_absolute_position {
    [[nodiscard]] draw_key operator()(draw_key key) const {
        if (key.use == purpose::noise) return key;
        return {key.seed, key.position + key.index, 0, key.use};
    }
};
/// The residual drawn with the noise of the draft it replaces.
struct residual_reuses_draft {
    [[nodiscard]] draw_key operator()(draw_key key) const {
        if (key.use == purpose::residual) key.use = purpose::draft;
        return key;
    }
};
/// The residual drawn with the uniform that rejected.
struct residual_reuses_accept {
    [[nodiscard]] draw_key operator()(draw_key key) const {
        if (key.use == purpose::residual) key.use = purpose::accept;
        return key;
    }
};
/// Every request draws from one stream.
struct one_stream {
    [[nodiscard]] draw_key operator()(draw_key key) const {
        key.seed = 0;
        return key;
    }
};
/// Position noise that is drawn anew in every round.
struct noise_of_the_round {
    std::size_t const* round;
    [[nodiscard]] draw_key operator()(draw_key key) const {
        key.index = static_cast<std::uint32_t>(*round);
        return key;
    }
};

/// Weights changed behind the back of whoever records them: the draft samples from something else than q.
template <class Change>
struct misdrawing_source {
    enumerator::source base;
    Change change;

    [[nodiscard]] bool bernoulli(draw_key const& key, double num, double den) const {
        return base.bernoulli(key, num, den);
    }
    template <class W>
    [[nodiscard]] token_id categorical(draw_key const& key, W const& w) const {
        if (key.use != purpose::draft) return base.categorical(key, w);
        struct {
            std::vector<double> values;
            double sum;
            [[nodiscard]] std::size_t size() const { return values.size(); }
            [[nodiscard]] double operator[](token_id v) const { return values[static_cast<std::size_t>(v)]; }
            [[nodiscard]] double total() const { return sum; }
        } changed{{}, 0.0};
        for (std::size_t v = 0; v < w.size(); ++v) {
            changed.values.push_back(static_cast<double>(w[static_cast<token_id>(v)]) / static_cast<double>(w.total()));
        }
        change(changed.values);
        for (double const x : changed.values) changed.sum += x;
        return base.categorical(key, changed);
    }
    template <class W>
    [[nodiscard]] token_id gumbel_max(draw_key const& key, W const& w) const {
        return base.gumbel_max(key, w);
    }
};

/// Drawn in eight bits, tested in full precision.
struct coarse {
    void operator()(std::vector<double>& q) const {
        for (double& x : q) x = std::round(x * 8.0) / 8.0;
    }
};
/// Drawn from the truncated q, tested against the full one.
struct truncated_to_two {
    void operator()(std::vector<double>& q) const { *std::min_element(q.begin(), q.end()) = 0.0; }
};
/// The argmax, tested against the softmax.
struct argmax_only {
    void operator()(std::vector<double>& q) const {
        auto const best = std::max_element(q.begin(), q.end()) - q.begin();
        for (std::size_t v = 0; v < q.size(); ++v) q[v] = static_cast<std::ptrdiff_t>(v) == best ? 1.0 : 0.0;
    }
};

// ---- acceptance rules ------------------------------------------------------------------------------------------

/// Block verification with parts of token rejection in it. Without either it is the shipped rule written naively.
template <bool TokenResidual, bool TokenAcceptance>
struct mixed_block {
    static constexpr fidelity guarantee = fidelity::distribution;
    static constexpr q_access access = q_access::row;
    using draft_rule = categorical_draft;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        std::vector<double> joint{1.0};
        for (std::size_t k = 0; k < v.length(); ++k) {
            double const q = v.draft(k).probability(v.token(k));
            joint.push_back(std::min(1.0, joint.back() * v.target(k).probability(v.token(k)) / q));
        }
        std::size_t accepted = 0;
        for (std::size_t i = 1; i <= v.length(); ++i) {
            double const scale = TokenAcceptance ? 1.0 : joint[i];
            double num = joint[i];
            double den = 1.0;
            if (i < v.length()) {
                num = residual{v.target(i), v.draft(i), scale}.total();
                den = num + 1.0 - scale;
                if (!(den > 0.0)) num = den = 1.0;
            }
            if (rng.bernoulli(v.key(i - 1, purpose::accept), num, den)) accepted = i;
        }
        auto const& p = v.target(accepted);
        if (accepted == v.length()) return {true, accepted, rng.categorical(v.key(accepted, purpose::bonus), p)};
        return {true, accepted,
                draw_residual(p, v.draft(accepted), TokenResidual ? 1.0 : joint[accepted],
                              v.key(accepted, purpose::residual), rng)};
    }
};

/// A draft law read by place in the draft's list instead of by token id.
template <class Q>
struct by_list_index {
    using weight_type = double;
    Q const& q;
    vocabulary_map const& map;
    [[nodiscard]] std::size_t size() const { return q.size(); }
    [[nodiscard]] double total() const { return 1.0; }
    [[nodiscard]] double operator[](token_id v) const { return probability(v); }
    void evaluate(token_id first, std::span<double> out) const {
        for (std::size_t i = 0; i < out.size(); ++i) out[i] = probability(first + static_cast<token_id>(i));
    }
    [[nodiscard]] double probability(token_id v) const {
        return static_cast<std::size_t>(v) < map.draft_size() ? q.probability(map.to_target(v)) : 0.0;
    }
};

/// Token rejection whose residual subtracts by list index.
struct list_index_rejection {
    static constexpr fidelity guarantee = fidelity::distribution;
    static constexpr q_access access = q_access::row;
    using draft_rule = categorical_draft;
    vocabulary_map const* map;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        for (std::size_t k = 0; k < v.length(); ++k) {
            auto const& p = v.target(k);
            auto const& q = v.draft(k);
            if (rng.bernoulli(v.key(k, purpose::accept), p.probability(v.token(k)), q.probability(v.token(k))))
                continue;
            by_list_index const wrong{q, *map};
            return {true, k, draw_residual(p, wrong, 1.0, v.key(k, purpose::residual), rng)};
        }
        return {true, v.length(), rng.categorical(v.key(v.length(), purpose::bonus), v.target(v.length()))};
    }
};

// ---- drafters --------------------------------------------------------------------------------------------------

/// Hands out a token that was drawn already.
struct drawn_already {
    token_id token;
    [[nodiscard]] bool bernoulli(draw_key const&, double, double) const { return false; }
    template <class W>
    [[nodiscard]] token_id categorical(draw_key const&, W const&) const {
        return token;
    }
    template <class W>
    [[nodiscard]] token_id gumbel_max(draw_key const&, W const&) const {
        return token;
    }
};

/// A semi-autoregressive drafter that looks before it says how confident it is.
enum class peek { confidence_after_draw, hidden_after_draw };

template <peek How>
class peeking_drafter {
public:
    using value_type = double;
    struct forward_type {
        std::vector<std::vector<token_id>> drawn;  // hidden states that consumed the block's tokens
    };
    static constexpr bool is_deterministic = false;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = true;
    static constexpr bool plans_at_anchor = true;

    peeking_drafter(world const& w, enumerator::source rng) : w_(&w), rng_(rng) {}

    [[nodiscard]] std::size_t block_size() const { return w_->block_size; }
    [[nodiscard]] std::size_t vocabulary() const { return w_->vocabulary; }
    [[nodiscard]] std::size_t target_vocabulary() const { return w_->vocabulary; }

    [[nodiscard]] forward_type forward(std::span<request_view const> requests) {
        forward_type f;
        for (auto const& r : requests) {
            f.drawn.emplace_back();
            token_id previous = r.anchor;
            for (std::size_t k = 0; k < r.draft_cap(block_size()); ++k) {
                std::vector<double> row(w_->vocabulary);
                previous = rng_.categorical(block_key(r, k, purpose::draft), law(r, k, previous, row));
                f.drawn.back().push_back(previous);
            }
        }
        return f;
    }
    void plan(forward_type const& f, draft_block<double> const& block, planning_memory& memory) const {
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            memory.begin(r);
            for (std::size_t k = 0; k < f.drawn[r].size(); ++k) {
                bool const peeks = How == peek::hidden_after_draw;
                memory.append(r, w_->confidence(peeks ? f.drawn[r][k] : no_token, k));
            }
        }
    }
    template <class DraftRule, class Rng>
    void draw(forward_type const& f, DraftRule rule, draft_block<double>& block, draft_rows<double> const& rows,
              Rng&) const {
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            token_id previous = block.requests()[r].anchor;
            for (std::size_t k = 0; k < f.drawn[r].size(); ++k) {
                token_id const x = f.drawn[r][k];
                auto const row = rows.next(block, r);
                (void)law(block.requests()[r], k, previous, row);
                drawn_already rng{x};
                bool const peeks = How == peek::confidence_after_draw;
                block.draw(r, rule, rows.law(block, r, row), w_->confidence(peeks ? x : previous, k), rng);
                previous = x;
            }
        }
    }

private:
    [[nodiscard]] distribution<double> law(request_view const& r, std::size_t k, token_id previous,
                                           std::span<double> row) const {
        for (std::size_t v = 0; v < row.size(); ++v)
            row[v] = w_->base(r.anchor, r.position, k, v) + w_->bias(previous, v);
        return {{row, {}}, r.settings->draft_transform(), {}};
    }

    world const* w_;
    enumerator::source rng_;
};

/// A semi-autoregressive drafter that draws x_k before it decides about position k. look(x_k, q(x_k), a_k) is called
/// with the drawn token. If it returns false, the chain ends before x_k, as if x_k had not been drawn.
template <class Look>
class eager_drafter {
public:
    using value_type = double;
    static constexpr bool is_deterministic = false;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = true;

    eager_drafter(world const& w, Look look) : w_(&w), look_(std::move(look)) {}

    [[nodiscard]] std::size_t block_size() const { return w_->block_size; }
    [[nodiscard]] std::size_t vocabulary() const { return w_->vocabulary; }
    [[nodiscard]] std::size_t target_vocabulary() const { return w_->vocabulary; }
    [[nodiscard]] int forward(std::span<request_view const>) const { return 0; }

    template <class DraftRule, class Rng>
    void draw(int, DraftRule rule, draft_block<double>& block, draft_rows<double> const& rows, Rng& rng) const {
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            request_view const& request = block.requests()[r];
            token_id previous = request.anchor;
            double survival = 1.0;
            for (std::size_t k = 0; k < request.draft_cap(block_size()); ++k) {
                auto const row = rows.next(block, r);
                for (std::size_t v = 0; v < row.size(); ++v) {
                    row[v] = w_->base(request.anchor, request.position, k, v) + w_->bias(previous, v);
                }
                auto const q = rows.law(block, r, row);
                token_id const x = rng.categorical(block_key(request, k, purpose::draft), q);
                double const confidence = w_->confidence(previous, k);
                survival *= confidence;
                if (!look_(x, q.probability(x), survival)) break;
                drawn_already drawn{x};
                block.draw(r, rule, q, confidence, drawn);
                previous = x;
            }
        }
    }

private:
    world const* w_;
    Look look_;
};

// ---- what is decided before drafting, by who has looked ahead --------------------------------------------------

/// Verifies everything; a request is gated by the token that it is about to draft, or by its anchor, which is known.
struct gate_by_token : fixed_schedule {
    world const* w;
    enumerator::source rng;
    bool looks_ahead;

    void limit_drafts(std::span<request_view> requests) const {
        for (request_view& r : requests) {
            std::vector<double> row(w->vocabulary);
            for (std::size_t v = 0; v < row.size(); ++v) {
                row[v] = w->base(r.anchor, r.position, 0, v) + w->bias(r.anchor, v);
            }
            distribution<double> const q{{row, {}}, r.settings->draft_transform(), {}};
            token_id const x = looks_ahead ? rng.categorical(block_key(r, 0, purpose::draft), q) : r.anchor;
            if (x == 0) r.draft_limit = 0;
        }
    }
};
/// Verifies everything or nothing, by how many tokens were drafted in all; a floor makes that depend on the tokens.
struct prices_what_was_drafted {
    std::size_t worth_it;
    fixed_probability floor;

    [[nodiscard]] fixed_probability draft_floor() const { return floor; }
    void admit(draft_table const& t, frontier_memory const& memory) const {
        std::size_t drafted = 0;
        for (std::uint32_t const size : t.survivals.sizes) drafted += size;
        for (std::size_t r = 0; r < t.survivals.requests(); ++r) {
            memory.lengths[r] = drafted >= worth_it ? t.survivals.sizes[r] : 0;
        }
    }
};

// ---- schedules that look ahead ---------------------------------------------------------------------------------

/// Drops a sampled token, and all after it, when its own draft probability is small.
struct drops_unlikely {
    double least;
    void admit(draft_table const& t, frontier_memory const& memory) const {
        std::size_t const stride = t.survivals.block_size;
        for (std::size_t r = 0; r < t.survivals.requests(); ++r) {
            std::uint32_t l = 0;
            while (l < t.survivals.sizes[r] && t.token_probabilities[r * stride + l] >= least) ++l;
            memory.lengths[r] = l;
        }
    }
};
/// Ranks candidates by the running product of the sampled tokens' own probabilities and takes the best K.
struct ranks_by_token_probability {
    std::size_t budget;
    void admit(draft_table const& t, frontier_memory const& memory) const {
        std::size_t const stride = t.survivals.block_size;
        std::size_t const requests = t.survivals.requests();
        std::vector<double> joint(requests, 1.0);
        for (std::size_t r = 0; r < requests; ++r) memory.lengths[r] = 0;
        for (std::size_t n = 0; n < budget; ++n) {
            std::size_t best = requests;
            double highest = -1.0;
            for (std::size_t r = 0; r < requests; ++r) {
                if (memory.lengths[r] == t.survivals.sizes[r]) continue;
                double const next = joint[r] * t.token_probabilities[r * stride + memory.lengths[r]];
                if (next > highest) {
                    highest = next;
                    best = r;
                }
            }
            if (best == requests) return;
            joint[best] = highest;
            ++memory.lengths[best];
        }
    }
};
/// Top-K by count of survivals, ties going to the later position: after c = 1 the later one is taken first, and taking
/// it means verifying the earlier one as well.
struct ties_to_the_later {
    std::size_t budget;
    void admit(draft_table const& t, frontier_memory const& memory) const {
        std::size_t const requests = t.survivals.requests();
        std::vector<candidate> all;
        for (std::size_t r = 0; r < requests; ++r) {
            memory.lengths[r] = 0;
            for (std::size_t k = 0; k < t.survivals.sizes[r]; ++k) all.push_back(t.survivals.at(r, k));
        }
        std::sort(all.begin(), all.end(), [](candidate const& a, candidate const& b) {
            if (a.survival != b.survival) return a.survival > b.survival;
            if (a.position != b.position) return a.position > b.position;
            return a.request < b.request;
        });
        for (std::size_t n = 0; n < budget && n < all.size(); ++n) {
            auto& l = memory.lengths[all[n].request];
            l = std::max(l, static_cast<std::uint32_t>(all[n].position + 1));
        }
    }
};
/// Two requests, each verified exactly when the other's first draft token is 0.
struct decides_by_the_other {
    void admit(draft_table const& t, frontier_memory const& memory) const {
        std::size_t const requests = t.survivals.requests();
        for (std::size_t r = 0; r < requests; ++r) {
            std::size_t const other = requests - 1 - r;
            bool const go = t.survivals.sizes[other] > 0 && t.tokens[other * t.survivals.block_size] == 0;
            memory.lengths[r] = go ? t.survivals.sizes[r] : 0;
        }
    }
};

// ---- drafters --------------------------------------------------------------------------------------------------

/// Lookup takes over when it disagrees with what the model has drawn: the choice looks at a drawn token, and the token
/// that is kept was not drawn from the q that is recorded.
struct second_thoughts : decltype(semi_of(std::declval<world const&>())) {
    using base = decltype(semi_of(std::declval<world const&>()));
    explicit second_thoughts(world const& w)
        : base(semi_of(w)), found{{.block_size = w.block_size, .target_vocabulary = w.vocabulary}} {}

    template <class Forward, class DraftRule, class Memory, class Rng>
    void draw(Forward const& forward, DraftRule rule, draft_block<double>& block, Memory const& memory, Rng& rng)
        const {
        base::draw(forward, rule, block, memory, rng);
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            auto const followed = found.match(block.requests()[r].context).followed;
            if (followed.empty() || block.size(r) == 0 || followed[0] == block.tokens(r)[0]) continue;
            const_cast<token_id&>(block.tokens(r)[0]) = followed[0];
        }
    }
    lookup found;
};

// ---- passes that overlap ---------------------------------------------------------------------------------------

/// A drafter that draws for the requests of its last forward pass, whichever round it draws.
template <class Drafter>
struct draws_for_last_forward : Drafter {
    using Drafter::Drafter;
    explicit draws_for_last_forward(Drafter inner) : Drafter(std::move(inner)) {}

    [[nodiscard]] auto forward(std::span<request_view const> requests) {
        last.assign(requests.begin(), requests.end());
        return Drafter::forward(requests);
    }
    template <class Forward, class DraftRule, class Rng>
    void draw(Forward const& forward, DraftRule rule, draft_block<typename Drafter::value_type>& block,
              draft_memory_t<Drafter, typename Drafter::value_type> const& memory, Rng& rng) {
        auto seen = block.seen_as(last);
        draw_block(static_cast<Drafter&>(*this), forward, rule, seen, memory, rng);
    }
    std::vector<request_view> last{};
};

/// A target that does not say of which pass its rows are, though the next one overwrites them.
template <class Target>
struct names_no_pass {
    Target inner;
    [[nodiscard]] logits_rows<double> score(verify_batch const& batch) {
        auto rows = inner.score(batch);
        rows.pass = {};
        return rows;
    }
};

/// A backbone that says of all its rows that they stay, and overwrites them.
struct backbone_of_one_pass {
    table_backbone inner;
    pass_counter never{};
    [[nodiscard]] block_forward<double> forward(std::span<request_view const> requests) {
        auto lent = inner.forward(requests);
        lent.base_logits.pass = never.current();
        return lent;
    }
};

}  // namespace mutants
