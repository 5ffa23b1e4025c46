// SPDX-License-Identifier: MIT
//
// How ext/json.hpp reads and writes documents. Reading trusts nothing: a truncated or malformed text, another format or
// version, a missing field, a wrong type or an impossible value is a sureleap::error that names the source, the field
// and the expectation. Types are checked by hand, not by catching what the parser throws, so that -fno-exceptions builds
// get the same diagnosis.
#pragma once

#if !__has_include(<nlohmann/json.hpp>)
#error "sureleap/ext/json.hpp needs nlohmann/json: install nlohmann-json3-dev and link sureleap::json"
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include <sureleap/config.hpp>
#include <sureleap/error.hpp>

SURELEAP_BEGIN_NAMESPACE

namespace detail {

/// A value inside a document together with the way to it, for messages like `f.json: field 'points[2].seconds'
/// ...`.
class json_field {
public:
    json_field(nlohmann::json const& value, std::string const& source, std::string path)
        : value_(&value), source_(&source), path_(std::move(path)) {}

    [[nodiscard]] json_field operator[](char const* key) const {
        std::string const name = path_.empty() ? key : path_ + "." + key;
        if (!value_->is_object()) wrong("an object");
        auto const found = value_->find(key);
        if (found == value_->end()) fail_with(*source_, ": field '", name, "' is missing");
        return {*found, *source_, name};
    }
    [[nodiscard]] std::size_t size() const {
        if (!value_->is_array()) wrong("an array");
        return value_->size();
    }
    [[nodiscard]] json_field operator[](std::size_t i) const {
        return {(*value_)[i], *source_, path_ + "[" + std::to_string(i) + "]"};
    }

    [[nodiscard]] std::string text() const {
        if (!value_->is_string()) wrong("a string");
        return value_->get<std::string>();
    }
    [[nodiscard]] std::size_t natural() const {
        if (!value_->is_number_unsigned()) wrong("a non-negative integer");
        auto const wide = value_->get<std::uint64_t>();
        if (wide > std::numeric_limits<std::size_t>::max()) wrong("an integer that fits this platform");
        return static_cast<std::size_t>(wide);
    }
    [[nodiscard]] double number() const {
        if (!value_->is_number() || !std::isfinite(value_->get<double>())) wrong("a finite number");
        return value_->get<double>();
    }
    [[nodiscard]] bool is_null() const { return value_->is_null(); }

    [[noreturn]] void wrong(char const* expected) const {
        fail_with(*source_, ": field '", path_, "' is ", shortened(), ", expected ", expected);
    }

private:
    [[nodiscard]] std::string shortened() const {
        if (value_->is_object()) return "an object";
        if (value_->is_array()) return "an array";
        // Never throws on text that is no UTF-8; a long string would bury the message.
        std::string shown = value_->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
        if (shown.size() > 60) shown = shown.substr(0, 57) + "...";
        return shown;
    }

    nlohmann::json const* value_;
    std::string const* source_;
    std::string path_;
};

/// Listens to a parse only for the place where it fails.
struct json_fault {
    using json = nlohmann::json;
    std::size_t position = 0;

    bool null() { return true; }
    bool boolean(bool) { return true; }
    bool number_integer(json::number_integer_t) { return true; }
    bool number_unsigned(json::number_unsigned_t) { return true; }
    bool number_float(json::number_float_t, json::string_t const&) { return true; }
    bool string(json::string_t&) { return true; }
    bool binary(json::binary_t&) { return true; }
    bool start_object(std::size_t) { return true; }
    bool key(json::string_t&) { return true; }
    bool end_object() { return true; }
    bool start_array(std::size_t) { return true; }
    bool end_array() { return true; }
    bool parse_error(std::size_t where, std::string const&, nlohmann::detail::exception const&) {
        position = where;
        return false;
    }
};

[[nodiscard]] inline nlohmann::json parse_document(std::string const& text, std::string const& source,
                                                   char const* format, std::size_t version) {
    nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
    if (document.is_discarded()) {
        json_fault fault;
        nlohmann::json::sax_parse(text, &fault);
        fail_with(source, ": malformed or truncated JSON at byte ", fault.position, " of ", text.size(),
                  ", expected a document of format ", format);
    }
    json_field const root(document, source, "");
    if (!document.is_object()) fail_with(source, ": expected an object of format ", format);
    if (root["format"].text() != format) root["format"].wrong(format);
    if (root["version"].natural() != version) root["version"].wrong(std::to_string(version).c_str());
    return document;
}

[[nodiscard]] inline std::string read_text(std::string const& file) {
    std::ifstream in(file, std::ios::binary);
    if (!in) fail_with(file, ": cannot be opened for reading");
    std::string text;
    // By read() and not by iterators: those throw what is no sureleap::error where `file` is a directory.
    for (char some[4096]; in.read(some, sizeof some) || in.gcount() > 0;) {
        text.append(some, static_cast<std::size_t>(in.gcount()));
    }
    if (in.bad()) fail_with(file, ": reading failed");
    return text;
}

inline void write_text(std::string const& file, std::string const& text) {
    std::ofstream out(file, std::ios::binary | std::ios::trunc);
    if (!out) fail_with(file, ": cannot be opened for writing");
    out << text << '\n';
    out.close();
    if (!out) fail_with(file, ": writing failed, the file is incomplete");
}

}  // namespace detail

SURELEAP_END_NAMESPACE
