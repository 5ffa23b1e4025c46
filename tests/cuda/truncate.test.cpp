// SPDX-License-Identifier: MIT
//
// Truncation on the device keeps what it keeps on the host: every format, shape of row and combination of filters, with
// and without statistics about the row. Cutoffs may only differ where a sum or a weight lies within rounding of its
// limit, which is recomputed in double.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include <sureleap/cuda/sampling/truncate.cuh>
#include <sureleap/detail/kernel/native.hpp>
#include <sureleap/sampling/truncation.hpp>

#include "cuda/support/device_array.hpp"
#include "cuda/support/rows.hpp"
#include "support/dice.hpp"

using namespace sureleap;
namespace device = sureleap::cuda;  // CUDA has a namespace cuda of its own

namespace {

template <class T>
struct task {
    T const* row;
    std::uint32_t size;
    transform how;
    device::row_statistics statistics;
};

/// Tasks in turn, as a block does that looks at many rows.
template <class T>
__global__ void run(task<T> const* tasks, std::uint32_t count, device::cutoff* out) {
    auto& shared = device::shared_memory<device::truncate_shared>();
    for (std::uint32_t i = blockIdx.x; i < count; i += gridDim.x) {
        task<T> const t = tasks[i];
        out[i * blockDim.x + threadIdx.x] = device::truncate(t.row, t.size, t.how, t.statistics, shared);
    }
}

/// Places in the order of the row at which the last kept token may be, weights and sums being off by so much of
/// themselves.
struct places {
    std::size_t first;
    std::size_t last;
};
constexpr double rounding = 1e-6;
/// What a caller knows of the total may be off by.
constexpr double known_within = 0x1p-21;
/// How much more or less than 1 - top-p may be left out, as a part of the mass. A top-p near 1 leaves out less than a
/// known total is off by: masses are integers there, of 2^-44 at least.
double slack_of(double top_p, std::size_t tokens) {
    double const out = 1.0 - top_p;
    return out > 0x1p-10 ? rounding : rounding * out + static_cast<double>(tokens) * 0x1p-43;
}

template <class T>
struct sorted_row {
    std::vector<token_id> order;  // finite ones
    std::vector<float> logits;

    explicit sorted_row(std::vector<T> const& row) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            logits.push_back(load(row[i]));
            if (logits.back() > -device::infinity) order.push_back(static_cast<token_id>(i));
        }
        std::stable_sort(order.begin(), order.end(), [&](token_id a, token_id b) { return logit(a) > logit(b); });
    }
    [[nodiscard]] float logit(token_id v) const { return logits[static_cast<std::size_t>(v)]; }

    [[nodiscard]] places last_kept(transform const& how) const {
        auto const scale = static_cast<float>(1.0 / how.temperature);
        auto const weight = [&](std::size_t i) {
            return std::exp(static_cast<double>((logit(order[i]) - logit(order[0])) * scale));
        };
        std::size_t count = order.size();
        if (how.top_k > 0) count = std::min(count, static_cast<std::size_t>(how.top_k));
        places at{count - 1, count - 1};
        if (how.top_p < 1.0) {
            double mass = 0.0;
            for (std::size_t i = 0; i < count; ++i) mass += weight(i);
            double kept = 0.0;
            bool low = false;
            for (std::size_t i = 0; i < count; ++i) {
                kept += weight(i);
                if (!low && kept >= (how.top_p - slack_of(how.top_p, count)) * mass) {
                    low = true;
                    at.first = i;
                }
                if (kept >= (how.top_p + slack_of(how.top_p, count)) * mass) {
                    at.last = i;
                    break;
                }
            }
        }
        if (how.min_p > 0.0) {
            places heavy{0, 0};
            for (std::size_t i = 0; i < count; ++i) {
                if (weight(i) >= how.min_p * (1.0 + rounding)) heavy.first = i;
                if (weight(i) >= how.min_p * (1.0 - rounding)) heavy.last = i;
            }
            at.first = std::min(at.first, heavy.first);
            at.last = std::min(at.last, heavy.last);
        }
        return at;
    }
    /// The place of a token.
    [[nodiscard]] std::size_t find(token_id v) const {
        return static_cast<std::size_t>(std::find(order.begin(), order.end(), v) - order.begin());
    }
};

std::vector<transform> some_transforms(support::dice& roll, std::size_t size, std::size_t count) {
    std::vector<transform> all;
    double const temperatures[] = {1.0, 0.6, 0.05, 3.0};
    int const few[] = {1, 2, 20, 50};
    double const shares[] = {0.9, 0.5, 0.99, 1e-9, 0.999999, 1.0 - 1e-12};
    while (all.size() < count) {
        transform how{.temperature = temperatures[roll.below(4)]};
        if (roll.chance(0.5)) {
            how.top_k = roll.chance(0.5)   ? few[roll.below(4)]
                        : roll.chance(0.8) ? 1 + static_cast<int>(roll.below(size))
                                           : static_cast<int>(size + roll.below(3));
        }
        if (roll.chance(0.5)) how.top_p = roll.chance(0.5) ? shares[roll.below(6)] : roll.between(0.01, 1.0);
        if (roll.chance(0.4)) {
            how.min_p = roll.chance(0.2) ? 1.0 : roll.chance(0.2) ? 1e-300 : std::pow(10.0, roll.between(-6.0, 0.0));
        }
        if (how.truncates()) all.push_back(how);
    }
    return all;
}

/// Differences from the host.
struct tally {
    std::size_t all = 0;
    std::size_t different = 0;
    ~tally() { CHECK(static_cast<double>(different) <= 2.0 + 0.001 * static_cast<double>(all)); }
};

template <class T>
void truncate_rows(std::uint64_t seed, std::size_t size, unsigned threads, std::size_t settings, tally& result) {
    support::dice roll(seed);
    INFO("seed " << roll.seed() << ", size " << size << ", " << sizeof(T) << " bytes");
    std::uint32_t const blocks = device::count_blocks(static_cast<std::uint32_t>(size));
    for (support::row_shape const shape : support::row_shapes) {
        auto const row = support::random_row<T>(roll, size, shape, roll.chance(0.5));
        sorted_row<T> const sorted(row);
        token_id const mode = sorted.order.front();
        // One element further on, it is no longer aligned.
        std::size_t const shift = roll.below(2);
        std::vector<T> shifted(shift, T(0.0f));
        shifted.insert(shifted.end(), row.begin(), row.end());
        device_array<T> const d_row(shifted);
        std::vector<device::block_weight> weights(blocks, {-device::infinity, 0.0f});
        for (std::size_t i = 0; i < size; ++i) {
            float& largest = weights[i / row_block].largest;
            largest = std::max(largest, sorted.logits[i]);
        }
        device_array<device::block_weight> const d_weights(weights);

        auto const hows = some_transforms(roll, size, settings);
        std::vector<task<T>> tasks;
        for (transform const& how : hows) {
            task<T> t{d_row.data() + shift, static_cast<std::uint32_t>(size), how, {}};
            t.statistics.top = sorted.logit(mode);
            if (roll.chance(0.5)) t.statistics.blocks = d_weights.data();
            if (roll.chance(0.5)) {
                t.statistics.total = scalar_kernels<row_kernels>.template get<T>().sum(
                    row.data(), size, t.statistics.top, static_cast<float>(1.0 / how.temperature), nullptr);
                t.statistics.total *= 1.0 + (roll.chance(0.5) ? known_within : -known_within);
            }
            tasks.push_back(t);
        }
        device_array<task<T>> const d_tasks(tasks);
        device_array<device::cutoff> d_out(tasks.size() * threads);
        require_cuda(device::launch(run<T>, dim3(2), dim3(threads), sizeof(device::truncate_shared), nullptr,
                                    d_tasks.data(), static_cast<std::uint32_t>(tasks.size()), d_out.data()));
        auto const out = d_out.download();
        std::vector<token_id> scratch(size);
        for (std::size_t i = 0; i < tasks.size(); ++i) {
            transform const& how = hows[i];
            INFO("shape " << static_cast<int>(shape) << ", temperature " << how.temperature << ", top_k " << how.top_k
                          << ", top_p " << how.top_p << ", min_p " << how.min_p << ", statistics "
                          << (tasks[i].statistics.blocks != nullptr) << " " << tasks[i].statistics.total);
            device::cutoff const found = out[i * threads];
            for (unsigned t = 1; t < threads; ++t) {
                REQUIRE(out[i * threads + t].id == found.id);
                REQUIRE(out[i * threads + t].logit == found.logit);
            }
            ++result.all;
            auto const expected = sureleap::detail::truncate(std::span<T const>(row), how, mode, std::span(scratch),
                                                             scalar_kernels<row_kernels>.template get<T>())
                                      .last;
            REQUIRE(found.id >= 0);
            REQUIRE(static_cast<std::size_t>(found.id) < size);
            CHECK(found.logit == sorted.logit(found.id));
            if (found.id == expected.id) continue;
            ++result.different;
            places const allowed = sorted.last_kept(how);
            std::size_t const at = sorted.find(found.id);
            INFO("token " << found.id << " at " << at << ", the host's " << expected.id << " at "
                          << sorted.find(expected.id) << ", allowed " << allowed.first << " to " << allowed.last);
            CHECK(at >= allowed.first);
            CHECK(at <= allowed.last);
        }
    }
}

template <class T>
void truncate_sizes(std::uint64_t seed, tally& result) {
    for (std::size_t const size : {1u, 2u, 37u, 1000u, 1024u, 1025u, 5000u}) {
        truncate_rows<T>(seed + size, size, size < 1000 ? 32 : 64, 20, result);
    }
    truncate_rows<T>(seed + 33000, 33000, 256, 6, result);
}

}  // namespace

TEST_CASE("truncation on the device: the host's cutoffs, float") {
    tally result;
    truncate_sizes<float>(1000, result);
}
TEST_CASE("truncation on the device: the host's cutoffs, bf16") {
    tally result;
    truncate_sizes<bf16>(2000, result);
}
TEST_CASE("truncation on the device: the host's cutoffs, half") {
    tally result;
    truncate_sizes<half>(3000, result);
}
TEST_CASE("truncation on the device: rows of more blocks than there are parts") {
    tally result;
    truncate_rows<bf16>(4001, 270000, 256, 2, result);
    truncate_rows<float>(4002, 151936, 256, 2, result);
}
