// SPDX-License-Identifier: MIT
//
// A workspace never destroys what it hands out, so it refuses types that need it.
// expect-error: workspace: nothing is ever destroyed; keep types with a destructor outside the workspace
#include <string>

#include <sureleap/core/workspace.hpp>

int main() {
    sureleap::workspace ws;
#ifdef SURELEAP_EXPECT_FAILURE
    auto const taken = ws.take<std::string>(4);
#else
    auto const taken = ws.take<char>(4);
#endif
    return static_cast<int>(taken.size());
}
