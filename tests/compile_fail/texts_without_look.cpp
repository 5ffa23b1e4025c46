// SPDX-License-Identifier: MIT
//
// Texts beside the context are looked in for a request, so that nothing crosses tenants: an index alone has no look.
// expect-error: with_lookup: the texts have no look\(request, visit\)
// expect-error: give it a text_store
#include <sureleap/drafter/with_lookup.hpp>
#include <sureleap/serving/text_store.hpp>

#include "parts.hpp"

using namespace parts;

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    sureleap::ngram_index const texts{16};
    sureleap::with_lookup joined{make_drafter(), texts};
#else
    sureleap::text_store const texts{{.tokens_per_tenant = 16}};
    sureleap::with_lookup joined{make_drafter(), texts};
#endif
    return static_cast<int>(joined.block_size());
}
