// SPDX-License-Identifier: MIT
//
// From a corpus to a target and its drafters, in five commands:
//     train tokenizer   ->   train target   ->   train texts   ->   train vocabulary   ->   train draft
#include <cstdio>
#include <exception>
#include <filesystem>
#include <variant>

#include "commands.hpp"
#include "options.hpp"

int main(int argc, char** argv) {
    try {
        auto const chosen = train::parse_options(argc, argv);
        if (!chosen) return 0;
        bool const done = std::visit([](auto const& options) { return train::execute(options); }, *chosen);
        return done ? 0 : 130;
    } catch (std::exception const& e) {
        std::fprintf(stderr, "train: %s\n", e.what());
        return 2;
    }
}
