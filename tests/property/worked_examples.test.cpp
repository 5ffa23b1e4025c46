// SPDX-License-Identifier: MIT
//
// The paper's motivating example, computed exactly. A parallel drafter that answers "of course" or "no problem" mixes
// the two. A transition bias of rank 2 keeps them apart. What is committed has the target's law either way.
#include <sureleap/head/markov.hpp>

#include "support/exactness.hpp"

using namespace exactness;

namespace {

enum word : token_id { thanks, of, course, no, problem };
constexpr std::size_t words = 5;
constexpr double never = -std::numeric_limits<double>::infinity();

/// After "thanks" one of two answers, then "thanks" again.
auto polite_target() {
    return model_of<double>(words, [](std::span<token_id const> context, std::span<double> l) {
        std::fill(l.begin(), l.end(), never);
        switch (context.back()) {
            case thanks: l[of] = l[no] = 0.0; break;
            case of: l[course] = 0.0; break;
            case no: l[problem] = 0.0; break;
            default: l[thanks] = 0.0; break;
        }
    });
}

/// Marginals of the two positions after the anchor, blind to what is drafted at the first.
struct marginals {
    std::vector<double> rows{};
    block_forward<double> operator()(std::span<request_view const> requests) {
        rows.assign(requests.size() * 2 * words, never);
        for (std::size_t r = 0; r < requests.size(); ++r) {
            double* const first = rows.data() + r * 2 * words;
            double* const second = first + words;
            switch (requests[r].anchor) {
                case thanks: first[of] = first[no] = second[course] = second[problem] = 0.0; break;
                case of: first[course] = second[thanks] = 0.0; break;
                case no: first[problem] = second[thanks] = 0.0; break;
                default: first[thanks] = second[of] = second[no] = 0.0; break;
            }
        }
        return {{}, {{rows.data(), requests.size() * 2, words}, {}}};
    }
};

struct measured {
    double accepted = 0.0;  ///< expected accepted drafts of the first round
    double first = 0.0;     ///< acceptance at position 1
    double second = 0.0;    ///< conditional acceptance at position 2
    law committed;
};

template <class Make>
measured measure(Make const& make_drafter) {
    auto target = polite_target();
    scene const s{{{{thanks}}}, 4, 2};
    measured m;
    double reached = 0.0;
    enumerator walk{enumerator::noise::keyed};
    walk.for_each_path([&] {
        auto rng = walk.handle();
        using drafter_type = std::invoke_result_t<Make const&>;
        decoder<decltype(target)&, drafter_type, fixed_schedule, token_rejection<>, no_logits_hook, decltype(rng)> dec(
            target, make_drafter(), fixed_schedule{}, token_rejection<>{}, decoder_options{.seed = 1}, no_logits_hook{},
            rng);
        dec.submit(s.requests[0].prompt, {.seed = 1, .max_new_tokens = 8});
        dec.step();
        auto const accepted = static_cast<double>(dec.report().accepted());
        m.accepted += walk.weight() * accepted;
        m.first += walk.weight() * (accepted >= 1.0 ? 1.0 : 0.0);
        m.second += walk.weight() * (accepted >= 2.0 ? 1.0 : 0.0);
        reached += walk.weight();
    });
    m.second /= m.first;
    CHECK(std::abs(reached - 1.0) <= tolerance);
    m.committed = decoder_law(enumerator::noise::keyed, s, [&](auto rng) {
        using drafter_type = std::invoke_result_t<Make const&>;
        return decoder<decltype(target)&, drafter_type, fixed_schedule, token_rejection<>, no_logits_hook,
                       decltype(rng)>(target, make_drafter(), fixed_schedule{}, token_rejection<>{},
                                      decoder_options{.seed = 1}, no_logits_hook{}, rng);
    });
    return m;
}

void check_committed(law const& committed) {
    law const expected{{{of, course, thanks, of, -1}, 0.25},
                       {{of, course, thanks, no, -1}, 0.25},
                       {{no, problem, thanks, of, -1}, 0.25},
                       {{no, problem, thanks, no, -1}, 0.25}};
    CHECK(largest_difference(committed, expected) <= tolerance);
}

}  // namespace

TEST_CASE("worked example: \"of course\" / \"no problem\", parallel drafter", "[worked]") {
    auto const m = measure([] { return parallel{marginals{}, drafter_options{.block_size = 2, .vocabulary = words}}; });
    CHECK(std::abs(m.first - 1.0) <= tolerance);
    CHECK(std::abs(m.second - 0.5) <= tolerance);
    CHECK(std::abs(m.accepted - 1.5) <= tolerance);
    check_committed(m.committed);
}

TEST_CASE("worked example: \"of course\" / \"no problem\", rank-2 Markov bias", "[worked]") {
    // One direction of the embedding for each answer; +-3 of bias each way is odds of e^6 for the right second word.
    std::vector<double> w1(words * 2, 0.0);
    std::vector<double> w2(words * 2, 0.0);
    w1[of * 2] = w1[no * 2 + 1] = 1.0;
    w2[course * 2] = w2[problem * 2 + 1] = 3.0;
    w2[course * 2 + 1] = w2[problem * 2] = -3.0;
    auto const m = measure([&] {
        return semi_autoregressive{
            marginals{},
            markov_head{matrix_view<double>{w1.data(), words, 2}, matrix_view<double>{w2.data(), words, 2}},
            drafter_options{.block_size = 2, .vocabulary = words}};
    });
    CHECK(std::abs(m.first - 1.0) <= tolerance);
    CHECK(m.second > 0.99);
    CHECK(m.accepted > 1.99);
    CHECK(m.accepted <= 2.0 + tolerance);
    check_committed(m.committed);
}
