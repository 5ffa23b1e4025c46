// SPDX-License-Identifier: MIT
#include "quantised.hpp"

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstring>
#include <memory_resource>
#include <vector>

#include <sureleap/core/error.hpp>
#include <sureleap/core/types.hpp>

namespace engine {
namespace {

constexpr std::size_t cache_line = 64;

[[nodiscard]] float number(std::uint16_t half_bits) noexcept {
    sureleap::half stored;
    stored.bits = half_bits;
    return sureleap::load(stored);
}

/// Where input c of a block stands within it, of an output: the vector of 64 bytes, and the byte there.
[[nodiscard]] std::size_t place(std::size_t output, std::size_t input) noexcept {
    return input / 4 * 64 + output * 4 + input % 4;
}

template <class Block>
[[nodiscard]] Block const& block_of(weight const& w, std::size_t row, std::size_t block) noexcept {
    return static_cast<Block const*>(w.data)[row / block_outputs * (w.cols / block_inputs) + block];
}

template <class Block>
    requires std::same_as<Block, q4_block> || std::same_as<Block, q5_block>
[[nodiscard]] stepped_run run_of(Block const& from, std::size_t output) noexcept {
    stepped_run run{from.scales[output], from.minima[output], {}};
    for (std::size_t c = 0; c < block_inputs / 2; ++c) {
        std::uint8_t const both = from.nibbles[place(output, c)];
        run.steps[c] = both & 15U;
        run.steps[c + block_inputs / 2] = static_cast<std::uint8_t>(both >> 4U);
    }
    if constexpr (std::same_as<Block, q5_block>) {
        for (std::size_t c = 0; c < block_inputs; ++c) {
            unsigned const fifth = from.fifths[output * 4 + c % 4] >> c / 4 & 1U;
            run.steps[c] = static_cast<std::uint8_t>(run.steps[c] | fifth << 4U);
        }
    }
    return run;
}

/// Of a q4 or q5 matrix.
[[nodiscard]] stepped_run stepped(weight const& w, std::size_t row, std::size_t block) noexcept {
    std::size_t const output = row % block_outputs;
    return w.type == storage::q4 ? run_of(block_of<q4_block>(w, row, block), output)
                                 : run_of(block_of<q5_block>(w, row, block), output);
}

[[nodiscard]] q8_run run_of(q8_block const& from, std::size_t output) noexcept {
    q8_run run{from.scales[output], {}};
    for (std::size_t c = 0; c < block_inputs; ++c) run.values[c] = from.values[place(output, c)];
    return run;
}

/// In steps of 0 .. most.
[[nodiscard]] stepped_run in_steps(std::span<float const> values, float most) noexcept {
    auto const [least, largest] = std::minmax_element(values.begin(), values.end());
    stepped_run run{sureleap::half((*largest - *least) / most).bits, sureleap::half(*least).bits, {}};
    float const scale = number(run.scale);  // what products will use
    float const minimum = number(run.minimum);
    for (std::size_t c = 0; c < values.size(); ++c) {
        float const steps = scale > 0 ? std::nearbyint((values[c] - minimum) / scale) : 0.0F;
        run.steps[c] = static_cast<std::uint8_t>(std::clamp(steps, 0.0F, most));
    }
    return run;
}

}  // namespace

packed_matrix::packed_matrix(storage type, std::size_t rows, std::size_t cols, std::pmr::memory_resource& memory)
    : type_(type), rows_(rows), cols_(cols), bytes_(nullptr, {&memory, 0}) {
    if (!is_packed(type) || cols % block_inputs != 0) {
        sureleap::fail_with("packed_matrix: [", rows, ", ", cols,
                            "], expected 4, 5 or 8 bits and columns in blocks of ", block_inputs);
    }
    std::size_t const bytes = view().bytes();
    bytes_ = {static_cast<std::byte*>(memory.allocate(bytes, cache_line)), release{&memory, bytes}};
    // The rows that a last block does not have. What lies before stays untouched until it is set: a rank sets a share.
    std::size_t const full = view().offset(rows);
    std::memset(bytes_.get() + full, 0, bytes - full);
}

void packed_matrix::release::operator()(std::byte* bytes) const noexcept {
    memory->deallocate(bytes, size, cache_line);
}

template <class Block>
Block& packed_matrix::at(std::size_t row, std::size_t block) noexcept {
    return reinterpret_cast<Block*>(bytes_.get())[row / block_outputs * (cols_ / block_inputs) + block];
}

void packed_matrix::set(std::size_t row, std::size_t block, stepped_run const& run) noexcept {
    std::size_t const output = row % block_outputs;
    auto const fill = [&](auto& to) {
        to.scales[output] = run.scale;
        to.minima[output] = run.minimum;
        for (std::size_t c = 0; c < block_inputs / 2; ++c) {
            to.nibbles[place(output, c)] =
                static_cast<std::uint8_t>((run.steps[c] & 15U) | (run.steps[c + block_inputs / 2] & 15U) << 4U);
        }
    };
    if (type_ == storage::q4) return fill(at<q4_block>(row, block));
    q5_block& to = at<q5_block>(row, block);
    fill(to);
    for (std::size_t i = 0; i < 4; ++i) {
        unsigned bits = 0;
        for (std::size_t v = 0; v < 8; ++v) bits |= (run.steps[4 * v + i] >> 4U & 1U) << v;
        to.fifths[output * 4 + i] = static_cast<std::uint8_t>(bits);
    }
}

void packed_matrix::set(std::size_t row, std::size_t block, q8_run const& run) noexcept {
    q8_block& to = at<q8_block>(row, block);
    std::size_t const output = row % block_outputs;
    to.scales[output] = run.scale;
    for (std::size_t c = 0; c < block_inputs; ++c) to.values[place(output, c)] = run.values[c];
}

void packed_matrix::quantise(std::size_t row, std::span<float const> values) noexcept {
    for (std::size_t b = 0; b < cols_ / block_inputs; ++b) {
        auto const part = values.subspan(b * block_inputs, block_inputs);
        if (type_ != storage::q8) {
            set(row, b, in_steps(part, type_ == storage::q4 ? 15.0F : 31.0F));
            continue;
        }
        float largest = 0;
        for (float const x : part) largest = std::max(largest, std::abs(x));
        q8_run run{sureleap::half(largest / 127.0F).bits, {}};
        float const scale = number(run.scale);  // the one that products will use
        for (std::size_t c = 0; c < block_inputs; ++c) {
            float const steps = scale > 0 ? std::nearbyint(part[c] / scale) : 0.0F;
            run.values[c] = static_cast<std::int8_t>(std::clamp(steps, -127.0F, 127.0F));
        }
        set(row, b, run);
    }
}

weight packed_matrix::view() const noexcept {
    return {bytes_.get(), type_, rows_, cols_, arithmetic::full};
}

gathered_rows::gathered_rows(weight const& w, std::span<std::int32_t const> rows) {
    auto const row = [&](std::size_t i) { return static_cast<std::size_t>(rows[i]); };
    if (!is_packed(w.type)) {
        std::size_t const bytes = w.cols * bytes_of(w.type);
        auto const memory = std::make_shared<std::vector<std::byte>>(rows.size() * bytes);
        for (std::size_t i = 0; i < rows.size(); ++i) {
            std::memcpy(memory->data() + i * bytes, static_cast<std::byte const*>(w.data) + row(i) * bytes, bytes);
        }
        view_ = {memory->data(), w.type, rows.size(), w.cols, w.products};
        memory_ = memory;
        return;
    }
    auto const memory = std::make_shared<packed_matrix>(w.type, rows.size(), w.cols);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        for (std::size_t b = 0; b < w.cols / block_inputs; ++b) {
            if (w.type == storage::q8) {
                memory->set(i, b, run_of(block_of<q8_block>(w, row(i), b), row(i) % block_outputs));
            } else {
                memory->set(i, b, stepped(w, row(i), b));
            }
        }
    }
    view_ = memory->view();
    memory_ = memory;
}

gathered_rows gathered_rows::in_4_bits(weight const& w, std::span<std::int32_t const> rows) {
    auto const memory = std::make_shared<packed_matrix>(storage::q4, rows.size(), w.cols);
    std::vector<float> values(w.cols);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        load_row(w, static_cast<std::size_t>(rows[i]), values.data());
        if (!std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); })) {
            sureleap::fail_with("gathered_rows: row ", rows[i],
                                " has a weight that is infinite or not a number, expected finite weights");
        }
        memory->quantise(i, values);
    }
    gathered_rows result;
    result.view_ = memory->view();
    result.memory_ = memory;
    return result;
}

template <class Real>
void unpack_row(weight const& w, std::size_t row, Real* out) {
    for (std::size_t b = 0; b < w.cols / block_inputs; ++b, out += block_inputs) {
        if (w.type == storage::q8) {
            q8_run const run = run_of(block_of<q8_block>(w, row, b), row % block_outputs);
            float const scale = number(run.scale);
            for (std::size_t c = 0; c < block_inputs; ++c) {
                out[c] = static_cast<Real>(static_cast<float>(run.values[c]) * scale);
            }
        } else {
            stepped_run const run = stepped(w, row, b);
            float const scale = number(run.scale);
            float const minimum = number(run.minimum);
            for (std::size_t c = 0; c < block_inputs; ++c) {
                out[c] = static_cast<Real>(static_cast<float>(run.steps[c]) * scale + minimum);
            }
        }
    }
}

template void unpack_row(weight const&, std::size_t, float*);
template void unpack_row(weight const&, std::size_t, double*);

}  // namespace engine
