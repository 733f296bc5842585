// Threads of blocks as fibers, one cluster after the other on each core of the processor.
//
// FULMAR_EMULATED_ORDER chooses which thread runs next. In the fair orders (forward, backward, random) each thread runs up to
// its next barrier in its turn. In the greedy ones (greedy, greedy-back) a warp runs as far as it can before the next warp,
// and a block before the next block of its cluster: these show a missing barrier.
#include "blocks.h"
#include <sys/mman.h>
#include <atomic>
#include <condition_variable>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

// Saves the registers that a call keeps, changes to the stack `to`, and restores those that were saved on it.
asm(R"(
.text
.globl emulated_switch
.type emulated_switch, @function
emulated_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");
extern "C" void emulated_switch(void** from, void* to);

namespace emulated {

thread_local Fiber* current;
thread_local const Launch* launch;
static thread_local void* scheduler;
static thread_local const std::function<void()>* body;

constexpr size_t STACK_BYTES = 32 << 10;
constexpr unsigned CORES_MAX = 16;

std::map<std::string, Kernel>& kernels() {
    static std::map<std::string, Kernel> all;
    return all;
}

const char* option(const char* name, const char* otherwise) {
    const char* value = getenv(name);
    return value ? value : otherwise;
}

void fail(const char* format, ...) {
    if (current) {
        const Index block = current->block->index, thread = current->thread;
        fprintf(stderr, "emulated: %s, block (%u, %u, %u), thread (%u, %u, %u): ", launch->name.c_str(), block.x, block.y,
                block.z, thread.x, thread.y, thread.z);
    } else {
        fprintf(stderr, "emulated: ");
    }
    va_list values;
    va_start(values, format);
    vfprintf(stderr, format, values);
    va_end(values);
    fputc('\n', stderr);
    _Exit(86);
}

static void yield() { emulated_switch(&current->stack_pointer, scheduler); }

static void open(Barrier& barrier) { barrier.arrived = 0, barrier.generation++; }

void wait(Barrier& barrier, int line) {
    Fiber* fiber = current;
    if (barrier.arrived == 0) barrier.line = line;
    if (barrier.line != line)
        fail("at the %s's barrier of line %d, while others wait at that of line %d", barrier.of, line, barrier.line);
    if (++barrier.arrived == barrier.wanted) return open(barrier);
    fiber->waits_at = &barrier;
    fiber->generation = barrier.generation;
    yield();
}

// The first function of a fiber.
static void enter() {
    (*body)();
    Fiber* fiber = current;
    if (!fiber->copies.empty()) fail("ends while %zu of its copies are under way", fiber->copies.size());
    fiber->is_done = true;
    fiber->warp->num_running--;
    // The shared memory of a block that has ended is no more.
    if (--fiber->block->num_running == 0 && launch->shared_bytes) memset(fiber->block->shared, 0xff, launch->shared_bytes);
    for (Barrier* barrier : {&fiber->block->barrier, &fiber->warp->barrier, &fiber->cluster->barrier})
        if (--barrier->wanted > 0 && barrier->arrived == barrier->wanted) open(*barrier);
    yield();
    abort();
}

enum class Order { Forward, Backward, Random, Greedy, GreedyBack };

static Order chosen_order() {
    const std::string name = option("FULMAR_EMULATED_ORDER", "forward");
    const std::pair<const char*, Order> orders[] = {{"forward", Order::Forward},
                                                    {"backward", Order::Backward},
                                                    {"random", Order::Random},
                                                    {"greedy", Order::Greedy},
                                                    {"greedy-back", Order::GreedyBack}};
    for (auto [known, order] : orders)
        if (name == known) return order;
    fail("FULMAR_EMULATED_ORDER must be forward, backward, random, greedy or greedy-back: got %s", name.c_str());
}

// Memory that ends at a page without rights. `alignment` divides its first address, so fewer bytes than that may separate its
// end from the page. One that grows keeps the pages of more bytes.
struct Arena {
    unsigned char *base = nullptr, *first = nullptr;
    size_t mapped = 0, bytes = 0;

    Arena() = default;
    Arena(const Arena&) = delete;
    ~Arena() { unmap(); }
    void unmap() {
        if (base) munmap(base, mapped);
        base = nullptr;
    }
    void allocate(size_t wanted, size_t alignment) {
        unmap();
        const size_t pages = (wanted + 4095) / 4096 * 4096;
        mapped = pages + 4096, bytes = wanted;
        base =
            (unsigned char*)mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) fail("%zu bytes of memory for a block cannot be had", mapped);
        mprotect(base + pages, 4096, PROT_NONE);
        first = base + pages - (wanted + alignment - 1) / alignment * alignment;
    }
};

// One core of the processor: it runs a cluster at a time.
class Core {
  public:
    void run(const Launch& of, uint64_t first_block, const std::function<void()>& work) {
        emulated::launch = &of, body = &work;
        prepare(of, first_block);
        num_left = (uint32_t)fibers.size();
        const bool is_greedy = order == Order::Greedy || order == Order::GreedyBack;
        while (num_left > 0) {
            if (order == Order::Random) shuffle();
            if (!(is_greedy ? run_blocks() : run_fibers(0, (uint32_t)turns.size()))) report_hang();
        }
        current = nullptr;
    }

  private:
    Order order = Order::Forward;
    std::vector<Fiber> fibers;
    std::vector<Warp> warps;
    std::vector<uint32_t> turns; // numbers of fibers, in the order in which they run
    Cluster cluster;
    Arena stacks;
    std::map<std::pair<uint32_t, uint32_t>, Arena> shared; // by the number of a block in its cluster, and its bytes
    uint32_t num_left = 0, threads = 0, seed = 12345;

    void prepare(const Launch& of, uint64_t first_block) {
        order = chosen_order();
        threads = of.block.x * of.block.y * of.block.z;
        const uint32_t num_blocks = of.kernel->cluster, count = threads * num_blocks, warps_each = (threads + 31) / 32;
        if (stacks.bytes < count * STACK_BYTES) stacks.allocate(count * STACK_BYTES, 4096);
        fibers.assign(count, Fiber{});
        warps.assign(warps_each * num_blocks, Warp{});
        cluster = Cluster{};
        cluster.barrier.wanted = count;
        cluster.blocks.resize(num_blocks);
        for (uint32_t rank = 0; rank < num_blocks; rank++) {
            const uint64_t at = first_block + rank;
            Arena& memory = shared[{rank, of.shared_bytes}];
            if (!memory.base) memory.allocate(of.shared_bytes, 128);
            if (of.shared_bytes) memset(memory.first, 0xff, of.shared_bytes); // NaN: what no thread wrote shows
            Block& block = cluster.blocks[rank];
            block.index = {(uint32_t)(at % of.grid.x), (uint32_t)(at / of.grid.x % of.grid.y),
                           (uint32_t)(at / of.grid.x / of.grid.y)};
            block.shared = memory.first;
            block.rank = rank;
            block.barrier.wanted = block.num_running = threads;
            for (uint32_t thread = 0; thread < threads; thread++)
                prepare_fiber(of, rank * threads + thread, thread, block, warps[rank * warps_each + thread / 32]);
        }
        turns.resize(count);
        const bool is_backward = order == Order::Backward || order == Order::GreedyBack;
        for (uint32_t turn = 0; turn < count; turn++) turns[turn] = is_backward ? count - 1 - turn : turn;
    }

    void prepare_fiber(const Launch& of, uint32_t number, uint32_t thread, Block& block, Warp& warp) {
        Fiber& fiber = fibers[number];
        fiber.thread = {thread % of.block.x, thread / of.block.x % of.block.y, thread / of.block.x / of.block.y};
        fiber.lane = thread % 32;
        fiber.warp = &warp, fiber.block = &block, fiber.cluster = &cluster;
        warp.barrier.wanted++, warp.num_running++;
        // What emulated_switch pops: six registers, then the address where the fiber begins.
        void** top = (void**)(stacks.first + (number + 1) * STACK_BYTES) - 2;
        *top = (void*)enter;
        for (int i = 0; i < 6; i++) *--top = nullptr;
        fiber.stack_pointer = top;
    }

    // Runs one fiber up to its next barrier; returns whether it could.
    bool step(Fiber& fiber) {
        if (fiber.is_done || (fiber.waits_at && fiber.waits_at->generation == fiber.generation)) return false;
        fiber.waits_at = nullptr;
        current = &fiber;
        emulated_switch(&scheduler, fiber.stack_pointer);
        num_left -= fiber.is_done;
        return true;
    }

    bool run_fibers(uint32_t from, uint32_t to) {
        bool has_moved = false;
        for (uint32_t turn = from; turn < to; turn++) has_moved |= step(fibers[turns[turn]]);
        return has_moved;
    }

    bool run_blocks() {
        bool has_moved = false;
        for (uint32_t block = 0; block < turns.size(); block += threads) has_moved |= as_far([&] { return run_warps(block); });
        return has_moved;
    }

    bool run_warps(uint32_t block) {
        bool has_moved = false;
        for (uint32_t warp = 0; warp < threads; warp += 32)
            has_moved |= as_far([&] { return run_fibers(block + warp, block + min(warp + 32, threads)); });
        return has_moved;
    }

    template <class F>
    static bool as_far(F run) {
        bool has_moved = false;
        while (run()) has_moved = true;
        return has_moved;
    }

    void shuffle() {
        for (uint32_t i = (uint32_t)turns.size() - 1; i > 0; i--)
            std::swap(turns[i], turns[(seed = seed * 1664525 + 1013904223) / 65536 % (i + 1)]);
    }

    [[noreturn]] void report_hang() {
        for (Fiber& fiber : fibers) {
            if (fiber.is_done) continue;
            current = &fiber;
            fail("waits at the %s's barrier of line %d, which %u threads never reach", fiber.waits_at->of, fiber.waits_at->line,
                 fiber.waits_at->wanted - fiber.waits_at->arrived);
        }
        abort();
    }
};

// The other cores: a thread each, which waits for work. One launch runs at a time.
class Others {
  public:
    // Runs `work` here and on up to `wanted` other cores.
    void run(unsigned wanted, const std::function<void()>& work) {
        if (wanted > 0) {
            std::lock_guard<std::mutex> held(lock);
            while (num_threads < wanted) {
                num_threads++;
                std::thread([this] { serve(); }).detach();
            }
            shared = &work, num_wanted = wanted;
            has_work.notify_all();
        }
        work();
        std::unique_lock<std::mutex> held(lock);
        num_wanted = 0; // who comes now is too late
        is_idle.wait(held, [this] { return num_busy == 0; });
    }

  private:
    std::mutex lock;
    std::condition_variable has_work, is_idle;
    const std::function<void()>* shared = nullptr;
    unsigned num_threads = 0, num_wanted = 0, num_busy = 0;

    [[noreturn]] void serve() {
        std::unique_lock<std::mutex> held(lock);
        for (;;) {
            has_work.wait(held, [this] { return num_wanted > 0; });
            num_wanted--, num_busy++;
            const auto* work = shared;
            held.unlock();
            (*work)();
            held.lock();
            if (--num_busy == 0) is_idle.notify_one();
        }
    }
};

void run(const Launch& of, void** arguments) {
    const uint64_t blocks = (uint64_t)of.grid.x * of.grid.y * of.grid.z, clusters = blocks / of.kernel->cluster;
    const std::function<void()> work = [&] { of.kernel->call(arguments); };
    std::atomic<uint64_t> next{0};
    const std::function<void()> run_some = [&] {
        static thread_local Core core;
        for (uint64_t at; (at = next++) < clusters;) core.run(of, at * of.kernel->cluster, work);
    };
    static Others& others = *new Others; // its threads live as long as the process
    const uint64_t cores = max(1u, min(std::thread::hardware_concurrency(), CORES_MAX));
    others.run((unsigned)min(cores, clusters) - 1, run_some);
}

} // namespace emulated
