// SPDX-License-Identifier: MIT
//
// Slices of rows that are stored otherwise than the rounds' target.
// expect-error: accept: the row_shards are of other types than the round_memory
#include <sureleap/ranks/one_rank.hpp>
#include <sureleap/ranks/sharded_rows.hpp>
#include <sureleap/sureleap.hpp>

using namespace sureleap;

#ifdef SURELEAP_EXPECT_FAILURE
using stored = bf16;
#else
using stored = float;
#endif

int main() {
    one_rank ranks;
    row_shards<stored, one_rank> shards{ranks, vocabulary_slices::even(8, 1), {.block_size = 2}};
    given_drafts<float> drafter{{.block_size = 2, .vocabulary = 8}};
    fixed_schedule schedule;
    philox_randomness rng;
    round_memory<float, float> memory{drafter, schedule, token_rejection{}, {}};
    accept(token_rejection{}, shards.of(logits_rows<stored>{}), no_logits_hook{}, rng, memory);
}
