// SPDX-License-Identifier: MIT
//
// Rounds that failed and are run again.
//
// A round may fail after its tokens were drawn: a model throws, a row holds NaN. Run again, it draws the same tokens,
// since keys are the same. Their number must not be decided anew. A failure may depend on the tokens, as where a batch
// was too long. A new verify length would then depend on them, and sampling rules would be biased. Fresh draws would
// not help, because the tokens of rounds that succeed would still be a selection. Only the same round once more is
// exact. So what was decided about a request is kept until a round has ended for it, and decides again.
//
// Kept by slot: what the schedule allowed (limit, weight, floor), and from admission on the length of the chain and how
// much of it is verified. Of a tree the shape is kept as well: what siblings are thought to be worth may have changed when
// it is grown again. From then on the request may be run again in any batch. A chain that ended at a row or a
// confidence of NaN was admitted as far as it came, and is drafted no further: where it ends is known before the next
// token is drawn.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/verify/verdict.hpp>

SURELEAP_BEGIN_NAMESPACE

/// What is known of each slot's last round. A view of workspace memory; every operation is O(R).
class round_attempts {
public:
    round_attempts() = default;
    /// `nodes`: most drafted tokens of a tree; 0 if only chains are drafted.
    round_attempts(workspace& ws, std::size_t slots, std::size_t nodes = 0) noexcept
        : slots_(ws.take<slot_state>(slots)), nodes_(nodes), shapes_(ws.take<std::int32_t>(slots * nodes)) {}

    /// Forgets a slot, for a request that takes it.
    void forget(std::size_t slot) noexcept { slots_[slot] = {}; }

    /// Throws unless each request has a slot of its own and stands where its last round left it or, if that failed, where
    /// it began. What was known of a slot's earlier request is forgotten.
    void check(std::span<request_view const> requests) {
        ++round_;
        for (std::size_t r = 0; r < requests.size(); ++r) {
            request_view const& request = requests[r];
            if (request.slot >= slots_.size()) {
                fail_with("begin_round: request ", r, " (id ", request.id, ") has slot ", request.slot,
                          ", expected a slot below max_requests = ", slots_.size());
            }
            slot_state& at = slots_[request.slot];
            if (at.round == round_) {
                fail_with("begin_round: request ", r, " (id ", request.id, ") has slot ", request.slot,
                          ", which another request of this round has; expected a slot of its own");
            }
            if (at.phase != phase::empty && (at.id != request.id || at.seed != request.seed)) at = {};
            check_position(r, request, at);
            at.round = round_;
        }
    }
    /// Gives requests whose last round failed what was decided then. After the schedule has set its limits.
    void repeat_limits(std::span<request_view> requests) {
        for (std::size_t r = 0; r < requests.size(); ++r) {
            request_view& request = requests[r];
            slot_state const& at = slots_[request.slot];
            if (at.phase != phase::begun && at.phase != phase::admitted) continue;
            bool const drawn = at.phase == phase::admitted;
            request.draft_limit = drawn ? at.drafted : at.draft_limit;
            request.model_limit = at.model_limit;
            request.draft_floor = drawn ? 0 : at.draft_floor;
            if (drawn && nodes_ > 0) request.shape = shape(request.slot).first(at.drafted);
            request.weight = at.weight;
            if (drawn && request.found_cap(at.drafted) < at.drafted) {
                fail_with("begin_round: request ", r, " (id ", request.id, ") may draft ",
                          request.found_cap(at.drafted), " tokens, but drafted ", at.drafted,
                          " in the round that failed; expected the request as it was then");
            }
        }
    }
    /// Remembers what was decided about these requests before anything was drawn.
    void begin(std::span<request_view const> requests) noexcept {
        for (request_view const& request : requests) {
            slot_state& at = slots_[request.slot];
            if (at.phase == phase::admitted) continue;
            at = {.id = request.id,
                  .seed = request.seed,
                  .position = request.position,
                  .round = at.round,
                  .phase = phase::begun,
                  .draft_limit = request.draft_limit,
                  .model_limit = request.model_limit,
                  .weight = request.weight,
                  .draft_floor = request.draft_floor};
        }
    }
    /// The length that request r was given in a round that failed, or `otherwise`.
    [[nodiscard]] std::uint32_t length(request_view const& request, std::uint32_t otherwise) const noexcept {
        slot_state const& at = slots_[request.slot];
        return at.phase == phase::admitted ? at.verified : otherwise;
    }
    /// Remembers how long the request's chain became, or its tree by the parents of its tokens, and how much of it is verified.
    void admit(request_view const& request, std::uint32_t drafted, std::uint32_t verified,
               std::span<std::int32_t const> parents = {}) noexcept {
        slot_state& at = slots_[request.slot];
        if (at.phase == phase::admitted) return;
        at.phase = phase::admitted;
        at.drafted = drafted;
        at.verified = verified;
        if (nodes_ > 0) std::copy(parents.begin(), parents.end(), shape(request.slot).begin());
    }
    /// The round is over for every request whose verdict is ok; the others stand where they were.
    void end(std::span<request_view const> requests, std::span<verdict const> verdicts) noexcept {
        for (std::size_t r = 0; r < requests.size(); ++r) {
            slot_state& at = slots_[requests[r].slot];
            if (verdicts[r].outcome != status::ok) continue;
            at.phase = phase::ended;
            at.position = requests[r].position + verdicts[r].emitted.size();
        }
    }

private:
    enum class phase : std::uint8_t { empty, begun, admitted, ended };

    struct slot_state {
        request_id id = 0;
        std::uint64_t seed = 0;
        std::uint64_t position = 0;  // of the anchor; where the round has ended, of the next one
        std::uint64_t round = 0;     // in which the slot was last seen
        enum phase phase = phase::empty;
        std::size_t draft_limit = 0;
        std::size_t model_limit = 0;
        fixed_probability weight = 0;
        fixed_probability draft_floor = 0;
        std::uint32_t drafted = 0;
        std::uint32_t verified = 0;
    };

    static void check_position(std::size_t r, request_view const& request, slot_state const& at) {
        if (at.phase == phase::ended && request.position < at.position) {
            fail_with("begin_round: request ", r, " (id ", request.id, ") is at position ", request.position,
                      ", expected ", at.position,
                      " or later: its last round has ended there. Append what a verdict emitted before the next "
                      "round; call join(slot) if this is another request with the same id");
        }
        if ((at.phase == phase::begun || at.phase == phase::admitted) && request.position != at.position) {
            fail_with("begin_round: request ", r, " (id ", request.id, ") is at position ", request.position,
                      ", expected ", at.position,
                      ", where its last round began, which has not ended. Call end_round after accept; run a "
                      "round that failed again from the same place; call join(slot) for another request with "
                      "the same id");
        }
    }

    [[nodiscard]] std::span<std::int32_t> shape(std::size_t slot) const noexcept {
        return shapes_.subspan(slot * nodes_, nodes_);
    }

    std::span<slot_state> slots_{};
    std::size_t nodes_ = 0;
    std::span<std::int32_t> shapes_{};  // [slots, nodes]
    std::uint64_t round_ = 0;
};

SURELEAP_END_NAMESPACE
