// SPDX-License-Identifier: MIT
//
// GGUF files: what is in them is found, and every way of being wrong is refused when the file is opened, and named.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <engine/gguf/file.hpp>

#include "support/catch.hpp"
#include "support/error_text.hpp"
#include "support/gguf_writer.hpp"
#include "support/scratch_folder.hpp"

using engine::gguf::block_of;
using engine::gguf::file;
using engine::gguf::name_of;
using engine::gguf::tensor;
using engine::gguf::tensor_type;
using engine::gguf::value_type;
using support::byte_sink;
using support::error_text;
using support::gguf_writer;
using support::says;

namespace {

static_assert(std::is_nothrow_move_constructible_v<file> && std::is_nothrow_move_assignable_v<file>);
static_assert(!std::is_copy_constructible_v<file>);

std::vector<std::byte> some_bytes(std::size_t count, unsigned seed = 1) {
    std::mt19937 dice(seed);
    std::vector<std::byte> bytes(count);
    for (std::byte& b : bytes) b = static_cast<std::byte>(dice());
    return bytes;
}

/// What opening says; empty if the bytes are a file. The memory ends with them, so that a sanitizer sees a read too
/// far.
std::string opening(std::span<std::byte const> bytes) {
    std::vector<std::byte> const exact(bytes.begin(), bytes.end());
    return error_text([&] { (void)file::view(exact, "f"); });
}
std::string opening(gguf_writer const& w) {
    return opening(w.bytes());
}

/// Two keys and two tensors of 128 bytes each.
gguf_writer two() {
    gguf_writer w;
    w.set("a", std::uint32_t{7});
    w.set("b", "text");
    w.tensor("x", {32}, std::vector<float>(32, 1.5f));
    w.tensor("y", {4, 8}, std::vector<float>(32, 2.5f));
    return w;
}

/// The file that `change` makes of two().
template <class F>
std::string opening_with(F const& change) {
    gguf_writer w = two();
    change(w);
    return opening(w);
}

/// What is said of a key 'k' when `read` reads it.
template <class F>
std::string reading(gguf_writer const& w, F const& read) {
    auto const bytes = w.bytes();
    auto const f = file::view(bytes, "f");
    return error_text([&] { read(f["k"]); });
}
template <class T, class F>
std::string reading(T const& value, F const& read) {
    gguf_writer w;
    w.set("k", value);
    return reading(w, read);
}

}  // namespace

TEST_CASE("gguf: tensor types have the names and blocks of the format") {
    struct known {
        std::uint32_t number;
        char const* name;
        std::size_t elements;
        std::size_t bytes;
    };
    std::vector<known> const all{{0, "F32", 1, 4},       {1, "F16", 1, 2},       {2, "Q4_0", 32, 18},
                                 {3, "Q4_1", 32, 20},    {6, "Q5_0", 32, 22},    {7, "Q5_1", 32, 24},
                                 {8, "Q8_0", 32, 34},    {10, "Q2_K", 256, 84},  {11, "Q3_K", 256, 110},
                                 {12, "Q4_K", 256, 144}, {13, "Q5_K", 256, 176}, {14, "Q6_K", 256, 210},
                                 {27, "I64", 1, 8},      {30, "BF16", 1, 2}};
    for (std::uint32_t number = 0; number < 60; ++number) {
        auto const found = std::ranges::find(all, number, &known::number);
        auto const type = static_cast<tensor_type>(number);
        INFO(number);
        if (found == all.end()) {
            CHECK(name_of(type) == "type " + std::to_string(number));
            CHECK(block_of(type).elements == 0);
            CHECK(block_of(type).bytes == 0);
        } else {
            CHECK(name_of(type) == found->name);
            CHECK(block_of(type).elements == found->elements);
            CHECK(block_of(type).bytes == found->bytes);
        }
    }
}

TEST_CASE("gguf: a file byte by byte") {
    // By hand, from the specification: the writer that other tests use proves nothing about itself.
    std::string const header(
        "GGUF\3\0\0\0"
        "\1\0\0\0\0\0\0\0"
        "\2\0\0\0\0\0\0\0"
        "\3\0\0\0\0\0\0\0key\5\0\0\0\xfe\xff\xff\xff"
        "\1\0\0\0\0\0\0\0l\11\0\0\0\10\0\0\0\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0p\2\0\0\0\0\0\0\0qr"
        "\1\0\0\0\0\0\0\0w\2\0\0\0\2\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        8 + 8 + 8 + 19 + 44 + 41);
    std::vector<std::byte> bytes(128 + 24);
    REQUIRE(header.size() == 128);
    std::memcpy(bytes.data(), header.data(), header.size());
    std::array const weights{1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
    std::memcpy(bytes.data() + 128, weights.data(), 24);

    auto const f = file::view(bytes, "f");
    CHECK(f.name() == "f");
    CHECK(f.bytes().data() == bytes.data());
    CHECK(f.keys() == std::vector<std::string_view>{"key", "l"});
    CHECK(f["key"].integer(-5, 5) == -2);
    CHECK(f["l"].texts() == std::vector<std::string_view>{"p", "qr"});
    REQUIRE(f.tensors().size() == 1);
    tensor const& w = f.at("w");
    CHECK(w.shape == std::vector<std::size_t>{3, 2});
    CHECK(w.type == tensor_type::f32);
    CHECK(w.bytes.data() == bytes.data() + 128);
    CHECK(w.bytes.size() == 24);

    // What the writer makes of the same is the same.
    gguf_writer same;
    same.set("key", std::int32_t{-2}).set("l", std::vector<std::string>{"p", "qr"});
    same.tensor("w", {3, 2}, {weights.begin(), weights.end()});
    CHECK(same.bytes() == bytes);
}

TEST_CASE("gguf: values of every type") {
    gguf_writer w;
    w.set("u8", std::uint8_t{200}).set("i8", std::int8_t{-100});
    w.set("u16", std::uint16_t{60'000}).set("i16", std::int16_t{-30'000});
    w.set("u32", std::uint32_t{4'000'000'000}).set("i32", std::int32_t{-2'000'000'000});
    w.set("u64", std::uint64_t{1} << 62).set("i64", std::numeric_limits<std::int64_t>::min());
    w.set("u64 large", ~std::uint64_t{0});
    w.set("f32", 0.1f).set("f64", 0.1).set("yes", true).set("no", false);
    w.set("text", "caf\xc3\xa9").set("empty", "").set("nul", std::string_view("a\0b", 3));
    w.set("u8s", std::vector<std::uint8_t>{1, 255}).set("i8s", std::vector<std::int8_t>{-1, 127});
    w.set("u16s", std::vector<std::uint16_t>{1, 65535}).set("i16s", std::vector<std::int16_t>{-1, 32767});
    w.set("u32s", std::vector<std::uint32_t>{1, 1u << 31}).set("i32s", std::vector<std::int32_t>{-1, 1 << 30});
    w.set("u64s", std::vector<std::uint64_t>{1, 1ull << 62}).set("i64s", std::vector<std::int64_t>{-1, 1ll << 62});
    w.set("f32s", std::vector<float>{1, 2}).set("bools", std::vector<bool>{true, false, true});
    w.set("texts", std::vector<std::string>{"", "b", "caf\xc3\xa9"}).set("none", std::vector<std::string>{});
    auto const bytes = w.bytes();
    auto const f = file::view(bytes, "f");
    constexpr std::int64_t low = std::numeric_limits<std::int64_t>::min();
    constexpr std::int64_t high = std::numeric_limits<std::int64_t>::max();

    std::map<std::string, std::int64_t> const integers{{"u8", 200},
                                                       {"i8", -100},
                                                       {"u16", 60'000},
                                                       {"i16", -30'000},
                                                       {"u32", 4'000'000'000},
                                                       {"i32", -2'000'000'000},
                                                       {"u64", std::int64_t{1} << 62},
                                                       {"i64", low}};
    for (auto const& [key, value] : integers) {
        INFO(key);
        CHECK(f[key].present());
        CHECK_FALSE(f[key].is_list());
        CHECK(f[key].integer(low, high) == value);
        CHECK(f[key].integer(value, value) == value);
        CHECK(f[key].number() == static_cast<double>(value));
        if (value >= 0) CHECK(f[key].size(0, std::size_t{1} << 62) == static_cast<std::size_t>(value));
    }
    CHECK(f["u64 large"].number() == 0x1p64);
    CHECK(f["f32"].number() == static_cast<double>(0.1f));
    CHECK(f["f64"].number() == 0.1);
    CHECK(f["yes"].boolean());
    CHECK_FALSE(f["no"].boolean());
    CHECK_FALSE(f["no"].boolean_or(true));
    CHECK(f["absent"].boolean_or(true));
    CHECK_FALSE(f["absent"].present());
    CHECK_FALSE(f["absent"].is_list());
    CHECK(f["text"].text() == "caf\xc3\xa9");
    CHECK(f["empty"].text().empty());
    CHECK(f["nul"].text() == std::string_view("a\0b", 3));

    std::map<std::string, std::int64_t> const lists{{"u8s", 255},        {"i8s", 127},        {"u16s", 65535},
                                                    {"i16s", 32767},     {"u32s", 1ll << 31}, {"i32s", 1 << 30},
                                                    {"u64s", 1ll << 62}, {"i64s", 1ll << 62}};
    for (auto const& [key, last] : lists) {
        INFO(key);
        CHECK(f[key].is_list());
        CHECK(f[key].list_size() == 2);
        CHECK(f[key].integers(low, high) == std::vector<std::int64_t>{key.starts_with('i') ? -1 : 1, last});
    }
    CHECK(f["f32s"].list_size() == 2);
    CHECK(f["bools"].list_size() == 3);
    CHECK(f["texts"].texts() == std::vector<std::string_view>{"", "b", "caf\xc3\xa9"});
    CHECK(f["none"].texts().empty());
    CHECK(f["none"].list_size() == 0);
    CHECK(f.keys().size() == w.entries.size());
    CHECK(std::ranges::is_sorted(f.keys()));
    CHECK(f.tensors().empty());
}

TEST_CASE("gguf: values that are not what was asked for") {
    auto const integer = [](auto const& k) { (void)k.integer(1, 1024); };
    auto const size = [](auto const& k) { (void)k.size(0, 5); };
    auto const number = [](auto const& k) { (void)k.number(); };
    auto const boolean = [](auto const& k) { (void)k.boolean(); };
    auto const text = [](auto const& k) { (void)k.text(); };
    auto const texts = [](auto const& k) { (void)k.texts(); };
    auto const integers = [](auto const& k) { (void)k.integers(0, 9); };
    auto const list_size = [](auto const& k) { (void)k.list_size(); };

    CHECK(reading(gguf_writer(), integer) == "f: key 'k' is missing, expected an integer in 1 .. 1024");
    CHECK(reading(gguf_writer(), text) == "f: key 'k' is missing, expected a string");
    CHECK(reading(gguf_writer(), texts) == "f: key 'k' is missing, expected a list of strings");
    CHECK(reading(gguf_writer(), integers) == "f: key 'k' is missing, expected a list of integers");
    CHECK(reading(gguf_writer(), number) == "f: key 'k' is missing, expected a number");
    CHECK(reading(gguf_writer(), boolean) == "f: key 'k' is missing, expected true or false");
    CHECK(reading(gguf_writer(), list_size) == "f: key 'k' is missing, expected a list");

    CHECK(reading(std::uint32_t{1}, integer) == "");
    CHECK(reading(std::uint32_t{1024}, integer) == "");
    CHECK(reading(std::uint32_t{0}, integer) == "f: key 'k' is 0, expected an integer in 1 .. 1024");
    CHECK(reading(std::int64_t{1025}, integer) == "f: key 'k' is 1025, expected an integer in 1 .. 1024");
    CHECK(reading(std::int8_t{-1}, size) == "f: key 'k' is -1, expected an integer in 0 .. 5");
    // As a signed number it would be -1, and as one of 32 bits 5.
    CHECK(says(reading(~std::uint64_t{0}, size), "f: key 'k' is 18446744073709551615, expected"));
    CHECK(says(reading((std::uint64_t{1} << 32) + 5, size), "f: key 'k' is 4294967301, expected"));
    CHECK(says(reading(2.0f, integer), "f: key 'k' is 2, expected an integer in"));
    CHECK(says(reading(2.5, integer), "f: key 'k' is 2.5, expected an integer in"));
    CHECK(says(reading(true, integer), "f: key 'k' is true, expected an integer in"));
    CHECK(says(reading("7", integer), "f: key 'k' is \"7\", expected an integer in"));
    CHECK(
        says(reading(std::vector<std::uint32_t>{1}, integer), "f: key 'k' is a list of 1 (u32), expected an integer"));

    CHECK(reading("x", number) == "f: key 'k' is \"x\", expected a number");
    CHECK(reading(false, number) == "f: key 'k' is false, expected a number");
    CHECK(reading(std::vector<float>{1}, number) == "f: key 'k' is a list of 1 (f32), expected a number");
    CHECK(reading(std::uint8_t{1}, boolean) == "f: key 'k' is 1, expected true or false");
    CHECK(reading(std::uint8_t{1}, text) == "f: key 'k' is 1, expected a string");
    CHECK(reading(1e-9, text) == "f: key 'k' is 1e-09, expected a string");
    CHECK(reading(std::vector<std::string>{"a"}, text) == "f: key 'k' is a list of 1 (string), expected a string");

    CHECK(reading("x", list_size) == "f: key 'k' is \"x\", expected a list");
    CHECK(reading("x", texts) == "f: key 'k' is \"x\", expected a list of strings");
    CHECK(reading(std::vector<std::int8_t>{1, 2}, texts) ==
          "f: key 'k' is a list of 2 (i8), expected a list of strings");
    CHECK(reading(std::int32_t{3}, integers) == "f: key 'k' is 3, expected a list of integers");
    CHECK(reading(std::vector<float>{3}, integers) == "f: key 'k' is a list of 1 (f32), expected a list of integers");
    CHECK(says(reading(std::vector<bool>{true}, integers), "is a list of 1 (bool), expected a list of integers"));
    CHECK(says(reading(std::vector<std::string>{"1"}, integers), "is a list of 1 (string), expected"));
    CHECK(reading(std::vector<std::int16_t>{0, 9, 10}, integers) ==
          "f: key 'k', entry 2 is 10, expected an integer in 0 .. 9");
    CHECK(reading(std::vector<std::int32_t>{-1}, integers) ==
          "f: key 'k', entry 0 is -1, expected an integer in 0 .. 9");
    CHECK(reading(std::vector<std::uint64_t>{~std::uint64_t{0}}, integers) ==
          "f: key 'k', entry 0 is 18446744073709551615, expected an integer in 0 .. 9");

    // A bool is 0 or 1, says the format.
    gguf_writer two_as_bool;
    two_as_bool.add("k", value_type::boolean, {std::byte{2}});
    CHECK(reading(two_as_bool, boolean) == "f: key 'k' is the byte 2 as a bool, expected true or false");

    // Text of the file reaches a message without its control characters, whole, and not at any length.
    CHECK(reading("a\n\x1b[31m\x7f", integer) == "f: key 'k' is \"a??[31m?\", expected an integer in 1 .. 1024");
    CHECK(says(reading("\xff", integer), "f: key 'k' is \"\xEF\xBF\xBD\", expected"));
    CHECK(says(reading("\xc3", integer), "f: key 'k' is \"\xEF\xBF\xBD\", expected"));
    CHECK(says(reading(std::string_view(std::string(60, 'x')), integer), "\"" + std::string(60, 'x') + "\", expected"));
    CHECK(says(reading(std::string_view(std::string(59, 'x') + "\xc3\xa9"), integer),
               "is \"" + std::string(59, 'x') + "...\", expected"));
    auto const bytes = gguf_writer().bytes();
    CHECK(file::view(bytes, "m.gguf")["a\nb"].where() == "m.gguf: key 'a?b'");
}

TEST_CASE("gguf: tensors") {
    gguf_writer w;
    auto const blocks = some_bytes(2 * 3 * 34);
    auto const small = some_bytes(2, 2);
    w.tensor("q8", {2, 96}, tensor_type::q8_0, blocks);
    w.tensor("b", {1}, tensor_type::bf16, small);
    w.tensor("a", {2, 1, 3, 4}, std::vector<float>(24, 0.5f));
    w.tensor("k", {256}, tensor_type::q6_k, some_bytes(210, 3));
    w.tensor("strange", {7, 5}, static_cast<tensor_type>(39), some_bytes(18, 4));
    auto const bytes = w.bytes();
    auto const f = file::view(bytes, "f");
    REQUIRE(f.tensors().size() == 5);
    CHECK(std::ranges::is_sorted(f.tensors(), {}, &tensor::name));
    CHECK(f.at("q8").shape == std::vector<std::size_t>{2, 96});
    CHECK(f.at("q8").type == tensor_type::q8_0);
    CHECK(std::ranges::equal(f.at("q8").bytes, blocks));
    CHECK(std::ranges::equal(f.at("b").bytes, small));
    CHECK(f.at("a").shape == std::vector<std::size_t>{2, 1, 3, 4});
    CHECK(f.at("k").bytes.size() == 210);
    for (tensor const& t : f.tensors()) {
        CHECK(f.find(t.name) == &t);
        if (!t.bytes.empty()) CHECK((t.bytes.data() - bytes.data()) % 32 == 0);
    }
    // One that nothing is known of is there to be refused by whoever asks for it.
    CHECK(f.at("strange").shape == std::vector<std::size_t>{7, 5});
    CHECK(name_of(f.at("strange").type) == "type 39");
    CHECK(f.at("strange").bytes.empty());

    CHECK(f.find("") == nullptr);
    CHECK(f.find("A") == nullptr);
    CHECK(f.find("aa") == nullptr);
    CHECK(f.find("z") == nullptr);
    CHECK(error_text([&] { (void)f.at("output.weight"); }) == "f: no tensor 'output.weight' among 5");
}

TEST_CASE("gguf: files with less or more than usual") {
    CHECK(opening(gguf_writer()) == "");
    gguf_writer second = two();
    second.version = 2;
    CHECK(opening(second) == "");
    // Bytes that no tensor claims, between and behind.
    CHECK(opening_with([](auto& w) { w.at("y").offset = 160, w.at("y").bytes.resize(160); }) == "");
    auto longer = two().bytes();
    longer.resize(longer.size() + 5);
    CHECK(opening(longer) == "");
    // The order of tensors in the header is not that of their data.
    CHECK(opening_with([](auto& w) { w.at("x").offset = 128, w.at("y").offset = 0; }) == "");
    // A file that was split into one.
    CHECK(opening_with([](auto& w) { w.set("split.count", std::uint16_t{1}); }) == "");
    CHECK(opening_with([](auto& w) { w.set("split.count", std::uint16_t{0}); }) == "");
    for (std::uint32_t const alignment : {1u, 8u, 64u, 4096u}) {
        gguf_writer w = two();
        w.align(alignment);
        w.at("x").bytes.resize(128);
        auto const bytes = w.bytes();
        auto const f = file::view(bytes, "f");
        INFO(alignment);
        CHECK((f.at("x").bytes.data() - bytes.data()) % alignment == 0);
        CHECK((f.at("y").bytes.data() - bytes.data()) % alignment == 0);
        CHECK(std::ranges::equal(f.at("y").bytes, w.at("y").bytes));
    }
}

TEST_CASE("gguf: mapped files, and files that are moved") {
    support::scratch_folder const folder("mapped_gguf");
    auto const path = folder.path / "m.gguf";
    two().save(path);
    auto first = file::map(path);
    auto const field = first["b"];
    std::string_view const text = field.text();
    tensor const* const y = first.find("y");
    auto second = std::move(first);
    auto third = file::map(path);
    third = std::move(second);
    CHECK(third.name() == path.string());
    CHECK(third.find("y") == y);
    CHECK(third["b"].text().data() == text.data());
    CHECK(field.text() == "text");
    CHECK(field.where() == path.string() + ": key 'b'");
    CHECK(std::ranges::equal(y->bytes, two().at("y").bytes));
    for (file const* const moved : {&first, &second}) {
        CHECK(moved->tensors().empty());
        CHECK(moved->keys().empty());
        CHECK(moved->bytes().empty());
        CHECK_FALSE((*moved)["b"].present());
        CHECK(moved->find("y") == nullptr);
    }
    CHECK(error_text([] { (void)file::map("no/such.gguf"); }) == "no/such.gguf: cannot be opened for reading");
    CHECK(says(error_text([&] { (void)file::map(folder.path); }), ": cannot be opened for reading"));
}

TEST_CASE("gguf: what begins otherwise is no GGUF file") {
    std::string const no = "f: does not begin with GGUF: no GGUF file";
    CHECK(opening(std::vector<std::byte>()) == no);
    for (char const* const magic : {"GGU", "FUGG", "gguf", "GGML", "\x93NUM"}) {
        gguf_writer w;
        w.magic = magic;
        INFO(magic);
        CHECK(opening(w) == no);
    }
    auto const version = [](std::uint32_t number) { return opening_with([&](auto& w) { w.version = number; }); };
    CHECK(version(0) == "f: has version 0, expected 2 or 3");
    CHECK(version(1) == "f: has version 1, expected 2 or 3");
    CHECK(version(4) == "f: has version 4, expected 2 or 3");
    CHECK(version(0x03000000) == "f: has numbers in big-endian order (version 3), expected little-endian ones");
    CHECK(version(0x02000000) == "f: has numbers in big-endian order (version 2), expected little-endian ones");
    CHECK(version(0x01000000) == "f: has version 16777216, expected 2 or 3");
    CHECK(version(0x03000003) == "f: has version 50331651, expected 2 or 3");
}

TEST_CASE("gguf: a model that was split into files is the one that it was") {
    support::scratch_folder const folder("split");
    gguf_writer whole;
    whole.set("general.architecture", "llama");
    std::vector<gguf_writer> parts(3);
    for (std::uint16_t i = 0; i < 3; ++i) {
        if (i == 0) parts[i].set("general.architecture", "llama");
        parts[i].set("split.no", i).set("split.count", std::uint16_t{3}).set("split.tensors.count", std::int32_t{5});
    }
    char const* const names[] = {"e", "a", "d", "b", "c"};
    for (std::size_t i = 0; i < 5; ++i) {
        std::vector<float> const values(4 + i, static_cast<float>(i));
        whole.tensor(names[i], {values.size()}, values);
        parts[i / 2].tensor(names[i], {values.size()}, values);
    }
    auto const save = [&](std::vector<gguf_writer> const& files) {
        files[0].save(folder / "m-00001-of-00003.gguf");
        files[1].save(folder / "m-00002-of-00003.gguf");
        files[2].save(folder / "m-00003-of-00003.gguf");
    };
    save(parts);
    whole.save(folder / "m.gguf");
    auto const expected = file::map(folder / "m.gguf");
    auto const found = file::map(folder / "m-00001-of-00003.gguf");
    CHECK(found["general.architecture"].text() == "llama");
    REQUIRE(found.tensors().size() == 5);
    for (tensor const& t : expected.tensors()) {
        INFO(t.name);
        tensor const& same = found.at(t.name);
        CHECK(same.shape == t.shape);
        CHECK(std::ranges::equal(same.bytes, t.bytes));
        CHECK(t.bytes.data() == expected.bytes().data() + t.offset);
        CHECK(same.file->ends_with("-of-00003.gguf"));
    }

    auto const opened = [&](char const* name) { return error_text([&] { (void)file::map(folder / name); }); };
    CHECK(says(opened("m-00002-of-00003.gguf"), {"'split.no' is 1, expected 0: open the first of 3 files"}));
    parts[0].save(folder / "other.gguf");
    CHECK(says(opened("other.gguf"), "is the first of 3 files, expected a name that ends with -00001-of-00003.gguf"));
    parts[0].save(folder / "n-00001-of-00003.gguf");
    CHECK(says(opened("n-00001-of-00003.gguf"), "n-00002-of-00003.gguf"));  // is missing
    auto const changed = [&](auto const& edit) {
        auto wrong = parts;
        edit(wrong);
        save(wrong);
        return opened("m-00001-of-00003.gguf");
    };
    CHECK(says(changed([](auto& p) { std::swap(p[1], p[2]); }), "'split.no' is 2, expected 1, as in the file's name"));
    CHECK(says(changed([](auto& p) { p[2].set("split.count", std::uint16_t{4}); }), "'split.count' is 4, expected 3"));
    CHECK(says(changed([](auto& p) { p[2].tensor("a", {1}, std::vector<float>{1}); }), "tensor 'a' is in "));
    CHECK(says(changed([](auto& p) { p[2].tensor("f", {1}, std::vector<float>{1}); }),
               "'split.tensors.count' is 5, expected 6, the tensors of all files"));
    CHECK(changed([](auto&) {}).empty());
}

TEST_CASE("gguf: every truncation of a file is refused") {
    gguf_writer w = two();
    w.set("list", std::vector<std::string>{"one", "two"}).set("numbers", std::vector<double>{1, 2, 3});
    auto const bytes = w.bytes();
    REQUIRE(opening(bytes) == "");
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        INFO(length);
        REQUIRE(says(opening(std::span(bytes).first(length)), "f: "));
    }
    auto const cut = [&](std::size_t length) { return opening(std::span(bytes).first(length)); };
    CHECK(cut(6) == "f: the header has 4 bytes from byte 4 on, expected at most 2: the file ends at byte 6");
    CHECK(cut(20) == "f: the header has 8 bytes from byte 16 on, expected at most 4: the file ends at byte 20");
    CHECK(cut(24) == "f: the header has 4 keys from byte 24 on, expected at most 0: the file ends at byte 24");
    CHECK(says(cut(bytes.size() - 1),
               "f: tensor 'y' has 128 bytes from byte 128 of the data on, expected to end at "
               "byte 255 at the latest: the file does"));
}

TEST_CASE("gguf: counts and lengths that the file cannot hold") {
    constexpr std::uint64_t huge = ~std::uint64_t{0};
    for (std::uint64_t const count : {huge, huge / 14 + 1, huge / 2 + 1, std::uint64_t{1} << 32, std::uint64_t{1000}}) {
        std::string const number = std::to_string(count);
        INFO(number);
        CHECK(says(opening_with([&](auto& w) { w.key_count = count; }),
                   "f: the header has " + number + " keys from byte 24 on, expected at most "));
        CHECK(says(opening_with([&](auto& w) { w.tensor_count = count; }),
                   "f: the header has " + number + " tensors from byte 24 on, expected at most "));
        CHECK(says(opening_with([&](auto& w) { w.add("k", value_type::string, byte_sink().number(count).bytes); }),
                   "f: key 'k' has " + number + " bytes of text from byte "));
        for (std::uint32_t const type : {0u, 4u, 8u, 12u}) {
            CHECK(says(opening_with([&](auto& w) {
                           w.add("k", value_type::array, byte_sink().number(type).number(count).bytes);
                       }),
                       "f: key 'k' has " + number + " entries from byte "));
        }
    }
    // One more than there is.
    gguf_writer text;
    text.add("k", value_type::string, byte_sink().number(std::uint64_t{4}).append(some_bytes(3)).bytes);
    CHECK(opening(text) ==
          "f: key 'k' has 4 bytes of text from byte 45 on, expected at most 3: the file ends at byte 48");
    gguf_writer numbers;
    numbers.add("k", value_type::array,
                byte_sink().number(std::uint32_t{2}).number(std::uint64_t{3}).append(some_bytes(5)).bytes);
    CHECK(opening(numbers) == "f: key 'k' has 3 entries from byte 49 on, expected at most 2: the file ends at byte 54");
    gguf_writer strings;
    strings.add("k", value_type::array,
                byte_sink().number(std::uint32_t{8}).number(std::uint64_t{2}).text("abcdefgh").bytes);
    CHECK(opening(strings) ==
          "f: key 'k', entry 1 has 8 bytes from byte 65 on, expected at most 0: the file ends at byte 65");
    gguf_writer scalar;
    scalar.add("key", value_type::f64, some_bytes(7));
    CHECK(opening(scalar) == "f: key 'key' has 8 bytes from byte 39 on, expected at most 7: the file ends at byte 46");
    // The entries of a list are not told of what comes behind it.
    scalar.entries.clear();
    scalar.set("list", std::vector<std::string>{"a", "b"}).add("key", value_type::f64, some_bytes(7));
    CHECK(says(opening(scalar), "f: key 'key' has 8 bytes from byte "));
    // The counts of keys and tensors bound each other, too.
    CHECK(says(opening_with([&](auto& w) { w.key_count = 1; }), "f: tensor"));
    CHECK(says(opening_with([&](auto& w) { w.tensor_count = 3; }), "f: tensor 3 of 3 has "));
}

TEST_CASE("gguf: wrong keys") {
    auto const type = [](std::uint32_t number) {
        return opening_with([&](auto& w) { w.add("k", static_cast<value_type>(number), some_bytes(16)); });
    };
    CHECK(type(13) == "f: key 'k' has a value of type 13, expected a type in 0 .. 12");
    CHECK(says(type(0xffffffff), "f: key 'k' has a value of type 4294967295, expected"));
    auto const entries = [](std::uint32_t number) {
        return opening_with(
            [&](auto& w) { w.add("k", value_type::array, byte_sink().number(number).number(std::uint64_t{0}).bytes); });
    };
    CHECK(entries(13) == "f: key 'k' has entries of type 13, expected a type in 0 .. 12");
    CHECK(entries(9) == "f: key 'k' is a list of lists, expected one of numbers or strings");
    for (std::uint32_t const good : {0u, 1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 10u, 11u, 12u}) CHECK(entries(good) == "");

    CHECK(opening_with([](auto& w) { w.add("a", value_type::u8, some_bytes(1)); }) == "f: key 'a' occurs twice");
    CHECK(opening_with([](auto& w) { w.add("A", value_type::u8, some_bytes(1)); }) == "");
    CHECK(opening_with([](auto& w) { w.set("", std::uint8_t{1}); }) == "f: key 3 of 3 has no name");

    CHECK(opening_with([](auto& w) { w.set("split.count", std::uint16_t{2}); }) ==
          "f: key 'split.count' is 2, expected at most 1: the rest of the model is in other files");
    CHECK(says(opening_with([](auto& w) { w.set("split.count", "2"); }),
               "f: key 'split.count' is \"2\", expected an integer in 0 .. 65535"));

    for (std::uint32_t const alignment : {3u, 48u, 33u}) {
        CHECK(opening_with([&](auto& w) { w.set("general.alignment", alignment); }) ==
              "f: key 'general.alignment' is " + std::to_string(alignment) + ", expected a power of two");
    }
    CHECK(opening_with([](auto& w) { w.set("general.alignment", std::uint32_t{0}); }) ==
          "f: key 'general.alignment' is 0, expected an integer in 1 .. 2147483648");
    CHECK(says(opening_with([](auto& w) { w.set("general.alignment", 32.0f); }), "f: key 'general.alignment' is 32,"));
    CHECK(says(opening_with([](auto& w) { w.set("general.alignment", std::uint64_t{1} << 63); }),
               "f: key 'general.alignment' is 9223372036854775808, expected an integer in 1 .. 2147483648"));
    CHECK(says(opening_with([](auto& w) {
                   w.set("general.alignment", std::uint32_t{1} << 31);
                   for (auto& t : w.tensors) t.offset = 0;
               }),
               "f: the header has 21474"));
}

TEST_CASE("gguf: wrong tensors") {
    auto const shape = [](std::vector<std::uint64_t> const& extents) {
        return opening_with([&](auto& w) { w.at("x").shape = extents; });
    };
    CHECK(shape({2, 16}) == "");
    CHECK(shape({2, 2, 2, 4}) == "");
    CHECK(shape({}) == "f: tensor 'x' has 0 dimensions, expected 1 .. 4");
    CHECK(shape({2, 2, 2, 2, 2}) == "f: tensor 'x' has 5 dimensions, expected 1 .. 4");
    CHECK(shape({0}) == "f: tensor 'x' has a dimension of 0, expected at least 1");
    CHECK(shape({4, 0, 2}) == "f: tensor 'x' has a dimension of 0, expected at least 1");
    CHECK(says(shape({33}), "f: tensor 'y' begins at byte 128 of the data, expected at least 132: it overlaps tensor"));
    CHECK(shape({1000}) ==
          "f: tensor 'x' has 4000 bytes from byte 0 of the data on, expected to end at byte 256 at "
          "the latest: the file does");
    CHECK(says(shape({1ull << 48}), "f: tensor 'x' has 1125899906842624 bytes from byte 0 of the data on"));
    // Products that would be small numbers modulo 2^64.
    std::string const many = "f: tensor 'x' has more than 2^48 elements, which no memory holds";
    CHECK(shape({(1ull << 48) + 1}) == many);
    CHECK(shape({1ull << 32, 1ull << 32}) == many);
    CHECK(shape({1ull << 63, 2}) == many);
    CHECK(shape({2, 1ull << 63}) == many);
    CHECK(shape({1ull << 16, 1ull << 16, 1ull << 16, 1ull << 16}) == many);
    CHECK(shape({~0ull}) == many);
    CHECK(shape({(1ull << 62) + 8}) == many);

    auto const as = [](tensor_type type, std::vector<std::uint64_t> const& extents) {
        return opening_with([&](auto& w) { w.at("x").type = type, w.at("x").shape = extents; });
    };
    CHECK(as(tensor_type::q4_1, {2, 32}) == "");
    CHECK(as(tensor_type::q4_1, {2, 48}) ==
          "f: tensor 'x' of type Q4_1 is [2, 48], expected rows of a multiple of 32 elements");
    CHECK(as(tensor_type::q8_0, {32, 1}) ==
          "f: tensor 'x' of type Q8_0 is [32, 1], expected rows of a multiple of 32 elements");
    CHECK(as(tensor_type::q6_k, {128}) ==
          "f: tensor 'x' of type Q6_K is [128], expected rows of a multiple of 256 elements");
    CHECK(as(static_cast<tensor_type>(39), {3, 5}) == "");

    auto const offset = [](std::uint64_t at) { return opening_with([&](auto& w) { w.at("y").offset = at; }); };
    CHECK(offset(128) == "");
    CHECK(offset(129) == "f: tensor 'y' begins at byte 129 of the data, expected a multiple of 32");
    CHECK(offset(144) == "f: tensor 'y' begins at byte 144 of the data, expected a multiple of 32");
    CHECK(offset(160) ==
          "f: tensor 'y' has 128 bytes from byte 160 of the data on, expected to end at byte 256 at "
          "the latest: the file does");
    CHECK(says(offset(1u << 20), "f: tensor 'y' has 128 bytes from byte 1048576 of the data on"));
    // A sum with it would wrap around.
    CHECK(says(offset(~std::uint64_t{31}), "f: tensor 'y' has 128 bytes from byte 18446744073709551584 of the data"));
    CHECK(offset(96) == "f: tensor 'y' begins at byte 96 of the data, expected at least 128: it overlaps tensor 'x'");
    CHECK(says(offset(0), "begins at byte 0 of the data, expected at least 128: it overlaps tensor '"));

    // By a single byte.
    auto const packed = [](std::uint64_t at) {
        return opening_with([&](auto& w) { w.align(1), w.at("y").offset = at, w.at("y").bytes.resize(200); });
    };
    CHECK(packed(128) == "");
    CHECK(packed(129) == "");
    CHECK(says(packed(127), "f: tensor 'y' begins at byte 127 of the data, expected at least 128: it overlaps tensor"));

    // One of an unknown size takes a byte at least.
    auto const unknown = [](std::uint64_t at) {
        return opening_with([&](auto& w) { w.at("y").type = static_cast<tensor_type>(40), w.at("y").offset = at; });
    };
    CHECK(unknown(128) == "");
    CHECK(unknown(224) == "");
    CHECK(says(unknown(256), "f: tensor 'y' has 1 bytes from byte 256 of the data on, expected to end at byte 256"));
    CHECK(says(unknown(0), "it overlaps tensor"));
    CHECK(says(unknown(96), "it overlaps tensor 'x'"));

    CHECK(opening_with([](auto& w) { w.at("y").name = "x"; }) == "f: tensor 'x' occurs twice");
    CHECK(opening_with([](auto& w) { w.at("y").name = ""; }) == "f: tensor 2 of 2 has no name");
    // The data would begin behind the end of the file.
    gguf_writer w = two();
    w.erase_tensor("y");
    w.at("x").bytes.clear();
    auto bytes = w.bytes();
    REQUIRE(says(opening(bytes), "expected to end at byte 0 at the latest"));
    bytes.pop_back();
    CHECK(says(opening(bytes), "f: the header has "));
    CHECK(says(opening(bytes), " bytes of padding from byte "));
}

TEST_CASE("gguf: whatever a damaged file says, nothing leads out of it") {
    gguf_writer w = two();
    w.set("list", std::vector<std::string>{"one", "", "three"}).set("numbers", std::vector<std::int16_t>{1, -2, 3});
    w.set("general.alignment", std::uint32_t{32});
    w.tensor("q", {2, 32}, tensor_type::q4_0, some_bytes(36));
    auto const good = w.bytes();
    std::mt19937 dice(3);
    unsigned opened = 0;
    for (int round = 0; round < 5000; ++round) {
        std::vector<std::byte> bytes = good;
        for (unsigned changes = 1 + dice() % 2; changes-- > 0;) {
            std::size_t const at = 8 + dice() % (bytes.size() - 8);
            bytes[at] = dice() % 2 ? static_cast<std::byte>(dice()) : bytes[at] ^ std::byte{1};
        }
        std::string const text = error_text([&] {
            auto const f = file::view(bytes, "f");
            ++opened;
            for (tensor const& t : f.tensors()) {
                REQUIRE(t.bytes.size() <= bytes.size());
                if (!t.bytes.empty()) REQUIRE((t.bytes.data() >= bytes.data() && &t.bytes.back() <= &bytes.back()));
            }
            for (std::string_view const key : f.keys()) {
                if (!f[key].is_list()) continue;
                CHECK(f[key].list_size() <= bytes.size());
            }
        });
        REQUIRE((text.empty() || text.starts_with("f: ")));
    }
    CHECK(opened > 500);
    CHECK(opened < 4500);
}
