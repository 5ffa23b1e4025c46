// SPDX-License-Identifier: MIT
//
// A hook that counts tokens from 0, where a rank has a slice of the row.
// expect-error: row_shards: this hook edits whole rows. Let it edit the tokens from hook_context::first_token on
#include <sureleap/ranks/one_rank.hpp>
#include <sureleap/ranks/sharded_rows.hpp>
#include <sureleap/sureleap.hpp>

using namespace sureleap;

struct bias {
#ifndef SURELEAP_EXPECT_FAILURE
    static constexpr bool takes_slices = true;
#endif
    template <class Real>
    void operator()(hook_context const&, std::span<Real>) const noexcept {}
};

int main() {
    one_rank ranks;
    row_shards<float, one_rank, float, bias> shards{ranks, vocabulary_slices::even(8, 1), {.block_size = 2}};
    return static_cast<int>(shards.rank());
}
