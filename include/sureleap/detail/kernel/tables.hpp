// SPDX-License-Identifier: MIT
//
// What is computed of many numbers at once, as tables of functions. There are four kinds: `row_kernels` (rows.hpp),
// `head_kernels` (heads.hpp), `survival_kernels` (survivals.hpp), `philox_kernels` (philox.hpp). Each comes in several
// versions:
//
//     scalar_kernels<row_kernels>      the reference, portable, beside its kind
//     avx512_kernels<row_kernels>      vector code, a header for each set of instructions: avx512.hpp, avx2.hpp, neon.hpp
//     native_kernels<row_kernels>()    the best that the machine runs (native.hpp)
//
// A table of functions, not a template parameter of everything above: which instructions a machine has is known when
// the program runs, and a call is nothing beside a row, a matrix or a pass. A table is a value that is passed in at
// set-up: an engine may bring its own, and a test may ask for any of them.
//
// Versions are templates of the kind, so that vector code is compiled where somebody asks for its kind. Their
// initialisers name the parameter for the same reason: compilers look into what does not depend on it.
#pragma once

#include <sureleap/core/config.hpp>

SURELEAP_BEGIN_NAMESPACE

/// The sets of instructions that vector code of the library is compiled for, by attributes of its functions.
enum class instruction_set : unsigned char {
    portable,  ///< what the program is compiled for
    avx2,      ///< AVX2, FMA, F16C, BMI, POPCNT
    avx512,    ///< those and AVX-512 F, BW, DQ, VL
    neon       ///< of AArch64, where it is part of the architecture
};

/// Plain loops: the oracle of vector code, and what runs where there is none. A version without a table of some kind
/// has an empty one, without a name.
template <class Table>
inline constexpr Table scalar_kernels{};

SURELEAP_END_NAMESPACE
