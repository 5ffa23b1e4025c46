// SPDX-License-Identifier: MIT
//
// Texts through the engine's server, round by round.
#include "rounds.hpp"

#include <chrono>

#include <engine/server.hpp>

namespace evaluate {
namespace {

class run {
public:
    run(contestant& who, decoding_settings const& how, std::span<text const> texts, engine::thread_pool& pool)
        : tokens_(how.tokens),
          stop_tokens_(who.models.stop_tokens),
          server_(*who.models.target, who.models.drafter, who.models.draft.get(), how.schedule, how.rule, pool),
          generated_(texts.size()),
          confidences_(server_.block_size()) {
        for (text const& t : texts) {
            // Ids are handed out from 1 on.
            server_.submit({t.prompt.begin(), t.prompt.end()},
                           {.temperature = how.temperature,
                            .seed = t.seed,
                            .max_new_tokens = positions_for(how.tokens, who.block_size()),
                            .stop_tokens = stop_tokens_,
                            .max_draft_tokens = who.block_size()});
        }
    }

    run_totals operator()(round_observer const& on_round, progress_observer const& on_progress) {
        auto const start = std::chrono::steady_clock::now();
        std::uint64_t calls = 0;
        for (std::size_t done = 0; server_.step();) {
            if (server_.report().target_calls() == calls) continue;  // a prompt's chunk, and nobody to decode
            calls = server_.report().target_calls();
            for (std::size_t r = 0; r < server_.last_round().size(); ++r) observe(r, on_round);
            for (engine::server_event const& event : server_.events()) {
                auto& generated = generated_[text_of(event.id)];
                generated += event.tokens.size();
                if (!event.finished && generated < tokens_) continue;
                server_.leave(event.id);
                on_progress(++done);
            }
        }
        std::chrono::duration<double> const all = std::chrono::steady_clock::now() - start;
        return {.times = server_.times(),
                .seconds = all.count() - server_.times().prefill,
                .target_calls = server_.report().target_calls(),
                .emitted = server_.report().emitted()};
    }

private:
    [[nodiscard]] static std::size_t text_of(sureleap::request_id id) { return static_cast<std::size_t>(id - 1); }

    void observe(std::size_t r, round_observer const& on_round) {
        auto const& round = server_.last_round();
        sureleap::verdict const& v = round.verdicts[r];
        std::size_t const index = text_of(v.id);
        if (v.outcome != sureleap::status::ok) {
            sureleap::fail_with("text ", index + 1, " stopped after ", generated_[index],
                                " tokens: ", sureleap::to_string(v.outcome));
        }
        if (generated_[index] == 0 || generated_[index] >= tokens_) return;
        for (std::size_t k = 0; k < v.drafted; ++k) {
            confidences_[k] =
                static_cast<double>(round.survivals.at(r, k).confidence) / static_cast<double>(sureleap::certain);
        }
        auto outcome = outcome_of(index, v, server_.last_block().tokens(r).first(v.verified), stop_tokens_);
        outcome.position = round.requests[r].position;
        outcome.confidences = std::span<double const>(confidences_).first(v.drafted);
        on_round(outcome);
    }

    std::size_t tokens_;
    std::span<token_id const> stop_tokens_;
    engine::server<float> server_;
    std::vector<std::size_t> generated_;
    std::vector<double> confidences_;
};

}  // namespace

run_totals run_texts(contestant& who, decoding_settings const& how, std::span<text const> texts,
                     engine::thread_pool& pool, round_observer const& on_round, progress_observer const& on_progress) {
    return run(who, how, texts, pool)(on_round, on_progress);
}

}  // namespace evaluate
