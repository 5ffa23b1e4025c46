// SPDX-License-Identifier: MIT
//
// Texts through the engine's server, round by round.
#include "rounds.hpp"

#include <chrono>

#include "timing.hpp"

namespace evaluate {

text_server::text_server(contestant& who, decoding_settings const& how, engine::thread_pool& pool)
    : how_(how),
      max_draft_(how.max_draft.value_or(who.block_size())),
      slots_(who.models.target->limits().slots),
      stop_tokens_(who.models.stop_tokens),
      server_(*who.models.target, who.models.drafter, who.models.draft.get(), how.schedule, how.rule, pool),
      confidences_(server_.block_size()) {
    if (how.cost) server_.correct(*how.cost);
}

void text_server::submit(text const& what) {
    auto const id = server_.submit({what.prompt.begin(), what.prompt.end()},
                                   {.temperature = how_.sampling.temperature,
                                    .top_k = how_.sampling.top_k,
                                    .top_p = how_.sampling.top_p,
                                    .min_p = how_.sampling.min_p,
                                    .seed = what.seed,
                                    .max_new_tokens = positions_for(how_.tokens, server_.block_size()),
                                    .stop_tokens = stop_tokens_,
                                    .max_draft_tokens = max_draft_});
    if (first_id_ == 0) first_id_ = id;  // ids are handed out one after the other
}

run_totals text_server::operator()(std::span<text const> texts, round_observer const& on_round,
                                   progress_observer const& on_progress) {
    using clock = std::chrono::steady_clock;
    run_totals out{.times = {}, .outputs = std::vector<std::vector<token_id>>(texts.size())};
    engine::phase_times const before = server_.times();
    std::uint64_t const calls_before = server_.report().target_calls();
    first_id_ = 0;
    for (text const& t : texts) submit(t);
    for (std::size_t done = 0;;) {
        double const prefill = server_.times().prefill;
        std::uint64_t const calls = server_.report().target_calls();
        std::uint64_t const emitted = server_.report().emitted();
        auto const start = clock::now();
        if (!server_.step()) break;
        if (server_.report().target_calls() == calls) continue;  // a prompt's chunk, and nobody to decode
        std::chrono::duration<double> const took = clock::now() - start;
        bool const full = server_.last_round().size() == slots_;
        for (rounds_sum* const sum : {&out.all, full ? &out.full : nullptr}) {
            if (sum == nullptr) continue;
            sum->seconds += took.count() - (server_.times().prefill - prefill);
            sum->emitted += server_.report().emitted() - emitted;
        }
        if (full) out.full_rounds.push_back({server_.last_round().load, server_.report().emitted() - emitted});
        for (std::size_t r = 0; r < server_.last_round().size(); ++r) observe(r, out, on_round);
        for (engine::server_event const& event : server_.events()) {
            auto& output = out.outputs[text_of(event.id)];
            output.insert(output.end(), event.tokens.begin(), event.tokens.end());
            if (!event.finished && output.size() < how_.tokens) continue;
            server_.leave(event.id);
            on_progress(++done);
        }
    }
    out.times = added(server_.times(), before, -1.0);
    out.target_calls = server_.report().target_calls() - calls_before;
    return out;
}

void text_server::observe(std::size_t r, run_totals const& so_far, round_observer const& on_round) {
    auto const& round = server_.last_round();
    sureleap::verdict const& v = round.verdicts[r];
    std::size_t const index = text_of(v.id);
    std::size_t const generated = so_far.outputs[index].size();
    if (v.outcome != sureleap::status::ok) {
        sureleap::fail_with("text ", index + 1, " stopped after ", generated,
                            " tokens: ", sureleap::to_string(v.outcome));
    }
    if (generated == 0 || generated >= how_.tokens) return;
    for (std::size_t k = 0; k < v.drafted; ++k) {
        confidences_[k] =
            static_cast<double>(round.survivals.at(r, k).confidence) / static_cast<double>(sureleap::certain);
    }
    auto outcome = outcome_of(index, v, server_.last_block().tokens(r).first(v.verified), stop_tokens_);
    outcome.position = round.requests[r].position;
    outcome.confidences = std::span<double const>(confidences_).first(v.drafted);
    on_round(outcome);
}

}  // namespace evaluate
