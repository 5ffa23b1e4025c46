// SPDX-License-Identifier: MIT
//
// What the flags say about drafters and prompts: texts of the form "NAME=VALUE".
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/core/error.hpp>

namespace evaluate {

/// A drafter under the name it has in the tables.
struct draft_source {
    std::string name;
    std::string path;                        ///< of a model; or "lookup", or "none": plain decoding once more
    bool joined = false;                     ///< lookup in front of the model's drafter, or of none
    bool stored = false;                     ///< speed: it looks in texts as well that the run before it has written
    bool zeroed = false;                     ///< all weights of the model are 0: what a useless drafter costs
    bool zero_bias = false;                  ///< its sequential head left out: what the backbone is worth alone
    std::size_t tree = 0;                    ///< drafted tokens of a tree; 0: chains
    std::string schedule = "auto";           ///< of speed, batch and equality; others verify whole blocks, or vary it
    std::optional<std::size_t> max_draft{};  ///< of a block, drafted and verified; all of it if not given

    [[nodiscard]] bool is_model() const { return path != "lookup" && path != "none"; }
};

/// A file of prompts. Without a domain its lines name theirs.
struct prompt_source {
    std::optional<std::string> domain;
    std::filesystem::path file;
};

/// The flags as they were typed, each as often as it was given.
struct source_flags {
    std::vector<std::string> drafts, zero_biases, max_drafts, trees, schedules, prompts, templates;
};

namespace detail {

/// "name=value" in two.
struct assignment {
    std::optional<std::string> name;
    std::string value;
};
[[nodiscard]] inline assignment split(std::string const& text) {
    std::size_t const at = text.find('=');
    if (at == std::string::npos) return {std::nullopt, text};
    return {text.substr(0, at), text.substr(at + 1)};
}
[[nodiscard]] inline assignment named(char const* flag, std::string const& text, char const* value) {
    assignment const parts = split(text);
    if (!parts.name || parts.name->empty() || parts.value.empty()) {
        sureleap::fail_with(flag, " is '", text, "', expected NAME=", value);
    }
    return parts;
}

}  // namespace detail

/// "NAME=[lookup+|store+][zeroed:]PATH". Throws sureleap::error.
[[nodiscard]] inline draft_source parse_draft(std::string const& text) {
    detail::assignment const parts = detail::named("--draft", text, "PATH");
    draft_source out{.name = *parts.name, .path = parts.value};
    auto const take = [&](std::string_view prefix) {
        bool const there = out.path.starts_with(prefix);
        if (there) out.path.erase(0, prefix.size());
        return there;
    };
    out.stored = take("store+");
    out.joined = out.stored || take("lookup+");
    out.zeroed = take("zeroed:");
    if (out.path.empty() || (out.joined && out.path == "lookup") || (out.zeroed && !out.is_model())) {
        sureleap::fail_with("--draft is '", text,
                            "', expected the path of a model, or none, behind 'lookup+' and 'store+', and a model "
                            "behind 'zeroed:'");
    }
    return out;
}

/// All drafters in their order, with what the other flags say of them. Throws sureleap::error.
[[nodiscard]] std::vector<draft_source> parse_drafts(source_flags const& flags);

/// "FILE" or "NAME=FILE". Throws sureleap::error.
[[nodiscard]] std::vector<prompt_source> parse_prompts(source_flags const& flags);

/// "NAME=TEXT", by name. Throws sureleap::error.
[[nodiscard]] std::map<std::string, std::string> parse_templates(source_flags const& flags);

}  // namespace evaluate
