// SPDX-License-Identifier: MIT
//
// What an acceptance rule sees of one request: the drafted tokens with the q they were drawn from, and the target's
// laws, made on demand. Rows after the first rejection are never touched.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/verify/target_laws.hpp>

SURELEAP_BEGIN_NAMESPACE

/// One request's side of the acceptance stage. T: target storage, Q: draft compute type.
template <class T, class Q, class Hook>
class verification {
public:
    using memory_type = verification_memory<T, Hook>;
    using law = typename target_laws<T, Hook>::law;

    /// `rows` from first_row on belong to this request: row first_row + k is the law after x_k. `drafted` holds the l
    /// tokens that were verified, `recorded` the laws they were drawn from.
    verification(request_view const& request, std::span<token_id const> drafted,
                 std::span<distribution<Q> const> recorded, logits_rows<T> const& rows, std::size_t first_row,
                 Hook const& hook, memory_type const& memory) noexcept
        : request_(request), drafted_(drafted), recorded_(recorded), laws_(request, rows, first_row, hook, memory) {
        SURELEAP_EXPECTS(drafted.size() < memory.laws.size());
    }

    /// l, the number of drafted tokens to judge.
    [[nodiscard]] std::size_t length() const noexcept { return drafted_.size(); }
    [[nodiscard]] token_id token(std::size_t k) const noexcept { return drafted_[k]; }
    /// q_k as recorded when x_k was drawn.
    [[nodiscard]] distribution<Q> const& draft(std::size_t k) const noexcept { return recorded_[k]; }
    /// p_k, the target's transformed law after x_1..x_k; k <= length(). Made at the first call for each k, in order. Of its sum as
    /// much is made as `how` says: all, bounds of it, or nothing (verify/bounded.hpp).
    // Also for requests that want log probabilities, which need the sum: asking for them must not change what is drawn.
    [[nodiscard]] law& target(std::size_t k, totals how = totals::exact) {
        for (; made_ <= k; ++made_) laws_.make(made_, drafted_.first(made_), how);
        if (how == totals::exact) laws_[k].settle();
        return laws_[k];
    }
    /// What `rule` decides. Nothing is decided where a row that it came to has no law, perhaps because the normaliser and the sums
    /// that it brought are not its own. A decision without a token is none.
    template <class Rule, class Rng>
    [[nodiscard]] decision decide_by(Rule const& rule, Rng& rng) {
        decision d = rule(*this, rng);
        for (std::size_t k = 0; k < made_; ++k) d.valid = d.valid && laws_[k].valid();
        if (d.next == no_token) d.valid = false;
        return d;
    }
    /// Name of a draw of this block, and of the noise of the token at position k.
    [[nodiscard]] draw_key key(std::size_t k, purpose use) const noexcept { return block_key(request_, k, use); }
    [[nodiscard]] draw_key noise(std::size_t k) const noexcept { return noise_key(request_, k); }
    /// At least 2 length() numbers that a rule may use as it likes.
    [[nodiscard]] std::span<double> scratch() const noexcept { return laws_.memory().joint; }
    /// Room for the block sums of one row, for draw_residual.
    [[nodiscard]] std::span<double> block_sums() const noexcept { return laws_.block_sums(laws_.memory().laws.size()); }

private:
    request_view const& request_;
    std::span<token_id const> drafted_;
    std::span<distribution<Q> const> recorded_;
    target_laws<T, Hook> laws_;
    std::size_t made_ = 0;
};

SURELEAP_END_NAMESPACE
