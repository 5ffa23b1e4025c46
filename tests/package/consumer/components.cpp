// SPDX-License-Identifier: MIT
//
// What a user does with the components of sureleap: WITH_eigen, WITH_xsimd, .. say which were compiled in. The
// arguments name those that were asked for, so that one that got lost on the way is noticed.
#include <array>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

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
#ifdef WITH_llama
#include <sureleap/ext/llama.hpp>
#endif
#ifdef WITH_mpi
#include <sureleap/ext/mpi.hpp>
#endif
#ifdef WITH_nccl
#include <sureleap/ext/nccl.hpp>
#endif

namespace {

std::vector<std::string_view> right;  // components whose result is

[[maybe_unused]] void expect(bool holds, std::string_view component) {
    if (holds) right.push_back(component);
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

#ifdef WITH_mpi
bool two_processes_meet() {
    sureleap::mpi_ranks ranks{MPI_COMM_WORLD, {.most_bytes = 1, .seconds = 60.0}};
    std::array const own{static_cast<std::byte>(5 + ranks.rank())};
    std::array<std::byte, 2> all{};
    return ranks.gather(own, all) && all == std::array{std::byte{5}, std::byte{6}};
}
#endif
#ifdef WITH_nccl
// There may be no GPU.
bool refuses_no_communicator() {
    int version = 0;
    try {
        sureleap::nccl_ranks const ranks{nullptr, nullptr};
    } catch (sureleap::error const&) {
        return ncclGetVersion(&version) == ncclSuccess && version >= 21400;
    }
    return false;
}
#endif

}  // namespace

int main(int argc, char** argv) {
#ifdef WITH_eigen
    expect(multiplies<sureleap::eigen_backend>(), "eigen");
#endif
#ifdef WITH_xsimd
    expect(multiplies<sureleap::xsimd_backend>(), "xsimd");
#endif
#ifdef WITH_json
    sureleap::capacity_table<> const table({{.batch_tokens = 1, .seconds = 0.5}, {.batch_tokens = 8, .seconds = 1.0}});
    expect(sureleap::to_json(sureleap::capacity_from_json(sureleap::to_json(table))) == sureleap::to_json(table),
           "json");
#endif
#ifdef WITH_llama
    expect(llama_max_parallel_sequences() > 1, "llama");  // its headers, and its library
#endif
#ifdef WITH_mpi
    MPI_Init(&argc, &argv);
    expect(two_processes_meet(), "mpi");
    MPI_Finalize();
#endif
#ifdef WITH_nccl
    expect(refuses_no_communicator(), "nccl");
#endif

    for (std::string_view const asked : std::span(argv, static_cast<std::size_t>(argc)).subspan(1)) {
        bool found = false;
        for (std::string_view const component : right) found = found || component == asked;
        if (!found) {
            std::fprintf(stderr, "%s is wrong or was left out\n", asked.data());
            return 1;
        }
    }
    return right.size() + 1 == static_cast<std::size_t>(argc) ? 0 : 1;
}
