// SPDX-License-Identifier: MIT
//
// What a program that defines SURELEAP_COMPILED adds to its sources, compiled with the same options, where it does not
// link the CMake target sureleap::compiled.
#include <sureleap/sureleap.hpp>  // what is declared, before what is defined

#include <sureleap/compiled/kernels.cpp>
#include <sureleap/compiled/rounds.cpp>
#include <sureleap/compiled/rows.cpp>
