// Query heads and keys as operands of tensor cores: what the kernels of attention in bfloat16 share.
#pragma once
#include "bf16.cuh"
#include "lanes.cuh"
#include "spans.cuh"

namespace attention {

using spans::Keys;

constexpr uint32_t WARP = 32, SLOTS = 16, STEP = 16; // slots of a warp, inputs of an instruction
constexpr size_t ABSENT = ~(size_t)0;                // the number of a head that is not there

// Query heads of one key/value head in rows [first, end): slot s is head s % G of the group, of row s / G.
struct Slots {
    uint32_t first, end, kv_heads, group, kv_head, from; // `from`: the first slot of the block of threads

    __device__ __forceinline__ uint32_t row(uint32_t slot) const { return first + (from + slot) / group; }
    __device__ __forceinline__ bool is_there(uint32_t slot) const { return row(slot) < end; }
    // Returns the number of the slot's head in [N, H].
    __device__ __forceinline__ size_t head(uint32_t slot) const {
        return ((size_t)row(slot) * kv_heads + kv_head) * group + (from + slot) % group;
    }
};

// Heads of WIDTH elements in shared memory, a line each, with room for two words behind it.
template <uint32_t WIDTH>
struct Lines {
    static constexpr uint32_t STRIDE = WIDTH + 8; // 8 lines are in different banks
    uint16_t* first;

    // Returns the room behind a line.
    __device__ __forceinline__ uint32_t* behind(uint32_t line) const { return (uint32_t*)(first + line * STRIDE + WIDTH); }

    // Begins to copy COUNT heads by a block of THREADS. `number(line)` is that of a line's head, or ABSENT for zeros.
    template <uint32_t COUNT, uint32_t THREADS, class Number>
    __device__ __forceinline__ void begin(const uint16_t* heads, Number number) const {
#pragma unroll 8
        for (uint32_t at = threadIdx.x; at < COUNT * WIDTH / 8; at += THREADS) {
            const uint32_t line = at / (WIDTH / 8), place = at % (WIDTH / 8) * 8;
            const size_t head = number(line);
            const bool is_there = head != ABSENT;
            copy_async<16>(first + line * STRIDE + place, heads + (is_there ? head * WIDTH : 0) + place, is_there);
        }
    }

    // Loads 16 lines at 16 elements as rows of the left operand.
    __device__ __forceinline__ void left(uint32_t (&words)[4], uint32_t line, uint32_t e) const {
        const uint32_t lane = threadIdx.x % WARP;
        load_matrices(words, first + (line + lane % 16) * STRIDE + e + lane / 16 * 8);
    }

    // Loads 16 lines at 16 elements as columns of the right operand: two words for each 8 of them.
    __device__ __forceinline__ void columns(uint32_t (&words)[2][2], uint32_t line, uint32_t e) const {
        const uint32_t lane = threadIdx.x % WARP;
        load<false>(words, first + (line + lane % 8 + lane / 16 * 8) * STRIDE + e + lane / 8 % 2 * 8);
    }

    // Loads 16 lines at 16 elements as inputs of the right operand: two words for each 8 elements.
    __device__ __forceinline__ void inputs(uint32_t (&words)[2][2], uint32_t line, uint32_t e) const {
        const uint32_t lane = threadIdx.x % WARP;
        load<true>(words, first + (line + lane % 8 + lane / 8 % 2 * 8) * STRIDE + e + lane / 16 * 8);
    }

  private:
    template <bool IS_TRANSPOSED>
    static __device__ __forceinline__ void load(uint32_t (&words)[2][2], const uint16_t* row) {
        uint32_t four[4];
        load_matrices<IS_TRANSPOSED>(four, row);
        words[0][0] = four[0], words[0][1] = four[1], words[1][0] = four[2], words[1][1] = four[3];
    }
};

// Makes the left operand of a product of two results beside each other, [16, 8] each, rounded to bfloat16.
__device__ __forceinline__ void rounded_left(uint32_t (&words)[4], const float (&a)[4], const float (&b)[4]) {
    words[0] = rounded_pair(a[0], a[1]), words[1] = rounded_pair(a[2], a[3]);
    words[2] = rounded_pair(b[0], b[1]), words[3] = rounded_pair(b[2], b[3]);
}

// Adds to s [16, COUNT] the products of 16 lines of `left` from `line` on with all lines of `right`.
template <uint32_t COUNT, uint32_t WIDTH>
__device__ __forceinline__ void products(float (&s)[COUNT / 8][4], const Lines<WIDTH>& left, uint32_t line,
                                         const Lines<WIDTH>& right) {
#pragma unroll
    for (uint32_t e = 0; e < WIDTH; e += STEP) {
        uint32_t rows[4], columns[2][2];
        left.left(rows, line, e);
#pragma unroll
        for (uint32_t i = 0; i < COUNT; i += 16) {
            right.columns(columns, i, e);
            mma_bf16(s[i / 8], rows, columns[0]);
            mma_bf16(s[i / 8 + 1], rows, columns[1]);
        }
    }
}

// Adds to sums [16, COLUMNS] the products of `factors` [16, COUNT], rounded to bfloat16, with elements of the lines of `right` from
// number `column` on.
template <uint32_t COUNT, uint32_t COLUMNS, uint32_t WIDTH>
__device__ __forceinline__ void add_products(float (&sums)[COLUMNS][4], const float (&factors)[COUNT / 8][4],
                                             const Lines<WIDTH>& right, uint32_t column) {
#pragma unroll
    for (uint32_t i = 0; i < COUNT; i += STEP) {
        uint32_t rows[4], columns[2][2];
        rounded_left(rows, factors[i / 8], factors[i / 8 + 1]);
#pragma unroll
        for (uint32_t e = 0; e < COLUMNS; e += 2) {
            right.inputs(columns, i, column + e * 8);
            mma_bf16(sums[e], rows, columns[0]);
            mma_bf16(sums[e + 1], rows, columns[1]);
        }
    }
}

} // namespace attention
