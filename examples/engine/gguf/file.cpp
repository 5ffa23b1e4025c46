// SPDX-License-Identifier: MIT
#include "file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <utility>

#include <sureleap/core/error.hpp>

#include "../text/utf8.hpp"

namespace engine::gguf {
namespace {

using sureleap::error_text;
using sureleap::fail_with;

static_assert(std::endian::native == std::endian::little, "numbers are copied as they lie in the file");

struct named_type {
    tensor_type type;
    char const* name;
    block_size block;
};
constexpr std::array named_types{
    named_type{tensor_type::f32, "F32", {1, 4}},       named_type{tensor_type::f16, "F16", {1, 2}},
    named_type{tensor_type::q4_0, "Q4_0", {32, 18}},   named_type{tensor_type::q4_1, "Q4_1", {32, 20}},
    named_type{tensor_type::q5_0, "Q5_0", {32, 22}},   named_type{tensor_type::q5_1, "Q5_1", {32, 24}},
    named_type{tensor_type::q8_0, "Q8_0", {32, 34}},   named_type{tensor_type::q2_k, "Q2_K", {256, 84}},
    named_type{tensor_type::q3_k, "Q3_K", {256, 110}}, named_type{tensor_type::q4_k, "Q4_K", {256, 144}},
    named_type{tensor_type::q5_k, "Q5_K", {256, 176}}, named_type{tensor_type::q6_k, "Q6_K", {256, 210}},
    named_type{tensor_type::i64, "I64", {1, 8}},       named_type{tensor_type::bf16, "BF16", {1, 2}},
};

constexpr std::array<char const*, 13> value_names{"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                                  "bool", "string", "array", "u64", "i64", "f64"};
/// 0 where it varies.
constexpr std::array<std::size_t, 13> value_sizes{1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

std::size_t size_of(value_type type) {
    return value_sizes[static_cast<std::size_t>(type)];
}
char const* name_of(value_type type) {
    return value_names[static_cast<std::size_t>(type)];
}

template <class T>
T load(std::byte const* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

std::string_view text_at(std::byte const* at) {
    return {reinterpret_cast<char const*>(at) + 8, static_cast<std::size_t>(load<std::uint64_t>(at))};
}

/// Nothing for a number that is no integer, or one that no int64 holds.
std::optional<std::int64_t> integer_at(value_type type, std::byte const* at) {
    switch (type) {
        case value_type::u8: return load<std::uint8_t>(at);
        case value_type::i8: return load<std::int8_t>(at);
        case value_type::u16: return load<std::uint16_t>(at);
        case value_type::i16: return load<std::int16_t>(at);
        case value_type::u32: return load<std::uint32_t>(at);
        case value_type::i32: return load<std::int32_t>(at);
        case value_type::i64: return load<std::int64_t>(at);
        case value_type::u64: {
            auto const value = load<std::uint64_t>(at);
            if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return {};
            return static_cast<std::int64_t>(value);
        }
        default: return {};
    }
}

bool is_integer(value_type type) {
    using enum value_type;
    return size_of(type) != 0 && type != f32 && type != f64 && type != boolean;
}

std::string in_quotes(std::string_view text) {
    return "'" + printable(text) + "'";
}

std::string shown_number(value_type type, std::byte const* at) {
    if (auto const value = integer_at(type, at)) return error_text(*value);
    if (type == value_type::u64) return error_text(load<std::uint64_t>(at));
    return type == value_type::f32 ? error_text(load<float>(at)) : error_text(load<double>(at));
}

std::string shown(std::span<std::size_t const> shape) {
    std::string text;
    for (std::size_t const extent : shape) text += (text.empty() ? "" : ", ") + error_text(extent);
    return "[" + text + "]";
}

std::string range_text(std::int64_t low, std::int64_t high) {
    return "an integer in " + error_text(low) + " .. " + error_text(high);
}

}  // namespace

std::string printable(std::string_view text) {
    constexpr std::size_t most = 60;
    utf8_stream stream;
    std::string out = stream.push(text.substr(0, most));  // whole characters
    out += text.size() > most ? "..." : stream.finish();
    for (char& c : out) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    }
    return out;
}

std::string name_of(tensor_type type) {
    auto const found = std::ranges::find(named_types, type, &named_type::type);
    return found != named_types.end() ? found->name : "type " + error_text(static_cast<std::uint32_t>(type));
}

block_size block_of(tensor_type type) noexcept {
    auto const found = std::ranges::find(named_types, type, &named_type::type);
    return found != named_types.end() ? found->block : block_size{};
}

// ---- metadata ----------------------------------------------------------------------------------------------------

struct field::stored {
    value_type type;
    value_type entries;     ///< of an array: the type of each
    std::size_t count;      ///< of an array
    std::byte const* data;  ///< a number, a string with its length before it, or the first entry
};

bool field::is_list() const noexcept {
    return present() && value_->type == value_type::array;
}

std::string_view field::text() const {
    if (!present() || value_->type != value_type::string) wrong("a string");
    return text_at(value_->data);
}

bool field::boolean() const {
    bool const is = present() && value_->type == value_type::boolean;
    if (!is || load<std::uint8_t>(value_->data) > 1) wrong("true or false");
    return load<std::uint8_t>(value_->data) == 1;
}

double field::number() const {
    if (present() && value_->type == value_type::f32) return static_cast<double>(load<float>(value_->data));
    if (present() && value_->type == value_type::f64) return load<double>(value_->data);
    if (!present() || !is_integer(value_->type)) wrong("a number");
    auto const value = integer_at(value_->type, value_->data);
    return value ? static_cast<double>(*value) : static_cast<double>(load<std::uint64_t>(value_->data));
}

std::int64_t field::integer(std::int64_t low, std::int64_t high) const {
    auto const value = present() ? integer_at(value_->type, value_->data) : std::nullopt;
    if (!value || *value < low || *value > high) wrong(range_text(low, high));
    return *value;
}

std::size_t field::size(std::size_t low, std::size_t high) const {
    return static_cast<std::size_t>(integer(static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)));
}

std::size_t field::list_size() const {
    if (!is_list()) wrong("a list");
    return value_->count;
}

std::vector<std::string_view> field::texts() const {
    if (!is_list() || value_->entries != value_type::string) wrong("a list of strings");
    std::vector<std::string_view> all;
    all.reserve(value_->count);
    std::byte const* at = value_->data;
    for (std::size_t i = 0; i < value_->count; ++i) {
        all.push_back(text_at(at));
        at += 8 + all.back().size();
    }
    return all;
}

std::vector<std::int64_t> field::integers(std::int64_t low, std::int64_t high) const {
    if (!is_list() || !is_integer(value_->entries)) wrong("a list of integers");
    std::vector<std::int64_t> all;
    all.reserve(value_->count);
    for (std::size_t i = 0; i < value_->count; ++i) {
        std::byte const* const at = value_->data + i * size_of(value_->entries);
        auto const value = integer_at(value_->entries, at);
        if (!value || *value < low || *value > high) {
            fail_with(where(), ", entry ", i, " is ", shown_number(value_->entries, at), ", expected ",
                      range_text(low, high));
        }
        all.push_back(*value);
    }
    return all;
}

std::vector<float> field::reals() const {
    if (!is_list() || value_->entries != value_type::f32) wrong("a list of F32");
    std::vector<float> all(value_->count);
    if (!all.empty()) std::memcpy(all.data(), value_->data, all.size() * sizeof(float));
    return all;
}

void field::wrong(std::string const& expected) const {
    fail_with(where(), " is ", shown(), ", expected ", expected);
}

std::string field::where() const {
    return *source_ + ": key " + in_quotes(key_);
}

std::string field::shown() const {
    if (!present()) return "missing";
    switch (value_->type) {
        case value_type::string: return "\"" + printable(text_at(value_->data)) + "\"";
        case value_type::array: return "a list of " + error_text(value_->count) + " (" + name_of(value_->entries) + ")";
        case value_type::boolean: {
            auto const byte = load<std::uint8_t>(value_->data);
            return byte > 1 ? "the byte " + error_text(byte) + " as a bool" : byte == 1 ? "true" : "false";
        }
        default: return shown_number(value_->type, value_->data);
    }
}

// ---- the header ----------------------------------------------------------------------------------------------------

struct file::contents {
    struct entry {
        std::string_view key;
        field::stored value;
    };

    sureleap::mapped_file source;
    std::vector<entry> entries{};   // sorted by key
    std::vector<tensor> tensors{};  // sorted by name
    std::vector<file> others{};     // of a model that was split, without their tensors

    [[nodiscard]] field at(std::string_view key) const {
        auto const found = std::ranges::lower_bound(entries, key, {}, &entry::key);
        bool const is = found != entries.end() && found->key == key;
        return {source.name(), key, is ? &found->value : nullptr};
    }
};

/// Reads a header from front to back. Nothing of the file is touched, and no memory is taken for it, before it is known
/// to lie inside the file.
class file::header_reader {
public:
    explicit header_reader(contents& out) : out_(out), bytes_(out.source.bytes()) {}

    void read(parts allowed) {
        constexpr std::string_view magic = "GGUF";
        bool const is_long = bytes_.size() >= magic.size();
        if (!is_long || std::memcmp(bytes_.data(), magic.data(), magic.size()) != 0) {
            fail_with(source(), ": does not begin with GGUF: no GGUF file");
        }
        at_ = magic.size();
        subject_ = "the header";
        check_version(number<std::uint32_t>());
        auto const tensors = number<std::uint64_t>();
        auto const keys = number<std::uint64_t>();
        need(keys, least_key, "keys");
        need(tensors, least_tensor, "tensors");
        read_keys(static_cast<std::size_t>(keys));
        if (allowed == parts::one) check_split();
        read_alignment();
        read_tensors(static_cast<std::size_t>(tensors));
        lay_out();
    }

private:
    // The shortest that the format allows: a name of one byte with its length, type, and a value of one byte.
    static constexpr std::size_t least_key = 8 + 1 + 4 + 1;
    // The same with a dimension, its count, type and offset.
    static constexpr std::size_t least_tensor = 8 + 1 + 4 + 8 + 4 + 8;

    struct placed {
        tensor value;
        std::uint64_t begin;  // in the data
        std::uint64_t end;
    };

    [[nodiscard]] std::string const& source() const { return out_.source.name(); }

    // ---- pieces ----------------------------------------------------------------------------------------------------

    /// So many things, of so many bytes each at least, lie ahead.
    void need(std::uint64_t count, std::size_t least_bytes, char const* what) const {
        std::size_t const most = (bytes_.size() - at_) / least_bytes;
        if (count > most) {
            fail_with(source(), ": ", subject_, entry_ ? ", entry " + error_text(*entry_) : "", " has ", count, " ",
                      what, " from byte ", at_, " on, expected at most ", most, ": the file ends at byte ",
                      bytes_.size());
        }
    }

    template <class T>
    [[nodiscard]] T number() {
        need(sizeof(T), 1, "bytes");
        T const value = load<T>(bytes_.data() + at_);
        at_ += sizeof value;
        return value;
    }

    [[nodiscard]] std::string_view text() {
        std::byte const* const begin = bytes_.data() + at_;
        need(number<std::uint64_t>(), 1, "bytes of text");
        std::string_view const value = text_at(begin);
        at_ += value.size();
        return value;
    }

    /// The name of a key or of a tensor, which is the subject of errors from then on.
    [[nodiscard]] std::string_view name(char const* what, std::size_t i, std::size_t of) {
        subject_ = what + (" " + error_text(i + 1)) + " of " + error_text(of);
        std::string_view const name = text();
        if (name.empty()) fail_with(source(), ": ", subject_, " has no name");
        subject_ = what + (" " + in_quotes(name));
        return name;
    }

    void check_version(std::uint32_t version) const {
        if (version == 2 || version == 3) return;
        if (version == 2u << 24 || version == 3u << 24) {
            fail_with(source(), ": has numbers in big-endian order (version ", version >> 24,
                      "), expected little-endian ones");
        }
        fail_with(source(), ": has version ", version, ", expected 2 or 3");
    }

    // ---- keys ------------------------------------------------------------------------------------------------------

    void read_keys(std::size_t count) {
        out_.entries.reserve(count);
        for (std::size_t i = 0; i < count; ++i) {
            std::string_view const key = name("key", i, count);
            out_.entries.push_back({key, value()});
        }
        std::ranges::sort(out_.entries, {}, &contents::entry::key);
        auto const twice = std::ranges::adjacent_find(out_.entries, {}, &contents::entry::key);
        if (twice != out_.entries.end()) fail_with(source(), ": key ", in_quotes(twice->key), " occurs twice");
    }

    [[nodiscard]] field::stored value() {
        value_type const type = known_type("a value");
        if (type == value_type::array) return array();
        field::stored const result{type, type, 1, bytes_.data() + at_};
        skip(type);
        return result;
    }

    [[nodiscard]] field::stored array() {
        value_type const entries = known_type("entries");
        if (entries == value_type::array) {
            fail_with(source(), ": ", subject_, " is a list of lists, expected one of numbers or strings");
        }
        auto const count = number<std::uint64_t>();
        std::size_t const each = size_of(entries);
        need(count, each != 0 ? each : 8, "entries");
        field::stored const result{value_type::array, entries, static_cast<std::size_t>(count), bytes_.data() + at_};
        if (each != 0) {
            at_ += result.count * each;
        } else {
            for (std::size_t i = 0; i < result.count; ++i) {
                entry_ = i;
                skip(entries);
            }
            entry_.reset();
        }
        return result;
    }

    [[nodiscard]] value_type known_type(char const* of) {
        auto const type = number<std::uint32_t>();
        if (type >= value_names.size()) {
            fail_with(source(), ": ", subject_, " has ", of, " of type ", type, ", expected a type in 0 .. ",
                      value_names.size() - 1);
        }
        return static_cast<value_type>(type);
    }

    void skip(value_type type) {
        if (type == value_type::string) {
            static_cast<void>(text());
            return;
        }
        need(size_of(type), 1, "bytes");
        at_ += size_of(type);
    }

    void check_split() const {
        field const parts = out_.at("split.count");
        if (parts.present() && parts.integer(0, std::numeric_limits<std::uint16_t>::max()) > 1) {
            parts.wrong("at most 1: the rest of the model is in other files");
        }
    }

    void read_alignment() {
        field const alignment = out_.at("general.alignment");
        if (!alignment.present()) return;
        alignment_ = alignment.size(1, std::size_t{1} << 31);
        if (!std::has_single_bit(alignment_)) alignment.wrong("a power of two");
    }

    // ---- tensors ---------------------------------------------------------------------------------------------------

    void read_tensors(std::size_t count) {
        need(count, least_tensor, "tensors");
        tensors_.reserve(count);
        for (std::size_t i = 0; i < count; ++i) {
            tensor t;
            t.name = name("tensor", i, count);
            t.shape = shape();
            t.type = static_cast<tensor_type>(number<std::uint32_t>());
            auto const begin = number<std::uint64_t>();
            if (begin % alignment_ != 0) {
                fail_with(source(), ": ", subject_, " begins at byte ", begin, " of the data, expected a multiple of ",
                          alignment_);
            }
            tensors_.push_back({std::move(t), begin, begin});
        }
        std::ranges::sort(tensors_, {}, [](placed const& t) -> std::string const& { return t.value.name; });
        auto const twice = std::ranges::adjacent_find(
            tensors_, [](placed const& a, placed const& b) { return a.value.name == b.value.name; });
        if (twice != tensors_.end()) fail_with(source(), ": tensor ", in_quotes(twice->value.name), " occurs twice");
    }

    [[nodiscard]] std::vector<std::size_t> shape() {
        auto const dimensions = number<std::uint32_t>();
        if (dimensions < 1 || dimensions > 4) {
            fail_with(source(), ": ", subject_, " has ", dimensions, " dimensions, expected 1 .. 4");
        }
        std::vector<std::size_t> shape(dimensions);
        std::uint64_t product = 1;
        for (std::size_t i = dimensions; i-- > 0;) {
            auto const extent = number<std::uint64_t>();
            if (extent == 0) fail_with(source(), ": ", subject_, " has a dimension of 0, expected at least 1");
            // So the number of its bytes does not overflow, whatever its type.
            if (extent > most_elements / product) {
                fail_with(source(), ": ", subject_, " has more than 2^48 elements, which no memory holds");
            }
            product *= extent;
            shape[i] = static_cast<std::size_t>(extent);
        }
        return shape;
    }
    static constexpr std::uint64_t most_elements = std::uint64_t{1} << 48;

    /// Where each tensor lies, now that it is known where the header ends.
    void lay_out() {
        if (tensors_.empty()) return;
        std::size_t const padding = (alignment_ - at_ % alignment_) % alignment_;
        subject_ = "the header";
        need(padding, 1, "bytes of padding");
        auto const data = bytes_.subspan(at_ + padding);
        for (placed& t : tensors_) {
            std::uint64_t const size = size_in_file(t.value);
            if (t.begin > data.size() || size > data.size() - t.begin) {
                fail_with(source(), ": tensor ", in_quotes(t.value.name), " has ", size, " bytes from byte ", t.begin,
                          " of the data on, expected to end at byte ", data.size(), " at the latest: the file does");
            }
            t.end = t.begin + size;
            t.value.file = &source();
            t.value.offset = at_ + padding + static_cast<std::size_t>(t.begin);
            if (block_of(t.value.type).bytes != 0) {
                t.value.bytes = data.subspan(static_cast<std::size_t>(t.begin), static_cast<std::size_t>(size));
            }
        }
        check_overlap();
        out_.tensors.reserve(tensors_.size());
        for (placed& t : tensors_) out_.tensors.push_back(std::move(t.value));
    }

    /// A type that is not listed takes one byte at least, so two of them cannot share a place.
    [[nodiscard]] std::uint64_t size_in_file(tensor const& t) const {
        block_size const block = block_of(t.type);
        if (block.bytes == 0) return 1;
        if (t.shape.back() % block.elements != 0) {
            fail_with(source(), ": tensor ", in_quotes(t.name), " of type ", name_of(t.type), " is ", shown(t.shape),
                      ", expected rows of a multiple of ", block.elements, " elements");
        }
        std::uint64_t elements = 1;
        for (std::size_t const extent : t.shape) elements *= extent;
        return elements / block.elements * block.bytes;
    }

    void check_overlap() const {
        std::vector<placed const*> by_place;
        by_place.reserve(tensors_.size());
        for (placed const& t : tensors_) by_place.push_back(&t);
        std::ranges::sort(by_place, {}, &placed::begin);
        for (std::size_t i = 1; i < by_place.size(); ++i) {
            placed const& before = *by_place[i - 1];
            placed const& after = *by_place[i];
            if (after.begin < before.end) {
                fail_with(source(), ": tensor ", in_quotes(after.value.name), " begins at byte ", after.begin,
                          " of the data, expected at least ", before.end, ": it overlaps tensor ",
                          in_quotes(before.value.name));
            }
        }
    }

    contents& out_;
    std::span<std::byte const> bytes_;
    std::size_t at_ = 0;
    std::string subject_;               // what is being read, for errors
    std::optional<std::size_t> entry_;  // of an array that is being read
    std::size_t alignment_ = 32;
    std::vector<placed> tensors_;
};

// ---- files ---------------------------------------------------------------------------------------------------------

file::file(sureleap::mapped_file source, parts allowed) : contents_(std::make_unique<contents>(std::move(source))) {
    header_reader(*contents_).read(allowed);
}
file::~file() = default;
file::file(file&& other) noexcept = default;
file& file::operator=(file&& other) noexcept = default;

file file::map(std::filesystem::path const& path) {
    file first(sureleap::mapped_file::map(path), parts::several);
    first.join_parts(path);
    return first;
}
file file::view(std::span<std::byte const> bytes, std::string name) {
    return file(sureleap::mapped_file::view(bytes, std::move(name)), parts::one);
}

void file::join_parts(std::filesystem::path const& path) {
    constexpr std::int64_t most = 65535;
    auto& all = contents_->tensors;
    field const count_key = contents_->at("split.count");
    std::int64_t const count = count_key.present() ? count_key.integer(0, most) : 0;
    if (count <= 1) return;
    if (field const number = contents_->at("split.no"); number.integer(0, count - 1) != 0) {
        number.wrong("0: open the first of " + error_text(count) + " files, which has the metadata");
    }
    auto const suffix = [&](std::int64_t part) {
        char text[32];
        std::snprintf(text, sizeof text, "-%05d-of-%05d.gguf", static_cast<int>(part + 1), static_cast<int>(count));
        return std::string(text);
    };
    std::string const file_name = path.filename().string();
    if (!file_name.ends_with(suffix(0))) {
        fail_with(name(), ": is the first of ", count, " files, expected a name that ends with ", suffix(0));
    }
    std::string const stem = file_name.substr(0, file_name.size() - suffix(0).size());
    contents_->others.reserve(static_cast<std::size_t>(count - 1));
    for (std::int64_t part = 1; part < count; ++part) {
        auto const beside = path.parent_path() / (stem + suffix(part));
        file other(sureleap::mapped_file::map(beside), parts::several);
        if (field const number = other["split.no"]; number.integer(0, most) != part) {
            number.wrong(error_text(part) + ", as in the file's name");
        }
        if (field const same = other["split.count"]; same.integer(0, most) != count) {
            same.wrong(error_text(count) + ", as in " + name());
        }
        std::ranges::move(other.contents_->tensors, std::back_inserter(all));
        other.contents_->tensors.clear();
        contents_->others.push_back(std::move(other));
    }
    std::ranges::sort(all, {}, &tensor::name);
    auto const twice = std::ranges::adjacent_find(all, {}, &tensor::name);
    if (twice != all.end()) {
        fail_with(*twice->file, ": tensor ", in_quotes(twice->name), " is in ", *std::next(twice)->file, " as well");
    }
    if (field const stated = contents_->at("split.tensors.count"); stated.present()) {
        auto const found = static_cast<std::int64_t>(all.size());
        if (stated.integer(0, std::numeric_limits<std::int64_t>::max()) != found) {
            stated.wrong(error_text(found) + ", the tensors of all files");
        }
    }
}

file::contents const& file::get() const noexcept {
    static contents const nothing{sureleap::mapped_file::view({}, "")};
    return contents_ ? *contents_ : nothing;
}

std::string const& file::name() const noexcept {
    return get().source.name();
}
std::span<std::byte const> file::bytes() const noexcept {
    return get().source.bytes();
}

field file::operator[](std::string_view key) const {
    return get().at(key);
}

std::vector<std::string_view> file::keys() const {
    std::vector<std::string_view> all;
    all.reserve(get().entries.size());
    for (contents::entry const& e : get().entries) all.push_back(e.key);
    return all;
}

std::span<tensor const> file::tensors() const noexcept {
    return get().tensors;
}

tensor const* file::find(std::string_view name) const noexcept {
    auto const& all = get().tensors;
    auto const at = std::ranges::lower_bound(all, name, {}, [](tensor const& t) { return std::string_view(t.name); });
    return at != all.end() && at->name == name ? &*at : nullptr;
}

tensor const& file::at(std::string_view name) const {
    tensor const* const found = find(name);
    if (found == nullptr) fail_with(this->name(), ": no tensor ", in_quotes(name), " among ", tensors().size());
    return *found;
}

}  // namespace engine::gguf
