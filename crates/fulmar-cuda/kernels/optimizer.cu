// Steps of optimizers on weights w [W] by gradients g, and the sum of squares that clipping needs, with the bits of fulmar-kernel's
// adamw.rs, sgd.rs and muon.rs. Newton-Schulz is a sequence of kernels: square_sums and divide_by_norm, product_f32, mix.
//
//   AdamW: w -= lr decay w      m = b1 m + (1 - b1) g      v = b2 v + (1 - b2) g^2
//          w -= step_size m / (sqrt(v) inv_sqrt_correction2 + eps)
//   SGD:   g += decay w         b = momentum b + (1 - dampening) g; b = g in the first step
//          w -= lr (g + momentum b) with Nesterov, lr b without, lr g without a buffer
//   Muon:  b += (1 - momentum) (g - b)      u = g + momentum (b - g) with Nesterov, b without
//
// In all of them g is first multiplied by gradient_scale, the coefficient of clipping.
#include "bf16.cuh"
#include "lanes.cuh"

namespace optimizer {

constexpr uint32_t THREADS = 256, BLOCK = 4096;

// sums[c] = sum of squares of block c of 4,096 numbers. Any number of blocks of threads: a half-warp sums a block.
KERNEL(square_sums, THREADS, (const float* x, uint64_t len, float* sums_c)) {
    const uint64_t half_warps = (uint64_t)gridDim.x * (THREADS / WIDTH), blocks = (len + BLOCK - 1) / BLOCK;
    const uint32_t half_warp = blockIdx.x * (THREADS / WIDTH) + threadIdx.x / WIDTH, lane = threadIdx.x % WIDTH;
    for (uint64_t pair = half_warp / 2 * 2; pair < blocks; pair += half_warps) { // both half-warps of a warp take part
        const uint64_t block = pair + half_warp % 2, first = block * BLOCK;
        const uint32_t count = block < blocks ? (uint32_t)min(len - first, (uint64_t)BLOCK) : 0;
        const float sum = dot_lanes(x + first, x + first, count, lane);
        if (lane == 0 && block < blocks) sums_c[block] = sum;
    }
}

// Writes the sum of the blocks' sums, in order. One block of threads; shared memory: THREADS floats.
KERNEL(sum_of_squares, THREADS, (const float* sums_c, uint32_t blocks, double* sum)) {
    SHARED(shared);
    const double total = sum_in_order<THREADS>(-0.0, sums_c, blocks, (float*)shared);
    if (threadIdx.x == 0) *sum = total;
}

// x *= 1 / max(norm of x, eps), given the sums of square_sums. Any number of blocks of threads; shared memory: THREADS floats.
KERNEL(divide_by_norm, THREADS, (float* x, const float* sums_c, uint32_t blocks, float eps, uint64_t len)) {
    SHARED(shared);
    float* by = (float*)shared;
    const double total = sum_in_order<THREADS>(-0.0, sums_c, blocks, by);
    if (threadIdx.x == 0) *by = 1.0f / fmaxf((float)sqrt(total), eps);
    __syncthreads(); // the factor is there
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS) x[at] *= *by;
}

// Weights in f32.
struct Weights {
    float* w;

    __device__ __forceinline__ float read(uint64_t at) const { return w[at]; }
    __device__ __forceinline__ void write(uint64_t at, float x) const { w[at] = x; }
};

// The masters in f32 of weights in bfloat16, which are rounded from them.
struct Masters {
    float* w;
    uint16_t* halves;

    // A weight that its master does not round to was changed elsewhere: it counts.
    __device__ __forceinline__ float read(uint64_t at) const {
        return rounded(w[at]) != halves[at] ? widened(halves[at]) : w[at];
    }
    __device__ __forceinline__ void write(uint64_t at, float x) const {
        w[at] = x;
        halves[at] = rounded(x);
    }
};

struct AdamW {
    float learning_rate, decay, beta1, beta2, eps, step_size, inv_sqrt_correction2, gradient_scale;

    template <class W>
    __device__ __forceinline__ void step(W weights, const float* gradients, float* moment1, float* moment2,
                                         uint64_t len) const {
        for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS) {
            const float w = weights.read(at), g = gradients[at] * gradient_scale;
            float m = moment1[at], v = moment2[at];
            m += (g - m) * (1.0f - beta1);
            v = v * beta2 + g * g * (1.0f - beta2);
            moment1[at] = m;
            moment2[at] = v;
            const float decayed = w - learning_rate * decay * w;
            weights.write(at, decayed - step_size * m / (sqrtf(v) * inv_sqrt_correction2 + eps));
        }
    }
};

// Null halves: weights are f32; otherwise these are the masters of halves, bfloat16. Any number of blocks.
KERNEL(adamw_step, THREADS,
       (float* weights, uint16_t* halves, const float* gradients, float* moment1, float* moment2, float learning_rate,
        float decay, float beta1, float beta2, float eps, float step_size, float inv_sqrt_correction2, float gradient_scale,
        uint64_t len)) {
    const AdamW adamw{learning_rate, decay, beta1, beta2, eps, step_size, inv_sqrt_correction2, gradient_scale};
    if (halves)
        adamw.step(Masters{weights, halves}, gradients, moment1, moment2, len);
    else
        adamw.step(Weights{weights}, gradients, moment1, moment2, len);
}

struct Sgd {
    float learning_rate, momentum, dampening, decay, gradient_scale;
    bool is_nesterov, is_first;

    template <class W>
    __device__ __forceinline__ void step(W weights, const float* gradients, float* buffer, uint64_t len) const {
        const float keep = is_first ? 0.0f : momentum, take = is_first ? 1.0f : 1.0f - dampening;
        for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS) {
            const float w = weights.read(at), g = gradients[at] * gradient_scale + decay * w;
            float direction = g;
            if (buffer) {
                const float b = buffer[at] * keep + take * g;
                buffer[at] = b;
                direction = is_nesterov ? g + momentum * b : b;
            }
            weights.write(at, w - learning_rate * direction);
        }
    }
};

// Halves as in adamw_step; a null buffer: no momentum. Any number of blocks.
KERNEL(sgd_step, THREADS,
       (float* weights, uint16_t* halves, const float* gradients, float* buffer, float learning_rate, float momentum,
        float dampening, float decay, float gradient_scale, uint32_t is_nesterov, uint32_t is_first, uint64_t len)) {
    const Sgd sgd{learning_rate, momentum, dampening, decay, gradient_scale, is_nesterov != 0, is_first != 0};
    if (halves)
        sgd.step(Masters{weights, halves}, gradients, buffer, len);
    else
        sgd.step(Weights{weights}, gradients, buffer, len);
}

// Updates the momentum b of Muon, and writes the direction u. Any number of blocks.
KERNEL(muon_direction, THREADS,
       (const float* gradients, float* momentum, float* direction, float gradient_scale, float keep, uint32_t is_nesterov,
        uint64_t len)) {
    for (uint64_t at = (uint64_t)blockIdx.x * THREADS + threadIdx.x; at < len; at += (uint64_t)gridDim.x * THREADS) {
        const float g = gradients[at] * gradient_scale, b = momentum[at] + (1.0f - keep) * (g - momentum[at]);
        momentum[at] = b;
        direction[at] = is_nesterov ? g + keep * (b - g) : b;
    }
}

} // namespace optimizer
