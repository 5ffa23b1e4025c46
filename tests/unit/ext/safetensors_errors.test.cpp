// SPDX-License-Identifier: MIT
//
// Wrong .safetensors files: every way of being wrong is refused when the file is opened, and named.
#include "support/catch.hpp"
#include "support/error_text.hpp"
#include "support/safetensors_files.hpp"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#if __has_include(<sys/stat.h>)
#include <sys/stat.h>
#endif

#include <sureleap/ext/safetensors.hpp>
#include <sureleap/ext/safetensors_writer.hpp>

namespace st = sureleap::safetensors;

using st::dtype;
using st::tensor_spec;

using support::bytes_at;
using support::error_text;
using support::file_of;
using support::length_prefix;
using support::one;
using support::opening;
using support::sample;
using support::says;
using support::scratch_path;
using support::write_bytes;

TEST_CASE("safetensors: files that cannot be opened") {
    scratch_path const path;
    using opener = std::function<st::file(std::filesystem::path const&)>;
    for (opener const& open : {opener(&st::file::map), opener(&st::file::read)}) {
        auto const failure = [&](std::filesystem::path const& p) { return error_text([&] { (void)open(p); }); };
        CHECK(says(failure("no/such/model.safetensors"), "no/such/model.safetensors: cannot be opened for reading"));
        CHECK(says(failure(std::filesystem::temp_directory_path()), ": cannot be opened for reading"));
#if __has_include(<sys/stat.h>)
        scratch_path const pipe;  // opening it would wait for somebody who writes
        REQUIRE(::mkfifo(pipe.get().c_str(), 0600) == 0);
        CHECK(says(failure(pipe.get()), pipe.get().string() + ": cannot be opened for reading"));
#endif
        write_bytes(path.get(), "");
        CHECK(says(failure(path.get()), path.get().string() + ": 0 bytes, expected at least 8"));
        write_bytes(path.get(), "12345678");
        CHECK(says(failure(path.get()), path.get().string() + ": header of 4050765991979987505 bytes"));
    }
}

TEST_CASE("safetensors: every truncation of a file is refused") {
    std::string const bytes = sample().bytes();
    REQUIRE(opening(bytes) == "");
    for (std::size_t length = 0; length < bytes.size(); ++length) {
        INFO("length " << length);
        std::string const text = opening(bytes.substr(0, length));
        REQUIRE(says(text, "f: "));
        if (length < 8)
            CHECK(text == "f: " + std::to_string(length) + " bytes, expected at least 8 (the length of the header)");
    }
    CHECK(says(opening(bytes + "x"), "bytes of data, but its tensors end at byte"));
}

TEST_CASE("safetensors: the length of the header") {
    auto const with_length = [](std::uint64_t length) { return opening(length_prefix(length) + "{}      12345678"); };
    CHECK(says(with_length(0),
               "f: header of 0 bytes, expected 1 .. 16 (the file has 24, the format's limit is 100000000)"));
    CHECK(says(with_length(17), "f: header of 17 bytes, expected 1 .. 16"));
    CHECK(says(with_length(1), "the header is not JSON in UTF-8: malformed or truncated at byte"));
    // Sums and differences with these would wrap around.
    for (std::uint64_t const length :
         {~std::uint64_t{0}, ~std::uint64_t{0} - 7, ~std::uint64_t{0} - 8, std::uint64_t{1} << 63,
          (std::uint64_t{1} << 63) - 8, std::uint64_t{1} << 32, std::uint64_t{100'000'001}}) {
        CHECK(says(with_length(length), "f: header of " + std::to_string(length) + " bytes, expected 1 .. 16"));
    }
    // The limit, in files that are long enough (and sparse): one byte more is refused unread.
    for (std::uint64_t const length : {st::max_header_bytes, st::max_header_bytes + 1}) {
        scratch_path const path;
        write_bytes(path.get(), length_prefix(length) + "{}");
        std::filesystem::resize_file(path.get(), 8 + length);
        CHECK(says(error_text([&] { (void)st::file::map(path.get()); }),
                   length == st::max_header_bytes
                       ? "the header is not JSON in UTF-8: NUL at byte 3 of 100000000"
                       : ": header of 100000001 bytes, expected 1 .. 100000000 (the file has "
                         "100000009, the format's limit is 100000000)"));
    }
}

TEST_CASE("safetensors: headers that are no JSON object") {
    CHECK(says(opening(" {}", 0), "f: the header does not start with '{'"));
    CHECK(says(opening("[]", 0), "does not start with '{'"));
    CHECK(says(opening("\xef\xbb\xbf{}", 0), "does not start with '{'"));
    for (std::string const text :
         {"{", "{}}", "{},", "{}{}", "{\"a\"}", "{\"a\":}", "{'a':1}", "{a:1}", "{}//", "{}/**/",
          "{\"a\":{\"dtype\":\"U8\",}}", "{\"\xff\":{}}", "{\"\xc3\":{}}", "{\"\xed\xa0\x80\":{}}", "{\"\\ud800\":{}}",
          "{\"\\x\":{}}", "{\"\n\":{}}", "{}\xc2\xa0", "{\"a\":{\"dtype\":\"U8\",\"shape\":[01]"}) {
        INFO(text);
        CHECK(says(opening(text, 0), "f: the header is not JSON in UTF-8: malformed or truncated at byte "));
    }
    CHECK(says(opening("{},", 0), "at byte 3 of 3"));
    // A parser that stops at a NUL would not see what comes behind it.
    CHECK(says(opening(std::string("{}\0\0", 4), 0), "f: the header is not JSON in UTF-8: NUL at byte 3 of 4"));
    CHECK(says(opening(std::string("{}\0{\"a\":1}", 9), 0), "NUL at byte 3"));
    // Text of the file reaches a message without its control characters, and not at any length.
    std::string const shown = opening("{\"\\u0000\\u001b[31m" + std::string(200, 'x') + "\":1}", 0);
    CHECK(says(shown, "f: tensor '??[31m" + std::string(94, 'x') + "...' is 1"));
    CHECK(says(opening("{\"" + std::string(99, 'x') + "\xc3\xa9\":1}", 0),
               "f: tensor '" + std::string(99, 'x') + "...' is 1"));
}

TEST_CASE("safetensors: deep nesting ends at the first bracket too many") {
    std::string const arrays(1'000'000, '[');
    std::string objects;
    for (int i = 0; i < 200'000; ++i) objects += "{\"a\":";
    CHECK(says(opening("{\"a\":" + arrays, 0),
               "f: tensor 'a' is an array, expected an object of dtype, shape and data_offsets"));
    CHECK(says(opening(objects, 0), "f: tensor 'a' has the unknown field 'a'"));
    CHECK(says(opening("{\"a\":{\"shape\":" + arrays, 0), "f: tensor 'a': field 'shape' holds an array"));
    CHECK(says(opening("{\"__metadata__\":{\"a\":" + objects, 0), "f: '__metadata__': key 'a' is an object"));
}

TEST_CASE("safetensors: wrong entries") {
    std::string const good = one("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]");
    REQUIRE(opening(good, 2) == "");
    for (std::string const value : {"1", "null", "true", "false", "-1", "1.5", "[]"}) {
        std::string const found = value == "[]" ? "an array" : value;
        INFO(value);
        CHECK(opening("{\"a\":" + value + "}", 0) ==
              "f: tensor 'a' is " + found + ", expected an object of dtype, shape and data_offsets");
        CHECK(says(opening(one("\"dtype\":" + value), 0),
                   "f: tensor 'a': field 'dtype' is " + found + ", expected one of BOOL, U8"));
        CHECK(opening("{\"__metadata__\":" + value + "}", 0) ==
              "f: '__metadata__' is " + found + ", expected an object of strings");
        CHECK(opening("{\"__metadata__\":{\"k\":" + value + "}}", 0) ==
              "f: '__metadata__': key 'k' is " + found + ", expected a string");
    }
    CHECK(says(opening("{\"a\":\"b\"}", 0), "f: tensor 'a' is the string 'b', expected an object"));
    CHECK(says(opening("{\"__metadata__\":\"b\"}", 0), "f: '__metadata__' is the string 'b'"));
    CHECK(says(opening("{\"__metadata__\":{\"k\":{}}}", 0),
               "f: '__metadata__': key 'k' is an object, expected a string"));

    CHECK(opening(one(""), 0) == "f: tensor 'a' has no field 'dtype'");
    CHECK(opening(one("\"dtype\":\"U8\",\"shape\":[2]"), 2) == "f: tensor 'a' has no field 'data_offsets'");
    CHECK(opening(one("\"dtype\":\"U8\",\"data_offsets\":[0,2]"), 2) == "f: tensor 'a' has no field 'shape'");
    CHECK(opening(one("\"shape\":[2],\"data_offsets\":[0,2]"), 2) == "f: tensor 'a' has no field 'dtype'");
    CHECK(opening(one("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2],\"stride\":[1]"), 2) ==
          "f: tensor 'a' has the unknown field 'stride', expected dtype, shape and data_offsets");
    CHECK(says(opening(one("\"Dtype\":\"U8\""), 0), "has the unknown field 'Dtype'"));

    CHECK(opening(one("\"dtype\":\"F4\",\"shape\":[2],\"data_offsets\":[0,2]"), 2) ==
          "f: tensor 'a': field 'dtype' is 'F4', expected one of BOOL, U8, I8, F8_E5M2, F8_E4M3, I16, U16, F16, BF16, "
          "I32, "
          "U32, F32, F64, I64, U64");
    for (std::string const name : {"", "u8", "U8 ", "U", "BF1", "BF166", "U8\\u0000"}) {
        INFO(name);
        CHECK(says(opening(one("\"dtype\":\"" + name + "\""), 0), "field 'dtype' is '"));
    }
}

TEST_CASE("safetensors: wrong numbers") {
    auto const shape = [](std::string const& text) {
        return opening(one("\"dtype\":\"U8\",\"shape\":" + text + ",\"data_offsets\":[0,2]"), 2);
    };
    auto const offsets = [](std::string const& text) {
        return opening(one("\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":" + text), 2);
    };
    REQUIRE(shape("[2]") == "");
    REQUIRE(offsets("[0,2]") == "");
    std::vector<std::pair<std::string, std::string>> const values{
        {"-1", "-1"},        {"-0", "-0"},         {"2.0", "2.0"},
        {"1e0", "1e0"},      {"0.5", "0.5"},       {"18446744073709551616", "18446744073709551616"},
        {"1e999", "1e999"},  {"-1e999", "-1e999"}, {"-9223372036854775809", "-9223372036854775809"},
        {"true", "true"},    {"null", "null"},     {"\"2\"", "the string '2'"},
        {"[2]", "an array"}, {"{}", "an object"},
    };
    for (auto const& [value, found] : values) {
        INFO(value);
        CHECK(shape("[" + value + "]") == "f: tensor 'a': field 'shape' holds " + found +
                                              ", expected an array of non-negative integers below 2^64");
        for (std::string const& list : {"[" + value + ",2]", "[0," + value + "]"}) {
            CHECK(offsets(list) == "f: tensor 'a': field 'data_offsets' holds " + found +
                                       ", expected an array of two non-negative integers below 2^64");
        }
    }
    for (std::string const value : {"2", "null", "true", "-2", "2.5", "{}", "\"x\""}) {
        INFO(value);
        CHECK(says(shape(value), {"f: tensor 'a': field 'shape' is ", ", expected an array of non-negative integers"}));
        CHECK(says(offsets(value), {"f: tensor 'a': field 'data_offsets' is ", ", expected an array of two"}));
    }
    std::string const digits(5000, '9');
    CHECK(says(shape("[" + digits + "]"), "holds " + std::string(100, '9') + "..., expected"));
    CHECK(says(offsets("[]"), "field 'data_offsets' holds fewer than two numbers, expected an array of two"));
    CHECK(says(offsets("[0]"), "holds fewer than two numbers"));
    CHECK(says(offsets("[0,2,2]"), "field 'data_offsets' holds more than two numbers"));

    CHECK(shape("[3]") == "f: tensor 'a' has 2 bytes (data_offsets [0, 2]), expected 3 (U8 [3])");
    CHECK(says(shape("[]"), "has 2 bytes (data_offsets [0, 2]), expected 1 (U8 [])"));
    CHECK(says(shape("[0]"), "expected 0 (U8 [0])"));
    CHECK(shape("[4294967296,4294967296]") ==
          "f: tensor 'a' of shape [4294967296, 4294967296] and type U8 has more bytes than any memory");
    CHECK(says(shape("[18446744073709551615]"), "expected 18446744073709551615 (U8 [18446744073709551615])"));
    // 2^63 + 1 elements of 2 bytes are 2 bytes modulo 2^64.
    CHECK(says(opening(one("\"dtype\":\"BF16\",\"shape\":[9223372036854775809],\"data_offsets\":[0,2]"), 2),
               "of shape [9223372036854775809] and type BF16 has more bytes than any memory"));
    CHECK(says(opening(one("\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,3],\"data_offsets\":[0,2]"), 2),
               "expected 3 (U8 [1, 1, 1, 1, 1, 1, 1, 1, ...])"));

    CHECK(offsets("[2,0]") ==
          "f: tensor 'a' has data_offsets [2, 0], expected begin <= end <= 2 (the bytes of data in the file)");
    CHECK(says(offsets("[1,3]"), "has data_offsets [1, 3], expected begin <= end <= 2"));
    CHECK(says(offsets("[18446744073709551614,18446744073709551615]"), "expected begin <= end <= 2"));
    CHECK(says(offsets("[18446744073709551615,1]"), "expected begin <= end <= 2"));
    CHECK(says(offsets("[0,1]"), "has 1 bytes (data_offsets [0, 1]), expected 2 (U8 [2])"));
}

TEST_CASE("safetensors: tensors cover the data once") {
    auto const two = [](std::string const& first, std::string const& second, std::size_t data_bytes) {
        auto const tensor = [](std::string const& name, std::string const& range) {
            auto const comma = range.find(',');
            auto const size = std::stoul(range.substr(comma + 1)) - std::stoul(range);
            return "\"" + name + "\":{\"dtype\":\"U8\",\"shape\":[" + std::to_string(size) + "],\"data_offsets\":[" +
                   range + "]}";
        };
        return opening("{" + tensor("b", first) + "," + tensor("a", second) + "}", data_bytes);
    };
    CHECK(two("0,2", "2,5", 5) == "");
    CHECK(two("2,5", "0,2", 5) == "");
    CHECK(two("0,2", "1,4", 4) ==
          "f: tensor 'a' begins at byte 1 of the data, expected 2 (it overlaps the one before)");
    CHECK(says(two("0,4", "1,3", 4), "tensor 'a' begins at byte 1 of the data, expected 4 (it overlaps"));
    CHECK(says(two("0,4", "0,4", 4), "begins at byte 0 of the data, expected 4 (it overlaps"));
    CHECK(says(two("0,4", "2,2", 4), "tensor 'a' begins at byte 2 of the data, expected 4 (it overlaps"));
    CHECK(two("0,2", "3,5", 5) ==
          "f: tensor 'a' begins at byte 3 of the data, expected 2 (no tensor claims the bytes between)");
    CHECK(says(two("1,2", "2,5", 5), "tensor 'b' begins at byte 1 of the data, expected 0 (no tensor claims"));
    CHECK(two("0,2", "2,5", 6) == "f: the file has 6 bytes of data, but its tensors end at byte 5");
    CHECK(says(opening("{}", 1), "f: the file has 1 bytes of data, but its tensors end at byte 0"));
    CHECK(says(opening("{\"__metadata__\":{}}", 8), "but its tensors end at byte 0"));
}

TEST_CASE("safetensors: keys that occur twice") {
    std::string const a = "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}";
    REQUIRE(opening("{\"a\":" + a + ",\"b\":" + a + "}", 0) == "");
    CHECK(opening("{\"a\":" + a + ",\"b\":" + a + ",\"a\":" + a + "}", 0) == "f: tensor 'a' occurs twice");
    CHECK(opening("{\"a\":" + a + ",\"\\u0061\":" + a + "}", 0) == "f: tensor 'a' occurs twice");
    CHECK(opening("{\"__metadata__\":{},\"__metadata__\":{}}", 0) == "f: '__metadata__' occurs twice");
    CHECK(opening("{\"__metadata__\":{\"k\":\"1\",\"k\":\"1\"}}", 0) == "f: '__metadata__': key 'k' occurs twice");
    CHECK(opening(one("\"dtype\":\"U8\",\"dtype\":\"U8\""), 0) == "f: tensor 'a': field 'dtype' occurs twice");
    CHECK(opening(one("\"shape\":[],\"shape\":[2]"), 0) == "f: tensor 'a': field 'shape' occurs twice");
    CHECK(opening(one("\"data_offsets\":[0,0],\"data_offsets\":[0,0]"), 0) ==
          "f: tensor 'a': field 'data_offsets' occurs twice");
}

TEST_CASE("safetensors: asking for what is not there") {
    sample const s;
    std::string const bytes = s.bytes();
    bytes_at const memory(bytes, 0);
    auto const file = st::file::view(memory.get(), "m.safetensors");
    CHECK(error_text([&] { (void)file.at("bf61"); }) ==
          "m.safetensors: no tensor 'bf61' among 16, the nearest name is 'bf16'");
    CHECK(says(error_text([&] { (void)file.at("model.bool"); }),
               "no tensor 'model.bool' among 16, the nearest name is 'bool'"));
    CHECK(says(error_text([&] { (void)file.at("f32.weight"); }), "the nearest name is 'f32'"));
    CHECK(says(error_text([&] { (void)file.at(""); }), "no tensor '' among 16"));
    CHECK(says(error_text([&] { (void)file.matrix<float>("f23", 3, 5); }), "no tensor 'f23'"));

    CHECK(error_text([&] { (void)file.matrix<double>("f32", 3, 5); }) ==
          "m.safetensors: tensor 'f32' is F32, expected F64");
    CHECK(error_text([&] { (void)file.matrix<float>("f32", 5, 3); }) ==
          "m.safetensors: tensor 'f32' is [3, 5], expected [5, 3]");
    CHECK(says(error_text([&] { (void)file.values<float>("f32", 15); }), "tensor 'f32' is [3, 5], expected [15]"));
    CHECK(says(error_text([&] { (void)file.values<float>("f32", {3, 5, 1}); }), "is [3, 5], expected [3, 5, 1]"));
    CHECK(says(error_text([&] { (void)file.values<double>("f64", 1); }), "tensor 'f64' is [], expected [1]"));
    CHECK(says(error_text([&] { (void)file.values<sureleap::half>("bf16", {2, 7}); }), "is BF16, expected F16"));
    CHECK(says(error_text([&] { (void)file.values<std::uint8_t>("bool", {2, 3}); }), "is BOOL, expected U8"));
}

TEST_CASE("safetensors: alignment is checked where it matters") {
    // 8 + 69 bytes of header: legal, but every wider element lies at an odd address.
    std::string header = one("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]");
    header.resize(69, ' ');
    std::string const bytes = file_of(header, 8);
    bytes_at const aligned(bytes, 0);
    auto const odd = st::file::view(aligned.get(), "odd");
    CHECK(odd.at("a").bytes.size() == 8);
    CHECK(error_text([&] { (void)odd.values<float>("a", 2); }) ==
          "odd: tensor 'a' lies at byte 77 of the file, at an address that is no multiple of 4 as F32 needs: copy its "
          "bytes, or "
          "write the file anew (sureleap/ext/safetensors_writer.hpp) with tensors sorted by falling element size");
    bytes_at const shifted(bytes, 3);  // 77 + 3 = 80
    CHECK(error_text([&] { (void)st::file::view(shifted.get(), "f").values<float>("a", 2); }) == "");

    // The file is fine, the memory it lies in is not.
    std::string const fine = sample().bytes();
    bytes_at const two(fine, 2);
    auto const file = st::file::view(two.get(), "f");
    CHECK(error_text([&] { (void)file.matrix<sureleap::bf16>("bf16", 2, 7); }) == "");
    CHECK(says(error_text([&] { (void)file.matrix<float>("f32", 3, 5); }),
               "at an address that is no multiple of 4 as F32"));
    CHECK(says(error_text([&] { (void)file.values<double>("f64", {}); }),
               "at an address that is no multiple of 8 as F64"));
    CHECK(error_text([&] { (void)file.values<std::int8_t>("i8", 1); }) == "");
    CHECK(error_text([&] { (void)file.values<float>("none", {4, 0, 2}); }) == "");  // no element, no address
}
