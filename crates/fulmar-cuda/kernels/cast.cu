// Casts between f32 and bfloat16 with the bits of fulmar-kernel's floats.rs, and between f32 and f16 with those of fulmar-tensor's
// cast.rs. Any number of blocks each.
#include "bf16.cuh"
#include "f16.cuh"

namespace cast {

constexpr uint32_t THREADS = 256;

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

KERNEL(f32_to_f16, THREADS, (const float* from, uint16_t* to, uint64_t len)) {
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS)
        to[at] = half_of(from[at]);
}

KERNEL(f16_to_f32, THREADS, (const uint16_t* from, float* to, uint64_t len)) {
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS)
        to[at] = of_half(from[at]);
}

} // namespace cast
