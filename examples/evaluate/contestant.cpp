// SPDX-License-Identifier: MIT
#include "contestant.hpp"

#include <memory>
#include <utility>

#include <engine/checkpoint.hpp>
#include <engine/dspark.hpp>
#include <engine/eagle3.hpp>
#include <engine/heads.hpp>
#include <engine/model_files.hpp>
#include <engine/parts.hpp>
#include <generate/numbers.hpp>
#include <sureleap/core/error.hpp>

namespace evaluate {
namespace {

using sureleap::fail_with;

/// The drafter once more, from a file whose weights are taken for zeros.
template <class Model>
void make_zeroed(generate::models& models, engine::checkpoint from, engine::thread_pool& pool) {
    auto zeroed = std::make_unique<Model>(std::move(from).zeroed(), *models.target, pool, models.target->limits());
    replace(models.drafter, engine::make_drafter(*zeroed));
    models.draft = std::move(zeroed);
    models.draft_facts.description += ", all weights zero";
}

void make_zeroed(contestant& who, options const& chosen, draft_source const& source, engine::thread_pool& pool) {
    auto const products = chosen.bf16 ? engine::arithmetic::bf16 : engine::arithmetic::full;
    auto from = engine::checkpoint_of(source.path, products);
    if (!from.config().draft) fail_with("--draft: ", source.name, " is zeroed, expected a drafter made for the target");
    if (from.config().kind == engine::architecture::eagle3) {
        make_zeroed<engine::eagle3<float>>(who.models, std::move(from), pool);
    } else {
        make_zeroed<engine::dspark<float>>(who.models, std::move(from), pool);
    }
    if (source.joined) {
        std::size_t const drafted = who.models.block_size();
        engine::join_lookup(who.models.drafter, *who.models.texts, {.block_size = engine::joined_block(drafted)});
    }
}

/// The same backbone, LM head and confidences of last resort, and nothing between the positions of a block.
void leave_out_head(contestant& who, draft_source const& source) {
    auto* const model = dynamic_cast<engine::dspark<float>*>(who.models.draft.get());
    if (model == nullptr || who.config->head == engine::head_kind::none) {
        fail_with("--zero-bias: ", source.path, " has no sequential head, expected a DSpark drafter");
    }
    if (source.joined) fail_with("--zero-bias: ", source.name, " is joined with lookup, expected the model alone");
    sureleap::drafter_options const shape{.block_size = model->block_size(),
                                          .vocabulary = model->vocabulary(),
                                          .hidden_size = model->config().hidden_size,
                                          .map = model->map()};
    engine::any_head<float> nothing{engine::no_bias<float>{model->vocabulary()}};
    who.models.drafter.emplace<engine::dflash_drafter<float>>(*model, std::move(nothing), sureleap::top1_confidence{},
                                                              shape);
    who.config->head = engine::head_kind::none;
    who.config->markov_rank = 0;
    who.config->confidence = false;
}

}  // namespace

void replace(engine::any_drafter<float>& drafter, engine::any_drafter<float> by) {
    std::visit([&]<class D>(D& d) { drafter.template emplace<D>(std::move(d)); }, by);
}

std::string contestant::block_in_words() const {
    std::string const whole = generate::grouped(models.block_size());
    return block_size() < models.block_size() ? generate::grouped(block_size()) + " of " + whole : whole;
}

draft_source plain_decoding() {
    return {.name = "plain", .path = "none"};
}

std::size_t block_size_of(draft_source const& source) {
    if (!source.is_model() && source.joined) return engine::joined_block(0);
    if (!source.is_model()) return source.path == "none" ? 1 : sureleap::lookup_options{}.block_size;
    auto const config = engine::config_of(source.path);
    if (!config.draft) return sureleap::lookup_options{}.block_size;  // a language model drafts as much as lookup
    std::size_t const drafted = source.tree > 0 ? source.tree : config.draft->block_size;
    return source.joined ? engine::joined_block(drafted) : drafted;
}

contestant load_contestant(options const& chosen, draft_source const& source, std::size_t slots, std::size_t context,
                           engine::thread_pool& pool, generate::status_line& status) {
    generate::options how;
    how.target = chosen.target;
    how.draft = source.path;
    how.joined = source.joined;
    how.tree = source.tree;
    how.schedule = "fixed";  // which goes with every drafter; the server checks the one it is given
    how.rule = chosen.rule;
    how.copies = slots;
    how.context = context;
    how.settings.max_new_tokens = 1;
    how.ignore_eos = chosen.ignore_eos;
    how.bf16 = chosen.bf16;
    contestant out{.name = source.name,
                   .models = generate::load_models(how, context - 1, pool, status),
                   .config = std::nullopt,
                   .joined = source.joined,
                   .max_draft = source.max_draft};
    status.clear();
    if (source.is_model()) {
        auto const config = engine::config_of(source.path);
        out.config = config.draft;
        out.layers = config.transformer.layers;
    }
    if (source.tree > 0 && (source.zeroed || source.zero_bias)) {
        fail_with("--tree: ", source.name, " is zeroed or has no bias, expected the drafter as it is");
    }
    if (source.zeroed) make_zeroed(out, chosen, source, pool);
    if (source.zero_bias) leave_out_head(out, source);
    return out;
}

}  // namespace evaluate
