// SPDX-License-Identifier: MIT
//
// The K best survivals by count, equal ones in an arbitrary order. After a confidence of 1 two positions of a request
// tie. If the later one counts first, x_{k+1}'s confidence decides whether x_k is verified.
// expect-error: this schedule looks ahead .it sees drafted tokens it decides about.
// expect-error: Use a schedule that only sees the causal_frontier
#include <algorithm>
#include <vector>

#include "parts.hpp"

using namespace parts;

struct best_by_count {
    std::size_t budget = 2;

    void admit(draft_table const& table, frontier_memory const& memory) const {
        survival_table const& s = table.survivals;
        std::vector<candidate> all;
        for (std::size_t r = 0; r < s.requests(); ++r) {
            for (std::size_t k = s.sizes[r]; k-- > 0;) all.push_back(s.at(r, k));
        }
        std::stable_sort(all.begin(), all.end(),
                         [](candidate const& a, candidate const& b) { return a.survival > b.survival; });
        for (auto& length : memory.lengths.first(s.requests())) length = 0;
        for (std::size_t i = 0; i < std::min(budget, all.size()); ++i) ++memory.lengths[all[i].request];
    }
};

int main() {
#ifdef SURELEAP_EXPECT_FAILURE
    decoder dec{make_target(), make_drafter(), best_by_count{}, token_rejection{}};
#else
    decoder dec{make_target(), make_drafter(), top_k_schedule{curve{}}, token_rejection{}};
    decoder coupled{make_target(), make_drafter(), best_by_count{}, keyed_coupling{}};
    decoder lossy{make_target(), make_drafter(), best_by_count{}, token_rejection{}, allow_lossy};
#endif
    return dec.step() ? 1 : 0;
}
