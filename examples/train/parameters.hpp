// SPDX-License-Identifier: MIT
//
// The parameters of a model that is being trained: where each named tensor lies in one flat array.
//
// Values, gradients and the optimizer's moments are plain arrays of the layout's size, side by side. Four things are
// then plain loops over an array: AdamW, clipping by the norm of all gradients, saving a state, and adding up the
// gradients of several threads. Models hold tensors, which are offsets, and are given the arrays with every call. A
// model never changes, so any number of threads may run it, each with gradients of its own. Rejected: objects that own
// a value and a gradient each, as in an automatic differentiator; they would put a lookup or a lock where a pointer is
// enough.
//
// Tensors lie in the order in which they are declared, without gaps. Neighbours of equal width are therefore one matrix
// (`stacked`): query, key and value projections take one product where the files have three tensors.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <engine/checkpoint.hpp>
#include <engine/kernels.hpp>
#include <sureleap/core/error.hpp>
#include <sureleap/training/rows.hpp>

namespace train {

using sureleap::matrix_span;
using sureleap::matrix_view;

/// A matrix [rows, cols] within an array of parameters; a vector is a matrix of one row.
struct tensor {
    std::size_t offset = 0;
    std::size_t rows = 0;
    std::size_t cols = 0;

    [[nodiscard]] std::size_t size() const noexcept { return rows * cols; }

    template <class Real>
    [[nodiscard]] matrix_view<Real> of(std::span<Real const> all) const noexcept {
        return {values(all).data(), rows, cols};
    }
    template <class Real>
    [[nodiscard]] matrix_span<Real> of(std::span<Real> all) const noexcept {
        return {values(all).data(), rows, cols};
    }
    template <class Real>
    [[nodiscard]] std::span<Real> values(std::span<Real> all) const noexcept {
        return all.subspan(offset, size());
    }
};

/// Which tensors there are, in the names and shapes of the released files.
class parameter_layout {
public:
    struct entry {
        std::string name;
        bool vector = false;  ///< [cols] in the files, not [1, cols]
        tensor place;
    };

    tensor matrix(std::string name, std::size_t rows, std::size_t cols) {
        return add({std::move(name), false, {size_, rows, cols}});
    }
    tensor vector(std::string name, std::size_t size) { return add({std::move(name), true, {size_, 1, size}}); }

    /// The length of an array of parameters.
    [[nodiscard]] std::size_t size() const noexcept { return size_; }
    /// In order of their offsets.
    [[nodiscard]] std::vector<entry> const& entries() const noexcept { return entries_; }

    /// Throws sureleap::error if there is no tensor of that name.
    [[nodiscard]] tensor at(std::string const& name) const {
        for (entry const& e : entries_) {
            if (e.name == name) return e.place;
        }
        sureleap::fail_with("parameters: no tensor '", name, "' among ", entries_.size());
    }

    /// Reads every tensor of the layout. Throws sureleap::error on one that is missing, misshapen or not finite.
    template <class Real>
    void load(engine::checkpoint const& from, std::span<Real> values) const {
        if (values.size() != size_) {
            sureleap::fail_with("parameters: room for ", values.size(), " values, expected ", size_);
        }
        for (entry const& e : entries_) {
            tensor const& t = e.place;
            auto const stored = e.vector ? from.row(e.name, t.cols) : from.matrix(e.name, t.rows, t.cols);
            auto const out = t.of(values);
            for (std::size_t i = 0; i < t.rows; ++i) {
                engine::load_row(stored, i, out.row(i).data());
                for (std::size_t j = 0; j < t.cols; ++j) {
                    if (std::isfinite(out.row(i)[j])) continue;
                    sureleap::fail_with("parameters: tensor '", e.name, "' is ", out.row(i)[j], " at [", i, ", ", j,
                                        "], expected a finite number");
                }
            }
        }
    }

private:
    tensor add(entry e) {
        size_ += e.place.size();
        entries_.push_back(std::move(e));
        return entries_.back().place;
    }

    std::vector<entry> entries_;
    std::size_t size_ = 0;
};

/// Tensors that were declared one after the other, with equal widths, as one.
[[nodiscard]] inline tensor stacked(tensor const& above, tensor const& below) {
    if (above.offset + above.size() != below.offset || above.cols != below.cols) {
        sureleap::fail_with("parameters: [", above.rows, ", ", above.cols, "] at ", above.offset, " and [", below.rows,
                            ", ", below.cols, "] at ", below.offset,
                            " cannot be stacked, expected neighbours of equal width");
    }
    return {above.offset, above.rows + below.rows, above.cols};
}

}  // namespace train
