// The key/value rows that each query row attends to: fulmar-kernel's Spans, with the number of keys before each range, so that a
// key is found by its number.
#pragma once
#include "device.cuh"

namespace spans {

// The keys of one query row, numbered in the order of its ranges.
struct Keys {
    const uint2* ranges; // the first row of a range, and the number of keys before it
    uint32_t num_ranges, count;

    // rows_n holds the end of a row's ranges in ranges_r, and its number of keys.
    __device__ __forceinline__ Keys(const uint2* rows_n, const uint2* ranges_r, uint32_t n) {
        const uint32_t first = n == 0 ? 0 : rows_n[n - 1].x;
        const uint2 own = rows_n[n];
        ranges = ranges_r + first;
        num_ranges = own.x - first;
        count = own.y;
    }

    // Returns the row of key number `index`, which must be below `count`: that of the last range that begins at or before it.
    __device__ __forceinline__ uint32_t row(uint32_t index) const {
        uint32_t first = 0, end = num_ranges;
        while (end - first > 1) {
            const uint32_t middle = (first + end) / 2;
            if (ranges[middle].y <= index)
                first = middle;
            else
                end = middle;
        }
        return ranges[first].x + (index - ranges[first].y);
    }

    // Returns which of the 32 key/value rows from `first_row` on are among the keys, the first one in the lowest bit.
    __device__ __forceinline__ uint32_t seen(uint32_t first_row) const {
        uint32_t seen = 0;
        for (uint32_t range = 0; range < num_ranges; range++) {
            const uint32_t first = ranges[range].x, end = first + len(range);
            if (end <= first_row || first >= first_row + 32) continue;
            const uint32_t from = max(first, first_row) - first_row, to = min(end - first_row, 32u);
            seen |= (uint32_t)((1ull << to) - (1ull << from));
        }
        return seen;
    }

  private:
    // Returns the number of rows of a range.
    __device__ __forceinline__ uint32_t len(uint32_t range) const {
        return (range + 1 < num_ranges ? ranges[range + 1].y : count) - ranges[range].y;
    }
};

} // namespace spans
