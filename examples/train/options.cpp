// SPDX-License-Identifier: MIT
#include "options.hpp"

#include <algorithm>
#include <cstdlib>

#include <CLI/CLI.hpp>

#include <sureleap/core/error.hpp>

#include "eagle3_model.hpp"  // eagle3_losses

namespace train {
namespace {

using sureleap::fail_with;

void add_run(CLI::App& command, run_options& run) {
    command.add_option("--out", run.out, "Folder to write the model to; its training state lies there as well")
        ->required();
    command.add_option("--steps", run.steps, "Optimizer steps")->required()->check(CLI::PositiveNumber);
    command.add_option("--batch-tokens", run.batch_tokens, "Tokens of a step")->capture_default_str();
    command.add_option("--shards", run.shards, "Parts of a step that run in parallel; the weights depend on it")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    command.add_option("--learning-rate", run.optimizer.learning_rate, "The highest")->capture_default_str();
    command.add_option("--warm-up", run.optimizer.warm_up, "Steps until it is reached")->capture_default_str();
    command.add_option("--weight-decay", run.optimizer.weight_decay, "Of matrices")->capture_default_str();
    command.add_option("--clip", run.optimizer.clip, "Largest norm of the gradients")->capture_default_str();
    command.add_option("--seed", run.seed, "Of first weights, order and anchors")->capture_default_str();
    command.add_option("--threads", run.threads, "Default: one per core");
}

void add_repeats(CLI::App& command, std::vector<std::string>& repeats) {
    command.add_option("--repeat", repeats, "DOMAIN=N: its documents count N times in an epoch");
}

// "chat=3"
std::map<std::string, std::size_t> parse_repeats(std::vector<std::string> const& texts) {
    std::map<std::string, std::size_t> repeats;
    for (std::string const& text : texts) {
        auto const equals = text.find('=');
        char* end = nullptr;
        unsigned long const times = equals == std::string::npos ? 0 : std::strtoul(text.c_str() + equals + 1, &end, 10);
        if (times == 0 || times > 1000 || *end != '\0') {
            fail_with("--repeat is '", text, "', expected DOMAIN=N with N in 1 .. 1000");
        }
        repeats[text.substr(0, equals)] = times;
    }
    return repeats;
}

}  // namespace

std::optional<options> parse_options(int argc, char const* const* argv) {
    CLI::App app{
        "Trains a small target and the drafters that speculate for it.\n"
        "Training can be interrupted: the same command goes on where it was."};
    app.require_subcommand(1);
    std::vector<std::string> repeats;

    tokenizer_options tokenizer;
    auto& t = *app.add_subcommand("tokenizer", "Byte-level BPE from a corpus");
    t.add_option("--corpus", tokenizer.corpus, "JSON lines of domain, prompt, completion")->required();
    t.add_option("--vocabulary", tokenizer.vocabulary, "Tokens, special ones included")->capture_default_str();
    t.add_option("--domain-bytes", tokenizer.domain_bytes,
                 "Learn from so much text of every domain, so that none has more say than the others. Default: all");
    t.add_option("--out", tokenizer.out, "The tokenizer.json to write")->required();

    target_options target;
    target.run.optimizer.learning_rate = 3e-3;
    target.shape = {.vocabulary = 0,
                    .hidden_size = 256,
                    .intermediate_size = 512,
                    .layers = 5,
                    .heads = 4,
                    .kv_heads = 2,
                    .head_dim = 64,
                    .max_positions = 512,
                    .rope_theta = 10000.0,
                    .rms_norm_eps = 1e-6,
                    .tied_embeddings = true};
    auto& g = *app.add_subcommand("target", "A Qwen3-shaped language model from a corpus");
    g.add_option("--corpus", target.corpus, "JSON lines of domain, prompt, completion")->required();
    g.add_option("--validation", target.validation, "The same, not trained on: its loss is printed at the end");
    g.add_option("--tokenizer", target.tokenizer, "A tokenizer.json with <|endoftext|> and <|mask|>")->required();
    g.add_option("--hidden", target.shape.hidden_size, "Hidden size")->capture_default_str();
    g.add_option("--intermediate", target.shape.intermediate_size, "Of the MLPs")->capture_default_str();
    g.add_option("--layers", target.shape.layers, "Layers")->capture_default_str();
    g.add_option("--heads", target.shape.heads, "Query heads")->capture_default_str();
    g.add_option("--kv-heads", target.shape.kv_heads, "Key and value heads")->capture_default_str();
    g.add_option("--head-dim", target.shape.head_dim, "Size of a head")->capture_default_str();
    g.add_option("--context", target.shape.max_positions, "Longest text in tokens")->capture_default_str();
    add_repeats(g, repeats);
    add_run(g, target.run);

    texts_options texts;
    auto& x = *app.add_subcommand("texts", "Texts written by a target, to train its drafters on");
    x.add_option("--target", texts.target, "Folder of the target, with tokenizer.json, or a GGUF file")->required();
    x.add_option("--corpus", texts.corpus, "The target continues its prompts, or answers its messages")->required();
    x.add_option("--out", texts.out,
                 "A .safetensors file for the tokens alone, or a folder for recorded texts, which have all that `train "
                 "draft` needs; there an interrupted command goes on where it was")
        ->required();
    x.add_option("--texts", texts.texts,
                 "How many; more than prompts begin those again. Default: one for every prompt");
    x.add_option("--features", texts.features,
                 "Layers of the target to record; -1 is the embedding. Default: three, spread")
        ->delimiter(',');
    x.add_option("--at-once", texts.at_once, "Texts being written")->check(CLI::Range(1, 1024))->capture_default_str();
    x.add_option("--longest", texts.longest, "Tokens of a text. Default: the target's positions, but at most 1024");
    x.add_option("--max-new-tokens", texts.max_new_tokens,
                 "Tokens the target writes. Default: as far as --longest goes");
    x.add_option("--temperature", texts.sampling.temperature, "Of sampling")->capture_default_str();
    x.add_option("--top-p", texts.sampling.top_p, "Keep the smallest set of tokens with so much of the probability")
        ->capture_default_str();
    x.add_option("--top-k", texts.sampling.top_k, "Keep so many tokens; 0: all")->capture_default_str();
    x.add_option("--seed", texts.seed, "Of sampling, and of the order of prompts")->capture_default_str();
    x.add_option("--threads", texts.threads, "Default: one per core");
    add_repeats(x, repeats);

    vocabulary_options vocabulary;
    auto& v = *app.add_subcommand("vocabulary", "The commonest tokens of recorded texts, for a drafter to draft");
    v.add_option("--recorded", vocabulary.recorded, "Folder of recorded texts")->required();
    v.add_option("--tokens", vocabulary.tokens, "How many")->required();
    v.add_option("--out", vocabulary.out, "File to write (.safetensors)")->required();

    draft_options draft;
    draft.draft.block_size = 7;
    draft.draft.markov_rank = 64;
    draft.run.optimizer.learning_rate = 3e-3;
    std::string head = "vanilla";
    std::string losses;
    bool no_confidence = false;
    auto& d = *app.add_subcommand("draft", "A drafter for a target, which stays as it is");
    d.add_option("--target", draft.target, "Folder of the target, with tokenizer.json, or a GGUF file")->required();
    auto* const data = d.add_option("--data", draft.data, "Tokens that `train texts` wrote, or a corpus");
    auto* const recorded =
        d.add_option("--recorded", draft.recorded, "Folders of recorded texts that `train texts` wrote, or one");
    data->excludes(recorded);
    d.add_option("--validation", draft.validation, "Other recorded texts, not trained on: their tau is told meanwhile")
        ->needs(recorded);
    d.add_option("--validate-steps", draft.validate_steps,
                 "So often it is told, and the model written as it is; 0: at the end")
        ->capture_default_str();
    d.add_option("--vocabulary", draft.vocabulary, "Draft only these tokens, which `train vocabulary` chose")
        ->needs(recorded);
    d.add_option("--start-layer", draft.start_layer, "Start from this layer of the target and those behind it")
        ->needs(recorded);
    d.add_option(
         "--start-from", draft.start_from,
         "Start from an earlier drafter, a folder. It may have fewer layers: those it lacks change nothing at first")
        ->needs(recorded);
    d.add_option("--mask-token", draft.mask_token, "A token that stands for those to be drafted")
        ->capture_default_str();
    d.add_flag("--bf16", draft.bf16,
               "Products in BF16: faster where the processor multiplies it (AVX512_BF16, AMX-BF16)");
    d.add_option("--decay", draft.losses.decay, "Position k of a block counts exp(-k / decay); 0: all the same")
        ->capture_default_str();
    d.add_option("--kind", draft.kind, "dspark, dflash or eagle3")
        ->check(CLI::IsMember({"dspark", "dflash", "eagle3"}))
        ->capture_default_str();
    d.add_option("--head", head, "Sequential head of dspark: vanilla (Markov), gated or rnn")
        ->check(CLI::IsMember({"vanilla", "gated", "rnn"}))
        ->capture_default_str();
    d.add_option("--rank", draft.draft.markov_rank, "Of the sequential head")->capture_default_str();
    d.add_flag("--no-confidence", no_confidence, "dspark without a confidence head");
    d.add_option("--block-size", draft.draft.block_size, "Tokens drafted at once; steps in training for eagle3")
        ->capture_default_str();
    d.add_option("--layers", draft.layers, "Layers of the drafter")->capture_default_str();
    d.add_option("--intermediate", draft.intermediate, "Of its MLPs; default: the target's");
    d.add_option("--features", draft.draft.target_layer_ids,
                 "Layers of the target that the drafter reads; -1 is the embedding. Default: three, spread")
        ->delimiter(',');
    d.add_option("--losses", losses,
                 "ce: cross entropy alone; tv: 0.1 ce + 0.9 total variation. Default: tv for dspark, ce for dflash")
        ->check(CLI::IsMember({"ce", "tv"}));
    d.add_option("--anchors", draft.anchors_per_token, "Blocks per token of a text")->capture_default_str();
    add_run(d, draft.run);

    try {
        app.parse(argc, argv);
    } catch (CLI::CallForHelp const& help) {
        app.exit(help);
        return std::nullopt;
    } catch (CLI::ParseError const& e) {
        sureleap::fail_with(e.what());
    }
    target.repeats = texts.repeats = parse_repeats(repeats);
    if (d.parsed() && draft.data.empty() == draft.recorded.empty()) {
        fail_with("draft: neither --data nor --recorded is given, expected one of them");
    }
    auto const& how = texts.sampling;
    if (!(how.temperature >= 0.0 && how.temperature <= sureleap::largest_temperature && how.top_p > 0.0 &&
          how.top_p <= 1.0 && how.top_k >= 0)) {
        fail_with("texts: temperature is ", how.temperature, ", top-p ", how.top_p, " and top-k ", how.top_k,
                  ", expected 0 or more, a number in (0, 1], and 0 or more");
    }

    bool const dspark = draft.kind == "dspark";
    draft.draft.head = !dspark           ? engine::head_kind::none
                       : head == "gated" ? engine::head_kind::gated
                       : head == "rnn"   ? engine::head_kind::rnn
                                         : engine::head_kind::vanilla;
    if (!dspark) draft.draft.markov_rank = 0;
    draft.draft.confidence = draft.draft.confidence_with_markov = dspark && !no_confidence;
    bool const eagle3 = draft.kind == "eagle3";
    if (eagle3) draft.losses = eagle3_losses();
    if (losses.empty()) losses = dspark ? "tv" : "ce";
    draft.losses.cross_entropy = losses == "ce" ? 1.0 : 0.1;
    draft.losses.total_variation = losses == "ce" ? 0.0 : 0.9;
    if (!draft.draft.confidence) draft.losses.confidence = 0.0;
    if (!(draft.anchors_per_token > 0.0 && draft.anchors_per_token <= 1.0)) {
        fail_with("--anchors is ", draft.anchors_per_token, ", expected a number in (0, 1]");
    }

    if (t.parsed()) return tokenizer;
    if (g.parsed()) return target;
    if (x.parsed()) return texts;
    if (v.parsed()) return vocabulary;
    return draft;
}

}  // namespace train
