// SPDX-License-Identifier: MIT
#include "prompts.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <utility>

#include <engine/chat.hpp>
#include <engine/model_files.hpp>
#include <engine/tokenizer.hpp>
#include <sureleap/core/error.hpp>

#include "prompt_line.hpp"

namespace evaluate {
namespace {

using sureleap::fail_with;

/// Reads files in the order they were given; domains come in the order they are first met.
class reader {
public:
    reader(options const& chosen, std::size_t vocabulary) : chosen_(chosen), vocabulary_(vocabulary) {}

    void read(prompt_source const& source) {
        std::string const name = source.file.string();
        std::ifstream in(source.file);
        if (!in) fail_with(name, ": cannot be read");
        std::size_t number = 0;
        std::size_t taken = 0;
        for (std::string line; std::getline(in, line);) {
            ++number;
            if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
            std::string const where = name + ", line " + std::to_string(number);
            prompt_line const read = parse_prompt_line(line, where);
            if (!read.domain && !source.domain) {
                fail_with(where, ": there is no field 'domain', expected one; or give --prompts NAME=FILE");
            }
            if (read.domain && source.domain && *read.domain != *source.domain) continue;
            take(source.domain ? *source.domain : *read.domain, name, read, where);
            ++taken;
        }
        if (!in.eof()) fail_with(name, ": cannot be read to its end");
        if (taken == 0) {
            fail_with(name, ": no prompt", source.domain ? " of the domain '" + *source.domain + "'" : "",
                      ", expected at least one");
        }
    }

    [[nodiscard]] std::vector<domain> take_domains() { return std::move(domains_); }

private:
    void take(std::string const& name, std::string const& file, prompt_line const& read, std::string const& where) {
        auto found = std::find_if(domains_.begin(), domains_.end(), [&](domain const& d) { return d.name == name; });
        if (found == domains_.end()) found = domains_.insert(domains_.end(), domain{.name = name});
        if (std::find(found->files.begin(), found->files.end(), file) == found->files.end()) {
            found->files.push_back(file);
        }
        ++found->available;
        if (found->prompts.size() < chosen_.texts) found->prompts.push_back(tokens_of(name, read, where));
    }

    [[nodiscard]] std::vector<token_id> tokens_of(std::string const& name, prompt_line const& read,
                                                  std::string const& where) {
        if (!read.tokens.empty()) {
            for (token_id const id : read.tokens) {
                if (static_cast<std::size_t>(id) >= vocabulary_) {
                    fail_with(where, ": token ", id, ", expected 0 .. ", vocabulary_ - 1);
                }
            }
            return read.tokens;
        }
        if (!read.turns.empty()) return engine::chat_prompt(tokenizer(), read.turns, chat());
        auto const pattern = chosen_.templates.find(name);
        bool const around = read.bare && pattern != chosen_.templates.end();
        // What stands in a prompt file is text, also where it looks like a special token.
        auto tokens = tokenizer().encode(around ? fill_template(pattern->second, read.text) : read.text,
                                         {.parse_special = false});
        if (tokens.empty()) fail_with(where, ": the prompt has no tokens, expected at least one");
        return tokens;
    }

    [[nodiscard]] engine::tokenizer const& tokenizer() {
        if (!tokenizer_) {
            tokenizer_ = engine::tokenizer_of(chosen_.target);
            if (!tokenizer_) {
                fail_with(chosen_.target.string(),
                          ": there is no tokenizer, and the prompts are texts; give them as 'tokens'");
            }
            tokenizer_->check_fits(vocabulary_);
        }
        return *tokenizer_;
    }

    [[nodiscard]] engine::chat_template const& chat() {
        if (!chat_) chat_ = engine::chat_template_of(chosen_.target);
        return *chat_;
    }

    options const& chosen_;
    std::size_t vocabulary_;
    std::optional<engine::tokenizer> tokenizer_;
    std::optional<engine::chat_template> chat_;
    std::vector<domain> domains_;
};

void check_templates(options const& chosen, std::vector<domain> const& domains) {
    for (auto const& [name, _] : chosen.templates) {
        if (std::none_of(domains.begin(), domains.end(), [&](domain const& d) { return d.name == name; })) {
            fail_with("--template is for the domain '", name, "', but no prompt is of it");
        }
    }
}

}  // namespace

prompt_set read_prompts(options const& chosen, std::size_t vocabulary, std::size_t most, std::size_t output) {
    reader all(chosen, vocabulary);
    for (prompt_source const& source : chosen.prompts) all.read(source);
    prompt_set out{.domains = all.take_domains()};
    check_templates(chosen, out.domains);
    if (output >= most) {
        fail_with("--tokens ", chosen.tokens, " and a block take ", output, " positions, expected fewer than the ",
                  most, " of the context");
    }
    std::size_t const room = most - output;
    for (domain& d : out.domains) {
        for (auto& prompt : d.prompts) {
            if (prompt.size() > room) {
                prompt.erase(prompt.begin(), prompt.end() - static_cast<std::ptrdiff_t>(room));
                ++d.cut;
            }
            out.context = std::max(out.context, prompt.size() + output);
        }
    }
    return out;
}

table describe(prompt_set const& prompts) {
    table t{.title = "Prompts", .header = {"domain", "prompts", "in the files", "mean tokens", "cut"}};
    for (domain const& d : prompts.domains) {
        std::size_t tokens = 0;
        for (auto const& p : d.prompts) tokens += p.size();
        t.add({d.name, grouped(d.prompts.size()), grouped(d.available),
               fixed(static_cast<double>(tokens) / static_cast<double>(d.prompts.size()), 0), grouped(d.cut)});
    }
    for (domain const& d : prompts.domains) {
        if (d.cut > 0) {
            t.notes.push_back("Prompts that were too long for the context were cut at their beginning.");
            break;
        }
    }
    return t;
}

}  // namespace evaluate
