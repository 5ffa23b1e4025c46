// SPDX-License-Identifier: MIT
//
// Rounds that failed and are run again.
//
// A round may fail after its tokens were drawn: a model throws, a row holds NaN. Run again, it draws the same tokens,
// since keys are the same. Nothing may be decided anew. A failure may depend on the tokens, as where a batch was too
// long. A new verify length would then depend on them, and sampling rules would be biased. Fresh draws would not help,
// because the tokens of rounds that succeed would still be a selection. Only the same round once more is exact.
//
// What that means depends on how far the round came.
//
//     begun      Nothing was drawn, so nothing depends on it. All is decided anew: an engine whose draft model failed
//                may run the request again without drafts (draft_limit), with anybody.
//     drawn      Verify lengths are not decided, and they depend on everybody in the round. So the round is run again
//                by the same requests and nobody else, and before any other round. A request that has left takes part
//                once more, and what comes out for it is dropped: without it the others' lengths would be others.
//     admitted   The length of the chain is kept, and how much of it is verified; of a tree its shape as well, since
//                what siblings are thought to be worth may have changed. The request may be run again in any batch.
//     ended      The next round decides anew.
//
// A chain that ended at a row or a confidence of NaN was admitted as far as it came, and is drafted no further.
//
// The tokens themselves are kept where they would bias the rule if they were others: where it samples, and drafts are
// drawn. They are compared when they are drawn again. A drafter with a generator of its own, or an engine that swaps
// its drafter, is noticed so.
//
// All is kept by slot, so a request is run again in the slot that it had.
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

/// For what slots are remembered.
struct attempt_sizes {
    std::size_t slots = 0;
    std::size_t positions = 0;  ///< most tokens of a request
    bool trees = false;         ///< the tokens are nodes of trees
    bool sampled = false;       ///< the rule samples by what q says of drawn tokens, so a choice of them is a bias
};

/// Whose draws they are: objects, not types. One that is swapped between two attempts has other laws.
struct drawing_parts {
    void const* drafter = nullptr;
    void const* rule = nullptr;  ///< null if it has no state

    [[nodiscard]] bool operator==(drawing_parts const&) const = default;
};

/// What is known of each slot's last round. A view of workspace memory. O(R) an operation, and O(slots) while a round
/// of somebody has failed.
class round_attempts {
public:
    round_attempts() = default;
    round_attempts(workspace& ws, attempt_sizes const& sizes) noexcept
        : sizes_(sizes),
          slots_(ws.take<slot_state>(sizes.slots)),
          tokens_(ws.take<token_id>(sizes.sampled ? sizes.slots * sizes.positions : 0)),
          shapes_(ws.take<std::int32_t>(sizes.trees ? sizes.slots * sizes.positions : 0)) {}

    /// Forgets a slot, for a request that takes it.
    void forget(std::size_t slot) noexcept {
        slot_state& at = slots_[slot];
        if (at.pending()) --pending_;
        if (undecided() && at.began == drawn_ && --drawn_left_ == 0) drawn_ = 0;  // nobody is left to run it again
        at = {};
    }

    /// A round was drawn, and how much of it is verified is not decided: nobody but its requests can begin a round.
    [[nodiscard]] bool undecided() const noexcept { return drawn_ != 0; }

    /// Throws unless each request has a slot of its own and stands where its last round left it. If that failed, it has
    /// to stand where the round began, in the slot and the company that it had. Changes nothing.
    void check(std::span<request_view const> requests) {
        ++check_;
        for (std::size_t r = 0; r < requests.size(); ++r) {
            request_view const& request = requests[r];
            if (request.slot >= slots_.size()) {
                fail_with("begin_round: request ", r, " (id ", request.id, ") has slot ", request.slot,
                          ", expected a slot below max_requests = ", slots_.size());
            }
            slot_state& at = slots_[request.slot];
            if (at.seen == check_) {
                fail_with("begin_round: request ", r, " (id ", request.id, ") has slot ", request.slot,
                          ", which another request of this round has; expected a slot of its own");
            }
            at.seen = check_;
            at.present = at.is_of(request);
            if (at.present) check_position(r, request, at);
        }
        if (undecided()) check_company(requests);
        if (sizes_.sampled && pending_ > 0) check_slots(requests);
    }
    /// Keeps what the last round drafted for requests for which it has not ended. Before its block is emptied.
    template <class Block>
    void remember(Block const& block) noexcept {
        if (pending_ == 0) return;
        for (std::size_t r = 0; r < block.requests().size(); ++r) {
            request_view const& request = block.requests()[r];
            slot_state& at = slots_[request.slot];
            if (at.began != round_ || !at.pending()) continue;
            auto const tokens = block.tokens(r);
            auto const parents = block.parents(r);
            std::size_t const most = at.phase == phase::admitted ? at.drafted : sizes_.positions;
            std::size_t const known = std::min(tokens.size(), most);
            if (known <= at.known || !continues(request.slot, tokens, parents)) continue;
            at.known = static_cast<std::uint32_t>(known);
            if (sizes_.sampled) std::copy_n(tokens.begin(), known, kept(tokens_, request).begin());
            if (sizes_.trees) std::copy_n(parents.begin(), known, kept(shapes_, request).begin());
        }
    }
    /// Gives requests whose last round failed what was decided then. After the schedule has set its limits.
    void repeat_limits(std::span<request_view> requests) {
        for (std::size_t r = 0; r < requests.size(); ++r) {
            request_view& request = requests[r];
            slot_state const& at = slots_[request.slot];
            if (!at.is_of(request) || !at.pending()) continue;
            bool const decided = at.phase == phase::admitted;
            request.draft_limit = decided ? at.drafted : at.draft_limit;
            request.model_limit = at.model_limit;
            request.draft_floor = decided ? 0 : at.draft_floor;
            if (decided && sizes_.trees) request.shape = kept(shapes_, request).first(at.drafted);
            request.weight = at.weight;
            if (decided && request.found_cap(at.drafted) < at.drafted) {
                fail_with("begin_round: request ", r, " (id ", request.id, ") may draft ",
                          request.found_cap(at.drafted), " tokens, but drafted ", at.drafted,
                          " in the round that failed; expected the request as it was then");
            }
        }
    }
    /// Remembers what was decided about these requests before anything was drawn. What was known of a slot's earlier
    /// request is forgotten.
    void begin(std::span<request_view const> requests) noexcept {
        ++round_;
        for (request_view const& request : requests) {
            slot_state& at = slots_[request.slot];
            bool const again = at.is_of(request) && at.pending();
            if (again) {
                at.began = round_;
                continue;
            }
            if (at.pending()) --pending_;
            at = {.id = request.id,
                  .seed = request.seed,
                  .position = request.position,
                  .began = round_,
                  .phase = phase::begun,
                  .draft_limit = request.draft_limit,
                  .model_limit = request.model_limit,
                  .weight = request.weight,
                  .draft_floor = request.draft_floor};
        }
        if (undecided()) drawn_ = round_;  // the same requests
    }
    /// Tokens are drawn from here on.
    void draw(std::span<request_view const> requests, drawing_parts const& parts) noexcept {
        if (!sizes_.sampled) return;
        parts_ = parts;
        drawn_ = round_;
        drawn_size_ = drawn_left_ = requests.size();
        for (request_view const& request : requests) {
            slot_state& at = slots_[request.slot];
            if (at.pending()) continue;
            at.phase = phase::drawn;
            at.parts = parts;
            ++pending_;
        }
    }
    /// The rule is exact for any draft of any length, or drafts are not drawn: nothing that ends drafts can bias it.
    [[nodiscard]] bool takes_any_draft() const noexcept { return !sizes_.sampled; }
    /// What the request has drafted now begins with what it drafted before, or is the whole of it if that was admitted.
    [[nodiscard]] bool same_draft(request_view const& request, std::span<token_id const> tokens,
                                  std::span<std::int32_t const> parents) const noexcept {
        slot_state const& at = slots_[request.slot];
        if (at.known == 0 || !sizes_.sampled) return true;
        return at.parts == parts_ && continues(request.slot, tokens, parents);
    }
    /// The request's length is decided: in this round, or in one that failed.
    [[nodiscard]] bool decided(request_view const& request) const noexcept {
        return slots_[request.slot].phase == phase::admitted;
    }
    /// The length that request r was given in a round that failed, or `otherwise`.
    [[nodiscard]] std::uint32_t length(request_view const& request, std::uint32_t otherwise) const noexcept {
        slot_state const& at = slots_[request.slot];
        return at.phase == phase::admitted ? at.verified : otherwise;
    }
    /// Remembers how long the request's chain or tree became, and how much of it is verified.
    void admit(request_view const& request, std::uint32_t drafted, std::uint32_t verified) noexcept {
        slot_state& at = slots_[request.slot];
        if (at.phase == phase::admitted) return;
        if (!at.pending()) ++pending_;
        at.phase = phase::admitted;
        at.drafted = drafted;
        at.verified = verified;
        at.known = std::min(at.known, drafted);  // a tree may have grown beyond its floor
    }
    /// Every request of the round is admitted.
    void decide() noexcept { drawn_ = 0; }
    /// The round is over for every request whose verdict is ok; the others stand where they were.
    void end(std::span<request_view const> requests, std::span<verdict const> verdicts) noexcept {
        for (std::size_t r = 0; r < requests.size(); ++r) {
            slot_state& at = slots_[requests[r].slot];
            if (verdicts[r].outcome != status::ok) continue;
            if (at.pending()) --pending_;
            at.phase = phase::ended;
            at.known = 0;
            at.position = requests[r].position + verdicts[r].emitted.size();
        }
    }

private:
    enum class phase : std::uint8_t { empty, begun, drawn, admitted, ended };

    struct slot_state {
        request_id id = 0;
        std::uint64_t seed = 0;
        std::uint64_t position = 0;  // of the anchor; where the round has ended, of the next one
        std::uint64_t seen = 0;      // the check in which a request of this slot was last seen,
        bool present = false;        // and it was this one
        std::uint64_t began = 0;     // the round that it was last in
        enum phase phase = phase::empty;
        std::size_t draft_limit = 0;
        std::size_t model_limit = 0;
        fixed_probability weight = 0;
        fixed_probability draft_floor = 0;
        std::uint32_t drafted = 0;
        std::uint32_t verified = 0;
        std::uint32_t known = 0;  // drafted tokens that are kept
        drawing_parts parts{};

        /// Something was drawn or decided in a round that has not ended.
        [[nodiscard]] bool pending() const noexcept { return phase == phase::drawn || phase == phase::admitted; }
        [[nodiscard]] bool is_of(request_view const& request) const noexcept {
            return phase != phase::empty && id == request.id && seed == request.seed;
        }
    };

    static void check_position(std::size_t r, request_view const& request, slot_state const& at) {
        if (at.phase == phase::ended && request.position < at.position) {
            fail_with("begin_round: request ", r, " (id ", request.id, ") is at position ", request.position,
                      ", expected ", at.position,
                      " or later: its last round has ended there. Append what a verdict emitted before the next "
                      "round; call join(slot) if this is another request with the same id");
        }
        if (at.phase != phase::ended && request.position != at.position) {
            fail_with("begin_round: request ", r, " (id ", request.id, ") is at position ", request.position,
                      ", expected ", at.position,
                      ", where its last round began, which has not ended. Call end_round after accept; run a "
                      "round that failed again from the same place; call join(slot) for another request with "
                      "the same id");
        }
    }
    /// Exactly those of the round that was drawn.
    void check_company(std::span<request_view const> requests) const {
        constexpr auto remedy =
            ". The last round failed after its draw began, and how much of each request is verified depends on all of "
            "them: run it again with the same requests and nobody else, before any other round. One that has left "
            "takes part once more, and what comes out for it is dropped. To give the round up, call join(slot) for "
            "each of them: they are new requests then";
        for (std::size_t r = 0; r < requests.size(); ++r) {
            slot_state const& at = slots_[requests[r].slot];
            if (at.present && at.began == drawn_) continue;
            fail_with("begin_round: request ", r, " (id ", requests[r].id, ", slot ", requests[r].slot,
                      ") was not in the round that failed, expected its ", drawn_size_, " requests", remedy);
        }
        if (requests.size() != drawn_size_) {
            fail_with("begin_round: there are ", requests.size(), " of the ", drawn_size_,
                      " requests of the round that failed, expected all of them", remedy);
        }
    }
    /// Nobody whose round has not ended in one slot begins it in another. Draws are named by seed and position, so it
    /// would meet the same ones, and nothing would be known of what was decided.
    void check_slots(std::span<request_view const> requests) const {
        for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
            slot_state const& at = slots_[slot];
            bool const takes_part = at.seen == check_ && at.present;
            if (!at.pending() || takes_part) continue;
            for (std::size_t r = 0; r < requests.size(); ++r) {
                request_view const& request = requests[r];
                if (!at.is_of(request) || request.position != at.position) continue;
                fail_with("begin_round: request ", r, " (id ", request.id, ") has slot ", request.slot,
                          ", expected slot ", slot, ", where its last round began at position ", at.position,
                          " and failed: what was decided about it is kept there. Run it again in that slot; call join(",
                          slot, ") if this is another request with the same id");
            }
        }
    }
    [[nodiscard]] bool continues(std::size_t slot, std::span<token_id const> tokens,
                                 std::span<std::int32_t const> parents) const noexcept {
        std::size_t const known = slots_[slot].known;
        auto const begins = [&](auto const& now, auto const& kept) {
            if (kept.empty()) return true;
            return now.size() >= known &&
                   std::ranges::equal(now.first(known), kept.subspan(slot * sizes_.positions, known));
        };
        return begins(tokens, tokens_) && begins(parents, shapes_);
    }
    template <class T>
    [[nodiscard]] std::span<T> kept(std::span<T> of_slots, request_view const& request) const noexcept {
        return of_slots.subspan(request.slot * sizes_.positions, sizes_.positions);
    }

    attempt_sizes sizes_{};
    std::span<slot_state> slots_{};
    std::span<token_id> tokens_{};      // [slots, positions] of those that are pending, if they are compared
    std::span<std::int32_t> shapes_{};  // [slots, positions] their parents, of trees
    std::uint64_t check_ = 0;
    std::uint64_t round_ = 0;
    std::size_t pending_ = 0;     // slots
    std::uint64_t drawn_ = 0;     // the round that is drawn and not admitted, or 0,
    std::size_t drawn_size_ = 0;  // its requests,
    std::size_t drawn_left_ = 0;  // and those of them that nobody has forgotten
    drawing_parts parts_{};       // of the last draw
};

SURELEAP_END_NAMESPACE
