// SPDX-License-Identifier: MIT
//
// The header of a .safetensors file: element types, tensors, and the checks that reader (safetensors.hpp) and writer
// (safetensors_writer.hpp) share.
//
// A file is 8 bytes of little-endian header length, a JSON header {"name": {"dtype", "shape", "data_offsets"}, ...} and
// the data, row-major and little-endian. The rules are those of https://github.com/huggingface/safetensors: tensors
// cover the data without holes or overlaps, names are unique. Where the reference reader ignores something, such as
// unknown fields, this one refuses it: such a field is a typo, or a version that means something else.
//
// The header is checked while it is parsed (SAX), not built as a document and walked: duplicate keys are still visible
// then, nesting ends at the first bracket too many, and memory stays in proportion to the file.
#pragma once

#if !__has_include(<nlohmann/json.hpp>)
#error "sureleap/ext/safetensors_header.hpp needs nlohmann/json: install nlohmann-json3-dev and link sureleap::json"
#endif

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace safetensors {

// ---- element types ---------------------------------------------------------------------------------------------

/// In the reference implementation's order, which is rising alignment: it lays tensors out by falling dtype, then name.
// clang-format off
enum class dtype : std::uint8_t {
    boolean, u8, i8, f8_e5m2, f8_e4m3,
    i16, u16, f16, bf16,
    i32, u32, f32,
    f64, i64, u64
};
// clang-format on

namespace detail {

using sureleap::fail_with;

inline constexpr std::array<char const*, 15> dtype_names{
    "BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "F64", "I64", "U64"};
inline constexpr std::array<std::size_t, 15> dtype_sizes{1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 8, 8, 8};

/// Where T stands among the Elements; their number if it does not.
template <class T, class... Elements>
[[nodiscard]] consteval std::size_t index_among() {
    std::size_t index = 0;
    static_cast<void>(((std::is_same_v<T, Elements> || (++index, false)) || ...));
    return index;
}

}  // namespace detail

/// Bytes of an element.
[[nodiscard]] constexpr std::size_t size_of(dtype type) noexcept {
    return detail::dtype_sizes[static_cast<std::size_t>(type)];
}
/// As files spell it: "BF16".
[[nodiscard]] constexpr char const* name_of(dtype type) noexcept {
    return detail::dtype_names[static_cast<std::size_t>(type)];
}

/// The dtype whose elements are objects of type T. There is none for bool: a file may hold a byte that no bool has;
/// read BOOL and the 8-bit floats through tensor::bytes.
template <class T>
inline constexpr dtype dtype_of = [] {
    using none = void;
    constexpr std::size_t index =
        detail::index_among<T, none, std::uint8_t, std::int8_t, none, none, std::int16_t, std::uint16_t, half, bf16,
                            std::int32_t, std::uint32_t, float, double, std::int64_t, std::uint64_t>();
    static_assert(index < detail::dtype_names.size(), "no dtype of safetensors has elements of this type");
    return static_cast<dtype>(index);
}();

// ---- tensors ---------------------------------------------------------------------------------------------------

struct tensor {
    std::string name;
    dtype type = dtype::u8;
    std::vector<std::size_t> shape;      ///< empty: a scalar
    std::span<std::byte const> bytes{};  ///< in the file, with exactly the size that type and shape ask for
};

using metadata_map = std::map<std::string, std::string>;

/// The format's limit.
inline constexpr std::size_t max_header_bytes = 100'000'000;

namespace detail {

/// Text of a file inside a message: without control characters, and short enough not to bury the rest.
[[nodiscard]] inline std::string shortened(std::string_view text) {
    std::size_t length = std::min<std::size_t>(text.size(), 100);
    while (length < text.size() && length > 0 && (text[length] & 0xc0) == 0x80) --length;  // not inside a character
    std::string result(text.substr(0, length));
    for (char& c : result) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    }
    return length < text.size() ? result + "..." : result;
}
[[nodiscard]] inline std::string named(std::string_view name) {
    return "'" + shortened(name) + "'";
}

[[nodiscard]] inline std::string shown(std::span<std::size_t const> shape) {
    std::string text = "[";
    for (std::size_t const dimension : shape.first(std::min<std::size_t>(shape.size(), 8))) {
        text += (text.size() > 1 ? ", " : "") + std::to_string(dimension);
    }
    return text + (shape.size() > 8 ? ", ...]" : "]");
}

/// Bytes that elements of this type and shape take.
[[nodiscard]] inline std::size_t bytes_of(dtype type, std::span<std::size_t const> shape, std::string const& name,
                                          std::string const& source) {
    std::size_t bytes = size_of(type);
    for (std::size_t const dimension : shape) {
        if (dimension != 0 && bytes > std::numeric_limits<std::size_t>::max() / dimension) {
            fail_with(source, ": tensor ", named(name), " of shape ", shown(shape), " and type ", name_of(type),
                      " has more bytes than any memory");
        }
        bytes *= dimension;
    }
    return bytes;
}

struct entry {
    tensor value;
    std::uint64_t begin = 0;  ///< in the data
    std::uint64_t end = 0;
};

struct header {
    std::vector<entry> entries;
    metadata_map metadata;
};

/// Listens to the parse of a header and accepts nothing but the format's grammar.
class header_listener {
public:
    using json = nlohmann::json;

    explicit header_listener(std::string const& source, std::size_t size) : source_(&source), size_(size) {}

    [[nodiscard]] header take() { return std::move(header_); }

    bool null() { wrong("null"); }
    bool boolean(bool value) { wrong(value ? "true" : "false"); }
    bool number_integer(json::number_integer_t value) { wrong(value == 0 ? "-0" : std::to_string(value)); }
    bool number_float(json::number_float_t, json::string_t const& text) { wrong(shortened(text)); }
    bool binary(json::binary_t&) { wrong("binary"); }

    bool number_unsigned(json::number_unsigned_t value) {
        if (place_ == place::shape) {
            if (value > std::numeric_limits<std::size_t>::max()) wrong(std::to_string(value));
            current_.value.shape.push_back(static_cast<std::size_t>(value));
        } else if (place_ == place::offsets && offsets_ < 2) {
            (offsets_++ == 0 ? current_.begin : current_.end) = value;
        } else {
            wrong(place_ == place::offsets ? "more than two numbers" : std::to_string(value));
        }
        return true;
    }

    bool string(json::string_t& text) {
        if (place_ == place::metadata) {
            if (!header_.metadata.emplace(key_, text).second) twice(named("__metadata__") + ": key " + named(key_));
        } else if (place_ == place::entry && key_ == "dtype") {
            auto const known = std::find(dtype_names.begin(), dtype_names.end(), text);
            if (known == dtype_names.end()) wrong(named(text));
            current_.value.type = static_cast<dtype>(known - dtype_names.begin());
        } else {
            wrong("the string " + named(text));
        }
        return true;
    }

    bool key(json::string_t& text) {
        key_ = text;
        if (place_ == place::document) {
            current_ = {};
            current_.value.name = text;
            seen_ = {};
            offsets_ = 0;
            if (text == "__metadata__" && std::exchange(metadata_seen_, true)) twice(named(text));
        } else if (place_ == place::entry) {
            auto const field = std::find(fields.begin(), fields.end(), text);
            if (field == fields.end()) {
                fail_with(*source_, ": tensor ", named(current_.value.name), " has the unknown field ", named(text),
                          ", expected dtype, shape and data_offsets");
            }
            if (std::exchange(seen_[static_cast<std::size_t>(field - fields.begin())], true)) {
                twice("tensor " + named(current_.value.name) + ": field " + named(text));
            }
        }
        return true;
    }

    bool start_object(std::size_t) {
        if (place_ == place::outside) {
            place_ = place::document;
        } else if (place_ == place::document) {
            place_ = key_ == "__metadata__" ? place::metadata : place::entry;
        } else {
            wrong("an object");
        }
        return true;
    }

    bool end_object() {
        if (place_ == place::entry) {
            for (std::size_t i = 0; i < fields.size(); ++i) {
                if (!seen_[i]) {
                    fail_with(*source_, ": tensor ", named(current_.value.name), " has no field '", fields[i], "'");
                }
            }
            header_.entries.push_back(std::move(current_));
        }
        place_ = place_ == place::document ? place::outside : place::document;
        return true;
    }

    bool start_array(std::size_t) {
        if (place_ != place::entry || key_ == "dtype") wrong("an array");
        place_ = key_ == "shape" ? place::shape : place::offsets;
        return true;
    }

    bool end_array() {
        if (place_ == place::offsets && offsets_ != 2) wrong("fewer than two numbers");
        place_ = place::entry;
        return true;
    }

    bool parse_error(std::size_t where, std::string const& token, json::exception const& why) {
        if (why.id == 406) wrong(shortened(token));  // a number that no double holds
        fail_with(*source_, ": the header is not JSON in UTF-8: malformed or truncated at byte ", where, " of ", size_);
    }

private:
    enum class place { outside, document, metadata, entry, shape, offsets };
    static constexpr std::array<char const*, 3> fields{"dtype", "shape", "data_offsets"};

    [[noreturn]] void wrong(std::string const& found) const {
        bool const inside = place_ == place::shape || place_ == place::offsets;
        fail_with(*source_, ": ", subject(), inside ? " holds " : " is ", found, ", expected ", expectation());
    }
    [[nodiscard]] std::string subject() const {
        if (place_ == place::metadata) return "'__metadata__': key " + named(key_);
        if (place_ == place::document && key_ == "__metadata__") return "'__metadata__'";
        std::string const in_tensor = "tensor " + named(current_.value.name);
        return place_ == place::document ? in_tensor : in_tensor + ": field " + named(key_);
    }
    [[nodiscard]] std::string expectation() const {
        std::string const natural = " non-negative integers below 2^";
        if (place_ == place::metadata) return "a string";
        if (place_ == place::document && key_ == "__metadata__") return "an object of strings";
        if (place_ == place::document) return "an object of dtype, shape and data_offsets";
        if (key_ == "shape") return "an array of" + natural + std::to_string(std::numeric_limits<std::size_t>::digits);
        if (key_ == "data_offsets") return "an array of two" + natural + "64";
        std::string known = "one of";
        for (char const* const name : dtype_names) known += std::string(known.size() > 6 ? ", " : " ") + name;
        return known;
    }
    [[noreturn]] void twice(std::string const& what) const { fail_with(*source_, ": ", what, " occurs twice"); }

    std::string const* source_;
    std::size_t size_;
    header header_;
    place place_ = place::outside;
    std::string key_;  ///< the last key, at whatever depth
    entry current_;
    std::array<bool, 3> seen_{};
    std::size_t offsets_ = 0;  ///< numbers of data_offsets so far
    bool metadata_seen_ = false;
};

/// Tensors have the sizes they claim and cover the data exactly: no overlap, no hole, nothing before or behind.
inline void check_layout(std::span<entry const> entries, std::uint64_t data_bytes, std::string const& source) {
    std::vector<entry const*> by_place;
    for (entry const& e : entries) {
        std::string const& name = e.value.name;
        std::size_t const bytes = bytes_of(e.value.type, e.value.shape, name, source);
        if (e.begin > e.end || e.end > data_bytes) {
            fail_with(source, ": tensor ", named(name), " has data_offsets [", e.begin, ", ", e.end,
                      "], expected begin <= end <= ", data_bytes, " (the bytes of data in the file)");
        }
        if (e.end - e.begin != bytes) {
            fail_with(source, ": tensor ", named(name), " has ", e.end - e.begin, " bytes (data_offsets [", e.begin,
                      ", ", e.end, "]), expected ", bytes, " (", name_of(e.value.type), " ", shown(e.value.shape), ")");
        }
        by_place.push_back(&e);
    }
    std::ranges::sort(by_place, {}, [](entry const* e) { return std::pair(e->begin, e->end); });
    std::uint64_t covered = 0;
    for (entry const* e : by_place) {
        if (e->begin != covered) {
            fail_with(source, ": tensor ", named(e->value.name), " begins at byte ", e->begin,
                      " of the data, expected ", covered,
                      e->begin < covered ? " (it overlaps the one before)" : " (no tensor claims the bytes between)");
        }
        covered = e->end;
    }
    if (covered != data_bytes) {
        fail_with(source, ": the file has ", data_bytes, " bytes of data, but its tensors end at byte ", covered);
    }
}

/// For a file of at least 8 bytes. The limit comes before anything is done with the length: it is a stranger's number.
inline void check_header_length(std::uint64_t length, std::size_t file_bytes, std::string const& source) {
    if (length == 0 || length > max_header_bytes || length > file_bytes - 8) {
        fail_with(source, ": header of ", length, " bytes, expected 1 .. ", std::min(max_header_bytes, file_bytes - 8),
                  " (the file has ", file_bytes, ", the format's limit is ", max_header_bytes, ")");
    }
}

/// The tensors of a header that starts at text.front(), sorted by name.
[[nodiscard]] inline header read_header(std::string_view text, std::uint64_t data_bytes, std::string const& source) {
    if (text.empty() || text.front() != '{') fail_with(source, ": the header does not start with '{'");
    // The parser takes a NUL for the end of its input and would not see what follows.
    if (auto const nul = text.find('\0'); nul != std::string_view::npos) {
        fail_with(source, ": the header is not JSON in UTF-8: NUL at byte ", nul + 1, " of ", text.size());
    }
    header_listener listener(source, text.size());
    nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &listener);
    header result = listener.take();
    auto const name = [](entry const& e) -> std::string const& { return e.value.name; };
    std::ranges::sort(result.entries, {}, name);
    if (auto const same = std::ranges::adjacent_find(result.entries, {}, name); same != result.entries.end()) {
        fail_with(source, ": tensor ", named(same->value.name), " occurs twice");
    }
    check_layout(result.entries, data_bytes, source);
    return result;
}

}  // namespace detail

}  // namespace safetensors

SURELEAP_END_NAMESPACE
