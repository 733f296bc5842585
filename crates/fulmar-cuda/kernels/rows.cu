// Rows of a matrix of elements of 1, 2, 4 or 8 bytes, moved by their numbers, and what else touches each element once.
#include "device.cuh"

namespace rows {

constexpr uint32_t THREADS = 256;

// to[n] = from[index[n]] for each n < N. One block of threads a row.
template <class T>
__device__ void gather(const T* from, const uint32_t* index_n, T* to_nw, uint32_t width) {
    const T* row = from + (size_t)index_n[blockIdx.x] * width;
    T* to = to_nw + (size_t)blockIdx.x * width;
    for (uint32_t at = threadIdx.x; at < width; at += THREADS) to[at] = row[at];
}

// to[index[n]] = from[n] for each n < N; each number is in index once at most. One block of threads a row.
template <class T>
__device__ void scatter(const T* from_nw, const uint32_t* index_n, T* to, uint32_t width) {
    const T* from = from_nw + (size_t)blockIdx.x * width;
    T* row = to + (size_t)index_n[blockIdx.x] * width;
    for (uint32_t at = threadIdx.x; at < width; at += THREADS) row[at] = from[at];
}

KERNEL(gather_rows_1, THREADS, (const uint8_t* from, const uint32_t* index_n, uint8_t* to_nw, uint32_t width)) {
    gather(from, index_n, to_nw, width);
}
KERNEL(gather_rows_2, THREADS, (const uint16_t* from, const uint32_t* index_n, uint16_t* to_nw, uint32_t width)) {
    gather(from, index_n, to_nw, width);
}
KERNEL(gather_rows_4, THREADS, (const uint32_t* from, const uint32_t* index_n, uint32_t* to_nw, uint32_t width)) {
    gather(from, index_n, to_nw, width);
}
KERNEL(gather_rows_8, THREADS, (const uint64_t* from, const uint32_t* index_n, uint64_t* to_nw, uint32_t width)) {
    gather(from, index_n, to_nw, width);
}
KERNEL(scatter_rows_1, THREADS, (const uint8_t* from_nw, const uint32_t* index_n, uint8_t* to, uint32_t width)) {
    scatter(from_nw, index_n, to, width);
}
KERNEL(scatter_rows_2, THREADS, (const uint16_t* from_nw, const uint32_t* index_n, uint16_t* to, uint32_t width)) {
    scatter(from_nw, index_n, to, width);
}
KERNEL(scatter_rows_4, THREADS, (const uint32_t* from_nw, const uint32_t* index_n, uint32_t* to, uint32_t width)) {
    scatter(from_nw, index_n, to, width);
}
KERNEL(scatter_rows_8, THREADS, (const uint64_t* from_nw, const uint32_t* index_n, uint64_t* to, uint32_t width)) {
    scatter(from_nw, index_n, to, width);
}

// x[i] *= by. Any number of blocks.
KERNEL(scale, THREADS, (float* x, float by, uint64_t len)) {
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS) x[at] *= by;
}

// Lowers *first to the place of the first NaN or infinity of x; the caller begins with the largest number. Any number of blocks.
KERNEL(first_non_finite, THREADS, (const float* x, uint32_t len, uint32_t* first)) {
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS) {
        if ((__float_as_uint(x[at]) & 0x7f800000) != 0x7f800000) continue;
        atomicMin(first, (uint32_t)at);
        break;
    }
}

} // namespace rows
