// SPDX-License-Identifier: MIT
//
// An acceptance rule of one's own, and the exact law of what it decides: the enumerator walks every outcome of
// every draw. The rule rejects every draft, which is slow and exact.
#include <array>
#include <cstddef>
#include <cstdio>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/sureleap.hpp>
#include <sureleap/testing/enumerator.hpp>

using namespace sureleap;

struct reject_all {
    static constexpr fidelity guarantee = fidelity::schedule_invariant;
    static constexpr q_access access = q_access::none;
    using draft_rule = categorical_draft;

    template <class Verification, class Rng>
    [[nodiscard]] decision operator()(Verification& v, Rng& rng) const {
        return {true, 0, rng.categorical(v.key(0, purpose::residual), v.target(0))};
    }
};
static_assert(acceptance_sampler<reject_all>);
// What a rule is handed.
static_assert(std::is_same_v<decision, decltype(reject_all{}(std::declval<verification<float, float>&>(),
                                                             std::declval<philox_randomness&>()))>);

// The law of the first token, exactly.
template <class Rule>
void show(char const* name, Rule rule) {
    std::array<double, 3> law{};
    double accepted = 0.0;
    enumerator walk{enumerator::noise::keyed};
    walk.for_each_path([&] {
        auto target = model_of<double>(3, [](auto, auto logits) { logits[0] = logits[1] = 1.0, logits[2] = 0.0; });
        auto draft = model_of<double>(3, [](auto, auto logits) { logits[0] = 2.0, logits[1] = logits[2] = 0.0; });
        autoregressive drafter{draft, {.block_size = 1, .vocabulary = 3}};
        decoder dec{target, drafter, fixed_schedule{}, rule, {}, no_logits_hook{}, walk.handle()};
        request_id const id = dec.submit(std::vector<token_id>{0}, {.seed = 1, .max_new_tokens = 2});
        dec.step();
        law[static_cast<std::size_t>(dec.generated(id)[0])] += walk.weight();
        accepted += walk.weight() * static_cast<double>(dec.report().accepted());
    });
    std::printf("%-16s %.4f %.4f %.4f, accepts %.4f\n", name, law[0], law[1], law[2], accepted);
}

int main() {
    show("reject_all", reject_all{});
    show("token_rejection", token_rejection{});
}

// Prints:
// reject_all       0.4223 0.4223 0.1554, accepts 0.0000
// token_rejection  0.4223 0.4223 0.1554, accepts 0.6353
