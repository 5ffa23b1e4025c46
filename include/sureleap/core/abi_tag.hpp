// SPDX-License-Identifier: MIT
//
// What a translation unit is compiled for, as a piece of a name: SURELEAP_MARCH_TAG, part of the inline namespace that
// config.hpp opens.
//
// Inline functions of one name are one function to the linker, which keeps any unit's copy. If units differ in -march,
// the copy kept may use instructions that the machine lacks. The program then dies in code that was compiled for any
// machine. So units that are compiled for different machines get different names. The cost: types of the library cannot
// cross between such units; the program does not link, and the missing symbol shows both tags.
//
// Each extension of the instruction set that compilers use of their own accord is a letter, nothing for the base of the
// architecture. Rejected: the levels of the x86-64 ABI, which units compiled with -mfma or -mpopcnt fall between.
#pragma once

// Expands to `letter` if the compiler defines `macro` as 1, which is how they define what they are compiling for.
#define SURELEAP_DETAIL_IF(macro, letter) SURELEAP_DETAIL_IF_(macro, letter)
#define SURELEAP_DETAIL_IF_(value, letter) SURELEAP_DETAIL_IF__(SURELEAP_DETAIL_ONE_##value, letter)
#define SURELEAP_DETAIL_IF__(comma_if_one, letter) SURELEAP_DETAIL_SECOND(comma_if_one letter, , )
#define SURELEAP_DETAIL_SECOND(first, second, ...) second
#define SURELEAP_DETAIL_ONE_1 ,

#define SURELEAP_DETAIL_WORD_(a, b, c, d, e, f, g, h, i, j, k) a##b##c##d##e##f##g##h##i##j##k
#define SURELEAP_DETAIL_WORD(a, b, c, d, e, f, g, h, i, j, k) SURELEAP_DETAIL_WORD_(a, b, c, d, e, f, g, h, i, j, k)

// clang-format off
#define SURELEAP_DETAIL_UP_TO_AVX2 SURELEAP_DETAIL_WORD( \
    SURELEAP_DETAIL_IF(__SSE3__, s), \
    SURELEAP_DETAIL_IF(__SSSE3__, t), \
    SURELEAP_DETAIL_IF(__SSE4_1__, u), \
    SURELEAP_DETAIL_IF(__SSE4_2__, v), \
    SURELEAP_DETAIL_IF(__POPCNT__, p), \
    SURELEAP_DETAIL_IF(__AVX__, a), \
    SURELEAP_DETAIL_IF(__F16C__, h), \
    SURELEAP_DETAIL_IF(__FMA__, f), \
    SURELEAP_DETAIL_IF(__BMI2__, b), \
    SURELEAP_DETAIL_IF(__LZCNT__, l), \
    SURELEAP_DETAIL_IF(__AVX2__, w))
#define SURELEAP_DETAIL_SINCE_AVX512 SURELEAP_DETAIL_WORD( \
    SURELEAP_DETAIL_IF(__AVX512F__, F), \
    SURELEAP_DETAIL_IF(__AVX512CD__, C), \
    SURELEAP_DETAIL_IF(__AVX512BW__, B), \
    SURELEAP_DETAIL_IF(__AVX512DQ__, D), \
    SURELEAP_DETAIL_IF(__AVX512VL__, L), \
    SURELEAP_DETAIL_IF(__AVX512VBMI__, V), \
    SURELEAP_DETAIL_IF(__AVX512VBMI2__, W), \
    SURELEAP_DETAIL_IF(__AVX512VNNI__, N), \
    SURELEAP_DETAIL_IF(__AVX512BITALG__, P), \
    SURELEAP_DETAIL_IF(__AVX512BF16__, H), \
    SURELEAP_DETAIL_IF(__AVX512FP16__, I))
#define SURELEAP_DETAIL_BESIDE_THEM SURELEAP_DETAIL_WORD( \
    SURELEAP_DETAIL_IF(__BMI__, c), \
    SURELEAP_DETAIL_IF(__MOVBE__, m), \
    SURELEAP_DETAIL_IF(__FMA4__, g), \
    SURELEAP_DETAIL_IF(__XOP__, x), \
    SURELEAP_DETAIL_IF(__TBM__, y), \
    SURELEAP_DETAIL_IF(__AVXVNNI__, n), \
    SURELEAP_DETAIL_IF(__GFNI__, G), \
    SURELEAP_DETAIL_IF(__AVX512VPOPCNTDQ__, Q), \
    SURELEAP_DETAIL_IF(__AVX512IFMA__, M), \
    SURELEAP_DETAIL_IF(__AVX10_1__, T), \
    SURELEAP_DETAIL_IF(__APX_F__, A))
#define SURELEAP_DETAIL_OF_ARM SURELEAP_DETAIL_WORD( \
    SURELEAP_DETAIL_IF(__ARM_NEON, N), \
    SURELEAP_DETAIL_IF(__ARM_FEATURE_ATOMICS, A), \
    SURELEAP_DETAIL_IF(__ARM_FEATURE_RCPC, R), \
    SURELEAP_DETAIL_IF(__ARM_FEATURE_DOTPROD, D), \
    SURELEAP_DETAIL_IF(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC, H), \
    SURELEAP_DETAIL_IF(__ARM_FEATURE_BF16_VECTOR_ARITHMETIC, B), \
    SURELEAP_DETAIL_IF(__ARM_FEATURE_MATMUL_INT8, I), \
    SURELEAP_DETAIL_IF(__ARM_FEATURE_SVE, S), \
    SURELEAP_DETAIL_IF(__ARM_FEATURE_SVE2, T), \
    SURELEAP_DETAIL_IF(__ARM_FEATURE_MOPS, M), \
    SURELEAP_DETAIL_IF(__ARM_FEATURE_CSSC, C))
// clang-format on

#define SURELEAP_DETAIL_JOIN_(a, b, c) a##b##c
#define SURELEAP_DETAIL_JOIN(a, b, c) SURELEAP_DETAIL_JOIN_(a, b, c)
#if defined(__aarch64__) || defined(__arm__)
#define SURELEAP_MARCH_TAG SURELEAP_DETAIL_OF_ARM
#else
#define SURELEAP_MARCH_TAG \
    SURELEAP_DETAIL_JOIN(SURELEAP_DETAIL_UP_TO_AVX2, SURELEAP_DETAIL_SINCE_AVX512, SURELEAP_DETAIL_BESIDE_THEM)
#endif
