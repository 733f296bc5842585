// Rows of a table [V, D] by ids, with the bits of fulmar-kernel's embedding.rs. The table's gradient is scatter_add_rows of rows.cu.
#include "bf16.cuh"

namespace embedding {

constexpr uint32_t THREADS = 256;

struct alignas(8) Halves4 {
    uint16_t x, y, z, w;
};

// Four numbers of a row, which begin at a multiple of their size.
__device__ __forceinline__ float4 four(const float* from) { return *(const float4*)from; }
__device__ __forceinline__ float4 four(const uint16_t* from) {
    const Halves4 bits = *(const Halves4*)from;
    return {widened(bits.x), widened(bits.y), widened(bits.z), widened(bits.w)};
}

// out[n] = table[id[n]]. One block of threads a row.
template <class T>
__device__ void embed(const T* table_vd, const uint32_t* ids_n, float* out_nd, uint32_t width) {
    const T* from = table_vd + (size_t)ids_n[blockIdx.x] * width;
    float* out = out_nd + (size_t)blockIdx.x * width;
    if (width % 4 == 0 && (uintptr_t)table_vd % (4 * sizeof(T)) == 0) {
        for (uint32_t d = threadIdx.x * 4; d < width; d += THREADS * 4) *(float4*)(out + d) = four(from + d);
    } else {
        for (uint32_t d = threadIdx.x; d < width; d += THREADS) out[d] = number(from[d]);
    }
}

KERNEL(embed_f32, THREADS, (const float* table_vd, const uint32_t* ids_n, float* out_nd, uint32_t width)) {
    embed(table_vd, ids_n, out_nd, width);
}
KERNEL(embed_bf16, THREADS, (const uint16_t* table_vd, const uint32_t* ids_n, float* out_nd, uint32_t width)) {
    embed(table_vd, ids_n, out_nd, width);
}

} // namespace embedding
