// SPDX-License-Identifier: MIT
//
// The passes over rows and matrices are tables of functions. The best that the machine runs is taken by default; an
// engine may name another one, or bring its own, and gets the same tokens.
#include <cstddef>
#include <cstdio>
#include <vector>

#include <sureleap/sureleap.hpp>

using namespace sureleap;

std::vector<token_id> serve(row_kernels const& kernels) {
    auto const model = [](float taste) {
        return model_of<float>(40, [taste](auto context, auto logits) {
            auto const x = static_cast<std::size_t>(context.back());
            for (std::size_t v = 0; v < logits.size(); ++v) {
                logits[v] = taste * static_cast<float>((5 * x + 7 * v) % 11);
            }
        });
    };
    autoregressive drafter{model(0.8f), {.block_size = 4, .vocabulary = 40}};
    decoder dec{model(1.0f), drafter, fixed_schedule{}, token_rejection{}, {.kernels = &kernels}};
    request_id const id = dec.submit(std::vector<token_id>{1}, {.seed = 5, .max_new_tokens = 40});
    while (dec.step()) {
    }
    auto const tokens = dec.generated(id);
    return {tokens.begin(), tokens.end()};
}

// An engine's own pass, which counts how often it is asked.
int asked = 0;
double counted_sum(float const* row, std::size_t size, float shift, float scale, double* sums) {
    ++asked;
    return scalar_kernels<row_kernels>.get<float>().sum(row, size, shift, scale, sums);
}

int main() {
    row_kernels const& reference = scalar_kernels<row_kernels>;
    row_kernels const& best = native_kernels<row_kernels>();
    std::printf("the reference is %s\n",
                reference.instructions == instruction_set::portable ? "portable" : "not portable");

    std::vector<float> const row{0.0f, 1.0f, 2.0f, 3.0f};
    auto const sum_by = [&](row_kernels const& kernels) {
        row_functions<float> const& passes = kernels.get<float>();
        return passes.sum(row.data(), row.size(), 3.0f, 1.0f, nullptr);  // of exp((logit - 3) * 1)
    };
    std::printf("the weights add up to %.3f, by the machine's best to %.3f\n", sum_by(reference), sum_by(best));

    row_functions<float> own = reference.get<float>();
    own.sum = counted_sum;
    own.bound = nullptr;  // sums are as cheap
    row_kernels const mine{.name = "mine", .for_float = &own};
    bool const same = serve(best) == serve(reference) && serve(mine) == serve(reference);
    std::printf("the same tokens: %s; own pass used: %s\n", same ? "yes" : "no", asked > 0 ? "yes" : "no");

    head_kernels const& products = scalar_kernels<head_kernels>;
    std::vector<token_id> found(row.size());
    std::printf("logits of at least 1.5: %zu\n", products.at_least(row.data(), row.size(), 1.5f, found.data()));
}

// Prints:
// the reference is portable
// the weights add up to 1.553, by the machine's best to 1.553
// the same tokens: yes; own pass used: yes
// logits of at least 1.5: 2
