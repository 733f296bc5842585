// Runs the blocks of a launch: see blocks.cpp.
#pragma once
#include "threads.h"

namespace emulated {

// Runs all blocks of a launch, and returns when the last thread has ended.
void run(const Launch& launch, void** arguments);

// Returns the value of an environment variable, or `otherwise` where it is not set.
const char* option(const char* name, const char* otherwise);

} // namespace emulated
