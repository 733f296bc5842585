// Root-mean-square normalisation of rows [N, D], with the bits of fulmar-kernel's rms_norm.rs.
//
//   s = 1 / sqrt(mean_d x^2 + eps)      y = x s w
#include "lanes.cuh"

namespace rms_norm {

constexpr uint32_t THREADS = 128;

// One block of threads a row; shared memory: D + 1 floats. Writes y to out_nd and s to inv_rms_n.
KERNEL(rms_norm, THREADS,
       (const float* x_nd, const float* weight_d, float eps, uint32_t width, float* out_nd, float* inv_rms_n)) {
    SHARED(shared);
    float* x = (float*)shared; // [D]
    float* inv_rms = x + width;
    const uint32_t row = blockIdx.x;
    const float* from = x_nd + (size_t)row * width;
    float* out = out_nd + (size_t)row * width;
    if (width % 4 == 0) {
        for (uint32_t d = threadIdx.x * 4; d < width; d += THREADS * 4) *(float4*)(x + d) = *(const float4*)(from + d);
    } else {
        for (uint32_t d = threadIdx.x; d < width; d += THREADS) x[d] = from[d];
    }
    __syncthreads();
    if (threadIdx.x < 32) { // both half-warps sum the row
        const float sum = dot_lanes(x, x, width, threadIdx.x % WIDTH);
        if (threadIdx.x == 0) *inv_rms = inv_rms_n[row] = 1.0f / sqrtf(sum / (float)width + eps);
    }
    __syncthreads();
    const float scale = *inv_rms;
    for (uint32_t d = threadIdx.x; d < width; d += THREADS) out[d] = x[d] * scale * weight_d[d];
}

} // namespace rms_norm
