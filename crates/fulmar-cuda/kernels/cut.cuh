// The end of a cut by mass, with the bits of fulmar-objective's cut.rs: for keys that weights follow, the span of weights that holds
// the end is halved until few are in it; then the span of keys that holds it is cut into buckets until few are in it, and these are
// put in order.
#pragma once
#include "libm.cuh"
#include "select.cuh"

constexpr uint32_t RUN = 64, TILE = 4096;           // weights whose lanes are summed in single precision; sums of lanes at once
constexpr uint32_t SORTED_MAX = 64, BUCKETS = 1024; // elements that are sorted; parts of a span of keys
constexpr double FEW = 512.0;                       // weights that are no longer halved
constexpr float LARGEST = 3.40282347e38f;           // of single precision
constexpr uint32_t NONE = ~0u;                      // no element

// Whole numbers for weights, whose sum is the same in any order.
using Units = unsigned long long;

// Shared memory of a cut.
struct CutMemory {
    Units* buckets;           // [BUCKETS]
    double *lanes, *mass;     // [WIDTH], of a span
    float* tile;              // [TILE]
    uint32_t *words, *found;  // one a warp and at least two, which may be those of `buckets`; what one thread found for all
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

// The least and the largest of some numbers, as bits that rise with them.
struct Range {
    uint32_t low, high;
};

// Returns, in each thread, the range of bits(0), ..., bits(len - 1). `words` is shared memory for two.
template <uint32_t THREADS, class Bits>
__device__ Range range_of(Bits bits, uint32_t len, uint32_t* words) {
    if (threadIdx.x == 0) words[0] = ~0u, words[1] = 0;
    __syncthreads(); // a range has its start
    Range own{~0u, 0};
    for (uint32_t at = threadIdx.x; at < len; at += THREADS)
        own.low = min(own.low, bits(at)), own.high = max(own.high, bits(at));
    atomicMin(words, own.low), atomicMax(words + 1, own.high);
    __syncthreads(); // a range is whole
    const Range range{words[0], words[1]};
    __syncthreads(); // a range is read
    return range;
}

// Elements of a list that a cut may end at: their places, in order.
template <uint32_t THREADS, class Key>
struct Open {
    Key key; // of a place
    const float* weights;
    uint32_t *places, len;
    CutMemory memory;
    double scale;       // units of a weight: a power of two that gives weights as many bits as their sum can have
    Units target, mass; // units that are kept at least, and those before these elements, which the first thread has

    __device__ Open(Key key, const float* weights, uint32_t* places, uint32_t len, double target, const CutMemory& memory)
        : key(key), weights(weights), places(places), len(len), memory(memory), mass(0) {
        auto bits = [&](uint32_t at) { return __float_as_uint(weights[places[at]]); };
        const uint32_t largest = max(range_of<THREADS>(bits, len, memory.words).high, 0x00800000u);
        scale = scale64(1.0, 62 - (32 - __clz(len)) - ((int)(largest >> 23) - 127));
        this->target = (Units)ceil(fmax(target * scale, 0.0));
    }

    __device__ __forceinline__ Units units(uint32_t place) const { return (Units)((double)weights[place] * scale); }

    // Keeps the elements of the bucket that holds the end, and adds the units of the buckets before it. Returns false where that
    // is not possible: for few elements, equal keys, or keys too close to part.
    __device__ bool split() {
        if (len <= SORTED_MAX) return false;
        const Range range = range_of<THREADS>([&](uint32_t at) { return rising(key(places[at])); }, len, memory.words);
        if (range.low == range.high) return false;
        const float low = of_rising(range.low), high = of_rising(range.high);
        const float width = (float)(2.0 * BUCKETS / ((double)high - (double)low));
        for (uint32_t bucket = threadIdx.x; bucket < BUCKETS; bucket += THREADS) memory.buckets[bucket] = 0;
        __syncthreads(); // buckets are empty
        for (uint32_t at = threadIdx.x; at < len; at += THREADS)
            atomicAdd(memory.buckets + bucket_of(places[at], high, width), units(places[at]));
        __syncthreads(); // buckets have their units
        if (threadIdx.x == 0) {
            uint32_t end = 0;
            for (; end < BUCKETS - 1 && !(mass + memory.buckets[end] >= target); end++) mass += memory.buckets[end];
            *memory.found = end;
        }
        __syncthreads(); // the bucket of the end is found
        const uint32_t end = *memory.found, before = len;
        keep([&](uint32_t place) { return bucket_of(place, high, width) == end; });
        return len < before;
    }

    // `width`: two over that of a bucket.
    __device__ uint32_t bucket_of(uint32_t place, float high, float width) const {
        const float at = (0.5f * high - 0.5f * key(place)) * width;
        return at < (float)(BUCKETS - 1) ? (uint32_t)(int32_t)at : BUCKETS - 1;
    }

    // Keeps the elements that have `is`, in order.
    template <class Is>
    __device__ void keep(Is is) {
        uint32_t kept = 0;
        for (uint32_t first = 0; first < len; first += THREADS) {
            const uint32_t at = first + threadIdx.x, place = at < len ? places[at] : 0;
            const uint32_t ballot = __ballot_sync(ALL, at < len && is(place)), warp = threadIdx.x / WARP;
            if (threadIdx.x % WARP == 0) memory.words[warp] = __popc(ballot);
            __syncthreads(); // elements are read and counted
            uint32_t to = kept + num_below(ballot);
            for (uint32_t other = 0; other < THREADS / WARP; other++) {
                to += other < warp ? memory.words[other] : 0;
                kept += memory.words[other];
            }
            if (ballot >> threadIdx.x % WARP & 1) places[to] = place;
            __syncthreads(); // elements are kept
        }
        len = kept;
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

    // Returns, in each thread, the place of the last element that is kept, by putting elements in order.
    __device__ uint32_t last() {
        uint32_t* sorted = (uint32_t*)memory.tile; // [TILE]
        const bool is_sorted = len <= SORTED_MAX;
        if (is_sorted && threadIdx.x < len) {
            uint32_t rank = 0;
            for (uint32_t other = 0; other < len; other++) rank += is_before(other, threadIdx.x);
            sorted[rank] = places[threadIdx.x];
        }
        __syncthreads(); // the last elements are sorted
        if (threadIdx.x == 0) {
            uint32_t last = NONE;
            for (uint32_t i = 0, at = NONE; i < len && !(i > 0 && mass >= target); i++) {
                if (!is_sorted) at = next(at);
                last = is_sorted ? sorted[i] : places[at];
                mass += units(last);
            }
            *memory.found = last;
        }
        __syncthreads(); // the end is found
        return *memory.found;
    }
};

// Returns, in each thread, the last of `len` elements that is kept until the mass before the next one reaches `target`. `places` are
// those of the elements, in order, and will be overwritten; key(place) is an element's key.
template <uint32_t THREADS, class Key>
__device__ End last_within(Key key, const float* weights, uint32_t* places, uint32_t len, double target, const CutMemory& memory) {
    Open<THREADS, Key> open(key, weights, places, len, target, memory);
    while (open.split()) {}
    const uint32_t last = open.last();
    return {key(last), last};
}

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

    return last_within<THREADS>(key, weights, places, count, target - mass, memory);
}
