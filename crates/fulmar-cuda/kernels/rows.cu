// Rows of a matrix of elements of 1, 2, 4 or 8 bytes, moved by their numbers or added, and what else touches each element once. The
// driver copies elements, and fills those of 1, 2 and 4 bytes: cuMemcpyDtoDAsync, cuMemsetD8Async, D16 and D32.
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

// to[index] += from[n] for each n of an index, in order: so sums have the order of the rows without atomics. A plan lists the U
// different indices, and their rows: those of index_u[u] are rows_n[ends_u[u - 1]] to rows_n[ends_u[u] - 1], rising. One block an
// index.
KERNEL(scatter_add_rows, THREADS,
       (const float* from_nw, const uint32_t* index_u, const uint32_t* ends_u, const uint32_t* rows_n, uint32_t width,
        float* to)) {
    const uint32_t first = blockIdx.x == 0 ? 0 : ends_u[blockIdx.x - 1], end = ends_u[blockIdx.x];
    float* row = to + (size_t)index_u[blockIdx.x] * width;
    for (uint32_t at = threadIdx.x; at < width; at += THREADS) {
        float sum = row[at];
        for (uint32_t n = first; n < end; n++) sum += from_nw[(size_t)rows_n[n] * width + at];
        row[at] = sum;
    }
}

// x[i] *= by. Any number of blocks.
KERNEL(scale, THREADS, (float* x, float by, uint64_t len)) {
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS) x[at] *= by;
}

// y[i] = a x[i] + b y[i]. Any number of blocks.
KERNEL(mix, THREADS, (const float* x, float* y, float a, float b, uint64_t len)) {
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS)
        y[at] = a * x[at] + b * y[at];
}

// x[i] = value. Any number of blocks.
KERNEL(fill_8, THREADS, (uint64_t* to, uint64_t value, uint64_t len)) {
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS)
        to[at] = value;
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
