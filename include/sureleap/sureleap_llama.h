// SPDX-License-Identifier: MIT
//
// Speculation in llama.cpp for C99 and whatever speaks to C: a decoder over contexts of the caller's, with what
// sureleap/ext/llama.hpp has for C++. Include it wherever you like. Exactly one C++20 file of the program holds the
// implementation, its own and that of sureleap.h, and is linked with libllama:
//
//     #define SURELEAP_C_IMPLEMENTATION
//     #include <sureleap/sureleap_llama.h>
//
// A shared library for other languages is that file alone, compiled with -shared -fPIC. examples/llama/speculative.py
// is a program in Python over it.
#ifndef SURELEAP_LLAMA_H
#define SURELEAP_LLAMA_H

#include <sureleap/ext/llama/c/decoder.h>
#include <sureleap/ext/llama/c/dspark.h>
#include <sureleap/sureleap.h>

#endif

#if defined(SURELEAP_C_IMPLEMENTATION) && !defined(SURELEAP_LLAMA_C_IMPLEMENTED)
#define SURELEAP_LLAMA_C_IMPLEMENTED
#include <sureleap/ext/llama/c/functions.inl>
#endif
