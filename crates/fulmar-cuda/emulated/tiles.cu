// Kernels of tensor cores, copies to shared memory, shuffles, votes and atomics, for the test of the emulated driver, which has
// what they compute as loops.
#include "../kernels/device.cuh"

constexpr uint32_t WARP = 32, STRIDE = 24; // elements from one row of a matrix in shared memory to the next: 48 bytes

// Two neighbours of a row.
static __device__ uint32_t pair_at(const uint16_t* row, uint32_t at) { return *(const uint32_t*)(row + at); }

// d [16, 8] += a b, a [16, K], and b as its columns [8, K]; K a multiple of 16.
KERNEL(product_of_fragments, WARP, (const uint16_t* a_rk, const uint16_t* b_ck, float* d_rc, uint32_t inner)) {
    const uint32_t group = threadIdx.x / 4, pair = threadIdx.x % 4 * 2;
    float* own[4] = {d_rc + group * 8 + pair, d_rc + group * 8 + pair + 1, d_rc + (group + 8) * 8 + pair,
                     d_rc + (group + 8) * 8 + pair + 1};
    float d[4] = {*own[0], *own[1], *own[2], *own[3]};
    for (uint32_t k = 0; k < inner; k += 16) {
        const uint16_t *upper = a_rk + group * inner + k, *lower = upper + 8 * inner, *column = b_ck + group * inner + k;
        const uint32_t a[4] = {pair_at(upper, pair), pair_at(lower, pair), pair_at(upper, pair + 8), pair_at(lower, pair + 8)};
        const uint32_t b[2] = {pair_at(column, pair), pair_at(column, pair + 8)};
        mma_bf16(d, a, b);
    }
    for (uint32_t i = 0; i < 4; i++) *own[i] = d[i];
}

// Writes what each lane loads of COUNT matrices [8, 8].
template <bool IS_TRANSPOSED, int COUNT>
static __device__ void load(unsigned char* shared, const uint16_t* from, uint32_t* to) {
    uint16_t* rows = (uint16_t*)shared;              // [32, STRIDE]
    const uint32_t written = WARP - 1 - threadIdx.x; // not the row that this lane names below
    for (uint32_t k = 0; k < 8; k++) rows[written * STRIDE + k] = from[written * 8 + k];
    __syncwarp();
    uint32_t words[COUNT];
    load_matrices<IS_TRANSPOSED>(words, rows + threadIdx.x % (8 * COUNT) * STRIDE);
    for (uint32_t i = 0; i < COUNT; i++) to[threadIdx.x * COUNT + i] = words[i];
}

#define LOADS(name, is_transposed, count)                      \
    KERNEL(name, WARP, (const uint16_t* from, uint32_t* to)) { \
        SHARED(shared);                                        \
        load<is_transposed, count>(shared, from, to);          \
    }
LOADS(load_1, false, 1)
LOADS(load_2, false, 2)
LOADS(load_4, false, 4)
LOADS(load_1_transposed, true, 1)
LOADS(load_2_transposed, true, 2)
LOADS(load_4_transposed, true, 4)

constexpr uint32_t THREADS = 64, STAGES = 3;

// to[t] = sum over turns of the four numbers that thread 63 - t copied: a ring of stages, of which all but one are under way.
KERNEL(staged, THREADS, (const float* from, float* to, uint32_t turns, uint32_t count)) {
    SHARED(shared);
    float* ring = (float*)shared; // [STAGES, THREADS, 4]
    const uint32_t own = threadIdx.x, other = THREADS - 1 - own;
    auto begin = [&](uint32_t turn) {
        const uint32_t first = (turn * THREADS + own) * 4;
        float* place = ring + (turn % STAGES * THREADS + own) * 4;
        if (turn < turns) copy_async<16>(place, from + first, first < count);
        copies_commit(); // an empty group counts, too
    };
    float sum = 0.0f;
    for (uint32_t turn = 0; turn < STAGES - 1; turn++) begin(turn);
    for (uint32_t turn = 0; turn < turns; turn++) {
        copies_wait<STAGES - 2>();
        __syncthreads(); // all have waited for this stage, and none reads the one before it any more
        begin(turn + STAGES - 1);
        const float* read = ring + (turn % STAGES * THREADS + other) * 4;
        for (uint32_t i = 0; i < 4; i++) sum += read[i];
    }
    copies_wait<0>();
    to[own] = sum;
}

// Copies by parts of 4 and 8 bytes.
KERNEL(small_copies, THREADS, (const float* from, float* to)) {
    SHARED(shared);
    float *singles = (float*)shared, *pairs = singles + THREADS;
    copy_async<4>(singles + threadIdx.x, from + threadIdx.x, true);
    if (threadIdx.x % 2 == 0) copy_async<8>(pairs + threadIdx.x, from + threadIdx.x, true);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    to[threadIdx.x] = singles[threadIdx.x] + pairs[THREADS - 1 - threadIdx.x];
}

// 2^x, and pairs of x and its negative rounded to bfloat16.
KERNEL(numbers, WARP, (const float* from, float* to)) {
    const float own = from[threadIdx.x];
    to[threadIdx.x] = fast_exp2(own);
    ((uint32_t*)to)[WARP + threadIdx.x] = rounded_pair(own, -own);
}

// What lanes tell each other, eight words a lane.
KERNEL(lanes, WARP, (const uint32_t* from, uint32_t* to)) {
    constexpr uint32_t ALL = ~0u;
    const uint32_t own = from[threadIdx.x];
    uint32_t* out = to + threadIdx.x * 8;
    out[0] = __shfl_sync(ALL, own, 5), out[1] = __shfl_sync(ALL, own, threadIdx.x + 3, 8);
    out[2] = __shfl_up_sync(ALL, own, 2), out[3] = __shfl_up_sync(ALL, own, 3, 16);
    out[4] = __ballot_sync(ALL, own % 3 == 0), out[5] = __any_sync(ALL, own == 7) + 2 * __any_sync(ALL, own == 1000);
    out[6] = __all_sync(ALL, own < 1000) + 2 * __all_sync(ALL, own != 7), out[7] = __shfl_down_sync(ALL, own, 4, 8);
}

// All threads of all blocks: their number, the sum and both ends of their numbers, and the first that came.
KERNEL(atomics, THREADS, (const uint32_t* from, uint32_t* to)) {
    const uint32_t own = from[blockIdx.x * THREADS + threadIdx.x];
    atomicAdd(to, 1u), atomicAdd(to + 1, own), atomicMin(to + 2, own), atomicMax(to + 3, own);
    const uint32_t before = atomicCAS(to + 4, 0u, own);
    if (before == 0) atomicAdd(to + 5, own);
}

// The rest have one fault each.

KERNEL(read_before_its_wait, THREADS, (const float* from, float* to)) {
    SHARED(shared);
    float *first = (float*)shared + threadIdx.x, *second = first + THREADS;
    copy_async<4>(first, from + threadIdx.x, true);
    copies_commit();
    copy_async<4>(second, from + threadIdx.x, true);
    copies_commit();
    copies_wait<1>();
    to[threadIdx.x] = *first, to[threadIdx.x + THREADS] = *second;
    copies_wait<0>();
}

KERNEL(never_waited_for, THREADS, (const float* from)) {
    SHARED(shared);
    copy_async<16>((float*)shared + threadIdx.x * 4, from + threadIdx.x * 4, true);
    copies_commit();
}

KERNEL(not_committed, THREADS, (const float* from)) {
    SHARED(shared);
    copy_async<16>((float*)shared + threadIdx.x * 4, from + threadIdx.x * 4, true);
    copies_wait<0>();
}

KERNEL(source_written, THREADS, (float* from)) {
    SHARED(shared);
    copy_async<4>((float*)shared + threadIdx.x, from + threadIdx.x, true);
    copies_commit();
    from[threadIdx.x] = 5.0f;
    copies_wait<0>();
}

KERNEL(copied_past_shared, THREADS, (const float* from)) {
    SHARED(shared);
    copy_async<4>((float*)shared + threadIdx.x + 1, from + threadIdx.x, true);
    copies_commit();
    copies_wait<0>();
}

KERNEL(copied_misaligned, THREADS, (const float* from)) {
    SHARED(shared);
    copy_async<8>((float*)shared + 1, from, true);
    copies_commit();
    copies_wait<0>();
}

KERNEL(copied_past_the_end, THREADS, (const float* from)) {
    SHARED(shared);
    copy_async<16>((float*)shared, from + 64, true);
    copies_commit();
    copies_wait<0>();
}

KERNEL(row_of_a_matrix_misaligned, WARP, (uint32_t* to)) {
    SHARED(shared);
    uint32_t words[1];
    load_matrices(words, shared + threadIdx.x % 8 * 24);
    to[threadIdx.x] = words[0];
}

KERNEL(row_of_a_matrix_in_global_memory, WARP, (uint32_t* to)) {
    uint32_t words[1];
    load_matrices(words, to);
    to[threadIdx.x] = words[0];
}

KERNEL(product_without_a_lane, WARP, (float* to)) {
    if (threadIdx.x == 3) return;
    float d[4] = {};
    const uint32_t a[4] = {}, b[2] = {};
    __syncwarp();
    mma_bf16(d, a, b);
    to[threadIdx.x] = d[0];
}

KERNEL(product_at_two_lines, WARP, (float* to)) {
    float d[4] = {};
    const uint32_t a[4] = {}, b[2] = {};
    if (threadIdx.x < 16)
        mma_bf16(d, a, b);
    else
        mma_bf16(d, a, b);
    to[threadIdx.x] = d[0];
}
