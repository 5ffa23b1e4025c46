// SPDX-License-Identifier: MIT
//
// Two drafters as one: prompt lookup where the end of a request's context occurred before, another drafter elsewhere.
//
// They win on different text. A model drafts what it has learned; lookup drafts what stands in the context and costs
// nothing. Which of the two drafts a block is decided when it begins (beside_model.hpp).
//
// One schedule prices both. What lookup finds has a confidence as well: the share of such tokens that were accepted, by
// the length of the match. A match that went well is a longer one, so position k of a block that began with a match of
// n tokens is judged as one of n + k.
//
// The first token that was found and not verified teaches too. It is compared with the token that the target drew in
// its place: they are equal as often as it would have been accepted. So where rows are dear and nothing is verified, a
// text that repeats itself is still noticed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/drafter/beside_model.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/lookup.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// How often a token that lookup found is accepted, by the length of the match. What it learns acts from the next round
/// on.
///
/// What a length is expected to have that nobody has observed rises evenly from matches of one token to the longest.
/// The defaults are near how found tokens fare by position on prompts of five kinds (docs/evaluation.md,
/// SmolLM2-135M-Instruct).
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

/// When found tokens take the place of drafted ones, fixed at set-up.
struct with_lookup_options {
    /// Most tokens of a found block; 0: as many as the other drafter's.
    std::size_t block_size = 0;
    std::size_t longest = 5;   ///< as lookup_options
    std::size_t shortest = 2;  ///< shorter matches are left to the other drafter
    match_acceptance_settings acceptance{};
};

/// Lookup for the requests whose context ends in a match, `Drafter` for the others (beside_model). Models drafter;
/// plans at the anchor if Drafter does. The other drafter is held by value, or by reference where an lvalue was given
/// to the deduction guide. Needs request_view::context and commit.
template <class Drafter>
class with_lookup : public beside_model<with_lookup<Drafter>, Drafter, lookup_match> {
    using base = beside_model<with_lookup<Drafter>, Drafter, lookup_match>;

public:
    using typename base::forward_type;
    using typename base::value_type;
    static constexpr char const* name = "with_lookup";

    /// What was found for a request, for commit. A round in which nobody drafts leaves the note of another one.
    struct note {
        std::uint64_t round = 0;
        lookup_match match{};
    };
    struct memory_type : base::memory_type {
        memory_type() = default;
        memory_type(workspace& ws, draft_shape const& shape, with_lookup const& drafter) noexcept
            : base::memory_type(ws, shape, drafter),
              notes(ws.take<note>(shape.requests)),
              followed(ws.take<token_id>(shape.requests, shape.block_size)) {}

        std::span<note> notes{};
        carved_rows<token_id> followed{};  // of the matches, drafted or not
    };

    explicit with_lookup(Drafter other, with_lookup_options const& options = {})
        : base(std::forward<Drafter>(other), options.block_size),
          found_{{.block_size = this->most(),
                  .target_vocabulary = this->target_vocabulary(),
                  .longest = options.longest,
                  .shortest = options.shortest}},
          acceptance_(options.longest, options.acceptance) {}

    [[nodiscard]] match_acceptance const& acceptance() const noexcept { return acceptance_; }

    /// O(context * longest).
    void find(request_view const& request, lookup_match& match) const noexcept {
        match = request.found_cap(this->block_size()) > 0 ? found_.match(request.context) : lookup_match{};
    }
    [[nodiscard]] double confidence(lookup_match const& match, std::size_t k) const noexcept {
        return acceptance_(match.length + k);
    }
    template <class DraftRule, class Rng>
    void draw(forward_type const& forward, DraftRule rule, draft_block<value_type>& block, memory_type const& memory,
              Rng& rng) {
        auto const& matches = this->pass_of_round(forward, block).found;
        for (std::size_t r = 0; r < matches.size(); ++r) {
            auto const followed = matches[r].followed.first(std::min(matches[r].followed.size(), memory.followed.size));
            std::copy(followed.begin(), followed.end(), memory.followed[r].begin());
            memory.notes[r] = {block.round(), {matches[r].length, memory.followed[r].first(followed.size())}};
        }
        base::draw(forward, rule, block, memory, rng);
    }
    /// Learns from what was found for the block's requests.
    void commit(std::span<verdict const> verdicts, draft_block<value_type> const& block,
                memory_type const& memory) noexcept {
        for (std::size_t r = 0; r < std::min(verdicts.size(), block.requests().size()); ++r) {
            verdict const& v = verdicts[r];
            auto const& [round, match] = memory.notes[r];
            if (round != block.round() || match.length == 0 || v.outcome != status::ok) continue;
            for (std::size_t k = 0; k < v.verified && k <= v.accepted; ++k) {
                acceptance_.observe(match.length + k, k < v.accepted);
            }
            std::size_t const k = v.accepted;
            if (k == v.verified && k < v.emitted.size() && k < match.followed.size()) {
                acceptance_.observe(match.length + k, v.emitted[k] == match.followed[k]);
            }
        }
        base::commit(verdicts, block, memory);
    }

private:
    lookup found_;
    match_acceptance acceptance_;
};

template <class D>
with_lookup(D&&, with_lookup_options const&) -> with_lookup<D>;
template <class D>
with_lookup(D&&) -> with_lookup<D>;

SURELEAP_END_NAMESPACE
