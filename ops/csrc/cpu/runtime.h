// What the CPU kernels ask their caller for: threads, and which instruction set to use.
#pragma once

#include <cstdint>

#include "../problems.h"
#include "vectors.h"

namespace lensbox {

using RangeFunction = void (*)(const void* context, int64_t begin, int64_t end);

struct CpuRuntime {
  // Call body(context, from, to) for ranges of at least `grain` that cover [begin, end), on several threads.
  void (*parallel_for)(int64_t begin, int64_t end, int64_t grain, RangeFunction body, const void* context);
  // Return how many threads parallel_for would use.
  int64_t (*threads)();
  Vectors vectors;
};

// Set it before the first kernel is called.
LENSBOX_KERNEL void lensbox_cpu_set_runtime(const CpuRuntime& runtime);

extern CpuRuntime cpu_runtime;

template <typename Body>
void parallel_for(int64_t begin, int64_t end, int64_t grain, const Body& body) {
  const auto call = [](const void* context, int64_t from, int64_t to) {
    (*static_cast<const Body*>(context))(from, to);
  };
  cpu_runtime.parallel_for(begin, end, grain, call, &body);
}

}  // namespace lensbox
