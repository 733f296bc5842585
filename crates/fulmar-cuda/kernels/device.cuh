// The words that kernels are written in. nvcc compiles them for GPUs; with FULMAR_EMULATED g++ compiles the same kernels for
// the processor, see ../emulated/.
#pragma once
#include <cstdint>
#ifdef FULMAR_EMULATED
#include "../emulated/threads.h"
#else

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define CLUSTERED(cluster)
#else
#define CLUSTERED(cluster) __cluster_dims__(cluster, 1, 1)
#endif

// Defines a kernel for blocks of up to `threads` threads.
#define KERNEL(name, threads, args) extern "C" __global__ void __launch_bounds__(threads) name args

// Defines a kernel whose blocks run in clusters. It needs compute capability 9.0: below, it is there and ends with a trap.
#define CLUSTER_KERNEL(name, threads, cluster, args) \
    extern "C" __global__ void __launch_bounds__(threads) CLUSTERED(cluster) name args

// Names the shared memory of the block, whose size comes with the launch.
#define SHARED(name) extern __shared__ __align__(128) unsigned char name[]

// Returns the number of this block in its cluster.
__device__ __forceinline__ uint32_t cluster_rank() {
    uint32_t rank = 0;
#if __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
#else
    __trap();
#endif
    return rank;
}

// Waits for all threads of the cluster.
__device__ __forceinline__ void cluster_sync() {
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive;\nbarrier.cluster.wait;" ::: "memory");
#endif
}

// Reads the float of another block of the cluster that has the place of `own` in the shared memory of this block.
__device__ __forceinline__ float shared_of(const float* own, uint32_t rank) {
    float value = 0.0f;
#if __CUDA_ARCH__ >= 900
    uint32_t address = (uint32_t)__cvta_generic_to_shared(own), remote;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(remote) : "memory");
#endif
    return value;
}

// Returns 2^x with a relative error of at most 2^-22: exactly 1 for 0, 0 far below, NaN for NaN.
__device__ __forceinline__ float fast_exp2(float x) {
    float value;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(value) : "f"(x));
    return value;
}

// Rounds two numbers to bfloat16, to the nearest, ties to even: neighbours in a word.
__device__ __forceinline__ uint32_t rounded_pair(float first, float second) {
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
}

// Adds to d, f32 [16, 8], the product of a, bf16 [16, 16], and b, bf16 [16, 8], whose columns are rows of memory. The whole warp
// calls it. With g = lane / 4 and p = lane % 4 * 2, two neighbours a word, a lane holds
//   of a: rows g, g + 8, g, g + 8 at inputs p, p, p + 8, p + 8      of b: column g at inputs p, p + 8
//   of d: row g at columns p, p + 1, then row g + 8
__device__ __forceinline__ void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Loads 1, 2 or 4 matrices [8, 8] of 16-bit elements from shared memory. Lane 8 m + r gives the address of row r of matrix m. Of
// each matrix a lane gets elements lane % 4 * 2 and the next of row lane / 4; transposed, of column lane / 4.
template <bool IS_TRANSPOSED = false, int COUNT>
__device__ __forceinline__ void load_matrices(uint32_t (&to)[COUNT], const void* row) {
    static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4);
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
#define LOAD_MATRICES(form, places, ...)                                                                                     \
    if constexpr (IS_TRANSPOSED)                                                                                             \
        asm volatile("ldmatrix.sync.aligned.m8n8." form ".trans.shared.b16 " places ";" : __VA_ARGS__ : "r"(at) : "memory"); \
    else                                                                                                                     \
        asm volatile("ldmatrix.sync.aligned.m8n8." form ".shared.b16 " places ";" : __VA_ARGS__ : "r"(at) : "memory")
    if constexpr (COUNT == 1) {
        LOAD_MATRICES("x1", "{%0}, [%1]", "=r"(to[0]));
    } else if constexpr (COUNT == 2) {
        LOAD_MATRICES("x2", "{%0, %1}, [%2]", "=r"(to[0]), "=r"(to[1]));
    } else {
        LOAD_MATRICES("x4", "{%0, %1, %2, %3}, [%4]", "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]));
    }
#undef LOAD_MATRICES
}

// Begins to copy 4, 8 or 16 aligned bytes to shared memory, or zeros where there is nothing at `from`. They are there after a
// copies_wait of this thread, and for other threads after a barrier that follows it.
template <int SIZE>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool is_there) {
    static_assert(SIZE == 4 || SIZE == 8 || SIZE == 16);
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(to), size = is_there ? SIZE : 0;
    if constexpr (SIZE == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(size) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(at), "l"(from), "n"(SIZE), "r"(size) : "memory");
}

// Makes a group of the copies that this thread began since the last group.
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits for all groups of this thread but the `LEFT` last ones.
template <int LEFT>
__device__ __forceinline__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
#endif
