// SPDX-License-Identifier: MIT
//
// Who runs next. Everything is drawn from one seed, and every launch draws anew how it treats its threads:
//
//   - A warp is left when it must be, and now and then before; for another of its block, or of any block.
//   - Lanes of a warp come in random order, or in rising or falling order.
//   - Threads fall asleep, when a block starts, after barriers and at atomics, and sleep until nobody else can run, or nearly:
//     the others get as far ahead of them as can be.
//   - In half of all launches one warp of one block is the victim, which sleeps whenever it can and is woken last. Many a
//     missing barrier between blocks needs just that: one warp late, all others done.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "state.hpp"

namespace emulator::detail {

/// xorshift64*: fast, and the same everywhere.
class random_source {
public:
    explicit random_source(std::uint64_t seed) : state_{(seed + 1) * 0x9e3779b97f4a7c15u | 1u} {}
    std::uint32_t operator()() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return static_cast<std::uint32_t>((state_ * 0x2545f4914f6cdd1du) >> 32);
    }

private:
    std::uint64_t state_;
};

class scheduler {
public:
    explicit scheduler(std::uint64_t seed) : random_{seed} {}

    std::uint32_t random() { return random_(); }

    /// A launch of so many blocks, each of so many warps. Returns how many blocks are resident, at most.
    std::size_t start_launch(std::size_t blocks, std::size_t warps_each) {
        constexpr std::array<std::uint32_t, 4> rarities{0xffffffu, 0xffu, 0x3fu, 0xfu};  // one in so many, and one
        constexpr std::array<std::uint32_t, 4> depths{0, 20, 90, 150};                   // of 256
        constexpr std::array<std::size_t, 8> crowds{1, 2, 2, 3, 3, 4, 6, 8};
        wanders_ = rarities[random_() % rarities.size()];
        stays_in_block_ = random_() % 2 == 0;
        sleepiness_ = depths[random_() % depths.size()];
        wakes_ = rarities[random_() % rarities.size()];
        victim_ = nullptr;
        victim_block_ = random_() % blocks;
        victim_warp_ = random_() % 2 == 0 ? random_() % warps_each : nobody;
        warps_.clear();
        sleepers_ = 0;
        return crowds[random_() % crowds.size()];
    }

    /// A resident block, whose warps stay where they are for the whole launch.
    void add(block& b) {
        for (warp& w : b.warps) warps_.push_back(&w);
    }

    /// Block `number` of the grid begins in place of the last one.
    void start_block(block& b, std::size_t number) {
        if (victim_ != nullptr && victim_->lanes[0]->home == &b) victim_ = nullptr;
        if (number == victim_block_ && victim_warp_ != nobody) victim_ = &b.warps[victim_warp_];
        for (warp& w : b.warps) set_free(w, w.present);
    }

    /// Lanes that waited can run; they need not at once.
    void set_free(warp& w, std::uint32_t lanes) {
        if (falls_asleep(w)) {
            put_to_sleep(w, lanes);
        } else {
            w.runnable |= lanes;
        }
    }

    /// A running thread comes to a place where others may well come first. False if it had better go on.
    bool delays(thread& t) {
        if (random_() % 4 != 0) return false;
        if (falls_asleep(*t.group)) {
            t.group->runnable &= ~(1u << t.lane);
            put_to_sleep(*t.group, 1u << t.lane);
        }
        return true;
    }

    /// A running thread polls: it sleeps until nobody else can run.
    void nap(thread& t) {
        t.group->runnable &= ~(1u << t.lane);
        put_to_sleep(*t.group, 1u << t.lane);
    }

    /// Whose turn it is after a thread, or at first; nobody if none can run.
    thread* next(thread const* last, bool leaves_warp) {
        warp* w = last == nullptr ? nullptr : last->group;
        if (w == nullptr || leaves_warp || w->runnable == 0 || (random_() & wanders_) == 0) {
            w = some_warp(last == nullptr ? nullptr : last->home);
        }
        return w == nullptr ? nullptr : some_lane(*w);
    }

private:
    static constexpr std::size_t nobody = ~std::size_t{0};

    warp* some_warp(block* here) {
        order_ = random_() % 4;
        bool const only_victim = sleepers_ == 1 && victim_ != nullptr && victim_->asleep != 0;
        if (sleepers_ != 0 && !only_victim && (random_() & wakes_) == 0) wake_a_warp();
        if (here != nullptr && stays_in_block_) {
            auto const own = [&](std::size_t i) { return &here->warps[i]; };
            if (warp* const found = find_warp(here->warps.size(), own, &warp::runnable)) return found;
        }
        warp* const found = find_warp(warps_.size(), [&](std::size_t i) { return warps_[i]; }, &warp::runnable);
        return found != nullptr || sleepers_ == 0 ? found : wake_a_warp();
    }

    /// From a random one on, the first of n warps with such lanes.
    template <class At>
    warp* find_warp(std::size_t n, At at, std::uint32_t warp::* lanes) {
        for (std::size_t i = random_() % n, tries = 0; tries < n; ++tries, i = i + 1 == n ? 0 : i + 1) {
            if (at(i)->*lanes != 0) return at(i);
        }
        return nullptr;
    }

    thread* some_lane(warp const& w) {
        if (order_ == 0) return w.lanes[static_cast<unsigned>(std::countr_zero(w.runnable))];
        if (order_ == 1) return w.lanes[31u - static_cast<unsigned>(std::countl_zero(w.runnable))];
        auto const turn = random_() % 32;
        auto const found = static_cast<unsigned>(std::countr_zero(std::rotr(w.runnable, static_cast<int>(turn))));
        return w.lanes[(found + turn) % 32];
    }

    bool falls_asleep(warp const& w) { return random_() % 256 < sleepiness_ || &w == victim_; }

    void put_to_sleep(warp& w, std::uint32_t lanes) {
        if (w.asleep == 0) ++sleepers_;
        w.asleep |= lanes;
    }

    warp* wake_a_warp() {
        // Now and then the victim all the same, or those that nap would wait for it in vain.
        bool const spares = victim_ != nullptr && random_() % 16 != 0;
        std::uint32_t const spared = spares ? std::exchange(victim_->asleep, 0u) : 0u;
        warp* w = find_warp(warps_.size(), [&](std::size_t i) { return warps_[i]; }, &warp::asleep);
        if (spares) victim_->asleep = spared;
        if (w == nullptr) w = victim_;
        w->runnable |= std::exchange(w->asleep, 0u);
        --sleepers_;
        return w;
    }

    random_source random_;
    std::vector<warp*> warps_;   // of the resident blocks
    std::size_t sleepers_ = 0;   // those with lanes asleep
    std::uint32_t wanders_ = 0;  // a warp is left early if such bits of a random number are 0
    std::uint32_t wakes_ = 0;    // and one is woken early
    std::uint32_t sleepiness_ = 0;
    bool stays_in_block_ = false;
    std::uint32_t order_ = 0;
    std::size_t victim_block_ = 0, victim_warp_ = nobody;
    warp* victim_ = nullptr;
};

}  // namespace emulator::detail
