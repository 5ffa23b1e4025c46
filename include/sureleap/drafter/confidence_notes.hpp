// SPDX-License-Identifier: MIT
//
// Confidences that are read off q, as a drafter asks them while it draws. One that learns is told later what became of
// its predictions, so what they were made of is noted until then: in the round's own memory, since rounds may overlap.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <type_traits>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

template <class Confidence>
struct terms_of {
    struct type {};
};
template <class Confidence>
    requires requires { typename Confidence::terms_type; }
struct terms_of<Confidence> {
    using type = typename Confidence::terms_type;
};

/// Its confidences are of drafted tokens (concepts.hpp).
template <class Confidence>
inline constexpr bool reads_token_v = requires { requires Confidence::reads_token; };

}  // namespace detail

/// Notes of a round, for each position of each request. Of a confidence that does not learn there are none.
template <class Confidence, class Q>
class confidence_notes {
public:
    static constexpr bool learns = learning_confidence<Confidence, Q>;

    confidence_notes() = default;
    confidence_notes(workspace& ws, draft_shape const& shape) noexcept
        : notes_(ws.take<note>(learns ? shape.requests : 0, shape.block_size)) {}

    /// c of position k of request r, from q, and from x_k where the confidence is one in it. A token that a mask left
    /// alone is certain, and teaches nothing.
    template <class Law, class... Token>
    [[nodiscard]] double ask(Confidence const& confidence, std::span<request_view const> requests, std::size_t r,
                             std::size_t k, Law const& q, Token const&... x) const {
        bool const is_asked = q.valid() && !q.is_without_row();
        if constexpr (learns) {
            notes_[r][k] = {};
            if (!is_asked) return 1.0;
            notes_[r][k] = {confidence.terms(requests[r], q, x...), true};
            return static_cast<double>(confidence(notes_[r][k].terms, k));
        } else {
            return is_asked ? static_cast<double>(confidence(q, k)) : 1.0;
        }
    }
    /// Positions that were verified and reached: whether x_k was accepted. Behind a rejection nothing was observed.
    template <class Held>
    void teach(Held& confidence, std::span<verdict const> verdicts, draft_block<Q> const& block) const noexcept {
        static_assert(!std::is_const_v<Held>,
                      "sureleap: the confidence learns, and the drafter was given a const one; give it one that may "
                      "change, or a copy");
        auto const requests = block.requests();
        std::size_t judged = 0;
        for (std::size_t r = 0; r < std::min(verdicts.size(), requests.size()); ++r) {
            verdict const& v = verdicts[r];
            if (v.outcome != status::ok) continue;
            ++judged;
            if (block.found()[r]) continue;  // drafted by another
            for (std::size_t k = 0; k < v.verified && k <= v.accepted; ++k) {
                if (notes_[r][k].made) confidence.observe(requests[r], k, notes_[r][k].terms, k < v.accepted);
            }
        }
        confidence.close_round(judged);
    }

private:
    struct note {
        typename detail::terms_of<Confidence>::type terms{};
        bool made = false;
    };
    carved_rows<note> notes_{};  // [R, gamma]
};

SURELEAP_END_NAMESPACE
