// SPDX-License-Identifier: MIT
//
// Version, build settings and the few macros of the library. Everything else is ordinary C++20.
//
// A user may define, before the first include and in the same way in every translation unit:
//   SURELEAP_CONTRACTS   1: broken preconditions print the expectation and abort (default in builds without NDEBUG)
//                        0: they are parsed but not evaluated (default with NDEBUG)
//   SURELEAP_COMPILED    1: kernels and what else needs no type of a user's is declared only, and compiled once in a
//                        unit of its own (detail/kernel/native.hpp)
//                        0: the library is headers and nothing else (default)
// Settings that change inline code are part of the inline namespace, and so is what the unit is compiled for
// (core/abi_tag.hpp). So two translation units that disagree link as two versions of the library. Otherwise they would
// silently share one of the definitions.
#pragma once

#include <sureleap/core/abi_tag.hpp>

#define SURELEAP_VERSION_MAJOR 0
#define SURELEAP_VERSION_MINOR 2
#define SURELEAP_VERSION_PATCH 0

// A file that does not exist, because that ends the compilation: this is the one error, and hundreds would follow an
// #error.
#if !defined(__cplusplus) || (__cplusplus < 202002L && !defined(_MSC_VER))
#include <sureleap needs C++20: compile with -std=c++20, or link the CMake target sureleap::sureleap>
#endif

// Exactness rests on NaN checks and on sums that are evaluated as written; both vanish under fast-math.
#if defined(__FAST_MATH__)
#error "sureleap cannot keep its guarantees under -ffast-math: compile the files that include it without"
#endif

#ifndef SURELEAP_CONTRACTS
#ifdef NDEBUG
#define SURELEAP_CONTRACTS 0
#else
#define SURELEAP_CONTRACTS 1
#endif
#endif

#ifndef SURELEAP_COMPILED
#define SURELEAP_COMPILED 0
#endif

#if defined(__cpp_exceptions)
#define SURELEAP_EXCEPTIONS 1
#else
#define SURELEAP_EXCEPTIONS 0
#endif

#define SURELEAP_DETAIL_PASTE_(a, b, c, d, e) v##a##_##b##_c##c##_e##d##_m##e
#define SURELEAP_DETAIL_PASTE(a, b, c, d, e) SURELEAP_DETAIL_PASTE_(a, b, c, d, e)
#define SURELEAP_ABI_TAG                                                                                           \
    SURELEAP_DETAIL_PASTE(SURELEAP_VERSION_MAJOR, SURELEAP_VERSION_MINOR, SURELEAP_CONTRACTS, SURELEAP_EXCEPTIONS, \
                          SURELEAP_MARCH_TAG)

#define SURELEAP_BEGIN_NAMESPACE \
    namespace sureleap {         \
    inline namespace SURELEAP_ABI_TAG {
#define SURELEAP_END_NAMESPACE \
    }                          \
    }

// Leaf rules (acceptance test, residual, survival, Philox, tie order) are the same functions on host and device.
#if defined(__CUDACC__)
#define SURELEAP_HOST_DEVICE __host__ __device__
#else
#define SURELEAP_HOST_DEVICE
#endif

// Loops of vector code that are only fast unrolled. nvcc, which also reads host headers, knows the pragma by another
// name.
#if defined(__CUDACC__)
#define SURELEAP_DETAIL_UNROLL(n)
#else
#define SURELEAP_DETAIL_PRAGMA(text) _Pragma(#text)
#define SURELEAP_DETAIL_UNROLL(n) SURELEAP_DETAIL_PRAGMA(GCC unroll n)
#endif

#include <cstdio>
#include <cstdlib>

SURELEAP_BEGIN_NAMESPACE
namespace detail {
[[noreturn, gnu::cold, gnu::noinline]] inline void broken_contract(char const* expectation, char const* file,
                                                                   int line) noexcept {
    std::fprintf(stderr, "%s:%d: sureleap: broken precondition: %s\n", file, line, expectation);
    std::abort();
}
}  // namespace detail
SURELEAP_END_NAMESPACE

// A precondition inside a round, where throwing is not an option. Data that comes from outside is checked at set-up
// with sureleap::error instead (error.hpp).
#if SURELEAP_CONTRACTS
#define SURELEAP_EXPECTS(condition)                      \
    (static_cast<bool>(condition) ? static_cast<void>(0) \
                                  : ::sureleap::detail::broken_contract(#condition, __FILE__, __LINE__))
#else
#define SURELEAP_EXPECTS(condition) static_cast<void>(sizeof((condition) ? 1 : 0))
#endif
