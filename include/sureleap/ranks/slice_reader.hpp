// SPDX-License-Identifier: MIT
//
// A round's rows as one rank has them: what is known of each request's laws before the ranks have exchanged anything.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/ranks/rank_consensus.hpp>
#include <sureleap/ranks/sharded_law.hpp>
#include <sureleap/ranks/sharded_verification.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/round/judge.hpp>
#include <sureleap/round/memory.hpp>
#include <sureleap/sampling/distribution.hpp>
#include <sureleap/sampling/slice_records.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/verify/target_laws.hpp>
#include <sureleap/verify/verification.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace detail {

/// T: storage of the target's logits, Q: of the draft's.
template <class T, class Q, class Hook>
class slice_reader {
public:
    using row_type = typename verification_memory<T, Hook>::row_type;
    using request_type = sharded_request<row_type, Q>;

private:
    using target_real = compute_t<row_type>;
    using draft_real = compute_t<Q>;

public:
    slice_reader(vocabulary_slices const& slices, std::size_t rank) noexcept : slices_(slices), rank_(rank) {}
    /// Room for rows that are changed, if there may be such.
    void carve(workspace& ws, std::size_t requests, std::size_t block_size, bool constrained,
               row_kernels const& kernels) noexcept {
        bool const copies = verification_memory<T, Hook>::hooked || constrained;
        kernels_ = &kernels;
        block_size_ = block_size;
        copies_ = ws.take<row_type>(copies ? requests * (block_size + 1) : 0, own_size());
    }
    /// Reading passes over rows.
    [[nodiscard]] bool copies() const noexcept { return !copies_.all.empty(); }

    /// The laws of request r before anything is known of their rows.
    void prepare(std::size_t r, request_type& of, round_state<T, Q, Hook>& round) const {
        request_view const& request = round.batch.requests()[r];
        request_settings const& settings = *request.settings;
        transform const how = settings.target_transform();
        if (settings.log_probabilities &&
            (settings.raw_log_probabilities || settings.ranks || settings.top_log_probabilities > 0 || how.greedy())) {
            fail_with("row_shards: request ", r,
                      " asks for log-probabilities of rows as they came, for ranks or for the likeliest tokens, "
                      "expected log p of emitted tokens alone, at a temperature above 0: no rank has a whole row");
        }
        of.questions.begin();
        of.identity = identity_of(request, round.batch.drafted(r));
        of.how = how;
        of.length = of.asked_length = round.batch.length(r);
        of.bad_drafts = of.has_logits = false;
        of.reads_q = round.parts.rule_is.access == q_access::row;
        of.drafted = {round.batch.drafted(r), round.block.parents(r)};
        if (!of.drafted.parents.empty()) of.drafted.parents = of.drafted.parents.first(of.length);
        std::size_t const vocabulary = slices_.vocabulary();
        for (std::size_t n = 0; n <= of.length; ++n) {
            sharded_row<row_type> row{};
            row.index = static_cast<std::uint32_t>(n);
            row.is = how.greedy() ? kind_of<row_type>::greedy : kind_of<row_type>::dense;
            row.truncates = how.truncates() && !how.greedy();
            row.lists_best = of.lists_best();
            row.sums = of.target_sums[n];
            row.logits = of.target_logits;
            row.weights = of.target_weights;
            of.targets[n] = sharded_law<row_type>(row, vocabulary, of.questions, of.drafted);
        }
        auto const laws = round.block.laws(r);
        for (std::size_t k = 0; of.reads_q && k < of.length; ++k) {
            distribution<Q> const& q = laws[k];
            sharded_row<Q> row{};
            row.index = static_cast<std::uint32_t>(of.drafted.row(k));
            row.is_draft = true;
            row.sums = of.draft_sums[k];
            row.logits = of.draft_logits;
            row.weights = of.draft_weights;
            bool const chosen = round.parts.rule_is.draft_rule == drawn_by::argmax;
            if (chosen || q.is_one_hot()) {
                row.is = kind_of<Q>::one_hot;
                row.mode = chosen ? of.drafted.tokens[k] : q.mode();
            } else {
                row.is = std::isfinite(q.scale()) ? kind_of<Q>::dense : kind_of<Q>::greedy;
                auto const scale = std::isfinite(q.scale()) ? q.scale() : draft_real(1);
                row.own = {own_logits(q), own_tokens(q), scale, q.functions()};
            }
            of.drafts[k] = sharded_law<Q>(row, vocabulary, of.questions, of.drafted);
        }
    }
    /// The rows of request r that this rank has, and what is given of them. Throws what the hook throws.
    void read_targets(std::size_t r, request_type& of, std::size_t worker, logits_rows<T> const& rows,
                      slice_records const& given, Hook const& hook, round_state<T, Q, Hook>& round) const {
        request_view const& request = round.batch.requests()[r];
        transform const how = request.settings->target_transform();
        auto const scale = static_cast<target_real>(how.greedy() ? 1.0 : 1.0 / how.temperature);
        tree_scratch const* const tree =
            round.parts.rule_is.judges_trees ? &plant(r, worker, round, of.length) : nullptr;
        std::size_t const first = first_row(rows, round.batch, r);
        for (std::size_t n = 0; n <= of.length; ++n) {
            auto const before =
                tree == nullptr ? of.drafted.tokens.first(n) : tree->tree.prefix(static_cast<node_id>(n), tree->path);
            std::size_t const place = r * (block_size_ + 1) + n;
            auto const copy = copies_.all.empty() ? std::span<row_type>{} : copies_[place];
            auto const read = prepare_row(request, before, rows.row(first + n), own_tokens(), hook, copy);
            of.noise[n] = noise_key(request, tree == nullptr ? n : tree->tree.depth(static_cast<node_id>(n)));
            sharded_row<row_type>& row = of.targets[n].row();
            if (read.one_hot != no_token) {
                row.is = kind_of<row_type>::one_hot;
                row.mode = read.one_hot;
            } else {
                row.own = {read.row.values, own_tokens(), scale, kernels_->template get<row_type>()};
                if (copy.empty() || read.row.values.data() != copy.data()) row.given = given_of(given, first + n);
                if (!of.drafted.parents.empty() || row.given.parts == nullptr) row.given.drafted = nullptr;
            }
        }
    }

private:
    [[nodiscard]] slice_records given_of(slice_records const& all, std::size_t i) const noexcept {
        auto const at = [i](auto const* first, std::size_t each) {
            return first == nullptr ? first : first + i * each;
        };
        return {at(all.parts, slices_.parts_of(rank_).size()), at(all.best, 1), at(all.drafted, 1), at(all.winners, 1)};
    }
    /// Of what must be the same on all ranks.
    [[nodiscard]] static std::uint64_t identity_of(request_view const& request,
                                                   std::span<token_id const> drafted) noexcept {
        mixed_number all;
        all.put(mixed(std::span(&request, 1)));
        for (token_id const x : drafted) all.put(std::uint64_t{static_cast<std::uint32_t>(x)});
        return all.value();
    }
    /// What this rank has of a draft's row: a slice, a list of tokens, or its own part of a row that all ranks have.
    [[nodiscard]] std::span<Q const> own_logits(distribution<Q> const& q) const {
        if (q.over()) return q.logits();
        if (q.logits().size() != slices_.vocabulary()) {
            fail_with("row_shards: a draft's row has ", q.logits().size(), " logits, expected ", slices_.vocabulary(),
                      ", or the slice that it was recorded as (distribution::slice)");
        }
        return q.logits().subspan(slices_.first(rank_), own_size());
    }
    [[nodiscard]] vocabulary_view own_tokens(distribution<Q> const& q) const {
        if (q.over() && q.over().list().empty() && !q.over().is_slice()) {
            fail_with("row_shards: a draft has a vocabulary_map, expected a slice or an ascending list of its tokens");
        }
        if (!q.keeps_all()) {
            fail_with("row_shards: a draft's row is truncated, expected a temperature alone: it is summed in slices");
        }
        return q.over() ? q.over() : own_tokens();
    }
    [[nodiscard]] vocabulary_view own_tokens() const noexcept { return slices_.tokens(rank_); }
    template <class X>
    using kind_of = typename sharded_row<X>::kind;
    [[nodiscard]] std::size_t own_size() const noexcept { return slices_.size(rank_); }

    vocabulary_slices const& slices_;
    std::size_t rank_;
    row_kernels const* kernels_ = nullptr;
    std::size_t block_size_ = 0;
    carved_rows<row_type> copies_{};  // [R (gamma + 1)] rows that are edited or masked
};

}  // namespace detail
SURELEAP_END_NAMESPACE
