// SPDX-License-Identifier: MIT
//
// Chooses the instruction set and shares products out over the pool; the arithmetic is in kernels_vector.hpp.
//
// A product is split by rows of w alone. Splitting by rows of x as well would read w more than once. Splitting the sums
// would make them depend on the number of threads.
#include "kernels.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

#include <sureleap/core/error.hpp>

#include "kernels_table.hpp"
#include "quantised.hpp"

#if defined(__aarch64__) && __has_include(<sys/auxv.h>)
#include <sys/auxv.h>
#endif

namespace engine {

namespace {

/// Best first.
[[nodiscard]] std::vector<kernel_set const*> available() {
    std::vector<kernel_set const*> sets;
#if defined(__x86_64__)
    // The levels that the files are compiled for; whether the system saves the registers is part of the answer.
#if defined(ENGINE_AVX512_BF16)  // the compiler knows it
    if (__builtin_cpu_supports("x86-64-v4") && __builtin_cpu_supports("avx512bf16")) {
        sets.push_back(&avx512_bf16_kernels);
    }
#endif
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

/// The best that a set's machine has been asked to use: the names begin alike.
[[nodiscard]] quantised_set const* packed_for(kernel_set const& set) {
    std::string const name = set.name;
    for (quantised_set const* const packed : available_quantised()) {
        std::string const wanted = packed->name;
        if (name.starts_with("avx512") || wanted == "portable") return packed;
        if (name == "portable" && wanted == "neon_dot") return packed;
        if (name == "avx2" && !wanted.starts_with("avx512")) return packed;
    }
    return &portable_quantised;
}

[[nodiscard]] quantised_set const*& packed_in_use() {
    static quantised_set const* set = packed_for(*in_use());
    return set;
}

template <class Real>
[[nodiscard]] product_functions<Real> const& packed_products(storage type) {
    auto const of_type = [type](auto const& all) -> auto const& {
        return type == storage::q4 ? all.q4 : type == storage::q5 ? all.q5 : all.q8;
    };
    if constexpr (std::is_same_v<Real, float>) {
        return of_type(packed_in_use()->for_float);
    } else {
        return of_type(packed_in_use()->for_double);
    }
}

template <class Real>
[[nodiscard]] kernel_table<Real> const& table() {
    if constexpr (std::is_same_v<Real, float>) {
        return in_use()->for_float;
    } else {
        return in_use()->for_double;
    }
}

[[nodiscard]] std::size_t kind_of(weight const& w) {
    bool const rounds = w.type == storage::bf16 && w.products == arithmetic::bf16;
    if (rounds) return bf16_products;
    return static_cast<std::size_t>(w.type) + (is_packed(w.type) ? 1 : 0);  // behind bf16_products
}

template <class Real>
[[nodiscard]] product_functions<Real> const& products_of(weight const& w) {
    return is_packed(w.type) ? packed_products<Real>(w.type) : table<Real>().products[kind_of(w)];
}

/// Scratch of a thread: grows to the most that was asked for. One for each Use, as they live at the same time.
template <class Real, int Use>
[[nodiscard]] Real* scratch(std::size_t size) {
    static thread_local std::vector<Real> all;
    if (all.size() < size) all.resize(size);
    return all.data();
}

/// What products with one x share: its packed form, and how rows are shared out over the pool.
template <class Real>
class multiplier {
public:
    multiplier(thread_pool& pool, Real const* x, std::size_t n, weight const& first)
        : pool_(pool),
          n_(n),
          cols_(first.cols),
          height_(is_packed(first.type) ? block_outputs : table<Real>().tile_rows(n)),
          kernel_(products_of<Real>(first)) {
        std::size_t const padded = (cols_ + pack_unit - 1) / pack_unit * pack_unit;
        x_ = scratch<Real, 0>(n * padded);
        share(n, n * padded / 4, [&](std::size_t i) { kernel_.pack(x, n, cols_, i, x_); });
    }

    /// Calls f(first, count) for chunks of rows of w.
    template <class F>
    void each_chunk(std::size_t rows, F const& f) const {
        if (rows == 0) return;  // of a matrix that is divided among more ranks than it has rows for
        // Up to eight chunks a thread, so that a thread that lost its core for a while delays the others little. But
        // none shorter than a microsecond: a chunk taken over from another thread comes from that thread's cache.
        std::size_t const work = n_ * rows * cols_;
        std::size_t const parts = pool_.threads() * std::clamp<std::size_t>(work / 200'000 / pool_.threads(), 1, 8);
        std::size_t const chunk = ((rows + parts - 1) / parts + height_ - 1) / height_ * height_;
        share((rows + chunk - 1) / chunk, work,
              [&](std::size_t i) { f(i * chunk, std::min(chunk, rows - i * chunk)); });
    }

    /// Rows [first, first + count) of w: y[i * stride + j] (+)= their products with row i of x.
    void operator()(weight const& w, std::size_t first, std::size_t count, Real* y, std::size_t stride,
                    bool add = false) const {
        kernel_.multiply(x_, n_, static_cast<char const*>(w.data) + w.offset(first), count, cols_, y, stride, add);
    }

private:
    // Threads that spin start within a microsecond: not for work that takes no longer.
    template <class F>
    void share(std::size_t parts, std::size_t work, F const& f) const {
        if (work >= 40'000) return pool_.run(parts, f);
        for (std::size_t i = 0; i < parts; ++i) f(i);
    }

    thread_pool& pool_;
    std::size_t n_;
    std::size_t cols_;
    std::size_t height_;  // chunks are multiples of it
    product_functions<Real> const& kernel_;
    Real* x_;  // of this thread, also where others use it
};

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
    sureleap::fail_with("ENGINE_ISA is '", wanted, "', expected one that this machine runs: ", names);
}

void use_kernels(kernel_set const& set) noexcept {
    in_use() = &set;
    packed_in_use() = packed_for(set);
}

std::vector<quantised_set const*> available_quantised() {
    std::vector<quantised_set const*> sets;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("x86-64-v4")) {
        if (__builtin_cpu_supports("avx512vnni")) sets.push_back(&avx512_vnni_quantised);
        sets.push_back(&avx512_quantised);
    }
    if (__builtin_cpu_supports("x86-64-v3")) {
        if (__builtin_cpu_supports("avxvnni")) sets.push_back(&avx_vnni_quantised);
        sets.push_back(&avx2_quantised);
    }
#elif defined(__aarch64__) && defined(HWCAP_ASIMDDP)
    if ((getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0) sets.push_back(&neon_dot_quantised);
#elif defined(__aarch64__) && defined(__APPLE__)
    sets.push_back(&neon_dot_quantised);  // every one has the instruction
#endif
    sets.push_back(&portable_quantised);
    return sets;
}

void use_quantised(quantised_set const& set) noexcept {
    packed_in_use() = &set;
}

char const* packed_instruction_set() {
    return packed_in_use()->name;
}

char const* instruction_set() {
    return in_use()->name;
}

template <class Real>
void matmul(thread_pool& pool, Real const* x, std::size_t n, weight const& w, Real* y) {
    multiplier<Real> const multiply(pool, x, n, w);
    multiply.each_chunk(w.rows,
                        [&](std::size_t first, std::size_t count) { multiply(w, first, count, y + first, w.rows); });
}

template <class Real>
void matmul_add(thread_pool& pool, Real const* x, std::size_t n, weight const& w, Real* y) {
    multiplier<Real> const multiply(pool, x, n, w);
    multiply.each_chunk(
        w.rows, [&](std::size_t first, std::size_t count) { multiply(w, first, count, y + first, w.rows, true); });
}

template <class Real>
void matmul(thread_pool& pool, Real const* x, std::size_t n, std::initializer_list<product<Real>> products) {
    product<Real> const& front = *products.begin();
    // Packed x is of one kind, as the matrices of a layer nearly always are.
    if (std::any_of(products.begin(), products.end(),
                    [&](product<Real> const& p) { return kind_of(p.w) != kind_of(front.w); })) {
        for (product<Real> const& p : products) matmul(pool, x, n, p.w, p.y);
        return;
    }
    std::size_t rows = 0;
    for (product<Real> const& p : products) rows += p.w.rows;
    multiplier<Real> const multiply(pool, x, n, front.w);
    multiply.each_chunk(rows, [&](std::size_t first, std::size_t count) {  // of all matrices, one below the other
        for (product<Real> const& p : products) {
            std::size_t const here = first < p.w.rows ? std::min(count, p.w.rows - first) : 0;
            if (here > 0) multiply(p.w, first, here, p.y + first, p.w.rows);
            count -= here;
            first = here > 0 ? 0 : first - p.w.rows;
        }
    });
}

template <class Real>
void gated_matmul(thread_pool& pool, Real const* x, std::size_t n, weight const& gate, weight const& up, Real* y) {
    if (kind_of(gate) != kind_of(up)) {
        std::vector<Real> other(n * up.rows);
        matmul(pool, x, n, {{gate, y}, {up, other.data()}});
        return silu_mul(y, other.data(), other.size());
    }
    multiplier<Real> const multiply(pool, x, n, gate);
    multiply.each_chunk(gate.rows, [&](std::size_t first, std::size_t count) {
        Real* const other = scratch<Real, 1>(n * count);
        multiply(gate, first, count, y + first, gate.rows);
        multiply(up, first, count, other, count);
        for (std::size_t i = 0; i < n; ++i) silu_mul(y + i * gate.rows + first, other + i * count, count);
    });
}

template <class Real>
void load_row(weight const& w, std::size_t row, Real* out) {
    if (is_packed(w.type)) return unpack_row(w, row, out);
    auto const* const data = static_cast<char const*>(w.data) + w.offset(row);
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
void attend(std::span<attention_query<Real> const> queries, Real const* chunk, std::size_t size, Real scale) {
    table<Real>().attend(queries.data(), queries.size(), chunk, size, scale);
}

template <class Real>
void join_attended(Real const* chunks, std::size_t count, std::size_t size, Real* out) {
    table<Real>().join_attended(chunks, count, size, out);
}

double read_bandwidth(thread_pool& pool, void const* data, std::size_t bytes, int repeats) {
    using clock = std::chrono::steady_clock;
    // As rows of a product are shared out: all threads have some of it, however little there is.
    std::size_t const chunk =
        std::clamp(bytes / (pool.threads() * 8) / 64 * 64, std::size_t{4096}, std::size_t{1} << 20);
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

#define ENGINE_INSTANTIATE(Real)                                                                             \
    template void matmul(thread_pool&, Real const*, std::size_t, weight const&, Real*);                      \
    template void matmul_add(thread_pool&, Real const*, std::size_t, weight const&, Real*);                  \
    template void load_row(weight const&, std::size_t, Real*);                                               \
    template void rms_norm(Real const*, Real const*, std::size_t, double, Real*);                            \
    template void rotate(Real*, Real const*, Real const*, std::size_t);                                      \
    template void silu_mul(Real*, Real const*, std::size_t);                                                 \
    template void matmul(thread_pool&, Real const*, std::size_t, std::initializer_list<product<Real>>);      \
    template void gated_matmul(thread_pool&, Real const*, std::size_t, weight const&, weight const&, Real*); \
    template void attend(std::span<attention_query<Real> const>, Real const*, std::size_t, Real);            \
    template void join_attended(Real const*, std::size_t, std::size_t, Real*);
ENGINE_INSTANTIATE(float)
ENGINE_INSTANTIATE(double)
#undef ENGINE_INSTANTIATE

}  // namespace engine
