// SPDX-License-Identifier: MIT
//
// A Hugging Face folder as a model sees it: the configuration, and tensors by name.
//
// Files are mapped, not read. Weights stay in the page cache in the format they were saved in. The kernels convert them
// where they use them. Two processes with the same model share its memory. Only vectors (norms and biases) are
// converted to the model's numbers at set-up: they are small, and every position reads them.
//
// Nothing is looked up by guess: the caller states the shape that follows from the configuration, and a tensor that
// differs is an error that names both. Tensors that nobody asks for are never looked at.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/ext/safetensors.hpp>

#include "config.hpp"
#include "kernels.hpp"

namespace engine {

/// Move-only; what it hands out points into its files and is valid while it lives, moves included.
class checkpoint {
public:
    /// config.json with model.safetensors, or else with the shards that model.safetensors.index.json lists. (If both
    /// are there the single file counts, as in transformers.) Index and shards must agree: a listed tensor that its
    /// shard lacks, or that another shard has as well, comes from mixing two downloads and is an error. A tensor that
    /// the index does not list is not there: the index says what belongs to the model.
    explicit checkpoint(std::filesystem::path const& folder) : checkpoint(folder, load_config(folder)) {}
    /// The same under another configuration than its config.json says: a shorter block, say.
    checkpoint(std::filesystem::path const& folder, model_config config);

    /// From files somebody opened, for models that exist in memory. `owner` is kept alive with the checkpoint: the
    /// bytes under a view.
    [[nodiscard]] static checkpoint from_files(model_config config, std::vector<sureleap::safetensors::file> files,
                                               std::shared_ptr<void const> owner = nullptr);

    [[nodiscard]] model_config const& config() const noexcept { return config_; }
    /// For a model from memory the name of its first file, which is no path.
    [[nodiscard]] std::filesystem::path const& folder() const noexcept { return folder_; }

    /// Names are those in the files: a target's begin with `model.`, but for lm_head; a drafter's have no prefix.
    [[nodiscard]] bool contains(std::string_view name) const;

    /// A tensor [rows, cols] of BF16, F16, F32 or F64, where it lies.
    [[nodiscard]] weight matrix(std::string_view name, std::size_t rows, std::size_t cols) const;
    /// A tensor [size] of such a type, where it lies, as a matrix of one row.
    [[nodiscard]] weight row(std::string_view name, std::size_t size) const;

    /// A tensor [size] of such a type, as finite numbers. Real: float, double.
    template <class Real>
    [[nodiscard]] std::vector<Real> vector(std::string_view name, std::size_t size) const;

    [[nodiscard]] std::span<sureleap::safetensors::file const> files() const noexcept { return files_; }
    /// Of all files together, headers included.
    [[nodiscard]] std::size_t bytes() const noexcept;
    /// Sorted.
    [[nodiscard]] std::vector<std::string> names() const;

private:
    struct entry {
        std::size_t file;  // index into files_
        sureleap::safetensors::tensor const* tensor;
    };

    checkpoint() = default;
    void add(std::string const& name, std::size_t file);
    [[nodiscard]] weight in_place(entry const& found, storage type, std::size_t rows, std::size_t cols) const;
    [[nodiscard]] entry const& at(std::string_view name) const;
    /// Shape and type; returns the latter.
    [[nodiscard]] storage check(entry const& found, std::span<std::size_t const> shape) const;
    [[noreturn]] void refuse(entry const& found, std::string const& is, std::string const& expected) const;

    model_config config_;
    std::filesystem::path folder_;
    std::vector<sureleap::safetensors::file> files_;
    std::shared_ptr<void const> owner_;
    std::map<std::string, entry, std::less<>> tensors_;
};

}  // namespace engine
