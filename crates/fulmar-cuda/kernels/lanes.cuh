// Exponentials and sums with the bits of fulmar-kernel's lanes.rs: the same operations in the same order. Files that include it
// are compiled without contraction of a multiply and an add.
#pragma once
#include "device.cuh"

constexpr uint32_t WIDTH = 16; // accumulators of every sum: the lanes of a half-warp
constexpr uint32_t ALL = ~0u;  // all lanes of a warp

constexpr float LOG2_E = 1.44269504088896340736f;
constexpr float ROUND = 12582912.0f;    // 1.5 * 2^23: adding it rounds to an integer
constexpr float SOFTMAX_FLOOR = -88.0f; // numbers below it are raised to it before softmax_exp, which gives 0 there

__device__ __forceinline__ float power_of_two(uint32_t n) { return __uint_as_float((n + 127u) << 23); }

// e^r for the rest r of a range reduction.
__device__ __forceinline__ float exp_of_rest(float r) {
    float poly = 1.9875691e-4f;
    poly = poly * r + 1.3982e-3f;
    poly = poly * r + 8.333452e-3f;
    poly = poly * r + 4.1665796e-2f;
    poly = poly * r + 1.6666665e-1f;
    poly = poly * r + 5e-1f;
    return poly * (r * r) + r + 1.0f;
}

// e^x: 0 below -87.3, infinity above 88.37.
__device__ __forceinline__ float exp32(float x) {
    float clamped = x < -87.3f ? -87.3f : x;
    clamped = clamped > 88.37f ? 88.37f : clamped;
    float shifted = clamped * LOG2_E + ROUND; // its lowest bits are the integer
    float n = shifted - ROUND;
    float r = (clamped - n * 0.6933594f) - n * -2.1219444e-4f;
    int32_t whole = (int32_t)(__float_as_uint(shifted) - __float_as_uint(ROUND));
    int32_t half = whole >> 1; // 2^n in two factors, because 2^128 is not a float
    float value = exp_of_rest(r) * power_of_two((uint32_t)half) * power_of_two((uint32_t)(whole - half));
    value = x < -87.3f ? 0.0f : value;
    return x > 88.37f ? __uint_as_float(0x7f800000u) : value;
}

// e^x for x from SOFTMAX_FLOOR to 0.
__device__ __forceinline__ float softmax_exp(float x) {
    float shifted = x * LOG2_E + ROUND;
    float n = shifted - ROUND;
    float r = (x - n * 0.6933594f) - n * -2.1219444e-4f;
    return exp_of_rest(r) * __uint_as_float((__float_as_uint(shifted) << 23) + (127u << 23));
}

// Returns, in the first lane of each half-warp, the sum of its accumulators, halves added to halves.
__device__ __forceinline__ float sum_lanes(float sum) {
#pragma unroll
    for (int width = WIDTH / 2; width > 0; width /= 2) sum += __shfl_down_sync(ALL, sum, width, WIDTH);
    return sum;
}

// Returns, in every lane, the largest number of the half-warp, without NaNs.
__device__ __forceinline__ float max_lanes(float max) {
#pragma unroll
    for (int width = WIDTH / 2; width > 0; width /= 2) max = fmaxf(max, __shfl_xor_sync(ALL, max, width));
    return fmaxf(max, -INFINITY);
}

// Returns, in the first lane of each half-warp, the sum of a[i] * b[i] over `len` elements.
__device__ __forceinline__ float dot_lanes(const float* a, const float* b, uint32_t len, uint32_t lane) {
    const uint32_t whole = len / WIDTH * WIDTH;
    float sum = whole + lane < len ? a[whole + lane] * b[whole + lane] : 0.0f; // the remainder comes first
    for (uint32_t at = lane; at < whole; at += WIDTH) sum += a[at] * b[at];
    return sum_lanes(sum);
}

// Returns, in the first thread, start + x[0] + x[1] + ... in double precision, in this order. The whole block of threads calls it;
// `shared` has THREADS floats.
template <uint32_t THREADS>
__device__ double sum_in_order(double start, const float* x, uint32_t len, float* shared) {
    double total = start;
    for (uint32_t first = 0; first < len; first += THREADS) {
        if (first + threadIdx.x < len) shared[threadIdx.x] = x[first + threadIdx.x];
        __syncthreads(); // these are loaded
        if (threadIdx.x == 0)
            for (uint32_t at = 0; at < min(len - first, THREADS); at++) total += (double)shared[at];
        __syncthreads(); // they are added
    }
    return total;
}
