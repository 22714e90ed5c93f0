// Gives the CPU kernels torch's threads and its choice of instruction set, when the library is loaded.

#include "../cpu/runtime.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include <string>

namespace lensbox {
namespace {

void parallel_for(int64_t begin, int64_t end, int64_t grain, RangeFunction body, const void* context) {
  at::parallel_for(begin, end, grain, [=](int64_t from, int64_t to) { body(context, from, to); });
}

int64_t threads() {
  return at::in_parallel_region() ? 1 : at::get_num_threads();
}

// ATEN_CPU_CAPABILITY=avx2 or =default asks torch, and so Lensbox, for less than the machine has.
Vectors vectors() {
  const std::string capability = at::get_cpu_capability();
  if (capability == "AVX512") return Vectors::kAvx512;
  return capability == "AVX2" ? Vectors::kAvx2 : Vectors::kBaseline;
}

[[maybe_unused]] const bool is_set = (lensbox_cpu_set_runtime({parallel_for, threads, vectors()}), true);

}  // namespace
}  // namespace lensbox
