// SPDX-License-Identifier: MIT
//
// How the programs on the engine read their flags, beyond what CLI11 does: options by heading, help that says each
// thing once, and one kind of error.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>

#include <sureleap/core/error.hpp>

namespace generate {

/// "--top-k N [0]": what is to be given, and what it is otherwise. The rest of what CLI11 would say is in the texts.
class brief_formatter final : public CLI::Formatter {
public:
    brief_formatter() { column_width(28); }
    [[nodiscard]] std::string make_option_opts(CLI::Option const* option) const override {
        std::string text = option->get_type_name();
        if (!option->get_default_str().empty()) text += " [" + option->get_default_str() + "]";
        return text.empty() ? text : " " + text;
    }
};

/// Options of one heading.
class option_group {
public:
    option_group(CLI::App& app, char const* heading) : app_(app), heading_(heading) {}

    template <class T>
    CLI::Option* add(char const* name, T& value, char const* type, char const* text) {
        return app_.add_option(name, value, text)->type_name(type)->group(heading_);
    }
    CLI::Option* flag(char const* name, bool& value, char const* text) {
        return app_.add_flag(name, value, text)->group(heading_);
    }

private:
    CLI::App& app_;
    char const* heading_;
};

/// 1 .. largest.
[[nodiscard]] inline CLI::Validator at_most(std::size_t largest) {
    return CLI::Range(std::size_t{1}, largest).description("");
}

/// What --bf16 does.
inline constexpr char const* about_bf16 =
    "Round activations to bf16 for products with bf16 weights, in all models: faster\n"
    "where the processor multiplies bf16 (AVX512_BF16)";

/// False if help was asked for, and printed. Throws sureleap::error for what CLI11 does not understand.
[[nodiscard]] inline bool parse_flags(CLI::App& app, int argc, char const* const* argv) {
    app.formatter(std::make_shared<brief_formatter>());
    try {
        app.parse(argc, argv);
    } catch (CLI::CallForHelp const&) {
        std::fputs(app.help().c_str(), stdout);
        return false;
    } catch (CLI::ParseError const& problem) {
        sureleap::fail_with(problem.what(), "; --help explains all flags");
    }
    return true;
}

}  // namespace generate
