// Streams, events and captured graphs: see streams.cpp.
#pragma once
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

namespace emulated {

using Work = std::function<void()>;

struct Graph {
    std::vector<Work> nodes;
};

struct Stream {
    std::unique_ptr<Graph> captured;
    bool is_invalid = false;
    int mode = 0;
    std::thread::id thread; // of the capture
    bool is_blocking = true; // in order with the default stream
    std::deque<Work> pending;
};

// What an event recorded: the work of a stream up to there.
struct Point {
    Stream* stream;
    bool is_passed = false;
    std::chrono::steady_clock::time_point at;
};

struct Event {
    std::shared_ptr<Point> point; // null before it is recorded
};

// Returns the stream of a handle: the default one for null.
Stream* stream_of(void* handle);

Stream* create_stream(bool is_blocking);
void destroy_stream(Stream* stream);

// Queues work that the stream does not capture.
void append(Stream& stream, Work work);

void record(Event& event, Stream& stream);

// Returns whether the work that the event recorded is done, or it recorded none.
bool is_passed(const Event& event);

// Does the work that the event recorded. Returns at once if it recorded none.
void pass(const Event& event);

// Does all work of a stream.
void finish(Stream& stream);

// Does all work.
void finish_all();

} // namespace emulated
