// SPDX-License-Identifier: MIT
//
// The machine that runs a launch: blocks, warps and threads, each thread a fiber, one running at a time.
//
// A thread runs until it has to wait (block barrier, warp collective), until it returns, or until it is delayed at an
// atomic; then the scheduler says who is next. So warps run ahead of each other up to a barrier, lanes up to a
// collective, and blocks by any amount; a kernel that lacks a __syncthreads or __syncwarp computes something else under
// some seed.
//
// What can never complete is a failure, found at once, because what a thread can wait for is within its own block. (A
// thread that polls for another block with __nanosleep sleeps until nobody else can run; if it waits in vain, the test
// does not end.)
//   - Every thread of a block waits in a barrier or has returned, and some have returned: a divergent barrier. So is a
//     barrier whose threads wait at different places of the source, which CUDA leaves undefined.
//   - Every lane of a warp waits or has returned, and some wait in a collective: its mask names a lane that returned, waits in
//     the barrier, or waits in another collective or for another mask.
// Stricter than the hardware in this: a returned thread counts as missing in barriers and masks, where recent hardware
// lets it count as present. Nobody should rely on that.
//
// What it cannot show by itself is what comes out right in every order of threads: a fence that is missing, since here
// every write is visible at once, or two writes of the same value. ThreadSanitizer sees both (order.hpp). What it
// cannot show at all: timing, registers, launch bounds.
#pragma once

#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "order.hpp"
#include "scheduler.hpp"
#include "state.hpp"

namespace emulator {

namespace detail {

class machine {
public:
    static machine& the() {
        static machine instance;
        return instance;
    }

    void seed(std::uint64_t value) {
        seed_ = value;
        scheduler_ = scheduler{value};
        launches_ = 0;
    }
    std::uint64_t seed() const { return seed_; }

    /// Runs a whole grid. Returns what went wrong, or nothing.
    std::string launch(launch_shape const& shape, void (*invoke)(void*), void* arguments) {
        std::lock_guard const lock{mutex_};
        unobserved const here;
        plain_frames const in_fibers;
        prepare(shape, invoke, arguments);
        while (thread* const first = scheduler_.next(nullptr, true)) {
            become(*first);
            host_.switch_to(first->context);
            if (!report_.empty()) {
                for (auto& t : threads_) t->context.start_anew();
                break;
            }
        }
        for (auto& t : threads_) acquire(t.get());
        current_ = nullptr;
        blocks_.clear();
        return std::exchange(report_, {});
    }

    // ---- what threads call
    // ---------------------------------------------------------------------------------------------

    void gather(collective const& operation, std::uint32_t mask, void* arguments, where place) {
        unobserved const here;
        thread& self = running(operation.name);
        warp& w = *self.group;
        std::uint32_t const bit = 1u << self.lane;
        if ((mask & bit) == 0) {
            report(text(operation, mask, place) + ": the mask does not name its caller, lane " +
                   std::to_string(self.lane));
            leave();
        }
        if ((mask & ~w.present) != 0) {
            report(text(operation, mask, place) + ": the mask names lanes that the warp does not have");
            leave();
        }
        auto g = std::find_if(w.gatherings.begin(), w.gatherings.end(),
                              [&](gathering const& each) { return each.operation == &operation && each.mask == mask; });
        if (g == w.gatherings.end()) g = w.gatherings.insert(g, {&operation, mask, 0, place, {}});
        g->arguments[self.lane] = arguments;
        g->arrived |= bit;
        if (operation.orders_memory) release(&w);
        if (g->arrived == mask) {
            if (operation.orders_memory) order(w, mask);
            operation.complete(mask, g->arguments.data());
            *g = w.gatherings.back();
            w.gatherings.pop_back();
            w.runnable |= mask;
        } else {
            w.runnable &= ~bit;
            check_warp(w);
        }
        run_another();
        if (operation.orders_memory) acquire(&self);
    }

    int barrier(barrier_kind kind, int predicate, where place) {
        unobserved const here;
        thread& self = running(name_of(kind));
        block& b = *self.home;
        if (b.waiting == 0) {
            b.kind = kind;
            b.place = place;
            b.yes = 0;
        } else if (b.kind != kind || b.place.line() != place.line() || b.place.column() != place.column() ||
                   std::strcmp(b.place.file_name(), place.file_name()) != 0) {
            report("divergent barrier: this thread comes to " + text(kind, place) +
                   " while others of its block wait in " + text(b.kind, b.place));
            leave();
        }
        b.yes += predicate != 0 ? 1u : 0u;
        ++b.waiting;
        release(&b);
        self.group->runnable &= ~(1u << self.lane);
        self.group->at_barrier |= 1u << self.lane;
        if (b.waiting == b.size) {
            b.outcome = kind == barrier_kind::count ? static_cast<int>(b.yes)
                        : kind == barrier_kind::or_ ? (b.yes != 0 ? 1 : 0)
                                                    : (b.yes == b.size ? 1 : 0);
            b.waiting = 0;
            for (warp& w : b.warps) {
                w.at_barrier = 0;
                order(b, w);
                scheduler_.set_free(w, w.present);
            }
        } else {
            check_block(b);
            check_warp(*self.group);
        }
        run_another();
        acquire(&self);
        return b.outcome;
    }

    /// Somewhere where other threads, and other blocks, may well come first.
    void yield(char const* what) {
        unobserved const here;
        thread& self = running(what);
        if (scheduler_.delays(self)) run_another(scheduler_.random() % 2 == 0);
    }

    /// The running thread waits for what others do, and asks again later.
    void nap() {
        unobserved const here;
        scheduler_.nap(running("__nanosleep"));
        run_another(true);
    }

    void fence(char const* what) {
        yield(what);
#if defined(EMULATOR_TSAN)
        unobserved const here;
        running(what).fences.fence();
#endif
    }

    /// The running thread has made an atomic.
    void publish([[maybe_unused]] void const* address) {
#if defined(EMULATOR_TSAN)
        running("an atomic").fences.atomic(publications_[address]);
#endif
    }

    std::byte* shared_memory() {
        unobserved const here;
        return running("shared memory").home->shared;
    }
    std::size_t shared_bytes() const {
        unobserved const here;
        return shape_.shared_bytes;
    }

    thread& running(char const* what) {
        unobserved const here;
        if (current_ == nullptr) {
            std::fprintf(stderr, "emulator: %s outside of a kernel\n", what);
            std::abort();
        }
        return *current_;
    }

    /// States what is wrong with the launch, in the words of the running thread.
    void report(std::string const& what) {
        std::string kernel = "a kernel";
        Dl_info info{};
        if (dladdr(shape_.kernel, &info) != 0 && info.dli_sname != nullptr) {
            int status = 0;
            char* const plain = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
            kernel = status == 0 ? plain : info.dli_sname;
            std::free(plain);
        }
        report_ = kernel + ", grid " + text(shape_.grid) + ", block " + text(shape_.block) + ", " +
                  std::to_string(shape_.shared_bytes) + " bytes; seed " + std::to_string(seed_) + ", launch " +
                  std::to_string(launches_) + "; block " + text(current_->home->index) + ", thread " +
                  text(current_->index) + ": " + what;
    }

    /// Ends the launch. Suspended threads are not unwound, since the kernel may be noexcept; so the thread must not
    /// hold memory when it leaves, such as the text of the report.
    [[noreturn]] void leave() {
        current_->context.switch_to(host_);
        std::abort();
    }

    /// Of the running thread, for threadIdx and its like.
    inline static constinit uint3 thread_index{}, block_index{};
    inline static constinit dim3 block_shape{}, grid_shape{};

private:
    static constexpr std::size_t guard_bytes = 256;
    static constexpr unsigned char guard_value = 0xc5;
    static constexpr std::size_t shared_alignment = 128;
#if defined(EMULATOR_TSAN)
    static constexpr unsigned threads_at_once = 512;  // what orders a thread costs in proportion to all threads
#else
    static constexpr unsigned threads_at_once = 2048;
#endif

    machine() {
        char const* const wish = std::getenv("SURELEAP_EMULATOR_SEED");
        seed(wish == nullptr ? 1 : std::strtoull(wish, nullptr, 0));
    }

    // ---- a launch
    // ------------------------------------------------------------------------------------------------------

    void prepare(launch_shape const& shape, void (*invoke)(void*), void* arguments) {
        shape_ = shape;
        invoke_ = invoke;
        arguments_ = arguments;
        ++launches_;
        publications_.clear();
        for (auto& t : threads_) t->fences.start_launch();
        grid_shape = shape.grid;
        block_shape = shape.block;

        unsigned const size = shape.block.x * shape.block.y * shape.block.z;
        std::size_t const total = std::size_t{shape.grid.x} * shape.grid.y * shape.grid.z;
        waiting_blocks_.resize(total);
        for (std::size_t i = 0; i < total; ++i) waiting_blocks_[i] = i;
        for (std::size_t i = total; i > 1; --i) {
            std::swap(waiting_blocks_[i - 1], waiting_blocks_[scheduler_.random() % i]);
        }

        std::size_t const residents = std::min<std::size_t>(
            {total, scheduler_.start_launch(total, (size + 31) / 32), std::max(2u, threads_at_once / size)});
        while (threads_.size() < residents * size) {
            threads_.push_back(std::make_unique<thread>(&thread_main, threads_.size()));
        }
        blocks_.clear();
        blocks_.resize(residents);
        for (std::size_t i = 0; i < residents; ++i) {
            block& b = blocks_[i];
            b.size = size;
            b.warps.resize((size + 31) / 32);
            for (unsigned t = 0; t < size; ++t) {
                thread& each = *threads_[i * size + t];
                each.home = &b;
                each.group = &b.warps[t / 32];
                each.lane = t % 32;
                each.copies.clear();
                each.committed = 0;
                each.index = {t % shape.block.x, t / shape.block.x % shape.block.y,
                              t / (shape.block.x * shape.block.y)};
                each.group->lanes[each.lane] = &each;
                each.group->present |= 1u << each.lane;
            }
            scheduler_.add(b);
            allocate_shared(b);
            start_block(b);
        }
    }

    void allocate_shared(block& b) {
#if defined(EMULATOR_ASAN)
        std::size_t const guards = 0;  // the sanitizer's own are better
#else
        std::size_t const guards = guard_bytes;
#endif
        void* memory = nullptr;
        if (posix_memalign(&memory, shared_alignment, shape_.shared_bytes + 2 * guards) != 0) std::abort();
        b.memory.reset(static_cast<std::byte*>(memory));
        b.shared = b.memory.get() + guards;
        std::memset(b.memory.get(), guard_value, guards);
        std::memset(b.shared + shape_.shared_bytes, guard_value, guards);
    }

    void start_block(block& b) {
        std::size_t const number = waiting_blocks_.back();
        waiting_blocks_.pop_back();
        auto const x = static_cast<unsigned>(number % shape_.grid.x);
        auto const y = static_cast<unsigned>(number / shape_.grid.x % shape_.grid.y);
        auto const z = static_cast<unsigned>(number / shape_.grid.x / shape_.grid.y);
        b.index = {x, y, z};
        b.waiting = b.returned = 0;
        for (warp& w : b.warps) {
            w.returned = w.at_barrier = 0;
            order(b, w);
        }
        scheduler_.start_block(b, number);
        fill_with_poison(b.shared, shape_.shared_bytes);
    }

    static void thread_main() {
        machine& m = the();
        unobserved::begin();
        m.current_->context.arrived();
        for (;;) {
            acquire(m.current_);
            auto* const invoke = m.invoke_;
            void* const arguments = m.arguments_;
            unobserved::end();
            try {
                invoke(arguments);
            } catch (std::exception const& e) {
                m.report(std::string{"the kernel threw an exception: "} + e.what());
            } catch (...) {
                m.report("the kernel threw an exception");
            }
            unobserved::begin();
            release(m.current_);
            if (m.report_.empty()) {
                m.finish();
            } else {
                m.current_->context.switch_to(m.host_);
            }
        }
    }

    void finish() {
        thread& self = *current_;
        block& b = *self.home;
        self.copies.clear();  // whatever has not arrived never does
        self.committed = 0;
        self.group->runnable &= ~(1u << self.lane);
        self.group->returned |= 1u << self.lane;
        ++b.returned;
        release(&b);
        if (b.returned == b.size) {
            check_guards(b);
            if (!waiting_blocks_.empty()) start_block(b);
        } else {
            check_block(b);
            check_warp(*self.group);
        }
        run_another();
    }

    // ---- turns
    // ---------------------------------------------------------------------------------------------------------

    void run_another(bool leaves_warp = false) {
        thread* const self = current_;
        thread* const next = scheduler_.next(self, leaves_warp);
        if (next == nullptr) {
            self->context.switch_to(host_);
        } else {
            become(*next);
            if (next != self) self->context.switch_to(next->context);
        }
    }

    void become(thread& t) {
        current_ = &t;
        thread_index = t.index;
        block_index = t.home->index;
    }

    /// All that came to a barrier of the block, or to the end of it, came before what lanes of this warp do next.
    static void order(block& b, warp& w) {
        acquire(&b);
        for_each_lane(w.present, [&](unsigned lane) { release(w.lanes[lane]); });
    }
    static void order(warp& w, std::uint32_t mask) {
        acquire(&w);
        for_each_lane(mask, [&](unsigned lane) { release(w.lanes[lane]); });
    }

    // ---- what went wrong
    // -----------------------------------------------------------------------------------------------

    void check_block(block const& b) {
        if (b.waiting == 0 || b.waiting + b.returned < b.size) return;
        report("divergent barrier: " + std::to_string(b.waiting) + " of " + std::to_string(b.size) +
               " threads wait in " + text(b.kind, b.place) + ", the rest (such as " +
               text(someone_who_returned(b).index) + ") has returned");
        leave();
    }

    static thread const& someone_who_returned(block const& b) {
        auto const w =
            std::find_if(b.warps.begin(), b.warps.end(), [](warp const& each) { return each.returned != 0; });
        return *w->lanes[static_cast<unsigned>(std::countr_zero(w->returned))];
    }

    void check_warp(warp const& w) {
        if ((w.runnable | w.asleep) != 0 || w.gatherings.empty()) return;
        gathering const& g = w.gatherings.front();
        auto const missing = static_cast<unsigned>(std::countr_zero(g.mask & ~g.arrived));
        report("divergent warp: " + text(*g.operation, g.mask, g.place) + " waits for lane " + std::to_string(missing) +
               ", which " + state_of(w, missing));
        leave();
    }

    static std::string state_of(warp const& w, unsigned lane) {
        if ((w.returned >> lane & 1u) != 0) return "has returned";
        block const& b = *w.lanes[lane]->home;
        if ((w.at_barrier >> lane & 1u) != 0) return "waits in " + text(b.kind, b.place);
        auto const g = std::find_if(w.gatherings.begin(), w.gatherings.end(),
                                    [&](gathering const& each) { return (each.arrived >> lane & 1u) != 0; });
        return "waits in " + text(*g->operation, g->mask, g->place);
    }

    void check_guards([[maybe_unused]] block const& b) {
#if !defined(EMULATOR_ASAN)
        for (std::size_t i = 0; i < guard_bytes; ++i) {
            if (b.shared[shape_.shared_bytes + i] != std::byte{guard_value}) {
                report("the block wrote past the end of its " + std::to_string(shape_.shared_bytes) +
                       " bytes of shared memory, at byte " + std::to_string(shape_.shared_bytes + i));
                leave();
            }
            if (b.memory.get()[i] != std::byte{guard_value}) {
                report("the block wrote before the start of its shared memory, at byte -" +
                       std::to_string(guard_bytes - i));
                leave();
            }
        }
#endif
    }

    static std::string text(uint3 const& v) {
        return "(" + std::to_string(v.x) + ", " + std::to_string(v.y) + ", " + std::to_string(v.z) + ")";
    }
    static std::string text(where const& place) {
        std::string_view const file = place.file_name();
        return std::string{file.substr(file.rfind('/') + 1)} + ":" + std::to_string(place.line());
    }
    static char const* name_of(barrier_kind kind) {
        constexpr std::array names{"__syncthreads", "__syncthreads_or", "__syncthreads_and", "__syncthreads_count"};
        return names[static_cast<std::size_t>(kind)];
    }
    static std::string text(barrier_kind kind, where const& place) {
        return name_of(kind) + (" (" + text(place) + ")");
    }
    static std::string text(collective const& operation, std::uint32_t mask, where const& place) {
        std::array<char, 16> digits{};
        std::snprintf(digits.data(), digits.size(), "0x%08x", mask);
        return std::string{operation.name} + " with mask " + digits.data() + " (" + text(place) + ")";
    }

    std::mutex mutex_;
    std::uint64_t seed_ = 1;
    scheduler scheduler_{1};
    std::uint64_t launches_ = 0;

    fiber host_;
    std::vector<std::unique_ptr<thread>> threads_;  // kept: their stacks are the costly part

    launch_shape shape_{};
    void (*invoke_)(void*) = nullptr;
    void* arguments_ = nullptr;
    std::vector<std::size_t> waiting_blocks_;
    std::vector<block> blocks_;  // the resident ones
    thread* current_ = nullptr;
    std::unordered_map<void const*, fence_order::publication> publications_;  // of this launch, by address
    std::string report_;
};

}  // namespace detail

/// Starts the random order of threads anew. Without it, it is $SURELEAP_EMULATOR_SEED, or 1.
inline void seed(std::uint64_t value) {
    detail::machine::the().seed(value);
}

/// The dynamic shared memory of the running block: as large as the launch asked, poisoned when the block started.
inline void* shared_memory() {
    return detail::machine::the().shared_memory();
}

}  // namespace emulator

inline constexpr uint3 const& threadIdx = emulator::detail::machine::thread_index;
inline constexpr uint3 const& blockIdx = emulator::detail::machine::block_index;
inline constexpr dim3 const& blockDim = emulator::detail::machine::block_shape;
inline constexpr dim3 const& gridDim = emulator::detail::machine::grid_shape;
