// SPDX-License-Identifier: MIT
//
// A small, bounds-checked reader of .safetensors files for the tests that compare with stored reference values.
//
//   golden::file const f("markov_rnn");          // <golden directory>/markov_rnn.safetensors
//   auto const w = f.f64("w");                   // w.shape, w.values (row-major), w.at(i, j), w.row(i)
//   auto const tokens = f.i32("tokens");
//
// The directory is the environment variable SURELEAP_GOLDEN_DIR, or the compile definition
// SURELEAP_GOLDEN_DEFAULT_DIR. Tests take every size from `shape`, so they pass on any file of the same layout.
// Layout of the format: 8 bytes little-endian header length, a JSON header, raw little-endian data.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

namespace golden {

static_assert(std::endian::native == std::endian::little, "the reader copies little-endian data as it lies");

/// The directory with the reference values.
inline std::string path() {
    if (char const* const chosen = std::getenv("SURELEAP_GOLDEN_DIR"); chosen != nullptr && *chosen != '\0') {
        return chosen;
    }
#ifdef SURELEAP_GOLDEN_DEFAULT_DIR
    return SURELEAP_GOLDEN_DEFAULT_DIR;
#else
    return "tests/golden";
#endif
}

/// An owned row-major array. A scalar has an empty shape and one value.
template <class T>
struct tensor {
    std::vector<std::size_t> shape;
    std::vector<T> values;

    [[nodiscard]] std::size_t size() const noexcept { return values.size(); }
    [[nodiscard]] T const* data() const noexcept { return values.data(); }
    [[nodiscard]] T const& operator[](std::size_t i) const { return values.at(i); }

    /// Dimension i, or an exception if the array has fewer.
    [[nodiscard]] std::size_t dim(std::size_t i) const { return shape.at(i); }

    /// Element by its full index: at(i), at(i, j), at(i, j, k), ...
    template <class... Index>
    [[nodiscard]] T const& at(Index... index) const {
        std::size_t const indices[] = {static_cast<std::size_t>(index)...};
        if (sizeof...(Index) != shape.size()) throw std::out_of_range("tensor: wrong number of indices");
        std::size_t offset = 0;
        for (std::size_t d = 0; d < shape.size(); ++d) {
            if (indices[d] >= shape[d]) throw std::out_of_range("tensor: index outside its dimension");
            offset = offset * shape[d] + indices[d];
        }
        return values[offset];
    }

    /// The trailing part under the given leading indices: t.row(i) of [n, m] has m values.
    template <class... Index>
    [[nodiscard]] std::span<T const> row(Index... index) const {
        std::size_t const indices[] = {static_cast<std::size_t>(index)...};
        if (sizeof...(Index) > shape.size()) throw std::out_of_range("tensor: too many indices");
        std::size_t offset = 0;
        std::size_t length = 1;
        for (std::size_t d = 0; d < shape.size(); ++d) {
            if (d < sizeof...(Index)) {
                if (indices[d] >= shape[d]) throw std::out_of_range("tensor: index outside its dimension");
                offset = offset * shape[d] + indices[d];
            } else {
                offset *= shape[d];
                length *= shape[d];
            }
        }
        return {values.data() + offset, length};
    }
};

/// One .safetensors file, read and checked whole. Every defect throws std::runtime_error with file and array.
class file {
public:
    /// `name` without extension is looked up in path(); a name that ends in .safetensors is a path of its own.
    explicit file(std::string const& name)
        : where_(name.ends_with(".safetensors") ? name : path() + "/" + name + ".safetensors") {
        std::ifstream in(where_, std::ios::binary);
        if (!in) broken("cannot be opened (is SURELEAP_GOLDEN_DIR right?)");
        bytes_.assign(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
        if (bytes_.size() < 8) broken("is shorter than the 8 bytes of the header length");
        std::uint64_t header_size = 0;
        std::memcpy(&header_size, bytes_.data(), 8);
        if (header_size > bytes_.size() - 8) broken("ends inside its header");
        data_ = 8 + static_cast<std::size_t>(header_size);
        header_ = nlohmann::json::parse(bytes_.data() + 8, bytes_.data() + data_, nullptr, false);
        if (!header_.is_object()) broken("has a header that is no JSON object");
    }

    [[nodiscard]] bool contains(std::string const& name) const { return header_.contains(name); }

    /// Names of all arrays, sorted.
    [[nodiscard]] std::vector<std::string> names() const {
        std::vector<std::string> out;
        for (auto const& entry : header_.items()) {
            if (entry.key() != "__metadata__") out.push_back(entry.key());
        }
        return out;
    }

    [[nodiscard]] std::string dtype(std::string const& name) const {
        auto const found = entry(name).find("dtype");
        if (found == entry(name).end() || !found->is_string()) broken("has no dtype for '" + name + "'");
        return found->get<std::string>();
    }

    /// Doubles; arrays stored as F32 or BF16 are widened, which is exact.
    [[nodiscard]] tensor<double> f64(std::string const& name) const {
        std::string const stored = dtype(name);
        if (stored == "F64") return read<double, double>(name, "F64", [](double x) { return x; });
        if (stored == "F32") {
            return read<double, float>(name, "F32", [](float x) { return static_cast<double>(x); });
        }
        return read<double, std::uint16_t>(name, "BF16", [](std::uint16_t bits) {
            return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
        });
    }

    /// Floats stored as F32.
    [[nodiscard]] tensor<float> f32(std::string const& name) const {
        return read<float, float>(name, "F32", [](float x) { return x; });
    }

    /// Integers stored as I32.
    [[nodiscard]] tensor<std::int32_t> i32(std::string const& name) const {
        return read<std::int32_t, std::int32_t>(name, "I32", [](std::int32_t x) { return x; });
    }

private:
    [[noreturn]] void broken(std::string const& what) const {
        throw std::runtime_error("golden file '" + where_ + "' " + what);
    }

    [[nodiscard]] nlohmann::json const& entry(std::string const& name) const {
        auto const found = header_.find(name);
        if (found == header_.end() || !found->is_object()) broken("has no array '" + name + "'");
        return *found;
    }

    static bool natural(nlohmann::json const& value) { return value.is_number_unsigned(); }

    template <class Out, class Stored, class Convert>
    [[nodiscard]] tensor<Out> read(std::string const& name, char const* expected, Convert convert) const {
        auto const& meta = entry(name);
        if (dtype(name) != expected) broken("stores '" + name + "' as " + dtype(name) + ", expected " + expected);
        auto const shape = meta.find("shape");
        auto const range = meta.find("data_offsets");
        if (shape == meta.end() || !shape->is_array()) broken("has no shape for '" + name + "'");
        if (range == meta.end() || !range->is_array() || range->size() != 2 || !natural((*range)[0]) ||
            !natural((*range)[1])) {
            broken("has no data_offsets for '" + name + "'");
        }

        tensor<Out> out;
        std::size_t const available = bytes_.size() - data_;
        std::size_t count = 1;
        for (auto const& dimension : *shape) {
            if (!natural(dimension)) broken("has a shape of '" + name + "' that is no list of sizes");
            auto const extent = dimension.get<std::size_t>();
            if (extent != 0 && count > available / extent) broken("ends inside the data of '" + name + "'");
            count *= extent;
            out.shape.push_back(extent);
        }
        auto const first = (*range)[0].template get<std::size_t>();
        auto const last = (*range)[1].template get<std::size_t>();
        if (first > last || last > available) broken("ends inside the data of '" + name + "'");
        if (last - first != count * sizeof(Stored)) {
            broken("has offsets of '" + name + "' that disagree with its shape");
        }

        out.values.reserve(count);
        for (std::size_t i = 0; i < count; ++i) {
            Stored value{};
            std::memcpy(&value, bytes_.data() + data_ + first + i * sizeof(Stored), sizeof(Stored));
            out.values.push_back(convert(value));
        }
        return out;
    }

    std::string where_;
    std::vector<char> bytes_;
    std::size_t data_ = 0;
    nlohmann::json header_;
};

}  // namespace golden
