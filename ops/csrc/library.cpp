// What the bindings say and do as a whole, before an op is called: the build record in the file, the tie to
// kernels of the same headers, and torch's choice of instruction set for the CPU kernels.

#include <ATen/Version.h>

#include <string>

#include "cpu/vectors.h"

namespace lensbox {

// lensbox.ops reads the record from the file (strings liblensbox_ops.so | grep lensbox-build), because a
// library built for another torch often cannot be loaded.
extern const char build_info[];
[[gnu::used]] const char build_info[] = LENSBOX_BUILD_RECORD;

// The name holds the hash of the headers that bindings and kernels share (cmake/Libraries.cmake), so the
// linker loads these bindings with no other kernels.
LENSBOX_KERNEL const char LENSBOX_KERNELS_NAME[];

namespace {

[[gnu::used]] const char* const kernels_info = LENSBOX_KERNELS_NAME;

// ATEN_CPU_CAPABILITY=avx2 or =default limits the instruction set of torch, and of Lensbox with it.
Vectors vectors() {
  const std::string capability = at::get_cpu_capability();
  if (capability == "AVX512") return Vectors::kAvx512;
  return capability == "AVX2" ? Vectors::kAvx2 : Vectors::kBaseline;
}

[[maybe_unused]] const bool is_set = (lensbox_cpu_set_vectors(vectors()), true);

}  // namespace
}  // namespace lensbox
