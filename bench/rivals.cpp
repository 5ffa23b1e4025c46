// SPDX-License-Identifier: MIT
#include "rivals.hpp"

#include <algorithm>
#include <cmath>

#include <Eigen/Core>

namespace rivals {
namespace {

using array = Eigen::Map<Eigen::ArrayXf>;
using const_array = Eigen::Map<Eigen::ArrayXf const>;

[[nodiscard]] Eigen::Index index(std::size_t n) {
    return static_cast<Eigen::Index>(n);
}

/// The first index whose cumulative sum exceeds u.
[[nodiscard]] std::int32_t draw(float const* weights, std::size_t size, float u) {
    float cumulative = 0.0f;
    for (std::size_t i = 0; i < size; ++i) {
        cumulative += weights[i];
        if (cumulative > u) return static_cast<std::int32_t>(i);
    }
    return static_cast<std::int32_t>(size - 1);
}

/// What both do with probabilities.
template <class Residual>
[[nodiscard]] std::int32_t decide(block const& b, float* p, Residual const& residual) {
    for (std::size_t k = 0; k < b.gamma; ++k) {
        auto const x = static_cast<std::size_t>(b.drafted[k]);
        float* const row = p + k * b.size;
        float const* const q = b.q + k * b.size;
        if (b.uniforms[k] * q[x] < row[x]) continue;
        float const mass = residual(row, q);
        return draw(row, b.size, b.uniforms[b.gamma] * mass);
    }
    return draw(p + b.gamma * b.size, b.size, b.uniforms[b.gamma]);
}

}  // namespace

float read(float const* data, std::size_t size) {
    // Streams side by side, and registers of their own: one alone would wait for every addition.
    constexpr std::size_t streams = 8;
    constexpr std::size_t width = 16;
    float sums[streams][width] = {};
    std::size_t const each = size / streams / width * width;
    for (std::size_t i = 0; i < each; i += width) {
        for (std::size_t s = 0; s < streams; ++s) {
            float const* const from = data + s * each + i;
            __builtin_prefetch(from + 256);
            for (std::size_t l = 0; l < width; ++l) sums[s][l] += from[l];
        }
    }
    float sum = 0.0f;
    for (auto const& stream : sums) {
        for (float const x : stream) sum += x;
    }
    for (std::size_t i = each * streams; i < size; ++i) sum += data[i];
    return sum;
}

void softmax(float const* logits, std::size_t size, float* out) {
    float const top = *std::max_element(logits, logits + size);
    float sum = 0.0f;
    for (std::size_t i = 0; i < size; ++i) sum += out[i] = std::exp(logits[i] - top);
    for (std::size_t i = 0; i < size; ++i) out[i] /= sum;
}

std::int32_t scalar_rejection(block const& b, float* scratch) {
    for (std::size_t k = 0; k <= b.gamma; ++k) softmax(b.p + k * b.size, b.size, scratch + k * b.size);
    return decide(b, scratch, [&](float* p, float const* q) {
        float mass = 0.0f;
        for (std::size_t i = 0; i < b.size; ++i) mass += p[i] = std::max(p[i] - q[i], 0.0f);
        return mass;
    });
}

std::int32_t eigen_rejection(block const& b, float* scratch) {
    for (std::size_t k = 0; k <= b.gamma; ++k) {
        const_array const logits(b.p + k * b.size, index(b.size));
        array p(scratch + k * b.size, index(b.size));
        p = (logits - logits.maxCoeff()).exp();
        p /= p.sum();
    }
    return decide(b, scratch, [&](float* p, float const* q) {
        array left(p, index(b.size));
        left = (left - const_array(q, index(b.size))).max(0.0f);
        return left.sum();
    });
}

float read_in_order(float const* data, std::size_t size) {
    constexpr std::size_t width = 64;
    float sums[width] = {};
    for (std::size_t i = 0; i + width <= size; i += width) {
        for (std::size_t l = 0; l < width; ++l) sums[l] += data[i + l];
    }
    float sum = 0.0f;
    for (float const x : sums) sum += x;
    return sum;
}

std::int32_t scalar_step(head_step const& s, float* scratch) {
    float largest = -INFINITY;
    for (std::size_t v = 0; v < s.size; ++v) {
        float sum = s.u[v];
        for (std::size_t j = 0; j < s.rank; ++j) sum += s.w2[v * s.rank + j] * s.z[j];
        scratch[v] = sum;
        largest = std::max(largest, sum);
    }
    float total = 0.0f;
    for (std::size_t v = 0; v < s.size; ++v) {
        scratch[v] = std::exp(scratch[v] - largest);
        total += scratch[v];
    }
    return draw(scratch, s.size, s.uniform * total);
}

std::int32_t eigen_step(head_step const& s, float* scratch) {
    using row_major = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    Eigen::Map<row_major const> const w2(s.w2, index(s.size), index(s.rank));
    Eigen::Map<Eigen::VectorXf const> const z(s.z, index(s.rank));
    Eigen::Map<Eigen::VectorXf const> const u(s.u, index(s.size));
    Eigen::Map<Eigen::VectorXf> logits(scratch, index(s.size));
    logits.noalias() = w2 * z;
    logits += u;
    auto weights = logits.array();
    weights = (weights - weights.maxCoeff()).exp();
    return draw(scratch, s.size, s.uniform * weights.sum());
}

}  // namespace rivals
