// SPDX-License-Identifier: MIT
//
// What is the same in all rounds of the C interface, whatever they are made of: how far a round has come, the requests
// as the library sees them, and verdicts as C sees them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include <sureleap/c/round.h>
#include <sureleap/c/calibration.hpp>
#include <sureleap/c/chain_writer.hpp>
#include <sureleap/c/handle.hpp>
#include <sureleap/c/parts.hpp>
#include <sureleap/core/calibration_ref.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/token_mask.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/round/record.hpp>
#include <sureleap/round/request_place.hpp>
#include <sureleap/verify/verdict.hpp>
#include <sureleap/verify/verify_batch.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace c {

/// sureleap_request::text_end, as a request's settings lend it.
struct lent_text_end {
    sureleap_text_end ends = nullptr;
    void* of = nullptr;

    [[nodiscard]] bool operator()(request_view const& request, std::span<token_id const> emitted) const noexcept {
        return ends(of, request.id, emitted.data(), emitted.size()) != 0;
    }
};

/// sureleap_request::constraint, likewise.
struct lent_constraint {
    sureleap_constraint allows = nullptr;
    void* of = nullptr;
    std::size_t words = 0;

    [[nodiscard]] token_mask operator()(request_view const& request, std::span<token_id const> drafted) const noexcept {
        std::int32_t const* const bits = allows(of, request.id, drafted.data(), drafted.size());
        return bits == nullptr ? token_mask{} : token_mask{std::span(bits, words)};
    }
};

/// Arrays of a round beside those of its round_memory.
struct round_arrays {
    std::span<request_settings> settings{};           ///< [max_requests]
    std::span<request_view> views{};                  ///< [max_requests]
    std::span<lent_text_end> ends{};                  ///< [max_requests]
    std::span<lent_constraint> constraints{};         ///< [max_requests]
    std::span<chain_writer::listed> lists{};          ///< [list_size], if q is sparse
    std::span<sureleap_token_log_probability> top{};  ///< [max_requests, gamma + 1, top_log_probabilities]

    [[nodiscard]] static round_arrays carve(workspace& ws, sureleap_round_options const& o) noexcept {
        return {ws.take<request_settings>(o.max_requests),
                ws.take<request_view>(o.max_requests),
                ws.take<lent_text_end>(o.max_requests),
                ws.take<lent_constraint>(o.max_requests),
                ws.take<chain_writer::listed>(o.q == SURELEAP_Q_SPARSE ? o.list_size : 0),
                ws.take<sureleap_token_log_probability>(o.max_requests * (o.block_size + 1) * o.top_log_probabilities)};
    }
};

/// A round behind its handle. Calls come in order, or are refused.
class round_base {
public:
    round_base(round_base const&) = delete;
    round_base& operator=(round_base const&) = delete;
    virtual ~round_base() = default;

    void join(std::size_t slot) { forget_slot(slot); }

    void begin(sureleap_request const* requests, std::size_t count, std::size_t* caps) {
        expect_lent("sureleap_round_begin");
        if (count > options_.max_requests) {
            fail_with("sureleap_round_begin: there are ", count,
                      " requests, expected at most max_requests = ", options_.max_requests);
        }
        if (count > 0) expect_given("sureleap_round_begin", "requests", requests);
        for (std::size_t r = 0; r < count; ++r) check(r, requests[r]);
        at_ = stage::none;  // what was begun before is given up: its requests' settings are overwritten
        has_record_ = false;
        for (std::size_t r = 0; r < count; ++r) take(requests[r], r);
        auto const round = begin_stage(arrays_.views.first(count));
        count_ = count;
        planned_ = opened_ = false;
        at_ = stage::begun;
        for (std::size_t r = 0; caps != nullptr && r < count; ++r) caps[r] = round[r].draft_cap(options_.block_size);
    }
    void plan(double const* confidences, std::size_t stride) {
        char const* const who = "sureleap_round_plan";
        expect(who, at_ == stage::begun && !opened_, "a round that has begun, before anything is drafted in it");
        if (options_.schedule != SURELEAP_PLANNED) {
            fail_with(who, ": schedule is ", options_.schedule,
                      ", expected SURELEAP_PLANNED: no other plans at the anchor");
        }
        if (count_ > 0) {
            expect_given(who, "confidences", confidences);
            expect_size(who, "stride", stride, options_.block_size, static_cast<std::size_t>(-1) / 16 / count_);
        }
        expect_lent(who);
        plan_stage({confidences, stride});
        planned_ = true;
    }
    void draft(sureleap_drafts const* drafts) {
        char const* const who = "sureleap_round_draft";
        expect(who, at_ == stage::begun, "a round that has begun and is not admitted");
        bool const plans = options_.schedule == SURELEAP_PLANNED;
        expect(who, !plans || planned_, "sureleap_round_plan before it: this schedule plans");
        expect_given(who, "drafts", drafts);
        writer_.check_drafts(*drafts, count_);
        expect_lent(who);
        if (!opened_) open_stage();
        opened_ = true;
        append_stage(*drafts);
    }
    void admit(sureleap_batch* out) {
        expect("sureleap_round_admit", at_ == stage::begun, "a round that has begun and is not admitted");
        expect_given("sureleap_round_admit", "batch", out);
        expect_lent("sureleap_round_admit");
        verify_batch const& batch = admit_stage();
        at_ = stage::admitted;
        *out = {batch.rows(),          count_, batch.tokens().data(), batch.positions().data(), batch.markers().data(),
                batch.offsets().data()};
        offsets_ = batch.offsets();
        rows_ = batch.rows();
    }
    void accept(sureleap_rows const* rows) {
        char const* const who = "sureleap_round_accept";
        expect(who, at_ == stage::admitted || at_ == stage::judged, "a round that is admitted");
        expect_given(who, "rows", rows);
        if (rows_ > 0) check(who, *rows);
        accept_stage(*rows);
        at_ = stage::judged;
    }
    void end(sureleap_verdict* verdicts, std::size_t capacity) {
        char const* const who = "sureleap_round_end";
        expect(who, at_ == stage::judged, "a round that is judged: sureleap_round_accept before it");
        if (count_ > 0) {
            expect_given(who, "verdicts", verdicts);
            expect_size(who, "capacity", capacity, count_, static_cast<std::size_t>(-1));
        }
        record_ = end_stage();
        at_ = stage::none;
        for (std::size_t r = 0; r < count_; ++r) {
            verdicts[r] = as_c(record_.verdicts[r], offsets_[r + 1] - offsets_[r]);
            verdicts[r].top_log_probabilities = top_of(r, record_.verdicts[r].top_log_probabilities);
        }
        has_record_ = true;
    }
    void rollback() noexcept { at_ = stage::none; }

    /// Of the round that ended last, if no other has begun.
    [[nodiscard]] round_record const& ended() const {
        if (!has_record_) {
            fail_as(SURELEAP_WRONG_ORDER,
                    "sureleap_calibration_observe: no round has ended, or the next has begun; "
                    "observe after sureleap_round_end");
        }
        return record_;
    }

protected:
    round_base(sureleap_round_options const& o, round_arrays const& arrays)
        : options_(o),
          writer_(o, arrays.lists),
          arrays_(arrays),
          seeds_(o.seed != 0 ? std::optional(o.seed) : std::nullopt) {}

    virtual void forget_slot(std::size_t slot) = 0;
    /// Returns the requests as they take part.
    virtual std::span<request_view const> begin_stage(std::span<request_view const> requests) = 0;
    virtual void plan_stage(chain_writer::forward_type const& forward) = 0;
    virtual void open_stage() = 0;
    virtual void append_stage(sureleap_drafts const& drafts) = 0;
    virtual verify_batch const& admit_stage() = 0;
    virtual void accept_stage(sureleap_rows const& rows) = 0;
    virtual round_record end_stage() = 0;

    [[nodiscard]] sureleap_round_options const& options() const noexcept { return options_; }
    [[nodiscard]] chain_writer& writer() noexcept { return writer_; }

private:
    enum class stage : unsigned char { none, begun, admitted, judged };

    static void expect(char const* who, bool so, char const* what) {
        if (!so) fail_as(SURELEAP_WRONG_ORDER, who, ": called out of order, expected ", what);
    }
    // Where a calibration lay another may lie by now, for fewer positions.
    void expect_lent(char const* who) const {
        bool const cost = options_.cost == nullptr || options_.schedule < SURELEAP_GREEDY ||
                          handle<sureleap_cost>::lives(options_.cost);
        bool const calibration =
            options_.calibration == nullptr || handle<sureleap_calibration>::lives(options_.calibration);
        if (!cost || !calibration) {
            fail_as(SURELEAP_INVALID_HANDLE, who, ": the ", cost ? "calibration" : "cost",
                    " that was lent is destroyed, expected it to outlive the round");
        }
        if (options_.calibration != nullptr) {
            calibration_ref(options_.calibration->maps).expect_serves({options_.max_requests, options_.block_size});
        }
    }
    void check(std::size_t r, sureleap_request const& q) const {
        if (q.stop_token_count > 0) expect_given("sureleap_round_begin", "stop_tokens", q.stop_tokens);
        expect_size("sureleap_round_begin", "stop_token_count", q.stop_token_count, 0, std::size_t{1} << 20);
        if (options_.rule == SURELEAP_GREEDY_MATCH && !(q.target.temperature < least_temperature)) {
            fail_with("sureleap_round_begin: request ", r, " (id ", q.id, ") has temperature ", q.target.temperature,
                      ", expected 0: this acceptance rule decodes greedily; use another for sampling");
        }
    }
    void take(sureleap_request const& q, std::size_t r) noexcept {
        request_settings& s = arrays_.settings[r];
        s = {.temperature = q.target.temperature,
             .top_k = q.target.top_k,
             .top_p = q.target.top_p,
             .min_p = q.target.min_p,
             .max_new_tokens = q.remaining,
             .min_new_tokens = q.min_new_tokens,
             .log_probabilities = q.log_probabilities != 0,
             .raw_log_probabilities = q.raw_log_probabilities != 0,
             .top_log_probabilities = q.top_log_probabilities,
             .priority = q.priority,
             .tenant = q.tenant};
        if (options_.q_values == SURELEAP_Q_PROBABILITIES) {
            s.draft = transform{};
        } else if (!(q.draft.temperature < 0.0)) {
            s.draft = transform{q.draft.temperature, q.draft.top_k, q.draft.top_p, q.draft.min_p};
        }
        if (q.stop_token_count > 0) s.stop_tokens = {q.stop_tokens, q.stop_token_count};
        arrays_.ends[r] = {q.text_end, q.text_end_of};
        if (q.text_end != nullptr) s.text_end = arrays_.ends[r];
        arrays_.constraints[r] = {q.constraint, q.constraint_of, mask_words(options_.vocabulary)};
        if (q.constraint != nullptr) s.constraint = arrays_.constraints[r];
        arrays_.views[r] = {.id = q.id,
                            .slot = q.slot,
                            .anchor = q.anchor,
                            .position = q.position,
                            .seed = q.seed != 0 ? q.seed : seeds_(q.id, s),
                            .remaining = q.remaining,
                            .settings = &s,
                            .draft_limit = q.draft_limit,
                            .unread = q.unread,
                            .replays = q.replays != 0};
    }
    void check(char const* who, sureleap_rows const& rows) const {
        expect_given(who, "rows.data", rows.data);
        expect_aligned(who, "rows.data", rows.data, size_of(options_.target_format));
        expect_size(who, "rows.columns", rows.columns, options_.vocabulary, options_.vocabulary);
        std::size_t const most = static_cast<std::size_t>(-1) / 8;
        expect_size(who, "rows.rows", rows.rows, rows.per_request == 0 ? rows_ : 1, most);  // accept knows the rest
        expect_size(who, "rows.stride", rows.stride, rows.columns, most / rows.rows);
        if (rows.block_sums == nullptr) return;
        expect_size(who, "rows.block_sums_stride", rows.block_sums_stride, row_blocks(rows.columns), most / rows.rows);
        expect_given(who, "rows.log_normalisers, which block_sums are relative to,", rows.log_normalisers);
    }
    /// In C's type; null if there are none.
    [[nodiscard]] sureleap_token_log_probability const* top_of(
        std::size_t r, std::span<token_log_probability const> top) const noexcept {
        if (top.empty()) return nullptr;
        auto const own =
            arrays_.top.subspan(r * (options_.block_size + 1) * options_.top_log_probabilities, top.size());
        std::transform(top.begin(), top.end(), own.begin(), [](token_log_probability const& t) {
            return sureleap_token_log_probability{t.token, t.log_probability};
        });
        return own.data();
    }
    /// `rows`: of the request in the batch.
    [[nodiscard]] static sureleap_verdict as_c(verdict const& v, std::size_t rows) noexcept {
        std::size_t const kept = v.emitted.size();
        return {.id = v.id,
                .slot = v.slot,
                .drafted = v.drafted,
                .verified = v.verified,
                .accepted = v.accepted,
                .emitted = v.emitted.data(),
                .emitted_count = kept,
                .log_probabilities = v.log_probabilities.empty() ? nullptr : v.log_probabilities.data(),
                .rows_kept = kept,
                .rows_rolled_back = rows - kept,
                .outcome = static_cast<std::int32_t>(v.outcome),
                .draft_outcome = static_cast<std::int32_t>(v.draft_outcome),
                .finished = static_cast<std::int32_t>(v.finished),
                .top_log_probabilities = nullptr};
    }

    sureleap_round_options options_;
    chain_writer writer_;
    round_arrays arrays_;
    detail::seed_source seeds_;
    std::size_t count_ = 0;
    std::size_t rows_ = 0;  // of the batch
    std::span<std::uint32_t const> offsets_{};
    stage at_ = stage::none;
    bool planned_ = false;
    bool opened_ = false;
    bool has_record_ = false;
    round_record record_{};
};

}  // namespace c
SURELEAP_END_NAMESPACE

struct sureleap_round {
    static constexpr std::uint64_t kind = 0x5355'5245'526f'756eu;

    explicit sureleap_round(sureleap::c::round_base* made) noexcept : does(made) {}
    ~sureleap_round() { does->~round_base(); }  // it lies in the same memory
    sureleap_round(sureleap_round const&) = delete;
    sureleap_round& operator=(sureleap_round const&) = delete;

    sureleap::c::handle<sureleap_round> head{};
    sureleap::c::round_base* does;
};
