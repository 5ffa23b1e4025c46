// SPDX-License-Identifier: MIT
//
// A target whose rows are lost now and then.
#pragma once

#include <cstddef>
#include <span>

#include <sureleap/ext/llama.hpp>
#include <sureleap/sureleap.hpp>

namespace support {

/// Loses the rows of every third round behind the pass: as if an engine had failed there.
struct forgetful_target {
    static constexpr bool scores_trees = true;
    sureleap::llama_target& target;
    std::size_t rounds = 0;

    [[nodiscard]] sureleap::logits_rows<float> score(sureleap::verify_batch const& batch) {
        auto const rows = target.score(batch);
        return ++rounds % 3 == 0 ? sureleap::logits_rows<float>{} : rows;
    }
    void commit(std::span<sureleap::verdict const> verdicts) noexcept { target.commit(verdicts); }
};

}  // namespace support
