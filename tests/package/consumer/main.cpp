// SPDX-License-Identifier: MIT
//
// Includes what it was promised, and checks that the headers are those of the version that was asked for.
#include <cstdio>
#include <string>

#include <sureleap/sureleap.hpp>
#ifdef WITH_eigen
#include <sureleap/ext/eigen.hpp>
#endif
#ifdef WITH_xsimd
#include <sureleap/ext/xsimd.hpp>
#endif
#ifdef WITH_json
#include <sureleap/ext/json.hpp>
#endif

#ifdef WITH_cuda
bool on_device();  // device.cu
#else
bool on_device() {
    return true;
}
#endif

int main() {
    std::string const version = std::to_string(SURELEAP_VERSION_MAJOR) + "." + std::to_string(SURELEAP_VERSION_MINOR) +
                                "." + std::to_string(SURELEAP_VERSION_PATCH);
    if (version != EXPECTED_VERSION) {
        std::fprintf(stderr, "headers of version %s, expected %s\n", version.c_str(), EXPECTED_VERSION);
        return 1;
    }
    if (!on_device()) {
        std::fprintf(stderr, "a kernel does not run\n");
        return 1;
    }
    sureleap::workspace counter;
    (void)counter.take<sureleap::token_id>(7);
    return counter.used() >= 7 * sizeof(sureleap::token_id) ? 0 : 1;
}
