// SPDX-License-Identifier: MIT
//
// A model's files as the model sees them: the configuration, and tensors by name. They are a Hugging Face folder or a
// GGUF file (gguf/model.hpp), whose names become those of a folder.
//
// Files are mapped, not read. Weights stay in the page cache in the format they were saved in. The kernels convert them
// where they use them. Two processes with the same model share its memory. Only vectors (norms and biases) are
// converted to the model's numbers at set-up: they are small, and every position reads them. Weights of 4 and 8 bits
// are packed anew when they are loaded (quantised.hpp).
//
// Nothing is looked up by guess: the caller states the shape that follows from the configuration, and a tensor that
// differs is an error that names both. Tensors that nobody asks for are never looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sureleap/ext/safetensors.hpp>

#include "config.hpp"
#include "kernels.hpp"

namespace engine {

/// A tensor of a file, under the name by which models look for it.
struct stored_tensor {
    std::string name;
    std::string file;  ///< for errors, as is own_name: what the file calls it
    std::string own_name;
    std::vector<std::size_t> shape;
    std::optional<storage> type;    ///< none: the file has it in a format that models do not read as numbers
    std::size_t integer_bytes = 0;  ///< of I32 and I64: 4, 8; 0: no integers
    std::string type_name;
    std::byte const* data = nullptr;
    std::ptrdiff_t offset = 0;  ///< in the file
};

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

    /// From tensors that somebody found. `owner` keeps their bytes alive; `source` names all of it in errors; `bytes`
    /// is the size of its files.
    [[nodiscard]] static checkpoint from_tensors(model_config config, std::string source,
                                                 std::vector<stored_tensor> tensors, std::size_t bytes,
                                                 std::shared_ptr<void const> owner);

    /// The same model with every weight 0, in memory of its own: it has learned nothing and costs as much. Lists of
    /// tokens stay as they are.
    [[nodiscard]] checkpoint zeroed() &&;

    [[nodiscard]] model_config const& config() const noexcept { return config_; }
    /// For a model from memory the name of its first file, which is no path.
    [[nodiscard]] std::filesystem::path const& folder() const noexcept { return folder_; }

    /// Names are those in the folder's files: a target's begin with `model.`, but for lm_head; a drafter's have no
    /// prefix.
    [[nodiscard]] bool contains(std::string_view name) const;

    /// Rows of a tensor that is there.
    [[nodiscard]] std::size_t rows_of(std::string_view name) const;
    /// A tensor [rows, cols] of BF16, F16, F32, F64 or packed, where it lies.
    [[nodiscard]] weight matrix(std::string_view name, std::size_t rows, std::size_t cols) const;
    /// A tensor [size] of such a type, where it lies, as a matrix of one row.
    [[nodiscard]] weight row(std::string_view name, std::size_t size) const;

    /// A tensor [size] of such a type, as finite numbers. Real: float, double.
    template <class Real>
    [[nodiscard]] std::vector<Real> vector(std::string_view name, std::size_t size) const;

    /// A tensor [size] of I32 or I64.
    [[nodiscard]] std::vector<std::int64_t> integers(std::string_view name, std::size_t size) const;
    /// Bytes of one of them in the file, 4 or 8; 0 if the tensor holds no integers.
    [[nodiscard]] std::size_t integer_bytes(std::string_view name) const { return at(name).integer_bytes; }

    [[nodiscard]] std::span<sureleap::safetensors::file const> files() const noexcept { return files_; }
    /// Of all files together, headers included.
    [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
    /// Sorted.
    [[nodiscard]] std::vector<std::string> names() const;

private:
    checkpoint() = default;
    void add(std::string const& name, std::size_t file);
    [[nodiscard]] weight in_place(stored_tensor const& found, storage type, std::size_t rows, std::size_t cols) const;
    [[nodiscard]] stored_tensor const& at(std::string_view name) const;
    /// Shape and type; returns the latter.
    [[nodiscard]] storage check(stored_tensor const& found, std::span<std::size_t const> shape) const;
    [[noreturn]] static void refuse(stored_tensor const& found, std::string const& is, std::string const& expected);

    model_config config_;
    std::filesystem::path folder_;
    std::vector<sureleap::safetensors::file> files_;
    std::shared_ptr<void const> owner_;
    std::size_t bytes_ = 0;
    std::map<std::string, stored_tensor, std::less<>> tensors_;
};

}  // namespace engine
