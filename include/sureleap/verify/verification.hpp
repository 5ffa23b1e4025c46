// SPDX-License-Identifier: MIT
//
// What an acceptance rule sees of one request: the drafted tokens with the q they were drawn from, and the target's
// laws, made on demand. Rows after the first rejection are never touched.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <span>
#include <type_traits>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The default hook: rows go to the transform as the target returned them, without a copy.
struct no_logits_hook {
    template <class Real>
    void operator()(hook_context const&, std::span<Real>) const noexcept {}
};

/// Scratch of one verification, reused for every request that a thread judges in a round. T is the target's storage format.
template <class T, class Hook>
struct verification_memory {
    static constexpr bool hooked = !std::is_same_v<Hook, no_logits_hook>;
    /// Some requests' rows need no copy, as the hook says and their format allows.
    static constexpr bool spares =
        std::is_same_v<compute_t<T>, T> && requires(Hook const& hook, request_view const& r) {
            { hook.touches(r) } -> std::same_as<bool>;
        };
    /// Hooked rows are copies in the compute type; others are read where the target left them.
    using row_type = std::conditional_t<hooked, compute_t<T>, T>;

    std::span<distribution<row_type>> laws{};  ///< [gamma + 1]
    std::span<double> joint{};                 ///< [2 gamma]
    std::span<token_id> order{};               ///< [V], for truncation
    std::span<row_type> rows{};                ///< [(gamma + 1) V], if hooked
    std::span<double> sums{};                  ///< [(gamma + 2) row_blocks(V)], of the laws and of a residual
    row_kernels const* kernels = nullptr;

    [[nodiscard]] static verification_memory carve(
        workspace& ws, std::size_t block_size, std::size_t vocabulary,
        row_kernels const& kernels = native_kernels<row_kernels>()) noexcept {
        return {ws.take<distribution<row_type>>(block_size + 1),
                ws.take<double>(2 * block_size),
                ws.take<token_id>(vocabulary),
                ws.take<row_type>(hooked ? (block_size + 1) * vocabulary : 0),
                ws.take<double>((block_size + 2) * row_blocks(vocabulary)),
                &kernels};
    }
};

/// One request's side of the acceptance stage. T: target storage, Q: draft compute type.
template <class T, class Q, class Hook>
class verification {
public:
    using memory_type = verification_memory<T, Hook>;
    using law = distribution<typename memory_type::row_type>;

    /// `rows` from first_row on belong to this request: row first_row + k is the law after x_k. `drafted` holds the l
    /// tokens that were verified, `recorded` the laws they were drawn from.
    verification(request_view const& request, std::span<token_id const> drafted,
                 std::span<distribution<Q> const> recorded, logits_rows<T> const& rows, std::size_t first_row,
                 Hook const& hook, memory_type const& memory) noexcept
        : request_(request),
          drafted_(drafted),
          recorded_(recorded),
          rows_(rows),
          first_row_(first_row),
          hook_(hook),
          memory_(memory) {
        SURELEAP_EXPECTS(drafted.size() < memory.laws.size());
    }

    /// l, the number of drafted tokens to judge.
    [[nodiscard]] std::size_t length() const noexcept { return drafted_.size(); }
    [[nodiscard]] token_id token(std::size_t k) const noexcept { return drafted_[k]; }
    /// q_k as recorded when x_k was drawn.
    [[nodiscard]] distribution<Q> const& draft(std::size_t k) const noexcept { return recorded_[k]; }
    /// p_k, the target's transformed law after x_1..x_k; k <= length(). Made at the first call for each k, in order.
    [[nodiscard]] law const& target(std::size_t k) noexcept {
        for (; made_ <= k; ++made_) memory_.laws[made_] = make(made_, totals::exact);
        memory_.laws[k].settle();
        return memory_.laws[k];
    }
    /// The same law, of whose sums perhaps only bounds are known yet, or nothing (verify/bounded.hpp).
    [[nodiscard]] law& outline(std::size_t k) noexcept { return put_off(k, totals::bounded); }
    [[nodiscard]] law& unsummed(std::size_t k) noexcept { return put_off(k, totals::none); }
    /// What `rule` decides. If what the rows brought along proves wrong, the rule decides once more without it. An engine
    /// whose rows are all wrong is noticed in every round, since each ends with a draw from one of them; it loses time and
    /// nothing else. A decision without a token is none.
    template <class Rule, class Rng>
    [[nodiscard]] decision decide_by(Rule const& rule, Rng& rng) {
        decision d = rule(*this, rng);
        if (is_misled()) {
            bare_ = true;
            made_ = 0;
            d = rule(*this, rng);
        }
        if (d.next == no_token) d.valid = false;
        return d;
    }
    /// Name of a draw of this block, and of the noise of the token at position k.
    [[nodiscard]] draw_key key(std::size_t k, purpose use) const noexcept { return block_key(request_, k, use); }
    [[nodiscard]] draw_key noise(std::size_t k) const noexcept { return noise_key(request_, k); }
    /// At least 2 length() numbers that a rule may use as it likes.
    [[nodiscard]] std::span<double> scratch() const noexcept { return memory_.joint; }
    /// Room for the block sums of one row, for draw_residual.
    [[nodiscard]] std::span<double> block_sums() const noexcept { return sums_of(memory_.laws.size()); }

private:
    // Also for requests that want log probabilities, which need the sum: asking for them must not change what is drawn.
    [[nodiscard]] law& put_off(std::size_t k, totals made) noexcept {
        for (; made_ <= k; ++made_) memory_.laws[made_] = make(made_, made);
        return memory_.laws[k];
    }
    [[nodiscard]] bool is_misled() const noexcept {
        return std::any_of(memory_.laws.begin(), memory_.laws.begin() + static_cast<std::ptrdiff_t>(made_),
                           [](law const& p) { return p.misled(); });
    }
    [[nodiscard]] std::span<double> sums_of(std::size_t k) const noexcept {
        std::size_t const blocks = row_blocks(rows_.values.cols);
        return memory_.sums.subspan(k * blocks, blocks);
    }
    [[nodiscard]] law make(std::size_t k, totals made) const noexcept {
        logits_row<T> row = rows_.row(first_row_ + k);
        if (bare_) row.log_normaliser.reset();
        transform const how = request_.settings->target_transform();
        if constexpr (memory_type::spares) {
            if (!hook_.touches(request_)) {
                return {row, how, memory_.order, nullptr, *memory_.kernels, sums_of(k), made};
            }
        }
        if constexpr (memory_type::hooked) {
            auto const copy = memory_.rows.subspan(k * row.values.size(), row.values.size());
            std::transform(row.values.begin(), row.values.end(), copy.begin(), [](T const& l) { return load(l); });
            hook_(hook_context{request_, drafted_.first(k)}, copy);
            return {{copy, {}}, how, memory_.order, nullptr, *memory_.kernels, sums_of(k), made};
        } else {
            return {row, how, memory_.order, nullptr, *memory_.kernels, sums_of(k), made};
        }
    }

    request_view const& request_;
    std::span<token_id const> drafted_;
    std::span<distribution<Q> const> recorded_;
    logits_rows<T> const& rows_;
    std::size_t first_row_;
    Hook const& hook_;
    memory_type memory_;
    std::size_t made_ = 0;
    bool bare_ = false;  // nothing is read of rows but their logits
};

SURELEAP_END_NAMESPACE
