// The largest of many numbers without sorting them, in the order of fulmar-kernel's top_k.rs: larger numbers first, then NaNs; 0 and
// -0 are equal. And elements of a row in order, found by warps that have a part of it each.
#pragma once
#include "lanes.cuh"

constexpr uint32_t WARP = 32, BINS = 256; // values of a digit of the radix selection

// Returns bits that rise with the number: 0 for a NaN, and the same for 0 and -0.
__device__ __forceinline__ uint32_t rising(float x) {
    if (x != x) return 0;
    const uint32_t bits = x == 0.0f ? 0 : __float_as_uint(x);
    return bits >> 31 ? ~bits : bits | 0x80000000;
}

// Returns the number of rising bits; 0 for -0.
__device__ __forceinline__ float of_rising(uint32_t bits) { return __uint_as_float(bits >> 31 ? bits & 0x7fffffff : ~bits); }

constexpr uint32_t HISTOGRAMS = 8; // warps count in several, so that fewer wait for each other

// Words of shared memory that kth_largest takes.
constexpr uint32_t SELECT_WORDS = HISTOGRAMS * BINS + 2;

// The rising bits of the k-th largest number, and how many numbers are larger.
struct Bar {
    uint32_t bits, num_above;
};

// Returns, in each thread of the block, the bar of the k-th largest of `len` numbers, k from 1 to len: one digit of its bits after
// the other, from the first on, by the counts of each digit.
template <uint32_t THREADS>
__device__ Bar kth_largest(const float* x, uint32_t len, uint32_t k, uint32_t* words) {
    static_assert(THREADS >= BINS, "a bin has a thread");
    uint32_t *own = words + threadIdx.x / WARP % HISTOGRAMS * BINS, *found = words + HISTOGRAMS * BINS;
    Bar bar{0, 0};
    for (uint32_t shift = 24, known = 0; known != ~0u; known |= (BINS - 1) << shift, shift -= 8) {
        for (uint32_t bin = threadIdx.x; bin < HISTOGRAMS * BINS; bin += THREADS) words[bin] = 0;
        __syncthreads(); // all bins are empty
        for (uint32_t at = threadIdx.x; at < len; at += THREADS) {
            const uint32_t bits = rising(x[at]);
            if ((bits & known) == bar.bits) atomicAdd(own + (bits >> shift) % BINS, 1u);
        }
        __syncthreads(); // all numbers are counted
        uint32_t count = 0;
        if (threadIdx.x < BINS) {
            for (uint32_t bin = threadIdx.x; bin < HISTOGRAMS * BINS; bin += BINS) count += words[bin];
            words[threadIdx.x] = count;
        }
        __syncthreads(); // the counts of warps are added
        uint32_t above = bar.num_above;
        for (uint32_t bin = threadIdx.x + 1; bin < BINS; bin++) above += words[bin];
        if (above < k && above + count >= k) found[0] = threadIdx.x, found[1] = above;
        __syncthreads(); // the digit is found
        bar = {bar.bits | found[0] << shift, found[1]};
    }
    return bar;
}

// The elements of a warp: from `first` to below `end`.
struct Part {
    uint32_t first, end;
};

template <uint32_t THREADS>
__device__ __forceinline__ Part part_of_warp(uint32_t len) {
    const uint32_t each = (len + THREADS - 1) / THREADS * WARP, first = min(threadIdx.x / WARP * each, len);
    return {first, min(first + each, len)};
}

// Calls take(at, ballot) in each lane for elements of the part in order; bit i of the ballot is whether element number `at` - lane + i
// has `is`.
template <class Is, class Take>
__device__ __forceinline__ void walk(Part part, Is is, Take take) {
    for (uint32_t first = part.first; first < part.end; first += WARP) {
        const uint32_t at = first + threadIdx.x % WARP;
        take(at, __ballot_sync(ALL, at < part.end && is(at)));
    }
}

// Returns how many elements that have `is` are before the part of this warp; `counts` has one word a warp.
template <class Is>
__device__ __forceinline__ uint32_t num_before(Part part, Is is, uint32_t* counts) {
    uint32_t own = 0, before = 0;
    walk(part, is, [&](uint32_t, uint32_t ballot) { own += __popc(ballot); });
    if (threadIdx.x % WARP == 0) counts[threadIdx.x / WARP] = own;
    __syncthreads(); // all warps have counted
    for (uint32_t warp = 0; warp < threadIdx.x / WARP; warp++) before += counts[warp];
    return before;
}

// Returns how many lanes below this one are in the ballot.
__device__ __forceinline__ uint32_t num_below(uint32_t ballot) { return __popc(ballot & ((1u << threadIdx.x % WARP) - 1)); }

// Lists the k largest of `len` numbers, k from 1 to len, in any order: their rising bits above the complement of their place, so that
// a larger word is an earlier number. `words`: SELECT_WORDS.
template <uint32_t THREADS>
__device__ void list_largest(const float* x, uint32_t len, uint32_t k, uint64_t* list, uint32_t* words) {
    const Bar bar = kth_largest<THREADS>(x, len, k, words);
    const Part part = part_of_warp<THREADS>(len);
    auto ties = [&](uint32_t at) { return rising(x[at]) == bar.bits; };
    uint32_t *num_listed = words, *counts = words + 1;
    if (threadIdx.x == 0) *num_listed = 0;
    uint32_t place = bar.num_above + num_before(part, ties, counts); // of the next element that ties with the k-th
    walk(part, ties, [&](uint32_t at, uint32_t ballot) {
        const uint32_t bits = at < part.end ? rising(x[at]) : 0;
        const bool is_tie = ballot >> threadIdx.x % WARP & 1;
        if (bits > bar.bits || (is_tie && place + num_below(ballot) < k))
            list[atomicAdd(num_listed, 1u)] = (uint64_t)bits << 32 | (uint32_t)~at;
        place += __popc(ballot);
    });
    __syncthreads(); // the list is there, in any order
}

// Returns how many words of a list are larger than number i.
__device__ __forceinline__ uint32_t rank_of(const uint64_t* list, uint32_t len, uint32_t i) {
    uint32_t rank = 0;
    for (uint32_t other = 0; other < len; other++) rank += list[other] > list[i];
    return rank;
}
