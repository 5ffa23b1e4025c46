// SPDX-License-Identifier: MIT
//
// Atomics and fences. Only one thread runs at a time, so every access is atomic; what matters is that other threads and
// other blocks come in between, before and after. The types are those that CUDA has for sm_80.
#pragma once

#include "collectives.hpp"

namespace emulator::detail {

template <class T>
concept integer_word = one_of<T, int, unsigned, unsigned long long>;
template <class T>
concept integer_atomic = integer_word<T> || std::same_as<T, long long>;
template <class T>
concept added = integer_word<T> || one_of<T, float, double>;

template <class T, class F>
T exchange(machine& m, T* address, F f) {
    unobserved const atomic;
    T const before = *address;
    *address = f(before);
    m.publish(address);
    return before;
}

template <class T, class F>
T update(T* address, char const* name, F f) {
    machine& m = machine::the();
    m.yield(name);
    T const before = exchange(m, address, f);
    m.yield(name);
    return before;
}

}  // namespace emulator::detail

// The second argument must not take part in deduction: atomicAdd(&total, 1) adds an unsigned to an unsigned.
template <emulator::detail::added T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
    return emulator::detail::update(address, "atomicAdd", [&](T old) {
        if constexpr (std::same_as<T, int>) {
            return static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(value));
        } else {
            return static_cast<T>(old + value);
        }
    });
}
template <emulator::detail::one_of<int, unsigned> T>
T atomicSub(T* address, std::type_identity_t<T> value) {
    return emulator::detail::update(address, "atomicSub", [&](T old) {
        return static_cast<T>(static_cast<unsigned>(old) - static_cast<unsigned>(value));
    });
}
template <emulator::detail::integer_atomic T>
T atomicMin(T* address, std::type_identity_t<T> value) {
    return emulator::detail::update(address, "atomicMin", [&](T old) { return value < old ? value : old; });
}
template <emulator::detail::integer_atomic T>
T atomicMax(T* address, std::type_identity_t<T> value) {
    return emulator::detail::update(address, "atomicMax", [&](T old) { return value > old ? value : old; });
}
template <emulator::detail::integer_word T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
    return emulator::detail::update(address, "atomicAnd", [&](T old) { return static_cast<T>(old & value); });
}
template <emulator::detail::integer_word T>
T atomicOr(T* address, std::type_identity_t<T> value) {
    return emulator::detail::update(address, "atomicOr", [&](T old) { return static_cast<T>(old | value); });
}
template <emulator::detail::integer_word T>
T atomicXor(T* address, std::type_identity_t<T> value) {
    return emulator::detail::update(address, "atomicXor", [&](T old) { return static_cast<T>(old ^ value); });
}
template <class T>
    requires(emulator::detail::integer_word<T> || std::same_as<T, float>)
T atomicExch(T* address, std::type_identity_t<T> value) {
    return emulator::detail::update(address, "atomicExch", [&](T) { return value; });
}
template <class T>
    requires(emulator::detail::integer_word<T> || std::same_as<T, unsigned short>)
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
    return emulator::detail::update(address, "atomicCAS", [&](T old) { return old == expected ? value : old; });
}
/// ((old >= limit) ? 0 : old + 1)
inline unsigned atomicInc(unsigned* address, unsigned limit) {
    return emulator::detail::update(address, "atomicInc", [&](unsigned old) { return old >= limit ? 0u : old + 1u; });
}

inline void __threadfence() {
    emulator::detail::machine::the().fence("__threadfence");
}
inline void __threadfence_block() {
    emulator::detail::machine::the().fence("__threadfence_block");
}
inline void __threadfence_system() {
    emulator::detail::machine::the().fence("__threadfence_system");
}
inline void __nanosleep(unsigned) {
    emulator::detail::machine::the().nap();
}
