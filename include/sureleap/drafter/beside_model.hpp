// SPDX-License-Identifier: MIT
//
// What drafters have in common that find tokens for some requests and leave the others to a drafter inside:
// with_lookup, with_forced. Who drafts for a request is decided when its block begins, by its context and settings
// alone. So every token is drawn from a q that is known before it, and every rule stays exact.
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
#include <sureleap/core/workspace.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/draft_memory.hpp>
#include <sureleap/drafter/options.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The drafter that derives from this one says what is found and how sure it is of that:
///
///     static constexpr char const* name;
///     void find(request_view const& request, Found& found);          in what another pass left of `found`
///     double confidence(Found const& found, std::size_t k) const;    of token k, before it is known
///
/// Found has tokens() -> std::span<token_id const>; none: the drafter inside drafts.
///
/// A request with found tokens has draft_limit 0 in what the drafter inside is given; if there are only such, its
/// forward is not called. So request_view::model_limit is no limit to found tokens: they cost their rows, which the
/// schedule prices. Takes memory when a round has more requests than any before, or more rounds overlap: each forward
/// pass has its own for as long as what it returned is kept. No lent calibration sees confidences of found tokens.
template <class Derived, class Drafter, class Found>
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

    /// As the other drafter needs it: found tokens have no rows.
    struct memory_type {
        memory_type() = default;
        memory_type(workspace& ws, draft_shape const& shape, beside_model const& drafter) noexcept
            : other(ws, shape, drafter.other_) {}

        draft_memory_t<other_type, value_type> other{};
    };

    static constexpr bool is_deterministic = other_type::is_deterministic;
    static constexpr bool is_parallel = other_type::is_parallel;
    static constexpr bool has_confidence = other_type::has_confidence;
    static constexpr bool plans_at_anchor = requires { requires other_type::plans_at_anchor; };
    static constexpr bool drafts_trees = requires { requires other_type::drafts_trees; };
    static constexpr bool lends_rows = lends_rows_v<other_type>;
    static constexpr bool grows_by_tokens = requires { requires other_type::grows_by_tokens; };

    [[nodiscard]] std::size_t block_size() const noexcept { return std::max(most_, other_.block_size()); }
    /// Most tokens that the other drafter drafts. Rounds are told by it that there are others (concepts.hpp).
    [[nodiscard]] std::size_t model_block_size() const noexcept { return other_.block_size(); }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return other_.vocabulary(); }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return other_.target_vocabulary(); }
    [[nodiscard]] std::size_t state_size() const noexcept { return detail::state_size_of(other_); }
    /// Of the other drafter: found tokens need none.
    [[nodiscard]] std::size_t room(request_view const& request) const { return draft_room(other_, request); }
    [[nodiscard]] std::uint64_t unread(request_view const& request) const { return draft_unread(other_, request); }
    [[nodiscard]] other_type const& other() const noexcept { return other_; }

    /// Decides who drafts for whom, beside the other drafter's pass.
    [[nodiscard]] forward_type forward(std::span<request_view const> requests) {
        auto memory = passes_.take();
        memory->found.resize(requests.size());
        for (std::size_t r = 0; r < requests.size(); ++r) {
            static_cast<Derived&>(*this).find(requests[r], memory->found[r]);
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
    void plan(forward_type const& forward, draft_block<value_type> const& block, memory_type const& memory,
              planning_memory& planning) const
        requires plans_at_anchor
    {
        pass_memory& mine = pass_of_round(forward, block);
        if (forward.asked) {
            plan_block(other_, forward.other, block.seen_as(left_of(mine, block.requests())), memory.other, planning);
        }
        for (std::size_t r = 0; r < mine.found.size(); ++r) {
            if (mine.found[r].tokens().empty() && forward.asked) continue;
            planning.begin(r);
            for_each_found(block.requests()[r], mine.found[r],
                           [&](token_id, fixed_probability c) { return planning.append_fixed(r, c); });
        }
    }
    template <class DraftRule, class Rng>
    void draw(forward_type const& forward, DraftRule rule, draft_block<value_type>& block, memory_type const& memory,
              Rng& rng) {
        pass_memory& mine = pass_of_round(forward, block);
        for (std::size_t r = 0; r < mine.found.size(); ++r) {
            for_each_found(block.requests()[r], mine.found[r], [&](token_id x, fixed_probability c) {
                return block.append_found(r, x, target_vocabulary(), c);
            });
        }
        if (!forward.asked) return;
        auto rest = block.seen_as(left_of(mine, block.requests()));
        draw_block(other_, forward.other, rule, rest, memory.other, rng);
    }
    void commit(std::span<verdict const> verdicts, draft_block<value_type> const& block,
                memory_type const& memory) noexcept {
        commit_block(other_, verdicts, block, memory.other);
    }

protected:
    /// Finds at most `most` tokens; 0: as many as the other drafter drafts.
    beside_model(Drafter other, std::size_t most)
        : other_(std::forward<Drafter>(other)), most_(most > 0 ? most : other_.block_size()) {}

    [[nodiscard]] std::size_t most() const noexcept { return most_; }
    /// What the pass of this round found out.
    [[nodiscard]] static pass_memory& pass_of_round(forward_type const& forward, draft_block<value_type> const& block) {
        if (forward.memory == nullptr || forward.pass.requests() != fingerprint_of(block.requests())) {
            fail_with(Derived::name,
                      ": the forward pass was made for other requests than the round's, expected what "
                      "forward(memory.requests()) returned in this round");
        }
        return *forward.memory;
    }

private:
    [[nodiscard]] Derived const& derived() const noexcept { return static_cast<Derived const&>(*this); }

    // visit(x, c) for found tokens, until it is false.
    template <class Visit>
    void for_each_found(request_view const& request, Found const& found, Visit const& visit) const {
        auto const tokens = found.tokens().first(std::min(found.tokens().size(), request.found_cap(most_)));
        for (std::size_t k = 0; k < tokens.size(); ++k) {
            fixed_probability c = 0;
            if (!quantise(derived().confidence(found, k), c) || !visit(tokens[k], c)) break;
        }
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
