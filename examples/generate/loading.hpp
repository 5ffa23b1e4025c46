// SPDX-License-Identifier: MIT
//
// From folders to models that are ready to decode.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <engine/draft_model.hpp>
#include <engine/parts.hpp>
#include <engine/target.hpp>
#include <engine/thread_pool.hpp>
#include <sureleap/head/shortlist.hpp>

#include "options.hpp"
#include "status_line.hpp"
#include "target_file.hpp"

namespace generate {

struct models {
    std::shared_ptr<void const> files;  ///< what a target points into that keeps none of its own
    std::unique_ptr<engine::target<float>> target;
    std::unique_ptr<engine::draft_model<float>> draft;            ///< in the drafter; none if that feeds on no features
    std::unique_ptr<engine::language_draft<float>> text_draft;    ///< in the drafter, if that drafts as text
    std::unique_ptr<sureleap::successor_table const> successors;  ///< in the drafter, if it draws from shortlists
    std::unique_ptr<sureleap::text_store> texts;                  ///< what a joined drafter looks in beside the context
    engine::any_drafter<float> drafter;
    std::vector<token_id> stop_tokens;
    model_facts target_facts;
    model_facts draft_facts;
    std::uint64_t fingerprint = 0;  ///< of the models' files

    [[nodiscard]] std::size_t block_size() const {
        return std::visit([](auto const& d) { return d.block_size(); }, drafter);
    }
};

/// The same backbone, q confined to `best` tokens by base logits and so many successors of the token before (a DFlash
/// drafter has none). Successors take O(V^2 rank) time, minutes if the vocabulary is large. Throws unless the drafter
/// is a DSpark or DFlash model.
void confine(models& loaded, std::size_t best, std::size_t successors, engine::thread_pool& pool, status_line& status);

/// For prompts of this many tokens, with a drafter that can serve the schedule. Weights are in memory when it returns.
/// Pool and ranks must outlive the models. ranks: more than one, among which the models' products are
/// divided; null: none.
[[nodiscard]] models load_models(options const& chosen, std::size_t prompt_size, engine::thread_pool& pool,
                                 status_line& status, engine::any_ranks* ranks = nullptr);

}  // namespace generate
