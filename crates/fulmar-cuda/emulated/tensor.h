// Tensor-core products and copies to shared memory, for the processor: see ../kernels/device.cuh. Part of threads.h.
#pragma once
#include "threads.h"

namespace emulated {

// Ends the process unless `size` bytes from `at` are shared memory of the block, at a multiple of `size`.
inline void must_be_shared(const char* of, const void* at, uint32_t size, int line) {
    const uint64_t offset = (uint64_t)((const unsigned char*)at - current->block->shared);
    if (offset + size > launch->shared_bytes) fail("line %d: %s outside of the shared memory of its block", line, of);
    if ((uintptr_t)at % size) fail("line %d: %s at an address that is not a multiple of %u", line, of, size);
}

inline float of_bf16(uint32_t bits) {
    const uint32_t wide = bits << 16;
    float value;
    std::memcpy(&value, &wide, sizeof(value));
    return value;
}

// Element number `index` of two 16-bit elements in a word.
inline uint32_t half_of(uint32_t word, uint32_t index) { return word >> (index * 16) & 0xffff; }

// Ends a copy: what it brings is there now.
inline void finish(const Copy& copy) {
    if (!copy.from) {
        std::memset(copy.to, 0, copy.size);
        return;
    }
    if (std::memcmp(copy.from, copy.bytes, copy.size)) fail("the source of a copy was written while it was under way");
    std::memcpy(copy.to, copy.bytes, copy.size);
}

} // namespace emulated

// Rounds 2^x once; hardware has the last bit otherwise.
inline float fast_exp2(float x) {
    const float value = (float)std::exp2((double)x);
    return value < 0x1p-126f ? 0.0f : value;
}

inline uint32_t rounded_pair(float first, float second) {
    uint32_t word = 0;
    for (const float x : {second, first}) {
        uint32_t bits;
        std::memcpy(&bits, &x, sizeof(bits));
        const bool is_nan = (bits & 0x7fffffff) > 0x7f800000;
        word = word << 16 | (is_nan ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    return word;
}

// Sums 16 products in double precision, in order, and rounds once with what `d` holds. Hardware rounds otherwise.
inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], int line = __builtin_LINE()) {
    emulated::Fiber* fiber = emulated::current;
    const uint32_t parity = emulated::next_parity("a product", line), quad = fiber->lane / 4, pair = fiber->lane % 4 * 2;
    auto& left = fiber->warp->left[parity];
    auto& right = fiber->warp->right[parity];
    for (uint32_t half = 0; half < 2; half++) {
        for (uint32_t word = 0; word < 4; word++)
            left[quad + word % 2 * 8][pair + half + word / 2 * 8] = emulated::of_bf16(emulated::half_of(a[word], half));
        for (uint32_t word = 0; word < 2; word++)
            right[pair + half + word * 8][quad] = emulated::of_bf16(emulated::half_of(b[word], half));
    }
    emulated::wait(fiber->warp->barrier, line);
    using Columns = double __attribute__((vector_size(16)));
    Columns sums[2] = {};
    for (uint32_t k = 0; k < 16; k++)
        for (uint32_t i = 0; i < 2; i++) sums[i] += left[quad + i * 8][k] * *(const Columns*)&right[k][pair];
    for (uint32_t i = 0; i < 4; i++) d[i] = (float)(d[i] + sums[i / 2][i % 2]);
}

// A lane reads the row that it names when it comes here, so what other lanes write later is missed.
template <bool IS_TRANSPOSED = false, int COUNT>
void load_matrices(uint32_t (&to)[COUNT], const void* row, int line = __builtin_LINE()) {
    static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4);
    emulated::Fiber* fiber = emulated::current;
    auto& rows = fiber->warp->rows[emulated::next_parity("a load of matrices", line)];
    if (fiber->lane < COUNT * 8) {
        emulated::must_be_shared("a row of a matrix", row, sizeof(rows[0]), line);
        std::memcpy(rows[fiber->lane], row, sizeof(rows[0]));
    }
    emulated::wait(fiber->warp->barrier, line);
    const uint32_t own = fiber->lane / 4, pair = fiber->lane % 4 * 2;
    for (uint32_t matrix = 0; matrix < COUNT; matrix++) {
        uint32_t word = 0;
        for (uint32_t i = 0; i < 2; i++) {
            const uint32_t r = IS_TRANSPOSED ? pair + i : own, c = IS_TRANSPOSED ? own : pair + i;
            word |= (uint32_t)rows[matrix * 8 + r][c] << (i * 16);
        }
        to[matrix] = word;
    }
}

// A copy comes as late as it may, at its wait; its place is lost as early as it may be, when the copy begins.
template <int SIZE>
void copy_async(void* to, const void* from, bool is_there, int line = __builtin_LINE()) {
    static_assert(SIZE == 4 || SIZE == 8 || SIZE == 16);
    emulated::must_be_shared("a copy", to, SIZE, line);
    if ((uintptr_t)from % SIZE) emulated::fail("line %d: a copy from an address that is not a multiple of %d", line, SIZE);
    emulated::Fiber* fiber = emulated::current;
    emulated::Copy copy{(unsigned char*)to, is_there ? (const unsigned char*)from : nullptr, {}, SIZE, fiber->num_groups};
    if (is_there) std::memcpy(copy.bytes, from, SIZE);
    std::memset(to, 0xff, SIZE);
    fiber->copies.push_back(copy);
}

inline void copies_commit() { emulated::current->num_groups++; }

template <int LEFT>
void copies_wait() {
    emulated::Fiber* fiber = emulated::current;
    auto is_waited_for = [&](const emulated::Copy& copy) { return copy.group + LEFT < fiber->num_groups; };
    for (const emulated::Copy& copy : fiber->copies)
        if (is_waited_for(copy)) emulated::finish(copy);
    fiber->copies.erase(std::remove_if(fiber->copies.begin(), fiber->copies.end(), is_waited_for), fiber->copies.end());
}
