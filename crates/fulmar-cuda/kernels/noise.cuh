// Gumbel noise of ids, with the words of fulmar-core's Philox4x32-10 and the keys of fulmar-objective's gumbel.rs.
#pragma once
#include "libm.cuh"

namespace noise {

// Four random words.
struct Words {
    uint32_t a, b, c, d;

    __device__ __forceinline__ uint32_t at(uint32_t place) const { return place < 2 ? (place == 0 ? a : b) : (place == 2 ? c : d); }
};

// The noise of one draw: word v of a stream is that of id v. Two words each, the low one first, in memory: registers are few.
struct Noise {
    const uint32_t *key, *stream;

    // Returns the words of ids 4 block, ..., 4 block + 3.
    __device__ __forceinline__ Words words(uint32_t block) const {
        Words x{block, 0, stream[0], stream[1]};
        uint32_t key0 = key[0], key1 = key[1];
        for (uint32_t round = 0; round < 10; round++) {
            const uint64_t first = (uint64_t)0xd2511f53 * x.a, second = (uint64_t)0xcd9e8d57 * x.c;
            x = {(uint32_t)(second >> 32) ^ x.b ^ key0, (uint32_t)second, (uint32_t)(first >> 32) ^ x.d ^ key1, (uint32_t)first};
            key0 += 0x9e3779b9, key1 += 0xbb67ae85;
        }
        return x;
    }
};

// Returns -ln(-ln(1 - u)) for the uniform number u of a word.
__device__ inline double gumbel(uint32_t word) { return -log64(-log1p64(-(((double)word + 0.5) / 4294967296.0))); }

// Returns a number above gumbel(word), and within 0.1 of it where that matters: the bits of a float are its logarithm to base 2, at
// most 0.09 too small, and -ln(1 - u) > u.
__device__ __forceinline__ float above(uint32_t word) {
    const float scaled = (float)(int32_t)(word >> 1) + 0.25f; // 2^31 u or less
    const float log2 = (float)(int32_t)__float_as_uint(scaled) * (1.0f / 8388608.0f) - 127.0f;
    return (31.0f - log2) * 0.6931472f + 1e-3f;
}

} // namespace noise
