// Gradients of attention.cu, by two kernels without atomics: one sums over the keys of query rows, one over the query rows that
// attend to some keys.
//
//   p[j] = 2^(t[j] - m) / L    ds[j] = p[j] (do . v[j] - do . o) / sqrt(E)    dq = sum_j ds[j] k[j]
//   dk[j] = sum ds[j] q        dv[j] = sum p[j] do
//
// Both compute p from the m and L of the forward pass, with its bits of t, and round p and ds to bfloat16 for the products. The
// gradient of a query has one accumulator over the keys of its row, 16 at a time; that of a key over the slots of its tile, 16 at a
// time, heads of a row first.
#include "slots.cuh"

namespace attention::backward {

constexpr uint32_t WARPS = 4, THREADS = WARPS * WARP;
constexpr uint32_t SOME = 32; // keys or slots of a stage
constexpr uint32_t STAGES = 2;

// What a slot needs to compute p and ds: m, 1 / L and do . o.
struct Saved {
    float max, inverse, along;
};

__device__ __forceinline__ Saved saved_of(const float* max_and_sum_nh2, size_t head, float along) {
    const float2 found = *(const float2*)(max_and_sum_nh2 + 2 * head);
    return {found.x, 1.0f / found.y, along};
}

// Turns q . k and do . v into p and ds sqrt(E); both are 0 where a row does not attend to a key.
__device__ __forceinline__ void differentiate(float& s, float& d, const Saved& saved, float scale, bool is_seen) {
    const float p = fast_exp2(s * scale - saved.max) * saved.inverse;
    d = is_seen ? p * (d - saved.along) : 0.0f;
    s = is_seen ? p : 0.0f;
}

// Returns the sum of d o over half of the elements of a head, every other 8.
template <uint32_t WIDTH>
__device__ __forceinline__ float half_of_along(const uint16_t* d_out, const uint16_t* out, uint32_t half) {
    float sum = 0.0f;
    for (uint32_t e = half * 8; e < WIDTH; e += 16) {
        const uint4 d = *(const uint4*)(d_out + e), o = *(const uint4*)(out + e);
        const uint32_t ds[4] = {d.x, d.y, d.z, d.w}, os[4] = {o.x, o.y, o.z, o.w};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            sum += widened((uint16_t)ds[i]) * widened((uint16_t)os[i]);
            sum += widened((uint16_t)(ds[i] >> 16)) * widened((uint16_t)(os[i] >> 16));
        }
    }
    return sum;
}

// The gradients of the queries of a tile of rows.
template <uint32_t WIDTH>
__device__ __forceinline__ void queries(const uint16_t* q_nhe, const uint16_t* keys_rke, const uint16_t* values_rke,
                                        const uint2* rows_n, const uint2* ranges_r, const uint2* tiles_t,
                                        const uint16_t* out_nhe, const float* max_and_sum_nh2, const uint16_t* d_out_nhe,
                                        uint32_t heads, uint32_t kv_heads, float* d_q_nhe, float* along_nh) {
    SHARED(shared);
    using Heads = Lines<WIDTH>;
    const Heads q{(uint16_t*)shared}, d_out{q.first + WARPS * SLOTS * Heads::STRIDE},
        ring{d_out.first + WARPS * SLOTS * Heads::STRIDE}; // [STAGES], keys and values
    const uint32_t parts = gridDim.y / kv_heads, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const uint2 rows = tiles_t[blockIdx.x];
    const Slots slots{rows.x, rows.y, kv_heads, heads / kv_heads, blockIdx.y / parts, blockIdx.y % parts * WARPS * SLOTS};
    const Keys of(rows_n, ranges_r, rows.y - 1);
    auto keys_of = [&](uint32_t block) { return Heads{ring.first + block / SOME % STAGES * 2 * SOME * Heads::STRIDE}; };
    auto values_of = [&](uint32_t block) { return Heads{keys_of(block).first + SOME * Heads::STRIDE}; };
    auto find = [&](uint32_t block) {
        if (threadIdx.x < SOME && block + threadIdx.x < of.count)
            *keys_of(block).behind(threadIdx.x) = of.row(block + threadIdx.x);
    };
    auto begin = [&](uint32_t block) {
        const Heads keys = keys_of(block);
        auto number = [&](uint32_t line) {
            return block + line < of.count ? (size_t)*keys.behind(line) * kv_heads + slots.kv_head : ABSENT;
        };
        keys.template begin<SOME, THREADS>(keys_rke, number);
        values_of(block).template begin<SOME, THREADS>(values_rke, number);
        copies_commit();
    };
    auto number_of_slot = [&](uint32_t slot) { return slots.is_there(slot) ? slots.head(slot) : ABSENT; };
    q.template begin<WARPS * SLOTS, THREADS>(q_nhe, number_of_slot);
    d_out.template begin<WARPS * SLOTS, THREADS>(d_out_nhe, number_of_slot);

    // Two threads a slot sum do . o; all four threads that hold a slot's gradient get it from the first one.
    const uint32_t summed = threadIdx.x / 2;
    float along = 0.0f;
    if (slots.is_there(summed)) {
        const size_t at = slots.head(summed) * WIDTH;
        along = half_of_along<WIDTH>(d_out_nhe + at, out_nhe + at, threadIdx.x % 2);
    }
    along += __shfl_xor_sync(ALL, along, 1);
    if (slots.is_there(summed) && threadIdx.x % 2 == 0) along_nh[slots.head(summed)] = along;
    Saved saved[2] = {};
    uint32_t counts[2] = {};
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t own = lane / 4 + i * 8, slot = warp * SLOTS + own;
        const float along_of_slot = __shfl_sync(ALL, along, own * 2);
        if (!slots.is_there(slot)) continue;
        saved[i] = saved_of(max_and_sum_nh2, slots.head(slot), along_of_slot);
        counts[i] = rows_n[slots.row(slot)].y;
    }

    const float scale = LOG2_E / sqrtf((float)WIDTH);
    float d_q[WIDTH / 8][4] = {};
    find(0);
    find(SOME);
    __syncthreads();
    begin(0);
    for (uint32_t block = 0; block < of.count; block += SOME) {
        copies_wait<0>();
        __syncthreads(); // this stage is there, and the one before it is read
        if (block + SOME < of.count) begin(block + SOME);
        find(block + 2 * SOME);
        const Heads keys = keys_of(block), values = values_of(block);
        float s[SOME / 8][4] = {}, d[SOME / 8][4] = {};
        products<SOME>(s, q, warp * SLOTS, keys);
        products<SOME>(d, d_out, warp * SLOTS, values);
#pragma unroll
        for (uint32_t key = 0; key < SOME / 8; key++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++)
                differentiate(s[key][i], d[key][i], saved[i / 2], scale,
                              block + key * 8 + lane % 4 * 2 + i % 2 < counts[i / 2]);
        add_products<SOME>(d_q, d, keys, 0);
    }
    const float inverse_root = 1.0f / sqrtf((float)WIDTH);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const uint32_t slot = warp * SLOTS + lane / 4 + i * 8;
        if (!slots.is_there(slot)) continue;
        float* to = d_q_nhe + slots.head(slot) * WIDTH + lane % 4 * 2;
#pragma unroll
        for (uint32_t e = 0; e < WIDTH / 8; e++)
            *(float2*)(to + e * 8) = {d_q[e][i * 2] * inverse_root, d_q[e][i * 2 + 1] * inverse_root};
    }
}

constexpr uint32_t KEYS = WARPS * 16; // key/value rows of a tile

// A slot of a stage: what it needs to compute p and ds, and which keys of the tile its row attends to.
struct Seen {
    Saved saved;
    uint32_t keys[KEYS / 32];
};

// The gradients of a tile of keys and values of one head: all their elements, or 128 of them.
template <uint32_t WIDTH>
__device__ __forceinline__ void keys_and_values(const uint16_t* q_nhe, const uint16_t* keys_nke, const uint16_t* values_nke,
                                                const uint2* rows_n, const uint2* ranges_r, const uint4* tiles_t,
                                                const float* max_and_sum_nh2, const uint16_t* d_out_nhe, const float* along_nh,
                                                uint32_t heads, uint32_t kv_heads, float* d_keys_nke, float* d_values_nke) {
    SHARED(shared);
    using Heads = Lines<WIDTH>;
    constexpr uint32_t COLUMNS = WIDTH < 128 ? WIDTH : 128, PARTS = WIDTH / COLUMNS;
    constexpr uint32_t SLOTS_EACH = WIDTH == 256 ? 16 : SOME; // of a stage: more would spill registers
    const Heads keys{(uint16_t*)shared}, values{keys.first + KEYS * Heads::STRIDE},
        ring{values.first + KEYS * Heads::STRIDE};                                 // [STAGES], queries and d_out
    Seen* seen_of = (Seen*)(ring.first + STAGES * 2 * SLOTS_EACH * Heads::STRIDE); // [STAGES, SLOTS_EACH]
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, kv_head = blockIdx.y / PARTS;
    const uint32_t column = blockIdx.y % PARTS * COLUMNS, group = heads / kv_heads;
    const uint4 tile = tiles_t[blockIdx.x];
    const uint32_t first_key = tile.x, end_key = tile.y, count = (tile.w - tile.z) * group;
    const Slots slots{tile.z, tile.w, kv_heads, group, kv_head, 0};
    auto queries_of = [&](uint32_t some) {
        return Heads{ring.first + some / SLOTS_EACH % STAGES * 2 * SLOTS_EACH * Heads::STRIDE};
    };
    auto d_outs_of = [&](uint32_t some) { return Heads{queries_of(some).first + SLOTS_EACH * Heads::STRIDE}; };
    auto begin = [&](uint32_t some) {
        auto number = [&](uint32_t line) { return some + line < count ? slots.head(some + line) : ABSENT; };
        queries_of(some).template begin<SLOTS_EACH, THREADS>(q_nhe, number);
        d_outs_of(some).template begin<SLOTS_EACH, THREADS>(d_out_nhe, number);
        copies_commit();
        if (threadIdx.x >= SLOTS_EACH) return;
        Seen& seen = seen_of[some / SLOTS_EACH % STAGES * SLOTS_EACH + threadIdx.x];
        const uint32_t slot = some + threadIdx.x;
        seen = {};
        if (slot >= count) return;
        seen.saved = saved_of(max_and_sum_nh2, slots.head(slot), along_nh[slots.head(slot)]);
        const Keys of(rows_n, ranges_r, slots.row(slot));
        for (uint32_t i = 0; i < KEYS / 32; i++) seen.keys[i] = of.seen(first_key + i * 32);
    };
    auto number_of_key = [&](uint32_t line) {
        return first_key + line < end_key ? (size_t)(first_key + line) * kv_heads + kv_head : ABSENT;
    };
    keys.template begin<KEYS, THREADS>(keys_nke, number_of_key);
    values.template begin<KEYS, THREADS>(values_nke, number_of_key);
    begin(0);

    const float scale = LOG2_E / sqrtf((float)WIDTH);
    float d_keys[COLUMNS / 8][4] = {}, d_values[COLUMNS / 8][4] = {};
    for (uint32_t some = 0; some < count; some += SLOTS_EACH) {
        copies_wait<0>();
        __syncthreads(); // these slots are there, and those before them are read
        if (some + SLOTS_EACH < count) begin(some + SLOTS_EACH);
        const Heads q = queries_of(some), d_out = d_outs_of(some);
        float s[SLOTS_EACH / 8][4] = {}, d[SLOTS_EACH / 8][4] = {};
        products<SLOTS_EACH>(s, keys, warp * 16, q);
        products<SLOTS_EACH>(d, values, warp * 16, d_out);
#pragma unroll
        for (uint32_t slot = 0; slot < SLOTS_EACH / 8; slot++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const Seen& seen = seen_of[some / SLOTS_EACH % STAGES * SLOTS_EACH + slot * 8 + lane % 4 * 2 + i % 2];
                const uint32_t key = warp * 16 + lane / 4 + i / 2 * 8;
                differentiate(s[slot][i], d[slot][i], seen.saved, scale, seen.keys[key / 32] >> key % 32 & 1);
            }
        add_products<SLOTS_EACH>(d_values, s, d_out, column);
        add_products<SLOTS_EACH>(d_keys, d, q, column);
    }
    const float inverse_root = 1.0f / sqrtf((float)WIDTH);
#pragma unroll
    for (uint32_t i = 0; i < 2; i++) {
        const size_t head = number_of_key(warp * 16 + lane / 4 + i * 8);
        if (head == ABSENT) continue;
        const size_t at = head * WIDTH + column + lane % 4 * 2;
#pragma unroll
        for (uint32_t e = 0; e < COLUMNS / 8; e++) {
            *(float2*)(d_keys_nke + at + e * 8) = {d_keys[e][i * 2] * inverse_root, d_keys[e][i * 2 + 1] * inverse_root};
            *(float2*)(d_values_nke + at + e * 8) = {d_values[e][i * 2], d_values[e][i * 2 + 1]};
        }
    }
}

// The gradients of queries in f32, and do . o for the other kernel. Tiles and grid are those of attention.cu; shared memory: 256 *
// (E + 8) elements.
#define QUERIES(width)                                                                                                     \
    KERNEL(attention_backward_queries_##width, THREADS,                                                                    \
           (const uint16_t* q_nhe, const uint16_t* keys_rke, const uint16_t* values_rke, const uint2* rows_n,              \
            const uint2* ranges_r, const uint2* tiles_t, const uint16_t* out_nhe, const float* max_and_sum_nh2,            \
            const uint16_t* d_out_nhe, uint32_t heads, uint32_t kv_heads, float* d_q_nhe, float* along_nh)) {              \
        queries<width>(q_nhe, keys_rke, values_rke, rows_n, ranges_r, tiles_t, out_nhe, max_and_sum_nh2, d_out_nhe, heads, \
                       kv_heads, d_q_nhe, along_nh);                                                                       \
    }

// The gradients of keys and values in f32. A tile is up to 64 key/value rows, its first and its end, and the first and the end of
// the query rows that may attend to them; a query row and a key/value row of the same number are one row. Grid: tiles by K, twice
// that for E = 256; shared memory: 256 * (E + 8) elements and 2 * 32 * 5 words.
#define KEYS_AND_VALUES(width)                                                                                               \
    KERNEL(attention_backward_keys_##width, THREADS,                                                                         \
           (const uint16_t* q_nhe, const uint16_t* keys_nke, const uint16_t* values_nke, const uint2* rows_n,                \
            const uint2* ranges_r, const uint4* tiles_t, const float* max_and_sum_nh2, const uint16_t* d_out_nhe,            \
            const float* along_nh, uint32_t heads, uint32_t kv_heads, float* d_keys_nke, float* d_values_nke)) {             \
        keys_and_values<width>(q_nhe, keys_nke, values_nke, rows_n, ranges_r, tiles_t, max_and_sum_nh2, d_out_nhe, along_nh, \
                               heads, kv_heads, d_keys_nke, d_values_nke);                                                   \
    }

QUERIES(64)
QUERIES(80)
QUERIES(96)
QUERIES(128)
QUERIES(256)
KEYS_AND_VALUES(64)
KEYS_AND_VALUES(80)
KEYS_AND_VALUES(96)
KEYS_AND_VALUES(128)
KEYS_AND_VALUES(256)

} // namespace attention::backward
