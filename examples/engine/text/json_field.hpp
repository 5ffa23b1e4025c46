// SPDX-License-Identifier: MIT
//
// A value in a JSON document that knows where it stands, so that whatever is wrong with it can be told in full.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include <sureleap/error.hpp>
#include <sureleap/types.hpp>

#include "utf8.hpp"

namespace engine::text {

using sureleap::token_id;

/// Far above any vocabulary, and small enough for everyone who makes a table of them.
inline constexpr token_id largest_id = (token_id{1} << 24) - 1;

[[nodiscard]] inline bool is_id(nlohmann::json const& value) {
    return value.is_number_unsigned() && value.get<std::uint64_t>() <= static_cast<std::uint64_t>(largest_id);
}

/// For errors: a long text would bury the message, broken characters would break it.
[[nodiscard]] inline std::string shortened(std::string_view text) {
    return text.size() <= 60 ? to_utf8(text) : to_utf8(text.substr(0, 57)) + "...";
}

/// A value in the document together with the way to it, for errors.
class json_field {
public:
    using json = nlohmann::json;

    json_field(json const* value, std::string const& source, std::string path)
        : value_(value), source_(&source), path_(std::move(path)) {}

    [[nodiscard]] json_field operator[](std::string const& key) const {
        if (!required().is_object()) wrong("an object");
        auto const found = value_->find(key);
        return {found == value_->end() ? nullptr : &*found, *source_,
                path_.empty() ? shortened(key) : path_ + "." + shortened(key)};
    }
    /// f(entry) for every one of a list.
    template <class F>
    void each(F const& f) const {
        if (!required().is_array()) wrong("a list");
        for (std::size_t i = 0; i < value_->size(); ++i) {
            f(json_field(&(*value_)[i], *source_, path_ + "[" + std::to_string(i) + "]"));
        }
    }
    [[nodiscard]] json::object_t const& object() const {
        if (!required().is_object()) wrong("an object");
        return value_->get_ref<json::object_t const&>();
    }
    [[nodiscard]] json::array_t const& list() const {
        if (!required().is_array()) wrong("a list");
        return value_->get_ref<json::array_t const&>();
    }
    /// Null is the same as nothing.
    [[nodiscard]] bool present() const noexcept { return value_ != nullptr && !value_->is_null(); }
    [[nodiscard]] std::string const& text() const {
        if (!required().is_string()) wrong("a string");
        return value_->get_ref<std::string const&>();
    }
    [[nodiscard]] bool boolean() const {
        if (!required().is_boolean()) wrong("true or false");
        return value_->get<bool>();
    }
    [[nodiscard]] bool boolean_or(bool fallback) const { return present() ? boolean() : fallback; }
    [[nodiscard]] token_id id() const {
        if (!is_id(required())) wrong("an integer in 0 .. " + std::to_string(largest_id));
        return value_->get<token_id>();
    }

    [[noreturn]] void wrong(std::string const& expected) const {
        sureleap::detail::fail_with(where(), " is ", shown(), ", expected ", expected);
    }
    [[nodiscard]] std::string where() const { return *source_ + ": field '" + path_ + "'"; }

private:
    [[nodiscard]] json const& required() const {
        if (value_ == nullptr) sureleap::detail::fail_with(where(), " is missing");
        return *value_;
    }
    [[nodiscard]] std::string shown() const {
        if (value_ == nullptr) return "absent";
        if (value_->is_object()) return "an object of " + std::to_string(value_->size());
        if (value_->is_array()) return "a list of " + std::to_string(value_->size());
        return text::shortened(value_->dump());
    }

    json const* value_;
    std::string const* source_;
    std::string path_;
};

}  // namespace engine::text
