// The words of ../kernels/device.cuh for g++ on x86-64: the threads of a kernel are fibers of the processor. For tests alone.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
using std::max;
using std::min;

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    uint32_t x, y;
};
struct alignas(16) uint4 {
    uint32_t x, y, z, w;
};

namespace emulated {

struct Index {
    uint32_t x, y, z;
};

// A meeting of `wanted` threads, at one line of a kernel.
struct Barrier {
    const char* of;
    uint32_t wanted = 0, arrived = 0, generation = 0;
    int line = 0;
};

struct Warp {
    Barrier barrier{"warp"};
    uint32_t num_running = 0;
    uint64_t slots[2][32];
    alignas(16) double left[2][16][16], right[2][16][8]; // of a tensor-core product: matrices [row][k] and [k][column]
    uint16_t rows[2][32][8];      // of matrices that are loaded
};

struct Block {
    Barrier barrier{"block"};
    Index index;
    unsigned char* shared;
    uint32_t rank, num_running;
};

struct Cluster {
    Barrier barrier{"cluster"};
    std::vector<Block> blocks;
};

// An asynchronous copy to shared memory that no wait has ended yet.
struct Copy {
    unsigned char* to;
    const unsigned char* from; // null for zeros
    unsigned char bytes[16];   // what was at `from` when the copy began
    uint32_t size, group;
};

struct Fiber {
    void* stack_pointer;
    Index thread;
    uint32_t lane;
    Warp* warp;
    Block* block;
    Cluster* cluster;
    uint32_t parity = 0;
    const Barrier* waits_at = nullptr;
    uint32_t generation = 0;
    bool is_done = false;
    std::vector<Copy> copies;
    uint32_t num_groups = 0; // of copies, committed
};

// A kernel as its file defines it.
struct Kernel {
    std::function<void(void**)> call;
    std::vector<size_t> argument_sizes;
    uint32_t threads_max, cluster;
    uint32_t shared_max = 48 << 10; // bytes that a launch may ask for; cuFuncSetAttribute raises it
};

struct Launch {
    std::string name;
    const Kernel* kernel;
    Index grid, block;
    uint32_t shared_bytes;
};

extern thread_local Fiber* current;
extern thread_local const Launch* launch;

std::map<std::string, Kernel>& kernels();

// Waits until all threads of `barrier` have come to it.
void wait(Barrier& barrier, int line);

// Ends the process with a sentence about the thread that runs.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Returns which of two sets of slots an operation of a whole warp uses: a lane may be at the next operation before others have
// read the slots of this one.
inline uint32_t next_parity(const char* of, int line) {
    Fiber* fiber = current;
    if (fiber->warp->num_running < 32) fail("line %d: %s among 32 lanes has %u", line, of, fiber->warp->num_running);
    return fiber->parity ^= 1;
}

// Hands `value` to the other lanes of the warp and returns that of lane `from`.
template <class T>
T exchange(T value, uint32_t from, int line) {
    static_assert(sizeof(T) <= 8);
    Fiber* fiber = current;
    uint64_t (&slots)[32] = fiber->warp->slots[next_parity("a shuffle", line)];
    std::memcpy(&slots[fiber->lane], &value, sizeof(T));
    wait(fiber->warp->barrier, line);
    std::memcpy(&value, &slots[from % 32], sizeof(T));
    return value;
}

template <class... A, size_t... I>
void apply(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
    kernel(*(std::remove_reference_t<A>*)arguments[I]...);
}

template <class... A>
bool add(const char* name, uint32_t threads_max, uint32_t cluster, void (*kernel)(A...)) {
    auto call = [kernel](void** arguments) { apply(kernel, arguments, std::index_sequence_for<A...>{}); };
    kernels()[name] = {call, {sizeof(A)...}, threads_max, cluster};
    return true;
}

} // namespace emulated

#define threadIdx (emulated::current->thread)
#define blockIdx (emulated::current->block->index)
#define blockDim (emulated::launch->block)
#define gridDim (emulated::launch->grid)

#define CLUSTER_KERNEL(name, threads, cluster, args)                                  \
    static void name args;                                                            \
    static const bool is_added_##name = emulated::add(#name, threads, cluster, name); \
    static void name args
#define KERNEL(name, threads, args) CLUSTER_KERNEL(name, threads, 1, args)
#define SHARED(name) unsigned char* name = emulated::current->block->shared

inline void __syncthreads(int line = __builtin_LINE()) { emulated::wait(emulated::current->block->barrier, line); }
inline void __syncwarp(int line = __builtin_LINE()) { emulated::wait(emulated::current->warp->barrier, line); }
inline uint32_t cluster_rank() { return emulated::current->block->rank; }
inline void cluster_sync(int line = __builtin_LINE()) { emulated::wait(emulated::current->cluster->barrier, line); }

inline float shared_of(const float* own, uint32_t rank) {
    const emulated::Fiber* fiber = emulated::current;
    const size_t at = (const unsigned char*)own - fiber->block->shared;
    if (rank >= fiber->cluster->blocks.size() || at + sizeof(float) > emulated::launch->shared_bytes)
        emulated::fail("byte %zu of the shared memory of block %u of the cluster", at, rank);
    return *(const float*)(fiber->cluster->blocks[rank].shared + at);
}

template <class T>
T __shfl_sync(uint32_t, T value, uint32_t from, uint32_t width = 32, int line = __builtin_LINE()) {
    return emulated::exchange(value, emulated::current->lane / width * width + from % width, line);
}
template <class T>
T __shfl_xor_sync(uint32_t, T value, int mask, int = 32, int line = __builtin_LINE()) {
    return emulated::exchange(value, emulated::current->lane ^ (uint32_t)mask, line);
}
template <class T>
T __shfl_up_sync(uint32_t, T value, uint32_t by, uint32_t width = 32, int line = __builtin_LINE()) {
    const uint32_t lane = emulated::current->lane;
    return emulated::exchange(value, lane % width >= by ? lane - by : lane, line);
}
template <class T>
T __shfl_down_sync(uint32_t, T value, uint32_t by, uint32_t width = 32, int line = __builtin_LINE()) {
    const uint32_t lane = emulated::current->lane;
    return emulated::exchange(value, lane % width + by < width ? lane + by : lane, line);
}

// Bit number i is whether `is_true` of lane i.
inline uint32_t __ballot_sync(uint32_t, bool is_true, int line = __builtin_LINE()) {
    emulated::Fiber* fiber = emulated::current;
    uint64_t (&slots)[32] = fiber->warp->slots[emulated::next_parity("a vote", line)];
    slots[fiber->lane] = is_true;
    emulated::wait(fiber->warp->barrier, line);
    uint32_t votes = 0;
    for (uint32_t lane = 0; lane < 32; lane++) votes |= (uint32_t)slots[lane] << lane;
    return votes;
}
inline bool __any_sync(uint32_t mask, bool is_true, int line = __builtin_LINE()) {
    return __ballot_sync(mask, is_true, line) != 0;
}
inline bool __all_sync(uint32_t mask, bool is_true, int line = __builtin_LINE()) {
    return __ballot_sync(mask, is_true, line) == ~0u;
}

inline uint32_t atomicMin(uint32_t* at, uint32_t value) {
    uint32_t old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (value < old && !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return old;
}
inline uint32_t atomicMax(uint32_t* at, uint32_t value) {
    uint32_t old = __atomic_load_n(at, __ATOMIC_RELAXED);
    while (value > old && !__atomic_compare_exchange_n(at, &old, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {}
    return old;
}
inline uint32_t atomicAdd(uint32_t* at, uint32_t value) { return __atomic_fetch_add(at, value, __ATOMIC_RELAXED); }
inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
    return __atomic_fetch_add(at, value, __ATOMIC_RELAXED);
}
inline uint32_t atomicCAS(uint32_t* at, uint32_t expected, uint32_t value) {
    __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    return expected;
}

template <class To, class From>
To same_bits(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof(To));
    return to;
}
inline uint32_t __float_as_uint(float x) { return same_bits<uint32_t>(x); }
inline float __uint_as_float(uint32_t x) { return same_bits<float>(x); }
inline long long __double_as_longlong(double x) { return same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return same_bits<double>(x); }
inline int __clz(uint32_t x) { return x == 0 ? 32 : __builtin_clz(x); }
inline uint32_t __popc(uint32_t x) { return (uint32_t)__builtin_popcount(x); }
inline float __fmaf_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
#include "tensor.h"
