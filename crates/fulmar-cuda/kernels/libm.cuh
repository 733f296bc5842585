// e^x, ln x and ln(1 + x) in double precision and ln x in single precision, with the bits of the crate libm, which has FreeBSD's
// algorithms (e_exp.c, e_log.c, s_log1p.c, e_logf.c):
//
// Copyright (C) 1993, 2004 by Sun Microsystems, Inc. All rights reserved. Permission to use, copy, modify, and distribute this
// software is freely granted, provided that this notice is preserved.
#pragma once
#include "device.cuh"

constexpr double LN2_HI = 6.93147180369123816490e-01, LN2_LO = 1.90821492927058770002e-10;

__device__ __forceinline__ double from_bits(uint64_t bits) { return __longlong_as_double((long long)bits); }

// x 2^n for n from -1,100 to 1,024.
__device__ inline double scale64(double x, int n) {
    if (n > 1023) return x * from_bits(0x7fe0000000000000u) * from_bits((uint64_t)(0x3ff + n - 1023) << 52);
    if (n < -1022) return x * from_bits(0x0360000000000000u) * from_bits((uint64_t)(0x3ff + n + 969) << 52);
    return x * from_bits((uint64_t)(0x3ff + n) << 52);
}

__device__ inline double exp64(double x) {
    const uint64_t bits = (uint64_t)__double_as_longlong(x);
    const uint32_t high = (uint32_t)(bits >> 32) & 0x7fffffff, sign = (uint32_t)(bits >> 63);
    if (x != x) return x;
    if (x > 709.782712893383973096) return x * from_bits(0x7fe0000000000000u);
    if (x < -745.13321910194110842) return 0.0;
    double hi = x, lo = 0.0;
    int k = 0;
    if (high > 0x3fd62e42) { // |x| > ln 2 / 2
        k = high >= 0x3ff0a2b2 ? (int)(1.44269504088896338700 * x + (sign ? -0.5 : 0.5)) : 1 - 2 * (int)sign;
        hi = x - k * LN2_HI;
        lo = k * LN2_LO;
        x = hi - lo;
    } else if (high <= 0x3e300000) { // |x| <= 2^-28
        return 1.0 + x;
    }
    const double xx = x * x;
    const double c =
        x -
        xx * (1.66666666666666019037e-01 +
              xx * (-2.77777777770155933842e-03 +
                    xx * (6.61375632143793436117e-05 + xx * (-1.65339022054652515390e-06 + xx * 4.13813679705723846039e-08))));
    const double y = 1.0 + (x * c / (2.0 - c) - lo + hi);
    return k == 0 ? y : scale64(y, k);
}

// The polynomial of ln((1 + s) / (1 - s)) in z = s^2.
__device__ __forceinline__ double log_rest(double z) {
    const double w = z * z;
    const double t1 = w * (3.999999999940941908e-01 + w * (2.222219843214978396e-01 + w * 1.531383769920937332e-01));
    const double t2 = z * (6.666666666666735130e-01 +
                           w * (2.857142874366239149e-01 + w * (1.818357216161805012e-01 + w * 1.479819860510658591e-01)));
    return t2 + t1;
}

// ln x for x = 0 or normal and positive, infinite or NaN.
__device__ inline double log64(double x) {
    const uint64_t bits = (uint64_t)__double_as_longlong(x);
    uint32_t high = (uint32_t)(bits >> 32);
    if (x == 0.0) return -INFINITY;
    if (high >= 0x7ff00000) return x;
    if (x == 1.0) return 0.0;
    high += 0x3ff00000 - 0x3fe6a09e;
    const double k = (int)(high >> 20) - 0x3ff;
    high = (high & 0x000fffff) + 0x3fe6a09e;
    const double f = from_bits((uint64_t)high << 32 | (bits & 0xffffffff)) - 1.0; // x / 2^k - 1
    const double hfsq = 0.5 * f * f, s = f / (2.0 + f), z = s * s;
    return s * (hfsq + log_rest(z)) + k * LN2_LO - hfsq + f + k * LN2_HI;
}

// ln(1 + x) for x from above -1 to -2^-53.
__device__ inline double log1p64(double x) {
    const uint32_t high = (uint32_t)((uint64_t)__double_as_longlong(x) >> 32);
    double f = x, c = 0.0, k = 0.0;
    if (high > 0xbfd2bec4) { // x < sqrt(1/2) - 1
        const double u = 1.0 + x;
        const uint64_t bits = (uint64_t)__double_as_longlong(u);
        const uint32_t high_u = (uint32_t)(bits >> 32) + 0x3ff00000 - 0x3fe6a09e;
        k = (int)(high_u >> 20) - 0x3ff;
        c = (x - (u - 1.0)) / u; // what u is rounded by
        f = from_bits((uint64_t)((high_u & 0x000fffff) + 0x3fe6a09e) << 32 | (bits & 0xffffffff)) - 1.0;
    }
    const double hfsq = 0.5 * f * f, s = f / (2.0 + f), z = s * s;
    return s * (hfsq + log_rest(z)) + (k * LN2_LO + c) - hfsq + f + k * LN2_HI;
}

// ln x for x >= 1, infinite or NaN.
__device__ inline float log32(float x) {
    uint32_t bits = __float_as_uint(x);
    if (bits >= 0x7f800000) return x;
    if (bits == 0x3f800000) return 0.0f;
    bits += 0x3f800000 - 0x3f3504f3;
    const float k = (float)((int32_t)(bits >> 23) - 0x7f);
    const float f = __uint_as_float((bits & 0x007fffff) + 0x3f3504f3) - 1.0f; // x / 2^k - 1
    const float s = f / (2.0f + f), z = s * s, w = z * z, hfsq = 0.5f * f * f;
    const float t1 = w * (0.40000972152f + w * 0.24279078841f), t2 = z * (0.66666662693f + w * 0.28498786688f);
    return s * (hfsq + (t2 + t1)) + k * 9.0580006145e-06f - hfsq + f + k * 6.9313812256e-01f;
}
