// Causal attention of f32 rows with grouped key/value heads, with the bits of fulmar-kernel's attention.rs, and its gradients.
//
//   s[j] = q . k[j] / sqrt(E)    m = max_j s[j]    L = ln sum_j e^(s[j] - m)    p[j] = e^((s[j] - m) - L)    o = sum_j p[j] v[j]
//   ds[j] = p[j] (do . v[j] - do . o) / sqrt(E)    dq = sum_j ds[j] k[j]        dk[j] = sum ds[j] q          dv[j] = sum p[j] do
//
// A score is one chain of fused multiply-adds in the order of the columns, as do . v is; the sum over keys has 16 accumulators; an
// output is one such chain over the keys in the order of the row's spans. Scores are computed twice, for their maximum and for their weights, so a row
// may have any number of keys. Both kernels of gradients compute p from the m and L of the forward pass, with its bits of s. Each
// gradient is one chain: of a query over its keys, of a key or a value over the queries that attend to it, both in the order of
// their rows. Legend: N query rows, R key/value rows, H heads, K key/value heads, E width of a head, up to 256.
#include "lanes.cuh"
#include "libm.cuh"
#include "spans.cuh"

namespace attention_f32 {

using spans::Keys;

constexpr uint32_t WARP = 32, THREADS = 256, TILE = 64; // threads of a block at most, keys at once

// Returns a . b.
__device__ __forceinline__ float score(const float* a, const float* b, uint32_t width) {
    float sum = 0.0f;
    for (uint32_t e = 0; e < width; e++) sum = __fmaf_rn(a[e], b[e], sum);
    return sum;
}

// e^x for x up to 0: 0 far below, NaN for NaN.
__device__ __forceinline__ float weight_of(float x) { return softmax_exp(x < SOFTMAX_FLOOR ? SOFTMAX_FLOOR : x); }

// One query head of a row, its keys and values, and a tile of its keys in shared memory.
struct Head {
    Keys keys;
    const float *keys_rke, *values_rke;
    uint32_t stride, at; // elements from a key/value row to the next, and before this head
    uint32_t* rows;      // [TILE], rows of keys

    __device__ __forceinline__ const float* key(uint32_t i) const { return keys_rke + (size_t)rows[i] * stride + at; }
    __device__ __forceinline__ const float* value(uint32_t i) const { return values_rke + (size_t)rows[i] * stride + at; }

    // Finds the rows of keys from number `first` on, each thread those of its calls by `for_keys`; returns how many there are.
    __device__ __forceinline__ uint32_t begin(uint32_t first) const {
        const uint32_t count = min(keys.count - first, TILE);
        __syncthreads(); // the tile before this one is read
        for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) rows[i] = keys.row(first + i);
        return count;
    }
};

// Calls `work` with each key of a tile, in one thread each.
template <class Work>
__device__ __forceinline__ void for_keys(uint32_t count, Work work) {
    for (uint32_t i = threadIdx.x; i < count; i += blockDim.x) work(i);
}

// Returns the largest number of the block, without NaNs. `maxima` are 8 floats of shared memory.
__device__ __forceinline__ float max_of_block(float own, float* maxima) {
    own = max_lanes(own);
    own = fmaxf(own, __shfl_xor_sync(ALL, own, WIDTH));
    if (threadIdx.x % WARP == 0) maxima[threadIdx.x / WARP] = own;
    __syncthreads();
    float max = maxima[0];
    for (uint32_t warp = 1; warp < blockDim.x / WARP; warp++) max = fmaxf(max, maxima[warp]);
    return max;
}

// Writes the output of a row and head, and its m and L. Threads: E, rounded up to warps. Grid: N by H; shared memory: E + 2 * TILE
// + 9 floats.
KERNEL(attention_f32, THREADS,
       (const float* q_nhe, const float* keys_rke, const float* values_rke, const uint2* rows_n, const uint2* ranges_r,
        uint32_t heads, uint32_t kv_heads, uint32_t width, float* out_nhe, float* log_sum_nh2)) {
    SHARED(shared);
    float *q = (float*)shared, *weights = q + width, *maxima = weights + TILE, *sum_of_row = maxima + THREADS / WARP;
    const size_t nh = (size_t)blockIdx.x * heads + blockIdx.y;
    const uint32_t at = blockIdx.y / (heads / kv_heads) * width, e = threadIdx.x;
    const Head head{Keys(rows_n, ranges_r, blockIdx.x), keys_rke, values_rke, kv_heads * width, at,
                    (uint32_t*)(sum_of_row + 1)};
    const float scale = 1.0f / sqrtf((float)width);
    if (e < width) q[e] = q_nhe[nh * width + e];
    float max = -INFINITY;
    for (uint32_t first = 0; first < head.keys.count; first += TILE) {
        const uint32_t count = head.begin(first);
        for_keys(count, [&](uint32_t i) { max = fmaxf(max, score(q, head.key(i), width) * scale); });
    }
    max = max_of_block(max, maxima);
    float sum = 0.0f, out = 0.0f;
    for (uint32_t first = 0; first < head.keys.count; first += TILE) {
        const uint32_t count = head.begin(first);
        for_keys(count, [&](uint32_t i) { weights[i] = weight_of(score(q, head.key(i), width) * scale - max); });
        __syncthreads();
        if (threadIdx.x < WIDTH)
            for (uint32_t i = threadIdx.x; i < count; i += WIDTH) sum += weights[i];
        if (e < width)
            for (uint32_t i = 0; i < count; i++) out = __fmaf_rn(weights[i], head.value(i)[e], out);
    }
    if (threadIdx.x < WARP) {
        sum = sum_lanes(sum);
        if (threadIdx.x == 0) {
            *sum_of_row = sum;
            log_sum_nh2[2 * nh] = max;
            log_sum_nh2[2 * nh + 1] = log32(sum);
        }
    }
    __syncthreads();
    if (e < width) out_nhe[nh * width + e] = out * (1.0f / *sum_of_row);
}

// Writes the gradient of the query of a row and head, and do . o, which attention_f32_backward_keys reads. Threads: E, rounded up to
// warps. Grid: N by H; shared memory: 2 * E + 2 * TILE + 1 floats.
KERNEL(attention_f32_backward_queries, THREADS,
       (const float* q_nhe, const float* keys_rke, const float* values_rke, const uint2* rows_n, const uint2* ranges_r,
        const float* out_nhe, const float* log_sum_nh2, const float* d_out_nhe, uint32_t heads, uint32_t kv_heads,
        uint32_t width, float* d_q_nhe, float* along_nh)) {
    SHARED(shared);
    float *q = (float*)shared, *d_out = q + width, *d_scores = d_out + width, *along_of_row = d_scores + TILE;
    const size_t nh = (size_t)blockIdx.x * heads + blockIdx.y;
    const uint32_t at = blockIdx.y / (heads / kv_heads) * width, e = threadIdx.x;
    const Head head{Keys(rows_n, ranges_r, blockIdx.x), keys_rke, values_rke, kv_heads * width, at,
                    (uint32_t*)(along_of_row + 1)};
    const float scale = 1.0f / sqrtf((float)width), max = log_sum_nh2[2 * nh], log_sum = log_sum_nh2[2 * nh + 1];
    if (e < width) q[e] = q_nhe[nh * width + e], d_out[e] = d_out_nhe[nh * width + e];
    __syncthreads();
    if (threadIdx.x < WARP) {
        const float along = dot_lanes(d_out, out_nhe + nh * width, width, threadIdx.x % WIDTH);
        if (threadIdx.x == 0) *along_of_row = along_nh[nh] = along;
    }
    float d_q = 0.0f;
    for (uint32_t first = 0; first < head.keys.count; first += TILE) {
        const uint32_t count = head.begin(first);
        for_keys(count, [&](uint32_t i) {
            const float s = score(q, head.key(i), width) * scale, d_weight = score(d_out, head.value(i), width);
            d_scores[i] = weight_of((s - max) - log_sum) * (d_weight - *along_of_row) * scale;
        });
        __syncthreads();
        if (e < width)
            for (uint32_t i = 0; i < count; i++) d_q = __fmaf_rn(d_scores[i], head.key(i)[e], d_q);
    }
    if (e < width) d_q_nhe[nh * width + e] = d_q;
}

constexpr uint32_t KEYS = 16, ROWS = 32, QUERIES = 16; // keys of a block, query rows and heads of a group in them at once

// Writes the gradients of some keys and values of one head. A tile is up to KEYS key/value rows, its first and its end, and the
// first and the end of the query rows of its block, which alone may attend to them; a query row and a key/value row of the same
// number are one row. Threads: E, rounded up to warps. Grid: tiles by K; shared memory: 2 * QUERIES * KEYS + ROWS floats.
KERNEL(attention_f32_backward_keys, THREADS,
       (const float* q_nhe, const float* keys_nke, const float* values_nke, const uint2* rows_n, const uint2* ranges_r,
        const uint4* tiles_t, const float* log_sum_nh2, const float* d_out_nhe, const float* along_nh, uint32_t heads,
        uint32_t kv_heads, uint32_t width, float* d_keys_nke, float* d_values_nke)) {
    SHARED(shared);
    float *weights = (float*)shared, *d_scores = weights + QUERIES * KEYS; // [QUERIES, KEYS]
    uint32_t* seen = (uint32_t*)(d_scores + QUERIES * KEYS);               // [ROWS], of keys
    const uint4 tile = tiles_t[blockIdx.x];
    const uint32_t first_key = tile.x, end_key = tile.y, end_row = tile.w, group = heads / kv_heads, e = threadIdx.x;
    const float scale = 1.0f / sqrtf((float)width);
    float d_keys[KEYS] = {}, d_values[KEYS] = {};
    for (uint32_t first = tile.z; first < end_row; first += ROWS) {
        const uint32_t rows = min(end_row - first, ROWS);
        __syncthreads(); // the rows before these are read
        for (uint32_t r = threadIdx.x; r < rows; r += blockDim.x)
            seen[r] = Keys(rows_n, ranges_r, first + r).seen(first_key) & ((1u << KEYS) - 1);
        __syncthreads();
        uint32_t seen_by_any = 0;
        for (uint32_t r = 0; r < rows; r++) seen_by_any |= seen[r];
        if (seen_by_any == 0) continue;
        for (uint32_t begin = 0; begin < rows * group; begin += QUERIES) {
            const uint32_t queries = min(rows * group - begin, QUERIES);
            const auto place = [&](uint32_t query) { // of a row and head
                return (size_t)(first + (begin + query) / group) * heads + blockIdx.y * group + (begin + query) % group;
            };
            for (uint32_t pair = threadIdx.x; pair < queries * KEYS; pair += blockDim.x) {
                const uint32_t query = pair / KEYS, j = pair % KEYS;
                const size_t nh = place(query);
                const size_t at = ((size_t)min(first_key + j, end_key - 1) * kv_heads + blockIdx.y) * width;
                const float s = score(q_nhe + nh * width, keys_nke + at, width) * scale;
                const float d_weight = score(d_out_nhe + nh * width, values_nke + at, width);
                const bool is_seen = seen[(begin + query) / group] >> j & 1;
                const float p = weight_of((s - log_sum_nh2[2 * nh]) - log_sum_nh2[2 * nh + 1]);
                weights[pair] = is_seen ? p : 0.0f;
                d_scores[pair] = is_seen ? p * (d_weight - along_nh[nh]) * scale : 0.0f;
            }
            __syncthreads();
            for (uint32_t query = 0; query < queries && e < width; query++) {
                const float q = q_nhe[place(query) * width + e], d_out = d_out_nhe[place(query) * width + e];
#pragma unroll
                for (uint32_t j = 0; j < KEYS; j++) {
                    d_keys[j] = __fmaf_rn(d_scores[query * KEYS + j], q, d_keys[j]);
                    d_values[j] = __fmaf_rn(weights[query * KEYS + j], d_out, d_values[j]);
                }
            }
            __syncthreads(); // the next queries take the place of these
        }
    }
    if (e >= width) return;
#pragma unroll
    for (uint32_t j = 0; j < KEYS; j++) {
        if (first_key + j >= end_key) break;
        const size_t at = ((size_t)(first_key + j) * kv_heads + blockIdx.y) * width + e;
        d_keys_nke[at] = d_keys[j];
        d_values_nke[at] = d_values[j];
    }
}

} // namespace attention_f32
