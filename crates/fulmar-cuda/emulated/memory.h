// Device memory out of the host's reach: see memory.cpp.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulated {

// Returns the bytes of all device memory.
size_t memory_bytes();

// Returns the address of `bytes` new bytes, all 0xff, or 0 where there is no more memory.
uintptr_t allocate(size_t bytes);

// Returns whether there was an allocation at `address`; then there is none any more.
bool release(uintptr_t address);

// Returns whether `bytes` bytes from `address` are of one allocation.
bool holds(uintptr_t address, size_t bytes);

size_t free_bytes();

// Returns the address of `bytes` new bytes of the host, all 0xff, which copies read and write late, or null. They are never freed.
void* allocate_pinned(size_t bytes);

bool is_pinned(const void* address);

// Makes device memory accessible to the host's threads, and reports accesses that no memory answers, while it lives.
class Opened {
  public:
    Opened();
    ~Opened();
};

} // namespace emulated
