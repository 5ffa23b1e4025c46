// SPDX-License-Identifier: MIT
//
// The sequential heads: how the token before changes the logits of the next one. Weights stay in their storage
// format, W2 also in eight bits.
#include <array>
#include <cstddef>
#include <cstdio>
#include <span>
#include <type_traits>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

constexpr std::size_t V = 4;      // tokens
constexpr std::size_t width = 2;  // of the embeddings, the rank of W2 W1
constexpr std::size_t d = 1;      // numbers of a hidden state
constexpr std::size_t units = 1;  // of the GRU

// The logits of one position behind token 2.
template <sequential_head Head>
void show(char const* name, Head const& head) {
    using real = typename Head::value_type;
    std::vector<real> state(head.state_size());
    std::array<real, V> logits{};
    std::array<real, d> const hidden{real(0.5)};
    head.reset(state);
    head.add_bias(state, std::span<real const>(hidden).first(head.hidden_size()), 2, logits);
    std::printf("%-22s", name);
    for (real const l : logits) std::printf(" %6.2f", static_cast<double>(l));
    std::printf("\n");
}

template <class Weight>
std::vector<Weight> stored(std::vector<float> const& values) {
    std::vector<Weight> all;
    for (float const v : values) all.emplace_back(static_cast<Weight>(v));
    return all;
}

int main() {
    std::vector<float> const w1{1, 0, 0, 1, -1, 2, 2, -1};
    std::vector<float> const w2{1, 0.5f, -1, 0.25f, 0.5f, 1, 0, -2};
    std::vector<float> const gate(width * (d + width), 0.5f);
    std::vector<float> const joint(3 * width * (2 * width + d), 0.25f);
    std::vector<float> const zeros(3 * width);
    matrix_view<float> const embeddings{w1.data(), V, width};
    matrix_view<float> const outputs{w2.data(), V, width};

    show("no_head", no_head<float>{});
    markov_head const markov{embeddings, outputs};
    static_assert(factored_head<markov_head<float>>);
    show("markov_head", markov);
    show("gated_head", gated_head{embeddings, outputs, {gate.data(), width, d + width}, std::span(zeros).first(width)});
    show("rnn_head", rnn_head{embeddings, outputs, {joint.data(), 3 * width, 2 * width + d}, zeros});

    show("domino_head", domino_head{matrix_view<float>{w1.data(), V, d},
                                    {joint.data(), 3 * units, d},
                                    {joint.data(), 3 * units, units},
                                    {joint.data(), width, d + units},
                                    outputs,
                                    0});

    auto const short1 = stored<bf16>(w1), short2 = stored<bf16>(w2);
    show("markov_head of bf16", markov_head{matrix_view<bf16>{short1.data(), V, width}, {short2.data(), V, width}});
    static_assert(std::is_same_v<compute_t<bf16>, float> && std::is_same_v<compute_t<half>, float>);
    int8_matrix const eight_bits{outputs};
    int8_view const view = eight_bits.view();
    show("with W2 of int8", markov_head{embeddings, view});
    show("by scalar_backend", markov_head{embeddings, outputs, scalar_backend{}});
    static_assert(linear_backend<native_backend, half, float>);

    // Draws from the best token by base logits and the best two successors of the token before.
    successor_table const successors{markov, 2};
    shortlist_head const listed{markov, 1, successors.view()};
    std::printf("behind token 2 come most likely %d and %d; a list has at most %zu tokens\n",
                successors.view().row(2)[0], successors.view().row(2)[1], listed.capacity());
}

// Prints:
// no_head                  0.00   0.00   0.00   0.00
// markov_head              0.00   1.50   1.50  -4.00
// gated_head               0.00   1.02   1.02  -2.72
// rnn_head                 0.54  -0.27   0.54  -0.72
// domino_head              0.10  -0.05   0.10  -0.13
// markov_head of bf16      0.00   1.50   1.50  -4.00
// with W2 of int8          0.01   1.50   1.50  -4.00
// by scalar_backend        0.00   1.50   1.50  -4.00
// behind token 2 come most likely 1 and 2; a list has at most 3 tokens
