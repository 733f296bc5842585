// The test of the emulated driver: each fault of faults.cu is reported, each limit is kept, each option does what it says.
// Every case runs in a process of its own, as most of them end it.
#include "test.h"
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <thread>

namespace {
std::vector<float> result(const char* name, const char* order, unsigned blocks = 1) {
    setenv("FULMAR_EMULATED_ORDER", order, 1);
    const Address x = allocate(COUNT * (int)blocks);
    return launch(name, x, 256, blocks) == 0 ? read(x, COUNT * (int)blocks) : std::vector<float>();
}
bool has_nan(const std::vector<float>& values) {
    for (float value : values)
        if (std::isnan(value)) return true;
    return false;
}

int add_in_a_graph() {
    const std::vector<float> zeros(COUNT);
    void *stream = nullptr, *graph = nullptr, *none = nullptr, *executable = nullptr;
    cuStreamCreate(&stream, 0);
    const Address x = allocate(COUNT);
    cuMemcpyHtoDAsync_v2(x, zeros.data(), BYTES, stream);
    cuStreamBeginCapture_v2(stream, THREAD_LOCAL);
    for (float by : {1.0f, 2.0f}) launch("sound", x, 0, 1, COUNT, stream, by);
    const bool ends = cuStreamEndCapture(stream, &graph) == 0 && cuStreamEndCapture(stream, &none) == 401;
    const bool has_not_run = read(x, 1)[0] == 0.0f;
    cuGraphInstantiateWithFlags(&executable, graph, 0);
    for (int i = 0; i < 3; i++) cuGraphLaunch(executable, stream);
    return holds(ends && has_not_run && read(x, COUNT)[63] == 9.0f);
}

// Each call in a capture of its own: it is refused, what comes after it as well, and the capture ends without a graph.
int refuse_in_a_capture() {
    void* stream = nullptr;
    cuStreamCreate(&stream, 0);
    const Address x = allocate(COUNT);
    Address more = 0;
    std::vector<float> numbers(COUNT);
    void *event = nullptr, *pinned = nullptr;
    cuEventCreate(&event, 0);
    const std::vector<std::function<int()>> calls = {
        [&] { return cuStreamSynchronize(stream); },
        [&] { return cuStreamWaitEvent(stream, event, 0); },
        [&] { return cuEventRecord(event, stream); },
        [&] { return cuEventSynchronize(event); },
        [&] { return cuMemHostAlloc(&pinned, BYTES, 0); },
        [&] { return cuCtxSynchronize(); },
        [&] { return cuMemAllocAsync(&more, BYTES, stream); },
        [&] { return cuMemAlloc_v2(&more, BYTES); },
        [&] { return cuMemFreeAsync(x, stream); },
        [&] { return cuMemFree_v2(x); },
        [&] { return cuMemcpyHtoDAsync_v2(x, numbers.data(), BYTES, stream); },
        [&] { return cuMemcpyDtoHAsync_v2(numbers.data(), x, BYTES, stream); },
    };
    bool is_refused = cuStreamBeginCapture_v2(nullptr, THREAD_LOCAL) == 900;
    for (const auto& call : calls) {
        void* graph = stream;
        is_refused &= cuStreamBeginCapture_v2(stream, THREAD_LOCAL) == 0 && cuStreamBeginCapture_v2(stream, THREAD_LOCAL) == 401;
        is_refused &= call() == 900 && launch("sound", x, 0, 1, COUNT, stream) == 901;
        is_refused &= cuStreamEndCapture(stream, &graph) == 901 && graph == nullptr;
    }
    // Work on another stream is neither refused nor captured.
    void *other = nullptr, *graph = nullptr;
    cuStreamCreate(&other, 0);
    cuStreamBeginCapture_v2(stream, THREAD_LOCAL);
    const bool runs = launch("sound", x, 0, 1, COUNT, other) == 0 && cuStreamSynchronize(other) == 0 && !read(x, COUNT).empty();
    int of_thread = 0;
    std::thread([&] { of_thread = cuStreamEndCapture(stream, &graph); }).join();
    return holds(is_refused && runs && of_thread == 908 && cuStreamEndCapture(stream, &graph) == 0);
}

// Two streams that are in order with no other, memory of both, and an event.
struct Two {
    void *work = nullptr, *copies = nullptr, *event = nullptr, *memory = nullptr;
    float* pinned = nullptr;
    Address x = allocate(COUNT);

    Two() {
        cuStreamCreate(&work, NON_BLOCKING);
        cuStreamCreate(&copies, NON_BLOCKING);
        cuEventCreate(&event, 0);
        cuMemHostAlloc(&memory, BYTES, 0);
        pinned = (float*)memory;
        std::fill_n(pinned, COUNT, 1.0f);
    }
    int upload(void* stream) const { return cuMemcpyHtoDAsync_v2(x, pinned, BYTES, stream); }
    int download(void* stream) const { return cuMemcpyDtoHAsync_v2(pinned, x, BYTES, stream); }
    int add(void* stream, float by) const { return launch("sound", x, 0, 1, COUNT, stream, by); }
    // Adds 2 on the stream of work, which waits for the event, and returns the last number.
    float sum() const {
        cuStreamWaitEvent(work, event, 0);
        add(work, 2.0f);
        cuStreamSynchronize(work);
        return read(x, COUNT)[63];
    }
};

// What copies, and what the right order makes of them, for each place of the event.
int wait_for_events() {
    Two right, early, without, of_another;
    right.upload(right.copies);
    cuEventRecord(right.event, right.copies);
    const bool is_late = cuEventQuery(right.event) == NOT_READY && std::isnan(read(right.x, COUNT)[0]);
    cuEventRecord(early.event, early.copies);
    early.upload(early.copies);
    without.upload(without.copies); // the event records nothing
    of_another.upload(of_another.copies);
    cuEventRecord(of_another.event, of_another.work);
    return holds(is_late && right.sum() == 3.0f && cuEventQuery(right.event) == 0 && std::isnan(early.sum()) &&
                 std::isnan(without.sum()) && std::isnan(of_another.sum()));
}

// A copy from pinned memory has what is there when it is done, any other what was there when it was queued.
int copy_late() {
    Two streams;
    std::vector<float> pageable(COUNT, 1.0f);
    const Address y = allocate(COUNT);
    cuMemcpyHtoDAsync_v2(y, pageable.data(), BYTES, streams.copies);
    streams.upload(streams.copies);
    streams.pinned[63] = pageable[63] = 5.0f;
    cuStreamSynchronize(streams.copies);
    const bool reads = read(streams.x, COUNT)[63] == 5.0f && read(y, COUNT)[63] == 1.0f;
    streams.download(streams.work);
    cuEventRecord(streams.event, streams.work);
    const bool is_late = std::isnan(streams.pinned[63]);
    cuEventSynchronize(streams.event);
    const bool is_there = streams.pinned[63] == 5.0f;
    return holds(reads && is_late && is_there && cuMemcpyDtoHAsync_v2(pageable.data(), y, BYTES, streams.work) == 0 &&
                 pageable[0] == 1.0f);
}

// A kernel that is queued before has what another stream copies over its memory.
int overtake() {
    Two streams;
    streams.upload(streams.work);
    streams.add(streams.work, 2.0f);
    cuStreamSynchronize(streams.work);
    streams.add(streams.work, 2.0f);
    streams.upload(streams.copies);
    cuEventRecord(streams.event, streams.copies);
    cuStreamWaitEvent(streams.work, streams.event, 0);
    cuStreamSynchronize(streams.work);
    return holds(read(streams.x, COUNT)[63] == 3.0f);
}

// One stream is in order: a copy, a kernel, a copy over it, a kernel, with a time before and behind.
int stay_in_order() {
    Two streams;
    void* before = nullptr;
    cuEventCreate(&before, 0);
    float milliseconds = -1.0f;
    const bool needs_records = cuEventElapsedTime_v2(&milliseconds, before, streams.event) == 1;
    cuEventRecord(before, streams.work);
    const std::vector<float> sevens(COUNT, 7.0f);
    streams.upload(streams.work);
    streams.add(streams.work, 2.0f);
    cuMemcpyHtoDAsync_v2(streams.x, sevens.data(), BYTES, streams.work);
    streams.add(streams.work, 4.0f);
    streams.download(streams.work);
    cuEventRecord(streams.event, streams.work);
    const bool is_late = cuEventElapsedTime_v2(&milliseconds, before, streams.event) == NOT_READY;
    cuCtxSynchronize();
    return holds(needs_records && is_late && streams.pinned[63] == 11.0f &&
                 cuEventElapsedTime_v2(&milliseconds, before, streams.event) == 0 && milliseconds >= 0.0f);
}

const std::vector<Case> CASES = {
    {"a sound kernel adds", "",
     [] {
         const Address x = allocate(COUNT);
         const std::vector<float> ones(COUNT, 1.0f);
         cuMemcpyHtoDAsync_v2(x, ones.data(), 256, nullptr);
         return holds(launch("sound", x) == 0 && read(x, COUNT)[63] == 2.0f);
     }},
    {"memory begins as NaN", "", [] { return holds(std::isnan(read(allocate(5), 5)[4])); }},
    {"an access past an allocation is reported", "is of no allocation", [] { return launch("past_the_end", allocate(COUNT)); }},
    {"an access to freed memory is reported", "is of no allocation",
     [] {
         const Address x = allocate(COUNT);
         cuMemFreeAsync(x, nullptr);
         return launch("sound", x);
     }},
    {"an access past shared memory is reported", "is of no allocation",
     [] { return launch("past_shared", allocate(COUNT), 128); }},
    {"the host cannot read device memory", "the host touched", [] { return (int)*(volatile float*)allocate(COUNT); }, SIGSEGV},
    {"a misaligned vector is reported", "not a multiple of its size", [] { return launch("misaligned", allocate(COUNT)); }},
    {"threads at two barriers are reported", "while others wait at that of line",
     [] { return launch("two_barriers", allocate(COUNT)); }},
    {"a barrier that not all reach is reported", "never reach", [] { return launch("uneven", allocate(COUNT)); }},
    {"a shuffle without a lane is reported", "has 31", [] { return launch("lane_left", allocate(COUNT)); }},
    {"orders show a barrier left out", "",
     [] {
         // The first thread reads what the last one wrote.
         return holds(std::isnan(result("without_barrier", "forward")[0]) && result("without_barrier", "backward")[0] == 63.0f);
     }},
    {"shared memory begins as NaN", "", [] { return holds(has_nan(result("unwritten", "random"))); }},
    {"shared memory ends with its block", "",
     [] { return holds(has_nan(result("leaves_early", "greedy", 2)) && has_nan(result("leaves_early", "greedy-back", 2))); }},
    {"a block has the threads of its kernel at most", "",
     [] { return holds(launch("sound", allocate(COUNT), 0, 1, COUNT + 1) == 1); }},
    {"a launch has blocks", "", [] { return holds(launch("sound", allocate(COUNT), 0, 0) == 1); }},
    {"clusters are whole", "", [] { return holds(launch("leaves_early", allocate(3 * COUNT), 256, 3) == 1); }},
    {"more than 48 kB of shared memory are asked for", "",
     [] {
         const Address x = allocate(COUNT);
         const int before = launch("sound", x, 50 << 10);
         cuFuncSetAttribute(function("sound"), SHARED_BYTES_ATTRIBUTE, 50 << 10);
         return holds(before == 1 && launch("sound", x, 50 << 10) == 0);
     }},
    {"a block has 227 kB of shared memory at most", "",
     [] { return holds(cuFuncSetAttribute(function("sound"), SHARED_BYTES_ATTRIBUTE, (227 << 10) + 1) == 1); }},
    {"capability 8.0 has no clusters and 163 kB", "",
     [] {
         setenv("FULMAR_EMULATED_CAPABILITY", "80", 1);
         int major = 0;
         cuDeviceGetAttribute(&major, 75, 0);
         return holds(major == 8 && launch("leaves_early", allocate(2 * COUNT), 256, 2) == 719 &&
                      cuFuncSetAttribute(function("sound"), SHARED_BYTES_ATTRIBUTE, (163 << 10) + 1) == 1);
     }},
    {"an unknown kernel is not found", "", [] { return holds(function("nothing") == nullptr); }},
    {"an unknown order is refused", "must be forward",
     [] {
         setenv("FULMAR_EMULATED_ORDER", "sideways", 1);
         return launch("sound", allocate(COUNT));
     }},
    {"an allocation fails where asked", "",
     [] {
         setenv("FULMAR_EMULATED_FAIL_ALLOCATION", "2", 1);
         return holds(allocate(1) && !allocate(1) && allocate(1));
     }},
    {"a launch fails where asked", "",
     [] {
         setenv("FULMAR_EMULATED_FAIL_LAUNCH", "1", 1);
         const Address x = allocate(COUNT);
         return holds(launch("sound", x) == 701 && launch("sound", x) == 0);
     }},
    {"each launch of a number fails where asked", "",
     [] {
         setenv("FULMAR_EMULATED_FAIL_EACH_LAUNCH", "2", 1);
         const Address x = allocate(COUNT);
         std::vector<int> statuses;
         for (int i = 0; i < 4; i++) statuses.push_back(launch("sound", x));
         return holds(statuses == std::vector<int>{0, 701, 0, 701});
     }},
    {"memory has an end", "",
     [] {
         Address x = 0;
         return holds(cuMemAllocAsync(&x, (size_t)9 << 30, nullptr) == 2);
     }},
    {"a copy stays in its allocation", "",
     [] {
         const Address x = allocate(COUNT);
         const std::vector<float> more(COUNT + 1);
         return holds(cuMemcpyHtoDAsync_v2(x, more.data(), 260, nullptr) == 1 && read(x + 4, COUNT).empty());
     }},
    {"memory is freed once", "",
     [] {
         const Address x = allocate(1);
         return holds(cuMemFreeAsync(x, nullptr) == 0 && cuMemFreeAsync(x, nullptr) == 1);
     }},
    {"a graph keeps arguments and repeats launches", "", add_in_a_graph},
    {"a capture refuses waits, memory and copies of the host", "", refuse_in_a_capture},
    {"what another stream copies is there once the right event has passed", "", wait_for_events},
    {"copies read and write pinned memory late", "", copy_late},
    {"a copy overtakes what is queued on another stream", "", overtake},
    {"work of a stream stays in order", "", stay_in_order},
    {"a copy to memory that was freed before is reported", "freed before it was done",
     [] {
         Two streams;
         streams.upload(streams.copies);
         cuMemFreeAsync(streams.x, streams.work);
         return cuStreamSynchronize(streams.copies);
     }},
    {"memory is freed after the work of its stream", "",
     [] {
         Two streams;
         streams.upload(streams.work);
         streams.add(streams.work, 1.0f);
         return holds(cuMemFreeAsync(streams.x, streams.work) == 0 && cuStreamSynchronize(streams.work) == 0);
     }},
    {"pinned memory fails where asked", "",
     [] {
         setenv("FULMAR_EMULATED_FAIL_PINNED", "1", 1);
         void* pinned = nullptr;
         return holds(cuMemHostAlloc(&pinned, 1, 0) == 2 && cuMemHostAlloc(&pinned, 1, 0) == 0);
     }},
    {"a launch of a graph fails where asked", "",
     [] {
         setenv("FULMAR_EMULATED_FAIL_LAUNCH", "1", 1);
         void *stream = nullptr, *graph = nullptr, *executable = nullptr;
         cuStreamCreate(&stream, 0);
         cuStreamBeginCapture_v2(stream, THREAD_LOCAL);
         cuStreamEndCapture(stream, &graph);
         cuGraphInstantiateWithFlags(&executable, graph, 0);
         return holds(cuGraphLaunch(executable, stream) == 701 && cuGraphLaunch(executable, stream) == 0);
     }},
    {"a pool counts what is allocated", "",
     [] {
         uint64_t before = 0, used = 0;
         cuMemPoolGetAttribute(nullptr, USED_BYTES, &before);
         allocate(COUNT);
         cuMemPoolGetAttribute(nullptr, USED_BYTES, &used);
         return holds(used == before + BYTES && cuMemPoolGetAttribute(nullptr, 1, &used) == 1);
     }},
};

bool passes(const Case& of) {
    int ends[2];
    if (pipe(ends)) return false;
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], 2);
        _exit(of.run());
    }
    close(ends[1]);
    std::string text;
    char part[512];
    for (ssize_t size; (size = ::read(ends[0], part, sizeof(part))) > 0;) text.append(part, size);
    close(ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    const bool has_ended = of.signal_number ? WIFSIGNALED(status) && WTERMSIG(status) == of.signal_number
                                            : WIFEXITED(status) && WEXITSTATUS(status) == (*of.text ? 86 : 0);
    if (has_ended && text.find(of.text) != std::string::npos) return true;
    printf("FAILED %s: status %x, text %s\n", of.name, status, text.c_str());
    return false;
}
} // namespace

int main() {
    size_t passed = 0;
    for (const auto* cases : {&CASES, &TILE_CASES})
        for (const Case& of : *cases) passed += passes(of);
    const size_t count = CASES.size() + TILE_CASES.size();
    printf("%zu passed, %zu failed\n", passed, count - passed);
    return passed == count ? 0 : 1;
}
