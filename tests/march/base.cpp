// SPDX-License-Identifier: MIT
#include "march/unit.hpp"

#include <cmath>
#include <cstdio>

MARCH_UNIT(of_base)

namespace {

[[nodiscard]] std::vector<float> row_of_logits() {
    std::vector<float> row;
    for (int i = 0; i < 3001; ++i) row.push_back(static_cast<float>(i * 37 % 101) / 10.0f);
    return row;
}

}  // namespace

// Each unit must have code of its own: one copy for both would hold instructions that only one may use.
int main() {
    auto const row = row_of_logits();
    report const base = of_base(row);
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 77;
#endif
    report const avx2 = of_avx2(row);
    if (base.tokens.size() != 40 || base.tokens != avx2.tokens) return 5;
    std::size_t const tables = base.sums.size();
    if (avx2.sums.size() != tables) return 1;
    for (std::size_t i = 0; i < tables; ++i) {
        std::printf("table %zu: %.9g %.9g\n", i, base.sums[i], avx2.sums[i]);
        if (std::abs(base.sums[i] / base.sums[0] - 1.0) > 1e-5) return 2;
        if (std::abs(avx2.sums[i] / base.sums[0] - 1.0) > 1e-5) return 3;
        if (base.places[i] == avx2.places[i]) {
            std::printf("table %zu is one function in both units\n", i);
            return 4;
        }
    }
}
