// Draws of tokens from rows of logits [N, V]: the ids of fulmar-objective's draw.rs and its log-probs under the distribution that is
// drawn from. Those under the model are log_prob_rows of the ids.
//
//   x = logits + biases; of seen tokens x < 0 ? x r : x / r, then x - frequency count - presence; -inf for banned ones
//   w = e^((x - max) / temperature), 0 unless x is one of the top_k largest or ties with the last of them, and w >= min_p
//   id: the first whose w and those of all ids before it sum to more than uniform total; the likeliest at temperature 0
//
// Missing: top_p, typical_p, epsilon, eta and top_h. V from 1.
#include "lanes.cuh"
#include "libm.cuh"
#include "select.cuh"

namespace draw {

constexpr uint32_t THREADS = 1024, HALF_WARPS = THREADS / WIDTH;
constexpr uint32_t BLOCK = 4096, NONE = ~0u; // numbers of a row that are summed together; no mask
constexpr float LARGEST = 3.40282347e38f;

// Items of a row in lists of all rows: those of row n are from ends_n[n - 1] to below ends_n[n].
struct Items {
    uint32_t first, end;

    __device__ Items(const uint32_t* ends_n, uint32_t row) : first(row == 0 ? 0 : ends_n[row - 1]), end(ends_n[row]) {}
};

// Keeps a score finite: -inf is for banned tokens.
__device__ __forceinline__ float bounded(double x) {
    x = x < -(double)LARGEST ? -(double)LARGEST : x;
    return (float)(x > (double)LARGEST ? (double)LARGEST : x);
}

// Writes the scores of rows of logits: with biases, whose items of one id follow each other in their order; penalties r, frequency
// and presence of seen tokens, each of them once with the number of times that it was drawn; banned ids; and masks [M, ceil(V / 32)],
// of which mask_n has the row's number or NONE. One block of threads a row.
KERNEL(score_rows, THREADS,
       (const float* logits_nv, uint32_t vocab, const uint32_t* bias_ends_n, const uint32_t* bias_ids, const double* biases,
        const uint32_t* seen_ends_n, const uint32_t* seen_ids, const uint32_t* seen_counts, const float* penalties_n3,
        const uint32_t* banned_ends_n, const uint32_t* banned_ids, const uint32_t* mask_n, const uint32_t* masks_mw,
        float* scores_nv)) {
    const uint32_t row = blockIdx.x, mask = mask_n[row];
    const float* logits_v = logits_nv + (size_t)row * vocab;
    float* scores_v = scores_nv + (size_t)row * vocab;
    const uint32_t* mask_w = mask == NONE ? nullptr : masks_mw + (size_t)mask * ((vocab + 31) / 32);
    for (uint32_t v = threadIdx.x; v < vocab; v += THREADS)
        scores_v[v] = mask_w == nullptr || (mask_w[v / 32] >> v % 32 & 1) ? logits_v[v] : -INFINITY;
    __syncthreads(); // all scores are there

    const Items bias(bias_ends_n, row), seen(seen_ends_n, row), banned(banned_ends_n, row);
    for (uint32_t item = bias.first + threadIdx.x; item < bias.end; item += THREADS) {
        const uint32_t id = bias_ids[item];
        float score = scores_v[id];
        if (score == -INFINITY || (item > bias.first && bias_ids[item - 1] == id)) continue; // or the first of an id adds all
        for (uint32_t next = item; next < bias.end && bias_ids[next] == id; next++)
            score = bounded((double)score + biases[next]);
        scores_v[id] = score;
    }
    __syncthreads(); // biases are added
    const float repetition = penalties_n3[row * 3], frequency = penalties_n3[row * 3 + 1], presence = penalties_n3[row * 3 + 2];
    for (uint32_t item = seen.first + threadIdx.x; item < seen.end; item += THREADS) {
        const uint32_t count = seen_counts[item];
        const float score = scores_v[seen_ids[item]];
        if (score == -INFINITY) continue;
        const float repeated = score < 0.0f ? score * repetition : score / repetition;
        const float counted = repeated - frequency * (float)count;
        scores_v[seen_ids[item]] = bounded((double)(counted - (count > 0 ? presence : 0.0f)));
    }
    __syncthreads(); // penalties are subtracted
    for (uint32_t item = banned.first + threadIdx.x; item < banned.end; item += THREADS) scores_v[banned_ids[item]] = -INFINITY;
}

// Weights of scores: e^((x - max) / temperature), or 0 below `least`.
struct Weights {
    double temperature, least;
    float max, twice_inverse; // half a difference times two over the temperature: a difference of two numbers may overflow

    __device__ Weights(double temperature, double least, float max)
        : temperature(temperature), least(least), max(max), twice_inverse(fminf((float)(2.0 / temperature), LARGEST)) {}

    __device__ __forceinline__ float against(float x, float base) const {
        return softmax_exp(fmaxf((0.5f * x - 0.5f * base) * twice_inverse, SOFTMAX_FLOOR));
    }
    __device__ __forceinline__ float of(float x) const {
        const float weight = against(x, max);
        return (double)weight >= least ? weight : 0.0f;
    }
    __device__ __forceinline__ double shifted(float x) const { return ((double)x - (double)max) / temperature; }
};

// Scores that are drawn from, in order of their ids: those of `ids`, or all if that is null.
struct Scores {
    const float* x;
    const uint32_t* ids;
    uint32_t len;

    __device__ __forceinline__ uint32_t id(uint32_t place) const { return ids == nullptr ? place : ids[place]; }
    __device__ __forceinline__ float at(uint32_t place) const { return x[id(place)]; }
    __device__ __forceinline__ uint32_t num_blocks() const { return (len + BLOCK - 1) / BLOCK; }
};

// Shared memory of a block of threads.
struct Shared {
    double *sums, *mass, *target, *total; // sums of blocks of scores; of the draw
    float *maxima, *weights; // the largest score up to the end of each block; [BLOCK] of the block that is drawn from
    uint32_t *words, *largest, *is_bad, *found;

    __device__ Shared(unsigned char* memory, uint32_t blocks) {
        sums = (double*)memory;
        mass = sums + blocks, target = mass + 1, total = target + 1;
        maxima = (float*)(total + 1);
        weights = maxima + blocks;
        words = (uint32_t*)(weights + BLOCK);
        largest = words + SELECT_WORDS, is_bad = largest + 1, found = is_bad + 1;
    }
};

// Calls take(block, first, len) in each half-warp with its blocks of scores: both half-warps of a warp make the same calls, with
// len = 0 past the last block.
template <class Take>
__device__ __forceinline__ void walk_blocks(const Scores& scores, Take take) {
    const uint32_t half_warp = threadIdx.x / WIDTH, blocks = scores.num_blocks();
    for (uint32_t pair = half_warp / 2 * 2; pair < blocks; pair += HALF_WARPS) {
        const uint32_t block = pair + half_warp % 2, first = block * BLOCK;
        take(block, first, block < blocks ? min(scores.len - first, BLOCK) : 0);
    }
}

// Finds the block of all scores that a uniform number is in. Sums of blocks are taken in single precision against the largest
// score so far, as SoftmaxRow takes them.
__device__ void find_block(const Shared& shared, const Scores& scores, const Weights& weights, double uniform) {
    const uint32_t lane = threadIdx.x % WIDTH, blocks = scores.num_blocks();
    walk_blocks(scores, [&](uint32_t block, uint32_t first, uint32_t len) {
        float max = -INFINITY;
#pragma unroll 8
        for (uint32_t at = lane; at < len; at += WIDTH) max = fmaxf(max, scores.x[first + at]);
        max = max_lanes(max);
        if (lane == 0 && len > 0) shared.maxima[block] = max;
    });
    __syncthreads(); // every block has its maximum
    if (threadIdx.x == 0)
        for (uint32_t block = 1; block < blocks; block++)
            shared.maxima[block] = fmaxf(shared.maxima[block], shared.maxima[block - 1]);
    __syncthreads(); // every block has the maximum so far
    walk_blocks(scores, [&](uint32_t block, uint32_t first, uint32_t len) {
        const float base = len > 0 ? shared.maxima[block] : 0.0f;
        float sum = 0.0f;
#pragma unroll 8
        for (uint32_t at = lane; at < len; at += WIDTH) sum += weights.against(scores.x[first + at], base);
        sum = sum_lanes(sum);
        if (lane == 0 && len > 0) shared.sums[block] = (double)sum;
    });
    __syncthreads(); // every block has its sum
    if (threadIdx.x != 0) return;
    double total = 0.0;
    for (uint32_t block = 0; block < blocks; block++) {
        const float max = shared.maxima[block], before = block == 0 ? -INFINITY : shared.maxima[block - 1];
        if (max > before && total > 0.0) total *= exp64(((double)before - (double)max) / weights.temperature);
        total += shared.sums[block];
    }
    double rest = uniform * total;
    uint32_t last = 0, block = 0;
    for (; block < blocks; block++) {
        const double mass = shared.sums[block] * exp64(weights.shifted(shared.maxima[block]));
        if (mass > 0.0) last = block;
        if (mass > rest) break;
        rest -= mass;
    }
    const bool is_past = block == blocks; // by rounding: the last id that can be drawn
    *shared.found = is_past ? last : block;
    *shared.mass = 0.0, *shared.target = is_past ? INFINITY : rest, *shared.total = total;
}

// Finds the block of cut scores that a uniform number is in. Their sums are taken in double precision, as those of a List are.
__device__ void find_block_of_cut(const Shared& shared, const Scores& scores, const Weights& weights, double uniform) {
    const uint32_t lane = threadIdx.x % WIDTH, blocks = scores.num_blocks();
    walk_blocks(scores, [&](uint32_t block, uint32_t first, uint32_t len) {
        const uint32_t whole = len / WIDTH * WIDTH;
        double sum = 0.0, all = 0.0;
        for (uint32_t at = lane; at < whole; at += WIDTH) sum += (double)weights.of(scores.at(first + at));
        for (uint32_t from = 0; from < WIDTH; from++) all += __shfl_sync(ALL, sum, from, WIDTH);
        for (uint32_t at = whole; at < len; at++) all += (double)weights.of(scores.at(first + at));
        if (lane == 0 && len > 0) shared.sums[block] = all;
    });
    __syncthreads(); // every block of a cut has its sum
    if (threadIdx.x != 0) return;
    double total = 0.0, mass = 0.0;
    uint32_t end = 0, found = 0;
    for (uint32_t block = 0; block < blocks; block++) {
        total += shared.sums[block];
        if (shared.sums[block] > 0.0) end = block;
    }
    const double target = uniform * total;
    for (; found < end && mass + shared.sums[found] <= target; found++) mass += shared.sums[found];
    *shared.found = found;
    *shared.mass = mass, *shared.target = target, *shared.total = total;
}

// Writes the id at which the weights of the block that was found pass the target, and its log-prob.
__device__ void find(const Shared& shared, const Scores& scores, const Weights& weights, uint32_t* id, float* log_prob) {
    __syncthreads(); // the block is found
    const uint32_t first = *shared.found * BLOCK, len = min(scores.len - first, BLOCK);
    for (uint32_t at = threadIdx.x; at < len; at += THREADS) shared.weights[at] = weights.of(scores.at(first + at));
    __syncthreads(); // its weights are there
    if (threadIdx.x != 0) return;
    const double target = *shared.target;
    double mass = *shared.mass;
    uint32_t last = 0; // the processor sums in one chain
    for (uint32_t at = 0; at < len; at++) {
        const float weight = shared.weights[at];
        if (!(weight > 0.0f)) continue;
        mass += (double)weight;
        last = at;
        if (mass > target) break;
    }
    *id = scores.id(first + last);
    const float found = (float)(weights.shifted(scores.at(first + last)) - log64(*shared.total));
    *log_prob = fmaxf(found, -LARGEST) + 0.0f; // 0 for -0
}

// Returns the scores whose rising bits are at least `least`; their ids in `list`, unless there are more than `num_max`: all then.
__device__ Scores cut(const Shared& shared, const float* scores_v, uint32_t vocab, uint32_t least, uint32_t num_max,
                      uint32_t* list_v) {
    const Part part = part_of_warp<THREADS>(vocab);
    auto stays = [&](uint32_t v) { return rising(scores_v[v]) >= least; };
    uint32_t place = num_before(part, stays, shared.words), len = 0;
    for (uint32_t warp = 0; warp < THREADS / WARP; warp++) len += shared.words[warp];
    if (len > num_max) return {scores_v, nullptr, vocab};
    walk(part, stays, [&](uint32_t v, uint32_t ballot) {
        if (ballot >> threadIdx.x % WARP & 1) list_v[place + num_below(ballot)] = v;
        place += __popc(ballot);
    });
    __syncthreads(); // the list of ids is there
    return {scores_v, list_v, len};
}

// Draws one id a row with one 32-bit word of its generator, and writes its log-prob under the distribution that it was drawn from. A
// row with a NaN or +inf, or of -inf alone, gets id 0 and NaN. top_k_n: 0 for all. list_nv is room for [N, V] words. One block of
// threads a row; shared memory: 3 + ceil(V / BLOCK) doubles, ceil(V / BLOCK) + BLOCK floats, 3 + SELECT_WORDS words.
KERNEL(draw_rows, THREADS,
       (const float* scores_nv, uint32_t vocab, const double* temperature_n, const uint32_t* top_k_n, const double* min_p_n,
        const uint32_t* words_n, uint32_t* list_nv, uint32_t* ids_n, float* log_prob_n)) {
    SHARED(memory);
    const uint32_t row = blockIdx.x, top_k = top_k_n[row];
    const Shared shared(memory, (vocab + BLOCK - 1) / BLOCK);
    const float* scores_v = scores_nv + (size_t)row * vocab;
    uint32_t* list_v = list_nv + (size_t)row * vocab;
    if (threadIdx.x == 0) *shared.largest = 0, *shared.is_bad = 0, *shared.found = NONE;
    __syncthreads(); // nothing is found yet
    uint32_t largest = 0;
    for (uint32_t v = threadIdx.x; v < vocab; v += THREADS) {
        const uint32_t bits = rising(scores_v[v]);
        if (bits == 0) *shared.is_bad = 1; // a NaN
        largest = max(largest, bits);
    }
    atomicMax(shared.largest, largest);
    __syncthreads(); // the largest is found
    largest = *shared.largest;
    if (*shared.is_bad || largest >= rising(INFINITY) || largest <= rising(-INFINITY)) {
        if (threadIdx.x == 0) ids_n[row] = 0, log_prob_n[row] = NAN;
        return;
    }
    const double temperature = temperature_n[row], min_p = min_p_n[row];
    if (temperature == 0.0) {
        for (uint32_t v = threadIdx.x; v < vocab; v += THREADS)
            if (rising(scores_v[v]) == largest) atomicMin(shared.found, v);
        __syncthreads(); // the likeliest is found
        if (threadIdx.x == 0) ids_n[row] = *shared.found, log_prob_n[row] = 0.0f;
        return;
    }
    const double uniform = ((double)words_n[row] + 0.5) / 4294967296.0;
    const Weights weights(temperature, min_p, of_rising(largest));
    if (top_k > 0 && top_k < vocab) {
        const uint32_t bar = kth_largest<THREADS>(scores_v, vocab, top_k, shared.words).bits;
        const Scores scores = cut(shared, scores_v, vocab, max(bar, rising(-LARGEST)), vocab, list_v);
        find_block_of_cut(shared, scores, weights, uniform);
        find(shared, scores, weights, ids_n + row, log_prob_n + row);
    } else if (min_p > 0.0) {
        // A little lower than min_p, as logarithms are rounded; a weight in single precision is 0 long before 1e-300.
        const float bar = (float)((double)weights.max + temperature * (log64(fmax(min_p, 1e-300)) - 1e-3));
        const uint32_t least = rising(fminf(fmaxf(bar, -LARGEST), weights.max));
        const Scores scores = cut(shared, scores_v, vocab, least, vocab / 16, list_v);
        find_block_of_cut(shared, scores, weights, uniform);
        find(shared, scores, weights, ids_n + row, log_prob_n + row);
    } else {
        const Scores scores{scores_v, nullptr, vocab};
        find_block(shared, scores, weights, uniform);
        find(shared, scores, weights, ids_n + row, log_prob_n + row);
    }
}

} // namespace draw
