// Work of a stream is done as late as CUDA allows: when the host or another stream waits for it. So a copy is not there, and a
// kernel has not run, unless something waits for the right event, and memory that is used again too early shows.
//
// A stream that waits for an event lets the other stream's work be done at once, before its own pending work: CUDA allows that
// as well, and it shows a copy over memory that queued work still reads. Work of the default stream is done when its call
// returns, after the work of each stream that is not CU_STREAM_NON_BLOCKING.
#include "streams.h"
#include <mutex>
#include <set>

namespace emulated {

namespace {
// Held while work is done: the work of a stream is done by one thread at a time, in order.
std::mutex order;

std::set<Stream*>& streams() {
    static std::set<Stream*> all;
    return all;
}

void run_first(Stream& stream) {
    const Work work = std::move(stream.pending.front());
    stream.pending.pop_front();
    work();
}

void drain(Stream& stream) {
    while (!stream.pending.empty()) run_first(stream);
}

void drain_blocking() {
    for (Stream* stream : streams())
        if (stream->is_blocking) drain(*stream);
}
} // namespace

Stream* stream_of(void* handle) {
    static Stream by_default;
    return handle ? (Stream*)handle : &by_default;
}

Stream* create_stream(bool is_blocking) {
    std::lock_guard<std::mutex> held(order);
    auto* stream = new Stream;
    stream->is_blocking = is_blocking;
    return *streams().insert(stream).first;
}

void destroy_stream(Stream* stream) {
    std::lock_guard<std::mutex> held(order);
    drain(*stream);
    streams().erase(stream);
    delete stream;
}

void append(Stream& stream, Work work) {
    std::lock_guard<std::mutex> held(order);
    if (&stream != stream_of(nullptr)) return stream.pending.push_back(std::move(work));
    drain_blocking();
    work();
}

void record(Event& event, Stream& stream) {
    auto point = std::make_shared<Point>();
    point->stream = &stream;
    event.point = point;
    append(stream, [point] { point->is_passed = true, point->at = std::chrono::steady_clock::now(); });
}

bool is_passed(const Event& event) {
    std::lock_guard<std::mutex> held(order);
    return !event.point || event.point->is_passed;
}

void pass(const Event& event) {
    std::lock_guard<std::mutex> held(order);
    while (event.point && !event.point->is_passed) run_first(*event.point->stream);
}

void finish(Stream& stream) {
    std::lock_guard<std::mutex> held(order);
    drain(stream);
    if (&stream == stream_of(nullptr)) drain_blocking();
}

void finish_all() {
    std::lock_guard<std::mutex> held(order);
    for (Stream* stream : streams()) drain(*stream);
}

} // namespace emulated
