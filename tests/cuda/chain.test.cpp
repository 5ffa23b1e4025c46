// SPDX-License-Identifier: MIT
//
// The chain against the host's drafter on the same rounds: tokens, distributions, probabilities, survivals, statuses. A
// token that differs must lie within rounding of where the two tokens' shares meet, by the row in double.
#include "support/catch.hpp"

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "cuda/support/captured.hpp"
#include "cuda/support/chain_scene.hpp"
#include "cuda/support/seeds.hpp"

using namespace chain_scene;

namespace {

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinite = std::numeric_limits<float>::infinity();

struct tally {
    std::size_t tokens = 0;
    std::size_t different = 0;
};

/// Logits are right to a few units of their last place, some 1e-6; weights to that in units of the temperature.
double rounding_of(transform const& how) {
    return how.greedy() ? 1e-5 : 1e-5 * std::max(1.0, 0.2 / how.temperature);
}

/// How the draft's places are named.
struct names {
    std::vector<token_id> to_target{};
    vocabulary_map const* map = nullptr;

    [[nodiscard]] std::size_t place(token_id x) const {
        return static_cast<std::size_t>(map == nullptr ? x : map->to_draft(x));
    }
};

template <class DraftRule, class W, class U>
void compare_position(scene<W, U> const& s, std::size_t r, std::size_t k, token_id previous, token_id mine,
                      token_id hosts, device::distribution const& q, double probability, names const& of, tally& seen) {
    transform const how = s.settings[r].draft_transform();
    std::vector<double> row = s.row(r, k, previous);
    double const largest = *std::max_element(row.begin(), row.end());
    ++seen.tokens;
    if (mine != hosts) ++seen.different;
    if (DraftRule::is_deterministic || how.greedy()) {
        CHECK(q.is_one_hot());
        CHECK(q.mode == mine);
        CHECK(probability == 1.0);
        if (mine != hosts) CHECK(largest - row[of.place(mine)] < 1e-5);
        return;
    }
    CHECK(q.kind == device::distribution_kind::dense);
    CHECK(q.scale == static_cast<float>(1.0 / how.temperature));
    CHECK(static_cast<double>(q.shift) == Approx(largest).margin(1e-5));
    if (how.truncates()) {
        // The last token kept, by the row in double: the same one, or its equal within rounding.
        std::vector<token_id> order(row.size());
        std::vector<float> narrow(row.begin(), row.end());
        auto const mode = static_cast<token_id>(std::max_element(narrow.begin(), narrow.end()) - narrow.begin());
        auto const last = sureleap::detail::truncate<float>(narrow, how, mode, order,
                                                            scalar_kernels<row_kernels>.template get<float>())
                              .last;
        CHECK(q.least_logit == Approx(last.logit).margin(1e-5));
        if (q.least_id != last.id) CHECK(static_cast<double>(q.least_logit) == Approx(last.logit).margin(1e-5));
        for (std::size_t i = 0; i < row.size(); ++i) {
            auto const id = static_cast<token_id>(i);
            bool const kept = id == q.least_id || row[i] > static_cast<double>(q.least_logit);
            if (!kept) row[i] = -std::numeric_limits<double>::infinity();
        }
    }
    double total = 0.0;
    double before = -1.0;
    double before_hosts = -1.0;
    for (std::size_t i = 0; i < row.size(); ++i) {
        if (i == of.place(mine)) before = total;
        if (i == of.place(hosts)) before_hosts = total;
        total += std::exp((row[i] - static_cast<double>(q.shift)) / how.temperature);
    }
    double const rounding = rounding_of(how);
    CHECK(q.total == Approx(total).epsilon(rounding));
    double const weight = std::exp((row[of.place(mine)] - static_cast<double>(q.shift)) / how.temperature);
    CHECK(probability == Approx(weight / total).epsilon(2.0 * rounding));
    if (mine != hosts && std::is_same_v<DraftRule, coupled_draft>) {
        auto const time = [&](token_id x) {
            return exponential(noise_key(s.views[r], k), static_cast<std::size_t>(x)) /
                   std::exp((row[of.place(x)] - static_cast<double>(q.shift)) / how.temperature);
        };
        CHECK(time(mine) == Approx(time(hosts)).epsilon(rounding));
    } else if (mine != hosts) {
        double const u = uniform(block_key(s.views[r], k, purpose::draft));
        CHECK(std::abs(u - std::max(before, before_hosts) / total) < rounding);
    }
}

/// Everything that draw_chain writes, beside the host's block.
template <class DraftRule, class W, class U>
void compare(scene<W, U> const& s, device_scene<W, U> const& there, draft_block<float> const& block, tally& seen,
             names const& of = {}, std::uint32_t slack = 0) {
    std::uint32_t const gamma = s.shape.block_size;
    std::size_t const size = std::size_t{s.shape.requests} * gamma;
    auto const& drafts = there.round.drafts;
    auto const sizes = downloaded(drafts.sizes, s.shape.requests);
    auto const statuses = downloaded(drafts.statuses, s.shape.requests);
    auto const tokens = downloaded(drafts.tokens, size);
    auto const distributions = downloaded(drafts.distributions, size);
    auto const probabilities = downloaded(drafts.token_probabilities, size);
    auto const confidence = downloaded(drafts.confidence, size);
    auto const survival = downloaded(drafts.survival, size);
    auto const table = block.table();
    for (std::size_t r = 0; r < s.shape.requests; ++r) {
        INFO("request " << r);
        CHECK(statuses[r] == block.draft_outcome(r));
        bool same = true;
        for (std::size_t k = 0; k < std::min<std::size_t>(sizes[r], block.size(r)) && same; ++k) {
            std::size_t const i = r * gamma + k;
            INFO("position " << k << ", token " << tokens[i] << ", on the host " << table.tokens[i]);
            compare_position<DraftRule>(s, r, k, k == 0 ? s.views[r].anchor : tokens[i - 1], tokens[i], table.tokens[i],
                                        distributions[i], probabilities[i], of, seen);
            same = tokens[i] == table.tokens[i];
            double const rounding = rounding_of(s.settings[r].draft_transform());
            if (same) CHECK(probabilities[i] == Approx(table.token_probabilities[i]).epsilon(rounding));
            CHECK(static_cast<double>(confidence[i]) ==
                  Approx(static_cast<double>(table.survivals.confidence[i])).margin(slack));
            CHECK(static_cast<double>(survival[i]) ==
                  Approx(static_cast<double>(table.survivals.survival[i])).margin(slack * gamma));
        }
        if (same) CHECK(sizes[r] == block.size(r));
    }
}

template <class DraftRule, class W, class U>
tally run(support::dice& roll, sizes const& of, double temperature = -1.0, std::uint32_t spare = 0) {
    INFO(text(of) << ", formats of " << sizeof(W) << " and " << sizeof(U) << " bytes");
    scene<W, U> const s(roll, of, temperature);
    device_scene<W, U> there(s, of.requests + spare, std::is_same_v<DraftRule, coupled_draft>);
    support::in_graph([&](cudaStream_t stream) {
        return device::draw_chain<DraftRule>(there.head, device::no_confidence{}, there.forward, there.chain,
                                             there.round, stream);
    });
    host_blocks<W, U> const host(s, DraftRule{});
    tally seen;
    compare<DraftRule>(s, there, host.block, seen);
    return seen;
}

/// At most one token of a thousand.
void check_few(tally const& seen) {
    INFO(seen.different << " of " << seen.tokens << " tokens differ");
    CHECK(seen.tokens > 0);
    CHECK(seen.different * 1000 <= seen.tokens + 999);
}

}  // namespace

TEST_CASE("Chains draw the host's tokens, for every format and shape", "[emulated]") {
    support::dice roll(20250101);
    INFO("seed " << roll.seed());
    tally all;
    auto const count = [&](tally const& seen) {
        all.tokens += seen.tokens;
        all.different += seen.different;
    };
    using drawn = categorical_draft;
    count(run<drawn, bf16, bf16>(roll, {.vocabulary = 3001, .rank = 256, .requests = 3, .block_size = 7}, -1.0, 2));
    count(run<drawn, bf16, float>(roll, {.vocabulary = 1000, .rank = 64, .requests = 17, .block_size = 3}));
    count(run<drawn, bf16, half>(roll, {.vocabulary = 37, .rank = 16, .requests = 17, .block_size = 5}));
    count(run<drawn, half, half>(roll, {.vocabulary = 1025, .rank = 32, .requests = 3, .block_size = 2}));
    count(run<drawn, half, bf16>(roll, {.vocabulary = 128, .rank = 16, .requests = 130, .block_size = 1}, -1.0, 40));
    count(run<drawn, float, float>(roll, {.vocabulary = 1025, .rank = 64, .requests = 17, .block_size = 4}));
    count(run<drawn, float, bf16>(roll, {.vocabulary = 128, .rank = 16, .requests = 1, .block_size = 6}));
    count(run<drawn, bf16, bf16>(roll, {.vocabulary = 999, .rank = 32, .requests = 20, .block_size = 4, .padding = 1}));
    check_few(all);
}

TEST_CASE("Chains keep their distributions at every temperature", "[emulated]") {
    support::dice roll(31);
    INFO("seed " << roll.seed());
    sizes const of{.vocabulary = 700, .rank = 32, .requests = 9, .block_size = 3};
    for (double const temperature : {0.0, 0.01, 0.7, 1.3, 50.0}) {
        INFO("temperature " << temperature);
        check_few(run<categorical_draft, bf16, bf16>(roll, of, temperature));
        check_few(run<argmax_draft, bf16, float>(roll, of, temperature));
        check_few(run<argmax_draft, float, half>(roll, of, temperature));
    }
}

TEST_CASE("Chains race with the host's noise", "[emulated]") {
    support::dice roll(40);
    INFO("seed " << roll.seed());
    sizes const of{.vocabulary = 1500, .rank = 32, .requests = 19, .block_size = 4};
    check_few(run<coupled_draft, bf16, bf16>(roll, of));
    check_few(run<coupled_draft, float, half>(roll, of, 0.7));
    check_few(run<coupled_draft, half, float>(roll, {.vocabulary = 129, .rank = 16, .requests = 70, .block_size = 2}));
}

TEST_CASE("Chains of truncated distributions", "[emulated]") {
    support::dice roll(41);
    INFO("seed " << roll.seed());
    transform const kinds[] = {{0.8, 5, 1.0, 0.0}, {1.0, 0, 0.7, 0.0}, {1.2, 0, 1.0, 0.05}, {0.7, 40, 0.9, 0.01},
                               {1.0, 1, 1.0, 0.0}, {0.0, 7, 0.5, 0.0}, {0.9, 0, 1.0, 0.0}};
    for (std::uint32_t const vocabulary : {37u, 1000u, 2100u}) {
        sizes const of{.vocabulary = vocabulary, .rank = 32, .requests = 14, .block_size = 4};
        INFO(text(of));
        scene<bf16, bf16> s(roll, of);
        for (std::size_t r = 0; r < of.requests; ++r) s.settings[r].draft = kinds[r % 7];
        auto const compare_with = [&](auto rule) {
            device_scene<bf16, bf16> there(s, of.requests, true);
            support::in_graph([&](cudaStream_t stream) {
                return device::draw_chain<decltype(rule)>(there.head, device::top1_confidence{}, there.forward,
                                                          there.chain, there.round, stream);
            });
            host_blocks<bf16, bf16, sureleap::top1_confidence> const host(s, rule);
            tally seen;
            compare<decltype(rule)>(s, there, host.block, seen, {}, 64);
            check_few(seen);
        };
        compare_with(categorical_draft{});
        compare_with(coupled_draft{});
        compare_with(argmax_draft{});
    }
}

TEST_CASE("A truncated distribution without memory for its row is refused", "[emulated]") {
    support::dice roll(42);
    INFO("seed " << roll.seed());
    sizes const of{.vocabulary = 60, .rank = 16, .requests = 3, .block_size = 2};
    scene<bf16, bf16> s(roll, of, 1.0);
    s.drafts_all();
    s.settings[1].draft = transform{.top_k = 3};
    device_scene<bf16, bf16> there(s, of.requests);
    require_cuda(device::draw_chain<categorical_draft>(there.head, device::no_confidence{}, there.forward, there.chain,
                                                       there.round, nullptr));
    CHECK(downloaded(there.round.drafts.sizes, 3) == std::vector<std::uint32_t>{2, 0, 2});
    CHECK(downloaded(there.round.drafts.statuses, 3) ==
          std::vector<status>{status::ok, status::invalid_draft, status::ok});
}

TEST_CASE("Chains take the first of equal logits", "[emulated]") {
    support::dice roll(32);
    INFO("seed " << roll.seed());
    sizes const of{.vocabulary = 500, .rank = 16, .requests = 4, .block_size = 4};
    scene<bf16, float> s(roll, of, 0.0);
    for (std::size_t v = 0; v < of.vocabulary; ++v) {  // three kinds of tokens, none alone
        for (std::size_t j = 0; j < of.rank; ++j) s.w2[v * of.rank + j] = s.w2[v % 3 * of.rank + j];
        for (std::size_t i = 0; i < of.requests * of.block_size; ++i) s.base[i * s.stride + v] = 0.25f;
    }
    device_scene<bf16, float> there(s, of.requests);
    require_cuda(device::draw_chain<categorical_draft>(there.head, device::no_confidence{}, there.forward, there.chain,
                                                       there.round, nullptr));
    host_blocks<bf16, float> const host(s, categorical_draft{});
    for (std::size_t r = 0; r < of.requests; ++r) {
        auto const mine = downloaded(there.round.drafts.tokens, of.requests * of.block_size);
        for (std::size_t k = 0; k < host.block.size(r); ++k) {
            CHECK(mine[r * of.block_size + k] == host.block.tokens(r)[k]);
            CHECK(mine[r * of.block_size + k] < 3);
        }
    }
}

TEST_CASE("A chain's numbers do not depend on the order of threads", "[emulated]") {
    support::dice roll(33);
    INFO("seed " << roll.seed());
    sizes const of{.vocabulary = 300, .rank = 32, .requests = 21, .block_size = 2};
    scene<bf16, bf16> const s(roll, of);
    std::vector<double> first;
    for_each_order(6, [&] {
        device_scene<bf16, bf16> there(s, of.requests);
        require_cuda(device::draw_chain<categorical_draft>(there.head, device::top1_confidence{}, there.forward,
                                                           there.chain, there.round, nullptr));
        auto const sizes = downloaded(there.round.drafts.sizes, of.requests);
        auto const probabilities = downloaded(there.round.drafts.token_probabilities, of.requests * of.block_size);
        std::vector<double> now;
        for (std::size_t r = 0; r < of.requests; ++r) {
            for (std::size_t k = 0; k < sizes[r]; ++k) now.push_back(probabilities[r * of.block_size + k]);
        }
        if (first.empty()) first = now;
        CHECK(now == first);
    });
}

TEST_CASE("What is no logit ends its own block, at every position", "[emulated]") {
    support::dice roll(34);
    INFO("seed " << roll.seed());
    sizes const of{.vocabulary = 400, .rank = 16, .requests = 7, .block_size = 4};
    for (std::size_t k = 0; k < of.block_size; ++k) {
        scene<bf16, float> s(roll, of, k % 2 == 0 ? 0.7 : 0.0);
        s.drafts_all();
        s.logit(0, k, 399) = not_a_number;
        s.logit(1, k, roll.below(400)) = infinite;
        for (std::size_t v = 0; v < 400; ++v) {
            s.logit(2, k, v) = -infinite;
            s.logit(3, k, v) = not_a_number;
            if (v >= 128) s.logit(4, k, v) = -infinite;
            if (v != 77) s.logit(5, k, v) = -infinite;
        }
        device_scene<bf16, float> there(s, of.requests);
        require_cuda(device::draw_chain<categorical_draft>(there.head, device::no_confidence{}, there.forward,
                                                           there.chain, there.round, nullptr));
        host_blocks<bf16, float> const host(s, categorical_draft{});
        auto const statuses = downloaded(there.round.drafts.statuses, of.requests);
        auto const sizes = downloaded(there.round.drafts.sizes, of.requests);
        auto const tokens = downloaded(there.round.drafts.tokens, of.requests * of.block_size);
        for (std::size_t r = 0; r < of.requests; ++r) {
            INFO("position " << k << ", request " << r);
            CHECK(statuses[r] == host.block.draft_outcome(r));
            CHECK(sizes[r] == host.block.size(r));
            if (r < 4) {
                CHECK(statuses[r] == status::invalid_draft);
                CHECK(sizes[r] == k);
            }
        }
        if (sizes[4] > k) CHECK(tokens[4 * of.block_size + k] < 128);
        if (sizes[5] > k) CHECK(tokens[5 * of.block_size + k] == 77);
    }
}

TEST_CASE("Nothing is drafted behind an anchor that is no token", "[emulated]") {
    support::dice roll(36);
    INFO("seed " << roll.seed());
    sizes const of{.vocabulary = 150, .rank = 16, .requests = 7, .block_size = 3};
    scene<bf16, bf16> s(roll, of, 1.0);
    s.drafts_all();
    token_id const foreign[] = {-200, no_token, 150, 151, std::numeric_limits<token_id>::max()};
    for (std::size_t i = 0; i < std::size(foreign); ++i) s.views[i].anchor = foreign[i];
    s.views[5].anchor = 149;
    device_scene<bf16, bf16> there(s, of.requests);
    require_cuda(device::draw_chain<categorical_draft>(there.head, device::top1_confidence{}, there.forward,
                                                       there.chain, there.round, nullptr));
    host_blocks<bf16, bf16, sureleap::top1_confidence> const host(s, categorical_draft{});
    tally seen;
    compare<categorical_draft>(s, there, host.block, seen, {}, 32);
    auto const drafted = downloaded(there.round.drafts.sizes, of.requests);
    CHECK(drafted == std::vector<std::uint32_t>{0, 0, 0, 0, 0, 3, 3});
}

TEST_CASE("Confidences are recorded, and end blocks below the floor", "[emulated]") {
    support::dice roll(35);
    INFO("seed " << roll.seed());
    sizes const of{.vocabulary = 60, .rank = 16, .requests = 23, .block_size = 5};
    fixed_probability const floor = certain / 16;
    scene<bf16, bf16> s(roll, of, -1.0);
    device_scene<bf16, bf16> there(s, of.requests);
    device_array<fixed_probability> const floors(std::vector<fixed_probability>{floor});
    device::chain_options const options{.floor = floors.data()};
    require_cuda(device::draw_chain<categorical_draft>(there.head, device::top1_confidence{}, there.forward,
                                                       there.chain, there.round, nullptr, options));
    host_blocks<bf16, bf16, sureleap::top1_confidence> const host(s, categorical_draft{}, floor);
    tally seen;
    compare<categorical_draft>(s, there, host.block, seen, {}, 32);
    check_few(seen);
}

TEST_CASE("A draft with a vocabulary of its own", "[emulated]") {
    support::dice roll(36);
    INFO("seed " << roll.seed());
    sizes const of{.vocabulary = 200, .rank = 32, .requests = 12, .block_size = 4, .target = 333};
    std::vector<token_id> to_target;
    for (token_id v = 0; v < 333; ++v) to_target.push_back(v);
    for (std::size_t i = 333; i > 1; --i) std::swap(to_target[i - 1], to_target[roll.below(i)]);
    to_target.resize(200);
    vocabulary_map const map(to_target, 333);
    device_array<token_id> const ids(to_target);
    scene<half, bf16> s(roll, of);
    auto const compare_with = [&](auto rule) {
        using rule_type = decltype(rule);
        device_scene<half, bf16> there(s, of.requests, true);
        require_cuda(device::draw_chain<rule_type>(there.head, device::no_confidence{}, there.forward, there.chain,
                                                   there.round, nullptr, {.to_target = ids.data()}));
        host_blocks<half, bf16> const host(s, rule, 0, &map);
        tally seen;
        compare<rule_type>(s, there, host.block, seen, {to_target, &map});
        check_few(seen);
    };
    compare_with(categorical_draft{});
    compare_with(argmax_draft{});
    compare_with(coupled_draft{});
    for (std::size_t r = 0; r < s.settings.size(); ++r) {
        transform const kinds[] = {{.temperature = 0.9, .top_k = 5}, {.temperature = 1.2, .top_p = 0.7}};
        s.settings[r].draft = kinds[r % 2];
    }
    compare_with(categorical_draft{});
    compare_with(coupled_draft{});
}

namespace {

struct invalid_confidence : device::no_confidence {
    double value;
    __device__ double operator()(std::uint32_t r, std::uint32_t k, token_id, device::position_statistics const&,
                                 float*) const {
        return r == 1 && k == 1 ? value : 0.5;
    }
};

}  // namespace

TEST_CASE("A confidence that is no probability ends its own block", "[emulated]") {
    support::dice roll(37);
    INFO("seed " << roll.seed());
    sizes const of{.vocabulary = 50, .rank = 16, .requests = 3, .block_size = 3};
    for (double const value : {-0.1, 1.5, static_cast<double>(not_a_number)}) {
        scene<bf16, bf16> s(roll, of, 1.0);
        s.drafts_all();
        device_scene<bf16, bf16> there(s, of.requests);
        require_cuda(device::draw_chain<categorical_draft>(there.head, invalid_confidence{{}, value}, there.forward,
                                                           there.chain, there.round, nullptr));
        CHECK(downloaded(there.round.drafts.sizes, 3) == std::vector<std::uint32_t>{3, 1, 3});
        CHECK(downloaded(there.round.drafts.statuses, 3) ==
              std::vector<status>{status::ok, status::invalid_confidence, status::ok});
    }
}

namespace {

template <class Rows>
__global__ void evaluate(Rows rows, std::uint32_t r, std::uint32_t k, device::distribution q, std::uint32_t vocabulary,
                         float* by_token, float* by_block) {
    struct shared {
        float weights[1024];
    };
    auto& s = device::shared_memory<shared>();
    for (std::uint32_t v = device::warp_index(); v < vocabulary; v += blockDim.x / device::warp_size) {
        float const weight = rows.weight(r, k, q, static_cast<token_id>(v));
        if (device::lane_index() == v % device::warp_size) by_token[v] = weight;
    }
    for (std::uint32_t block = 0; block * 1024 < vocabulary; ++block) {
        rows.weights(r, k, q, block, s.weights);
        __syncthreads();
        for (std::uint32_t i = threadIdx.x; i < 1024; i += blockDim.x) by_block[block * 1024 + i] = s.weights[i];
        __syncthreads();
    }
}

template <class W, class U>
void check_rows(support::dice& roll, sizes const& of, bool own_vocabulary,
                transform const& how = {.temperature = 0.8}) {
    scene<W, U> s(roll, of);
    s.drafts_all();
    for (auto& each : s.settings) each.draft = how;
    device_scene<W, U> there(s, of.requests, how.truncates());
    std::vector<token_id> to_draft(s.target(), no_token);
    std::vector<token_id> to_target;
    for (std::uint32_t d = 0; d < of.vocabulary; ++d) {
        to_target.push_back(static_cast<token_id>(own_vocabulary ? s.target() - 1 - d : d));
        to_draft[static_cast<std::size_t>(to_target.back())] = static_cast<token_id>(d);
    }
    device_array<token_id> const names(to_target);
    device_array<token_id> const places(to_draft);
    require_cuda(device::draw_chain<categorical_draft>(there.head, device::no_confidence{}, there.forward, there.chain,
                                                       there.round, nullptr,
                                                       {.to_target = own_vocabulary ? names.data() : nullptr}));
    auto const rows =
        device::draft_rows_of(there.head, there.forward, there.chain, own_vocabulary ? places.data() : nullptr);
    auto const sizes = downloaded(there.round.drafts.sizes, of.requests);
    auto const distributions = downloaded(there.round.drafts.distributions, of.requests * of.block_size);
    auto const tokens = downloaded(there.round.drafts.tokens, of.requests * of.block_size);
    auto const probabilities = downloaded(there.round.drafts.token_probabilities, of.requests * of.block_size);
    std::size_t seen = 0;
    for (std::uint32_t r = 0; r < of.requests; ++r) {
        if (sizes[r] == 0) continue;
        std::uint32_t const k = sizes[r] - 1;
        std::size_t const i = r * of.block_size + k;
        ++seen;
        device_array<float> by_token(s.target());
        device_array<float> by_block((s.target() + 1023) / 1024 * 1024);
        for (bool const narrower : {false, true}) {
            device::distribution q = distributions[i];
            bool const truncated = narrower || how.truncates();
            auto const row = s.row(r, k, k == 0 ? s.views[r].anchor : tokens[i - 1]);
            if (narrower) q.least_logit = std::max(q.least_logit, q.shift - 2.0f);
            require_cuda(device::launch(evaluate<std::remove_const_t<decltype(rows)>>, dim3(1), dim3(128), 4096,
                                        nullptr, rows, r, k, q, s.target(), by_token.data(), by_block.data()));
            auto const one_by_one = by_token.download();
            auto const together = by_block.download();
            for (std::size_t v = 0; v < together.size(); ++v) {
                if (v >= s.target()) {
                    CHECK(together[v] == 0.0f);
                    continue;
                }
                if (one_by_one[v] != together[v]) FAIL("token " << v << ": " << one_by_one[v] << ", " << together[v]);
                token_id const d = to_draft[v];
                double expected = 0.0;
                if (d != no_token) {
                    double const l = row[static_cast<std::size_t>(d)];
                    double const at = static_cast<double>(q.least_logit);
                    if (truncated && std::abs(l - at) < 1e-4) continue;
                    if (!truncated || l > at) {
                        expected = std::exp((l - static_cast<double>(q.shift)) * static_cast<double>(q.scale));
                    }
                }
                if (std::abs(static_cast<double>(one_by_one[v]) - expected) > 1e-5 * expected) {
                    FAIL("token " << v << ": " << one_by_one[v] << ", expected " << expected);
                }
            }
            if (!narrower) {
                double sum = 0.0;
                for (float const weight : one_by_one) sum += static_cast<double>(weight);
                CHECK(sum == Approx(q.total).epsilon(1e-5));
                auto const x = static_cast<std::size_t>(tokens[i]);
                CHECK(static_cast<double>(one_by_one[x]) / q.total == probabilities[i]);
            }
        }
    }
    CHECK(seen > 0);
}

}  // namespace

TEST_CASE("Rows are found again, token by token and block by block", "[emulated]") {
    support::dice roll(38);
    INFO("seed " << roll.seed());
    check_rows<bf16, bf16>(roll, {.vocabulary = 1100, .rank = 32, .requests = 3, .block_size = 2}, false);
    check_rows<half, float>(roll, {.vocabulary = 37, .rank = 256, .requests = 2, .block_size = 3}, false);
    check_rows<float, half>(roll, {.vocabulary = 130, .rank = 144, .requests = 2, .block_size = 1}, false);
    check_rows<bf16, float>(roll, {.vocabulary = 90, .rank = 16, .requests = 3, .block_size = 2, .target = 1030}, true);
    sizes const many{.vocabulary = 1500, .rank = 32, .requests = 4, .block_size = 3};
    check_rows<bf16, bf16>(roll, many, false, {.temperature = 0.9, .top_k = 3});
    check_rows<bf16, float>(roll, many, false, {.temperature = 1.1, .top_p = 0.6});
    check_rows<half, float>(roll, {.vocabulary = 90, .rank = 16, .requests = 3, .block_size = 2, .target = 200}, true,
                            {.temperature = 1.0, .top_k = 20, .min_p = 0.02});
}

TEST_CASE("A chain refuses what does not fit, before anything is launched", "[emulated]") {
    support::dice roll(39);
    INFO("seed " << roll.seed());
    sizes const of{.vocabulary = 40, .rank = 16, .requests = 2, .block_size = 2};
    scene<bf16, bf16> const s(roll, of);
    device_scene<bf16, bf16> there(s, of.requests);
    uploaded(there.round.drafts.sizes, std::vector<std::uint32_t>{17, 17});
    auto const refused = [&](auto const& head, auto const& forward, auto const& memory, auto const& round) {
        cudaError_t const error =
            device::draw_chain<categorical_draft>(head, device::no_confidence{}, forward, memory, round, nullptr);
        CHECK(downloaded(there.round.drafts.sizes, 2) == std::vector<std::uint32_t>{17, 17});
        return error == cudaErrorInvalidValue;
    };
    auto const head_with = [&](auto change) {
        auto head = there.head;
        change(head);
        return refused(head, there.forward, there.chain, there.round);
    };
    CHECK(head_with([](auto& head) { head.w1.data = nullptr; }));
    CHECK(head_with([](auto& head) { head.w2.data = nullptr; }));
    CHECK(head_with([](auto& head) { head.w1.cols = 32; }));
    CHECK(head_with([](auto& head) { head.w2.rows = 39; }));
    CHECK(head_with([](auto& head) { head.w2.data += 1; }));
    CHECK(head_with([](auto& head) { head.w1.stride = 17; }));
    auto const forward_with = [&](auto change) {
        auto forward = there.forward;
        change(forward.base_logits);
        return refused(there.head, forward, there.chain, there.round);
    };
    CHECK(forward_with([](auto& base) { base.data = nullptr; }));
    CHECK(forward_with([](auto& base) { base.rows -= 1; }));
    CHECK(forward_with([](auto& base) { base.cols -= 1; }));
    CHECK(forward_with([](auto& base) { base.stride -= 1; }));
    auto limits = there.limits;
    limits.vocabulary += 1;
    auto round = there.round;
    round.limits = limits;
    CHECK(refused(there.head, there.forward, there.chain, round));
    CHECK(refused(there.head, there.forward, there.chain, device::device_round{}));
    CHECK(refused(there.head, there.forward, device::chain_memory{}, there.round));
    CHECK(device::draw_chain<coupled_draft>(there.head, device::no_confidence{}, there.forward, there.chain,
                                            there.round,
                                            nullptr) == cudaErrorInvalidValue);  // no rows
    device::chain_memory other = there.chain;
    other.limits.block_size = 1;
    CHECK(refused(there.head, there.forward, other, there.round));
    device::workspace small{there.memory.data(), 1023};
    CHECK_FALSE(device::carve_chain(small, there.limits, device::shape_of(there.head)).ready());
}
