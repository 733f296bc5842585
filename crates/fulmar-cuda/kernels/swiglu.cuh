// The gated activation of a gate and what it multiplies, with the bits of fulmar-kernel's swiglu.rs.
#pragma once
#include "lanes.cuh"

// silu(g) u,  silu(g) = g / (1 + e^-g)
__device__ __forceinline__ float gated(float g, float u) { return g / (1.0f + exp32(-g)) * u; }
