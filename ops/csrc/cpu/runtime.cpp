#include "runtime.h"

namespace lensbox {

// What the kernels were built for, as in version.cpp.
extern const char kernels_info[];
[[gnu::used]] const char kernels_info[] = LENSBOX_KERNELS_RECORD;

CpuRuntime cpu_runtime;

void lensbox_cpu_set_runtime(const CpuRuntime& runtime) {
  cpu_runtime = runtime;
}

Vectors widest_vectors() {
  return cpu_runtime.vectors;
}

}  // namespace lensbox
