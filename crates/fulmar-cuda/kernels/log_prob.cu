// Log-probs of chosen ids, entropies and their gradient from logits [N, V], with the bits of fulmar-kernel's log_prob.rs.
//
//   log p(id) = x[id] - m - ln S        m = max_v x[v],  S = sum_v e^(x[v] - m)
//   H         = ln S - sum_v e^(x[v] - m) (x[v] - m) / S
//
// A row is cut into blocks of 4,096 logits. A half-warp sums one block over 16 accumulators in single precision; the sums of
// the blocks are added in order, in double precision. V from 1; ids are below V.
#include "lanes.cuh"
#include "libm.cuh"
#include "select.cuh"

namespace log_prob {

constexpr uint32_t THREADS = 256, BLOCK = 4096;
constexpr uint32_t HALF_WARPS = THREADS / WIDTH;        // blocks of a row that a block of threads sums at once
constexpr uint32_t CLUSTER = 8, STRIDE = BLOCK + WIDTH; // half-warps of a warp read different banks of shared memory
constexpr uint32_t BLOCKS_MAX = 14, ROW_BLOCKS_MAX = CLUSTER * BLOCKS_MAX; // of one block of threads, of a row: V <= 458,752

// The sums of a row against its largest logit so far.
struct RowSums {
    float max = -INFINITY;
    double total = 0.0, weighted = 0.0;

    // Adds the sums of the next block, which are taken against the larger of `max` and `block_max`.
    __device__ void add(float block_max, float sum, float weighted_sum) {
        if (block_max > max) {
            if (total > 0.0) {
                const double down = (double)max - (double)block_max, scale = exp64(down);
                weighted = scale * (weighted + total * down);
                total *= scale;
            }
            max = block_max;
        }
        total += (double)sum;
        weighted += (double)weighted_sum;
    }
};

struct Outputs {
    float *log_prob_n, *entropy_n, *max_n;
    double* log_sum_n;
};

// ln S and the entropy.
struct Statistics {
    double log_sum;
    float entropy;

    __device__ explicit Statistics(const RowSums& row) {
        log_sum = log64(row.total);
        const double difference = log_sum - row.weighted / row.total;
        entropy = difference > 0.0 ? (float)difference : 0.0f;
    }
    __device__ void write(const Outputs& out, uint32_t row, float max, float logit) const {
        out.log_prob_n[row] = (float)(((double)logit - (double)max) - log_sum);
        out.entropy_n[row] = entropy;
        out.max_n[row] = max;
        out.log_sum_n[row] = log_sum;
    }
};

// Returns the largest of the `len` logits of a half-warp. A lane keeps the NaN that it begins with, as on the processor.
__device__ __forceinline__ float block_max(const float* x, uint32_t len, uint32_t lane) {
    const uint32_t whole = len / WIDTH * WIDTH;
    float max = whole + lane < len ? x[whole + lane] : -INFINITY; // the remainder comes first
#pragma unroll 8
    for (uint32_t at = lane; at < whole; at += WIDTH) {
        const float y = x[at];
        max = y > max ? y : max;
    }
    return max_lanes(max);
}

// Writes sum e^(x - base) and sum e^(x - base) (x - base) of the `len` logits of a half-warp; or as the second sum, with IS_SQUARE,
// that of the squares of the first.
template <bool IS_SQUARE = false>
__device__ __forceinline__ void block_sums(const float* x, uint32_t len, float base, uint32_t lane, float* sum_at,
                                           float* weighted_at) {
    float sum = 0.0f, weighted = 0.0f;
#pragma unroll 8
    for (uint32_t at = lane; at < len; at += WIDTH) {
        float shifted = x[at] - base;
        shifted = shifted < SOFTMAX_FLOOR ? SOFTMAX_FLOOR : shifted; // keeps 0 * -inf out, but passes a NaN on
        const float e = softmax_exp(shifted);
        sum += e;
        weighted += IS_SQUARE ? e * e : e * shifted;
    }
    sum = sum_lanes(sum);
    weighted = sum_lanes(weighted);
    if (lane == 0) *sum_at = sum, *weighted_at = weighted;
}

__device__ __forceinline__ float base_of(float max) { return max == -INFINITY ? 0.0f : max; }

__device__ __forceinline__ float larger(float a, float b) { return b > a ? b : a; }

// Returns, in the first thread, the sums of a row; `shared` has 3 * HALF_WARPS floats, which no thread reads any more at the end.
__device__ __forceinline__ RowSums sum_row(unsigned char* shared, const float* logits_v, uint32_t vocab) {
    float* maxima = (float*)shared; // [HALF_WARPS] of the blocks in this round
    float* sums = maxima + HALF_WARPS;
    float* weighted = sums + HALF_WARPS;
    const uint32_t half_warp = threadIdx.x / WIDTH, lane = threadIdx.x % WIDTH;
    float max = -INFINITY; // of the rounds before
    RowSums sums_of_row;
    for (uint32_t round = 0; round < vocab; round += HALF_WARPS * BLOCK) {
        const uint32_t first = round + half_warp * BLOCK, len = first < vocab ? min(vocab - first, BLOCK) : 0;
        const float own = block_max(logits_v + first, len, lane);
        if (lane == 0) maxima[half_warp] = own;
        __syncthreads();
        float base = max;
        for (uint32_t before = 0; before <= half_warp; before++) base = larger(base, maxima[before]);
        block_sums(logits_v + first, len, base_of(base), lane, sums + half_warp, weighted + half_warp);
        __syncthreads();
        for (uint32_t block = 0; block < HALF_WARPS; block++) max = larger(max, maxima[block]);
        const uint32_t blocks = min((vocab - round + BLOCK - 1) / BLOCK, HALF_WARPS);
        if (threadIdx.x == 0)
            for (uint32_t block = 0; block < blocks; block++) sums_of_row.add(maxima[block], sums[block], weighted[block]);
        __syncthreads();
    }
    return sums_of_row;
}

// One block of threads a row; shared memory: 3 * HALF_WARPS floats.
KERNEL(log_prob_rows, THREADS,
       (const float* logits_nv, const uint32_t* ids_n, uint32_t vocab, float* log_prob_n, float* entropy_n, float* max_n,
        double* log_sum_n)) {
    SHARED(shared);
    const uint32_t row = blockIdx.x;
    const float* logits_v = logits_nv + (size_t)row * vocab;
    const RowSums sums = sum_row(shared, logits_v, vocab);
    if (threadIdx.x == 0)
        Statistics(sums).write({log_prob_n, entropy_n, max_n, log_sum_n}, row, sums.max, logits_v[ids_n[row]]);
}

// Writes the entropies of rows of logits alone. One block of threads a row; shared memory: 3 * HALF_WARPS floats.
KERNEL(entropy_rows, THREADS, (const float* logits_nv, uint32_t vocab, float* entropy_n)) {
    SHARED(shared);
    const RowSums sums = sum_row(shared, logits_nv + (size_t)blockIdx.x * vocab, vocab);
    if (threadIdx.x == 0) entropy_n[blockIdx.x] = Statistics(sums).entropy;
}

// Writes the k likeliest ids of each row and their log-probs, the likeliest first and of equals the lower id first; k from 1 to V and
// at most 4,096. One block of threads a row; shared memory: k + 1 doubles, 1 float and SELECT_WORDS words.
KERNEL(top_k_log_probs_rows, THREADS,
       (const float* logits_nv, uint32_t vocab, uint32_t k, uint32_t* ids_nk, float* log_probs_nk)) {
    SHARED(shared);
    uint64_t* list = (uint64_t*)shared; // [k] rising bits above, the complement of the id below: larger is earlier
    double* log_sum = (double*)(list + k);
    float* max = (float*)(log_sum + 1);
    uint32_t* words = (uint32_t*)(max + 1); // [SELECT_WORDS]
    const float* logits_v = logits_nv + (size_t)blockIdx.x * vocab;
    const RowSums sums = sum_row((unsigned char*)words, logits_v, vocab);
    if (threadIdx.x == 0) *log_sum = Statistics(sums).log_sum, *max = sums.max;

    list_largest<THREADS>(logits_v, vocab, k, list, words);
    for (uint32_t i = threadIdx.x; i < k; i += THREADS) {
        const uint32_t id = ~(uint32_t)list[i];
        const size_t at = (size_t)blockIdx.x * k + rank_of(list, k, i);
        ids_nk[at] = id;
        log_probs_nk[at] = (float)(((double)logits_v[id] - (double)*max) - *log_sum);
    }
}

// Writes the mean of -log_prob_n, summed in order: the cross-entropy, whose gradient is that of log_prob_backward_rows or
// log_prob_and_backward_rows for d_log_prob = -1 / N. One block of threads; shared memory: THREADS floats.
KERNEL(cross_entropy_mean, THREADS, (const float* log_prob_n, uint32_t rows, double* mean)) {
    SHARED(shared);
    const double total = 0.0 - sum_in_order<THREADS>(0.0, log_prob_n, rows, (float*)shared);
    if (threadIdx.x == 0) *mean = rows == 0 ? 0.0 : total / (double)rows;
}

// Overwrites rows of logits by their softmax. One block of threads a row; shared memory: 3 * HALF_WARPS floats.
KERNEL(softmax_rows, THREADS, (float* logits_nv, uint32_t vocab)) {
    SHARED(shared);
    float* of_row = (float*)shared; // the largest logit, and the factor of exponentials
    float* logits_v = logits_nv + (size_t)blockIdx.x * vocab;
    const RowSums sums = sum_row(shared, logits_v, vocab);
    if (threadIdx.x == 0) of_row[0] = sums.max, of_row[1] = (float)(1.0 / sums.total);
    __syncthreads();
    const float max = of_row[0], scale = of_row[1];
    for (uint32_t v = threadIdx.x; v < vocab; v += THREADS)
        logits_v[v] = softmax_exp(fmaxf(logits_v[v] - max, SOFTMAX_FLOOR)) * scale;
}

// Writes ln sum_v p[v]^2 of rows of logits, NaN for a row with a NaN or of -inf alone. One block of threads a row; shared memory:
// 3 * HALF_WARPS floats.
KERNEL(log_sum_sq_prob_rows, THREADS, (const float* logits_nv, uint32_t vocab, float* log_sum_sq_n)) {
    SHARED(shared);
    float* maxima = (float*)shared; // [HALF_WARPS]
    float* sums = maxima + HALF_WARPS;
    float* squares = sums + HALF_WARPS;
    const uint32_t half_warp = threadIdx.x / WIDTH, lane = threadIdx.x % WIDTH;
    const float* logits_v = logits_nv + (size_t)blockIdx.x * vocab;
    float max = -INFINITY; // which logit hides behind a NaN does not matter: the result is NaN then
    for (uint32_t v = threadIdx.x; v < vocab; v += THREADS) max = larger(max, logits_v[v]);
    max = max_lanes(max);
    if (lane == 0) maxima[half_warp] = max;
    __syncthreads(); // every half-warp has its maximum
    for (uint32_t other = 0; other < HALF_WARPS; other++) max = larger(max, maxima[other]);
    double total = 0.0, squares_total = 0.0;
    for (uint32_t round = 0; round < vocab; round += HALF_WARPS * BLOCK) {
        const uint32_t first = round + half_warp * BLOCK, len = first < vocab ? min(vocab - first, BLOCK) : 0;
        block_sums<true>(logits_v + first, len, max, lane, sums + half_warp, squares + half_warp);
        __syncthreads(); // every half-warp has its sums
        const uint32_t blocks = min((vocab - round + BLOCK - 1) / BLOCK, HALF_WARPS);
        if (threadIdx.x == 0)
            for (uint32_t block = 0; block < blocks; block++)
                total += (double)sums[block], squares_total += (double)squares[block];
        __syncthreads(); // they are added
    }
    if (threadIdx.x != 0) return;
    const double found = log64(squares_total) - 2.0 * log64(total);
    log_sum_sq_n[blockIdx.x] = max == -INFINITY ? NAN : found > 0.0 ? 0.0f : (float)found;
}

// What a row's gradient needs of its sums.
struct RowGradient {
    float max, log_sum, inverse, entropy, d_log_prob, d_entropy;

    __device__ RowGradient(float max, double log_sum, float entropy, float d_log_prob, float d_entropy)
        : max(max),
          log_sum((float)log_sum),
          inverse((float)exp64(-log_sum)),
          entropy(entropy),
          d_log_prob(d_log_prob),
          d_entropy(d_entropy) {}

    __device__ __forceinline__ float of(float logit, bool is_chosen) const {
        const float shifted = fmaxf(logit - max, SOFTMAX_FLOOR);
        const float log_p = shifted - log_sum;
        const float d = -(softmax_exp(shifted) * inverse) * (d_log_prob + d_entropy * (log_p + entropy));
        return is_chosen ? d + d_log_prob : d;
    }
};

__device__ __forceinline__ float at_row(const float* values_n, uint32_t row) {
    return values_n == nullptr ? 0.0f : values_n[row];
}

// Overwrites logits by the gradient of d_log_prob log p(id) + d_entropy H. One block of threads a row; d_entropy_n may be null.
KERNEL(log_prob_backward_rows, THREADS,
       (float* logits_nv, const uint32_t* ids_n, uint32_t vocab, const float* entropy_n, const float* max_n,
        const double* log_sum_n, const float* d_log_prob_n, const float* d_entropy_n)) {
    const uint32_t row = blockIdx.x, id = ids_n[row];
    const RowGradient gradient(max_n[row], log_sum_n[row], entropy_n[row], d_log_prob_n[row], at_row(d_entropy_n, row));
    float* logits_v = logits_nv + (size_t)row * vocab;
    if (vocab % 4 == 0) {
        for (uint32_t v = threadIdx.x * 4; v < vocab; v += THREADS * 4) {
            float4 x = *(const float4*)(logits_v + v);
            x.x = gradient.of(x.x, v == id);
            x.y = gradient.of(x.y, v + 1 == id);
            x.z = gradient.of(x.z, v + 2 == id);
            x.w = gradient.of(x.w, v + 3 == id);
            *(float4*)(logits_v + v) = x;
        }
    } else {
        for (uint32_t v = threadIdx.x; v < vocab; v += THREADS) logits_v[v] = gradient.of(logits_v[v], v == id);
    }
}

// log_prob_rows and log_prob_backward_rows in one read and one write of the logits: a cluster of blocks holds a row in shared
// memory. Shared memory: (per * STRIDE + 3 * BLOCKS_MAX + 3 * ROW_BLOCKS_MAX) floats, per = ceil(ceil(V / BLOCK) / CLUSTER).
CLUSTER_KERNEL(log_prob_and_backward_rows, THREADS, CLUSTER,
               (float* logits_nv, const uint32_t* ids_n, uint32_t vocab, const float* d_log_prob_n, const float* d_entropy_n,
                float* log_prob_n, float* entropy_n, float* max_n, double* log_sum_n)) {
    SHARED(shared);
    const uint32_t row = blockIdx.x / CLUSTER, rank = cluster_rank(), thread = threadIdx.x;
    const uint32_t num_blocks = (vocab + BLOCK - 1) / BLOCK, per = (num_blocks + CLUSTER - 1) / CLUSTER;
    float* x = (float*)shared;        // [per, STRIDE] own logits
    float* maxima = x + per * STRIDE; // [per] of own blocks
    float* sums = maxima + BLOCKS_MAX;
    float* weighted = sums + BLOCKS_MAX;
    float* all_maxima = weighted + BLOCKS_MAX; // [per * CLUSTER] of the row's blocks
    float* all_sums = all_maxima + ROW_BLOCKS_MAX;
    float* all_weighted = all_sums + ROW_BLOCKS_MAX;
    const uint32_t first = rank * per * BLOCK, len = first < vocab ? min(vocab - first, per * BLOCK) : 0;
    float* logits_v = logits_nv + (size_t)row * vocab + first;
    auto at = [](uint32_t v) { return v / BLOCK * STRIDE + v % BLOCK; };

    if (vocab % 4 == 0) {
        for (uint32_t v = thread * 4; v < len; v += THREADS * 4) *(float4*)(x + at(v)) = *(const float4*)(logits_v + v);
    } else {
        for (uint32_t v = thread; v < len; v += THREADS) x[at(v)] = logits_v[v];
    }
    __syncthreads();

    const uint32_t half_warp = thread / WIDTH, lane = thread % WIDTH;
    const uint32_t block_first = half_warp * BLOCK,
                   block_len = half_warp < per && block_first < len ? min(len - block_first, BLOCK) : 0;
    const float* own = x + min(half_warp, per) * STRIDE;
    const float own_max = block_max(own, block_len, lane);
    if (lane == 0 && half_warp < per) maxima[half_warp] = own_max;
    cluster_sync();
    for (uint32_t block = thread; block < per * CLUSTER; block += THREADS)
        all_maxima[block] = shared_of(maxima + block % per, block / per);
    __syncthreads();
    float base = -INFINITY;
    if (half_warp < per)
        for (uint32_t before = 0; before <= rank * per + half_warp; before++) base = larger(base, all_maxima[before]);
    float sum, weighted_sum;
    block_sums(own, block_len, base_of(base), lane, &sum, &weighted_sum);
    if (lane == 0 && half_warp < per) sums[half_warp] = sum, weighted[half_warp] = weighted_sum;
    cluster_sync();
    for (uint32_t block = thread; block < per * CLUSTER; block += THREADS) {
        all_sums[block] = shared_of(sums + block % per, block / per);
        all_weighted[block] = shared_of(weighted + block % per, block / per);
    }
    __syncthreads();

    // Every thread adds the few sums of all blocks: that is sooner done than passed around.
    RowSums sums_of_row;
    for (uint32_t block = 0; block < num_blocks; block++)
        sums_of_row.add(all_maxima[block], all_sums[block], all_weighted[block]);
    const Statistics statistics(sums_of_row);
    const uint32_t id = ids_n[row] - first; // of this block's logits, if it is below len
    if (thread == 0 && id < len) statistics.write({log_prob_n, entropy_n, max_n, log_sum_n}, row, sums_of_row.max, x[at(id)]);
    const RowGradient gradient(sums_of_row.max, statistics.log_sum, statistics.entropy, d_log_prob_n[row],
                               at_row(d_entropy_n, row));
    if (vocab % 4 == 0) {
        for (uint32_t v = thread * 4; v < len; v += THREADS * 4) {
            const float4 y = *(const float4*)(x + at(v));
            *(float4*)(logits_v + v) = {gradient.of(y.x, v == id), gradient.of(y.y, v + 1 == id), gradient.of(y.z, v + 2 == id),
                                        gradient.of(y.w, v + 3 == id)};
        }
    } else {
        for (uint32_t v = thread; v < len; v += THREADS) logits_v[v] = gradient.of(x[at(v)], v == id);
    }
    cluster_sync(); // a block stays while others may read its shared memory
}

} // namespace log_prob
