// SPDX-License-Identifier: MIT
//
// Chooses the instruction set and shares products out over the pool; the arithmetic is in kernels_vector.hpp.
//
// A product is split by rows of w alone. Splitting by rows of x as well would read w more than once, and splitting the
// sums would make them depend on the number of threads.
#include "kernels.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <sureleap/error.hpp>

#include "kernels_table.hpp"

namespace engine {

namespace {

/// Best first.
[[nodiscard]] std::vector<kernel_set const*> available() {
    std::vector<kernel_set const*> sets;
#if defined(__x86_64__)
    // The levels that the files are compiled for; whether the system saves the registers is part of the answer.
    if (__builtin_cpu_supports("x86-64-v4")) sets.push_back(&avx512_kernels);
    if (__builtin_cpu_supports("x86-64-v3")) sets.push_back(&avx2_kernels);
#endif
    sets.push_back(&portable_kernels);
    return sets;
}

[[nodiscard]] kernel_set const*& in_use() {
    static kernel_set const* set = &choose_kernels(std::getenv("ENGINE_ISA"));
    return set;
}

template <class Real>
[[nodiscard]] kernel_table<Real> const& table() {
    if constexpr (std::is_same_v<Real, float>) {
        return in_use()->for_float;
    } else {
        return in_use()->for_double;
    }
}

template <class Real>
void multiply(thread_pool& pool, Real const* x, std::size_t n, weight const& w, Real* y, bool add) {
    // Waking the pool takes microseconds: not for work that takes no longer.
    auto const share = [&](std::size_t count, std::size_t work, auto const& f) {
        if (work >= 100'000) return pool.run(count, f);
        for (std::size_t i = 0; i < count; ++i) f(i);
    };
    static thread_local std::vector<Real> packed;  // grows to the largest batch
    std::size_t const padded = (w.cols + pack_unit - 1) / pack_unit * pack_unit;
    if (packed.size() < n * padded) packed.resize(n * padded);
    Real* const from = packed.data();  // of this thread, also where others use it
    auto const& kernels = table<Real>();
    share(n, n * padded, [&](std::size_t i) { kernels.pack(x, n, w.cols, i, from); });

    auto const kernel = kernels.multiply[static_cast<std::size_t>(w.type)];
    std::size_t const row_bytes = w.cols * bytes_of(w.type);
    // Some 16 chunks a thread, so that a thread that lost its core for a while holds up the others little.
    std::size_t const chunk = (w.rows / (pool.threads() * 16) + row_unit) / row_unit * row_unit;
    share((w.rows + chunk - 1) / chunk, n * w.rows * w.cols, [&](std::size_t i) {
        std::size_t const first = i * chunk;
        kernel(from, n, static_cast<char const*>(w.data) + first * row_bytes, std::min(chunk, w.rows - first), w.cols,
               y + first, w.rows, add);
    });
}

}  // namespace

kernel_set const* find_kernels(char const* name) noexcept {
    for (kernel_set const* const set : available()) {
        if (std::strcmp(set->name, name) == 0) return set;
    }
    return nullptr;
}

kernel_set const& choose_kernels(char const* wanted) {
    if (wanted == nullptr || *wanted == '\0') return *available().front();
    if (kernel_set const* const set = find_kernels(wanted)) return *set;
    std::string names;
    for (kernel_set const* const set : available()) names.append(names.empty() ? "" : ", ").append(set->name);
    sureleap::detail::fail_with("ENGINE_ISA is '", wanted, "', expected one that this machine runs: ", names);
}

void use_kernels(kernel_set const& set) noexcept {
    in_use() = &set;
}

char const* instruction_set() {
    return in_use()->name;
}

template <class Real>
void matmul(thread_pool& pool, Real const* x, std::size_t n, weight const& w, Real* y) {
    multiply(pool, x, n, w, y, false);
}

template <class Real>
void matmul_add(thread_pool& pool, Real const* x, std::size_t n, weight const& w, Real* y) {
    multiply(pool, x, n, w, y, true);
}

template <class Real>
void load_row(weight const& w, std::size_t row, Real* out) {
    auto const* const data = static_cast<char const*>(w.data) + row * w.cols * bytes_of(w.type);
    table<Real>().load_row[static_cast<std::size_t>(w.type)](data, w.cols, out);
}

template <class Real>
void rms_norm(Real const* x, Real const* scale, std::size_t size, double epsilon, Real* out) {
    table<Real>().rms_norm(x, scale, size, epsilon, out);
}

template <class Real>
void rotate(Real* x, Real const* cos, Real const* sin, std::size_t size) {
    table<Real>().rotate(x, cos, sin, size);
}

template <class Real>
void silu_mul(Real* gate, Real const* up, std::size_t size) {
    table<Real>().silu_mul(gate, up, size);
}

template <class Real>
void attend(Real const* query, Real const* keys, Real const* values, std::size_t n, std::size_t size, Real scale,
            Real* scores, Real* out) {
    table<Real>().attend(query, keys, values, n, size, scale, scores, out);
}

double read_bandwidth(thread_pool& pool, void const* data, std::size_t bytes, int repeats) {
    using clock = std::chrono::steady_clock;
    constexpr std::size_t chunk = std::size_t{1} << 20;
    auto const read = in_use()->read;
    std::atomic<std::uint64_t> sink{0};  // without it the reads could be left out
    double best = 0.0;
    for (int repeat = 0; repeat < repeats; ++repeat) {
        auto const start = clock::now();
        pool.run((bytes + chunk - 1) / chunk, [&](std::size_t i) {
            sink ^= read(static_cast<char const*>(data) + i * chunk, std::min(chunk, bytes - i * chunk));
        });
        double const seconds = std::chrono::duration<double>(clock::now() - start).count();
        best = std::max(best, static_cast<double>(bytes) / seconds);
    }
    return best;
}

#define ENGINE_INSTANTIATE(Real)                                                            \
    template void matmul(thread_pool&, Real const*, std::size_t, weight const&, Real*);     \
    template void matmul_add(thread_pool&, Real const*, std::size_t, weight const&, Real*); \
    template void load_row(weight const&, std::size_t, Real*);                              \
    template void rms_norm(Real const*, Real const*, std::size_t, double, Real*);           \
    template void rotate(Real*, Real const*, Real const*, std::size_t);                     \
    template void silu_mul(Real*, Real const*, std::size_t);                                \
    template void attend(Real const*, Real const*, Real const*, std::size_t, std::size_t, Real, Real*, Real*);
ENGINE_INSTANTIATE(float)
ENGINE_INSTANTIATE(double)
#undef ENGINE_INSTANTIATE

}  // namespace engine
