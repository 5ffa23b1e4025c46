// SPDX-License-Identifier: MIT
//
// What nearly every test includes, of the standard library and of Catch2. It is precompiled (tests/CMakeLists.txt), so
// nothing of sureleap is in it: a header that changes would have it made again.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "support/catch.hpp"
