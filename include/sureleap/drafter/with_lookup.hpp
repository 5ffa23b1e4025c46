// SPDX-License-Identifier: MIT
//
// Two drafters as one: prompt lookup where the end of a request's context occurred before, another drafter elsewhere.
//
// They win on different text. A model drafts what it has learned; lookup drafts what stands in the context and costs
// nothing. Which of the two drafts a block is decided for each request when the block begins, from its context alone. So
// every token is drawn from a q that is known before it, and every rule stays exact.
//
// One schedule prices both. What lookup finds has a confidence as well: the share of such tokens that were accepted, by
// the length of the match. A match that went well is a longer one, so position k of a block that began with a match of n
// tokens is judged as one of n + k.
//
// The first token that was found and not verified teaches too. It is compared with the token that the target drew in its
// place: they are equal as often as it would have been accepted. So where rows are dear and nothing is verified, a text that
// repeats itself is still noticed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/pass.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/lookup.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// How often a token that lookup found is accepted, by the length of the match. What it learns acts from the next round on.
///
/// What a length is expected to have that nobody has observed rises evenly from matches of one token to the longest. The
/// defaults are near how found tokens fare by position on prompts of five kinds (docs/evaluation.md, SmolLM2-135M-Instruct).
struct match_acceptance_settings {
    double assumed = 0.3;          ///< of a match of one token; in (0, 1)
    double assumed_longest = 0.8;  ///< of the longest; in (0, 1)
    double assumed_weight = 8;     ///< observations that they count as; above 0
    double memory = 4096;          ///< observations of a length fade by so many of it; >= 1
};

class match_acceptance {
public:
    /// For matches of 1 .. longest tokens; longer ones count as that.
    explicit match_acceptance(std::size_t longest, match_acceptance_settings const& settings = {})
        : fade_(1.0 - 1.0 / settings.memory), lengths_(longest) {
        auto const& s = settings;
        if (longest == 0) fail_with("match_acceptance: longest is 0, expected at least 1 token");
        if (!(s.assumed > 0.0 && s.assumed < 1.0)) {
            fail_with("match_acceptance_settings: assumed is ", s.assumed, ", expected a number in (0, 1)");
        }
        if (!(s.assumed_longest > 0.0 && s.assumed_longest < 1.0)) {
            fail_with("match_acceptance_settings: assumed_longest is ", s.assumed_longest,
                      ", expected a number in (0, 1)");
        }
        if (!(s.assumed_weight > 0.0 && s.assumed_weight < 1e9)) {
            fail_with("match_acceptance_settings: assumed_weight is ", s.assumed_weight, ", expected a number above 0");
        }
        if (!(s.memory >= 1.0)) fail_with("match_acceptance_settings: memory is ", s.memory, ", expected at least 1");
        for (std::size_t i = 0; i < longest; ++i) {
            double const share = longest == 1 ? 1.0 : static_cast<double>(i) / static_cast<double>(longest - 1);
            lengths_[i].assumed = s.assumed_weight * (s.assumed + share * (s.assumed_longest - s.assumed));
        }
        assumed_weight_ = s.assumed_weight;
    }

    /// For a match of `length` >= 1 tokens. O(1).
    [[nodiscard]] double operator()(std::size_t length) const noexcept {
        counts const& seen = lengths_[place(length)];
        return (seen.assumed + seen.accepted) / (assumed_weight_ + seen.all);
    }
    /// The token after such a match was verified and reached, and accepted or not.
    void observe(std::size_t length, bool accepted) noexcept {
        counts& seen = lengths_[place(length)];
        seen.accepted = seen.accepted * fade_ + (accepted ? 1.0 : 0.0);
        seen.all = seen.all * fade_ + 1.0;
    }

private:
    struct counts {
        double assumed = 0.0;  // of assumed_weight_
        double accepted = 0.0;
        double all = 0.0;
    };
    [[nodiscard]] std::size_t place(std::size_t length) const noexcept { return std::min(length, lengths_.size()) - 1; }

    double assumed_weight_ = 0.0;
    double fade_;
    std::vector<counts> lengths_;
};

struct with_lookup_options {
    /// Most tokens of a found block; 0: as many as the other drafter's.
    std::size_t block_size = 0;
    std::size_t longest = 5;   ///< as lookup_options
    std::size_t shortest = 2;  ///< shorter matches are left to the other drafter
    match_acceptance_settings acceptance{};
};

/// Lookup for the requests whose context ends in a match, `Drafter` for the others. Models drafter; plans at the anchor if
/// Drafter does. The other drafter is held by value, or by reference where an lvalue was given to the deduction guide.
///
/// Needs request_view::context and commit. A request that lookup drafts for has draft_limit 0 in what the other drafter
/// is given; if there are only such, its forward is not called. So request_view::model_limit is no limit to found
/// tokens: they cost their rows, which the schedule prices. Takes memory when a round has more requests than any
/// before, or more rounds overlap: each forward pass has its own for as long as what it returned is kept. Confidences
/// of found tokens are no matter of a lent calibration: they go past it.
template <class Drafter>
class with_lookup {
    using other_type = std::remove_cvref_t<Drafter>;
    static_assert(
        drafter<other_type>,
        "with_lookup: the argument is no drafter; give it one of drafter/, such as autoregressive{model, options}, "
        "or your own that models sureleap::drafter (concepts.hpp)");

public:
    using value_type = typename other_type::value_type;
    using other_forward = std::remove_cvref_t<decltype(std::declval<other_type&>().forward(
        std::declval<std::span<request_view const>>()))>;
    /// What a pass found out.
    struct pass_memory {
        std::vector<lookup_match> matches;  ///< by request of the round
        std::vector<request_view> left;     ///< the requests as the other drafter sees them
    };
    /// That, and what the other drafter's forward returned, of the requests that it drafts for.
    struct forward_type {
        std::shared_ptr<pass_memory> memory{};
        other_forward other{};
        bool asked = false;  ///< false: there is no such request
        pass_stamp pass{};   ///< the other's
    };

    static constexpr bool is_deterministic = other_type::is_deterministic;
    static constexpr bool is_parallel = other_type::is_parallel;
    static constexpr bool has_confidence = other_type::has_confidence;
    static constexpr bool plans_at_anchor = requires { requires other_type::plans_at_anchor; };
    static constexpr bool drafts_trees = requires { requires other_type::drafts_trees; };
    static constexpr bool grows_by_tokens = requires { requires other_type::grows_by_tokens; };

    explicit with_lookup(Drafter other, with_lookup_options const& options = {})
        : other_(std::forward<Drafter>(other)),
          found_{{.block_size = options.block_size > 0 ? options.block_size : other_.block_size(),
                  .target_vocabulary = other_.target_vocabulary(),
                  .longest = options.longest,
                  .shortest = options.shortest}},
          acceptance_(options.longest, options.acceptance) {}

    [[nodiscard]] std::size_t block_size() const noexcept { return std::max(found_.block_size(), other_.block_size()); }
    /// Most tokens that the other drafter drafts. Rounds are told by it that there are others (concepts.hpp).
    [[nodiscard]] std::size_t model_block_size() const noexcept { return other_.block_size(); }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return other_.vocabulary(); }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return other_.target_vocabulary(); }
    [[nodiscard]] std::size_t state_size() const noexcept { return other_.state_size(); }
    [[nodiscard]] other_type const& other() const noexcept { return other_; }
    [[nodiscard]] match_acceptance const& acceptance() const noexcept { return acceptance_; }

    /// Decides who drafts for whom. O(context * longest) a request, beside the other drafter's pass.
    [[nodiscard]] forward_type forward(std::span<request_view const> requests) {
        auto memory = passes_.take();
        memory->matches.assign(requests.size(), {});
        for (std::size_t r = 0; r < requests.size(); ++r) {
            if (requests[r].found_cap(block_size()) > 0) memory->matches[r] = found_.match(requests[r].context);
        }
        auto const left = left_of(*memory, requests);
        bool const any_left = std::any_of(left.begin(), left.end(), [&](request_view const& request) {
            return request.draft_cap(other_.block_size()) > 0;
        });
        forward_type lent{.memory = std::move(memory)};
        if (any_left) {
            lent.asked = true;
            lent.other = other_.forward(left);
            lent.pass = pass_of(lent.other);
        }
        lent.pass = lent.pass.made_for(fingerprint_of(requests));
        return lent;
    }

    /// Confidences at the anchor, for planned_schedule.
    void plan(forward_type const& forward, draft_block<value_type> const& block, planning_memory& memory) const
        requires plans_at_anchor
    {
        pass_memory& mine = memory_of(forward, block);
        if (forward.asked) other_.plan(forward.other, block.seen_as(left_of(mine, block.requests())), memory);
        for (std::size_t r = 0; r < mine.matches.size(); ++r) {
            lookup_match const& match = mine.matches[r];
            if (match.length == 0 && forward.asked) continue;
            memory.begin(r);
            for (std::size_t k = 0; k < count(block.requests()[r], match); ++k) {
                fixed_probability c = 0;
                if (!quantise(acceptance_(match.length + k), c)) break;
                memory.append_fixed(r, c);
            }
        }
    }

    template <class DraftRule, class Rng>
    void draw(forward_type const& forward, DraftRule rule, draft_block<value_type>& block, Rng& rng) {
        pass_memory& mine = memory_of(forward, block);
        for (std::size_t r = 0; r < mine.matches.size(); ++r) {
            lookup_match const& match = mine.matches[r];
            if (match.length == 0) continue;
            block.notes().note(r, match);
            for (std::size_t k = 0; k < count(block.requests()[r], match); ++k) {
                fixed_probability c = 0;
                if (!quantise(acceptance_(match.length + k), c)) break;
                if (!block.append_found(r, match.followed[k], target_vocabulary(), c)) break;
            }
        }
        if (!forward.asked) return;
        auto rest = block.seen_as(left_of(mine, block.requests()));
        other_.draw(forward.other, rule, rest, rng);
    }

    /// As the other drafter needs it; found tokens have no rows.
    void shape_memory(draft_shape& shape) const noexcept
        requires requires(other_type const& d) { d.shape_memory(shape); }
    {
        other_.shape_memory(shape);
    }

    /// Learns from what was found for the block's requests.
    void commit(std::span<verdict const> verdicts, draft_block<value_type> const& block) noexcept {
        for (std::size_t r = 0; r < std::min(verdicts.size(), block.requests().size()); ++r) {
            verdict const& v = verdicts[r];
            lookup_match const match = block.notes().match(r);
            if (match.length == 0 || v.outcome != status::ok) continue;
            for (std::size_t k = 0; k < v.verified && k <= v.accepted; ++k) {
                acceptance_.observe(match.length + k, k < v.accepted);
            }
            std::size_t const k = v.accepted;
            if (k == v.verified && k < v.emitted.size() && k < match.followed.size()) {
                acceptance_.observe(match.length + k, v.emitted[k] == match.followed[k]);
            }
        }
        commit_to(other_, verdicts, block.seen_as(block.requests()));
    }

private:
    /// Tokens that lookup drafts for a request.
    [[nodiscard]] std::size_t count(request_view const& request, lookup_match const& match) const noexcept {
        return std::min(match.followed.size(), request.found_cap(found_.block_size()));
    }
    /// The requests as the other drafter sees them: it drafts for those alone that have no match.
    [[nodiscard]] static std::span<request_view const> left_of(pass_memory& memory,
                                                               std::span<request_view const> requests) {
        memory.left.assign(requests.begin(), requests.end());
        for (std::size_t r = 0; r < requests.size(); ++r) {
            if (memory.matches[r].length > 0) memory.left[r].draft_limit = 0;
        }
        return memory.left;
    }
    /// What the pass of this round found out.
    [[nodiscard]] static pass_memory& memory_of(forward_type const& forward, draft_block<value_type> const& block) {
        if (forward.memory == nullptr || forward.pass.requests() != fingerprint_of(block.requests())) {
            fail_with(
                "with_lookup: the forward pass was made for other requests than the round's, expected what "
                "forward(memory.requests()) returned in this round");
        }
        return *forward.memory;
    }

    Drafter other_;
    lookup found_;
    match_acceptance acceptance_;
    pass_pool<pass_memory> passes_;
};

template <class D>
with_lookup(D&&, with_lookup_options const&) -> with_lookup<D>;
template <class D>
with_lookup(D&&) -> with_lookup<D>;

SURELEAP_END_NAMESPACE
