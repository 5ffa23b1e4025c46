// SPDX-License-Identifier: MIT
//
// A race over ranks by a source whose exponentials the ranks do not know.
// expect-error: over ranks every rank runs the race of its own tokens, by the exponentials of philox_randomness
#include <sureleap/ranks/one_rank.hpp>
#include <sureleap/ranks/sharded_rows.hpp>
#include <sureleap/sureleap.hpp>

using namespace sureleap;

struct own_source : philox_randomness {};
#ifdef SURELEAP_EXPECT_FAILURE
using source = own_source;
#else
using source = philox_randomness;
#endif

int main() {
    one_rank ranks;
    row_shards<float, one_rank> shards{ranks, vocabulary_slices::even(8, 1), {.block_size = 2}};
    verifier<float, keyed_coupling, no_logits_hook, float, source> verify{
        {}, {.drafts = {.block_size = 2, .vocabulary = 8, .slice = vocabulary_view::slice(0, 8, 8)}}};
    return static_cast<int>(verify(engine_arrays<float>{}, shards).size());
}
