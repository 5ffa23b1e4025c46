// SPDX-License-Identifier: MIT
//
// GGUF files of gguf_writer as models, and how far numbers are from others.
#pragma once

#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <engine/checkpoint.hpp>
#include <engine/gguf/file.hpp>
#include <engine/gguf/model.hpp>

#include "gguf_writer.hpp"

namespace support {

/// A checkpoint of a file in memory, and what it points into.
struct opened {
    std::vector<std::byte> bytes;
    engine::checkpoint model;

    explicit opened(gguf_writer const& w, engine::rank_place place = {})
        : bytes(w.bytes()), model(load(bytes, place)) {}

private:
    static engine::checkpoint load(std::vector<std::byte> const& bytes, engine::rank_place place) {
        auto const file = std::make_shared<engine::gguf::file const>(engine::gguf::file::view(bytes, "m.gguf"));
        auto config = engine::gguf::read_config(*file);
        config.place = place;
        return engine::gguf::load(file, std::move(config));
    }
};

/// |a - b| / |a|, of as many numbers.
[[nodiscard]] inline double distance(std::vector<float> const& a, std::vector<float> const& b) {
    double squares = a.size() == b.size() ? 0 : INFINITY;
    double size = 0;
    for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
        squares += std::pow(double(a[i]) - double(b[i]), 2);
        size += std::pow(double(a[i]), 2);
    }
    return std::sqrt(squares / size);
}

}  // namespace support
