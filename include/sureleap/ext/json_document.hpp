// SPDX-License-Identifier: MIT
//
// How ext/json.hpp reads and writes documents. Reading trusts nothing. It rejects a truncated or malformed text,
// another format or version, a missing field, a key that occurs twice, a wrong type and an impossible value. The
// sureleap::error names the source, the field and the expectation. Types are checked by hand, not by catching what the
// parser throws, so that -fno-exceptions builds get the same diagnosis.
#pragma once

#if !__has_include(<nlohmann/json.hpp>)
#error "sureleap/ext/json.hpp needs nlohmann/json: install nlohmann-json3-dev and link sureleap::json"
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <sureleap/core/config.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/cost/sample.hpp>

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
    /// Of what may be left out.
    [[nodiscard]] bool has(char const* key) const { return value_->is_object() && value_->contains(key); }
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
    /// How many there are of something: counts may be added up without overflow.
    [[nodiscard]] std::size_t count() const {
        std::size_t const n = natural();
        if (n > most_tokens) wrong(most_tokens_text);
        return n;
    }
    [[nodiscard]] double number() const {
        if (!value_->is_number() || !std::isfinite(value_->get<double>())) wrong("a finite number");
        return value_->get<double>();
    }
    /// `expected` says what the bounds are.
    [[nodiscard]] double number_within(double low, double high, char const* expected) const {
        double const x = number();
        if (!(x >= low && x <= high)) wrong(expected);
        return x;
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

/// Follows a parse for what the finished document does not show: where a text is malformed; a key that occurs twice in
/// an object, of which nlohmann::json keeps the last value; a number that no double holds; brackets nested too deep.
class json_listener {
    using json = nlohmann::json;

public:
    json_listener(std::string const& source, std::size_t size, char const* format)
        : source_(&source), size_(size), format_(format) {}

    bool null() { return next(); }
    bool boolean(bool) { return next(); }
    bool number_integer(json::number_integer_t) { return next(); }
    bool number_unsigned(json::number_unsigned_t) { return next(); }
    bool number_float(json::number_float_t, json::string_t const&) { return next(); }
    bool string(json::string_t&) { return next(); }
    bool binary(json::binary_t&) { return next(); }

    bool start_object(std::size_t) { return open(false); }
    bool start_array(std::size_t) { return open(true); }
    bool end_object() { return close(); }
    bool end_array() { return close(); }
    bool key(json::string_t& name) {
        bracket& here = open_.back();
        here.key = name;
        if (!here.keys.insert(name).second) fail_with(*source_, field(), " occurs twice, expected each key once");
        return true;
    }
    bool parse_error(std::size_t where, std::string const& token, json::exception const& why) {
        if (why.id == 406) {
            fail_with(*source_, ": malformed JSON", field(), " is ", token, ", expected a number that a double holds");
        }
        malformed(where);
    }

    [[noreturn]] void malformed(std::size_t where) const {
        fail_with(*source_, ": malformed or truncated JSON at byte ", where, " of ", size_,
                  ", expected a document of format ", format_);
    }

private:
    static constexpr std::size_t deepest = 64;

    struct bracket {
        bool is_array = false;
        std::size_t index = 0;  ///< of the value that comes, in an array
        std::string key{};      ///< the last one, in an object
        std::set<std::string> keys{};
    };

    bool next() {
        if (!open_.empty()) ++open_.back().index;
        return true;
    }
    bool open(bool is_array) {
        if (open_.size() == deepest) {
            fail_with(*source_, field(), " is nested deeper than ", deepest, ", expected a document of format ",
                      format_);
        }
        open_.push_back({.is_array = is_array});
        return true;
    }
    bool close() {
        open_.pop_back();
        return next();
    }
    /// The way to where the parse stands.
    [[nodiscard]] std::string field() const {
        std::string path;
        for (bracket const& b : open_) {
            if (b.is_array) {
                path += "[" + std::to_string(b.index) + "]";
            } else {
                path += (path.empty() ? "" : ".") + b.key;
            }
        }
        return ": field '" + path + "'";
    }

    std::string const* source_;
    std::size_t size_;
    char const* format_;
    std::vector<bracket> open_{};
};

[[nodiscard]] inline nlohmann::json parse_document(std::string const& text, std::string const& source,
                                                   char const* format, std::size_t version) {
    json_listener listener(source, text.size(), format);
    // The parser takes a NUL for the end of its input and would not see what follows.
    if (auto const nul = text.find('\0'); nul != std::string::npos) listener.malformed(nul + 1);
    nlohmann::json::sax_parse(text, &listener);
    nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
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
