// SPDX-License-Identifier: MIT
//
// Reading .safetensors files: tensors in place, mapped, read or viewed, and files that are only unusual. Nothing that a
// mutated file says leads out of its bytes. (Files that are wrong: safetensors_errors.test.cpp.)
#include "support/catch.hpp"
#include "support/error_text.hpp"
#include "support/safetensors_files.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <sureleap/ext/safetensors.hpp>
#include <sureleap/ext/safetensors_writer.hpp>

namespace st = sureleap::safetensors;

using st::dtype;
using st::tensor_spec;

using support::bytes_at;
using support::error_text;
using support::file_of;
using support::header_length;
using support::length_prefix;
using support::one;
using support::opening;
using support::read_bytes;
using support::sample;
using support::says;
using support::scratch_path;
using support::text_of;

namespace {

static_assert(std::is_nothrow_move_constructible_v<st::file> && std::is_nothrow_move_assignable_v<st::file>);
static_assert(!std::is_copy_constructible_v<st::file> && !std::is_copy_constructible_v<st::writer>);
static_assert(st::dtype_of<std::int8_t> == dtype::i8 && st::dtype_of<std::uint8_t> == dtype::u8);
static_assert(st::dtype_of<std::int16_t> == dtype::i16 && st::dtype_of<std::uint16_t> == dtype::u16);
static_assert(st::dtype_of<std::int32_t> == dtype::i32 && st::dtype_of<std::uint32_t> == dtype::u32);
static_assert(st::dtype_of<std::int64_t> == dtype::i64 && st::dtype_of<std::uint64_t> == dtype::u64);
static_assert(st::dtype_of<sureleap::half> == dtype::f16 && st::dtype_of<sureleap::bf16> == dtype::bf16);
static_assert(st::dtype_of<float> == dtype::f32 && st::dtype_of<double> == dtype::f64);

std::string golden(std::string const& name) {
    char const* const chosen = std::getenv("SURELEAP_GOLDEN_DIR");
#ifdef SURELEAP_GOLDEN_DEFAULT_DIR
    std::string const fallback = SURELEAP_GOLDEN_DEFAULT_DIR;
#else
    std::string const fallback = "tests/golden";
#endif
    return (chosen != nullptr && *chosen != '\0' ? chosen : fallback) + "/" + name;
}

}  // namespace

TEST_CASE("safetensors: element types have the names and sizes of the format") {
    std::vector<std::pair<std::string, std::size_t>> const expected{
        {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1}, {"I16", 2}, {"U16", 2}, {"F16", 2},
        {"BF16", 2}, {"I32", 4}, {"U32", 4}, {"F32", 4},     {"F64", 8},     {"I64", 8}, {"U64", 8}};
    for (std::size_t i = 0; i < expected.size(); ++i) {
        auto const type = static_cast<dtype>(i);
        auto const& [name, size] = expected[i];
        CHECK(st::name_of(type) == name);
        CHECK(st::size_of(type) == size);
        std::string const header =
            one("\"dtype\":\"" + name + "\",\"shape\":[3],\"data_offsets\":[0," + std::to_string(3 * size) + "]");
        INFO(header);
        CHECK(opening(header, 3 * size) == "");
        std::string const bytes = file_of(header, 3 * size);
        CHECK(st::file::view(std::as_bytes(std::span(bytes)), "f").at("a").type == type);
    }
    CHECK(static_cast<std::size_t>(dtype::u64) + 1 == expected.size());
}

TEST_CASE("safetensors: a written file reads back byte for byte, mapped, read or viewed") {
    sample const s;
    scratch_path const path;
    s.write(path.get());
    CHECK_FALSE(std::filesystem::exists(path.part()));
    std::string const bytes = read_bytes(path.get());
    CHECK(bytes.size() == st::file_size(s.specs, s.metadata));
    bytes_at const memory(bytes, 0);

    auto const check = [&](st::file const& file, std::string const& name) {
        INFO(name);
        CHECK(file.name() == name);
        CHECK(text_of(file.bytes()) == bytes);
        CHECK(file.metadata() == s.metadata);
        REQUIRE(file.tensors().size() == s.specs.size());
        CHECK(std::ranges::is_sorted(file.tensors(), {}, &st::tensor::name));
        for (std::size_t i = 0; i < s.specs.size(); ++i) {
            INFO(s.specs[i].name);
            st::tensor const& t = file.at(s.specs[i].name);
            CHECK(file.find(s.specs[i].name) == &t);
            CHECK(t.name == s.specs[i].name);
            CHECK(t.type == s.specs[i].type);
            CHECK(t.shape == s.specs[i].shape);
            CHECK(text_of(t.bytes) == s.data[i]);
        }
        CHECK(file.find("f3") == nullptr);
        CHECK(file.find("f322") == nullptr);
        CHECK(file.find("") == nullptr);
        CHECK(file.find("zzz") == nullptr);
    };
    check(st::file::map(path.get()), path.get().string());
    check(st::file::read(path.get()), path.get().string());
    check(st::file::view(memory.get(), "memory"), "memory");
}

TEST_CASE("safetensors: typed views show the elements in place") {
    sample const s;
    scratch_path const path;
    s.write(path.get());
    auto const file = st::file::map(path.get());
    auto const check = [&]<class T>(std::string const& name, std::span<T const> values) {
        INFO(name);
        CHECK(static_cast<void const*>(values.data()) == file.at(name).bytes.data());
        CHECK(values.size_bytes() == file.at(name).bytes.size());
    };
    check("u64", file.values<std::uint64_t>("u64", 1));
    check("i64", file.values<std::int64_t>("i64", {2, 1}));
    check("f64", file.values<double>("f64", {}));
    check("f32", file.values<float>("f32", {3, 5}));
    check("u32", file.values<std::uint32_t>("u32", 3));
    check("i32", file.values<std::int32_t>("i32", {1, 1, 3}));
    check("f16", file.values<sureleap::half>("f16", 5));
    check("u16", file.values<std::uint16_t>("u16", 1));
    check("i16", file.values<std::int16_t>("i16", 2));
    check("i8", file.values<std::int8_t>("i8", 1));
    check("u8", file.values<std::uint8_t>("u8", 3));
    CHECK(file.values<float>("none", {4, 0, 2}).empty());

    auto const matrix = file.matrix<sureleap::bf16>("bf16", 2, 7);
    CHECK(matrix.rows == 2);
    CHECK(matrix.cols == 7);
    CHECK(matrix.stride == 7);
    CHECK(static_cast<void const*>(matrix.data) == file.at("bf16").bytes.data());
    std::uint16_t bits;
    std::memcpy(&bits, file.at("bf16").bytes.data() + 2 * 9, 2);
    CHECK(matrix.row(1)[2].bits == bits);
}

TEST_CASE("safetensors: the stored checkpoint") {
    auto const file = st::file::map(golden("tiny_dspark_ckpt/model.safetensors"));
    CHECK(file.tensors().size() == 31);
    CHECK(file.metadata() == st::metadata_map{{"format", "pt"}});
    CHECK(file.bytes().size() == 61930);
    CHECK(file.matrix<sureleap::bf16>("fc.weight", 32, 96).data != nullptr);
    CHECK(file.values<sureleap::bf16>("confidence_head.proj.bias", 1).size() == 1);

    // Another writer made it; ours makes the same bytes of its tensors.
    std::vector<tensor_spec> specs;
    for (st::tensor const& t : file.tensors()) specs.push_back({t.name, t.type, t.shape});
    CHECK(st::file_size(specs, file.metadata()) == file.bytes().size());
    scratch_path const path;
    st::writer out(path.get(), specs, file.metadata());
    for (st::tensor const& t : file.tensors()) out.append(t.bytes);
    out.finish();
    CHECK(read_bytes(path.get()) == text_of(file.bytes()));
}

TEST_CASE("safetensors: unusual files that are right") {
    CHECK(opening("{}", 0) == "");
    CHECK(opening("{} \n\t\r ", 0) == "");
    CHECK(opening("{\"__metadata__\":{}}", 0) == "");
    CHECK(opening("{\"__metadata__\":{\"\":\"\"}}", 0) == "");
    CHECK(opening("{\"\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1) == "");
    // Order of fields, blanks, an escape in a key.
    CHECK(opening("{ \"a\" : {\"data_offsets\": [0, 4], \"sh\\u0061pe\": [ ], \"dtype\": \"F32\"} }", 4) == "");
    // Empty tensors anywhere between others, several at the same place; sizes beside a 0 may be anything.
    CHECK(opening("{\"e\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]},"
                  "\"z\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                  "\"d\":{\"dtype\":\"F32\",\"shape\":[0,18446744073709551615,7],\"data_offsets\":[2,2]},"
                  "\"b\":{\"dtype\":\"F32\",\"shape\":[9,0],\"data_offsets\":[2,2]},"
                  "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[2,3]},"
                  "\"c\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[3,3]}}",
                  3) == "");
    // Many dimensions; metadata behind the tensors; names that only look like it.
    std::string ones = "1";
    for (int i = 0; i < 500; ++i) ones += ",1";
    CHECK(opening(one("\"dtype\":\"U8\",\"shape\":[" + ones + "],\"data_offsets\":[0,1]"), 1) == "");
    CHECK(opening("{\"__metadata\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},\"__metadata__\":{}}", 1) ==
          "");
    // Bytes in the data are anybody's.
    std::string const header = one("\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]");
    CHECK(opening(length_prefix(header.size()) + header + std::string("{\0\xff", 3)) == "");
}

TEST_CASE("safetensors: a file object can be moved, and is empty then") {
    sample const s;
    scratch_path const path;
    s.write(path.get());
    for (bool const mapped : {true, false}) {
        auto first = mapped ? st::file::map(path.get()) : st::file::read(path.get());
        auto const* const f32 = first.values<float>("f32", {3, 5}).data();
        st::file second(std::move(first));
        CHECK(second.values<float>("f32", {3, 5}).data() == f32);
        CHECK(text_of(second.at("f32").bytes) == s.data[3]);
        std::string const empty = file_of("{}");
        auto third = st::file::view(std::as_bytes(std::span(empty)), "empty");
        third = std::move(second);
        CHECK(third.name() == path.get().string());
        CHECK(third.metadata() == s.metadata);
        CHECK(text_of(third.at("f32").bytes) == s.data[3]);
        for (st::file const* const moved : {&first, &second}) {
            CHECK(moved->tensors().empty());
            CHECK(moved->bytes().empty());
            CHECK(moved->find("f32") == nullptr);
            CHECK(says(error_text([&] { (void)moved->at("f32"); }), "no tensor 'f32', the file has no tensors"));
        }
    }
}

TEST_CASE("safetensors: a mapped file outlives its name") {
    sample const s;
    scratch_path const path;
    s.write(path.get());
    auto const file = st::file::map(path.get());
    {
        st::writer other(path.get(), {{"x", dtype::u8, {1}}});
        other.append(std::as_bytes(std::span("1", 1)));
        other.finish();
    }
    CHECK(text_of(file.at("f32").bytes) == s.data[3]);
    CHECK(st::file::map(path.get()).tensors().size() == 1);
    std::filesystem::remove(path.get());
    CHECK(text_of(file.at("bool").bytes) == s.data[14]);
}

TEST_CASE("safetensors: a mutated file is refused or stays within its bytes") {
    std::uint64_t const seed = std::random_device{}();
    INFO("seed " << seed);
    std::mt19937_64 dice(seed);
    std::string const good = sample().bytes();
    std::vector<std::string> const words{
        "18446744073709551615", "-1",  "[",       "]",    "{", "}", ",", "0", "9", "\"", "\"dtype\"", "\"U64\"",
        "\"__metadata__\":{}",  "1e5", "\\u0000", "\xff", ":"};
    auto const below = [&](std::size_t bound) { return static_cast<std::size_t>(dice() % bound); };
    int refused = 0;
    int accepted = 0;
    for (int round = 0; round < 10'000; ++round) {
        std::string bytes = good;
        for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
            std::size_t const at = below(bytes.size());
            switch (below(6)) {
                case 0: bytes[at] = static_cast<char>(dice()); break;
                case 1: bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8))); break;
                case 2: bytes[below(8)] = static_cast<char>(dice()); break;
                case 3: bytes.replace(at, below(3), words[below(words.size())]); break;
                case 4: bytes.resize(8 + below(bytes.size())); break;
                default: {  // inside the header, the length kept in step: reaches the checks behind the parse
                    std::size_t const length = header_length(bytes);
                    std::size_t const place = 8 + below(std::min(length, bytes.size() - 8) + 1);
                    std::string const& word = words[below(words.size())];
                    bytes.insert(place, word);
                    bytes.replace(0, 8, length_prefix(length + word.size()));
                    break;
                }
            }
        }
        bytes_at const exact(bytes, 0);
        auto const view = exact.get();
        std::size_t covered = 0;
        std::string const text = error_text([&] {
            auto const file = st::file::view(view, "f");
            for (st::tensor const& t : file.tensors()) {
                REQUIRE(t.bytes.data() >= view.data());
                REQUIRE(t.bytes.data() + t.bytes.size() <= view.data() + view.size());
                covered += t.bytes.size();
                REQUIRE(file.find(t.name) == &t);
            }
            REQUIRE(8 + header_length(bytes) + covered == view.size());
            ++accepted;
        });
        if (!text.empty()) {
            REQUIRE(says(text, "f: "));
            ++refused;
        }
    }
    CHECK(refused > 1000);
    CHECK(accepted > 100);
    CHECK(refused + accepted == 10'000);
}
