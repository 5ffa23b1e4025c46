// SPDX-License-Identifier: MIT
//
// From a row of logits to a token: the law that a transform makes of it, and draws from it. A draw is named by a
// key, and the same key gives the same token.
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

void show(char const* name, distribution<float> const& law) {
    std::printf("%-18s", name);
    for (token_id v = 0; v < 5; ++v) std::printf(" %.3f", law.probability(v));
    std::printf("  mode %d\n", law.mode());
}

// How often each token is drawn, keys counting up.
template <concurrent_randomness Rng>
void count(Rng const& rng, distribution<float> const& law) {
    std::array<int, 5> seen{};
    for (std::uint64_t position = 0; position < 1000; ++position) {
        draw_key const key{.seed = 1, .position = position, .index = 0, .use = purpose::own};
        ++seen[static_cast<std::size_t>(rng.categorical(key, law))];
    }
    std::printf("of 1000 draws    ");
    for (int const n : seen) std::printf(" %5d", n);
    std::printf("\n");
}

int main() {
    constexpr std::array<float, 5> values{2.0f, 1.0f, 0.0f, -1.0f, 1.5f};
    std::array<token_id, 5> order{};  // scratch of truncations
    logits_row<float> const row{.values = values};
    static_assert(weight_function<distribution<float>>);

    distribution<float> const law{row, transform{}, order};
    show("as it is", law);
    show("temperature 0.5", {row, transform{.temperature = 0.5}, order});
    show("top_k 2", {row, transform{.top_k = 2}, order});
    show("top_p 0.8, min_p", {row, transform{.top_p = 0.8, .min_p = 0.5}, order});

    static_assert(randomness<philox_randomness> && concurrent_randomness<philox_randomness>);
    philox_randomness rng;
    count(rng, law);

    // A race over the noise of a key: laws that are alike mostly have the same winner.
    draw_key const noise{.seed = 1, .position = 9, .index = 0, .use = purpose::noise};
    distribution<float> const other{row, transform{.temperature = 1.2}, order};
    std::printf("winners of one race: %d and %d\n", rng.gumbel_max(noise, law), rng.gumbel_max(noise, other));

    // A law may be made without the sum of its weights. A draw makes what it needs.
    distribution<float> lazy{row, transform{}, order, {}, native_kernels<row_kernels>(), {}, totals::none};
    lazy.settle();
    std::printf("the same sum: %s\n", lazy.total() == law.total() ? "yes" : "no");
    std::printf("drawn: %d, and again %d\n", draw(lazy, noise, rng), draw(lazy, noise, rng));
}

// Prints:
// as it is           0.463 0.170 0.063 0.023 0.281  mode 0
// temperature 0.5    0.656 0.089 0.012 0.002 0.241  mode 0
// top_k 2            0.622 0.000 0.000 0.000 0.378  mode 0
// top_p 0.8, min_p   0.622 0.000 0.000 0.000 0.378  mode 0
// of 1000 draws       453   177    69    19   282
// winners of one race: 2 and 2
// the same sum: yes
// drawn: 3, and again 3
