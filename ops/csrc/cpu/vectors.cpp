#include "vectors.h"

#include <ATen/Version.h>

#include <string>

namespace lensbox {

Vectors widest_vectors() {
  static const Vectors widest = [] {
    const std::string capability = at::get_cpu_capability();
    if (capability == "AVX512") return Vectors::kAvx512;
    return capability == "AVX2" ? Vectors::kAvx2 : Vectors::kBaseline;
  }();
  return widest;
}

}  // namespace lensbox
