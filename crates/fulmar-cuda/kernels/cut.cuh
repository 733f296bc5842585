// The end of a cut by mass, with the bits of fulmar-objective's cut.rs: the span of weights that holds the end is halved until few are
// in it, and these are put in order.
#pragma once
#include "select.cuh"

constexpr uint32_t RUN = 64, TILE = 4096;           // weights whose lanes are summed in single precision; sums of lanes at once
constexpr uint32_t SORTED_MAX = 64, BUCKETS = 1024; // elements that are sorted; parts of a span of keys
constexpr double FEW = 512.0;                       // weights that are no longer halved
constexpr float LARGEST = 3.40282347e38f;           // of single precision
constexpr uint32_t NONE = ~0u;                      // no element

// Shared memory of a cut.
struct CutMemory {
    double *buckets, *lanes, *mass; // [BUCKETS], [WIDTH], of a span
    float* tile;                    // [TILE]
    uint32_t *words, *num_open;     // one a warp, which may be those of `buckets`; elements among which the end is
};

// The last element that is kept: elements are in order of larger keys, then of earlier places.
struct End {
    float key;
    uint32_t place;
};

// Returns, in each thread, the sum of the weights from `least` on, in cut.rs's order.
template <uint32_t THREADS>
__device__ double mass_from(const float* weights, uint32_t len, float least, const CutMemory& memory) {
    const uint32_t runs = len / RUN, thread = threadIdx.x;
    double sum = 0.0;
    for (uint32_t first = 0; first < runs; first += TILE / WIDTH) {
        const uint32_t count = min(runs - first, TILE / WIDTH);
        for (uint32_t at = thread; at < count * WIDTH; at += THREADS) {
            const float* run = weights + (size_t)(first + at / WIDTH) * RUN + at % WIDTH;
            float of_run = 0.0f;
#pragma unroll
            for (uint32_t i = 0; i < RUN; i += WIDTH) of_run += run[i] >= least ? run[i] : 0.0f;
            memory.tile[at] = of_run;
        }
        __syncthreads(); // sums of runs are there
        if (thread < WIDTH)
            for (uint32_t run = 0; run < count; run++) sum += (double)memory.tile[run * WIDTH + thread];
        __syncthreads(); // sums of runs are added
    }
    if (thread < WIDTH) memory.lanes[thread] = sum;
    __syncthreads(); // lanes are there
    if (thread == 0) {
        double total = 0.0;
        for (uint32_t lane = 0; lane < WIDTH; lane++) total += memory.lanes[lane];
        for (uint32_t at = runs * RUN; at < len; at++) total += weights[at] >= least ? (double)weights[at] : 0.0;
        *memory.mass = total;
    }
    __syncthreads(); // the mass is there
    return *memory.mass;
}

// Elements of a list that a cut may end at: their places, in order.
template <class Key>
struct Open {
    Key key; // of a place
    const float* weights;
    uint32_t* places;
    uint32_t len;

    // Keeps the elements of the bucket that holds the end, and adds the mass of the buckets before it. Returns false where that
    // is not possible: for few elements, equal keys, or keys too close to part. One thread calls it.
    __device__ bool split(double* mass, double target, double* mass_of) {
        float low = LARGEST, high = -LARGEST;
        for (uint32_t at = 0; at < len; at++) low = fminf(low, key(places[at])), high = fmaxf(high, key(places[at]));
        if (low == high || len <= SORTED_MAX) return false;
        const float scale = (float)(2.0 * BUCKETS / ((double)high - (double)low));
        for (uint32_t bucket = 0; bucket < BUCKETS; bucket++) mass_of[bucket] = 0.0;
        for (uint32_t at = 0; at < len; at++) mass_of[bucket_of(places[at], high, scale)] += (double)weights[places[at]];
        uint32_t end = 0, inside = 0;
        for (; end < BUCKETS - 1 && !(*mass + mass_of[end] >= target); end++) *mass += mass_of[end];
        for (uint32_t at = 0; at < len; at++)
            if (bucket_of(places[at], high, scale) == end) places[inside++] = places[at];
        const bool is_less = inside < len;
        len = inside;
        return is_less;
    }

    __device__ uint32_t bucket_of(uint32_t place, float high, float scale) const {
        const float at = (0.5f * high - 0.5f * key(place)) * scale;
        return at < (float)(BUCKETS - 1) ? (uint32_t)(int32_t)at : BUCKETS - 1;
    }

    // Returns whether element `a` comes before `b`, numbers of `places`.
    __device__ bool is_before(uint32_t a, uint32_t b) const {
        const float x = key(places[a]), y = key(places[b]);
        return x > y || (x == y && a < b);
    }

    // Returns the number that follows `at` in order, the first one for NONE; at once for the next of equal keys.
    __device__ uint32_t next(uint32_t at) const {
        for (uint32_t other = at + 1; at != NONE && other < len; other++)
            if (key(places[other]) == key(places[at])) return other;
        uint32_t best = NONE;
        for (uint32_t other = 0; other < len; other++)
            if ((at == NONE || is_before(at, other)) && (best == NONE || is_before(other, best))) best = other;
        return best;
    }
};

// Returns, in each thread, the last element that is kept until the mass before the next one reaches `target`. Weights are at most 1,
// never larger for a smaller key, and sum to `total`; key(place) is an element's key. `places` has room for all.
template <uint32_t THREADS, class Key>
__device__ End end_of(Key key, const float* weights, uint32_t len, double total, double target, uint32_t* places,
                      const CutMemory& memory) {
    const uint32_t least = max(__float_as_uint((float)(0.5 * (total - target) / (double)len)), 1u);
    uint32_t low = least, high = 0x3f800001; // bits of weights rise with them; those of the span are below `high`
    double mass_from_low = total, mass = 0.0;
    while (len > SORTED_MAX && high - low > 1 && !(mass_from_low - mass <= FEW * (double)__uint_as_float(low))) {
        const uint32_t middle = low + (high - low) / 2;
        const double from_middle = mass_from<THREADS>(weights, len, __uint_as_float(middle), memory);
        if (from_middle < target)
            high = middle, mass = from_middle;
        else
            low = middle, mass_from_low = from_middle;
    }
    const float from = __uint_as_float(low == least ? 1 : low), below = __uint_as_float(high);
    const Part part = part_of_warp<THREADS>(len);
    auto is_within = [&](uint32_t at) { return weights[at] >= from && weights[at] < below; };
    uint32_t place = num_before(part, is_within, memory.words), count = 0;
    for (uint32_t warp = 0; warp < THREADS / WARP; warp++) count += memory.words[warp];
    walk(part, is_within, [&](uint32_t at, uint32_t ballot) {
        if (ballot >> threadIdx.x % WARP & 1) places[place + num_below(ballot)] = at;
        place += __popc(ballot);
    });
    __syncthreads(); // places of the span are there
    // Rounding of the mass reached the end: all are kept.
    if (count == 0) return {-INFINITY, NONE};

    Open<Key> open{key, weights, places, count};
    target -= mass;
    mass = 0.0;
    if (threadIdx.x == 0) {
        while (open.split(&mass, target, memory.buckets)) {}
        *memory.num_open = open.len;
    }
    __syncthreads(); // the bucket of the end is found
    open.len = *memory.num_open;
    uint32_t* sorted = (uint32_t*)memory.tile; // [TILE]
    const bool is_sorted = open.len <= SORTED_MAX;
    if (is_sorted && threadIdx.x < open.len) {
        uint32_t rank = 0;
        for (uint32_t other = 0; other < open.len; other++) rank += open.is_before(other, threadIdx.x);
        sorted[rank] = places[threadIdx.x];
    }
    __syncthreads(); // the last elements are sorted
    if (threadIdx.x == 0) {
        uint32_t last = NONE;
        for (uint32_t i = 0, at = NONE; i < open.len && !(i > 0 && mass >= target); i++) {
            if (!is_sorted) at = open.next(at);
            last = is_sorted ? sorted[i] : places[at];
            mass += (double)weights[last];
        }
        *memory.num_open = last;
    }
    __syncthreads(); // the end is found
    const uint32_t end = *memory.num_open;
    return {key(end), end};
}
