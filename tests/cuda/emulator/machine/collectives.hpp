// SPDX-License-Identifier: MIT
//
// Barriers, shuffles, votes, matches and reductions of a warp, as CUDA's C++ guide describes them. Each is done by the
// last lane that arrives, which reads the arguments of the others where they wait.
#pragma once

#include <concepts>
#include <type_traits>

#include "machine.hpp"

inline constexpr unsigned emulator_full_warp = 0xffffffffu;

inline void __syncthreads(emulator::where place = emulator::where::current()) {
    emulator::detail::machine::the().barrier(emulator::detail::barrier_kind::plain, 0, place);
}
inline int __syncthreads_or(int predicate, emulator::where place = emulator::where::current()) {
    return emulator::detail::machine::the().barrier(emulator::detail::barrier_kind::or_, predicate, place);
}
inline int __syncthreads_and(int predicate, emulator::where place = emulator::where::current()) {
    return emulator::detail::machine::the().barrier(emulator::detail::barrier_kind::and_, predicate, place);
}
inline int __syncthreads_count(int predicate, emulator::where place = emulator::where::current()) {
    return emulator::detail::machine::the().barrier(emulator::detail::barrier_kind::count, predicate, place);
}

namespace emulator::detail {

template <class T, class... Of>
concept one_of = (std::same_as<T, Of> || ...);

template <class T>
concept shuffled = one_of<T, int, unsigned, long, unsigned long, long long, unsigned long long, float, double>;

inline void sync_warp(std::uint32_t, void* const*) {}
inline constexpr collective syncwarp_operation{"__syncwarp", &sync_warp, true};

// ---- shuffles
// ----------------------------------------------------------------------------------------------------------

template <class T>
struct shuffle {
    T value, result;
    unsigned operand, width;
};

struct indexed {
    static constexpr char const* name = "__shfl_sync";
    static constexpr unsigned source(unsigned lane, unsigned operand, unsigned width) {
        return (lane & ~(width - 1)) | (operand & (width - 1));
    }
};
struct up {
    static constexpr char const* name = "__shfl_up_sync";
    static constexpr unsigned source(unsigned lane, unsigned operand, unsigned width) {
        return operand > (lane & (width - 1)) ? lane : lane - operand;
    }
};
struct down {
    static constexpr char const* name = "__shfl_down_sync";
    static constexpr unsigned source(unsigned lane, unsigned operand, unsigned width) {
        return operand > (width - 1) - (lane & (width - 1)) ? lane : lane + operand;
    }
};
struct across {
    static constexpr char const* name = "__shfl_xor_sync";
    // Earlier groups of `width` lanes can be read, later ones not.
    static constexpr unsigned source(unsigned lane, unsigned operand, unsigned width) {
        unsigned const from = lane ^ (operand & 31u);
        return from > (lane | (width - 1)) ? lane : from;
    }
};

template <class How, class T>
void complete_shuffle(std::uint32_t mask, void* const* arguments) {
    for_each_lane(mask, [&](unsigned lane) {
        auto& own = *static_cast<shuffle<T>*>(arguments[lane]);
        if (own.width == 0 || own.width > 32 || !std::has_single_bit(own.width)) {
            machine::the().report(std::string{How::name} + ": width " + std::to_string(own.width) +
                                  " is not a power of two from 1 to 32");
            machine::the().leave();
        }
        unsigned const from = How::source(lane, own.operand, own.width);
        if ((mask >> from & 1u) == 0) {
            machine::the().report(std::string{How::name} + ": lane " + std::to_string(lane) + " reads lane " +
                                  std::to_string(from) + ", which the mask does not name");
            machine::the().leave();
        }
        own.result = static_cast<shuffle<T> const*>(arguments[from])->value;
    });
}

template <class How, class T>
inline constexpr collective shuffle_operation{How::name, &complete_shuffle<How, T>};

template <class How, shuffled T>
T do_shuffle(unsigned mask, T value, unsigned operand, int width, where place) {
    shuffle<T> arguments{value, value, operand, static_cast<unsigned>(width)};
    machine::the().gather(shuffle_operation<How, T>, mask, &arguments, place);
    return arguments.result;
}

// ---- votes, matches and reductions
// -------------------------------------------------------------------------------------

/// `Rule::combine(so far, value)` over the lanes of the mask; every lane gets the outcome.
template <class T>
struct vote {
    T value, result;
};

template <class Rule, class T>
void complete_vote(std::uint32_t mask, void* const* arguments) {
    T total = Rule::template start<T>();
    for_each_lane(mask, [&](unsigned lane) {
        total = Rule::combine(total, static_cast<vote<T>*>(arguments[lane])->value, lane);
    });
    for_each_lane(mask, [&](unsigned lane) { static_cast<vote<T>*>(arguments[lane])->result = total; });
}

template <class Rule, class T>
inline constexpr collective vote_operation{Rule::name, &complete_vote<Rule, T>};

template <class Rule, class T>
T do_vote(unsigned mask, T value, where place) {
    vote<T> arguments{value, value};
    machine::the().gather(vote_operation<Rule, T>, mask, &arguments, place);
    return arguments.result;
}

#define EMULATOR_RULE(rule, full_name, first, expression)                              \
    struct rule {                                                                      \
        static constexpr char const* name = full_name;                                 \
        template <class T>                                                             \
        static constexpr T start() {                                                   \
            return static_cast<T>(first);                                              \
        }                                                                              \
        template <class T>                                                             \
        static constexpr T combine(T total, T value, [[maybe_unused]] unsigned lane) { \
            return static_cast<T>(expression);                                         \
        }                                                                              \
    };
EMULATOR_RULE(ballot_rule, "__ballot_sync", 0, total | ((value != 0 ? 1u : 0u) << lane))
EMULATOR_RULE(any_rule, "__any_sync", 0, total != 0 || value != 0)
EMULATOR_RULE(all_rule, "__all_sync", 1, total != 0 && value != 0)
EMULATOR_RULE(add_rule, "__reduce_add_sync", 0, static_cast<unsigned>(total) + static_cast<unsigned>(value))
EMULATOR_RULE(min_rule, "__reduce_min_sync", std::numeric_limits<T>::max(), value < total ? value : total)
EMULATOR_RULE(max_rule, "__reduce_max_sync", std::numeric_limits<T>::min(), value > total ? value : total)
EMULATOR_RULE(and_rule, "__reduce_and_sync", -1, total& value)
EMULATOR_RULE(or_rule, "__reduce_or_sync", 0, total | value)
EMULATOR_RULE(xor_rule, "__reduce_xor_sync", 0, total ^ value)
#undef EMULATOR_RULE

template <class T>
struct match {
    T value;
    unsigned result;
};

template <class T>
void complete_match_any(std::uint32_t mask, void* const* arguments) {
    for_each_lane(mask, [&](unsigned lane) {
        auto& own = *static_cast<match<T>*>(arguments[lane]);
        own.result = 0;
        for_each_lane(mask, [&](unsigned other) {
            auto const& theirs = *static_cast<match<T> const*>(arguments[other]);
            if (std::memcmp(&own.value, &theirs.value, sizeof(T)) == 0) own.result |= 1u << other;
        });
    });
}

template <class T>
inline constexpr collective match_any_operation{"__match_any_sync", &complete_match_any<T>};

}  // namespace emulator::detail

inline void __syncwarp(unsigned mask = emulator_full_warp, emulator::where place = emulator::where::current()) {
    emulator::detail::machine::the().gather(emulator::detail::syncwarp_operation, mask, nullptr, place);
}

template <emulator::detail::shuffled T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, emulator::where place = emulator::where::current()) {
    return emulator::detail::do_shuffle<emulator::detail::indexed>(mask, value, static_cast<unsigned>(source), width,
                                                                   place);
}
template <emulator::detail::shuffled T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 emulator::where place = emulator::where::current()) {
    return emulator::detail::do_shuffle<emulator::detail::up>(mask, value, delta, width, place);
}
template <emulator::detail::shuffled T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   emulator::where place = emulator::where::current()) {
    return emulator::detail::do_shuffle<emulator::detail::down>(mask, value, delta, width, place);
}
template <emulator::detail::shuffled T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,
                  emulator::where place = emulator::where::current()) {
    return emulator::detail::do_shuffle<emulator::detail::across>(mask, value, static_cast<unsigned>(lanes), width,
                                                                  place);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, emulator::where place = emulator::where::current()) {
    return emulator::detail::do_vote<emulator::detail::ballot_rule>(mask, predicate != 0 ? 1u : 0u, place);
}
inline int __any_sync(unsigned mask, int predicate, emulator::where place = emulator::where::current()) {
    return emulator::detail::do_vote<emulator::detail::any_rule>(mask, predicate, place);
}
inline int __all_sync(unsigned mask, int predicate, emulator::where place = emulator::where::current()) {
    return emulator::detail::do_vote<emulator::detail::all_rule>(mask, predicate, place);
}

template <emulator::detail::one_of<int, unsigned> T>
T __reduce_add_sync(unsigned mask, T value, emulator::where place = emulator::where::current()) {
    return emulator::detail::do_vote<emulator::detail::add_rule>(mask, value, place);
}
template <emulator::detail::one_of<int, unsigned> T>
T __reduce_min_sync(unsigned mask, T value, emulator::where place = emulator::where::current()) {
    return emulator::detail::do_vote<emulator::detail::min_rule>(mask, value, place);
}
template <emulator::detail::one_of<int, unsigned> T>
T __reduce_max_sync(unsigned mask, T value, emulator::where place = emulator::where::current()) {
    return emulator::detail::do_vote<emulator::detail::max_rule>(mask, value, place);
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value, emulator::where place = emulator::where::current()) {
    return emulator::detail::do_vote<emulator::detail::and_rule>(mask, value, place);
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value, emulator::where place = emulator::where::current()) {
    return emulator::detail::do_vote<emulator::detail::or_rule>(mask, value, place);
}
inline unsigned __reduce_xor_sync(unsigned mask, unsigned value, emulator::where place = emulator::where::current()) {
    return emulator::detail::do_vote<emulator::detail::xor_rule>(mask, value, place);
}

template <emulator::detail::shuffled T>
unsigned __match_any_sync(unsigned mask, T value, emulator::where place = emulator::where::current()) {
    emulator::detail::match<T> arguments{value, 0};
    emulator::detail::machine::the().gather(emulator::detail::match_any_operation<T>, mask, &arguments, place);
    return arguments.result;
}
