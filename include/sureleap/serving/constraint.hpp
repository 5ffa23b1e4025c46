// SPDX-License-Identifier: MIT
//
// A grammar's matcher as a request's constraint. Matchers (xgrammar's GrammarMatcher, llguidance's Matcher) have a
// state: they accept tokens, and roll back. A round asks for masks behind prefixes: those of its drafts, one after the
// other, and then again where the target's rows are read. `constraint` moves the matcher to the prefix that is asked
// for, and keeps the masks of the path that it is on, so a chain's second question costs a comparison.
//
//     constraint const json{my_matcher{...}};
//     decoder.submit(prompt, {.stop_tokens = eos, .constraint = json});     // decoder_options::constrained
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/token_mask.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

/// A grammar's state along a text.
///
/// - mask(): what may come next, stop tokens where the text may end; valid until the matcher moves.
/// - accept(token): moves on. False, and nothing has moved, if the token may not come.
/// - rollback(n): undoes the last n accepts. A round asks for at most gamma of them.
///
/// They may throw (constraint::failure).
template <class M>
concept token_matcher = requires(M& matcher, token_id token, std::size_t n) {
    { matcher.mask() } -> std::convertible_to<token_mask>;
    { matcher.accept(token) } -> std::convertible_to<bool>;
    matcher.rollback(n);
};

/// A constraint_ref of one request. The matcher stands where the text begins, behind the prompt. Needs
/// request_view::context, and remaining to be what is left of max_new_tokens. Not for several requests at once.
template <token_matcher Matcher>
class constraint {
public:
    explicit constraint(Matcher matcher) : matcher_(std::move(matcher)) {}

    /// The mask behind the text and `drafted`; one that allows nothing where the matcher does not accept them, or
    /// fails.
    [[nodiscard]] token_mask operator()(request_view const& request, std::span<token_id const> drafted) const noexcept {
#if SURELEAP_EXCEPTIONS
        try {
            return mask_behind(request, drafted);
        } catch (...) {
            failure_ = std::current_exception();
            return nothing();
        }
#else
        return mask_behind(request, drafted);
#endif
    }
    /// What the matcher threw last, or null. The row that was asked for had no law then (status::invalid_target).
    [[nodiscard]] std::exception_ptr failure() const noexcept { return failure_; }
    [[nodiscard]] Matcher const& matcher() const noexcept { return matcher_; }

private:
    using words = std::vector<std::uint32_t>;

    [[nodiscard]] token_mask mask_behind(request_view const& request, std::span<token_id const> drafted) const {
        std::size_t const emitted = request.emitted();
        if (request.context.size() < emitted) {
            fail_with("constraint: request ", request.id, " has a context of ", request.context.size(),
                      " tokens, expected the ", emitted, " that it has emitted and those before");
        }
        auto const text = request.context.last(emitted);
        auto const wanted = [&](std::size_t i) { return i < emitted ? text[i] : drafted[i - emitted]; };
        std::size_t const depth = emitted + drafted.size();
        std::size_t same = 0;
        while (same < std::min(path_.size(), depth) && path_[same] == wanted(same)) ++same;
        forget_before(emitted);
        if (same < depth || !is_kept(depth)) {
            roll_back_to(same);
            while (path_.size() < depth) {
                token_id const x = wanted(path_.size());
                if (!matcher_.accept(x)) return nothing();
                path_.push_back(x);
            }
            keep(depth, matcher_.mask());
        }
        return token_mask{std::span<std::uint32_t const>(kept_[depth - first_])};
    }
    void roll_back_to(std::size_t depth) const {
        if (depth < path_.size()) matcher_.rollback(path_.size() - depth);
        path_.resize(depth);
        std::size_t const most = depth < first_ ? 0 : depth - first_ + 1;
        if (kept_.size() > most) kept_.resize(most);
    }
    /// Masks of committed tokens are not asked for again.
    void forget_before(std::size_t depth) const {
        for (; first_ < depth && !kept_.empty(); ++first_) kept_.pop_front();
        first_ = depth;
    }
    [[nodiscard]] bool is_kept(std::size_t depth) const {
        return depth - first_ < kept_.size() && !kept_[depth - first_].empty();
    }
    void keep(std::size_t depth, token_mask const& mask) const {
        kept_.resize(std::max(kept_.size(), depth - first_ + 1));
        kept_[depth - first_].assign(mask.words.begin(), mask.words.end());
    }
    [[nodiscard]] static token_mask nothing() noexcept {
        static constexpr std::uint32_t none = 0;
        return token_mask{std::span<std::uint32_t const>(&none, 1)};
    }

    // A question moves the matcher, and changes nothing that is seen.
    mutable Matcher matcher_;
    mutable std::vector<token_id> path_;  // what it has accepted
    mutable std::deque<words> kept_;      // masks behind path_[.. first_ + i]; empty where nobody asked
    mutable std::size_t first_ = 0;
    mutable std::exception_ptr failure_{};
};

SURELEAP_END_NAMESPACE
