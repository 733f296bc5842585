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
#endif
