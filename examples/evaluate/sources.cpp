// SPDX-License-Identifier: MIT
#include "sources.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <system_error>

#include <engine/config.hpp>
#include <generate/schedule.hpp>
#include <sureleap/core/error.hpp>

namespace evaluate {
namespace {

using detail::assignment;
using detail::named;
using detail::split;
using sureleap::fail_with;

/// What a flag "[NAME=]VALUE" says, for the drafter of that name or for all.
template <class F>
void for_drafts(std::vector<draft_source>& drafts, char const* flag, std::vector<std::string> const& texts,
                F const& set) {
    for (std::string const& text : texts) {
        assignment const parts = split(text);
        bool used = false;
        for (draft_source& d : drafts) {
            if (parts.name && d.name != *parts.name) continue;
            set(d, parts.value);
            used = true;
        }
        if (!used) fail_with(flag, " is for '", *parts.name, "', expected the NAME of a --draft");
    }
}

std::size_t parse_length(char const* flag, std::string const& text) {
    std::size_t value = 0;
    auto const [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc{} || end != text.data() + text.size() || value < 1 || value > engine::limits::block_size) {
        fail_with(flag, " is '", text, "', expected a number in 1 .. ", engine::limits::block_size);
    }
    return value;
}

}  // namespace

std::vector<draft_source> parse_drafts(source_flags const& flags) {
    std::vector<draft_source> drafts;
    for (std::string const& text : flags.drafts) drafts.push_back(parse_draft(text));
    for (std::string const& name : flags.zero_biases) {
        auto const found = std::find_if(drafts.begin(), drafts.end(),
                                        [&](draft_source const& d) { return d.name == name && !d.zero_bias; });
        if (found == drafts.end()) fail_with("--zero-bias is '", name, "', expected the NAME of a --draft");
        draft_source bare = *found;
        bare.name += ", no bias";
        bare.zero_bias = true;
        drafts.insert(found + 1, bare);
    }
    for_drafts(drafts, "--max-draft", flags.max_drafts,
               [](draft_source& d, std::string const& value) { d.max_draft = parse_length("--max-draft", value); });
    for_drafts(drafts, "--tree", flags.trees,
               [](draft_source& d, std::string const& value) { d.tree = parse_length("--tree", value); });
    for_drafts(drafts, "--schedule", flags.schedules, [](draft_source& d, std::string const& value) {
        generate::check_schedule_name(value);
        d.schedule = value;
    });
    std::set<std::string> names;
    for (draft_source const& d : drafts) {
        if (!names.insert(d.name).second) fail_with("--draft: '", d.name, "' is there twice, expected different names");
        if (d.name == "plain" && d.path != "none")
            fail_with("--draft: 'plain' is plain decoding's name, expected another");
    }
    return drafts;
}

std::vector<prompt_source> parse_prompts(source_flags const& flags) {
    std::vector<prompt_source> prompts;
    for (std::string const& text : flags.prompts) {
        assignment const parts = split(text);
        if (parts.value.empty() || (parts.name && parts.name->empty())) {
            fail_with("--prompts is '", text, "', expected FILE or NAME=FILE");
        }
        prompts.push_back({parts.name, parts.value});
    }
    return prompts;
}

std::map<std::string, std::string> parse_templates(source_flags const& flags) {
    std::map<std::string, std::string> templates;
    for (std::string const& text : flags.templates) {
        assignment parts = named("--template", text, "TEXT");
        if (parts.value.find("{}") == std::string::npos) {
            fail_with("--template of '", *parts.name, "' has no {}, expected it where the question goes");
        }
        for (std::size_t at; (at = parts.value.find("\\n")) != std::string::npos;) parts.value.replace(at, 2, "\n");
        if (!templates.emplace(*parts.name, parts.value).second) {
            fail_with("--template of '", *parts.name, "' is there twice");
        }
    }
    return templates;
}

}  // namespace evaluate
