// SPDX-License-Identifier: MIT
//
// The accept stage over rows that lie in slices on several ranks: every rank hands over its own columns of the target's
// rows, and all of them come to the same verdicts. No row is gathered.
//
//     vocabulary_slices const slices = vocabulary_slices::even(V, ranks.size());
//     row_shards<float, mpi_ranks> shards{ranks, slices, {.max_requests = 64, .block_size = gamma}};
//     ...
//     accept(rule, shards.of(own_columns), no_logits_hook{}, rng, memory);
//
// The ranks run the same rounds, of the same requests with the same drafts (rank_consensus). A drafter records its own
// columns of q (draft_block::append_drawn). Any rule takes part as it is (questions.hpp). Exchanges of a round, however
// many requests and drafts it has:
//
//     greedy_match                       1: the largest logit of each rank
//     keyed_coupling                     2: logits of the drafts, by which few tokens can win a race; its winners
//     target_match                       2: sums of parts; the token of each row
//     token_rejection                    3: sums of parts, with p and q of the drafts; the residual's masses; the token
//     block_verification                 3: the same, masses for every prefix at once
//     recursive_rejection and the like   2 or 3, and one for each rejected child of the request that has most of them
//
// What is exchanged of a row is 8 bytes for each part of its vocabulary. A top-k of at most 256 takes no exchange more.
// Other truncations take up to five more, ten if both top-k and top-p are searched (cuts.hpp).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/concepts.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/executor.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/detail/kernel/native.hpp>
#include <sureleap/detail/kernel/rows.hpp>
#include <sureleap/ranks/answers.hpp>
#include <sureleap/ranks/questions.hpp>
#include <sureleap/ranks/rank_consensus.hpp>
#include <sureleap/ranks/sharded_draws.hpp>
#include <sureleap/ranks/sharded_law.hpp>
#include <sureleap/ranks/sharded_source.hpp>
#include <sureleap/ranks/sharded_verification.hpp>
#include <sureleap/ranks/slice_reader.hpp>
#include <sureleap/ranks/slice_row.hpp>
#include <sureleap/ranks/vocabulary_slices.hpp>
#include <sureleap/round/judge.hpp>
#include <sureleap/round/memory.hpp>
#include <sureleap/sampling/slice_records.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>
#include <sureleap/verify/target_laws.hpp>
#include <sureleap/verify/verification.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The same on all ranks, but for what is a rank's own.
struct row_shards_options {
    std::size_t max_requests = 1;          ///< of a round
    std::size_t block_size = 0;            ///< gamma, most drafted tokens of a request
    bool constrained = false;              ///< requests may have constraints or min_new_tokens, as round_limits says
    row_kernels const* kernels = nullptr;  ///< null: the best that this machine runs
    executor_ref executor{};               ///< own: threads that share the passes over the slice
};

template <class T, communicator Ranks, class Q, class Hook>
class row_shards;

/// The columns of one rank, for accept: what a target returns whose ranks have slices. A view; `values` is [rows,
/// tokens of the slice].
template <class T, communicator Ranks, class Q, class Hook>
struct sharded_rows : logits_rows<T> {
    row_shards<T, Ranks, Q, Hook>& shards;
    slice_records given{};

    sharded_rows(logits_rows<T> const& own, row_shards<T, Ranks, Q, Hook>& all, slice_records const& some) noexcept
        : logits_rows<T>(own), shards(all), given(some) {}
};

namespace detail {

template <class Hook>
inline constexpr bool takes_slices_v =
    std::is_same_v<Hook, no_logits_hook> || requires { requires Hook::takes_slices; };

/// In the place of a row that nobody has.
struct no_whole_row {};

/// Log p of x, where p lies in slices.
template <class T>
[[nodiscard]] double log_probabilities_of(request_settings const&, sharded_law<T> const& p, no_whole_row, token_id x,
                                          row_kernels const&, std::span<token_log_probability>,
                                          std::uint32_t&) noexcept {
    return p.log_probability(x);
}

}  // namespace detail

/// What a rank keeps for the accept stage of rounds whose rows lie in slices. T: storage of the target's logits, Q: of
/// the draft's, Hook: the logits hook of the rounds, which says `static constexpr bool takes_slices = true`: it edits
/// tokens hook_context::first_token and on.
///
/// Allocates when it is made, and never again. A round passes over all rows of the slice, and over those of the
/// residuals: O(R gamma V / ranks).
template <class T, communicator Ranks, class Q = compute_t<T>, class Hook = no_logits_hook>
class row_shards {
    static_assert(
        detail::takes_slices_v<Hook>,
        "row_shards: this hook edits whole rows. Let it edit the tokens from hook_context::first_token on, and "
        "say static constexpr bool takes_slices = true");

    using reader_type = detail::slice_reader<T, Q, Hook>;
    using row_type = typename reader_type::row_type;
    using request_type = typename reader_type::request_type;
    using answers_type = detail::rank_answers<row_type, Q>;
    using question = detail::rank_question;
    using target_real = compute_t<row_type>;

public:
    /// `ranks` must outlive it. Throws if the slices are not one for each rank.
    row_shards(Ranks& ranks, vocabulary_slices slices, row_shards_options const& options)
        : ranks_(ranks), slices_(std::move(slices)), options_(options) {
        if (slices_.ranks() != ranks.size()) {
            fail_with("row_shards: there are ", slices_.ranks(), " slices, expected one for each of the ", ranks.size(),
                      " ranks");
        }
        if (options.max_requests == 0) fail_with("row_shards: max_requests is 0, expected at least 1");
        if (options_.kernels == nullptr) options_.kernels = &native_kernels<row_kernels>();
        workspace sizer;
        carve(sizer);
        memory_.resize(sizer.used());
        workspace ws{memory_};
        carve(ws);
        failures_.resize(options.max_requests);
        own_.resize(most_bytes(slices_, options_));
        all_.resize(own_.size() * ranks.size());
    }
    row_shards(row_shards const&) = delete;
    row_shards& operator=(row_shards const&) = delete;

    [[nodiscard]] vocabulary_slices const& slices() const noexcept { return slices_; }
    [[nodiscard]] std::size_t rank() const noexcept { return ranks_.rank(); }
    /// What accept is handed: rows of this rank's tokens. `given` is known of them, as from a device: it saves the
    /// passes over rows that no hook or mask changes, whose logits only residuals, draws and cuts then read.
    [[nodiscard]] sharded_rows<T, Ranks, Q, Hook> of(logits_rows<T> const& own_columns,
                                                     slice_records const& given = {}) noexcept {
        return {own_columns, *this, given};
    }
    /// Most bytes that a rank sends in one exchange, for the communicator's own limit.
    [[nodiscard]] static std::size_t most_bytes(vocabulary_slices const& slices, row_shards_options const& options) {
        return sizeof(header) + options.max_requests * answers_type::most_bytes(slices, options.block_size);
    }

    /// Used by accept: there is room for rounds of these sizes.
    void expect_room(round_sizes const& sizes) const {
        if (sizes.max_requests <= options_.max_requests && sizes.block_size <= options_.block_size) return;
        fail_with("row_shards: made for ", options_.max_requests, " requests with ", options_.block_size,
                  " drafts each, expected at least ", sizes.max_requests, " and ", sizes.block_size,
                  ", as the round_memory has");
    }
    /// Used by accept.
    template <class Rule, class Rng>
    void judge(Rule const& rule, sharded_rows<T, Ranks, Q, Hook> const& rows, Hook const& hook, Rng& rng,
               detail::round_state<T, Q, Hook>& round) {
        std::size_t const requests = round.batch.requests().size();
        for (std::size_t r = 0; r < requests; ++r) {
            requests_[r].open = detail::open_verdict(r, rows.pass, round);
            if (requests_[r].open) reader_.prepare(r, requests_[r], round);
        }
        std::exception_ptr const failure = read_all_targets(requests, rows, hook, round);
        while (decide_all(requests, rule, rng, round) || failure) {
            status const how = exchange(requests, rng, failure != nullptr);
            // Nobody has emitted anything: others end the round, and this rank says what happened.
#if SURELEAP_EXCEPTIONS
            if (failure) std::rethrow_exception(failure);
#endif
            if (how == status::ok) continue;
            for (std::size_t r = 0; r < requests; ++r) {
                if (round.verdicts[r].outcome == status::ok) void_verdict(r, how, round);
            }
            return;
        }
    }

private:
    struct header {
        std::uint64_t questions = 0;  // a checksum of what is asked
        std::uint64_t failed = 0;     // the rank's hook threw
    };

    void carve(workspace& ws) noexcept {
        std::size_t const parts = slices_.parts().size();
        requests_ = ws.take<request_type>(options_.max_requests);
        for (std::size_t r = 0; r < options_.max_requests; ++r) {
            request_type one(ws, options_.block_size, parts);
            if (!ws.counting()) requests_[r] = one;
        }
        auto const listed = ws.take<detail::slice_mode<target_real>>(slices_.ranks() * request_type::most_listed);
        for (std::size_t r = 0; !ws.counting() && r < options_.max_requests; ++r) requests_[r].listed = listed;
        reader_.carve(ws, options_.max_requests, options_.block_size, options_.constrained, *options_.kernels);
        offsets_ = ws.take<std::size_t>(options_.max_requests + 1);
    }
    [[nodiscard]] std::size_t own_size() const noexcept { return slices_.size(ranks_.rank()); }

    // ---- a request ---------------------------------------------------------------------------------------------

    /// The rows of all requests, and what a hook threw at the first of them where one did: the other ranks wait for an
    /// exchange.
    [[nodiscard]] std::exception_ptr read_all_targets(std::size_t requests, sharded_rows<T, Ranks, Q, Hook> const& rows,
                                                      Hook const& hook, detail::round_state<T, Q, Hook>& round) {
        std::fill_n(failures_.begin(), requests, nullptr);
        std::size_t workers = 1;
        if (reader_.copies()) workers = threads_for(requests);
        if (round.parts.rule_is.judges_trees) workers = std::min(workers, round.trees.size());
        detail::share_out(options_.executor, workers, requests, [&](std::size_t worker, std::size_t r) {
            if (!requests_[r].open) return;
#if SURELEAP_EXCEPTIONS
            try {
                reader_.read_targets(r, requests_[r], worker, rows, rows.given, hook, round);
            } catch (...) {
                failures_[r] = std::current_exception();
            }
#else
            reader_.read_targets(r, requests_[r], worker, rows, rows.given, hook, round);
#endif
        });
        for (std::size_t r = 0; r < requests; ++r) {
            if (failures_[r]) return failures_[r];
        }
        return nullptr;
    }
    [[nodiscard]] std::size_t threads_for(std::size_t requests) const noexcept {
        return std::min(options_.executor.worth(requests * (options_.block_size + 1) * own_size()), requests);
    }
    // ---- decisions ---------------------------------------------------------------------------------------------

    /// Runs the rule for all requests that are open. False if none waits.
    template <class Rule, class Rng>
    [[nodiscard]] bool decide_all(std::size_t requests, Rule const& rule, Rng& rng,
                                  detail::round_state<T, Q, Hook>& round) {
        bool waits = false;
        for (std::size_t r = 0; r < requests; ++r) {
            if (!requests_[r].open) continue;
            requests_[r].open = !decide(r, rule, rng, round);
            waits = waits || requests_[r].open;
        }
        return waits;
    }
    /// False if it waits for others.
    template <class Rule, class Rng>
    [[nodiscard]] bool decide(std::size_t r, Rule const& rule, Rng& rng, detail::round_state<T, Q, Hook>& round) {
        request_type& of = requests_[r];
        request_view const& request = round.batch.requests()[r];
        judged_drafts const drafts = round.parts.rule_is.judges_trees
                                         ? judged_drafts{request, detail::plant(r, 0, round, of.length)}
                                         : judged_drafts{request, of.drafted.tokens.first(of.length)};
        sharded_verification<row_type, Q> view{drafts, of, slices_};
        sharded_source source{view, rng};
        decision const d = detail::decide(rule, view, source);
        if (request.settings->log_probabilities && d.valid) {  // of drafted tokens, whose logits come with the sums
            for (std::size_t n = 0; n <= of.length; ++n) static_cast<void>(view.law_of(n).valid());
            static_cast<void>(view.law_of(d.row).log_probability(d.next));
        }
        if (of.questions.waits()) return false;
        verdict& out = round.verdicts[r];
        if (of.bad_drafts) {
            out.draft_outcome = status::invalid_draft;
            out.verified = of.length;
        }
        auto const whole_row = [](std::size_t) { return detail::no_whole_row{}; };
        if (!detail::give_verdict(r, d, view, whole_row, round)) out.outcome = status::invalid_target;
        return true;
    }
    /// Nothing is emitted, what was decided either.
    static void void_verdict(std::size_t r, status why, detail::round_state<T, Q, Hook>& round) noexcept {
        verdict& v = round.verdicts[r];
        v = {.id = v.id,
             .slot = v.slot,
             .outcome = why,
             .draft_outcome = v.draft_outcome,
             .drafted = v.drafted,
             .verified = v.verified,
             .pass = v.pass};
    }

    // ---- an exchange -------------------------------------------------------------------------------------------

    /// Asks all ranks what requests wait for.
    template <class Rng>
    [[nodiscard]] status exchange(std::size_t requests, Rng& rng, bool failed) noexcept {
        detail::mixed_number checksum;
        offsets_[0] = sizeof(header);
        for (std::size_t r = 0; r < requests; ++r) {
            std::size_t bytes = 0;
            for (question const& q : questions(r)) {
                if (q.answered) continue;
                bytes += answers_.bytes_of(requests_[r], q);
                put_into(checksum, r, q);
            }
            offsets_[r + 1] = offsets_[r] + bytes;
        }
        std::size_t const size = offsets_[requests];
        SURELEAP_EXPECTS(size <= own_.size());
        header const mine{checksum.value(), failed ? 1u : 0u};
        std::memcpy(own_.data(), &mine, sizeof mine);
        std::size_t const workers = concurrent_randomness<Rng> ? threads_for(requests) : 1;
        detail::share_out(options_.executor, workers, requests, [&](std::size_t, std::size_t r) {
            detail::byte_writer out{own_.data() + offsets_[r]};
            for (question const& q : questions(r)) {
                if (!q.answered) answers_.say(requests_[r], q, out, rng);
            }
        });
        auto const all = std::span(all_).first(size * ranks_.size());
        if (!ranks_.gather(std::span<std::byte const>(own_).first(size), all)) return status::ranks_lost;
        status how = status::ok;
        for (std::size_t i = 0; i < ranks_.size(); ++i) {
            header theirs;
            std::memcpy(&theirs, all.data() + i * size, sizeof theirs);
            if (theirs.failed != 0) return status::ranks_lost;
            if (theirs.questions != mine.questions) how = status::ranks_differ;
        }
        if (how != status::ok) return how;
        for (std::size_t r = 0; r < requests; ++r) {
            std::size_t at = offsets_[r];
            for (question& q : questions(r)) {
                if (q.answered) continue;
                answers_.hear(requests_[r], q, all.data() + at, size);
                q.answered = true;
                at += answers_.bytes_of(requests_[r], q);
            }
            answers_.shorten(requests_[r]);
        }
        return status::ok;
    }
    [[nodiscard]] std::span<question> questions(std::size_t r) const noexcept {
        return requests_[r].open ? requests_[r].questions.asked() : std::span<question>{};
    }
    void put_into(detail::mixed_number& checksum, std::size_t r, question const& q) const noexcept {
        checksum.put(std::uint64_t{r});
        checksum.put(requests_[r].identity);
        checksum.put(static_cast<std::uint64_t>(q.what));
        checksum.put(std::uint64_t{q.row} << 32 | q.part);
        checksum.put(q.a);
        checksum.put(q.b);
        checksum.put(q.mass);
        checksum.put(q.key.position);
        checksum.put(std::uint64_t{q.rejected.size()});
    }

    Ranks& ranks_;
    vocabulary_slices slices_;
    reader_type reader_{slices_, ranks_.rank()};
    answers_type answers_{slices_, ranks_.rank()};
    row_shards_options options_;
    std::vector<std::byte> memory_;
    std::span<request_type> requests_{};
    std::span<std::size_t> offsets_{};
    std::vector<std::exception_ptr> failures_;  // [R] what a hook threw
    std::vector<std::byte> own_;
    std::vector<std::byte> all_;
};

/// Accept (round/stages.hpp), by rows in slices. All ranks come to the same verdicts. A row without a law on any rank
/// gives its request the status invalid_target on all of them.
///
/// Where a rank is lost, or asks something else, the round ends on those who notice: ranks_lost or ranks_differ, with
/// nothing emitted. Where a rank's hook throws, the exception comes out there, and the others have lost a rank.
template <class Rule, class Row, communicator Ranks, class DraftReal, class RowHook, class Rng, class T, class Q,
          class Hook>
void accept(Rule const& rule, sharded_rows<Row, Ranks, DraftReal, RowHook> const& rows, RowHook const& hook, Rng& rng,
            round_memory<T, Q, Hook>& memory) {
    static_assert(std::is_same_v<Row, T> && std::is_same_v<DraftReal, Q> && std::is_same_v<RowHook, Hook>,
                  "accept: the row_shards are of other types than the round_memory; make both of the same target "
                  "storage, draft type and hook");
    if constexpr (std::is_same_v<Row, T> && std::is_same_v<DraftReal, Q> && std::is_same_v<RowHook, Hook>) {
        auto& round = detail::round_access::state(memory);
        detail::expect_accept(rule, rows.pass, round);
        detail::expect_shape(rows, round.batch, rows.shards.slices().size(rows.shards.rank()));
        rows.shards.expect_room(memory.sizes());
        rows.shards.judge(rule, rows, hook, rng, round);
        round.at.judged = true;
        round.at.scored = rows.pass;
    }
}

SURELEAP_END_NAMESPACE
