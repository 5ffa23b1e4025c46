// SPDX-License-Identifier: MIT
#include "contestant.hpp"

#include <utility>

#include <engine/dspark.hpp>
#include <engine/heads.hpp>
#include <engine/parts.hpp>
#include <generate/numbers.hpp>
#include <sureleap/core/error.hpp>

namespace evaluate {
namespace {

using sureleap::fail_with;

bool is_folder(draft_source const& source) {
    return source.folder != "lookup" && source.folder != "none";
}

/// The same backbone, LM head and confidences of last resort, and nothing between the positions of a block.
void leave_out_head(contestant& who, draft_source const& source) {
    auto* const model = dynamic_cast<engine::dspark<float>*>(who.models.draft.get());
    if (model == nullptr || who.config->head == engine::head_kind::none) {
        fail_with("--zero-bias: ", source.folder, " has no sequential head, expected a DSpark drafter");
    }
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

std::string contestant::block_in_words() const {
    std::string const whole = generate::grouped(models.block_size());
    return block_size() < models.block_size() ? generate::grouped(block_size()) + " of " + whole : whole;
}

draft_source plain_decoding() {
    return {.name = "plain", .folder = "none"};
}

std::size_t block_size_of(draft_source const& source) {
    if (!is_folder(source)) return source.folder == "none" ? 1 : sureleap::lookup_options{}.block_size;
    auto const config = engine::load_config(source.folder);
    if (!config.draft) fail_with(source.folder, ": a target stands where a drafter is needed");
    return config.draft->block_size;
}

contestant load_contestant(options const& chosen, draft_source const& source, std::size_t slots, std::size_t context,
                           engine::thread_pool& pool, generate::status_line& status) {
    generate::options how;
    how.target = chosen.target;
    how.draft = source.folder;
    how.rule = chosen.rule;
    how.copies = slots;
    how.context = context;
    how.settings.max_new_tokens = 1;
    how.ignore_eos = chosen.ignore_eos;
    how.bf16 = chosen.bf16;
    contestant out{.name = source.name,
                   .models = generate::load_models(how, context - 1, pool, status),
                   .config = std::nullopt,
                   .max_draft = source.max_draft};
    status.clear();
    if (is_folder(source)) {
        auto const config = engine::load_config(source.folder);
        out.config = config.draft;
        out.layers = config.transformer.layers;
    }
    if (source.zero_bias) leave_out_head(out, source);
    return out;
}

}  // namespace evaluate
