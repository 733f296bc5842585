// bfloat16, the upper half of an f32, with the bits of fulmar-kernel's floats.rs.
#pragma once
#include "device.cuh"

// Rounds to the nearest, ties to even. A NaN keeps its upper bits and becomes quiet.
__device__ __forceinline__ uint16_t rounded(float x) {
    const uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    const bool is_up = (bits & 0x8000) != 0 && (bits & 0x17fff) != 0;
    return (uint16_t)((bits >> 16) + is_up);
}

__device__ __forceinline__ float widened(uint16_t bits) { return __uint_as_float((uint32_t)bits << 16); }

// A number of a row, stored as f32 or as bfloat16.
__device__ __forceinline__ float number(float x) { return x; }
__device__ __forceinline__ float number(uint16_t bits) { return widened(bits); }
__device__ __forceinline__ void put(float* to, float x) { *to = x; }
__device__ __forceinline__ void put(uint16_t* to, float x) { *to = rounded(x); }
