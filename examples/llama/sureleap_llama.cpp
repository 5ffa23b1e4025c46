// SPDX-License-Identifier: MIT
//
// The one C++20 file of a C program that speculates in llama.cpp, or of a shared library for other languages. With
// LLAMA the folder that has llama.cpp's include/ and lib/, in one line:
//
//     c++ -std=c++20 -O2 -shared -fPIC -I include -I $LLAMA/include examples/llama/sureleap_llama.cpp
//         -L $LLAMA/lib -lllama -lggml-base -o libsureleap_llama.so
#define SURELEAP_C_IMPLEMENTATION
#include <sureleap/sureleap_llama.h>
