// SPDX-License-Identifier: MIT
//
// Gumbel-max draws (gumbel_max.cuh) by a block of threads: over a whole row of logits in memory, and over a list of
// tokens with their logits. Out: the winner.
#pragma once

#include <cstdint>

#include <sureleap/core/config.hpp>
#include <sureleap/core/types.hpp>
#include <sureleap/cuda/core/distribution.cuh>
#include <sureleap/cuda/core/runtime.cuh>
#include <sureleap/cuda/sampling/gumbel_max.cuh>
#include <sureleap/cuda/sampling/row.cuh>
#include <sureleap/sampling/draw_key.hpp>

SURELEAP_BEGIN_NAMESPACE
namespace cuda {

/// What the races of a block keep in shared memory.
struct gumbel_shared {
    gumbel_winner of_warps[32];
    std::uint32_t place;
};

/// The winner among the tokens of a whole row under a dense distribution, truncated or not. A BLOCK collective; every
/// thread gets the result. One pass over the row, and `likely` (a token or no_token) makes it cheaper if it does well.
template <class Row>
[[nodiscard]] __device__ gumbel_winner gumbel_max_row(Row row, std::uint32_t size, distribution const& how,
                                                      draw_key const& key, token_id likely, gumbel_shared& shared) {
    unsigned const warps = blockDim.x / warp_size;
    std::uint32_t const blocks = count_blocks(size);
    std::uint32_t const share = (blocks + warps - 1) / warps;
    std::uint32_t const first = warp_index() * share;
    warp_gumbel_max mine{key, how};
    if (likely != no_token) mine.expect(likely, load(row[likely]));
    for (std::uint32_t b = first; b < first + share && b < blocks; ++b) {
        mine.prepare_block(row, size, b);
        lanes_of<Row> logits;
        read_block(row, size, b, logits);
        mine.visit_block(row, b, logits);
    }
    gumbel_winner const result = mine.winner();
    __syncthreads();  // whoever still reads the last row's
    if (lane_index() == 0) shared.of_warps[warp_index()] = result;
    __syncthreads();
    return first_of(shared.of_warps, warps);
}

/// The place of the winner among `count` tokens. Their names in the race are ids[place], all different, in any order;
/// `how` knows them by their places. A BLOCK collective; every thread gets the result. At least one token is kept, and
/// those that are have logits below +inf. Two calls of Philox a token, where gumbel_max_row makes one for 128.
[[nodiscard]] __device__ inline std::uint32_t gumbel_max_list(token_id const* ids, float const* logits,
                                                              std::uint32_t count, distribution const& how,
                                                              draw_key const& key, gumbel_shared& shared) {
    distribution all = how;  // the race would cut ties by names
    all.least_logit = -infinity;
    warp_gumbel_max mine{key, all};
    for (std::uint32_t first = warp_index() * warp_size; first < count; first += blockDim.x) {
        std::uint32_t const i = first + lane_index();
        bool const kept = i < count && how.keeps(logits[i], static_cast<token_id>(i));
        mine.visit(kept ? ids[i] : no_token, kept ? logits[i] : -infinity);
    }
    gumbel_winner const result = mine.winner();
    __syncthreads();  // whoever still reads what was here. no mutant: a list's race ends with a barrier, a row's does not
    if (lane_index() == 0) shared.of_warps[warp_index()] = result;
    __syncthreads();
    token_id const winner = first_of(shared.of_warps, blockDim.x / warp_size).token;
    for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
        if (ids[i] == winner) shared.place = i;
    }
    __syncthreads();
    return shared.place;
}

}  // namespace cuda
SURELEAP_END_NAMESPACE
