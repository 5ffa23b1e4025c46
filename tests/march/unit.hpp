// SPDX-License-Identifier: MIT
//
// One source, compiled twice into one program: for the machine's base and for AVX2 throughout. Each unit sums a row with
// every table of passes, and says where its own code lies.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <sureleap/kernel/native.hpp>

struct report {
    std::vector<double> sums;
    std::vector<void const*> places;
};

#define MARCH_UNIT(name)                                                                             \
    report name(std::span<float const> row) {                                                        \
        report out;                                                                                  \
        for (sureleap::row_kernels const* const kernels : sureleap::available_row_kernels()) {       \
            out.sums.push_back(kernels->for_float.sum(row.data(), row.size(), 1.0f, 0.5f, nullptr)); \
            out.places.push_back(reinterpret_cast<void const*>(kernels->for_float.sum));             \
        }                                                                                            \
        return out;                                                                                  \
    }

report of_base(std::span<float const> row);
report of_avx2(std::span<float const> row);
