// SPDX-License-Identifier: MIT
//
// sureleap for C99 and whatever speaks to C: rounds of speculative decoding on the caller's memory. docs/c_header.md
// has a first program. Include it wherever you like. Exactly one C++20 file of the program holds the implementation:
//
//     #define SURELEAP_C_IMPLEMENTATION
//     #include <sureleap/sureleap.h>
//
// A shared library for other languages is that file alone, compiled with -shared -fPIC.
#ifndef SURELEAP_H
#define SURELEAP_H

#include <sureleap/c/calibration.h>
#include <sureleap/c/common.h>
#include <sureleap/c/cost.h>
#include <sureleap/c/round.h>

#endif

#if defined(SURELEAP_C_IMPLEMENTATION) && !defined(SURELEAP_C_IMPLEMENTED)
#define SURELEAP_C_IMPLEMENTED
#if !defined(__cplusplus)
#error "SURELEAP_C_IMPLEMENTATION is for one C++20 file of the program; C files include the header without it"
#endif
#include <sureleap/c/functions.inl>
#endif
