// IEEE halves: 5 bits of exponent, 10 of significand; with the bits of the crate half.
#pragma once
#include "device.cuh"

// Rounds to the nearest, ties to even. A NaN keeps its upper bits and becomes quiet.
__device__ __forceinline__ uint16_t half_of(float x) {
    const uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7fffffff, sign = bits >> 16 & 0x8000;
    if (magnitude > 0x7f800000) return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x3ff));
    // Below 2^-14 halves are multiples of 2^-24, the unit of the last place of 0.5.
    if (magnitude < 0x38800000) return (uint16_t)(sign | (__float_as_uint(__uint_as_float(magnitude) + 0.5f) - 0x3f000000));
    const uint32_t nearest = (magnitude + 0xfff + (magnitude >> 13 & 1) - 0x38000000) >> 13;
    return (uint16_t)(sign | min(nearest, 0x7c00u));
}

__device__ __forceinline__ float of_half(uint16_t half) {
    const uint32_t magnitude = half & 0x7fff, sign = (uint32_t)(half & 0x8000) << 16;
    if (magnitude > 0x7c00) return __uint_as_float(sign | 0x7fc00000 | magnitude << 13);
    if (magnitude == 0x7c00) return __uint_as_float(sign | 0x7f800000);
    if (magnitude < 0x400) return __uint_as_float(sign | __float_as_uint((float)magnitude * 0x1p-24f));
    return __uint_as_float(sign | ((magnitude << 13) + 0x38000000));
}
