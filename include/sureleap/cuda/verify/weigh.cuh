// SPDX-License-Identifier: MIT
//
// The pass over target rows, a part at a time. In: some consecutive blocks of 1,024 tokens of a row of logits. Out: the
// weight of each block. For Gumbel-max draws also, or instead, the winner among the tokens of the part. The rule and
// the request's transform decide which.
//
// A row is read once, at the speed of memory. Nothing here needs its largest logit, so warps do not wait for each
// other. The next block is on its way while one is weighed, also from one part to the next.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/columns.cuh>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/core/storage.cuh>
#include <sureleap/cuda/sampling/gumbel_max.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/cuda/verify/memory.cuh>
#include <sureleap/cuda/verify/verification.cuh>
#include <sureleap/cuda/verify/work.cuh>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {
namespace detail {

/// A part of a row, which a warp reads.
template <class Row>
struct row_part {
    bool there = false;  ///< false: there is no more
    Row row;
    std::uint32_t begin;  ///< blocks
    std::uint32_t end;
    std::uint32_t request;
    std::uint32_t position;
    std::uint32_t piece;
    request_work work;

    /// Asks for the first block.
    __device__ __forceinline__ void start(std::uint32_t size, lanes_of<Row>& ahead) const {
        read_block(row, size, begin, ahead);
    }
};

/// The parts that a warp weighs: every so many of the parts of all rows, position by position.
template <class Rule, class Rows, class DraftRows>
class part_walk {
public:
    __device__ part_walk(verify_task<Rows, DraftRows> const& task, std::uint32_t first, std::uint32_t step)
        : task_(task),
          requests_(*task.round.requests.count),
          blocks_(task.memory.blocks()),
          parts_(count_parts(blocks_)),
          count_(requests_ * (task.memory.limits.block_size + 1) * parts_),
          next_(first),
          step_(step) {}

    /// The next part that there is, of rows that are to be read.
    [[nodiscard]] __device__ __forceinline__ row_part<typename Rows::row_type> take() {
        row_part<typename Rows::row_type> part{};
        for (; next_ < count_ && !part.there; next_ += step_) {
            std::uint32_t const row = next_ / parts_;
            part.position = row / requests_;
            part.request = row % requests_;
            part.work = request_work::of<Rule>(task_, part.request);
            part.there = part.work.what == work_kind::rows && part.position <= part.work.length;
            part.piece = next_ % parts_;
        }
        part.row = task_.rows.row(part.work.first_row + part.position, task_.round, part.request, part.position);
        part.begin = part.piece * part_blocks;
        part.end = part.begin + part_blocks < blocks_ ? part.begin + part_blocks : blocks_;
        return part;
    }

private:
    verify_task<Rows, DraftRows> const& task_;
    std::uint32_t requests_;
    std::uint32_t blocks_;
    std::uint32_t parts_;
    std::uint32_t count_;
    std::uint32_t next_;
    std::uint32_t step_;
};

/// WARP collective: f(block, its logits) for all blocks of a part, the first of which is in `ahead`. Before the last
/// one, prepare() may ask for something else.
template <class Row, class F, class Prepare>
__device__ __forceinline__ void for_each_block(row_part<Row> const& part, std::uint32_t size, lanes_of<Row>& ahead,
                                               F const& f, Prepare const& prepare) {
#pragma unroll 1
    for (std::uint32_t b = part.begin; b < part.end; ++b) {
        lanes_of<Row> const logits = ahead;
        if (b + 1 < part.end) {
            read_block(part.row, size, b + 1, ahead);
        } else {
            prepare();
        }
        f(b, logits);
    }
}

/// WARP collective: who comes first among the tokens of a part, whose first block is in `ahead`. prepare() as above.
template <class Rows, class DraftRows, class Prepare>
[[nodiscard]] __device__ __forceinline__ gumbel_winner race_of_part(verification<Rows, DraftRows> const& c,
                                                                    row_part<typename Rows::row_type> const& part,
                                                                    lanes_of<typename Rows::row_type>& ahead,
                                                                    Prepare const& prepare) {
    distribution all{};
    all.scale = part.work.scale;
    warp_gumbel_max mine{c.noise(part.position), all};
    token_id const likely = c.token_or_none(part.position);  // so that there is a time to beat
    if (likely != no_token) mine.expect(likely, load(part.row[likely]));
    for_each_block(
        part, c.vocabulary(), ahead,
        [&](std::uint32_t b, lanes_of<typename Rows::row_type> const& logits) {
            mine.prepare_block(part.row, c.vocabulary(), b);
            mine.visit_block(part.row, b, logits);
        },
        prepare);
    return mine.winner();
}

}  // namespace detail
}  // namespace cuda
SURELEAP_END_NAMESPACE
