// SPDX-License-Identifier: MIT
// expect-error: distribution: T must be float, double, sureleap::bf16 or sureleap::half
#include <sureleap/sampling/distribution.hpp>

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    sureleap::distribution<int> const p;
#else
    sureleap::distribution<sureleap::bf16> const p;
#endif
    return p.valid() ? 1 : 0;
}
