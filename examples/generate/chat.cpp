// SPDX-License-Identifier: MIT
#include "chat.hpp"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <string>

#include <unistd.h>

#include <engine/model_files.hpp>
#include <engine/server.hpp>
#include <terminal.hpp>

#include "conversation.hpp"
#include "display.hpp"
#include "numbers.hpp"
#include "text_stream.hpp"

namespace generate {
namespace {

/// "57 tokens, 301 a second, tau 1.92"
std::string speed_of(decoding const& answer, double seconds, std::size_t most) {
    std::size_t const tokens = answer.outputs[0].size();
    auto const count = static_cast<double>(tokens);
    std::string text = counted(tokens, "token") + ", " + rounded(count / seconds) + " a second, tau " +
                       fixed(count / static_cast<double>(answer.rounds.size()), 2);
    return tokens == most ? text + "; cut at --max-new-tokens = " + grouped(most) : text;
}

/// One line of the user's, without what a terminal leaves at its end. False at the end of the conversation.
bool read_question(std::string& line) {
    bool const typed = ::isatty(STDIN_FILENO) == 1;
    show("\n> ");
    bool const read = static_cast<bool>(std::getline(std::cin, line));
    line.erase(line.find_last_not_of(" \t\r") + 1);
    // What comes from a file is shown, so that the conversation can be read; and the end of the input has no line end.
    if (!typed) show(line + "\n");
    if (typed && !read) show("\n");
    return read && !line.empty();
}

}  // namespace

options with_room_to_talk(options chosen) {
    std::size_t const most = engine::config_of(chosen.target).transformer.max_positions;
    if (chosen.context == 0) chosen.context = std::min(conversation_context, most);
    return chosen;
}

void converse(options const& chosen, method const& how, job const& base, models& loaded, prompt const& asked,
              engine::thread_pool& pool, status_line& status) {
    engine::tokenizer const& tokens = asked.tokenizer.value();
    std::size_t const most = base.settings.max_new_tokens;
    conversation said(tokens, engine::chat_template_of(chosen.target), chosen.context - most, chosen.think);
    engine::server<float> server(*loaded.target, how.drafter, how.draft, how.schedule, how.rule, pool, {},
                                 base.regex != nullptr);
    if (how.cost) server.correct(*how.cost);
    server.keep_prompts();
    bool const coloured = terminal::wants_colours(STDOUT_FILENO);
    auto const remark = [&](std::string const& text) {
        show(terminal::in_colour(coloured ? terminal::colour::faint : terminal::colour::none, text) + "\n");
    };
    print_heading(text_heading(coloured && chosen.speculates()));
    remark("A line is a question. An empty line or Ctrl-D ends.");
    job next = base;
    for (std::string question; read_question(question); ++next.seed) {
        std::vector<token_id> prompt;
        try {
            prompt = said.ask(question);
        } catch (sureleap::error const& problem) {
            remark(problem.what());
            continue;
        }
        if (said.forgotten() > 0) {
            std::string const what = said.forgotten() == 1 ? "the oldest question is forgotten with its answer."
                                                           : "the " + grouped(said.forgotten()) +
                                                                 " oldest questions are forgotten with their answers.";
            remark("The context is full: " + what);
        }
        next.prompt = prompt;
        text_stream text(asked.tokenizer, coloured && chosen.speculates());
        double const before = server.times().decode();
        auto const answer = decode(server, next, [&](decoding const& so_far, std::span<round_seen const> news) {
            if (so_far.rounds.empty()) {
                status.update([&] {
                    return "reading " + grouped(so_far.prefilled) + " of " + counted(next.prompt.size(), "token");
                });
            }
            for (round_seen const& round : news) {
                status.clear();
                show(text.push(round));
            }
        });
        show(text.finish());
        remark(speed_of(answer, server.times().decode() - before, most));
        said.answer(tokens.decode(answer.outputs[0], true));
    }
}

}  // namespace generate
