// Draws of tokens from rows of logits [N, V]: the ids of fulmar-objective's draw.rs and its log-probs under the distribution that is
// drawn from. Those under the model are log_prob_rows of the ids.
//
//   x = logits + biases; of seen tokens x < 0 ? x r : x / r, then x - frequency count - presence; -inf for banned ones
//   w = e^((x - max) / temperature)
//   top_k: w of the k largest x, and of all that tie with the last of them
//   top_p: of these the likeliest, until the probability before the next one reaches p
//   min_p: of these w >= min_p
//   typical_p: of these the ones whose -ln p is nearest to the entropy, until the probability before the next one reaches typical_p
//   epsilon: of these p >= epsilon, and the likeliest
//   eta: of these p >= min(eta, sqrt(eta) e^-entropy), and the likeliest
//   top_h, in front of all cuts: of the 100 likeliest, until their terms of the entropy exceed the share top_h of it
//   id: the first whose w and those of all ids before it sum to more than uniform total; or that with the largest
//       (x - max) / temperature + noise, where each id has Gumbel noise of its own; the likeliest at temperature 0
//
// Probabilities of a cut are those among the tokens that the cut before it kept. V from 1.
#include "cut.cuh"
#include "lanes.cuh"
#include "libm.cuh"
#include "noise.cuh"

namespace draw {

constexpr uint32_t THREADS = 1024, HALF_WARPS = THREADS / WIDTH;
constexpr uint32_t BLOCK = 4096;       // numbers of a row that are summed together
constexpr uint32_t ENTROPY_MAX = 100; // most tokens that top_h considers

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

// The softmax of scores: weights e^((x - max) / temperature).
struct Softmax {
    double temperature;
    float max, twice_inverse; // half a difference times two over the temperature: a difference of two numbers may overflow

    __device__ Softmax(double temperature, float max)
        : temperature(temperature), max(max), twice_inverse(fminf((float)(2.0 / temperature), LARGEST)) {}

    __device__ __forceinline__ float weight(float x, float base) const {
        return softmax_exp(fmaxf((0.5f * x - 0.5f * base) * twice_inverse, SOFTMAX_FLOOR));
    }
    __device__ __forceinline__ double shifted(float x) const { return ((double)x - (double)max) / temperature; }
};

// Scores that are drawn from, in order of their ids: those of `ids`, or all if that is null; and their weights, 0 where a cut drops
// one.
struct List {
    const float* x;
    const uint32_t* ids;
    float* weights;
    uint32_t len;

    __device__ __forceinline__ uint32_t id(uint32_t place) const { return ids == nullptr ? place : ids[place]; }
    __device__ __forceinline__ float at(uint32_t place) const { return x[id(place)]; }
    __device__ __forceinline__ uint32_t num_blocks() const { return (len + BLOCK - 1) / BLOCK; }
};

// Shared memory of a block of threads.
struct Shared {
    double *sums, *lanes, *mass, *target, *total; // sums of blocks of scores, of lanes; of the draw
    uint32_t *words, *largest, *is_bad, *found;
    float *maxima, *tile; // the largest score up to the end of each block; [BLOCK] weights

    __device__ Shared(unsigned char* memory, uint32_t blocks) {
        sums = (double*)memory;
        lanes = sums + blocks, mass = lanes + WIDTH, target = mass + 1, total = target + 1;
        words = (uint32_t*)(total + 1);
        largest = words + SELECT_WORDS, is_bad = largest + 1, found = is_bad + 1;
        tile = (float*)(found + 2);
        maxima = tile + BLOCK;
    }
    __device__ CutMemory cut() const { return {(Units*)words, lanes, mass, tile, words, found}; }
};
static_assert(SELECT_WORDS * 4 >= BUCKETS * 8 && BLOCK == TILE, "a cut has its memory");
static_assert(SELECT_WORDS % 2 == 0 && BLOCK >= 2 * ENTROPY_MAX, "a tile has room for long words");

// Calls take(block, first, len) in each half-warp with its blocks of the list: both half-warps of a warp make the same calls, with
// len = 0 past the last block.
template <class Take>
__device__ __forceinline__ void walk_blocks(const List& list, Take take) {
    const uint32_t half_warp = threadIdx.x / WIDTH, blocks = list.num_blocks();
    for (uint32_t pair = half_warp / 2 * 2; pair < blocks; pair += HALF_WARPS) {
        const uint32_t block = pair + half_warp % 2, first = block * BLOCK;
        take(block, first, block < blocks ? min(list.len - first, BLOCK) : 0);
    }
}

// Sums the weights of a list as SoftmaxRow does: blocks in single precision, each against the largest score so far.
__device__ void sum_weights(const Shared& shared, const List& list, const Softmax& softmax) {
    const uint32_t lane = threadIdx.x % WIDTH, blocks = list.num_blocks();
    walk_blocks(list, [&](uint32_t block, uint32_t first, uint32_t len) {
        float max = -INFINITY;
#pragma unroll 8
        for (uint32_t at = lane; at < len; at += WIDTH) max = fmaxf(max, list.at(first + at));
        max = max_lanes(max);
        if (lane == 0 && len > 0) shared.maxima[block] = max;
    });
    __syncthreads(); // every block has its maximum
    if (threadIdx.x == 0)
        for (uint32_t block = 1; block < blocks; block++)
            shared.maxima[block] = fmaxf(shared.maxima[block], shared.maxima[block - 1]);
    __syncthreads(); // every block has the maximum so far
    walk_blocks(list, [&](uint32_t block, uint32_t first, uint32_t len) {
        const float base = len > 0 ? shared.maxima[block] : 0.0f;
        float sum = 0.0f;
#pragma unroll 8
        for (uint32_t at = lane; at < len; at += WIDTH) sum += softmax.weight(list.at(first + at), base);
        sum = sum_lanes(sum);
        if (lane == 0 && len > 0) shared.sums[block] = (double)sum;
    });
    __syncthreads(); // every block has its sum
    if (threadIdx.x == 0) {
        double total = 0.0;
        for (uint32_t block = 0; block < blocks; block++) {
            const float max = shared.maxima[block], before = block == 0 ? -INFINITY : shared.maxima[block - 1];
            if (max > before && total > 0.0) total *= exp64(((double)before - (double)max) / softmax.temperature);
            total += shared.sums[block];
        }
        *shared.total = total;
    }
    __syncthreads(); // the total is there
}

// Finds, in the first thread, the block of all scores that a uniform number is in, after sum_weights.
__device__ void find_block(const Shared& shared, const List& list, const Softmax& softmax, double uniform) {
    double rest = uniform * *shared.total;
    uint32_t last = 0, block = 0;
    const uint32_t blocks = list.num_blocks();
    for (; block < blocks; block++) {
        const double mass = shared.sums[block] * exp64(softmax.shifted(shared.maxima[block]));
        if (mass > 0.0) last = block;
        if (mass > rest) break;
        rest -= mass;
    }
    const bool is_past = block == blocks; // by rounding: the last id that can be drawn
    *shared.found = is_past ? last : block;
    *shared.mass = 0.0, *shared.target = is_past ? INFINITY : rest;
}

// Sums the weights of a list in double precision.
__device__ void add_up(const Shared& shared, const List& list) {
    const uint32_t lane = threadIdx.x % WIDTH, blocks = list.num_blocks();
    walk_blocks(list, [&](uint32_t block, uint32_t first, uint32_t len) {
        const uint32_t whole = len / WIDTH * WIDTH;
        const float* weights = list.weights + first;
        double sum = 0.0, all = 0.0;
        for (uint32_t at = lane; at < whole; at += WIDTH) sum += (double)weights[at];
        for (uint32_t from = 0; from < WIDTH; from++) all += __shfl_sync(ALL, sum, from, WIDTH);
        for (uint32_t at = whole; at < len; at++) all += (double)weights[at];
        if (lane == 0 && len > 0) shared.sums[block] = all;
    });
    __syncthreads(); // every block of a cut has its sum
    if (threadIdx.x == 0) {
        double total = 0.0;
        for (uint32_t block = 0; block < blocks; block++) total += shared.sums[block];
        *shared.total = total;
    }
    __syncthreads(); // the total of a cut is there
}

// Finds, in the first thread, the block of what cuts left that a uniform number is in, after add_up.
__device__ void find_block_of_cut(const Shared& shared, const List& list, double uniform) {
    const double target = uniform * *shared.total;
    double mass = 0.0;
    uint32_t end = 0, found = 0;
    for (uint32_t block = 0; block < list.num_blocks(); block++)
        if (shared.sums[block] > 0.0) end = block;
    for (; found < end && mass + shared.sums[found] <= target; found++) mass += shared.sums[found];
    *shared.found = found;
    *shared.mass = mass, *shared.target = target;
}

// Writes the id at a place of the list and its log-prob.
__device__ void take(const List& list, const Softmax& softmax, double total, uint32_t place, uint32_t* id, float* log_prob) {
    *id = list.id(place);
    const float found = (float)(softmax.shifted(list.at(place)) - log64(total));
    *log_prob = fminf(fmaxf(found, -LARGEST), 0.0f) + 0.0f; // 0 for -0
}

// Writes the id at which the weights of the block that was found pass the target, and its log-prob. weight_at(place) is a weight.
template <class WeightAt>
__device__ void find(const Shared& shared, const List& list, const Softmax& softmax, WeightAt weight_at, uint32_t* id,
                     float* log_prob) {
    __syncthreads(); // the block is found
    const uint32_t first = *shared.found * BLOCK, len = min(list.len - first, BLOCK);
    for (uint32_t at = threadIdx.x; at < len; at += THREADS) shared.tile[at] = weight_at(first + at);
    __syncthreads(); // its weights are there
    if (threadIdx.x != 0) return;
    const double target = *shared.target;
    double mass = *shared.mass;
    uint32_t last = 0; // the processor sums in one chain
    for (uint32_t at = 0; at < len; at++) {
        const float weight = shared.tile[at];
        if (!(weight > 0.0f)) continue;
        mass += (double)weight;
        last = at;
        if (mass > target) break;
    }
    take(list, softmax, *shared.total, first + last, id, log_prob);
}

// Lists the scores whose rising bits are at least `least`, or all if there are more of them than `num_max`. `list` has all.
__device__ List cut(const Shared& shared, List list, uint32_t least, uint32_t num_max, uint32_t* ids) {
    const Part part = part_of_warp<THREADS>(list.len);
    auto stays = [&](uint32_t v) { return rising(list.x[v]) >= least; };
    uint32_t place = num_before(part, stays, shared.words), len = 0;
    for (uint32_t warp = 0; warp < THREADS / WARP; warp++) len += shared.words[warp];
    if (len <= num_max) {
        walk(part, stays, [&](uint32_t v, uint32_t ballot) {
            if (ballot >> threadIdx.x % WARP & 1) ids[place + num_below(ballot)] = v;
            place += __popc(ballot);
        });
        list.ids = ids, list.len = len;
    }
    __syncthreads(); // the list of ids is there
    return list;
}

// Keeps the likeliest until the mass before the next one reaches top_p.
__device__ void keep_likeliest(const Shared& shared, const List& list, double top_p, uint32_t* places) {
    auto key = [&](uint32_t place) { return list.at(place); };
    const double total = *shared.total;
    const End end = end_of<THREADS>(key, list.weights, list.len, total, top_p * total, places, shared.cut());
    for (uint32_t place = threadIdx.x; place < list.len; place += THREADS) {
        const float score = list.at(place);
        if (!(score > end.key || (score == end.key && place <= end.place))) list.weights[place] = 0.0f;
    }
}

// Writes the weights of a list.
__device__ void weigh(const List& list, const Softmax& softmax) {
    for (uint32_t place = threadIdx.x; place < list.len; place += THREADS)
        list.weights[place] = softmax.weight(list.at(place), softmax.max);
    __syncthreads(); // weights of the list are there
}

// Returns, in each thread, the entropy of what is kept in nats, after add_up. Overwrites the sums of blocks.
__device__ double entropy_of(const Shared& shared, const List& list, const Softmax& softmax) {
    const uint32_t lane = threadIdx.x % WIDTH;
    const double total = *shared.total, log_total = log64(total);
    walk_blocks(list, [&](uint32_t block, uint32_t first, uint32_t len) {
        double sum = 0.0, all = 0.0;
        for (uint32_t at = lane; at < len; at += WIDTH) {
            const float weight = list.weights[first + at];
            sum += weight > 0.0f ? (double)weight * (softmax.shifted(list.at(first + at)) - log_total) : 0.0;
        }
        for (uint32_t from = 0; from < WIDTH; from++) all += __shfl_sync(ALL, sum, from, WIDTH);
        if (lane == 0 && len > 0) shared.sums[block] = all;
    });
    __syncthreads(); // every block has its part of the entropy
    double sum = 0.0;
    for (uint32_t block = 0; block < list.num_blocks(); block++) sum += shared.sums[block];
    __syncthreads(); // parts of the entropy are read
    return -sum / total;
}

// Keeps the tokens whose information is nearest to the entropy, until the mass before the next one reaches typical_p, and all that
// tie with the last. After add_up.
__device__ void keep_typical(const Shared& shared, const List& list, const Softmax& softmax, double typical_p, uint32_t* places) {
    const double entropy = entropy_of(shared, list, softmax);
    if (threadIdx.x == 0) shared.lanes[0] = entropy, shared.lanes[1] = log64(*shared.total); // registers are few
    for (uint32_t place = threadIdx.x; place < list.len; place += THREADS) places[place] = place;
    // last_within waits before it reads any of these.
    auto nearness = [&](uint32_t place) {
        return -fminf((float)fabs(shared.lanes[0] + (softmax.shifted(list.at(place)) - shared.lanes[1])), LARGEST);
    };
    const double target = typical_p * *shared.total;
    const End end = last_within<THREADS>(nearness, list.weights, places, list.len, target, shared.cut());
    for (uint32_t place = threadIdx.x; place < list.len; place += THREADS)
        if (!(nearness(place) >= end.key)) list.weights[place] = 0.0f;
    __syncthreads(); // what is typical has its weights
    add_up(shared, list);
}

// Keeps the tokens that have at least this probability, and the likeliest. After add_up.
__device__ void keep_probable(const Shared& shared, const List& list, double probability) {
    auto bits = [&](uint32_t place) { return list.weights[place] > 0.0f ? rising(list.at(place)) : 0; };
    const uint32_t largest = range_of<THREADS>(bits, list.len, shared.words).high;
    const double least = probability * *shared.total;
    for (uint32_t place = threadIdx.x; place < list.len; place += THREADS)
        if ((double)list.weights[place] < least && rising(list.at(place)) < largest) list.weights[place] = 0.0f;
    __syncthreads(); // what is probable has its weights
    add_up(shared, list);
}

// The cuts of a row; top_k and top_h are 0 for none. They stay in memory: registers are few.
struct Cuts {
    uint32_t top_k;
    const double* numbers;

    __device__ double top_p() const { return numbers[0]; }
    __device__ double min_p() const { return numbers[1]; }
    __device__ double typical_p() const { return numbers[2]; }
    __device__ double epsilon() const { return numbers[3]; }
    __device__ double eta() const { return numbers[4]; }
    __device__ double top_h() const { return numbers[5]; }
    __device__ bool has_any() const {
        return top_k > 0 || top_p() < 1.0 || min_p() > 0.0 || typical_p() < 1.0 || epsilon() > 0.0 || eta() > 0.0 || top_h() > 0.0;
    }
};

// Returns how many of a list, the likeliest first, top_h and top_k keep; sums and weights of the list are there. One thread calls it.
__device__ uint32_t num_of_entropy(const Shared& shared, const List& list, const Softmax& softmax, const Cuts& cuts) {
    const double log_total = log64(*shared.total);
    auto term = [&](uint32_t place) {
        const float weight = list.weights[place];
        return weight == 0.0f ? 0.0 : -(double)weight * (softmax.shifted(list.at(place)) - log_total);
    };
    double entropy = 0.0, sum = 0.0;
    for (uint32_t place = 0; place < list.len; place++) entropy += term(place);
    const double share = cuts.top_h() * entropy * (1.0 + 1e-12); // a share of 1 is not missed by rounding
    uint32_t kept = 0;
    for (; kept < list.len; kept++) {
        sum += term(kept);
        if (!(sum <= share)) break;
    }
    kept = max(kept, 1u);
    if (cuts.top_k == 0 || cuts.top_k >= kept) return kept;
    uint32_t largest = cuts.top_k;
    while (largest < kept && list.at(largest) == list.at(cuts.top_k - 1)) largest++;
    return largest;
}

// Lists the likeliest tokens until their terms of the entropy exceed the share top_h of it; of these the top_k largest, and all that
// tie with the last of them.
__device__ List of_entropy(const Shared& shared, const List& all, const Softmax& softmax, const Cuts& cuts, uint32_t* ids,
                           uint32_t* places) {
    const uint32_t count = min(ENTROPY_MAX, all.len);
    uint64_t* largest = (uint64_t*)shared.tile; // [ENTROPY_MAX]
    list_largest<THREADS>(all.x, all.len, count, largest, shared.words);
    List list{all.x, ids, all.weights, 0};
    for (uint32_t i = 0; i < count; i++) list.len += (uint32_t)(largest[i] >> 32) > rising(-INFINITY);
    if (threadIdx.x < count) ids[rank_of(largest, count, threadIdx.x)] = ~(uint32_t)largest[threadIdx.x];
    __syncthreads(); // the likeliest are in order
    sum_weights(shared, list, softmax);
    weigh(list, softmax);
    if (threadIdx.x == 0) *shared.found = num_of_entropy(shared, list, softmax, cuts);
    __syncthreads(); // the share of the entropy is found
    list.len = *shared.found;
    if (threadIdx.x < list.len) {
        uint32_t place = 0;
        for (uint32_t other = 0; other < list.len; other++) place += ids[other] < ids[threadIdx.x];
        places[place] = ids[threadIdx.x];
    }
    __syncthreads(); // ids are in order
    if (threadIdx.x < list.len) ids[threadIdx.x] = places[threadIdx.x];
    __syncthreads(); // the list is in order of its ids
    return list;
}

// Returns what the cuts may leave of all scores, and the sum of its weights where top_p needs it.
__device__ List candidates(const Shared& shared, const List& all, const Softmax& softmax, const Cuts& cuts, uint32_t* ids,
                           uint32_t* places) {
    if (cuts.top_h() > 0.0 || cuts.top_k > 0) {
        List list = all;
        if (cuts.top_h() > 0.0) {
            list = of_entropy(shared, all, softmax, cuts, ids, places);
        } else {
            const uint32_t bar = kth_largest<THREADS>(all.x, all.len, cuts.top_k, shared.words).bits;
            list = cut(shared, all, max(bar, rising(-LARGEST)), all.len, ids);
        }
        if (cuts.top_p() < 1.0) sum_weights(shared, list, softmax);
        return list;
    }
    double least = cuts.typical_p() < 1.0 ? 0.0 : cuts.min_p();
    if (cuts.top_p() < 1.0) {
        sum_weights(shared, all, softmax);
        least = (1.0 - cuts.top_p()) * *shared.total / (double)all.len; // what is less likely has the mass 1 - p at most together
    }
    // A little lower, as logarithms are rounded; a weight in single precision is 0 long before 1e-300.
    const double log_least = least > 0.0 ? log64(fmax(least, 1e-300)) : -INFINITY;
    const float bar = (float)((double)softmax.max + softmax.temperature * (log_least - 1e-3));
    return cut(shared, all, rising(fminf(fmaxf(bar, -LARGEST), softmax.max)), all.len / 16, ids);
}

// What the cuts left of a row.
struct Kept {
    enum Is : uint32_t { NOTHING, ALL, PLACES, LIST }; // no draw; all tokens; weights of all tokens; weights of listed ids

    double total; // of weights
    float max;    // score
    uint32_t len; // of the list
    uint32_t is;
};

// Draws one id a row with one 32-bit word of its generator, and writes its log-prob under the distribution that it was drawn from. A
// row with a NaN or +inf, or of -inf alone, gets id 0 and NaN. top_k_n: 0 for all. cuts_n6: top_p, min_p, typical_p, epsilon, eta,
// top_h, of which 1, 0, 1, 0, 0, 0 keep all. list_nv, places_nv and weights_nv are room for [N, V] elements each; with kept_n they are
// what draw_noise_rows reads. One block of threads a row; shared memory: 19 + ceil(V / BLOCK) doubles, ceil(V / BLOCK) + BLOCK floats,
// 4 + SELECT_WORDS words.
KERNEL(draw_rows, THREADS,
       (const float* scores_nv, uint32_t vocab, const double* temperature_n, const uint32_t* top_k_n, const double* cuts_n6,
        const uint32_t* words_n, uint32_t* list_nv, uint32_t* places_nv, float* weights_nv, Kept* kept_n, uint32_t* ids_n,
        float* log_prob_n)) {
    SHARED(memory);
    const uint32_t row = blockIdx.x;
    const size_t first = (size_t)row * vocab;
    const Shared shared(memory, (vocab + BLOCK - 1) / BLOCK);
    const List all{scores_nv + first, nullptr, weights_nv + first, vocab};
    if (threadIdx.x == 0) *shared.largest = 0, *shared.is_bad = 0, *shared.found = NONE, kept_n[row].is = Kept::NOTHING;
    __syncthreads(); // nothing is found yet
    uint32_t largest = 0;
    for (uint32_t v = threadIdx.x; v < vocab; v += THREADS) {
        const uint32_t bits = rising(all.x[v]);
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
    if (temperature_n[row] == 0.0) {
        for (uint32_t v = threadIdx.x; v < vocab; v += THREADS)
            if (rising(all.x[v]) == largest) atomicMin(shared.found, v);
        __syncthreads(); // the likeliest is found
        if (threadIdx.x == 0) ids_n[row] = *shared.found, log_prob_n[row] = 0.0f;
        return;
    }
    auto uniform = [&] { return ((double)words_n[row] + 0.5) / 4294967296.0; };
    const Softmax softmax(temperature_n[row], of_rising(largest));
    const Cuts cuts{top_k_n[row] < vocab ? top_k_n[row] : 0, cuts_n6 + (size_t)row * 6};
    if (!cuts.has_any()) {
        sum_weights(shared, all, softmax);
        if (threadIdx.x == 0) find_block(shared, all, softmax, uniform());
        auto weight_at = [&](uint32_t v) { return softmax.weight(all.x[v], softmax.max); };
        find(shared, all, softmax, weight_at, ids_n + row, log_prob_n + row);
        if (threadIdx.x == 0) kept_n[row] = {*shared.total, softmax.max, vocab, Kept::ALL};
        return;
    }
    uint32_t* places = places_nv + first;
    const List list = candidates(shared, all, softmax, cuts, list_nv + first, places);
    weigh(list, softmax);
    if (cuts.top_p() < 1.0) keep_likeliest(shared, list, cuts.top_p(), places);
    for (uint32_t place = threadIdx.x; place < list.len; place += THREADS)
        if ((double)list.weights[place] < cuts.min_p()) list.weights[place] = 0.0f;
    __syncthreads(); // what stays has its weights
    add_up(shared, list);
    if (cuts.typical_p() < 1.0) keep_typical(shared, list, softmax, cuts.typical_p(), places);
    if (cuts.epsilon() > 0.0) keep_probable(shared, list, cuts.epsilon());
    if (cuts.eta() > 0.0) {
        const double entropy = entropy_of(shared, list, softmax);
        keep_probable(shared, list, fmin(cuts.eta(), sqrt(cuts.eta()) * exp64(-entropy)));
    }
    if (threadIdx.x == 0) find_block_of_cut(shared, list, uniform());
    auto weight_at = [&](uint32_t place) { return list.weights[place]; };
    find(shared, list, softmax, weight_at, ids_n + row, log_prob_n + row);
    if (threadIdx.x == 0) kept_n[row] = {*shared.total, softmax.max, list.len, list.ids == nullptr ? Kept::PLACES : Kept::LIST};
}

constexpr uint32_t FEW_THREADS = 256; // their logarithms take many registers

// Overwrites the draws of rows that draw by noise: the id with the largest score over the temperature plus noise, the lowest of equals,
// and its log-prob. noise_n5: 1 for such a row, whose key and stream of two words each follow. The others are those of draw_rows. One
// block of threads a row; shared memory: FEW_THREADS doubles and words.
KERNEL(draw_noise_rows, FEW_THREADS,
       (const float* scores_nv, uint32_t vocab, const double* temperature_n, const uint32_t* noise_n5, uint32_t* list_nv,
        float* weights_nv, const Kept* kept_n, uint32_t* ids_n, float* log_prob_n)) {
    SHARED(memory);
    double* keys = (double*)memory;                     // [FEW_THREADS], the largest of each thread
    uint32_t* places = (uint32_t*)(keys + FEW_THREADS); // [FEW_THREADS]
    const uint32_t row = blockIdx.x, thread = threadIdx.x;
    const uint32_t* of_row = noise_n5 + (size_t)row * 5;
    const Kept kept = kept_n[row];
    if (of_row[0] == 0 || kept.is == Kept::NOTHING) return;
    const size_t first_of_row = (size_t)row * vocab;
    const List list{scores_nv + first_of_row, kept.is == Kept::LIST ? list_nv + first_of_row : nullptr, weights_nv + first_of_row,
                    kept.len};
    const Softmax softmax(temperature_n[row], kept.max);
    const noise::Noise noise{of_row + 1, of_row + 3};
    double best = -INFINITY;
    uint32_t best_place = NONE, block = NONE;
    noise::Words words{};
    for (uint32_t first = thread * 4; first < list.len; first += FEW_THREADS * 4) {
        for (uint32_t place = first; place < min(first + 4, list.len); place++) {
            if (kept.is != Kept::ALL && !(list.weights[place] > 0.0f)) continue;
            const uint32_t own = list.id(place);
            if (own / 4 != block) block = own / 4, words = noise.words(block);
            const float score = list.at(place), half = 0.5f * score - 0.5f * softmax.max;
            const uint32_t word = words.at(own % 4);
            if (!((double)(fmaxf(half * softmax.twice_inverse, -200.0f) + noise::above(word)) > best)) continue;
            const double key = softmax.shifted(score) + noise::gumbel(word);
            if (key > best) best = key, best_place = place;
        }
    }
    keys[thread] = best, places[thread] = best_place;
    for (uint32_t count = FEW_THREADS / 2; count > 0; count /= 2) {
        __syncthreads(); // keys to compare are there
        if (thread >= count) continue;
        const double key = keys[thread], other = keys[thread + count];
        const uint32_t place = places[thread + count];
        if (other > key || (other == key && place < places[thread])) keys[thread] = other, places[thread] = place;
    }
    if (thread == 0) take(list, softmax, kept.total, places[0], ids_n + row, log_prob_n + row);
}

} // namespace draw
