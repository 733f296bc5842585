// Causal attention of bfloat16 rows with grouped key/value heads by tensor cores: many rows of a sequence at once, or one row whose
// keys are cut into segments for a block each.
//
//   s[j] = q . k[j]    t[j] = s[j] log2(e) / sqrt(E)    m = max_j t[j]    L = sum_j 2^(t[j] - m)    o = sum_j 2^(t[j] - m) v[j] / L
//
// The order of a row's sums is a function of its spans alone: its keys in the order of its spans, counted from the first, are cut
// into segments of 256 and these into blocks of 64. A score sums 16 inputs at a time. In a segment a block rescales the sums before
// it to the new maximum and adds 16 keys at a time, with weights rounded to bfloat16; segments are merged in order, also where one
// block of threads has them all. A key that a row does not attend to adds zeros to its sums, and a factor of exactly 1. So a row has
// the same bits in every kernel of this file, in any tile, page and batch, if all numbers are finite.
//
// A warp has 16 slots, query heads of one key/value head. Each row's keys must be the first ones of the keys of its tile's last row.
// Legend: N query rows, R key/value rows, H heads, K key/value heads, G = H / K, E width of a head: 64, 80, 96, 128 or 256.
#include "slots.cuh"

namespace attention {

constexpr uint32_t BLOCK = 64, SEGMENT = 256; // keys

// The sums of a segment that a thread holds, of slots lane / 4 and 8 more of its warp: of each 8 outputs two neighbours, and the
// weights of two keys of each 8.
template <uint32_t WIDTH>
struct Sums {
    float out[WIDTH / 8][4] = {};
    float max[2] = {-INFINITY, -INFINITY}, weights[2] = {};
};

// What rescales two sums against maxima `a` and `b` to their larger one, which must not be that of no key.
struct Join {
    float max, of_a, of_b;

    __device__ __forceinline__ Join(float a, float b) : max(fmaxf(a, b)), of_a(fast_exp2(a - max)), of_b(fast_exp2(b - max)) {}
    __device__ __forceinline__ float operator()(float a, float b) const { return a * of_a + b * of_b; }
};

// Returns an output, which is never -0: rows that end in different blocks would differ in that sign.
__device__ __forceinline__ float output(float out, float inverse) { return out * inverse + 0.0f; }

// Queries, keys and values, [N, H, E] and [R, K, E].
struct Inputs {
    const uint16_t *q_nhe, *keys_rke, *values_rke;
};

// The shared memory of a block, and what its warps compute.
template <uint32_t WIDTH, uint32_t WARPS>
struct Tile {
    static constexpr uint32_t THREADS = WARPS * WARP;
    using Heads = Lines<WIDTH>;
    Heads q, keys, values; // [WARPS * SLOTS], [BLOCK] twice
    float* totals;         // [WIDTH / 2, THREADS]

    __device__ __forceinline__ Tile(unsigned char* shared)
        : q{(uint16_t*)shared},
          keys{q.first + WARPS * SLOTS * Heads::STRIDE},
          values{keys.first + BLOCK * Heads::STRIDE},
          totals((float*)(values.first + BLOCK * Heads::STRIDE)) {}

    // The place for the row of a key: behind its values, for blocks of even and of odd number.
    __device__ __forceinline__ uint32_t& row_of(uint32_t key) const { return values.behind(key % BLOCK)[key / BLOCK % 2]; }

    // Finds the rows of the keys of a block.
    __device__ __forceinline__ void find(const Keys& of, uint32_t block, uint32_t end) const {
        for (uint32_t key = block + threadIdx.x; key < min(block + BLOCK, end); key += THREADS) row_of(key) = of.row(key);
    }

    // Begins to copy the keys or values of a block.
    __device__ __forceinline__ void begin(const Heads& to, const uint16_t* from_rke, const Slots& slots, uint32_t block,
                                          uint32_t end) const {
        to.template begin<BLOCK, THREADS>(from_rke, [&](uint32_t line) {
            return block + line < end ? (size_t)row_of(block + line) * slots.kv_heads + slots.kv_head : ABSENT;
        });
        copies_commit();
    }

    // Turns q . k into weights against the new maximum, and rescales the sums to it. `counts` are the numbers of keys of the
    // thread's two slots.
    __device__ __forceinline__ void weigh(float (&s)[BLOCK / 8][4], Sums<WIDTH>& sums, const uint32_t (&counts)[2],
                                          uint32_t block) const {
        const float scale = LOG2_E / sqrtf((float)WIDTH);
        const uint32_t first = block + threadIdx.x % 4 * 2;
#pragma unroll
        for (uint32_t slot = 0; slot < 2; slot++) {
            float max = sums.max[slot];
#pragma unroll
            for (uint32_t i = 0; i < BLOCK / 4; i++) {
                float& t = s[i / 2][slot * 2 + i % 2];
                t = first + i / 2 * 8 + i % 2 < counts[slot] ? t * scale : -INFINITY;
                max = fmaxf(max, t);
            }
            max = fmaxf(max, __shfl_xor_sync(ALL, max, 1));
            max = fmaxf(max, __shfl_xor_sync(ALL, max, 2));
            const float base = max == -INFINITY ? 0.0f : max, down = fast_exp2(sums.max[slot] - base);
            float weights = 0.0f;
#pragma unroll
            for (uint32_t i = 0; i < BLOCK / 4; i++) {
                float& t = s[i / 2][slot * 2 + i % 2];
                t = fast_exp2(t - base);
                weights += t;
            }
            sums.max[slot] = max;
            sums.weights[slot] = sums.weights[slot] * down + weights;
#pragma unroll
            for (uint32_t e = 0; e < WIDTH / 8; e++) sums.out[e][slot * 2] *= down, sums.out[e][slot * 2 + 1] *= down;
        }
    }

    // Sums over the keys of `of` from `first`, where a segment begins, to `end`. Calls `end_segment(sums)` after each segment,
    // with the weights of all keys in each thread; that begins the sums of the next segment.
    template <class EndSegment>
    __device__ __forceinline__ void attend(const Inputs& in, const Slots& slots, const Keys& of, uint32_t first, uint32_t end,
                                           const uint32_t (&counts)[2], EndSegment end_segment) const {
        Sums<WIDTH> sums;
        q.template begin<WARPS * SLOTS, THREADS>(
            in.q_nhe, [&](uint32_t slot) { return slots.is_there(slot) ? slots.head(slot) : ABSENT; });
        find(of, first, end);
        __syncthreads();
        begin(keys, in.keys_rke, slots, first, end);
        for (uint32_t block = first; block < end; block += BLOCK) {
            copies_wait<0>();
            __syncthreads(); // keys are there, and the values before them are read
            begin(values, in.values_rke, slots, block, end);
            find(of, block + BLOCK, end);
            float s[BLOCK / 8][4] = {};
            products<BLOCK>(s, q, threadIdx.x / WARP * SLOTS, keys);
            weigh(s, sums, counts, block);
            copies_wait<0>();
            __syncthreads(); // values are there, and the keys before the next ones are read
            if (block + BLOCK < end) begin(keys, in.keys_rke, slots, block + BLOCK, end);
            add_products<BLOCK>(sums.out, s, values, 0);
            if (block + BLOCK < end && (block + BLOCK) % SEGMENT != 0) continue;
#pragma unroll
            for (uint32_t slot = 0; slot < 2; slot++) {
                sums.weights[slot] += __shfl_xor_sync(ALL, sums.weights[slot], 1);
                sums.weights[slot] += __shfl_xor_sync(ALL, sums.weights[slot], 2);
            }
            end_segment(sums);
        }
    }
};

// Returns the number of keys of each of a thread's two slots; 0 for a slot that is not there.
__device__ __forceinline__ uint32_t count_of(const Slots& slots, uint32_t slot, const uint2* rows_n) {
    return slots.is_there(slot) ? rows_n[slots.row(slot)].y : 0;
}

constexpr uint32_t WARPS = 4; // of a block with many rows

// Attends from a tile of rows [first, end) to all their keys.
template <uint32_t WIDTH>
__device__ __forceinline__ void tiles(const Inputs& in, const uint2* rows_n, const uint2* ranges_r, const uint2* tiles_t,
                                      uint32_t heads, uint32_t kv_heads, uint16_t* out_nhe, float* max_and_sum_nh2) {
    SHARED(shared);
    const Tile<WIDTH, WARPS> tile(shared);
    const uint2 rows = tiles_t[blockIdx.x];
    const uint32_t parts = gridDim.y / kv_heads;
    const Slots slots{rows.x, rows.y, kv_heads, heads / kv_heads, blockIdx.y / parts, blockIdx.y % parts * WARPS * SLOTS};
    const uint32_t lane = threadIdx.x % WARP, own = threadIdx.x / WARP * SLOTS + lane / 4;
    const uint32_t counts[2] = {count_of(slots, own, rows_n), count_of(slots, own + 8, rows_n)};
    const Keys keys(rows_n, ranges_r, rows.y - 1);
    float max[2] = {-INFINITY, -INFINITY}, weights[2] = {};
    uint32_t key = 0;
    tile.attend(in, slots, keys, 0, keys.count, counts, [&](Sums<WIDTH>& sums) {
        const bool is_first = key == 0, is_last = key + SEGMENT >= keys.count;
        key += SEGMENT;
#pragma unroll
        for (uint32_t slot = 0; slot < 2; slot++) {
            const Join join(max[slot], sums.max[slot]);
            max[slot] = join.max;
            weights[slot] = join(weights[slot], sums.weights[slot]);
            float* own_totals = tile.totals + slot * 2 * Tile<WIDTH, WARPS>::THREADS + threadIdx.x;
#pragma unroll
            for (uint32_t e = 0; e < WIDTH / 8; e++)
#pragma unroll
                for (uint32_t i = 0; i < 2; i++) {
                    const float* total = own_totals + (e * 4 + i) * Tile<WIDTH, WARPS>::THREADS;
                    float& out = sums.out[e][slot * 2 + i];
                    out = join(is_first ? 0.0f : *total, out);
                }
            if (!is_last) {
                sums.max[slot] = -INFINITY; // the next block takes the sums against it: zeros
#pragma unroll
                for (uint32_t e = 0; e < WIDTH / 8; e++)
#pragma unroll
                    for (uint32_t i = 0; i < 2; i++)
                        own_totals[(e * 4 + i) * Tile<WIDTH, WARPS>::THREADS] = sums.out[e][slot * 2 + i];
            } else if (slots.is_there(own + slot * 8)) {
                const size_t nh = slots.head(own + slot * 8);
                const float inverse = 1.0f / weights[slot];
                uint16_t* to = out_nhe + nh * WIDTH + lane % 4 * 2;
#pragma unroll
                for (uint32_t e = 0; e < WIDTH / 8; e++) {
                    const float(&out)[4] = sums.out[e];
                    *(uint32_t*)(to + e * 8) = rounded_pair(output(out[slot * 2], inverse), output(out[slot * 2 + 1], inverse));
                }
                if (max_and_sum_nh2 && lane % 4 == 0) *(float2*)(max_and_sum_nh2 + 2 * nh) = {max[slot], weights[slot]};
            }
        }
    });
}

// Attends from one row to one segment of its keys: sums of out, and their maximum and the sum of weights.
template <uint32_t WIDTH>
__device__ __forceinline__ void segments(const Inputs& in, const uint2* rows_n, const uint2* ranges_r, uint32_t heads,
                                         uint32_t kv_heads, float* out_nhse, float* max_and_sum_nhs2) {
    SHARED(shared);
    const Tile<WIDTH, 1> tile(shared);
    const uint32_t group = heads / kv_heads, parts = (group + SLOTS - 1) / SLOTS;
    const uint32_t n = blockIdx.x / (kv_heads * parts), part = blockIdx.x % parts;
    const Keys keys(rows_n, ranges_r, n);
    const uint32_t first = blockIdx.y * SEGMENT, end = min(first + SEGMENT, keys.count);
    if (first >= end) return;
    const Slots slots{n, n + 1, kv_heads, group, blockIdx.x / parts % kv_heads, part * SLOTS};
    const uint32_t lane = threadIdx.x, own = lane / 4;
    const uint32_t counts[2] = {end, end};
    tile.attend(in, slots, keys, first, end, counts, [&](Sums<WIDTH>& sums) {
#pragma unroll
        for (uint32_t slot = 0; slot < 2; slot++) {
            if (!slots.is_there(own + slot * 8)) continue;
            const size_t nhs = slots.head(own + slot * 8) * gridDim.y + blockIdx.y;
#pragma unroll
            for (uint32_t e = 0; e < WIDTH / 8; e++)
                *(float2*)(out_nhse + nhs * WIDTH + e * 8 + lane % 4 * 2) = {sums.out[e][slot * 2], sums.out[e][slot * 2 + 1]};
            if (lane % 4 == 0) *(float2*)(max_and_sum_nhs2 + 2 * nhs) = {sums.max[slot], sums.weights[slot]};
        }
    });
}

// Rows of sequences. A tile is up to max(1, 64 / G) rows [first, end), of which each one's keys are the first ones of the last
// row's keys. Writes outputs in bfloat16, and, if max_and_sum_nh2 is not null, m and L. Grid: tiles by K * ceil(G / 64) for the
// largest tile; shared memory: (64 + 2 * 64) * (E + 8) elements and E / 2 * 128 floats.
#define ATTENTION(width)                                                                                                   \
    KERNEL(attention_##width, WARPS* WARP,                                                                                 \
           (const uint16_t* q_nhe, const uint16_t* keys_rke, const uint16_t* values_rke, const uint2* rows_n,              \
            const uint2* ranges_r, const uint2* tiles_t, uint32_t heads, uint32_t kv_heads, uint16_t* out_nhe,             \
            float* max_and_sum_nh2)) {                                                                                     \
        tiles<width>({q_nhe, keys_rke, values_rke}, rows_n, ranges_r, tiles_t, heads, kv_heads, out_nhe, max_and_sum_nh2); \
    }

// One row of each sequence, a block a segment of its keys: the first half of decoding. Grid: N * K * ceil(G / 16) by S, the number
// of segments of the longest row; shared memory: (16 + 2 * 64) * (E + 8) elements.
#define ATTENTION_SEGMENTS(width)                                                                                      \
    KERNEL(attention_segments_##width, WARP,                                                                           \
           (const uint16_t* q_nhe, const uint16_t* keys_rke, const uint16_t* values_rke, const uint2* rows_n,          \
            const uint2* ranges_r, uint32_t heads, uint32_t kv_heads, float* out_nhse, float* max_and_sum_nhs2)) {     \
        segments<width>({q_nhe, keys_rke, values_rke}, rows_n, ranges_r, heads, kv_heads, out_nhse, max_and_sum_nhs2); \
    }

ATTENTION(64)
ATTENTION(80)
ATTENTION(96)
ATTENTION(128)
ATTENTION(256)
ATTENTION_SEGMENTS(64)
ATTENTION_SEGMENTS(80)
ATTENTION_SEGMENTS(96)
ATTENTION_SEGMENTS(128)
ATTENTION_SEGMENTS(256)

// Merges the segments of rows, in order: the second half of decoding. Writes outputs, and, if max_and_sum_nh2 is not null, m and L.
// A thread an output. Grid: N by H.
KERNEL(attention_merge, 256,
       (const uint2* rows_n, const float* out_nhse, const float* max_and_sum_nhs2, uint32_t heads, uint32_t segments,
        uint32_t width, uint16_t* out_nhe, float* max_and_sum_nh2)) {
    const size_t nh = (size_t)blockIdx.x * heads + blockIdx.y;
    const uint32_t count = (rows_n[blockIdx.x].y + SEGMENT - 1) / SEGMENT, e = threadIdx.x;
    if (e >= width) return;
    float max = -INFINITY, weights = 0.0f, out = 0.0f;
    for (size_t nhs = nh * segments; nhs < nh * segments + count; nhs++) {
        const Join join(max, max_and_sum_nhs2[2 * nhs]);
        max = join.max;
        weights = join(weights, max_and_sum_nhs2[2 * nhs + 1]);
        out = join(out, out_nhse[nhs * width + e]);
    }
    put(out_nhe + nh * width + e, output(out, 1.0f / weights));
    if (max_and_sum_nh2 && e == 0) *(float2*)(max_and_sum_nh2 + 2 * nh) = {max, weights};
}

} // namespace attention
