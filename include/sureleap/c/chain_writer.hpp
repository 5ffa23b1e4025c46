// SPDX-License-Identifier: MIT
//
// The drafter of the C interface: chains are written from outside, position by position. It is drawn from once in a
// round, as every drafter. What it does then is to keep the block, which is a view, and fill it until the round is
// admitted.
//
// A token that was drawn outside goes through the same draw as any other, from a source of randomness that answers with
// it. So it is recorded together with its q and its confidence, or not at all.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <utility>

#include <sureleap/c/round.h>
#include <sureleap/c/handle.hpp>
#include <sureleap/c/parts.hpp>
#include <sureleap/confidence/estimate.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/guarantee.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/drafter/draft_block.hpp>
#include <sureleap/drafter/listed_rows.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/schedule/planning.hpp>
#include <sureleap/traits.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace c {

/// Number i of an array in a storage format.
[[nodiscard]] inline float number_at(void const* data, std::int32_t format, std::size_t i) noexcept {
    if (format == SURELEAP_FLOAT) return static_cast<float const*>(data)[i];
    std::uint16_t const bits = static_cast<std::uint16_t const*>(data)[i];
    if (format == SURELEAP_HALF) return load(detail::bits_as<half>(bits));
    return load(detail::bits_as<bf16>(bits));
}
[[nodiscard]] inline std::size_t size_of(std::int32_t format) noexcept {
    return format == SURELEAP_FLOAT ? sizeof(float) : sizeof(std::uint16_t);
}

/// Models drafter, whose traits are the options'.
class chain_writer {
public:
    using value_type = float;
    /// Confidences at the anchor, [requests, gamma].
    struct forward_type {
        double const* confidences = nullptr;
        std::size_t stride = 0;
    };
    struct listed {
        token_id token;
        float number;
    };

    static constexpr bool is_deterministic = false;
    static constexpr bool is_parallel = true;
    static constexpr bool has_confidence = true;
    static constexpr bool plans_at_anchor = true;

    /// `lists`: room for the longest list of a sparse q, else empty.
    chain_writer(sureleap_round_options const& o, std::span<listed> lists) noexcept
        : options_(o), how_(o.q == SURELEAP_Q_ONE_HOT ? drawn_by::argmax : draft_rule_of(o)), lists_(lists) {}

    [[nodiscard]] std::size_t block_size() const noexcept { return options_.block_size; }
    [[nodiscard]] std::size_t vocabulary() const noexcept {
        if (options_.q == SURELEAP_Q_ONE_HOT) return 0;
        return options_.q == SURELEAP_Q_SPARSE ? options_.list_size : options_.vocabulary;
    }
    [[nodiscard]] std::size_t target_vocabulary() const noexcept { return options_.vocabulary; }
    [[nodiscard]] drafter_traits traits() const noexcept { return drafter_of(options_); }
    [[nodiscard]] forward_type forward(std::span<request_view const>) const noexcept { return {}; }

    struct memory_type : listed_rows<float> {
        memory_type() = default;
        memory_type(workspace& ws, draft_shape const& shape, chain_writer const& writer) noexcept
            : listed_rows<float>(ws, shape, writer.lends_rows(), writer.options_.q == SURELEAP_Q_SPARSE) {}
    };

    void plan(forward_type const& forward, draft_block<float> const& block, planning_memory& memory) const noexcept {
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            memory.begin(r);
            for (std::size_t k = 0; k < block.requests()[r].draft_cap(block_size()); ++k) {
                if (!memory.append(r, forward.confidences[r * forward.stride + k])) break;
            }
        }
    }
    /// Opens the block for append.
    template <class DraftRule, class Rng>
    void draw(forward_type const&, DraftRule, draft_block<float>& block, memory_type const& memory, Rng&) noexcept {
        block_ = block;
        memory_ = memory;
        at_ = 0;
    }

    /// Appends the next positions to every chain that has come so far. Arguments were checked (check_drafts).
    template <class Rng>
    void append(sureleap_drafts const& d, Rng& rng) noexcept {
        for (std::size_t r = 0; r < block_.requests().size(); ++r) {
            std::size_t const count = d.counts == nullptr ? d.positions : d.counts[r];
            for (std::size_t k = 0; k < count && block_.drafts(r, at_ + k); ++k)
                draw_one(d, r, r * d.positions + k, rng);
            if (d.drawn == nullptr) continue;
            auto const chain = block_.tokens(r);
            for (std::size_t k = 0; k < d.positions; ++k) {
                d.drawn[r * d.positions + k] = at_ + k < chain.size() ? chain[at_ + k] : no_token;
            }
        }
        at_ += d.positions;
    }

    /// Throws unless the shapes are those of a round of so many requests.
    void check_drafts(sureleap_drafts const& d, std::size_t requests) const {
        char const* const who = "sureleap_round_draft";
        expect_size(who, "positions", d.positions, 1, block_size());
        for (std::size_t r = 0; d.counts != nullptr && r < requests; ++r) {
            expect_size(who, "a count", d.counts[r], 0, d.positions);
        }
        if (options_.confidence == SURELEAP_CONFIDENCE_GIVEN) expect_given(who, "confidences", d.confidences);
        if (options_.q == SURELEAP_Q_ONE_HOT) return expect_given(who, "tokens", d.tokens);
        if (d.tokens != nullptr && how_ != drawn_by::categorical) {
            fail_with(who,
                      ": tokens are given, but only categorical drafts can be drawn outside; expected rows alone, or a "
                      "round whose q is one-hot");
        }
        std::size_t const rows = requests * d.positions;
        if (rows == 0) return;
        expect_given(who, "rows.data", d.rows.data);
        expect_aligned(who, "rows.data", d.rows.data, size_of(options_.draft_format));
        if (d.rows.rows < rows) {
            fail_with(who, ": rows.rows is ", d.rows.rows, ", expected at least requests * positions = ", rows);
        }
        expect_size(who, "rows.stride", d.rows.stride, d.rows.columns, static_cast<std::size_t>(-1) / 8 / rows);
        if (options_.q == SURELEAP_Q_DENSE) {
            return expect_size(who, "rows.columns", d.rows.columns, options_.vocabulary, options_.vocabulary);
        }
        expect_size(who, "rows.columns", d.rows.columns, 1, options_.list_size);
        expect_given(who, "list_tokens", d.list_tokens);
        expect_size(who, "list_stride", d.list_stride, d.rows.columns, static_cast<std::size_t>(-1) / 8 / rows);
        for (std::size_t i = 0; d.list_counts != nullptr && i < rows; ++i) {
            expect_size(who, "a list count", d.list_counts[i], 0, d.rows.columns);
        }
    }

private:
    [[nodiscard]] bool lends_rows() const noexcept {
        return options_.q == SURELEAP_Q_DENSE && options_.draft_format == SURELEAP_FLOAT &&
               options_.q_values == SURELEAP_Q_LOGITS;
    }
    template <class Rng>
    void draw_one(sureleap_drafts const& d, std::size_t r, std::size_t i, Rng& rng) noexcept {
        token_id const given = d.tokens == nullptr ? no_token : d.tokens[i];
        bool const in_range = given >= 0 && static_cast<std::size_t>(given) < target_vocabulary();
        if (d.tokens != nullptr && !in_range) {
            if (given != no_token) block_.reject(r, status::invalid_draft);  // that one is padding: the chain ends here
            return;
        }
        auto const q =
            options_.q == SURELEAP_Q_ONE_HOT ? distribution<float>::one_hot(target_vocabulary(), given) : law(d, r, i);
        double confidence = 1.0;
        if (options_.confidence == SURELEAP_CONFIDENCE_GIVEN) confidence = d.confidences[i];
        if (options_.q != SURELEAP_Q_ONE_HOT && q.is_without_row()) confidence = 1.0;  // all that its constraint allows
        if (options_.confidence == SURELEAP_CONFIDENCE_TOP1 && q.valid()) {
            confidence = top1_confidence{}(q, block_.size(r));
        }
        switch (how_) {
            case drawn_by::argmax: block_.draw(r, argmax_draft{}, q, confidence, rng); return;
            case drawn_by::coupled: block_.draw(r, coupled_draft{}, q, confidence, rng); return;
            default: break;
        }
        if (d.tokens == nullptr) {
            block_.draw(r, categorical_draft{}, q, confidence, rng);
        } else {
            detail::given_token source{given};
            block_.draw(r, categorical_draft{}, q, confidence, source);
        }
    }

    // q of the next position of request r, from row i.
    [[nodiscard]] distribution<float> law(sureleap_drafts const& d, std::size_t r, std::size_t i) noexcept {
        if (options_.q == SURELEAP_Q_SPARSE) return sparse_law(d, r, i);
        std::size_t const first = i * d.rows.stride;
        if (lends_rows()) {
            return memory_.law(block_, r, {static_cast<float const*>(d.rows.data) + first, options_.vocabulary});
        }
        auto const row = memory_.next(block_, r);
        for (std::size_t v = 0; v < row.size(); ++v) row[v] = logit(d, first + v);
        return memory_.law(block_, r, row);
    }
    // Lists are kept in ascending order. -1 is padding. A list that names a token twice, or none of the vocabulary, has
    // no law.
    [[nodiscard]] distribution<float> sparse_law(sureleap_drafts const& d, std::size_t r, std::size_t i) noexcept {
        std::size_t const count = d.list_counts == nullptr ? d.rows.columns : d.list_counts[i];
        std::size_t used = 0;
        for (std::size_t j = 0; j < count; ++j) {
            token_id const x = d.list_tokens[i * d.list_stride + j];
            if (x != no_token) lists_[used++] = {x, logit(d, i * d.rows.stride + j)};
        }
        if (used == 0) return {};
        auto const pairs = lists_.first(used);
        std::sort(pairs.begin(), pairs.end(), [](listed const& a, listed const& b) { return a.token < b.token; });
        auto const list = memory_.next_list(block_, r).first(used);
        auto const row = memory_.next(block_, r).first(used);
        for (std::size_t j = 0; j < used; ++j) {
            if (j > 0 && pairs[j].token == pairs[j - 1].token) return {};
            list[j] = pairs[j].token;
            row[j] = pairs[j].number;
        }
        if (list.front() < 0 || static_cast<std::size_t>(list.back()) >= options_.vocabulary) return {};
        return memory_.law(block_, r, row, {list, options_.vocabulary});
    }
    [[nodiscard]] float logit(sureleap_drafts const& d, std::size_t i) const noexcept {
        float const x = number_at(d.rows.data, options_.draft_format, i);
        return options_.q_values == SURELEAP_Q_LOGITS ? x : std::log(x);  // of a negative number NaN: no law
    }

    sureleap_round_options options_;
    drawn_by how_;
    std::span<listed> lists_;
    draft_block<float> block_{};  // of this round, once it is open
    memory_type memory_{};        // its rows
    std::size_t at_ = 0;          // positions that were appended
};

}  // namespace c
SURELEAP_END_NAMESPACE
