// SPDX-License-Identifier: MIT
#include "trace.hpp"

#include <string>
#include <utility>
#include <variant>

#include <engine/text_file.hpp>

#include "display.hpp"
#include "numbers.hpp"
#include "trace_page.hpp"

namespace generate {

void write_trace(options const& chosen, models const& loaded, prompt const& asked, decoding const& run) {
    trace_facts facts{.lines = {{"target", loaded.target_facts.name + ": " + loaded.target_facts.description},
                                {"draft", loaded.draft_facts.name + ": " + loaded.draft_facts.description},
                                {"decoding", in_words(chosen.settings) + ", seed " + std::to_string(chosen.seed) +
                                                 ", rule " + chosen.rule + ", schedule " + chosen.schedule}},
                      .has_confidence = engine::traits_of(loaded.drafter).has_confidence};
    if (chosen.prompt) facts.lines.emplace_back("prompt", *chosen.prompt);
    std::size_t accepted = 0, verified = 0;
    for (round_seen const& round : run.rounds) {
        accepted += round.accepted;
        verified += round.verified;
    }
    facts.lines.emplace_back("rounds", grouped(run.rounds.size()) + " for " + counted(run.outputs[0].size(), "token") +
                                           "; " + grouped(accepted) + " of " + grouped(verified) + " drafts accepted");
    engine::write_text(chosen.trace, trace_page(facts, run.rounds, [&](token_id token) {
                           return asked.tokenizer ? std::string(asked.tokenizer->bytes_of(token))
                                                  : " " + std::to_string(token);
                       }));
}

}  // namespace generate
