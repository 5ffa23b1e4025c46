// SPDX-License-Identifier: MIT
#include "options.hpp"

#include <CLI/CLI.hpp>

#include <engine/config.hpp>
#include <engine/parts.hpp>
#include <engine/text_file.hpp>

#include "command_line.hpp"
#include "schedule.hpp"
#include "tiny.hpp"

namespace generate {
namespace {

constexpr char const* about =
    "Continues a prompt with speculative decoding, and shows what that was worth beside plain decoding\n"
    "with the same models. Without --target it runs two tiny models that come with the project.\n";

constexpr char const* examples =
    "Examples:\n"
    "  generate\n"
    "  generate --target Qwen3-4B --draft dspark_qwen3_4b_block7 --chat --prompt \"Why is the sky blue?\"\n"
    "  generate --target Qwen3-4B --draft lookup --prompt-file notes.txt --temperature 0.7 --rule coupled\n"
    "  generate --target Qwen3-4B --draft dspark_qwen3_4b_block7 --tokens 785,3974 --schedule greedy --copies 4\n";

void add_models(CLI::App& app, options& o) {
    option_group models(app, "Models");
    models.add("--target", o.target, "PATH",
               "A Qwen3 or Llama model: a folder as Hugging Face saves it, or a GGUF file");
    models.add("--draft", o.draft, "PATH",
               "A DSpark, DFlash or Eagle3 drafter made for this target; or\n"
               "any small language model with a tokenizer, whose text is drafted;\n"
               "lookup: no model, drafts what followed the last tokens before;\n"
               "none: plain decoding only. Default: lookup, or the tiny drafter");
    models.flag("--join-lookup", o.joined,
                "Where the last tokens occurred before, draft what followed them;\n"
                "elsewhere let the drafter of --draft");
    models
        .add("--texts", o.texts, "FILE",
             "Lookup, joined or alone, finds drafts in this text as well: what is edited, a\n"
             "corpus. Once for every file")
        ->allow_extra_args(false);
}

void add_prompt(CLI::App& app, options& o, std::filesystem::path& file) {
    option_group prompt(app, "Prompt");
    auto* const text = prompt.add("--prompt", o.prompt, "TEXT", "Text to continue; needs the target's tokenizer");
    auto* const from = prompt.add("--prompt-file", file, "FILE", "A file with that text");
    auto* const ids = prompt.add("--tokens", o.tokens, "IDS", "Token ids to continue, as 1,2,3; shows ids as well");
    auto* const chat = prompt.flag("--chat", o.chat,
                                   "The text is a user's message to a ChatML model. Without a text: a\n"
                                   "conversation, which reads the user's messages from stdin, a line each");
    auto* const think = prompt.flag("--think", o.think,
                                    "With --chat: the model may think first. The released drafters\n"
                                    "were trained without that");
    from->excludes(text);
    ids->delimiter(',')->excludes(text)->excludes(from)->check([](std::string const& given) {
        return given.empty() ? std::string("has no token, expected some as 1,2,3") : std::string();
    });
    chat->excludes(ids);
    think->needs(chat);
}

void add_speculation(CLI::App& app, options& o) {
    option_group speculation(app, "Speculation");
    speculation.add("--schedule", o.schedule, "NAME",
                    "How far to draft, and how much of it is verified. auto: what gives most\n"
                    "tokens a second, by costs that are measured at start; drafts nothing where\n"
                    "that is fastest. greedy, top-k, planned: the same of a whole block.\n"
                    "fixed, fixed:N (the first N tokens), threshold:C (up to a confidence below C),\n"
                    "survival:C (up to a product of them below C).\n"
                    "Default: auto; fixed for the tiny models");
    speculation.add("--rule", o.rule, "NAME",
                    "What is accepted. block (accepts most), token, token-argmax: samples of the\n"
                    "target's law. match, coupled: the tokens of plain decoding, exactly.\n"
                    "Default: block; coupled for the tiny models");
    speculation
        .add("--block-size", o.block_size, "N",
             "Tokens drafted in a round, at most the drafter's own number.\n"
             "Default: that; 7 for lookup")
        ->check(at_most(engine::limits::block_size));
    speculation
        .add("--tree", o.tree, "N",
             "Draft trees of up to N tokens: several guesses at a position. Pays where rows of\n"
             "the target are cheap; auto decides how many of them. DSpark")
        ->check(at_most(engine::limits::block_size));
    auto* const listed = speculation
                             .add("--shortlist", o.shortlist, "M",
                                  "Draft from the best M tokens only: most of the time of a sequential\n"
                                  "head saved, for a little acceptance. DSpark and DFlash")
                             ->check(at_most(std::size_t{1} << 24));
    speculation
        .add("--successors", o.successors, "S",
             "So many of them by the head's bias, the others by base logits. They are\n"
             "computed at start, which takes minutes for a large vocabulary; 0 skips\n"
             "that. Default: a quarter")
        ->needs(listed);
    speculation.add("--max-draft", o.settings.max_draft_tokens, "N", "Use only the first N tokens of a block")
        ->check(at_most(engine::limits::block_size));
}

void add_sampling(CLI::App& app, options& o) {
    option_group sampling(app, "Sampling");
    sampling.add("--temperature", o.settings.temperature, "T", "0 is greedy")->capture_default_str();
    sampling.add("--top-k", o.settings.top_k, "K", "Keep the K likeliest tokens; 0 keeps all")->capture_default_str();
    sampling.add("--top-p", o.settings.top_p, "P", "Keep the likeliest tokens of this mass")->capture_default_str();
    sampling.add("--min-p", o.settings.min_p, "P", "Keep tokens of at least P times the likeliest")
        ->capture_default_str();
    sampling.add("--seed", o.seed, "N", "Seed of all random choices")->capture_default_str();
    sampling.add("--max-new-tokens", o.settings.max_new_tokens, "N", "Stop after so many")->capture_default_str();
    sampling.flag("--ignore-eos", o.ignore_eos, "Do not stop at the model's stop tokens");
    sampling.add("--stop", o.stops, "TEXT", "End with the token that completes this text; one or several");
    sampling.add("--regex", o.regex, "PATTERN",
                 "Write what matches this expression over bytes, such as yes|no. Drafts do too");
}

void add_running(CLI::App& app, options& o, bool& no_plain) {
    option_group running(app, "Running");
    running.add("--copies,--slots", o.copies, "N", "The prompt N times at once, with seeds seed, seed + 1, ...")
        ->check(at_most(4096))
        ->capture_default_str();
    running
        .add("--context", o.context, "N",
             "Positions a sequence may have. Default: what it needs; 2048 for a\n"
             "conversation, which forgets its oldest messages when they are used up")
        ->check(at_most(engine::limits::max_positions));
    running.add("--prefill-chunk", o.prefill_chunk, "N", "Prompt tokens in one pass")
        ->check(at_most(65536))
        ->capture_default_str();
    running.add("--threads", o.threads, "N", "Default: one per core; of ranks of mpirun, their share of the cores")
        ->check(at_most(1024));
    running.add("--rank-seconds", o.rank_seconds, "S", "A rank of mpirun that is late by more is lost, which ends all")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    running.flag("--bf16", o.bf16, about_bf16);
    running.flag("--no-plain", no_plain, "Leave out plain decoding, and with it the comparison");
    running.flag("--verbose", o.verbose, "Show times, counts and memory rates as well");
    running.add("--json", o.json, "FILE", "Write everything that was found out, and the tokens");
    running.add("--trace", o.trace, "FILE.html",
                "Write a page with every round: what was drafted, how sure the drafter\n"
                "was, what was accepted, what the target wrote itself");
}

/// What the flags leave open, and what only all of them together get wrong.
void complete(options& o, std::filesystem::path const& prompt_file, bool no_plain) {
    using sureleap::fail_with;
    o.plain = !no_plain;
    if (!prompt_file.empty()) o.prompt = engine::read_text(prompt_file);
    if (o.tiny() && o.prompt)
        fail_with("a text needs a tokenizer, and the tiny models have none: give --target or --tokens");
    if (!o.tiny() && !o.prompt && !o.chat && o.tokens.empty())
        fail_with("nothing to continue: give --prompt, --prompt-file or --tokens, or --chat for a conversation");
    if (!o.stops.empty() && !o.prompt && !o.chat)
        fail_with("--stop needs a text, and ids have none: give --prompt, --prompt-file or --chat");
    if (!o.regex.empty() && !o.prompt && !o.chat)
        fail_with("--regex needs a text, and ids have none: give --prompt, --prompt-file or --chat");
    if (!o.regex.empty() && o.ignore_eos)
        fail_with("--regex ends a text with a stop token where it matches, and --ignore-eos leaves none");
    if (o.tiny() && o.chat) fail_with("--chat needs a tokenizer, and the tiny models have none: give --target");
    if (o.converses() && o.copies > 1) fail_with("--copies is ", o.copies, ", expected 1 in a conversation");
    if (!o.trace.empty() && !o.speculates()) fail_with("--trace shows rounds of a drafter, and --draft is none");
    if (o.converses() && !o.trace.empty()) fail_with("--trace needs a prompt: a conversation has no page");
    if (o.converses() && !o.json.empty()) fail_with("--json needs a prompt: a conversation has no report");
    if (o.draft.empty()) o.draft = o.tiny() ? tiny_drafter().string() : "lookup";
    if (o.joined && !o.drafts_by_model()) fail_with("--join-lookup needs a folder as --draft, whose drafter it joins");
    if (!o.texts.empty() && (o.tiny() || !(o.joined || o.drafts_by_lookup()))) {
        fail_with("--texts are for lookup in the texts of a --target: give --draft lookup, or --join-lookup");
    }
    // Texts beside the context are found by what joins a drafter: here one of no drafts.
    o.joined = o.joined || !o.texts.empty();
    if (o.tree > 0 && !o.drafts_by_model()) fail_with("--tree needs a DSpark folder as --draft");
    if (o.joined && o.shortlist > 0) fail_with("--join-lookup does not go with --shortlist");
    if (o.shortlist > 0 && !o.drafts_by_model()) fail_with("--shortlist needs a DSpark or DFlash folder as --draft");
    if (o.shortlist > 0 && o.listed_successors() >= o.shortlist) {
        sureleap::fail_with("--successors is ", o.listed_successors(),
                            ", expected fewer than --shortlist = ", o.shortlist,
                            ": at least one token is chosen by base logits");
    }
    if (!o.speculates() && !o.plain) fail_with("--draft none --no-plain leaves nothing to do");
    // A first run of the tiny models is worth more as a check than for its acceptance.
    if (o.rule.empty()) o.rule = o.tiny() ? "coupled" : "block";
    if (o.schedule.empty()) o.schedule = o.tiny() ? "fixed" : "auto";
    sureleap::check_settings(o.settings);
    static_cast<void>(engine::make_rule(o.rule));
    check_schedule_name(o.schedule);
}

}  // namespace

std::optional<options> parse_options(int argc, char const* const* argv) {
    options chosen;
    std::filesystem::path prompt_file;
    bool no_plain = false;
    CLI::App app{about, "generate"};
    app.footer(examples);
    add_models(app, chosen);
    add_prompt(app, chosen, prompt_file);
    add_speculation(app, chosen);
    add_sampling(app, chosen);
    add_running(app, chosen, no_plain);
    if (!parse_flags(app, argc, argv)) return std::nullopt;
    complete(chosen, prompt_file, no_plain);
    return chosen;
}

}  // namespace generate
