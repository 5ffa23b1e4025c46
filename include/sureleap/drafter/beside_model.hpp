// SPDX-License-Identifier: MIT
//
// What drafters have in common that find tokens for some requests and leave the others to a drafter inside: with_lookup,
// with_forced. Who drafts for a request is decided when its block begins, by its context and settings alone. So every
// token is drawn from a q that is known before it, and every rule stays exact.
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
#include <sureleap/drafter/options.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// Found: what is found for a request, with tokens() -> std::span<token_id const>; none: the drafter inside drafts.
///
/// A request with found tokens has draft_limit 0 in what the drafter inside is given; if there are only such, its
/// forward is not called. So request_view::model_limit is no limit to found tokens: they cost their rows, which the
/// schedule prices. Takes memory when a round has more requests than any before, or more rounds overlap: each forward pass
/// has its own for as long as what it returned is kept. No lent calibration sees confidences of found tokens.
template <class Drafter, class Found>
class beside_model {
    using other_type = std::remove_cvref_t<Drafter>;
    static_assert(
        drafter<other_type>,
        "with_lookup, with_forced: the argument is no drafter; give it one of drafter/, such as autoregressive{model, "
        "options}, or your own that models sureleap::drafter (concepts.hpp)");

public:
    using value_type = typename other_type::value_type;
    using other_forward = std::remove_cvref_t<decltype(std::declval<other_type&>().forward(
        std::declval<std::span<request_view const>>()))>;
    /// What a pass found out.
    struct pass_memory {
        std::vector<Found> found;        ///< by request of the round
        std::vector<request_view> left;  ///< the requests as the other drafter sees them
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

    [[nodiscard]] std::size_t block_size() const noexcept { return std::max(most_, other_.block_size()); }
    /// Most tokens that the other drafter drafts. Rounds are told by it that there are others (concepts.hpp).
    [[nodiscard]] std::size_t model_block_size() const noexcept { return other_.block_size(); }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return other_.vocabulary(); }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return other_.target_vocabulary(); }
    [[nodiscard]] std::size_t state_size() const noexcept { return other_.state_size(); }
    /// Of the other drafter: found tokens need none.
    [[nodiscard]] std::size_t room(request_view const& request) const { return draft_room(other_, request); }
    [[nodiscard]] std::uint64_t unread(request_view const& request) const { return draft_unread(other_, request); }
    [[nodiscard]] other_type const& other() const noexcept { return other_; }

    /// As the other drafter needs it; found tokens have no rows.
    void shape_memory(draft_shape& shape) const noexcept
        requires requires(other_type const& d) { d.shape_memory(shape); }
    {
        other_.shape_memory(shape);
    }

protected:
    /// Finds at most `most` tokens; 0: as many as the other drafter drafts.
    beside_model(Drafter other, std::size_t most)
        : other_(std::forward<Drafter>(other)), most_(most > 0 ? most : other_.block_size()) {}

    [[nodiscard]] std::size_t most() const noexcept { return most_; }

    /// find(request, found) says what is found for a request, in what another pass left of `found`.
    template <class Find>
    [[nodiscard]] forward_type forward_beside(std::span<request_view const> requests, Find const& find) {
        auto memory = passes_.take();
        memory->found.resize(requests.size());
        for (std::size_t r = 0; r < requests.size(); ++r) find(requests[r], memory->found[r]);
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
    /// confidence(found, k): of its token k.
    template <class Confidence>
    void plan_beside(char const* who, forward_type const& forward, draft_block<value_type> const& block,
                     planning_memory& memory, Confidence const& confidence) const {
        pass_memory& mine = memory_of(who, forward, block);
        if (forward.asked) other_.plan(forward.other, block.seen_as(left_of(mine, block.requests())), memory);
        for (std::size_t r = 0; r < mine.found.size(); ++r) {
            if (mine.found[r].tokens().empty() && forward.asked) continue;
            memory.begin(r);
            for (std::size_t k = 0; k < count(block.requests()[r], mine.found[r]); ++k) {
                fixed_probability c = 0;
                if (!quantise(confidence(mine.found[r], k), c)) break;
                memory.append_fixed(r, c);
            }
        }
    }
    template <class DraftRule, class Rng, class Confidence>
    void draw_beside(char const* who, forward_type const& forward, DraftRule rule, draft_block<value_type>& block,
                     Rng& rng, Confidence const& confidence) {
        pass_memory& mine = memory_of(who, forward, block);
        for (std::size_t r = 0; r < mine.found.size(); ++r) {
            auto const tokens = mine.found[r].tokens();
            for (std::size_t k = 0; k < count(block.requests()[r], mine.found[r]); ++k) {
                fixed_probability c = 0;
                if (!quantise(confidence(mine.found[r], k), c)) break;
                if (!block.append_found(r, tokens[k], target_vocabulary(), c)) break;
            }
        }
        if (!forward.asked) return;
        auto rest = block.seen_as(left_of(mine, block.requests()));
        other_.draw(forward.other, rule, rest, rng);
    }
    void commit_other(std::span<verdict const> verdicts, draft_block<value_type> const& block) noexcept {
        commit_to(other_, verdicts, block.seen_as(block.requests()));
    }
    /// What the pass of this round found out.
    [[nodiscard]] static pass_memory& memory_of(char const* who, forward_type const& forward,
                                                draft_block<value_type> const& block) {
        if (forward.memory == nullptr || forward.pass.requests() != fingerprint_of(block.requests())) {
            fail_with(who,
                      ": the forward pass was made for other requests than the round's, expected what "
                      "forward(memory.requests()) returned in this round");
        }
        return *forward.memory;
    }

private:
    [[nodiscard]] std::size_t count(request_view const& request, Found const& found) const noexcept {
        return std::min(found.tokens().size(), request.found_cap(most_));
    }
    /// The requests as the other drafter sees them: it drafts for those alone for which nothing was found.
    [[nodiscard]] static std::span<request_view const> left_of(pass_memory& memory,
                                                               std::span<request_view const> requests) {
        memory.left.assign(requests.begin(), requests.end());
        for (std::size_t r = 0; r < requests.size(); ++r) {
            if (!memory.found[r].tokens().empty()) memory.left[r].draft_limit = 0;
        }
        return memory.left;
    }

    Drafter other_;
    std::size_t most_;
    pass_pool<pass_memory> passes_;
};

SURELEAP_END_NAMESPACE
