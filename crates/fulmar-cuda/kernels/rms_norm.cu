// Root-mean-square normalisation of rows [N, D], with the bits of fulmar-kernel's rms_norm.rs.
//
//   s  = 1 / sqrt(mean_d x^2 + eps)                 y  = x s w
//   dx = s (w dy - x s^2 mean_d(w dy x))            dw = sum_n dy x s
#include "bf16.cuh"
#include "lanes.cuh"

namespace rms_norm {

constexpr uint32_t THREADS = 128;

// Normalises the row in shared memory [D], which all threads have written; *inv_rms is one more float of shared memory. Writes y
// to `out` and s to `inv_rms_of_row`.
template <class T>
__device__ __forceinline__ void normalise(const float* x, const float* weight_d, float eps, uint32_t width, float* inv_rms,
                                          T* out, float* inv_rms_of_row) {
    __syncthreads();
    if (threadIdx.x < 32) { // both half-warps sum the row
        const float sum = dot_lanes(x, x, width, threadIdx.x % WIDTH);
        if (threadIdx.x == 0) *inv_rms = *inv_rms_of_row = 1.0f / sqrtf(sum / (float)width + eps);
    }
    __syncthreads();
    const float scale = *inv_rms;
    for (uint32_t d = threadIdx.x; d < width; d += THREADS) put(out + d, x[d] * scale * weight_d[d]);
}

template <class T>
__device__ __forceinline__ void norm(unsigned char* shared, const float* x_nd, const float* weight_d, float eps, uint32_t width,
                                     T* out_nd, float* inv_rms_n) {
    float* x = (float*)shared; // [D]
    const uint32_t row = blockIdx.x;
    const float* from = x_nd + (size_t)row * width;
    if (width % 4 == 0) {
        for (uint32_t d = threadIdx.x * 4; d < width; d += THREADS * 4) *(float4*)(x + d) = *(const float4*)(from + d);
    } else {
        for (uint32_t d = threadIdx.x; d < width; d += THREADS) x[d] = from[d];
    }
    normalise(x, weight_d, eps, width, x + width, out_nd + (size_t)row * width, inv_rms_n + row);
}

// One block of threads a row; shared memory: D + 1 floats. Writes y to out_nd and s to inv_rms_n.
KERNEL(rms_norm, THREADS,
       (const float* x_nd, const float* weight_d, float eps, uint32_t width, float* out_nd, float* inv_rms_n)) {
    SHARED(shared);
    norm(shared, x_nd, weight_d, eps, width, out_nd, inv_rms_n);
}
KERNEL(rms_norm_bf16, THREADS,
       (const float* x_nd, const float* weight_d, float eps, uint32_t width, uint16_t* out_nd, float* inv_rms_n)) {
    SHARED(shared);
    norm(shared, x_nd, weight_d, eps, width, out_nd, inv_rms_n);
}

// x += added, then the norm of x.
template <class T>
__device__ __forceinline__ void norm_of_sum(unsigned char* shared, float* x_nd, const float* added_nd, const float* weight_d,
                                            float eps, uint32_t width, T* out_nd, float* inv_rms_n) {
    float* x = (float*)shared; // [D]
    const size_t first = (size_t)blockIdx.x * width;
    for (uint32_t d = threadIdx.x; d < width; d += THREADS) x[d] = x_nd[first + d] = x_nd[first + d] + added_nd[first + d];
    normalise(x, weight_d, eps, width, x + width, out_nd + first, inv_rms_n + blockIdx.x);
}

// One block of threads a row; shared memory: D + 1 floats.
KERNEL(rms_norm_of_sum, THREADS,
       (float* x_nd, const float* added_nd, const float* weight_d, float eps, uint32_t width, float* out_nd,
        float* inv_rms_n)) {
    SHARED(shared);
    norm_of_sum(shared, x_nd, added_nd, weight_d, eps, width, out_nd, inv_rms_n);
}
KERNEL(rms_norm_of_sum_bf16, THREADS,
       (float* x_nd, const float* added_nd, const float* weight_d, float eps, uint32_t width, uint16_t* out_nd,
        float* inv_rms_n)) {
    SHARED(shared);
    norm_of_sum(shared, x_nd, added_nd, weight_d, eps, width, out_nd, inv_rms_n);
}

// Adds dx to d_x_nd. One block of threads a row; shared memory: D + 1 floats. The processor sums w dy x in one chain, so one
// thread does; other rows run meanwhile.
KERNEL(rms_norm_backward, THREADS,
       (const float* x_nd, const float* weight_d, const float* inv_rms_n, const float* d_out_nd, uint32_t width,
        float* d_x_nd)) {
    SHARED(shared);
    float* products = (float*)shared; // [D]
    float* pull_of_row = products + width;
    const size_t first = (size_t)blockIdx.x * width;
    const float *x = x_nd + first, *d_out = d_out_nd + first, inv_rms = inv_rms_n[blockIdx.x];
    for (uint32_t d = threadIdx.x; d < width; d += THREADS) products[d] = x[d] * weight_d[d] * d_out[d];
    __syncthreads();
    if (threadIdx.x == 0) {
        float along = 0.0f;
        for (uint32_t d = 0; d < width; d++) along += products[d];
        *pull_of_row = along * inv_rms * inv_rms * inv_rms / (float)width;
    }
    __syncthreads();
    const float pull = *pull_of_row;
    for (uint32_t d = threadIdx.x; d < width; d += THREADS) d_x_nd[first + d] += weight_d[d] * d_out[d] * inv_rms - x[d] * pull;
}

// Writes NaN over each row whose s is not finite and above 0: its squares overflow. One block of threads a row.
KERNEL(mask_overflow, THREADS, (float* out_nd, const float* inv_rms_n, uint32_t width)) {
    const float inv_rms = inv_rms_n[blockIdx.x];
    if (inv_rms > 0.0f && inv_rms < INFINITY) return;
    for (uint32_t d = threadIdx.x; d < width; d += THREADS) out_nd[(size_t)blockIdx.x * width + d] = NAN;
}

// sums[c] = sum of dy x s over the rows of chunk c, in order: chunks of `rows_each` rows, which depend on D alone. Grid: ceil(D /
// THREADS) by the number of chunks.
KERNEL(rms_norm_weight_sums, THREADS,
       (const float* x_nd, const float* inv_rms_n, const float* d_out_nd, uint32_t rows, uint32_t width, uint32_t rows_each,
        float* sums_cd)) {
    const uint32_t d = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * rows_each;
    if (d >= width) return;
    float sum = 0.0f;
    for (uint32_t row = first; row < min(first + rows_each, rows); row++) {
        const size_t at = (size_t)row * width + d;
        sum += d_out_nd[at] * x_nd[at] * inv_rms_n[row];
    }
    sums_cd[(size_t)blockIdx.y * width + d] = sum;
}

// total += sums[c] for each chunk, in order. Any number of blocks.
KERNEL(add_chunks, THREADS, (const float* sums_cd, uint32_t chunks, uint32_t width, float* total_d)) {
    for (uint32_t d = blockIdx.x * THREADS + threadIdx.x; d < width; d += gridDim.x * THREADS) {
        float total = total_d[d];
        for (uint32_t c = 0; c < chunks; c++) total += sums_cd[(size_t)c * width + d];
        total_d[d] = total;
    }
}

} // namespace rms_norm
