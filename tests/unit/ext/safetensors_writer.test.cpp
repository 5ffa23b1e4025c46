// SPDX-License-Identifier: MIT
//
// Writing .safetensors files: the reference's bytes, in pieces of any size; whatever goes wrong leaves no file behind.
#include "support/catch.hpp"
#include "support/error_text.hpp"
#include "support/safetensors_files.hpp"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <sureleap/ext/safetensors.hpp>
#include <sureleap/ext/safetensors_writer.hpp>

namespace st = sureleap::safetensors;

using st::dtype;
using st::tensor_spec;

using support::error_text;
using support::file_of;
using support::length_prefix;
using support::read_bytes;
using support::sample;
using support::says;
using support::scratch_path;
using support::text_of;
using support::write_bytes;

namespace {

// The layout of the published DSpark checkpoint for Qwen3-4B, or without the heads that of DFlash.
std::vector<tensor_spec> qwen3_4b_draft(bool heads) {
    std::size_t const vocabulary = 151936, hidden = 2560, inner = 9728, rank = 256;
    std::vector<tensor_spec> specs;
    auto const add = [&](std::string name, std::vector<std::size_t> shape) {
        specs.push_back({std::move(name), dtype::bf16, std::move(shape)});
    };
    add("embed_tokens.weight", {vocabulary, hidden});
    add("lm_head.weight", {vocabulary, hidden});
    add("fc.weight", {hidden, 5 * hidden});
    add("hidden_norm.weight", {hidden});
    add("norm.weight", {hidden});
    for (int i = 0; i < 5; ++i) {
        std::string const layer = "layers." + std::to_string(i) + ".";
        add(layer + "input_layernorm.weight", {hidden});
        add(layer + "post_attention_layernorm.weight", {hidden});
        add(layer + "self_attn.q_proj.weight", {4096, hidden});
        add(layer + "self_attn.k_proj.weight", {1024, hidden});
        add(layer + "self_attn.v_proj.weight", {1024, hidden});
        add(layer + "self_attn.o_proj.weight", {hidden, 4096});
        add(layer + "self_attn.q_norm.weight", {128});
        add(layer + "self_attn.k_norm.weight", {128});
        add(layer + "mlp.gate_proj.weight", {inner, hidden});
        add(layer + "mlp.up_proj.weight", {inner, hidden});
        add(layer + "mlp.down_proj.weight", {hidden, inner});
    }
    if (heads) {
        add("markov_head.markov_w1.weight", {vocabulary, rank});
        add("markov_head.markov_w2.weight", {vocabulary, rank});
        add("confidence_head.proj.weight", {1, hidden + rank});
        add("confidence_head.proj.bias", {1});
    }
    std::ranges::sort(specs, {}, &tensor_spec::name);
    return specs;
}

}  // namespace

TEST_CASE("safetensors: the writer's bytes are those of the reference implementation") {
    auto const written = [](std::vector<tensor_spec> const& specs, st::metadata_map const& metadata,
                            std::string const& data) {
        scratch_path const path;
        st::writer out(path.get(), specs, metadata);
        out.append(std::as_bytes(std::span(data)));
        out.finish();
        std::string bytes = read_bytes(path.get());
        CHECK(bytes.size() == st::file_size(specs, metadata));
        return bytes;
    };
    // The cases of its own test suite (test_serialization, test_empty, test_serialization_forced_alignement).
    std::string const data(24, '\x42');
    CHECK(written({{"attn.0", dtype::f32, {1, 2, 3}}}, {}, data) ==
          length_prefix(64) + "{\"attn.0\":{\"dtype\":\"F32\",\"shape\":[1,2,3],\"data_offsets\":[0,24]}}" + data);
    CHECK(written({}, {}, "") == length_prefix(8) + "{}      ");
    CHECK(written({}, {{"framework", "pt"}}, "") ==
          length_prefix(40) + "{\"__metadata__\":{\"framework\":\"pt\"}}     ");
    CHECK(written({{"attn0", dtype::f32, {1, 1, 2, 3}}}, {}, data) ==
          length_prefix(72) + "{\"attn0\":{\"dtype\":\"F32\",\"shape\":[1,1,2,3],\"data_offsets\":[0,24]}}       " +
              data);
    // The order of the specs is kept; text is escaped.
    CHECK(written({{"b", dtype::u8, {}}, {"a\"\\\x1f/\x7f", dtype::u8, {0}}}, {{"k", "\n"}}, "x") ==
          file_of("{\"__metadata__\":{\"k\":\"\\u000a\"},\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},"
                  "\"a\\\"\\\\\\u001f/\x7f\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}      ") +
              "x");
}

TEST_CASE("safetensors: pieces of any size make the same file") {
    sample const s;
    std::string const whole = s.bytes();
    for (std::size_t const piece : {1u, 3u, 7u}) {
        scratch_path const path;
        st::writer out(path.get(), s.specs, s.metadata);
        for (std::string const& bytes : s.data) {
            for (std::size_t at = 0; at < bytes.size(); at += piece) {
                out.append(std::as_bytes(std::span(bytes).subspan(at, std::min(piece, bytes.size() - at))));
                out.append({});
            }
        }
        out.finish();
        CHECK(read_bytes(path.get()) == whole);
    }
}

TEST_CASE("safetensors: an unfinished file leaves nothing, and what was there") {
    std::string const four = "1234";
    auto const bytes = std::as_bytes(std::span(four));
    scratch_path const path;
    write_bytes(path.get(), "older");
    {
        st::writer out(path.get(), {{"a", dtype::u8, {4}}, {"b", dtype::u8, {4}}});
        CHECK(std::filesystem::exists(path.part()));
        out.append(bytes);
        out.append(bytes.first(1));
        CHECK(error_text([&] { out.finish(); }) ==
              path.get().string() + ": tensor 'b' (2 of 2) has got 1 of its 4 bytes");
        CHECK(read_bytes(path.get()) == "older");
    }
    CHECK_FALSE(std::filesystem::exists(path.part()));
    CHECK(read_bytes(path.get()) == "older");
    {
        st::writer out(path.get(), {{"a", dtype::u8, {4}}});
        CHECK(error_text([&] { out.finish(); }) ==
              path.get().string() + ": tensor 'a' (1 of 1) has got 0 of its 4 bytes");
        out.append(bytes);  // an error of finish() is no end: the bytes may still come
        out.finish();
        CHECK_FALSE(std::filesystem::exists(path.part()));
        CHECK(st::file::map(path.get()).at("a").bytes.size() == 4);
        CHECK(says(error_text([&] { out.finish(); }), ": finished twice"));
        CHECK(says(error_text([&] { out.append(bytes); }),
                   ": 4 bytes appended, expected at most 0 (all tensors are complete)"));
    }
    CHECK(st::file::map(path.get()).at("a").bytes.size() == 4);
}

TEST_CASE("safetensors: bytes that do not belong to the current tensor") {
    std::string const nine(9, 'x');
    auto const bytes = std::as_bytes(std::span(nine));
    scratch_path const path;
    st::writer out(path.get(), {{"e", dtype::f32, {0}}, {"a", dtype::u8, {4}}, {"b", dtype::u8, {4}}});
    out.append(bytes.first(3));
    CHECK(error_text([&] { out.append(bytes.first(2)); }) ==
          path.get().string() + ": 2 bytes appended, expected at most 1 (the rest of tensor 'a')");
    out.append(bytes.first(1));
    CHECK(says(error_text([&] { out.append(bytes.first(5)); }),
               ": 5 bytes appended, expected at most 4 (the rest of tensor 'b')"));
    out.append(bytes.first(4));
    CHECK(says(error_text([&] { out.append(bytes.first(1)); }), "expected at most 0 (all tensors are complete)"));
    out.finish();
    CHECK(text_of(st::file::map(path.get()).at("b").bytes) == "xxxx");
}

TEST_CASE("safetensors: specs that make no file") {
    scratch_path const path;
    auto const failure = [&](std::vector<tensor_spec> const& specs, st::metadata_map const& metadata = {}) {
        std::string const text = error_text([&] { st::writer(path.get(), specs, metadata); });
        CHECK_FALSE(std::filesystem::exists(path.part()));
        CHECK_FALSE(std::filesystem::exists(path.get()));
        CHECK(says(error_text([&] { (void)st::file_size(specs, metadata); }), "safetensors::file_size: "));
        return text;
    };
    std::size_t const huge = std::size_t{1} << 62;
    CHECK(says(failure({{"a", dtype::u8, {1}}, {"a", dtype::u8, {1}}}),
               path.get().string() + ": tensor 'a' occurs twice"));
    CHECK(says(failure({{"__metadata__", dtype::u8, {1}}}), "'__metadata__': key 'shape' is an array"));
    CHECK(says(failure({{"\xff", dtype::u8, {1}}}), "the header is not JSON in UTF-8"));
    CHECK(says(failure({}, {{"k", "\xc3"}}), "the header is not JSON in UTF-8"));
    CHECK(says(failure({{"a", dtype::f64, {huge}}}),
               "tensor 'a' of shape [4611686018427387904] and type F64 has more bytes"));
    CHECK(says(failure({{"a", dtype::bf16, {huge}}, {"b", dtype::bf16, {huge}}}),
               "the tensors up to 'b' have more bytes than any file"));
    CHECK(st::file_size({{"a", dtype::u8, {huge}}}) == 8 + 96 + huge);  // far beyond any disk, but a size
}

TEST_CASE("safetensors: places where no file can be written") {
    CHECK(error_text([] { st::writer("no/such/model.safetensors", {}); }) ==
          "no/such/model.safetensors.part: cannot be opened for writing");
    scratch_path const folder;
    std::filesystem::create_directory(folder.get());
    {
        st::writer out(folder.get(), {});  // a file cannot take the name of a folder
        CHECK(
            says(error_text([&] { out.finish(); }), folder.part().string() + ": cannot be completed and renamed to "));
    }
    CHECK(std::filesystem::is_directory(folder.get()));
    CHECK_FALSE(std::filesystem::exists(folder.part()));
    scratch_path const taken;  // nor may a folder that stands in the way be removed
    std::filesystem::create_directory(taken.part());
    CHECK(says(error_text([&] { st::writer(taken.get(), {}); }), ": cannot be opened for writing"));
    CHECK(std::filesystem::is_directory(taken.part()));
    if (std::filesystem::exists("/dev/full")) {
        scratch_path const full;
        std::filesystem::create_symlink("/dev/full", full.part());
        std::string const text = error_text([&] {
            st::writer out(full.get(), {{"a", dtype::u8, {100'000}}});
            std::vector<std::byte> const bytes(100'000);
            out.append(bytes);
            out.finish();
        });
        CHECK(says(text, full.part().string() + ": "));
        CHECK_FALSE(std::filesystem::exists(full.get()));
    }
}

TEST_CASE("safetensors: sizes of the published Qwen3-4B drafts, which no test downloads") {
    auto const dspark = qwen3_4b_draft(true);
    auto const dflash = qwen3_4b_draft(false);
    CHECK(dspark.size() == 64);
    CHECK(dflash.size() == 60);
    CHECK(st::file_size(dspark, {{"format", "pt"}}) == 2'786'273'970);
    CHECK(st::file_size(dflash, {{"format", "pt"}}) == 2'630'685'488);
}

TEST_CASE("safetensors: a header beyond the format's limit is not written", "[long]") {
    st::metadata_map const much{{"k", std::string(st::max_header_bytes, 'x')}};
    CHECK(says(error_text([&] { (void)st::file_size({}, much); }),
               "safetensors::file_size: header of 100000032 bytes, expected 1 .. 100000000"));
}
