// SPDX-License-Identifier: MIT
//
// The one unit that compiles all combinations of drafter, schedule and rule, half a minute of it.
#include "server.hpp"

namespace engine {

template class server<float>;

}  // namespace engine
