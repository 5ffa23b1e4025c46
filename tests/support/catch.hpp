// SPDX-License-Identifier: MIT
//
// One include for Catch2 2.13 and 3.x. The main function comes from the library that is linked (Catch2WithMain, or
// Catch2's own main for 2.13), never from a test. `Approx` is left out on purpose: it lives in different namespaces
// in the two versions, and its default tolerance hides errors. Compare |a - b| with a stated bound instead.
#pragma once

#if __has_include(<catch2/catch_test_macros.hpp>)
#include <catch2/catch_message.hpp>
#include <catch2/catch_template_test_macros.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>
#include <catch2/matchers/catch_matchers_all.hpp>
#elif __has_include(<catch2/catch.hpp>)
#include <catch2/catch.hpp>
#else
#error "the tests need Catch2 2.13 or newer: install the package catch2 and link its main"
#endif
