// SPDX-License-Identifier: MIT
//
// The page of --trace: whatever a model writes is text on it, and every draft says what became of it.
#include "support/catch.hpp"

#include <map>
#include <string>
#include <vector>

#include <generate/round_seen.hpp>
#include <generate/trace_page.hpp>

namespace {

using generate::escaped;
using generate::round_seen;
using generate::trace_page;
using generate::visible;
using sureleap::token_id;

// Tokens 0, 1, 2, .. are these.
struct words {
    std::vector<std::string> all;
    std::string operator()(token_id t) const { return all.at(static_cast<std::size_t>(t)); }
};

std::size_t count(std::string const& text, std::string const& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
    return found;
}

// The table, without the text before it and the legend.
std::string rows_of(std::string const& page) {
    return page.substr(page.find("<table>"));
}

}  // namespace

TEST_CASE("what HTML would obey is escaped", "[trace_page]") {
    CHECK(escaped("a<b>&\"c'") == "a&lt;b&gt;&amp;&quot;c&#39;");
    std::string const bad = "</p><script>alert('1')</script>";
    round_seen const round{.drafted = {0}, .confidences = {1}, .verified = 1, .accepted = 0, .emitted = {0}};
    std::string const page = trace_page({{{bad, bad}}, true}, std::vector{round}, words{{bad}});
    CHECK(count(page, "<script") == 0);
    CHECK(count(page, "&lt;/p&gt;&lt;script&gt;alert(&#39;1&#39;)&lt;/script&gt;") ==
          5);  // facts, text, draft, correction
}

TEST_CASE("a token by itself stays on a line and shows all its bytes", "[trace_page]") {
    CHECK(visible(" a\n\tb") ==
          " a\xE2\x86\xB5\xE2\x87\xA5"
          "b");
    CHECK(visible("\x1b\x7F\xC2\x9B") == "\\x1B\\x7F\\xC2\\x9B");
    CHECK(visible("\xE2\x82") == "\\xE2\\x82");
    CHECK(visible("\xE2\x82\xAC\xC2\xA9") == "\xE2\x82\xAC\xC2\xA9");
}

TEST_CASE("every draft says what became of it", "[trace_page]") {
    words const text{{"zero", "one", "two", "three", "own"}};
    // One accepted, one rejected, one verified behind it, one not verified.
    round_seen const round{.drafted = {0, 1, 2, 3},
                           .confidences = {0.9, 0.5, 0.25, 0.125},
                           .verified = 3,
                           .accepted = 1,
                           .emitted = {0, 4}};
    std::string const rows = rows_of(trace_page({{}, true}, std::vector{round}, text));
    CHECK(count(rows, "<td class=\"n\">1<td class=\"n\">1 of 3<td>") == 1);
    CHECK(count(rows, "class=\"t accepted\" title=\"draft 1, token 0: accepted, confidence 0.90\">zero<") == 1);
    CHECK(count(rows, "class=\"t rejected\" title=\"draft 2, token 1: rejected, confidence 0.50\">one<") == 1);
    CHECK(count(rows, "title=\"draft 3, token 2: verified, behind a rejected one, confidence 0.25\">two<") == 1);
    CHECK(count(rows, "class=\"t unverified\" title=\"draft 4, token 3: unverified, confidence 0.12\">three<") == 1);
    CHECK(count(rows, "<i style=\"--c:50.00%\">0.50</i>") == 1);
    CHECK(count(rows, "class=\"t own\" title=\"the target&#39;s correction, token 4\">own<") == 1);
}

TEST_CASE("a drafter without confidences shows none", "[trace_page]") {
    round_seen const round{.drafted = {0}, .confidences = {1}, .verified = 1, .accepted = 1, .emitted = {0, 1}};
    std::string const page = trace_page({{}, false}, std::vector{round}, words{{"a", "b"}});
    CHECK(count(rows_of(page), "<i") == 0);
    CHECK(count(page, "confidence") == 0);
    CHECK(count(page, "title=\"the target&#39;s own, behind the last verified draft, token 1\">b<") == 1);
}

TEST_CASE("a round that a drafted stop token ends has nothing of the target's own", "[trace_page]") {
    round_seen const round{
        .drafted = {0, 1, 0}, .confidences = {1, 1, 1}, .verified = 3, .accepted = 3, .emitted = {0, 1}};
    std::string const page = trace_page({{}, false}, std::vector{round}, words{{"a", "b"}});
    CHECK(count(rows_of(page), "t accepted") == 3);
    CHECK(count(rows_of(page), "t own") == 0);
    CHECK(count(page, "<a href=\"#r1\" class=\"accepted\">ab</a>") == 1);
}

TEST_CASE("the text has whole characters and leads to its rounds", "[trace_page]") {
    words const text{{"\xE2", "\x82\xAC", "\n"}};
    std::vector<round_seen> const rounds{
        {.drafted = {0}, .confidences = {1}, .verified = 1, .accepted = 1, .emitted = {0, 1}},
        {.drafted = {}, .confidences = {}, .verified = 0, .accepted = 0, .emitted = {2}}};
    std::string const page = trace_page({{}, false}, rounds, text);
    CHECK(count(page, "<a href=\"#r1\" class=\"own\">\xE2\x82\xAC</a><a href=\"#r2\" class=\"own\">\n</a></p>") == 1);
    CHECK(count(page, "id=\"r1\"") == 1);
    CHECK(count(page, "id=\"r2\"") == 1);
}

TEST_CASE("the page needs nothing from elsewhere", "[trace_page]") {
    std::string const page = trace_page({{}, true}, {}, words{});
    for (char const* const part : {"<script", "src=", "url(", "@import", "http", "<link"}) {
        INFO(part);
        CHECK(count(page, part) == 0);
    }
}
