// SPDX-License-Identifier: MIT
#include "march/unit.hpp"

MARCH_UNIT(of_avx2)
