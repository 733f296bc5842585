// The words of the emulated driver's tests: functions of the driver, short forms of their calls, and cases.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

extern "C" {
using Address = unsigned long long;
int cuDeviceGetAttribute(int* value, int attribute, int device);
int cuModuleGetFunction(void** function, void* module, const char* name);
int cuFuncSetAttribute(void* function, int attribute, int value);
int cuStreamCreate(void** stream, unsigned flags);
int cuStreamSynchronize(void* stream);
int cuStreamWaitEvent(void* stream, void* event, unsigned flags);
int cuEventCreate(void** event, unsigned flags);
int cuEventRecord(void* event, void* stream);
int cuEventQuery(void* event);
int cuEventSynchronize(void* event);
int cuEventElapsedTime_v2(float* milliseconds, void* from, void* to);
int cuMemHostAlloc(void** memory, size_t bytes, unsigned flags);
int cuMemAllocAsync(Address* address, size_t bytes, void* stream);
int cuMemFreeAsync(Address address, void* stream);
int cuMemAlloc_v2(Address* address, size_t bytes);
int cuMemFree_v2(Address address);
int cuMemPoolGetAttribute(void* pool, int attribute, void* value);
int cuCtxSynchronize();
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void* stream);
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void* stream);
int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** arguments, void** extra);
int cuStreamBeginCapture_v2(void* stream, int mode);
int cuStreamEndCapture(void* stream, void** graph);
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long flags);
int cuGraphLaunch(void* executable, void* stream);
}

constexpr int SHARED_BYTES_ATTRIBUTE = 8, USED_BYTES = 7, THREAD_LOCAL = 1, COUNT = 64, NON_BLOCKING = 1, NOT_READY = 600;
constexpr size_t BYTES = COUNT * sizeof(float);
constexpr const char* ORDERS[] = {"forward", "backward", "random", "greedy", "greedy-back"};

// A case: its name, the text that it must write (or nothing), and the signal or else status 0 or 86 with which it ends.
struct Case {
    const char *name, *text;
    std::function<int()> run;
    int signal_number = 0;
};

// The cases of tiles_test.cpp.
extern const std::vector<Case> TILE_CASES;

inline void* function(const char* name) {
    void* found = nullptr;
    return cuModuleGetFunction(&found, nullptr, name) == 0 ? found : nullptr;
}
inline Address allocate(int count, void* stream = nullptr) {
    Address address = 0;
    return cuMemAllocAsync(&address, count * sizeof(float), stream) == 0 ? address : 0;
}
inline int launch(const char* name, Address x, unsigned shared = 256, unsigned blocks = 1, unsigned threads = COUNT,
                  void* stream = nullptr, float by = 1.0f) {
    void* arguments[] = {&x, &by};
    return cuLaunchKernel(function(name), blocks, 1, 1, threads, 1, 1, shared, stream, arguments, nullptr);
}
inline std::vector<float> read(Address from, int count) {
    std::vector<float> values(count);
    return cuMemcpyDtoHAsync_v2(values.data(), from, count * sizeof(float), nullptr) == 0 ? values : std::vector<float>();
}
// Exit status of a case: 0 if what it promises holds.
inline int holds(bool is_true) { return is_true ? 0 : 1; }
