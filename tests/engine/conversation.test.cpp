// SPDX-License-Identifier: MIT
//
// A conversation keeps what has room, and forgets from its beginning.
#include "support/catch.hpp"

#include <string>
#include <vector>

#include <engine/chat.hpp>
#include <engine/tokenizer.hpp>
#include <generate/conversation.hpp>

#include "support/error_text.hpp"
#include "support/tokenizer_data.hpp"

namespace {

using engine::chat_role;
using engine::chat_turn;
using generate::conversation;
using support::error_text;
using support::says;

engine::tokenizer const tokens = support::changed_tokenizer(nullptr);
engine::chat_template const format{.default_system = "Be brief."};

std::vector<sureleap::token_id> prompt_of(std::vector<chat_turn> const& turns) {
    return engine::chat_prompt(tokens, turns, format);
}

chat_turn user(std::string const& text) {
    return {chat_role::user, text};
}
chat_turn assistant(std::string const& text) {
    return {chat_role::assistant, text};
}

}  // namespace

TEST_CASE("a prompt holds everything said before, after the system's text", "[conversation]") {
    conversation said(tokens, format, 1000, false);
    CHECK(said.ask("Hi.") == prompt_of({user("Hi.")}));
    said.answer("Hello.");
    CHECK(said.ask("Why?") == prompt_of({user("Hi."), assistant("Hello."), user("Why?")}));
    CHECK(said.forgotten() == 0);
}

TEST_CASE("without room the oldest questions go, each with its answer", "[conversation]") {
    auto const whole = prompt_of({user("one"), assistant("1"), user("two"), assistant("2"), user("three")});
    auto const shorter = prompt_of({user("two"), assistant("2"), user("three")});
    for (std::size_t const lacking : {std::size_t{0}, std::size_t{1}}) {
        conversation said(tokens, format, whole.size() - lacking, false);
        static_cast<void>(said.ask("one"));
        said.answer("1");
        static_cast<void>(said.ask("two"));
        said.answer("2");
        CHECK(said.ask("three") == (lacking == 0 ? whole : shorter));
        CHECK(said.forgotten() == lacking);
    }
    // As many as it takes, and for good.
    conversation said(tokens, format, prompt_of({user("three")}).size(), false);
    static_cast<void>(said.ask("one"));
    said.answer("1");
    CHECK(said.ask("three") == prompt_of({user("three")}));
    CHECK(said.forgotten() == 1);
    said.answer("3");
    CHECK(said.turns().size() == 2);
}

TEST_CASE("a question without room is as if it had not been asked", "[conversation]") {
    conversation said(tokens, format, 80, false);
    static_cast<void>(said.ask("Hi."));
    said.answer("Hello.");
    std::string const why = error_text([&] { static_cast<void>(said.ask(std::string(500, '?'))); });
    CHECK(says(why, {"the question makes a prompt of", "expected at most 80"}));
    CHECK(said.turns().size() == 2);
    CHECK(said.ask("Why?") == prompt_of({user("Hi."), assistant("Hello."), user("Why?")}));
}

TEST_CASE("thoughts are no part of earlier answers", "[conversation]") {
    conversation said(tokens, format, 1000, true);
    static_cast<void>(said.ask("Hi."));
    said.answer("<think>\nA greeting.\n</think>\n\nHello.");
    CHECK(said.turns().back().text == "Hello.");
    static_cast<void>(said.ask("Why?"));
    said.answer("<think>\n</think>");
    CHECK(said.turns().back().text.empty());
}
