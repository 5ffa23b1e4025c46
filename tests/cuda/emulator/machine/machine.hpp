// SPDX-License-Identifier: MIT
//
// The machine that runs a launch: blocks, warps and threads, each thread a fiber, one running at a time.
//
// A thread runs until it has to wait (block barrier, warp collective), until it returns, or until it yields at an atomic. Who
// runs next is drawn from a seeded source: a lane of the same warp, now in random and now in rising or falling order, or
// another warp of the same or another block; threads and warps may sleep until nobody else can run. So warps run ahead of each other up to a barrier, lanes up to a collective, and
// blocks by any amount; a kernel that lacks a __syncthreads or __syncwarp computes something else under some seed.
//
// What can never complete is a failure, found at once, because what a thread can wait for is always within its own block:
//   - Every thread of a block waits in a barrier or has returned, and some have returned: a divergent barrier. So is a
//     barrier whose threads wait at different places of the source, which CUDA leaves undefined.
//   - Every lane of a warp waits or has returned, and some wait in a collective: its mask names a lane that returned, waits in
//     the barrier, or waits in another collective or for another mask.
// Stricter than the hardware in this: a returned thread counts as missing in barriers and masks, where recent hardware lets
// it count as present. Nobody should rely on that.
//
// What it cannot show: races inside a stretch of code without barrier, collective or atomic that give the same values in every
// order of its threads; the memory model (here everything that was written is visible, __threadfence or not); timing,
// registers and launch bounds.
#pragma once

#include <cxxabi.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <utility>
#include <vector>

#include "fiber.hpp"
#include "vector_types.hpp"

namespace emulator {

using where = std::source_location;

namespace detail {

/// What fresh memory holds, in 16-bit units: a NaN as half, bf16, float and double, and as an integer far out of range of any index.
inline constexpr std::uint16_t poison = 0x7ff5;

inline void fill_with_poison(void* memory, std::size_t bytes) {
    auto* out = static_cast<unsigned char*>(memory);
    std::uint16_t const pattern = poison;
    for (std::size_t i = 0; i < bytes; ++i) out[i] = reinterpret_cast<unsigned char const*>(&pattern)[i % 2];
}

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

/// An operation that the lanes of a mask do together. The last to arrive does it for all.
struct collective {
    char const* name;
    void (*complete)(std::uint32_t mask, void* const* arguments);
};

/// Lanes that wait for the rest of a mask.
struct gathering {
    collective const* operation;
    std::uint32_t mask;
    std::uint32_t arrived;
    where place;
    std::array<void*, 32> arguments;
};

struct thread;

struct warp {
    std::uint32_t present = 0, runnable = 0, asleep = 0, at_barrier = 0, returned = 0;
    std::vector<gathering> gatherings;
    std::array<thread*, 32> lanes{};
};

enum class barrier_kind { plain, or_, and_, count };

struct block {
    uint3 index{};
    unsigned size = 0, waiting = 0, returned = 0;
    std::vector<warp> warps;
    // the barrier that threads wait in, and the outcome of the last
    barrier_kind kind{};
    where place;
    unsigned yes = 0;
    int outcome = 0;
    // dynamic shared memory between its guards
    std::unique_ptr<std::byte, decltype(&std::free)> memory{nullptr, &std::free};
    std::byte* shared = nullptr;
};

/// An asynchronous copy that has not arrived.
struct copy {
    std::byte* to;
    std::byte const* from;
    std::size_t bytes, zeros;
    std::size_t group;
};

struct thread {
    explicit thread(void (*entry)(), std::size_t number) : context{entry, number} {}
    fiber context;
    block* home = nullptr;
    warp* group = nullptr;
    unsigned lane = 0;
    uint3 index{};
    std::vector<copy> copies;
    std::size_t committed = 0;
};

struct launch_shape {
    void const* kernel;
    dim3 grid, block;
    std::size_t shared_bytes;
};

class machine {
public:
    static machine& the() {
        static machine instance;
        return instance;
    }

    void seed(std::uint64_t value) {
        seed_ = value;
        random_ = random_source{value};
        launches_ = 0;
    }
    std::uint64_t seed() const { return seed_; }

    /// Runs a whole grid. Returns what went wrong, or nothing.
    std::string launch(launch_shape const& shape, void (*invoke)(void*), void* arguments) {
        std::lock_guard const lock{mutex_};
        prepare(shape, invoke, arguments);
        while (thread* const first = someone()) {
            current_ = first;
            identify(*first);
            host_.switch_to(first->context);
            if (!report_.empty()) {
                for (auto& t : threads_) t->context.start_anew();
                break;
            }
        }
        current_ = nullptr;
        blocks_.clear();
        return std::exchange(report_, {});
    }

    // ---- what threads call ---------------------------------------------------------------------------------------------

    void gather(collective const& operation, std::uint32_t mask, void* arguments, where place) {
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
        if (g->arrived == mask) {
            operation.complete(mask, g->arguments.data());
            *g = w.gatherings.back();
            w.gatherings.pop_back();
            w.runnable |= mask;
        } else {
            w.runnable &= ~bit;
            check_warp(w);
        }
        run_another();
    }

    int barrier(barrier_kind kind, int predicate, where place) {
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
        self.group->runnable &= ~(1u << self.lane);
        self.group->at_barrier |= 1u << self.lane;
        if (b.waiting == b.size) {
            b.outcome = kind == barrier_kind::count ? static_cast<int>(b.yes)
                        : kind == barrier_kind::or_ ? (b.yes != 0 ? 1 : 0)
                                                    : (b.yes == b.size ? 1 : 0);
            b.waiting = 0;
            for (warp& w : b.warps) {
                w.at_barrier = 0;
                release(w, w.present);
            }
        } else {
            check_block(b);
            check_warp(*self.group);
        }
        run_another();
        return b.outcome;
    }

    /// Somewhere where other threads, and other blocks, may well come first.
    void yield(char const* what) {
        thread& self = running(what);
        if (random_() % 4 != 0) return;
        if (falls_asleep(*self.group)) {
            self.group->runnable &= ~(1u << self.lane);
            put_to_sleep(*self.group, 1u << self.lane);
        }
        run_another(random_() % 2 == 0);
    }

    std::byte* shared_memory() { return running("shared memory").home->shared; }
    std::size_t shared_bytes() const { return shape_.shared_bytes; }

    thread& running(char const* what) {
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

    /// Ends the launch. Suspended threads are not unwound, since the kernel may be noexcept; so the thread must not hold
    /// memory when it leaves, such as the text of the report.
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

    machine() {
        char const* const wish = std::getenv("SURELEAP_EMULATOR_SEED");
        seed(wish == nullptr ? 1 : std::strtoull(wish, nullptr, 0));
    }

    // ---- a launch ------------------------------------------------------------------------------------------------------

    void prepare(launch_shape const& shape, void (*invoke)(void*), void* arguments) {
        shape_ = shape;
        invoke_ = invoke;
        arguments_ = arguments;
        ++launches_;
        grid_shape = shape.grid;
        block_shape = shape.block;

        unsigned const size = shape.block.x * shape.block.y * shape.block.z;
        std::size_t const total = std::size_t{shape.grid.x} * shape.grid.y * shape.grid.z;
        waiting_blocks_.resize(total);
        for (std::size_t i = 0; i < total; ++i) waiting_blocks_[i] = i;
        for (std::size_t i = total; i > 1; --i) std::swap(waiting_blocks_[i - 1], waiting_blocks_[random_() % i]);

        // How this launch treats its threads: how often a warp is left before it must be, and whether for its own block.
        constexpr std::array<std::uint32_t, 4> rarities{0xffffffu, 0xffu, 0x3fu, 0xfu};
        wander_ = rarities[random_() % rarities.size()];
        stays_in_block_ = random_() % 2 == 0;
        constexpr std::array<std::uint32_t, 4> depths{0, 20, 90, 150};
        sleepiness_ = depths[random_() % depths.size()];
        wakes_ = rarities[random_() % rarities.size()];
        sleepers_ = 0;
        victim_ = nullptr;
        victim_block_ = random_() % total;
        victim_warp_ = random_() % 2 == 0 ? random_() % ((size + 31) / 32) : no_victim;

        constexpr std::array<std::size_t, 8> crowds{1, 2, 2, 3, 3, 4, 6, 8};
        std::size_t const residents =
            std::min<std::size_t>({total, crowds[random_() % crowds.size()], std::max(1u, 2048u / size)});
        while (threads_.size() < residents * size) {
            threads_.push_back(std::make_unique<thread>(&thread_main, threads_.size()));
        }
        blocks_.clear();
        blocks_.resize(residents);
        warps_.clear();
        for (std::size_t i = 0; i < residents; ++i) {
            block& b = blocks_[i];
            b.size = size;
            b.warps.resize((size + 31) / 32);
            for (unsigned t = 0; t < size; ++t) {
                thread& each = *threads_[i * size + t];
                each.home = &b;
                each.group = &b.warps[t / 32];
                each.lane = t % 32;
                each.index = {t % shape.block.x, t / shape.block.x % shape.block.y,
                              t / (shape.block.x * shape.block.y)};
                each.group->lanes[each.lane] = &each;
                each.group->present |= 1u << each.lane;
            }
            for (warp& w : b.warps) warps_.push_back(&w);
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
        if (victim_ != nullptr && victim_->lanes[0]->home == &b) victim_ = nullptr;
        if (number == victim_block_ && victim_warp_ != no_victim) victim_ = &b.warps[victim_warp_];
        for (warp& w : b.warps) {
            w.returned = w.at_barrier = 0;
            release(w, w.present);
        }
        fill_with_poison(b.shared, shape_.shared_bytes);
    }

    static void thread_main() {
        machine& m = the();
        m.current_->context.arrived();
        for (;;) {
            try {
                m.invoke_(m.arguments_);
            } catch (std::exception const& e) {
                m.report(std::string{"the kernel threw an exception: "} + e.what());
            } catch (...) {
                m.report("the kernel threw an exception");
            }
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
        if (b.returned == b.size) {
            check_guards(b);
            if (!waiting_blocks_.empty()) start_block(b);
        } else {
            check_block(b);
            check_warp(*self.group);
        }
        run_another();
    }

    // ---- who runs next -------------------------------------------------------------------------------------------------

    void run_another(bool wander = false) {
        thread* const self = current_;
        warp* w = self->group;
        if (wander || w->runnable == 0 || (random_() & wander_) == 0) w = some_warp(self->home);
        if (w == nullptr) {
            self->context.switch_to(host_);
            return;
        }
        thread* const next = some_lane(*w);
        current_ = next;
        identify(*next);
        if (next != self) self->context.switch_to(next->context);
    }

    thread* someone() {
        warp* const w = some_warp(nullptr);
        return w == nullptr ? nullptr : some_lane(*w);
    }

    warp* some_warp(block* here) {
        order_ = random_() % 4;
        bool const only_victim = sleepers_ == 1 && victim_ != nullptr && victim_->asleep != 0;
        if (sleepers_ != 0 && !only_victim && (random_() & wakes_) == 0) wake_a_warp();
        if (here != nullptr && stays_in_block_) {
            auto const found =
                find_warp(here->warps.size(), [&](std::size_t i) { return &here->warps[i]; }, &warp::runnable);
            if (found != nullptr) return found;
        }
        auto const any = [&](std::size_t i) { return warps_[i]; };
        warp* const found = find_warp(warps_.size(), any, &warp::runnable);
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

    // Threads fall asleep for as long as anybody else can run, or nearly: the others get as far ahead as can be.

    // In half of all launches one warp of one block always does, and is woken last.

    bool falls_asleep(warp const& w) { return random_() % 256 < sleepiness_ || &w == victim_; }

    void put_to_sleep(warp& w, std::uint32_t lanes) {
        if (w.asleep == 0) ++sleepers_;
        w.asleep |= lanes;
    }

    warp* wake_a_warp() {
        auto const any = [&](std::size_t i) { return warps_[i]; };
        auto const spared = victim_ == nullptr ? 0u : std::exchange(victim_->asleep, 0u);
        warp* w = find_warp(warps_.size(), any, &warp::asleep);
        if (victim_ != nullptr) victim_->asleep = spared;
        if (w == nullptr) w = victim_;
        w->runnable |= std::exchange(w->asleep, 0u);
        --sleepers_;
        return w;
    }

    void release(warp& w, std::uint32_t lanes) {
        if (falls_asleep(w)) {
            put_to_sleep(w, lanes);
        } else {
            w.runnable |= lanes;
        }
    }

    thread* some_lane(warp const& w) {
        if (order_ == 0) return w.lanes[static_cast<unsigned>(std::countr_zero(w.runnable))];
        if (order_ == 1) return w.lanes[31u - static_cast<unsigned>(std::countl_zero(w.runnable))];
        auto const turn = random_() % 32;
        auto const found = static_cast<unsigned>(std::countr_zero(std::rotr(w.runnable, static_cast<int>(turn))));
        return w.lanes[(found + turn) % 32];
    }

    static void identify(thread const& t) {
        thread_index = t.index;
        block_index = t.home->index;
    }

    // ---- what went wrong -----------------------------------------------------------------------------------------------

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
    random_source random_{1};
    std::uint64_t launches_ = 0;

    fiber host_;
    std::vector<std::unique_ptr<thread>> threads_;  // kept: their stacks are the costly part

    launch_shape shape_{};
    void (*invoke_)(void*) = nullptr;
    void* arguments_ = nullptr;
    std::vector<std::size_t> waiting_blocks_;
    std::vector<block> blocks_;  // the resident ones
    std::vector<warp*> warps_;   // of all of them
    thread* current_ = nullptr;
    std::uint32_t wander_ = 0;
    bool stays_in_block_ = false;
    std::uint32_t sleepiness_ = 0, wakes_ = 0;
    static constexpr std::size_t no_victim = ~std::size_t{0};
    std::size_t victim_block_ = 0, victim_warp_ = no_victim;
    warp* victim_ = nullptr;
    std::size_t sleepers_ = 0;  // warps with lanes asleep
    std::uint32_t order_ = 0;
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
