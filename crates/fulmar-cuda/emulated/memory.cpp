// Each allocation begins as NaN and ends at a page that no thread may touch. Its pages have rights while a launch or a copy
// runs, so a host that reads or writes device memory itself ends with a signal. FULMAR_EMULATED_OPEN=1 leaves the rights on.
#include "memory.h"
#include "blocks.h"
#include <sys/mman.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>

namespace emulated {

namespace {
struct Region {
    size_t bytes;
    unsigned char* base;
    size_t mapped;
};
std::map<uintptr_t, Region> regions;
std::map<uintptr_t, size_t> pinned; // addresses and bytes
std::mutex lock;
size_t bytes_taken = 0;
constexpr size_t PAGE = 4096, ALIGNMENT = 16;

bool stays_open() { return *option("FULMAR_EMULATED_OPEN", ""); }

void protect(int rights) {
    if (stays_open()) return;
    for (auto& [address, region] : regions) mprotect(region.base, region.mapped, rights);
}

// An access without rights, or one of a vector that is not aligned: g++ compiles the check into kernels.
void report(int signal_number, siginfo_t* info, void*) {
    if (signal_number == SIGILL && current) fail("an access whose address is not a multiple of its size");
    if (current) fail("address %p is of no allocation", info->si_addr);
    fprintf(stderr, "emulated: the host touched address %p, or what is not mapped\n", info->si_addr);
    signal(signal_number, SIG_DFL);
}

void watch_signals() {
    static const bool is_watching = [] {
        struct sigaction action = {};
        action.sa_sigaction = report;
        action.sa_flags = SA_SIGINFO | SA_NODEFER;
        for (int number : {SIGSEGV, SIGBUS, SIGILL}) sigaction(number, &action, nullptr);
        return true;
    }();
    (void)is_watching;
}
} // namespace

size_t memory_bytes() {
    static const size_t bytes = (size_t)atol(option("FULMAR_EMULATED_MEMORY_MIB", "8192")) << 20;
    return bytes;
}

uintptr_t allocate(size_t bytes) {
    std::lock_guard<std::mutex> held(lock);
    watch_signals();
    if (bytes > memory_bytes() - bytes_taken) return 0;
    const size_t body = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, mapped = (body + PAGE - 1) / PAGE * PAGE;
    auto* base = (unsigned char*)mmap(nullptr, mapped + PAGE, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) return 0;
    memset(base, 0xff, mapped);
    mprotect(base + mapped, PAGE, PROT_NONE);
    const auto address = (uintptr_t)(base + mapped - body);
    regions[address] = {bytes, base, mapped};
    bytes_taken += bytes;
    if (!stays_open()) mprotect(base, mapped, PROT_NONE);
    return address;
}

bool release(uintptr_t address) {
    std::lock_guard<std::mutex> held(lock);
    const auto at = regions.find(address);
    if (at == regions.end()) return false;
    // The address stays taken, so that a later access to it is found.
    mmap(at->second.base, at->second.mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    bytes_taken -= at->second.bytes;
    regions.erase(at);
    return true;
}

bool holds(uintptr_t address, size_t bytes) {
    std::lock_guard<std::mutex> held(lock);
    auto after = regions.upper_bound(address);
    if (after == regions.begin()) return false;
    const auto& [first, region] = *--after;
    return address + bytes <= first + region.bytes;
}

size_t free_bytes() {
    std::lock_guard<std::mutex> held(lock);
    return memory_bytes() - bytes_taken;
}

void* allocate_pinned(size_t bytes) {
    std::lock_guard<std::mutex> held(lock);
    void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) return nullptr;
    memset(base, 0xff, bytes);
    pinned[(uintptr_t)base] = bytes;
    return base;
}

bool is_pinned(const void* address) {
    std::lock_guard<std::mutex> held(lock);
    auto after = pinned.upper_bound((uintptr_t)address);
    if (after == pinned.begin()) return false;
    const auto& [first, bytes] = *--after;
    return (uintptr_t)address < first + bytes;
}

Opened::Opened() {
    lock.lock();
    protect(PROT_READ | PROT_WRITE);
}
Opened::~Opened() {
    protect(PROT_NONE);
    lock.unlock();
}

} // namespace emulated
