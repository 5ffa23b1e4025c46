// SPDX-License-Identifier: MIT
//
// The draft's configuration comes first: it says which of the target's layers the drafter reads, and how many rows a
// batch may have.
#include "loading.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <engine/checkpoint.hpp>
#include <engine/draft_lm.hpp>
#include <engine/dspark.hpp>
#include <engine/eagle3.hpp>
#include <engine/kernels.hpp>
#include <engine/model_files.hpp>
#include <engine/stand_in.hpp>
#include <engine/text_file.hpp>
#include <sureleap/core/error.hpp>

#include "numbers.hpp"
#include "rank_agreement.hpp"
#include "schedule.hpp"
#include "target_file.hpp"
#include "tiny.hpp"

namespace generate {
namespace {

using engine::architecture;
using sureleap::fail_with;

/// Touches every page. Mapped weights are read from disk when they are first used. So without this the first run would
/// be slower than the second. It comes last, so that what is wrong is refused without waiting.
void read_in(mapped_files const& files, engine::thread_pool& pool, status_line& status) {
    constexpr std::size_t most = std::size_t{64} << 20;
    std::size_t all = 0, done = 0;
    for (auto const& part : files.parts) all += part.size();
    for (auto part : files.parts) {
        while (!part.empty()) {
            status.update([&] { return "reading " + files.name + ": " + in_bytes(done) + " of " + in_bytes(all); });
            auto const now = part.first(std::min(most, part.size()));
            static_cast<void>(engine::read_bandwidth(pool, now.data(), now.size(), 1));
            part = part.subspan(now.size());
            done += now.size();
        }
    }
}

// ---- the target ------------------------------------------------------------------------------------------------

loaded_target load_tiny_target(std::vector<int> features, engine::thread_pool& pool,
                               engine::serving_limits const& limits) {
    auto const files = std::make_shared<tiny_target const>();
    auto const weights = files->weights();
    auto model = std::make_unique<engine::stand_in<float>>(weights, std::move(features), pool, limits);
    model_facts facts{
        .name = "tiny",
        .description = "no attention, " + sizes(weights.layers.size(), model->hidden_size(), model->vocabulary()),
        .file_bytes = files->bytes()};
    return {files, std::move(model), weights.layers.size(), {}, std::move(facts), {}};
}

// ---- the drafter -----------------------------------------------------------------------------------------------

struct loaded_drafter {
    std::unique_ptr<engine::draft_model<float>> model;
    engine::any_drafter<float> drafter;
    model_facts facts;
    mapped_files mapped;
    std::unique_ptr<engine::language_draft<float>> text_draft{};
};

/// Of a folder, with the block as long as the user wants it.
engine::model_config draft_config(options const& chosen) {
    auto config = engine::config_of(chosen.draft);
    config.products = products_of(chosen);
    if (!config.draft) return config;  // a language model
    if (chosen.block_size > config.draft->block_size) {
        fail_with("--block-size is ", chosen.block_size, ", expected at most the ", config.draft->block_size, " that ",
                  chosen.draft, " was trained for");
    }
    if (chosen.block_size > 0) config.draft->block_size = chosen.block_size;
    return config;
}

std::string in_words(engine::model_config const& config) {
    auto const& draft = *config.draft;
    bool const eagle = config.kind == architecture::eagle3;
    bool const bare = draft.head == engine::head_kind::none;
    bool const domino = draft.head == engine::head_kind::domino;
    std::string text = eagle ? "Eagle3" : domino ? "Domino" : bare && !draft.confidence ? "DFlash" : "DSpark";
    text += ", " + counted(config.transformer.layers, "layer");
    text += ", blocks of " + grouped(draft.block_size);
    if (!bare && !domino) text += std::string(", ") + engine::name_of(draft.head) + " Markov head";
    if (draft.confidence) text += ", confidence head";
    if (draft.vocabulary > 0) text += ", of " + counted(draft.vocabulary, "token");
    return text;
}

template <class Model>
loaded_drafter load_draft_model(options const& chosen, engine::model_config const& config, loaded_target const& target,
                                engine::thread_pool& pool) {
    engine::checkpoint from = engine::checkpoint_of(chosen.draft, config);
    mapped_files mapped(last_name(chosen.draft), from);
    model_facts facts{.name = mapped.name, .description = in_words(config), .file_bytes = from.bytes()};
    auto model = std::make_unique<Model>(std::move(from), *target.model, pool, target.model->limits());
    facts.weight_bytes = model->weight_bytes();
    auto drafter = engine::make_drafter(*model);
    return {std::move(model), std::move(drafter), std::move(facts), std::move(mapped)};
}

/// A language model of any vocabulary.
loaded_drafter load_language_model(options const& chosen, engine::model_config const& config, std::size_t block_size,
                                   loaded_target const& target, engine::thread_pool& pool) {
    auto served = chosen.tiny() ? std::nullopt : engine::tokenizer_of(chosen.target);
    auto own = engine::tokenizer_of(chosen.draft);
    if (!served || !own) {
        fail_with(chosen.draft, ": a language model drafts text, and ", own ? target.facts.name : "it",
                  " has no tokenizer, expected one beside each model");
    }
    // Its text may be of more tokens than the target's. Where it is of more than this, nothing is drafted.
    engine::serving_limits limits = target.model->limits();
    limits.context_length = std::min(2 * limits.context_length, config.transformer.max_positions);
    engine::checkpoint from = engine::checkpoint_of(chosen.draft, config);
    mapped_files mapped(last_name(chosen.draft), from);
    model_facts facts{.name = mapped.name,
                      .description = "language model, " + counted(config.transformer.layers, "layer") +
                                     ", drafts text, blocks of " + grouped(block_size),
                      .file_bytes = from.bytes()};
    auto model = std::make_unique<engine::language_draft<float>>(std::move(*own), std::move(*served), std::move(from),
                                                                 pool, limits);
    facts.weight_bytes = model->model.model().weight_bytes();
    auto drafter = engine::make_drafter(*model, target.model->vocabulary(), block_size);
    return {nullptr, std::move(drafter), std::move(facts), std::move(mapped), std::move(model)};
}

loaded_drafter load_drafter(options const& chosen, std::optional<engine::model_config> const& config,
                            std::size_t block_size, loaded_target const& target, engine::thread_pool& pool) {
    std::size_t const vocabulary = target.model->vocabulary();
    if (!chosen.speculates() && !chosen.joined) return {nullptr, sureleap::no_drafter<float>(vocabulary), {}, {}};
    if (!config && chosen.joined) {
        return {nullptr,
                sureleap::no_drafter<float>(vocabulary),
                {.name = "lookup", .description = "no model, blocks of " + grouped(block_size)},
                {}};
    }
    if (!config) {
        return {nullptr,
                sureleap::lookup({.block_size = block_size, .target_vocabulary = vocabulary}),
                {.name = "lookup",
                 .description = "drafts what followed the last tokens before, blocks of " + grouped(block_size)},
                {}};
    }
    if (!config->draft) return load_language_model(chosen, *config, block_size, target, pool);
    std::size_t const wanted = config->draft->num_target_layers;
    if (wanted != 0 && wanted != target.layers) {
        fail_with(chosen.draft, ": made for a target of ", wanted, " layers, but ", target.facts.name, " has ",
                  target.layers);
    }
    return config->kind == architecture::eagle3
               ? load_draft_model<engine::eagle3<float>>(chosen, *config, target, pool)
               : load_draft_model<engine::dspark<float>>(chosen, *config, target, pool);
}

/// What the files of --texts say, in the target's tokens.
std::unique_ptr<sureleap::text_store> load_texts(options const& chosen, std::size_t vocabulary) {
    std::vector<std::vector<token_id>> texts;
    std::size_t tokens = 0;
    if (!chosen.texts.empty()) {
        auto const tokenizer = engine::tokenizer_of(chosen.target);
        if (!tokenizer) fail_with("--texts: ", chosen.target.string(), " has no tokenizer");
        tokenizer->check_fits(vocabulary);
        for (auto const& file : chosen.texts) {
            texts.push_back(tokenizer->encode(engine::read_text(file)));
            tokens += texts.back().size() + 1;
        }
    }
    sureleap::text_store_options const least{};
    auto store = std::make_unique<sureleap::text_store>(
        sureleap::text_store_options{.tokens_per_tenant = std::max(least.tokens_per_tenant, tokens)});
    for (auto const& text : texts) store->add(chosen.settings.tenant, text);
    return store;
}

void grow_trees(loaded_drafter& drafter, options const& chosen) {
    engine::grow_trees(drafter.drafter, {.nodes = chosen.tree});
    drafter.facts.description += ", trees of " + counted(chosen.tree, "token");
}

}  // namespace

void confine(models& loaded, std::size_t best, std::size_t successors, engine::thread_pool& pool, status_line& status) {
    auto* const model = dynamic_cast<engine::dspark<float>*>(loaded.draft.get());
    if (model == nullptr) {
        fail_with("a shortlist is for DSpark and DFlash drafters, not for ", loaded.draft_facts.description);
    }
    auto head = engine::load_head<float>(model->source(), model->embeddings());
    sureleap::matrix_view<token_id> table{};
    std::unique_ptr<sureleap::successor_table const> owned;
    if (successors > 0 && model->source().config().draft->head != engine::head_kind::none) {
        status.update([&] {
            std::size_t const V = head.vocabulary();
            return "computing the successors of " + grouped(V) + " tokens" + (V > 20000 ? ", some minutes" : "");
        });
        owned = std::make_unique<sureleap::successor_table const>(head, successors, pool);
        table = owned->view();
    }
    engine::set_drafter(loaded.drafter, *model, engine::listing_head<float>(std::move(head), best, table));
    loaded.successors = std::move(owned);  // now that no drafter points to those before
}

models load_models(options const& chosen, std::size_t prompt_size, engine::thread_pool& pool, status_line& status,
                   engine::any_ranks* ranks) {
    if (ranks != nullptr && chosen.tiny()) fail_with("the tiny models are not divided among ranks: give --target");
    std::optional<engine::model_config> config;
    if (chosen.drafts_by_model()) config = draft_config(chosen);
    bool const has_features = config && config->draft;
    std::size_t const block_size = chosen.tree > 0         ? chosen.tree
                                   : has_features          ? config->draft->block_size
                                   : chosen.block_size > 0 ? chosen.block_size
                                   : chosen.joined         ? engine::joined_block(0)
                                                           : sureleap::lookup_options{}.block_size;
    bool const is_free = chosen.joined && chosen.block_size == 0;
    std::size_t const longest_block = is_free ? engine::joined_block(block_size) : block_size;
    std::size_t const needed = prompt_size + chosen.settings.max_new_tokens;
    engine::serving_limits const limits{
        .slots = chosen.copies,
        .context_length = chosen.context > 0 ? chosen.context : needed,
        .max_rows = std::max(chosen.prefill_chunk, chosen.copies * (longest_block + 1))};
    if (limits.context_length < needed) {
        fail_with("--context is ", chosen.context, ", expected at least ", needed, ": ", prompt_size,
                  " tokens of the prompt and --max-new-tokens = ", chosen.settings.max_new_tokens);
    }
    auto features = has_features ? config->draft->target_layer_ids : std::vector<int>{};
    loaded_target target = chosen.tiny() ? load_tiny_target(std::move(features), pool, limits)
                                         : load_target_file(chosen, std::move(features), pool, limits, ranks);
    loaded_drafter drafter = load_drafter(chosen, config, block_size, target, pool);
    if (chosen.tree > 0 && chosen.shortlist == 0) grow_trees(drafter, chosen);
    auto texts = load_texts(chosen, target.model->vocabulary());
    if (chosen.joined) {
        engine::join_lookup(drafter.drafter, *texts, {.block_size = longest_block});
        if (config) drafter.facts.description += ", joined with lookup";
        if (!chosen.texts.empty()) drafter.facts.description += ", in " + counted(chosen.texts.size(), "text") + " too";
    }
    auto const rule = engine::make_rule(chosen.rule);
    engine::check_parts(drafter.drafter, make_schedule(chosen.schedule, drafter.drafter, unmeasured),
                        chosen.tree > 0 ? rule.for_trees() : rule);
    std::uint64_t const fingerprint = fingerprint_of(target.mapped) * 31 + fingerprint_of(drafter.mapped);
    read_in(target.mapped, pool, status);
    read_in(drafter.mapped, pool, status);
    if (chosen.ignore_eos) target.stop_tokens.clear();
    models loaded{.files = std::move(target.files),
                  .target = std::move(target.model),
                  .draft = std::move(drafter.model),
                  .text_draft = std::move(drafter.text_draft),
                  .successors = nullptr,
                  .texts = std::move(texts),
                  .drafter = std::move(drafter.drafter),
                  .stop_tokens = std::move(target.stop_tokens),
                  .target_facts = std::move(target.facts),
                  .draft_facts = std::move(drafter.facts),
                  .fingerprint = fingerprint};
    if (chosen.shortlist > 0) {
        std::size_t const successors = chosen.listed_successors();
        confine(loaded, chosen.shortlist - successors, successors, pool, status);
        if (chosen.tree > 0) engine::grow_trees(loaded.drafter, {.nodes = chosen.tree});
        loaded.draft_facts.description += ", from " + grouped(chosen.shortlist) + " tokens";
    }
    return loaded;
}

}  // namespace generate
