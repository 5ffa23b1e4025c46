// SPDX-License-Identifier: MIT
#include "commands.hpp"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <numeric>
#include <optional>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <engine/causal_lm.hpp>
#include <engine/chat.hpp>
#include <engine/checkpoint.hpp>
#include <engine/gguf/file.hpp>
#include <engine/model_files.hpp>
#include <engine/synthetic.hpp>
#include <engine/thread_pool.hpp>
#include <engine/tokenizer.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/sampling/vocabulary_map.hpp>

#include "bpe.hpp"
#include "causal_lm.hpp"
#include "checksum.hpp"
#include "documents.hpp"
#include "draft_model.hpp"
#include "draft_task.hpp"
#include "draft_vocabulary.hpp"
#include "eagle3_model.hpp"
#include "folder.hpp"
#include "initial.hpp"
#include "own_texts.hpp"
#include "recorded_task.hpp"
#include "recorded_texts.hpp"
#include "run.hpp"
#include "target_task.hpp"
#include "target_weights.hpp"

namespace train {
namespace {

using sureleap::fail_with;
namespace fs = std::filesystem;

constexpr char const* end_of_text = "<|endoftext|>";
constexpr char const* mask = "<|mask|>";

token_id id_of(engine::tokenizer const& tokens, std::string const& text, fs::path const& file) {
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

engine::tokenizer tokenizer_of(fs::path const& target) {
    auto tokens = engine::tokenizer_of(target);
    if (!tokens) fail_with(target.string(), ": has no tokenizer.json, expected one");
    return std::move(*tokens);
}

// What a GGUF file says of conversations. A folder's drafters are trained on plain text.
engine::chat_template chat_format(fs::path const& target) {
    if (!engine::is_gguf(target)) return {};
    auto const file = engine::gguf::file::map(target);
    return file["tokenizer.chat_template"].present() ? engine::chat_template_of(file) : engine::chat_template{};
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
    config.transformer.query_key_norms = true;
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
         << chosen.losses.total_variation << ' ' << chosen.losses.confidence << ", anchors " << chosen.anchors_per_token
         << (chosen.bf16 ? ", bf16" : "");
    auto const settings = settings_of(chosen.run, fingerprint(chosen.kind, config, chosen.run, all, more.str()));
    std::printf("%s: %zu parameters\n", chosen.kind.c_str(), model.layout().size());
    fs::create_directories(chosen.run.out);
    if (!run(settings, model.layout(), std::ref(task), state)) return false;
    write_model(chosen.run.out, config, model.layout(), state.values);
    return true;
}

template <class Model>
bool train_on_recorded(draft_options const& chosen) {
    engine::checkpoint const target = engine::checkpoint_of(chosen.target);
    std::size_t const vocabulary = target.config().transformer.vocabulary;
    recorded_texts const recorded(chosen.recorded, vocabulary);
    describe(recorded.texts());
    std::optional<recorded_texts> unseen;
    if (!chosen.validation.empty()) unseen.emplace(chosen.validation, vocabulary);
    std::vector<token_id> drafted;
    if (!chosen.vocabulary.empty()) drafted = read_vocabulary(chosen.vocabulary, vocabulary);

    auto config =
        draft_config(chosen, target.config(), id_of(tokenizer_of(chosen.target), chosen.mask_token, chosen.target));
    if (chosen.draft.target_layer_ids.empty()) config.draft->target_layer_ids = recorded.feature_layers();
    config.draft->vocabulary = drafted.size();
    static_cast<void>(engine::parse_config(engine::config_json(config), "the drafter asked for"));
    for (recorded_texts const* const texts :
         {&recorded, static_cast<recorded_texts const*>(unseen ? &*unseen : nullptr)}) {
        if (texts == nullptr) continue;
        std::size_t const width = config.draft->target_layer_ids.size() * config.transformer.hidden_size;
        if (texts->feature_layers() != config.draft->target_layer_ids || texts->width() != width) {
            fail_with((texts == &recorded ? chosen.recorded.front() : chosen.validation).string(), ": has ",
                      texts->width(), " features of ", texts->feature_layers().size(), " layers, expected ", width,
                      " of the layers that the drafter reads");
        }
    }

    engine::thread_pool pool(chosen.run.threads);
    frozen_tables const tables(target, drafted);
    Model const model(config, tables.embeddings.view(), tables.lm_head.view(),
                      config.transformer.max_positions + config.draft->block_size);
    std::optional<sureleap::vocabulary_map> map;
    if (!drafted.empty()) map.emplace(drafted, vocabulary);
    catch_interrupts();
    training_state state(model.layout().size());
    initialise(model.layout(), config.transformer.layers, chosen.run.seed, std::span(state.values));
    if (chosen.start_layer) {
        start_from_layers(target, *chosen.start_layer, config.draft->target_layer_ids, model.layout(),
                          std::span(state.values));
    }
    if (!chosen.start_from.empty()) {
        start_from_drafter(engine::checkpoint(chosen.start_from), drafted, model.layout(), std::span(state.values));
    }
    std::uint64_t const begun_with = checksum(std::as_bytes(std::span(state.values)));
    sharded_gradients gradients(chosen.run.shards, model.layout().size(), pool);
    batch_plan plan(recorded.texts(), chosen.run.batch_tokens, chosen.run.seed);
    recorded_task task(
        model, recorded, map ? &*map : nullptr, plan, gradients,
        {.losses = chosen.losses, .anchors_per_token = chosen.anchors_per_token, .seed = chosen.run.seed});

    std::ostringstream more;
    more << ", head "
         << checksum(std::as_bytes(
                std::span(tables.lm_head.view().data, tables.lm_head.view().rows * tables.lm_head.view().cols)))
         << ", tokens " << checksum(std::as_bytes(std::span(drafted))) << ", losses " << chosen.losses.cross_entropy
         << ' ' << chosen.losses.total_variation << ' ' << chosen.losses.confidence << " decay " << chosen.losses.decay
         << ", anchors " << chosen.anchors_per_token << ", start " << begun_with << (chosen.bf16 ? ", bf16" : "");
    auto settings = settings_of(chosen.run, fingerprint(chosen.kind, config, chosen.run, recorded.texts(), more.str()));
    settings.unit = "anchors";
    settings.pool = &pool;
    settings.visit_steps = chosen.validate_steps > 0 ? chosen.validate_steps : chosen.run.steps;
    settings.visit = [&](training_state const& now) {
        write_model(chosen.run.out, config, model.layout(), now.values, drafted);
        if (!unseen) return;
        std::printf("step %zu, tau of unseen texts (anchors): %s\n", now.step,
                    task.validate(*unseen, now.values).c_str());
        std::fflush(stdout);
    };
    std::printf("%s: %zu parameters, drafts %zu of %zu tokens\n", chosen.kind.c_str(), model.layout().size(),
                tables.lm_head.rows(), vocabulary);
    fs::create_directories(chosen.run.out);
    if (!run(settings, model.layout(), std::ref(task), state)) return false;
    write_model(chosen.run.out, config, model.layout(), state.values, drafted);
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
    engine::checkpoint from = engine::checkpoint_of(chosen.target);
    auto const config = from.config();
    auto const prompts =
        read_prompts(chosen.corpus, tokenizer_of(chosen.target), chat_format(chosen.target), chosen.repeats);
    describe(prompts);
    bool const tokens_alone = chosen.out.extension() == ".safetensors";
    std::vector<int> layers;
    if (!tokens_alone) layers = chosen.features.empty() ? spread_features(config.transformer.layers) : chosen.features;
    own_texts_settings const settings{
        .texts = chosen.texts,
        .longest = chosen.longest > 0 ? chosen.longest : std::min<std::size_t>(config.transformer.max_positions, 1024),
        .max_new_tokens = chosen.max_new_tokens > 0 ? chosen.max_new_tokens : config.transformer.max_positions,
        .seed = chosen.seed,
        .sampling = chosen.sampling,
        .stop_tokens = config.stop_tokens};
    engine::thread_pool pool(chosen.threads);
    std::ostringstream written_by;
    written_by << from.bytes() << " bytes " << engine::config_json(config) << ", prompts " << prompts.checksum()
               << ", longest " << settings.longest << ", written " << settings.max_new_tokens << ", seed "
               << settings.seed << ", temperature " << settings.sampling.temperature << " top-p "
               << settings.sampling.top_p << " top-k " << settings.sampling.top_k;
    engine::causal_lm<float> target(std::move(from), layers, pool,
                                    {chosen.at_once, settings.longest, std::max<std::size_t>(chosen.at_once, 256)});
    catch_interrupts();

    if (tokens_alone) {
        std::map<std::size_t, recorded_text> written;
        if (!write_own_texts(
                target, prompts, settings, pool, [](std::size_t) { return false; },
                [&](recorded_text text) {
                    std::size_t const number = text.number;
                    written.emplace(number, std::move(text));
                })) {
            return false;
        }
        documents all;
        for (auto const& [number, text] : written) all.add(text.tokens, text.prompt, text.domain);
        all.save(chosen.out);
        describe(all);
        return true;
    }
    std::string words = written_by.str();
    std::erase(words, '\n');
    recorder out(chosen.out, {.feature_layers = layers,
                              .width = layers.size() * config.transformer.hidden_size,
                              .written_by = std::move(words)});
    if (!out.written().empty()) std::printf("going on after %zu texts\n", out.written().size());
    bool const complete = write_own_texts(
        target, prompts, settings, pool, [&](std::size_t number) { return out.written().contains(number); },
        [&](recorded_text text) { out.add(std::move(text)); });
    out.flush();
    if (!complete)
        std::printf("interrupted after %zu texts; the same command goes on from there\n", out.written().size());
    return complete;
}

bool execute(vocabulary_options const& chosen) {
    recorded_texts const recorded(chosen.recorded, engine::limits::vocabulary);
    token_id largest = 0;
    for (std::size_t i = 0; i < recorded.texts().size(); ++i) {
        largest = std::max(largest, *std::ranges::max_element(recorded.texts()[i].tokens));
    }
    auto const found = choose_vocabulary(recorded, static_cast<std::size_t>(largest) + 1, chosen.tokens);
    write_vocabulary(chosen.out, found.tokens);
    std::printf("%s: %zu tokens, %.2f %% of the %zu tokens of texts that they were not counted in\n",
                chosen.out.string().c_str(), found.tokens.size(), 100.0 * found.coverage, found.held_back);
    return true;
}

bool execute(draft_options const& chosen) {
    if (chosen.bf16 && !has_bf16_products) {
        fail_with("--bf16: this program was compiled for a processor without AVX512_BF16; leave it out");
    }
    use_bf16_products(chosen.bf16);
    if (!chosen.recorded.empty()) {
        return chosen.kind == "eagle3" ? train_on_recorded<eagle3_model<float>>(chosen)
                                       : train_on_recorded<draft_model<float>>(chosen);
    }
    auto const target_config = engine::load_config(chosen.target);
    auto const tokens = engine::tokenizer::load(chosen.target / "tokenizer.json");
    causal_lm<float> const target(target_config);
    auto const target_values = read_parameters(chosen.target, target.layout());
    auto const config = draft_config(chosen, target_config, id_of(tokens, chosen.mask_token, chosen.target));
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
