// SPDX-License-Identifier: MIT
#include "commands.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include <engine/checkpoint.hpp>
#include <engine/synthetic.hpp>
#include <engine/thread_pool.hpp>
#include <engine/tokenizer.hpp>
#include <sureleap/core/error.hpp>

#include "bpe.hpp"
#include "causal_lm.hpp"
#include "checksum.hpp"
#include "documents.hpp"
#include "draft_model.hpp"
#include "draft_task.hpp"
#include "eagle3_model.hpp"
#include "folder.hpp"
#include "initial.hpp"
#include "own_texts.hpp"
#include "run.hpp"
#include "target_task.hpp"

namespace train {
namespace {

using sureleap::fail_with;
namespace fs = std::filesystem;

constexpr char const* end_of_text = "<|endoftext|>";
constexpr char const* mask = "<|mask|>";

token_id id_of(engine::tokenizer const& tokens, char const* text, fs::path const& file) {
    auto const id = tokens.id_of(text);
    if (!id) fail_with(file.string(), ": has no token ", text, ", expected one; make it with `train tokenizer`");
    return *id;
}

// Everything the weights of a run depend on.
std::string fingerprint(std::string const& what, engine::model_config const& config, run_options const& run,
                        documents const& all, std::string const& more) {
    std::ostringstream text;
    auto const& o = run.optimizer;
    text << what << ' ' << engine::config_json(config) << ' ' << all.size() << " documents of " << all.tokens()
         << " tokens, checksum " << all.checksum() << ", steps " << run.steps << " of " << run.batch_tokens
         << " tokens in " << run.shards << " shards, seed " << run.seed << ", rate " << o.learning_rate << " warm-up "
         << o.warm_up << " decay " << o.weight_decay << " clip " << o.clip << more;
    std::string line = text.str();
    std::erase(line, '\n');
    return line;
}

void copy_tokenizer(fs::path const& from, fs::path const& folder) {
    fs::create_directories(folder);
    fs::copy_file(from, folder / "tokenizer.json", fs::copy_options::overwrite_existing);
}

void describe(documents const& all) {
    std::printf("%zu documents, %zu tokens:", all.size(), all.tokens());
    for (auto const& domain : all.domains()) std::printf("  %s %zu", domain.c_str(), all.tokens_of(domain));
    std::printf("\n");
    std::fflush(stdout);
}

run_settings settings_of(run_options const& run, std::string print) {
    return {.steps = run.steps,
            .optimizer = run.optimizer,
            .state_file = run.out / "training_state.safetensors",
            .fingerprint = std::move(print)};
}

// ---- drafters --------------------------------------------------------------------------------------------------

// Three layers of the target, as far apart as they come; its last one is never among them (its output, normed, is what
// the LM head reads, and p is made of that).
std::vector<int> spread_features(std::size_t layers) {
    int const last = static_cast<int>(layers) - 2;
    std::vector<int> chosen;
    for (int const layer : {0, last / 2, last}) {
        if (chosen.empty() || layer > chosen.back()) chosen.push_back(layer);
    }
    return chosen;
}

engine::model_config draft_config(draft_options const& chosen, engine::model_config const& target,
                                  token_id mask_token) {
    engine::model_config config;
    config.kind = chosen.kind == "eagle3" ? engine::architecture::eagle3 : engine::architecture::dspark;
    config.transformer = target.transformer;
    config.transformer.tied_embeddings = false;
    config.transformer.layers = chosen.layers;
    if (chosen.intermediate > 0) config.transformer.intermediate_size = chosen.intermediate;
    config.stop_tokens = target.stop_tokens;
    config.draft = chosen.draft;
    config.draft->num_target_layers = target.transformer.layers;
    if (config.draft->target_layer_ids.empty()) {
        config.draft->target_layer_ids = spread_features(target.transformer.layers);
    }
    config.draft->mask_token = config.kind == engine::architecture::dspark ? mask_token : sureleap::no_token;
    return config;
}

template <class Model, class Tape>
bool train_drafter(draft_options const& chosen, engine::model_config const& config, causal_lm<float> const& target,
                   std::span<float const> target_values, documents const& all) {
    engine::thread_pool pool(chosen.run.threads);
    Model const model(config, target.embeddings().of(target_values), target.lm_head().of(target_values),
                      target.config().transformer.max_positions + config.draft->block_size);
    catch_interrupts();
    training_state state(model.layout().size());
    initialise(model.layout(), config.transformer.layers, chosen.run.seed, std::span(state.values));
    sharded_gradients gradients(chosen.run.shards, model.layout().size(), pool);
    batch_plan plan(all, chosen.run.batch_tokens, chosen.run.seed);
    draft_task<Model, Tape> task(
        model, target, target_values, config.draft->target_layer_ids, all, plan, gradients,
        {.losses = chosen.losses, .anchors_per_token = chosen.anchors_per_token, .seed = chosen.run.seed});
    std::ostringstream more;
    more << ", target " << checksum(std::as_bytes(target_values)) << ", losses " << chosen.losses.cross_entropy << ' '
         << chosen.losses.total_variation << ' ' << chosen.losses.confidence << ", anchors "
         << chosen.anchors_per_token;
    auto const settings = settings_of(chosen.run, fingerprint(chosen.kind, config, chosen.run, all, more.str()));
    std::printf("%s: %zu parameters\n", chosen.kind.c_str(), model.layout().size());
    fs::create_directories(chosen.run.out);
    if (!run(settings, model.layout(), std::ref(task), state)) return false;
    write_model(chosen.run.out, config, model.layout(), state.values);
    return true;
}

}  // namespace

bool execute(tokenizer_options const& chosen) {
    std::vector<std::string> texts;
    std::map<std::string, std::size_t> used;
    for (auto const& line : read_corpus(chosen.corpus)) {
        std::size_t& bytes = used[line.domain];
        if (chosen.domain_bytes > 0 && bytes >= chosen.domain_bytes) continue;
        texts.push_back(line.prompt + line.completion);
        bytes += texts.back().size();
    }
    std::string const json = train_bpe(texts, {.vocabulary = chosen.vocabulary, .special = {end_of_text, mask}}).json;
    std::ofstream out(chosen.out, std::ios::binary);
    out << json;
    if (!out.flush()) fail_with(chosen.out.string(), ": cannot be written");
    std::printf("%s: %zu tokens from %zu texts\n", chosen.out.string().c_str(),
                engine::tokenizer::parse(json, chosen.out.string()).vocabulary(), texts.size());
    return true;
}

bool execute(target_options const& chosen) {
    auto const tokens = engine::tokenizer::load(chosen.tokenizer);
    token_id const end = id_of(tokens, end_of_text, chosen.tokenizer);
    engine::model_config config;
    config.transformer = chosen.shape;
    config.transformer.vocabulary = tokens.vocabulary();
    config.stop_tokens = {end};
    static_cast<void>(engine::parse_config(engine::config_json(config), "the target asked for"));
    std::size_t const longest = config.transformer.max_positions;
    auto const all = documents::read(chosen.corpus, tokens, end, longest, chosen.repeats);
    describe(all);

    engine::thread_pool pool(chosen.run.threads);
    causal_lm<float> const model(config);
    catch_interrupts();
    training_state state(model.layout().size());
    initialise(model.layout(), config.transformer.layers, chosen.run.seed, std::span(state.values));
    sharded_gradients gradients(chosen.run.shards, model.layout().size(), pool);
    batch_plan plan(all, chosen.run.batch_tokens, chosen.run.seed);
    target_task task(model, all, plan, gradients);
    std::printf("target: %zu parameters\n", model.layout().size());
    fs::create_directories(chosen.run.out);
    auto const settings = settings_of(chosen.run, fingerprint("target", config, chosen.run, all, ""));
    if (!run(settings, model.layout(), std::ref(task), state)) return false;
    write_model(chosen.run.out, config, model.layout(), state.values);
    copy_tokenizer(chosen.tokenizer, chosen.run.out);

    if (chosen.validation.empty()) return true;
    auto const unseen = documents::read(chosen.validation, tokens, end, longest);
    auto const written = read_parameters(chosen.run.out, model.layout());
    batch_plan no_plan(unseen, std::max(longest, chosen.run.batch_tokens), 0);
    target_task validation(model, unseen, no_plan, gradients);
    for (auto const& domain : unseen.domains()) {
        std::vector<std::size_t> members;
        for (std::size_t i = 0; i < unseen.size(); ++i) {
            if (unseen[i].domain == domain) members.push_back(i);
        }
        std::printf("validation loss, %s: %.4f a token over %zu texts\n", domain.c_str(),
                    validation.loss_of(written, members), members.size());
    }
    return true;
}

bool execute(texts_options const& chosen) {
    auto const config = engine::load_config(chosen.target);
    auto const tokens = engine::tokenizer::load(chosen.target / "tokenizer.json");
    std::size_t const longest = config.transformer.max_positions;
    auto const prompts =
        documents::read(chosen.corpus, tokens, id_of(tokens, end_of_text, chosen.target), longest, chosen.repeats);
    describe(prompts);
    engine::thread_pool pool(chosen.threads);
    auto const written = write_own_texts(
        chosen.target, prompts,
        {.texts = chosen.texts, .longest = longest, .seed = chosen.seed, .temperature = chosen.temperature}, pool);
    written.save(chosen.out);
    describe(written);
    return true;
}

bool execute(draft_options const& chosen) {
    auto const target_config = engine::load_config(chosen.target);
    auto const tokens = engine::tokenizer::load(chosen.target / "tokenizer.json");
    causal_lm<float> const target(target_config);
    auto const target_values = read_parameters(chosen.target, target.layout());
    auto const config = draft_config(chosen, target_config, id_of(tokens, mask, chosen.target));
    static_cast<void>(engine::parse_config(engine::config_json(config), "the drafter asked for"));
    std::size_t const longest = target_config.transformer.max_positions;
    auto const all = chosen.data.extension() == ".safetensors"
                         ? documents::load(chosen.data, longest, target_config.transformer.vocabulary)
                         : documents::read(chosen.data, tokens, id_of(tokens, end_of_text, chosen.target), longest);
    describe(all);
    return config.kind == engine::architecture::eagle3
               ? train_drafter<eagle3_model<float>, eagle3_tape<float>>(chosen, config, target, target_values, all)
               : train_drafter<draft_model<float>, draft_tape<float>>(chosen, config, target, target_values, all);
}

}  // namespace train
