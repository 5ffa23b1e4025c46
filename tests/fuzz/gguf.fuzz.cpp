// SPDX-License-Identifier: MIT
//
// Any bytes as a GGUF file: either a sureleap::error, or a file that keeps what gguf/file.hpp promises, with tensors
// that can be dequantised. The same of the model in it, a target or a drafter. corpus/gguf has a file of every kind of
// defect to start from, and a small model of every architecture.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sureleap/core/error.hpp>

#include "engine/draft_model.hpp"
#include "engine/gguf/blocks.hpp"
#include "engine/gguf/file.hpp"
#include "engine/gguf/model.hpp"
#include "engine/text/utf8.hpp"

namespace gguf = engine::gguf;

namespace {

void expects(bool condition) {
    if (!condition) __builtin_trap();
}

/// What f throws has to name the file and be fit to print.
template <class F>
bool refused(F&& f) {
    try {
        f();
    } catch (sureleap::error const& e) {
        std::string_view const text = e.what();
        expects(text.starts_with("f: ") && text.size() < 1000 && engine::is_utf8(text));
        for (char const c : text) expects(static_cast<unsigned char>(c) >= 0x20);
        return true;
    }
    return false;
}

bool inside(std::span<std::byte const> part, std::span<std::byte const> whole) {
    return part.empty() || (part.data() >= whole.data() && &part.back() <= &whole.back());
}
bool inside(std::string_view part, std::span<std::byte const> whole) {
    return inside(std::as_bytes(std::span(part)), whole);
}

/// Only one of these a file: under sanitizers an exception costs more than all the rest.
void read_value(gguf::field const& field, std::size_t how, std::span<std::byte const> input) {
    constexpr auto low = std::numeric_limits<std::int64_t>::min();
    constexpr auto high = std::numeric_limits<std::int64_t>::max();
    expects(field.present());
    refused([&] {
        switch (how % 8) {
            case 0: expects(inside(field.text(), input)); break;
            case 1: expects(field.boolean() == field.boolean_or(false)); break;
            case 2: static_cast<void>(field.number()); break;
            case 3: static_cast<void>(field.integer(low, high)); break;
            case 4: {
                auto const texts = field.texts();
                expects(texts.size() == field.list_size());
                std::size_t bytes = 0;
                for (std::string_view const text : texts) {
                    expects(inside(text, input));
                    bytes += 8 + text.size();
                }
                expects(bytes <= input.size());
                break;
            }
            case 5: expects(field.integers(low, high).size() == field.list_size()); break;
            case 6: expects(field.reals().size() == field.list_size()); break;
            default: expects(field.size(0, 100) <= 100);
        }
    });
}

void check_tensor(gguf::file const& file, gguf::tensor const& t, std::span<std::byte const> input) {
    expects(file.find(t.name) == &t && &file.at(t.name) == &t);
    expects(!t.name.empty() && !t.shape.empty() && t.shape.size() <= 4);
    auto const block = gguf::block_of(t.type);
    if (block.bytes == 0) {
        expects(t.bytes.empty() && gguf::name_of(t.type).starts_with("type "));
        return;
    }
    std::size_t elements = 1;
    for (std::size_t const extent : t.shape) elements *= extent;
    expects(elements >= 1 && t.shape.back() % block.elements == 0);
    expects(t.bytes.size() == elements / block.elements * block.bytes && inside(t.bytes, input));
    using enum gguf::tensor_type;
    if (t.type == q2_k || t.type == q3_k || t.type == i64) return;
    std::vector<float> values(elements);
    gguf::dequantise(t.type, t.bytes.data(), elements, values.data());
    gguf::stepped_block one;
    std::array<gguf::stepped_block, 8> eight;
    expects(gguf::unpack_steps(t.type, t.bytes.data(), one) ==
            (t.type == q4_0 || t.type == q4_1 || t.type == q5_0 || t.type == q5_1));
    expects(gguf::unpack_steps(t.type, t.bytes.data(), eight) == (t.type == q4_k || t.type == q5_k));
}

void check_file(gguf::file const& file, std::span<std::byte const> input) {
    expects(file.bytes().data() == input.data() && file.bytes().size() == input.size());
    auto const keys = file.keys();
    for (std::size_t i = 0; i < keys.size(); ++i) {
        expects(inside(keys[i], input) && !keys[i].empty() && (i == 0 || keys[i - 1] < keys[i]));
        expects(file[keys[i]].present());
    }
    // One value and one way to read it.
    if (!keys.empty()) read_value(file[keys[input.size() % keys.size()]], input.size() / keys.size(), input);
    auto const tensors = file.tensors();
    std::vector<std::span<std::byte const>> places;
    for (std::size_t i = 0; i < tensors.size(); ++i) {
        expects(i == 0 || tensors[i - 1].name < tensors[i].name);
        check_tensor(file, tensors[i], input);
        if (!tensors[i].bytes.empty()) places.push_back(tensors[i].bytes);
    }
    std::ranges::sort(places, {}, [](auto const& place) { return place.data(); });
    for (std::size_t i = 1; i < places.size(); ++i) {
        expects(places[i - 1].data() + places[i - 1].size() <= places[i].data());
    }
    if (tensors.empty()) return;
    std::string const longer = tensors.back().name + "\x7f";
    expects(file.find(longer) == nullptr && refused([&] { static_cast<void>(file.at(longer)); }));
}

/// Every tensor of a model is there in the shape that it is said to have, or the model is refused.
void check_model(std::span<std::byte const> input) {
    auto const file = std::make_shared<gguf::file const>(gguf::file::view(input, "f"));
    auto const config = gguf::read_config(*file);
    auto const model = gguf::load(file, config);
    expects(model.config() == config);
    if (config.draft) static_cast<void>(engine::drafted_tokens(model));
    for (std::string const& name : model.names()) {
        refused([&] {
            auto const matrix = model.matrix(name, model.rows_of(name), config.transformer.hidden_size);
            expects(matrix.cols == config.transformer.hidden_size && matrix.data != nullptr);
        });
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    auto const input = std::as_bytes(std::span(data, size));
    refused([&] {
        auto file = gguf::file::view(input, "f");
        check_file(file, input);
        auto const moved = std::move(file);
        expects(file.tensors().empty() && file.keys().empty() && moved.bytes().size() == size);
    });
    refused([&] { check_model(input); });
    return 0;
}
