// SPDX-License-Identifier: MIT
//
// What run.py calls through ctypes: a batch with its drafts, which all read, this library's verification of it, and a
// kernel that only reads. Functions return a cudaError_t; `stream` may be captured.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <sureleap/cuda/round/accept.cuh>
#include <sureleap/cuda/verify/flatten.cuh>
#include <sureleap/verify/rejection.hpp>

#include "../data.cuh"
#include "../measure.cuh"

namespace bench {

bool once() {
    return false;
}
void give_up(char const* what, char const* why) {
    std::fprintf(stderr, "peers: %s: %s\n", what, why);
    std::exit(1);
}

}  // namespace bench

namespace peers {  // not an unnamed one: functions that take a type of such a one are not exported

using namespace sureleap;
namespace device = sureleap::cuda;

/// A round whose requests all draft gamma tokens; distributions of q are recorded, or one-hot.
struct batch {
    device::device_limits limits;
    data::round round;
    data::recording<bf16> rows;
    data::round one_hot;
    measure::device_array<unsigned char> memory;
    device::verify_memory verification{};

    batch(device::device_limits const& of, float noise, std::uint64_t seed)
        : limits(of), round(flattened(of, seed)), rows(round.columns, noise, seed), one_hot(flattened(of, seed)) {
        std::size_t const drafts = std::size_t{limits.requests} * limits.block_size;
        std::vector<token_id> tokens(drafts);
        MEASURE_CHECK(
            cudaMemcpy(tokens.data(), round.columns.drafts.tokens, drafts * sizeof(tokens[0]), cudaMemcpyDeviceToHost));
        std::vector<device::distribution> distributions;
        for (token_id const x : tokens) distributions.push_back(device::distribution::one_hot(x));
        auto const fill = [](auto* to, auto const& values) {
            MEASURE_CHECK(cudaMemcpy(to, values.data(), values.size() * sizeof(values[0]), cudaMemcpyHostToDevice));
        };
        fill(one_hot.columns.drafts.tokens, tokens);
        fill(one_hot.columns.drafts.distributions, distributions);
        fill(one_hot.columns.drafts.token_probabilities, std::vector<double>(drafts, 1.0));
        MEASURE_CHECK(flatten(round.columns, nullptr));  // again, now that there are drafts
        MEASURE_CHECK(flatten(one_hot.columns, nullptr));
        device::workspace sizer;
        static_cast<void>(carve_verification(sizer, limits));
        memory = measure::device_array<unsigned char>(sizer.used());
        device::workspace ws{memory.get(), memory.size()};
        verification = carve_verification(ws, limits);
        MEASURE_CHECK(cudaDeviceSynchronize());
    }
    [[nodiscard]] static data::round flattened(device::device_limits const& limits, std::uint64_t seed) {
        data::round round(limits, seed);
        std::vector<std::uint32_t> const lengths(limits.requests, limits.block_size);
        MEASURE_CHECK(cudaMemcpy(round.columns.batch.lengths, lengths.data(), lengths.size() * sizeof(lengths[0]),
                                 cudaMemcpyHostToDevice));
        MEASURE_CHECK(flatten(round.columns, nullptr));
        return round;
    }
    [[nodiscard]] std::uint32_t row_count() const { return limits.requests * (limits.block_size + 1); }
};

}  // namespace peers

using namespace peers;

extern "C" {

batch* peers_batch(std::uint32_t requests, std::uint32_t gamma, std::uint32_t vocabulary, float noise,
                   std::uint64_t seed) {
    return new batch({requests, gamma, vocabulary}, noise, seed);
}
void peers_end(batch* b) {
    delete b;
}
/// bf16 [R (gamma + 1), V]; bf16 [R, gamma, V]; int32 [R, gamma].
void* peers_target(batch* b) {
    return b->rows.p.get();
}
void* peers_draft(batch* b) {
    return b->rows.q.get();
}
void* peers_tokens(batch* b) {
    return b->round.columns.drafts.tokens;
}

int peers_accept(batch* b, int one_hot, cudaStream_t stream) {
    device::logits_rows<bf16> const rows{b->rows.p.get(), b->row_count(), b->limits.vocabulary};
    if (one_hot != 0) {
        return device::accept<token_rejection<>>(rows, device::one_hot_draft_rows{}, b->verification,
                                                 b->one_hot.columns, stream);
    }
    device::dense_draft_rows<bf16> const drafts{b->rows.q.get(), b->limits.vocabulary, b->limits.block_size,
                                                b->limits.vocabulary};
    return device::accept<token_rejection<>>(rows, drafts, b->verification, b->round.columns, stream);
}
/// Draft tokens that were kept, of all requests.
int peers_accepted(batch* b, int one_hot, std::uint32_t* out) {
    auto const& round = one_hot != 0 ? b->one_hot : b->round;
    return cudaMemcpy(out, round.columns.verdicts.accepted, b->limits.requests * sizeof(*out), cudaMemcpyDeviceToHost);
}

int peers_read(batch* b, int residency, cudaStream_t stream) {
    measure::read_or_copy<<<static_cast<unsigned>(residency) * measure::multiprocessors(), 256, 0, stream>>>(
        reinterpret_cast<uint4 const*>(b->rows.p.get()), b->rows.p.size() * sizeof(bf16) / sizeof(uint4), nullptr,
        nullptr);
    return cudaGetLastError();
}

}  // extern "C"
