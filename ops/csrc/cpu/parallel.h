// Loops over images or over fixed parts of a batch, on the threads that torch gives an op. What an item
// computes does not depend on the thread, so results are the same to the bit for any number of threads.
#pragma once

#include <cstdint>

#include "../problems.h"

namespace lensbox {

// Calls body(item, context) for each item from 0 to count - 1, in any order, and returns after the last one.
using ParallelLoop = void (*)(int64_t count, void (*body)(int64_t item, const void* context),
                              const void* context);

// Set the loop that parallel_for() uses, before the first kernel is called; until then it runs in the calling
// thread.
LENSBOX_KERNEL void lensbox_cpu_set_parallel_loop(ParallelLoop loop);

ParallelLoop parallel_loop();

template <typename Body>
void parallel_for(int64_t count, const Body& body) {
  const auto call = [](int64_t item, const void* context) { (*static_cast<const Body*>(context))(item); };
  parallel_loop()(count, call, &body);
}

}  // namespace lensbox
