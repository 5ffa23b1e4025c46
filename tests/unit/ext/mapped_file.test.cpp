// SPDX-License-Identifier: MIT
//
// The bytes of a file: mapped, read or viewed, kept through a move, and given up by what they were moved from.
#include "support/catch.hpp"
#include "support/error_text.hpp"
#include "support/scratch_folder.hpp"

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include <sys/stat.h>

#include <sureleap/ext/mapped_file.hpp>

using support::error_text;
using sureleap::mapped_file;

namespace fs = std::filesystem;

namespace {

static_assert(std::is_nothrow_move_constructible_v<mapped_file> && std::is_nothrow_move_assignable_v<mapped_file>);
static_assert(!std::is_copy_constructible_v<mapped_file>);

std::string text_of(mapped_file const& file) {
    return {reinterpret_cast<char const*>(file.bytes().data()), file.bytes().size()};
}

using opener = std::function<mapped_file(fs::path const&)>;
opener const openers[] = {&mapped_file::map, &mapped_file::read};

}  // namespace

TEST_CASE("mapped file: bytes and name, mapped or read") {
    support::scratch_folder const folder("mapped");
    // Longer than a page, and not by whole pages.
    std::string text(20'001, '\0');
    for (std::size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * i >> 3);
    fs::path const path = folder.write("some.bytes", text);
    for (opener const& open : openers) {
        auto const file = open(path);
        CHECK(file.name() == path.string());
        CHECK(text_of(file) == text);
        CHECK(open(folder.write("empty", "")).bytes().empty());
    }
}

TEST_CASE("mapped file: bytes stay where they are through a move, and what they were moved from has none") {
    support::scratch_folder const folder("mapped");
    fs::path const path = folder.write("a", "some bytes");
    for (opener const& open : openers) {
        auto first = open(path);
        auto const* const where = first.bytes().data();
        auto second = std::move(first);
        CHECK(second.bytes().data() == where);
        CHECK(first.bytes().empty());
        auto third = open(folder.write("b", "others"));
        third = std::move(second);
        CHECK(third.bytes().data() == where);
        CHECK(text_of(third) == "some bytes");
        CHECK(third.name() == path.string());
        CHECK(second.bytes().empty());
    }
}

TEST_CASE("mapped file: a mapping outlives the name of its file") {
    support::scratch_folder const folder("mapped");
    fs::path const path = folder.write("a", "old");
    auto const file = mapped_file::map(path);
    fs::rename(folder.write("b", "new"), path);
    CHECK(text_of(file) == "old");
    CHECK(text_of(mapped_file::map(path)) == "new");
    fs::remove(path);
    CHECK(text_of(file) == "old");
}

TEST_CASE("mapped file: a view copies nothing") {
    std::string const text = "1234";
    auto const bytes = std::as_bytes(std::span(text));
    auto const file = mapped_file::view(bytes, "memory");
    CHECK(file.name() == "memory");
    CHECK(file.bytes().data() == bytes.data());
    CHECK(file.bytes().size() == 4);
}

TEST_CASE("mapped file: what is no regular file is refused by name") {
    support::scratch_folder const folder("mapped");
    for (opener const& open : openers) {
        auto const refusal = [&](fs::path const& path) { return error_text([&] { (void)open(path); }); };
        CHECK(refusal("no/such.file") == "no/such.file: cannot be opened for reading");
        CHECK(refusal(folder.path) == folder.path.string() + ": cannot be opened for reading");
        fs::path const pipe = folder.path / "pipe";  // opening it would wait for somebody who writes
        REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
        CHECK(refusal(pipe) == pipe.string() + ": cannot be opened for reading");
        fs::remove(pipe);
    }
}
