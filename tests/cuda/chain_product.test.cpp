// SPDX-License-Identifier: MIT
//
// The product of a step: statistics of groups on tensor cores and without, against rows in double and against each
// other.
#include "support/catch.hpp"

#include <cmath>
#include <cstdint>
#include <vector>

#include "cuda/support/chain_scene.hpp"
#include "cuda/support/seeds.hpp"

using namespace chain_scene;

namespace {

/// Every position k of the codes W1[anchor] for all requests that `drafts` names, in a shuffled order.
template <class W, class U>
struct product_scene {
    scene<W, U> host;
    device_scene<W, U> there;
    std::vector<std::uint32_t> listed;
    device_array<W> codes;
    device_array<std::uint32_t> list, count;
    device_array<device::group_statistics> statistics;
    std::uint32_t terms;

    product_scene(support::dice& roll, sizes const& of, std::uint32_t term_count)
        : host(roll, of), there(host, of.requests), terms(term_count) {
        for (std::uint32_t r = 0; r < of.requests; ++r) {
            if (of.requests == 1 || roll.chance(0.8)) listed.push_back(r);
        }
        for (std::size_t i = listed.size(); i > 1; --i) std::swap(listed[i - 1], listed[roll.below(i)]);
        std::vector<W> z;
        for (std::uint32_t r = 0; r < of.requests; ++r) {
            for (std::uint32_t k = 0; k < of.block_size; ++k) {
                auto const at = static_cast<std::size_t>(host.views[r].anchor) * of.rank;
                for (std::uint32_t j = 0; j < of.rank; ++j) z.push_back(host.w1[at + j]);
                // What a rounding might leave: a third of the last place.
                for (std::uint32_t j = 0; j < (terms - 1) * of.rank; ++j) {
                    z.push_back(W(static_cast<float>(wide(host.w1[at + j]) / 700.0)));
                }
            }
        }
        codes = device_array<W>(z);
        list = device_array<std::uint32_t>(of.requests);
        std::vector<std::uint32_t> padded = listed;
        padded.resize(of.requests);
        list.upload(padded);
        count = device_array<std::uint32_t>(std::vector<std::uint32_t>{static_cast<std::uint32_t>(listed.size())});
    }

    [[nodiscard]] device::product_step<W, U> step(std::uint32_t k) {
        std::size_t const size = std::size_t{host.shape.requests} * device::groups_of(host.shape.vocabulary);
        statistics = device_array<device::group_statistics>(size);
        return {there.head.w2,
                there.forward.base_logits,
                {codes.data(), host.shape.block_size, host.shape.rank, terms},
                {list.data(), count.data()},
                there.round.requests.drafts,
                statistics.data(),
                {},
                k};
    }

    void check(std::uint32_t k) {
        auto const found = statistics.download();
        std::uint32_t const groups = device::groups_of(host.shape.vocabulary);
        std::vector<W> const z = codes.download();
        double worst = 0.0;
        for (std::uint32_t const r : listed) {
            transform const how = host.settings[r].draft_transform();
            double const scale = how.greedy() ? 1.0 : 1.0 / how.temperature;
            W const* const code = z.data() + (std::size_t{r} * host.shape.block_size + k) * host.shape.rank * terms;
            for (std::uint32_t g = 0; g < groups; ++g) {
                std::vector<double> logits;
                for (std::uint32_t v = g * 128; v < std::min((g + 1) * 128, host.shape.vocabulary); ++v) {
                    double l = wide(host.logit(r, k, v));
                    for (std::uint32_t j = 0; j < host.shape.rank; ++j) {
                        double sum = wide(code[j]);
                        if (terms == 2) sum += wide(code[host.shape.rank + j]);
                        l += sum * wide(host.w2[std::size_t{v} * host.shape.rank + j]);
                    }
                    logits.push_back(l);
                }
                double const largest = *std::max_element(logits.begin(), logits.end());
                double sum = 0.0;
                for (double const l : logits) sum += std::exp((l - largest) * scale);
                auto const& there_is = found[std::size_t{r} * groups + g];
                worst = std::max(worst, std::abs(static_cast<double>(there_is.largest) - largest));
                worst = std::max(worst, std::abs(static_cast<double>(there_is.sum) / sum - 1.0));
            }
        }
        INFO("worst difference " << worst);
        CHECK(worst < 2e-5);
    }
};

template <std::uint32_t terms, class W, class U>
void check_all(support::dice& roll, sizes const& of) {
    INFO(text(of) << ", terms " << terms << ", sizes of formats " << sizeof(W) << " " << sizeof(U));
    product_scene<W, U> s(roll, of, terms);
    std::uint32_t const k = of.block_size - 1;
    require_cuda(device::detail::launch_plain(s.step(k), nullptr));
    s.check(k);
    auto const on_tiles = [&](auto launch_tile) {
        require_cuda(launch_tile(s.step(k)));
        s.check(k);
    };
    if constexpr (!std::is_same_v<W, float>) {
        on_tiles([](auto const& step) { return device::detail::launch_tile<16, terms>(step, 3, nullptr); });
        on_tiles([](auto const& step) { return device::detail::launch_tile<32, terms>(step, 3, nullptr); });
        on_tiles([](auto const& step) { return device::detail::launch_tile<64, terms>(step, 2, nullptr); });
        on_tiles([](auto const& step) { return device::detail::launch_tile<128, terms>(step, 2, nullptr); });
        on_tiles([](auto const& step) {
            return device::detail::launch_tile<128, terms, device::by_wgmma>(step, 2, nullptr);
        });
    }
}

}  // namespace

TEST_CASE("A product's statistics are those of its rows, on every tile and without tensor cores", "[emulated]") {
    support::dice roll(20240601);
    INFO("seed " << roll.seed());
    check_all<1, bf16, bf16>(roll, {.vocabulary = 1025, .rank = 64, .requests = 17, .block_size = 2});
    check_all<1, bf16, float>(roll, {.vocabulary = 1000, .rank = 16, .requests = 3, .block_size = 1});
    check_all<2, bf16, half>(roll, {.vocabulary = 300, .rank = 80, .requests = 5, .block_size = 2, .padding = 4});
    check_all<1, half, bf16>(roll, {.vocabulary = 37, .rank = 256, .requests = 1, .block_size = 3});
    check_all<2, half, float>(roll, {.vocabulary = 128, .rank = 48, .requests = 40, .block_size = 1});
    check_all<1, float, float>(roll, {.vocabulary = 1001, .rank = 32, .requests = 35, .block_size = 2});
}

TEST_CASE("A product divides many requests among teams of blocks", "[emulated]") {
    support::dice roll(7);
    INFO("seed " << roll.seed());
    check_all<1, bf16, bf16>(roll, {.vocabulary = 400, .rank = 32, .requests = 170, .block_size = 1});
}

TEST_CASE("A product's statistics show what is no logit", "[emulated]") {
    constexpr float infinite = std::numeric_limits<float>::infinity();
    support::dice roll(11);
    sizes const of{.vocabulary = 600, .rank = 16, .requests = 6, .block_size = 1};
    for (bool const on_tiles : {false, true}) {
        product_scene<bf16, float> s(roll, of, 1);
        s.listed = {0, 1, 2, 3, 4, 5};
        s.list.upload(s.listed);
        s.count.upload({6});
        s.host.logit(0, 0, 300) = std::numeric_limits<float>::quiet_NaN();
        s.host.logit(1, 0, 599) = infinite;
        for (std::size_t v = 0; v < 600; ++v) {
            s.host.logit(2, 0, v) = -infinite;
            if (v >= 128 && v < 256) s.host.logit(3, 0, v) = -infinite;
            if (v >= 200 && v < 216) s.host.logit(4, 0, v) = -infinite;
            if (v >= 256 && v < 384) s.host.logit(5, 0, v) = std::numeric_limits<float>::quiet_NaN();
        }
        s.there.base.upload(s.host.base);
        auto const step = s.step(0);
        require_cuda(on_tiles ? device::detail::launch_tile<16, 1>(step, 2, nullptr)
                              : device::detail::launch_plain(step, nullptr));
        auto const found = s.statistics.download();
        auto const at = [&](std::uint32_t r, std::uint32_t g) { return found[r * 5 + g]; };
        CHECK(std::isnan(at(0, 2).sum));
        CHECK(at(1, 4).largest == infinite);
        CHECK(std::isnan(at(1, 4).sum));
        for (std::uint32_t g = 0; g < 5; ++g) {
            CHECK(at(2, g).largest == -infinite);
            CHECK(at(2, g).sum == 0.0f);
            if (g != 2) CHECK(at(0, g).sum >= 1.0f);
        }
        CHECK(at(3, 1).sum == 0.0f);
        CHECK(at(3, 0).sum >= 1.0f);
        CHECK(at(4, 1).sum >= 1.0f);
        CHECK(std::isnan(at(5, 2).sum));
    }
}
