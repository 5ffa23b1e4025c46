// SPDX-License-Identifier: MIT
//
// A value in a JSON document that knows where it stands, so that whatever is wrong with it can be told in full:
//
//   c.json: field 'rope_parameters.rope_type' is "yarn", expected "default", the only one that is supported
//
// Types are checked by hand, not by catching what the parser throws: its messages name neither the file nor the field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <sureleap/core/error.hpp>

#include "text/utf8.hpp"

namespace engine {

/// A text as errors show it: a long one would bury the message, and half a character at the cut break it.
[[nodiscard]] inline std::string shortened(std::string_view text) {
    if (text.size() <= 60) return std::string(text);
    std::size_t end = 57;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    return std::string(text.substr(0, end)) + "...";
}

/// A value of a document, or its absence, together with the way to it. A key that stands twice counts as its last
/// value, which is how Python reads it. The document must outlive its fields, and so must the source.
class json_field {
    using json = nlohmann::json;

public:
    /// The whole document; `source` names it in errors.
    json_field(json const& document, std::string const& source) : json_field(&document, source, {}) {}

    [[nodiscard]] json_field operator[](std::string const& key) const {
        auto const& members = object();
        auto const found = members.find(key);
        std::string const name = shortened(key);
        return {found == members.end() ? nullptr : &found->second, *source_, path_.empty() ? name : path_ + "." + name};
    }
    [[nodiscard]] json_field operator[](std::size_t i) const {
        return {&(*value_)[i], *source_, path_ + "[" + std::to_string(i) + "]"};
    }

    /// Python writes None for what is not set, so null is the same as nothing.
    [[nodiscard]] bool present() const { return value_ != nullptr && !value_->is_null(); }
    /// Null is something here.
    [[nodiscard]] bool exists() const { return value_ != nullptr; }
    [[nodiscard]] bool is_list() const { return is(&json::is_array); }

    /// Members and entries as they are: for tables too long for a field each.
    [[nodiscard]] json::object_t const& object() const {
        if (!is(&json::is_object)) wrong("an object");
        return value_->get_ref<json::object_t const&>();
    }
    [[nodiscard]] json::array_t const& list() const {
        if (!is_list()) wrong("a list");
        return value_->get_ref<json::array_t const&>();
    }
    [[nodiscard]] std::size_t list_size() const { return list().size(); }
    /// f(entry) for every one of a list.
    template <class F>
    void each(F const& f) const {
        for (std::size_t i = 0; i < list_size(); ++i) f((*this)[i]);
    }
    /// A part of the document.
    [[nodiscard]] std::string const& text() const {
        if (!is(&json::is_string)) wrong("a string");
        return value_->get_ref<std::string const&>();
    }
    [[nodiscard]] bool boolean() const {
        if (!is(&json::is_boolean)) wrong("true or false");
        return value_->get<bool>();
    }
    [[nodiscard]] bool boolean_or(bool fallback) const { return present() ? boolean() : fallback; }
    /// An integer will do.
    [[nodiscard]] double number() const {
        if (!is(&json::is_number)) wrong("a number");
        return value_->get<double>();
    }
    /// 8.0 is no integer: it would stand for a file that something has rewritten.
    [[nodiscard]] std::int64_t integer(std::int64_t low, std::int64_t high) const {
        bool const fits = is(&json::is_number_unsigned)
                              ? value_->get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max()
                              : is(&json::is_number_integer);
        if (!fits || value_->get<std::int64_t>() < low || value_->get<std::int64_t>() > high) {
            wrong("an integer in " + std::to_string(low) + " .. " + std::to_string(high));
        }
        return value_->get<std::int64_t>();
    }
    [[nodiscard]] std::size_t size(std::size_t low, std::size_t high) const {
        return static_cast<std::size_t>(integer(static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)));
    }

    [[noreturn]] void wrong(std::string const& expected) const {
        sureleap::fail_with(where(), " is ", shown(), ", expected ", expected);
    }
    [[nodiscard]] std::string where() const { return *source_ + ": field '" + path_ + "'"; }

private:
    json_field(json const* value, std::string const& source, std::string path)
        : value_(value), source_(&source), path_(std::move(path)) {}

    [[nodiscard]] bool is(bool (json::*type)() const noexcept) const { return value_ != nullptr && (value_->*type)(); }

    [[nodiscard]] std::string shown() const {
        if (value_ == nullptr) return "missing";
        if (value_->is_object()) return "an object of " + std::to_string(value_->size());
        if (value_->is_array()) return "a list of " + std::to_string(value_->size());
        return shortened(value_->dump());
    }

    json const* value_;
    std::string const* source_;
    std::string path_;
};

/// An object; anything else is an error that names `source`.
[[nodiscard]] inline nlohmann::json parse_json_object(std::string_view text, std::string const& source) {
    nlohmann::json document;
    try {
        document = nlohmann::json::parse(text);
    } catch (nlohmann::json::exception const& e) {
        std::string why = e.what();  // "[json.exception.parse_error.101] parse error at line 1, column 18: ..."
        why.erase(0, why.find("] ") == why.npos ? 0 : why.find("] ") + 2);
        // It quotes the text, which may be anything.
        sureleap::fail_with(source, ": no valid JSON in ", text.size(), " bytes: ", to_utf8(why.substr(0, 200)));
    }
    if (!document.is_object()) {
        sureleap::fail_with(source, ": expected a JSON object, found ", document.type_name());
    }
    return document;
}

}  // namespace engine
