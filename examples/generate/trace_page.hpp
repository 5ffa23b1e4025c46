// SPDX-License-Identifier: MIT
//
// Every round of a text as a page of HTML: what was drafted and how sure the drafter was, what was verified and
// accepted, and what the target wrote itself. The page stands alone: no scripts, and nothing that is loaded from
// elsewhere.
#pragma once

#include <array>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <engine/text/utf8.hpp>
#include <sureleap/core/types.hpp>

#include "round_seen.hpp"

namespace generate {

struct trace_facts {
    std::vector<std::pair<std::string, std::string>> lines;  ///< name and value
    bool has_confidence = false;                             ///< the drafter says how sure it is
};

/// Bytes of a token, which may be part of a character, or its id as text.
using token_text = std::function<std::string(sureleap::token_id)>;

// ---- text in HTML ------------------------------------------------------------------------------------------------

/// For elements and for attributes in double quotes.
[[nodiscard]] inline std::string escaped(std::string_view text) {
    std::string html;
    for (char const c : text) {
        switch (c) {
            case '&': html += "&amp;"; break;
            case '<': html += "&lt;"; break;
            case '>': html += "&gt;"; break;
            case '"': html += "&quot;"; break;
            case '\'': html += "&#39;"; break;
            default: html += c;
        }
    }
    return html;
}

/// A token by itself, on one line: line ends and tabs as signs, other control characters and parts of characters as
/// \x1B.
[[nodiscard]] inline std::string visible(std::string_view bytes) {
    std::string text;
    while (!bytes.empty()) {
        engine::utf8_start const next = engine::starts_with(bytes);
        std::string_view const part = bytes.substr(0, next.bytes);
        auto const first = static_cast<unsigned char>(part[0]);
        bool const control = first < ' ' || first == 0x7F || (first == 0xC2 && part.size() == 2 && part[1] < '\xA0');
        if (part == "\n") {
            text += "\xE2\x86\xB5";  // a bent arrow
        } else if (part == "\t") {
            text += "\xE2\x87\xA5";  // an arrow to a bar
        } else if (next.is == engine::utf8_start::kind::character && !control) {
            text += part;
        } else {
            for (char const byte : part) {
                std::array<char, 8> hex;
                std::snprintf(hex.data(), hex.size(), "\\x%02X",
                              static_cast<unsigned>(static_cast<unsigned char>(byte)));
                text += hex.data();
            }
        }
        bytes.remove_prefix(next.bytes);
    }
    return text;
}

namespace detail {

inline constexpr std::string_view page_style = R"(
:root { color-scheme: light dark; --ink: #1a1a1a; --soft: #666; --paper: #fff; --line: #ddd;
        --accepted: #d3f0d6; --rejected: #fadadd; --own: #efd9f5; --bar: #0005; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e6e6; --soft: #999; --paper: #161616; --line: #3a3a3a;
          --accepted: #1d4a26; --rejected: #56242a; --own: #4b2a57; --bar: #fff6; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 1rem; } dt { color: var(--soft); } dd { margin: 0; }
.text { font-family: ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere; }
.text a { color: inherit; text-decoration: none; } .text a:hover { outline: 1px solid var(--soft); }
table { border-collapse: collapse; } td, th { text-align: left; vertical-align: top; padding: .3rem .6rem .3rem 0;
        border-top: 1px solid var(--line); } td.n, th.n { text-align: right; color: var(--soft); }
tr:target td { background: var(--line); }
.t { display: inline-block; margin: 0 .2rem .2rem 0; padding: 0 .35rem; border: 1px solid transparent; border-radius: .3rem;
     font-family: ui-monospace, monospace; white-space: pre; }
.t i { display: block; font: .7rem/1.2 system-ui, sans-serif; color: var(--soft);
       background: linear-gradient(90deg, var(--bar) var(--c), transparent 0) bottom / 100% 2px no-repeat; }
.accepted { background: var(--accepted); } .rejected { background: var(--rejected); text-decoration: line-through; }
.behind { background: var(--rejected); opacity: .55; text-decoration: line-through; }
.unverified { border: 1px dashed var(--soft); color: var(--soft); } .own { background: var(--own); font-weight: 600; }
)";

[[nodiscard]] inline std::string two_decimals(double x) {
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), "%.2f", x);
    return text.data();
}

/// A token of a round in its box, with a remark that shows when it is pointed at.
[[nodiscard]] inline std::string token_box(std::string const& kind, std::string const& text, std::string const& remark,
                                           std::string const& below = {}) {
    return "<span class=\"t " + kind + "\" title=\"" + escaped(remark) + "\">" + escaped(visible(text)) + below +
           "</span>";
}

[[nodiscard]] inline std::string draft_box(round_seen const& round, std::size_t k, std::string const& text,
                                           bool has_confidence) {
    char const* const kind = round.kept(k)         ? "accepted"
                             : k >= round.verified ? "unverified"
                             : round.reached(k)    ? "rejected"
                                                   : "behind";
    std::string remark = "draft " + std::to_string(k + 1) + ", token " + std::to_string(round.drafted[k]) + ": ";
    bool const behind = !round.kept(k) && k < round.verified && !round.reached(k);
    remark += !behind                 ? kind
              : round.parents.empty() ? "verified, behind a rejected one"
                                      : "verified, behind a rejected one or beside an accepted one";
    if (!round.parents.empty() && round.parents[k] != static_cast<std::int32_t>(k)) {
        std::int32_t const before = round.parents[k];
        remark += before == 0 ? ", another guess at the first" : ", follows draft " + std::to_string(before);
    }
    if (!has_confidence) return token_box(kind, text, remark);
    std::string const c = two_decimals(round.confidences[k]);
    return token_box(kind, text, remark + ", confidence " + c,
                     "<i style=\"--c:" + two_decimals(100 * round.confidences[k]) + "%\">" + c + "</i>");
}

[[nodiscard]] inline std::string own_box(round_seen const& round, std::string const& text) {
    std::string const what = round.accepted < round.verified ? "the target's correction"
                             : round.verified > 0            ? "the target's own, behind the last verified draft"
                                                             : "the target's own";
    return token_box("own", text, what + ", token " + std::to_string(round.emitted.back()));
}

}  // namespace detail

// ---- the page ----------------------------------------------------------------------------------------------------

[[nodiscard]] inline std::string trace_page(trace_facts const& facts, std::span<round_seen const> rounds,
                                            token_text const& text_of) {
    using std::to_string;
    std::string page =
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width\">\n"
        "<title>sureleap: every round</title>\n<style>";
    page += std::string(detail::page_style) + "</style>\n<h1>Every round of a text</h1>\n<dl>\n";
    for (auto const& [name, value] : facts.lines) page += "<dt>" + escaped(name) + "<dd>" + escaped(value) + "\n";

    // Characters may be spread over tokens: whole ones come with their last token, as on a terminal.
    page += "</dl>\n<h2>Text</h2>\n<p class=\"text\">";
    engine::utf8_stream characters;
    auto const part = [&](std::size_t round, std::span<sureleap::token_id const> tokens, char const* kind) {
        std::string text;
        for (auto const token : tokens) text += characters.push(text_of(token));
        if (text.empty()) return;
        page += "<a href=\"#r" + to_string(round) + "\" class=\"" + kind + "\">" + escaped(text) + "</a>";
    };
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        part(i + 1, rounds[i].from_draft(), "accepted");
        part(i + 1, rounds[i].from_target(), "own");
    }
    page += escaped(characters.finish());

    using detail::token_box;
    page += "</p>\n<h2>Rounds</h2>\n<p>" + token_box("accepted", "accepted", "") +
            token_box("rejected", "rejected", "") + token_box("behind", "verified behind it", "") +
            token_box("unverified", "drafted, not verified", "") + token_box("own", "the target's own", "");
    if (facts.has_confidence) page += "Below a draft: the probability of acceptance that the drafter expected.";
    page += "</p>\n<table>\n<tr><th class=\"n\">round<th class=\"n\">accepted<th>drafts, and the target's own token\n";
    for (std::size_t i = 0; i < rounds.size(); ++i) {
        round_seen const& round = rounds[i];
        page += "<tr id=\"r" + to_string(i + 1) + "\"><td class=\"n\">" + to_string(i + 1) + "<td class=\"n\">" +
                to_string(round.accepted) + " of " + to_string(round.verified) + "<td>";
        for (std::size_t k = 0; k < round.drafted.size(); ++k) {
            page += detail::draft_box(round, k, text_of(round.drafted[k]), facts.has_confidence);
        }
        if (!round.from_target().empty()) page += detail::own_box(round, text_of(round.from_target().back()));
        page += "\n";
    }
    return page + "</table>\n</html>\n";
}

}  // namespace generate
