// SPDX-License-Identifier: MIT
//
// Token rejection on the device against stored outcomes of the reference evaluation loop
// (support/golden_verification.hpp). The file holds the uniforms its decisions were made with; the device makes its own
// from keys. So for each case a seed is searched whose uniforms decide as the stored ones did, with room for the
// rounding of floats. With that seed the device must come to the stored tokens.
#include "support/catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <sureleap/cuda/round/accept.cuh>
#include <sureleap/cuda/verify/flatten.cuh>
#include <sureleap/verify/rejection.hpp>

#include "cuda/support/device_array.hpp"
#include "cuda/support/device_rounds.hpp"
#include "cuda/support/verify_round.hpp"
#include "support/golden_verification.hpp"

namespace {

using namespace sureleap;
namespace device = sureleap::cuda;
using golden::softmax;
using golden::verify_case;

constexpr std::uint64_t position = 40;
constexpr double room = 1e-4;  // between a uniform and where its decision turns

/// Tokens that the rule kept, before stop tokens are looked at.
[[nodiscard]] std::size_t kept(verify_case const& c) {
    return static_cast<std::size_t>(std::count(c.prefix_mask.begin(), c.prefix_mask.end(), 1));
}

/// What the uniforms of a case have to be.
struct demands {
    std::vector<double> ratios;  // p/q of the tokens that are kept, and of the one that is not
    double below = 0.0;          // where the stored next token begins and ends, as shares of the total
    double above = 1.0;

    explicit demands(verify_case const& c) {
        auto const row = [&](std::vector<double> const& from, std::size_t k) {
            return softmax(std::span(from).subspan(k * c.vocabulary, c.vocabulary), c.temperature);
        };
        std::vector<double> left = row(c.target, kept(c));
        for (std::size_t k = 0; k < std::min(kept(c) + 1, c.n); ++k) {
            auto const p = row(c.target, k);
            auto const q = row(c.draft, k);
            auto const x = static_cast<std::size_t>(c.ids[k + 1]);
            ratios.push_back(p[x] / q[x]);
            if (k < kept(c)) continue;
            for (std::size_t v = 0; v < left.size(); ++v) left[v] = std::max(p[v] - q[v], 0.0);
        }
        if (c.terminated) return;  // whatever is drawn behind a stop token
        double total = 0.0;
        double before = 0.0;
        for (std::size_t v = 0; v < left.size(); ++v) {
            total += left[v];
            if (static_cast<token_id>(v) < c.next) before += left[v];
        }
        below = before / total;
        above = (before + left[static_cast<std::size_t>(c.next)]) / total;
    }
    [[nodiscard]] bool met(verify_case const& c, std::uint64_t seed) const {
        auto const u = [&](std::size_t k, purpose use) {
            return uniform({seed, position, static_cast<std::uint32_t>(k), use});
        };
        for (std::size_t k = 0; k < ratios.size(); ++k) {
            double const distance = ratios[k] - u(k, purpose::accept);
            if (k < kept(c) ? distance < room : distance > -room) return false;
        }
        if (c.terminated) return true;
        double const drawn = u(kept(c), kept(c) < c.n ? purpose::residual : purpose::bonus);
        // The first token begins at 0 and the last one ends at 1, without a neighbour to be confused with.
        return (below == 0.0 || drawn > below + room) && (above > 1.0 - 1e-12 || drawn < above - room);
    }
};

void judge(verify_case const& c, std::uint64_t seed) {
    auto const gamma = static_cast<std::uint32_t>(std::max<std::size_t>(c.n, 1));
    auto const vocabulary = static_cast<std::uint32_t>(c.vocabulary);
    device::device_limits const limits{1, gamma, vocabulary, 2, false};
    support::device_rounds const carved = support::round_of(limits);
    device::device_round const& round = carved.columns;
    support::carved<device::verify_memory> const memory(
        [&](device::workspace& ws) { return device::carve_verification(ws, limits); });

    transform const how{.temperature = c.temperature};
    support::upload(round.requests.count, std::uint32_t{1});
    support::upload(round.requests.anchors, token_id{c.ids[0]});
    support::upload(round.requests.positions, position);
    support::upload(round.requests.seeds, seed);
    support::upload(round.requests.targets, how);
    support::upload(round.requests.drafts, how);
    support::upload(round.requests.remaining, static_cast<std::uint32_t>(c.n + 1));
    support::upload(round.requests.draft_limits, static_cast<std::uint32_t>(c.n));
    support::upload(round.requests.stop_tokens,
                    std::vector<token_id>(golden::stop_tokens.begin(), golden::stop_tokens.end()));

    std::vector<float> const draft(c.draft.begin(), c.draft.end());
    std::vector<device::distribution> distributions;
    std::vector<double> probabilities;
    for (std::size_t k = 0; k < c.n; ++k) {
        auto const row = std::span<float const>(draft).subspan(k * c.vocabulary, c.vocabulary);
        distribution<float> const q{{row, {}}, how, {}, {}, scalar_kernels<row_kernels>};
        distributions.push_back(support::distribution_of(q, row, how));
        probabilities.push_back(q.probability(c.ids[k + 1]));
    }
    support::upload(round.drafts.tokens, std::vector<token_id>(c.ids.begin() + 1, c.ids.end()));
    support::upload(round.drafts.distributions, distributions);
    support::upload(round.drafts.token_probabilities, probabilities);
    support::upload(round.drafts.sizes, static_cast<std::uint32_t>(c.n));
    support::upload(round.drafts.statuses, status::ok);
    support::upload(round.batch.lengths, static_cast<std::uint32_t>(c.n));
    require_cuda(flatten(round, nullptr));

    device_array<float> const rows(std::vector<float>(c.target.begin(), c.target.end()));
    device_array<float> const drafted(draft);
    require_cuda(device::accept<token_rejection<>>(
        device::logits_rows<float>{rows.data(), static_cast<std::uint32_t>(c.n + 1), c.vocabulary},
        device::dense_draft_rows<float>{drafted.data(), c.vocabulary, gamma, vocabulary}, memory.columns, round,
        nullptr));

    REQUIRE(support::download(round.verdicts.statuses, 1)[0] == status::ok);
    CHECK(support::download(round.verdicts.accepted, 1)[0] == std::min(kept(c), c.drafted));
    CHECK((support::download(round.verdicts.stopped, 1)[0] != 0) == (c.terminated || golden::is_stop(c.next)));
    std::vector<token_id> expected(c.committed.begin(), c.committed.end());
    if (c.terminated) expected.pop_back();  // the next token that the reference draws and throws away
    auto const emitted = support::download(round.verdicts.emitted, 1)[0];
    CHECK(support::download(round.verdicts.tokens, emitted) == expected);
}

}  // namespace

TEST_CASE("cuda verify: token rejection reproduces the reference", "[golden]") {
    auto const cases = golden::verify_cases();
    REQUIRE(cases.size() > 5);
    std::size_t compared = 0;
    for (verify_case const& c : cases) {
        demands const uniforms(c);
        std::uint64_t seed = 1;
        constexpr std::uint64_t most = 3'000'000;
        while (seed < most && !uniforms.met(c, seed)) ++seed;
        INFO("case " << c.name << ", seed " << seed);
        if (seed == most) continue;  // its uniforms are where nobody's are
        judge(c, seed);
        ++compared;
    }
    CHECK(compared + 1 >= cases.size());
}
