// SPDX-License-Identifier: MIT
//
// The one unit that compiles all drafters and all rules.
#include "server.hpp"

namespace engine {

template class server<float>;

}  // namespace engine
