// Cases of tensor cores, copies to shared memory, shuffles, votes and atomics: tiles.cu against loops, in every order, and its
// faults.
#include "test.h"
#include <algorithm>
#include <cmath>
#include <cstring>

namespace {
using Halves = std::vector<uint16_t>;

// Numbers that sums hold exactly in any order: whole ones from -8 to 8.
float whole(uint32_t index) { return (float)(int)((index * 2654435761u + 12345) / 65536 % 17) - 8.0f; }
std::vector<float> wholes(uint32_t first, int count) {
    std::vector<float> values;
    for (int i = 0; i < count; i++) values.push_back(whole(first + i));
    return values;
}
Halves as_bf16(const std::vector<float>& values) {
    Halves halves;
    for (float value : values) {
        uint32_t bits;
        std::memcpy(&bits, &value, sizeof(bits));
        halves.push_back((uint16_t)(bits >> 16));
    }
    return halves;
}

template <class T>
Address upload(const std::vector<T>& values) {
    const Address to = allocate((int)((values.size() * sizeof(T) + 3) / 4));
    cuMemcpyHtoDAsync_v2(to, values.data(), values.size() * sizeof(T), nullptr);
    return to;
}
template <class... A>
bool runs(const char* name, unsigned threads, unsigned shared, A... arguments) {
    void* places[] = {&arguments...};
    return cuLaunchKernel(function(name), 1, 1, 1, threads, 1, 1, shared, nullptr, places, nullptr) == 0;
}
int holds_in_every_order(const std::function<bool()>& run) {
    for (const char* order : ORDERS) {
        setenv("FULMAR_EMULATED_ORDER", order, 1);
        if (!run()) return 1;
    }
    return 0;
}

int product(uint32_t inner) {
    const std::vector<float> a = wholes(1, 16 * inner), b = wholes(9000, 8 * inner), d = wholes(20000, 16 * 8);
    std::vector<float> wanted = d;
    for (uint32_t r = 0; r < 16; r++)
        for (uint32_t c = 0; c < 8; c++)
            for (uint32_t k = 0; k < inner; k++) wanted[r * 8 + c] += a[r * inner + k] * b[c * inner + k];
    return holds_in_every_order([&] {
        const Address d_at = upload(d);
        return runs("product_of_fragments", 32, 0, upload(as_bf16(a)), upload(as_bf16(b)), d_at, inner) &&
               read(d_at, 16 * 8) == wanted;
    });
}

// A product of ones and 2^-8 in which one element is not a number.
int product_of_nan() {
    std::vector<float> a(256, 1.0f), b(128, 0.00390625f);
    a[3 * 16 + 5] = NAN;
    const Address d = upload(std::vector<float>(128, 0.0f));
    if (!runs("product_of_fragments", 32, 0, upload(as_bf16(a)), upload(as_bf16(b)), d, 16u)) return 1;
    const std::vector<float> values = read(d, 128);
    for (int i = 0; i < 128; i++)
        if (i / 8 == 3 ? !std::isnan(values[i]) : values[i] != 0.0625f) return 1;
    return 0;
}

int loads(const char* name, int count, bool is_transposed) {
    Halves from;
    for (uint32_t i = 0; i < 32 * 8; i++) from.push_back((uint16_t)(i * 257 + 3));
    Halves wanted;
    for (int lane = 0; lane < 32; lane++)
        for (int matrix = 0; matrix < count; matrix++)
            for (int i = 0; i < 2; i++) {
                const int own = lane / 4, pair = lane % 4 * 2 + i;
                const int row = is_transposed ? pair : own, col = is_transposed ? own : pair;
                wanted.push_back(from[(matrix * 8 + row) * 8 + col]);
            }
    return holds_in_every_order([&] {
        const Address to = allocate(32 * count);
        if (!runs(name, 32, 32 * 48, upload(from), to)) return false;
        const std::vector<float> words = read(to, 32 * count);
        return std::memcmp(words.data(), wanted.data(), wanted.size() * 2) == 0;
    });
}

// `count` numbers for a pipeline of `turns` turns: what is past them counts as zeros.
int stages(uint32_t turns, uint32_t count) {
    const std::vector<float> from = wholes(7, (int)count);
    std::vector<float> wanted(64, 0.0f);
    for (uint32_t i = 0; i < turns * 256 && i < count; i++) wanted[63 - i / 4 % 64] += from[i];
    return holds_in_every_order([&] {
        const Address to = allocate(64);
        return runs("staged", 64, 3 * 64 * 16, upload(from), to, turns, count) && read(to, 64) == wanted;
    });
}

int small_copies() {
    const std::vector<float> from = wholes(3, 64);
    std::vector<float> wanted;
    for (int i = 0; i < 64; i++) wanted.push_back(from[i] + from[63 - i]);
    return holds_in_every_order([&] {
        const Address to = allocate(64);
        return runs("small_copies", 64, 512, upload(from), to) && read(to, 64) == wanted;
    });
}

// Of two groups, one is waited for.
int read_before_its_wait() {
    const std::vector<float> from = wholes(3, 64);
    const Address to = allocate(128);
    if (!runs("read_before_its_wait", 64, 512, upload(from), to)) return 1;
    const std::vector<float> values = read(to, 128);
    for (int i = 0; i < 64; i++)
        if (values[i] != from[i] || !std::isnan(values[64 + i])) return 1;
    return 0;
}

std::vector<uint32_t> words(Address from, int count) {
    const std::vector<float> values = read(from, count);
    std::vector<uint32_t> found(values.size());
    std::memcpy(found.data(), values.data(), values.size() * sizeof(uint32_t));
    return found;
}

// Ends of the range of 2^x, ties of bfloat16, and what rounds up to another power of two.
int numbers() {
    std::vector<float> from = {0.0f,    -0.0f,  1.0f,      -1.0f,    0.5f, -126.0f, -126.5f,
                               -200.0f, 200.0f, -INFINITY, INFINITY, NAN,  1e-45f};
    for (const uint32_t bits : {0x3f808000u, 0x3f818000u, 0x3f808001u, 0x3f807fffu, 0x3fffffffu, 0x7f7fffffu}) {
        from.emplace_back();
        std::memcpy(&from.back(), &bits, sizeof(bits));
    }
    from.resize(32, -3.7f);
    const std::vector<uint32_t> rounded = {0x3f80, 0x3f82, 0x3f81, 0x3f80, 0x4000, 0x7f80};
    return holds_in_every_order([&] {
        const Address to = allocate(64);
        if (!runs("numbers", 32, 0, upload(from), to)) return false;
        const std::vector<float> powers = read(to, 64);
        const std::vector<uint32_t> pairs = words(to, 64);
        for (int i = 0; i < 32; i++) {
            const float wanted = from[i] < -126.0f ? 0.0f : (float)std::pow(2.0, (double)from[i]);
            if (powers[i] != wanted && !(std::isnan(powers[i]) && std::isnan(wanted))) return false;
        }
        for (size_t i = 0; i < rounded.size(); i++)
            if (pairs[32 + 13 + i] != (rounded[i] | (rounded[i] | 0x8000) << 16)) return false;
        return pairs[32 + 11] == 0x7fff7fffu && pairs[32 + 1] == 0x00008000u;
    });
}

int lanes() {
    std::vector<uint32_t> from, wanted;
    uint32_t ballot = 0;
    for (uint32_t i = 0; i < 32; i++) from.push_back(i * 7 % 32), ballot |= (uint32_t)(i * 7 % 32 % 3 == 0) << i;
    for (uint32_t i = 0; i < 32; i++) {
        wanted.insert(wanted.end(), {from[5], from[i / 8 * 8 + (i + 3) % 8], from[i < 2 ? i : i - 2]});
        wanted.insert(wanted.end(), {from[i % 16 < 3 ? i : i - 3], ballot, 1, 1, from[i % 8 + 4 < 8 ? i + 4 : i]});
    }
    return holds_in_every_order([&] {
        const Address to = allocate(32 * 8);
        return runs("lanes", 32, 0, upload(from), to) && words(to, 32 * 8) == wanted;
    });
}

int atomics() {
    std::vector<uint32_t> from;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < 64 * 50; i++) from.push_back(i * 2654435761u | 1), sum += from.back();
    const uint32_t least = *std::min_element(from.begin(), from.end()), most = *std::max_element(from.begin(), from.end());
    return holds_in_every_order([&] {
        Address from_at = upload(from), to = upload(std::vector<uint32_t>{0, 0, ~0u, 0, 0, 0});
        void* places[] = {&from_at, &to};
        if (cuLaunchKernel(function("atomics"), 50, 1, 1, 64, 1, 1, 0, nullptr, places, nullptr)) return false;
        const std::vector<uint32_t> found = words(to, 6);
        return found[0] == from.size() && found[1] == sum && found[2] == least && found[3] == most && found[4] == found[5] &&
               found[4] != 0;
    });
}

int copies(const char* name, unsigned shared = 1024) { return launch(name, allocate(64 * 4), shared); }
} // namespace

const std::vector<Case> TILE_CASES = {
    {"a product of tensor cores is that of loops", "", [] { return product(16); }},
    {"a sum over several products is that of loops", "", [] { return product(80); }},
    {"a product spreads a NaN over its row alone", "", product_of_nan},
    {"one matrix is loaded", "", [] { return loads("load_1", 1, false); }},
    {"two matrices are loaded", "", [] { return loads("load_2", 2, false); }},
    {"four matrices are loaded", "", [] { return loads("load_4", 4, false); }},
    {"one matrix is loaded transposed", "", [] { return loads("load_1_transposed", 1, true); }},
    {"two matrices are loaded transposed", "", [] { return loads("load_2_transposed", 2, true); }},
    {"four matrices are loaded transposed", "", [] { return loads("load_4_transposed", 4, true); }},
    {"copies are there after their wait", "", [] { return stages(7, 7 * 256); }},
    {"a ring of stages may have one turn", "", [] { return stages(1, 256); }},
    {"copies from past the end are zeros", "", [] { return stages(5, 4 * 256 + 12); }},
    {"copies of 4 and 8 bytes are there after their wait", "", small_copies},
    {"powers and pairs of numbers are those of the processor", "", numbers},
    {"shuffles and votes are those of loops", "", lanes},
    {"atomics of many blocks are those of loops", "", atomics},
    {"a copy is not there before its wait", "", read_before_its_wait},
    {"a copy without a wait is reported", "ends while 1 of its copies", [] { return copies("never_waited_for"); }},
    {"a copy without a group is not waited for", "ends while 1 of its copies", [] { return copies("not_committed"); }},
    {"a source written during its copy is reported", "source of a copy was written", [] { return copies("source_written"); }},
    {"a copy past shared memory is reported", "outside of the shared memory", [] { return copies("copied_past_shared", 256); }},
    {"a misaligned copy is reported", "not a multiple of 8", [] { return copies("copied_misaligned"); }},
    {"a copy from past an allocation is reported", "is of no allocation",
     [] { return launch("copied_past_the_end", allocate(64), 1024); }},
    {"a misaligned row of a matrix is reported", "not a multiple of 16",
     [] { return launch("row_of_a_matrix_misaligned", allocate(32), 1024, 1, 32); }},
    {"a matrix in global memory is reported", "outside of the shared memory",
     [] { return launch("row_of_a_matrix_in_global_memory", allocate(32), 1024, 1, 32); }},
    {"a product without a lane is reported", "has 31", [] { return launch("product_without_a_lane", allocate(32), 0, 1, 32); }},
    {"a product at two lines is reported", "while others wait at that of line",
     [] { return launch("product_at_two_lines", allocate(32), 0, 1, 32); }},
};
