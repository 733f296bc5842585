// The gated activation SwiGLU, element by element, with the bits of fulmar-kernel's swiglu.rs.
//
//   y = silu(g) u
//   dg = dy u sigma(g) (1 + g (1 - sigma(g)))      du = dy silu(g)
#include "swiglu.cuh"
#include "bf16.cuh"

namespace swiglu {

constexpr uint32_t THREADS = 256;

template <class T>
__device__ __forceinline__ void activate(const float* gate, const float* up, T* out, uint64_t len) {
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS) {
        put(out + at, gated(gate[at], up[at]));
    }
}

// Any number of blocks.
KERNEL(swiglu, THREADS, (const float* gate, const float* up, float* out, uint64_t len)) { activate(gate, up, out, len); }
KERNEL(swiglu_bf16, THREADS, (const float* gate, const float* up, uint16_t* out, uint64_t len)) {
    activate(gate, up, out, len);
}

// Overwrites gate and up by their gradients. Any number of blocks.
KERNEL(swiglu_backward, THREADS, (float* gate, float* up, const float* d_out, uint64_t len)) {
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS) {
        const float g = gate[at], u = up[at], d = d_out[at];
        const float sigma = 1.0f / (1.0f + exp32(-g));
        const float silu = g * sigma;
        gate[at] = d * u * (sigma * (1.0f + g * (1.0f - sigma)));
        up[at] = d * silu;
    }
}

} // namespace swiglu
