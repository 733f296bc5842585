// Heads of a layer, with the bits of fulmar-kernel's add_bias, rms_norm and rotate: queries, keys and values of a row x, [H + 2 K, E],
// get their bias; queries and keys are normalised by head and rotated by the position of the row.
//
//   rotated[i] = x[i] cos - x[i + E / 2] sin      rotated[i + E / 2] = x[i + E / 2] cos + x[i] sin,  i < E / 2
#include "bf16.cuh"
#include "lanes.cuh"

namespace heads {

constexpr uint32_t THREADS = 128, WARP = 32, WARPS = THREADS / WARP;

// The sizes of a layer, and what head number `head` of a row is.
struct Sizes {
    uint32_t heads, kv_heads, width; // H, K, E

    __device__ __forceinline__ uint32_t rotated() const { return heads + kv_heads; }
    __device__ __forceinline__ uint32_t total() const { return heads + 2 * kv_heads; }
    __device__ __forceinline__ bool is_query(uint32_t head) const { return head < heads; }
    __device__ __forceinline__ bool is_value(uint32_t head) const { return head >= rotated(); }
};

// Writes the head in shared memory, rotated by cosines and sines [E / 2] each.
template <class T>
__device__ __forceinline__ void rotate(const float* own, const float* cos, float sign, uint32_t half, T* to) {
    for (uint32_t i = threadIdx.x % WARP; i < half; i += WARP) {
        const float a = own[i], b = own[half + i], c = cos[i], s = cos[half + i] * sign;
        put(to + i, a * c - b * s);
        put(to + half + i, b * c + a * s);
    }
}

// One warp computes head after head of a row.
template <class T>
__device__ __forceinline__ void forward(unsigned char* shared, float* x_nw, const float* bias_w, const float* q_norm_e,
                                        const float* k_norm_e, float eps, const float* table_pe, const uint32_t* positions_n,
                                        const uint32_t* rows_n, Sizes sizes, T* q_nhe, T* keys_rke, T* values_rke,
                                        float* inv_rms_nh) {
    const uint32_t n = blockIdx.x, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, width = sizes.width;
    float* own = (float*)shared + warp * width;
    const float* cos = table_pe + (size_t)positions_n[n] * width;
    for (uint32_t head = warp; head < sizes.total(); head += WARPS) {
        float* x = x_nw + ((size_t)n * sizes.total() + head) * width;
        for (uint32_t e = lane; e < width; e += WARP) {
            if (bias_w) x[e] += bias_w[head * width + e];
            own[e] = x[e];
        }
        __syncwarp();
        const float* norm_e = sizes.is_query(head) ? q_norm_e : k_norm_e;
        if (norm_e && !sizes.is_value(head)) {
            const float sum = __shfl_sync(ALL, dot_lanes(own, own, width, lane % WIDTH), 0);
            const float scale = 1.0f / sqrtf(sum / (float)width + eps);
            if (lane == 0) inv_rms_nh[n * sizes.rotated() + head] = scale;
            for (uint32_t e = lane; e < width; e += WARP) own[e] = own[e] * scale * norm_e[e];
            __syncwarp();
        }
        const uint32_t kv = sizes.is_value(head) ? head - sizes.rotated() : head - sizes.heads;
        if (sizes.is_value(head)) {
            T* to = values_rke + ((size_t)rows_n[n] * sizes.kv_heads + kv) * width;
            for (uint32_t e = lane; e < width; e += WARP) put(to + e, own[e]);
        } else {
            T* to = sizes.is_query(head) ? q_nhe + ((size_t)n * sizes.heads + head) * width
                                         : keys_rke + ((size_t)rows_n[n] * sizes.kv_heads + kv) * width;
            rotate(own, cos, 1.0f, width / 2, to);
        }
        __syncwarp(); // the next head takes the place of this one
    }
}

// Adds the bias to x in place; writes queries to row n of q_nhe, and keys and values to row rows_n[n] of their caches. Null: no bias;
// no norm of heads, then inv_rms_nh is not written. `table_pe` has E / 2 cosines, then as many sines, a position. One block a row;
// shared memory: 4 E floats.
KERNEL(heads, THREADS,
       (float* x_nw, const float* bias_w, const float* q_norm_e, const float* k_norm_e, float eps, const float* table_pe,
        const uint32_t* positions_n, const uint32_t* rows_n, uint32_t heads, uint32_t kv_heads, uint32_t width, float* q_nhe,
        float* keys_rke, float* values_rke, float* inv_rms_nh)) {
    SHARED(shared);
    forward(shared, x_nw, bias_w, q_norm_e, k_norm_e, eps, table_pe, positions_n, rows_n, Sizes{heads, kv_heads, width}, q_nhe,
            keys_rke, values_rke, inv_rms_nh);
}
KERNEL(heads_bf16, THREADS,
       (float* x_nw, const float* bias_w, const float* q_norm_e, const float* k_norm_e, float eps, const float* table_pe,
        const uint32_t* positions_n, const uint32_t* rows_n, uint32_t heads, uint32_t kv_heads, uint32_t width, uint16_t* q_nhe,
        uint16_t* keys_rke, uint16_t* values_rke, float* inv_rms_nh)) {
    SHARED(shared);
    forward(shared, x_nw, bias_w, q_norm_e, k_norm_e, eps, table_pe, positions_n, rows_n, Sizes{heads, kv_heads, width}, q_nhe,
            keys_rke, values_rke, inv_rms_nh);
}

// Writes the gradient of x from those of queries, keys and values, each in rows of the batch. x_nw has its bias added, as `heads`
// leaves it. Null: no norm of heads; with one, d_q_nhe and d_k_nke are rotated back in place. One block a row; shared memory: 8 E
// floats.
KERNEL(heads_backward, THREADS,
       (const float* x_nw, const float* q_norm_e, const float* k_norm_e, const float* inv_rms_nh, const float* table_pe,
        const uint32_t* positions_n, float* d_q_nhe, float* d_k_nke, const float* d_v_nke, uint32_t heads, uint32_t kv_heads,
        uint32_t width, float* d_x_nw)) {
    SHARED(shared);
    const Sizes sizes{heads, kv_heads, width};
    const uint32_t n = blockIdx.x, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    float *own = (float*)shared + warp * 2 * width, *products = own + width;
    const float* cos = table_pe + (size_t)positions_n[n] * width;
    for (uint32_t head = warp; head < sizes.total(); head += WARPS) {
        const size_t at = ((size_t)n * sizes.total() + head) * width;
        float* d_x = d_x_nw + at;
        if (sizes.is_value(head)) {
            const float* d = d_v_nke + ((size_t)n * kv_heads + head - sizes.rotated()) * width;
            for (uint32_t e = lane; e < width; e += WARP) d_x[e] = d[e];
            continue;
        }
        float* d = sizes.is_query(head) ? d_q_nhe + ((size_t)n * heads + head) * width
                                        : d_k_nke + ((size_t)n * kv_heads + head - heads) * width;
        const float* norm_e = sizes.is_query(head) ? q_norm_e : k_norm_e;
        if (!norm_e) {
            rotate(d, cos, -1.0f, width / 2, d_x);
            continue;
        }
        rotate(d, cos, -1.0f, width / 2, own);
        __syncwarp();
        const float *x = x_nw + at, inv_rms = inv_rms_nh[n * sizes.rotated() + head];
        for (uint32_t e = lane; e < width; e += WARP) {
            d[e] = own[e];
            products[e] = x[e] * norm_e[e] * own[e];
        }
        __syncwarp();
        float along = 0.0f; // the processor sums in one chain
        for (uint32_t e = 0; e < width; e++) along += products[e];
        const float pull = along * inv_rms * inv_rms * inv_rms / (float)width;
        for (uint32_t e = lane; e < width; e += WARP) d_x[e] = 0.0f + (norm_e[e] * own[e] * inv_rms - x[e] * pull);
        __syncwarp(); // the next head takes the place of this one
    }
}

// Sums of gradients over the rows of a chunk, in order, for add_chunks of rms_norm.cu: chunks of `rows_each` rows, which depend on
// the width alone. Grid: ceil(width / THREADS) by the number of chunks.

// x[n] += bias for each row n of `width` numbers. Any number of blocks.
KERNEL(add_bias, 256, (float* x_nd, const float* bias_d, uint32_t width, uint64_t len)) {
    for (uint64_t at = (uint64_t)blockIdx.x * 256 + threadIdx.x; at < len; at += (uint64_t)gridDim.x * 256)
        x_nd[at] += bias_d[at % width];
}

// sums[c] = sum of d_x over rows that are `stride` apart: the gradient of a bias, from its first column on.
KERNEL(bias_sums, THREADS,
       (const float* d_x_nw, uint32_t rows, uint32_t stride, uint32_t width, uint32_t rows_each, float* sums_cd)) {
    const uint32_t d = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * rows_each;
    if (d >= width) return;
    float sum = 0.0f;
    for (uint32_t row = first; row < min(first + rows_each, rows); row++) sum += d_x_nw[(size_t)row * stride + d];
    sums_cd[(size_t)blockIdx.y * width + d] = sum;
}

// sums[c] = sum of d x s over heads: the gradient of a norm's weight. A row is one of `count` heads of a row of the batch, from
// number first_head on; d_nhe was rotated back by heads_backward.
KERNEL(head_norm_weight_sums, THREADS,
       (const float* x_nw, const float* inv_rms_nh, const float* d_nhe, uint32_t first_head, uint32_t count, uint32_t heads,
        uint32_t kv_heads, uint32_t width, uint32_t rows, uint32_t rows_each, float* sums_cd)) {
    const Sizes sizes{heads, kv_heads, width};
    const uint32_t e = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * rows_each;
    if (e >= width) return;
    float sum = 0.0f;
    for (uint32_t row = first; row < min(first + rows_each, rows); row++) {
        const uint32_t n = row / count, head = first_head + row % count;
        const float x = x_nw[((size_t)n * sizes.total() + head) * width + e];
        sum += d_nhe[(size_t)row * width + e] * x * inv_rms_nh[n * sizes.rotated() + head];
    }
    sums_cd[(size_t)blockIdx.y * width + e] = sum;
}

} // namespace heads
