// y = x w^T for bfloat16 rows, y [N, O] f32, x [N, K], w [O, K], by tensor cores.
//
// The order of a sum is a function of K alone: K is cut into parts of part_of(K) inputs, at most 8. A part is summed 16 inputs at a
// time into one accumulator from 0 on, the last of them padded by zeros, and the parts are added in order. So a row has the same
// bits in every kernel of this file, in any batch. Weights are the left operand, because rows may be few.
#include "device.cuh"

namespace product {

constexpr uint32_t STEP = 16, DEPTH = 64, PARTS_MAX = 8; // inputs of an instruction, inputs of a stage, parts
constexpr uint32_t STRIDE = DEPTH + 8;                   // elements from row to row: 8 rows are in different banks
constexpr uint32_t WARP = 32, THREADS = 256, WARPS = THREADS / WARP;

__device__ __forceinline__ uint32_t part_of(uint32_t inner) {
    return max(512u, (inner + PARTS_MAX * DEPTH - 1) / (PARTS_MAX * DEPTH) * DEPTH);
}

// The rows of one operand.
struct Rows {
    const uint16_t* first;
    uint32_t count, inner;
    bool is_wide; // every row begins at a multiple of 16 bytes

    // Begins to copy inputs [k, k + 8) of a row to shared memory; zeros where the operand has none.
    __device__ __forceinline__ void copy(uint16_t* to, uint32_t row, uint32_t k) const {
        const uint16_t* from = first + (size_t)row * inner + k;
        if (is_wide) {
            const bool is_there = row < count && k < inner;
            copy_async<16>(to, is_there ? from : first, is_there);
            return;
        }
        for (uint32_t i = 0; i < 8; i++) to[i] = row < count && k + i < inner ? from[i] : (uint16_t)0;
    }
};

// The place in a tile [rows, STRIDE] that this lane names for a 16 x 16 block of the left operand.
__device__ __forceinline__ const uint16_t* left_at(const uint16_t* tile, uint32_t row, uint32_t k) {
    const uint32_t lane = threadIdx.x % WARP;
    return tile + (row + lane % 16) * STRIDE + k + lane / 16 * 8;
}

// The same for 8 rows of the right operand, or for 16: two results follow each other.
__device__ __forceinline__ const uint16_t* right_at(const uint16_t* tile, uint32_t row, uint32_t k) {
    const uint32_t lane = threadIdx.x % WARP;
    return tile + (row + lane / 16 * 8 + lane % 8) * STRIDE + k + lane / 8 % 2 * 8;
}

// Number of steps in the stage that begins at input k.
__device__ __forceinline__ uint32_t steps_of(uint32_t inner, uint32_t k) { return (min(inner - k, DEPTH) + STEP - 1) / STEP; }

__device__ __forceinline__ void store(float* y_no, uint32_t outs, uint32_t row, uint32_t out, float value, uint32_t adds) {
    float* y = y_no + (size_t)row * outs + out;
    *y = adds ? *y + value : value;
}

constexpr uint32_t OUTS = 128, STAGES = 3;        // of a block with many rows
constexpr uint32_t OUTS_EACH = 32, ROW_WARPS = 2; // outputs of a warp, warps along the rows

// One block computes OUTS outputs of ROWS rows: four warps along the outputs, two along the rows.
template <uint32_t ROWS>
__device__ __forceinline__ void many(const uint16_t* x_nk, const uint16_t* w_ok, float* y_no, uint32_t rows, uint32_t outs,
                                     uint32_t inner, uint32_t adds) {
    SHARED(shared);
    constexpr uint32_t TILE = (OUTS + ROWS) * STRIDE, ROWS_EACH = ROWS / ROW_WARPS, LEFT = OUTS_EACH / 16, RIGHT = ROWS_EACH / 8;
    uint16_t* ring = (uint16_t*)shared; // [STAGES, OUTS + ROWS, STRIDE]
    const bool is_wide = ((uintptr_t)x_nk | (uintptr_t)w_ok | inner * 2) % 16 == 0;
    const Rows x{x_nk, rows, inner, is_wide}, w{w_ok, outs, inner, is_wide};
    const uint32_t first_out = blockIdx.x * OUTS, first_row = blockIdx.y * ROWS, warp = threadIdx.x / WARP;
    const uint32_t own_out = warp / ROW_WARPS * OUTS_EACH, own_row = warp % ROW_WARPS * ROWS_EACH;
    auto begin = [&](uint32_t stage, uint32_t k) {
        for (uint32_t at = threadIdx.x; at < (OUTS + ROWS) * (DEPTH / 8) && k < inner; at += THREADS) {
            const uint32_t r = at / (DEPTH / 8), c = at % (DEPTH / 8) * 8;
            uint16_t* to = ring + stage * TILE + r * STRIDE + c;
            if (r < OUTS)
                w.copy(to, first_out + r, k + c);
            else
                x.copy(to, first_row + r - OUTS, k + c);
        }
        copies_commit(); // an empty group counts, too
    };
    float total[LEFT][RIGHT][4] = {}, part[LEFT][RIGHT][4] = {};
    auto end_part = [&] {
#pragma unroll
        for (uint32_t l = 0; l < LEFT; l++)
#pragma unroll
            for (uint32_t r = 0; r < RIGHT; r++)
#pragma unroll
                for (uint32_t i = 0; i < 4; i++) total[l][r][i] += part[l][r][i], part[l][r][i] = 0.0f;
    };
    for (uint32_t stage = 0; stage < STAGES - 1; stage++) begin(stage, stage * DEPTH);
    const uint32_t part_len = part_of(inner);
    for (uint32_t k = 0, turn = 0; k < inner; k += DEPTH, turn++) {
        if (k > 0 && k % part_len == 0) end_part();
        copies_wait<STAGES - 2>();
        __syncthreads(); // this stage is there, and the one before it is read
        begin((turn + STAGES - 1) % STAGES, k + (STAGES - 1) * DEPTH);
        const uint16_t *w_tile = ring + turn % STAGES * TILE, *x_tile = w_tile + OUTS * STRIDE;
        const uint32_t steps = steps_of(inner, k);
        for (uint32_t step = 0; step < steps; step++) {
            uint32_t left[LEFT][4];
#pragma unroll
            for (uint32_t l = 0; l < LEFT; l++) load_matrices(left[l], left_at(w_tile, own_out + l * 16, step * STEP));
#pragma unroll
            for (uint32_t r = 0; r < RIGHT; r += 2) {
                uint32_t words[4];
                load_matrices(words, right_at(x_tile, own_row + r * 8, step * STEP));
                const uint32_t right[2][2] = {{words[0], words[1]}, {words[2], words[3]}};
#pragma unroll
                for (uint32_t l = 0; l < LEFT; l++)
#pragma unroll
                    for (uint32_t i = 0; i < 2; i++) mma_bf16(part[l][r + i], left[l], right[i]);
            }
        }
    }
    copies_wait<0>();
    end_part();
    const uint32_t group = threadIdx.x % WARP / 4, pair = threadIdx.x % 4 * 2;
#pragma unroll
    for (uint32_t l = 0; l < LEFT; l++)
#pragma unroll
        for (uint32_t r = 0; r < RIGHT; r++)
#pragma unroll
            for (uint32_t i = 0; i < 4; i++) {
                const uint32_t o = first_out + own_out + l * 16 + group + i / 2 * 8;
                const uint32_t n = first_row + own_row + r * 8 + pair + i % 2;
                if (o < outs && n < rows) store(y_no, outs, n, o, total[l][r][i], adds);
            }
}

// Grid: ceil(O / 128) by ceil(N / 64), or by ceil(N / 128); shared memory: 3 * (128 + 64 or 128) * 72 elements. With `adds`, adds to
// what y holds.
KERNEL(product_64, THREADS,
       (const uint16_t* x_nk, const uint16_t* w_ok, float* y_no, uint32_t rows, uint32_t outs, uint32_t inner, uint32_t adds)) {
    many<64>(x_nk, w_ok, y_no, rows, outs, inner, adds);
}
KERNEL(product_128, THREADS,
       (const uint16_t* x_nk, const uint16_t* w_ok, float* y_no, uint32_t rows, uint32_t outs, uint32_t inner, uint32_t adds)) {
    many<128>(x_nk, w_ok, y_no, rows, outs, inner, adds);
}

constexpr uint32_t FEW_OUTS = 16, FEW_ROWS = 8, FEW_STAGES = 4;

// One block computes 16 outputs of 8 rows, one warp a part of their sums. Grid: ceil(O / 16) by ceil(N / 8); shared memory:
// 8 * 4 * (16 + 8) * 72 elements and 8 * 16 * 8 floats.
KERNEL(product_8, THREADS,
       (const uint16_t* x_nk, const uint16_t* w_ok, float* y_no, uint32_t rows, uint32_t outs, uint32_t inner, uint32_t adds)) {
    SHARED(shared);
    constexpr uint32_t TILE = (FEW_OUTS + FEW_ROWS) * STRIDE, SUMS = FEW_OUTS * FEW_ROWS;
    float* sums = (float*)shared; // [PARTS_MAX, FEW_ROWS, FEW_OUTS]
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint16_t* ring = (uint16_t*)(sums + PARTS_MAX * SUMS) + warp * FEW_STAGES * TILE; // [FEW_STAGES, 16 + 8, STRIDE] of the warp
    const bool is_wide = ((uintptr_t)x_nk | (uintptr_t)w_ok | inner * 2) % 16 == 0;
    const Rows x{x_nk, rows, inner, is_wide}, w{w_ok, outs, inner, is_wide};
    const uint32_t first_out = blockIdx.x * FEW_OUTS, first_row = blockIdx.y * FEW_ROWS;
    const uint32_t part_len = part_of(inner), first = warp * part_len, last = min(first + part_len, inner);
    auto begin = [&](uint32_t stage, uint32_t k) {
        for (uint32_t at = lane; at < (FEW_OUTS + FEW_ROWS) * (DEPTH / 8) && k < last; at += WARP) {
            const uint32_t r = at / (DEPTH / 8), c = at % (DEPTH / 8) * 8;
            uint16_t* to = ring + stage * TILE + r * STRIDE + c;
            if (r < FEW_OUTS)
                w.copy(to, first_out + r, k + c);
            else
                x.copy(to, first_row + r - FEW_OUTS, k + c);
        }
        copies_commit();
    };
    float part[4] = {};
    for (uint32_t stage = 0; stage < FEW_STAGES - 1; stage++) begin(stage, first + stage * DEPTH);
    for (uint32_t k = first, turn = 0; k < last; k += DEPTH, turn++) {
        copies_wait<FEW_STAGES - 2>();
        __syncwarp();
        begin((turn + FEW_STAGES - 1) % FEW_STAGES, k + (FEW_STAGES - 1) * DEPTH);
        const uint16_t *w_tile = ring + turn % FEW_STAGES * TILE, *x_tile = w_tile + FEW_OUTS * STRIDE;
        const uint32_t steps = steps_of(last, k);
        for (uint32_t step = 0; step < steps; step++) {
            uint32_t left[4], right[2];
            load_matrices(left, left_at(w_tile, 0, step * STEP));
            load_matrices(right, right_at(x_tile, 0, step * STEP) - lane / 16 * 8 * STRIDE);
            mma_bf16(part, left, right);
        }
    }
    copies_wait<0>();
    const uint32_t group = lane / 4, pair = lane % 4 * 2;
    for (uint32_t i = 0; i < 4; i++) sums[warp * SUMS + (pair + i % 2) * FEW_OUTS + group + i / 2 * 8] = part[i];
    __syncthreads();
    if (threadIdx.x >= SUMS) return;
    const uint32_t n = first_row + threadIdx.x / FEW_OUTS, o = first_out + threadIdx.x % FEW_OUTS;
    float total = 0.0f;
    for (uint32_t p = 0; p * part_len < inner; p++) total += sums[p * SUMS + threadIdx.x];
    if (o < outs && n < rows) store(y_no, outs, n, o, total, adds);
}

} // namespace product
