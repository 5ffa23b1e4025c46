// SPDX-License-Identifier: MIT
//
// What examples/generate shows while it writes: tokens as text, in the colours of those they come from.
#include "support/catch.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <engine/tokenizer.hpp>
#include <generate/round_seen.hpp>
#include <generate/text_stream.hpp>
#include <terminal.hpp>

#include "support/tokenizer_data.hpp"

namespace {

using generate::origin;
using generate::round_seen;
using generate::text_stream;
using sureleap::token_id;

std::optional<engine::tokenizer> const tokens = support::changed_tokenizer(nullptr);
std::optional<engine::tokenizer> const none;

// One token a byte.
std::vector<token_id> bytes_of(std::string_view text) {
    std::vector<token_id> ids;
    for (char const byte : text) ids.push_back(tokens->id_of({&byte, 1}).value());
    return ids;
}

std::string green(std::string const& text) {
    return "\x1b[32m" + text + "\x1b[0m";
}
std::string magenta(std::string const& text) {
    return "\x1b[35m" + text + "\x1b[0m";
}

round_seen round_that_accepts(std::size_t accepted, std::string_view emitted) {
    return {.drafted = {}, .confidences = {}, .verified = accepted, .accepted = accepted, .emitted = bytes_of(emitted)};
}

}  // namespace

TEST_CASE("accepted drafts and the target's own token have their colours", "[text_stream]") {
    text_stream text(tokens, true);
    CHECK(text.push(round_that_accepts(2, "abc")) == green("ab") + magenta("c"));
    CHECK(text.push(round_that_accepts(0, "d")) == magenta("d"));
    CHECK(text.push(round_that_accepts(2, "ef")) == green("ef"));  // a drafted stop token ended the round
    CHECK(text.push(round_that_accepts(3, "gh")) == green("gh"));  // and this one stood before the last accepted
    CHECK(text.finish() == "\n");
}

TEST_CASE("without colours nothing is added", "[text_stream]") {
    text_stream text(tokens, false);
    CHECK(text.push(round_that_accepts(2, "abc")) == "abc");
}

TEST_CASE("a character over several tokens comes out whole, in the last one's colour", "[text_stream]") {
    text_stream text(tokens, true);
    std::string const euro = "\xE2\x82\xAC";
    auto const parts = bytes_of(euro);
    CHECK(text.push({parts.data(), 1}, origin::draft).empty());
    CHECK(text.push({parts.data() + 1, 1}, origin::draft).empty());
    CHECK(text.push({parts.data() + 2, 1}, origin::target) == magenta(euro));
    CHECK(text.push({parts.data(), 2}, origin::draft).empty());
    CHECK(text.finish() == "\xEF\xBF\xBD\n");  // cut off
}

TEST_CASE("what a terminal would obey is not shown", "[text_stream]") {
    text_stream text(tokens, false);
    CHECK(text.push(bytes_of("a\x1b[31mb\r\t\n\x7F\xC2\x9B\xC2\xA9"), origin::target) == "a[31mb\t\n\xC2\xA9");
    CHECK(text.push(tokens->encode("<|im_end|>"), origin::target).empty());
}

TEST_CASE("ids break into lines of 100 columns", "[text_stream]") {
    text_stream text(none, false);
    std::vector<token_id> const ids(30, 12345);
    std::string const shown = text.push(ids, origin::draft);
    CHECK(shown.find('\n') == 95);  // 16 of five digits and a blank between; the next would end in column 101
    CHECK(text.finish() == "\n");
}

TEST_CASE("colours go to terminals of users who do not refuse them", "[terminal]") {
    CHECK(terminal::wants_colours(true, nullptr, "xterm"));
    CHECK(terminal::wants_colours(true, "", "xterm"));  // no-color.org: present and not empty
    CHECK_FALSE(terminal::wants_colours(true, "1", "xterm"));
    CHECK_FALSE(terminal::wants_colours(true, "0", "xterm"));
    CHECK_FALSE(terminal::wants_colours(false, nullptr, "xterm"));
    CHECK_FALSE(terminal::wants_colours(true, nullptr, "dumb"));
    CHECK_FALSE(terminal::wants_colours(true, nullptr, nullptr));
}

TEST_CASE("colours take no columns", "[terminal]") {
    CHECK(terminal::width_of("text") == 4);
    CHECK(terminal::width_of(green("text") + ", " + magenta("more")) == 10);
    CHECK(terminal::in_colour(terminal::colour::green, "") == "");
    CHECK(terminal::in_colour(terminal::colour::none, "text") == "text");
}
