// SPDX-License-Identifier: MIT
#include "checkpoint.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

namespace engine {
namespace {

using sureleap::error_text;
using sureleap::fail_with;
using sureleap::safetensors::dtype;

std::string shown(std::span<std::size_t const> shape) {
    std::string text;
    for (std::size_t const extent : shape) text += (text.empty() ? "" : ", ") + error_text(extent);
    return "[" + text + "]";
}

bool present(std::filesystem::path const& path) {
    std::error_code unreadable;
    return std::filesystem::exists(path, unreadable);
}

std::optional<storage> storage_of(dtype type) noexcept {
    switch (type) {
        case dtype::bf16: return storage::bf16;
        case dtype::f16: return storage::f16;
        case dtype::f32: return storage::f32;
        case dtype::f64: return storage::f64;
        default: return std::nullopt;
    }
}

std::size_t integer_bytes_of(dtype type) noexcept {
    return type == dtype::i32 ? 4 : type == dtype::i64 ? 8 : 0;
}

/// values[i] = the i-th stored number. Copies bytes, so it does not care how they are aligned.
template <class Stored, class Real>
void convert(std::byte const* bytes, std::vector<Real>& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        Stored stored;
        std::memcpy(&stored, bytes + i * sizeof stored, sizeof stored);
        values[i] = static_cast<Real>(sureleap::load(stored));
    }
}

}  // namespace

checkpoint::checkpoint(std::filesystem::path const& folder, model_config config)
    : config_(std::move(config)), folder_(folder) {
    using sureleap::safetensors::file;
    std::filesystem::path const single = folder / "model.safetensors";
    std::filesystem::path const index_file = folder / "model.safetensors.index.json";
    if (present(single)) {
        files_.push_back(file::map(single));
        bytes_ = files_[0].bytes().size();
        for (auto const& t : files_[0].tensors()) add(t.name, 0);
        return;
    }
    if (!present(index_file)) {
        fail_with(folder.string(), ": has no weights, expected model.safetensors or model.safetensors.index.json");
    }
    std::string const source = index_file.string();
    shard_index const index = parse_shard_index(read_text(index_file), source);
    std::map<std::string_view, std::size_t> opened;
    for (auto const& [name, shard] : index) {
        auto const [at, is_new] = opened.emplace(shard, files_.size());
        if (is_new) {
            if (!present(folder / shard)) {
                fail_with(source, ": tensor '", name, "' is listed for '", shard, "', but there is no such file");
            }
            files_.push_back(file::map(folder / shard));
            bytes_ += files_.back().bytes().size();
        }
        if (files_[at->second].find(name) == nullptr) {
            fail_with(source, ": tensor '", name, "' is listed for '", shard, "', which does not have it");
        }
        add(name, at->second);
    }
    for (auto const& [shard, i] : opened) {
        for (auto const& t : files_[i].tensors()) {
            auto const listed = index.find(t.name);
            if (listed != index.end() && listed->second != shard) {
                fail_with(source, ": tensor '", t.name, "' is listed for '", listed->second, "', but '",
                          std::string(shard), "' has it as well");
            }
        }
    }
}

checkpoint checkpoint::from_files(model_config config, std::vector<sureleap::safetensors::file> files,
                                  std::shared_ptr<void const> owner) {
    if (files.empty()) fail_with("checkpoint: no file given, expected at least one");
    checkpoint c;
    c.config_ = std::move(config);
    c.folder_ = files[0].name();
    c.files_ = std::move(files);
    c.owner_ = std::move(owner);
    for (std::size_t i = 0; i < c.files_.size(); ++i) {
        c.bytes_ += c.files_[i].bytes().size();
        for (auto const& t : c.files_[i].tensors()) {
            if (auto const twice = c.tensors_.find(t.name); twice != c.tensors_.end()) {
                fail_with(c.files_[i].name(), ": tensor '", t.name, "' is in '", twice->second.file, "' as well");
            }
            c.add(t.name, i);
        }
    }
    return c;
}

checkpoint checkpoint::from_tensors(model_config config, std::string source, std::vector<stored_tensor> tensors,
                                    std::size_t bytes, std::shared_ptr<void const> owner) {
    checkpoint c;
    c.config_ = std::move(config);
    c.folder_ = std::move(source);
    c.owner_ = std::move(owner);
    c.bytes_ = bytes;
    for (stored_tensor& t : tensors) c.tensors_.emplace(t.name, std::move(t));
    return c;
}

checkpoint checkpoint::zeroed() && {
    auto const bytes_of_tensor = [](stored_tensor const& t) {
        if (!t.type || t.shape.empty()) return std::size_t{0};
        std::size_t rows = 1;
        for (std::size_t i = 0; i + 1 < t.shape.size(); ++i) rows *= t.shape[i];
        std::size_t const bytes = weight{nullptr, *t.type, rows, t.shape.back()}.bytes();
        return (bytes + 63) / 64 * 64;
    };
    struct memory {
        std::vector<std::byte> zeros;
        std::shared_ptr<void const> before;
    };
    std::size_t all = 64;  // room to begin on a cache line
    for (auto const& [_, t] : tensors_) all += bytes_of_tensor(t);
    auto const kept = std::make_shared<memory>(std::vector<std::byte>(all), owner_);
    auto const address = std::bit_cast<std::uintptr_t>(kept->zeros.data());
    std::byte const* at = kept->zeros.data() + (64 - address % 64) % 64;
    for (auto& [_, t] : tensors_) {
        if (std::size_t const bytes = bytes_of_tensor(t); bytes > 0) {
            t.data = at;
            at += bytes;
        }
    }
    owner_ = kept;
    return std::move(*this);
}

void checkpoint::add(std::string const& name, std::size_t file) {
    auto const& of = files_[file];
    auto const& t = *of.find(name);
    tensors_.emplace(name, stored_tensor{.name = name,
                                         .file = of.name(),
                                         .own_name = name,
                                         .shape = {t.shape.begin(), t.shape.end()},
                                         .type = storage_of(t.type),
                                         .integer_bytes = integer_bytes_of(t.type),
                                         .type_name = name_of(t.type),
                                         .data = t.bytes.data(),
                                         .offset = t.bytes.data() - of.bytes().data()});
}

bool checkpoint::contains(std::string_view name) const {
    return tensors_.contains(name);
}

stored_tensor const& checkpoint::at(std::string_view name) const {
    auto const found = tensors_.find(name);
    if (found != tensors_.end()) return found->second;
    if (files_.size() == 1) static_cast<void>(files_[0].at(name));  // fails, and suggests a similar name
    fail_with(folder_.string(), ": no tensor '", std::string(name), "' among ", tensors_.size(), " in ",
              std::max<std::size_t>(files_.size(), 1), " files");
}

void checkpoint::refuse(stored_tensor const& found, std::string const& is, std::string const& expected) {
    fail_with(found.file, ": tensor '", found.own_name, "' ", is, ", expected ", expected);
}

storage checkpoint::check(stored_tensor const& found, std::span<std::size_t const> shape) const {
    if (!std::ranges::equal(found.shape, shape)) refuse(found, "is " + shown(found.shape), shown(shape));
    if (!found.type) refuse(found, "is " + found.type_name, "BF16, F16, F32 or F64");
    return *found.type;
}

weight checkpoint::in_place(stored_tensor const& found, storage type, std::size_t rows, std::size_t cols) const {
    weight const w{found.data, type, rows, cols, config_.products};
    std::size_t const alignment = is_packed(type) ? 1 : bytes_of(type);
    if (std::bit_cast<std::uintptr_t>(w.data) % alignment != 0) {
        refuse(found, "begins at byte " + error_text(found.offset) + " of the file",
               "an address that is a multiple of " + error_text(alignment) +
                   ": write the file anew with tensors of larger elements first");
    }
    return w;
}

weight checkpoint::matrix(std::string_view name, std::size_t rows, std::size_t cols) const {
    stored_tensor const& found = at(name);
    return in_place(found, check(found, std::array{rows, cols}), rows, cols);
}

weight checkpoint::row(std::string_view name, std::size_t size) const {
    stored_tensor const& found = at(name);
    return in_place(found, check(found, std::array{size}), 1, size);
}

template <class Real>
std::vector<Real> checkpoint::vector(std::string_view name, std::size_t size) const {
    stored_tensor const& found = at(name);
    storage const type = check(found, std::array{size});
    std::vector<Real> values(size);
    switch (type) {
        case storage::bf16: convert<sureleap::bf16>(found.data, values); break;
        case storage::f16: convert<sureleap::half>(found.data, values); break;
        case storage::f32: convert<float>(found.data, values); break;
        case storage::f64: convert<double>(found.data, values); break;
        default: refuse(found, "is " + found.type_name, "BF16, F16, F32 or F64");
    }
    for (std::size_t i = 0; i < size; ++i) {
        if (!std::isfinite(values[i]))
            refuse(found, "has " + error_text(values[i]) + " at " + error_text(i), "finite numbers");
    }
    return values;
}

template std::vector<float> checkpoint::vector<float>(std::string_view, std::size_t) const;
template std::vector<double> checkpoint::vector<double>(std::string_view, std::size_t) const;

std::size_t checkpoint::rows_of(std::string_view name) const {
    stored_tensor const& found = at(name);
    if (found.shape.empty()) refuse(found, "is a number", "rows");
    return found.shape.front();
}

std::vector<std::int64_t> checkpoint::integers(std::string_view name, std::size_t size) const {
    stored_tensor const& found = at(name);
    if (found.integer_bytes == 0) refuse(found, "is " + found.type_name, "I32 or I64");
    if (!std::ranges::equal(found.shape, std::array{size}))
        refuse(found, "is " + shown(found.shape), shown(std::array{size}));
    std::vector<std::int64_t> values(size);
    for (std::size_t i = 0; i < size; ++i) {
        std::byte const* const from = found.data + i * found.integer_bytes;
        std::int32_t narrow;
        if (found.integer_bytes == sizeof narrow) {
            std::memcpy(&narrow, from, sizeof narrow);
            values[i] = narrow;
        } else {
            std::memcpy(&values[i], from, sizeof values[i]);
        }
    }
    return values;
}

std::vector<std::string> checkpoint::names() const {
    std::vector<std::string> names;
    names.reserve(tensors_.size());
    for (auto const& [name, _] : tensors_) names.push_back(name);
    return names;
}

}  // namespace engine
