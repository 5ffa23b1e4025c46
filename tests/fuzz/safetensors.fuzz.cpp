// SPDX-License-Identifier: MIT
//
// Any bytes as a .safetensors file: either a sureleap::error, or a file that keeps what safetensors.hpp promises. Built
// with clang's libFuzzer and sanitizers, which see what a check forgets; corpus/safetensors has a file of every kind of
// defect to start from.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/ext/safetensors.hpp>
#include <sureleap/ext/safetensors_writer.hpp>

namespace st = sureleap::safetensors;

namespace {

void expects(bool condition) {
    if (!condition) __builtin_trap();
}

// The text of the error, which must name the file and be fit to print.
template <class F>
bool refused(F&& f) {
    try {
        f();
    } catch (sureleap::error const& e) {
        std::string_view const text = e.what();
        expects(text.starts_with("f: ") && text.size() < 2000);
        for (char const c : text) expects(static_cast<unsigned char>(c) >= 0x20);
        return true;
    }
    return false;
}

// A tensor of this type has a typed view, unless its address forbids.
template <class T>
void check_typed(st::file const& file, st::tensor const& t) {
    if (t.type != st::dtype_of<T>) return;
    bool const right = t.bytes.empty() || reinterpret_cast<std::uintptr_t>(t.bytes.data()) % alignof(T) == 0;
    auto const check = [&](std::span<T const> values, std::size_t count) {
        expects(values.size() == count || values.empty());
        expects(values.size_bytes() == t.bytes.size());
        if (values.empty()) return;
        expects(static_cast<void const*>(values.data()) == t.bytes.data());
        T const first = values.front();  // plain reads, which a sanitizer would not let pass at a wrong address
        T const last = values.back();
        expects(std::memcmp(&first, t.bytes.data(), sizeof(T)) == 0);
        expects(std::memcmp(&last, &t.bytes.back() - sizeof(T) + 1, sizeof(T)) == 0);
    };
    if (t.shape.size() == 1) {
        expects(refused([&] { check(file.values<T>(t.name, t.shape[0]), t.shape[0]); }) == !right);
    } else if (t.shape.size() == 2) {
        auto const matrix = [&] {
            auto const m = file.matrix<T>(t.name, t.shape[0], t.shape[1]);
            check({m.data, m.empty() ? 0 : m.rows * m.cols}, m.rows * m.cols);
        };
        expects(refused(matrix) == !right);
    } else if (t.shape.empty()) {
        expects(refused([&] { check(file.values<T>(t.name, {}), 1); }) == !right);
    }
}

// One thing that must not work. Only one a file: under sanitizers an exception costs more than all the rest.
void check_refusal(st::file const& file, st::tensor const& t, std::size_t which) {
    switch (which % 4) {
        case 0:
            if (t.type == st::dtype::f32) break;
            expects(refused([&] { (void)file.values<float>(t.name, t.shape.empty() ? 1 : t.shape[0]); }));
            break;
        case 1:
            if (t.type == st::dtype::u8) break;
            expects(refused([&] { (void)file.matrix<std::uint8_t>(t.name, 1, t.bytes.size()); }));
            break;
        case 2:
            if (t.shape.size() != 1) expects(refused([&] { (void)file.values<std::uint8_t>(t.name, t.bytes.size()); }));
            break;
        default: {
            std::string const longer = file.tensors().back().name + "\x7f";
            expects(file.find(longer) == nullptr && refused([&] { (void)file.at(longer); }));
        }
    }
}

void check_file(st::file const& file, std::span<std::byte const> input) {
    expects(file.bytes().data() == input.data() && file.bytes().size() == input.size());
    std::size_t covered = 0;
    unsigned sum = 0;
    st::tensor const* previous = nullptr;
    std::vector<st::tensor_spec> specs;
    for (st::tensor const& t : file.tensors()) {
        expects(previous == nullptr || previous->name < t.name);
        previous = &t;
        expects(file.find(t.name) == &t && &file.at(t.name) == &t);
        std::size_t bytes = st::size_of(t.type);
        for (std::size_t const n : t.shape) bytes *= n;
        expects(t.bytes.size() == bytes);
        covered += bytes;
        if (!t.bytes.empty()) {
            expects(t.bytes.data() >= input.data() + 10 && &t.bytes.back() <= &input.back());
            sum += std::to_integer<unsigned>(t.bytes.front()) + std::to_integer<unsigned>(t.bytes.back());
        }
        check_typed<float>(file, t);
        check_typed<double>(file, t);
        check_typed<sureleap::bf16>(file, t);
        check_typed<sureleap::half>(file, t);
        check_typed<std::uint8_t>(file, t);
        check_typed<std::int64_t>(file, t);
        specs.push_back({t.name, t.type, t.shape});
    }
    expects(sum <= 510 * file.tensors().size());  // keeps the reads
    expects(covered <= input.size() - 10);
    if (previous != nullptr) check_refusal(file, file.tensors().front(), input.size());
    // What was read can be written.
    std::size_t const size = st::file_size(specs, file.metadata());
    expects(size >= covered + 10 && (size - covered) % 8 == 0);
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

// Nearly every change of a header's size would end at the check of its length. So half of the time the length is put
// right: the header ends with the last '}'.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned seed) {
    size = LLVMFuzzerMutate(data, size, max_size);
    std::string_view const text(reinterpret_cast<char const*>(data), size);
    if (std::size_t const end = text.rfind('}'); seed % 2 == 0 && end != text.npos && end >= 8) {
        std::uint64_t const length = end - 7;
        for (std::size_t i = 0; i < 8; ++i) data[i] = static_cast<std::uint8_t>(length >> (8 * i));
    }
    return size;
}

extern "C" int LLVMFuzzerTestOneInput(std::uint8_t const* data, std::size_t size) {
    auto const input = std::as_bytes(std::span(data, size));
    refused([&] {
        auto file = st::file::view(input, "f");
        check_file(file, input);
        auto const moved = std::move(file);
        expects(file.tensors().empty() && moved.bytes().size() == size);
    });
    return 0;
}
