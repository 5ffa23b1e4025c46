// SPDX-License-Identifier: MIT
//
// The one C++20 file of a C program that uses sureleap, or of a shared library for other languages:
//
//     c++ -std=c++20 -O2 -shared -fPIC -I include examples/c/sureleap.cpp -o libsureleap_c.so
#define SURELEAP_C_IMPLEMENTATION
#include <sureleap/sureleap.h>
