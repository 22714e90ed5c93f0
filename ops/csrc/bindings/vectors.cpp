// Pass torch's choice of instruction set to the CPU kernels when the library is loaded.

#include "../cpu/vectors.h"

#include <ATen/Version.h>

#include <string>

namespace lensbox {
namespace {

// ATEN_CPU_CAPABILITY=avx2 or =default limits the instruction set of torch, and of Lensbox with it.
Vectors vectors() {
  const std::string capability = at::get_cpu_capability();
  if (capability == "AVX512") return Vectors::kAvx512;
  return capability == "AVX2" ? Vectors::kAvx2 : Vectors::kBaseline;
}

[[maybe_unused]] const bool is_set = (lensbox_cpu_set_vectors(vectors()), true);

}  // namespace
}  // namespace lensbox
