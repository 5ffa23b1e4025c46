// SPDX-License-Identifier: MIT
//
// Verification alone, for an engine that drafts and scores by itself: arrays in its own layout go in, what it emits
// comes out. One call is a round of the library's stages (round/stages.hpp), whose drafter is given_drafts.
//
//     verifier_options const options{.drafts = {.block_size = 7, .vocabulary = V}, .max_requests = 64};
//     verifier<bf16, block_verification<>> verify{{}, options};
//     ...
//     verify({.requests = R,
//             .target = {logits, rows, V},
//             .row_begin = offsets,
//             .drafts = tokens_of_rows,
//             .q = {.rows = draft_logits, .slot_stride = 7 * V, .row_stride = V},
//             .positions = positions,
//             .settings = {.temperature = temperatures, .top_p = top_ps, .seeds = seeds},
//             .out = {.tokens = tokens, .counts = counts}});
//
// Nothing here can check two conditions of exactness. Drafts were drawn from the q that comes with them, or were found.
// And how many a request has was decided before it was known which (docs/losslessness.md).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/drafter/given.hpp>
#include <sureleap/round/check.hpp>
#include <sureleap/round/memory.hpp>
#include <sureleap/round/stages.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/sampling/slice_records.hpp>
#include <sureleap/schedule/simple.hpp>
#include <sureleap/traits.hpp>
#include <sureleap/verify/array_edits.hpp>
#include <sureleap/verify/engine_arrays.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What calls may hold, and what they report.
struct verifier_options {
    given_options drafts{};                ///< gamma, V, and what comes with drafts
    std::size_t max_requests = 1;          ///< most requests of a call
    std::size_t stop_tokens = 0;           ///< most of a request
    bool log_probabilities = false;        ///< of p, at temperature 0 of the row at temperature 1
    bool raw = false;                      ///< of the target's row as it came instead, at temperature 1
    bool ranks = false;                    ///< beside log-probabilities
    std::size_t likeliest = 0;             ///< n, the likeliest tokens beside each, and their log-probabilities
    executor_ref executor{};               ///< threads that share the requests of a call; must outlive the verifier
    row_kernels const* kernels = nullptr;  ///< null: the best that this machine runs
};

/// T: storage of the target's logits. Edits: array_edits where calls have edits; rows are copied then, in float. Q:
/// float or double, of what drafts were drawn from. Rng: models randomness.
///
/// Allocates when it is made and never again. A call passes over the drafts' rows of q, and over the rows of p up to
/// the first rejection: O(R gamma V) at most, about half of it where one of two drafts is accepted. What it emits for a
/// request depends on the request's own rows and settings alone.
template <class T, class Rule, class Edits = no_logits_hook, class Q = float, class Rng = philox_randomness>
class verifier {
    static_assert(std::is_same_v<Edits, no_logits_hook> || std::is_same_v<Edits, array_edits>,
                  "verifier: Edits is array_edits, if calls have a bitmask, bias or penalties, or no_logits_hook");

public:
    /// Throws if the options say what cannot be, or the rule cannot judge such drafts.
    explicit verifier(Rule rule, verifier_options const& options, Rng rng = {})
        : rule_(std::move(rule)),
          options_(options),
          rng_(std::move(rng)),
          drafter_(drafts_of(rule_, options.drafts)),
          memory_(drafter_, schedule_, rule_,
                  {.max_requests = options.max_requests,
                   .kernels = options.kernels,
                   .executor = options.executor,
                   .top_log_probabilities = options.likeliest}),
          requests_(options.max_requests),
          settings_(options.max_requests),
          drafts_(options.max_requests),
          slots_(options.max_requests),
          first_rows_(options.max_requests),
          tokens_(options.max_requests * options.drafts.block_size),
          parents_(options.drafts.trees ? tokens_.size() : 0),
          listed_(tokens_.size() * options.drafts.listed),
          stop_tokens_(options.max_requests * options.stop_tokens) {}

    /// The same of rows in slices (ranks/sharded_rows.hpp): target and q are this rank's columns of them, all else is
    /// the same on all ranks. shards: row_shards of these types, over options.drafts.slice. given: of target's rows.
    template <class Shards>
    std::span<verdict const> operator()(engine_arrays<T, Q> const& call, Shards& shards,
                                        slice_records const& given = {}) {
        return verify(call, [&](logits_rows<T> const& rows) { return shards.of(rows, given); });
    }
    /// Throws, with nothing decided, if the arrays do not fit each other or these options, or a setting is out of its
    /// range. What is wrong with the numbers of a row is its request's status. Drafts end at a token that is none of
    /// the vocabulary (status::invalid_draft), and at -1.
    ///
    /// Verdicts are valid until the next call. Those of the arrays in `out` that are there hold the same.
    std::span<verdict const> operator()(engine_arrays<T, Q> const& call) {
        return verify(call, [](logits_rows<T> const& rows) { return rows; });
    }

    [[nodiscard]] verifier_options const& options() const noexcept { return options_; }

private:
    /// `rows_as` makes of the target's rows what accept is handed.
    template <class RowsAs>
    std::span<verdict const> verify(engine_arrays<T, Q> const& call, RowsAs const& rows_as) {
        check(call);
        std::size_t const count = count_of(call);
        for (std::size_t r = 0; r < count; ++r) take(call, r);
        auto const requests = std::span{requests_}.first(count);
        drafter_.hand(std::span{drafts_}.first(count));
        for (std::size_t r = 0; r < count; ++r) memory_.join(r);
        if (begin_round(schedule_, requests, memory_)) {
            draw(drafter_, drafter_.forward(memory_.requests()), rule_, rng_, memory_);
        }
        static_cast<void>(admit(schedule_, memory_));
        logits_rows<T> rows{.values = call.target};
        rows.first_rows = std::span{first_rows_}.first(count);
        accept(rule_, rows_as(rows), edits_of(call), rng_, memory_);
        auto const verdicts = end_round(schedule_, memory_).verdicts;
        for (std::size_t r = 0; r < count; ++r) give(call.out, r, verdicts[r]);
        return verdicts;
    }
    /// A rule that reads no q is handed none.
    [[nodiscard]] static given_options drafts_of(Rule const& rule, given_options drafts) noexcept {
        drafts.keeps_q = drafts.keeps_q && traits_of(rule).access == q_access::row;
        return drafts;
    }
    [[nodiscard]] std::size_t block_size() const noexcept { return options_.drafts.block_size; }
    [[nodiscard]] std::size_t vocabulary() const noexcept { return options_.drafts.vocabulary; }

    [[nodiscard]] bool reads_q() const noexcept { return drafts_of(rule_, options_.drafts).keeps_q; }
    /// Numbers of a row of q.
    [[nodiscard]] std::size_t row_size() const noexcept {
        given_options const& drafts = options_.drafts;
        if (drafts.listed > 0) return drafts.listed;
        return drafts.slice ? drafts.slice.draft_size() : vocabulary();
    }

    [[nodiscard]] static std::size_t count_of(engine_arrays<T, Q> const& call) noexcept {
        auto const most = static_cast<std::int64_t>(call.requests);
        return static_cast<std::size_t>(std::clamp<std::int64_t>(call.count.value_or(0, most), 0, most));
    }
    void check(engine_arrays<T, Q> const& call) const {
        auto const need = [](bool there, char const* what) {
            if (!there) fail_with("verifier: ", what);
        };
        if (call.requests > options_.max_requests) {
            fail_with("verifier: there are ", call.requests,
                      " requests, expected at most max_requests = ", options_.max_requests);
        }
        need(call.settings.seeds || call.requests == 0, "seeds are null, expected a seed of each request");
        need(call.positions || call.requests == 0, "positions are null, expected the position of each anchor");
        need(!options_.drafts.trees || !call.drafts || call.parents,
             "parents are null, expected those of each draft: options.drafts.trees is true");
        need(!call.edits.bias_tokens || call.edits.bias, "bias is null, expected a number for each of bias_tokens");
        need(options_.drafts.listed == 0 || call.q.rows == nullptr || call.q.listed,
             "q.listed is null, expected the tokens of each row: options.drafts.listed is not 0");
        std::size_t const size = row_size();
        if (reads_q() && call.q.rows != nullptr && call.q.row_stride < size) {
            fail_with("verifier: q.row_stride is ", call.q.row_stride, ", expected at least ", size,
                      ", the numbers of a row");
        }
        if (call.settings.stop_tokens && call.settings.stop_stride > options_.stop_tokens) {
            fail_with("verifier: stop_stride is ", call.settings.stop_stride,
                      ", expected at most options.stop_tokens = ", options_.stop_tokens);
        }
        if (call.edits.bitmask != nullptr && call.edits.bitmask_stride < mask_words(vocabulary())) {
            fail_with("verifier: bitmask_stride is ", call.edits.bitmask_stride, ", expected at least ",
                      mask_words(vocabulary()), " words, a bit for each of the ", vocabulary(), " tokens");
        }
        if constexpr (std::is_same_v<Edits, no_logits_hook>) {
            edit_arrays const& e = call.edits;
            need(e.bitmask == nullptr && !e.bias_tokens && !e.repetition && !e.frequency && !e.presence,
                 "the call has edits, expected a verifier<T, Rule, array_edits>, which makes them");
        }
    }

    /// Request r of the call, as the stages see it.
    void take(engine_arrays<T, Q> const& call, std::size_t r) {
        slots_[r] = call.slot(r);
        first_rows_[r] = call.first_row(r, block_size());
        std::size_t const length = take_drafts(call, r);
        std::int64_t const remaining = call.remaining.value_or(r, static_cast<std::int64_t>(block_size() + 1));
        take_settings(call, r, remaining);
        std::size_t const at = call.positions_of_rows ? first_rows_[r] : r;
        requests_[r] = {.id = r,
                        .slot = r,
                        .anchor = 0,
                        .position = static_cast<std::uint64_t>(call.positions[at]),
                        .seed = static_cast<std::uint64_t>(call.settings.seeds[slots_[r]]),
                        .remaining = static_cast<std::size_t>(remaining),
                        .settings = &settings_[r],
                        .draft_limit = length};
        take_q(call, r, length);
    }
    /// How many drafts there are.
    [[nodiscard]] std::size_t take_drafts(engine_arrays<T, Q> const& call, std::size_t r) {
        std::size_t length = call.drafts ? block_size() : 0;
        if (call.row_begin) {
            std::int64_t const rows = call.row_begin[r + 1] - call.row_begin[r];
            if (call.row_begin[r] < 0 || rows < 1 || rows > static_cast<std::int64_t>(block_size() + 1)) {
                fail_with("verifier: row_begin[", r, "] is ", call.row_begin[r], " and row_begin[", r + 1, "] ",
                          call.row_begin[r + 1], ", expected 1 .. gamma + 1 = ", block_size() + 1, " rows between");
            }
            if (call.target.data != nullptr && static_cast<std::size_t>(call.row_begin[r + 1]) > call.target.rows) {
                fail_with("verifier: row_begin[", r + 1, "] is ", call.row_begin[r + 1], ", expected at most ",
                          call.target.rows, ", the rows of the target");
            }
            length = call.drafts ? static_cast<std::size_t>(rows) - 1 : 0;
        }
        std::size_t const first = call.first_draft(r, block_size());
        for (std::size_t k = 0; k < length; ++k) {
            std::int64_t const x = call.drafts[first + k];
            if (x == no_token) {
                length = k;
                break;
            }
            bool const known = x >= 0 && static_cast<std::uint64_t>(x) < vocabulary();
            tokens_[r * block_size() + k] = known ? static_cast<token_id>(x) : std::numeric_limits<token_id>::min();
            if (!options_.drafts.trees) continue;
            std::int64_t const parent = call.parents[first + k];
            if (parent < 0 || parent > static_cast<std::int64_t>(k)) {
                fail_with("verifier: of request ", r, " draft ", k, " has the parent ", parent, ", expected 0 .. ", k,
                          ": the anchor, or 1 + the index of a draft before");
            }
            parents_[r * block_size() + k] = static_cast<node_id>(parent);
        }
        return length;
    }
    void take_settings(engine_arrays<T, Q> const& call, std::size_t r, std::int64_t remaining) {
        settings_arrays const& given = call.settings;
        std::size_t const s = slots_[r];
        request_settings& own = settings_[r];
        own = {};
        own.temperature = given.temperature.value_or(s, 1.0);
        std::int64_t const top_k = given.top_k.value_or(s, 0);
        own.top_k = top_k < 1 || static_cast<std::uint64_t>(top_k) >= vocabulary() ? 0 : static_cast<int>(top_k);
        own.top_p = given.top_p.value_or(s, 1.0);
        own.min_p = given.min_p.value_or(s, 0.0);
        if (given.draft_temperature) own.draft = transform{.temperature = given.draft_temperature[s]};
        own.log_probabilities = options_.log_probabilities || options_.ranks || options_.likeliest > 0;
        own.raw_log_probabilities = options_.raw;
        own.ranks = options_.ranks;
        own.top_log_probabilities = options_.likeliest;
        if (remaining < 1) {
            fail_with("verifier: remaining[", r, "] is ", remaining, ", expected at least 1 token that it may emit");
        }
        own.max_new_tokens = static_cast<std::size_t>(remaining);
        if (given.stop_tokens) {
            auto const stops = std::span{stop_tokens_}.subspan(r * options_.stop_tokens, given.stop_stride);
            for (std::size_t i = 0; i < stops.size(); ++i) {
                stops[i] = static_cast<token_id>(given.stop_tokens[s * given.stop_stride + i]);
            }
            own.stop_tokens = stops;
        }
#if SURELEAP_EXCEPTIONS
        try {
            check_settings(own, traits_of(rule_));
        } catch (error const& e) {
            fail_with("verifier: request ", r, ": ", e.what());
        }
#else
        check_settings(own, traits_of(rule_));
#endif
        double const repetition = call.edits.repetition.value_or(s, 1.0);
        if (!(repetition > 0.0) || !std::isfinite(repetition)) {
            fail_with("verifier: request ", r, ": repetition is ", repetition, ", expected a finite number above 0");
        }
    }
    void take_q(engine_arrays<T, Q> const& call, std::size_t r, std::size_t length) {
        given_options const& how = options_.drafts;
        given_draft<Q>& draft = drafts_[r];
        std::size_t const first = r * block_size();
        draft = {.tokens = std::span{tokens_}.subspan(first, length)};
        if (how.trees) draft.parents = std::span{parents_}.subspan(first, length);
        // p of a greedy request is one token, whatever was drafted, and an argmax need not be the one of q's ties.
        transform const q_is = settings_[r].draft_transform();
        draft.found = !how.trees && (call.q.rows == nullptr || settings_[r].target_transform().greedy() ||
                                     (!how.probabilities && q_is.greedy()));
        if (!reads_q() || draft.found || call.q.rows == nullptr) return;
        std::size_t const size = row_size();
        draft.q = {call.q.rows + call.first_q(r), length, size, call.q.row_stride};
        if (how.listed == 0) return;
        std::span<token_id> const listed = std::span{listed_}.subspan(first * size, length * size);
        for (std::size_t i = 0; i < listed.size(); ++i) {
            std::size_t const at = call.first_q(r) + i / size * call.q.row_stride + i % size;
            std::int64_t const x = call.q.listed[at];
            bool const known = x < static_cast<std::int64_t>(vocabulary());
            listed[i] = known && x >= no_token ? static_cast<token_id>(x) : std::numeric_limits<token_id>::min();
        }
        draft.listed = {listed.data(), length, size};
    }
    [[nodiscard]] Edits edits_of(engine_arrays<T, Q> const& call) const noexcept {
        if constexpr (std::is_same_v<Edits, array_edits>) {
            return array_edits{call.edits, {slots_, first_rows_, block_size(), tokens_, parents_}};
        } else {
            return {};
        }
    }

    void give(verified_arrays const& out, std::size_t r, verdict const& v) const noexcept {
        constexpr double none = std::numeric_limits<double>::quiet_NaN();
        std::size_t const count = v.emitted.size();
        std::size_t const n = options_.likeliest;
        bool const logs = v.log_probabilities.size() == count;
        for (std::size_t k = 0; k <= block_size(); ++k) {
            std::size_t const i = r * (block_size() + 1) + k;
            bool const there = k < count;
            out.tokens.store(i, there ? v.emitted[k] : no_token);
            out.log_probabilities.store(i, there && logs ? v.log_probabilities[k] : none);
            out.ranks.store(i, there && !v.ranks.empty() ? static_cast<std::int64_t>(v.ranks[k]) : 0);
            for (std::size_t j = 0; j < n; ++j) {
                token_log_probability const t = there ? v.top_log_probabilities[k * n + j] : token_log_probability{};
                out.top_tokens.store(i * n + j, t.token);
                out.top_log_probabilities.store(i * n + j, t.token == no_token ? none : t.log_probability);
            }
        }
        out.counts.store(r, static_cast<std::int64_t>(count));
        out.accepted.store(r, static_cast<std::int64_t>(v.accepted));
        out.next_anchors.store(r, v.next_anchor());
        for (std::size_t k = 0; k < block_size(); ++k) {
            out.paths.store(r * block_size() + k, k < v.path.size() ? v.path[k] : no_node);
        }
        status const what = v.outcome == status::ok ? v.draft_outcome : v.outcome;
        if (out.statuses != nullptr) out.statuses[r] = static_cast<std::uint8_t>(what);
        if (out.finished != nullptr) out.finished[r] = static_cast<std::uint8_t>(v.finished);
    }

    Rule rule_;
    verifier_options options_;
    Rng rng_;
    fixed_schedule schedule_{};
    given_drafts<Q> drafter_;
    round_memory<T, Q, Edits> memory_;
    // Of a call, [R] or as it says there:
    std::vector<request_view> requests_;
    std::vector<request_settings> settings_;
    std::vector<given_draft<Q>> drafts_;
    std::vector<std::size_t> slots_;
    std::vector<std::size_t> first_rows_;
    std::vector<token_id> tokens_;       // [R, gamma]
    std::vector<node_id> parents_;       // [R, gamma]
    std::vector<token_id> listed_;       // [R, gamma, n]
    std::vector<token_id> stop_tokens_;  // [R, most]
};

SURELEAP_END_NAMESPACE
