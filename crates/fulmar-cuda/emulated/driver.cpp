// A libcuda.so whose GPU is the processor: the functions of NVIDIA's driver that Fulmar calls, for machines without a GPU.
//
// Work is done as late as CUDA allows, see streams.cpp. Copies from pinned memory read it then, and those to pinned memory, which holds NaN
// until then, write it; memory that is not pinned is read before the call returns, and a copy to it is done then. Memory is freed
// when the call returns, after the work of its stream: a copy of another stream to it that is not done is reported.
//
// A capture refuses what CUDA refuses, and then is invalid: waits, and memory outside a stream's order. It also refuses what CUDA captures
// and Fulmar has no use for: memory of a graph's own, events, and copies from or to the host, whose memory is read or written when
// the graph runs. Options, from the environment: FULMAR_EMULATED_CAPABILITY (80 or 90, the default), FULMAR_EMULATED_MEMORY_MIB (8,192),
// FULMAR_EMULATED_FAIL_ALLOCATION=N, FULMAR_EMULATED_FAIL_PINNED=N and FULMAR_EMULATED_FAIL_LAUNCH=N, which let call number N fail, counted from 1;
// FULMAR_EMULATED_FAIL_EACH_LAUNCH=N lets every Nth fail. A launch is one of a kernel or of a graph.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include "blocks.h"
#include "memory.h"
#include "streams.h"

using namespace emulated;

namespace {
using Address = unsigned long long;

enum Status {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    INVALID_DEVICE = 101,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    OUT_OF_RESOURCES = 701,
    LAUNCH_FAILED = 719,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_WRONG_THREAD = 908
};
enum Attribute { MULTIPROCESSORS = 16, L2_BYTES = 38, MAJOR = 75, MINOR = 76, SHARED_BYTES_ALLOWED = 97, MEMORY_POOLS = 115 };
constexpr int RESERVED_BYTES = 5, USED_BYTES = 7; // of a pool
constexpr int NON_BLOCKING = 1; // of a stream
constexpr int SHARED_BYTES_ATTRIBUTE = 8; // of a function: the shared memory that a launch may ask for

std::map<std::string, std::atomic<long>> calls;

int capability() {
    const std::string name = option("FULMAR_EMULATED_CAPABILITY", "90");
    if (name != "80" && name != "90") fail("FULMAR_EMULATED_CAPABILITY must be 80 or 90: got %s", name.c_str());
    return atoi(name.c_str());
}
uint32_t shared_bytes_max() { return (capability() == 90 ? 227 : 163) << 10; }

// Returns whether this is the call that the environment wants to fail.
bool must_fail(const char* what) { return ++calls[what] == atol(option(what, "0")); }
bool must_fail_launch() {
    const long each = atol(option("FULMAR_EMULATED_FAIL_EACH_LAUNCH", "0"));
    return must_fail("FULMAR_EMULATED_FAIL_LAUNCH") || (each && calls["FULMAR_EMULATED_FAIL_LAUNCH"] % each == 0);
}

constexpr int RELAXED = 2;
thread_local Stream* captured_here = nullptr; // by a capture that is not relaxed

int queue(void* stream, Work work) {
    Stream& of = *stream_of(stream);
    if (!of.captured) return append(of, std::move(work)), SUCCESS;
    if (of.is_invalid) return CAPTURE_INVALIDATED;
    of.captured->nodes.push_back(std::move(work));
    return SUCCESS;
}

// Returns the error of a call that a captured stream cannot have, which ends its capture, or success elsewhere.
int refuse(Stream* stream) {
    if (!stream || !stream->captured) return SUCCESS;
    stream->is_invalid = true;
    return CAPTURE_UNSUPPORTED;
}

// Copies `bytes` bytes, where `device` is the range in device memory: both of them, or one of them and host memory.
void copy(void* to, const void* from, size_t bytes, Address device) {
    if (!holds(device, bytes)) fail("a copy of memory that was freed before it was done");
    Opened opened;
    memmove(to, from, bytes);
}

bool is_within_limits(const Launch& of) {
    const auto [gx, gy, gz] = of.grid;
    const auto [bx, by, bz] = of.block;
    const bool has_threads =
        bx && by && bz && bx <= 1024 && by <= 1024 && bz <= 64 && (uint64_t)bx * by * bz <= of.kernel->threads_max;
    const bool has_blocks = gx && gy && gz && gx < 1u << 31 && gy <= 65535 && gz <= 65535 && gx % of.kernel->cluster == 0;
    return has_threads && has_blocks && of.shared_bytes <= of.kernel->shared_max;
}
} // namespace

extern "C" {
int cuInit(unsigned) { return SUCCESS; }
int cuDriverGetVersion(int* version) { return *version = 13000, SUCCESS; }
int cuDeviceGetCount(int* count) { return *count = 1, SUCCESS; }
int cuDeviceGet(int* device, int ordinal) { return *device = ordinal, ordinal == 0 ? SUCCESS : INVALID_DEVICE; }
int cuDeviceGetName(char* to, int len, int) { return snprintf(to, len, "emulated GPU"), SUCCESS; }
int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = memory_bytes(), SUCCESS; }
int cuMemGetInfo_v2(size_t* free, size_t* total) { return *free = free_bytes(), *total = memory_bytes(), SUCCESS; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
    switch (attribute) {
        case MULTIPROCESSORS: *value = 132; break;
        case L2_BYTES: *value = 50 << 20; break;
        case MAJOR: *value = capability() / 10; break;
        case MINOR: *value = capability() % 10; break;
        case SHARED_BYTES_ALLOWED: *value = (int)shared_bytes_max(); break;
        case MEMORY_POOLS: *value = 1; break;
        default: *value = 0;
    }
    return SUCCESS;
}

int cuDevicePrimaryCtxRetain(void** context, int) { return *context = (void*)1, SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int) { return SUCCESS; }
int cuCtxSetCurrent(void*) { return SUCCESS; }
int cuCtxGetCurrent(void** context) { return *context = (void*)1, SUCCESS; }
int cuCtxSynchronize() {
    if (const int status = refuse(captured_here)) return status;
    return finish_all(), SUCCESS;
}

int cuModuleLoadData(void** module, const void*) { return *module = (void*)1, SUCCESS; }
int cuModuleUnload(void*) { return SUCCESS; }
int cuModuleGetFunction(void** function, void*, const char* name) {
    const auto at = kernels().find(name);
    if (at == kernels().end()) return NOT_FOUND;
    return *function = &*at, SUCCESS;
}
int cuFuncSetAttribute(void* function, int attribute, int value) {
    auto& kernel = ((std::pair<const std::string, Kernel>*)function)->second;
    if (attribute != SHARED_BYTES_ATTRIBUTE || value < 0 || (uint32_t)value > shared_bytes_max()) return INVALID_VALUE;
    return kernel.shared_max = max(kernel.shared_max, (uint32_t)value), SUCCESS;
}

int cuFuncGetParamInfo(void* function, size_t index, size_t* offset, size_t* bytes) {
    const auto& sizes = ((std::pair<const std::string, Kernel>*)function)->second.argument_sizes;
    if (index >= sizes.size()) return INVALID_VALUE;
    *offset = 0;
    for (size_t i = 0; i < index; i++) *offset = (*offset + sizes[i] + sizes[i + 1] - 1) / sizes[i + 1] * sizes[i + 1];
    return *bytes = sizes[index], SUCCESS;
}

int cuStreamCreate(void** stream, unsigned flags) {
    return *stream = create_stream(!(flags & NON_BLOCKING)), SUCCESS;
}
int cuStreamDestroy_v2(void* stream) {
    if (captured_here == stream) captured_here = nullptr;
    return destroy_stream((Stream*)stream), SUCCESS;
}
int cuStreamSynchronize(void* stream) {
    if (const int status = refuse(stream_of(stream))) return status;
    return finish(*stream_of(stream)), SUCCESS;
}
int cuStreamWaitEvent(void* stream, void* event, unsigned) {
    if (const int status = refuse(stream_of(stream))) return status;
    return pass(*(Event*)event), SUCCESS;
}
int cuEventCreate(void** event, unsigned) { return *event = new Event, SUCCESS; }
int cuEventDestroy_v2(void* event) { return delete (Event*)event, SUCCESS; }
int cuEventRecord(void* event, void* stream) {
    if (const int status = refuse(stream_of(stream))) return status;
    return record(*(Event*)event, *stream_of(stream)), SUCCESS;
}
int cuEventQuery(void* event) {
    return is_passed(*(Event*)event) ? SUCCESS : NOT_READY;
}
int cuEventSynchronize(void* event) {
    if (const int status = refuse(captured_here)) return status;
    return pass(*(Event*)event), SUCCESS;
}
int cuEventElapsedTime_v2(float* milliseconds, void* from, void* to) {
    const Event &before = *(Event*)from, &after = *(Event*)to;
    if (!before.point || !after.point) return INVALID_VALUE;
    if (!is_passed(before) || !is_passed(after)) return NOT_READY;
    return *milliseconds = std::chrono::duration<float, std::milli>(after.point->at - before.point->at).count(), SUCCESS;
}

// One pool, which keeps nothing: an address that was freed is never given again.
int cuDeviceGetDefaultMemPool(void** pool, int) { return *pool = (void*)1, SUCCESS; }
int cuMemPoolSetAttribute(void*, int, void*) { return SUCCESS; }
int cuMemPoolGetAttribute(void*, int attribute, void* value) {
    if (attribute != RESERVED_BYTES && attribute != USED_BYTES) return INVALID_VALUE;
    return *(uint64_t*)value = memory_bytes() - free_bytes(), SUCCESS;
}
int cuMemPoolTrimTo(void*, size_t) { return SUCCESS; }

int cuMemAllocAsync(Address* address, size_t bytes, void* stream) {
    if (const int status = refuse(stream_of(stream))) return status;
    if (must_fail("FULMAR_EMULATED_FAIL_ALLOCATION")) return OUT_OF_MEMORY;
    *address = allocate(bytes);
    return *address ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemAlloc_v2(Address* address, size_t bytes) {
    if (const int status = refuse(captured_here)) return status;
    return cuMemAllocAsync(address, bytes, nullptr);
}
int cuMemFreeAsync(Address address, void* stream) {
    if (const int status = refuse(stream_of(stream))) return status;
    finish(*stream_of(stream));
    return release(address) ? SUCCESS : INVALID_VALUE;
}
int cuMemFree_v2(Address address) {
    if (const int status = refuse(captured_here)) return status;
    return cuMemFreeAsync(address, nullptr);
}
int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
    if (const int status = refuse(captured_here)) return status;
    if (must_fail("FULMAR_EMULATED_FAIL_PINNED")) return OUT_OF_MEMORY;
    *memory = allocate_pinned(bytes);
    return *memory ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void* stream) {
    if (const int status = refuse(stream_of(stream))) return status;
    if (!holds(to, bytes)) return INVALID_VALUE;
    if (is_pinned(from)) return queue(stream, [=] { copy((void*)to, from, bytes, to); });
    const auto* first = (const unsigned char*)from;
    const auto taken = std::make_shared<std::vector<unsigned char>>(first, first + bytes);
    return queue(stream, [=] { copy((void*)to, taken->data(), bytes, to); });
}
int cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void* stream) {
    if (const int status = refuse(stream_of(stream))) return status;
    if (!holds(from, bytes)) return INVALID_VALUE;
    if (is_pinned(to)) memset(to, 0xff, bytes);
    const int status = queue(stream, [=] { copy(to, (void*)from, bytes, from); });
    if (!is_pinned(to)) finish(*stream_of(stream));
    return status;
}
int cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void* stream) {
    if (!holds(from, bytes) || !holds(to, bytes)) return INVALID_VALUE;
    return queue(stream, [=] {
        if (!holds(from, bytes)) fail("a copy of memory that was freed before it was done");
        copy((void*)to, (void*)from, bytes, to);
    });
}
}
template <class T>
static int fill(Address to, T value, size_t len, void* stream) {
    if (!holds(to, len * sizeof(T)) || to % sizeof(T) != 0) return INVALID_VALUE;
    return queue(stream, [=] {
        Opened opened;
        std::fill_n((T*)to, len, value);
    });
}
extern "C" {
int cuMemsetD8Async(Address to, unsigned char value, size_t len, void* stream) { return fill(to, value, len, stream); }
int cuMemsetD16Async(Address to, unsigned short value, size_t len, void* stream) { return fill(to, value, len, stream); }
int cuMemsetD32Async(Address to, unsigned value, size_t len, void* stream) { return fill(to, value, len, stream); }

int cuLaunchKernel(void* function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared, void* stream, void** arguments, void**) {
    const auto& [name, kernel] = *(const std::pair<const std::string, Kernel>*)function;
    const Launch of{name, &kernel, {gx, gy, gz}, {bx, by, bz}, shared};
    if (!is_within_limits(of)) return INVALID_VALUE;
    if (must_fail_launch()) return OUT_OF_RESOURCES;
    if (kernel.cluster > 1 && capability() < 90) return LAUNCH_FAILED;
    // The driver reads the arguments before the call returns: a graph has their values of then.
    auto values = std::make_shared<std::vector<std::vector<unsigned char>>>();
    for (size_t i = 0; i < kernel.argument_sizes.size(); i++) {
        const auto* from = (const unsigned char*)arguments[i];
        values->emplace_back(from, from + kernel.argument_sizes[i]);
    }
    return queue(stream, [=] {
        std::vector<void*> places;
        for (auto& value : *values) places.push_back(value.data());
        Opened opened;
        run(of, places.data());
    });
}

int cuStreamBeginCapture_v2(void* stream, int mode) {
    if (!stream) return CAPTURE_UNSUPPORTED;
    auto* of = (Stream*)stream;
    if (of->captured) return ILLEGAL_STATE;
    of->captured = std::make_unique<Graph>();
    of->is_invalid = false, of->mode = mode, of->thread = std::this_thread::get_id();
    if (mode != RELAXED) captured_here = of;
    return SUCCESS;
}
int cuStreamEndCapture(void* stream, void** graph) {
    *graph = nullptr;
    Stream& of = *stream_of(stream);
    if (!of.captured) return ILLEGAL_STATE;
    if (of.mode != RELAXED && of.thread != std::this_thread::get_id()) return CAPTURE_WRONG_THREAD;
    if (captured_here == &of) captured_here = nullptr;
    const auto captured = of.captured.release();
    if (!of.is_invalid) return *graph = captured, SUCCESS;
    return delete captured, CAPTURE_INVALIDATED;
}
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) {
    return *executable = new Graph(*(Graph*)graph), SUCCESS;
}
int cuGraphLaunch(void* executable, void* stream) {
    if (const int status = refuse(stream_of(stream))) return status;
    if (must_fail_launch()) return OUT_OF_RESOURCES;
    // A graph may be destroyed before its last run is done.
    const auto nodes = ((Graph*)executable)->nodes;
    return queue(stream, [=] {
        for (auto& node : nodes) node();
    });
}
int cuGraphExecDestroy(void* executable) { return delete (Graph*)executable, SUCCESS; }
int cuGraphDestroy(void* graph) { return delete (Graph*)graph, SUCCESS; }

int cuGetErrorName(int status, const char** name) {
    return *name = status == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR", SUCCESS;
}
int cuGetErrorString(int, const char** text) { return *text = "an error of the emulated driver", SUCCESS; }
}
