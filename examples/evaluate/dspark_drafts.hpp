// SPDX-License-Identifier: MIT
//
// A contestant whose drafter can be made to draft chains or trees, as experiments about both need it.
#pragma once

#include <algorithm>
#include <cstddef>

#include <engine/dspark.hpp>
#include <engine/parts.hpp>

#include "session.hpp"

namespace evaluate {

class dspark_drafts {
public:
    /// Of the drafter of --of, for so many texts at a time and trees of at most so many rows. Throws for one that
    /// cannot.
    dspark_drafts(session const& s, std::size_t slots, std::size_t most_rows)
        : who_(load_contestant(s.chosen, with_trees(s.chosen.closely(), most_rows - 1), slots,
                               s.prompts.context + most_rows, s.pool, s.status)),
          draft_(&dynamic_cast<engine::dspark<float>&>(*who_.models.draft)) {}

    [[nodiscard]] contestant& who() noexcept { return who_; }

    /// Tokens of a chain.
    [[nodiscard]] std::size_t longest_chain() const { return draft_->block_size(); }

    // Either forgets what the drafter before has learned of siblings.
    void draft_chains() { replace(who_.models.drafter, engine::make_drafter(*draft_)); }
    void draft_trees(std::size_t tokens) {
        draft_chains();
        engine::grow_trees(who_.models.drafter, {.nodes = std::max<std::size_t>(tokens, 1), .children = 16});
    }

private:
    /// So that there is room for trees, and an error for a drafter that has none.
    [[nodiscard]] static draft_source with_trees(draft_source source, std::size_t tokens) {
        source.tree = tokens;
        source.joined = false;
        return source;
    }

    contestant who_;
    engine::dspark<float>* draft_;
};

}  // namespace evaluate
