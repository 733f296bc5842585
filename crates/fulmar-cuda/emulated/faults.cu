// Kernels with one fault each, for the test of the emulated driver.
#include "../kernels/device.cuh"

constexpr uint32_t THREADS = 64, CLUSTER = 2;

KERNEL(sound, THREADS, (float* x, float by)) { x[threadIdx.x] += by; }

KERNEL(past_the_end, THREADS, (float* x)) { x[threadIdx.x + 64] = 1.0f; }

KERNEL(past_shared, THREADS, (float* x)) {
    SHARED(shared);
    x[threadIdx.x] = ((float*)shared)[threadIdx.x + 32];
}

KERNEL(misaligned, THREADS, (float* x)) { *(float4*)(x + 1) = {1.0f, 2.0f, 3.0f, 4.0f}; }

KERNEL(two_barriers, THREADS, (float* x)) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    x[threadIdx.x] = 1.0f;
}

KERNEL(uneven, THREADS, (float* x)) {
    float sum = 1.0f;
    if (threadIdx.x % 32 < 16) {
        sum += __shfl_xor_sync(~0u, sum, 1);
    } else {
        __syncthreads();
    }
    x[threadIdx.x] = sum;
}

KERNEL(lane_left, THREADS, (float* x)) {
    if (threadIdx.x == 7) return;
    __syncthreads();
    x[threadIdx.x] = __shfl_xor_sync(~0u, 1.0f, 1);
}

KERNEL(without_barrier, THREADS, (float* x)) {
    SHARED(shared);
    float* values = (float*)shared;
    values[threadIdx.x] = (float)threadIdx.x;
    x[threadIdx.x] = values[63 - threadIdx.x];
}

KERNEL(unwritten, THREADS, (float* x)) {
    SHARED(shared);
    x[threadIdx.x] = ((float*)shared)[threadIdx.x];
}

CLUSTER_KERNEL(leaves_early, THREADS, CLUSTER, (float* x)) {
    SHARED(shared);
    float* values = (float*)shared;
    values[threadIdx.x] = 1.0f;
    cluster_sync();
    x[blockIdx.x * 64 + threadIdx.x] = shared_of(values + threadIdx.x, 1 - cluster_rank());
}
