// y = x w^T for f32 rows, y [N, O], x [N, K], w [O, K], with the bits of fulmar-kernel's matmul: each output is one chain
// sum = fma(x[k], w[k], sum) for k = 0, 1, ... from 0 on, whatever the tile and the number of rows. Either operand may be turned,
// x [K, N] and w [K, O]: so the gradients are products too, d x = d w' with w' turned, and d w = d' x' with both turned.
#include "device.cuh"

namespace product_f32 {

constexpr uint32_t TILE = 64, DEPTH = 16, EACH = 4; // outputs of a block in each direction, inputs at once, outputs of a thread
constexpr uint32_t SIDE = TILE / EACH, THREADS = SIDE * SIDE;
constexpr uint32_t STRIDE = TILE + EACH; // columns of shared memory begin in different banks, and stay aligned for vectors

// Copies inputs [first, first + depth) of TILE rows to `to` [DEPTH, STRIDE], and zeros for rows that are not there. Neighbouring
// threads read neighbouring elements.
__device__ __forceinline__ void load(float* to, const float* from, uint32_t row, uint32_t rows, uint32_t inner, uint32_t first,
                                     uint32_t depth, bool is_turned) {
    for (uint32_t at = threadIdx.x; at < TILE * DEPTH; at += THREADS) {
        const uint32_t r = is_turned ? at % TILE : at / DEPTH, k = is_turned ? at / TILE : at % DEPTH;
        const size_t place = is_turned ? (size_t)(first + k) * rows + row + r : (size_t)(row + r) * inner + first + k;
        if (k < depth) to[k * STRIDE + r] = row + r < rows ? from[place] : 0.0f;
    }
}

// Grid: ceil(O / TILE) by ceil(N / TILE); shared memory: 2 * DEPTH * STRIDE floats. With `adds`, adds to what y holds.
KERNEL(product_f32, THREADS,
       (const float* x_nk, const float* w_ok, float* y_no, uint32_t rows, uint32_t outs, uint32_t inner, uint32_t x_is_turned,
        uint32_t w_is_turned, uint32_t adds)) {
    SHARED(shared);
    float* x = (float*)shared; // [DEPTH, STRIDE]
    float* w = x + DEPTH * STRIDE;
    const uint32_t out = blockIdx.x * TILE, row = blockIdx.y * TILE;
    const uint32_t own_out = threadIdx.x % SIDE * EACH, own_row = threadIdx.x / SIDE * EACH;
    float sums[EACH][EACH] = {};
    for (uint32_t first = 0; first < inner; first += DEPTH) {
        // Not padded: one more fma with zeros would turn a sum of -0 into 0.
        const uint32_t depth = min(inner - first, DEPTH);
        load(x, x_nk, row, rows, inner, first, depth, x_is_turned);
        load(w, w_ok, out, outs, inner, first, depth, w_is_turned);
        __syncthreads();
        for (uint32_t k = 0; k < depth; k++) {
            const float4 a = *(const float4*)(x + k * STRIDE + own_row), b = *(const float4*)(w + k * STRIDE + own_out);
            const float of_row[EACH] = {a.x, a.y, a.z, a.w}, of_out[EACH] = {b.x, b.y, b.z, b.w};
#pragma unroll
            for (uint32_t i = 0; i < EACH; i++)
#pragma unroll
                for (uint32_t j = 0; j < EACH; j++) sums[i][j] = __fmaf_rn(of_row[i], of_out[j], sums[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (uint32_t i = 0; i < EACH; i++)
#pragma unroll
        for (uint32_t j = 0; j < EACH; j++) {
            const uint32_t n = row + own_row + i, o = out + own_out + j;
            if (n >= rows || o >= outs) continue;
            float* y = y_no + (size_t)n * outs + o;
            *y = adds ? *y + sums[i][j] : sums[i][j];
        }
}

} // namespace product_f32
