// SPDX-License-Identifier: MIT
//
// Rounds of the C interface, one type for each format of the target's rows. Everything else is chosen at run time
// (c/parts.hpp). They call the stages of round/stages.hpp, as any engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

#include <sureleap/c/handle.hpp>
#include <sureleap/c/parts.hpp>
#include <sureleap/c/round_base.hpp>
#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/core/workspace.hpp>
#include <sureleap/round/memory.hpp>
#include <sureleap/round/stages.hpp>
#include <sureleap/sampling/random.hpp>
#include <sureleap/schedule/any.hpp>
#include <sureleap/verify/any.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace c {

/// T: format of the target's rows. Rng: philox_randomness but in tests, which enumerate.
template <class T, class Rng>
class round_of final : public round_base {
    using memory_type = round_memory<T, float>;

public:
    round_of(sureleap_round_options const& o, round_arrays const& arrays, std::span<std::byte> buffer, Rng rng)
        : round_base(o, arrays),
          schedule_(schedule_of(o)),
          rule_(rule_of(o)),
          rng_(std::move(rng)),
          memory_(writer(), schedule_, rule_, allow_lossy, limits(o, buffer)) {}  // check_options asked

    /// Bytes of its round_memory.
    [[nodiscard]] static std::size_t memory_bytes(sureleap_round_options const& o) {
        return memory_type::bytes_for(chain_writer{o, {}}, rule_of(o), limits(o, {}));
    }

private:
    [[nodiscard]] static round_limits limits(sureleap_round_options const& o, std::span<std::byte> buffer) {
        round_limits limits{.max_requests = o.max_requests,
                            .buffer = buffer,
                            .constrained = o.constrained != 0,
                            .top_log_probabilities = o.top_log_probabilities};
        if (o.calibration != nullptr) limits.calibration = o.calibration->maps;
        return limits;
    }

    void forget_slot(std::size_t slot) override { memory_.join(slot); }
    std::span<request_view const> begin_stage(std::span<request_view const> requests) override {
        static_cast<void>(begin_round(schedule_, requests, memory_));  // C is told by draft_caps
        sureleap::plan(schedule_, memory_);                            // if it plans from past rounds
        return memory_.requests();
    }
    void plan_stage(chain_writer::forward_type const& forward) override {
        sureleap::plan(schedule_, writer(), forward, memory_);
    }
    void open_stage() override { sureleap::draw(writer(), chain_writer::forward_type{}, rule_, rng_, memory_); }
    void append_stage(sureleap_drafts const& drafts) override { writer().append(drafts, rng_); }
    verify_batch const& admit_stage() override { return sureleap::admit(schedule_, memory_); }
    void accept_stage(sureleap_rows const& rows) override {
        using real = compute_t<T>;
        logits_rows<T> given{{static_cast<T const*>(rows.data), rows.rows, rows.columns, rows.stride}, {}, {}};
        given.per_request = rows.per_request;
        if (rows.log_normalisers != nullptr) given.log_normalisers = {rows.log_normalisers, rows.rows};
        if (rows.block_sums != nullptr) {
            given.block_sums =
                matrix_view<real>{rows.block_sums, rows.rows, row_blocks(rows.columns), rows.block_sums_stride};
        }
        sureleap::accept(rule_, given, no_logits_hook{}, rng_, memory_);
    }
    round_record end_stage() override { return end_round(schedule_, memory_); }

    any_schedule schedule_;
    any_rule rule_;
    [[no_unique_address]] Rng rng_;
    memory_type memory_;
};

namespace detail_of_rounds {

/// visit(std::type_identity<R>) with the type R of such a round.
template <class Rng, class Visit>
decltype(auto) with_type(sureleap_round_options const& o, Visit const& visit) {
    switch (o.target_format) {
        case SURELEAP_HALF: return visit(std::type_identity<round_of<half, Rng>>{});
        case SURELEAP_BF16: return visit(std::type_identity<round_of<bf16, Rng>>{});
        default: return visit(std::type_identity<round_of<float, Rng>>{});
    }
}

}  // namespace detail_of_rounds

/// Memory of a round: the handle, the round behind it, its arrays, and the buffer of its round_memory.
template <class Rng>
[[nodiscard]] std::size_t round_bytes(sureleap_round_options const& o) {
    workspace sizer;
    static_cast<void>(round_arrays::carve(sizer, o));
    return detail_of_rounds::with_type<Rng>(o, [&]<class Round>(std::type_identity<Round>) {
        return bytes_of<sureleap_round> + bytes_of<Round> + sizer.used() + Round::memory_bytes(o);
    });
}

/// Makes a round in memory of the caller's. Throws where its options or the memory will not do.
template <class Rng>
[[nodiscard]] sureleap_round* make_round(sureleap_round_options const* options, void* memory, std::size_t bytes,
                                         Rng rng) {
    check_options(options);
    sureleap_round_options const& o = *options;
    std::size_t const needed = round_bytes<Rng>(o);
    std::byte* at = placed("sureleap_round_create", memory, bytes, needed);
    auto const take = [&](std::size_t size) { return std::exchange(at, at + size); };
    std::byte* const first = take(bytes_of<sureleap_round>);
    workspace sizer;
    static_cast<void>(round_arrays::carve(sizer, o));
    return detail_of_rounds::with_type<Rng>(o, [&]<class Round>(std::type_identity<Round>) {
        std::byte* const place = take(bytes_of<Round>);
        workspace ws{{take(sizer.used()), sizer.used()}};
        round_arrays const arrays = round_arrays::carve(ws, o);
        std::size_t const size = Round::memory_bytes(o);
        round_base* const made = ::new (place) Round(o, arrays, {take(size), size}, std::move(rng));
        return ::new (first) sureleap_round(made);
    });
}

}  // namespace c
SURELEAP_END_NAMESPACE
