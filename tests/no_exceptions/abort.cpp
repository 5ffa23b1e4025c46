// SPDX-License-Identifier: MIT
//
// Without exceptions a set-up error prints its text and aborts: exit status 0 if it did both.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sureleap/core/error.hpp>

static_assert(SURELEAP_EXCEPTIONS == 0, "this file is meant to be compiled with -fno-exceptions");

static char const text_file[] = "no_exceptions.txt";

extern "C" void check_text(int) {
    std::fflush(stderr);
    char text[128] = {};
    if (std::FILE* const file = std::fopen(text_file, "r")) {
        std::size_t const length = std::fread(text, 1, sizeof(text) - 1, file);
        text[length] = '\0';
    }
    std::_Exit(std::strcmp(text, "sureleap: table: wrong count at index 3: got 4, expected 5\n") == 0 ? 0 : 1);
}

int main() {
    if (std::freopen(text_file, "w", stderr) == nullptr) return 2;
    std::signal(SIGABRT, check_text);
    sureleap::fail_with("table: wrong count at index ", 3, ": got ", 4, ", expected ", 5);
}
