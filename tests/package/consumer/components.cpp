// SPDX-License-Identifier: MIT
//
// What a user does with the components of sureleap: WITH_eigen, WITH_xsimd and WITH_json say which were asked for.
#include <array>
#include <cstdio>
#include <span>

#include <sureleap/core/types.hpp>
#ifdef WITH_eigen
#include <sureleap/ext/eigen.hpp>
#endif
#ifdef WITH_xsimd
#include <sureleap/ext/xsimd.hpp>
#endif
#ifdef WITH_json
#include <sureleap/ext/json.hpp>
#endif

namespace {

int failures = 0;

[[maybe_unused]] void expect(bool holds, char const* what) {
    if (holds) return;
    std::fprintf(stderr, "wrong: %s\n", what);
    ++failures;
}

// Small integers, so that every order of summation gives the same.
constexpr std::array<float, 6> weights{1, 2, 3, 4, 5, 6};
constexpr std::array<float, 3> x{1, 0, -1};

template <class Backend>
bool multiplies() {
    std::array<float, 2> y{};
    Backend::gemv(sureleap::matrix_view<float>(weights.data(), 2, 3), std::span<float const>(x), std::span<float>(y));
    return y[0] == -2 && y[1] == -2;
}

}  // namespace

int main() {
#ifdef WITH_eigen
    expect(multiplies<sureleap::eigen_backend>(), "a product by Eigen");
#endif
#ifdef WITH_xsimd
    expect(multiplies<sureleap::xsimd_backend>(), "a product by xsimd");
#endif
#ifdef WITH_json
    sureleap::capacity_table<> const table({{.batch_tokens = 1, .seconds = 0.5}, {.batch_tokens = 8, .seconds = 1.0}});
    expect(sureleap::to_json(sureleap::capacity_from_json(sureleap::to_json(table))) == sureleap::to_json(table),
           "a capacity table through JSON");
#endif
    return failures;
}
