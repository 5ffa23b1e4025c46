// SPDX-License-Identifier: MIT
//
// One source, compiled twice into one program: for the machine's base and for AVX2 throughout. Each unit sums a row
// with every table of passes, says where its own code lies, and decodes a sequence.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/sureleap.hpp>

// Of the standard library alone: the library's own types are others in each unit.
struct report {
    std::vector<double> sums;
    std::vector<void const*> places;
    std::vector<int> tokens;
};

#define MARCH_UNIT(name)                                                                                          \
    report name(std::span<float const> row) {                                                                     \
        report out;                                                                                               \
        for (sureleap::row_kernels const* const kernels : sureleap::available_kernels<sureleap::row_kernels>()) { \
            out.sums.push_back(kernels->get<float>().sum(row.data(), row.size(), 1.0f, 0.5f, nullptr));           \
            out.places.push_back(reinterpret_cast<void const*>(kernels->get<float>().sum));                       \
        }                                                                                                         \
        auto model = sureleap::model_of<float>(16, [&](auto context, auto logits) {                               \
            auto const first = 7 * static_cast<std::size_t>(context.back());                                      \
            for (std::size_t v = 0; v < logits.size(); ++v) logits[v] = row[first + v] / 4.0f;                    \
        });                                                                                                       \
        sureleap::autoregressive drafter{model, {.block_size = 4, .vocabulary = 16}};                             \
        sureleap::decoder dec{model, drafter, sureleap::fixed_schedule{}, sureleap::keyed_coupling{}};            \
        dec.submit(std::vector<sureleap::token_id>{3}, {.seed = 5, .max_new_tokens = 40});                        \
        while (dec.step()) {                                                                                      \
            for (sureleap::token_id const x : dec.events()[0].tokens) out.tokens.push_back(static_cast<int>(x));  \
        }                                                                                                         \
        return out;                                                                                               \
    }

report of_base(std::span<float const> row);
report of_avx2(std::span<float const> row);
