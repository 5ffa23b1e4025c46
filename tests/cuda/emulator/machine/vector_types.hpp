// SPDX-License-Identifier: MIT
//
// CUDA's vector types, with CUDA's alignments.
#pragma once

#define EMULATOR_VECTORS(name, base, align2, align4)                   \
    struct name##1 {                                                   \
        base x;                                                        \
    };                                                                 \
    struct alignas(align2) name##2 {                                   \
        base x, y;                                                     \
    };                                                                 \
    struct name##3 {                                                   \
        base x, y, z;                                                  \
    };                                                                 \
    struct alignas(align4) name##4 {                                   \
        base x, y, z, w;                                               \
    };                                                                 \
    constexpr name##1 make_##name##1(base x) {                         \
        return {x};                                                    \
    }                                                                  \
    constexpr name##2 make_##name##2(base x, base y) {                 \
        return {x, y};                                                 \
    }                                                                  \
    constexpr name##3 make_##name##3(base x, base y, base z) {         \
        return {x, y, z};                                              \
    }                                                                  \
    constexpr name##4 make_##name##4(base x, base y, base z, base w) { \
        return {x, y, z, w};                                           \
    }

EMULATOR_VECTORS(char, signed char, 2, 4)
EMULATOR_VECTORS(uchar, unsigned char, 2, 4)
EMULATOR_VECTORS(short, short, 4, 8)
EMULATOR_VECTORS(ushort, unsigned short, 4, 8)
EMULATOR_VECTORS(int, int, 8, 16)
EMULATOR_VECTORS(uint, unsigned int, 8, 16)
EMULATOR_VECTORS(longlong, long long, 16, 16)
EMULATOR_VECTORS(ulonglong, unsigned long long, 16, 16)
EMULATOR_VECTORS(float, float, 8, 16)
EMULATOR_VECTORS(double, double, 16, 16)
#undef EMULATOR_VECTORS

struct dim3 {
    unsigned int x = 1, y = 1, z = 1;

    constexpr dim3(unsigned int vx = 1, unsigned int vy = 1, unsigned int vz = 1) : x{vx}, y{vy}, z{vz} {}
    constexpr dim3(uint3 v) : x{v.x}, y{v.y}, z{v.z} {}
    constexpr operator uint3() const { return {x, y, z}; }
};
