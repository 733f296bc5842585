// Products of bfloat16 matrices by tensor cores: y = x w^T for y [N, O], x [N, K], w [O, K], and the same with one or both operands
// stored as their columns.
//
// The order of a sum is a function of K alone: K is cut into parts of part_of(K) inputs, at most 8. A part is summed 16 inputs at a
// time into one accumulator from 0 on, the last of them padded by zeros, and the parts are added in order. So a row has the same
// bits in every kernel of this file, in any batch. Weights are the left operand, because rows may be few.
//
// What follows a sum is done in f32 before the one rounding of a result: a bias, what an f32 result held, the gated activation. So
// its bits are those of the plain product followed by the kernel of that operation.
#include "bf16.cuh"
#include "lanes.cuh"
#include "swiglu.cuh"

namespace product {

constexpr uint32_t STEP = 16, DEPTH = 64, PARTS_MAX = 8; // inputs of an instruction, inputs of a stage, parts
constexpr uint32_t WARP = 32, THREADS = 256, WARPS = THREADS / WARP;

__device__ __forceinline__ uint32_t part_of(uint32_t inner) {
    return max(512u, (inner + PARTS_MAX * DEPTH - 1) / (PARTS_MAX * DEPTH) * DEPTH);
}

// A matrix as it is stored: lines of `len` elements.
struct Matrix {
    const uint16_t* first;
    uint32_t lines, len;
    bool is_wide; // every line begins at a multiple of 16 bytes

    __device__ __forceinline__ Matrix(const uint16_t* first, uint32_t lines, uint32_t len)
        : first(first), lines(lines), len(len), is_wide(((uintptr_t)first | len * 2) % 16 == 0) {}

    // Begins to copy elements [at, at + 8) of a line to shared memory; zeros where there are none.
    __device__ __forceinline__ void copy(uint16_t* to, uint32_t line, uint32_t at) const {
        const uint16_t* from = first + (size_t)line * len + at;
        if (is_wide) {
            const bool is_there = line < lines && at < len;
            copy_async<16>(to, is_there ? from : first, is_there);
            return;
        }
        for (uint32_t i = 0; i < 8; i++) to[i] = line < lines && at + i < len ? from[i] : (uint16_t)0;
    }
};

// Two matrices of one shape as one: EACH lines of the first, EACH of the second, and so on.
template <uint32_t EACH>
struct Pairs {
    Matrix first, second;

    __device__ __forceinline__ void copy(uint16_t* to, uint32_t line, uint32_t at) const {
        const uint32_t own = line / (2 * EACH) * EACH + line % EACH;
        if (line / EACH % 2 == 0)
            first.copy(to, own, at);
        else
            second.copy(to, own, at);
    }
};

// An operand of COUNT outputs or rows and a stage of inputs in shared memory: a line for each of them, or, with IS_COLUMNS, a line
// for each input, as the operand is stored.
template <uint32_t COUNT, bool IS_COLUMNS>
struct Operand {
    static constexpr uint32_t LEN = IS_COLUMNS ? COUNT : DEPTH, LINES = IS_COLUMNS ? DEPTH : COUNT;
    static constexpr uint32_t STRIDE = LEN + 8; // 8 lines are in different banks
    static constexpr uint32_t SIZE = LINES * STRIDE;

    // Begins to copy 8 elements, number `at` of COUNT * DEPTH / 8, of outputs or rows from `first` on and inputs from k on.
    template <class From>
    static __device__ __forceinline__ void copy(const From& from, uint16_t* tile, uint32_t at, uint32_t first, uint32_t k) {
        const uint32_t line = at / (LEN / 8), place = at % (LEN / 8) * 8;
        from.copy(tile + line * STRIDE + place, (IS_COLUMNS ? k : first) + line, (IS_COLUMNS ? first : k) + place);
    }

    // Loads the left operand's 16 outputs from `row` on at 16 inputs from k on.
    static __device__ __forceinline__ void left(uint32_t (&words)[4], const uint16_t* tile, uint32_t row, uint32_t k) {
        const uint32_t lane = threadIdx.x % WARP, r = lane % 8, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
        load_matrices<IS_COLUMNS>(words, tile + place(row + low, k + high, r));
    }

    // Loads the right operand's 16 rows from `row` on at 16 inputs from k on: two words for each 8 rows.
    static __device__ __forceinline__ void right(uint32_t (&words)[4], const uint16_t* tile, uint32_t row, uint32_t k) {
        const uint32_t lane = threadIdx.x % WARP, r = lane % 8, low = lane / 8 % 2 * 8, high = lane / 16 * 8;
        load_matrices<IS_COLUMNS>(words, tile + place(row + high, k + low, r));
    }

    // The same for 8 rows.
    static __device__ __forceinline__ void right(uint32_t (&words)[2], const uint16_t* tile, uint32_t row, uint32_t k) {
        const uint32_t lane = threadIdx.x % WARP, r = lane % 8, low = lane / 8 % 2 * 8;
        load_matrices<IS_COLUMNS>(words, tile + place(row, k + low, r));
    }

  private:
    // Line number r of the matrix [8, 8] of outputs or rows from `row` on and inputs from k on.
    static __device__ __forceinline__ uint32_t place(uint32_t row, uint32_t k, uint32_t r) {
        return IS_COLUMNS ? (k + r) * STRIDE + row : (row + r) * STRIDE + k;
    }
};

// Number of steps in the stage that begins at input k.
__device__ __forceinline__ uint32_t steps_of(uint32_t inner, uint32_t k) { return (min(inner - k, DEPTH) + STEP - 1) / STEP; }

// The result of a product, [N, O]: with a bias of outputs, or added to what it holds.
template <class T>
struct Result {
    T* y_no;
    const float* bias_o; // or null
    uint32_t rows, outs, adds;

    __device__ __forceinline__ void put(uint32_t o, uint32_t n, float sum) const {
        if (o >= outs || n >= rows) return;
        T* y = y_no + (size_t)n * outs + o;
        store(y, bias_o == nullptr ? sum : sum + bias_o[o]);
    }

  private:
    __device__ __forceinline__ void store(float* y, float value) const { *y = adds ? *y + value : value; }
    __device__ __forceinline__ void store(uint16_t* y, float value) const { ::put(y, value); }
};

// The gated activation of two products, [N, I], and its two inputs, if there is a place for them.
struct Gated {
    float *gate_ni, *up_ni; // or null
    uint16_t* act_ni;
    uint32_t rows, width;

    __device__ __forceinline__ void put(uint32_t i, uint32_t n, float gate, float up) const {
        if (i >= width || n >= rows) return;
        const size_t at = (size_t)n * width + i;
        if (gate_ni != nullptr) gate_ni[at] = gate, up_ni[at] = up;
        ::put(act_ni + at, gated(gate, up));
    }
};

// A product of rows: its weight, its result and the bias of that.
template <class T>
struct Product {
    const uint16_t* w_ok;
    const float* bias_o;
    T* y_no;
    uint32_t outs;

    __device__ __forceinline__ uint32_t blocks(uint32_t outs_each) const { return (outs + outs_each - 1) / outs_each; }
};

// Returns the product that block number `block` of a launch computes for `outs_each` outputs; `block` becomes its number there.
template <class T>
__device__ __forceinline__ Product<T> product_of(uint32_t& block, uint32_t outs_each, const Product<T>& first,
                                                 const Product<T>& second, const Product<T>& third) {
    if (block < first.blocks(outs_each)) return first;
    block -= first.blocks(outs_each);
    if (block < second.blocks(outs_each)) return second;
    block -= second.blocks(outs_each);
    return third;
}

constexpr uint32_t OUTS = 128, STAGES = 3;        // of a block with many rows
constexpr uint32_t OUTS_EACH = 32, ROW_WARPS = 2; // outputs of a warp, warps along the rows

// One block computes OUTS outputs from first_out on of ROWS rows: four warps along the outputs, two along the rows. Left and Right
// are the operands' forms in shared memory. Calls end(o, n, sums) with the sums of row n, those of outputs o and o + 16.
template <uint32_t ROWS, class Left, class Right, class Weights, class End>
__device__ __forceinline__ void many(const Matrix& x, const Weights& w, uint32_t first_out, uint32_t inner, End end) {
    SHARED(shared);
    constexpr uint32_t TILE = Left::SIZE + Right::SIZE, ROWS_EACH = ROWS / ROW_WARPS, LEFT = OUTS_EACH / 16,
                       RIGHT = ROWS_EACH / 8;
    uint16_t* ring = (uint16_t*)shared; // [STAGES, TILE]
    const uint32_t first_row = blockIdx.y * ROWS, warp = threadIdx.x / WARP;
    const uint32_t own_out = warp / ROW_WARPS * OUTS_EACH, own_row = warp % ROW_WARPS * ROWS_EACH;
    auto begin = [&](uint32_t stage, uint32_t k) {
        uint16_t *w_tile = ring + stage * TILE, *x_tile = w_tile + Left::SIZE;
        if (k < inner) {
            for (uint32_t at = threadIdx.x; at < OUTS * DEPTH / 8; at += THREADS) Left::copy(w, w_tile, at, first_out, k);
            for (uint32_t at = threadIdx.x; at < ROWS * DEPTH / 8; at += THREADS) Right::copy(x, x_tile, at, first_row, k);
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
        const uint16_t *w_tile = ring + turn % STAGES * TILE, *x_tile = w_tile + Left::SIZE;
        const uint32_t steps = steps_of(inner, k);
        for (uint32_t step = 0; step < steps; step++) {
            uint32_t left[LEFT][4];
#pragma unroll
            for (uint32_t l = 0; l < LEFT; l++) Left::left(left[l], w_tile, own_out + l * 16, step * STEP);
#pragma unroll
            for (uint32_t r = 0; r < RIGHT; r += 2) {
                uint32_t words[4];
                Right::right(words, x_tile, own_row + r * 8, step * STEP);
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
    for (uint32_t r = 0; r < RIGHT; r++)
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t o = first_out + own_out + group + i / 2 * 8;
            const uint32_t n = first_row + own_row + r * 8 + pair + i % 2;
            const float sums[LEFT] = {total[0][r][i], total[1][r][i]};
            end(o, n, sums);
        }
}

// Gradients of y = x w^T, in the same order of sums over what they sum. Grid: ceil(columns / 128) by ceil(rows / 128) of the result.
template <class Left, class Right>
__device__ __forceinline__ void gradient(const Matrix& x, const Matrix& w, uint32_t inner, const Result<float>& y) {
    many<128, Left, Right>(x, w, blockIdx.x * OUTS, inner, [&](uint32_t o, uint32_t n, const float (&sums)[2]) {
        y.put(o, n, sums[0]);
        y.put(o + 16, n, sums[1]);
    });
}
//   dx = d w, [N, K], sums over the O outputs: the left operand is w, stored as the columns of dx
KERNEL(product_d_w, THREADS,
       (const uint16_t* d_no, const uint16_t* w_ok, float* d_x_nk, uint32_t rows, uint32_t width, uint32_t outs,
        uint32_t adds)) {
    const Matrix d(d_no, rows, outs), w(w_ok, outs, width);
    gradient<Operand<OUTS, true>, Operand<128, false>>(d, w, outs, {d_x_nk, nullptr, rows, width, adds});
}
//   dw = d^T x, [O, K], sums over the N rows: both operands are stored as columns
KERNEL(product_dt_x, THREADS,
       (const uint16_t* d_no, const uint16_t* x_nk, float* d_w_ok, uint32_t outs, uint32_t width, uint32_t rows,
        uint32_t adds)) {
    const Matrix d(d_no, rows, outs), x(x_nk, rows, width);
    gradient<Operand<OUTS, true>, Operand<128, true>>(d, x, rows, {d_w_ok, nullptr, outs, width, adds});
}

constexpr uint32_t FEW_OUTS = 16, FEW_ROWS = 8, FEW_STAGES = 4;

// One block computes 16 outputs from first_out on of 8 rows, one warp a part of their sums. Calls end(o, n, sum) in all lanes of
// four warps; the rows of a warp are two.
template <class Weights, class End>
__device__ __forceinline__ void few(const Matrix& x, const Weights& w, uint32_t first_out, uint32_t inner, End end) {
    SHARED(shared);
    using Left = Operand<FEW_OUTS, false>;
    using Right = Operand<FEW_ROWS, false>;
    constexpr uint32_t TILE = Left::SIZE + Right::SIZE, SUMS = FEW_OUTS * FEW_ROWS;
    float* sums = (float*)shared; // [PARTS_MAX, FEW_ROWS, FEW_OUTS]
    const uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    uint16_t* ring = (uint16_t*)(sums + PARTS_MAX * SUMS) + warp * FEW_STAGES * TILE; // [FEW_STAGES, TILE] of the warp
    const uint32_t first_row = blockIdx.y * FEW_ROWS;
    const uint32_t part_len = part_of(inner), first = warp * part_len, last = min(first + part_len, inner);
    auto begin = [&](uint32_t stage, uint32_t k) {
        uint16_t *w_tile = ring + stage * TILE, *x_tile = w_tile + Left::SIZE;
        if (k < last) {
            for (uint32_t at = lane; at < FEW_OUTS * DEPTH / 8; at += WARP) Left::copy(w, w_tile, at, first_out, k);
            for (uint32_t at = lane; at < FEW_ROWS * DEPTH / 8; at += WARP) Right::copy(x, x_tile, at, first_row, k);
        }
        copies_commit();
    };
    float part[4] = {};
    for (uint32_t stage = 0; stage < FEW_STAGES - 1; stage++) begin(stage, first + stage * DEPTH);
    for (uint32_t k = first, turn = 0; k < last; k += DEPTH, turn++) {
        copies_wait<FEW_STAGES - 2>();
        __syncwarp();
        begin((turn + FEW_STAGES - 1) % FEW_STAGES, k + (FEW_STAGES - 1) * DEPTH);
        const uint16_t *w_tile = ring + turn % FEW_STAGES * TILE, *x_tile = w_tile + Left::SIZE;
        const uint32_t steps = steps_of(last, k);
        for (uint32_t step = 0; step < steps; step++) {
            uint32_t left[4], right[2];
            Left::left(left, w_tile, 0, step * STEP);
            Right::right(right, x_tile, 0, step * STEP);
            mma_bf16(part, left, right);
        }
    }
    copies_wait<0>();
    const uint32_t group = lane / 4, pair = lane % 4 * 2;
    for (uint32_t i = 0; i < 4; i++) sums[warp * SUMS + (pair + i % 2) * FEW_OUTS + group + i / 2 * 8] = part[i];
    __syncthreads();
    if (threadIdx.x >= SUMS) return;
    float total = 0.0f;
    for (uint32_t p = 0; p * part_len < inner; p++) total += sums[p * SUMS + threadIdx.x];
    end(first_out + threadIdx.x % FEW_OUTS, first_row + threadIdx.x / FEW_OUTS, total);
}

// Outputs of a block of ROWS rows.
template <uint32_t ROWS>
constexpr uint32_t OUTS_OF = ROWS == FEW_ROWS ? FEW_OUTS : OUTS;

// Block number `block` of a product of rows by a transposed weight.
template <uint32_t ROWS, class T>
__device__ __forceinline__ void product(const Matrix& x, const Matrix& w, uint32_t block, uint32_t inner, const Result<T>& y) {
    if constexpr (ROWS == FEW_ROWS) {
        few(x, w, block * FEW_OUTS, inner, [&](uint32_t o, uint32_t n, float sum) { y.put(o, n, sum); });
    } else {
        using Left = Operand<OUTS, false>;
        using Right = Operand<ROWS, false>;
        many<ROWS, Left, Right>(x, w, block * OUTS, inner, [&](uint32_t o, uint32_t n, const float (&sums)[2]) {
            y.put(o, n, sums[0]);
            y.put(o + 16, n, sums[1]);
        });
    }
}

// A block of two products of the same rows, half of its outputs of each: gates and what they multiply come together in a thread, or
// in two lanes of a warp.
template <uint32_t ROWS>
__device__ __forceinline__ void product_gated(const Matrix& x, const Matrix& gate, const Matrix& up, uint32_t inner,
                                              const Gated& act) {
    if constexpr (ROWS == FEW_ROWS) {
        constexpr uint32_t EACH = FEW_OUTS / 2;
        const Pairs<EACH> w{gate, up};
        few(x, w, blockIdx.x * FEW_OUTS, inner, [&](uint32_t o, uint32_t n, float sum) {
            const float of_up = __shfl_down_sync(ALL, sum, EACH);
            if (o % FEW_OUTS < EACH) act.put(o / FEW_OUTS * EACH + o % FEW_OUTS, n, sum, of_up);
        });
    } else {
        using Left = Operand<OUTS, false>;
        using Right = Operand<ROWS, false>;
        const Pairs<16> w{gate, up};
        many<ROWS, Left, Right>(x, w, blockIdx.x * OUTS, inner, [&](uint32_t o, uint32_t n, const float (&sums)[2]) {
            act.put(o / 32 * 16 + o % 32, n, sums[0], sums[1]);
        });
    }
}

// y = x w^T. Grid: ceil(O / 128) by ceil(N / ROWS); shared memory: 3 * (128 + ROWS) * 72 elements. Of 8 rows: ceil(O / 16) by
// ceil(N / 8), and 8 * 4 * (16 + 8) * 72 elements with 8 * 16 * 8 floats. With `adds`, an f32 result is added to what y holds.
#define PRODUCT(name, rows_each, type)                                                                            \
    KERNEL(name, THREADS,                                                                                         \
           (const uint16_t* x_nk, const uint16_t* w_ok, type* y_no, uint32_t rows, uint32_t outs, uint32_t inner, \
            uint32_t adds)) {                                                                                     \
        const Matrix x(x_nk, rows, inner), w(w_ok, outs, inner);                                                  \
        product<rows_each>(x, w, blockIdx.x, inner, Result<type>{y_no, nullptr, rows, outs, adds});               \
    }
PRODUCT(product_8, 8, float)
PRODUCT(product_64, 64, float)
PRODUCT(product_128, 128, float)
PRODUCT(product_8_bf16, 8, uint16_t)
PRODUCT(product_64_bf16, 64, uint16_t)
PRODUCT(product_128_bf16, 128, uint16_t)

// Up to three products of the same rows, each plus a bias if there is one; O is 0 for those that are not there. Grid and shared
// memory as above, with the blocks of all three along the first direction.
#define PRODUCT_EACH(name, rows_each, type)                                                                        \
    KERNEL(name, THREADS,                                                                                          \
           (const uint16_t* x_nk, uint32_t rows, uint32_t inner, const uint16_t* w1_ok, const float* bias1_o,      \
            type* y1_no, uint32_t outs1, const uint16_t* w2_ok, const float* bias2_o, type* y2_no, uint32_t outs2, \
            const uint16_t* w3_ok, const float* bias3_o, type* y3_no, uint32_t outs3)) {                           \
        uint32_t block = blockIdx.x;                                                                               \
        const Product<type> first{w1_ok, bias1_o, y1_no, outs1}, second{w2_ok, bias2_o, y2_no, outs2},             \
            third{w3_ok, bias3_o, y3_no, outs3};                                                                   \
        const Product<type> own = product_of(block, OUTS_OF<rows_each>, first, second, third);                     \
        const Matrix x(x_nk, rows, inner), w(own.w_ok, own.outs, inner);                                           \
        product<rows_each>(x, w, block, inner, Result<type>{own.y_no, own.bias_o, rows, own.outs, 0});             \
    }
PRODUCT_EACH(product_each_8, 8, float)
PRODUCT_EACH(product_each_64, 64, float)
PRODUCT_EACH(product_each_128, 128, float)
PRODUCT_EACH(product_each_8_bf16, 8, uint16_t)
PRODUCT_EACH(product_each_64_bf16, 64, uint16_t)
PRODUCT_EACH(product_each_128_bf16, 128, uint16_t)

// act = silu(x gate^T) * (x up^T) for gate and up [I, K], in bfloat16; both products as well, if there is a place for them. Grid and
// shared memory as those of 2 I outputs.
#define PRODUCT_SWIGLU(name, rows_each)                                                                         \
    KERNEL(name, THREADS,                                                                                       \
           (const uint16_t* x_nk, const uint16_t* gate_ik, const uint16_t* up_ik, float* gate_ni, float* up_ni, \
            uint16_t* act_ni, uint32_t rows, uint32_t width, uint32_t inner)) {                                 \
        const Matrix x(x_nk, rows, inner), gate(gate_ik, width, inner), up(up_ik, width, inner);                \
        product_gated<rows_each>(x, gate, up, inner, Gated{gate_ni, up_ni, act_ni, rows, width});               \
    }
PRODUCT_SWIGLU(product_swiglu_8, 8)
PRODUCT_SWIGLU(product_swiglu_64, 64)
PRODUCT_SWIGLU(product_swiglu_128, 128)

} // namespace product
