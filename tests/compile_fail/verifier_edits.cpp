// SPDX-License-Identifier: MIT
//
// Edits that a verifier does not know how to fill.
// expect-error: verifier: Edits is array_edits, if calls have a bitmask, bias or penalties, or no_logits_hook
#include <sureleap/sureleap.hpp>

using namespace sureleap;

struct own_edits {
    template <class Real>
    void operator()(hook_context const&, std::span<Real>) const noexcept {}
};
#ifdef SURELEAP_EXPECT_FAILURE
using edits = own_edits;
#else
using edits = array_edits;
#endif

int main() {
    verifier<float, token_rejection<>, edits> verify{{}, {.drafts = {.block_size = 2, .vocabulary = 8}}};
    return static_cast<int>(verify(engine_arrays<float>{}).size());
}
