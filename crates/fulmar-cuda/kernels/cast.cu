// Casts between f32 and bfloat16, which is the upper half of an f32, with the bits of fulmar-kernel's floats.rs. Any number of
// blocks each.
#include "device.cuh"

namespace cast {

constexpr uint32_t THREADS = 256;

// Rounds to the nearest, ties to even. A NaN keeps its upper bits and becomes quiet.
__device__ __forceinline__ uint16_t rounded(float x) {
    const uint32_t bits = __float_as_uint(x);
    if ((bits & 0x7fffffff) > 0x7f800000) return (uint16_t)(bits >> 16 | 0x40);
    const bool is_up = (bits & 0x8000) != 0 && (bits & 0x17fff) != 0;
    return (uint16_t)((bits >> 16) + is_up);
}

__device__ __forceinline__ float widened(uint16_t bits) { return __uint_as_float((uint32_t)bits << 16); }

KERNEL(f32_to_bf16, THREADS, (const float* from, uint16_t* to, uint64_t len)) {
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS)
        to[at] = rounded(from[at]);
}

KERNEL(bf16_to_f32, THREADS, (const uint16_t* from, float* to, uint64_t len)) {
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS)
        to[at] = widened(from[at]);
}

// Overwrites each number of `to` that does not round to its counterpart in `from`.
KERNEL(take_other_bf16, THREADS, (const uint16_t* from, float* to, uint64_t len)) {
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS)
        if (rounded(to[at]) != from[at]) to[at] = widened(from[at]);
}

} // namespace cast
