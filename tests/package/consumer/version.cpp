// SPDX-License-Identifier: MIT
//
// The headers are those of the version that was asked for, and device code runs if it was.
#include <cstdio>
#include <string>

#include <sureleap/core/config.hpp>

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
}
